# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses: no two buffers share a byte while both are needed; banks, alignment, fixed addresses, errors."""

import random

import pytest

from nki_mlir.diagnostics import Location
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8
from nki_mlir.targets.neuron.codegen.allocate_on_chip import (
    AddressConflict,
    AddressOutside,
    BankCrossed,
    MemoryFull,
    allocate,
)
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.records import InstructionStep, Loop
from tests.targets.neuron.code_builder import Builder

TRN2 = machine_named("trn2")


def random_lives(seed, space, sizes, count=80):
    """Code that writes and later reads buffers, some of them in and around loops."""
    r, b = random.Random(seed), Builder()
    live = []
    depth = [0]

    def some(n):
        for _ in range(n):
            if depth[0] < 2 and r.random() < 0.1:
                with b.loop(2):
                    depth[0] += 1
                    some(4)
                    depth[0] -= 1
                continue
            width, dtype = r.choice(sizes), r.choice((FLOAT32, BFLOAT16, UINT8))
            new = b.on_chip(f"b{len(live)}", (128, width), space, dtype)
            b.memset((new, 0, 128, 0, width), 0)
            if depth[0] == 0:
                live.append(new)
            for old in r.sample(live, min(2, len(live))):
                b.memset((old, 0, 128, 0, 1), 1)
            while len(live) > 5:
                live.pop(r.randrange(len(live)))
    some(count)
    return b.code


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("space,sizes", [("sbuf", (1, 3, 64, 500, 2000)), ("psum", (1, 100, 500, 512))])
def test_buffers_needed_at_once__are_apart(seed, space, sizes):
    code = random_lives(seed, space, sizes)
    used = allocate(code)[0 if space == "sbuf" else 1]
    lives = list(Liveness(code).of.values())
    assert 0 < used <= (TRN2.sbuf_bytes_per_partition if space == "sbuf" else TRN2.psum_bytes_per_partition)
    for k, a in enumerate(lives):
        start, size = a.buffer.address[1], a.buffer.bytes_per_partition
        assert start % 4 == 0 and start + size <= used
        if space == "psum":
            assert start // 2048 == (start + size - 1) // 2048
        for b in lives[:k]:
            if a.interferes(b):
                other = b.buffer.address[1]
                assert start + size <= other or other + b.buffer.bytes_per_partition <= start


def test_lifetime__of_what_a_loop_uses_from_outside_is_the_whole_loop():
    b = Builder()
    outer = b.on_chip("outer", (128, 8))
    b.memset((outer, 0, 128, 0, 8), 0)
    with b.loop(3):
        inner = b.on_chip("inner", (128, 8))
        b.memset((inner, 0, 128, 0, 8), 0)
        b.add((outer, 0, 128, 0, 8), (outer, 0, 128, 0, 8), (inner, 0, 128, 0, 8))
        last = b.on_chip("last", (128, 8))
        b.memset((last, 0, 128, 0, 8), 0)
    lives = Liveness(b.code).of
    assert (lives[outer].first, lives[outer].last) == (0, 3)
    assert (lives[inner].first, lives[inner].last) == (1, 2)
    assert (lives[last].first, lives[last].last) == (3, 3)
    assert peak(list(lives.values())) == (64, 1)


def test_rows__are_aligned_where_it_costs_nothing():
    b = Builder()
    for k, width in enumerate((3, 8, 200)):
        t = b.on_chip(f"t{k}", (128, width))
        b.memset((t, 0, 128, 0, width), 0)
    with b.loop(1):
        for t in b.code.body.buffers:
            b.memset((t, 0, 128, 0, 1), 0)
    allocate(b.code)
    assert [t.address for t in b.code.body.buffers] == [(0, 0), (0, 32), (0, 64)]


