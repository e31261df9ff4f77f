# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The test of two touches against the enumeration of every element at every pair of points."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.capture.index import Index, Mask, Symbol, arange
from nki_mlir.capture.iterations import EnclosingIteration, LoopRun
from nki_mlir.capture.races.hazards import by_elements, first_element
from nki_mlir.capture.races.overlaps import MOST_POINTS, DistinctPoints, are_satisfiable, common_element
from nki_mlir.capture.races.owners import AGAINST, Owners, is_pattern, patterns_of
from nki_mlir.capture.races.touches import Touch
from nki_mlir.capture.races.verdicts import Verdict
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.diagnostics import Location
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32

from ..property_counts import tries

SIZE = 4096
HERE = Location("kernel.py", 1, 0)
WITH_STEPS = st.integers(-2, 3).flatmap(lambda first: st.tuples(st.just(first), st.integers(2, 4), st.integers(1, 3)))


def symbol(name, span):
    first, count, step = span
    return Symbol(name, first, first + (count - 1) * step, (name,), None, step=step)


def derived(index, kind, by):
    low, high = index.interval()
    ends = (low // by, high // by) if kind == "floordiv" else (0, by - 1)
    return Symbol(kind, *ends, (), None, parents=tuple(index.symbols), formula=(index, kind, by))


def touch(buffer, dtype, free, dims, writes, conditions=(), iteration=None):
    view = View(buffer, Index(), free, tuple(Dim(0, step, n) for step, n in dims), dtype)
    return Touch(view, writes, False, True, (), None, tuple(conditions), iteration, HERE, 0)


def numbers(s):
    return range(s.first, s.last + 1, s.step)


def value(index, point):
    total = index.const
    for s, c in index.symbols.items():
        if s.formula is not None:
            inner, kind, by = s.formula
            number = value(inner, point)
            total += c * (number // by if kind == "floordiv" else number % by)
        else:
            total += c * point[s]
    return total


def bytes_of(touch, point):
    for mask in touch.conditions:
        holds = all(value(e, point) == 0 if equal else value(e, point) >= 0 for e, equal in mask.terms)
        if holds == mask.negated:
            return set()
    size, start = touch.view.dtype.itemsize, value(touch.view.free, point)
    places = [start + sum(step * k for (_, step, _), k in zip(touch.view.dims, at))
              for at in itertools.product(*(range(d.count) for d in touch.view.dims))]
    return {element * size + byte for element in places for byte in range(size)}


@st.composite
def cases(draw):
    outer, loop, inner = (symbol(name, draw(WITH_STEPS)) for name in ("o", "k", "j"))
    basis = [outer, loop, inner]
    if draw(st.booleans()):
        index = Index(draw(st.integers(-3, 3)), {loop: draw(st.integers(1, 3))})
        basis.append(derived(index, draw(st.sampled_from(("floordiv", "mod"))), draw(st.integers(2, 3))))
    buffer = Buffer((SIZE,), FLOAT32, "hbm", "t")
    same = draw(st.booleans())
    dtypes = FLOAT32, FLOAT32 if same else BFLOAT16

    def index(largest):
        chosen = draw(st.sets(st.integers(0, len(basis) - 1)))
        return Index(draw(st.integers(-largest, largest)), {basis[k]: draw(st.integers(-largest, largest).filter(bool))
                                                             for k in sorted(chosen)})

    def condition():
        terms = tuple((index(3), draw(st.integers(0, 3)) == 0) for _ in range(draw(st.integers(1, 2))))
        return Mask(terms, draw(st.booleans()))
    touches = []
    for writes, dtype in zip((True, draw(st.booleans())), dtypes):
        free = index(12)
        dims = [(draw(st.sampled_from((0, 1, 1, 2, 3, 5, 12, -1))), draw(st.integers(1, 4)))
                for _ in range(draw(st.integers(1, 3)))]
        touches.append(touch(buffer, dtype, free + 512, dims, writes, [condition() for _ in range(draw(st.integers(0, 2)) // 2)]))
    return outer, loop, inner, touches


@tries(250)
@given(cases())
def test_pairs_of_touches(case):
    outer, loop, inner, (a, b) = case
    met = set()
    for o in numbers(outer):
        sets = {k: [set().union(*(bytes_of(t, {outer: o, loop: k, inner: j}) for j in numbers(inner))) for t in (a, b)]
                for k in numbers(loop)}
        met |= {(k, l, byte // 4) for k in sets for l in sets if k != l for byte in sets[k][0] & sets[l][1]}
    overlap = common_element(a, b, DistinctPoints(loop, len(numbers(loop)), frozenset({outer})))
    assert (overlap is not None) == bool(met)
    if overlap is not None:
        assert (overlap.first, overlap.second, *overlap.element) in met


@tries(150)
@given(cases())
def test_elements_of_numbered_iterations(case):
    """An unrolled loop: the numbers of its variable in the places, what is inside of it still symbols."""
    outer, loop, inner, pair = case
    run, listed, sets = LoopRun(True, "k"), [], {}
    for k in numbers(loop):
        for t in pair:
            symbols = {s: c for s, c in t.view.free.symbols.items() if s is inner}
            free = Index(t.view.free.const + k * t.view.free.symbols.get(loop, 0), symbols)
            fixed = touch(t.view.buffer, t.view.dtype, free, [d[1:] for d in t.view.dims], t.writes, (), EnclosingIteration(run, k, None))
            listed.append((fixed, k))
            touched = set().union(*(bytes_of(fixed, {inner: j}) for j in numbers(inner)))
            sets.setdefault(k, []).append(touched)
    met = {(frozenset((k, l)), byte // 4) for k in sets for l in sets if k != l
           for m, n in ((0, 0), (0, 1), (1, 1)) if pair[m].writes or pair[n].writes for byte in sets[k][m] & sets[l][n]}
    verdict = Verdict()
    for overlap in (first_element(pair[0].view.buffer, listed, verdict), by_elements(pair[0].view.buffer, listed)):
        assert not verdict.undecided
        assert (overlap is not None) == bool(met)
        if overlap is not None:
            assert (frozenset((overlap.first, overlap.second)), *overlap.element) in met


@st.composite
def tiles_by_owner(draw):
    """Touches of a tile in SBUF, each with its owner and the (partition, byte) pairs that it touches."""
    buffer, inner, listed = Buffer((64, 64), FLOAT32, "sbuf", "t"), symbol("j", draw(WITH_STEPS)), []
    signed, counts = st.integers(-1, 1), st.integers(1, 3)
    for _ in range(draw(st.integers(2, 5))):
        partition, free = (Index(at, {inner: c} if (c := draw(signed)) else {}) for at in (24, draw(st.integers(28, 36))))
        dims = tuple(Dim(draw(signed), draw(st.sampled_from((-2, -1, 0, 1, 1, 2, 3))), draw(counts)) for _ in range(2))
        conditions = [Mask(((Index(draw(signed), {inner: 1}), draw(st.booleans())),), draw(st.booleans()))
                      for _ in range(draw(st.integers(0, 2)) // 2)]
        view = View(buffer, partition, free, dims, draw(st.sampled_from((FLOAT32, FLOAT32, BFLOAT16))))
        kind = draw(st.sampled_from(tuple(AGAINST)))
        one = Touch(view, kind != "read", kind == "added", True, (inner,), None, tuple(conditions), None, HERE, 0)
        touched = set()
        for j in numbers(inner):
            if bytes_of(touch(buffer, view.dtype, free, [], True, conditions), {inner: j}):
                for k in itertools.product(*(range(d.count) for d in dims)):
                    row = value(partition, {inner: j}) + sum(d.partition * n for d, n in zip(dims, k))
                    element = value(free, {inner: j}) + sum(d.free * n for d, n in zip(dims, k))
                    size = view.dtype.itemsize
                    touched |= {(row, element * size + byte) for byte in range(size)}
        listed.append((one, draw(st.integers(0, 2)), kind, touched))
    return buffer, listed


@tries(80)
@given(tiles_by_owner())
def test_first_touch_that_races_with_an_earlier_one(case):
    buffer, listed = case
    owners = Owners(buffer, [(one, by) for one, by, _, _ in listed])
    for number, (_, by, kind, touched) in enumerate(listed):
        races = {earlier: touched & others for earlier, (_, owner, other_kind, others) in enumerate(listed[:number])
                 if owner != by and other_kind in AGAINST[kind] and touched & others}
        race = owners.touch(number)
        assert (race is not None) == bool(races)
        if race is not None:
            element, earlier = race
            assert owners.element(element) in races[earlier]
            break


def test_first_race_of_any_four_touches_of_one_element():
    buffer = Buffer((8,), FLOAT32, "hbm", "t")
    touches = {kind: touch(buffer, FLOAT32, Index(), [], kind != "read") for kind in AGAINST}
    touches["added"].accumulates = True
    for sequence in itertools.product(itertools.product(AGAINST, range(2)), repeat=4):
        owners = Owners(buffer, [(touches[kind], by) for kind, by in sequence])
        for number, (kind, by) in enumerate(sequence):
            races = [(0, earlier) for earlier, (other_kind, owner) in enumerate(sequence[:number])
                     if owner != by and other_kind in AGAINST[kind]]
            race = owners.touch(number)
            assert race in (races or [None]), sequence
            if races:
                break


def test_conditions__that_hold_between_the_ends_alone():
    short, long = arange(5), arange(MOST_POINTS + 1)
    assert are_satisfiable([short >= 1, short <= 3]) is True
    assert are_satisfiable([short >= 3, short <= 1]) is False
    assert are_satisfiable([long >= 1, long <= 3]) is None              # too many to tell, and at neither end
    assert are_satisfiable([long <= 3]) is True


@tries(60)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(-4, 4), st.integers(6, 9))
def test_iterations_that_meet_at_one_distance_alone(distance, coefficient, start, count):
    """An access of two elements touches what that of the iteration so far away does, and no neighbor's."""
    loop = symbol("k", (start, count, 1))
    a = touch(Buffer((SIZE,), FLOAT32, "hbm", "t"), FLOAT32, Index(512, {loop: coefficient}), [(distance * coefficient, 2)],
              True)
    overlap = common_element(a, a, DistinctPoints(loop, count, frozenset()))
    assert overlap is not None and abs(overlap.first - overlap.second) == distance
    assert {overlap.first, overlap.second} <= set(numbers(loop))
    assert overlap.element == (512 + coefficient * max(overlap.first, overlap.second),)


def test_patterns__are_of_touches_that_neither_conditions_nor_data_select():
    buffer = Buffer((64,), FLOAT32, "hbm", "t")
    plain = touch(buffer, FLOAT32, Index(3), [(2, 5)], True)
    condition = touch(buffer, FLOAT32, Index(), [(1, 5)], True, conditions=[Mask(((Index(1), False),))])
    chosen = touch(buffer, FLOAT32, Index(), [(1, 5)], True)
    chosen.elements = np.array([1, 2])
    formula = touch(buffer, FLOAT32, Index(0, {derived(Index(0, {symbol("i", (0, 4, 1)): 1}), "mod", 2): 8}), [(1, 5)], True)
    assert all(is_pattern(t) == (t is plain) for t in (plain, condition, chosen, formula))
    assert patterns_of(buffer, [(plain, 0), (plain, 1)]) == [(12, [(8, 5), (1, 4)], 0), (12, [(8, 5), (1, 4)], 1)]
    for other in (condition, chosen, formula):
        assert patterns_of(buffer, [(plain, 0), (other, 1)]) is None
        assert patterns_of(buffer, [(other, 0), (plain, 1)]) is None
        assert patterns_of(buffer, [(other, 0)]) is None
    assert patterns_of(buffer, []) == []
