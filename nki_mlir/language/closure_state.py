# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collects the state that a kernel's Python can read in addition to its tensors, as a key of captures.

A capture is valid while its key stays the same. The key has the compile-time arguments, and the globals and closure
cells of the kernel and of the helpers and methods that it sees. It has the contents of lists, dicts, arrays, objects
and classes at the time of the call.
"""

import io
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nki_mlir.capture import mutable_state
from nki_mlir.capture.global_names import global_names
from nki_mlir.capture.locations import is_toolchain, is_users
from nki_mlir.capture.loop_state import Identity, is_bound
from nki_mlir.capture.wrapping import underlying
from nki_mlir.diagnostics import Location, warn_once
from nki_mlir.language.read_files import state_of_file
from nki_mlir.language.read_tensors import state_of_tensor
from nki_mlir.language.side_effects import Stores, stores_of
from nki_mlir.scalar.dtypes import DType

OBJECTS = 2000      # the most objects and containers that are inspected; others are compared by identity
THREADS = frozenset("Process Thread ThreadPoolExecutor Timer start start_new_thread submit".split())
PLAIN = frozenset({type(None), bool, int, str, bytes, type(...)})
NUMBERS = frozenset({float, complex})
COMPARED = frozenset({int, bool, str, bytes, Identity})


class UnseenStateWarning(UserWarning):
    """Warns that a kernel's Python sees an object whose state is not compared from call to call."""


class SeenFunction(NamedTuple):
    """A function, with its code, defaults and attributes; the state that it reads is compared separately."""

    function: FunctionType
    code: CodeType
    defaults: tuple[object, ...] | None
    by_keyword: tuple[object, ...]
    has_attributes: bool            # they are slots of ``objects``


class ChangeByCapture(NamedTuple):
    """A slot that a kernel's Python changes while it is captured, such as a log that it appends to.

    The key has ``base``, the value that other code assigned last. ``left`` is the value after the last capture: any
    other value comes from other code. ``owner`` keeps the object alive, because its id is part of the slot's key.
    """

    owner: object
    base: object
    left: object


class History:
    """The changes that captures of a kernel have made, by (id of the owner, name).

    ``doubtful`` are the slots (with their owners) that changed during the last capture, and that another thread may
    have changed.
    """

    def __init__(self) -> None:
        self.changes: dict[tuple[int, object], ChangeByCapture] = {}
        self.files: set[str] = set()                # that captures read
        self.tensors: dict[int, weakref.ref[Any]] = {}          # that captures read, by id
        self.doubtful: dict[tuple[int, object], object] = {}


