# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pairs the operands of an instruction in iteration order: brings views with equal element counts to one shape.

Dimensions are split until all views have the same extents, then merged again where all views are dense. The order of
the elements never changes.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from nki_mlir.capture.strides import ONE_MORE, Dim
from nki_mlir.capture.tensor import View


def aligned(views: Sequence[View], first_dim: int = 1) -> list[View] | None:
    """Return the views with a common shape from dimension ``first_dim`` on, or None if their extents do not nest.

    Element counts must agree. ``first_dim`` is 1 if dimension 0 of each view is the partition.
    """
    if first_dim == 1 and all(len(v.dims) == 2 for v in views) and len({v.dims[1].count for v in views}) == 1:
        return list(views)
    tails = [v.dims[first_dim:] for v in views]
    cuts = _cuts(tails)
    if cuts is None:
        return None
    split = [_split(dims, cuts) for dims in tails]
    merged = _merged(split)
    return [v.like(dims=(*v.dims[:first_dim], *(dims or (ONE_MORE,)))) for v, dims in zip(views, merged)]


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
    """Merge neighbouring dimensions that are dense in every view."""
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
