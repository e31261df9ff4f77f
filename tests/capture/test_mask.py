# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conditions against the elements that they select: for each value of the symbols, an array of bools over the axes."""

import itertools
import random
from functools import reduce

import numpy as np
import pytest

from nki_mlir.capture.affine import NeedsValue
from nki_mlir.capture.errors import ArangeInCondition, AssignToIndex, UnsupportedMask
from nki_mlir.capture.index import Index, arange
from nki_mlir.capture.mask import Mask, broadcast_index

from .test_affine import RUNS as ALL_RUNS
from .test_affine import SYMBOLS, I, J, drawn, values

SHAPE = (3, 4)
RUNS = ALL_RUNS[::5]


def holds(mask, run, shape=None):
    """The elements that a mask selects."""
    parts = [values(e, run) == 0 if equal else values(e, run) >= 0 for e, equal in mask.terms]
    selected = reduce(np.logical_and, parts, np.ones((), bool)) != mask.negated
    return selected if shape is None else np.broadcast_to(selected, shape)


def term(rng, shape):
    e = drawn(rng, shape)
    return Index(e.const, e.symbols, e.axes, e.shape), rng.random() < 0.25


def mask_of(rng, most=3, shape=SHAPE):
    shapes = [shape, (1, shape[1]), (shape[0], 1), shape]
    return Mask(tuple(term(rng, rng.choice(shapes)) for _ in range(rng.randint(1, most))), rng.random() < 0.3)


def random_masks(count, seed, **options):
    rng = random.Random(seed)
    return [mask_of(rng, **options) for _ in range(count)]


def joined(join, a, b):
    """The result of an operator, or None if it must be written in another way."""
    try:
        return join(a, b)
    except UnsupportedMask:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_operators__select_what_those_of_bools_select(seed):
    """A conjunction joins no negations of several comparisons, nor a disjunction several comparisons on one side."""
    done = {"and": 0, "or": 0, "not": 0}
    for a, b in zip(random_masks(60, seed), random_masks(60, seed + 100)):
        both, either, neither = joined(lambda a, b: a & b, a, b), joined(lambda a, b: a | b, a, b), ~a
        is_single = [len(m.terms) == 1 and not m.terms[0][1] for m in (a, b)]
        assert (both is not None) == (not a.negated and not b.negated)
        assert (either is not None) == all(m.negated != single for m, single in zip((a, b), is_single))
        for run in RUNS:
            x, y = holds(a, run, SHAPE), holds(b, run, SHAPE)
            np.testing.assert_array_equal(holds(neither, run, SHAPE), ~x)
            done["not"] += 1
            for name, mask, expected in (("and", both, x & y), ("or", either, x | y)):
                if mask is not None:
                    done[name] += 1
                    np.testing.assert_array_equal(holds(mask, run, SHAPE), expected)
    assert all(done.values())


def test_operators_with_bools():
    mask = arange(4)[None, :] < 2
    for true in (True, np.True_):
        assert (mask & true) is (true & mask) is mask and (mask | true) is True and (true | mask) is True
    for false in (False, np.False_):
        assert (mask & false) is (false & mask) is False and (mask | false) is (false | mask) is mask
    assert (mask & None) is mask
    for operate in (lambda: mask & 1, lambda: mask | 1, lambda: mask ^ True, lambda: mask == True,  # noqa: E712
                    lambda: mask | None, lambda: ~(mask & mask) & mask):
        with pytest.raises(UnsupportedMask, match=r"joined by &|single comparisons|on index tensors"):
            operate()
    assert (mask == "text") is False and (mask != "text") is True


