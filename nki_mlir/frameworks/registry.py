# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The registry of kernels that graphs of this process call: their records, executors and native entries.

A kernel in a graph is identified by the hash of its content and call form, never by a number that is valid only in this
process, so caches and exported modules name the same kernel everywhere. The registry releases nothing: executables of a
framework may outlive every Python object.

A kernel's entry is its program as a C function, ``int32_t entry(void** data)``: ``data`` has the addresses of the
inputs in order, then of the shared outputs in order. It runs the program for all of the grid and returns 0, or a
status that ``error`` turns into the exception. Programs of the JIT are such functions already; for every other
executor, a callback wraps the memory in NumPy arrays. No exception crosses the boundary.
"""

import ctypes
import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nki_mlir.alone import ALONE, alone, exclusive_property
from nki_mlir.analysis.effects import ArgumentEffects
from nki_mlir.diagnostics import InternalError, NkiMlirError
from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.frameworks.process_state import once
from nki_mlir.graph.custom_call import CallForm, KernelRecord, Slot, effects_of, read_record
from nki_mlir.language.arguments import Bound, map_leaves
from nki_mlir.language.call_cache import CachedCall
from nki_mlir.language.eager_run import executed
from nki_mlir.language.kernel import Kernel, default_executor
from nki_mlir.language.results import check_written
from nki_mlir.language.specialization import Specialization, executor
from nki_mlir.result_memory import array_at

C_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
FAILURES_KEPT = 256                 # exceptions that are stored until their caller requests the error of its status

Program = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]


@dataclass(frozen=True, eq=False)
class NativeEntry:
    """A kernel's entry: the address of its C function, ``error``, which returns the exception of a status, and
    ``keep``, which must live as long as the address is used."""

    address: int
    error: Callable[[int], BaseException]
    keep: object

    def __call__(self, pointers: Sequence[int]) -> None:
        """Call the function with the addresses of its data. Raise the kernel's exception."""
        status = C_ENTRY(self.address)((ctypes.c_void_p * len(pointers))(*pointers))
        if status:
            raise self.error(status)


def callback_entry(program: Program, inputs: Sequence[ArgumentSpec], shared: Sequence[ArgumentSpec]) -> NativeEntry:
    """Return an entry that calls ``program`` on NumPy arrays which view the memory."""
    failures: dict[int, BaseException] = {}
    statuses = itertools.count(1)
    plan = [(a.shape, a.dtype.numpy) for a in (*inputs, *shared) if a.dtype is not None]
    count = len(inputs)

    def run(data: int) -> int:
        try:
            pointers = (ctypes.c_void_p * len(plan)).from_address(data)
            arrays = [array_at(p or 0, shape, dtype) for p, (shape, dtype) in zip(pointers, plan)]
            program(arrays[:count], arrays[count:])
            return 0
        except BaseException as error:              # a foreign caller cannot handle an exception
            status = next(statuses) & 0x7FFFFFFF
            failures[status] = error
            failures.pop(status - FAILURES_KEPT, None)
            return status

    def error(status: int) -> BaseException:
        return failures.pop(status, None) or InternalError(f"a kernel returned the unknown status {status}")
    function = C_ENTRY(run)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return NativeEntry(address, error, function)


@dataclass(eq=False)
class Callee:
    """A kernel that graphs can call, on a fixed executor."""

    record: KernelRecord
    on: str
    load: Callable[[], Program] = field(repr=False)

    @cached_property
    def key(self) -> str:
        """The hash of the kernel's content, its call form and the executor."""
        identity = (self.record.key, self.record.structure, self.record.form, self.on)
        return hashlib.sha256(repr(identity).encode()).hexdigest()

    @property
    def number(self) -> int:
        """The key's first 15 hexadecimal digits as a number (60 bits)."""
        return int(self.key[:15], 16)

    @property
    def operands(self) -> list[ArgumentSpec]:
        """The buffers that are operands of the call."""
        return self.record.operands

    @property
    def results(self) -> list[ArgumentSpec]:
        """The buffers that are results of the call."""
        return self.record.results

    @property
    def sources(self) -> list[Slot]:
        """Where each address of the entry's data comes from: ("operand", n) or ("result", n)."""
        return [self.record.form.source(slot) for slot in self.record.slots]

    @exclusive_property
    def entry(self) -> NativeEntry:
        """Return the native entry, compiled on first use. ``load`` returns a program ``run(inputs, shared)`` on
        arrays, or one that is a native function itself."""
        program = self.load()
        if hasattr(program, "address") and hasattr(program, "error"):
            return NativeEntry(program.address, program.error, program)
        return callback_entry(program, self.record.inputs, self.record.shared)

    def __repr__(self) -> str:
        return f"{self.record.name}:{self.key[:8]}"


