# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.compiler.driver`` and ``nki.compiler.ncc_driver``: kernels compiled to files, and run from what was compiled.

The file is a NEFF as ``nki.baremetal`` writes it. Times are those of the timed machine, not of a device.
"""

import json
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.files import write_file
from nki_mlir.language.arguments import BadArgument, MaskedArgument, map_leaves, with_arrays, zeros_of
from nki_mlir.language.current.compile_options import CompileOptions
from nki_mlir.language.current.kernel import Kernel
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.kernel import default_executor, is_array
from nki_mlir.language.results import assemble
from nki_mlir.language.specialization import Specialization
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.neuron.format.artifacts import digest_of, pack_kernel, unpack_trace

if TYPE_CHECKING:
    from nki_mlir.language.current.runtime import SpikeModel


class ArraySpec(NamedTuple):
    """An input or output of a compiled kernel."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


class KernelDescriptor(NamedTuple):
    """The arrays of a captured kernel, and which output is which input (index -> index)."""

    func_name: str
    input_specs: list[ArraySpec]
    output_specs: list[ArraySpec]
    aliases: dict[int, int]


def spec_of(name: str, shape: Sequence[int], dtype: DType) -> ArraySpec:
    return ArraySpec(name, tuple(shape), np.dtype(dtype.numpy))


class NirResult:
    """A kernel captured for given inputs, not yet a file.

    Arguments:
        kernel: the kernel
        specialization: its capture
        options: how it is compiled
        output_names: names of the outputs, in order; the kernel's own where there is none

    Errors:
        A number of names that is not that of the outputs is an error.

    Example:
        options = CompileOptions(emit_predicted_latency=True)
        nir = compile_kernel_to_nir(double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=options)
        assert isinstance(nir, NirResult) and "nki.binary_scalar" in str(nir.module)
        assert nir.total_time_ns == round(nir.specialization.timing.total_ns)
        assert [s.shape for s in nir.output_specs] == [(4, 8)]
        assert np.array_equal(nir(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """

    def __init__(self, kernel: Kernel, specialization: Specialization, options: CompileOptions,
                 output_names: Sequence[str] = ()) -> None:
        self.kernel, self.specialization, self.options = kernel, specialization, options
        names = list(output_names) or [r.name for r in specialization.results]
        if len(names) != len(specialization.results):
            raise BadArgument(what=f"{len(names)} output names for {len(specialization.results)} outputs").here()
        self.input_specs = [spec_of(*s) for s in specialization.inputs]
        self.output_specs = [spec_of(n, r.shape, r.dtype) for n, r in zip(names, specialization.results)]

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        return self.kernel(*arguments, **keywords)

    @property
    def module(self) -> Any:
        """The MLIR module of the first program."""
        return self.specialization.modules[0]

    @property
    def function_name(self) -> str:
        """The kernel's name."""
        return self.specialization.name

    @property
    def aliases(self) -> dict[int, int]:
        """Outputs that are updated inputs: index of the output -> index of the input."""
        return {k: r.input for k, r in enumerate(self.specialization.results) if r.input is not None}

    @property
    def descriptor(self) -> KernelDescriptor:
        """Its arrays."""
        return KernelDescriptor(self.function_name, self.input_specs, self.output_specs, self.aliases)

    @property
    def is_tuple_return(self) -> bool:
        """Whether the kernel returns several arrays."""
        return self.specialization.structure != "one"

    @property
    def total_time_ns(self) -> int | None:
        """The predicted time in ns; None unless the options say ``emit_predicted_latency``."""
        return round(self.specialization.timing.total_ns) if self.options.emit_predicted_latency else None

    @property
    def estimated_utilization(self) -> dict[str, float] | None:
        """Engine -> the part of the time, 0 to 1, that it is busy; None like ``total_time_ns``."""
        if not self.options.emit_predicted_latency:
            return None
        timing = self.specialization.timing
        return {engine.value: ns / timing.total_ns for engine, ns in timing.slowest.busy_ns.items()}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures of the profile, by the profiler's names."""
        from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary  # start-up: loads MLIR
        return vendor_summary(self.specialization.profile)

    @property
    def mac_count(self) -> int:
        """Multiplications with an addition on the tensor engine, those of transposes included."""
        from nki_mlir.targets.neuron.profile.vendor_summary import FLOPS_OF_A_PE  # start-up: loads MLIR
        return int(self.summary["hardware_flops"]) // FLOPS_OF_A_PE

    @property
    def hbm_bytes(self) -> int:
        """Bytes to and from HBM."""
        return self.specialization.timing.hbm_bytes

    @property
    def cache_hash(self) -> str:
        """A text that equal captures share."""
        return self.specialization.key


