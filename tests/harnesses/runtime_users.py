# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Users of the runtime: models and tensors by name, memory by bytes, traces of the system, cores that are chosen once."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from nki.compiler.driver import CompileOptions, _compile_bir_to_neff, run_from_bir
from nki.framework.compiled import (
    CompiledKernel,
    CompileKernel,
    MultiRankExecutionError,
    StandaloneKernel,
    compile_kernel_to_nir,
)
from nki.runtime import SpikeModel, SpikeTensor, configure, get_spike_singleton, reset
from nkipy.core.compile import CompilationTarget, compile_to_neff
from nkipy.runtime import DeviceTensor, is_neuron_compatible
from nrtpy.spike_model import SpikeModel as SameModel
from spike import BenchmarkResult, NrtError, SpikeError, SpikeRuntimeError
from spike._spike import Spike, SystemTraceSession

assert SameModel is SpikeModel and issubclass(SpikeError, SpikeRuntimeError) and issubclass(SpikeRuntimeError, RuntimeError)
work = tempfile.mkdtemp()


@nki.jit
def halves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    first = nl.program_id(0) * rows
    tile = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[first:first + rows, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[first:first + rows, :], src=tile)
    return out


def update(state, x):
    old, new = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=old, src=state)
    nisa.dma_copy(dst=new, src=x)
    nisa.tensor_tensor(dst=old, data1=old, data2=new, op=nl.add)
    nisa.dma_copy(dst=state, src=old)
    return state


# cores are chosen before the runtime starts
reset()
for wrong, kind in ((3, TypeError), ([-1], ValueError)):
    try:
        configure(visible_cores=wrong)
    except kind:
        continue
    sys.exit(f"{wrong} was taken")
configure(visible_cores=[0, 1])
assert os.environ["NEURON_RT_VISIBLE_CORES"] == "0,1" and is_neuron_compatible()
assert isinstance(get_spike_singleton(), Spike) and Spike.get_visible_neuron_core_count() == 2

# two cores: a pair of events each, which share one execution
x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
options = CompileOptions(target="trn2", lnc=2, artifacts_dir=work, output_path=os.path.join(work, "kernel.neff"),
                         emit_predicted_latency=True, enable_simulation=True)
nir = compile_kernel_to_nir(halves[2], inputs={"x": x}, compile_opts=options, enable_cache=False)
compiled = _compile_bir_to_neff(nir, options, {"x": x})
assert compiled.lnc == 2 and np.array_equal(compiled.birsim_outputs[0], x * 2)
assert json.load(open(os.path.join(work, "info.json")))["lnc"] == 2 and os.path.isdir(os.path.join(work, "sg00"))
model = compiled._ensure_loaded(0, 1)
inputs = {"x": SpikeTensor.from_numpy(x, name="x", core_id=0)}
with SystemTraceSession(0) as session:
    outputs = model(inputs)
    events = json.loads(session.fetch_events_json())["events"]
starts = {e["tracking_id"]: e for e in events if e["phase"] == "start"}
stops = {e["tracking_id"]: e for e in events if e["phase"] == "stop"}
assert len({e["data"]["device_core_idx"] for e in events}) == 2 and len({e["data"]["exec_id"] for e in events}) == 1
took = max(e["data"]["nc_timestamp_ns"] for e in stops.values()) - min(e["data"]["nc_timestamp_ns"] for e in starts.values())
assert took == nir.total_time_ns and np.array_equal(outputs[next(iter(model.output_tensors_info))].numpy(), x * 2)
bench = model.benchmark(inputs, warmup_iter=3, benchmark_iter=20, mode="device")
assert isinstance(bench, BenchmarkResult) and len(bench.durations_ms) == 20 and bench.std_dev_ms == 0
assert bench.mean_ms == bench.min_ms == bench.max_ms and abs(bench.mean_ms * 1e6 - took) < 1     # events count ns

# a kernel that is read from its file knows its cores
again = CompiledKernel(neff_path=compiled.neff_path, artifacts_dir=work)
assert again.lnc == 2 and again.target == "trn2"

