# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a function in several threads at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def at_once(work: Callable[[A], R], arguments: Sequence[A]) -> list[R]:
    """Return ``work(argument)`` of each argument, computed in as many threads that start together. The first error is
    raised when all have ended."""
    start = Barrier(len(arguments))

    def run(argument: A) -> R:
        start.wait()
        return work(argument)
    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run, arguments))
