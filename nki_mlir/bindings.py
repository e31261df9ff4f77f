# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The only importer of the MLIR Python bindings: everything else takes them from here.

The bindings are those of the ``torch-mlir`` wheel, or an ``mlir`` package of the same interface where a complete one
is installed. Importing this module costs the import of the bindings (about 0.1 s), so only what handles IR does.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any


def _package() -> str:
    """``mlir`` when it is complete, else ``torch_mlir``. A placeholder of that name on the path does not count."""
    for name in ("mlir", "torch_mlir"):
        try:
            if importlib.util.find_spec(f"{name}.ir") and importlib.util.find_spec(f"{name}.dialects.ext"):
                return name
        except ModuleNotFoundError:
            continue
    raise ImportError("no MLIR Python bindings found. fix: pip install torch-mlir")


PACKAGE = _package()


TESTED = "torch-mlir==20261001"
# What is used of the modules that are always loaded and that not every build of the bindings has.
REQUIRED = {"ir": ("WalkOrder", "WalkResult", "MLIRError", "IntegerSetAttr", "StridedLayoutAttr"),
            "dialects.ext": ("Operand", "Result"), "dialects.irdl": ("load_dialects",)}


LEAST_STACK = 1 << 20           # bytes; with half of it the bindings load, with a quarter they end the process


def load(module: str) -> ModuleType:
    """A module of the bindings, for example ``load("dialects.linalg")``; ``ImportError`` where this build has none,
    ``MemoryError`` where limits of the process leave no room for it."""
    try:
        return importlib.import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        raise ImportError(lacking(error.name or module)) from None
    except ImportError as error:
        if "failed to map segment" not in str(error):
            raise
        raise MemoryError(f"the MLIR bindings do not load, {error}") from None


def check_stack() -> None:
    """Raises ``MemoryError`` where the stack of the process is too small for MLIR."""
    if sys.platform == "win32":
        return
    import resource  # not on every system
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if 0 <= limit < LEAST_STACK:
        raise MemoryError(f"the stack is limited to {limit:,} bytes (ulimit -s), MLIR needs {LEAST_STACK:,}")


def lacking(name: str) -> str:
    """The message where the installed bindings are another build than what is used here."""
    return f"the MLIR bindings of {PACKAGE} have no {name}. fix: pip install '{TESTED}', which is tested"


def check_bindings() -> None:
    """Raises ``ImportError`` for the first name that is used and that the installed bindings lack."""
    for module, names in REQUIRED.items():
        for name in names:
            if not hasattr(load(module), name):
                raise ImportError(lacking(f"{module}.{name}"))


if TYPE_CHECKING:                       # the bindings come without types: typings/ has those of what is used
    from torch_mlir import ir as ir
    from torch_mlir.dialects import ext as ext
    from torch_mlir.dialects import irdl as irdl
else:
    check_stack()
    ir, ext, irdl = load("ir"), load("dialects.ext"), load("dialects.irdl")
    check_bindings()


def _without_classes(dialect: str) -> None:
    """Operations of a dialect are of the general class, as long as nobody imports its own.

    The bindings import a dialect's module when the first of its operations is cloned or iterated over; that of linalg
    has its own language inside, and takes 70 ms of a first call, that of llvm takes 25, the others some each.
    Bindings without the function that marks a dialect as loaded import it as they always do.
    """
    module = f"{PACKAGE}.dialects.{dialect}"
    mark = getattr(load("_mlir_libs._mlir").globals, "_check_dialect_module_loaded", None)
    if mark is not None and module not in sys.modules:
        sys.modules[module] = ModuleType(module)
        try:
            mark(dialect)
        finally:
            del sys.modules[module]


# Our own have no such module: the bindings would look for one on the disk at each operation anew.
for _dialect in ("arith", "func", "linalg", "llvm", "math", "memref", "scf", "isa", "nisa", "nki", "scalar"):
    _without_classes(_dialect)

class LateDialect:
    """The Python module of a dialect, imported when the first of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(load(f"dialects.{self._name}"), name)
        return found


# What handles are declared as; where IR is not handled at run time, imported for type checking only.
Attribute = ir.Attribute
Block = ir.Block
Context = ir.Context
Module = ir.Module
Operation = ir.Operation            # also what a dialect's own class wraps
Region = ir.Region
Type = ir.Type
Value = ir.Value

# Fields of operations that are defined in Python, whose types their verifiers check.
Operand = ext.Operand[Any]
Result = ext.Result[Any]


def cloned(module: Module) -> Module:
    """A copy of a module: the operation, which has what modules have."""
    copy: Any = module.operation.clone()
    found: Module = copy
    return found


def operations_of(root: "Operation | Module", wanted: Callable[[str], object]) -> "list[Operation]":
    """The operations from ``root`` on whose name ``wanted`` accepts, in order.

    By a walk: iterating a block gives operations classes, and imports those of their dialect first.
    """
    found: list[Any] = []

    def visit(view: Any) -> Any:
        op = view.operation                 # a view of an operation may have its own field called name
        if wanted(op.name):
            found.append(op)
        return ir.WalkResult.ADVANCE
    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def enclosing(op: "Operation") -> "Iterator[Operation]":
    """The operations that an operation is in, the innermost first; the last is its function."""
    while op.name != "func.func":
        op = op.parent.operation
        yield op
