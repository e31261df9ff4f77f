# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets one thread at a time build, read and compile IR, while other threads run kernels.

MLIR calls back into Python (rules of operations, diagnostics), where threads may switch in the middle of a call, and
loading dialects, code generation and the tables of this package affect the complete process. The functions by which a
thread enters this code acquire one lock; the functions that they call need no lock. A fork waits for the lock, so that
the child can compile. Cyclic garbage collection is off meanwhile: a compiler creates very many objects that survive,
and hardly any garbage in cycles.
"""

import atexit
import functools
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
L = TypeVar("L")

MANY = 100_000              # objects; the collector examines them in 10 ms
MOST = 5_000_000            # objects that move to the oldest generation between two collections
_moved = 0

ALONE = threading.RLock()
os.register_at_fork(before=ALONE.acquire, after_in_parent=ALONE.release, after_in_child=ALONE.release)


def free_in_child(lock: L) -> L:
    """Return a lock that is free in a forked child, in which the thread that had acquired it does not exist."""
    any_lock: Any = lock            # the type does not list the method by which the standard library frees its locks
    os.register_at_fork(after_in_child=any_lock._at_fork_reinit)
    return lock


def alone(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that one thread at a time runs it."""
    @functools.wraps(function)
    def run(*arguments: P.args, **keywords: P.kwargs) -> R:
        with ALONE, uncollected():
            return function(*arguments, **keywords)
    return run


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable cyclic garbage collection in the ``with`` block.

    At its end the objects of a large program move to the oldest generation: the next collection would examine them
    all, for a second or more in which no signal is handled. After ``MOST`` moved objects a collection runs instead,
    which frees the objects of programs that are no longer used.
    """
    global _moved
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if (count := gc.get_count()[0]) >= MANY:
                _moved += count
                if _moved < MOST:
                    to_oldest_generation()
                else:
                    _moved = 0
                    gc.collect()
            gc.enable()


def to_oldest_generation() -> None:
    """Move all objects to the oldest generation of the garbage collector, which it rarely examines."""
    if gc.get_freeze_count() == 0:          # unfreeze would free what other code has frozen
        gc.freeze()
        gc.unfreeze()


@contextmanager
def permanent_imports() -> Iterator[None]:
    """Disable collections in the ``with`` block, which imports modules, and then move the imported objects to the
    oldest generation: else the collector would examine them twice before it moves them there."""
    with uncollected():
        yield
        to_oldest_generation()


def skip_last_collection() -> None:
    """Skip the cyclic garbage collection when this process ends: it takes 40 ms after a lowering."""
    atexit.register(gc.freeze)


def keep_last_collection() -> None:
    """Let Python collect garbage when the process ends: foreign code may leave objects in cycles, such as open files,
    which the collection finalizes."""
    atexit.unregister(gc.freeze)


class exclusive_property(Generic[T, R]):
    """A property that is computed once, by the thread that holds the lock ``ALONE``.

    Until Python 3.12 ``functools.cached_property`` has a separate lock, with which threads could wait for each other.
    """

    def __init__(self, make: Callable[[T], R]) -> None:
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    def __get__(self, instance: T, owner: type | None = None) -> R:
        if instance is None:
            return self             # type: ignore[return-value]
        with ALONE:
            values: dict[str, R] = vars(instance)
            if self.name not in values:
                values[self.name] = self.make(instance)
            return values[self.name]
