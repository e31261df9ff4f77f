# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of PyTorch's scatters that upstream has no lowerings for.

Scatters along an axis that combine by a product or an extremum remain, and ``torch_lowerings`` lowers them.
"""

from collections.abc import Callable
from math import inf

import torch

aten = torch.ops.aten
NARROW = (torch.uint8, torch.int8, torch.int16)


def scatter_reduce(a: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *,
                   include_self: bool = True) -> object:
    """Combine elements of ``src`` with those of ``a`` at an index along an axis, or with one another where
    ``include_self`` is false. Elements to which none is scattered stay."""
    if not a.dim():
        result: torch.Tensor = aten.scatter_reduce.two(
            a.reshape(1), 0, index.reshape(-1), src.reshape(-1), reduce, include_self=include_self)
        return result.reshape(())
    dim, src = dim % a.dim(), src[tuple(slice(0, n) for n in index.shape)]
    around = [n for d in reversed(range(a.dim())) for n in (0, 0 if d == dim else a.shape[d] - index.shape[d])]
    if a.dtype in NARROW:
        if reduce == "mean":
            return narrow_mean(a, dim, index, src, include_self)
        wide, updates = a.to(torch.int32), src.to(torch.int32)
        result = aten.scatter_reduce.two(wide, dim, index, updates, reduce, include_self=include_self)
        return result.to(a.dtype)
    if not any(around) and include_self and reduce in ("prod", "amax", "amin"):
        return NotImplemented
    start = a
    if not include_self or reduce == "mean":
        counts = counts_of(a, dim, index)
        if not include_self:
            start = torch.where(counts > 0, torch.full((), identity_element(reduce, a.dtype), dtype=a.dtype), a)
    if reduce in ("sum", "mean"):
        result = start.scatter_add(dim, index, src)
        if reduce == "mean":
            divisor = (counts + int(include_self)).clamp(min=1)
            result = result / divisor if a.is_floating_point() else torch.div(result, divisor, rounding_mode="floor")
        return result.to(a.dtype)
    index = torch.constant_pad_nd(index, around)
    src = torch.constant_pad_nd(src, around, identity_element(reduce, a.dtype))
    result = aten.scatter_reduce.two(start, dim, index, src, reduce)
    return result


def counts_of(a: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Return how many elements are scattered to each one of ``a``."""
    return torch.zeros(a.shape, dtype=torch.int32).scatter_add(dim, index, torch.ones(index.shape, dtype=torch.int32))


def narrow_mean(a: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, include_self: bool) -> torch.Tensor:
    """Scatter means of integers of 8 or 16 bits: sums and counts wrap to the dtype before PyTorch divides them."""
    total = aten.scatter_reduce.two(a, dim, index, src, "sum", include_self=include_self)
    counts = (counts_of(a, dim, index) + int(include_self)).to(a.dtype).to(torch.int32)
    divisor = torch.where(counts == 0, 1, counts)
    return torch.div(total.to(torch.int32), divisor, rounding_mode="floor").to(a.dtype)


def identity_element(reduce: str, dtype: torch.dtype) -> float:
    """Return the identity element of a reduction."""
    if reduce not in ("amax", "amin"):
        return int(reduce == "prod")
    if dtype.is_floating_point:
        return -inf if reduce == "amax" else inf
    bounds = torch.iinfo(dtype)
    return bounds.min if reduce == "amax" else bounds.max


def index_reduce(a: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *,
                 include_self: bool = True) -> torch.Tensor:
    """Combine the slices of ``source`` along an axis with those of ``a`` at an index."""
    if a.dim():
        shape = [-1 if d == dim % a.dim() else 1 for d in range(a.dim())]
        index = index.reshape(shape).expand(source.shape)
    result: torch.Tensor = aten.scatter_reduce.two(a, dim, index, source, reduce, include_self=include_self)
    return result


def put(a: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    """Write, or add, elements at positions in the flattened tensor."""
    result: torch.Tensor = aten.index_put.default(a.flatten(), [index.flatten()], source.flatten(), accumulate)
    return result.reshape(a.shape)


SCATTERS: dict[object, Callable[..., object]] = {
    aten.scatter_reduce.two: scatter_reduce, aten.index_reduce.default: index_reduce, aten.put.default: put}
__all__ = ["SCATTERS"]
