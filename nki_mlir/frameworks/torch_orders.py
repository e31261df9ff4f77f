# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of PyTorch's operators that order, search, take parts or compute distances.

Upstream has no lowerings for them.
"""

from collections.abc import Callable
from math import inf

import torch

aten = torch.ops.aten


# -- orders ------------------------------------------------------------------------------------------------------------
def sort_stable(a: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> object:
    """Sort; all sorts keep the order of equal elements."""
    return aten.sort.default(a, dim, descending)


def kth_value(a: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k-th smallest elements and their positions; PyTorch chooses any position of equal elements."""
    if not a.dim():
        return a.clone(), torch.zeros((), dtype=torch.int64)
    values, positions = aten.sort.default(a, dim)
    values, positions = (v.narrow(dim, k - 1, 1) for v in (values, positions))
    return (values, positions) if keepdim else (values.squeeze(dim), positions.squeeze(dim))


def median(ignores_nan: bool) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return the decomposition of the lower median along an axis. NaN is the greatest element: a median of numbers and
    NaN is NaN, or that of the numbers."""
    def computed(a: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        if not a.dim():
            return a.clone(), torch.zeros((), dtype=torch.int64)
        size = a.shape[dim]
        if not a.is_floating_point():
            return kth_value(a, (size + 1) // 2, dim, keepdim)
        values, positions = aten.sort.default(a, dim)
        count = (a == a).to(torch.int32).sum(dim, keepdim=True, dtype=torch.int32)      # elements that are not NaN
        at = ((count - 1) >> 1).clamp(min=0) if ignores_nan else torch.where(count == size, (size - 1) // 2, count)
        values, positions = (torch.gather(v, dim, at.to(torch.int64)) for v in (values, positions))
        return (values, positions) if keepdim else (values.squeeze(dim), positions.squeeze(dim))
    return computed


def median_of_all(ignores_nan: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda a: median(ignores_nan)(a.flatten(), 0)[0]


def mode(a: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least of the most frequent elements along an axis, and its last position. A NaN is the greatest
    and equals no other one; PyTorch's result depends on where it is."""
    if not a.dim():
        return a.clone(), torch.zeros((), dtype=torch.int64)
    values, positions = (v.movedim(dim, -1) for v in aten.sort.default(a, dim))
    count = (values.unsqueeze(-1) == values.unsqueeze(-2)).to(torch.int32).sum(-1, dtype=torch.int32).clamp(min=1)
    first, last = count.argmax(-1, keepdim=True).to(torch.int32), count.amax(-1, keepdim=True) - 1
    at = (first + last).clamp(0, a.shape[dim] - 1).to(torch.int64)
    values, positions = (torch.gather(v, -1, at).movedim(-1, dim) for v in (values, positions))
    return (values, positions) if keepdim else (values.squeeze(dim), positions.squeeze(dim))


