# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tells that a loop's body stands for all its iterations: snapshots of Python state, and traces of operations.

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

OBJECTS = 2000      # a snapshot looks into that many objects; beyond them only identity counts
ITEMS = 256         # and at that many items of a container, besides its length


class _Opaque:
    """Equal to nothing, itself included: state that cannot be looked at without changing it."""

    __eq__ = lambda self, other: False


class Identity:
    """Equal to the same object only. Holds it, since the ``id`` of an object that is gone may go to the next one."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def snapshot(values: dict[str, object]) -> dict[str, object]:
    seen: set[int] = set()
    return {name: _content(value, seen) for name, value in values.items()}


def changes(before: dict[str, object], after: dict[str, object], new_counts: bool = False) -> set[str]:
    """Names whose content differs; names that were unbound before count only on request."""
    names = before.keys() | after.keys() if new_counts else before.keys()
    missing = object()
    return {n for n in names if before.get(n, missing) != after.get(n, missing)}


def _content(value: object, seen: set[int]) -> object:
    """The content of a value, comparable later. Tensors count by identity: rebinding one is carried state."""
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
    if id(value) in seen or len(seen) > OBJECTS:
        return Identity(value)
    seen.add(id(value))
    return Identity(value), _inside(value, seen)


def _inside(value: object, seen: set[int]) -> object:
    def look(items: Iterable[object]) -> list[object]:
        return [_content(v, seen) for v in itertools.islice(items, ITEMS)]

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
    """The arguments of a block that was opened."""

    def __init__(self, arguments: Sequence[object]) -> None:
        self.arguments = list(arguments)


class Trace:
    """Operations in the order they are emitted; ``BlockArguments`` where a body begins.

    Outside of loops and branches they are only counted. Of the others few are looked at: what there is to know of one
    is read from it then.
    """

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.record = self.entries.append
        self.counted = 0

    def mark(self) -> int:
        return self.counted + len(self.entries)

    def settle(self) -> None:
        """The outermost loop or branch has ended: nothing reads the inside again."""
        self.counted += len(self.entries)
        self.entries.clear()

    def segment(self, start: int, end: int) -> list[object]:
        """Names, attributes and operands, with the values made inside replaced by the place that made them.

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
        """Undo everything emitted since the mark. Touching an erased operation later would abort: none is kept."""
        first = mark - self.counted
        for entry in reversed(self.entries[first:]):
            if not isinstance(entry, BlockArguments):
                entry.erase()
        del self.entries[first:]
