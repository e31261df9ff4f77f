# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of gradients that upstream has no lowerings for: of convolutions, pools, interpolations and shrinks.

``convolution_backward`` of one group in two dimensions has one, which stays.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch

from nki_mlir.frameworks.torch_pools import for_each_axis

aten = torch.ops.aten


def drop_positions(graph: torch.fx.Graph) -> None:
    """Remove the positions of the extrema from the operands of max pools' gradients, since upstream lowers no pool
    whose positions are read. The lowering of the gradient computes them again."""
    for target in (aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default):
        for node in graph.find_nodes(op="call_function", target=target):
            node.args = (*node.args[:-1], node.args[1])


# -- convolutions ------------------------------------------------------------------------------------------------------
def convolution(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Sequence[int] | None,
                stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
                output_padding: Sequence[int], groups: int, output_mask: Sequence[bool]) -> object:
    """Compute the gradients of input, weight and bias by convolutions."""
    if x.dim() == 4 and groups == 1 and not transposed:
        return NotImplemented
    form = stride, padding, dilation, groups
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        of_x = aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * len(stride), groups
                                ) if transposed else of_input(grad, weight, x.shape[2:], *form)
    if output_mask[1]:
        large, small = (grad, x) if transposed else (x, grad)
        of_weight = of_filter(large, small, weight.shape[2:], *form)
    if output_mask[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return of_x, of_weight, of_bias


def of_input(grad: torch.Tensor, weight: torch.Tensor, shape: Sequence[int], stride: Sequence[int],
             padding: Sequence[int], dilation: Sequence[int], groups: int) -> torch.Tensor:
    """Return the gradient of a convolution's input of this shape: the flipped filter over the gradient's elements,
    ``stride`` apart."""
    for k, size in enumerate(shape):
        reach = dilation[k] * (weight.shape[2 + k] - 1)
        grad = spread(grad, 2 + k, stride[k])
        before = reach - padding[k]
        grad = padded(grad, 2 + k, before, size + reach - before - grad.shape[2 + k])
    filters = weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2)
    filters = filters.reshape(-1, *filters.shape[2:]).flip([*range(2, weight.dim())])
    ones, zeros = [1] * len(shape), [0] * len(shape)
    result: torch.Tensor = aten.convolution(grad, filters, None, ones, zeros, dilation, False, zeros, groups)
    return result


def of_filter(x: torch.Tensor, grad: torch.Tensor, shape: Sequence[int], stride: Sequence[int],
              padding: Sequence[int], dilation: Sequence[int], groups: int) -> torch.Tensor:
    """Return the gradient of a filter of this shape: the gradient's elements, ``stride`` apart, over the input."""
    spatial_dims = range(3, x.dim() + 1)
    inputs = x.reshape(x.shape[0], groups, -1, *x.shape[2:]).permute(2, 1, 0, *spatial_dims).flatten(1, 2)
    filters = grad.transpose(0, 1)
    zeros = [0] * len(shape)
    result: torch.Tensor = aten.convolution(inputs, filters, None, dilation, padding, stride, False, zeros, groups)
    for k, size in enumerate(shape):
        result = result.narrow(2 + k, 0, size)
    return result.transpose(0, 1)


def spread(a: torch.Tensor, dim: int, step: int) -> torch.Tensor:
    """Put the elements along a dimension ``step`` apart, with zeros between."""
    if step == 1:
        return a
    zeros = a.new_zeros([*a.shape[:dim + 1], step - 1, *a.shape[dim + 1:]])
    wide = torch.cat([a.unsqueeze(dim + 1), zeros], dim + 1).flatten(dim, dim + 1)
    return wide.narrow(dim, 0, (a.shape[dim] - 1) * step + 1)


def padded(a: torch.Tensor, dim: int, before: int, after: int) -> torch.Tensor:
    """Add zeros before and after a dimension; negative numbers cut elements off."""
    start, end = max(0, -before), a.shape[dim] - max(0, -after)
    a = a.narrow(dim, start, end - start)
    return torch.constant_pad_nd(a, [*[0, 0] * (a.dim() - 1 - dim), max(0, before), max(0, after)])


def unfolded(grad: torch.Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int) -> torch.Tensor:
    """Add the windows along a dimension: by elements of a window, or one by one."""
    axis, extent, total = dim % len(input_sizes), input_sizes[dim], None
    count = grad.shape[axis]
    for k in range(min(size, count)):
        if size <= count:
            part, first = spread(grad.select(-1, k), axis, step), k
        else:
            part, first = grad.select(axis, k).movedim(-1, axis), k * step
        part = padded(part, axis, first, extent - first - part.shape[axis])
        total = part if total is None else total + part
    return grad.new_zeros(input_sizes) if total is None else total


