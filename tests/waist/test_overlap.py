# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Overlap and cover of access patterns, boxes and operands against the sets of bytes they stand for."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import HBM, PSUM, SBUF, ZERO, Access, Linear, Tile, same_elements
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT8, UINT8
from nki_mlir.waist.byte_nest import nest_of
from nki_mlir.waist.overlap import (
    BoxColumns,
    ByteRegion,
    Iterations,
    OverlapSystem,
    RegionTests,
    are_apart,
    boxes_overlap,
    elements_apart,
    groups_that_overlap,
    index_boxes_apart,
    may_interleave,
    may_overlap,
    owners_apart,
    region_of,
    repeats_apart,
)

DIMS = st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 4)), min_size=1, max_size=3)
DTYPES = st.sampled_from([FLOAT32, BFLOAT16, UINT8])
MEMBERS = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 120), DIMS, DTYPES)


def access(first, count, free, dims, dtype):
    return Access(dtype, Linear(first), Linear(free), ((1, count), *dims))


def touched(first, count, free, dims, dtype):
    flat = np.array([free])
    for step, n in dims:
        flat = (flat[:, None] + np.arange(n) * step).reshape(-1)
    first_bytes = flat[:, None] * dtype.itemsize + np.arange(dtype.itemsize)
    return {(p, int(b)) for p in range(first, first + count) for b in first_bytes.reshape(-1)}


@given(MEMBERS, MEMBERS)
def test_overlap__is_never_missed(a, b):
    one, other = (region_of(access(*x), "sbuf") for x in (a, b))
    shares = bool(touched(*a) & touched(*b))
    assert one.overlaps(other) >= shares
    assert one.overlaps(other) == other.overlaps(one)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 6), st.integers(1, 6), st.integers(1, 8),
       st.integers(1, 8), st.integers(8, 40))
def test_overlap__is_exact_for_rows_of_one_pitch(start_a, start_b, rows_a, rows_b, width_a, width_b, pitch):
    a, b = (0, 1, start_a, ((pitch, rows_a), (1, width_a)), FLOAT32), (0, 1, start_b, ((pitch, rows_b), (1, width_b)),
                                                                      FLOAT32)
    assert region_of(access(*a), "m").overlaps(region_of(access(*b), "m")) == bool(touched(*a) & touched(*b))


@given(MEMBERS, st.lists(MEMBERS, max_size=6), st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_many_accesses__overlap_a_region_as_each_alone(member, others, starts):
    """Also those of the same nest at several distances, whose results are memoized."""
    first, count, _, dims, dtype = member
    region = region_of(access(*member), "m")
    accesses = [SimpleNamespace(region=region_of(access(*other), "m")) for other in others]
    accesses += [SimpleNamespace(region=region_of(access(first, count, start, dims, dtype), "m")) for start in starts]
    tests = RegionTests()
    for _ in range(2):
        assert tests.overlapping(region, accesses) == [a for a in accesses if a.region.overlaps(region)]


@given(st.lists(st.tuples(st.integers(0, 2), MEMBERS), min_size=1, max_size=8))
def test_groups_that_overlap__have_two_regions_whose_bounds_overlap(members):
    regions = [region_of(access(*member), "m") for _, member in members]
    groups = np.array([group for group, _ in members])
    expected = {int(groups[a]) for a in range(len(regions)) for b in range(a)
                if groups[a] == groups[b] and regions[a].bounds_overlap(regions[b])}
    assert groups_that_overlap(groups, regions).tolist() == sorted(expected)


@given(MEMBERS, MEMBERS)
def test_cover__is_only_claimed_where_it_holds(a, b):
    if region_of(access(*a), "sbuf").covers(region_of(access(*b), "sbuf")):
        assert touched(*a) >= touched(*b)


def test_cover__of_itself_and_of_a_part():
    full, part = (region_of(access(0, 4, free, dims, FLOAT32), "m") for free, dims in ((0, ((1, 64),)), (8, ((2, 16),))))
    assert full.covers(full) and full.covers(part) and not part.covers(full)


RUNS = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 12), st.integers(1, 12))