class ClosureState:
    """One walk over the state that a kernel's Python can read.

    It sees names in ``scopes`` (globals of a module; names with their values or ``ABSENT``) and in ``cells`` (name,
    cell, value), through ``functions``. ``objects`` (object, slots) may change in place, ``files`` (path, state)
    and ``tensors`` (reference, state) were read by captures, ``unseen`` are objects that are not inspected.
    """

    def __init__(self, function: Callable[..., object], arguments: Iterable[object] = ()) -> None:
        self._function, self._arguments = function, tuple(arguments)
        self.scopes: list[tuple[dict[str, object], tuple[tuple[str, object], ...]]] = []
        self.cells: list[tuple[str, CellType, object]] = []
        self.functions: list[SeenFunction] = []
        self.wrappers: list[tuple[object, object]] = []   # (callable, the function that it wraps)
        self.objects: list[tuple[object, mutable_state.Slots]] = []
        self.unseen: list[object] = []
        self._numbers: dict[int, int] = {}          # indices in ``objects``, by id
        self._listed: set[int] = set()              # ids in ``functions``
        self._followed: dict[int, FunctionType] = {}
        self._pending: list[FunctionType] = []
        self._modules: dict[int, tuple[ModuleType, set[str]]] = {}          # by id, with the names looked up there
        self._names: set[str] = set()               # that some function may look up
        inner = underlying(function)
        self._history = _histories.setdefault(inner or type(function), History())
        self._package = ""
        if inner is not None and not is_toolchain(inner.__code__.co_filename):
            self._package = package_of(inner.__module__)        # all of it is the user's, even if it is installed
        self._follow(function, is_kernel=True)
        self.files = [(path, state_of_file(path)) for path in sorted(self._history.files)]
        self.tensors = [(reference, state_of_tensor(tensor)) for reference in self._history.tensors.values()
                        if (tensor := reference()) is not None]
        self.key = (*self._walk((function, *self._arguments)), *self.files,
                    *[(id(reference()), state) for reference, state in self.tensors])

    def walked_again(self) -> "ClosureState":
        """Return the state that the same walk sees now."""
        return ClosureState(self._function, self._arguments)

    # -- validity ------------------------------------------------------------------------------------------------------
    def holds(self) -> bool:
        """Return whether a walk would see the same objects. If not, the keys of two walks may still be equal."""
        for scope, entries in self.scopes:
            find = scope.get
            for name, value in entries:
                if find(name, mutable_state.ABSENT) is not value:
                    return False
        for _, cell, value in self.cells:
            if (cell.cell_contents if is_bound(cell) else mutable_state.ABSENT) is not value:
                return False
        for function, code, defaults, by_keyword, has_attributes in self.functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
            keyword_defaults = function.__kwdefaults__               # a dict, which changes in place
            if (keyword_defaults or by_keyword) and [*map(id, (keyword_defaults or {}).values())] != [*map(id,
                                                                                                           by_keyword)]:
                return False
            if function.__dict__ and not has_attributes and mutable_state.attributes_of(function):
                return False
        for wrapper, inner in self.wrappers:
            if getattr(wrapper, "__wrapped__", None) is not inner:
                return False
        for owner, slots in self.objects:
            if not is_same(self._slots(owner), slots):
                return False
        if self.tensors and not all([state_of_tensor(reference()) == state for reference, state in self.tensors]):
            return False
        return all([state_of_file(path) == state for path, state in self.files]) if self.files else True

    def note_tensors(self, states: list[tuple["weakref.ref[Any]", object]]) -> bool:
        """Note the tensors that a capture has read, and return whether they still have the contents that it read."""
        alive = [(tensor, reference, state) for reference, state in states if (tensor := reference()) is not None]
        self._history.tensors |= {id(tensor): reference for tensor, reference, _ in alive}
        return all([state_of_tensor(tensor) == state for tensor, _, state in alive])

    def note_files(self, states: dict[str, object]) -> bool:
        """Note the files that a capture has read, and return whether they still have the contents that it read."""
        self._history.files.update(states)
        return all(state_of_file(path) == state for path, state in states.items())

    def note_changes(self, others_ran: bool) -> bool:
        """Note the slots that the kernel's Python has changed during a capture, since this walk.

        Return False if another thread may have changed one, since the capture may have seen the previous value. If
        ``others_ran``, only additions to a value (a log, a memo), and slots that the previous capture changed as
        well (a counter), count as the kernel's changes.
        """
        history, doubtful = self._history, dict[tuple[int, object], object]()
        others_ran = others_ran or not THREADS.isdisjoint(self._names)
        stores: Stores | None = None
        for owner, name, kind, before, current in self._changed():
            stores = stores or stores_of(f.__code__ for f in self._followed.values())
            slot = id(owner), name
            stored = stores.anything or name in getattr(stores, kind) or (
                kind == "attributes" and changes_by_use(owner, name, stores.items))

            if not stored or (others_ran and slot not in history.doubtful and not is_added_to(before, current)):
                doubtful[slot] = owner
            else:
                change = history.changes.get(slot)
                history.changes[slot] = ChangeByCapture(owner, before if change is None else change.base, current)
        history.doubtful = doubtful
        return not doubtful

    def warn_of_unseen(self, kernel: str, at: Location | None) -> None:
        """Warn of the objects that a kernel sees and whose state no call compares."""
        for value in self.unseen:
            kind = type(value).__qualname__
            warn_once(f"kernel {kernel} sees {self._name_of(value)}, an object of {kind}, whose state is not compared "
                      "from call to call; pass the values that it reads as arguments", UnseenStateWarning, at)

    def _name_of(self, value: object) -> str:
        """Return the first name under which a value was seen."""
        seen_names = [(name, candidate) for _, entries in self.scopes for name, candidate in entries]
        seen_names += [(name, candidate) for name, _, candidate in self.cells]
        seen_names += [(str(name), candidate) for _, slots in self.objects for name, candidate in slots.items()]
        return next((name for name, candidate in seen_names if candidate is value), "an object")

    def _changed(self) -> Iterator[tuple[object, object, str, object, object]]:
        """Yield (owner, name, kind of store, value before, value now) of the slots whose value has changed."""
        for scope, entries in self.scopes:
            for name, value in entries:
                if (current := scope.get(name, mutable_state.ABSENT)) is not value:
                    yield scope, name, "scopes", value, current
        for name, cell, value in self.cells:
            if (current := cell.cell_contents if is_bound(cell) else mutable_state.ABSENT) is not value:
                yield cell, name, "cells", value, current
        for owner, slots in self.objects:
            after = self._slots(owner) or {}
            for name in dict.fromkeys((*slots, *after)):
                value, current = slots.get(name, mutable_state.ABSENT), after.get(name, mutable_state.ABSENT)
                if not is_same(value, current):
                    yield owner, name, "attributes", value, current

    # -- the walk ------------------------------------------------------------------------------------------------------
    def _walk(self, values: Iterable[object]) -> tuple[object, ...]:
        key = [self._content(value) for value in values]
        expanded = 0
        while True:
            if self._pending:
                key += [self._content(value) for value in self._seen_by(self._pending.pop())]
            elif expanded < len(self.objects):
                owner, slots = self.objects[expanded]
                key.append(tuple([(name if type(name) is str else self._content(name), self._content(value))
                                  for name, part in slots.items()
                                  if (value := self._base(owner, name, part)) is not mutable_state.ABSENT]))
                expanded += 1
            elif values := self._seen_in_modules():
                key += [self._content(value) for value in values]
            else:
                return tuple(key)

    def _base(self, owner: object, name: object, value: object) -> object:
        """Return the value that a slot has in the key: its current one, unless captures change it."""
        changes = self._history.changes
        if not changes or (change := changes.get((id(owner), name))) is None:
            return value
        if not is_same(value, change.left):
            change = changes[id(owner), name] = ChangeByCapture(owner, value, value)
        return change.base

    def _is_near(self, module: object) -> bool:
        """Return whether a module belongs to the kernel's package."""
        return package_of(module) == self._package != ""

    def _follow(self, function: Callable[..., object], is_kernel: bool = False) -> None:
        """Schedule a walk of the state that a helper can read if it is the user's code."""
        inner = underlying(function)
        if inner is not None and id(inner) not in self._followed and (
                is_kernel or self._is_near(inner.__module__)
                or is_users(inner.__code__.co_filename, inner.__globals__)):
            self._followed[id(inner)] = inner
            self._pending.append(inner)
            self._list(inner)

    def _list(self, function: FunctionType) -> None:
        if id(function) not in self._listed:
            self._listed.add(id(function))
            by_keyword = tuple((function.__kwdefaults__ or {}).values())
            self.functions.append(SeenFunction(function, function.__code__, function.__defaults__, by_keyword,
                                               bool(mutable_state.attributes_of(function))))

    def _seen_by(self, function: FunctionType) -> list[object]:
        """Return the values that a function's code sees under its names, and the function's defaults."""
        code, objects = function.__code__, list[object]()
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            value = cell.cell_contents if is_bound(cell) else mutable_state.ABSENT
            self.cells.append((name, cell, value))
            objects.append(self._base(cell, name, value))
        names = global_names(code)
        objects += self._look_up(function.__globals__, names)
        objects += self._imported(function, names)
        self._names.update(names)
        if "getenv" in names:
            objects.append(os.environ)
        objects += function.__defaults__ or ()
        objects += (function.__kwdefaults__ or {}).values()
        return [value for value in objects if value is not mutable_state.ABSENT]

    def _look_up(self, scope: dict[str, object], names: Iterable[str]) -> list[object]:
        values = tuple([(name, scope.get(name, mutable_state.ABSENT)) for name in names])
        self.scopes.append((scope, values))
        return [self._base(scope, name, value) for name, value in values]

    def _imported(self, function: FunctionType, names: Iterable[str]) -> list[object]:
        """Return the user's modules that a function may import, or look up in ``sys.modules``, when it runs."""
        package = function.__globals__.get("__package__")
        paths = [*names, *(f"{package}.{name}" for name in names)] if package else names
        present = [name for name in paths if type(m := sys.modules.get(name)) is ModuleType and self._is_looked_into(m)]
        return self._look_up(sys.modules, present) if present else []          # type: ignore[arg-type]

    def _is_looked_into(self, module: ModuleType) -> bool:
        return mutable_state.is_users_module(module) or self._is_near(module.__name__)

    def _seen_in_modules(self) -> list[object]:
        """Return the values of all names in the modules that were seen. In modules that are not the user's, leave out
        missing names."""
        values: list[object] = []
        for module, visited_names in self._modules.values():
            names = self._names - visited_names
            if names:
                visited_names |= names
                scope = vars(module)
                if not self._is_looked_into(module):
                    names &= scope.keys()
                values += self._look_up(scope, sorted(names)) if names else []
        return [value for value in values if value is not mutable_state.ABSENT]

    # -- values --------------------------------------------------------------------------------------------------------
    def _content(self, value: Any) -> Any:
        """Return an immutable value unchanged, any other by its index in ``objects``."""
        kind: Any = type(value)
        if kind in PLAIN:
            return kind, value
        if kind in NUMBERS:
            return kind, repr(value)                # 0.0 is not -0.0, and nan is nan
        if kind is FunctionType:
            if is_toolchain(file := value.__code__.co_filename) and not is_users(file, value.__globals__):
                return Identity(value)              # a function of the language, which nobody changes in place
            self._follow(value)
            self._list(value)
            number = self._number(value) if mutable_state.attributes_of(value) else None
            return Identity(value), Identity(value.__code__), number
        if kind is tuple or kind is frozenset:
            return kind, tuple([self._content(v) for v in value])
        if kind is Identity:
            return value
        if isinstance(value, (np.generic, np.dtype, DType)):
            return kind, str(value)
        if mutable_state.is_constant_class(kind):
            return kind, mutable_state.plain_value(value)
        if isinstance(value, ModuleType):
            if not is_toolchain(getattr(value, "__file__", None) or ""):
                self._modules.setdefault(id(value), (value, set()))
            return Identity(value)
        number = self._number(value)
        if number is None:
            return Identity(value)
        return (Identity(value), number) if isinstance(value, type) else (kind, number)

    def _number(self, value: object) -> int | None:
        """Return the index in ``objects`` of a value that may change in place; None for one that is compared by
        identity."""
        if id(value) not in self._numbers:
            slots = self._slots(value) if len(self.objects) < OBJECTS else None
            if slots is None:
                if moves_on(value):
                    self.unseen.append(value)
                inner = getattr(value, "__wrapped__", None)         # of a kernel or a memoized function
                if inner is not None:
                    self.wrappers.append((value, inner))
                    self._follow(inner)
                return None
            self._numbers[id(value)] = len(self.objects)
            self.objects.append((value, slots))
        return self._numbers[id(value)]

    def _slots(self, value: Any) -> mutable_state.Slots | None:
        """Return the contents of a value by name, or in one slot; None for a value that is compared by identity."""
        kind = type(value)
        if kind in mutable_state.PROXIES:
            return {None: weak_key(mutable_state.referent(value))}
        if isinstance(value, mutable_state.WEAK):
            return weak_slots(value)
        if value is sys.modules:
            return None                             # ``_imported`` looks up the user's modules
        slots = mutable_state.held_by(value)
        if slots is None:
            if isinstance(value, type):
                return mutable_state.members(value) if self._is_near(value.__module__) else None
            return mutable_state.state_of(value) if self._is_near(kind.__module__) else None
        return slots


