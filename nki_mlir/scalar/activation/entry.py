# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The record of an activation function: its NumPy form, its expansion into IR and its error bounds."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

Numpy = Callable[[np.ndarray], np.ndarray]

ACTIVATIONS: dict[str, "ActivationFunction"] = {}

INFINITY = float("inf")


@dataclass(frozen=True, eq=False)
class ActivationFunction:
    """A function of one float32.

    ``numpy`` takes and returns float32 arrays and prints no warnings; ``expand(e, x)`` builds the same function with
    the emitter ``e`` on a scalar or a vector. Both hold on all of float32, infinities, NaN and denormals included;
    at an infinity they give the limit.

    The expansion lies within ``ulp`` units in the last place of the exact value plus ``absolute``, which is not 0
    where the function has a zero that float32 cannot represent.

    ``valid_range`` is the range of x (with ``by_magnitude``: of ``abs(x)``) in which the Scalar Engine's table is
    accurate. A function that is not ``native`` has no table there: the language composes it from other instructions.
    """

    name: str
    numpy: Numpy
    expand: "Callable[[ScalarEmitter, Value], Value]"
    ulp: float
    absolute: float = 0.0
    valid_range: tuple[float, float] = (-INFINITY, INFINITY)
    by_magnitude: bool = False
    native: bool = True
    asm: str = ""                                   # the profiler's name, by default ``name``
    arity: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "numpy", np.errstate(all="ignore")(self.numpy))
        object.__setattr__(self, "asm", self.asm or self.name)
        ACTIVATIONS[self.name] = self

    @property
    def is_bounded(self) -> bool:
        return self.valid_range != (-INFINITY, INFINITY)

    def in_range(self, x: np.ndarray) -> np.ndarray:
        """Return where the hardware's result for ``x`` is accurate."""
        low, high = self.valid_range
        x = np.absolute(x) if self.by_magnitude else x
        return (x >= low) & (x <= high)

    def __repr__(self) -> str:
        return self.name


# -- the range where the hardware's table is accurate ------------------------------------------------------------------
class _Watch(threading.local):
    noted: list[tuple[ActivationFunction, float]] | None = None
    zeros = True                        # whether an argument of 0 counts


_watch = _Watch()


@contextmanager
def outside(zeros: bool = True) -> Iterator[list[tuple[ActivationFunction, float]]]:
    """Collect the functions that the ``with`` block evaluates, each with the first argument beyond its range; 0 only
    with ``zeros``."""
    before = _watch.noted, _watch.zeros
    _watch.noted, _watch.zeros = [], zeros
    try:
        yield _watch.noted
    finally:
        _watch.noted, _watch.zeros = before


def evaluate(function: ActivationFunction, x: np.ndarray) -> np.ndarray:
    """Return ``function.numpy(x)``, and record an argument beyond the range. NaN is not beyond it."""
    if _watch.noted is not None and function.is_bounded:
        beyond = ~(function.in_range(x) | np.isnan(x))
        if not _watch.zeros:
            beyond &= x != 0
        if beyond.any():
            _watch.noted.append((function, float(x[beyond].flat[0])))
    return function.numpy(x)