@given(RUNS, RUNS)
def test_without__leaves_what_the_other_run_does_not_touch(a, b):
    (one, of_one), (other, of_other) = ((region_of(access(*x), "m"), touched(*x)) for x in (
        (first, count, free, ((1, length),), UINT8) for first, count, free, length in (a, b)))
    if not one.overlaps(other) or other.covers(one):
        return
    rest = one.without(other)
    left = {(p, k) for p in range(rest.first, rest.last + 1) for k in range(rest.low, rest.high)}
    assert of_one - of_other <= left <= of_one
    is_one_run = (other.first <= one.first and one.last <= other.last) != (other.low <= one.low and one.high <= other.high)
    if is_one_run and not (one.first < other.first and other.last < one.last) and not (
            one.low < other.low and other.high < one.high):
        assert left == of_one - of_other


def test_nest__merges_what_is_contiguous():
    assert nest_of(((16, 4), (4, 4), (1, 4)), 4)[:3] == ((), 256, 256)
    assert nest_of(((64, 8), (1, 16)), 2)[:3] == (((128, 8),), 32, 128 * 7 + 32)
    assert nest_of(((-1, 5),), 4).shift == -16


def test_overlap__with_registers_is_exact_for_equal_terms_only():
    def moving(free, factor):
        pattern = Access(FLOAT32, Linear(), Linear(free, ((0, factor),)), ((1, 128), (1, 16)))
        return region_of(pattern, "m", symbols=("i",), ranges=((0, 3),))

    assert not moving(0, 16).overlaps(moving(16, 16))
    assert moving(0, 16).overlaps(moving(8, 16))
    assert moving(0, 16).overlaps(moving(16, 32))       # i = 1 and i = 0
    assert not moving(0, 16).overlaps(moving(64, 32))   # 0 to 63 against 64 on


def test_overlap__with_a_register_as_partition():
    """Partitions at a register's value may be any; with the same register they are as far apart as without it."""
    def rows(first, *register):
        pattern = Access(FLOAT32, Linear(first, register), Linear(), ((1, 16), (1, 8)))
        return region_of(pattern, "m", symbols=("i",), ranges=((0, 96),))

    moving, low, high = rows(0, (0, 1)), rows(0), rows(64)
    assert [low.symbolic, moving.symbolic] == [None, ((), (("i", 1),))]
    assert moving.overlaps(low) and moving.overlaps(high) and high.overlaps(moving) and not low.overlaps(high)
    assert not moving.covers(low) and moving.covers(rows(0, (0, 1)))
    assert moving.overlaps(rows(15, (0, 1))) and not moving.overlaps(rows(16, (0, 1)))


def test_overlap__of_steps_that_differ_goes_by_what_divides_them():
    """Of more blocks than are compared one by one."""
    even, odd, wide = (region_of(Access(UINT8, None, Linear(start), dims), "m") for start, dims in (
        (0, ((2, 900),)), (1, ((6, 300),)), (1, ((6, 300), (1, 2)))))
    assert not even.overlaps(odd) and not odd.overlaps(even)
    assert even.overlaps(wide) and wide.overlaps(even)


def test_overlap__of_two_memories_is_none():
    one, other = (region_of(access(0, 4, 0, ((1, 8),), FLOAT32), memory) for memory in ("a", "b"))
    assert one.overlaps(one) and not one.overlaps(other) and not one.covers(other)


# -- boxes and owners ---------------------------------------------------------------------------------------------------
BOXES = st.tuples(st.sampled_from([SBUF, PSUM]), st.tuples(st.integers(0, 3), st.integers(4, 6), st.integers(0, 5),
                                                           st.integers(6, 9)))


