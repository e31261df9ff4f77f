# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index expressions, masks and their intervals against all values of their variables."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nki_mlir.capture.errors import ArangeInCondition, AssignToIndex, NotAffine, UnsupportedMask
from nki_mlir.capture.index import DynamicSlice, Index, Mask, NeedsValue, NotAnIndex, Symbol, arange, ds, mgrid
from nki_mlir.capture.mask import broadcast_index
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import Linear

from ..property_counts import tries

COUNTED = tries(80)


class Requests:
    """Stands for a builder: records the requests."""

    def __init__(self):
        self.requests, self.hinted = [], []

    def request(self, symbol, why):
        self.requests.append((symbol.name, why))
        raise NeedsValue

    def hint(self, symbol, why):
        self.hinted.append(symbol.name)


def loop(name="i", first=0, last=5, builder=None):
    return Index(0, {Symbol(name, first, last, (name,), builder or Requests()): 1})


@st.composite
def forms(draw):
    """An expression over two loop variables and two axes, with a function of their values."""
    c = [draw(st.integers(-4, 4)) for _ in range(5)]
    return c, lambda p, f, i, j: c[0] * p + c[1] * f + c[2] * i + c[3] * j + c[4]


EXTENTS, RANGES = (3, 4), ((-2, 3), (1, 4))
P, F = arange(EXTENTS[0])[:, None], arange(EXTENTS[1])[None, :]


def variables():
    return [loop(name, *r) for name, r in zip("ij", RANGES)]


def points():
    return itertools.product(range(EXTENTS[0]), range(EXTENTS[1]), *(range(a, b + 1) for a, b in RANGES))


def value_of(index, p, f, i, j):
    """The expression evaluated from its parts."""
    values = dict(zip("ij", (i, j)))
    axes = (0,) * (2 - len(index.axes)) + index.axes
    return index.const + axes[0] * p + axes[1] * f + sum(c * values[s.name] for s, c in index.symbols.items())


@COUNTED
@given(forms())
def test_interval_is_exact(form):
    _, f = form
    index = f(P, F, *variables())
    values = [f(*at) for at in points()]
    assert index.interval() == (min(values), max(values))
    assert [value_of(index, *at) for at in points()] == values


@COUNTED
@given(forms(), forms(), forms())
def test_interval_given_facts_is_safe(form, first, second):
    """Never tighter than what the facts allow."""
    facts = first, second
    symbols = variables()
    index = form[1](P, F, *symbols)
    known = [f(P, F, *symbols) for _, f in facts]
    values = [form[1](*at) for at in points() if all(f(*at) >= 0 for _, f in facts)]
    assume(values)
    low, high = index.interval_given(known)
    assert low <= min(values) and high >= max(values)


@COUNTED
@given(forms(), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.integers(-9, 9))
def test_mask_known(form, op, bound):
    """A truth that is reported holds everywhere; what it makes of facts does, too."""
    compare = {"<": lambda a: a < bound, "<=": lambda a: a <= bound, ">": lambda a: a > bound, ">=": lambda a: a >= bound,
               "==": lambda a: a == bound, "!=": lambda a: a != bound}[op]
    mask = compare(form[1](P, F, *variables()))
    truths = [compare(form[1](*at)) for at in points()]
    known = mask.truth()
    assert known is None or all(t is known for t in truths)
    if op != "!=" and len(set(truths)) == 1 and op != "==":
        assert known is truths[0]
    for fact in mask.facts:
        assert all(value_of(fact, *at) >= 0 for at, t in zip(points(), truths) if t)
    for at, t in zip(points(), truths):
        assert truth_of(mask, at) is t and truth_of(~mask, at) is not t
        if mask.negated:
            assert sum(truth_of(piece, at) for piece in mask.pieces()) == t


def truth_of(mask, at):
    terms_hold = all(value_of(e, *at) == 0 if equal else value_of(e, *at) >= 0 for e, equal in mask.terms)
    return terms_hold is not mask.negated


