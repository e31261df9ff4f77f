# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Limits NumPy's matrix products to one thread while kernels run, whose products are tiles.

A tile's product takes 25 to 200 us on one core. On several cores, threads spin while they wait for each other. That
gains little on an idle machine, and takes many times as long if other processes use the cores.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from nki_mlir.alone import free_in_child


class _Running:
    """The number of runs under way. The first run limits NumPy to one thread, the last one to end restores the old
    number."""

    def __init__(self) -> None:
        self.count, self.lock = 0, free_in_child(threading.Lock())
        self.before: list[int] = []

    def enter(self) -> None:
        with self.lock:
            self.count += 1
            if self.count == 1:
                self.before = [library.get_num_threads() for library in _libraries()]
                _set_threads([1] * len(self.before))

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0:
                _set_threads(self.before)


_running = _Running()


@cache
def _libraries() -> list[Any]:
    """Return the BLAS libraries of NumPy whose number of threads can be set for all threads of the process."""
    from threadpoolctl import ThreadpoolController  # start-up: searches the loaded libraries
    libraries = ThreadpoolController().select(internal_api="openblas").lib_controllers
    return [library for library in libraries if library.threading_layer == "pthreads"]


def _set_threads(numbers: Sequence[int]) -> None:
    for library, number in zip(_libraries(), numbers):
        # The package restores the number only in the thread that changed it, and the last run to end may be in another
        # one.
        free = getattr(library, "clear_controlling_thread", lambda force: None)
        free(force=True)
        library.set_num_threads(number)
        free(force=True)


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let products that NumPy computes in the block, also those of other threads, use one core."""
    _running.enter()
    try:
        yield
    finally:
        _running.leave()
