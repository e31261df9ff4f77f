# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels make indices with: ``arange``, ``mgrid`` and ``ds``."""

import operator
from dataclasses import dataclass

from nki_mlir.frontend.errors import NotAffine
from nki_mlir.frontend.index import Index


def arange(*bounds: object) -> Index:
    """``arange(n)`` or ``arange(start, stop)``: one axis; place it with ``[:, None]``."""
    if not bounds:
        raise NotAffine(what="nl.arange is called without bounds; give it stop, or start and stop")
    if len(bounds) > 2:
        raise NotAffine(what="nl.arange takes no step; multiply the index instead")
    start, stop = (Index(), bounds[0]) if len(bounds) == 1 else (Index.of(bounds[0]), bounds[1])
    extent = (Index.of(stop) - start).as_int("the extent of nl.arange depends on it")
    return start.with_axes((1,), (extent,))


class MGridResult(tuple[object, ...]):
    """The indices of ``mgrid``, by position or as ``.p`` (partition), ``.x``, ``.y``, ``.z``, ``.w`` (free)."""

    p, x, y, z, w = (property(operator.itemgetter(k)) for k in range(5))


class _MGrid:
    def __getitem__(self, slices: tuple[slice, ...]) -> MGridResult:
        slices = slices if isinstance(slices, tuple) else (slices,)
        rank, made = len(slices), []
        for k, s in enumerate(slices):
            start, step = Index.of(s.start or 0) if not isinstance(s.start, Index) else s.start, s.step or 1
            length = (Index.of(s.stop) - start).as_int("the extent of nl.mgrid depends on it")
            count = max(0, -(-length // step))
            made.append(start.with_axes(tuple(step if a == k else 0 for a in range(rank)),
                                        tuple(count if a == k else 1 for a in range(rank))))
        return MGridResult(made)


mgrid = _MGrid()


@dataclass(frozen=True)
class DynamicSlice:
    """``ds(start, size)``: a slice whose start may be symbolic; ``size`` elements."""

    start: object
    size: int


def ds(start: Index | int, size: int) -> DynamicSlice:
    """The slice ``start : start + size``, whose start may be symbolic."""
    return DynamicSlice(start, operator.index(size))