@given(BOXES, BOXES, st.integers(0, 8), st.integers(0, 8))
def test_boxes__overlap_where_they_share_a_byte(box, other, down, right):
    space, (a, b, c, d) = other
    other = space, (a + down, b + down, c + right, d + right)

    def elements(box):
        space, (a, b, c, d) = box
        return {(space, *at) for at in product(range(a, b), range(c, d))}
    columns = BoxColumns([box, other])
    assert columns.overlap(0, 1) == columns.overlap(1, 0) == bool(elements(box) & elements(other))
    in_one_memory = elements((SBUF, box[1])) & elements((SBUF, other[1]))
    assert boxes_overlap(box[1], other[1]) == boxes_overlap(other[1], box[1]) == bool(in_one_memory)


RANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=2, max_size=2)


@given(RANGES, RANGES)
def test_index_boxes__are_apart_where_they_share_no_element(some, others):
    def elements(ranges):
        return set(product(*(range(start, start + count) for start, count in ranges)))
    one, other = ([*zip(*ranges)] for ranges in (some, others))
    assert index_boxes_apart(one, other) == (not elements(some) & elements(others))


@given(st.lists(st.tuples(st.integers(-2, 12), st.integers(2, 4)), max_size=3))
def test_elements__of_positions_that_are_apart_are_different(axes):
    strides, extents = ([a[k] for a in axes] for k in (0, 1))
    elements = [sum(step * k for step, k in zip(strides, at)) for at in product(*map(range, extents))]
    assert not elements_apart(strides, extents) or len(set(elements)) == len(elements)


@given(st.integers(-30, 30), st.lists(st.tuples(st.integers(-8, 8), st.integers(1, 4)), max_size=2))
def test_repeated_patterns__share_no_element(distance, dims):
    """The least distance at which none can be shared is beyond the pattern's reach."""
    pattern = {sum(step * k for (step, _), k in zip(dims, at)) for at in product(*(range(n) for _, n in dims))}
    shared = any(pattern & {element + distance * k for element in pattern} for k in range(1, 4))
    assert not (repeats_apart(distance, dims) and shared)
    assert repeats_apart(max(pattern) - min(pattern) + 1, dims)


@pytest.mark.parametrize(("axes", "apart"), [
    ([(1, 8)], True), ([(8, 4), (1, 8)], True), ([(7, 4), (1, 8)], False), ([(0, 2), (1, 8)], False), ([(-1, 8)], False)])
def test_elements__of_dense_rows_are_apart(axes, apart):
    assert elements_apart(*([a[k] for a in axes] for k in (0, 1))) is apart


@pytest.mark.fuzz
@given(st.lists(st.tuples(st.integers(0, 40), st.lists(st.tuples(st.sampled_from([-16, -8, 8, 16]), st.integers(1, 3)),
                                                       max_size=2), st.integers(1, 8), st.integers(0, 1)), max_size=4))
def test_owners__that_are_apart_share_no_byte(parts):
    patterns = [(start, [*dims, (1, run)], owner) for start, dims, run, owner in parts]
    owned = [{start + run for start in starts for run in range(dims[-1][1])} for starts, dims in (
        ([start + sum(at) for at in product(*([step * k for k in range(n)] for step, n in dims[:-1]))], dims)
        for start, dims, _ in patterns)]
    if owners_apart(patterns):
        assert not set().union(*(o for o, p in zip(owned, patterns) if p[2])) & set().union(
            *(o for o, p in zip(owned, patterns) if not p[2]))


def test_owners__of_columns_of_the_same_rows_are_apart():
    def columns(start, owner):
        return start, ((64, 10), (1, 16)), owner
    assert owners_apart([columns(0, "a"), columns(16, "b"), columns(48, "c"), (640, ((64, 10), (1, 16)), "d")])
    assert not owners_apart([columns(0, "a"), columns(8, "b")])
    assert not owners_apart([columns(0, "a"), columns(128, "b")])


# -- two operands ------------------------------------------------------------------------------------------------------
HANDLE = object()


