# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions: copies, signs, roundings, roots, reciprocals, which one or two instructions compute;
exponential and logarithm, and the parts of the exponential that other functions are built from.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nki_mlir.scalar.activation.entry import ActivationFunction, Numpy
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter


def _of_alu(name: str) -> "tuple[str, Numpy, Callable[[ScalarEmitter, Value], Value]]":
    """Return name, NumPy form and expansion of the activation function that an ALU operator computes too."""
    op = ALU[name]
    return name, op.numpy, lambda e, x: op.expand(e, FLOAT32, x)


def _expand_sign(e: "ScalarEmitter", x: "Value") -> "Value":
    above = e.select(e.cmp("ogt", x, 0.0), e.const(x, 1.0), e.const(x, 0.0))
    signed = e.select(e.cmp("olt", x, 0.0), e.const(x, -1.0), above)
    return e.select(e.cmp("uno", x, x), x, signed)


ActivationFunction("copy", lambda x: x, lambda e, x: x, ulp=0)
ActivationFunction("identity", lambda x: x, lambda e, x: x, ulp=0, asm="copy")
ActivationFunction("sign", np.sign, _expand_sign, ulp=0)
ActivationFunction("floor", np.floor, lambda e, x: e.floor(x), ulp=0, native=False)
ActivationFunction("ceil", np.ceil, lambda e, x: e.ceil(x), ulp=0, native=False)
ActivationFunction("trunc", np.trunc, lambda e, x: e.trunc(x), ulp=0, native=False)
ActivationFunction("sqrt", np.sqrt, lambda e, x: e.sqrt(x), ulp=0.5, valid_range=(2.0**-116, 2.0**118))
ActivationFunction(*_of_alu("abs"), ulp=0)
ActivationFunction(*_of_alu("negative"), ulp=0, native=False)
ActivationFunction(*_of_alu("square"), ulp=0.5)
ActivationFunction(*_of_alu("relu"), ulp=0)
ActivationFunction(*_of_alu("rsqrt"), ulp=1.5, valid_range=(2.0**-87, 2.0**97))
ActivationFunction(*_of_alu("reciprocal"), ulp=0.5, valid_range=(2.0**-42, 2.0**42), by_magnitude=True)


# -- exponential and logarithm -----------------------------------------------------------------------------------------
# An exponential is kept as ``Scaled``, a mantissa and an exponent, until a result is formed: products such as
# ``x * exp(x)`` then keep their accuracy where ``exp(x)`` alone would be a denormal.

LOG2_E = math.log2(math.e)
LN2 = math.log(2)
LN2_HIGH = 0.693359375                  # ten bits, so that its product with an exponent is exact
LN2_LOW = LN2 - LN2_HIGH
FLOOR = -150.0                          # for x up to this, exp(x) is 0, and so is its square in float32

# Adding this leaves a small number, rounded to an integer, in the low bits of the sum.
_ROUND32 = 1.5 * 2.0**23
_ROUND64 = 1.5 * 2.0**52

# The same for sixteenths of integers, and exp(r) on the interval that is left; 2^(j / 16).
_ROUND_16THS = 1.5 * 2.0**19
_EXP_16THS = (1.0, 0.50001, 0.16668)        # of (exp(r) - 1) / r, error of exp 2e-9
_LARGEST_16THS = 0.0218                     # above ln(2) / 32, by more than roundings of finite exponentials
_POWERS_16THS = tuple(2.0**(j / 16) for j in range(16))

# exp(r) for |r| <= ln(2) / 2, error 3e-9; exact at 0, with its slope.
_EXP = (1.0, 1.0, 0.49999994, 0.16666521, 0.04166839, 0.0083687175, 0.0013814596)
# (log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2), error 7e-10 of the logarithm.
_LOG = (0.33333313, -0.2500001, 0.20002119, -0.16667996, 0.14219551, -0.124055915, 0.11888175, -0.11675641, 0.06746601)


class Scaled(NamedTuple):
    """The value ``mantissa * 2**exponent``: an f32 near 1, and one that is an integer within +-250."""

    mantissa: "Value"
    exponent: "Value"


def _nearest(e: "ScalarEmitter", x: "Value", factor: float) -> "Value":
    """Emit ``x * factor`` for f32, rounded to an integer below 2^22."""
    return e.sub(e.fma(x, factor, _ROUND32), _ROUND32)


