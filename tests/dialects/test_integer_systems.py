# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Systems of linear equations and inequalities against the enumeration of all values."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.integer_systems import Row, SearchTooLong, solution

from ..property_counts import tries


def holds(rows, values):
    sums = [row.const + sum(c * values[v] for v, c in row.terms) for row in rows]
    return all(s == 0 if row.equal else s >= 0 for s, row in zip(sums, rows))


def by_trying(spans, rows):
    return any(holds(rows, values) for values in itertools.product(*(range(a, b + 1) for a, b in spans)))


SPANS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)).map(lambda s: (s[0], s[0] + s[1])), min_size=1,
                 max_size=5).map(tuple)


@st.composite
def systems(draw):
    spans = draw(SPANS)
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        chosen = draw(st.sets(st.integers(0, len(spans) - 1), min_size=1))
        terms = tuple((v, draw(st.sampled_from((-30, -12, -8, -6, -4, -3, -2, -1, 1, 2, 3, 4, 6, 8, 12, 30))))
                      for v in sorted(chosen))
        rows.append(Row(draw(st.integers(-40, 40)), terms, draw(st.booleans())))
    return spans, tuple(rows)


@tries(500)
@given(systems())
def test_a_solution_holds_and_none_means_none(system):
    spans, rows = system
    numbers = solution(spans, rows)
    assert (numbers is not None) == by_trying(spans, rows)
    if numbers is not None:
        assert all(a <= n <= b for n, (a, b) in zip(numbers, spans))
        assert holds(rows, numbers)


@pytest.mark.parametrize("spans, rows, expected", [
    # tiles of 128 x 512 in rows of 4096, programs apart by tiles: no two of them meet
    (((1, 31), (-7, 7), (-127, 127), (-511, 511)), (Row(0, ((0, 524288), (1, 512), (2, 4096), (3, 1)), True),), False),
    # strips of 40 every 8
    (((1, 15), (-39, 39)), (Row(0, ((0, 8), (1, -1)), True),), True),
    # odd and even elements
    (((0, 10 ** 6), (0, 10 ** 6)), (Row(1, ((0, 2), (1, -2)), True),), False),
    # 6 x + 10 y + 15 z = 29 has the solution x = -1, y = 2, z = 1
    (((-1, 100), (2, 100), (1, 100)), (Row(-29, ((0, 6), (1, 10), (2, 15)), True),), True),
    (((0, 100), (0, 100), (0, 100)), (Row(-29, ((0, 6), (1, 10), (2, 15)), True),), False),
    (((3, 2),), (), False),
    # rows without room: the least value is 1, the greatest is -1, both ends are 0
    (((0, 9),), (Row(1, ((0, 1),), True),), False), (((-9, 0),), (Row(-1, ((0, 1),), True),), False),
    (((0, 9),), (Row(0, ((0, 1),), True),), True), (((-9, 0),), (Row(0, ((0, 1),), True),), True),
    (((-9, 0),), (Row(-1, ((0, 1),)),), False), (((-9, 0),), (Row(0, ((0, 1),)),), True),
    (((0, 4), (0, 4)), (), True),
])
def test_systems_of_access_patterns(spans, rows, expected):
    numbers = solution(spans, rows)
    assert (numbers is not None) == expected
    assert numbers is None or holds(rows, numbers)


def test_a_search_is_given_up():
    rows = Row(-1, ((0, 1000003), (1, -999983), (2, 7919 * 31)), True), Row(0, ((0, 1), (1, -1), (2, 3)))
    with pytest.raises(SearchTooLong, match=r"^$"):
        solution(((0, 10 ** 9), (0, 10 ** 9), (0, 10 ** 9)), rows, steps=2)
