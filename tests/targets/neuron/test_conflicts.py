# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cells of a memory in which the checker looks for conflicts: two footprints share one where they share a byte."""

import itertools
from collections import Counter
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nki_mlir.dialects.access import Access, Linear
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8, DType
from nki_mlir.targets.neuron.checker import conflicts
from nki_mlir.targets.neuron.checker.conflicts import BytesOfRows, Cells, Conflicts, MemoryAccess, blocks_of, folded
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint
from nki_mlir.targets.neuron.checker.register_numbers import DataDependent

PITCH = 64                              # bytes of a row of the tensor
DTYPES = st.sampled_from((UINT8, BFLOAT16, FLOAT32))


def in_hbm(dtype: DType, start: int, *dims: tuple[int, int]) -> ByteFootprint:
    """``start`` and the steps of ``dims`` are in elements."""
    return ByteFootprint(("input", 0), Access(dtype, None, Linear(start), dims), ())


def bytes_touched(footprint: ByteFootprint) -> set[int]:
    """The bytes that a footprint of HBM touches, from its dimensions."""
    return {footprint.start + sum(step * k for (step, _), k in zip(footprint.dims, point)) + byte
            for point in itertools.product(*(range(count) for _, count in footprint.dims))
            for byte in range(footprint.size)}


def bytes_of(block: BytesOfRows, pitch: int) -> set[int]:
    starts = [block.low] if block.starts is None else block.starts.tolist()
    length = block.high - block.low if block.starts is None else block.length
    return {row * pitch + start + byte for row in range(block.first, block.last + 1) for start in starts
            for byte in range(length)}


