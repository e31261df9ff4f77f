# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands that are brought to one shape, against the elements that they had, one by one."""

import itertools
import random
from dataclasses import dataclass, field, replace
from math import prod

import pytest

from nki_mlir.capture.strides import ONE_MORE, Dim
from nki_mlir.language.current import pairing

from ..capture.test_strides import elements


@dataclass(frozen=True)
class Memory:
    on_chip: bool = True


@dataclass(frozen=True)
class Operand:
    """What pairing reads of a view."""

    dims: tuple
    buffer: Memory = field(default_factory=Memory)
    partition: int = 0
    free: int = 0

    def like(self, **changes):
        return replace(self, **changes)


def dense(shape):
    return [Dim(0, prod(shape[k + 1:]), n) for k, n in enumerate(shape)]


def drawn_dims(rng, size, first):
    """Dimensions of ``size`` elements after ``first``, dense or with gaps, repeats, or steps through partitions."""
    shape, remaining = [], size
    while remaining > 1 or rng.random() < 0.2:
        shape.append(rng.choice([n for n in range(1, remaining + 1) if remaining % n == 0]))
        remaining //= shape[-1]
        if len(shape) > 3:
            shape.append(remaining)
            break
    dims = [Dim(0, d.free * rng.choice([1, 1, 1, 2]), d.count) if rng.random() < 0.8 else
            Dim(rng.randint(0, 2), rng.choice([0, 5]), d.count) for d in dense(shape)]
    if rng.random() < 0.4:
        dims = dense(shape)
    return (*[Dim(1, 0, 4)] * first, *dims)


def nest(shapes):
    """Whether the boundaries of all shapes' dimensions divide each other."""
    cuts = sorted({prod(shape[k:]) for shape in shapes for k in range(len(shape) + 1)})
    return all(b % a == 0 for a, b in itertools.pairwise(cuts))


@pytest.mark.parametrize("first", [0, 1])
def test_aligned_views__have_one_shape_and_the_same_elements(first):
    rng, kinds = random.Random(first), set()
    for _ in range(400):
        size = rng.choice([1, 4, 6, 12, 12, 24])
        of_views = tuple(drawn_dims(rng, size, first) for _ in range(rng.randint(1, 3)))
        new = pairing.aligned([Operand(dims, free=3) for dims in of_views], first)
        kinds.add(new is None)
        assert (new is not None) == nest([[d.count for d in dims[first:]] for dims in of_views]), of_views
        if new is None:
            continue
        assert len({tuple(d.count for d in view.dims[first:]) for view in new}) == 1
        assert all(view.free == 3 and elements(view.dims) == elements(dims) for view, dims in zip(new, of_views))
        assert all(view.dims[:first] == dims[:first] and len(view.dims) > first for view, dims in zip(new, of_views))
        if any(len(dims) != 2 for dims in of_views) or first == 0:        # no two neighbors are dense everywhere
            tails = [view.dims[first:] for view in new]
            assert not any(all(t[k].free == t[k + 1].free * t[k + 1].count and
                               t[k].partition == t[k + 1].partition * t[k + 1].count for t in tails)
                           for k in range(len(tails[0]) - 1))
    assert kinds == {True, False}


def test_equal_views__stay_the_objects_that_they_are():
    views = [Operand((Dim(1, 0, 4), Dim(0, 2, 6))), Operand((Dim(1, 0, 8), Dim(0, 1, 6)))]
    assert all(a is b for a, b in zip(pairing.aligned(views), views))
    split = Operand((Dim(1, 0, 4), Dim(0, 3, 2), Dim(0, 1, 3)))
    assert pairing.aligned([split])[0].dims == (Dim(1, 0, 4), Dim(0, 1, 6))
    assert pairing.aligned([Operand((Dim(1, 0, 4),)), Operand((Dim(1, 0, 2), ONE_MORE))])[0].dims == (
        Dim(1, 0, 4), ONE_MORE)


def is_operand(view):
    """Whether a view on chip steps through partitions along its first dimension alone, and no further than there are.
    """
    first, *others = view.dims
    return not view.buffer.on_chip or (first.count <= 128 and not (first.count > 1 and first.free) and not any(
        d.partition and d.count > 1 for d in others))


def test_views_of_transfers__have_one_shape_with_partitions_first():
    rng, kinds = random.Random(7), set()
    for _ in range(600):
        size = rng.choice([1, 6, 12, 24, 256])
        views = []
        for _ in range(2):
            dims, on_chip = drawn_dims(rng, size, 0), rng.random() < 0.6
            if on_chip and dims and rng.random() < 0.7:
                first = Dim(1, 0, dims[0].count)
                dims = (first, *(d for d in dense([d.count for d in dims[1:]])))
            views.append(Operand(tuple(dims), Memory(on_chip)))
        new = pairing.dma_views(*views)
        if new is None:
            kinds.add(nest([[d.count for d in view.dims] for view in views]))
            continue
        kinds.add("paired")
        assert len({tuple(d.count for d in view.dims) for view in new}) == 1 and all(len(v.dims) > 1 for v in new)
        for view, old in zip(new, views):
            assert elements(view.dims) == elements(old.dims) and is_operand(view), old
    assert kinds == {True, False, "paired"}


@pytest.mark.parametrize("chip, hbm, expected", [
    # rows of a tile, and the same number of rows
    ([Dim(1, 0, 4), Dim(0, 1, 6)], dense([4, 6]), ([Dim(1, 0, 4), Dim(0, 1, 6)], [Dim(0, 6, 4), Dim(0, 1, 6)])),
    # one partition: a row, before which both get a dimension of one
    ([Dim(1, 0, 1), Dim(0, 1, 6)], dense([6]), ([Dim(1, 0, 1), Dim(0, 1, 6)], [ONE_MORE, Dim(0, 1, 6)])),
    ([Dim(0, 1, 6)], dense([2, 3]), ([Dim(1, 0, 1), Dim(0, 1, 6)], [ONE_MORE, Dim(0, 1, 6)])),
    # elements of partitions alone
    ([Dim(1, 0, 6)], dense([2, 3]), ([Dim(1, 0, 6), ONE_MORE], [Dim(0, 1, 6), ONE_MORE])),
    # partitions that a tensor splits, too many of them, and partitions behind a free dimension
    ([Dim(1, 0, 6), Dim(0, 1, 2)], [Dim(0, 100, 2), Dim(0, 10, 3), Dim(0, 1, 2)], None),
    ([Dim(1, 0, 129)], dense([129]), None), ([Dim(0, 1, 2), Dim(1, 0, 3)], dense([6]), None),
    ([Dim(1, 0, 128)], dense([128]), ([Dim(1, 0, 128), ONE_MORE], [Dim(0, 1, 128), ONE_MORE]))])
def test_examples_of_transfers(chip, hbm, expected):
    new = pairing.dma_views(Operand(tuple(chip)), Operand(tuple(hbm), Memory(False)))
    assert (new and tuple(list(view.dims) for view in new)) == expected


def test_boxes_of_views():
    rng = random.Random(3)
    for _ in range(100):
        view = Operand(tuple(Dim(rng.randint(0, 2), rng.randint(0, 9), rng.randint(1, 4)) for _ in range(3)),
                       partition=2, free=5)
        box = [(start := rng.randrange(d.count), rng.randint(1, d.count - start)) for d in view.dims]
        part = pairing.box_of(view, box)
        every = dict(zip(itertools.product(*(range(d.count) for d in view.dims)), elements(view.dims, 2, 5)))
        assert elements(part.dims, part.partition, part.free) == [
            every[at] for at in itertools.product(*(range(start, start + count) for start, count in box))]
