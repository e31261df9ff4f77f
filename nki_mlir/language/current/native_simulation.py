# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs simulated calls as native code once equal calls have been simulated without findings.

If the loops, branches and addresses of a kernel do not depend on data, neither do the simulator's findings: bounds,
races, rules of the device, reads of unwritten elements. They are the same for all calls with equal shapes and
constants. So the first calls with some shapes are simulated. If they cause no warning and print nothing, one call runs
both ways, and if the results agree later calls run as native code. The simulator keeps all other calls: kernels with
addresses or branches that depend on data, that draw random numbers, print, or look values up in bounded tables;
functions that refer to state they could change; calls while functions of the language are replaced, or a debugger or
tracer is active.
"""

import dis
import functools
import io
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from nki_mlir.alone import free_in_child
from nki_mlir.bindings import Module, operations_of
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.collectives import Collective
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.meeting import Meeting
from nki_mlir.dialects.nisa.random import WithState
from nki_mlir.dialects.scalar_body import has_domain
from nki_mlir.language.arguments import Bound
from nki_mlir.language.call_cache import key_of_bound
from nki_mlir.language.kernel import Kernel
from nki_mlir.scalar.dtypes import DType

MOST = 256                              # memoized calls of a function, by shapes and constants
WORTH = 8                               # compiling pays off after this number of calls
TOOLS = 6                               # the identifiers that sys.monitoring gives to tools: 0 to 5
CLOSE = 1e-5                            # relative L2 distance allowed between the float32 results of both ways
# Operations whose effects or findings are known at run time only.
BY_RUN = ("memref.load", "scf.while", "scf.if", "nki.device_print", "nki.require_written", "nisa.require_written",
          "nisa.rank_id")


class Progress(Enum):
    """The facts about calls with equal shapes and constants."""

    CLEAN = "simulated without warnings and output"
    NATIVE = "native code gives the same results"
    SIMULATED = "only the simulator may run them"


@dataclass
class KnownCall:
    """The calls of a function with one key: their progress, their number, and the kernel with their capture."""

    progress: Progress
    kernel: Kernel
    count: int = 1


_known: "weakref.WeakKeyDictionary[FunctionType, dict[tuple[object, ...], KnownCall]]" = weakref.WeakKeyDictionary()
_lock = free_in_child(threading.Lock())


def run(kernel: Kernel, bound: Bound, simulated: Callable[[], object], native: Callable[[Kernel, bool], object]
        ) -> object:
    """Return the result of a call, from native code if equal calls allow it, else from the simulator. ``native`` runs a
    kernel of the same function, on copies of the arguments if its flag is true."""
    if not may_be_native(kernel, bound):
        return simulated()
    key = key_of_bound(kernel.settings(), bound)
    with _lock:
        calls = _known.setdefault(kernel.func, {})          # type: ignore[arg-type]
        record = calls.get(key)
    if record is None:
        with watched() as has_output:
            result = simulated()
        with _lock:
            if len(calls) >= MOST:
                calls.clear()
            clean = not has_output() and changes_nothing(kernel.func)
            calls[key] = KnownCall(Progress.CLEAN if clean else Progress.SIMULATED, kernel)
        return result
    if record.progress is Progress.NATIVE:
        return native(record.kernel, False)
    record.count += 1
    if record.progress is Progress.CLEAN and record.count >= WORTH:
        record.progress = Progress.SIMULATED                 # stays so if the code below raises
        if decided_by_shapes(record.kernel, bound):
            fast = attempted(lambda: native(record.kernel, True))
            with watched() as has_output:
                result = simulated()
            if not has_output() and fast is not None and agree(fast, result):
                record.progress = Progress.NATIVE
            return result
    return simulated()


def may_be_native(kernel: Kernel, bound: Bound) -> bool:
    """Return whether a call can run as native code: no tracer or replaced function, and plain writable C-contiguous
    arrays."""
    return (type(kernel.func) is FunctionType and bound.plain is not None and not is_observed()
            and all(type(a) is np.ndarray and a.flags.c_contiguous and a.flags.writeable for a in bound.tensors)
            and not replaced())


def is_observed() -> bool:
    """Return whether a debugger, profiler or coverage tool observes the lines that Python runs. From Python 3.12 on,
    these register with ``sys.monitoring``, which the trace function of a thread does not show."""
    monitoring = getattr(sys, "monitoring", None)
    tools = [] if monitoring is None else map(monitoring.get_tool, range(TOOLS))
    return sys.gettrace() is not None or sys.getprofile() is not None or any(tools)


# -- output and warnings of a simulation -------------------------------------------------------------------------------
class Watch(io.TextIOBase):
    """A text stream that forwards to ``stream`` and records in ``used`` whether anything was written."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.used = stream, False

    def write(self, text: str) -> int:
        self.used = True
        return int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def watched() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether the block has printed or warned so far. Output and warnings still appear."""
    before = sys.stdout, sys.stderr
    watches = Watch(before[0]), Watch(before[1])
    sys.stdout, sys.stderr = watches
    show, warned = warnings.showwarning, list[bool]()

    def record_warning(*arguments: Any, **named: Any) -> None:
        warned.append(True)
        show(*arguments, **named)
    warnings.showwarning = record_warning
    try:
        yield lambda: bool(warned) or any(w.used for w in watches)
    finally:
        warnings.showwarning = show
        for name, watch, stream in zip(("stdout", "stderr"), watches, before):
            if getattr(sys, name) is watch:
                setattr(sys, name, stream)


# -- the choice of native code -----------------------------------------------------------------------------------------
def decided_by_shapes(kernel: Kernel, bound: Bound) -> bool:
    """Return whether the findings of a call are the same for all values of its arrays. Captures the kernel to
    find out."""
    try:
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            spec = kernel.specialize(bound)
    except (NkiMlirError, TypeError, ValueError, IndexError):
        return False
    verdict = spec.captured.verdict
    if recorded or verdict.races or verdict.undecided or spec.captured.unproved or spec.left_out or not spec.repeats:
        return False
    return all(map(is_decided, spec.modules))


def is_decided(module: Module) -> bool:
    """Return whether a module has no data-dependent addresses or branches, random draws, prints or exchanges between
    cores."""
    for op in operations_of(module, lambda name: True):
        if op.name in BY_RUN:
            return False
        if is_tile_op(op):
            tile_op = read_op(op)
            if isinstance(tile_op, (DataAddressed, WithState, Meeting, Collective)) or has_domain(tile_op):
                return False
    return True


STORES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR")
PLAIN = (int, float, complex, str, bytes, type(None), type(...), bool, range, slice, Enum, np.generic, np.dtype, DType)


def changes_nothing(function: object, visited: set[int] | None = None) -> bool:
    """Return whether a function, and each function it calls by name, refers to no mutable state besides
    its arguments."""
    visited = set() if visited is None else visited
    if id(function) in visited:
        return True
    visited.add(id(function))
    if not isinstance(function, FunctionType):
        return False
    if any(step.opname in STORES for code in codes_of(function.__code__) for step in dis.get_instructions(code)):
        return False
    if any(step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in function.__code__.co_freevars
           for code in codes_of(function.__code__) for step in dis.get_instructions(code)):
        return False
    names = {name for code in codes_of(function.__code__) for name in code.co_names}
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    values += [cell.cell_contents for cell in function.__closure__ or () if cell_is_full(cell)]
    return all(is_unchanged(value, visited) for value in (*values, *(function.__defaults__ or ())))


def cell_is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and the code of the functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def is_unchanged(value: object, visited: set[int]) -> bool:
    """Return whether no call can change a value: it is immutable, or a function without side effects."""
    if isinstance(value, (ModuleType, *PLAIN)):
        return True
    if not isinstance(value, Kernel) and (getattr(value, "__module__", "") or "").startswith("nki_mlir."):
        return True
    if isinstance(value, (tuple, frozenset)):
        return all(is_unchanged(part, visited) for part in value)
    if isinstance(value, Kernel):
        return changes_nothing(value.func, visited)
    if isinstance(value, FunctionType):
        return changes_nothing(value, visited)
    return isinstance(value, type) or (callable(value) and type(value).__name__ == "builtin_function_or_method")


def attempted(native: Callable[[], object]) -> object:
    """Return the result of native code, or None if it raises an error."""
    try:
        return native()
    except (NkiMlirError, IndexError, TypeError, ValueError):
        return None


def agree(result: object, other: object) -> bool:
    """Return whether two results are equal up to rounding."""
    if isinstance(result, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(result) == len(other) and all(map(agree, result, other))
    if not isinstance(result, np.ndarray) or not isinstance(other, np.ndarray):
        return type(result) is type(other)
    if result.shape != other.shape or result.dtype != other.dtype:
        return False
    if result.dtype.kind in "biu":
        return bool((result == other).all())
    a, b = result.astype(np.float64), other.astype(np.float64)
    usual = np.isfinite(b)
    if not np.array_equal(a[~usual], b[~usual], equal_nan=True):
        return False
    unit = {4: CLOSE, 2: 2.0 ** -9}.get(result.dtype.itemsize, 0.0)        # float32; 16 bits, rounded once; else exact
    return bool(np.linalg.norm(a[usual] - b[usual]) <= unit * np.linalg.norm(b[usual]))


# -- replaced functions ------------------------------------------------------------------------------------------------
VENDOR_NAMES = "nki.isa", "nki.language"            # the modules in which programs replace functions


@functools.cache
def originals() -> list[dict[str, object]]:
    """Return the public functions of this package's modules ``isa`` and ``language``, by name. A module that is not
    loaded has none here: a kernel that uses it has loaded it. Memoized."""
    modules = [sys.modules.get(f"{__package__}.{name}") for name in ("isa", "language")]
    return [{name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
            if module is not None else {} for module in modules]


def replaced() -> bool:
    """Return whether a program has replaced a function in ``nki.isa`` or ``nki.language``."""
    for name, original in zip(VENDOR_NAMES, originals()):
        current = vars(sys.modules[name]) if name in sys.modules else original
        if any(current.get(key) is not value for key, value in original.items()):
            return True
    return False