@dataclass
class ExecutionResult:
    """What a run gives. Latencies are seconds of the timed machine, which has no spread; ``hfu`` and ``mbu`` 0 to 1.

    Example:
        compiled = compile_bir_to_neff(CompileOptions(), compile_to_bir(
            double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=CompileOptions()))
        result = compiled.benchmark(x=np.ones((4, 8), np.float32))
        assert isinstance(result, ExecutionResult) and result.latency == result.latency_max
        assert np.array_equal(*result.outputs.values(), np.full((4, 8), 2.0))
    """

    outputs: dict[str, np.ndarray]
    latency: float | None = None
    latency_min: float | None = None
    latency_max: float | None = None
    latency_std: float | None = None
    hfu: float | None = None
    mbu: float | None = None
    benchmark_iterations: int | None = None
    benchmark_warmup: int | None = None
    ntff_path: str | None = None


class CompiledKernel:
    """A kernel that is compiled to a file: ``neff_path``. ``bir`` is what it was compiled from.

    Arguments:
        bir: the captured kernel
        compile_opts: where the file is written

    Errors:
        A file that cannot be written is an error.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=CompileOptions())
        compiled = CompiledKernel(bir, CompileOptions(artifacts_dir="artifacts"))
        assert os.path.exists("artifacts/kernel.neff") and compiled.lnc == 1
        outputs = compiled.prepare_outputs()
        compiled.execute({"x": np.ones((4, 8), np.float32)}, outputs)
        assert np.array_equal(*outputs.values(), np.full((4, 8), 2.0))
    """

    def __init__(self, bir: NirResult, compile_opts: CompileOptions) -> None:
        self.bir = bir
        spec = bir.specialization
        self.target, self.lnc, self.function_name = spec.target, prod(spec.grid), spec.name
        self.input_specs, self.output_specs = bir.input_specs, bir.output_specs
        self.input_output_aliases = {out: self.input_specs[k].name for out, k in bir.aliases.items()}
        self.is_tuple_return = bir.is_tuple_return
        self.artifacts_dir = compile_opts.artifacts_dir or tempfile.mkdtemp(prefix="nki_mlir_")
        if compile_opts.artifacts_dir is None:
            weakref.finalize(self, shutil.rmtree, self.artifacts_dir, ignore_errors=True)
        self.neff_path = str(Path(self.artifacts_dir) / compile_opts.output_path)
        self._write()

    @alone
    def _write(self) -> None:
        for folder in (Path(self.artifacts_dir), Path(self.neff_path).parent):
            folder.mkdir(parents=True, exist_ok=True)
        streams = self.bir.specialization.streams
        write_file(self.neff_path, pack_kernel(streams))
        write_file(Path(self.artifacts_dir) / "info.json", json.dumps({"lnc": self.lnc, "num_tpb": len(streams)}))

    @property
    def total_time_ns(self) -> int | None:
        """As of ``NirResult``."""
        return self.bir.total_time_ns

    @property
    def estimated_utilization(self) -> dict[str, float] | None:
        """As of ``NirResult``."""
        return self.bir.estimated_utilization

    def prepare_inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays of a call by name, contiguous; what is no array was a constant of the capture."""
        return {s.name: np.ascontiguousarray(inputs[s.name]) for s in self.input_specs if s.name in inputs}

    def _ensure_loaded(self, rank_id: int = 0, world_size: int = 1) -> "SpikeModel":
        """The file loaded on a core, as ``nki.runtime`` does."""
        from nki_mlir.language.current.runtime import SpikeModel  # start-up: loads MLIR
        return SpikeModel.load_from_neff(self.neff_path, core_id=rank_id)

    def prepare_outputs(self) -> dict[str, np.ndarray]:
        """An array of zeros for each output, by name."""
        return {s.name: np.zeros(s.shape, s.dtype) for s in self.output_specs}

    def execute(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], *, rank_id: int = 0,
                world_size: int = 1) -> ExecutionResult:
        """Run on arrays by name, and fill the outputs. The inputs stay as they are; the ranks have no effect."""
        spec = self.bir.specialization
        arrays = [np.require(checked(s, inputs), requirements=["C", "A"]) for s in self.input_specs]
        for k in self.bir.aliases.values():
            arrays[k] = arrays[k].copy()
        targets = [checked(s, outputs) for s in self.output_specs]
        shared = [np.zeros(s.shape, s.dtype.numpy) for s in spec.shared]
        on = self.bir.kernel.executor or default_executor()
        spec.program("interpreter" if on == "eager" else on)(arrays, shared)        # eager needs the Python function
        for result, target in zip(spec.results, targets):
            target[...] = arrays[result.input] if result.shared is None else shared[result.shared]  # type: ignore[index]
        return ExecutionResult({s.name: array for s, array in zip(self.output_specs, targets)})

    def run(self, profile: bool = False, rank_id: int = 0, world_size: int = 1, **inputs: np.ndarray
            ) -> ExecutionResult:
        """Run on arrays by name; ``profile``: with latency, utilization, and a trace beside the compiled kernel."""
        result = self.execute(inputs, self.prepare_outputs())
        if not profile:
            return result
        from nki_mlir.language.measuring import trace_of  # start-up: loads MLIR
        trace = Path(self.neff_path).with_suffix(".ntff")
        write_file(trace, trace_of(self.bir.specialization))
        return replace(self._timed(result), ntff_path=str(trace))

    def benchmark(self, warmup: int = 5, iterations: int = 10, rank_id: int = 0, world_size: int = 1,
                  **inputs: np.ndarray) -> ExecutionResult:
        """Run once, with latency and utilization: each of the iterations would take the same time."""
        result = self._timed(self.execute(inputs, self.prepare_outputs()))
        return replace(result, benchmark_iterations=iterations, benchmark_warmup=warmup)

    def _timed(self, result: ExecutionResult) -> ExecutionResult:
        seconds, summary = self.bir.specialization.timing.total_ns / 1e9, self.bir.summary
        return replace(result, latency=seconds, latency_min=seconds, latency_max=seconds, latency_std=0.0,
                       hfu=summary["hfu_estimated_percent"], mbu=summary["mbu_estimated_percent"])


def checked(spec: ArraySpec, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The array of that name, which has to be as it was compiled for."""
    if spec.name not in arrays:
        raise BadArgument(what=f"the compiled kernel has an array {spec.name}, which is missing").here()
    array = arrays[spec.name]
    if isinstance(array, np.ma.MaskedArray):
        raise MaskedArgument().here()
    if not is_array(array) or (array.shape, array.dtype) != (spec.shape, spec.dtype):
        raise BadArgument(what=f"the array {spec.name} of a compiled kernel has shape {spec.shape} and dtype "
                               f"{spec.dtype}, got {getattr(array, 'shape', ())} and "
                               f"{getattr(array, 'dtype', type(array).__name__)}").here()
    return array


