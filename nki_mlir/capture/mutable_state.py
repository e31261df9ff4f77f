# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the state of a value that may change in place: items, attributes, bytes, targets of references.

The result is a dict: attributes by name, everything else under the key None. Two reads of an unchanged value return the
same names with identical or equal values, so that a later read tells whether the value changed.
"""

import ctypes
import dataclasses
import enum
import mmap
import os
import sys
import threading
import weakref
from array import array
from collections import ChainMap, UserDict, UserList, UserString, deque
from contextvars import ContextVar
from functools import cache, cached_property, partial, partialmethod, singledispatchmethod
from types import FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from nki_mlir.capture.locations import is_toolchain, is_users

Slots = dict[Any, object]

ABSENT = object()               # the value of a name that is not bound
WEAK = (weakref.ReferenceType, weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)
PROXIES = frozenset({weakref.ProxyType, weakref.CallableProxyType})
WRAPPERS = (partialmethod, singledispatchmethod, cached_property)
# Classes of the standard library that keep state of the user's in attributes.
CONTAINERS = (UserDict, UserList, UserString, ChainMap, SimpleNamespace, threading.local)
MOCKED = ("_mock_return_value", "_mock_side_effect", "_mock_wraps")
# Attributes of a class that Python sets for itself, or that follow from the rest of the class.
BOOKKEEPING = frozenset("""
    __abstractmethods__ __annotate__ __annotate_func__ __annotations__ __annotations_cache__ __dataclass_fields__
    __dataclass_params__ __dict__ __doc__ __firstlineno__ __match_args__ __module__ __orig_bases__ __parameters__
    __qualname__ __slotnames__ __slots__ __static_attributes__ __type_params__ __weakref__ _abc_impl
    _member_names_ _value2member_map_""".split())


def held_by(value: Any) -> Slots | None:
    """Return the state of a value; None if its kind is not known here, so that it is compared by identity."""
    kind: Any = type(value)
    match value:
        case enum.Enum():
            return state_of(value) if holds_state(kind) else None
        case np.ndarray() if issubclass(kind, np.ndarray):          # not an object that says it has this class
            data = tuple(value.ravel().tolist()) if value.dtype.hasobject else value.tobytes()
            return attributes(value) | {None: (str(value.dtype), value.shape, data)}
        case list() | set() | deque():
            return attributes(value) | {None: tuple(value)}
        case bytearray() | array() | mmap.mmap():
            return attributes(value) | {None: bytes(memoryview(value))}
        case memoryview():
            return {None: (value.format, value.shape, bytes(value))}
        case os._Environ():
            return {None: tuple(getattr(value, "_data", value).items())}
        case dict() | MappingProxyType():
            return dict(value) | {(None, name): part for name, part in attributes(value).items()}
        case tuple() | frozenset():
            return attributes(value) | {None: tuple(value)}
        case bool() | int() | float() | complex() | str() | bytes():
            return attributes(value) | {None: plain_value(value)}
        case ctypes._SimpleCData() | ctypes.Array() | ctypes.Structure() | ctypes.Union():
            return attributes(value) | {None: bytes(value)}
        case ContextVar():
            return {None: value.get(ABSENT)}
        case FunctionType():
            return attributes_of(value)
        case MethodType():
            return {None: (value.__func__, value.__self__)}
        case classmethod() | staticmethod():
            return {None: value.__func__}
        case property():
            return {None: (value.fget, value.fset, value.fdel)}
        case partial():
            return attributes(value) | {None: (value.func, value.args, value.keywords)}
        case type():
            return members(value) if is_users_class(value) else None
    if is_mock(value):
        return {name: vars(value).get(name) for name in MOCKED}
    return state_of(value) if holds_state(kind) else None


def state_of(value: Any) -> Slots:
    """Return the class, slots and attributes of an object."""
    kind: Any = type(value)
    return {"__class__": kind} | {name: part for name in _slot_names(kind)
                                  if (part := getattr(value, name, ABSENT)) is not ABSENT} | attributes(value)


def attributes(value: Any) -> Slots:
    """Return the attributes of an object, with its class if that is a user's."""
    kind: Any = type(value)
    state: Slots = dict(getattr(value, "__dict__", ()))
    if kind.__module__ != "builtins" and is_users_class(kind):
        state["__class__"] = kind
    return state