def nearest_double(e: "ScalarEmitter", x: "Value", factor: float) -> "tuple[Value, Value]":
    """Emit ``x * factor`` for f64, rounded to an integer below 2^51: as f64, and its low 32 bits."""
    shifted = e.fma(x, factor, _ROUND64)
    return e.sub(shifted, _ROUND64), e.trunci(e.bitcast(shifted, "i64"), "i32")


def exp_scaled(e: "ScalarEmitter", x: "Value") -> Scaled:
    """Emit exp(x) for f32."""
    x = e.clamp(x, FLOOR, -FLOOR)
    n = _nearest(e, x, LOG2_E)
    return Scaled(e.horner(e.fma(n, -LN2_LOW, e.fma(n, -LN2_HIGH, x)), _EXP), n)


def exp_scaled_double(e: "ScalarEmitter", x: "Value") -> Scaled:
    """Emit exp(x) for f64 with an error of float32, for arguments that lose too much if they are rounded to float32."""
    x = e.clamp(x, FLOOR, -FLOOR)
    n, _ = nearest_double(e, x, LOG2_E)
    return Scaled(e.horner(e.truncf(e.fma(n, -LN2, x), "f32"), _EXP), e.truncf(n, "f32"))


def exp_of_square(e: "ScalarEmitter", x: "Value", factor: float) -> Scaled:
    """Emit exp(factor x^2) for f32 and a factor that is a power of two, for x with factor x^2 no less than FLOOR.

    The square is not rounded by itself, which would lose too much: only the sum that contains it is rounded.
    """
    n = e.sub(e.fma(x, e.mul(x, factor * LOG2_E), _ROUND32), _ROUND32)
    r = e.fma(n, -LN2_LOW, e.fma(x, e.mul(x, factor), e.mul(n, -LN2_HIGH)))
    return Scaled(e.horner(r, _EXP), n)


def exp(e: "ScalarEmitter", x: "Value") -> "Value":
    return e.times_power(*exp_scaled(e, x))


def _exp_by_16ths(e: "ScalarEmitter", x: "Value") -> "Value":
    """Emit exp(x) for f32, where the host selects from 16 numbers by one instruction: fewer steps, but an error of 1.02
    ulp instead of 0.87, since the power is rounded, too. That error is too large for functions that are computed from
    ``exp``."""
    if not e.selects_from_16:
        return exp(e, x)
    shifted = e.fma(x, LOG2_E, _ROUND_16THS)
    n = e.sub(shifted, _ROUND_16THS)
    # Far arguments, and infinities, leave any number or NaN here; the power is 0 or infinite then.
    r = e.no_larger(e.fma(n, -LN2_LOW, e.fma(n, -LN2_HIGH, x)), _LARGEST_16THS)
    power = e.selected(e.bitcast(shifted, "i32"), _POWERS_16THS)
    return e.times_power(e.fma(e.mul(power, r), e.horner(r, _EXP_16THS), power), n)


def _log(e: "ScalarEmitter", x: "Value") -> "Value":
    tiny = e.cmp("olt", x, 2.0**-126)
    bits = e.bitcast(e.select(tiny, e.mul(x, 2.0**24), x), "i32")
    # The exponent for which the mantissa lies between sqrt(1/2) and sqrt(2).
    exponent = e.shrsi(e.sub(bits, 0x3F3504F3), 23)
    f = e.sub(e.bitcast(e.sub(bits, e.shl(exponent, 23)), "f32"), 1.0)
    n = e.add(e.sitofp(exponent, "f32"), e.select(tiny, e.const(x, -24.0), e.const(x, 0.0)))
    square = e.mul(f, f)
    small = e.fma(n, LN2_LOW, e.mul(e.mul(f, square), e.horner(f, _LOG)))
    result = e.fma(n, LN2_HIGH, e.add(f, e.fma(square, -0.5, small)))
    # NaN and +inf give themselves, a negative number NaN.
    result = e.select(e.cmp("olt", x, math.inf), result, x)
    result = e.select(e.cmp("olt", x, 0.0), math.nan, result)
    return e.select(e.cmp("oeq", x, 0.0), -math.inf, result)


ActivationFunction("exp", np.exp, _exp_by_16ths, ulp=1.5)
ActivationFunction("log", np.log, _log, ulp=1, valid_range=(2.0**-64, 2.0**64))
