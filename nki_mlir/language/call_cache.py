# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches the captures of a kernel by the arguments of a call and the state that the kernel's Python reads.

The key has the function, grid and target, and for each parameter the shape and dtype of a tensor or the type and value
of a constant. The ``ClosureState`` of each capture under that key has the state. A capture is valid while another walk
finds the same state; ``docs/internals.md`` has the contract.
"""

import threading
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any
from weakref import WeakSet

import numpy as np

from nki_mlir.alone import free_in_child
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.environment import EnvironmentVariable
from nki_mlir.language.arguments import Bound
from nki_mlir.language.closure_state import ClosureState
from nki_mlir.language.results import DETACHED
from nki_mlir.language.specialization import Specialization

MOST = 1000                     # captures of one kernel, unless the environment sets another number
CAPTURES = EnvironmentVariable("NKI_MLIR_CAPTURES")
EXACT = frozenset({int, str, bool, type(None)})
NO_CONSTANT = (object(),)

Key = tuple[object, ...]

_lock = free_in_child(threading.Lock())
_caches: "WeakSet[CallCache]" = WeakSet()


class CaptureLimit(NkiMlirError, ValueError):
    code = "NKI-CAPTURES"
    message = "NKI_MLIR_CAPTURES is '{text}', which must be an integer of 1 or more"
    fix = "set it to the number of captures that the cache keeps of a kernel"


def most_captures() -> int:
    """Return the largest number of captures of a kernel that the cache keeps."""
    text = CAPTURES.text()
    if not text:
        return MOST
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text)):
        raise CaptureLimit(text=text[:40])
    return int(text)


class CachedCall:
    """A capture, the state that its kernel's Python read, and for each executor and framework the prepared part of a
    call."""

    def __init__(self, closure: ClosureState, capture: Specialization) -> None:
        self.seen, self.capture = closure, capture
        self.runs: dict[object, Any] = {}               # by executor and framework


class CallCache:
    """A cache of at most ``most_captures()`` captures. A new capture evicts the captures of the least recently used
    key."""

    def __init__(self) -> None:
        self._calls: dict[Key, tuple[CachedCall, ...]] = {}         # the tuples are replaced, never changed
        _caches.add(self)

    def find(self, key: Key) -> CachedCall | None:
        """Return the call under this key whose state has not changed, else None. To be fast, it does not count a
        use."""
        for call in self._calls.get(key, ()):
            if call.seen.holds():
                return call
        return None

    def find_equal(self, key: Key, closure: ClosureState) -> CachedCall | None:
        """Return the call whose state equals ``closure``, which replaces the state; None if no call under this key has
        it."""
        for call in self._calls.get(key, ()):
            if call.seen.key == closure.key:
                call.seen = closure
                self.use(key, call)
                return call
        return None

    def use(self, key: Key, call: CachedCall) -> None:
        """Count a use: the call becomes the last to be evicted."""
        with _lock:
            calls = self._calls.pop(key, ())
            self._calls[key] = (call, *(c for c in calls if c is not call))

    def add(self, key: Key, call: CachedCall) -> None:
        most = most_captures()
        with _lock:
            calls = self._calls.pop(key, ())
            while self._calls and len(self) + len(calls) >= most:
                self._calls.pop(next(iter(self._calls)))
            self._calls[key] = (call, *calls[:most - 1])

    def calls(self) -> Iterator[CachedCall]:
        for calls in list(self._calls.values()):
            yield from calls

    def values(self) -> list[Specialization]:
        """Return the captures."""
        return [call.capture for call in self.calls()]

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))


def drop_captures() -> None:
    """Empty the caches of all kernels."""
    for cache in list(_caches):
        cache._calls = {}


# -- the key -----------------------------------------------------------------------------------------------------------
def constant(value: object) -> tuple[type, object] | None:
    """Return the part of a key for a simple constant; None for any other value."""
    kind = type(value)
    if kind in EXACT:
        return kind, value
    if kind is float:
        return kind, value if value and value == value else repr(value)         # 0.0 is not -0.0, and nan is nan
    return None


def key_of_arrays(key: list[object], function: FunctionType, arguments: tuple[object, ...]) -> Key | None:
    """Return the key of a call with positional arrays in C order and simple constants; ``key`` has its settings.

    Return None for any other call: ``key_of_bound`` returns its key.
    """
    code = function.__code__
    missing, values = code.co_argcount - len(arguments), arguments
    if missing or code.co_kwonlyargcount:
        values += defaults_of(function, missing)
    for value in values:
        if type(value) is np.ndarray:
            array: np.ndarray = value
            if not array.flags.c_contiguous or array.dtype.metadata is not None:
                return None
            key += array.shape, array.dtype
        elif (part := constant(value)) is not None:
            key += part
        else:
            return None
    return tuple(key)


def key_of_bound(settings: Key, bound: Bound) -> Key:
    """Return the key of bound arguments.

    An argument that is neither a tensor nor a simple constant adds the tensors inside it; the rest of it is part of the
    ``ClosureState``.
    """
    key, specs = list(settings), iter(bound.specs)
    for name, value in bound.values.items():
        if bound.is_tensor(value):
            spec = next(specs)
            key += spec.shape, spec.dtype.name if spec.dtype.numpy.metadata else spec.dtype.numpy
        elif (part := constant(value)) is not None:
            key += part
        else:
            key.append(tuple([(*spec[:2], spec.dtype.name) for _, spec in zip(bound.paths(name), specs)]))
    return tuple(key)


def defaults_of(function: FunctionType, missing: int) -> tuple[object, ...]:
    """Return the defaults of the last ``missing`` positional parameters and of all keyword-only ones.

    Return ``NO_CONSTANT`` if a parameter has none, or has an array, which is a tensor of the call.
    """
    code = function.__code__
    by_position, by_keyword = function.__defaults__ or (), function.__kwdefaults__ or {}
    names = code.co_varnames[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
    if not 0 <= missing <= len(by_position) or not by_keyword.keys() >= {*names}:
        return NO_CONSTANT
    defaults = *by_position[len(by_position) - missing:], *(by_keyword[name] for name in names)
    return NO_CONSTANT if any([isinstance(value, np.ndarray) for value in defaults]) else defaults


# -- native code on arrays ---------------------------------------------------------------------------------------------
class ArrayRun:
    """A captured kernel that the JIT runs on arrays: a call only allocates the results' memory and runs."""

    def __init__(self, capture: Specialization, mode: str) -> None:
        self.program, self.inputs = capture.program("jit"), len(capture.inputs)
        self.makers = capture.makers_of_repeated_calls
        self.results = [r.input if r.shared is None else self.inputs + r.shared for r in capture.results]
        returned = [r.input for r in capture.results if r.input is not None]
        self.updated = {*returned, *capture.updated}
        self.detached = returned if mode in DETACHED else []
        self.is_one = capture.structure == "one"
        self.new = capture.results[0].shared if self.is_one else None           # the number of a single new array

    def fits(self, arrays: Sequence[np.ndarray]) -> bool:
        """Return whether the arrays that the call updates may be written."""
        return all([arrays[k].flags.writeable for k in self.updated])

    def __call__(self, arrays: Sequence[np.ndarray]) -> object:
        shared = [make() for make in self.makers]
        self.program(arrays, shared)
        if self.new is not None:
            return shared[self.new]
        memory = [*arrays, *shared]
        for k in self.detached:
            memory[k] = memory[k].copy()
        if self.is_one:
            return memory[self.results[0]]                  # type: ignore[index]
        return tuple([memory[k] for k in self.results])     # type: ignore[index]
