# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where buffers lie, and which loops may run in parallel."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.assemble import LiveRange, LiveRanges, assign_offsets, occupied_bytes
from nki_mlir.targets.cpu.native_nodes import ScratchBuffer
from nki_mlir.targets.runtime.host import LINE, PAGE
from nki_mlir.waist.overlap import ByteRegion, Iterations


def test_offsets__of_buffers_that_are_live_together_never_overlap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        ranges = [LiveRange(int(rng.choice([4, 64, 100, 5000])), 0, first, first + int(rng.integers(0, 15)))
                  for first in sorted(rng.integers(0, 60, 40).tolist())]
        size = assign_offsets(ranges)
        for a, b in itertools.combinations(ranges, 2):
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
            assert apart or not together
        assert all(b.offset % LINE == 0 and b.offset + b.size <= size for b in ranges)


def test_offsets__reuse_the_memory_of_dead_buffers() -> None:
    assert assign_offsets([LiveRange(256, 0, k, k + 1) for k in range(10)]) == 512


def test_room__of_large_buffers_is_no_multiple_of_a_page() -> None:
    assert occupied_bytes(PAGE * 4) % PAGE == LINE
    assert occupied_bytes(1) == LINE


def test_live_ranges__a_use_inside_a_loop_lasts_until_its_end() -> None:
    lives, outside, inside = LiveRanges(), ScratchBuffer(64, 0), ScratchBuffer(64, 1)
    lives.begin(outside, 0)
    lives.open()
    lives.begin(inside, 1)
    lives.open()
    lives.use(outside, 2)
    lives.use(inside, 2)
    lives.close(5)
    lives.use(inside, 6)
    lives.close(9)
    assert (lives.ranges[inside].last, lives.ranges[outside].last) == (6, 9)


def independent(accesses: list[ByteRegion], variable: int, span: range, ranges: dict[int, tuple[int, int]],
                private: set[object]) -> bool:
    return Iterations(variable, span, range(variable + 1, 1 << 20), ranges).keep_apart(accesses, private)


# -- independence: slot 10 is the loop variable, slot 12 one of an inner loop ------------------------------------------
def touch(root: str, const: int, *terms: tuple[int, int], reach: int = 63, writes: bool = True) -> ByteRegion:
    return ByteRegion(root, Linear(const, terms), 0, Linear(), run=reach + 1, writes=writes)


@pytest.mark.parametrize(("accesses", "expected"), [
    ([touch("out", 0, (3, 1), (10, 64))], True),
    ([touch("out", 0, (3, 1), (10, 63))], False),                           # one byte in common
    ([touch("out", 0, (3, 1), (10, -64))], True),
    ([touch("out", 0, (3, 1))], False),                                     # every iteration writes the same
    ([touch("x", 0, (3, 1), writes=False)], True),                          # every iteration reads the same
    ([touch("out", 0, (3, 1), (10, 128)), touch("out", 64, (3, 1), (10, 128))], True),
    ([touch("out", 0, (3, 1), (10, 128)), touch("out", 128, (3, 1), (10, 128), writes=False)], False),
    ([touch("out", 0, (3, 1), (10, 256), (12, 64))], True),                 # four steps of the inner loop
    ([touch("out", 0, (3, 1), (10, 192), (12, 64))], False),
    ([touch("out", 0, (3, 1), (10, 256), (13, 64))], False),                # a value that is not known
    ([touch("out", 0, (3, 1), (4, 8), (10, 64)), touch("out", 0, (3, 1), (10, 64))], False),
    ([touch("own", 0, (9, 1))], True),
], ids=str)
def test_independent(accesses: list[ByteRegion], expected: bool) -> None:
    assert independent(accesses, 10, range(8), {12: (0, 3)}, {"own"}) is expected


def test_independent__a_step_of_several() -> None:
    assert independent([touch("out", 0, (3, 1), (10, 16))], 10, range(0, 32, 4), {}, set())
    assert not independent([touch("out", 0, (3, 1), (10, 16))], 10, range(0, 32, 3), {}, set())


# -- interleaved: iterations that touch some bytes of each row -----------------------------------------------------------
def pattern(pace: int, dims: tuple[tuple[int, int], ...], inner: int = 0, size: int = 4) -> ByteRegion:
    terms = ((3, 1), (10, pace), (12, inner)) if inner else ((3, 1), (10, pace))
    return ByteRegion("out", Linear(0, terms), 0, Linear(), "", dims, size, True)


def test_interleaved__columns_of_a_matrix() -> None:
    columns = pattern(64, ((512, 100), (4, 16)))
    assert independent([columns], 10, range(8), {}, set())
    assert not independent([columns], 10, range(9), {}, set())                          # the ninth is the next row's first
    assert independent([columns, columns], 10, range(8), {}, set())
    assert not independent([columns, pattern(64, ((512, 100), (4, 17)))], 10, range(8), {}, set())
    assert not independent([pattern(60, ((512, 100), (4, 16)))], 10, range(8), {}, set())


@given(pace=st.integers(-40, 40), dims=st.lists(st.tuples(st.integers(-30, 30), st.integers(1, 4)), max_size=3),
       inner=st.integers(-20, 20), count=st.integers(2, 5), step=st.integers(1, 3), size=st.sampled_from([1, 4]))
def test_interleaved__no_byte_belongs_to_two_iterations(
        pace: int, dims: list[tuple[int, int]], inner: int, count: int, step: int, size: int) -> None:
    span = range(0, count * step, step)
    if not independent([pattern(pace, tuple(dims), inner, size)], 10, span, {12: (0, 2)}, set()):
        return
    touched = [{pace * i + inner * j + sum(s * k for (s, _), k in zip(dims, at)) + byte
                for j in range(3 if inner else 1) for at in itertools.product(*(range(n) for _, n in dims))
                for byte in range(size)} for i in span]
    assert sum(map(len, touched)) == len(set().union(*touched))
