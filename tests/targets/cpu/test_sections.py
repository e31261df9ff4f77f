# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sections of a sequence of nodes, compared with all pairs of nodes that access the same byte."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import sections
from nki_mlir.targets.cpu.sections import Sections, links, longest_first
from nki_mlir.waist.overlap import ByteRegion

Access = tuple[str, int, int, bool]             # memory, first byte, bytes, whether it writes
ACCESSES = st.tuples(st.sampled_from("xy"), st.integers(0, 12), st.integers(1, 4), st.booleans())
NODES = st.lists(st.lists(ACCESSES, min_size=1, max_size=2), min_size=1, max_size=9)


def region(access: Access) -> ByteRegion:
    root, start, size, writes = access
    return ByteRegion(root, Linear(), 16, Linear(start)).accessed((), size, writes)


def conflict(node: list[Access], other: list[Access]) -> bool:
    return any(a[0] == b[0] and (a[3] or b[3]) and a[1] < b[1] + b[2] and b[1] < a[1] + a[2]
               for a in node for b in other)


@pytest.fixture(scope="module", autouse=True)
def nodes_are_lists_of_accesses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "accesses_of", lambda node: map(region, node))
        patch.setattr(sections, "running_cost", lambda block: float(len(block.nodes[0])))
        yield


@given(NODES, st.data())
def test_sections__end_where_no_byte_connects_the_nodes_before_and_after(nodes: list[list[Access]], data: st.DataObject
                                                                         ) -> None:
    start = data.draw(st.integers(0, len(nodes) - 1))
    end = data.draw(st.integers(start + 1, len(nodes)))
    conflicts = [(i, j) for i, j in combinations(range(start, end), 2) if conflict(nodes[i], nodes[j])]
    cuts = [n for n in range(start + 1, end) if not any(i < n <= j for i, j in conflicts)]
    assert Sections(nodes).divide(start, end) == [*pairwise([start, *cuts, end])]


def test_sections__through_addresses_of_unknown_distance_depend_on_each_other() -> None:
    at_slot = ByteRegion("x", Linear(0, ((7, 4),)), 16, Linear()).accessed((), 4, True)
    touched = [sections.TouchedBytes(at_slot, [(0, True)]),
               sections.TouchedBytes(region(("x", 0, 4, False)), [(3, False)])]
    assert [*sections.dependences_in_memory(touched)] == [(0, 3)]


def test_sections__of_too_many_bytes_to_compare_are_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[("x", 0, 4, True)], [("x", 2, 4, True)], [("x", 8, 4, True)], [("x", 10, 4, True)]]
    assert Sections(rows).divide(0, 4) == [(0, 2), (2, 4)]
    monkeypatch.setattr(sections, "PAIRS_COMPARED", 1)
    assert Sections(rows).divide(0, 4) == [(0, 4)]


def test_longest__is_the_time_of_the_section_that_takes_the_most() -> None:
    rows = [[("x", 0, 4, True)], [("x", 2, 4, True)], [("x", 8, 4, True)]]
    assert (Sections(rows).longest(0, 3), Sections(rows).longest(1, 3)) == (2.0, 1.0)


def test_jobs__join_short_sections() -> None:
    apart = [[("x", n, 1, True)] for n in range(5)]
    assert Sections(apart).jobs(0, 5, 2.0) == [(0, 2), (2, 4), (4, 5)]
    assert Sections(apart).jobs(1, 3, 1.0) == [(1, 2), (2, 3)]


def test_links__are_those_between_a_write_and_its_neighbors() -> None:
    assert sorted(links([(0, True), (1, False), (2, False), (3, True), (4, False)])) == [
        (0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 4)]


@pytest.mark.parametrize("costs, threads, time", [
    ([3.0, 3.0, 2.0, 2.0, 2.0], 2, 7.0), ([1.0, 4.0], 2, 4.0), ([1.0], 4, 1.0), ([2.0, 1.0, 1.0], 2, 2.0)])
def test_longest_first__is_the_time_of_the_last_thread(costs: list[float], threads: int, time: float) -> None:
    assert longest_first(costs, threads) == time
