# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bytes that a footprint touches, and which of them have been written, against sets of bytes."""

import itertools
import random

import pytest

from nki_mlir.dialects.access import Access, Linear
from nki_mlir.dialects.isa.program import DeviceLiveRange
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8
from nki_mlir.targets.neuron.checker import footprint as footprints
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint, runs_of, share
from nki_mlir.targets.neuron.checker.memory import WrittenBytes
from nki_mlir.targets.neuron.checker.register_numbers import DataDependent

RNG = random.Random(5)


def random_dims(most=3):
    return tuple((RNG.randrange(-9, 10), RNG.randrange(1, 5)) for _ in range(RNG.randrange(most + 1)))


def bytes_of(dims, size, start=0):
    """The bytes of a pattern whose first element begins at ``start``."""
    return {start + sum(step * k for (step, _), k in zip(dims, point)) + byte
            for point in itertools.product(*(range(count) for _, count in dims)) for byte in range(size)}


def on_chip(dtype, partition, free, dims, values=(), **row):
    return ByteFootprint(("sbuf", 0), Access(dtype, partition, free, dims), values, **row)


def cells_of(tile):
    """The (partition, byte) pairs of a footprint whose numbers are known, from its dimensions."""
    below = sum(min(0, step * (count - 1)) for step, count in tile.dims)
    return {(p, b) for p in range(tile.first, tile.last + 1) for b in bytes_of(tile.dims, tile.size, tile.start - below)}


def random_tile(columns=12):
    dtype = RNG.choice([UINT8, BFLOAT16, FLOAT32])
    dims = tuple((RNG.randrange(5), RNG.randrange(1, 4)) for _ in range(RNG.randrange(1, 3)))
    partitions = RNG.randrange(1, 3)
    return on_chip(dtype, Linear(RNG.randrange(3)), Linear(RNG.randrange(columns)), ((1, partitions), *dims))


def test_runs__have_the_bytes_of_the_pattern():
    for _ in range(300):
        dims, size = random_dims(), RNG.choice([1, 2, 4])
        runs, touched = runs_of(dims, size), bytes_of(dims, size)
        assert {runs.below + start + k for start in runs.starts.tolist() for k in range(runs.length)} == touched
        assert (runs.below, runs.extent) == (min(touched), max(touched) + 1 - min(touched))
        assert runs.starts.tolist() == sorted(set(runs.starts.tolist()))
        assert runs.unbroken == (len(touched) == runs.extent)


def test_share__returns_the_lowest_common_byte():
    shared = 0
    for _ in range(600):
        a, b = random_dims(2), random_dims(2)
        sizes, apart = (RNG.choice([1, 2, 4]), RNG.choice([1, 2, 4])), RNG.randrange(-30, 31)
        bytes_a, bytes_b = bytes_of(a, sizes[0]), bytes_of(b, sizes[1])
        common = {k - min(bytes_a) for k in bytes_a} & {k - min(bytes_b) + apart for k in bytes_b}
        assert share(a, sizes[0], b, sizes[1], apart) == (min(common) if common else None)
        shared += bool(common)
    assert 100 < shared < 500


def test_patterns_of_too_many_runs__count_as_all_bytes_between_their_ends(monkeypatch):
    monkeypatch.setattr(footprints, "RUNS", 3)
    runs_of.cache_clear()
    share.cache_clear()
    assert runs_of(((8, 3),), 4).starts.tolist() == [0, 8, 16]
    assert runs_of(((8, 4),), 4).starts is None and runs_of(((8, 4),), 4).extent == 28
    assert share(((8, 4),), 4, (), 1, 5) == 5 and share(((8, 3),), 4, (), 1, 5) is None
    assert share((), 1, ((8, 4),), 4, -5) == 0 and share((), 1, ((8, 3),), 4, -5) is None
    assert share(((8, 4),), 4, (), 1, 28) is None and share((), 1, ((8, 4),), 4, -28) is None
    many, few = (on_chip(FLOAT32, Linear(0), Linear(0), ((1, 1), (2, n))) for n in (4, 3))
    assert few.certain(few) and not (many.certain(few) or few.certain(many))
    runs_of.cache_clear()
    share.cache_clear()


def test_footprints__share_and_cover_cells_as_sets_do():
    for _ in range(600):
        a, b = random_tile(), random_tile()
        cells_a, cells_b = cells_of(a), cells_of(b)
        assert {p for p, _ in cells_a} == set(range(a.first, a.last + 1))
        assert (a.low, a.high) == (min(k for _, k in cells_a), max(k for _, k in cells_a) + 1)
        common = cells_a & cells_b
        assert a.shared(b) == (min(common) if common else None)
        assert a.covers(b) == (a.exact and cells_b <= cells_a)
        assert a.covers(a) and a.certain(b)


def test_footprint_of_a_partition_step__reaches_the_last_partition():
    assert [on_chip(UINT8, Linear(9), Linear(0), ((step, 3), (1, 1))).last for step in (1, 2, 0)] == [11, 13, 9]


