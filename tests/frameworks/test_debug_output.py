# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NEURON_FRAMEWORK_DEBUG: the HLO of programs that call kernels, in the run directory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.frameworks import debug_output
from nki_mlir.frameworks.framework_kernel import FrameworkKernel
from nki_mlir.frameworks.hlo import module_of, text_of
from nki_mlir.frameworks.recovery import kernels_in

from . import kernels

A = np.arange(512, dtype=np.float32).reshape(32, 16)


def np_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.fixture
def run_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURON_FRAMEWORK_DEBUG", "1")
    return tmp_path


def written(directory):
    """{name: (proto, text)} of the files."""
    return {p.name.split(".")[0].split("_", 2)[2]: (p.with_suffix(".pb").read_bytes(), p.read_text())
            for p in directory.glob("MODULE_*.hlo_module.pbtxt")}


@pytest.mark.jax
def test_jax__program_around_the_call(run_directory):
    import jax

    def scaled_sum(a, b):
        return a * kernels.add[2](a, b)
    jax.jit(scaled_sum)(A, A)
    proto, text = written(run_directory)["jit_scaled_sum"]
    assert text.startswith("HloModule jit_scaled_sum, entry_computation_layout={(f32[32,16]{1,0}, f32[32,16]{1,0})")
    assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in text and " multiply(" in text
    assert "api_version=API_VERSION_STATUS_RETURNING" in text and 'backend_config="' in text
    for module in (proto, text):
        (kernel,) = kernels_in(module)
        np.testing.assert_array_equal(kernel(A, A), A + A)


@pytest.mark.jax
@pytest.mark.parametrize("platform", ["cpu", "neuron"])
def test_jax__at_lowering_for_any_platform(run_directory, platform):
    import jax
    jax.jit(lambda a: kernels.scaled(a, 5.0)).trace(A).lower(lowering_platforms=(platform,))
    ((_, text),) = written(run_directory).values()
    assert "api_version=API_VERSION_STATUS_RETURNING" in text


@pytest.mark.jax
def test_jax__lowering_that_fails_writes_nothing(run_directory):
    import jax

    def fails(a):
        return jax.lax.psum(kernels.scaled(a, 5.0), "no such axis")
    with pytest.raises(NameError, match="no such axis"):
        jax.jit(fails)(A)
    assert not list(run_directory.iterdir())


