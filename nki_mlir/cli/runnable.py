# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The sources that ``nki-run`` accepts: a Python kernel, a module, a StableHLO graph, or instruction streams, with
inputs.

Each has ``executors``, the names of the executors that run it; ``run(on)``, which returns the results as (name,
array) pairs; and ``module()``, which returns the module that ``--verify-each`` lowers, with its inputs.
"""

import argparse
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nki_mlir import extensions
from nki_mlir.cli import source as sources
from nki_mlir.cli.arguments import as_array, fill, parse_arguments, parse_grid
from nki_mlir.cli.command import is_kernel
from nki_mlir.cli.named_values import refuse_names, with_values
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import TENSOR_BYTES
from nki_mlir.scalar.dtypes import UINT8, DType, dtype_of

if TYPE_CHECKING:
    from nki_mlir.bindings import Module
    from nki_mlir.checking.report import KernelReport
    from nki_mlir.dialects.isa.program import Program
    from nki_mlir.language.kernel import Kernel
    from nki_mlir.language.specialization import Specialization
    from nki_mlir.stepping.debugger import Debugger
    from nki_mlir.targets.neuron.codegen.emission import Emission
    from nki_mlir.targets.neuron.order import Step

NAMED = 5                       # tensors that an error names
IS_STREAMS = re.compile(rb"^[ \t]*\"?isa\.program\b", re.MULTILINE)
Results = list[tuple[str, np.ndarray]]


class Runnable(ABC):
    """A source of ``nki-run`` with its inputs."""

    executors: ClassVar[tuple[str, ...]]
    runs_on_plugins: ClassVar[bool] = False         # also on executors of plugins
    source_name: ClassVar[str] = ""                        # the name in errors of a source without a module
    runs_again: bool = True         # another run needs the same inputs: a run gets copies, which it may write

    @abstractmethod
    def run(self, on: str) -> Results:
        """Run the source on an executor and return the results."""

    def for_run(self, values: Sequence[object]) -> list[Any]:
        """Return inputs, or copies of them, for a run, which may write them."""
        return copied(values) if self.runs_again else [*values]

    @abstractmethod
    def streams(self, options: "Emission") -> "list[Program]":
        """Return the instruction streams, emitted with these options: a program for each core that it uses."""

    def module(self) -> "tuple[Module, list[np.ndarray]]":
        """Return a module at the nki, linalg or nisa level, and the inputs of its function. Raise ``NotVerified``."""
        raise NotVerified(what=self.source_name)

    def report(self) -> "KernelReport":
        """Check a kernel and return the report of all mistakes. Raise ``NotChecked``."""
        raise NotChecked(what=self.source_name or "a module")

    @abstractmethod
    def stepped(self, on: str, debugger: "Debugger", level: str) -> Results:
        """Run it under a debugger and return the results. ``level`` is the level that the interpreter runs."""

    def check(self, witness: str | None = None) -> None:
        """Raise the error of a certain mistake before the run; only instruction streams are checked.

        ``witness`` is a file for an order of the streams in which the mistake happens.
        """
        if witness is not None:
            raise NotOrdered(option="--witness", what=self.source_name or "a kernel or module")

    def take_order(self, file: str) -> None:
        """Run the streams in the order of a file. Raise ``NotOrdered`` for other sources."""
        raise NotOrdered(option="--order", what=self.source_name or "a kernel or module")


class NotTaken(NkiMlirError):
    code = "NKI-RUN"
    message = "{what} cannot run on {on}"
    fix = "choose {executors}"


class NotVerified(NkiMlirError):
    code = "NKI-VERIFY-EACH"
    message = "--verify-each does not take {what}"
    fix = "give a kernel, or a module at the nki, linalg or nisa level"


class NotChecked(NkiMlirError):
    code = "NKI-CHECK"
    message = "--check does not take {what}"
    fix = "give a kernel, as FILE.py:FUNCTION"


class NotOrdered(NkiMlirError):
    code = "NKI-ORDER-SOURCE"
    message = "{option} does not take {what}"
    fix = "give instruction streams, such as nki-opt --lower-to-isa writes: assembly, a binary or an isa module"


class TooMuchMemory(NkiMlirError):
    code = "NKI-INPUT-MEMORY"
    message = "the file declares {size:,} bytes ({names}), more than the limit of {limit:,}"
    why = "a file of a few lines can declare more memory than the machine has"
    fix = "give the tensors with --arg, or set NKI_MLIR_INPUT_BYTES to a larger number of bytes"


class DeclaredMemory(NkiMlirError):
    code = "NKI-INPUT-MEMORY"
    message = "'{op}' declares {size:,} bytes, more than the limit of {limit:,} for operations in a file"
    why = "a file of a few lines can declare more memory than the machine has"
    fix = "set NKI_MLIR_INPUT_BYTES to a larger number of bytes"


class TooManyArguments(NkiMlirError):
    code = "NKI-ARG"
    message = "{what}"
    fix = "give values for the inputs: {names}"


def requested(source: str, options: argparse.Namespace, values: bool = True) -> Runnable:
    """Return the source of a command with the arguments of its options. Without ``values``, tensors hold zeros."""
    positional, keywords = parse_arguments(options.arg, values)
    sources.load_libraries(options.load_library)
    return runnable(source, positional, keywords, options.target, parse_grid(options.grid))


def runnable(source: str, positional: list[object], keywords: dict[str, object], target: str | None,
             grid: tuple[object, ...]) -> Runnable:
    """Read a file and return the source that it contains, which its name and content decide, with values for its
    inputs."""
    if is_kernel(source):
        kernel = sources.load_kernel(source, target, grid)
        return KernelSource(kernel, *with_values(kernel, positional, keywords))
    refuse_names((*positional, *keywords.values()))
    if grid:
        raise sources.SourceError("--grid is for kernels: a module has a grid already")
    name, data = sources.display_name(source), sources.read_bytes(source)
    with sources.errors_of_file(name):
        programs = programs_of(data, name)
        if programs:
            if target is not None:
                raise sources.SourceError("--target comes too late: instruction streams are compiled for a target")
            return StreamsSource(programs, positional, keywords)
        text = sources.decoded(data, name)
        if sources.is_graph_text(text):
            return GraphSource(text, positional, keywords, name, target)
        return ModuleSource(sources.read_module(text, name), positional, keywords, target)


def programs_of(data: bytes, name: str) -> "list[Program]":
    """Return the programs, one for each core, of a binary, of assembly or of modules at the isa level. Return an empty
    list for other data."""
    from nki_mlir.targets import neuron  # start-up: imported on first use
    if neuron.is_artifact(data):
        return neuron.programs_of_artifact(data, name)
    if neuron.is_binary(data) or name.endswith(".neff"):
        return [neuron.program_of_binary(data)]
    if neuron.is_assembly(data):
        return neuron.programs_of_assembly(sources.decoded(data, name), name)
    if IS_STREAMS.search(data):
        parts = sources.decoded(data, name).split(neuron.SEPARATOR)
        return [neuron.program_of_module(sources.read_module(part, name)) for part in parts]
    return []


def check_executor(runnable: Runnable, on: str, source: str) -> None:
    """Raise ``NotTaken`` if the executor does not run the source."""
    if on not in runnable.executors and not (runnable.runs_on_plugins and on in extensions.of("executors")):
        raise NotTaken(what=source, on=on, executors=" or ".join(runnable.executors))


class KernelSource(Runnable):
    """A Python kernel, with the arguments of the command line."""

    executors, runs_on_plugins = extensions.EXECUTORS, True

    def __init__(self, kernel: "Kernel", positional: list[object], keywords: dict[str, object]) -> None:
        self.kernel, self.positional, self.keywords = kernel, positional, keywords

    def run(self, on: str) -> Results:
        keywords = dict(zip(self.keywords, self.for_run([*self.keywords.values()])))
        results = self.kernel.run(tuple(self.for_run(self.positional)), keywords, on)
        result_tuple = results if isinstance(results, tuple) else (results,)
        return [(f"result {k}", r) for k, r in enumerate(result_tuple)]

    def report(self) -> "KernelReport":
        from nki_mlir.checking.kernel_check import check_kernel  # start-up: imported on first use
        return check_kernel(self.kernel, self.positional, self.keywords)

    def stepped(self, on: str, debugger: "Debugger", level: str) -> Results:
        from nki_mlir.language.kernel import describe_array, is_array  # start-up: imported on first use
        from nki_mlir.stepping.run import step_kernel
        bound = self.kernel.bind(tuple(self.positional), self.keywords, is_array, describe_array)
        return step_kernel(self.kernel, bound, on, debugger, level)

    def streams(self, options: "Emission") -> "list[Program]":
        from nki_mlir.targets import neuron  # start-up: imported on first use
        spec, _ = specialized(self.kernel, self.positional, self.keywords)
        return neuron.streams(spec.captured, spec.grid, options, spec.cores)

    def module(self) -> "tuple[Module, list[np.ndarray]]":
        spec, inputs = specialized(self.kernel, self.positional, self.keywords)
        return spec.modules[0], inputs


class ModuleSource(Runnable):
    """The kernel function of a module, with inputs from the command line or random ones."""

    executors, runs_on_plugins = ("interpreter", "jit", "isa"), True

    def __init__(self, module: "Module", positional: list[object], keywords: dict[str, object],
                 target: str | None) -> None:
        from nki_mlir.dialects.kernel_function import the_kernel  # start-up: loads MLIR
        from nki_mlir.dialects.source_locations import errors_at
        if target is not None:
            set_target(module, target)
        self.kernel_module = module
        check_declared(module)
        kernel = the_kernel(module)
        with errors_at(kernel.op):
            check_bytes([(a.name, a.shape, a.dtype) for a in kernel.shared if a.dtype is not None])
            self.inputs = inputs_for([(a.name, a.shape, a.dtype) for a in kernel.inputs], positional, keywords)

    def run(self, on: str) -> Results:
        return run_module(self.kernel_module, self.for_run(self.inputs), on)

    def stepped(self, on: str, debugger: "Debugger", level: str) -> Results:
        from nki_mlir.stepping.run import step_module  # start-up: imported on first use
        if on != "isa":
            return step_module(self.kernel_module, self.inputs, debugger, level)
        from nki_mlir.targets import neuron  # start-up: imported on first use
        return StreamsSource(self.streams(neuron.emission(level=0)), list(self.inputs), {}).stepped(on, debugger, level)

    def streams(self, options: "Emission") -> "list[Program]":
        from nki_mlir.targets import neuron  # start-up: imported on first use
        return neuron.streams_of_module(self.kernel_module, options)

    def module(self) -> "tuple[Module, list[np.ndarray]]":
        return self.kernel_module, self.inputs


class GraphSource(Runnable):
    """A StableHLO module whose kernels are linked, with inputs from the command line or random ones."""

    executors, source_name = ("jit", "isa"), "a graph"

    def __init__(self, text: str, positional: list[object], keywords: dict[str, object], name: str,
                 target: str | None) -> None:
        self.text, self.positional, self.keywords, self.name = text, positional, keywords, name
        self.target = target or ""
        check_declared(sources.read_module(text, name))

    def run(self, on: str) -> Results:
        from nki_mlir.frameworks import stablehlo  # start-up: loads MLIR
        try:
            program = stablehlo.LinkedProgram(self.text, on, self.target)
        except NkiMlirError as error:
            raise sources.renamed(error, self.name) from None
        values = named_values([f"arg{k}" for k in range(len(program.inputs))], self.positional, self.keywords)
        results = program(*(
            as_array(values[name], shape, dtype) if (name := f"arg{k}") in values
            else fill(shape, dtype_of(dtype), "random", k, name) for k, (shape, dtype) in enumerate(program.inputs)))
        return [(f"result {k}", r) for k, r in enumerate(results)]

    def stepped(self, on: str, debugger: "Debugger", level: str) -> Results:
        from nki_mlir.targets import neuron  # start-up: imported on first use
        return StreamsSource(self.streams(neuron.emission(level=0)), self.positional, self.keywords).stepped(
            on, debugger, level)

    def streams(self, options: "Emission") -> "list[Program]":
        from nki_mlir.frameworks import stablehlo  # start-up: loads MLIR
        return stablehlo.linked_streams(self.text, options, self.name, self.target)


class StreamsSource(Runnable):
    """Instruction streams, a program for each core, with inputs from the command line or random ones. The cores share
    inputs and outputs."""

    executors, source_name = ("isa",), "instruction streams"

    def __init__(self, programs: "list[Program]", positional: list[object], keywords: dict[str, object]) -> None:
        from nki_mlir.targets.neuron.execution import memory_bytes  # start-up: imported on first use
        self.programs = programs
        self.order: Sequence[Step] = ()
        declared = [(v.name, v.shape, v.dtype) for program in programs for v in program.variables
                    if v.kind not in ("input", "constant")]
        if len(programs) > 1:
            declared.append((f"SBUF and PSUM of {len(programs)} cores", (sum(map(memory_bytes, programs)),), UINT8))
        check_bytes(declared)
        self.inputs = inputs_for([(v.name, v.shape, v.dtype) for v in programs[0].of_kind("input")],
                                 positional, keywords)

    def run(self, on: str) -> Results:
        from nki_mlir.targets import neuron  # start-up: imported on first use
        return self.results(lambda programs, inputs, outputs: neuron.simulate(programs, inputs, outputs, self.order))

    def stepped(self, on: str, debugger: "Debugger", level: str) -> Results:
        from nki_mlir.stepping.stream_driver import step_streams  # start-up: loads MLIR
        return self.results(lambda programs, inputs, outputs: step_streams(programs, inputs, outputs, debugger))

    def results(self, simulate: Callable[..., None]) -> Results:
        """Run ``simulate`` and return the results."""
        inputs, outputs = self.for_run(self.inputs), self.programs[0].of_kind("output")
        results = [np.zeros(v.shape, v.dtype.numpy) for v in outputs]
        simulate(self.programs, inputs, results)
        if not outputs:
            return [(v.name, array) for v, array in zip(self.programs[0].of_kind("input"), inputs)]
        return [(v.name, array) for v, array in zip(outputs, results)]

    def streams(self, options: "Emission") -> "list[Program]":
        return self.programs

    def check(self, witness: str | None = None) -> None:
        from nki_mlir.cli.stream_check import require_sound  # start-up: imported on first use
        require_sound(self.programs, witness)

    def take_order(self, file: str) -> None:
        from nki_mlir.targets.neuron.order import parse_order  # start-up: imported on first use
        name = sources.display_name(file)
        self.order = parse_order(sources.decoded(sources.read_bytes(file), name), self.programs, name)


def inputs_for(inputs: Sequence[tuple[str, tuple[int, ...], Any]], positional: list[object],
               keywords: dict[str, object]) -> list[np.ndarray]:
    """Return a value for each input (name, shape, dtype): the argument at its position or of its name, else random
    values."""
    values = named_values([name for name, _, _ in inputs], positional, keywords)
    check_bytes([(name, shape, dtype) for name, shape, dtype in inputs if name not in values])
    return [checked_input(values[name], name, shape, dtype) if name in values else fill(shape, dtype, "random", k, name)
            for k, (name, shape, dtype) in enumerate(inputs)]


def named_values(names: Sequence[str], positional: list[object], keywords: dict[str, object]) -> dict[str, object]:
    """Map the names of inputs to the arguments for them. Raise ``TooManyArguments`` for an argument without input."""
    if len(positional) > len(names):
        raise TooManyArguments(what=f"got {len(positional)} values for {len(names)} inputs",
                               names=", ".join(names))
    unknown = next((name for name in keywords if name not in names), None)
    if unknown is not None:
        raise TooManyArguments(what=f"there is no input '{unknown}'", names=", ".join(names))
    return dict(zip(names, positional)) | keywords


def check_bytes(tensors: Sequence[tuple[str, tuple[int, ...], Any]]) -> None:
    """Raise ``TooMuchMemory`` if tensors (name, shape, dtype) that no argument provides exceed the limit."""
    allowed = TENSOR_BYTES.value()
    size = sum(prod(shape) * dtype.itemsize for _, shape, dtype in tensors)
    if size > allowed:
        names = [name for name, _, _ in tensors]
        if len(names) > NAMED:
            names[NAMED:] = [f"{len(names) - NAMED:,} others"]
        raise TooMuchMemory(names=", ".join(names), size=size, limit=allowed)


def check_declared(module: "Module") -> None:
    """Raise ``DeclaredMemory`` at the first operation that exceeds the limit of memory that a file may declare. Buffers
    count together, each tensor of a graph alone, since few tensors live at once."""
    from nki_mlir.bindings import ir, operations_of  # start-up: loads MLIR
    from nki_mlir.dialects.source_locations import location_of
    limit, buffers = TENSOR_BYTES.value(), 0
    for op in operations_of(module, lambda name: name != "builtin.module"):
        for result in op.results:
            kind = result.type
            if not isinstance(kind, ir.MemRefType | ir.RankedTensorType) or not kind.has_static_shape:
                continue
            element = kind.element_type
            size = prod(kind.shape) * -(-getattr(element, "width", 64) // 8)
            buffers += size if op.name == "memref.alloc" else 0
            if max(size, buffers) > limit:
                raise DeclaredMemory(op=op.name, size=max(size, buffers), limit=limit).located(location_of(op))


def checked_input(array: object, name: str, shape: tuple[int, ...], dtype: "DType") -> np.ndarray:
    """Convert the value to an array. Raise ``SourceError`` if its shape or dtype is wrong."""
    array = as_array(array, shape, dtype.numpy)
    if not isinstance(array, np.ndarray) or array.shape != shape or dtype_of(array.dtype) is not dtype:
        description = f"{array.shape} {array.dtype}" if isinstance(array, np.ndarray) else repr(array)
        raise sources.SourceError(f"argument {name} is {description}; the function takes {shape} {dtype}")
    return array


def copied(values: Sequence[object]) -> list[Any]:
    """Copy the arrays in values, since kernels may update them."""
    def copy(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(copy, value))
        if isinstance(value, dict):
            return {key: copy(inner) for key, inner in value.items()}
        return value.copy() if isinstance(value, np.ndarray) else value
    return [copy(v) for v in values]


def specialized(kernel: "Kernel", positional: list[object],
                keywords: dict[str, object]) -> "tuple[Specialization, list[np.ndarray]]":
    """Capture a kernel for these arguments; return the specialization and the tensors among the arguments."""
    from nki_mlir.language.kernel import describe_array, is_array  # start-up: imported on first use
    bound = kernel.bind(tuple(positional), keywords, is_array, describe_array)
    return kernel.specialize(bound), bound.tensors


def set_target(module: "Module", target: str) -> None:
    """Set the target of a module. Raise ``UnknownTarget``."""
    from nki_mlir.bindings import ir  # start-up: loads MLIR
    from nki_mlir.machine import machine_named
    machine_named(target)
    with module.context:
        module.operation.attributes["nki.target"] = ir.StringAttr.get(target)


def run_module(module: "Module", arrays: Sequence[Any], on: str) -> Results:
    """Run a module's kernel function, which may write the arrays, on an executor and return its results, or the arrays
    if it has none."""
    from nki_mlir.capture.attempts import Captured, Variant  # start-up: loads MLIR
    from nki_mlir.dialects.kernel_function import the_kernel
    from nki_mlir.language.specialization import executor
    kernel = the_kernel(module)
    program = executor(on)(Captured({(): Variant(module, [], None, 0)}, 0, {}), kernel.grid)
    shared = [np.zeros(a.shape, a.dtype.numpy) for a in kernel.shared if a.dtype is not None]
    program(arrays, shared)
    results = []
    for number in kernel.results or [k for k, a in enumerate(kernel.arguments) if a.kind == "shared"]:
        spec = kernel.arguments[number]
        results.append((spec.name, shared[spec.index] if spec.kind == "shared" else arrays[spec.index]))
    return results or [(a.name, arrays[a.index]) for a in kernel.inputs]
