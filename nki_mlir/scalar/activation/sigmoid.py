# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sigmoid functions and those that are built on them: the error function with gelu; the logistic curve
``s(x) = 1 / (1 + exp(-x))`` with tanh, silu, softplus and others.

The NumPy forms clip their argument where the result no longer changes in float32, so that an infinity gives the limit.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.activation.elementary import FLOOR, Scaled, exp, exp_of_square, exp_scaled, exp_scaled_double
from nki_mlir.scalar.activation.entry import ActivationFunction, Numpy

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

_BLOCK = 8192               # elements that fit the first cache in float64


def in_float64(function: Numpy) -> Numpy:
    """Return ``function`` computed in float64 and rounded to float32 once.

    It works in blocks: intermediate arrays of a complete tile would be mapped for each operation, at five times the
    cost.
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
    """Return the polynomial whose coefficients are listed from the constant term up."""
    result = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        result += coefficient
        result *= x
    result += coefficients[0]
    return result


# -- the error function ------------------------------------------------------------------------------------------------
# erf(z) / z in z^2 for |z| <= 1, relative error 1e-12.
_ERF = (
    1.1283791670945857, -0.37612638888505046, 0.11283791285386394, -0.02686613140983337, 0.0052237764076062156,
    -0.0008542488942379677, 0.00011954818368821477, -1.3898696861238759e-05, 1.0562966455773323e-06,
)
# (1 + 2 z) exp(z^2) erfc(z) in (z - 3) / (z + 3) for 0 <= z <= 10.5, relative error 4e-11.
_ERFC = (
    1.2530080582700625, -0.1356211070164301, -0.04756229451149831, 0.12964520615062455, -0.11927363520943939,
    0.06830731616908656, -0.023771243120952742, 0.002533660155958846, 0.001895074840735276, -0.0007896291359672188,
    -0.00012775611646024908, 0.00012543966521894398, 3.268179633748477e-05,
)


def _erfc(z: np.ndarray, gauss: np.ndarray) -> np.ndarray:
    """Return erfc(z) for z >= 0, with ``gauss`` = exp(-z^2)."""
    return gauss * horner((z - 3.0) / (z + 3.0), _ERFC) / (1.0 + 2.0 * z)


def _erf(x: np.ndarray) -> np.ndarray:
    z = np.minimum(np.absolute(x), 20.0)
    square = z * z
    far = np.copysign(1.0 - _erfc(z, np.exp(-square)), x)
    return np.where(z < 1.0, x * horner(np.minimum(square, 1.0), _ERF), far)


def _normal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the normal distribution function at x, and exp(-x^2 / 2)."""
    gauss = np.exp(-0.5 * x * x)
    tail = 0.5 * _erfc(np.absolute(x) * math.sqrt(0.5), gauss)
    return np.where(x < 0.0, tail, 1.0 - tail), gauss


def _gelu(x: np.ndarray) -> np.ndarray:
    inside = np.clip(x, -40.0, 40.0)
    return np.maximum(x, -40.0) * _normal(inside)[0]


def _gelu_dx(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, -40.0, 40.0)
    distribution, gauss = _normal(x)
    return distribution + x * gauss / math.sqrt(2.0 * math.pi)


def _erf_dx(x: np.ndarray) -> np.ndarray:
    return 2.0 / math.sqrt(math.pi) * np.exp(-x * x)


# -- expansions

# erf(z) / z - 1 in z^2 for |z| <= 1, error 1e-9 of erf.
_NEAR = (0.12837917, -0.37612626, 0.112835854, -0.026853815, 0.005188334, -0.0008010242, 7.8540084e-05)
# log(erfc(z)) for 1 <= z <= 4, error 1e-9 of erf.
_FAR = (-0.00034151258, -1.1270893, -0.63814473, -0.10310682, 0.021838097, -0.0029476667, 0.00018638009)
# exp(t^2 / 2) P(X > t) of the normal distribution for 0 <= t <= 14.4 as a quotient, relative error 5e-8.
_TAIL = (48.503963, 42.508198, 17.76793, 3.9392717, 0.39894694)
_TAIL_BELOW = (97.00793, 162.41757, 116.6219, 45.523018, 9.874919)          # and t^5
_FAR_OUT = math.sqrt(-2 * FLOOR)         # beyond it the normal density, with any float32 factor, is 0


def _expand_erf(e: "ScalarEmitter", x: "Value") -> "Value":
    magnitude = e.clamp(e.abs(x), None, 4.0)
    square = e.mul(magnitude, magnitude)
    near = e.fma(x, e.horner(square, _NEAR), x)
    far = e.sub(1.0, exp(e, e.horner(magnitude, _FAR)))
    return e.select(e.cmp("olt", magnitude, 1.0), near, e.copysign(far, x))