@pytest.mark.jax
def test_jax__a_file_that_cannot_be_written_ends_nothing(run_directory, monkeypatch):
    import jax
    monkeypatch.setattr(debug_output, "write", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.warns(UserWarning, match="disk full"):
        got = jax.jit(lambda a: kernels.scaled(a, 6.0))(A)
    np.testing.assert_array_equal(got, A * 6)


@pytest.mark.torch
def test_torch__program_of_the_call(run_directory):
    torch = pytest.importorskip("torch")
    table = torch.ones(24, 16)
    kernels.add_rows(table, torch.ones(8, 16))
    proto, text = written(run_directory)["add_rows"]
    assert "custom-call(table.0, rows.1)" in text and "output_to_operand_aliasing={{}: (0, {})}" in text
    for module in (proto, text):
        (kernel,) = kernels_in(module)
        np.testing.assert_array_equal(kernel(np.ones((24, 16), np.float32), A[:8])[:8], A[:8] + 1)


@pytest.mark.torch
@pytest.mark.jax
def test_torch__whole_program_that_is_exported(run_directory):
    torch = pytest.importorskip("torch")
    from nki_mlir.frameworks.torch_stablehlo import stablehlo_of

    class Scaled(torch.nn.Module):
        def forward(self, a, b):
            return a * b * kernels.add[2](a, b)
    stablehlo_of(Scaled(), torch.from_numpy(A), torch.from_numpy(A))
    proto, text = written(run_directory)["Scaled"]
    assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in text and text.count(" multiply(") == 2
    for module in (proto, text):
        (kernel,) = kernels_in(module)
        np.testing.assert_array_equal(kernel(A, A), A + A)


SCRIPT = """
import glob, os
os.environ["NEURON_FRAMEWORK_DEBUG"] = "1"
import numpy as np, torch
import torch_xla.core.xla_model as xm
from tests.frameworks import kernels
a, b = (torch.arange(512.).reshape(32, 16) for _ in range(2))
device = xm.xla_device()
a, b = a.to(device), b.to(device)

def keep(name):
    os.mkdir(name)
    for file in glob.glob("MODULE_*"):
        os.rename(file, os.path.join(name, file))

c = kernels.add[2](a, b)
unused = a - 1
out = a * b * c
print(out)
keep("tensor")
del c, unused, out
print((a * kernels.add[2](a, b)).sum().item())
keep("number")
w = torch.nn.Parameter(torch.ones(32, 16, device=device))
optimizer = torch.optim.SGD([w], lr=0.5)
class Add(torch.autograd.Function):
    forward = staticmethod(lambda context, x, y: kernels.add[2](x, y))
    backward = staticmethod(lambda context, g: (g, g))
for _ in range(2):
    optimizer.zero_grad()
    loss = Add.apply(a * w, b).sum()
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
print(np.array_equal(w.detach().numpy(), 1 - a.numpy()))
keep("step")
"""


@pytest.mark.torch
@pytest.mark.jax
def test_torch__whole_program_beside_the_stand_in_for_torch_xla(run_directory):
    """What was computed until a tensor is looked at is one program, as it is for torch_xla, and so is a step."""
    pytest.importorskip("torch")
    (run_directory / "script.py").write_text(SCRIPT)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    done = subprocess.run([sys.executable, "-m", "nki_mlir", "--torch-xla", "script.py"], cwd=run_directory, env=env,
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "HLO" not in done.stdout
    printed = re.fullmatch(r"tensor\(.*?\)\n(?P<total>.*)\nTrue\n", done.stdout, re.DOTALL)
    assert printed and printed["total"] == str(float((A * (A + A)).sum()))
    for name in ("tensor", "number", "step"):
        text, = [path.read_text() for path in (run_directory / name).glob("*_SyncTensorsGraph.hlo_module.pbtxt")]
        if name == "tensor":
            assert text.count(" multiply(") == 2 and text.count(" parameter(") == 2 and " subtract(" not in text
            (kernel,) = kernels_in(text)
            np.testing.assert_array_equal(kernel(A, A), A + A)
        elif name == "number":
            assert " reduce(" in text and " custom-call(" in text
        else:
            assert (" custom-call(" in text and "input_output_alias=" in text and " reduce(" in text
                    and "constant(-0.5)" in text)


def test_off__writes_nothing(run_directory, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("NEURON_FRAMEWORK_DEBUG", "0")
    kernels.scaled(torch.ones(4, 4), 11.0)
    assert not list(run_directory.iterdir())


@pytest.mark.jax
@pytest.mark.parametrize("kernel, shapes, dtype", [
    (kernels.sum_and_difference, 2, "float32"), (kernels.add_rows, 2, "bfloat16"), (kernels.scaled, 1, "int8"),
    (kernels.scaled, 1, "uint16"), (kernels.scaled, 1, "float8_e4m3fn"), (kernels.lower_triangle, 1, "float16")])
def test_module_of_one_call__is_what_xla_reads(kernel, shapes, dtype):
    """XLA parses both forms, and to the same module."""
    try:
        from jaxlib import _hlo
    except ImportError:             # before JAX 0.7
        from jaxlib import _jax as _hlo
    x = np.ones((8, 4)).astype(np_dtype(dtype))
    config = FrameworkKernel(func=kernel).dump_config(*[x] * shapes, *([2] if kernel is kernels.scaled else []))
    proto = _hlo.HloModule.from_serialized_hlo_module_proto(module_of(config.record))
    text = _hlo.hlo_module_from_text(text_of(config.record))
    assert proto.to_string() == text.to_string()
    assert kernels_in(proto.to_string())[0].record.key == config.record.key


def test_config__has_the_interface_where_tools_look():
    record = FrameworkKernel(func=kernels.add_rows).dump_config(A, A[:8]).record
    assert json.loads(json.dumps(record.fields()))["klir_binary"] == {
        "binary": "", "input_names": ["table.must_alias_input", "rows"], "output_names": ["table"],
        "version_identifier": "", "aliases": [[0, 0]]}
