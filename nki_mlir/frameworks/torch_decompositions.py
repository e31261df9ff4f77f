# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of PyTorch's operators that the upstream passes to StableHLO lower wrongly or reject."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch._decomp import get_decompositions

from nki_mlir.frameworks.torch_attention import ATTENTION
from nki_mlir.frameworks.torch_bags import BAGS
from nki_mlir.frameworks.torch_gradients import GRADIENTS
from nki_mlir.frameworks.torch_losses import LOSSES
from nki_mlir.frameworks.torch_operator import map_by_calls
from nki_mlir.frameworks.torch_orders import ORDERS
from nki_mlir.frameworks.torch_pools import POOLS
from nki_mlir.frameworks.torch_scatters import SCATTERS

aten = torch.ops.aten


def decompositions(upstream: Mapping[Any, Callable[..., object]]) -> dict[Any, Callable[..., object]]:
    """Return the decompositions of an exported program: those of this module, then those that ``upstream`` expects."""
    table = dict(upstream) | OWN
    return table | {op: with_an_axis(op, table.get(op)) for op in ALONG_AXES}


def nearest_by_vectors(graph: torch.fx.Graph) -> None:
    """Let nearest interpolations that PyTorch has traced in gradients be the operator that has a decomposition."""
    for node in graph.find_nodes(op="call_function", target=aten.upsample_nearest2d.default):
        a, size, *factors = node.args
        node.target = aten.upsample_nearest2d.vec
        node.args = (a, size, None) if None in factors or len(factors) < 2 else (a, None, factors)


def with_an_axis(op: Callable[..., Any], decomposed: Callable[..., object] | None) -> Callable[..., object]:
    """Compute an operator of a tensor without axes along an axis of one element."""
    def computed(a: torch.Tensor, *arguments: object, **keywords: object) -> object:
        if a.dim():
            return NotImplemented if decomposed is None else decomposed(a, *arguments, **keywords)
        result = op(a[None], *(v[None] if isinstance(v, torch.Tensor) and not v.dim() else v for v in arguments),
                    **keywords)
        return tuple(r.reshape(()) for r in result) if isinstance(result, tuple) else result.reshape(())
    return computed


