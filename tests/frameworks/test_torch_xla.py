# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on the lazy tensors of an installed torch_xla: the custom call in its graphs, and values.

Each test runs in its own process, because torch_xla has to be loaded before any kernel is compiled.
"""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nki_mlir.frameworks.linked_process import run_in_process  # noqa: E402

from . import kernels  # noqa: E402

pytestmark = pytest.mark.torch
installed = pytest.mark.skipif(importlib.util.find_spec("torch_xla") is None, reason="torch_xla is not installed")

START = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import torch, torch_xla
import torch_xla.core.xla_model as xm
from frameworks import kernels
inside, device = torch_xla._XLAC, torch_xla.device()
A, B = torch.arange(512.0).reshape(32, 16), torch.ones(32, 16)
a, b = A.to(device), B.to(device)
class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return kernels.add[2](x, y)
    @staticmethod
    def backward(ctx, gradient):
        return kernels.scaled(gradient, 1.0), gradient
"""


@installed
def test_graph__has_the_documented_call(child):
    assert child(START + """
hlo = inside._get_xla_tensors_hlo([kernels.add[2](a, b) * a * b])
assert 'custom_call_target="AwsNeuronCustomNativeKernel", api_version=API_VERSION_UNSPECIFIED, backend_config="' in hlo
from nki_mlir.frameworks.recovery import kernels_in
(kernel,) = kernels_in(hlo)
assert kernel.name == "add" and kernel.grid == (2,)
from torch_xla.stablehlo import exported_program_to_stablehlo
class Model(torch.nn.Module):
    def forward(self, x, y):
        table = x * 1.0
        kernels.add_rows(table, y[:8])
        return kernels.add[2](table, y) * x
exported = exported_program_to_stablehlo(torch.export.export(Model(), (A, B)))
text = exported.get_stablehlo_text()
assert text.count("stablehlo.custom_call @AwsNeuronCustomNativeKernel") == 2
from nki_mlir.frameworks.linked_process import run_in_process
(got,) = run_in_process(text, [A.numpy(), B.numpy()])
assert torch.equal(torch.from_numpy(got), Model()(A, B))
print("done")
""", PJRT_DEVICE="CPU").endswith("done\n")


@installed
def test_values__where_tensors_are_read_and_at_steps(child):
    assert child(START + """
from nki_mlir.frameworks.torch_neuronx import nki_jit
from nki_mlir.frameworks.torch_xla import run
out = kernels.add[2](a, b) * a * b
assert torch.equal(out.cpu(), (A + B) * A * B) and repr(out[0, :2]) == "tensor([0., 2.], device='xla:0')"
assert kernels.add[2](out, b).sum().item() == ((A + B) * A * B + B).sum().item()
table = a.clone()
given, twice = kernels.add_rows(table, b[:8]), table * 2
xm.mark_step()
expected = torch.cat([A[:8] + 1, A[8:]])
assert given is table and torch.equal(table.cpu(), expected) and torch.equal(twice.cpu(), expected * 2)
made = torch.zeros(32, 16, device=device)
nki_jit(kernels.add_into)(a, b, made)
assert torch.equal(run([made])[0], A + B) and torch.equal(made.cpu(), A + B)
low = kernels.scaled(torch.ones(4, 4, dtype=torch.bfloat16, device=device), 2.0)
assert torch.equal(low.cpu(), torch.full((4, 4), 2.0, dtype=torch.bfloat16))
print("done")
""", PJRT_DEVICE="CPU").endswith("done\n")


@installed
def test_training(child):
    assert child(START + """
import copy
torch.manual_seed(0)
model = torch.nn.Linear(16, 16)
twin = copy.deepcopy(model)
model = model.to(device)
for net, x, y in ((model, a, b), (twin, A, B)):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        Added.apply(net(x / 100), y).pow(2).mean().backward()
        optimizer.step()
        if net is model:
            torch_xla.sync()
for p, q in zip(model.parameters(), twin.parameters()):
    torch.testing.assert_close(p.detach().cpu(), q.detach())
print("done")
""", PJRT_DEVICE="CPU").endswith("done\n")