@COUNTED
@given(forms(), forms(), st.booleans())
def test_mask_combinations(left, right, disjunction):
    symbols = variables()
    a, b = left[1](P, F, *symbols) >= 0, right[1](P, F, *symbols) >= 0
    mask = (a | b) if disjunction else (a & b)
    negated = ~mask
    for at in points():
        expected = (left[1](*at) >= 0, right[1](*at) >= 0)
        assert truth_of(mask, at) is (any(expected) if disjunction else all(expected))
        pieces = (mask if mask.negated else negated).pieces()
        assert sum(truth_of(p, at) for p in pieces) == truth_of(mask if mask.negated else negated, at)


@COUNTED
@given(forms(), st.integers(-4, 4).filter(bool))
def test_quotients_that_stay_affine(form, by):
    """Exact where all coefficients are multiples, or one quotient serves all values."""
    c, _ = form
    index = Index(c[4]) + P * (c[0] * by) + F * (c[1] * by)
    values = [c[4] + c[0] * by * p + c[1] * by * f for p, f, *_ in points()]
    assert [value_of(index // by, *at) for at in points()] == [v // by for v in values]
    assert [value_of(index % by, *at) for at in points()] == [v % by for v in values]


@COUNTED
@given(forms())
def test_linear_form_agrees(form):
    symbols = variables()
    index = form[1](P, F, *symbols)
    positions = {next(iter(s.symbols)): k for k, s in enumerate(symbols)}
    linear = index.linear(positions)
    assert linear.interval(RANGES, EXTENTS) == index.interval()
    assert isinstance(linear, Linear) and all(c for _, c in (*linear.symbols, *linear.axes))


# -- shapes ------------------------------------------------------------------------------------------------------------
def table(index, shape):
    """The values of an index tensor as an array."""
    grid = np.indices(shape)
    return index.const + sum(c * grid[k] for k, c in enumerate(broadcast_index(index, shape).axes))


@pytest.mark.parametrize("pick", [
    np.s_[:, None], np.s_[None, :], np.s_[None, :, None], np.s_[2:5, None], np.s_[::2, None], np.s_[None, ...], np.s_[3],
    np.s_[-1], np.s_[1:8:3], np.s_[..., None], np.s_[5:6, None], np.s_[-3:, None], np.s_[::-1]])
def test_placing_axes(pick):
    index, array = arange(2, 10), np.arange(2, 10)
    view = index[pick]
    assert view.shape == array[pick].shape
    np.testing.assert_array_equal(table(view, view.shape), array[pick])


def test_arithmetic_broadcasts():
    a, b = np.arange(3)[:, None], np.arange(1)[None, :] + 4
    for function in (lambda x, y: 2 * x - y + 1, lambda x, y: x + 0 * y, lambda x, y: -x + 3 * y):
        combined = function(arange(3)[:, None], arange(4, 5)[None, :])
        np.testing.assert_array_equal(table(combined, (3, 1)), function(a, b))
    spread = arange(1)[:, None] * 5 + arange(4)[:, None]
    np.testing.assert_array_equal(table(spread, (4, 1)), np.arange(4)[:, None])
    with pytest.raises(NotAffine, match="broadcast"):
        arange(3)[:, None] + arange(4)[:, None]


@pytest.mark.parametrize("bounds", [(-1,), (0,), (3, 1)])
def test_arange__behind_its_stop_is_empty(bounds):
    index = arange(*bounds)
    assert index.shape == np.arange(*bounds).shape == (0,)
    assert index[:, None].shape == (0, 1) and index[None, 0:1].shape == (1, 0)


def test_mgrid():
    axes, expected = mgrid[2:5, 0:8:3], np.mgrid[2:5, 0:8:3]
    assert len(axes) == 2 and axes.p is axes[0] and axes.x is axes[1]
    for index, array in zip(axes, expected):
        np.testing.assert_array_equal(table(index, array.shape), array)


def test_placed_masks():
    assert broadcast_index(arange(8)[:, None], (8, 8, 4)).axes == (1, 0, 0)
    assert broadcast_index(arange(4)[None, :], (8, 8, 4)).axes == (0, 0, 1)
    assert broadcast_index(arange(8)[None, :], (4, 8)).axes == (0, 1)
    with pytest.raises(UnsupportedMask, match=r"the mask has shape \(5, 1\), the operation's tiles \(8, 8\)"):
        broadcast_index(arange(5)[:, None], (8, 8))


# -- what asks for numbers ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("use", [
    lambda i: [0, 1][i], lambda i: int(i), lambda i: range(i), lambda i: bool(i), lambda i: {i: 1}, lambda i: i * 0.5,
    lambda i: 0.5 + i, lambda i: i / 2, lambda i: i ** 2, lambda i: 2 ** i, lambda i: 7 // i, lambda i: 7 % i,
    lambda i: i | 1, lambda i: i ^ 1, lambda i: i & 5, lambda i: 1 << i, lambda i: abs(i), lambda i: round(i),
    lambda i: i // -2, lambda i: i * i, lambda i: i < 3 and i > 1, lambda i: not i < 3, lambda i: i in (1, 2),
    lambda i: min(i, 3), lambda i: float(i), lambda i: i // 2.0, lambda i: divmod(7, i), lambda i: i == 3 or None])
def test_uses_that_ask_for_numbers(use):
    builder = Requests()
    with pytest.raises(NeedsValue, match=r"^$"):
        use(loop(builder=builder))
    assert [name for name, _ in builder.requests] == ["i"]


@pytest.mark.parametrize("use", [
    lambda i: i + 1, lambda i: 3 - i * 2, lambda i: -i, lambda i: +i, lambda i: ~i, lambda i: i << 2, lambda i: i < 3,
    lambda i: (i > 1) & (i < 3) & True, lambda i: ~(i == 2), lambda i: (i < 1) | (i > 3), lambda i: i * 4 // 2,
    lambda i: i // 100, lambda i: i % 100, lambda i: np.int64(3) * i + np.int32(2), lambda i: i < 2.5, lambda i: i != 3,
    lambda i: i == 2.5, lambda i: i >= float("inf"), lambda i: str(i), lambda i: bool(i < 100), lambda i: i == "text",
    lambda i: i is None, lambda i: isinstance(i, Index)])
def test_uses_that_stay_symbolic(use):
    builder = Requests()
    use(loop(builder=builder))
    assert builder.requests == []


def test_float_bounds_round_to_the_right_side():
    i = loop(last=9)
    for bound in (2.5, 3.0, -0.5, 100.0, float("inf"), float("-inf")):
        for name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
            comparison = getattr(i, name)(bound)
            for value in range(10):
                expected = getattr(float(value), name)(bound)
                got = comparison if isinstance(comparison, bool) else truth_of_scalar(comparison, value)
                assert got is expected, (name, bound, value)


def truth_of_scalar(mask, value):
    terms_hold = all((e.const + sum(c * value for c in e.symbols.values())) * 1 == 0 if equal else
                     e.const + sum(c * value for c in e.symbols.values()) >= 0 for e, equal in mask.terms)
    return terms_hold is not mask.negated


def test_text_is_a_hint():
    builder = Requests()
    assert f"{2 * loop(builder=builder) + 1:03d}" == "2*i + 1" and builder.hinted == ["i"]


# -- errors ------------------------------------------------------------------------------------------------------------
def test_index_tensors_are_no_numbers():
    with pytest.raises(ArangeInCondition, match="which has 4 values at once"):
        bool(arange(4)[:, None])
    with pytest.raises(ArangeInCondition, match="which has 4 values at once"):
        bool(arange(4)[:, None] < 2)
    with pytest.raises(NotAffine, match="4 values is used as one number: it is used as a Python integer"):
        int(arange(4)[:, None])
    with pytest.raises(NotAffine, match="two index tensors are multiplied"):
        arange(4)[:, None] * arange(3)[None, :]
    with pytest.raises(NotAffine, match="4 values is used as one number: it is multiplied by a float"):
        arange(4)[:, None] * 0.5
    with pytest.raises(AssignToIndex, match="an index tensor cannot be assigned to"):
        arange(4)[:, None][0] = 1
    with pytest.raises(ZeroDivisionError, match=r"an index is (divided by|taken modulo) 0 \[NKI-ZERO-DIVISION\]"):
        loop() // 0
    with pytest.raises(ZeroDivisionError, match=r"a number is divided by an index that is 0 \[NKI-ZERO-DIVISION\]"):
        4 // arange(1)[:, None]
    with pytest.raises(ZeroDivisionError, match=r"a number is taken modulo an index that is 0 \[NKI-ZERO-DIVISION\]"):
        4 % arange(1)[:, None]


def test_an_index_tensor_has_as_many_positions_as_its_extent():
    assert [int(index) for index in arange(2, 6)] == [2, 3, 4, 5] and int(arange(4)[-1]) == 3 and 9 not in arange(4)
    for function, text in (
            (lambda: arange(4)[4], "subscript 4 is outside of an index tensor's axis with 4 positions"),
            (lambda: arange(4)[-5], "subscript -5 is outside of an index tensor's axis with 4 positions"),
            (lambda: arange(4)[0, 0], "a tensor of 1 dimension is indexed by 2 subscripts"),
            (lambda: iter(loop()), "a loop iterates over an index, which is one number"),
            (lambda: iter(arange(4) % 3), "an index tensor is taken modulo 3")):
        with pytest.raises(KernelError, match=re.escape(text)):
            function()


def test_what_is_no_index_any_more():
    odd = arange(8)[:, None] % 3 * 2 + 1
    assert isinstance(odd, NotAnIndex)
    with pytest.raises(UnsupportedMask, match="an index tensor is taken modulo 3"):
        bool(odd < 2)
    with pytest.raises(NotAffine, match="modulo 3"):
        Index.of(odd)


def test_masks_are_joined_by_conjunctions_only():
    p = arange(8)[:, None]
    for function, text in (
            (lambda: (p != 3) & (p < 5), "only plain comparisons of indices can be joined by &"),
            (lambda: ((p < 3) & (p > 1)) | (p > 5), "| can only join two single comparisons"),
            (lambda: (p < 3) ^ (p > 5), "^ does not join conditions on index tensors"),
            (lambda: (p < 3) & "text", "only plain comparisons of indices can be joined by &")):
        with pytest.raises(UnsupportedMask, match=re.escape(text)):
            function()
    assert (p < 3) & None is not None and ((p < 3) & False) is False and ((p < 3) | True) is True
    assert isinstance((p < 3) & np.True_, Mask)


@given(st.lists(st.tuples(forms(), st.booleans()), min_size=1, max_size=4), st.integers(0, 1))
@COUNTED
def test_anywhere_along(terms, axis):
    """It holds where the mask does at some position of the axis, or is refused; coefficients of 1 are not."""
    i, j = variables()
    mask = Mask(tuple(((P * c[0] + F * c[1] + i * c[2] + j * c[3] + c[4]).spread(EXTENTS), equal)
                      for (c, _), equal in terms))
    try:
        projected = mask.anywhere_along(axis)
    except UnsupportedMask:
        assert any(abs(c[axis]) > 1 for (c, _), _ in terms)
        return
    assert not any(e.axes[axis] for e, _ in projected.terms)

    def holds(mask, at):
        return all(value_of(e, *at) == 0 if equal else value_of(e, *at) >= 0 for e, equal in mask.terms)
    for at in points():
        along = [(*at[:axis], k, *at[axis + 1:]) for k in range(EXTENTS[axis])]
        assert holds(projected, at) == any(holds(mask, a) for a in along)


@pytest.mark.parametrize("size", [0, 1, 7, np.int32(3)])
def test_slices__have_any_number_of_elements(size):
    assert ds(5, size) == DynamicSlice(5, int(size))


def test_slices__have_no_negative_number_of_elements():
    with pytest.raises(KernelError, match="-1"):
        ds(5, -1)
