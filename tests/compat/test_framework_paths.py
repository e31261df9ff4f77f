# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The modules below ``nki`` that programs use to compile kernels to files and to run them with executors."""

import dataclasses
import functools
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

import nki_mlir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import collectives, compile_options, compiled, driver, nki
from nki_mlir.language.current import language as nl
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.format.artifacts import unpack_kernel

X = np.arange(32, dtype=np.float32).reshape(4, 8)
Y = np.full((4, 8), 3.0, np.float32)


def affine(x, y, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.multiply(nl.load(x), factor), nl.load(y)))
    return out


def halves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    start = nl.program_id(0) * rows
    nl.store(out[start:start + rows], nl.multiply(nl.load(x[start:start + rows]), 2.0))
    return out


def update(state, x):
    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.add(nl.load(state), nl.load(x))
    nl.store(other, nl.multiply(total, 2.0))
    nl.store(state, total)
    return state, other


def variadic(*several):
    return affine(*several)


def product(x, y):
    out = nl.ndarray((128, 512), dtype=np.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.matmul(nl.load(x), nl.load(y), transpose_x=True))
    return out


class Recorder:
    """An executor that notes what it is given, and runs the compiled kernel."""

    def __init__(self):
        self.calls = []

    def __call__(self, compiled_kernel, inputs, outputs):
        self.calls.append((compiled_kernel, sorted(inputs), {n: (a.shape, a.dtype) for n, a in outputs.items()}))
        compiled_kernel.execute(inputs, outputs)


