# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine expressions against their values: for each value of the symbols, an array over the axes."""

import itertools
import random

import numpy as np
import pytest

from nki_mlir.capture import affine
from nki_mlir.capture.affine import (
    Affine,
    Symbol,
    broadcast_shape,
    hold_nowhere,
    is_float,
    shares_variable,
)
from nki_mlir.capture.errors import IndexShapes, NotAffine
from nki_mlir.dialects.integer_systems import SearchTooLong

ROUNDS = 15


class Source:
    """Records the requests that symbols send."""

    def __init__(self):
        self.requests, self.hints = [], []

    def request(self, symbol, reason):
        self.requests.append((symbol.name, reason))

    def hint(self, symbol, reason):
        self.hints.append((symbol.name, reason))


SOURCE = Source()
I, J = Symbol("i", 0, 3, ("i",), SOURCE), Symbol("j", -2, 4, ("j",), SOURCE, step=3)
DOWN = Symbol("down", 5, 1, ("down",), SOURCE, step=-2)
SYMBOLS = (I, J, DOWN)
RUNS = [dict(zip(SYMBOLS, values)) for values in itertools.product(range(4), (-2, 1, 4), (5, 3, 1))]


def drawn(rng, shape, most=4):
    axes = tuple(rng.randint(-most, most) if n > 1 else 0 for n in shape)
    symbols = {s: rng.choice([-3, -1, 2, 5]) for s in rng.sample(SYMBOLS, rng.randint(0, 3))}
    return Affine(rng.randint(-9, 9), symbols, axes, shape)


def values(index, run):
    """The values of an expression over its axes."""
    total = np.full(index.shape, index.const + sum(c * run[s] for s, c in index.symbols.items()), np.int64)
    for axis, (c, n) in enumerate(zip(index.axes, index.shape)):
        total = total + (c * np.arange(n)).reshape([-1 if k == axis else 1 for k in range(len(index.shape))])
    return total


def equal(index, expected):
    return all(index.shape == (e := np.asarray(expected(run))).shape and np.array_equal(values(index, run), e)
               for run in RUNS)


@pytest.mark.parametrize("shapes", [((), ()), ((4, 1), (1, 3)), ((3,), (2, 3)), ((2, 3), ()), ((4, 3), (4, 3))], ids=str)
def test_arithmetic__is_that_of_the_values(shapes):
    rng = random.Random(str(shapes))
    for _ in range(ROUNDS):
        a, b, n = drawn(rng, shapes[0]), drawn(rng, shapes[1]), rng.randint(-5, 5)
        assert equal(a + b, lambda run: values(a, run) + values(b, run))
        assert equal(a - b, lambda run: values(a, run) - values(b, run))
        assert equal(n - a, lambda run: n - values(a, run))
        assert equal(a.plus(np.int64(n), -1), lambda run: values(a, run) - n)
        assert equal(a + n, lambda run: values(a, run) + n)
        assert equal(a * n, lambda run: values(a, run) * n) and equal(np.int32(n) * a, lambda run: values(a, run) * n)
        assert equal(-a, lambda run: -values(a, run))
        constant = Affine(n, shape=tuple(1 for _ in shapes[1]), axes=(0,) * len(shapes[1]))
        assert equal(a * constant, lambda run: values(a, run) * np.full(constant.shape, n))
        assert equal(constant * a, lambda run: values(a, run) * np.full(constant.shape, n))
        assert (a - a).symbols == {} == (a * 0).symbols
        assert (a + True).const == a.const + 1 and a + 0 is a and a * 1 is a


def test_axes_and_shapes():
    rng = random.Random(3)
    for _ in range(ROUNDS):
        a = drawn(rng, (4, 3))
        assert equal(a.spread((2, 4, 3)), lambda run: np.broadcast_to(values(a, run), (2, 4, 3)))
        assert a.spread((4, 3)) is a
        assert equal(a.with_axes((7, 2, 5), (2, 1, 3)), lambda run: values(Affine(a.const, a.symbols), run)
                     + 7 * np.arange(2)[:, None, None] + 5 * np.arange(3))
        assert equal(a.scalar_part(), lambda run: a.const + sum(c * run[s] for s, c in a.symbols.items()))
    scalar = Affine(3, {I: 1})
    assert scalar.scalar_part() is scalar
    assert broadcast_shape((4, 1), (3,)) == (4, 3)
    with pytest.raises(IndexShapes, match=r"\(2, 3\).*\(4, 3\)|shapes"):
        broadcast_shape((2, 3), (4, 3))


