# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nl``: functions of elements (document: 6.2). Tiles broadcast as in NumPy, the partitions too."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import arithmetic
from ..dtypes import BOOL, FLOAT32, UINT8, UINT32, DType, promote, weak
from ..memory import View
from .tensors import Tensor, operands, result


def type_of(*values: Any) -> DType:
    """Return the dtype of a function of operands: their promotion, in which numbers beside a tile are weak (3.5)."""
    types = [v.dtype if isinstance(v, View) else weak(0) if isinstance(v, np.ndarray) else weak(v) for v in values]
    promoted = types[0]
    for one in types[1:]:
        promoted = UINT8 if promoted is BOOL is one else promote(promoted, one)
    return promoted


def type_of_result(name: str, *values: Any) -> DType:
    """Return the dtype of an operation's result; an operation on bits never has a float (decisions: bit operations on
    uint32 and int32)."""
    promoted = type_of(*values)
    return UINT32 if name in arithmetic.BITS and promoted.kind == "float" else promoted


def two(name: str, x: Any, y: Any, dtype: Any, mask: Any) -> Any:
    active, (a, b), _ = operands((x, y), mask)
    default = BOOL if name in arithmetic.TESTS else type_of_result(name, x, y)
    if name == "divide" and default.kind != "float":
        default = FLOAT32                                   # 12, row 26
    return result(arithmetic.binary(name, a, b), default, active, dtype)


def one(name: str, x: Any, dtype: Any, mask: Any) -> Any:
    active, (a,), _ = operands((x,), mask)
    default = BOOL if name == "logical_not" else type_of(x)
    return result(arithmetic.unary(name, a), default, active, dtype)


def _two(name: str) -> Callable[..., Any]:
    def function(x: Any, y: Any, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
        return two(name, x, y, dtype, mask)
    function.__name__ = function.__qualname__ = name
    return function


def _one(name: str) -> Callable[..., Any]:
    def function(x: Any, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
        return one(name, x, dtype, mask)
    function.__name__ = function.__qualname__ = name
    return function


# 6.2, arithmetic: rounded once to the promoted type.
add, subtract, multiply, divide, power = map(_two, ("add", "subtract", "multiply", "divide", "power"))
maximum, minimum, mod, fmod = map(_two, ("maximum", "minimum", "mod", "fmod"))
# 6.2, comparison and logic: bool by default.
equal, not_equal, greater = map(_two, ("equal", "not_equal", "greater"))
greater_equal, less, less_equal = map(_two, ("greater_equal", "less", "less_equal"))
logical_and, logical_or, logical_xor = map(_two, ("logical_and", "logical_or", "logical_xor"))
logical_not = _one("logical_not")
# 6.2, bits: of integers, shifts are logical.
bitwise_and, bitwise_or, bitwise_xor = map(_two, ("bitwise_and", "bitwise_or", "bitwise_xor"))
left_shift, right_shift, invert = _two("left_shift"), _two("right_shift"), _one("invert")
# 6.2, functions of one operand, formulas there.
exp, log, sin, cos, tan, tanh = map(_one, ("exp", "log", "sin", "cos", "tan", "tanh"))
arctan, sqrt, rsqrt, sigmoid, relu = map(_one, ("arctan", "sqrt", "rsqrt", "sigmoid", "relu"))
gelu, gelu_dx, gelu_apprx_tanh = map(_one, ("gelu", "gelu_dx", "gelu_apprx_tanh"))
gelu_apprx_sigmoid, silu, silu_dx = map(_one, ("gelu_apprx_sigmoid", "silu", "silu_dx"))
erf, erf_dx, softplus, mish = map(_one, ("erf", "erf_dx", "softplus", "mish"))
square, sign, abs, reciprocal = map(_one, ("square", "sign", "abs", "reciprocal"))
negative, floor, ceil, trunc = map(_one, ("negative", "floor", "ceil", "trunc"))


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Select x where the condition is not zero, else y (6.2)."""
    active, (c, a, b), _shape = operands((condition, x, y), mask)
    default = type_of(x, y)
    return result(np.where(c.values != 0, *both(a, b)), default, active, dtype)


def both(a: arithmetic.Operand, b: arithmetic.Operand) -> tuple[np.ndarray, np.ndarray]:
    """Return both operands of a selection: integers if both are, else float32."""
    if a.dtype.kind != "float" and b.dtype.kind != "float":
        return a.values.astype(np.int64), b.values.astype(np.int64)
    return arithmetic.widened(a.values), arithmetic.widened(b.values)


# -- operators of tensors (3.1); with index expressions they give tiles, which may be indices again (4.4) ----
def _operator(name: str, swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if other is None:
            return name == "not_equal"
        if isinstance(other, np.ndarray) and other.ndim > self.ndim and self.shape[-1] == 1:
            self = self.reshape((self.shape[0],) + (1,) * (other.ndim - 1))     # a column of indices (4.4)
        return two(name, *((other, self) if swapped else (self, other)), None, None)
    return method


OPERATORS = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "mod": "mod", "pow": "power",
             "lshift": "left_shift", "rshift": "right_shift", "and": "bitwise_and", "or": "bitwise_or",
             "xor": "bitwise_xor"}
for _name, _function in OPERATORS.items():
    setattr(Tensor, f"__{_name}__", _operator(_function, False))
    setattr(Tensor, f"__r{_name}__", _operator(_function, True))
for _name in ("mod", "pow", "lshift", "rshift", "and", "or", "xor"):
    setattr(Tensor, f"__i{_name}__", lambda self, other, function=OPERATORS[_name]: self.in_place(function, other))
for _name, _function in {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
                         "ne": "not_equal"}.items():
    setattr(Tensor, f"__{_name}__", _operator(_function, False))


def _floordiv(self: Any, other: Any) -> Any:
    default = type_of(self, other)
    return result(arithmetic.unary("floor", arithmetic.Operand(two("divide", self, other, "float32", None).read(),
                                                               FLOAT32)), default)


def _in_place_floordiv(self: Any, other: Any) -> Any:
    self.write(_floordiv(self, other).read())
    return self


Tensor.__ifloordiv__ = _in_place_floordiv       # type: ignore[attr-defined]
Tensor.__floordiv__ = _floordiv         # type: ignore[attr-defined]
Tensor.__rfloordiv__ = lambda self, other: _floordiv(other, self)     # type: ignore[attr-defined]
Tensor.__neg__ = lambda self: one("negative", self, None, None)       # type: ignore[attr-defined]
Tensor.__invert__ = lambda self: one("invert", self, None, None)      # type: ignore[attr-defined]
Tensor.__abs__ = lambda self: one("abs", self, None, None)            # type: ignore[attr-defined]
__all__ = [n for n, v in list(globals().items()) if callable(v) and not n.startswith("_") and n not in (
    "Any", "Callable", "DType", "Tensor", "View", "operands", "result", "promote", "weak", "dtype_of", "type_of", "type_of_result", "two",
    "one", "both")]
