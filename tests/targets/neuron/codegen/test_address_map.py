# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses while instructions are ordered.

What is free, what a bank holds, who had bytes before, and that programs in which most memory is used again have no race.
"""

import random

import pytest

from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen import memory_order
from nki_mlir.targets.neuron.codegen.address_map import FreeRanges, LastOwners
from nki_mlir.targets.neuron.codegen.candidate_programs import take_addresses
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.schedule_instructions import Schedules
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.ordering import Ordering


def ranges_of(free):
    return list(zip(free.starts.tolist()[:free.count], free.ends.tolist()))


def test_ranges__give_the_smallest_that_is_large_enough_from_either_end():
    free = FreeRanges(0, 1000)
    assert [free.allocate(100, end) for end in (False, True, False)] == [0, 900, 100]
    free.release(0, 100)
    assert ranges_of(free) == [(0, 100), (200, 900)]
    assert free.allocate(80, False) == 0 and free.allocate(700, False) == 200 and free.allocate(30, False) == -1
    free.release(200, 700)
    free.release(100, 100)
    free.release(900, 100)
    free.release(0, 80)
    assert ranges_of(free) == [(0, 1000)]


def test_ranges__of_one_length_give_the_first_or_from_the_end_the_last():
    for from_end, address in ((False, 0), (True, 250)):
        free = FreeRanges(0, 300)
        assert free.allocate(100, False) == 0 and free.allocate(100, False) == 100
        free.release(0, 100)
        assert ranges_of(free) == [(0, 100), (200, 300)] and free.allocate(50, from_end) == address


def test_banks__are_not_crossed():
    free = FreeRanges(0, 8192, 2048)
    assert [free.allocate(1536, False) for _ in range(3)] == [0, 2048, 4096]
    assert free.allocate(2048, False) == 6144
    assert free.allocate(512, False) == 1536
    free = FreeRanges(512, 8192, 2048)
    assert free.allocate(4096, False) == 2048
    assert free.allocate(1024, True) == 1024 and free.allocate(1024, True) == 7168
    assert FreeRanges(0, 2048 + 100, 2048).allocate(200, True) == 2048 - 200        # at the end of the bank before


def test_banks__the_least_recently_released_comes_first():
    free = FreeRanges(0, 8192, 2048)
    assert free.allocate(2048, False) == 0
    free.release(0, 2048)
    assert [free.allocate(2048, False) for _ in range(2)] == [2048, 4096]
    free.release(4096, 2048)
    free.release(2048, 2048)
    assert [free.allocate(2048, False) for _ in range(5)] == [6144, 0, 4096, 2048, -1]
    free.release(4096, 2048)
    assert free.allocate(512, False) == 4096
    free.release(0, 2048)
    assert free.allocate(512, False) == 4096 + 512          # a bank that is in use has less room


def test_banks__without_rotation_the_first_is_reused():
    free = FreeRanges(0, 8192, 2048, rotates=False)
    assert free.allocate(2048, False) == 0
    free.release(0, 2048)
    assert free.allocate(2048, False) == 0


def test_scheduler__does_without_rotation_where_banks_are_scattered(monkeypatch):
    monkeypatch.setattr(FreeRanges, "in_bank", lambda *_: -1)
    b = Builder()
    sums = b.on_chip("sums", (128, 512), "psum")
    left, right = (b.on_chip(name, (128, n)) for name, n in (("left", 128), ("right", 512)))
    b.memset((left, 0, 128, 0, 128), 1.0)
    b.memset((right, 0, 128, 0, 512), 1.0)
    b.matmul((sums, 0, 128, 0, 512), (left, 0, 128, 0, 128), (right, 0, 128, 0, 512))
    b.tensor_copy((right, 0, 128, 0, 512), (sums, 0, 128, 0, 512))
    assert Schedules(b.code).arrangement(Order()).addresses is not None


@pytest.mark.parametrize("seed", range(5))
def test_ranges__never_overlap_what_is_taken(seed):
    r = random.Random(seed)
    free, taken = FreeRanges(64, 16384, 2048), []
    for _ in range(400):
        if taken and r.random() < 0.5:
            free.release(*taken.pop(r.randrange(len(taken))))
        elif (at := free.allocate(size := 32 * r.randint(1, 80), r.random() < 0.3)) >= 0:
            assert all(at + size <= other or other + n <= at for other, n in taken)
            assert at >= 64 and at + size <= 16384
            assert at // 2048 == (at + size - 1) // 2048 or (size > 2048 and at % 2048 == 0)
            taken.append((at, size))
    while taken:
        free.release(*taken.pop())
    assert ranges_of(free) == [(64, 16384)]


@pytest.mark.parametrize("seed", range(5))
def test_last_owners__are_who_had_each_byte_last(seed):
    r = random.Random(seed)
    owners, last = LastOwners(100), [None] * 200
    for owner in range(100):
        first = r.randrange(190)
        end = r.randint(first + 1, 200)
        earlier = owners.earlier[:owners.set_owner(first, end, owner)].tolist()
        assert len(earlier) == len(set(earlier)) and set(earlier) == {x for x in last[first:end] if x is not None}
        last[first:end] = [owner] * (end - first)


def crowded(seed):
    """Tiles of many sizes, of which three or four fit: each is loaded, used with the one before, and stored."""
    r = random.Random(seed)
    most = machine_named("trn2").sbuf_bytes_per_partition // 4
    b = Builder()
    x, y = b.hbm("x", (1, most), "input"), b.hbm("y", (1, 12 * most), "output")
    before, width = None, 0
    for k in range(12):
        columns = most // r.choice((4, 5, 6, 9))
        t = b.on_chip(f"t{k}", (1, columns))
        b.copy((t, 0, 1, 0, columns), (x, 0, 1, 0, columns))
        if before is not None:
            shared = min(columns, width)
            b.add((t, 0, 1, 0, shared), (t, 0, 1, 0, shared), (before, 0, 1, 0, shared),
                  engine=r.choice(("vector", "gpsimd")))
        b.activation((t, 0, 1, 0, columns), (t, 0, 1, 0, columns), "relu")
        b.copy((y, 0, 1, k * most, columns), (t, 0, 1, 0, columns))
        before, width = t, columns
    return b.code


def test_scheduler__finds_addresses_where_memory_is_full():
    assert all(Schedules(crowded(seed)).arrangement(Order()).addresses is not None for seed in (0, 1, 3))


@pytest.mark.parametrize("seed", (0, 1, 3))
def test_machine_code_orders_the_users_of_memory_as_python(seed, monkeypatch):
    schedules = Schedules(crowded(seed))
    several = [schedules.arrangement(Order(ahead=ahead)) for ahead in (0, 100)]
    results = []
    for is_code in (False, True):
        if is_code and not memory_order.CODE.functions:
            memory_order.CODE.load(compiles=True)
        monkeypatch.setattr(memory_order.CODE, "is_ready", lambda work, is_code=is_code: is_code)
        for arrangement in several:
            take_addresses(schedules, arrangement)
            results.append([run.before.lists for run in schedules.dependences(arrangement)])
    assert results[:2] == results[2:] and any(results[0])
    graph = schedules.parts[0][0][2]
    assert sum(map(len, results[0][0])) > sum(map(len, graph.before))           # some wait for memory


@pytest.mark.parametrize("seed", range(4))
def test_memory_that_is_used_again__has_no_race(seed):
    for options in (Emission(), Emission(reorder=False)):
        assert Ordering(emit_code(crowded(seed), options)).races() == []
