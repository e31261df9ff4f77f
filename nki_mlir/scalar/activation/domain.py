# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments outside of the range where the hardware's table of a function is good, noted while somebody watches."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from nki_mlir.scalar.activation.entry import Activation


class _Watch(threading.local):
    noted: list[tuple[Activation, float]] | None = None


_watch = _Watch()


@contextmanager
def outside() -> Iterator[list[tuple[Activation, float]]]:
    """The functions that are evaluated inside, each with the first argument beyond its range."""
    before, _watch.noted = _watch.noted, []
    try:
        yield _watch.noted
    finally:
        _watch.noted = before


def evaluate(function: Activation, x: np.ndarray) -> np.ndarray:
    """``function.numpy(x)``. NaN has no range to be outside of."""
    if _watch.noted is not None and function.is_bounded:
        beyond = ~(function.in_range(x) | np.isnan(x))
        if beyond.any():
            _watch.noted.append((function, float(x[beyond].flat[0])))
    return function.numpy(x)