def weak_slots(value: object) -> mutable_state.Slots:
    """Return the keys of the targets of a weak reference or collection: contents, not objects, which may
    be collected."""
    match value:
        case weakref.ReferenceType():
            target = value()
            return {None: weak_key(mutable_state.ABSENT if target is None else target)}
        case weakref.WeakValueDictionary():
            return {name: weak_key(target) for name, target in value.items()}
        case weakref.WeakKeyDictionary():
            return {None: tuple([(weak_key(target), part) for target, part in value.items()])}
        case weakref.WeakSet():
            return {None: tuple([weak_key(target) for target in value])}
    return {}


def weak_key(target: object) -> object:
    """Return the key of a weak reference's target: its content, or only whether it is alive if it has no content."""
    if target is mutable_state.ABSENT:
        return False
    state = ClosureState(_nothing, [target])
    return state.key if state.objects else True


def _nothing() -> None:
    """Do nothing: a function that reads no variables."""


def changes_by_use(owner: object, name: object, stores_items: bool) -> bool:
    """Return whether code may change a slot without assigning to its name: items of containers and cached properties
    change."""
    kind = type(owner)
    if mutable_state.is_mock(owner) or isinstance(getattr(kind, str(name), None), cached_property):
        return True
    return (stores_items or hasattr(kind, "__missing__")) and (name is None or isinstance(owner, dict))