@pytest.mark.parametrize("a, b", itertools.product([-1, 0, 1], [-1, 0, 1]))
def test_conditions_on_numbers__are_bools(a, b):
    """Where an operator has no conjunction, Python gets the truth of the two conditions."""
    one, other = Mask(((Index(a), False),)), Mask(((Index(b), True),), negated=True)
    x, y = a >= 0, b != 0
    assert bool(one) == x and bool(other) == y
    assert bool(one & other) == (x and y) and bool(one | other) == (x or y) and (one ^ other) == (x != y)
    assert (one == other) == (x == y) and (one == y) == (x == y) and (one != x) is False
    two = Mask(((Index(a), False), (Index(b), True)))
    assert bool(two) == (a >= 0 and b == 0) and bool(~two) != bool(two) and (two ^ True) != bool(two)
    assert one.truth() is x and two.truth() is bool(two) and (~two).truth() is (not two)


@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_negations__hold_one_at_a_time(seed):
    for mask in random_masks(40, seed):
        pieces = Mask(mask.terms, negated=True).pieces()
        assert not any(p.negated for p in pieces)
        for run in RUNS:
            count = sum(holds(p, run, SHAPE).astype(int) for p in pieces)
            np.testing.assert_array_equal(count, ~holds(Mask(mask.terms), run, SHAPE))


@pytest.mark.parametrize("seed", range(3))
def test_truths_and_facts(seed):
    """A truth is that of all elements; a mask of one comparison has one whenever all elements agree. Facts hold where
    the mask does."""
    kinds = set()
    for mask in random_masks(150, seed, most=2):
        elements = np.stack([holds(mask, run, SHAPE) for run in RUNS])
        truth, same = mask.truth(), bool(elements.all()) or bool(not elements.any())
        kinds.add(truth)
        assert truth is None or (elements == truth).all()
        if len(mask.terms) == 1 and not mask.terms[0][1] and J not in mask.terms[0][0].symbols:
            assert (truth is not None) == same
        assert not (mask.negated and mask.facts)
        for fact in mask.facts:
            for run in RUNS:
                assert np.broadcast_to(values(fact, run) >= 0, SHAPE)[holds(mask, run, SHAPE)].all()
        assert mask.negated or len(mask.facts) == sum(1 + equal for _, equal in mask.terms)
        assert mask.on_tiles and mask.shape == np.broadcast_shapes(*[e.shape for e, _ in mask.terms])
    assert kinds == {True, False, None}
    assert Mask(()).shape == () and bool(Mask(())) and not Mask(()).on_tiles


def test_python_needs_the_number_of_a_symbol():
    class Builder:
        def __init__(self):
            self.requests = []

        def request(self, symbol, reason):
            self.requests.append(reason)
            raise NeedsValue
    builder = Builder()
    symbol = type(I)("i", 0, 3, ("i",), builder)
    assert bool(Index(0, {symbol: 1}) < 4) and not bool(Index(0, {symbol: 1}) > 3)
    with pytest.raises(NeedsValue, match=r"^$"):
        bool(Index(0, {symbol: 1}) < 3)
    assert builder.requests == ["Python needs the truth value of a comparison"]
    with pytest.raises(ArangeInCondition, match="4"):
        bool(arange(4)[None, :] < 9)
    with pytest.raises(AssignToIndex, match="cannot be assigned to"):
        (arange(4)[None, :] < 9)[0] = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(arange(4)[None, :] < 9)


@pytest.mark.parametrize("seed", range(3))
def test_transposed_and_spread_masks(seed):
    for mask in random_masks(40, seed):
        spread = mask.spread(SHAPE)
        for run in RUNS:
            np.testing.assert_array_equal(holds(spread, run), holds(mask, run, SHAPE))
            np.testing.assert_array_equal(holds(spread.transposed(), run), holds(mask, run, SHAPE).T)


@pytest.mark.parametrize("small, shape, at", [((3,), (3, 4), 0), ((4,), (3, 4), 1), ((3,), (3, 3), 0),
                                              ((1, 4), (3, 4), 0), ((3, 4), (3, 4, 5), 0), ((4, 5), (3, 4, 5), 1),
                                              ((3, 1), (3, 4, 5), 0), ((1, 5), (3, 4, 5), 1), ((), (2, 2), 0)])
