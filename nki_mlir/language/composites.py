# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language functions made of several operations: they compute in float32 and round once, at the end."""

from typing import Any

from nki_mlir.language import creation
from nki_mlir.language import operations as ops
from nki_mlir.scalar.dtypes import FLOAT32


def _count(x: Any, axis: Any) -> int:
    total = 1
    for a in ops.free_axes(x, axis):
        total *= x.shape[a]
    return total


def mean(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **ignored: Any) -> Any:
    """The mean over free axes; integer input gives float32."""
    x = creation.as_operand(x, "nl.mean")
    kind = dtype or (x.dtype if x.dtype.is_float else FLOAT32)
    total = ops.reduce("add", x, axis, mask=mask, dtype=FLOAT32, keepdims=keepdims)
    return ops.binary("multiply", total, 1.0 / _count(x, axis), dtype=kind)


def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Any:
    """The population variance over free axes."""
    center = mean(x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    deviation = ops.binary("subtract", x, center, dtype=FLOAT32, mask=mask)
    return mean(ops.unary("square", deviation, mask=mask), axis, mask=mask, dtype=dtype or x.dtype)


def softmax(x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None,
            **ignored: Any) -> Any:
    """exp(x - max(x)) / sum of it over free axes."""
    kind = compute_dtype or FLOAT32
    highest = ops.reduce("maximum", x, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    shifted = ops.binary("subtract", x, highest, mask=mask, dtype=kind)
    powers = ops.unary("exp", shifted, mask=mask, dtype=kind)
    total = ops.reduce("add", powers, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    return ops.binary("divide", powers, total, mask=mask, dtype=dtype or compute_dtype or x.dtype)


def rms_norm(x: Any, w: Any, axis: Any, n: int, epsilon: float = 1e-6, *, dtype: Any = None, compute_dtype: Any = None,
             mask: Any = None, **ignored: Any) -> Any:
    """x / sqrt(sum of x squared over ``axis`` / n + epsilon) * w."""
    squares = ops.unary("square", x, mask=mask, dtype=FLOAT32)
    total = ops.reduce("add", squares, axis, mask=mask, dtype=FLOAT32, keepdims=True)
    scaled = ops.binary("add", ops.binary("multiply", total, 1.0 / n), epsilon)
    normal = ops.binary("multiply", x, ops.unary("rsqrt", scaled), mask=mask, dtype=FLOAT32)
    return ops.binary("multiply", normal, w, mask=mask, dtype=dtype or compute_dtype or x.dtype)
