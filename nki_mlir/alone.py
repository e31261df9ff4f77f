# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One thread at a time makes, reads and compiles IR; kernels run beside that, and beside each other.

MLIR calls back into Python (rules of operations, diagnostics), where threads may change in the middle of a call, and
loading dialects, code generation and the tables of this package hold for the whole process. All of that is done under
one lock, which a thread takes at the functions it may enter by: what is inside needs no other. A fork waits for it, so
that the child can compile. Meanwhile nobody looks for garbage in cycles: a compiler makes a great many objects that
live on, and hardly any of these.
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

ALONE = threading.RLock()
os.register_at_fork(before=ALONE.acquire, after_in_parent=ALONE.release, after_in_child=ALONE.release)


def free_in_child(lock: L) -> L:
    """A lock that nobody holds in a forked child: the thread that held it for a moment is not there to let it go."""
    any_lock: Any = lock            # whose type does not list what the standard library's own do in a child
    os.register_at_fork(after_in_child=any_lock._at_fork_reinit)
    return lock


def alone(function: Callable[P, R]) -> Callable[P, R]:
    """A function that one thread at a time runs."""
    @functools.wraps(function)
    def run(*arguments: P.args, **keywords: P.kwargs) -> R:
        with ALONE, uncollected():
            return function(*arguments, **keywords)
    return run


@contextmanager
def uncollected() -> Iterator[None]:
    """Nobody looks for garbage in cycles within."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def made_to_stay() -> Iterator[None]:
    """Import without collections, and move what is imported to the oldest generation at once. Else the collector looks
    at all of it twice before it gets there."""
    with uncollected():
        yield
        if gc.get_freeze_count() == 0:      # else some of it is frozen for others, and has to stay so
            gc.freeze()
            gc.unfreeze()


def skip_last_collection() -> None:
    """When this process ends, the collector does not look for cycles: after a lowering that takes 40 ms."""
    atexit.register(gc.freeze)


def keep_last_collection() -> None:
    """Code that is not ours runs: what it leaves in cycles, such as a file that is open, has its end after all."""
    atexit.unregister(gc.freeze)


class made_alone(Generic[T, R]):
    """A property that is computed once, alone: a cached property has its own lock until Python 3.12."""

    def __init__(self, make: Callable[[T], R]) -> None:
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    def __get__(self, instance: T, owner: type | None = None) -> R:
        if instance is None:
            return self             # type: ignore[return-value]
        with ALONE:
            kept: dict[str, R] = vars(instance)
            if self.name not in kept:
                kept[self.name] = self.make(instance)
            return kept[self.name]