def forms() -> Any:
    """Forms over one symbol."""
    return st.builds(Linear, st.integers(-8, 8), st.integers(-4, 4).map(lambda c: ((0, c),) if c else ()))


def tiles(space: str) -> Any:
    """Any pattern on one buffer of 4 partitions with 24 bytes; it may leave the buffer."""
    symbols = forms()
    dims = st.lists(st.tuples(st.integers(-3, 6), st.integers(1, 4)), min_size=1, max_size=2)

    def make(dtype: Any, partition: Linear, free: Linear, lanes: tuple[int, int], free_dims: list) -> Tile:
        if space == HBM:
            return Tile(HANDLE, HBM, (24,), INT8, Access(dtype, None, free, tuple(free_dims)))
        return Tile(HANDLE, space, (4, 24), INT8, Access(dtype, partition, free, (lanes, *free_dims)))
    return st.builds(make, st.sampled_from([FLOAT32, BFLOAT16, INT8]), symbols, symbols,
                     st.tuples(st.integers(0, 1), st.integers(1, 4)), dims)


def bytes_of(t: Tile, symbol: int) -> set[tuple[int, int]]:
    """(partition, byte) of every element, for one value of the symbol."""
    access, size = t.access, t.dtype.itemsize
    covered = set()
    for point in product(*(range(count) for _, count in access.dims)):
        steps = [step * k for (step, _), k in zip(access.dims, point)]
        if access.partition is None:
            row, offset = 0, access.free.at((symbol,)) + sum(steps)
        else:
            row, offset = access.partition.at((symbol,)) + steps[0], access.free.at((symbol,)) + sum(steps[1:])
        covered |= {(row, offset * size + k) for k in range(size)}
    return covered


@pytest.mark.fuzz
@given(st.sampled_from([HBM, SBUF, PSUM]).flatmap(lambda s: st.tuples(tiles(s), tiles(s))), st.booleans())
def test_may_overlap__finds_every_shared_byte(pair: tuple[Tile, Tile], ranges_known: bool) -> None:
    a, b = pair
    shares = any(bytes_of(a, s) & bytes_of(b, s) for s in range(-2, 3))
    assert may_overlap(a, b, ((-2, 2),) if ranges_known else ()) or not shares
    assert may_overlap(a, b, ((-2, 2),)) == may_overlap(b, a, ((-2, 2),))


def on_chip(free: Linear, *dims: tuple[int, int], partition: Linear = ZERO, dtype: Any = FLOAT32) -> Tile:
    return Tile(HANDLE, SBUF, (128, 64), FLOAT32, Access(dtype, partition, free, dims))


ROW = (1, 128)
APART = [
    (on_chip(Linear(0), ROW, (1, 8)), on_chip(Linear(8), ROW, (1, 8))),                             # beside each other
    (on_chip(Linear(0), ROW, (2, 8)), on_chip(Linear(1), ROW, (2, 8))),                             # interleaved
    (on_chip(Linear(0), ROW, (4, 4), (2, 2)), on_chip(Linear(1), ROW, (4, 4), (2, 2))),
    (on_chip(Linear(0), (1, 64), (1, 8)), on_chip(Linear(0), (1, 64), (1, 8), partition=Linear(64))),
    (on_chip(Linear(0, ((0, 8),)), ROW, (1, 8)), on_chip(Linear(8, ((0, 8),)), ROW, (1, 8))),       # the symbol cancels
    (on_chip(Linear(0), ROW, (1, 8)), on_chip(Linear(16), ROW, (1, 8), dtype=BFLOAT16)),            # from byte 32 on
    (on_chip(Linear(0), ROW, (2, 8)), on_chip(Linear(2), ROW, (4, 8), dtype=BFLOAT16)),             # halves of a word
    (on_chip(Linear(0), ROW, (2, 500)), on_chip(Linear(1), ROW, (4, 250))),                         # odd and even
    (on_chip(Linear(0), ROW, (4, 5), (6, 4)), on_chip(Linear(1), ROW, (4, 5), (6, 4))),             # steps interleave
]
TOGETHER = [
    (on_chip(Linear(0), ROW, (1, 8)), on_chip(Linear(7), ROW, (1, 8))),
    (on_chip(Linear(0), ROW, (1, 8)), on_chip(Linear(0, ((0, 8),)), ROW, (1, 8))),                  # at symbol 0
    (on_chip(Linear(0), ROW, (1, 8)), on_chip(Linear(14), ROW, (1, 8), dtype=BFLOAT16)),            # at byte 28
]


