# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formulas in float64 of the scalar functions of one and two float32 values, written independently of the library."""

import math

import numpy as np

_erf, _erfc = np.vectorize(math.erf), np.vectorize(math.erfc)


def _logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _normal(x: np.ndarray) -> np.ndarray:
    return 0.5 * _erfc(-x * math.sqrt(0.5))


def _above(x: np.ndarray) -> np.ndarray:
    """x without what lies so far below 0 that a function has reached its limit."""
    return np.maximum(x, -300)


def _inside(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -300, 300)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    # By its definition below, near 0; the tail in the equivalent form that does not cancel.
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.where(np.abs(x) < 1, 0.5 * x * (1 + np.tanh(inner)), x * _logistic(2 * inner))


def _mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.logaddexp(0, x))


def _density(x: np.ndarray) -> np.ndarray:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


EXACT = {
    "copy": lambda x: x, "identity": lambda x: x, "negative": lambda x: -x, "abs": np.abs, "sign": np.sign,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "relu": lambda x: np.maximum(x, 0),
    "square": lambda x: x * x,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "exp": np.exp, "log": np.log,
    "sin": np.sin, "sin_reduced": np.sin, "cos": np.cos, "tan": np.tan, "arctan": np.arctan, "tanh": np.tanh,
    "sigmoid": _logistic,
    "silu": lambda x: _above(x) * _logistic(_above(x)),
    "silu_dx": lambda x: _logistic(_inside(x)) * (1 + _inside(x) * _logistic(-_inside(x))),
    "softplus": lambda x: np.logaddexp(0, x),
    "mish": lambda x: _mish(_above(x)),
    "erf": _erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "gelu": lambda x: _above(x) * _normal(_above(x)),
    "gelu_dx": lambda x: _normal(x) + _inside(x) * _density(_inside(x)),
    "gelu_apprx_tanh": lambda x: _gelu_tanh(_above(x)),
    "gelu_apprx_sigmoid": lambda x: _above(x) * _logistic(1.702 * _above(x)),
    "gelu_apprx_sigmoid_dx": lambda x: EXACT["silu_dx"](1.702 * x),
}

# Where NumPy's own function of float64 is the exact value, rounded beyond what float32 shows.
ONE = EXACT | {
    "bypass": lambda x: x, "logical_not": lambda x: x == 0,
}
TWO = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "mod": np.remainder, "fmod": np.fmod, "power": np.power,
    "average": lambda a, b: (a + b).astype(np.float32).astype(np.float64) / 2,        # half of the sum as it is rounded
    "abs_max": lambda a, b: np.where((np.abs(a) > np.abs(b)) | np.isnan(a), a, b),
    "abs_min": lambda a, b: np.where((np.abs(a) < np.abs(b)) | np.isnan(a), a, b),
    "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "less": np.less, "less_equal": np.less_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


def _halves_away(x: np.ndarray) -> np.ndarray:
    return np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.sign(x), 0)


GRAPHS = {
    "log1p": np.log1p, "expm1": np.expm1, "cbrt": np.cbrt, "round": _halves_away, "roundeven": np.rint,
    "atan2": np.arctan2, "copysign": np.copysign,
}


def _shifted(a: np.ndarray, b: np.ndarray, shift: np.ufunc, kind: str) -> np.ndarray:
    """Shift the bits of ``a``, read as integers of a kind, by ``b``, read as unsigned. Bits shifted out are lost."""
    wide, amount = a.view(f"{kind}{a.itemsize}").astype(f"{kind}8"), b.view(f"u{b.itemsize}").astype(np.uint64)
    moved = shift(wide, np.minimum(amount, 8 * a.itemsize - (kind == "i")).astype(wide.dtype))
    return moved.astype(f"{kind}{a.itemsize}").view(a.dtype)


BITS = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "invert": np.invert,
    "left_shift": lambda a, b: _shifted(a, b, np.left_shift, "u"),
    "right_shift": lambda a, b: _shifted(a, b, np.right_shift, "u"),
    "arith_shift_right": lambda a, b: _shifted(a, b, np.right_shift, "i"),
}