def test_a_memory_that_is_nearly_full__is_packed_tightly():
    """Freed gaps fit only if large buffers are placed first."""
    b = Builder()
    unit = TRN2.sbuf_bytes_per_partition // 8 // 4 * 4
    sizes = [1, 2, 1, 2, 1]
    tiles = [b.on_chip(f"t{k}", (128, n * unit // 4)) for k, n in enumerate(sizes)]
    for t in tiles:
        b.memset((t, 0, 128, 0, 1), 0)
    big = [b.on_chip(f"big{k}", (128, 3 * unit // 4)) for k in range(2)]
    for t in big:
        b.memset((t, 0, 128, 0, 1), 0)
        b.memset((tiles[1], 0, 128, 0, 1), 0)
    allocate(b.code)
    assert all(t.address[1] + t.bytes_per_partition <= TRN2.sbuf_bytes_per_partition for t in tiles + big)


def test_fixed_address__is_kept_and_kept_clear():
    b = Builder()
    fixed = b.on_chip("fixed", (128, 64), address=(0, 0))
    other = b.on_chip("other", (128, 64))
    for t in (other, fixed, other):
        b.memset((t, 0, 128, 0, 64), 0)
    allocate(b.code)
    assert fixed.address == (0, 0) and other.address[1] >= 256


def test_fixed_addresses__may_be_used_again_later():
    b = Builder()
    for k in range(2):
        t = b.on_chip(f"t{k}", (128, 64), address=(0, 128))
        b.memset((t, 0, 128, 0, 64), 0)
    allocate(b.code)


@pytest.mark.parametrize("seed", range(4))
def test_fixed_addresses__do_not_move_other_buffers(seed):
    """A text that has the addresses of most buffers gives the others theirs again."""
    def code(addresses=()):
        r, b, live = random.Random(seed), Builder(), []
        for k in range(40):
            new = b.on_chip(f"b{k}", (128, r.choice((1, 3, 64))), **({"address": addresses[k]} if k % 5 and addresses else {}))
            live = r.sample([*live, new], min(len(live) + 1, 6))
            for tile in (new, *live):
                b.memset((tile, 0, 128, 0, 1), 0)
        allocate(b.code)
        return [buffer.address for buffer in b.code.body.buffers]
    addresses = code()
    assert code(addresses) == addresses


def test_error__sbuf_full():
    b = Builder()
    tiles = [b.on_chip(name, (128, width)) for name, width in (("a", 40_000), ("c", 15_000), ("d", 2))]
    for line, t in enumerate((*tiles, tiles[0], tiles[1], tiles[2]), 10):
        t.location = t.location or Location("kernel.py", line, 4)
        b.memset((t, 0, 128, 0, 1), 0)
        b.code.body.nodes[-1].location = Location("kernel.py", line, 8)
    with pytest.raises(MemoryFull) as caught:
        allocate(b.code)
    assert str(caught.value) == (
        "kernel.py:12:9: error: SBUF is full: 3 tiles that are live at once take 220008 bytes per partition; "
        "trn2 has 212984 [NKI-MEMORY-FULL]\n"
        "  why: live here: a 160000 (line 10), c 60000 (line 11), d 8 (line 12)\n"
        "  fix: use smaller tiles, or store tiles to HBM and load them again where they are used")


def test_error__psum_full():
    b = Builder()
    tiles = [b.on_chip(f"p{k}", (128, 512), "psum") for k in range(9)]
    for t in tiles + tiles:
        b.memset((t, 0, 128, 0, 1), 0)
    with pytest.raises(MemoryFull, match=r"PSUM is full: 9 tiles .* take 18432 bytes per partition; trn2 has 16384"):
        allocate(b.code)


def test_error__fixed_addresses_that_overlap():
    b = Builder()
    tiles = [b.on_chip(name, (128, 64), address=(0, at)) for name, at in (("a", 0), ("c", 128))]
    for t in tiles + tiles:
        b.memset((t, 0, 128, 0, 1), 0)
    with pytest.raises(AddressConflict, match="a and c have addresses that overlap in SBUF, and both are needed"):
        allocate(b.code)


def test_fixed_addresses__on_other_partitions_do_not_overlap():
    b = Builder()
    tiles = [b.on_chip(f"t{p}", (32, 64), address=(p, 0)) for p in (0, 32, 96)]
    for t in tiles + tiles:
        b.memset((t, 0, 32, 0, 1), 0)
    allocate(b.code)


def test_error__fixed_address_outside():
    b = Builder()
    t = b.on_chip("t", (128, 64), address=(32, 0))
    b.memset((t, 0, 32, 0, 1), 0)
    with pytest.raises(AddressOutside, match="t at partition 32, byte 0 ends outside of SBUF"):
        allocate(b.code)


def test_error__matmul_across_banks():
    b = Builder()
    left, right = (b.on_chip(name, (128, 384)) for name in "lr")
    total = b.on_chip("total", (128, 4 * 384), "psum")
    for t in (left, right):
        b.memset((t, 0, 128, 0, 384), 0)
    b.matmul((total, 0, 128, 384, 384), (left, 0, 128, 0, 128), (right, 0, 128, 0, 384))
    with pytest.raises(BankCrossed, match="total lies in bytes 1536 to 3071 of PSUM, in more than one bank of 2048 bytes"):
        allocate(b.code)


def test_steps__are_numbered_as_they_stand():
    b = Builder()
    t = b.on_chip("t", (128, 8))
    with b.loop(2):
        b.memset((t, 0, 128, 0, 8), 0)
    loop = b.code.body.nodes[0]
    assert isinstance(loop, Loop) and isinstance(loop.body.nodes[0], InstructionStep)
    assert Liveness(b.code).steps == loop.body.nodes
