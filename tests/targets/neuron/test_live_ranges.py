# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which declared buffers are live at an instruction and contain its bytes, against a search through all of them."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.isa.program import DeviceLiveRange
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.checker.live_ranges import LiveBuffers, contains, share_bytes

LENGTH = 12                     # instructions of each engine's stream
SPANS = st.lists(st.tuples(st.sampled_from([Engine.VECTOR, Engine.SCALAR]), st.integers(0, 9), st.integers(0, 14)),
                 min_size=1, max_size=3).map(lambda spans: tuple((e, b, max(b, end)) for e, b, end in spans))
RANGES = st.lists(st.builds(
    lambda space, partition, partitions, byte, size, spans: DeviceLiveRange(
        "t", space, partition, partitions, byte, size, spans),
    st.sampled_from(["sbuf", "psum"]), st.integers(0, 2), st.integers(1, 3),
    st.sampled_from([0, 8, 4092, 4096, 8190]), st.sampled_from([4, 8, 5000]), SPANS), max_size=6)


class Footprint(NamedTuple):
    """The part of ``ByteFootprint`` that live ranges read."""

    first: int
    last: int
    low: int
    high: int


FOOTPRINTS = st.builds(lambda first, count, low, size: Footprint(first, first + count - 1, low, low + size),
                       st.integers(0, 3), st.integers(1, 3), st.sampled_from([0, 4, 8, 4092, 4096, 4100, 8192]),
                       st.integers(1, 8))


def live_buffers(ranges):
    streams = dict.fromkeys((Engine.VECTOR, Engine.SCALAR), [None] * LENGTH)
    return LiveBuffers(SimpleNamespace(live=ranges, streams=streams))


def event(engine, pc):
    return SimpleNamespace(engine=engine, pc=pc)


def is_live(live, at):
    return any(engine is at.engine and begin <= at.pc <= min(end, LENGTH) for engine, begin, end in live.spans)


def buffer(partition=0, partitions=4, byte=0, size=64, spans=((Engine.VECTOR, 2, 5),)):
    return DeviceLiveRange("t", "sbuf", partition, partitions, byte, size, spans)


@given(RANGES, st.sampled_from([Engine.VECTOR, Engine.SCALAR, Engine.TENSOR]), st.integers(0, LENGTH - 1),
       st.sampled_from(["sbuf", "psum"]))
def test_at__has_the_live_buffers(ranges, engine, pc, space):
    at = event(engine, pc)
    assert set(live_buffers(ranges).at(at, space)) == {r for r in ranges if r.space == space and is_live(r, at)}


@given(st.lists(SPANS, min_size=2, max_size=6), st.integers(0, LENGTH - 1))
def test_at__has_all_live_buffers_of_one_address(spans, pc):
    """Allocation gives one address to many buffers, which are live one after the other, or at once by mistake."""
    ranges = [buffer(spans=each)._replace(name=f"t{k}") for k, each in enumerate(spans)]
    at = event(Engine.VECTOR, pc)
    assert set(live_buffers(ranges).at(at, "sbuf")) == {r for r in ranges if is_live(r, at)}


@given(RANGES, FOOTPRINTS, st.sampled_from([Engine.VECTOR, Engine.SCALAR]), st.integers(0, LENGTH - 1))
def test_around__has_a_live_buffer_with_all_bytes(ranges, footprint, engine, pc):
    at = event(engine, pc)
    containing = [r for r in ranges if r.space == "sbuf" and is_live(r, at) and r.partition <= footprint.first
                  and footprint.last < r.partition + r.partitions and r.byte <= footprint.low
                  and footprint.high <= r.byte + r.size]
    around = live_buffers(ranges).containing_buffer(at, footprint, "sbuf")
    assert around is None if not containing else around[1] in containing


@pytest.mark.parametrize("footprint, inside", [
    (Footprint(0, 3, 0, 64), True), (Footprint(0, 4, 0, 64), False), (Footprint(0, 3, 0, 65), False),
    (Footprint(1, 1, 60, 64), True), (Footprint(3, 4, 0, 4), False)])
def test_contains__ends_with_the_last_partition_and_byte(footprint, inside):
    assert contains(buffer(), footprint) is inside


def test_share_bytes__not_where_they_adjoin():
    assert share_bytes(buffer(), buffer(partition=3)) and share_bytes(buffer(), buffer(byte=63))
    assert not share_bytes(buffer(), buffer(partition=4)) and not share_bytes(buffer(), buffer(byte=64))
    assert not share_bytes(buffer(partition=4), buffer()) and not share_bytes(buffer(byte=64), buffer())


def test_begins__once_in_each_iteration_and_not_beside_another_live_buffer():
    first, second = buffer(), buffer(byte=32, spans=((Engine.VECTOR, 6, 8),))
    live, footprint = live_buffers([first, second]), Footprint(0, 0, 40, 44)

    def begins(pc):
        at = event(Engine.VECTOR, pc)
        live.follow(at)
        return live.begins(*live.containing_buffer(at, footprint, "sbuf"), at)

    assert live.count_begun(footprint) == 0
    assert begins(2) and not begins(5) and live.count_begun(footprint) == 1
    assert begins(6) and not begins(8) and live.count_begun(footprint) == 2
    live.follow(event(Engine.VECTOR, 9))                                        # a jump back to 2
    assert begins(2) and begins(7) and live.count_begun(footprint) == 4


def test_begins__not_while_a_buffer_that_shares_bytes_is_live():
    live = live_buffers([buffer(), buffer(byte=32)])
    at, footprint = event(Engine.VECTOR, 3), Footprint(0, 0, 40, 44)
    assert not live.begins(*live.containing_buffer(at, footprint, "sbuf"), at) and live.count_begun(footprint) == 0


@pytest.mark.parametrize("text", [
    "t sbuf 0x400 128*512 pe:3-9 act:2-2", "u.1 psum 0x2040010 7*64 dve:0-5", "v sbuf 0x80008 1*4 pool:12-40 sp:1-1"])
def test_range_in_assembly__is_read_as_it_is_printed(text):
    live = DeviceLiveRange.read(text)
    assert str(live) == text
    partitions, size = map(int, text.split()[3].split("*"))
    assert (live.name, live.space, live.partitions, live.size) == (*text.split()[:2], partitions, size)


@pytest.mark.parametrize("text", [
    "t psum 0x400 128*512 pe:3-9", "t sbuf 0x400 128*512 pe:3-9 pe:10-12", "t sbuf 0x400 128*512", "t hbm 0x400 1*4 pe:3-9"])
def test_text_that_is_no_range(text):
    assert DeviceLiveRange.read(text) is None
