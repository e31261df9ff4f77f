# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Boxes of masks: for each value of the symbols they hold each active element once, and no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Constraint, Linear, Mask, active_elements
from nki_mlir.selection.masks import in_boxes


class Conditions:
    """An emitter that notes under which values of symbols something is emitted."""

    def __init__(self, ranges: tuple[tuple[int, int], ...]) -> None:
        self.ranges = ranges
        self.values: list[dict[int, int]] = []

    @contextmanager
    def where(self, values: dict[int, int]) -> Iterator[None]:
        self.values.append(values)
        yield


def boxes(mask: Mask, extents: tuple[int, ...], ranges=(), limit: int = 1000, last_axis: int = -1) -> list[tuple]:
    """Return (values of the symbols, starts, counts) of each box."""
    conditions, listed = Conditions(ranges), []
    in_boxes(conditions, mask, extents, limit, lambda *box: listed.append((conditions.values[-1], *box)), last_axis)
    assert len(conditions.values) == len({*map(str, conditions.values)})
    return listed


@st.composite
def masks(draw) -> tuple[Mask, tuple[int, ...], tuple[tuple[int, int], ...]]:
    extents = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    factor = st.integers(-2, 2)
    ranges = tuple((low, low + draw(st.integers(0, 2))) for low in draw(st.lists(st.integers(-2, 2), max_size=2)))
    mask = tuple(Constraint(
        Linear(draw(st.integers(-3, 4)), tuple((s, c) for s in range(len(ranges)) if (c := draw(factor))),
               tuple((a, c) for a in range(len(extents)) if (c := draw(factor)))), draw(st.integers(0, 3)) == 0)
        for _ in range(draw(st.integers(1, 2))))
    return mask, extents, ranges


@given(masks(), st.integers(-1, 2), st.integers(1, 12))
def test_boxes__hold_each_active_element_once(given_mask, last_axis: int, limit: int) -> None:
    mask, extents, ranges = given_mask
    used = sorted({s for c in mask for s, _ in c.form.symbols})
    of_values: dict[tuple[int, ...], np.ndarray] = {
        values: np.zeros(extents, int) for values in product(*(range(ranges[s][0], ranges[s][1] + 1) for s in used))}
    listed = boxes(mask, extents, ranges, last_axis=last_axis)
    for values, starts, counts in listed:
        assert [*values] == used
        of_values[tuple(values.values())][tuple(slice(s, s + n) for s, n in zip(starts, counts))] += 1
        assert all(s >= 0 and s + n <= extent for s, n, extent in zip(starts, counts, extents))
    for values, times in of_values.items():
        symbols = [dict(zip(used, values)).get(s, 0) for s in range(len(ranges))]
        np.testing.assert_array_equal(times, active_elements(mask, extents, symbols))
    if len(listed) <= limit:
        assert boxes(mask, extents, ranges, limit, last_axis) == listed
    else:
        with pytest.raises(Unsupported, match=f"more than {limit} boxes"):
            boxes(mask, extents, ranges, limit, last_axis)


def test_a_box_is_not_cut() -> None:
    inside = tuple(Constraint(Linear(-1, (), ((a, 1),))) for a in range(3))
    assert boxes(inside, (3, 4, 5)) == [({}, (1, 1, 1), (2, 3, 4))]
    assert boxes((Constraint(Linear(-9, (), ((0, 1),))),), (3, 4)) == []


@pytest.mark.parametrize("last_axis,axis", [(-1, 0), (1, 0), (0, 1)])
def test_the_last_axis_is_cut_last(last_axis: int, axis: int) -> None:
    """A staircase, three columns wide for two rows: all active elements of a row, or of a column, are in one box."""
    listed = boxes((Constraint(Linear(0, (), ((0, 3), (1, -2)))),), (8, 11), last_axis=last_axis)
    for k in range(8 if axis == 0 else 11):
        assert sum(starts[axis] <= k < starts[axis] + counts[axis] for _, starts, counts in listed) == 1
    other = 1 - axis
    assert any(sum(starts[other] <= k < starts[other] + counts[other] for _, starts, counts in listed) > 1
               for k in range(8))


def test_boxes_of_all_positions_of_an_axis_are_as_many_as_of_one() -> None:
    """The first axis is part of the form, but never decides: 4 * row - 4 * column + 0 to 3 >= 0."""
    triangle = Constraint(Linear(0, (), ((0, 1), (1, 4), (2, -4))))
    listed = boxes((triangle,), (4, 5, 5))
    assert len(listed) == 5 and all(counts[0] == 4 for _, _, counts in listed)
    assert boxes((triangle,), (4, 5, 5), limit=5) == listed
    with pytest.raises(Unsupported, match="more than 4 boxes"):
        boxes((triangle,), (4, 5, 5), limit=4)