Executor = Callable[..., object]        # of a CompiledKernel, inputs and outputs by name; of ranks their number, too


def compile_kernel_to_nir(kernel_func: object, *, inputs: Mapping[str, object], compile_opts: CompileOptions,
                          frontend: object = None, enable_cache: bool = True, trace_cache: object = None) -> NirResult:
    """Capture a kernel.

    Arguments:
        kernel_func: the function or kernel
        inputs: its arguments by name; arrays, constants, and an NkiTensor or nki_mlir.spec of an array
        compile_opts: the target and the cores
        frontend: no effect
        enable_cache: no effect: equal captures are reused
        trace_cache: no effect

    Result:
        A NirResult.

    Errors:
        Those of the kernel.

    Example:
        nir = compile_kernel_to_nir(double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=CompileOptions())
        assert nir.hbm_bytes == 2 * 4 * 8 * 4 and nir.mac_count == 0 and nir.total_time_ns is None
    """
    return compile_to_bir(kernel_func, inputs=inputs, compile_opts=compile_opts)


def compile_to_bir(kernel: object, *, inputs: Mapping[str, object], compile_opts: CompileOptions | None = None,
                   frontend: object = None, output_names: Sequence[str] = (), enable_cache: bool = True) -> NirResult:
    """Capture a kernel, with names for its outputs.

    Arguments:
        kernel: the function or kernel
        inputs: its arguments by name; arrays, constants, and an NkiTensor or nki_mlir.spec of an array
        compile_opts: the target and the cores
        frontend: no effect
        output_names: names of the outputs, in order; the kernel's own where there is none
        enable_cache: no effect: equal captures are reused

    Result:
        A NirResult.

    Errors:
        Those of the kernel; a number of names that is not that of the outputs.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)}, output_names=["y"])
        assert [s.name for s in bir.output_specs] == ["y"]
    """
    options = compile_opts or CompileOptions()
    launched = options.launched(kernel)
    described = map_leaves(dict(inputs), lambda v: isinstance(v, NkiTensor), lambda t: zeros_of(t.shape, t.dtype))
    _, keywords = with_arrays((), described)
    bound = launched.bind((), keywords, is_array, launched.describe)
    return NirResult(launched, launched.specialize(bound), options, output_names)


