# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of the logistic curve ``s(x) = 1 / (1 + exp(-x))`` and of softplus.

The NumPy forms clip their argument where the result no longer changes in float32, so that an infinity gives the limit.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.activation.entry import ActivationFunction, in_float64
from nki_mlir.scalar.activation.exponential import FLOOR, Scaled, exp, exp_scaled, exp_scaled_double, log1p, scale

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter

SIGMOID_GELU = 1.702
TANH_GELU = (math.sqrt(2 / math.pi), math.sqrt(2 / math.pi) * 0.044715)

# (tanh(x) / x - 1) / x^2 in x^2 for |x| <= 0.625, error 2e-10 of tanh.
_TANH = (-0.3333333, 0.13333206, -0.053946763, 0.021700704, -0.008177401, 0.0021429637)


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
    """x s(v) for a v with the sign of x, from ``decay`` = exp(-|v|)."""
    x = e.clamp(x, FLOOR, None)
    small = scale(e, *decay)
    total = e.add(small, 1.0)
    below = scale(e, e.div(e.mul(x, decay.mantissa), total), decay.exponent)
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
    less, more = e.div(small, total), e.div(1.0, total)
    below = e.cmp("olt", x, 0.0)
    s, rest = e.select(below, less, more), e.select(below, more, less)
    return e.mul(s, e.fma(x, rest, 1.0))


def _expand_softplus(e: "ScalarEmitter", x: "Value") -> "Value":
    return e.add(e.clamp(x, 0.0, None), log1p(e, exp(e, e.neg(e.abs(x)))))


def _expand_mish(e: "ScalarEmitter", x: "Value") -> "Value":
    # With d = exp(-|x|): (1 + 2 d) / (1 + 2 d + 2 d^2) above 0, d (d + 2) / (d (d + 2) + 2) below.
    x = e.clamp(x, FLOOR, None)
    decay = exp_scaled(e, e.neg(e.abs(x)))
    small = scale(e, *decay)
    top = e.fma(small, 2.0, 1.0)
    above = e.div(e.mul(x, top), e.fma(e.mul(small, small), 2.0, top))
    sum_ = e.add(small, 2.0)
    below = e.div(e.mul(e.mul(x, decay.mantissa), sum_), e.fma(small, sum_, 2.0))
    return e.select(e.cmp("olt", x, 0.0), scale(e, below, decay.exponent), above)


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