@pytest.mark.parametrize(("a", "b"), APART)
def test_may_overlap__knows_what_is_apart(a: Tile, b: Tile) -> None:
    assert not may_overlap(a, b) and not may_overlap(b, a)


@pytest.mark.parametrize(("a", "b"), TOGETHER)
def test_may_overlap__assumes_it_otherwise(a: Tile, b: Tile) -> None:
    assert may_overlap(a, b, ((0, 3),)) and may_overlap(b, a)


def test_ranges__keep_symbols_apart() -> None:
    a, b = on_chip(Linear(0, ((0, 1),)), ROW, (1, 4)), on_chip(Linear(8), ROW, (1, 4))
    assert may_overlap(a, b)
    assert not may_overlap(a, b, ((0, 4),))
    assert may_overlap(a, b, ((0, 5),))


def test_other_buffers__do_not_overlap() -> None:
    a = on_chip(Linear(0), ROW, (1, 8))
    other = Tile(object(), a.space, a.base_shape, a.base_dtype, a.access)
    assert not may_overlap(a, other) and not same_elements(a, other)
    assert same_elements(a, on_chip(Linear(0), ROW, (1, 8))) and not same_elements(a, on_chip(Linear(1), ROW, (1, 8)))


# -- iterations of a loop ----------------------------------------------------------------------------------------------
VARIABLE, INNER, OUTER = 0, 1, 2    # the loop's variable, a symbol of its body with a range, a symbol from outside
SPANS = st.builds(lambda start, count, step: range(start, start + count * step, step), st.integers(-2, 2),
                  st.integers(1, 4), st.integers(1, 3))


def interval(start: int, pace: int = 0, inner: int = 0, outer: int = 0, run: int = 4, writes: bool = True, root: str = "m",
             dims: tuple[tuple[int, int], ...] = ()) -> ByteRegion:
    """Return an access of ``run`` bytes for each point of ``dims``."""
    symbols = tuple((s, c) for s, c in ((VARIABLE, pace), (INNER, inner), (OUTER, outer)) if c)
    return ByteRegion(root, Linear(start, symbols), 0, Linear(), "", dims, run, writes)


def iteration_bytes(access: ByteRegion, variable: int, inner: range) -> set[int]:
    starts = [access.address.at((variable, i, 7)) + sum(at) for i in inner
              for at in product(*([step * k for k in range(n)] for step, n in access.dims))]
    return {start + k for start in starts for k in range(access.run)}


def really_apart(loop: Iterations, accesses: list[ByteRegion], inner: range) -> bool:
    return not any(iteration_bytes(a, v, inner) & iteration_bytes(b, w, inner) for a in accesses for b in accesses
                   for v in loop.span for w in loop.span if v != w and a.root == b.root and (a.writes or b.writes))


def loop_of(span: range, inner: range) -> Iterations:
    return Iterations(VARIABLE, span, range(INNER, INNER + 1), {INNER: (inner[0], inner[-1])})


STEPS = st.sampled_from([0, 0, 2, 4, -4, 8, 16, -16, 40])
INTERVALS = st.builds(interval, st.integers(-8, 40), STEPS, STEPS, STEPS, st.integers(1, 6), st.booleans(),
                      st.sampled_from(["m", "m", "n"]),
                      st.lists(st.tuples(st.sampled_from([4, -8, 16, 64]), st.integers(1, 3)), max_size=2).map(tuple))