def callees() -> dict[str, Callee]:
    """Return the registry: the callees of the process by key."""
    return once("callees", dict)


@dataclass(frozen=True)
class PlainResults:
    """The inputs that a kernel writes and never reads, and that are results of its call rather than operands.

    ``indices`` lists them; None selects every input whose elements the kernel provably writes all.
    """

    indices: tuple[int, ...] | None = ()

    def holds(self, index: int, effects: ArgumentEffects) -> bool:
        return effects.covered if self.indices is None else index in self.indices


def callee_of(spec: Specialization, on: str, plain: PlainResults, eager: Program | None = None) -> Callee:
    """Return the registered callee of a specialization. ``eager`` is the program of the eager executor, which runs the
    kernel's Python code."""
    program_key = f"callee on {on}, {plain}"
    if program_key not in spec.programs:
        with ALONE:
            spec.report_left_out()
            callee = Callee(record_of(spec, plain), on, lambda: eager or spec.program(on))
            spec.programs.setdefault(program_key, callees().setdefault(callee.key, callee))
    result: Callee = spec.programs[program_key]
    return result


@alone
def record_of(spec: Specialization, plain: PlainResults) -> KernelRecord:
    """Return the record of a specialization: its modules as text, with the call form."""
    variants = tuple((fixed, str(v.module)) for fixed, v in spec.captured.variants.items())
    effects = effects_of([v.module for v in spec.captured.variants.values()])
    results = [("shared", r.shared) if r.shared is not None else ("input", r.input) for r in spec.results]
    slots = list(dict.fromkeys(results))
    written = [("input", k) for k in range(len(spec.inputs)) if effects["input", k].writes]
    hidden = [s for s in [*written, *(("shared", k) for k in range(len(spec.shared)))] if s not in slots]
    only_written = {s for s in written if not effects[s].reads and plain.holds(s[1], effects[s])}
    operands = tuple(k for k in range(len(spec.inputs)) if ("input", k) not in only_written)
    form = CallForm(operands, tuple(slots + hidden), tuple(slots.index(r) for r in results))     # type: ignore[arg-type]
    names = [spec.results[results.index(s)].name for s in slots]
    names += [spec.inputs[k].name if kind == "input" else spec.shared[k].name for kind, k in hidden]
    record = KernelRecord(spec.name, spec.grid, str(spec.structure), variants, form, tuple(names))
    vars(record)["modules"] = {fixed: v.module for fixed, v in spec.captured.variants.items()}      # need no parsing
    return record


@alone
def callee_from(config: str, on: str) -> Callee:
    """Return the callee of a config, which another process may have written."""
    record = read_record(config)
    callee = Callee(record, on, lambda: program_of(record, on))
    return callees().setdefault(callee.key, callee)


@alone
def program_of(record: KernelRecord, on: str) -> Program:
    """Compile a record's modules for an executor. The interpreter stands in for eager execution, which would need the
    kernel's Python."""
    if record.program is not None:
        return record.program
    from nki_mlir.capture.attempts import Captured, Variant  # start-up: loads MLIR
    variants = {fixed: Variant(module, [], record.structure, 0) for fixed, module in record.modules.items()}
    return executor("interpreter" if on == "eager" else on)(Captured(variants, 0, {}), record.grid)


# -- callees of a kernel and a framework's arguments -------------------------------------------------------------------
class NumberAsTensor(NkiMlirError, TypeError):
    code = "NKI-NUMBER"
    message = "argument {argument} of kernel {kernel} is an array without dimensions"
    why = "numbers are constants of a kernel, which is compiled for them"
    fix = ("pass a Python number, x.item(); in jax.jit name it in static_argnames, or bind it with functools.partial; "
           "with torch.compile convert it, also a NumPy scalar, before you call the compiled function")


class SymbolicShape(NkiMlirError, TypeError):
    code = "NKI-SYMBOLIC-SHAPE"
    message = "kernel {name} is called with {what}: all sizes must be known"
    why = "a kernel is compiled for its shapes"
    fix = "export the program once for each size; {instead}"


