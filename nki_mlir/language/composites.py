# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language functions made of several operations: they compute in float32 and round once, at the end."""

import math
from typing import Any

from nki_mlir.frontend.builder import active
from nki_mlir.frontend.index import Mask
from nki_mlir.frontend.tensor import View
from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import Tensor
from nki_mlir.scalar.dtypes import FLOAT32, DType


def _float(x: Any) -> DType:
    """The result's dtype where none is asked for: that of the operand, float32 for integers."""
    return x.dtype if x.dtype.is_float else FLOAT32


def _count(x: View, axis: object, mask: object) -> object:
    """How many elements a reduction combines: a number, or a tile where the mask leaves some of a row out."""
    axes = ops.free_axes(x, axis)
    if isinstance(mask, Mask) and any(e.axes[a] for e, _ in mask.spread(x.shape).terms for a in axes):
        ones = creation.filled(x.shape, 1.0, FLOAT32)
        return ops.binary("maximum", ops.reduce("add", ones, axis, mask=mask, keepdims=True), 1.0)
    return math.prod(x.shape[a] for a in axes)


def mean(x: object, axis: object, *, dtype: object = None, mask: object = None, keepdims: bool = False) -> Tensor:
    """The mean over free axes; integer input gives float32. Elements that are masked out do not count."""
    x = creation.as_operand(x, "nl.mean")
    if x.mask is not None:
        mask = x.mask if mask is None else mask & x.mask
    count = _count(x, axis, mask)
    total = ops.reduce("add", x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    rows = active("nl.mean").properties["made"].where_written()
    divided = ("multiply", total, 1.0 / count) if isinstance(count, int) else ("divide", total, count)
    return ops.drop_axes(ops.binary(*divided, mask=rows, dtype=dtype or _float(x)), ops.free_axes(x, axis), keepdims)


def var(x: object, axis: object, *, dtype: object = None, mask: Mask | None = None, keepdims: bool = False) -> Tensor:
    """The population variance over free axes."""
    center = mean(x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    deviation = ops.binary("subtract", x, center, dtype=FLOAT32, mask=mask)
    squares = ops.unary("square", deviation, mask=mask)
    return mean(squares, axis, mask=mask, dtype=dtype or _float(x), keepdims=keepdims)


def softmax(x: object, axis: object, *, dtype: object = None, compute_dtype: object = None, mask: object = None
            ) -> Tensor:
    """exp(x - max(x)) / sum of it over free axes."""
    x = creation.as_operand(x, "nl.softmax")
    kind = compute_dtype or FLOAT32
    highest = ops.reduce("maximum", x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    shifted = ops.binary("subtract", x, highest, mask=mask, dtype=kind)
    powers = ops.unary("exp", shifted, mask=mask, dtype=kind)
    total = ops.reduce("add", powers, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    return ops.binary("divide", powers, total, mask=mask, dtype=dtype or compute_dtype or _float(x))


def rms_norm(x: object, w: object, axis: object, n: float, epsilon: float = 1e-6, *, dtype: object = None,
             compute_dtype: object = None, mask: object = None) -> Tensor:
    """x / sqrt(sum of x squared over ``axis`` / n + epsilon) * w."""
    x = creation.as_operand(x, "nl.rms_norm")
    squares = ops.unary("square", x, mask=mask, dtype=FLOAT32)
    total = ops.reduce("add", squares, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    scaled = ops.binary("add", ops.binary("multiply", total, 1.0 / n), epsilon)
    normal = ops.binary("multiply", x, ops.unary("rsqrt", scaled), mask=mask, dtype=compute_dtype or FLOAT32)
    return ops.binary("multiply", normal, w, mask=mask, dtype=dtype or compute_dtype or _float(x))