@installed
def test_debug_output__is_the_graph(child, tmp_path):
    assert child(START + """
from pathlib import Path
(kernels.add[2](a, b) * a).cpu()
(file,) = Path().glob("MODULE_*_SyncTensorsGraph.hlo_module.pbtxt")
text = file.read_text()
assert " multiply(" in text and 'custom_call_target="AwsNeuronCustomNativeKernel"' in text
print("done")
""", PJRT_DEVICE="CPU", NEURON_FRAMEWORK_DEBUG="1").endswith("done\n")


@installed
def test_error__torch_xla_that_comes_after_a_kernel(child):
    assert child(START.replace("import torch, torch_xla", "import numpy\nfrom frameworks import kernels\n"
                               "kernels.scaled(numpy.ones((4, 4), numpy.float32), 2.0)\nimport torch, torch_xla") + """
try:
    kernels.add[2](a, b)
except RuntimeError as error:
    print("import torch_xla at the start of the program" in str(error))
""", PJRT_DEVICE="CPU").endswith("True\n")


def test_call__as_torch_xla_is_asked_for_it(monkeypatch):
    """``_xla_custom_call`` takes operands, target, shapes and dtypes of results, effect, config, version, attributes."""
    from nki_mlir.frameworks import torch_xla as own
    from nki_mlir.frameworks.torch import TorchKernel
    calls = []

    def custom_call(operands, target, shapes, dtypes, effect, config, version, attributes):
        calls.append((operands, target, shapes, dtypes, effect, version, attributes))
        return [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in zip(shapes, dtypes)]
    monkeypatch.setitem(sys.modules, "torch_xla", SimpleNamespace(_XLAC=SimpleNamespace(_xla_custom_call=custom_call)))
    monkeypatch.setattr(own, "once", lambda name, make: None)
    table, rows = torch.empty(24, 16, device="meta"), torch.empty(8, 16, device="meta")
    record = TorchKernel(func=kernels.add_rows).dump_config(table, rows).record
    (result,) = own.custom_call(record, [table], [rows])
    assert calls == [([table, rows], "AwsNeuronCustomNativeKernel", [(24, 16)], [torch.float32], False, 0, {})]
    assert result.shape == (24, 16)


@pytest.mark.parametrize("name, others, keywords, settles", [
    ("_local_scalar_dense", (), {}, True), ("_to_copy", (), {"device": "cpu"}, True),
    ("_to_copy", (), {"device": "xla"}, False), ("_to_copy", (), {"dtype": torch.float16}, False),
    ("_copy_from", (torch.empty(1),), {}, True), ("_copy_from", (torch.empty(1, device="meta"),), {}, False)])
@pytest.mark.parametrize("device", ["xla", "cpu"])
def test_operations_that_read_the_device__compute_what_they_read(name, others, keywords, settles, device, monkeypatch):
    from nki_mlir.frameworks import torch_xla as own
    computed, tensor = [], SimpleNamespace(device=torch.device(device))
    monkeypatch.setattr(own, "settle", lambda tensors: computed.extend(tensors))

    def call_boxed(keys, *arguments, **options):
        return len(computed), keys, arguments, options
    read = own._settled(SimpleNamespace(call_boxed=call_boxed), own.READS[name])
    assert read("keys", tensor, *others, **keywords) == (
        int(settles and device == "xla"), "keys", (tensor, *others), keywords)
    assert computed == [tensor] * (settles and device == "xla")


def test_linked_process__results_and_errors():
    add = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{ %0 = stablehlo.{} %a, %a : {} return %0 : tensor<2xf32> }}"
    x = np.array([1.0, 2.0], np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(run_in_process(add.format("add", "tensor<2xf32>"), [x])[0], x + x)
    with pytest.raises(RuntimeError, match="the StableHLO module cannot be run"):
        run_in_process("no module", [])
    with pytest.raises(RuntimeError, match=r"takes \(2,\) float32"):
        run_in_process(add.format("add", "tensor<2xf32>"), [x[:1]])
