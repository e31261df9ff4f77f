# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dependences against every pair of accesses, on tiles of matrices whose buckets and strips they cross in many ways."""

import random

import numpy as np
import pytest

from nki_mlir.dialects.access import HBM, SBUF, ZERO, Access, Linear, Tile
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen import dependence_scan
from nki_mlir.targets.neuron.codegen.dependences import MANY, Touched, dependences_between, limited_dependences
from nki_mlir.targets.neuron.codegen.nearby_accesses import NearbyAccesses
from nki_mlir.waist.overlap import region_of

ROWS, COLUMNS = 96, 256


def hbm_tile(rng):
    """A tile of a matrix: mostly rows and columns, sometimes with other steps."""
    kind = rng.random()
    if kind < 0.7:
        rows, columns = rng.choice((1, 4, 32, 96)), rng.choice((1, 2, 16, 64, 256))
        at = rng.randrange(ROWS - rows + 1) * COLUMNS + rng.randrange(COLUMNS - columns + 1)
        dims = ((COLUMNS, rows), (1, columns))
    elif kind < 0.85:
        step, count = rng.choice((-3, 2, 255, 257, 512, 1024)), rng.randint(1, 20)
        reach = step * (count - 1)
        at = rng.randrange(max(0, -reach), ROWS * COLUMNS - max(0, reach) - 8)
        dims = ((step, count), (1, 8))
    else:
        count = rng.choice((300, 1000, 5000))               # runs over the ends of rows
        at, dims = rng.randrange(ROWS * COLUMNS - count), ((1, count),)
    return Tile("x", HBM, (ROWS, COLUMNS), FLOAT32, Access(FLOAT32, None, Linear(at), dims))


def on_chip_tile(rng):
    partitions, count, step = rng.choice((1, 32, 128)), rng.choice((1, 8, 50)), rng.choice((1, 2, 16))
    first, at = rng.choice((0, 32, 64, 96)) if partitions == 32 else 0, rng.randrange(1024 - step * count)
    access = Access(FLOAT32, ZERO.plus(Linear(first)), Linear(at), ((1, partitions), (step, count)))
    return Tile("t", SBUF, (128, 1024), FLOAT32, access)


def elements(tile):
    """Places of a tile in one array."""
    access = tile.access
    places = np.array([access.free.const])
    for step, count in access.free_dims:
        places = (places[:, None] + step * np.arange(count)).reshape(-1)
    if access.partition is None:
        return places
    lanes = access.partition.const + np.arange(tile.partitions)
    return (lanes[:, None] * tile.row + places).reshape(-1)


def columns(nodes):
    """What nodes touch, as columns: a number for each access."""
    tiles = [t for node in nodes for side in node for t in side]
    numbers = iter(range(len(tiles)))
    sides = [[[next(numbers) for _ in side] for side in node] for node in nodes]
    return Touched([t.handle for t in tiles], [region_of(t.access, t.handle) for t in tiles],
                   [reads for reads, _ in sides], [writes for _, writes in sides])


def closed(edges, count):
    """For each node the bits of all nodes before it."""
    before = [0] * count
    for node in range(count):
        for other in edges[node]:
            before[node] |= before[other] | 1 << other
    return before


@pytest.mark.share(4)
@pytest.mark.parametrize("make", [hbm_tile, on_chip_tile])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("many", [4, MANY])             # regions beyond which only those that lie near are compared
def test_order_is_that_of_all_conflicts(make, seed, many, monkeypatch):
    monkeypatch.setattr("nki_mlir.targets.neuron.codegen.dependences.MANY", many)
    rng, count = random.Random(seed), 120
    nodes = [([make(rng) for _ in range(rng.randint(0, 2))], [make(rng) for _ in range(rng.randint(0, 1))])
             for _ in range(count)]
    got = dependences_between(columns(nodes))
    touched = [[[set(elements(t).tolist()) for t in side] for side in node] for node in nodes]

    def conflict(a, b):
        return any(x & y for x in a[1] for y in (*b[0], *b[1])) or any(x & y for x in a[0] for y in b[1])
    exact = [[j for j in range(k) if conflict(touched[j], touched[k])] for k in range(count)]
    got_all, exact_all = closed(got, count), closed(exact, count)
    assert all(e & ~g == 0 for e, g in zip(exact_all, got_all))             # none is missing
    if make is hbm_tile:
        return                                                              # steps that interleave may give some more
    assert got_all == exact_all


def register_region(rng):
    """Runs of a row of 1,024 elements, most of which start at a register's value, of a few registers and ranges."""
    count, at = rng.choice((1, 8, 50)), rng.randrange(900)
    if rng.random() < 0.4:
        return region_of(Access(FLOAT32, ZERO, Linear(at), ((1, 128), (1, count))), "t")
    register, most = rng.choice((("r", 100), ("s", 800), ("t", 800), ("u", 20)))
    access = Access(FLOAT32, ZERO, Linear(at % 100, ((0, 1),)), ((1, 128), (1, count)))
    return region_of(access, "t", 0, 0, (register,), ((0, most),))


