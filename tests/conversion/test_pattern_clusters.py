# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Clusters of movable patterns, by their definition: the patterns of a buffer whose intervals touch, one after another."""

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from nki_mlir.conversion.movable_patterns import PatternCluster, clusters_of, reach_of
from nki_mlir.dialects.access import Access, Linear
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.overlap import ANYWHERE


@st.composite
def patterns(draw):
    """The slots of operands, the starts of those that may move, by the number of the operand, and their reaches."""
    slots = draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
    movable = draw(st.lists(st.booleans(), min_size=len(slots), max_size=len(slots)))
    starts = [(number, draw(st.integers(0, 12))) for number, moves in enumerate(movable) if moves]
    reaches = [(-draw(st.integers(0, 3)), draw(st.integers(1, 4))) for _ in starts]
    return slots, starts, reaches


def touching(intervals: dict[int, tuple[int, int]]) -> list[set[int]]:
    """The connected components of intervals, of which two are connected if they overlap or adjoin."""
    components: list[set[int]] = []
    for index, (low, high) in intervals.items():
        near = [c for c in components if any(intervals[k][0] <= high and low <= intervals[k][1] for k in c)]
        components = [c for c in components if c not in near] + [{index}.union(*near)]
    return components


@given(patterns())
@example(([0, 0, 1], [(0, 3), (2, 5)], [(0, 1), (0, 2)]))          # a buffer with a fixed pattern before another one
def test_clusters_are_the_components_of_touching_patterns(drawn):
    slots, starts, reaches = drawn
    fixed = {slot for number, slot in enumerate(slots) if number not in dict(starts)}
    expected: list[tuple[int, PatternCluster, set[int]]] = []
    for slot in {*slots} - fixed:
        intervals = {index: (start + low, start + high) for index, ((number, start), (low, high))
                     in enumerate(zip(starts, reaches)) if slots[number] == slot}
        for members in touching(intervals):
            cluster = PatternCluster(slot, starts[min(members)][1], min(intervals[k][0] for k in members),
                                     max(intervals[k][1] for k in members))
            expected.append((min(members), cluster, members))
    expected.sort(key=lambda entry: entry[0])
    distances = []
    for index, (_, start) in enumerate(starts):
        numbers = [n for n, (_, _, members) in enumerate(expected) if index in members]
        distances.append((numbers[0], start - expected[numbers[0]][1].start) if numbers else (-1, start))
    assert clusters_of(slots, starts, reaches) == ([cluster for _, cluster, _ in expected], tuple(distances))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=3), st.integers(0, 9))
def test_reach_of_is_the_span_of_the_elements(dims, start):
    access = Access(FLOAT32, Linear(3), Linear(start), ((1, 4), *dims))
    elements = [sum(step * n for (step, _), n in zip(dims, index)) for index in product(*(range(n) for _, n in dims))]
    assert reach_of(access) == (min(elements), max(elements) + 1)


def test_a_pattern_at_registers_may_reach_anything():
    access = Access(FLOAT32, Linear(0), Linear(0, ((0, 1),)), ((1, 4), (1, 8)))
    assert reach_of(access) == (-ANYWHERE, ANYWHERE)
