# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nl``: reductions and functions composed of them (document: 6.3). Composed functions round once, at the end."""

from collections.abc import Sequence
from math import prod as product_of
from typing import Any

import numpy as np

from ..arithmetic import Operand, fold_axes, operator, widened
from ..dtypes import BOOL, FLOAT32
from .tensors import operands, result

__all__ = ["all", "gather_flattened", "max", "mean", "min", "prod", "rms_norm", "softmax", "sum", "var"]


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    return tuple(a % rank for a in ([axis] if isinstance(axis, (int, np.integer)) else axis))


def shape_of_rows(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """Return the shape without the reduced axes, or with extent 1 there; axes of extent 1 fill it up to two."""
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    left = tuple(n for k, n in enumerate(shape) if k not in axes)
    return left + (1,) * (2 - len(left))


def any_left(active: np.ndarray | None, axes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray | None:
    """Return which results have an active operand."""
    return None if active is None else active.any(axis=axes).reshape(shape)


def reduction(op: str, x: Any, axis: Any, dtype: Any, mask: Any, keepdims: bool, default: Any = None,
              negate: bool = False) -> Any:
    active, (a,), shape = operands((x,), mask)
    axes = axes_of(axis, len(shape))
    values = average(a, axes, active) if op == "average" else fold_axes(op, a, axes, active)
    rows = shape_of_rows(shape, axes, keepdims)
    return result((-values if negate else values).reshape(rows), a.dtype if default is None else default,
                  any_left(active, axes, rows), dtype)


def average(a: Operand, axes: tuple[int, ...], active: np.ndarray | None) -> np.ndarray:
    """Return the mean of the active elements as float32."""
    left = np.ones(a.values.shape, bool) if active is None else active
    with np.errstate(all="ignore"):
        total = np.where(left, widened(a.values), 0).astype(np.float64).sum(axis=axes)
        return (total / left.sum(axis=axes)).astype(np.float32)


def sum(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Any:
    return reduction("add", x, axis, dtype, mask, keepdims)


def prod(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Any:
    return reduction("multiply", x, axis, dtype, mask, keepdims)


def max(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Any:
    return reduction("maximum", x, axis, dtype, mask, keepdims)


def min(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Any:
    return reduction("minimum", x, axis, dtype, mask, keepdims)


def all(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    return reduction("logical_and", x, axis, dtype, mask, False, BOOL)


def mean(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Any:
    """Return the mean, in float32 if x has integers."""
    return reduction("average", x, axis, dtype, mask, keepdims, floating(x.dtype))


def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Return the variance of the population: the divisor is the number of elements."""
    active, (a,), shape = operands((x,), mask)
    axes = axes_of(axis, len(shape))
    left = np.ones(shape, bool) if active is None else active
    values = widened(a.values).astype(np.float64)
    with np.errstate(all="ignore"):
        count = left.sum(axis=axes, keepdims=True)
        center = np.where(left, values, 0).sum(axis=axes, keepdims=True) / count
        spread = (np.where(left, values - center, 0) ** 2).sum(axis=axes, keepdims=True) / count
    rows = shape_of_rows(shape, axes, False)
    return result(spread.reshape(rows).astype(np.float32), floating(a.dtype), any_left(active, axes, rows), dtype)


def floating(dtype: Any) -> Any:
    """Return the dtype of composed functions: the input's if that is a float, else float32 (6.3)."""
    return dtype if dtype.kind == "float" else FLOAT32


def softmax(x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None, **_: Any) -> Any:
    """Return ``exp(x - max) / sum``."""
    active, (a,), shape = operands((x,), mask)
    axes = axes_of(axis, len(shape))
    values = widened(a.values).astype(np.float64)
    values = values if active is None else np.where(active, values, -np.inf)
    with np.errstate(all="ignore"):
        powers = np.exp(values - values.max(axis=axes, keepdims=True))
        quotients = (powers / powers.sum(axis=axes, keepdims=True)).astype(np.float32)
    return result(quotients, floating(a.dtype), active, dtype if dtype is not None else compute_dtype)


def rms_norm(x: Any, w: Any, axis: Any, n: int, epsilon: float = 1e-6, *, dtype: Any = None, compute_dtype: Any = None,
             mask: Any = None, **_: Any) -> Any:
    """Return ``x / sqrt(sum(x * x) / n + epsilon) * w``."""
    active, (a, b), shape = operands((x, w), mask, x.shape)
    axes = axes_of(axis, len(shape))
    values = widened(a.values).astype(np.float64)
    squares = values ** 2 if active is None else np.where(active, values ** 2, 0)
    with np.errstate(all="ignore"):
        size = np.sqrt(squares.sum(axis=axes, keepdims=True) / n + epsilon)
        normalized = (values / size * widened(b.values)).astype(np.float32)
    return result(normalized, floating(a.dtype), active, dtype if dtype is not None else compute_dtype)


# -- registers that rows are reduced into (7.3, 7.4) -------------------------------------------------------------------
def reduce_rows(name: str, values: np.ndarray, active: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the reduction of float32 values over all free axes as [P, 1], and the rows that have an active element."""
    axes = tuple(range(1, values.ndim))
    shape = (values.shape[0], 1)
    rows = fold_axes(name, Operand(values, FLOAT32), axes, active).reshape(shape)
    return rows, any_left(active, axes, shape)


def gathered(data: Any, indices: Any, mask: Any, dtype: Any) -> Any:
    """Return the elements of each partition at the indices, as ``nl.gather_flattened`` does (6.3)."""
    active, (places,), shape = operands((indices,), mask)
    rows = data.reshape((data.shape[0], product_of(data.shape[1:])))
    index = np.where(True if active is None else active, places.values.astype(np.int64), 0)
    taken = rows[np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1)), index]
    return result(taken.read(active), data.dtype, active, dtype)


def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    return gathered(data, indices, mask, dtype)


def tensor_reduce(op: Any, data: Any, axis: Any, *, mask: Any = None, dtype: Any = None, negate: bool = False,
                  keepdims: bool = False, **_: Any) -> Any:
    """Reduce over free axes, as ``nisa.tensor_reduce`` does; ``negate`` multiplies the result by -1 (7.4)."""
    name = "average" if operator(op) in ("mean", "average") else operator(op)
    return reduction(name, data, axis, dtype, mask, keepdims, None, negate)


def tensor_partition_reduce(op: Any, data: Any, *, mask: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Reduce [P, ...] to [1, ...], as ``nisa.tensor_partition_reduce`` does (7.5)."""
    active, (a,), shape = operands((data,), mask)
    values = fold_axes(operator(op), a, (0,), active).reshape(1, *shape[1:])
    return result(values, a.dtype, None if active is None else active.any(axis=0, keepdims=True), dtype)
