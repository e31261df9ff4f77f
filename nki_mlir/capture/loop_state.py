# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tells whether one iteration of a loop's body stands for all: by snapshots of Python state and traces of operations.

Snapshots contain the state that is reachable from a kernel's variables. The capture also runs the body once more and
compares the operations: that shows state that no variable reaches (a counter in another module, a random generator).
Neither alone is enough: a list that only grows changes no operation of the body.
"""

import hashlib
import operator
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from nki_mlir.capture.global_names import global_names
from nki_mlir.capture.index import Index, Mask
from nki_mlir.capture.locations import STANDARD_LIBRARY, is_toolchain, is_users, user_frame, variables
from nki_mlir.capture.mutable_state import held_by, is_users_module, state_of
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.op import FRESH

OBJECTS = 2000      # the most objects that a snapshot inspects for a variable; others are compared by identity
ITEMS = 256         # the items of a container that a snapshot inspects; the others are compared by identity
SHORT = 4096        # bytes of an array that are compared as they are; more are compared by their digest
SIMPLE = frozenset({type(None), bool, int, float, complex, str, bytes, range, slice})


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


@dataclass(frozen=True, eq=False)
class Identities:
    """Values of which each is compared by identity."""

    values: tuple[object, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identities) and len(self.values) == len(other.values) and all(
            map(operator.is_, self.values, other.values))


def snapshot(values: dict[str, object], names: Iterable[str] = ()) -> dict[str, object]:
    """Return a comparable copy of the content of some variables. ``names`` are those that the code around them may look
    up in modules."""
    walk = _Walk(names)
    return {name: walk.content(value) for name, value in values.items()}


def live_state(names: tuple[str, ...]) -> dict[str, object]:
    """Return a snapshot of some variables of the kernel now."""
    frame = user_frame()
    return snapshot(variables(names), () if frame is None else global_names(frame.f_code))


def changes(before: dict[str, object], after: dict[str, object], new_counts: bool = False) -> set[str]:
    """Return the names whose content differs; include names that were unbound before only if ``new_counts``."""
    names = before.keys() | after.keys() if new_counts else before.keys()
    missing = object()
    return {n for n in names if before.get(n, missing) != after.get(n, missing)}


class _Walk:
    """One walk over the objects that some variables lead to, each of which is inspected once."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = {*names}                                               # that some function may look up
        self.visited: dict[int, object] = {}                                # by id; alive, so that ids stay unique
        self.pending: deque[object] = deque()                               # the nearest ones first
        self.most = 0
        self.modules: dict[int, tuple[ModuleType, set[str]]] = {}           # with the names looked up there

    def content(self, value: object) -> list[object]:
        """Return the objects that are reachable from a value, in the order of the walk."""
        self.most = len(self.visited) + OBJECTS
        tokens = [self.token(value)]
        while self.pending or any(not self.names <= names for _, names in self.modules.values()):
            tokens.append([*map(self.token, parts(self.pending.popleft(), self))] if self.pending else self.looked_up())
        return tokens

    def token(self, value: object) -> object:
        """Return a simple value unchanged, a tuple by its length, any other by identity; schedule a walk of its parts.
        A tensor has none: rebinding one is carried state."""
        if type(value) in SIMPLE:
            return type(value), repr(value)
        if id(value) in self.visited:
            return ("tuple", len(value)) if type(value) is tuple else Identity(value)
        match value:
            case Index():
                return value.key
            case Mask():
                return tuple((e.key, equal) for e, equal in value.terms), value.negated
            case Iterator():
                return _Opaque()
            case Identities():
                return value
            case View():
                return Identity(value)
            case ModuleType():
                if is_users_module(value) or not (getattr(value, "__file__", None) or getattr(value, "__spec__", None)):
                    self.modules.setdefault(id(value), (value, set()))
                return Identity(value)
        if len(self.visited) <= self.most:
            self.visited[id(value)] = value
            self.pending.append(value)
        return ("tuple", len(value)) if type(value) is tuple else Identity(value)

    def looked_up(self) -> list[object]:
        """Return the values of modules under the names that the walk has met since it looked there."""
        tokens: list[object] = []
        for module, visited in self.modules.values():
            for name in sorted((self.names - visited) & vars(module).keys()):
                tokens += [name, self.token(vars(module)[name])]
            visited |= self.names
        return tokens


def parts(value: Any, walk: _Walk) -> list[object]:
    """Return the values that make up the state of a value."""
    if isinstance(value, np.ndarray) and value.nbytes > SHORT and not value.dtype.hasobject:
        return [hashlib.blake2b(value.tobytes()).digest(), str(value.dtype), value.shape]
    if isinstance(value, FunctionType):
        return visible_to(value, walk)
    slots = held_by(value)
    if slots is None:
        inner = getattr(value, "__wrapped__", None)             # of a kernel or a memoized function
        kind: Any = type(value)
        if inner is not None or isinstance(value, type) or is_of_library(kind):
            return [] if inner is None else [inner]
        slots = state_of(value)
    entries = [*slots.items()]
    first = [part for name, contents in entries[:ITEMS] for part in (name, *items_of(contents))]
    return [len(entries), *first, Identities(tuple([part for entry in entries[ITEMS:] for part in entry]))]


def visible_to(function: FunctionType, walk: _Walk) -> list[object]:
    """Return the values that a function's code sees, also those of its module if it is the user's. The functions of the
    language keep no state."""
    file, scope = function.__code__.co_filename, function.__globals__
    users = is_users(file, scope)
    if not users and is_toolchain(file):
        return []
    values = [cell.cell_contents for cell in function.__closure__ or () if is_bound(cell)]
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *vars(function).values()]
    if users:
        names = global_names(function.__code__)
        walk.names.update(names)
        values += [scope[name] for name in names if name in scope]
    return values


def items_of(contents: object) -> tuple[object, ...]:
    """Return the first items of a tuple that holds the contents of a container, and the others as one value."""
    if not isinstance(contents, tuple):
        return (contents,)
    return len(contents), *contents[:ITEMS], *((Identities(contents[ITEMS:]),) if len(contents) > ITEMS else ())


@cache
def is_of_library(kind: Any) -> bool:
    """Return whether Python's library defines a class: its objects memoize when they are used."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and file.startswith(STANDARD_LIBRARY) and "site-packages" not in file


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

    def clear_entries(self) -> None:
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