@pytest.mark.fuzz
@given(SPANS, st.integers(1, 3).map(range), st.lists(INTERVALS, min_size=1, max_size=3), st.booleans())
def test_iterations__that_are_kept_apart_share_no_byte(span, inner, accesses, alike):
    if alike:                       # one pattern, as columns of rows have
        accesses = [replace(accesses[0], writes=a.writes) for a in accesses]
    loop = loop_of(span, inner)
    assert not loop.keep_apart(accesses) or really_apart(loop, accesses, inner)
    assert loop.keep_apart(accesses, private={"m", "n"})


KEPT_APART = {
    "adjacent runs": ([interval(0, 4)], range(4)), "in steps": ([interval(0, 2)], range(0, 8, 2)),
    "downwards": ([interval(0, -4)], range(4)),
    "two halves of each step": ([interval(0, 8), interval(4, 8)], range(4)),
    "at one outer address": ([interval(0, 8, outer=3), interval(4, 8, outer=3)], range(4)),
    "inner loops": ([interval(0, 12, inner=4)], range(4)), "inner loops downwards": ([interval(0, 12, inner=-4)], range(4)),
    "reads": ([interval(0, writes=False), interval(2, 4, writes=False)], range(4)),
    "other memories": ([interval(0, 4), interval(2, 8, root="n", writes=False)], range(4)),
    "behind all iterations": ([interval(0, 4), interval(16, 8, writes=False)], range(4)),
    "before all iterations": ([interval(0, 8), interval(-16, -4, writes=False)], range(4)),
    "columns of rows": ([interval(0, 4, dims=((16, 3),)), interval(0, 4, writes=False, dims=((16, 3),))], range(4)),
    "columns of inner rows": ([interval(0, 4, inner=16)], range(4)),
    "columns of rows upwards": ([interval(0, 4, dims=((-16, 3),))], range(4)),
    "columns of several runs": ([interval(0, 12, inner=4, dims=((64, 2),))], range(4)),
    "a dimension of one element": ([interval(0, 4, dims=((5, 1), (16, 3)))], range(4)),
    "runs of a row that overlap": ([interval(0, 8, dims=((2, 3), (64, 3)))], range(4)),
    "runs of an inner loop that overlap": ([interval(0, 8, inner=2, dims=((64, 3),))], range(4))}
MEETING = {
    "one address": ([interval(0)], range(2)), "runs that overlap": ([interval(0, 3)], range(4)),
    "a read of the next step": ([interval(0, 4), interval(4, 4, writes=False)], range(4)),
    "one byte of the next step": ([interval(0, 4), interval(3, 4, run=2, writes=False)], range(4)),
    "other outer addresses": ([interval(0, 8), interval(4, 8, outer=8)], range(4)),
    "inner loops": ([interval(0, 8, inner=4)], range(4)), "the last byte of all": ([interval(0, 4), interval(15, 8)], range(4)),
    "the first byte of all": ([interval(0, 8), interval(-3, -4, writes=False)], range(4)),
    "columns beyond the row": ([interval(0, 4, dims=((12, 3),))], range(4)),
    "columns beyond the first of two rows": ([interval(0, 4, dims=((12, 2),))], range(4)),
    "two patterns": ([interval(0, 4, dims=((16, 3),)), interval(4, 4, dims=((16, 3),))], range(4))}


@pytest.mark.parametrize("name, apart", [*((n, True) for n in KEPT_APART), *((n, False) for n in MEETING)])
def test_iterations__known_to_be_apart(name, apart):
    accesses, span = (KEPT_APART if apart else MEETING)[name]
    inner = range(2, 5)
    loop = loop_of(span, inner)
    assert loop.keep_apart(accesses) == loop.keep_apart(accesses[::-1]) == apart
    assert really_apart(loop, accesses, inner) or not apart


