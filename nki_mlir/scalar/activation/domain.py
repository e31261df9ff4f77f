# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments outside of the range where the hardware's table of a function is good, noted while somebody watches."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from nki_mlir.scalar.activation.entry import ActivationFunction


class _Watch(threading.local):
    noted: list[tuple[ActivationFunction, float]] | None = None
    zeros = True                        # whether an argument of 0 counts


_watch = _Watch()


@contextmanager
def outside(zeros: bool = True) -> Iterator[list[tuple[ActivationFunction, float]]]:
    """The functions that are evaluated inside, each with the first argument beyond its range; 0 only with ``zeros``."""
    before = _watch.noted, _watch.zeros
    _watch.noted, _watch.zeros = [], zeros
    try:
        yield _watch.noted
    finally:
        _watch.noted, _watch.zeros = before


def evaluate(function: ActivationFunction, x: np.ndarray) -> np.ndarray:
    """``function.numpy(x)``. NaN has no range to be outside of."""
    if _watch.noted is not None and function.is_bounded:
        beyond = ~(function.in_range(x) | np.isnan(x))
        if not _watch.zeros:
            beyond &= x != 0
        if beyond.any():
            _watch.noted.append((function, float(x[beyond].flat[0])))
    return function.numpy(x)