def members(kind: type) -> Slots:
    """Return the metaclass, bases, methods and values of a class."""
    state: Slots = {name: member for name, member in vars(kind).items() if name not in BOOKKEEPING}
    state["__bases__"] = kind.__bases__
    if type(kind) is not type:
        state["__class__"] = type(kind)
    return state


def attributes_of(function: FunctionType) -> Slots:
    """Return the attributes that code has set on a function. Names like ``__wrapped__`` are left out: tools set them,
    and a cache may contain keys of this kind."""
    return {name: value for name, value in vars(function).items() if not name.startswith("__")}


def plain_value(value: object) -> object:
    """Return the number or text of an object whose class derives from Python's."""
    match value:
        case int():
            return int.__int__(value)
        case float():
            return float.__repr__(value)
        case complex():
            return complex.__repr__(value)
        case str():
            return str.__str__(value)
        case bytes():
            return bytes(value)
    return value


def is_mock(value: object) -> bool:
    """Return whether a value replaces a function or object in a test."""
    mock = sys.modules.get("unittest.mock")
    return mock is not None and isinstance(value, mock.NonCallableMock)


def referent(proxy: object) -> object:
    """Return the object that a weak proxy stands for; ``ABSENT`` if it no longer exists."""
    try:
        return proxy.__reduce_ex__.__self__     # type: ignore[attr-defined]
    except ReferenceError:
        return ABSENT


# -- whose classes and modules -----------------------------------------------------------------------------------------
def is_users_module(module: ModuleType | None) -> bool:
    """Return whether a module is the user's; ``__main__`` of an interactive session has no file."""
    file = getattr(module, "__file__", None)
    return module is not None and (is_users(file, vars(module)) if file else module.__name__ == "__main__")


@cache
def is_users_class(kind: type) -> bool:
    """Return whether a class is the user's, by its module or, if that is not found, by how it was created."""
    module = sys.modules.get(kind.__module__)
    if module is not None and kind.__module__ != "builtins":
        return is_users_module(module)
    return bool(kind.__flags__ & 1 << 9)                # made by a class statement, in code without a module


@cache
def holds_state(kind: Any) -> bool:
    """Return whether objects of a class are read for their state: users' classes, data classes and namespaces."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is not None and is_toolchain(file):
        return False
    return (is_users_class(kind) or dataclasses.is_dataclass(kind) or issubclass(kind, (*CONTAINERS, *WRAPPERS))
            or issubclass(kind, getattr(sys.modules.get("argparse"), "Namespace", SimpleNamespace)))


@cache
def is_constant_class(kind: Any) -> bool:
    """Return whether objects of a class are numbers or texts of the toolchain without attributes: nothing can change
    them."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return (file is not None and is_toolchain(file) and issubclass(kind, (int, float, complex, str, bytes))
            and not kind.__dictoffset__ and not _slot_names(kind))


@cache
def _slot_names(kind: type) -> tuple[str, ...]:
    slots = [(base, vars(base).get("__slots__", ())) for base in kind.__mro__]
    return tuple(_mangled(n, base) for base, names in slots for n in ((names,) if isinstance(names, str) else names)
                 if n not in ("__dict__", "__weakref__"))


def _mangled(name: str, kind: type) -> str:
    """Return the name under which Python stores a slot: private ones contain the name of their class."""
    prefix = kind.__name__.lstrip("_")
    return f"_{prefix}{name}" if prefix and name.startswith("__") and not name.endswith("__") else name
