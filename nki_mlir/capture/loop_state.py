# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tells whether one iteration of a loop's body stands for all: by snapshots of Python state and traces of operations.

Snapshots see the state that a kernel's variables lead to; running the body once more and comparing what it emits also
sees state behind them (a counter in another module, a random generator). Neither alone is enough: a list that only
grows changes no operation of the body.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.op import FRESH

OBJECTS = 2000      # the most objects that a snapshot inspects; others are compared by identity
ITEMS = 256         # the most items of a container that a snapshot inspects, besides its length


class _Opaque:
    """State that cannot be inspected without changing it: equal to nothing, itself included."""

    __eq__ = lambda self, other: False


class Identity:
    """A value compared by identity. It keeps the object alive, since the ``id`` of a deleted object may be reused."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def snapshot(values: dict[str, object]) -> dict[str, object]:
    visited: set[int] = set()
    return {name: _content(value, visited) for name, value in values.items()}


def changes(before: dict[str, object], after: dict[str, object], new_counts: bool = False) -> set[str]:
    """Return the names whose content differs; include names that were unbound before only if ``new_counts``."""
    names = before.keys() | after.keys() if new_counts else before.keys()
    missing = object()
    return {n for n in names if before.get(n, missing) != after.get(n, missing)}


def _content(value: object, visited: set[int]) -> object:
    """Return a comparable copy of a value's content. Tensors are compared by identity: rebinding one is
    carried state."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() | range() | slice():
            return type(value), repr(value)
        case Index():
            return value.key
        case Mask():
            return tuple((e.key, equal) for e, equal in value.terms), value.negated
        case Iterator():
            return _Opaque()
        case View() | type() | ModuleType():
            return Identity(value)
    if id(value) in visited or len(visited) > OBJECTS:
        return Identity(value)
    visited.add(id(value))
    return Identity(value), _inside(value, visited)


def _inside(value: object, visited: set[int]) -> object:
    def look(items: Iterable[object]) -> list[object]:
        return [_content(v, visited) for v in itertools.islice(items, ITEMS)]

    match value:
        case np.ndarray():
            return value.tobytes() if value.nbytes <= 4096 else None
        case list() | tuple() | set() | frozenset():
            return len(value), look(value)
        case dict():
            return len(value), look(value.keys()), look(value.values())
        case FunctionType():
            return look(cell.cell_contents for cell in value.__closure__ or () if is_bound(cell))
        case MethodType():
            return look([value.__self__])
    slots = [getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
    return look(slots), look(vars(value).values()) if hasattr(value, "__dict__") else None


def is_bound(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


# -- traces ------------------------------------------------------------------------------------------------------------
class BlockArguments:
    """The arguments of a block that a loop or branch opens, as an entry of a trace."""

    def __init__(self, arguments: Sequence[object]) -> None:
        self.arguments = list(arguments)


class Trace:
    """Operations in the order they are emitted, with ``BlockArguments`` where a body begins.

    Outside of loops and branches they are only counted. Entries are the operations: few are compared, and their
    names and attributes are read only then.
    """

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.record = self.entries.append
        self.counted = 0

    def mark(self) -> int:
        return self.counted + len(self.entries)

    def settle(self) -> None:
        """Count the entries and drop them: the outermost loop or branch has ended, and nothing compares its operations
        again."""
        self.counted += len(self.entries)
        self.entries.clear()

    def segment(self, start: int, end: int) -> list[object]:
        """Return names, attributes and operands of the operations between two marks. Values defined inside are
        replaced by their position.

        Whether elements were left out before may be known after the first iteration only; it changes no values.
        """
        local: dict[object, tuple[int, int]] = {}
        canonical: list[object] = []
        for at, entry in enumerate(self.entries[start - self.counted:end - self.counted]):
            values: Sequence[object] = ()
            if isinstance(entry, BlockArguments):
                canonical.append(BlockArguments)
                values = entry.arguments
            else:
                operands = [local.get(v, v) for v in entry.operands]
                attributes = {name: value for name, value in entry.attributes.items() if name != FRESH}
                canonical.append((entry.name, operands, attributes))
                values = entry.results
            for k, value in enumerate(values):
                local[value] = at, k
        return canonical

    def erase_from(self, mark: int) -> None:
        """Erase everything emitted since the mark. No reference to an erased operation stays, because an access to one
        aborts the process."""
        first_entry = mark - self.counted
        for entry in reversed(self.entries[first_entry:]):
            if not isinstance(entry, BlockArguments):
                entry.erase()
        del self.entries[first_entry:]
