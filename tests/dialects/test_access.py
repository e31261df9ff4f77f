# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linear forms, patterns, masks and overlap against enumeration of all their values."""

from itertools import product
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from nki_mlir.dialects.access import (
    HBM,
    SBUF,
    ZERO,
    Access,
    Constraint,
    Linear,
    Tile,
    in_shape,
    masked_box,
    same_pattern,
)
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8

from .samples import tile

SMALL = st.integers(-4, 4)
RANGES = ((0, 3), (-2, 2))


def forms(symbols: int = 2, axes: int = 2) -> Any:
    def terms(count: int) -> Any:
        return st.lists(SMALL, min_size=count, max_size=count).map(
            lambda cs: tuple((k, c) for k, c in enumerate(cs) if c))
    return st.builds(Linear, st.integers(-8, 8), terms(symbols), terms(axes))


def value(form: Linear, symbols: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return form.const + sum(c * symbols[k] for k, c in form.symbols) + sum(c * axes[k] for k, c in form.axes)


POINTS = list(product(range(0, 4), range(-2, 3)))


@given(forms(), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_interval__is_exact(form: Linear, counts: tuple[int, int]) -> None:
    values = [value(form, s, a) for s in POINTS for a in product(range(counts[0]), range(counts[1]))]
    assert form.interval(RANGES, counts) == (min(values), max(values))


@given(forms(), forms(), SMALL, st.sampled_from(POINTS), st.tuples(SMALL, SMALL))
def test_arithmetic__agrees_with_the_values(a: Linear, b: Linear, factor: int, s: tuple[int, int],
                                            axes: tuple[int, int]) -> None:
    total = a.plus(b, factor)
    assert value(total, s, axes) == value(a, s, axes) + factor * value(b, s, axes)
    assert all(c for _, c in (*total.symbols, *total.axes))
    assert value(a.substitute(0, s[0]), (99, s[1]), axes) == value(a, s, axes)
    assert value(a.counted_from((2, 3)), s, axes) == value(a, s, (axes[0] + 2, axes[1] + 3))
    assert a.at(s) == value(a, s, (0, 0))
    assert a.plus(a, -1) == ZERO


# -- patterns ----------------------------------------------------------------------------------------------------------
def test_pattern__names_its_parts() -> None:
    access = Access(FLOAT32, Linear(2), Linear(5, ((1, 4),)), ((1, 8), (6, 3), (-2, 2)))
    assert access.shape == (8, 3, 2)
    assert access.free_dims == ((6, 3), (-2, 2))
    assert access.reach() == (-2, 12)
    assert access.symbols_used() == {1}
    assert access.box((1, 2, 1), (4, 1, 1)) == Access(
        FLOAT32, Linear(3), Linear(5 + 12 - 2, ((1, 4),)), ((1, 4), (6, 1), (-2, 1)))
    flat = Access(FLOAT32, None, Linear(5), ((6, 3), (1, 2)))
    assert flat.free_dims == ((6, 3), (1, 2)) and flat.box((1, 1), (2, 1)).free == Linear(12)


def test_tile__counts_in_its_own_dtype() -> None:
    base = tile("sbuf 4x6xf32")
    assert (base.row, base.partitions, base.free_elements, base.on_chip) == (6, 4, 6, True)
    halves = Tile(base.handle, SBUF, (4, 6), FLOAT32, Access(BFLOAT16, Linear(), Linear(), ((1, 4), (1, 12))))
    assert (halves.row, halves.dtype, halves.free_elements) == (12, BFLOAT16, 12)
    assert Tile(None, HBM, (4, 6), FLOAT32, Access(UINT8, None, Linear(), ((1, 96),))).row == 96
    assert tile("psum 4x6xf32", "sums").describe() == "sums[4, 6] float32 in psum"
    assert tile("hbm 4x6xf32").describe() == "hbm[4, 6] float32 in hbm"


def elements(tile: Tile) -> list[tuple[int, ...]]:
    """The partition and offset of each element, in order."""
    dims = tile.access.dims
    return [(p * dims[0][0], sum(k * step for k, (step, _) in zip(free, dims[1:])))
            for p, *free in product(*(range(count) for _, count in dims))]


DIMS = st.lists(st.tuples(st.sampled_from((0, 1, 2, 3, 4, 6, -1)), st.sampled_from((1, 1, 2, 3, 4))), max_size=3)


@given(DIMS, DIMS, st.sampled_from(((1, 1), (0, 1), (1, 2), (0, 2))), st.sampled_from(((1, 1), (1, 2))))
def test_patterns__are_the_same_if_their_elements_are(a: list, b: list, first: tuple, second: tuple) -> None:
    one, other = (Tile(None, SBUF, (4, 64), FLOAT32, Access(FLOAT32, ZERO, ZERO, (partitions, *dims)))
                  for partitions, dims in ((first, a), (second, b)))
    same = elements(one) == elements(other)
    if all(step for step, count in (*a, *b) if count > 1):      # elements that repeat have several forms
        assert same_pattern(one, other) == same
    reshaped = in_shape(one, other.shape)
    assert same or not same_pattern(one, other)
    assert reshaped is None or (reshaped.shape == other.shape and elements(reshaped) == elements(one))
    assert reshaped is not None or not same_pattern(one, other)


# -- masks -------------------------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(forms(symbols=1), st.booleans()), max_size=3),
       st.tuples(st.integers(1, 5), st.integers(1, 5)), st.integers(-2, 2))
def test_masked_box__and_the_rest_are_the_mask(parts: list, extents: tuple[int, int], symbol: int) -> None:
    mask = tuple(Constraint(form, equal) for form, equal in parts)
    starts, counts, rest = masked_box(mask, extents, (symbol,))

    def holds(constraints: tuple[Constraint, ...], point: tuple[int, int]) -> bool:
        terms = [(value(c.form, (symbol,), point), c.equal) for c in constraints]
        return all(v == 0 if equal else v >= 0 for v, equal in terms)
    every = set(product(range(extents[0]), range(extents[1])))
    box = {p for p in every if all(s <= x < s + n for x, s, n in zip(p, starts, counts))}
    assert {p for p in every if holds(mask, p)} == {p for p in box if holds(rest, p)}
    assert all(len(c.form.axes) > 1 for c in rest)
    single = tuple(c for c in mask if c not in rest)
    assert box == {p for p in every if holds(single, p)} or not box
