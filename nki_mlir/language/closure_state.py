# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel's Python sees besides its tensors, as a key: a capture holds as long as all of it stays the same.

These are compile-time arguments, globals and closure cells, those of the helpers that it sees too, with what lists,
dicts, arrays, objects and classes hold at the time of the call.
"""

import enum
import os
import sys
from array import array
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache, partial
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from nki_mlir.frontend.locations import is_own, is_users
from nki_mlir.frontend.state import Identity, is_bound
from nki_mlir.frontend.wrapping import underlying
from nki_mlir.scalar.dtypes import DType

ABSENT = object()   # what is found where there is nothing
ENVIRONMENT = frozenset({"environ", "getenv"})
BY_TEXT = frozenset({"__dict__", "getattr", "globals", "hasattr", "vars"})
OBJECTS = 2000      # as many objects and containers are looked into; beyond them only identity counts


def closure_state(function: object, arguments: Iterable[object] = ()) -> tuple[object, ...]:
    """The key of a kernel's function and its compile-time arguments."""
    return ClosureState(function, arguments).key


class ClosureState:
    """One walk. ``scopes`` (globals of a module, names looked up there with their values or ``ABSENT``) and ``cells``
    (cell, value) are where something was seen, ``functions`` (function, code, defaults) what saw it, ``objects``
    (object, slots) what may change in place.

    What a kernel's Python changes while it is captured (a list that it appends to) is left out of its later keys.
    """

    def __init__(self, function: Any, arguments: Iterable[object] = ()) -> None:
        self.scopes: list[tuple[dict[str, object], tuple[tuple[str, object], ...]]] = []
        self.cells: list[tuple[Any, object]] = []
        self.functions: list[tuple[FunctionType, CodeType, tuple[object, ...] | None, tuple[object, ...]]] = []
        self.wrappers: list[tuple[object, object]] = []   # (callable, what it wraps)
        self.objects: list[tuple[object, dict[Any, object]]] = []
        self._numbers: dict[int, int] = {}          # places in ``objects``, by id
        self._pending: list[FunctionType] = []
        self._followed: set[int] = set()
        inner = underlying(function)
        self._own = _changed_by.setdefault(inner or type(function), {})
        # The kernel's package is the user's as a whole, also where it is an installed one.
        self._package = "" if inner is None or is_own(inner.__code__.co_filename) else package_of(inner.__module__)
        self._follow(function, is_kernel=True)
        key = [self._content(value) for value in (function, *arguments)]
        expanded = 0
        while self._pending or expanded < len(self.objects):
            if self._pending:
                key += [self._content(value) for value in self._seen_by(self._pending.pop())]
            else:
                slots = self.objects[expanded][1]
                key.append(tuple([(name, self._content(value)) for name, value in slots.items()]))
                expanded += 1
        self.key = tuple(key)

    @property
    def fixed(self) -> bool:
        """Whether all that was seen is immutable, so that ``holds`` can tell that a walk would see the same."""
        return not self.objects

    def holds(self) -> bool:
        """Whether the same is found in the same places; quick, and blind to what changes in place."""
        for scope, seen in self.scopes:
            find = scope.get
            for name, value in seen:
                if find(name, ABSENT) is not value:
                    return False
        for cell, value in self.cells:
            if (cell.cell_contents if is_bound(cell) else ABSENT) is not value:
                return False
        for function, code, defaults, by_keyword in self.functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
            if function.__dict__ and _attributes(function):     # where all was fixed there were none
                return False
            now = function.__kwdefaults__               # a dict, which changes in place
            if (now or by_keyword) and [*map(id, (now or {}).values())] != [*map(id, by_keyword)]:
                return False
        for wrapper, inner in self.wrappers:
            if getattr(wrapper, "__wrapped__", None) is not inner:
                return False
        return True

    def leave_out_changes(self) -> bool:
        """Leave what has changed since out of later keys of the same kernel; whether there was something."""
        before = len(self._own)
        for scope, seen in self.scopes:
            for name, value in seen:
                if value is not ABSENT and scope.get(name) is not value:
                    self._own[id(scope), name] = scope
        for cell, value in self.cells:
            if value is not ABSENT and (not is_bound(cell) or cell.cell_contents is not value):
                self._own[id(cell), None] = cell
        for owner, slots in self.objects:
            now = self._slots(owner) or {}
            for name in now.keys() | slots.keys():
                if name not in now or name not in slots or not _same(now[name], slots[name]):
                    self._own[id(owner), name] = owner
        return len(self._own) > before

    def _is_near(self, module: object) -> bool:
        """Whether a module is one of the kernel's package."""
        return package_of(module) == self._package != ""

    def _follow(self, function: Any, is_kernel: bool = False) -> None:
        """Look at what a helper sees, too, where it is the user's code."""
        inner = underlying(function)
        if inner is not None and id(inner) not in self._followed and (
                is_kernel or self._is_near(inner.__module__)
                or is_users(inner.__code__.co_filename, inner.__globals__)):
            self._followed.add(id(inner))
            self._pending.append(inner)

    def _seen_by(self, function: FunctionType) -> list[object]:
        names, own = global_names(function.__code__), self._own
        cells = [(cell, cell.cell_contents if is_bound(cell) else ABSENT) for cell in function.__closure__ or ()
                 if (id(cell), None) not in own]
        scopes, seen = [function.__globals__], [value for _, value in cells]
        for scope in scopes:                        # grows: names are looked up in the user's modules, too
            looked_up = tuple([n for n in names if (id(scope), n) not in own]) if own else names
            values = tuple([scope.get(name, ABSENT) for name in looked_up])
            self.scopes.append((scope, tuple(zip(looked_up, values))))
            seen += values
            scopes += [vars(m) for m in values if type(m) is ModuleType
                       and (_is_users_module(m) or self._is_near(m.__name__)) and not any(vars(m) is s for s in scopes)]
        by_keyword = tuple((function.__kwdefaults__ or {}).values())
        if not ENVIRONMENT.isdisjoint(names):
            seen.append(dict(os.environ))
        self.cells += cells
        self.functions.append((function, function.__code__, function.__defaults__, by_keyword))
        return [value for value in (*seen, *(function.__defaults__ or ()), *by_keyword) if value is not ABSENT]

    def _content(self, value: object) -> Any:
        """Immutable values as they are, others by their place in ``objects``."""
        match value:
            case None | bool() | int() | str() | bytes():
                return type(value), value
            case float() | complex():
                return type(value), repr(value)     # 0.0 is not -0.0, and nan is nan
            case FunctionType():
                self._follow(value)
                return Identity(value), Identity(value.__code__), self._number(value) if _attributes(value) else None
            case ModuleType() | enum.Enum():
                return Identity(value)
            case np.generic() | np.dtype() | DType():
                return type(value), str(value)
            case tuple() | frozenset():
                return type(value), tuple([self._content(v) for v in value])
        number = self._number(value)
        if number is None:
            return Identity(value)
        return Identity(value) if isinstance(value, type) else type(value), number

    def _number(self, value: object) -> int | None:
        """The place in ``objects`` of what may change in place; None for what only its identity counts of."""
        if id(value) not in self._numbers:
            slots = self._slots(value) if len(self.objects) < OBJECTS else None
            if slots is None:
                return None
            slots = {name: part for name, part in slots.items() if (id(value), name) not in self._own}
            self._numbers[id(value)] = len(self.objects)
            self.objects.append((value, slots))
        return self._numbers[id(value)]

    def _slots(self, value: object) -> dict[Any, object] | None:
        """What a value holds, by name or in one slot; None where only its identity counts."""
        match value:
            case np.ndarray():
                return {None: (str(value.dtype), value.shape, value.tobytes())}
            case list() | set() | deque() | bytearray() | array():
                return {None: tuple(value)} | getattr(value, "__dict__", {})
            case dict() | MappingProxyType():
                return dict(value) | {(None, n): v for n, v in getattr(value, "__dict__", {}).items()}
            case ContextVar():
                return {None: value.get(ABSENT)}
            case FunctionType():
                return _attributes(value)
            case MethodType():
                return {None: (value.__func__, value.__self__)}
            case partial():
                return {None: (value.func, value.args, value.keywords)}
            case type():
                near = _is_users_class(value) or self._is_near(value.__module__)
                return self._members(value) if near else None
        kind: object = type(value)
        if not holds_state(kind) and not self._is_near(kind.__module__):
            inner = getattr(value, "__wrapped__", None)             # of a kernel or a cached function
            self.wrappers.append((value, inner))
            self._follow(inner)
            return None
        slots = {name: getattr(value, name) for name in _slot_names(kind) if hasattr(value, name)}
        return {"__class__": kind} | slots | getattr(value, "__dict__", {})

    def _members(self, kind: type) -> dict[object, object]:
        """Bases and values of a class of the user's; its methods are followed."""
        values: dict[object, object] = {"__bases__": kind.__bases__}
        for name, member in vars(kind).items():
            member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(member, FunctionType):
                self._follow(member)
            elif not name.startswith("__") and not issubclass(kind, enum.Enum):
                values[name] = member
        return values