def same_dtype(a: Any, b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Convert both operands to tensors of the dtype to which PyTorch promotes them."""
    dtype = torch.result_type(a, b)
    first, second = (x.to(dtype) if isinstance(x, torch.Tensor) else torch.full((), x, dtype=dtype) for x in (a, b))
    return first, second


def remainder(a: object, b: Any) -> torch.Tensor:
    """Compute the remainder with the divisor's sign, as PyTorch does; StableHLO's has the dividend's."""
    negative = b < 0
    a, b = same_dtype(a, b)
    result = aten.fmod.Tensor(a, b)
    return torch.where((result != 0) & ((result < 0) != negative), result + b, result)


def fmod(a: torch.Tensor, b: object) -> object:
    return aten.fmod.Tensor(*same_dtype(a, b))


def fmod_of_tensors(a: torch.Tensor, b: torch.Tensor) -> object:
    """Broadcast the operands, which ``torch_lowerings`` expects."""
    if a.shape == b.shape and a.dtype == b.dtype:
        return NotImplemented
    return aten.fmod.Tensor(*torch.broadcast_tensors(*same_dtype(a, b)))


def floor_divide(a: Any, b: Any) -> object:
    """Compute the quotient rounded down as PyTorch does, from the exact remainder: 1 // 0.1 is 9, where the rounded
    quotient is 10."""
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        return floor_divide_integers(*same_dtype(a, b))
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    first, second = torch.broadcast_tensors(*(
        x.to(dtype).to(wide) if isinstance(x, torch.Tensor) else torch.full((), x, dtype=wide) for x in (a, b)))
    ratio, left = first / second, aten.fmod.Tensor(first, second)
    quotient = (first - left) / second
    quotient = torch.where((left != 0) & ((second < 0) != (left < 0)), quotient - 1, quotient)
    floor = torch.floor(quotient)
    floor = torch.where(quotient - floor > 0.5, floor + 1, floor)
    result = torch.where(quotient == 0, ratio * 0.0, floor)             # a zero has the sign of the quotient
    return torch.where(second == 0, ratio, result).to(dtype)


def floor_divide_integers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute the quotient rounded down from the one rounded towards 0: upstream computes in float64."""
    quotient = aten.div.Tensor_mode(a, b, rounding_mode="trunc")
    left = a - quotient * b
    return torch.where((left != 0) & ((left < 0) != (b < 0)), quotient - 1, quotient)


def divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> object:
    return floor_divide(a, b) if rounding_mode == "floor" else NotImplemented


def sign(a: torch.Tensor) -> torch.Tensor:
    """Compute the sign by comparisons: upstream compares with an integer, which is wrong for constant tensors."""
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)


def truncate(a: torch.Tensor) -> torch.Tensor:
    """Round towards 0 with the sign of the number: upstream multiplies by the sign, which is +0 for -0."""
    return torch.where(a < 0, torch.ceil(a), torch.floor(a)) if a.is_floating_point() else a.clone()


def fraction(a: torch.Tensor) -> torch.Tensor:
    return a - truncate(a)


def elu(a: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> torch.Tensor:
    """Compute ``expm1`` of negative numbers and zeros: upstream subtracts 1 from the exponential, which cancels the
    digits of small numbers."""
    wide = a.float() if a.dtype in (torch.float16, torch.bfloat16) else a
    below = torch.expm1(wide * input_scale) * (alpha * scale)
    return torch.where(wide <= 0, below, wide * scale).to(a.dtype)


def leaky_relu(a: torch.Tensor, slope: float = 0.01) -> torch.Tensor:
    """Select by the sign: upstream adds extrema, which turn -0 into +0."""
    return torch.where(a > 0, a, a * slope)


def variance(a: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None,
             keepdim: bool = False) -> torch.Tensor:
    """Compute the variance in float32, as PyTorch does: upstream computes in float64, which engines lack."""
    dims = [*range(a.dim())] if not dim else list(dim)
    wide = a.float() if a.dtype in (torch.float16, torch.bfloat16) else a
    mean = wide.mean(dims, keepdim=True) if dims else wide          # upstream crashes on a mean along no axis
    squares = (wide - mean).square()
    if dims:
        squares = squares.sum(dims, keepdim=keepdim)
    count = prod(a.shape[d] for d in dims)
    return (squares / max(0.0, count - (1 if correction is None else correction))).to(a.dtype)


def deviation(a: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None,
              keepdim: bool = False) -> torch.Tensor:
    return variance(a, dim, correction=correction, keepdim=keepdim).sqrt()


def variance_and_mean(a: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None,
                      keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    dims = [*range(a.dim())] if not dim else list(dim)
    mean = a.mean(dims, keepdim=keepdim) if dims else a.clone()
    return variance(a, dims, correction=correction, keepdim=keepdim), mean


def roll(a: torch.Tensor, shifts: list[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """Roll by any shift: upstream takes no slice out of an axis of one element."""
    if not dims:
        return roll(a.flatten(), shifts, [0]).reshape(a.shape)
    for shift, axis in zip(shifts, dims):
        size = a.shape[axis]
        if size and (offset := shift % size):
            a = torch.cat([a.narrow(axis, size - offset, offset), a.narrow(axis, 0, size - offset)], axis)
    return a.clone()


def add(a: torch.Tensor, b: Any, *, alpha: float = 1) -> object:
    """Add truth values as PyTorch does; upstream drops the carry of two."""
    is_truth = isinstance(b, torch.Tensor) and a.dtype == b.dtype == torch.bool and alpha == 1
    return torch.logical_or(a, b) if is_truth else NotImplemented


def index_put(a: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
              ) -> object:
    """Write, or add, one number or one row under a mask of the first axes; upstream lowers these only at indices that
    are numbers."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.dtype != torch.bool:
        return NotImplemented
    row_rank = a.dim() - mask.dim()
    if values.dim() > row_rank and values.shape[0] == 1:
        values = values.reshape(values.shape[1:])
    if values.dim() > row_rank:
        return NotImplemented
    return torch.where(mask.reshape([*mask.shape, *[1] * row_rank]), a + values if accumulate else values, a)


def threshold(a: torch.Tensor, limit: float, value: float) -> torch.Tensor:
    """Compare in the dtype of the tensor; upstream compares in float64."""
    return torch.where(a <= limit, torch.full((), value, dtype=a.dtype), a)


def of_bytes(op: Callable[..., object]) -> Callable[..., object]:
    """Compute an operator in int32 if all tensors are uint8 or bool, which upstream treats as signed here."""
    def computed(*arguments: object, **keywords: object) -> Any:
        dtypes = {a.dtype for a in arguments if isinstance(a, torch.Tensor)}
        if dtypes not in ({torch.uint8}, {torch.bool}):
            return NotImplemented
        dtype, = dtypes
        result = op(*(a.to(torch.int32) if isinstance(a, torch.Tensor) else a for a in arguments), **keywords)
        result_tuple = result if isinstance(result, tuple) else (result,)
        results = tuple(r.to(dtype) if r.dtype == torch.int32 else r for r in result_tuple)
        return results if isinstance(result, tuple) else results[0]
    return computed


def truth(op: Any) -> Callable[..., object]:
    """Compare bytes with 0 before ``any`` and ``all``: upstream combines their bits."""
    def computed(a: torch.Tensor, *arguments: object, **keywords: object) -> object:
        return op(a != 0, *arguments, **keywords).to(a.dtype) if a.dtype == torch.uint8 else NotImplemented
    return computed


def clamp(a: torch.Tensor, low: float | None = None, high: float | None = None) -> object:
    """Clamp integers on one side by an extremum: upstream clamps at the least or greatest number on the other."""
    bounds = [bound for bound in (low, high) if bound is not None]
    if a.dtype not in (torch.int32, torch.int64) or len(bounds) != 1 or not isinstance(bounds[0], int):
        return NotImplemented
    limit = torch.full((), bounds[0], dtype=a.dtype)
    return torch.minimum(a, limit) if low is None else torch.maximum(a, limit)


def absolute(a: torch.Tensor) -> object:
    return a.clone() if a.dtype == torch.uint8 else NotImplemented


def is_close(a: torch.Tensor, b: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
             ) -> torch.Tensor:
    """Compute whether numbers are equal, or finite and at most ``atol`` + ``rtol`` |b| apart."""
    equal = a == b
    if equal_nan and a.is_floating_point():
        equal = equal | (a.isnan() & b.isnan())
    if rtol == atol == 0:
        return equal
    distance = (a - b).abs()
    if not b.is_floating_point():
        return equal | (distance <= atol + (rtol * b.to(torch.get_default_dtype())).abs())
    return equal | (distance.isfinite() & (distance <= atol + (rtol * b).abs()))


def of_one_dtype(op: Callable[..., torch.Tensor]) -> Callable[[object, object], torch.Tensor]:
    """Compute an operator of two tensors for operands of different dtypes, or for a number."""
    return lambda a, b: op(*same_dtype(a, b))


BYTES = (aten.amax.default, aten.amin.default, aten.max.default, aten.min.default, aten.max.dim, aten.min.dim,
         aten.argmax.default, aten.argmin.default, aten.bitwise_right_shift.Tensor)
TRUTHS = (aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims)
# Operators along an axis. For a tensor without axes upstream rejects them, crashes or does not terminate.
ALONG_AXES = (
    aten._softmax.default, aten._log_softmax.default, aten.logsumexp.default, aten.softmax.int, aten.log_softmax.int,
    aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default, aten.prod.dim_int, aten.any.dim,
    aten.all.dim, aten.cumsum.default, aten.flip.default, aten.gather.default, aten.index_select.default,
    aten.sort.default, aten.topk.default, aten.var.correction, aten.std.correction, aten.var_mean.correction)
OWN: dict[object, Callable[..., object]] = {
    **{op: decomposed for op, decomposed in get_decompositions(
        [aten.native_layer_norm.default, aten.native_group_norm.default, aten.upsample_nearest2d.vec]).items()},
    **ORDERS,
    **LOSSES,
    **POOLS,
    **SCATTERS,
    **ATTENTION,
    **BAGS,
    **GRADIENTS,
    torch.ops.nki.map.default: map_by_calls,
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.fmod.Scalar: fmod,
    aten.fmod.Tensor: fmod_of_tensors,
    aten.floor_divide.default: floor_divide,
    aten.div.Tensor_mode: divide,
    aten.div.Scalar_mode: divide,
    aten.sign.default: sign,
    aten.trunc.default: truncate,
    aten.frac.default: fraction,
    aten.elu.default: elu,
    aten.leaky_relu.default: leaky_relu,
    aten.roll.default: roll,
    aten.add.Tensor: add,
    aten.index_put.default: index_put,
    aten.threshold.default: threshold,
    aten.isclose.default: is_close,
    aten.var.correction: variance,
    aten.std.correction: deviation,
    aten.var_mean.correction: variance_and_mean,
    aten.abs.default: absolute,
    aten.clamp.default: clamp,
    aten.__lshift__.Scalar: of_one_dtype(aten.bitwise_left_shift.Tensor),
    aten.__lshift__.Tensor: of_one_dtype(aten.bitwise_left_shift.Tensor),
    aten.__rshift__.Scalar: of_one_dtype(aten.bitwise_right_shift.Tensor),
    aten.__rshift__.Tensor: of_one_dtype(aten.bitwise_right_shift.Tensor),
    **{form: of_one_dtype(op.Tensor) for op in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)
       for form in (op.Scalar, op.Scalar_Tensor)},
    **{op: of_bytes(op) for op in BYTES},
    **{op: truth(op) for op in TRUTHS},
}