@pytest.mark.parametrize("seed", range(20))
def test_accesses_that_a_write_through_registers_comes_after__are_implied(seed, monkeypatch):
    monkeypatch.setattr("nki_mlir.targets.neuron.codegen.dependences.MANY", 4)
    rng, count = random.Random(seed), 150
    regions = [register_region(rng) for _ in range(3 * count)]
    numbers = iter(range(3 * count))
    sides = [([next(numbers) for _ in range(rng.randint(0, 2))], [next(numbers) for _ in range(rng.randint(0, 1))])
             for _ in range(count)]
    columns = Touched(["t"] * len(regions), regions, [reads for reads, _ in sides], [writes for _, writes in sides])
    streams = [rng.choice((k, "a", "b")) for k in range(count)]
    all_edges, fewer_edges = (dependences_between(columns, streams, every) for every in (True, False))
    in_streams = [[j for j in range(k) if streams[j] == streams[k]] for k in range(count)]    # these complete in order
    assert closed([[*a, *b] for a, b in zip(fewer_edges, in_streams)], count) == closed(
        [[*a, *b] for a, b in zip(all_edges, in_streams)], count)
    assert sum(map(len, fewer_edges)) < sum(map(len, all_edges))


@pytest.mark.parametrize("register", [False, True])
def test_tiles_side_by_side__are_not_compared(register):
    """The work grows with the number of tiles, not with its square."""
    count, compared = 400, 0
    accesses = NearbyAccesses(128 * count * 64 * 4)
    for k in range(count):
        start = Linear(k * 64, ((0, count * 64),)) if register else Linear(k * 64)
        region = region_of(Access(FLOAT32, None, start, ((count * 64, 128), (1, 64))), "x", 0, 0, ("r",), ((0, 900),))
        if k:
            buckets = accesses.buckets[region.symbolic]
            compared += sum(len(entries) for both in buckets.entries_near(region) for entries in both)
        earlier = set()
        accesses.earlier(region, True, earlier)
        assert not earlier
        accesses.add(region, k, True, k)
    assert compared < 10 * count * 2


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("first, most", [(0, 0), (0, 900), (2000, 30), (5000, 90), (60_000, 5000)])
def test_access_through_a_register__follows_all_that_it_may_touch(first, most, writes):
    """Of runs of 64 bytes that lie side by side, written and read in turn, in a memory of many buckets."""
    count, accesses = 1024, NearbyAccesses(1024 * 64)
    for k in range(count):
        accesses.add(region_of(Access(FLOAT32, None, Linear(k * 16), ((1, 16),)), "x"), k, k % 2 == 0, k)
    region = region_of(Access(FLOAT32, None, Linear(first // 4, ((0, 1),)), ((1, 16),)), "x", 0, 0, ("r",), ((0, most // 4),))
    earlier: set[int] = set()
    accesses.earlier(region, writes, earlier)
    touched = range(first // 64, min(count, (first + most // 4 * 4 + 63) // 64 + 1))
    assert earlier == {k for k in touched if writes or k % 2 == 0}


def test_equal_accesses_of_one_stream__are_the_latest_alone():
    """Of accesses of one stream the latest stands for all; a write that covers them replaces them."""
    access = Access(FLOAT32, ZERO, ZERO, ((1, 128), (1, 8)))
    tile = Tile("t", SBUF, (128, 8), FLOAT32, access)
    steps = columns([([], [tile]), ([tile], []), ([tile], []), ([tile], []), ([], [tile]), ([tile], [])])
    assert dependences_between(steps, "axxyab") == [[], [0], [0], [0], [0, 2, 3], [4]]


@pytest.mark.parametrize("reads_of_few, reads_of_many", [(8, 0), (0, 8), (8, 3), (3, 8), (8, 8)])
def test_more_dependences_than_the_limit__are_none(reads_of_few, reads_of_many, monkeypatch):
    """Of a memory with few regions, of one with so many that only nearby ones are compared, and of both."""
    monkeypatch.setattr("nki_mlir.targets.neuron.codegen.dependences.MANY", 4)

    def tile(name, k):
        return Tile(name, SBUF, (128, 1024), FLOAT32, Access(FLOAT32, ZERO, Linear(8 * k), ((1, 128), (1, 8))))
    writes = [([], [tile("few", 0)]), *(([], [tile("many", k)]) for k in range(8))]
    reads = [([tile("few", 0)], [])] * reads_of_few + [([tile("many", 0)], [])] * reads_of_many
    touched = columns([*writes, *reads])
    total = reads_of_few + reads_of_many
    assert [limited_dependences(touched, (), False, most) for most in (0, 7, total - 1)] == [None] * 3
    assert [*map(len, limited_dependences(touched, (), False, total).lists)] == [0] * 9 + [1] * total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("many", [4, MANY])
def test_machine_code_lists_the_same_steps_as_python(seed, many, monkeypatch):
    monkeypatch.setattr("nki_mlir.targets.neuron.codegen.dependences.MANY", many)
    rng, count = random.Random(seed), 300
    makes = rng.choices((hbm_tile, on_chip_tile), k=3)
    nodes = [([rng.choice(makes)(rng) for _ in range(rng.randint(0, 3))],
              [rng.choice(makes)(rng) for _ in range(rng.randint(0, 2))]) for _ in range(count)]
    streams = [rng.choice((k, "a", "b")) for k in range(count)]
    results = []
    for is_code in (False, True):
        for compiled in (dependence_scan.SCAN, dependence_scan.IMPLIED):
            if is_code and not compiled.functions:
                compiled.load(compiles=True)
            monkeypatch.setattr(compiled, "is_ready", lambda work, is_code=is_code: is_code)
        edges = [limited_dependences(columns(nodes), of, False, 1 << 60) for of in ((), streams)]
        results.append([(of.lists, of.direct.lists, of.users.lists) for of in edges])
    assert results[0] == results[1]
    lists, direct, users = results[0][0]
    assert closed(lists, count) == closed(direct, count) and sum(map(len, direct)) < sum(map(len, lists))
    assert users == [[k for k in range(count) if other in lists[k]] for other in range(count)]
    assert limited_dependences(columns(nodes), (), False, 10) is None
