# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The only importer of the MLIR Python bindings: every other module imports them from here.

The bindings are those of the ``torch-mlir`` wheel, or an ``mlir`` package of the same interface if a complete one is
installed. Importing this module imports the bindings (about 0.1 s), so only modules that handle IR do.
"""

import importlib
import importlib.util
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any


def _package() -> str:
    """Return ``mlir`` if it is complete, else ``torch_mlir``. A placeholder of that name on the path does not count."""
    for name in ("mlir", "torch_mlir"):
        try:
            if importlib.util.find_spec(f"{name}.ir") and importlib.util.find_spec(f"{name}.dialects.ext"):
                return name
        except ModuleNotFoundError:
            continue
    raise ImportError("no MLIR Python bindings found. fix: pip install torch-mlir")


PACKAGE = _package()


TESTED = "torch-mlir==20261001"
# Names that are used, but that some builds of the bindings lack. They are in the modules that are always loaded.
REQUIRED = {"ir": ("WalkOrder", "WalkResult", "MLIRError", "IntegerSetAttr", "StridedLayoutAttr"),
            "dialects.ext": ("Operand", "Result"), "dialects.irdl": ("load_dialects",)}


LEAST_STACK = 1 << 20           # bytes; with half of it the bindings load, with a quarter they end the process


def load(module: str) -> ModuleType:
    """Return a module of the bindings, for example ``load("dialects.linalg")``.

    Raise ``ImportError`` if this build has none, ``MemoryError`` if limits of the process leave no memory for it.
    """
    try:
        with interrupts_at_end():
            return importlib.import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        raise ImportError(missing_name_message(error.name or module)) from None
    except ImportError as error:
        if "failed to map segment" not in str(error):
            raise
        raise MemoryError(f"the MLIR bindings do not load, {error}") from None


@contextmanager
def interrupts_at_end() -> Iterator[None]:
    """Delay Ctrl-C to the end of the ``with`` block. Native code of the bindings imports Python modules while it loads,
    and ends the process if that raises an exception."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield                                   # Python runs handlers in the main thread
        return
    delayed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: delayed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if delayed:
            signal.raise_signal(signal.SIGINT)


def check_stack() -> None:
    """Raise ``MemoryError`` if the stack of the process is too small for MLIR."""
    if sys.platform == "win32":
        return
    import resource  # not on every system
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if 0 <= limit < LEAST_STACK:
        raise MemoryError(f"the stack is limited to {limit:,} bytes (ulimit -s), MLIR needs {LEAST_STACK:,}")


def missing_name_message(name: str) -> str:
    """Return the message for installed bindings that lack a name that is used here."""
    return f"the MLIR bindings of {PACKAGE} have no {name}. fix: pip install '{TESTED}', which is tested"


def check_bindings() -> None:
    """Raise ``ImportError`` for the first name that is used and that the installed bindings lack."""
    for module, names in REQUIRED.items():
        for name in names:
            if not hasattr(load(module), name):
                raise ImportError(missing_name_message(f"{module}.{name}"))


if TYPE_CHECKING:                       # the bindings come without types: typings/ has those of the used names
    from torch_mlir import ir as ir
    from torch_mlir.dialects import ext as ext
    from torch_mlir.dialects import irdl as irdl
else:
    check_stack()
    ir, ext, irdl = load("ir"), load("dialects.ext"), load("dialects.irdl")
    check_bindings()


def _without_classes(dialect: str) -> None:
    """Give operations of a dialect the general class, until the dialect's own module is imported.

    The bindings import a dialect's module when the first of its operations is cloned or iterated over; the module of
    linalg contains a language and adds 70 ms to a first call, llvm's adds 25 ms, the others a few each. Bindings
    without the function that marks a dialect as loaded import the module as usual.
    """
    module = f"{PACKAGE}.dialects.{dialect}"
    mark = getattr(load("_mlir_libs._mlir").globals, "_check_dialect_module_loaded", None)
    if mark is not None and module not in sys.modules:
        sys.modules[module] = ModuleType(module)
        try:
            mark(dialect)
        finally:
            del sys.modules[module]


# The project's dialects have no such module: the bindings would search for one on disk at each operation.
for _dialect in ("arith", "func", "linalg", "llvm", "math", "memref", "scf", "isa", "nisa", "nki", "scalar"):
    _without_classes(_dialect)

class LateDialect:
    """The Python module of a dialect, imported when the first of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(load(f"dialects.{self._name}"), name)
        return value


# Types of handles, for annotations; modules that do not handle IR at run time import them for type checking only.
Attribute = ir.Attribute
Block = ir.Block
Context = ir.Context
Module = ir.Module
Operation = ir.Operation            # also operations that a dialect's class wraps
Region = ir.Region
Type = ir.Type
Value = ir.Value

# Fields of operations that are defined in Python, whose types their verifiers check.
Operand = ext.Operand[Any]
Result = ext.Result[Any]


def walk(root: "Operation | Module", visit: Callable[["Operation"], object]) -> None:
    """Call ``visit``, which returns an ``ir.WalkResult``, with each operation from ``root`` on, in order.

    The bindings replace the exception of a callback by a ``RuntimeError`` that quotes it; this context raises the
    original one. A signal often interrupts Python before the first line of the callback.
    """
    raised: list[BaseException] = []

    def guarded(view: Any) -> object:
        try:
            return visit(view.operation)    # a view of an operation may have its own field called name
        except BaseException as error:
            raised.append(error)
            return ir.WalkResult.INTERRUPT
    try:
        root.operation.walk(guarded, ir.WalkOrder.PRE_ORDER)
    except RuntimeError as error:
        if str(error).rstrip(": \n").endswith("KeyboardInterrupt"):
            raise KeyboardInterrupt from None
        raise
    if raised:
        raise raised[0]


def cloned(module: Module) -> Module:
    """Return a copy of a module in the same context, with the same locations."""
    copy = ir.Module.create(module.operation.location)
    for name, attribute in module.operation.attributes.items():
        copy.operation.attributes[name] = attribute
    for op in module.body.operations:
        copy.body.append(op.operation.clone())
    return copy


def operations_of(root: "Operation | Module", accepts: Callable[[str], object]) -> "list[Operation]":
    """Return the operations from ``root`` on whose names ``accepts`` returns true for, in order. A walk finds them,
    because iterating over a block gives operations classes, and imports the modules of their dialects first.
    """
    operations: list[Any] = []

    def visit(op: Any) -> Any:
        if accepts(op.name):
            operations.append(op)
        return ir.WalkResult.ADVANCE
    walk(root, visit)
    return operations


def enclosing(op: "Operation") -> "Iterator[Operation]":
    """Yield the operations around an operation, the innermost first; the last is its function."""
    while op.name != "func.func":
        op = op.parent.operation
        yield op