@st.composite
def footprints(draw: st.DrawFn) -> ByteFootprint:
    """Rows of a tensor of ``PITCH`` bytes each and columns within them, some with a step; or a part of one row."""
    dtype = draw(DTYPES)
    columns = PITCH // dtype.itemsize
    step = draw(st.integers(1, 4))
    count = draw(st.integers(1, columns // step))
    column = draw(st.integers(0, columns - (count - 1) * step - 1))
    row, rows = draw(st.integers(0, 4)), draw(st.integers(1, 4))
    inner = [(step, count)]
    if count % 2 == 0 and draw(st.booleans()):
        inner = [(2 * step, count // 2), (step, 2)]
    outer = [] if rows == 1 and draw(st.booleans()) else [(columns, rows)]
    return in_hbm(dtype, row * columns + column, *outer, *inner)


@given(footprints())
def test_rows_of_a_tensor__have_the_bytes_of_the_footprint(footprint: ByteFootprint) -> None:
    block = folded(footprint, PITCH)
    assert block is not None
    assert bytes_of(block, PITCH) == bytes_touched(footprint)
    assert block.low == min(b % PITCH for b in bytes_touched(footprint))
    assert block.high == 1 + max(b % PITCH for b in bytes_touched(footprint))


@given(DTYPES, st.integers(0, 100), st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), min_size=1, max_size=3))
def test_rows_of_another_length__have_the_same_bytes_or_are_refused(dtype: DType, start: int,
                                                                    dims: list[tuple[int, int]]) -> None:
    footprint = in_hbm(dtype, start, *dims)
    block = folded(footprint, PITCH)
    if block is not None:
        assert bytes_of(block, PITCH) == bytes_touched(footprint)


def pairs_that_share(listed: list[ByteFootprint]) -> tuple[list[bool], list[bool]]:
    """Return for each pair of footprints whether they share a cell, and whether they share a byte."""
    cells, touched = Cells(listed), []
    for footprint in listed:
        rows, columns, count = cells.of(footprint)
        mark = np.zeros(cells.numbers.shape, bool)
        mark[rows, columns] = True
        assert mark.sum() == count
        touched.append(mark)
    pairs = list(itertools.combinations(range(len(listed)), 2))
    return ([bool((touched[a] & touched[b]).any()) for a, b in pairs],
            [bool(bytes_touched(listed[a]) & bytes_touched(listed[b])) for a, b in pairs])


@settings(max_examples=120)
@given(st.lists(footprints(), min_size=2, max_size=6))
def test_footprints__share_a_cell_where_they_share_a_byte(listed: list[ByteFootprint]) -> None:
    by_cells, by_bytes = pairs_that_share(listed)
    assert by_cells == by_bytes


@pytest.mark.parametrize("sparse", (0, 1 << 30))
@settings(max_examples=25)
@given(st.lists(st.tuples(footprints(), st.booleans()), min_size=2, max_size=12))
def test_histories__are_of_the_last_writes(sparse: int, steps: list[tuple[ByteFootprint, bool]]) -> None:
    """Numbers of histories are counted or sorted. Each cell has the last write of all of it, and the reads since."""
    cells = Cells([footprint for footprint, _ in steps])
    written = np.full(cells.numbers.shape, -1)
    reads = np.zeros(cells.numbers.shape, int)              # as bits
    with patch.object(conflicts, "SPARSE", sparse):
        for number, (footprint, writes) in enumerate(steps):
            rows, columns, count = cells.of(footprint)
            past = cells.at(footprint)
            touched = Counter(cells.numbers[rows, columns].ravel().tolist())
            assert {history.number: cells for history, cells in past} == touched and touched.total() == count
            assert all(history.cells == (cells.numbers == history.number).sum() for history, _ in past)
            access = MemoryAccess(0, number, SimpleNamespace(core=0), footprint)
            if writes:
                cells.begin(footprint, past, access)
                written[rows, columns], reads[rows, columns] = number, 0
            else:
                for history in cells.split(footprint, past):
                    history.reads[number] = access
                reads[rows, columns] |= 1 << number
    for number in np.unique(cells.numbers).tolist():
        history, same = cells.histories[number], cells.numbers == number
        last, = np.unique(written[same]).tolist()
        assert [write.number for write in history.writes] == [n for n in [last] if n >= 0]
        assert np.unique(reads[same]).tolist() == [sum(1 << read for read in history.reads)]


@given(st.lists(st.tuples(DTYPES, st.integers(0, 60), st.lists(st.tuples(st.integers(1, 30), st.integers(1, 4)),
                                                               min_size=1, max_size=3)), min_size=2, max_size=5))
def test_footprints_of_any_steps__share_a_cell_where_they_share_a_byte(
        listed: list[tuple[DType, int, list[tuple[int, int]]]]) -> None:
    by_cells, by_bytes = pairs_that_share([in_hbm(dtype, start, *dims) for dtype, start, dims in listed])
    assert by_cells == by_bytes


@given(st.lists(footprints(), min_size=1, max_size=5))
def test_tensor_with_one_pitch__is_folded_at_its_rows(listed: list[ByteFootprint]) -> None:
    assume(any(len(f.dims) > 1 and f.dims[0][1] > 1 for f in listed))
    assume({f.dims[0][0] for f in listed if len(f.dims) > 1 and f.dims[0][1] > 1} == {PITCH})
    assert all(0 <= block.low < block.high <= PITCH for block in blocks_of(listed).values())


def test_footprints_at_unknown_numbers__share_a_cell_with_each_byte_that_a_number_lets_them_touch() -> None:
    rows = in_hbm(UINT8, 0, (PITCH, 3), (1, 5))                 # with it the memory is folded at its rows
    for dims, factor, others in itertools.product((((3, 4),), ((PITCH, 2), (2, 3)), ((1, 4),)), (1, 7, PITCH), ((), (rows,))):
        access = Access(UINT8, None, Linear(62, ((0, factor),)), dims)
        moved = ByteFootprint(("input", 0), access, (DataDependent("n", 0, 2),))
        touched = set().union(*(bytes_touched(ByteFootprint(("input", 0), access, (n,))) for n in range(3)))
        for byte in touched:
            cells = Cells([moved, in_hbm(UINT8, byte, (1, 1)), *others])
            marks = []
            for footprint in (moved, in_hbm(UINT8, byte, (1, 1))):
                known = next(f for f in cells.blocks if (f.low, f.high, f.symbolic) == (
                    footprint.low, footprint.high, footprint.symbolic))
                touched_rows, columns, _ = cells.of(known)
                marks.append(np.zeros(cells.numbers.shape, bool))
                marks[-1][touched_rows, columns] = True
            assert (marks[0] & marks[1]).any(), (dims, factor, byte)


def test_conflict__is_certain_unless_data_choose_the_elements_of_another_core() -> None:
    first, second = in_hbm(UINT8, 0, (1, 4)), in_hbm(UINT8, 2, (1, 4))
    unknown = ByteFootprint(("input", 0), Access(UINT8, None, Linear(0, ((0, 1),)), ((1, 4),)),
                            (DataDependent("n", 0, 9),))
    for a, b, cores in itertools.product((False, True), (False, True), ((0, 0), (0, 1))):
        accesses = [MemoryAccess(0, 1, SimpleNamespace(core=core), footprint, by_data)
                    for core, footprint, by_data in zip(cores, (first, second), (a, b))]
        assert accesses[0].certain(accesses[1]) is not ((a or b) and cores == (0, 1))
        assert not accesses[0].certain(accesses[1]._replace(footprint=unknown))


class Touching:
    """An event of an engine that waits for nothing of the other engine."""

    core, queue_lane = 0, -1

    def __init__(self, lane: int, index: int) -> None:
        self.lane, self.index = lane, index
        self.clock = [index - 1 if lane == 0 else 0, 0]


def test_write_at_unknown_numbers__leaves_the_writes_before_it() -> None:
    """Both writes conflict with a later read that nothing orders, the one at known bytes for certain."""
    known = in_hbm(UINT8, 0, (1, 4))
    access = Access(UINT8, None, Linear(0, ((0, 1),)), ((1, 4),))
    unknown = ByteFootprint(known.memory, access, (DataDependent("n", 0, 9),))
    first, then, read = Touching(0, 1), Touching(0, 2), Touching(1, 1)
    memory = Conflicts({known.memory: [known, unknown]})
    assert not memory.add(first, known, True) and not memory.add(then, unknown, True)
    assert [(conflict.first, conflict.certain) for conflict in memory.add(read, known, False)] == [
        (first, True), (then, False)]
