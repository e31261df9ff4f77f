# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The arithmetic of the engines: operators of two operands, activation functions, reductions (documents: beta 6.2,
7.1).

Operands are elements of their types. Results are computed in float32 and rounded once more, by ``dtypes.convert``, when
they are written; sums, differences and products of integers are exact, and operators on bits work on bits. Activation
functions are computed in float64 and rounded to float32.
"""

from collections.abc import Callable
from functools import reduce
from math import erf as erf_of_number
from math import erfc as erfc_of_number
from typing import Any

import numpy as np

from .dtypes import FLOAT32, INT32, UINT32, DType, Whole, convert, promote, weak

Array = np.ndarray


def widened(values: Any) -> Array:
    """Return elements as float32, in which the engines compute."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32)


# -- two operands ------------------------------------------------------------------------------------------------------
def maximum(a: Array, b: Array) -> Array:
    """NaN if one is; a zero is +0 (decisions: max and min)."""
    return np.maximum(a, b) + np.float32(0)


def minimum(a: Array, b: Array) -> Array:
    return np.minimum(a, b) + np.float32(0)


def power(a: Array, b: Array) -> Array:
    """C's ``pow``: exponents of their own for all bases, since NumPy takes roots for one exponent of 0.5."""
    base, exponent = (np.ravel(v).astype(np.float64) for v in np.broadcast_arrays(a, b))
    return np.power(base, exponent).astype(np.float32).reshape(np.broadcast_shapes(np.shape(a), np.shape(b)))


def mod(a: Array, b: Array) -> Array:
    """The remainder with the sign of the divisor, Python's ``%``."""
    return np.mod(a, b)


def fmod(a: Array, b: Array) -> Array:
    """The remainder with the sign of the dividend, C's ``fmod``."""
    return np.fmod(a, b)