def moves_on(value: object) -> bool:
    """Return whether each use of a value gives another result, from a hidden position: iterators, open files."""
    if isinstance(value, io.IOBase):
        return value is not sys.stdin and not value.closed and value.readable()
    module = sys.modules.get(type(value).__module__)
    return isinstance(value, Iterator) and not is_toolchain(getattr(module, "__file__", None) or "")


def is_added_to(before: object, current: object) -> bool:
    """Return whether the value before is still there, with additions."""
    return before is mutable_state.ABSENT or (isinstance(before, tuple) and isinstance(current, tuple)
                                              and is_same(before, current[:len(before)]))


def is_same(value: Any, other: Any) -> bool:
    """Return whether two values are the same object, equal and immutable, or slots and tuples of such values."""
    if value is other:
        return True
    kind = type(value)
    if kind is not type(other):
        return False
    if kind is tuple:
        return len(value) == len(other) and all(map(is_same, value, other))
    if kind is dict:
        return len(value) == len(other) and all(map(is_same, value, other)) and all(map(is_same, value.values(),
                                                                                        other.values()))
    if kind is float:
        return repr(value) == repr(other)
    return kind in COMPARED and bool(value == other)


_histories: WeakKeyDictionary[object, History] = WeakKeyDictionary()


def package_of(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""