def call_for(kernel: Kernel, bound: Bound) -> CachedCall:
    """Return the cached call for bound arguments; capture the kernel if these shapes and constants are new. Raise
    ``NumberAsTensor`` for a tensor without dimensions."""
    for tensor in bound.specs:
        if not tensor.shape:
            raise NumberAsTensor(argument=tensor.name, kernel=kernel.__name__).here()
    return kernel.cached_call(bound)


def callee_for(kernel: Kernel, bound: Bound, plain: PlainResults = PlainResults(), call: CachedCall | None = None
               ) -> Callee:
    """Return the callee for bound arguments; ``call`` is their cached call, if the caller has it."""
    spec = (call or call_for(kernel, bound)).capture
    on = kernel.executor or default_executor()
    return callee_of(spec, on, plain, eager_program(kernel, bound, spec) if on == "eager" else None)


class _TensorSlot:
    """The stand-in for a tensor in stored arguments, so that they keep no tensor alive."""


def eager_program(kernel: Kernel, bound: Bound, spec: Specialization) -> Program:
    """Return the kernel's Python code, applied to concrete arrays, as ``run(inputs, shared)``. It keeps no tensor of
    the call alive."""
    values = {n: map_leaves(v, bound.is_tensor, lambda _: _TensorSlot) for n, v in bound.values.items()}
    slots = Bound(bound.names, values, bound.specs)
    slots.is_tensor, slots.call = lambda value: value is _TensorSlot, bound.call

    def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        programs = executed(kernel, slots, list(inputs), kernel.eager_program(), lambda checks, programs: None)
        check_written(programs, kernel.location, kernel.must_write)
        for result, buffer in zip(spec.results, programs[-1].buffers):
            if result.shared is not None:
                shared[result.shared][...] = buffer.handle
    return run


# -- on NumPy arrays ---------------------------------------------------------------------------------------------------
class BadArguments(NkiMlirError, TypeError):
    code = "NKI-STABLEHLO-ARGUMENTS"
    message = "argument {number} is {found}; @{function} takes {expected}"
    fix = "pass one array for each parameter, with its shape and dtype"


def argument_list(arguments: object) -> list[object]:
    """Return the arguments of a call. Raise ``BadArguments`` for any other value."""
    if not isinstance(arguments, Iterable):
        kind = type(arguments).__name__
        raise BadArguments(number=0, found=f"missing: a value of type {kind} is not a list of arrays",
                           function="main", expected="arrays")
    return [*arguments]


def checked(arguments: Sequence[object], expected: Sequence[tuple[tuple[int, ...], np.dtype]], function: str
            ) -> list[np.ndarray]:
    """Convert arguments to arrays. Raise ``BadArguments`` if their number, a shape or a dtype differs from
    ``expected``."""
    count = len(arguments)
    if count != len(expected):
        raise BadArguments(number=count, found="missing" if count < len(expected) else "extra", function=function,
                           expected=f"{len(expected)} arrays")
    arrays = []
    for number, value in enumerate(arguments):
        if isinstance(value, np.ma.MaskedArray):
            raise BadArguments(number=number, found="a masked array, whose mask it would not see", function=function,
                               expected=f"{expected[number][0]} {expected[number][1]}")
        try:
            arrays.append(np.asarray(value, order="C"))
        except (ValueError, TypeError, OverflowError) as error:
            raise BadArguments(number=number, found=f"no array ({error})", function=function,
                               expected=f"{expected[number][0]} {expected[number][1]}") from None
    for number, (array, (shape, dtype)) in enumerate(zip(arrays, expected)):
        if array.shape != shape or array.dtype != dtype:
            raise BadArguments(number=number, found=f"{array.shape} {array.dtype}", function=function,
                               expected=f"{shape} {dtype}")
    return arrays


def storage(spec: ArgumentSpec) -> np.dtype:
    """Return the dtype of NumPy arrays that hold a buffer."""
    assert spec.dtype is not None
    return np.dtype(spec.dtype.numpy.type)


def run_on_arrays(callee: Callee, arrays: Sequence[object]) -> list[np.ndarray]:
    """Run a callee on its operands and return new arrays with all results of the call."""
    record = callee.record
    operands = [np.asarray(v, order="C") for v in arrays]
    results = [np.zeros(r.shape, storage(r)) for r in callee.results]
    for operand, result in record.form.aliases.items():
        results[result][...] = operands[operand]
    memory = {"operand": operands, "result": results}
    callee.entry([memory[kind][n].ctypes.data for kind, n in callee.sources])
    return results
