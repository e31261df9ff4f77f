# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mathematics of nki.language (sections 4.4, 6.3 to 6.6). An ``op=`` of an instruction is one of these functions.
"""

from collections.abc import Callable
from math import prod as product
from typing import Any

import numpy as np

from .. import arithmetic
from ..dtypes import FLOAT32, DType, convert, dtype_of, promote
from .elementwise import exact, wrapped
from .enums import engine
from .language import copy, ndarray
from .operands import activate, combine, combine_bits, fold, is_bitwise
from .tensor import NkiTensor

Tile = NkiTensor


def result(values: np.ndarray, dtype: DType, compared: bool = False) -> Tile:
    """Return a new tile, which on chip has at least two dimensions."""
    if values.ndim < 2:
        values = values.reshape(values.shape[0], 1)
    tile = ndarray(values.shape, dtype)
    tile.compared = compared
    tile.write(values)
    return tile


def type_of(x: Any, y: Any, dtype: Any) -> DType:
    """Return the dtype of a tile beside a number, or the dtype to which two tiles promote (4.4)."""
    if dtype is not None:
        return dtype_of(dtype)
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        return promote(x.dtype, y.dtype)
    return next((v.dtype for v in (x, y) if isinstance(v, NkiTensor)), FLOAT32)


def aligned(*values: np.ndarray) -> list[np.ndarray]:
    """Return arrays of equal rank: those of lower rank get axes of one element after the partition (6.3, 3.9)."""
    rank = max(v.ndim for v in values)
    return [v if v.ndim in (0, rank) else v.reshape(v.shape[0], *(1,) * (rank - v.ndim), *v.shape[1:]) for v in values]


def binary(name: str) -> Callable[..., Tile]:
    comparison = name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

    def function(x: Any, y: Any, dtype: Any = None) -> Any:
        if not isinstance(x, NkiTensor) and not isinstance(y, NkiTensor):
            value = combine(name, np.float32(x), np.float32(y))
            return type(x)(value)
        kind = type_of(x, y, dtype)
        if is_bitwise(name):
            return bits(name, x, y, dtype)
        data, other = (x, y) if isinstance(x, NkiTensor) else (y, x)
        if exact(engine.unknown, name, kind, data, other):
            a, b = aligned(*(np.asarray(v.read() if isinstance(v, NkiTensor) else v).astype(np.int64) for v in (x, y)))
            return result(wrapped(combine(name, a, b), data.dtype), kind)
        a, b = aligned(*(np.asarray(v.read() if isinstance(v, NkiTensor) else v).astype(np.float32) for v in (x, y)))
        if name == "divide" and dtype is None and kind.kind != "float":
            kind = FLOAT32
        return result(combine(name, a, b), kind, compared=comparison)
    function.__name__ = function.__qualname__ = name
    return function


def bits(name: str, x: Any, y: Any, dtype: Any) -> Tile:
    """Combine the bits of integers, in the type to which both promote, or in uint32 if that is a float."""
    kind = type_of(x, y, None)
    common = kind if kind.kind != "float" else dtype_of("uint32")
    a, b = aligned(*(np.asarray(v.read() if isinstance(v, NkiTensor) else v).astype(np.int64) for v in (x, y)))
    values = combine_bits(name, a.astype(common.numpy), b.astype(common.numpy))
    return result(values, common if dtype is None else dtype_of(dtype))


def unary(name: str) -> Callable[..., Tile]:
    def function(x: Any, dtype: Any = None) -> Any:
        if not isinstance(x, NkiTensor):
            return type(x)(activate(name, np.float32(x)))
        kind = x.dtype if dtype is None else dtype_of(dtype)
        if name == "invert":
            return result(~x.read(), kind)
        return result(activate(name, x.read().astype(np.float32)), kind)
    function.__name__ = function.__qualname__ = name
    return function


def reduction(name: str, op: str) -> Callable[..., Tile]:
    def function(x: Tile, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tile:
        return reduced(x, axis, dtype, keepdims, lambda values: fold(op, values))
    function.__name__ = function.__qualname__ = name
    return function


def reduced(x: Tile, axis: Any, dtype: Any, keepdims: bool, of: Callable[[np.ndarray], np.ndarray]) -> Tile:
    """Reduce over the last free axes; ``of`` receives the values of a row as the last axis (6.5)."""
    axes = sorted(a % x.ndim for a in (axis if isinstance(axis, (tuple, list)) else [axis]))
    assert axes == list(range(axes[0], x.ndim)) and axes[0] > 0, "axes are the last free ones"
    leading_shape = x.shape[:axes[0]]
    values = of(x.read().astype(np.float32).reshape(*leading_shape, product(x.shape[axes[0]:])))
    if keepdims:
        values = values.reshape(*leading_shape, *(1 for _ in axes))
    return result(values, x.dtype if dtype is None else dtype_of(dtype))


def mean(x: Tile, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tile:
    return reduced(x, axis, dtype, keepdims, lambda v: fold("add", v) * np.float32(1 / v.shape[-1]))


def var(x: Tile, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tile:
    """Return the variance of the population; its axes stay."""
    return reduced(x, axis, dtype, True, lambda v: v.astype(np.float64).var(-1).astype(np.float32))


def all(x: Tile, axis: Any, dtype: Any = None) -> Tile:
    return reduced(x, axis, dtype, False, lambda v: (v != 0).all(-1).astype(np.float32))


def softmax(x: Tile, axis: Any = -1, dtype: Any = None) -> Tile:
    """Return exp(x - largest) divided by its sum, rounded once."""
    axes = tuple(a % x.ndim for a in (axis if isinstance(axis, (tuple, list)) else [axis]))
    values = x.read().astype(np.float64)
    powers = np.exp(values - values.max(axes, keepdims=True))
    return result((powers / powers.sum(axes, keepdims=True)).astype(np.float32), type_of(x, None, dtype))


def rms_norm(x: Tile, w: Tile, axis: Any, n: Any, epsilon: float = 1e-06, dtype: Any = None,
             compute_dtype: Any = None) -> Tile:
    """Return x / sqrt(sum(x * x) / n + epsilon) * w, rounded once. A ``compute_dtype`` also rounds before the product
    with w."""
    axes = tuple(a % x.ndim for a in (axis if isinstance(axis, (tuple, list)) else [axis]))
    values = x.read().astype(np.float64)
    scale = 1 / np.sqrt((values ** 2).sum(axes, keepdims=True) / n + epsilon)
    normal = values * scale
    if compute_dtype is not None:
        normal = convert(normal.astype(np.float32), dtype_of(compute_dtype)).astype(np.float64)
    return result((normal * w.read().astype(np.float64)).astype(np.float32), type_of(x, None, dtype))


def tag(name: str) -> Callable[..., Any]:
    """Return a name that is only a value of ``op=``."""
    def function(*_: Any) -> Any:
        raise TypeError(f"nl.{name} is an operator of instructions only")
    function.__name__ = function.__qualname__ = name
    return function


BINARY = ("add subtract multiply divide maximum minimum power fmod mod abs_max abs_min equal not_equal less less_equal "
          "greater greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or "
          "logical_xor").split()
UNARY = ("invert logical_not abs square exp log sqrt rsqrt reciprocal sin cos tan arctan ceil floor trunc negative sign "
         "tanh sigmoid relu gelu gelu_dx gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh silu silu_dx softplus "
         "mish erf erf_dx").split()
FUNCTIONS: dict[str, Any] = {
    **{name: binary(name) for name in BINARY}, **{name: unary(name) for name in UNARY},
    **{name: reduction(name, op) for name, op in (("sum", "add"), ("max", "maximum"), ("min", "minimum"),
                                                  ("prod", "multiply"))},
    **{name: tag(name) for name in ("average", "prelu", "bypass")},
    **{f.__name__: f for f in (mean, var, all, softmax, rms_norm)},
}
assert set(UNARY) - {"invert"} <= set(arithmetic.UNARY)
assert copy.__name__ == "copy"
