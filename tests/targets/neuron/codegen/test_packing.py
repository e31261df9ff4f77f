# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ways to fill a memory: each one by itself keeps buffers apart that are needed at once, and which room each takes."""

import random

import pytest

from nki_mlir.scalar.dtypes import UINT8
from nki_mlir.targets.neuron.codegen.allocate_on_chip import (
    ENDS,
    LOWEST,
    NEXT,
    TIGHTEST,
    OnChipSpace,
    Packing,
    packed,
)
from nki_mlir.targets.neuron.codegen.liveness import Lifetime, peak
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer

LIMIT = 4096
MEMORY = OnChipSpace("sbuf", LIMIT, 128, 4, 0)


def life(size: int, first: int, last: int, address: int | None = None) -> Lifetime:
    buffer = DeviceBuffer(f"b{first}", "sbuf", (128, size), UINT8, address=None if address is None else (0, address),
                          fixed=address is not None)
    return Lifetime(buffer, first, last)


def random_lives(seed: int) -> list[Lifetime]:
    r = random.Random(seed)
    return sorted((life(r.choice((4, 64, 256, 1000)), at, at + r.choice((1, 3, 40))) for at in range(60)
                   for _ in range(r.randint(0, 1))), key=lambda one: one.first)


def check(lives: list[Lifetime], addresses: list[int]) -> None:
    placed = [(one, at, at + one.buffer.bytes_per_partition) for one, at in zip(lives, addresses, strict=True)]
    for k, (one, first, after) in enumerate(placed):
        assert 0 <= first and after <= LIMIT and first % 4 == 0
        for other, low, high in placed[:k]:
            assert not one.interferes(other) or after <= low or high <= first


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("room", [NEXT, LOWEST, TIGHTEST, ENDS])
def test_buffers_are_apart(seed: int, room: str) -> None:
    lives = random_lives(seed)
    packing, count = Packing(MEMORY, LIMIT, 32, room), 0
    for addresses in (packing.in_order(lives, []), packing.long_first(lives, []), packing.by_size(lives, [])):
        if addresses is not None:
            check(lives, addresses)
            count += 1
    assert count or peak(lives)[0] > LIMIT // 2


@pytest.mark.parametrize("room", [NEXT, LOWEST, TIGHTEST, ENDS])
def test_addresses_that_the_kernel_chose_are_left_free_from_the_first_use_on(room: str) -> None:
    movable = [life(1000, 0, 5), life(1000, 1, 3)]
    fixed = [life(2048, 4, 9, address=0)]
    addresses = Packing(MEMORY, LIMIT, 32, room).in_order(movable, [(fixed[0], 0, 2048)])
    assert addresses is not None and addresses[0] >= 2048       # it is still needed when the other one begins
    check([*movable, *fixed], [*addresses, 0])


def test_rooms() -> None:
    taken = [(life(100, 0, 9, address=first), first, first + 100) for first in (500, 800, 2000)]
    one = [life(64, 1, 2), life(1000, 3, 4)]
    addresses = {room: Packing(MEMORY, LIMIT, 4, room).in_order(one, taken) for room in (LOWEST, TIGHTEST, ENDS)}
    assert addresses == {LOWEST: [0, 900], TIGHTEST: [600, 900], ENDS: [LIMIT - 64, 900]}


def test_what_is_needed_for_long_goes_first() -> None:
    """In order of use, the long one lands behind the short one and leaves two gaps that are too small."""
    lives = [life(1000, 0, 1), life(2000, 1, 99), life(2000, 2, 3)]
    assert Packing(MEMORY, LIMIT, 32, LOWEST).in_order(lives, []) is None
    assert Packing(MEMORY, LIMIT, 32, LOWEST).long_first(lives, []) == [2016, 0, 2016]


def test_more_than_there_is_at_once_is_not_tried() -> None:
    assert packed(MEMORY, [life(LIMIT, 0, 5), life(4, 3, 4)], [], thorough=True) is None
    assert packed(MEMORY, [life(LIMIT, 0, 2), life(4, 3, 4)], [], thorough=False) == [0, 0]
