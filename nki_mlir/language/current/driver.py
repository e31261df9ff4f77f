# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.compiler.driver`` and ``nki.compiler.ncc_driver``: compile kernels to files, and run them from the files."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.arguments import TensorSpec, map_leaves, signature_of, with_arrays, zeros_of
from nki_mlir.language.current.compile_options import CompileOptions
from nki_mlir.language.current.compiled_kernel import CompiledKernel, ExecutionResult, checked
from nki_mlir.language.current.nir_result import FrameworkConfig, KernelDescriptor, NirResult  # noqa: F401  public name
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.kernel import is_array
from nki_mlir.language.results import assemble
from nki_mlir.language.specialization import Result, Specialization
from nki_mlir.targets.neuron.format.artifacts import digest_of, read_archive, unpack_trace

if TYPE_CHECKING:
    from nki_mlir.dialects.kernel_function import ArgumentSpec


class InputsByName(NkiMlirError, TypeError):
    code = "NKI-ARGUMENT"
    message = "inputs is a {kind}, and not a dict of the kernel's arguments by name"
    fix = "pass inputs={{{names}}}"


class NotModule(NkiMlirError, TypeError):
    code = "NKI-ARGUMENT"
    message = "the module is {value}, and not a module or its text"
    fix = "pass the module of a NirResult, or its text: str(nir.module)"


class NotReadable(NkiMlirError, ValueError):
    code = "NKI-ARGUMENT"
    message = "the module cannot be read: {what}"
    fix = "pass the text of a module of nki_mlir, unchanged: str(nir.module)"


Executor = Callable[..., object]        # of a CompiledKernel, inputs, outputs; for ranks also rank_id, world_size


@without_internal_frames
def compile_kernel_to_nir(kernel_func: object, *, inputs: Mapping[str, object], compile_opts: CompileOptions,
                          frontend: object = None, enable_cache: bool = True, trace_cache: object = None) -> NirResult:
    """Capture a kernel for given inputs.

    Arguments:
        kernel_func: the function or kernel
        inputs: its arguments by name; arrays, NkiTensors or ``nki_mlir.spec`` objects that describe them, and constants
        compile_opts: the target and the cores
        frontend: no effect
        enable_cache: no effect: equal captures are reused
        trace_cache: no effect

    Result:
        A NirResult.

    Errors:
        Errors of the kernel.

    Example:
        nir = compile_kernel_to_nir(double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=CompileOptions())
        assert nir.hbm_bytes == 2 * 4 * 8 * 4 and nir.mac_count == 0 and nir.total_time_ns is None
    """
    return compile_to_bir(kernel_func, inputs=inputs, compile_opts=compile_opts)


@without_internal_frames
def compile_to_bir(kernel: object, *, inputs: Mapping[str, object], compile_opts: CompileOptions | None = None,
                   frontend: object = None, output_names: Sequence[str] = (), enable_cache: bool = True) -> NirResult:
    """Capture a kernel for given inputs, with names for its outputs.

    Arguments:
        kernel: the function or kernel
        inputs: its arguments by name; arrays, NkiTensors or ``nki_mlir.spec`` objects that describe them, and constants
        compile_opts: the target and the cores
        frontend: no effect
        output_names: names of the outputs, in order; by default the kernel's
        enable_cache: no effect: equal captures are reused

    Result:
        A NirResult.

    Errors:
        Errors of the kernel; more or fewer names than outputs.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)}, output_names=["y"])
        assert [s.name for s in bir.output_specs] == ["y"]
    """
    options, began = compile_opts or CompileOptions(), time.perf_counter()
    launched = options.launched(kernel)
    if not isinstance(inputs, Mapping):
        names = ", ".join(f"{name!r}: ..." for name in signature_of(launched.func).parameters)
        raise InputsByName(kind=type(inputs).__name__, names=names).here()
    described = map_leaves(dict(inputs), lambda v: isinstance(v, NkiTensor), lambda t: zeros_of(t.shape, t.dtype))
    _, keywords = with_arrays((), described)
    bound = launched.bind((), keywords, is_array, launched.describe)
    capture = launched.specialize(bound)
    return NirResult(launched, capture, options, output_names or (), time.perf_counter() - began)