def test_quotients():
    rng = random.Random(4)
    for _ in range(ROUNDS):
        a, by = drawn(rng, (4, 3)), rng.choice([2, 3, 5])
        multiples = Affine(a.const, {s: c * by for s, c in a.symbols.items()}, tuple(c * by for c in a.axes), a.shape)
        assert multiples.is_multiple_of(by) and equal(multiples.quotient(by), lambda run: values(multiples, run) // by)
        assert a.is_multiple_of(by) == all(c % by == 0 for c in (*a.symbols.values(), *a.axes))
    assert not Affine(0, {I: 4}, (3,), (2,)).is_multiple_of(2) and not Affine(0, {I: 3}, (4,), (2,)).is_multiple_of(2)


def test_intervals__are_exact_for_independent_variables():
    rng = random.Random(5)
    for _ in range(ROUNDS):
        a = drawn(rng, (4, 1, 3))
        every = [values(a, run) for run in RUNS]
        assert a.interval() == (min(v.min() for v in every), max(v.max() for v in every))


def test_intervals_under_facts__contain_all_values_and_are_no_wider():
    rng, narrower = random.Random(6), 0
    for _ in range(3 * ROUNDS):
        a, facts = drawn(rng, (4, 3)), [drawn(rng, (4, 3)) for _ in range(rng.randint(1, 2))]
        possible = [v for run in RUNS for v in values(a, run)[
            np.all([values(f, run) >= 0 for f in facts], axis=0)]]
        low, high = a.interval_given(facts)
        assert a.interval()[0] <= low and high <= a.interval()[1]
        assert not possible or (low <= min(possible) and max(possible) <= high)
        narrower += (low, high) != a.interval()
    assert narrower > ROUNDS
    # where one fact bounds the variables, it gives the exact bound
    i, row = Affine(0, {I: 1}), Affine(0, {}, (1, 0), (4, 3))
    assert (i * 6).interval_given([2 - i]) == (0, 12) and (i * 6).interval_given([i - 2]) == (12, 18)
    assert (row * 4 + 1).interval_given([1 - row * 2]) == (1, 3)
    assert (7 - i * 2).interval_given([i - 1]) == (1, 5) and (row + i).interval_given([2 - row - i]) == (0, 2)


def test_hold_nowhere__finds_what_no_values_satisfy(monkeypatch):
    rng, verdicts = random.Random(7), set()
    for _ in range(3 * ROUNDS):
        facts = [drawn(rng, (4, 3)) - rng.randint(0, 25) for _ in range(2)]
        between = [dict(zip(SYMBOLS, v)) for v in itertools.product(range(4), range(-2, 5), range(1, 6))]
        somewhere = any(np.all([values(f, run) >= 0 for f in facts], axis=0).any() for run in between)
        assert hold_nowhere(facts) == (not somewhere)
        verdicts.add(somewhere)
    assert verdicts == {True, False}
    def searching(spans, rows):
        raise SearchTooLong
    monkeypatch.setattr(affine, "solution", searching)
    assert not hold_nowhere([Affine(-1)])


def test_hold_nowhere__aligns_axes_at_the_last():
    # axes of masks of different ranks are the same from the last on
    assert hold_nowhere([Affine(-2, {}, (1,), (4,)), Affine(1, {}, (0, -1), (3, 4))])
    assert not hold_nowhere([Affine(-1, {}, (1,), (4,)), Affine(1, {}, (0, -1), (3, 4))])


def test_linear_forms():
    position_of = {J: 0, I: 1, DOWN: 2}
    form = Affine(4, {I: 2, J: -3}, (0, 5), (1, 6)).linear(position_of)
    # the handle of J, which is -2, 1 or 4, is the number of the iteration
    assert (form.const, form.symbols, form.axes) == (10, ((0, -9), (1, 2)), ((1, 5),))
    assert (J.handle_range(), I.handle_range(), DOWN.handle_range()) == ((0, 2), (0, 3), (0, 2))
    assert Affine(0, {DOWN: 1}).linear(position_of).interval(((0, 2), (0, 3), (0, 2))) == (1, 5)
    constant = Affine(4, {}, (0, 0), (1, 6)).linear({})
    assert (constant.const, constant.symbols, constant.axes) == (4, (), ())
    only_axes = Affine(0, {}, (3, 0), (2, 6)).linear({})
    assert (only_axes.symbols, only_axes.axes) == ((), ((0, 3),))


def test_numbers_that_python_needs__are_requested_of_the_roots():
    source = Source()
    i, j = Symbol("i", 0, 7, (), source), Symbol("j", 0, 7, (), source)
    half = Symbol("half", 0, 7, (), source, parents=(i, j))
    quarter = Symbol("quarter", 0, 3, (), source, parents=(half,))
    assert quarter.roots() == [i, j] and i.roots() == [i] and quarter.usable()
    assert Affine(5, {quarter: 2}).as_int("it is read") == 5
    assert source.requests == [("i", "it is read"), ("j", "it is read")]
    assert str(Affine(1, {half: 1, i: 3}, (0, -2), (1, 4))) == "half + 3*i + -2*axis1 + 1"
    assert source.hints == [("i", "Python converts it to text"), ("j", "Python converts it to text"), ("i", "Python converts it to text")]
    assert str(Affine(0)) == "0" and str(Affine(0, {i: 1})) == "i" and repr(Affine(3, {i: 1})) == "i + 3"
    assert f"{Affine(9, {i: 1}):d}" == "i + 9" and f"{Affine(9, {i: 1}):>6}" == " i + 9"
    i.is_open = False
    assert not i.usable() and not quarter.usable() and j.usable()


def test_what_is_not_affine__is_refused():
    i, row = Affine(0, {I: 1}), Affine(0, {}, (1,), (4,))
    with pytest.raises(NotAffine, match="two index tensors are multiplied"):
        row * row
    with pytest.raises(NotAffine, match="an index tensor of 4 values is used as one number: it is added to a float"):
        row + 0.5
    with pytest.raises(NotAffine, match="an index tensor of 4 values is used as one number: it is multiplied by a float"):
        row * 0.5
    SOURCE.requests.clear()
    assert (i * row).axes == (0,) and (i * i).const == 0 and i * 0.5 == 0.0 and (i + 2) - 0.5 == 1.5
    reasons = [reason for _, reason in SOURCE.requests]
    assert reasons == ["it is multiplied by an index tensor", "it is multiplied by another index",
                       "it is multiplied by a float", "it is added to a float"]
    assert i.plus("text") is NotImplemented and i.times("text") is NotImplemented
    assert is_float(1.5) and is_float(np.float32(1)) and not is_float(1) and not is_float(np.int64(1))


def test_properties():
    assert Affine().const == 0 and values(Affine(), RUNS[0]) == 0
    assert Affine(3).is_constant and Affine(3, {}, (0, 0), (1, 1)).is_constant
    assert not Affine(3, {I: 1}).is_constant and not Affine(3, {}, (0, 0), (1, 2)).is_constant
    assert Affine(3, {I: 1}).key == Affine(3, {I: 1}).key != Affine(3, {J: 1}).key
    assert len({Affine(3).key, Affine(4).key, Affine(3, {I: 1}).key, Affine(3, {I: 2}).key,
                Affine(3, {}, (1,), (4,)).key, Affine(3, {}, (0,), (4,)).key}) == 6
    i, j, row, column = Affine(0, {I: 1}), Affine(0, {J: 1}), Affine(0, {}, (1, 0), (4, 3)), Affine(0, {}, (1,), (3,))
    assert shares_variable(i + j, j) and not shares_variable(i, j)
    assert shares_variable(row, row + i) and not shares_variable(row, column) and not shares_variable(i, column)
    assert shares_variable(column, Affine(0, {}, (0, 2), (4, 3)))
