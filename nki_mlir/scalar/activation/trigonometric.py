# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sine, cosine, tangent and arctangent; ``sin`` is the hardware's, ``sin_reduced`` accepts all numbers.

The argument is reduced to [-pi/4, pi/4] in float64 with pi/2 in two parts, which is enough up to 2^48. Beyond that,
where the step between float32 values is far greater than a period, the C library is called.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.activation.elementary import nearest_double
from nki_mlir.scalar.activation.entry import ActivationFunction

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

_HALF_PI = math.pi / 2
_HALF_PI_LOW = 6.123233995736766e-17    # the error of the float64 _HALF_PI
_LARGE = 2.0**48

# (sin(r) / r - 1) / r^2 in r^2, error 4e-9 of the sine.
_SIN = (-0.16666655, 0.008332161, -0.00019515284)
# (cos(r) - 1 + r^2 / 2) / r^4 in r^2, error 1e-10.
_COS = (0.041666646, -0.0013887316, 2.4433157e-05)
# (atan(y) / y - 1) / y^2 in y^2 for |y| <= 1, error 3e-9 of the arctangent.
_ATAN = (-0.333333, 0.19998549, -0.14264241, 0.10952185, -0.08403448, 0.057957556, -0.031177804, 0.010914582,
         -0.001793616)


def _sine_and_cosine(e: "ScalarEmitter", x: "Value") -> "tuple[Value, Value, Value]":
    """Emit sine and cosine of the remainder of x above a multiple of pi/2, and that multiple."""
    double = e.extf(x, "f64")
    n, quadrant = nearest_double(e, double, 1.0 / _HALF_PI)
    r = e.truncf(e.fma(n, -_HALF_PI_LOW, e.fma(n, -_HALF_PI, double)), "f32")
    square = e.mul(r, r)
    sine = e.fma(e.mul(square, r), e.horner(square, _SIN), r)
    sine = e.select(e.cmp("oeq", r, 0.0), r, sine)          # the sum makes +0 of -0
    cosine = e.fma(e.mul(square, square), e.horner(square, _COS), e.fma(square, -0.5, 1.0))
    return sine, cosine, quadrant


def _or_libm(e: "ScalarEmitter", name: str, x: "Value", value: "Value") -> "Value":
    return e.select_rare(e.cmp("oge", e.abs(x), _LARGE), value, lambda: e.libm(name, x))


def _expand_wave(e: "ScalarEmitter", name: str, x: "Value", quarters: int) -> "Value":
    """Emit the sine of x + quarters pi/2."""
    sine, cosine, quadrant = _sine_and_cosine(e, x)
    if quarters:
        quadrant = e.add(quadrant, quarters)
    value = e.select(e.nonzero(e.and_(quadrant, 1)), cosine, sine)
    sign = e.shl(e.and_(quadrant, 2), 30)
    return _or_libm(e, name, x, e.bitcast(e.xor(e.bitcast(value, "i32"), sign), "f32"))


def _expand_tan(e: "ScalarEmitter", x: "Value") -> "Value":
    sine, cosine, quadrant = _sine_and_cosine(e, x)
    odd = e.nonzero(e.and_(quadrant, 1))
    return _or_libm(e, "tan", x, e.div(e.select(odd, e.neg(cosine), sine), e.select(odd, sine, cosine)))


def _expand_arctan(e: "ScalarEmitter", x: "Value") -> "Value":
    magnitude = e.abs(x)
    steep = e.cmp("ogt", magnitude, 1.0)
    y = e.div(e.select(steep, 1.0, magnitude), e.select(steep, magnitude, 1.0))
    square = e.mul(y, y)
    angle = e.fma(e.mul(square, y), e.horner(square, _ATAN), y)
    high = float(np.float32(_HALF_PI))
    complement = e.add(e.sub(high, angle), _HALF_PI - high)
    return e.copysign(e.select(steep, complement, angle), x)


ActivationFunction("sin", np.sin, lambda e, x: _expand_wave(e, "sin", x, 0), ulp=2, valid_range=(-math.pi, math.pi))
ActivationFunction("sin_reduced", np.sin, lambda e, x: _expand_wave(e, "sin", x, 0), ulp=2, native=False)
ActivationFunction("cos", np.cos, lambda e, x: _expand_wave(e, "cos", x, 1), ulp=2, native=False)
ActivationFunction("tan", np.tan, _expand_tan, ulp=4, native=False)
ActivationFunction("arctan", np.arctan, _expand_arctan, ulp=2, valid_range=(-math.pi / 2, math.pi / 2))