def _tail_factor(e: "ScalarEmitter", magnitude: "Value") -> tuple["Value", "Value"]:
    """Emit P(X > t) / exp(-t^2 / 2), as dividend and divisor."""
    below = e.add(magnitude, _TAIL_BELOW[-1])
    for coefficient in reversed(_TAIL_BELOW[:-1]):
        below = e.fma(below, magnitude, coefficient)
    return e.horner(magnitude, _TAIL), below


def _expand_erf_dx(e: "ScalarEmitter", x: "Value") -> "Value":
    limit = math.sqrt(-FLOOR)
    gauss = exp_of_square(e, e.clamp(x, -limit, limit), -1.0)
    return e.times_power(e.mul(gauss.mantissa, 2.0 / math.sqrt(math.pi)), gauss.exponent)


def _expand_gelu(e: "ScalarEmitter", x: "Value") -> "Value":
    # x P(X < x) = max(x, 0) - |x| P(X > |x|)
    magnitude = e.clamp(e.abs(x), None, _FAR_OUT)
    gauss = exp_of_square(e, magnitude, -0.5)
    above, below = _tail_factor(e, magnitude)
    tail = e.times_power(e.div(e.mul(magnitude, above), below), gauss.exponent)
    return e.fma(e.neg(tail), gauss.mantissa, e.clamp(x, 0.0, None))


def _expand_gelu_dx(e: "ScalarEmitter", x: "Value") -> "Value":
    magnitude = e.clamp(e.abs(x), None, _FAR_OUT)
    gauss = exp_of_square(e, magnitude, -0.5)
    slope = e.fma(magnitude, -1.0 / math.sqrt(2.0 * math.pi), e.div(*_tail_factor(e, magnitude)))
    below = e.times_power(e.mul(gauss.mantissa, slope), gauss.exponent)
    return e.select(e.cmp("olt", x, 0.0), below, e.sub(1.0, below))


ActivationFunction("erf", in_float64(_erf), _expand_erf, ulp=2)
ActivationFunction("erf_dx", in_float64(_erf_dx), _expand_erf_dx, ulp=2.5)
ActivationFunction("gelu", in_float64(_gelu), _expand_gelu, ulp=7.5)
ActivationFunction("gelu_dx", in_float64(_gelu_dx), _expand_gelu_dx, ulp=4, absolute=2.0**-23)


# -- the logistic curve ------------------------------------------------------------------------------------------------
SIGMOID_GELU = 1.702
TANH_GELU = (math.sqrt(2 / math.pi), math.sqrt(2 / math.pi) * 0.044715)

# (tanh(x) / x - 1) / x^2 in x^2 for |x| <= 0.625, error 2e-10 of tanh.
_TANH = (-0.3333333, 0.13333206, -0.053946763, 0.021700704, -0.008177401, 0.0021429637)
# R / s^2 in s^2 for the remainder R of log1p, 0 <= x <= 1, error 4e-9 of the logarithm.
_LOG1P = (0.6666642, 0.40021527, 0.28001806, 0.28011987)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def _silu(x: np.ndarray) -> np.ndarray:
    x = np.maximum(x, -200.0)
    return x / (1.0 + np.exp(-x))


def _silu_dx(x: np.ndarray) -> np.ndarray:
    x = np.clip(x, -200.0, 200.0)
    s = _sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.absolute(x)))


def _mish(x: np.ndarray) -> np.ndarray:
    # tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2)
    x = np.maximum(x, -200.0)
    e = np.exp(np.minimum(x, 50.0))
    e *= e + 2.0
    return x * (e / (e + 2.0))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    # 0.5 (1 + tanh(u)) = s(2 u)
    x = np.maximum(x, -200.0)
    linear, cubic = TANH_GELU
    return x / (1.0 + np.exp(x * (-2.0 * linear - 2.0 * cubic * x * x)))


def _gelu_sigmoid(x: np.ndarray) -> np.ndarray:
    x = np.maximum(x, -200.0)
    return x / (1.0 + np.exp(-SIGMOID_GELU * x))


def _gelu_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    # x s(a x) = silu(a x) / a
    return _silu_dx(SIGMOID_GELU * x)


# -- expansions

def log1p(e: "ScalarEmitter", x: "Value") -> "Value":
    """Emit log(1 + x) for 0 <= x <= 1."""
    half_square = e.mul(e.mul(x, x), 0.5)
    s = e.div(x, e.add(x, 2.0))
    square = e.mul(s, s)
    remainder = e.mul(square, e.horner(square, _LOG1P))
    return e.sub(x, e.sub(half_square, e.mul(s, e.add(half_square, remainder))))