def compile_bir_to_neff(compile_opts: CompileOptions, bir: NirResult, input_arrays: object = None,
                        argument_names: object = None, output_arg_names: Sequence[str] = ()) -> CompiledKernel:
    """Compile a captured kernel to a file.

    Arguments:
        compile_opts: where the file is written; the target and the cores are those of the capture
        bir: the captured kernel
        input_arrays: no effect: the capture has their shapes
        argument_names: no effect: the capture has them
        output_arg_names: names of the outputs, in order; those of the capture where there is none

    Result:
        A CompiledKernel, whose neff_path names the file.

    Errors:
        A file that cannot be written; a number of names that is not that of the outputs.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)})
        assert compile_bir_to_neff(CompileOptions(artifacts_dir=".", output_path="a.neff"), bir).lnc == 1
        assert os.path.exists("a.neff")
    """
    names = output_arg_names or [s.name for s in bir.output_specs]
    options = replace(bir.options, emit_predicted_latency=bir.options.emit_predicted_latency
                      or compile_opts.emit_predicted_latency)
    return CompiledKernel(NirResult(bir.kernel, bir.specialization, options, names), compile_opts)


def _compile_bir_to_neff(nir: NirResult, compile_opts: CompileOptions, inputs: object = None) -> CompiledKernel:
    """``compile_bir_to_neff`` as later releases call it."""
    return compile_bir_to_neff(compile_opts, nir)


def run_from_bir(nir: NirResult, compile_opts: CompileOptions, inputs: Mapping[str, object],
                 executor: Executor | None = None) -> Any:
    """Compile a captured kernel to a file, and run it.

    Arguments:
        nir: the captured kernel
        compile_opts: where the file is written
        inputs: the arguments by name; constants are those of the capture
        executor: a function of the CompiledKernel, the inputs and the outputs (arrays by name), which fills the
            outputs; None runs the kernel on the CPU

    Result:
        What the kernel returns. Arrays that it updates have the new values.

    Errors:
        Arrays of other shapes or dtypes than the captured ones.

    Example:
        x = np.ones((4, 8), np.float32)
        nir = compile_kernel_to_nir(double, inputs={"x": x}, compile_opts=CompileOptions())
        assert np.array_equal(run_from_bir(nir, CompileOptions(), {"x": x}), np.full((4, 8), 2.0))
    """
    compiled = compile_bir_to_neff(compile_opts, nir)
    bound = nir.kernel.bind((), with_arrays((), dict(inputs))[1], is_array, nir.kernel.describe)
    found = {s.name: array for s, array in zip(bound.specs, bound.tensors)}
    arrays = {s.name: checked(s, found) for s in compiled.input_specs}
    outputs = compiled.prepare_outputs()
    for place, name in compiled.input_output_aliases.items():
        outputs[compiled.output_specs[place].name][...] = arrays[name]
    (executor or CompiledKernel.execute)(compiled, arrays, outputs)
    results = [outputs[s.name] for s in compiled.output_specs]
    for place, name in compiled.input_output_aliases.items():
        arrays[name][...] = results[place]
        results[place] = arrays[name]
    return assemble(nir.specialization.structure, results)


def extract_perf_metrics(neff_path: str | Path, ntff_path: str | Path, verbose: bool = False) -> dict[str, Any] | None:
    """The figures of a trace, by the profiler's names.

    Arguments:
        neff_path: the compiled kernel
        ntff_path: its trace, as run(profile=True) writes it
        verbose: whether a failure is a warning

    Result:
        Figure -> value, or None where a file cannot be read or the trace is that of another kernel.

    Errors:
        None.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)})
        compiled = compile_bir_to_neff(CompileOptions(artifacts_dir="."), bir)
        result = compiled.run(profile=True, x=np.ones((4, 8), np.float32))
        assert extract_perf_metrics(compiled.neff_path, result.ntff_path)["total_time"] == result.latency
    """
    try:
        trace = unpack_trace(Path(ntff_path).read_bytes(), str(ntff_path))
        if trace.digest == digest_of(Path(neff_path).read_bytes()):
            return trace.summary
        reason: object = f"{ntff_path} is the trace of another kernel than {neff_path}"
    except (OSError, NkiMlirError) as error:
        reason = error
    if verbose:
        warnings.warn(f"no figures of the profile: {reason}", stacklevel=2)
    return None


__all__ = ["CompileOptions", "CompiledKernel", "ExecutionResult", "NirResult", "compile_bir_to_neff",
           "compile_kernel_to_nir", "compile_to_bir", "extract_perf_metrics", "run_from_bir"]