# -- pools and interpolations ------------------------------------------------------------------------------------------
def average_pool(rank: int) -> Callable[..., object]:
    """Distribute each mean's gradient over its window, of the last ``rank`` dimensions."""
    def computed(grad: torch.Tensor, x: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int],
                 padding: Sequence[int], ceil_mode: bool, count_include_pad: bool, divisor_override: int | None
                 ) -> object:
        if ceil_mode:
            return NotImplemented
        sizes, steps, pads = for_each_axis(rank, kernel_size, stride or kernel_size, padding)
        grad = grad.reshape(-1, 1, *grad.shape[-rank:])
        if divisor_override is not None:
            grad = grad / divisor_override
        elif count_include_pad or not any(pads):
            grad = grad / prod(sizes)
        else:
            ones, zeros = torch.ones([1, 1, *x.shape[-rank:]], dtype=x.dtype), [0] * rank
            window = torch.ones([1, 1, *sizes], dtype=x.dtype)
            grad = grad / aten.convolution(ones, window, None, steps, pads, [1] * rank, False, zeros, 1)
        window = torch.ones([1, 1, *sizes], dtype=grad.dtype)
        return of_input(grad, window, x.shape[-rank:], steps, pads, [1] * rank, 1).reshape(x.shape)
    return computed


def adaptive_average_pool(rank: int) -> Callable[..., torch.Tensor]:
    """Distribute each mean's gradient over its window, of the last ``rank`` dimensions."""
    def computed(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        for d in range(-rank, 0):
            size, results = x.shape[d], grad.shape[d]
            number, position = torch.arange(results).unsqueeze(-1), torch.arange(size)
            start, end = number * size // results, ((number + 1) * size + results - 1) // results
            means = ((position >= start) & (position < end)).to(grad.dtype) / (end - start).to(grad.dtype)
            grad = (grad.movedim(d, -1) @ means).movedim(-1, d)
        return grad
    return computed


def nearest(grad: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], scale_h: float | None = None,
            scale_w: float | None = None) -> torch.Tensor:
    def reads(size: int, results: int, factor: float | None) -> torch.Tensor:
        """Return the matrix that reads each result's element, [results, size]."""
        step = size / results if factor is None else 1 / factor
        elements = (torch.arange(results, dtype=torch.float32) * step).floor().clamp(max=size - 1)
        return (torch.arange(size, dtype=torch.float32) == elements.unsqueeze(-1)).to(grad.dtype)
    return by_matrices(grad, reads(input_size[2], output_size[0], scale_h),
                       reads(input_size[3], output_size[1], scale_w))


def bilinear(grad: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool,
             scale_h: float | None = None, scale_w: float | None = None) -> torch.Tensor:
    def weights(size: int, results: int, factor: float | None) -> torch.Tensor:
        """Return the matrix of the weights of each result's two elements, [results, size]."""
        number, position = torch.arange(results, dtype=torch.float32), torch.arange(size, dtype=torch.float32)
        if align_corners:
            at = number * ((size - 1) / (results - 1) if results > 1 else 0.0)
        else:
            at = ((number + 0.5) * (size / results if factor is None else 1 / factor) - 0.5).clamp(min=0.0)
        first = at.floor().clamp(max=size - 1).unsqueeze(-1)
        second, share = (first + 1).clamp(max=size - 1), at.unsqueeze(-1) - first
        return (torch.where(position == first, 1 - share, 0.0) + torch.where(position == second, share, 0.0)
                ).to(grad.dtype)
    return by_matrices(grad, weights(input_size[2], output_size[0], scale_h),
                       weights(input_size[3], output_size[1], scale_w))


def by_matrices(grad: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the elements from which ``rows @ x @ columns.T`` is computed."""
    return rows.t() @ (grad @ columns)


def shrink(grad: torch.Tensor, x: torch.Tensor, limit: float) -> torch.Tensor:
    """Return the gradient of ``hardshrink`` and ``softshrink``: 0 where ``-limit <= x <= limit``."""
    return torch.where((x >= -limit) & (x <= limit), torch.zeros_like(grad), grad)


GRADIENTS: dict[object, Callable[..., object]] = {
    aten.convolution_backward.default: convolution,
    aten.unfold_backward.default: unfolded,
    aten.hardshrink_backward.default: shrink,
    aten.softshrink_backward.default: shrink,
    aten.avg_pool2d_backward.default: average_pool(2),
    aten.avg_pool3d_backward.default: average_pool(3),
    aten._adaptive_avg_pool2d_backward.default: adaptive_average_pool(2),
    aten._adaptive_avg_pool3d_backward.default: adaptive_average_pool(3),
    aten.upsample_nearest2d_backward.default: nearest,
    aten.upsample_bilinear2d_backward.default: bilinear,
}
__all__ = ["GRADIENTS", "drop_positions"]