def test_footprint_in_hbm__has_one_row():
    tile = ByteFootprint(("input", 0), Access(BFLOAT16, None, Linear(3), ((8, 2), (1, 4))), ())
    assert (tile.first, tile.last, tile.start, tile.low, tile.high) == (0, 0, 6, 6, 30)
    assert tile.dims == ((16, 2), (2, 4)) and not tile.exact


def test_footprint_of_registers__is_where_their_values_say():
    access = Access(BFLOAT16, Linear(1, ((1, 2),)), Linear(5, ((0, 3), (1, -2))), ((1, 4), (1, 8)))
    footprint = ByteFootprint(("sbuf", 0), access, (7, 4))
    assert (footprint.symbolic, footprint.first, footprint.last, footprint.start) == (None, 9, 12, 2 * (5 + 21 - 8))
    assert (footprint.low, footprint.high) == (footprint.start, footprint.start + 16)
    n, m = DataDependent("n", 2, 5), DataDependent("m", -1, 3)
    tile = ByteFootprint(("sbuf", 0), access, (n, m))
    reached = [ByteFootprint(("sbuf", 0), access, values) for values in itertools.product(range(2, 6), range(-1, 4))]
    assert (tile.first, tile.last) == (min(f.first for f in reached), max(f.last for f in reached))
    assert (tile.low, tile.high) == (min(f.low for f in reached), max(f.high for f in reached))
    assert tile.symbolic == (("n", 6), ("m", -4), ("m", 2, "partition")) and not tile.exact
    assert not tile.covers(tile) and not footprint.certain(tile) and not tile.certain(footprint) and tile.certain(tile)
    assert tile.shared(footprint) == (max(tile.first, 9), max(tile.low, footprint.low))
    fixed = DataDependent("n", 7, 7), DataDependent("m", 4, 4)
    assert ByteFootprint(("sbuf", 0), access, fixed).symbolic is None
    clipped = ByteFootprint(("sbuf", 0), access, (n, m), 30)
    assert (tile.low, clipped.low, clipped.high) == (10, 10, 30)
    low = ByteFootprint(("sbuf", 0), access, (DataDependent("n", -9, 5), m), 30)
    assert (low.low, low.high) == (0, 30)


def test_footprints_of_the_same_unknown_number__are_compared_run_by_run():
    n = DataDependent("n", 0, 9)
    even, odd, next_row = (on_chip(UINT8, Linear(row), Linear(start, ((0, 1),)), ((1, 1), (2, 3)), (n,))
                           for row, start in ((0, 0), (0, 1), (1, 0)))
    assert even.shared(odd) is None and even.shared(next_row) is None
    assert even.shared(on_chip(UINT8, Linear(0), Linear(4, ((0, 1),)), ((1, 1), (2, 3)), (n,))) == (0, 4)


# -- written bytes -----------------------------------------------------------------------------------------------------
def test_written_bytes__are_those_of_the_footprints():
    for _ in range(150):
        tiles = [random_tile() for _ in range(4)]
        written, record = set(), WrittenBytes(tiles)
        for tile in (*tiles, *tiles):
            missing = cells_of(tile) - written
            assert record.first_unwritten(tile) == (min(missing) if missing else None)
            if RNG.random() < 0.6:
                record.view(tile)[...] = True
                written |= cells_of(tile)
                assert record.first_unwritten(tile) is None


def test_buffer_that_begins__has_no_written_bytes():
    full = on_chip(UINT8, Linear(0), Linear(0), ((1, 4), (1, 64)))
    parts = [on_chip(UINT8, Linear(p), Linear(4 * b), ((1, 1), (1, 4))) for p in range(4) for b in range(16)]
    record = WrittenBytes([full, *parts])
    record.view(full)[...] = True
    record.begin(DeviceLiveRange("t", "sbuf", 1, 2, 8, 16, ()))
    unwritten = [(p.first, p.low) for p in parts if record.first_unwritten(p)]
    assert unwritten == [(p, b) for p in (1, 2) for b in (8, 12, 16, 20)]


def test_bytes_of_an_unknown_start__are_all_that_it_reaches():
    n = DataDependent("n", 0, 3)
    moving = on_chip(BFLOAT16, Linear(0), Linear(2, ((0, 1),)), ((1, 2), (1, 2)), (n,))
    ones = [on_chip(BFLOAT16, Linear(p), Linear(b), ((1, 1), (1, 1))) for p in range(3) for b in range(9)]
    record = WrittenBytes([moving, *ones])
    record.view(moving)[...] = True
    assert [(one.first, one.low) for one in ones if record.first_unwritten(one) is None] == [
        (p, b) for p in (0, 1) for b in range(4, 14, 2)]


@pytest.mark.parametrize("step, count", [(1, 2), (-1, 3), (-3, 2)])
def test_first_unwritten__is_in_the_first_partition_that_has_one(step, count):
    tile, first_row = (on_chip(UINT8, Linear(2), Linear(8), ((1, rows), (2 * step, count))) for rows in (2, 1))
    record = WrittenBytes([tile, first_row])
    assert record.first_unwritten(tile) == (2, tile.low)
    record.view(first_row)[...] = True
    assert record.first_unwritten(tile) == (3, tile.low)