# inputs that are updated; memory by bytes
nir = compile_kernel_to_nir(update, inputs={"state": x, "x": x}, compile_opts=CompileOptions(lnc=1), enable_cache=False)
updating = _compile_bir_to_neff(nir, CompileOptions(lnc=1), {"state": x, "x": x})
prepared = updating.prepare_inputs({"state": x, "x": x})
assert sorted(prepared) == ["state.must_alias_input", "x"]
model = updating._ensure_loaded()
assert model.alias_info and model.model_ref.core_id == 0 and model.neff_path == updating.neff_path
tensors = {n: SpikeTensor.from_numpy(v, name=n) for n, v in prepared.items()}
allocated = model._allocate_outputs_with_aliases(tensors)
model(tensors, outputs=allocated)
assert np.array_equal(next(iter(allocated.values())).numpy(), x * 2) and np.array_equal(x, prepared["x"])
spike = Spike()
loaded = spike.load_model(compiled.neff_path)
info = spike.get_tensor_info(loaded)
memory = spike.allocate_tensor(2 * x.nbytes, core_id=0, name="pool")
first, second = spike.slice_from_tensor(memory, 0, x.nbytes), spike.slice_from_tensor(memory, x.nbytes, x.nbytes)
spike.tensor_write_from_pybuffer(first, x)
spike.execute(loaded, inputs={n: first for n in info.inputs}, outputs={n: second for n in info.outputs})
target = np.empty_like(x)
spike.tensor_read_to_pybuffer(second, target)
assert np.array_equal(target, x * 2) and spike.tensor_read(memory, x.nbytes, 8) == (x * 2).tobytes()[:8]
assert spike.tensor_read(second) == (x * 2).tobytes() and spike.tensor_read(memory)[x.nbytes:] == (x * 2).tobytes()
spike.free_tensor(memory)
spike.unload_model(loaded)

# errors that programs depend on
for wrong, kind in ((lambda: model({"y": tensors["x"]}), ValueError),
                    (lambda: model(dict(tensors, x=SpikeTensor.from_numpy(x[:1]))), AssertionError),
                    (lambda: tensors["x"].write_from_numpy(x[:1]), ValueError),
                    (lambda: SpikeModel.load_from_neff(os.path.join(work, "none.neff")), NrtError),
                    (lambda: configure(visible_cores=[0]), RuntimeError),
                    (lambda: compile_to_neff(trace_kernel=None, output_dir=work, target=CompilationTarget.TRN2), RuntimeError)):
    try:
        wrong()
    except kind:
        continue
    sys.exit(f"no {kind.__name__}")

# executors, also of several ranks
calls = []


def executor(compiled_kernel, tensors_in, filled, rank_id=0, world_size=1):
    calls.append((rank_id, world_size))
    compiled_kernel.execute(tensors_in, filled, rank_id=rank_id, world_size=world_size)


kernel = halves[2]._to_subclass(StandaloneKernel, artifacts_dir=work, target="trn2", _executor=executor)
assert np.array_equal(kernel(x=x), x * 2) and calls == [(0, 1)]
assert np.array_equal(run_from_bir(compile_kernel_to_nir(halves, inputs={"x": x}, compile_opts=CompileOptions()),
                                   CompileOptions(), {"x": x}, executor=executor), x * 2)
ranks = StandaloneKernel(func=halves, lnc=1, _executor=executor)([x, x + 1])
assert np.array_equal(ranks[1], (x + 1) * 2) and sorted(calls[2:]) == [(0, 2), (1, 2)]


def failing(compiled_kernel, tensors_in, filled, rank_id=0, world_size=1):
    raise ValueError("no device")


try:
    StandaloneKernel(func=halves, lnc=1, _executor=failing)([x, x])
except MultiRankExecutionError as error:
    assert set(error.rank_failures) == {0, 1}
assert np.array_equal(DeviceTensor.from_numpy(x).numpy(), x)

# what tests of custom operators ask before they run on a device; a module that is compiled by itself
listed = subprocess.run(["neuron-ls"], capture_output=True, text=True)
assert listed.returncode == 0 and "NEURON" in listed.stdout and shutil.which("neuron-ls")
from nki.compiler.ncc_driver import compile_mlir_to_neff  # noqa: E402  as those tests import it

alone = compile_mlir_to_neff(nir.module, nir.function_name, compile_opts=CompileOptions(artifacts_dir=work, lnc=1),
                             tensor_inputs={"state": x, "x": x})
assert np.array_equal(*alone.run(state=x, x=x).outputs.values(), x * 2)
assert CompileKernel(func=update, lnc=2, target="trn2", artifacts_dir=work).lnc == 2

for wrong, text in ((None, "the module is None, and not a module or its text"), ("func.func @f( {", "does not parse")):
    try:
        compile_mlir_to_neff(wrong, nir.function_name)
    except (TypeError, ValueError) as error:
        assert text in str(error) and "runtime_users.py" in str(error), error
    else:
        raise AssertionError(wrong)

# names of other releases, as packages import them that serve several; the version that manifests have
import neuronxcc.nki as beta  # noqa: E402
from neuronxcc.nki.compiler.backends.neuron.FrameworkKernel import UnifiedKernel  # noqa: E402
from nki.compile import GenericKernel  # noqa: E402
from nki.compiler.backends.neuron.FrameworkKernel import UnifiedKernel as SameKernel  # noqa: E402

assert UnifiedKernel is SameKernel is beta.FrameworkKernel and isinstance(halves, GenericKernel)
import neuronxcc  # noqa: E402

assert [int(part) for part in neuronxcc.__version__.partition("+")[0].split(".")] >= [2, 20]
compiler = CompileOptions().neuronx_cc_path
assert shutil.which(compiler) and subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
print("all runtime tests passed")