def test_masks__are_placed_at_the_first_axes_or_the_last(small, shape, at):
    rng = random.Random(1)
    index = drawn(rng, small)
    expected = np.broadcast_to(values(index, RUNS[5]).reshape((1,) * at + small + (1,) * (len(shape) - len(small) - at)),
                               shape)
    spread = broadcast_index(index, list(shape))
    assert spread.shape == shape
    np.testing.assert_array_equal(values(spread, RUNS[5]), expected)


@pytest.mark.parametrize("small", [(2, 4), (3, 4, 1), (5,), (4, 3)])
def test_masks_of_other_shapes__are_an_error(small):
    with pytest.raises(UnsupportedMask, match="the mask has shape"):
        broadcast_index(Index(0, {}, (1,) * len(small), small), (3, 4))


@pytest.mark.parametrize("seed", range(4))
def test_masks_anywhere_along_an_axis(seed):
    rng, kinds = random.Random(seed), set()
    for _ in range(120):
        shape = (rng.randint(1, 3), rng.randint(1, 5), *([2] * rng.randint(0, 1)))
        terms = []
        for _ in range(rng.randint(1, 3)):
            axes = [rng.choice([-2, -1, 0, 0, 1, 1, 2, 3]) if n > 1 else 0 for n in shape]
            symbols = {s: rng.choice([-2, 1, 4]) for s in rng.sample(SYMBOLS, rng.randint(0, 1))}
            terms.append((Index(rng.randint(-5, 5), symbols, tuple(axes), shape), rng.random() < 0.2))
        mask, axis = Mask(tuple(terms)), rng.randrange(len(shape))
        try:
            anywhere = mask.anywhere_along(axis)
        except UnsupportedMask:
            steps = [abs(e.axes[axis]) for e, _ in terms]
            kinds.add("unsupported")
            assert max(steps) > 1
            continue
        kinds.add(anywhere is mask)
        assert all(not e.axes[axis] for e, _ in anywhere.terms)
        for run in RUNS:
            expected = holds(mask, run).any(axis, keepdims=True)
            np.testing.assert_array_equal(holds(anywhere, run, shape), np.broadcast_to(expected, shape))
    assert kinds == {True, False, "unsupported"}


def test_multiples_bounded_on_one_side__have_a_condition():
    """2 * position + 2 * i >= 6 is divided by 2; 2 * position == 3 holds nowhere; 2 * position <= 5 on one side."""
    x = arange(4)[None, :]
    i = Index(0, {I: 2})
    for mask in (2 * x + i >= 6, 2 * x + i == 6, 2 * x == 3 + 0 * i, 3 * x <= 5 + i, 3 * x >= 5 + i,
                 Mask(((2 * x - 4 + i, True), (3 * x - 3, False)))):
        for run in RUNS:
            expected = holds(mask, run, (1, 4)).any(1, keepdims=True)
            np.testing.assert_array_equal(holds(mask.anywhere_along(1), run, (1, 4)), np.broadcast_to(expected, (1, 4)))
    i = Index(0, {I: 1})
    for mask in (Mask(((2 * x - i - 1, True),)), Mask(((2 * x - i - 1, False), (7 - 3 * x + i, False)))):
        with pytest.raises(UnsupportedMask, match="bounds a multiple"):
            Mask((*mask.terms, (Index(0, {I: 1}).spread((1, 4)) + 5, False))).anywhere_along(1)


def test_constraints__number_the_symbols():
    mask = Mask(((Index(3, {I: 2, J: -1}, (1, 0), (3, 1)), False), (Index(1), True)))
    first, second = mask.constraints({I: 4, J: 5})
    assert (first.equal, second.equal) == (False, True) and second.form.const == 1 and not second.form.symbols
    assert dict(first.form.symbols) == {4: 2, 5: -3} and first.form.const == 3 + 2 and first.form.axes == ((0, 1),)