def _test(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return a comparison whose result is 1 or 0."""
    return lambda a, b: compare(a, b).astype(np.float32)


ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "power": power,
    "maximum": maximum, "minimum": minimum, "mod": mod, "fmod": fmod,
    "abs_max": lambda a, b: maximum(np.abs(a), np.abs(b)), "abs_min": lambda a, b: minimum(np.abs(a), np.abs(b)),
}
TESTS: dict[str, Callable[[Array, Array], Array]] = {
    "equal": _test(np.equal), "not_equal": _test(np.not_equal), "greater": _test(np.greater),
    "greater_equal": _test(np.greater_equal), "less": _test(np.less), "less_equal": _test(np.less_equal),
    "logical_and": _test(lambda a, b: (a != 0) & (b != 0)), "logical_or": _test(lambda a, b: (a != 0) | (b != 0)),
    "logical_xor": _test(lambda a, b: (a != 0) ^ (b != 0)),
}
BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
        "left_shift": None, "right_shift": None, "logical_shift_left": None, "logical_shift_right": None,
        "arith_shift_left": None, "arith_shift_right": None}
EXACT = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
BINARY = {**ARITHMETIC, **TESTS}

# What may stand for an operator: NumPy's names of the same functions (beta 1).
SYNONYMS = {"max": "maximum", "amax": "maximum", "min": "minimum", "amin": "minimum", "sum": "add", "prod": "multiply",
            "true_divide": "divide", "remainder": "mod", "absolute": "abs", "bitwise_not": "invert",
            "fabs": "abs", "all": "logical_and", "any": "logical_or"}


def operator(op: Any) -> str:
    """Return the name of an operator: a function of the language or of NumPy, or a string."""
    name = op if isinstance(op, str) else getattr(op, "__name__", str(op))
    return SYNONYMS.get(name, name)


def on_bits(name: str, a: Array, b: Array, bits: int) -> Array:
    """Apply an operator on bits to int64 operands; a shift by ``bits`` or more moves all bits out."""
    if name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        return BITS[name](a, b)
    inside = (b >= 0) & (b < bits)
    amount = np.where(inside, b, 0)
    low = (1 << bits) - 1
    if "left" in name:
        return np.where(inside, (a << amount) & low, 0)
    if name.startswith("arith"):
        return a >> np.where(inside, amount, bits - 1)
    return np.where(inside, (a & low) >> amount, 0)


def wrapped(values: Array, dtype: DType) -> Array:
    """int64 as an integer type whose bits are the low ones."""
    return values.astype(np.int64).astype(dtype.numpy)


class Operand:
    """Values with their element type: a tile's, or a number's, whose bits are as many as those beside it."""

    def __init__(self, values: Any, dtype: DType, constant: bool = False) -> None:
        self.values, self.dtype, self.constant = np.asarray(values), dtype, constant

    @classmethod
    def number(cls, value: Any) -> "Operand":
        return cls(value, weak(value), True)


def as_integers(a: Operand, b: Operand) -> tuple[Array, Array, DType] | None:
    """Two operands as 32-bit integers of one type, or nothing: a number that is whole has the type beside it."""
    types = [o.dtype for o in (a, b) if not o.constant]
    if not types or any(t is not types[0] for t in types) or types[0] not in (INT32, UINT32):
        return None
    limits = np.iinfo(types[0].numpy)
    if any(o.constant and not (float(o.values).is_integer() and limits.min <= o.values <= limits.max) for o in (a, b)):
        return None
    return a.values.astype(np.int64), b.values.astype(np.int64), types[0]


def binary(name: str, a: Operand, b: Operand) -> Any:
    """``a (name) b``, not yet rounded to the type of its destination (decisions: 32-bit integers)."""
    with np.errstate(all="ignore"):
        if name in BITS:
            common = b.dtype if a.constant else a.dtype if b.constant else promote(a.dtype, b.dtype)
            common = UINT32 if common.kind == "float" else common
            x, y = (o.values.astype(np.int64) for o in (a, b))
            return wrapped(on_bits(name, x, y, 8 * common.itemsize), common)
        if name == "bypass":
            return a.values
        single = BINARY[name](widened(a.values), widened(b.values))
        if name in EXACT and (integers := as_integers(a, b)) is not None:
            x, y, kind = integers
            return Whole(wrapped(EXACT[name](x, y), kind), single)
        return single


# -- one operand -------------------------------------------------------------------------------------------------------
def _erf(x: Array) -> Array:
    return np.vectorize(erf_of_number, otypes=[np.float64])(x) if x.size else x


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def _density(x: Array) -> Array:
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _distribution(x: Array) -> Array:
    return np.vectorize(erfc_of_number, otypes=[np.float64])(-x / np.sqrt(2)) / 2 if x.size else x


def _times(x: Array, factor: Array) -> Array:
    """``x * factor`` where the factor of an infinite x is 0 in the limit."""
    return np.where((factor == 0) & ~np.isnan(x), 0.0 * np.sign(x), x * factor)


def _silu_dx(x: Array) -> Array:
    s = _sigmoid(x)
    return s + _times(_times(x, s), 1 - s)


# (1 + tanh(u)) / 2 is the sigmoid of 2 u; of rsqrt the root is rounded before the quotient (decisions).
UNARY: dict[str, Callable[[Array], Array]] = {
    "copy": lambda x: x, "identity": lambda x: x, "square": lambda x: x * x, "sigmoid": _sigmoid,
    "relu": lambda x: maximum(x, np.float64(0)), "gelu": lambda x: _times(x, _distribution(x)),
    "gelu_dx": lambda x: _distribution(x) + _times(x, _density(x)),
    "gelu_apprx_tanh": lambda x: _times(x, _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))),
    "gelu_apprx_sigmoid": lambda x: _times(x, _sigmoid(1.702 * x)),
    "gelu_apprx_sigmoid_dx": lambda x: _silu_dx(1.702 * x),
    "silu": lambda x: _times(x, _sigmoid(x)), "silu_dx": _silu_dx, "tanh": np.tanh, "softplus": _softplus,
    "mish": lambda x: _times(x, np.tanh(_softplus(x))), "erf": _erf,
    "erf_dx": lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x), "exp": np.exp, "sign": np.sign, "abs": np.abs,
    "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "arctan": np.arctan, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x).astype(np.float32), "reciprocal": lambda x: 1 / x, "negative": lambda x: -x, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "logical_not": lambda x: (x == 0).astype(np.float64),
}


def unary(name: str, a: Operand) -> Array:
    """A function of one operand, in float64, rounded to float32. ``invert`` works on the bits of integers."""
    if name == "invert":
        return ~a.values
    with np.errstate(all="ignore"):
        return UNARY[name](widened(a.values).astype(np.float64)).astype(np.float32)


# -- reductions --------------------------------------------------------------------------------------------------------
IDENTITY = {"add": 0, "subtract": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf, "logical_and": 1,
            "logical_or": 0, "logical_xor": 0, "bitwise_and": -1, "bitwise_or": 0, "bitwise_xor": 0,
            "abs_max": 0, "abs_min": np.inf}


def fold(name: str, a: Operand, axis: int, active: Array | None = None) -> Array:
    """``((a0 op a1) op a2) ...`` along an axis, over what a mask leaves; the first one left begins (beta 7.1).

    Logical operators begin with their neutral value, so that one element alone gives 1 or 0, too.

    Sums and products are computed in float64 and rounded to float32: of integers exact, each a float32 value
    (decisions: sums of integers), of floats in an order that is open.
    """
    values = np.moveaxis(a.values, axis, 0)
    left = np.ones(values.shape, bool) if active is None else np.moveaxis(np.broadcast_to(active, a.values.shape), axis, 0)
    bits = name in BITS
    wide = values.astype(np.int64) if bits else widened(values)
    with np.errstate(all="ignore"):
        if name in ("add", "multiply"):
            chosen = np.where(left, wide, np.float32(IDENTITY[name])).astype(np.float64)
            return (chosen.sum(axis=0) if name == "add" else chosen.prod(axis=0)).astype(np.float32)
        if name == "subtract" and a.dtype.kind != "float":
            wide = wide.astype(np.float64)
        function = (lambda x, y: on_bits(name, x, y, 32)) if bits else BINARY[name]
        logical = name.startswith("logical")
        result = np.full(wide.shape[1:], IDENTITY[name] if logical else 0, wide.dtype)
        begun = np.full(wide.shape[1:], logical)
        for row, here in zip(wide, left):
            result = np.where(here, np.where(begun, function(result, row), row), result).astype(wide.dtype)
            begun = begun | here
        result = result + 0             # an extreme that is zero is +0, of one element, too
    return wrapped(result, a.dtype) if bits and a.dtype.kind == "int" else result if bits else widened(result)


def fold_axes(name: str, a: Operand, axes: tuple[int, ...], active: Array | None = None) -> Array:
    """Reduce over several axes in the order of their elements in memory; the result does not have these axes."""
    remaining_axes = [k for k in range(a.values.ndim) if k not in axes]
    order = (*remaining_axes, *sorted(axes))
    shape = tuple(a.values.shape[k] for k in remaining_axes)

    def flat(array: Array) -> Array:
        return np.transpose(array, order).reshape(*shape, -1)
    left = None if active is None else flat(np.broadcast_to(active, a.values.shape))
    return fold(name, Operand(flat(a.values), a.dtype), len(shape), left)


def accumulate(name: str, values: list[Array]) -> Array:
    """A left fold of arrays in float32."""
    return reduce(lambda a, b: binary(name, Operand(a, FLOAT32), Operand(b, FLOAT32)), values)


__all__ = ["ARITHMETIC", "BINARY", "BITS", "EXACT", "IDENTITY", "INT32", "SYNONYMS", "TESTS", "UNARY", "Operand",
           "accumulate", "binary", "convert", "fold", "fold_axes", "on_bits", "operator", "unary", "widened", "wrapped"]
