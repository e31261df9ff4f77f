# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled kernels loaded from their files: what is wrong with a use of them, cores, events, traces."""

import json
import os

import numpy as np
import pytest

from nki_mlir.compat import nkipy_runtime
from nki_mlir.language.current import driver, nki, runtime
from nki_mlir.language.current import language as nl
from nki_mlir.targets.neuron.format.artifacts import unpack_trace

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    monkeypatch.setenv(runtime.CORES, "")               # so that it is as it was behind the test
    runtime.reset()
    yield
    runtime.reset()


@pytest.fixture
def neff(tmp_path):
    options = driver.CompileOptions(artifacts_dir=str(tmp_path))
    return driver.compile_bir_to_neff(options, driver.compile_to_bir(double, inputs={"x": X}, compile_opts=options)).neff_path


def test_call__checks_names_shapes_dtypes_and_cores(neff):
    model = runtime.SpikeModel.load_from_neff(neff, core_id=1)
    tensor = lambda array, core=1: {"x": runtime.SpikeTensor.from_numpy(array, core_id=core)}
    with pytest.raises(ValueError, match=r"the inputs of double are x; got y"):
        model({"y": runtime.SpikeTensor.from_numpy(X)})
    with pytest.raises(AssertionError, match=r"inputs x has shape \(4, 8\), got \(2, 8\)"):
        model(tensor(X[:2]))
    with pytest.raises(AssertionError, match="inputs x has dtype float32, got int32"):
        model(tensor(X.astype(np.int32)))
    with pytest.raises(AssertionError, match="inputs x is on core 0"):
        model(tensor(X, 0))
    result, = model(tensor(X)).values()
    assert np.array_equal(result.numpy(), X * 2)
    with pytest.raises(runtime.SpikeError, match=r"there is no mode 'fast' of benchmark \[NKI-RUNTIME\]"):
        model.benchmark(tensor(X), mode="fast")


def test_files_that_are_no_kernels(tmp_path):
    with pytest.raises(runtime.NrtError, match=r"none.neff cannot be read: No such file"):
        runtime.SpikeModel.load_from_neff(tmp_path / "none.neff")
    os.mkfifo(tmp_path / "pipe.neff")
    for file in (tmp_path / "pipe.neff", "/dev/zero"):
        with pytest.raises(runtime.NrtError, match=rf"{file} cannot be read: it is not a regular file"):
            runtime.SpikeModel.load_from_neff(file)
    (tmp_path / "text.neff").write_text("no kernel")
    with pytest.raises(RuntimeError, match=r"text.neff is not a compiled kernel of nki_mlir"):
        runtime.SpikeModel.load_from_neff(tmp_path / "text.neff")


def test_cores_are_chosen_before_the_first_kernel(neff):
    with pytest.raises(TypeError, match="visible_cores must be a list of numbers, got 3"):
        runtime.configure(visible_cores=3)
    with pytest.raises(ValueError, match="cores must be numbers of 0 or more, got"):
        runtime.configure(visible_cores=[-1])
    runtime.configure(visible_cores=[0, 2])
    assert runtime.Spike.get_visible_neuron_core_count() == 2
    runtime.SpikeModel.load_from_neff(neff)
    with pytest.raises(RuntimeError, match="cores must be chosen before the first kernel is loaded"):
        runtime.configure(visible_cores=[0])


def test_tensor__takes_as_many_bytes(neff):
    tensor = runtime.SpikeTensor.from_numpy(X)
    tensor.write_from_numpy((X + 1).reshape(-1))
    assert np.array_equal(tensor.numpy(), X + 1)
    with pytest.raises(ValueError, match="the array has 64 bytes, the tensor 128"):
        tensor.write_from_numpy(X[:2])


def test_trace_and_events(neff, tmp_path):
    model = runtime.SpikeModel.load_from_neff(neff)
    inputs = {"x": runtime.SpikeTensor.from_numpy(X)}
    with runtime.SystemTraceSession() as session:
        model(inputs, save_trace=True, ntff_name=str(tmp_path / "t.ntff"))
        model(inputs)
        events = json.loads(session.fetch_events_json())["events"]
    model(inputs)
    assert json.loads(session.fetch_events_json()) == {"events": [], "source": "model"}
    took = [b["data"]["nc_timestamp_ns"] - a["data"]["nc_timestamp_ns"] for a, b in zip(events[::2], events[1::2])]
    assert took == [round(1e6 * model.milliseconds)] * 2 and [e["tracking_id"] for e in events] == [1, 1, 2, 2]
    trace = unpack_trace((tmp_path / "t.ntff").read_bytes(), "t.ntff")
    assert trace.digest == model.content.digest and trace.summary["total_time"] == pytest.approx(model.milliseconds / 1e3)


def test_artifacts_of_plain_calls(tmp_path, monkeypatch):
    monkeypatch.setenv("NKI_ARTIFACTS_DIR", str(tmp_path / "a"))
    assert np.array_equal(nki.jit(double)(X), X * 2)
    model = runtime.SpikeModel.load_from_neff(tmp_path / "a" / "kernel.neff")
    assert list(model.input_tensors_info) == ["x"] and model.name == "double"


def test_array_programs_are_refused():
    with pytest.raises(nkipy_runtime.NeedsVendorCompiler,
                       match=r"DeviceKernel.compile_and_load needs the vendor's compiler \[NKI-VENDOR-COMPILER\]"):
        nkipy_runtime.DeviceKernel.compile_and_load(double)