def compile_bir_to_neff(compile_opts: CompileOptions, bir: NirResult, input_arrays: Sequence[Any] | None = None,
                        argument_names: Sequence[str] | None = None, output_arg_names: Sequence[str] = ()
                        ) -> CompiledKernel:
    """Compile a captured kernel to a file.

    Arguments:
        compile_opts: where the file is written; the target and the cores come from the capture
        bir: the captured kernel
        input_arrays: arrays; with the option ``enable_simulation`` the kernel runs on them once
        argument_names: names of the arrays, in order; by default the capture's
        output_arg_names: names of the outputs, in order; by default the capture's

    Result:
        A CompiledKernel, whose neff_path names the file.

    Errors:
        A file that cannot be written; more or fewer names than outputs.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)})
        assert compile_bir_to_neff(CompileOptions(artifacts_dir=".", output_path="a.neff"), bir).lnc == 1
        assert os.path.exists("a.neff")
    """
    names = output_arg_names or [s.name for s in bir.output_specs]
    options = replace(bir.options, emit_predicted_latency=bir.options.emit_predicted_latency
                      or compile_opts.emit_predicted_latency)
    arrays = None if input_arrays is None else dict(zip(argument_names or [s.name for s in bir.input_specs],
                                                        input_arrays))
    return CompiledKernel(NirResult(bir.kernel, bir.specialization, options, names, bir.frontend_time), compile_opts,
                          arrays)


def _compile_bir_to_neff(nir: NirResult, compile_opts: CompileOptions, inputs: Mapping[str, Any] | None = None
                         ) -> CompiledKernel:
    """Compile a captured kernel to a file: ``compile_bir_to_neff`` with the parameters of later releases."""
    names = [s.name for s in nir.input_specs if inputs is not None and s.name in inputs]
    return compile_bir_to_neff(compile_opts, nir, None if inputs is None else [inputs[n] for n in names], names)


@without_internal_frames
def compile_mlir_to_neff(module: object, function_name: str, *, compile_opts: CompileOptions | None = None,
                         tensor_inputs: Mapping[str, object] | None = None) -> CompiledKernel:
    """Compile an MLIR module to a file.

    Arguments:
        module: a kernel in the nki dialect, as NirResult.module or text
        function_name: the name of the kernel in the module
        compile_opts: where the file is written; the target is the module's
        tensor_inputs: arrays by name; with the option ``enable_simulation`` the kernel runs on them once

    Result:
        A CompiledKernel, whose neff_path names the file.

    Errors:
        A module that does not parse, is in another dialect, or has no such kernel.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)})
        compiled = compile_mlir_to_neff(str(bir.module), "double", compile_opts=CompileOptions(artifacts_dir="."))
        assert os.path.exists("kernel.neff")
        assert np.array_equal(*compiled.run(x=np.ones((4, 8), np.float32)).outputs.values(), np.full((4, 8), 2.0))
    """
    from nki_mlir.capture.attempts import Captured, Variant  # start-up: loads MLIR
    from nki_mlir.dialects.kernel_function import the_kernel
    from nki_mlir.graph.custom_call import BadConfig, read_module
    if isinstance(module, str) == hasattr(module, "operation"):
        raise NotModule(value=f"{module!r:.60}").here()
    try:
        read = read_module(str(module))
    except BadConfig as error:
        raise NotReadable(what=error.values["what"]).here() from None
    kernel = the_kernel(read, function_name)
    results = [kernel.arguments[k] for k in kernel.results]
    capture = Specialization(
        kernel.name, kernel.grid, kernel.target, [spec_of_argument(a) for a in kernel.inputs],
        [spec_of_argument(a) for a in kernel.shared],
        [Result(*spec_of_argument(a), shared=a.index if a.kind == "shared" else None,
                input=a.index if a.kind == "input" else None) for a in results],
        "one" if len(results) == 1 else "tuple", Captured({(): Variant(read, [], None, 0)}, 0, {}))
    options = compile_opts or CompileOptions()
    return CompiledKernel(NirResult(None, capture, options), options, tensor_inputs)


