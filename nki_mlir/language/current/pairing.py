# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pairs the operands of an instruction in iteration order: brings views with equal element counts to one shape.

Dimensions are split until all views have the same extents, then merged again where all views are dense. The order of
the elements never changes.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod

from nki_mlir.capture.strides import ONE_MORE, Dim
from nki_mlir.capture.tensor import View
from nki_mlir.machine import Machine


def how_to_fill(shape: Sequence[int], src_shape: Sequence[int], is_on_chip: bool) -> str:
    """Return the fix of a transfer into a tensor of ``shape`` from one with another number of elements."""
    if len(shape) != len(src_shape) or any(n not in (1, m) for n, m in zip(src_shape, shape)):
        return "give dst the same number of elements as src"
    repeats = [(dim, m) for dim, (n, m) in enumerate(zip(src_shape, shape)) if n != m]
    if is_on_chip and repeats[0][0] == 0:               # no view repeats a partition
        return f"to repeat src, call nl.broadcast_to(src, shape={tuple(shape)})"
    return "to repeat src, pass src=src" + "".join(f".broadcast({dim}, {m})" for dim, m in repeats)


def aligned(views: Sequence[View], first_dim: int = 1) -> list[View] | None:
    """Return the views with a common shape from dimension ``first_dim`` on, or None if their extents do not nest.

    Element counts must agree. ``first_dim`` is 1 if dimension 0 of each view is the partition.
    """
    dims = aligned_dims(tuple([v.dims for v in views]), first_dim)
    return None if dims is None else with_dims(views, dims)


def with_dims(views: Sequence[View], dims: Sequence[tuple[Dim, ...]]) -> list[View]:
    """Return views of the same starts with other dimensions."""
    return [v if v.dims == new_dims else v.like(dims=new_dims) for v, new_dims in zip(views, dims)]


@lru_cache(4096)
def aligned_dims(of_views: tuple[tuple[Dim, ...], ...], first_dim: int) -> tuple[tuple[Dim, ...], ...] | None:
    """Return the dimensions of views that ``aligned`` brings to one shape, or None."""
    if first_dim == 1 and all(len(dims) == 2 for dims in of_views) and len({dims[1].count for dims in of_views}) == 1:
        return of_views
    tails = [dims[first_dim:] for dims in of_views]
    cuts = _cuts(tails)
    if cuts is None:
        return None
    merged = _merged([_split(dims, cuts) for dims in tails])
    return tuple([(*dims[:first_dim], *(tail or (ONE_MORE,))) for dims, tail in zip(of_views, merged)])


def dma_views(*views: View) -> list[View] | None:
    """Return the views refined to one shape whose dimension 0 is the partition of each on-chip view, or None."""
    dims = _dma_dims(tuple([v.dims for v in views]), tuple([v.buffer.on_chip for v in views]))
    return None if dims is None else with_dims(views, dims)


@lru_cache(4096)
def _dma_dims(of_views: tuple[tuple[Dim, ...], ...], on_chip: tuple[bool, ...]) -> tuple[tuple[Dim, ...], ...] | None:
    """Return the dimensions of the views of ``dma_views``, or None. ``on_chip`` says which of them are."""
    all_dims = aligned_dims(of_views, 0)
    if all_dims is None:
        return None
    if any(chip and not dims[0].partition and (dims[0].free or dims[0].count > 1)      # spread over free elements
           for dims, chip in zip(all_dims, on_chip)):
        all_dims = tuple([(Dim(1, 0, 1) if chip else ONE_MORE, *dims) for dims, chip in zip(all_dims, on_chip)])
    for (partition_dim, *free_dims), chip in zip(all_dims, on_chip):
        if chip and (any(d.partition and d.count > 1 for d in free_dims) or partition_dim.count > Machine.partitions
                     or (partition_dim.free and partition_dim.count > 1)):
            return None
    return tuple([dims if len(dims) > 1 else (*dims, ONE_MORE) for dims in all_dims])


def _cuts(tails: Sequence[Sequence[Dim]]) -> list[int] | None:
    """Return the boundaries of all views' dimensions, each as the product of the extents inside it. Return None if one
    does not divide the next."""
    products = {1}
    for dims in tails:
        inside = 1
        for d in reversed(dims):
            inside *= d.count
            products.add(inside)
    cuts = sorted(products)
    return cuts if all(b % a == 0 for a, b in pairwise(cuts)) else None


def _split(dims: Sequence[Dim], cuts: Sequence[int]) -> list[Dim]:
    pieces, inside = [], 1
    for d in reversed(dims):
        outer = inside * d.count
        for a, b in pairwise(cuts):
            if inside <= a and b <= outer:
                pieces.append(Dim(d.partition * (a // inside), d.free * (a // inside), b // a))
        inside = outer
    return pieces[::-1]


def _merged(split: Sequence[list[Dim]]) -> list[tuple[Dim, ...]]:
    """Merge neighboring dimensions that are dense in every view."""
    if not split or not split[0]:
        return [() for _ in split]
    groups = [[k] for k in range(len(split[0]))]
    at = 0
    while at + 1 < len(groups):
        outer, inner = groups[at][-1], groups[at + 1][0]
        dense = all(_dense(dims[outer], dims[inner]) for dims in split)
        if dense:
            groups[at] += groups.pop(at + 1)
        else:
            at += 1
    return [tuple(Dim(dims[g[-1]].partition, dims[g[-1]].free, prod(dims[k].count for k in g)) for g in groups)
            for dims in split]


def _dense(outer: Dim, inner: Dim) -> bool:
    return outer.partition == inner.partition * inner.count and outer.free == inner.free * inner.count


def box_of(view: View, box: Sequence[tuple[int, int]]) -> View:
    """Return the part of a view given by (start, count) per dimension."""
    starts = list(zip(box, view.dims))
    return view.like(partition=view.partition + sum(start * d.partition for (start, _), d in starts),
                     free=view.free + sum(start * d.free for (start, _), d in starts),
                     dims=tuple(d._replace(count=count) for (_, count), d in starts))
