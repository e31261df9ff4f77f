# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an activation function is: its NumPy form, its expansion into IR and its error bounds in one record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

Numpy = Callable[[np.ndarray], np.ndarray]

ACTIVATIONS: dict[str, "ActivationFunction"] = {}

INFINITY = float("inf")
_BLOCK = 8192               # elements that fit the first cache in float64


@dataclass(frozen=True, eq=False)
class ActivationFunction:
    """A function of one float32.

    ``numpy`` takes and returns float32 arrays and prints no warnings; ``expand(e, x)`` builds the same function with
    the emitter ``e`` on a scalar or a vector. Both hold on all of float32, infinities, NaN and denormals included;
    at an infinity they give the limit.

    The expansion lies within ``ulp`` units in the last place of the exact value plus ``absolute``, which is not 0
    where the function has a zero that float32 does not hold.

    ``valid_range`` is where the Scalar Engine's own table is good, of ``abs(x)`` with ``by_magnitude``. A function
    that is not ``native`` has no table there: the language composes it from other instructions.
    """

    name: str
    numpy: Numpy
    expand: "Callable[[ScalarEmitter, Value], Value]"
    ulp: float
    absolute: float = 0.0
    valid_range: tuple[float, float] = (-INFINITY, INFINITY)
    by_magnitude: bool = False
    native: bool = True
    asm: str = ""                                   # the profiler's name; ``name`` where it says nothing

    def __post_init__(self) -> None:
        object.__setattr__(self, "numpy", np.errstate(all="ignore")(self.numpy))
        object.__setattr__(self, "asm", self.asm or self.name)
        ACTIVATIONS[self.name] = self

    @property
    def is_bounded(self) -> bool:
        return self.valid_range != (-INFINITY, INFINITY)

    def in_range(self, x: np.ndarray) -> np.ndarray:
        """Where the hardware's result for ``x`` is good."""
        low, high = self.valid_range
        x = np.absolute(x) if self.by_magnitude else x
        return (x >= low) & (x <= high)

    def __repr__(self) -> str:
        return self.name


def in_float64(function: Numpy) -> Numpy:
    """``function`` computed in float64 and rounded to float32 once.

    In blocks: the intermediate arrays of a whole tile would be mapped anew for each operation, at five times the cost.
    """
    def blockwise(x: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(x).reshape(-1)
        result = np.empty(flat.shape, np.float32)
        for start in range(0, flat.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            result[block] = function(flat[block].astype(np.float64))
        return result.reshape(x.shape)

    return blockwise


def horner(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    """The polynomial whose coefficients are given from the constant term up."""
    result = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        result += coefficient
        result *= x
    result += coefficients[0]
    return result