def _attributes(function: FunctionType) -> dict[Any, object]:
    """What a function has been given. Names like ``__wrapped__`` are of tools: a cache may hold keys of this kind."""
    return {name: value for name, value in vars(function).items() if not name.startswith("__")}


def _same(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if type(one) is not type(other):
        return False
    return one is other or (isinstance(one, (int, str, bytes)) and one == other) or (
        isinstance(one, float) and repr(one) == repr(other))


# What each kernel's own Python changed: (id of the object, slot) -> the object, which keeps the id its own.
_changed_by: WeakKeyDictionary[object, dict[tuple[int, object], object]] = WeakKeyDictionary()


def package_of(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


@cache
def global_names(code: CodeType) -> tuple[str, ...]:
    """What code may look up: also by names that are texts in it, where it has functions for that."""
    found = {*code.co_names}.union(*(global_names(c) for c in code.co_consts if isinstance(c, CodeType)))
    if not BY_TEXT.isdisjoint(found):
        found.update(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    return tuple(sorted(found))


def _is_users_module(module: ModuleType | None) -> bool:
    """Whether a module is the user's; ``__main__`` of an interactive session has no file."""
    file = getattr(module, "__file__", None)
    return module is not None and (is_users(file, vars(module)) if file else module.__name__ == "__main__")


@cache
def _is_users_class(kind: type) -> bool:
    return _is_users_module(sys.modules.get(kind.__module__))


@cache
def holds_state(kind: Any) -> bool:
    """Classes of the user's, data classes and namespaces; others are machinery that is not read for its state."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is not None and is_own(file):
        return False
    return (_is_users_class(kind) or hasattr(kind, "__dataclass_fields__")
            or issubclass(kind, (SimpleNamespace, getattr(sys.modules.get("argparse"), "Namespace", SimpleNamespace))))


@cache
def _slot_names(kind: type) -> tuple[str, ...]:
    slots = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    return tuple(n for names in slots for n in ((names,) if isinstance(names, str) else names)
                 if n not in ("__dict__", "__weakref__"))