def running(at_least: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]:
    """Return the decomposition of running extrema with the last position of each. Each step doubles the number of
    elements that a result combines."""
    def computed(a: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not a.dim() or not a.numel():
            return a.clone(), torch.zeros(a.shape, dtype=torch.int64)
        values = a.to(torch.int32) if a.dtype in (torch.bool, torch.uint8) else a
        size, distance, shape = a.shape[dim], 1, [1] * a.dim()
        shape[dim] = -1
        positions = torch.arange(size, dtype=torch.int32).reshape(shape).expand(a.shape)
        while distance < size:
            before, current = values.narrow(dim, 0, size - distance), values.narrow(dim, distance, size - distance)
            is_later = at_least(current, before)
            if a.is_floating_point():
                is_later = (is_later & (before == before)) | (current != current)
            earlier, later = positions.narrow(dim, 0, size - distance), positions.narrow(dim, distance, size - distance)
            values, positions = (torch.cat([v.narrow(dim, 0, distance), torch.where(is_later, new, old)], dim)
                                 for v, new, old in ((values, current, before), (positions, later, earlier)))
            distance *= 2
        return values.to(a.dtype), positions.to(torch.int64)
    return computed


def search_sorted(sequence: torch.Tensor, values: torch.Tensor | float, *, out_int32: bool = False,
                  right: bool = False, side: str | None = None, sorter: torch.Tensor | None = None) -> torch.Tensor:
    """Count the elements before each value: a comparison of each value with each element."""
    if sorter is not None:
        sequence = torch.gather(sequence, -1, sorter)
    thresholds = values if isinstance(values, torch.Tensor) else torch.full((), values, dtype=sequence.dtype)
    elements = sequence if sequence.dim() == 1 else sequence.unsqueeze(-2)
    after = elements > thresholds.unsqueeze(-1) if right or side == "right" else elements >= thresholds.unsqueeze(-1)
    count = torch.logical_not(after).to(torch.int32).sum(-1, dtype=torch.int32)         # all of them for NaN
    return count if out_int32 else count.to(torch.int64)


# -- parts -------------------------------------------------------------------------------------------------------------
def diagonal(a: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """Take a diagonal as a slice with steps of the flattened matrix."""
    other_dims = [d for d in range(a.dim()) if d not in (dim1 % a.dim(), dim2 % a.dim())]
    rows, columns = a.shape[dim1], a.shape[dim2]
    flat = a.permute([*other_dims, dim1 % a.dim(), dim2 % a.dim()]).reshape(
        [*(a.shape[d] for d in other_dims), rows * columns])
    first = offset if offset >= 0 else -offset * columns
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return flat[..., first:first + max(0, (count - 1) * (columns + 1) + 1):columns + 1] if count else (
        flat.new_zeros((*flat.shape[:-1], 0)))


def diagonal_scatter(a: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
                     ) -> torch.Tensor:
    """Select the elements of a diagonal from ``source``, which lies along the rows, or the columns below the main
    diagonal."""
    order = [*(d for d in range(a.dim()) if d not in (dim1 % a.dim(), dim2 % a.dim())), dim1 % a.dim(), dim2 % a.dim()]
    rows, columns = a.shape[dim1], a.shape[dim2]
    is_diagonal = torch.arange(columns) - torch.arange(rows).unsqueeze(-1) == offset
    padded = torch.nn.functional.pad(source, (0, (rows if offset >= 0 else columns) - source.shape[-1]))
    result = torch.where(is_diagonal, padded.unsqueeze(-1 if offset >= 0 else -2), a.permute(order))
    return result.permute([order.index(d) for d in range(a.dim())]).clone()


def unfolded(a: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Take the windows along a dimension by slices: one for each element of a window, or for each window."""
    if not a.dim():
        return a.reshape(1)
    dim = dimension % a.dim()
    count = (a.shape[dim] - size) // step + 1
    if size <= count:
        last = (count - 1) * step + 1
        return torch.stack([aten.slice(a, dim, k, k + last, step) for k in range(size)], -1)
    return torch.stack([a.narrow(dim, k * step, size) for k in range(count)], dim).movedim(dim + 1, -1)


# -- distances ---------------------------------------------------------------------------------------------------------
def hypotenuse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute sqrt(a^2 + b^2) from the ratio of the operands, whose square does not overflow."""
    first, second = (x.abs().float() if x.dtype in (torch.float16, torch.bfloat16) else x.abs() for x in (a, b))
    larger, smaller = torch.maximum(first, second), torch.minimum(first, second)
    ratio = torch.where(larger > 0, smaller / larger, 0.0)
    length = torch.where(smaller == inf, inf, larger * torch.sqrt(ratio * ratio + 1))
    length = torch.where((first == inf) | (second == inf), inf, length)
    return length.to(torch.result_type(a, b))


def distances(a: torch.Tensor, b: torch.Tensor, p: float, compute_mode: int | None = None) -> torch.Tensor:
    """Compute the norms of the differences of all rows."""
    difference = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
    if p == 0:
        return (difference != 0).to(a.dtype).sum(-1)
    if p == inf:
        return difference.amax(-1)
    if p == 1:
        return difference.sum(-1)
    return difference.square().sum(-1).sqrt() if p == 2 else (difference ** p).sum(-1) ** (1 / p)


def distances_backward(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, p: float, distance: torch.Tensor
                       ) -> torch.Tensor:
    """Compute the gradient of ``a``; equal rows have none."""
    difference, distance, grad = a.unsqueeze(-2) - b.unsqueeze(-3), distance.unsqueeze(-1), grad.unsqueeze(-1)
    size = difference.abs()
    if p == 0:
        return torch.zeros_like(a)
    if p == 1:
        slope = difference.sign()
    elif p == inf:
        slope = torch.where(size == distance, difference.sign(), 0.0)
    else:
        slope = difference / distance if p == 2 else difference.sign() * (size / distance) ** (p - 1)
        slope = torch.where((distance == 0) | (size == 0), 0.0, slope)
    return (grad * slope).sum(-2)


ORDERS: dict[object, Callable[..., object]] = {
    aten.sort.stable: sort_stable,
    aten.kthvalue.default: kth_value,
    aten.median.dim: median(ignores_nan=False),
    aten.nanmedian.dim: median(ignores_nan=True),
    aten.median.default: median_of_all(ignores_nan=False),
    aten.nanmedian.default: median_of_all(ignores_nan=True),
    aten.mode.default: mode,
    aten.cummax.default: running(torch.ge),
    aten.cummin.default: running(torch.le),
    aten.searchsorted.Tensor: search_sorted,
    aten.searchsorted.Scalar: search_sorted,
    aten.diagonal.default: diagonal,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.unfold.default: unfolded,
    aten.hypot.default: hypotenuse,
    aten._cdist_forward.default: distances,
    aten._cdist_backward.default: distances_backward,
}
__all__ = ["ORDERS"]
