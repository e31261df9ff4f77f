# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of the logistic curve ``s(x) = 1 / (1 + exp(-x))`` and of softplus.

The NumPy forms clip their argument where the result no longer changes in float32, so that an infinity gives the limit.
"""

import math

import numpy as np

from nki_mlir.scalar.activation.entry import Activation, in_float64

SIGMOID_GELU = 1.702
TANH_GELU = (math.sqrt(2 / math.pi), math.sqrt(2 / math.pi) * 0.044715)


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


Activation("sigmoid", in_float64(_sigmoid), None, ulp=2)
Activation("tanh", np.tanh, None, ulp=2)
Activation("silu", in_float64(_silu), None, ulp=3)
Activation("silu_dx", in_float64(_silu_dx), None, ulp=4)
Activation("softplus", in_float64(_softplus), None, ulp=3)
Activation("mish", in_float64(_mish), None, ulp=4)
Activation("gelu_apprx_tanh", in_float64(_gelu_tanh), None, ulp=4)
Activation("gelu_apprx_sigmoid", in_float64(_gelu_sigmoid), None, ulp=4)
Activation("gelu_apprx_sigmoid_dx", in_float64(_gelu_sigmoid_dx), None, ulp=4)