def test_iterations__without_the_range_of_an_inner_symbol_are_not_known_to_be_apart():
    accesses = [interval(0, 12, inner=4)]
    assert loop_of(range(4), range(3)).keep_apart(accesses)
    assert not Iterations(VARIABLE, range(4), range(INNER, INNER + 1)).keep_apart(accesses)
    assert not loop_of(range(4), range(4)).keep_apart(accesses)


def test_reads__are_apart_whatever_bytes_they_share():
    loop, read, write = loop_of(range(4), range(1)), interval(0, writes=False), interval(0)
    unknown = interval(0, inner=4, outer=8, writes=False)
    assert loop.apart(read, read) and loop.keep_apart([read, read]) and loop.apart(read, unknown)
    assert not loop.apart(read, write) and not loop.apart(write, read) and not loop.keep_apart([read, write])
    assert loop.apart(write, interval(0, root="n"))


@given(INTERVALS, INTERVALS)
def test_accesses__that_are_apart_share_no_byte(a, b):
    a, b = (replace(x, base=Linear(x.base.const)) for x in (a, b))
    shared = a.root == b.root and iteration_bytes(a, 0, range(1)) & iteration_bytes(b, 0, range(1))
    assert not (are_apart(a, b) and shared)


def test_accesses__at_an_unknown_distance_may_share_bytes():
    assert not are_apart(interval(0, outer=4), interval(64))
    assert are_apart(interval(0, outer=4), interval(64, outer=4))



@given(INTERVALS, INTERVALS)
def test_accesses__interleave_where_one_begins_before_the_other_ends(a, b):
    a, b = (replace(x, base=Linear(x.base.const)) for x in (a, b))
    bytes_a, bytes_b = (iteration_bytes(x, 0, range(1)) for x in (a, b))
    meet = a.root == b.root and min(bytes_a) <= max(bytes_b) and min(bytes_b) <= max(bytes_a)
    assert may_interleave(a, b) == may_interleave(b, a) == meet


def test_accesses__of_parts_of_rows_interleave_and_of_blocks_of_rows_do_not():
    left, right, below = interval(0, dims=((16, 4),)), interval(4, dims=((16, 4),)), interval(64, dims=((16, 4),))
    assert may_interleave(left, right) and may_interleave(right, left)
    assert not may_interleave(left, below) and not may_interleave(below, right)
    assert may_interleave(interval(0, outer=4), interval(64)) and not may_interleave(left, interval(0, root="n"))


# -- systems of integers -----------------------------------------------------------------------------------------------
@given(st.integers(0, 12), st.sampled_from([2, 3, 5]), st.sampled_from([2, 3, 5]), st.integers(0, 6))
def test_system__has_the_common_elements_of_two_accesses(start, step, other_step, least):
    """Elements ``start + step * i`` and ``other_step * j``, where ``i >= least``."""
    common = {(i, j) for i in range(least, 6) for j in range(6) if start + step * i == other_step * j}
    system = OverlapSystem()
    i, j = system.variable(0, 5), system.variable(0, 5)
    system.row((-least, {i: 1}), False)
    system.equate([(0, {}), (start, {i: step})], [(0, {}), (0, {j: other_step})])
    values = system.solved()
    assert values in common if common else values is None
    first = {(least, j) for j in range(6) if start + step * least == other_step * j}     # also beyond the range of i
    values = system.solved({i: (least, least)})
    assert values in first if first else values is None


def test_small_boxes__overlap_if_they_share_a_byte():
    ends = [(low, high) for low in range(3) for high in range(low + 1, 4)]
    boxes = [(*partitions, *columns) for partitions in ends for columns in ends]
    assert boxes_overlap((0, 1, 0, 1), (0, 1, 0, 1)) and len(boxes) == 36
    for a, b in product(boxes, boxes):
        shared = [max(a[k], b[k]) < min(a[k + 1], b[k + 1]) for k in (0, 2)]
        assert boxes_overlap(a, b) == all(shared), (a, b)