def _expand_sigmoid(e: "ScalarEmitter", x: "Value") -> "Value":
    small = exp(e, e.neg(e.abs(x)))
    return e.div(e.select(e.cmp("olt", x, 0.0), small, 1.0), e.add(small, 1.0))


def _expand_tanh(e: "ScalarEmitter", x: "Value") -> "Value":
    magnitude = e.abs(x)
    far = e.sub(1.0, e.div(2.0, e.add(exp(e, e.mul(magnitude, 2.0)), 1.0)))
    square = e.mul(x, x)
    near = e.fma(e.mul(square, x), e.horner(square, _TANH), x)
    return e.copysign(e.select(e.cmp("olt", magnitude, 0.625), near, far), x)


def _times_logistic(e: "ScalarEmitter", x: "Value", decay: Scaled) -> "Value":
    """Emit x s(v) for a v with the sign of x, from ``decay`` = exp(-|v|)."""
    x = e.clamp(x, FLOOR, None)
    small = e.times_power(*decay)
    total = e.add(small, 1.0)
    below = e.times_power(e.div(e.mul(x, decay.mantissa), total), decay.exponent)
    return e.select(e.cmp("olt", x, 0.0), below, e.div(x, total))


def _expand_silu(e: "ScalarEmitter", x: "Value") -> "Value":
    return _times_logistic(e, x, exp_scaled(e, e.neg(e.abs(x))))


def _expand_gelu_sigmoid(e: "ScalarEmitter", x: "Value") -> "Value":
    argument = e.mul(e.abs(e.extf(x, "f64")), -SIGMOID_GELU)
    return _times_logistic(e, x, exp_scaled_double(e, argument))


def _expand_gelu_tanh(e: "ScalarEmitter", x: "Value") -> "Value":
    linear, cubic = TANH_GELU
    magnitude = e.abs(e.extf(x, "f64"))
    argument = e.mul(magnitude, e.fma(e.mul(magnitude, magnitude), -2.0 * cubic, -2.0 * linear))
    return _times_logistic(e, x, exp_scaled_double(e, argument))


def _expand_silu_dx(e: "ScalarEmitter", x: "Value") -> "Value":
    x = e.clamp(x, FLOOR, -FLOOR)
    small = exp(e, e.neg(e.abs(x)))
    total = e.add(small, 1.0)
    smaller, larger = e.div(small, total), e.div(1.0, total)
    below = e.cmp("olt", x, 0.0)
    s, complement = e.select(below, smaller, larger), e.select(below, larger, smaller)
    return e.mul(s, e.fma(x, complement, 1.0))


def _expand_softplus(e: "ScalarEmitter", x: "Value") -> "Value":
    return e.add(e.clamp(x, 0.0, None), log1p(e, exp(e, e.neg(e.abs(x)))))


def _expand_mish(e: "ScalarEmitter", x: "Value") -> "Value":
    # With d = exp(-|x|): (1 + 2 d) / (1 + 2 d + 2 d^2) above 0, d (d + 2) / (d (d + 2) + 2) below.
    x = e.clamp(x, FLOOR, None)
    decay = exp_scaled(e, e.neg(e.abs(x)))
    small = e.times_power(*decay)
    top = e.fma(small, 2.0, 1.0)
    above = e.div(e.mul(x, top), e.fma(e.mul(small, small), 2.0, top))
    sum_ = e.add(small, 2.0)
    below = e.div(e.mul(e.mul(x, decay.mantissa), sum_), e.fma(small, sum_, 2.0))
    return e.select(e.cmp("olt", x, 0.0), e.times_power(below, decay.exponent), above)


ActivationFunction("sigmoid", in_float64(_sigmoid), _expand_sigmoid, ulp=2.5)
ActivationFunction("tanh", np.tanh, _expand_tanh, ulp=2)
ActivationFunction("silu", in_float64(_silu), _expand_silu, ulp=3.5)
ActivationFunction("silu_dx", in_float64(_silu_dx), _expand_silu_dx, ulp=3, absolute=2.0**-24)
ActivationFunction("softplus", in_float64(_softplus), _expand_softplus, ulp=2)
ActivationFunction("mish", in_float64(_mish), _expand_mish, ulp=4.5)
ActivationFunction("gelu_apprx_tanh", in_float64(_gelu_tanh), _expand_gelu_tanh, ulp=3.5)
ActivationFunction("gelu_apprx_sigmoid", in_float64(_gelu_sigmoid), _expand_gelu_sigmoid, ulp=3.5)
ActivationFunction("gelu_apprx_sigmoid_dx", in_float64(_gelu_sigmoid_dx),
                   lambda e, x: _expand_silu_dx(e, e.mul(x, SIGMOID_GELU)), ulp=3, absolute=2.0**-24)