def spec_of_argument(argument: "ArgumentSpec") -> TensorSpec:
    """Convert an argument of a module's kernel to the ``TensorSpec`` of a capture."""
    return TensorSpec(argument.name, argument.shape, argument.dtype)                # type: ignore[arg-type]


@without_internal_frames
def run_from_bir(nir: NirResult, compile_opts: CompileOptions, inputs: Mapping[str, object],
                 executor: Executor | None = None) -> Any:
    """Compile a captured kernel to a file, and run it.

    Arguments:
        nir: the captured kernel
        compile_opts: where the file is written
        inputs: the arguments by name; constants come from the capture
        executor: a function of the CompiledKernel, the inputs and the outputs (arrays by name), which fills the
            outputs; None runs the kernel on the CPU

    Result:
        The kernel's results. Arrays that the kernel updates are updated in place.

    Errors:
        Arrays with other shapes or dtypes than in the capture.

    Example:
        x = np.ones((4, 8), np.float32)
        nir = compile_kernel_to_nir(double, inputs={"x": x}, compile_opts=CompileOptions())
        assert np.array_equal(run_from_bir(nir, CompileOptions(), {"x": x}), np.full((4, 8), 2.0))
    """
    compiled = compile_bir_to_neff(compile_opts, nir)
    by_name: Mapping[str, Any] = inputs
    if nir.kernel is not None:
        bound = nir.kernel.bind((), with_arrays((), dict(inputs))[1], is_array, nir.kernel.describe)
        by_name = {s.name: array for s, array in zip(bound.specs, bound.tensors)}
    arrays = {s.name: checked(s, by_name) for s in compiled.input_specs}
    outputs = compiled.prepare_outputs()
    for position, name in compiled.input_output_aliases.items():
        outputs[compiled.output_specs[position].name][...] = arrays[name]
    (executor or CompiledKernel.execute)(compiled, arrays, outputs)
    results = [outputs[s.name] for s in compiled.output_specs]
    for position, name in compiled.input_output_aliases.items():
        arrays[name][...] = results[position]
        results[position] = arrays[name]
    return assemble(nir.specialization.structure, results)


def extract_perf_metrics(neff_path: str | Path, ntff_path: str | Path, verbose: bool = False) -> dict[str, Any] | None:
    """Return the metrics of a trace, by the names that the vendor's profiler gives them.

    Arguments:
        neff_path: the compiled kernel
        ntff_path: its trace, as run(profile=True) writes it
        verbose: whether a failure is a warning

    Result:
        Metric -> value, or None if a file cannot be read or the trace is from another kernel.

    Errors:
        None.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)})
        compiled = compile_bir_to_neff(CompileOptions(artifacts_dir="."), bir)
        result = compiled.run(profile=True, x=np.ones((4, 8), np.float32))
        assert extract_perf_metrics(compiled.neff_path, result.ntff_path)["total_time"] == result.latency
    """
    try:
        trace = unpack_trace(read_archive(ntff_path), str(ntff_path))
        if trace.digest == digest_of(read_archive(neff_path)):
            return trace.summary
        reason: object = f"{ntff_path} is the trace of a kernel other than {neff_path}"
    except (OSError, NkiMlirError) as error:
        reason = error
    if verbose:
        warnings.warn(f"no figures of the profile: {reason}", stacklevel=2)
    return None


__all__ = ["CompileOptions", "CompiledKernel", "ExecutionResult", "FrameworkConfig", "NirResult", "compile_bir_to_neff",
           "compile_kernel_to_nir", "compile_mlir_to_neff", "compile_to_bir", "extract_perf_metrics", "run_from_bir"]
