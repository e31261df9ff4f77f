# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts, shapes and forms of parts against NumPy's views of arrays that have the number of each element."""

import itertools
import random
from math import prod

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from nki_mlir.capture import part_forms, strides
from nki_mlir.capture.affine import Affine
from nki_mlir.capture.errors import BadStep, BadSubscript, RankTooSmall, TooManySubscripts, TwoEllipses
from nki_mlir.capture.index import DynamicSlice, Index, Mask
from nki_mlir.capture.strides import ONE_MORE, Dim, Limit, Shape
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.verifier import TooManyPartitions
from nki_mlir.scalar.dtypes import BY_NAME

from .test_affine import RUNS, I, drawn, values

F32 = BY_NAME["float32"]


def elements(dims, partition=0, free=0):
    """The partition and the free offset of each element of a view, in the order of its dimensions."""
    places = [(partition, free)]
    for d in dims:
        places = [(p + k * d.partition, f + k * d.free) for p, f in places for k in range(d.count)]
    return places


def numbered(shape):
    return np.arange(prod(shape)).reshape(shape)


def hbm(shape):
    return part_forms.complete_dims(tuple(shape), None)


# -- reshaping ---------------------------------------------------------------------------------------------------------
def shapes_of(size, most=4):
    """All shapes of up to ``most`` dimensions with so many elements."""
    if most == 0:
        return [()] if size == 1 else []
    return [()] * (size == 1) + [(n, *rest) for n in range(1, size + 1) if size % n == 0
                                 for rest in shapes_of(size // n, most - 1)]


def is_view(array, shape):
    try:
        return array.reshape(shape, copy=False)
    except ValueError:
        return None


def test_reshaped_strides__are_those_of_numpys_views():
    rng, kinds = random.Random(1), set()
    for _ in range(300):
        base = np.zeros([rng.randint(1, 4) for _ in range(rng.randint(1, 3))], np.int8)
        array = base.transpose(rng.sample(range(base.ndim), base.ndim))
        if rng.random() < 0.3:
            array = array[..., ::2]
        for shape in rng.sample(every := shapes_of(array.size), min(8, len(every))):
            steps, view = strides.reshaped(array.shape, array.strides, shape), is_view(array, shape)
            kinds.add(steps is None)
            assert (steps is None) == (view is None), (array.shape, array.strides, shape)
            if view is not None:
                assert [s for s, n in zip(steps, shape) if n > 1] == [s for s, n in zip(view.strides, shape) if n > 1]
    assert kinds == {True, False}


@pytest.mark.parametrize("shape", [(2, 2), (5,), (4, 2), (3, 2), (1,), ()])
def test_other_numbers_of_elements__have_no_strides(shape):
    assert prod(shape) == 6 or strides.reshaped((2, 3), (3, 1), shape) is None


def test_regrouped_dims__have_the_same_elements():
    rng = random.Random(2)
    for _ in range(300):
        dims = [Dim(0, rng.choice([0, 1, 2, 3, 6, 12]), rng.randint(1, 4)) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.6:
            dims = list(hbm([d.count for d in dims]))
        for shape in rng.sample(every := shapes_of(prod(d.count for d in dims)), min(8, len(every))):
            new = strides.regrouped(dims, shape)
            if new is not None:
                assert [d.count for d in new] == list(shape) and elements(new) == elements(dims)
                assert all(d == ONE_MORE for d in new if d.count == 1)
            else:
                source = as_strided(np.zeros(64, np.int8), [d.count for d in dims], [d.free for d in dims])
                assert any(d.free == 0 and d.count > 1 for d in dims) or is_view(source, shape) is None
    assert strides.regrouped(hbm((2, 3)), (0, 6)) is None
    assert strides.regrouped([Dim(0, 0, 4), Dim(0, 1, 3)], (4, 1, 3)) == [Dim(0, 0, 4), ONE_MORE, Dim(0, 1, 3)]
    assert strides.regrouped([Dim(0, 0, 4)], (2, 2)) is None


@pytest.mark.parametrize("shape", [(2, 3), (6,), (-1,), (-1, 2), (3, -1), (-1, 4), (-1, -1), (4, 2), (0, -1), (7,),
                                   (-2, -3), (-1, 6), (1, 6, -1), (-6,), (), (-1, -6)])
def test_known_extents__are_those_of_numpy(shape):
    try:
        expected = np.zeros(6).reshape(shape).shape if min(shape, default=0) >= -1 else None
    except ValueError:
        expected = None
    assert strides.known_extents(shape, 6) == expected
    assert strides.known_extents(tuple(map(np.int64, shape)), 6) == expected


# -- subscripts --------------------------------------------------------------------------------------------------------
def drawn_item(rng, extent):
    """A subscript of one dimension, which may leave it, and the NumPy subscript that it means; None for a mistake."""
    match rng.randrange(6):
        case 0:
            n = rng.randint(-extent - 1, extent)
            return n, n if -extent <= n < extent else None
        case 1:
            start, size = rng.randint(-1, extent), rng.randint(0, 3)
            return DynamicSlice(start, size), (slice(start, start + size) if 0 <= start and size and
                                               start + size <= extent else None)
        case 2:
            return slice(None), slice(None)
        case 3:
            item = slice(None, None, rng.choice([1, 2, 3, 5, 0, -1]))
            return item, item if item.step > 0 else None
    item = slice(rng.choice([None, rng.randint(-extent - 1, extent + 1)]),
                 rng.choice([None, rng.randint(-extent - 1, extent + 2)]), rng.choice([None, 1, 2, 3]))
    start, stop = (n + extent if n is not None and n < 0 else n for n in (item.start, item.stop))
    start, stop, step = 0 if start is None else start, extent if stop is None else stop, item.step or 1
    numbers = range(start, stop, step)
    return item, item if len(numbers) and numbers[0] >= 0 and numbers[-1] < extent else None


def test_parts__have_the_elements_that_numpy_selects():
    """An integer removes its dimension. Subscripts that leave their dimension, or select nothing, are left to others."""
    rng, kinds = random.Random(3), set()
    for _ in range(1500):
        shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
        items, meant = zip(*[drawn_item(rng, n) for n in shape])
        if rng.random() < 0.2:
            at = rng.randint(0, len(items))
            items, meant = (*items[:at], Ellipsis, *items[at + rng.randint(0, 1):]), None
            written = [i if not isinstance(i, DynamicSlice) else slice(i.start, i.start + i.size) for i in items]
            shown = strides.expand_ellipsis(items, len(shape))
            assert len(shown) == len(shape)
            assert not any(i is Ellipsis for i in shown)
            assert strides.numbered_spans(items, hbm(shape)) == strides.numbered_spans(shown, hbm(shape)), written
            continue
        spans = strides.numbered_spans(items, hbm(shape))
        is_right = all(m is not None for m in meant)
        kinds.add(is_right)
        assert (spans is None) != is_right, (shape, items)
        if is_right:
            selected = numbered(shape)[meant]
            part = strides.part_dims(hbm(shape), spans[0], False)
            assert [d.count for d in part] == list(np.shape(selected))
            assert spans[1] == 0 and [f for _, f in elements(part, 0, spans[2])] == np.ravel(selected).tolist()
            assert strides.part_axes(hbm(shape), spans[0], False) == [
                k for k, item in enumerate(items) if type(item) is not int]
    assert kinds == {True, False}


@pytest.mark.parametrize("item", [True, np.int64(1), 1.5, None, slice(Index(1), 2), slice(0, np.int64(2)),
                                  slice(0, 2, np.int64(1)), DynamicSlice(Index(0), 2), [1], slice(True, 2)])
def test_other_subscripts__are_not_numbers(item):
    assert strides.numbered_spans((item, 0), hbm((4, 4))) is None
    assert strides.numbered_spans((item,), hbm((4, 4))) is None


def test_parts_on_chip__keep_two_dimensions_and_their_partitions():
    dims = part_forms.complete_dims((4, 3, 5), 0)
    for items in itertools.product([2, slice(1, 4), slice(0, 4, 2)], [1, slice(None)], [4, slice(1, 4)]):
        spans, partition, free = strides.numbered_spans(items, dims)
        part = strides.part_dims(dims, spans, True)
        first = slice(2, 3) if items[0] == 2 else items[0]
        assert len(part) == max(2, sum(type(i) is slice for i in (first, *items[1:])))
        assert elements(part, partition, free) == [
            (p, f) for p in range(*first.indices(4)) for f in numbered((3, 5))[items[1:]].ravel().tolist()]
    blocks = (Dim(0, 8, 2), Dim(1, 0, 4), Dim(0, 1, 8))
    assert strides.first_lanes(blocks) == 1 and strides.first_lanes((Dim(0, 1, 4), ONE_MORE)) == 0
    assert strides.part_axes(blocks, [0, 1, 0, 1, 0, 1], True) == [1]
    assert strides.part_axes(blocks, [0, 1, 0, 1, 0, 1], False) == []


@pytest.mark.parametrize("items, rank, expected", [
    ((1, 2), 2, (1, 2)), ((1,), 3, (1, slice(None), slice(None))), ((Ellipsis,), 2, (slice(None),) * 2),
    ((1, Ellipsis), 3, (1, slice(None), slice(None))), ((Ellipsis, 1), 3, (slice(None), slice(None), 1)),
    ((1, Ellipsis, 2), 2, (1, 2)), ((0, Ellipsis, 2), 4, (0, slice(None), slice(None), 2)), ((), 1, (slice(None),))])
def test_an_ellipsis__stands_for_the_other_dimensions(items, rank, expected):
    assert strides.expand_ellipsis(items, rank) == expected


@pytest.mark.parametrize("items, error, text", [
    ((Ellipsis, Ellipsis), TwoEllipses, "one ellipsis .* at most"), ((1, Ellipsis, Ellipsis), TwoEllipses, "one ellipsis .* at most"),
    ((1, 2, 3), TooManySubscripts, "is indexed by 3 subscripts"), ((1, 2, None), BadSubscript, "None of type"),
    ((1, Ellipsis, 2, 3), TooManySubscripts, "is indexed by 3 subscripts")])
def test_subscripts_beyond_the_rank__are_an_error(items, error, text):
    with pytest.raises(error, match=text):
        strides.expand_ellipsis(items, 2)


def test_spans_of_slices():
    """A slice beyond its tensor has the extent that it says, so that an error can name it."""
    for extent, item in itertools.product((1, 4, 5), [slice(a, b, c) for a in (None, 0, 1, 3, -1, -2) for b in
                                                       (None, 0, 1, 4, 7, -1) for c in (None, 1, 2, 3)]):
        start, stop = (n + extent if n is not None and n < 0 else n for n in (item.start, item.stop))
        numbers = range(start or 0, extent if stop is None else stop, item.step or 1)
        index, step, count = strides.slice_span(item, extent)
        assert (index.const, step, count) == (numbers.start, numbers.step, len(numbers))
    index, step, count = strides.slice_span(slice(Index(symbols={I: 2}) + 1, Index(symbols={I: 2}) + 6, 2), 9)
    assert (index.symbols, index.const, step, count) == ({I: 2}, 1, 2, 3)
    index, step, count = strides.slice_span(DynamicSlice(Index(symbols={I: 1}), 3), 9)
    assert (index.symbols, step, count) == ({I: 1}, 1, 3)
    for step in (0, -1):
        with pytest.raises(BadStep, match="must be positive"):
            strides.slice_span(slice(0, 2, step), 4)


def test_single_subscripts__count_from_the_front():
    assert [strides.from_front(n, 5).const for n in (0, 4, -1, -5, np.int32(-2))] == [0, 4, 4, 0, 3]
    moving = Index(-1, {I: 1})
    assert strides.from_front(moving, 5) is moving and strides.from_front(Index(-1), 5).const == 4
    assert strides.subscript_index(moving) is moving
    with pytest.raises(BadSubscript, match="an array of shape"):
        strides.subscript_index(np.zeros(3))
    with pytest.raises(BadSubscript, match="str"):
        strides.subscript_index("a")


def test_conditions__are_masks_and_bools():
    mask = Mask(((Index(3), False),))
    assert strides.condition_of(mask) is mask
    assert bool(strides.condition_of(True)) and not bool(strides.condition_of(np.False_))
    assert strides.condition_of(1) is strides.condition_of(None) is None


def test_substituted_axes__have_the_values_of_the_inner_indices():
    rng = random.Random(4)
    for _ in range(100):
        inner = [drawn(rng, (3, 2)) for _ in range(rng.randint(1, 3))]
        index = Affine(rng.randint(-5, 5), {I: 2}, tuple(rng.choice([-2, 0, 1, 3]) for _ in inner), (9,) * len(inner))
        complete = strides.substitute(index, inner)
        assert type(complete) is Affine
        for run in RUNS[::7]:
            expected = index.const + 2 * run[I] + sum(c * values(e, run) for c, e in zip(index.axes, inner))
            np.testing.assert_array_equal(np.broadcast_to(values(complete, run), (3, 2)), expected)


def test_shapes__equal_lists_and_tuples():
    assert Shape((2, 3)) == [2, 3] == Shape((2, 3)) and Shape((2, 3)) == (2, 3) and {Shape((2,))} == {(2,)}
    assert Shape((2, 3)) != [2, 4] and Shape((2, 3)) != (3, 2) and not Shape((2,)) != [2]
    assert strides.same_extents(Shape((2,)), (2,)) and Limit(Index(), 0, 4).tensor == ""


# -- forms of parts ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 1, 4), (2, 3, 2, 2)])
def test_complete_tensors__have_their_elements_in_order(shape):
    assert elements(hbm(shape)) == [(0, k) for k in range(prod(shape))]
    for axis in range(len(shape)):
        dims = part_forms.complete_dims(shape, axis)
        order = numbered([n for k, n in enumerate(shape) if k != axis])
        assert elements(dims) == [(at[axis], int(order[at[:axis] + at[axis + 1:]])) for at in np.ndindex(*shape)]
    assert part_forms.dense_shape(shape)[0] is part_forms.dense_shape(shape)[0]
    assert part_forms.dense_shape(shape) == (shape, tuple(n // 8 for n in np.zeros(shape).strides))


def test_strided_parts__know_how_far_they_reach():
    rng = random.Random(5)
    for _ in range(200):
        rank = rng.randint(1, 3)
        shape, steps = (tuple(rng.randint(low, 4) for _ in range(rank)) for low in (1, -4))
        form, low, high = part_forms.strided_part(shape, steps)
        offsets = [f for _, f in elements(form.dims)]
        assert (low, high) == (min(offsets), max(offsets)) and form.shape == shape and form.form is None
        assert offsets == [f for _, f in elements(Dim(0, s, n) for s, n in zip(steps, shape))]
        assert form.pattern == (tuple(zip(steps, shape)) if rank > 1 else None)


@pytest.mark.parametrize("dims, on_chip, expected", [
    ((Dim(1, 0, 4), Dim(0, 1, 3)), True, True), ((Dim(1, 0, 4),), True, False), ((Dim(0, 1, 4),), False, False),
    ((Dim(1, 0, 128), ONE_MORE), True, True), ((Dim(1, 0, 129), ONE_MORE), True, False),
    ((Dim(0, 1, 129), ONE_MORE), False, True), ((Dim(0, 1, 4), Dim(1, 0, 4)), True, False),
    ((Dim(0, 3, 1), Dim(0, 1, 4)), True, True), ((Dim(0, 3, 2), Dim(0, 1, 4)), True, False),
    ((Dim(0, 0, 4), Dim(0, 1, 4)), True, True), ((Dim(1, 0, 4), Dim(1, 0, 1)), True, True),
    ((Dim(0, 3, 2), Dim(1, 1, 4)), False, True), ((), True, False), ((Dim(1, 0, 4), Dim(0, 1, 3), Dim(1, 0, 2)), True,
                                                                    False)])
def test_tiles__have_their_partitions_first(dims, on_chip, expected):
    assert part_forms.is_tile(dims, on_chip) is expected


def test_patterns__step_through_partitions_first():
    dims = (Dim(2, 0, 4), Dim(0, 3, 5))
    assert part_forms.pattern_of(dims, True) == ((2, 4), (3, 5))
    assert part_forms.pattern_of(dims, False) == ((0, 4), (3, 5))
    assert part_forms.pattern_of((Dim(0, 7, 1), Dim(0, 3, 5)), True) == ((1, 1), (3, 5))
    assert part_forms.pattern_of((Dim(0, 0, 2), Dim(0, 3, 5)), True) == ((0, 2), (3, 5))
    on_chip = part_forms.constant_access("float32", 3, 7, ((2, 4), (3, 5)))
    assert on_chip is part_forms.constant_access("float32", 3, 7, ((2, 4), (3, 5)))
    assert (on_chip.partition.const, on_chip.free.const, on_chip.dims, on_chip.dtype) == (3, 7, ((2, 4), (3, 5)), F32)
    assert part_forms.constant_access("float32", None, 7, ((2, 4), (3, 5))).partition is None


@pytest.mark.parametrize("shape", [(4, 3), (4, 1, 3), (1, 1), (128, 2, 1)])
def test_complete_tiles(shape):
    """Free dimensions of extent 1 step by 0 in the one form, and by the size of the inner ones in the other."""
    for form_of in (part_forms.complete_part, part_forms.complete_tile):
        form, access = form_of(shape, "float32", "sbuf")
        assert form.shape == shape and (access.partition.const, access.free.const, access.dims) == (0, 0, form.pattern)
        assert elements(form.dims) == elements(part_forms.complete_dims(shape, 0))
        assert form.form == Tile(None, "sbuf", shape, F32, access).form
    steps = [step for step, _ in part_forms.complete_tile(shape, "float32", "sbuf")[0].pattern]
    assert all((step == 0) == (n == 1) for step, n in zip(steps[1:], shape[1:])) and steps[0] == 1
    assert [d.free for d in part_forms.complete_part(shape, "float32", "sbuf")[0].dims][-1] == 1


def test_forms_of_parts():
    complete, access = part_forms.complete_part((8, 6), "float32", "sbuf")
    tile = Tile(None, "sbuf", (8, 6), F32, access)
    form = part_forms.part_form(complete.dims, (2, 3, 1, 4), True, tile)
    assert (form.dims, form.shape, form.pattern) == ((Dim(2, 0, 3), Dim(0, 1, 4)), (3, 4), ((2, 3), (1, 4)))
    assert form.form == tile.patterned(dims=((2, 3), (1, 4))).form
    assert part_forms.part_form(complete.dims, (2, 3, 1, 4), True, None).form is None
    row = part_forms.part_form(hbm((8, 6)), (0, 1, 1, 4), False, tile)
    assert (row.shape, row.pattern, row.form) == ((4,), None, None)


def test_rules_of_shapes_on_chip():
    part_forms.check_on_chip_shape((128, 1), 0)
    part_forms.check_on_chip_shape((200, 128, 4), 1)
    for shape in ((), (4,)):
        with pytest.raises(RankTooSmall, match="a partition and a free dimension"):
            part_forms.check_on_chip_shape(shape, 0)
    with pytest.raises(TooManyPartitions, match="129"):
        part_forms.check_on_chip_shape((129, 4), 0)
