# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of graphs that are not operators of tile instructions: ``MATH`` maps a name to its ``MathFunction``.

On an engine each consists of several instructions (``graph.bodies``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.dtypes import FLOAT32, DType, Encoding

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

MATH: dict[str, "MathFunction"] = {}


@dataclass(frozen=True, eq=False)
class MathFunction:
    """A function of float32 values, or of integers of one dtype with ``integers``.

    ``numpy`` prints no warnings; ``expand(e, dtype, *values)`` builds the same function with the emitter ``e`` on
    scalars or vectors. Both lie within ``ulp`` units in the last place of the exact value.
    """

    name: str
    arity: int
    numpy: Callable[..., np.ndarray]
    expand: Callable[..., "Value"]
    integers: bool = False
    ulp: float = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "numpy", np.errstate(all="ignore")(self.numpy))
        MATH[self.name] = self

    def __repr__(self) -> str:
        return self.name


def _expand_log1p(e: "ScalarEmitter", d: DType, x: "Value") -> "Value":
    """Emit log(u) x / (u - 1) for u = 1 + x as it is rounded: the quotient corrects the rounding of the sum."""
    u = e.add(x, 1.0)
    log = ACTIVATIONS["log"].expand(e, u)
    near = e.mul(log, e.div(x, e.sub(u, 1.0)))
    exact = e.cmp("oeq", e.sub(u, 1.0), x)                  # of large numbers and infinity, too
    return e.select(e.cmp("oeq", u, 1.0), x, e.select(exact, log, near))


def _expand_expm1(e: "ScalarEmitter", d: DType, x: "Value") -> "Value":
    """Emit (u - 1) x / log(u) for u = exp(x) as it is rounded."""
    u = ACTIVATIONS["exp"].expand(e, x)
    minus_one = e.sub(u, 1.0)
    near = e.mul(minus_one, e.div(x, ACTIVATIONS["log"].expand(e, u)))
    small = e.cmp("olt", e.abs(x), 1.0)                     # NaN is not, and is what exp gives
    return e.select(e.cmp("oeq", u, 1.0), x, e.select(small, near, minus_one))


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    by = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a.dtype.type(0), (a - np.fmod(a, by)) // by)


def _expand_quotient(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
    """Emit a division that does not trap: by 0 the result is 0, division by -1 is a subtraction."""
    zero = e.cmp("eq", b, 0)
    if d.kind is not Encoding.SIGNED:
        return e.select(zero, e.const(a, 0), e.divui(a, e.select(zero, e.const(b, 1), b)))
    minus = e.cmp("eq", b, -1)
    quotient = e.divsi(a, e.select(e.or_(zero, minus), e.const(b, 1), b))
    return e.select(zero, e.const(a, 0), e.select(minus, e.sub(0, a), quotient))


def _round(a: np.ndarray) -> np.ndarray:
    truncated = np.trunc(a)
    return np.copysign(truncated + np.where(np.abs(a - truncated) >= 0.5, np.sign(a), FLOAT32.numpy.type(0)), a)


MathFunction("log1p", 1, np.log1p, _expand_log1p, ulp=3)
MathFunction("expm1", 1, np.expm1, _expand_expm1, ulp=4)
MathFunction("cbrt", 1, np.cbrt, lambda e, d, x: e.libm("cbrt", x), ulp=1)
MathFunction("round", 1, _round, lambda e, d, x: e.libm("round", x))                # halves away from zero
MathFunction("roundeven", 1, np.rint, lambda e, d, x: e.round_even(x))
MathFunction("atan2", 2, np.arctan2, lambda e, d, y, x: e.libm("atan2", y, x), ulp=4)
MathFunction("copysign", 2, np.copysign, lambda e, d, a, b: e.copysign(a, b))
# Towards zero; by zero it is 0. The remainder is ``fmod``.
MathFunction("quotient", 2, _quotient, _expand_quotient, integers=True)
