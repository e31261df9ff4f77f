# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of PyTorch's pools that upstream lowers wrongly or rejects."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

aten = torch.ops.aten


def for_each_axis(rank: int, *arguments: Sequence[int]) -> list[list[int]]:
    """Return arguments of a pool with a number for each of ``rank`` axes; an argument may have one number for all."""
    return [[*argument] * (rank // len(argument)) for argument in arguments]


# -- maxima ------------------------------------------------------------------------------------------------------------
def max_pool(op: Any, rank: int) -> Callable[..., object]:
    """Pad before a max pool whose last windows leave the tensor (``ceil_mode``): upstream pads both sides alike. If the
    positions are read, upstream also takes a missing stride for 1."""
    def computed(a: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
                 dilation: Sequence[int] = (1,), ceil_mode: bool = False) -> object:
        sizes, steps, pads, dilations = for_each_axis(rank, kernel_size, stride or kernel_size, padding, dilation)
        if not ceil_mode:
            return NotImplemented if stride else op(a, sizes, steps, pads, dilations)
        shape, around = a.shape[-rank:], list[int]()
        for extent, size, step, pad, apart in zip(shape, sizes, steps, pads, dilations):
            reach = extent_of_windows(extent, apart * (size - 1) + 1, step, pad)
            around[:0] = [pad, max(0, reach - extent - pad)]
        lowest = float("-inf") if a.is_floating_point() else torch.iinfo(a.dtype).min
        wide = torch.constant_pad_nd(a, around, lowest)
        values, positions = op(wide, sizes, steps, [0] * rank, dilations)
        at = torch.zeros_like(positions)
        for k, (extent, pad, apart) in enumerate(zip(shape, pads, dilations)):
            inner = prod(wide.shape[a.dim() - rank + k + 1:])
            number = torch.remainder(torch.div(positions, inner, rounding_mode="floor"),
                                     wide.shape[a.dim() - rank + k]) - pad
            # the position of a window with only lowest numbers is that of its first element, which may be padding
            at = at * extent + torch.where(number < 0, torch.remainder(number, apart), number)
        return values, at
    return computed


def adaptive_max_pool(rank: int) -> Callable[..., object]:
    """Compute maxima, and their positions, of windows along each of the last ``rank`` dimensions, whose sizes differ by
    one where the number of windows does not divide the extent."""
    def computed(a: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        values = a.to(torch.int32) if a.dtype == torch.uint8 else a
        positions = torch.arange(prod(a.shape[-rank:]), dtype=torch.int32).reshape(a.shape[-rank:]).expand(a.shape)
        for axis, count in zip(range(a.dim() - rank, a.dim()), output_size):
            at = window_elements(a.shape[axis], count)
            shape = [*values.shape[:axis], *at.shape, *values.shape[axis + 1:]]
            windows, numbers = (v.reshape(shape) if at.numel() == v.shape[axis] else torch.index_select(
                v, axis, at.flatten()).reshape(shape) for v in (values, positions))
            values, positions = greatest(windows, numbers, axis + 1)
        return values.to(a.dtype), positions.to(torch.int64)
    return computed


def window_elements(size: int, count: int) -> torch.Tensor:
    """Return the elements of each of ``count`` windows over an axis, [window, element]. A window with fewer elements
    than others has its last one several times."""
    ends = [-(-(n + 1) * size // count) for n in range(count)]
    width = max(end - n * size // count for n, end in enumerate(ends))
    number = torch.arange(count).unsqueeze(-1)
    start, end = number * size // count, ((number + 1) * size + count - 1) // count
    return torch.minimum(start + torch.arange(width), end - 1)


def greatest(values: torch.Tensor, positions: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the element that a max pool chooses along an axis, and its position: the last NaN, else the first of the
    greatest elements."""
    result = values.amax(axis)
    end = torch.iinfo(torch.int32).max
    first = torch.where(values == result.unsqueeze(axis), positions, end).amin(axis)
    if values.is_floating_point():
        last_nan = torch.where(values != values, positions, -1).amax(axis)
        first = torch.where(last_nan >= 0, last_nan, first)
    return result, first


def adaptive_max_pool_gradient(rank: int) -> Callable[..., torch.Tensor]:
    """Add each gradient to the element at its position in the last ``rank`` dimensions."""
    def computed(grad: torch.Tensor, a: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        grad, positions = (v.flatten(-rank) for v in (grad, positions))
        zeros = torch.zeros([*a.shape[:-rank], prod(a.shape[-rank:])], dtype=a.dtype)
        return zeros.scatter_add(-1, positions, grad).reshape(a.shape)
    return computed


# -- means -------------------------------------------------------------------------------------------------------------
def adaptive_average_pool(a: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    """Compute the means of windows along each of the last three dimensions."""
    wide = a.float() if a.is_floating_point() and a.dtype.itemsize < 4 else a
    for axis, count in zip((-3, -2, -1), output_size):
        size = a.shape[axis]
        windows = [(n * size // count, -(-(n + 1) * size // count)) for n in range(count)]
        wide = torch.stack([wide.narrow(axis, start, end - start).mean(axis) for start, end in windows], axis)
    return wide.to(a.dtype)


def average_pool(rank: int) -> Callable[..., object]:
    """Add the windows of a pool with ``ceil_mode``, which may leave the padded tensor, and divide each sum by the
    number of its elements: upstream refuses it. Upstream ignores a divisor in three dimensions."""
    def computed(a: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None
                 ) -> object:
        if not ceil_mode and (rank == 2 or divisor_override is None):
            return NotImplemented
        sizes, steps, pads = for_each_axis(rank, kernel_size, stride or kernel_size, padding)
        shape, none = a.shape[-rank:], [0] * rank
        after = [pad + max(0, extent_of_windows(n, size, step, pad) - n - 2 * pad) if ceil_mode else pad
                 for n, size, step, pad in zip(shape, sizes, steps, pads)]

        def sums(x: torch.Tensor, leading: Sequence[int], trailing: Sequence[int]) -> torch.Tensor:
            x = torch.constant_pad_nd(x, [n for ends in reversed([*zip(leading, trailing)]) for n in ends])
            result: torch.Tensor = aten.convolution(
                x.reshape(-1, 1, *x.shape[-rank:]), torch.ones([1, 1, *sizes], dtype=x.dtype), None, steps, none,
                [1] * rank, False, none, 1)
            return result.reshape(*x.shape[:-rank], *result.shape[-rank:])
        wide = a.float() if a.dtype in (torch.float16, torch.bfloat16) else a
        total = sums(wide, pads, after)
        if divisor_override is not None:
            return (total / divisor_override).to(a.dtype)
        counted = [n + 2 * pad for n, pad in zip(shape, pads)] if count_include_pad else shape
        leading, trailing = (none, [n - pad for n, pad in zip(after, pads)]) if count_include_pad else (pads, after)
        count = sums(torch.ones([*counted], dtype=wide.dtype), leading, trailing)
        return (total / count).to(a.dtype)
    return computed


def extent_of_windows(extent: int, size: int, step: int, pad: int) -> int:
    """Return the elements that the windows of a pool with ``ceil_mode`` reach over, of a padded axis; the last window
    begins in the axis or in the padding before it."""
    last = -(-(extent + 2 * pad - size) // step) * step
    return last - (step if last >= extent + pad else 0) + size


POOLS: dict[object, Callable[..., object]] = {
    aten.adaptive_max_pool2d.default: adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: adaptive_max_pool(3),
    aten.adaptive_max_pool2d_backward.default: adaptive_max_pool_gradient(2),
    aten.adaptive_max_pool3d_backward.default: adaptive_max_pool_gradient(3),
    aten.avg_pool2d.default: average_pool(2),
    aten.avg_pool3d.default: average_pool(3),
    aten.max_pool2d_with_indices.default: max_pool(aten.max_pool2d_with_indices, 2),
    aten.max_pool3d_with_indices.default: max_pool(aten.max_pool3d_with_indices, 3),
    aten._adaptive_avg_pool3d.default: adaptive_average_pool,
}
__all__ = ["POOLS"]