def test_names_are_importable():
    script = """
from nki_mlir.compat import install
install()
import nki, nki.language as nl
from nki.framework.kernel import Kernel
from nki.framework.compiled import CompileKernel, MultiRankExecutionError, StandaloneKernel
from nki.framework.compiled import compile_kernel_to_nir, compile_to_bir, run_from_bir
from nki.compiler.driver import CompileOptions, compile_to_bir, compile_bir_to_neff, _compile_bir_to_neff, run_from_bir
from nki.compiler.ncc_driver import (CompileOptions, CompiledKernel, compile_bir_to_neff, extract_perf_metrics,
                                     ExecutionResult, NirResult, KernelDescriptor)
from nki.language.buffers import hbm, sbuf, psum, shared_hbm, private_hbm
from nki.language.tensor import NkiTensor
assert (hbm, sbuf, psum, shared_hbm) == (nl.hbm, nl.sbuf, nl.psum, nl.shared_hbm)
assert NkiTensor is nl.NkiTensor is nl.tensor
assert Kernel is nki.Kernel and issubclass(CompileKernel, Kernel) and callable(nl.add)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_call_leaves_the_compiled_kernel(tmp_path):
    kernel = compiled.CompileKernel(func=affine, artifacts_dir=str(tmp_path), _enable_simulation=True)
    assert np.array_equal(kernel(X, Y), X * 2 + 3)
    assert np.array_equal(kernel(X, y=Y, factor=0.5), X * 0.5 + 3)
    content = unpack_kernel((tmp_path / "kernel.neff").read_bytes(), "kernel.neff")
    assert content.kernel == "affine" and len(content.programs) == 1
    assert json.loads((tmp_path / "info.json").read_text()) == {"lnc": 1, "num_tpb": 1}


@pytest.mark.parametrize("on", ["jit", "interpreter", "isa", "eager"])
def test_executor(tmp_path, on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", on)
    run = Recorder()
    kernel = nki.jit(halves)[2]._to_subclass(compiled.StandaloneKernel, artifacts_dir=str(tmp_path), target="trn2",
                                             _executor=run)
    assert kernel.lnc == 2 and np.array_equal(kernel(x=X), X * 2)
    (program, inputs, outputs), = run.calls
    assert (program.neff_path, program.lnc, program.target) == (str(tmp_path / "kernel.neff"), 2, "trn2")
    assert inputs == ["x"] and list(outputs.values()) == [((4, 8), np.float32)]
    assert len(unpack_kernel((tmp_path / "kernel.neff").read_bytes(), "").programs) == 2


def test_results_are_what_the_executor_fills():
    def fill(program, inputs, outputs):
        for array in outputs.values():
            array[...] = inputs["y"] + 1
    kernel = dataclasses.replace(nki.jit(affine)._to_subclass(compiled.StandaloneKernel), _executor=fill)
    assert np.array_equal(kernel(X, Y), Y + 1)
    assert np.array_equal(compiled.StandaloneKernel(func=affine, lnc=1, _executor=fill)(X, Y), Y + 1)


def test_cores():
    kernel = compiled.CompileKernel(func=halves, lnc=2, target="trn2")
    assert kernel.lnc == 2 and np.array_equal(kernel(X), X * 2) and kernel[1].lnc == 1
    assert dataclasses.replace(kernel, lnc=1).grid == (1,)
    assert compiled.CompileKernel(func=nki.jit(halves)).lnc == 1
    assert compiled.CompileKernel(func=nki.jit(halves)).func is halves


def test_updated_inputs():
    run, state = Recorder(), X.copy()
    kernel = compiled.CompileKernel(func=update, _executor=run)
    new, other = kernel(state, Y)
    assert new is state and np.array_equal(state, X + 3) and np.array_equal(other, (X + 3) * 2)
    assert run.calls[0][0].input_output_aliases == {0: "state"} and run.calls[0][0].is_tuple_return


def test_arguments_without_a_name__are_an_error():
    kernel = compiled.CompileKernel(func=variadic, _executor=Recorder())
    with pytest.raises(TypeError, match="parameter several of variadic cannot be passed by name"):
        kernel(X, Y)


def test_frameworks():
    torch = pytest.importorskip("torch")
    result = compiled.StandaloneKernel(func=affine, _executor=Recorder())(torch.tensor(X), torch.tensor(Y))
    assert type(result) is np.ndarray and np.array_equal(result, X * 2 + 3)
    assert torch.equal(compiled.CompileKernel(func=affine)(torch.tensor(X), torch.tensor(Y)), torch.tensor(X * 2 + 3))


def test_predicted_time(tmp_path):
    inputs = {"x": np.ones((128, 128), np.float32), "y": np.ones((128, 512), np.float32)}
    silent = driver.compile_kernel_to_nir(product, inputs=inputs, compile_opts=driver.CompileOptions())
    assert silent.total_time_ns is None and silent.estimated_utilization is None
    options = driver.CompileOptions(target="trn3", lnc=1, artifacts_dir=str(tmp_path), emit_predicted_latency=True)
    nir = driver.compile_kernel_to_nir(product, inputs=inputs, compile_opts=options)
    timing = neuron.timed(nir.specialization.optimized.streams)
    assert nir.specialization.target == "trn3" and nir.total_time_ns == round(timing.total_ns)
    assert nir.estimated_utilization == {e.value: ns / timing.total_ns for e, ns in timing.cores[0].busy_ns.items()}
    assert all(0 <= part <= 1 for part in nir.estimated_utilization.values())
    assert nir.mac_count == 128 * 128 * 512 and nir.hbm_bytes == 4 * (128 * 128 + 2 * 128 * 512)
    assert nir.descriptor.input_specs == [("x", (128, 128), np.float32), ("y", (128, 512), np.float32)]
    written = driver._compile_bir_to_neff(nir, options, inputs)
    assert written.total_time_ns == nir.total_time_ns
    result = written.benchmark(warmup=1, iterations=3, **inputs)
    assert np.array_equal(*result.outputs.values(), np.full((128, 512), 128.0))
    assert (result.latency, result.latency_std, result.benchmark_iterations) == (timing.total_ns / 1e9, 0.0, 3)
    profiled = written.run(profile=True, **inputs)
    figures = driver.extract_perf_metrics(written.neff_path, profiled.ntff_path)
    assert figures["total_time"] == profiled.latency and figures["hfu_estimated_percent"] == profiled.hfu
    assert written.run(**inputs).latency is None


def test_metrics_of_other_files(tmp_path):
    with pytest.warns(UserWarning, match="no figures of the profile"):
        assert driver.extract_perf_metrics(tmp_path / "a.neff", tmp_path / "a.ntff", verbose=True) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert driver.extract_perf_metrics(tmp_path / "a.neff", tmp_path / "a.ntff") is None


def test_outputs_have_the_names_of_the_caller(tmp_path):
    options = driver.CompileOptions(artifacts_dir=str(tmp_path), output_path="sub/a.neff")
    inputs = {"x": nki_mlir.spec((4, 8), "float32"), "y": Y, "factor": 4.0}
    bir = driver.compile_to_bir(affine, inputs=inputs, compile_opts=options, output_names=["hbm_tensor_0"])
    equal, other = (driver.compile_to_bir(affine, inputs={**inputs, "factor": f}) for f in (4.0, 5.0))
    assert bir.cache_hash == equal.cache_hash != other.cache_hash
    written = driver.compile_bir_to_neff(options, bir, [X, Y], ["x", "y"], ["hbm_tensor_0"])
    assert (tmp_path / "sub" / "a.neff").exists()
    outputs = written.prepare_outputs()
    written.execute({"x": X, "y": Y}, outputs)
    assert np.array_equal(outputs["hbm_tensor_0"], X * 4 + 3)
    assert np.array_equal(driver.run_from_bir(bir, options, {"x": X, "y": Y}, Recorder()), X * 4 + 3)
    with pytest.raises(TypeError, match="2 output names for 1 output"):
        driver.compile_to_bir(affine, inputs=inputs, output_names=["a", "b"])


def test_arrays_that_do_not_fit__are_an_error():
    written = driver.compile_bir_to_neff(driver.CompileOptions(), driver.compile_to_bir(
        affine, inputs={"x": X, "y": Y}))
    with pytest.raises(TypeError, match=r"the array x of a compiled kernel has shape \(4, 8\) and dtype float32, got \(2, 8\)"):
        written.run(x=X[:2], y=Y)
    with pytest.raises(TypeError, match=r"dtype float32, got \(4, 8\) and float64"):
        written.run(x=X.astype(float), y=Y)
    with pytest.raises(TypeError, match="a masked array is passed to a kernel"):
        written.run(x=np.ma.masked_array(X), y=Y)
    with pytest.raises(TypeError, match="takes an array y, which is missing"):
        written.run(x=X)


@pytest.mark.parametrize("on", ["jit", "interpreter", "isa"])
def test_arrays_that_are_not_contiguous(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", on)
    kernel, wide = compiled.CompileKernel(func=update, _executor=Recorder()), np.zeros((8, 16), np.float32)
    state = wide[::2, ::2]
    state[...] = X
    _, other = kernel(state, np.asfortranarray(Y))
    assert np.array_equal(wide[::2, ::2], X + 3) and not wide[1::2].any() and np.array_equal(other, (X + 3) * 2)


def test_bound_arguments_stay():
    assert np.array_equal(compiled.CompileKernel(func=functools.partial(affine, factor=5.0), _executor=Recorder())(
        x=X, y=Y), X * 5 + 3)


def test_options():
    with pytest.raises(ValueError, match="the compile option target cannot be 'trn9'") as caught:
        driver.CompileOptions(target="trn9")
    assert isinstance(caught.value, NkiMlirError) and "use one of trn1, inf2, trn2, trn3" in str(caught.value)
    assert caught.value.at is not None and caught.value.at.file == __file__
    with pytest.raises(ValueError, match="the compile option lnc cannot be 3"):
        driver.CompileOptions(lnc=3)
    options = driver.CompileOptions(lnc=1).set_pipeline_options("a-b=1", "c=2").set_pipeline_options("a-b=3")
    assert options.pipeline_options == ("c=2", "a-b=3")
    assert options.clear_pipeline_options("a").pipeline_options == ("c=2",)
    assert options.clear_pipeline_options().pipeline_options == ()
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field"):
        options.lnc = 2
    chosen = compiled.CompileKernel(func=affine, target="trn3", artifacts_dir="d")._compile_opts()
    assert (chosen.target, chosen.lnc, chosen.artifacts_dir, chosen.output_path) == ("trn3", 1, "d", "kernel.neff")
    assert set(chosen.pipeline_options) == {f"{n}=false" for n in compile_options.BACKEND_OPTIMIZATIONS}
    assert compiled.CompileKernel(func=affine, _enable_backend_opt=True)._compile_opts().pipeline_options == ()


def test_cache_key():
    kernel = compiled.CompileKernel(func=affine)
    assert kernel.get_cache_key(X, Y) == kernel.get_cache_key(X + 1, y=Y) != kernel.get_cache_key(X, Y, 3.0)


def test_arguments_are_converted_by_subclasses():
    @dataclasses.dataclass(eq=False, frozen=True)
    class Scaled(compiled.CompileKernel):
        scale: float = 1.0

        def __post_init__(self):
            super().__post_init__()
            object.__setattr__(self, "calls", [])

        def _compile_opts(self):
            self.calls.append("options")
            return dataclasses.replace(super()._compile_opts(), enable_statistics=True)

        def _convert_input(self, value, name):
            return value * np.float32(self.scale) if name == "x" else value

    kernel = nki.jit(affine)._to_subclass(Scaled, scale=10.0, _executor=Recorder())
    assert np.array_equal(kernel(X, Y), X * 20 + 3) and kernel.calls == ["options"]
    assert np.array_equal(dataclasses.replace(kernel, scale=3.0)(X, Y), X * 6 + 3)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'scale'"):
        kernel.scale = 2.0


@pytest.mark.parametrize("on", ["jit", "interpreter", "isa", "eager"])
def test_lists_have_an_array_for_each_rank(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", on)
    kernel = compiled.StandaloneKernel(func=affine)
    results = kernel([X, X + 1, X[:2]], [Y, Y, Y[:2]], 4.0)
    assert [r.tolist() for r in results] == [(x * 4 + 3).tolist() for x in (X, X + 1, X[:2])]


def all_reduced(x, count=2):
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    collectives.all_reduce(dsts=[total], srcs=[x], op=np.add,
                           replica_group=collectives.ReplicaGroup([[0, 1]]))
    return total


@pytest.mark.parametrize("on", ["jit", "interpreter", "isa"])
def test_ranks_exchange_data(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", on)
    first, second = compiled.CompileKernel(func=all_reduced)([X, Y])
    assert np.array_equal(first, X + 3) and np.array_equal(second, X + 3)


def test_executor_of_ranks():
    calls = []

    def executor(compiled_kernel, inputs, outputs, rank_id=0, world_size=1):
        calls.append((rank_id, world_size))
        compiled_kernel.execute(inputs, outputs, rank_id=rank_id, world_size=world_size)
    results = compiled.StandaloneKernel(func=affine, _executor=executor)([X, X + 1], [Y, Y])
    assert [r.tolist() for r in results] == [(X * 2 + 3).tolist(), (X * 2 + 5).tolist()]
    assert sorted(calls) == [(0, 2), (1, 2)]


def test_failures_of_ranks():
    def executor(compiled_kernel, inputs, outputs, rank_id=0, world_size=1):
        if rank_id == 1:
            raise ValueError("no such device")
        compiled_kernel.execute(inputs, outputs)
    kernel = compiled.StandaloneKernel(func=affine, _executor=executor)
    with pytest.raises(compiled.MultiRankExecutionError, match="rank 1: no such device") as caught:
        kernel([X, X], [Y, Y])
    assert isinstance(caught.value, RuntimeError)
    assert [(rank, type(error)) for rank, error in caught.value.rank_failures.items()] == [(1, ValueError)]


@pytest.mark.parametrize(("x", "y", "counts"), [([X, X], Y, "x is a list of 2, y is one array"),
                                               ([X, X], [Y], "x is a list of 2, y is a list of 1")])
def test_ranks_that_differ_in_number__are_an_error(x, y, counts):
    with pytest.raises(RuntimeError, match=f"arguments of affine do not agree on the number of ranks: {counts}"):
        compiled.StandaloneKernel(func=affine)(x, y)


def test_described_inputs():
    x = nl.NkiTensor(name="x", shape=(4, 8), dtype=nl.float32)
    assert (x.name, x.shape, x.dtype, x.buffer) == ("x", (4, 8), nl.float32, nl.shared_hbm)
    options = driver.CompileOptions()
    nir = driver.compile_kernel_to_nir(affine, inputs={"x": x, "y": x, "factor": 2.0}, compile_opts=options)
    same = driver.compile_kernel_to_nir(affine, inputs={"x": X, "y": Y, "factor": 2.0}, compile_opts=options)
    with pytest.raises(TypeError, match=r"inputs is a list, and not .*\n.*\n.*\n  fix: pass inputs=\{'x': ..., 'y': "):
        driver.compile_kernel_to_nir(affine, inputs=[X, Y], compile_opts=options)
    assert nir.input_specs == same.input_specs and nir.hbm_bytes == same.hbm_bytes == 3 * 4 * 32
    with pytest.raises(TypeError, match="unsupported dtype 'None'"):
        nl.NkiTensor(shape=(4, 8))
