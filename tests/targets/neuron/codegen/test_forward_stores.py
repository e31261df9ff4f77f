# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads of what a tile on chip has stored: what is dropped, what is not, and that values stay under every order."""

import random

import numpy as np
import pytest

from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.forward_stores import _Forwarding, forward_stores
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer, steps_in
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, WIDTH = 32, 16


class Stored:
    """Boxes of scratch memory that tiles store and load again, in whole or in part; some tiles change in between."""

    def __init__(self, seed: int, steps: int = 40) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, 4 * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, steps * WIDTH), "output")
        scratch = [b.hbm(f"scratch{k}", (ROWS, 4 * WIDTH)) for k in range(3)]
        tiles = [b.on_chip("first", (ROWS, 4 * WIDTH))]
        b.copy((tiles[0], 0, ROWS, 0, 4 * WIDTH), (self.x, 0, ROWS, 0, 4 * WIDTH))
        for tensor in scratch:
            b.copy((tensor, 0, ROWS, 0, 4 * WIDTH), (tiles[0], 0, ROWS, 0, 4 * WIDTH))
        for k in range(steps):
            tensor, start = r.choice(scratch), r.randrange(4 * WIDTH)
            width = r.choice((4 * WIDTH - start, min(WIDTH, 4 * WIDTH - start)))
            rows = r.choice((ROWS, ROWS, ROWS // 2))
            tile = r.choice(tiles)
            box = tensor, r.choice((0, 0, ROWS - rows)), rows, start, width
            match r.randrange(5):
                case 0:
                    at = r.randrange(tile.shape[1] - width + 1) if tile.shape[1] >= width else None
                    if at is not None and tile.shape[0] >= rows:
                        b.copy(box, (tile, 0, rows, at, width))
                case 1 | 2 | 3:
                    tile = b.on_chip(f"t{k}", (rows, width))
                    b.copy((tile, 0, rows, 0, width), box)
                    tiles.append(tile)
                case 4:
                    b.memset((tile, 0, tile.shape[0], 0, min(tile.shape[1], WIDTH)), k)
            rows, width = min(tile.shape[0], ROWS), min(tile.shape[1], WIDTH)
            u = b.on_chip(f"u{k}", (rows, width))
            b.add((u, 0, rows, 0, width), (tile, 0, rows, tile.shape[1] - width, width), (tile, 0, rows, 0, width), "add")
            b.copy((self.y, 0, rows, k * WIDTH, width), (u, 0, rows, 0, width))
        self.array = np.random.default_rng(seed).integers(-4, 5, self.x.shape).astype(np.float32)

    def result(self) -> np.ndarray:
        result = np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: self.array.copy(), self.y: result})
        return result


class StoredSideBySide:
    """Tiles that are stored side by side, loaded as one, changed, and read; some are stored or written again."""

    def __init__(self, seed: int, steps: int = 12) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, 4 * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, 4 * steps * WIDTH), "output")
        scratch = [b.hbm(f"scratch{k}", (ROWS, 4 * WIDTH)) for k in range(2)]
        first = b.on_chip("first", (ROWS, 4 * WIDTH))
        b.copy((first, 0, ROWS, 0, 4 * WIDTH), (self.x, 0, ROWS, 0, 4 * WIDTH))
        for k in range(steps):
            tensor, tiles = r.choice(scratch), []
            cuts = sorted(r.sample(range(1, 4 * WIDTH), 3)) if r.random() < 0.5 else [WIDTH, 2 * WIDTH, 3 * WIDTH]
            columns = list(zip([0, *cuts], [*cuts, 4 * WIDTH]))
            for start, end in columns:
                width, at = end - start, r.randrange(4 * WIDTH - (end - start) + 1)
                tile = b.on_chip(f"t{k}", (ROWS, width))
                b.add((tile, 0, ROWS, 0, width), (first, 0, ROWS, at, width), (first, 0, ROWS, 0, width), "add")
                tiles.append(tile)
            r.shuffle(columns)
            if r.random() < 0.2:
                b.copy((tensor, 0, ROWS, 3, WIDTH), (first, 0, ROWS, 0, WIDTH))
            for start, end in columns:
                tile = next(tile for tile in tiles if tile.shape[1] == end - start)
                b.copy((tensor, 0, ROWS, start, end - start), (tile, 0, ROWS, 0, end - start))
                if r.random() < 0.8:
                    tiles.remove(tile)          # else a tile of the same width is stored twice
                    tiles.append(tile)
            if r.random() < 0.1:
                b.memset((r.choice(tiles), 0, ROWS, 0, 1), k)
            rows, start = r.choice((ROWS, ROWS, ROWS, ROWS // 2)), r.choice((0, 0, 0, 1))
            again = b.on_chip(f"again{k}", (rows, 4 * WIDTH - start))
            b.copy((again, 0, rows, 0, 4 * WIDTH - start), (tensor, 0, rows, start, 4 * WIDTH - start))
            if r.random() < 0.1:
                b.memset((tiles[0], 0, ROWS, 0, 1), k)
            b.copy((self.y, 0, rows, 4 * k * WIDTH, 4 * WIDTH - start), (again, 0, rows, 0, 4 * WIDTH - start))
            if rows == ROWS and not start and r.random() < 0.5:
                first = again
        self.array = np.random.default_rng(seed).integers(-4, 5, self.x.shape).astype(np.float32)

    result = Stored.result


class StoredInLoop:
    """The same as ``Stored`` in a loop of the device: boxes that move by different widths in each iteration, tiles of the body, and
    one that all iterations use."""

    def __init__(self, seed: int, steps: int = 16, trips: int = 4) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, 8 * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, trips * steps * WIDTH), "output")
        scratch = [b.hbm(f"scratch{k}", (ROWS, 8 * WIDTH)) for k in range(2)]
        first = b.on_chip("first", (ROWS, 8 * WIDTH))
        b.copy((first, 0, ROWS, 0, 8 * WIDTH), (self.x, 0, ROWS, 0, 8 * WIDTH))
        for tensor in scratch:
            b.copy((tensor, 0, ROWS, 0, 8 * WIDTH), (first, 0, ROWS, 0, 8 * WIDTH))
        with b.loop(trips) as i:
            tiles = [first]
            for k in range(steps):
                start = r.choice((0, 0, WIDTH // 2, WIDTH)), {i: r.choice((WIDTH, WIDTH, WIDTH, 1))}
                tile = r.choice(tiles)
                if not k or r.random() < 0.4:                       # else the last one again
                    box = r.choice(scratch), 0, ROWS, start if r.random() < 0.9 else 5, WIDTH
                match r.randrange(5):
                    case 0 | 1:
                        b.copy(box, (tile, 0, ROWS, 0, WIDTH))
                    case 2 | 3:
                        tile = b.on_chip(f"t{k}", (ROWS, WIDTH))
                        b.copy((tile, 0, ROWS, 0, WIDTH), box)
                        tiles.append(tile)
                    case 4:
                        b.memset((tile, 0, ROWS, 0, WIDTH), k)
                u = b.on_chip(f"u{k}", (ROWS, WIDTH))
                b.add((u, 0, ROWS, 0, WIDTH), (tile, 0, ROWS, 0, WIDTH), (tile, 0, ROWS, 0, WIDTH), "add")
                b.copy((self.y, 0, ROWS, (k * WIDTH, {i: steps * WIDTH}), WIDTH), (u, 0, ROWS, 0, WIDTH))
        self.array = np.random.default_rng(seed).integers(-4, 5, self.x.shape).astype(np.float32)

    result = Stored.result


@pytest.mark.parametrize("kind, count", [(Stored, 60), (StoredSideBySide, 30), (StoredInLoop, 20)])
def test_values__stay(kind, count):
    dropped = 0
    for seed in range(count):
        stored = kind(seed)
        expected = stored.result()
        dropped += len(forward_stores(stored.b.code))
        np.testing.assert_array_equal(stored.result(), expected, f"seed {seed}")
    assert dropped > count


@pytest.mark.parametrize("seed", range(3))
def test_streams_with_loops__compute_the_same_in_any_order(seed):
    expected = StoredInLoop(seed).result()
    stored = StoredInLoop(seed)
    program = emit_code(stored.b.code, Emission(unroll_limit=20))
    for scheduler in range(3):
        output = np.zeros_like(expected)
        simulate(program, [stored.array.copy()], [output], scheduler)
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("changes, loads", [
    ({}, 1),
    ({"loaded": (0, 32)}, 0),                       # another number of bytes for each iteration
    ({"loaded": (64, 64)}, 0),                      # those of the next iteration
    ({"between": (64, 64)}, 1),
    ({"between": (63, 64)}, 0),
    ({"between": (64, 32)}, 0),                     # other registers may reach the stored bytes
    ({"between": (0, 0)}, 0),
    ({"used_before": True}, 0)], ids=str)           # what the last iteration loaded
def test_registers__are_the_same_in_both_addresses(changes, loads):
    def outcome(loaded=(0, 64), between=None, used_before=False):
        b = Builder()
        x, y = b.hbm("x", (ROWS, 64), "input"), b.hbm("y", (ROWS, 4 * 64), "output")
        scratch, other = b.hbm("scratch", (ROWS, 8 * 64)), b.on_chip("other", (ROWS, 8))
        b.memset((other, 0, ROWS, 0, 8), 1)
        with b.loop(4) as i:
            tile, again = b.on_chip("tile", (ROWS, 64)), b.on_chip("again", (ROWS, 64))
            if used_before:
                b.copy((y, 0, ROWS, (0, {i: 64}), 64), (again, 0, ROWS, 0, 64))
            b.copy((tile, 0, ROWS, 0, 64), (x, 0, ROWS, 0, 64))
            b.copy((scratch, 0, ROWS, (0, {i: 64}), 64), (tile, 0, ROWS, 0, 64))
            if between:
                b.copy((scratch, 0, ROWS, (between[0], {i: between[1]} if between[1] else {}), 8), (other, 0, ROWS, 0, 8))
            b.copy((again, 0, ROWS, 0, 64), (scratch, 0, ROWS, (loaded[0], {i: loaded[1]}), 64))
            b.copy((y, 0, ROWS, (0, {i: 64}), 64), (again, 0, ROWS, 0, 64))
        return len(forward_stores(b.code))
    assert outcome(**changes) == loads


@pytest.mark.share(3)
@pytest.mark.parametrize("kind, seed", [(Stored, seed) for seed in range(6)] + [(StoredSideBySide, seed) for seed in range(3)])
def test_streams__compute_the_same_in_any_order(kind, seed):
    expected = kind(seed).result()
    for options in (Emission(), Emission(reorder=False), Emission(loads=False)):
        stored = kind(seed)
        program = emit_code(stored.b.code, options)
        for scheduler in range(3):
            output = np.zeros_like(expected)
            simulate(program, [stored.array.copy()], [output], scheduler)
            np.testing.assert_array_equal(output, expected)


class Pair:
    """A tile that is stored, and one that is loaded and read. The arguments change one property of either."""

    def __init__(self, stored=(0, ROWS, 0, 32), loaded=(0, ROWS, 0, 32), start=0, dtype=FLOAT32, between=None,
                 role="local", address=None, large=0):
        self.b = b = Builder()
        x, y = b.hbm("x", (128, 64), "input"), b.hbm("y", (128, 64), "output")
        scratch, self.tile = b.hbm("scratch", (128, 64), role), b.on_chip("tile", (128, 64), address=address)
        first, rows, column, width = stored
        b.copy((self.tile, 0, 128, 0, 64), (x, 0, 128, 0, 64))
        b.copy((scratch, first, rows, column, width), (self.tile, start, rows, 5, width))
        if between:
            between(b, scratch, self.tile)
        if large:
            b.memset((b.on_chip("large", (128, large)), 0, 128, 0, large), 1)
        first, rows, column, width = loaded
        again = b.on_chip("again", (rows, width), dtype=dtype)
        b.copy((again, 0, rows, 0, width), (scratch, first, rows, column, width))
        b.copy((y, 0, rows, 0, width), (again, 0, rows, 0, width))

    def transfers(self) -> int:
        return sum(step.op.name == "dma_copy" for step in steps_in(self.b.code.body))

    def outcome(self) -> tuple[int, int]:
        """Return the numbers of dropped loads and of dropped transfers."""
        before = self.transfers()
        return len(forward_stores(self.b.code)), before - self.transfers()


def overwritten(b, scratch, tile):
    b.memset((tile, 0, 1, 5, 1), 1)


def overwritten_elsewhere(b, scratch, tile):
    b.memset((tile, 0, 128, 0, 5), 1)


def stored_again(b, scratch, tile):
    b.copy((scratch, 31, 1, 31, 1), (tile, 0, 1, 0, 1))


def stored_beside(b, scratch, tile):
    b.copy((scratch, 0, 128, 32, 32), (tile, 0, 128, 0, 32))


@pytest.mark.parametrize("changes, loads, transfers", [
    ({}, 1, 2),
    ({"loaded": (0, 16, 3, 29)}, 1, 2),
    ({"role": "output"}, 1, 1),
    ({"between": stored_beside}, 1, 3),
    ({"loaded": (0, ROWS, 0, 33)}, 0, 0),
    ({"loaded": (0, ROWS + 1, 0, 32)}, 0, 0),
    ({"loaded": (1, 8, 0, 32)}, 0, 0),
    ({"stored": (0, ROWS, 1, 31)}, 0, 0),
    ({"start": 32}, 0, 0),
    ({"dtype": BFLOAT16}, 0, 0),
    ({"between": overwritten}, 0, 0),
    ({"between": overwritten_elsewhere}, 0, 0),
    ({"between": stored_again}, 0, 0),
    ({"address": (0, 4096)}, 0, 0),
    ({"large": machine_named("trn2").sbuf_bytes_per_partition // 4}, 0, 0),
], ids=lambda value: str(value) if isinstance(value, int) else " ".join(
    f"{k} {getattr(v, '__name__', v)}" for k, v in value.items()) or "equal")
def test_each_condition__is_needed(changes, loads, transfers):
    assert Pair(**changes).outcome() == (loads, transfers)


class Parts:
    """Two tiles that are stored side by side, and one that is loaded. The arguments change one property."""

    def __init__(self, right=32, loaded=(0, ROWS, 0, 64), rows=ROWS, stored_width=32, dtype=FLOAT32, address=None,
                 before=None, after=None, twice=False, role="local", large=0):
        self.b = b = Builder()
        x, y = b.hbm("x", (ROWS, 64), "input"), b.hbm("y", (ROWS, 64), "output")
        scratch = b.hbm("scratch", (ROWS, 64), role)
        left = b.on_chip("left", (ROWS, stored_width), address=address)
        other = left if twice else b.on_chip("right", (rows, 32))
        b.copy((left, 0, ROWS, 0, 32), (x, 0, ROWS, 0, 32))
        b.copy((other, 0, rows, 0, 32), (x, 0, rows, 32, 32))
        if before:
            b.memset((b.on_chip("between", (ROWS, before)), 0, ROWS, 0, before), 1)
        b.copy((scratch, 0, ROWS, 0, 32), (left, 0, ROWS, 0, 32))
        b.copy((scratch, 0, rows, right, 32), (other, 0, rows, 0, 32))
        if after == "store":
            b.copy((scratch, 0, 1, 5, 1), (x, 0, 1, 0, 1))
        if large:
            b.memset((b.on_chip("large", (ROWS, large)), 0, ROWS, 0, large), 1)
        first, count, column, width = loaded
        again = b.on_chip("again", (count, width), dtype=dtype)
        b.copy((again, 0, count, 0, width), (scratch, first, count, column, width))
        if after == "write":
            b.memset((left, 0, ROWS, 0, 1), 1)
        b.copy((y, 0, count, 0, width), (again, 0, count, 0, width))

    outcome, transfers = Pair.outcome, Pair.transfers


@pytest.mark.parametrize("changes, loads, transfers", [
    ({}, 1, 3),
    ({"role": "output"}, 1, 1),
    ({"before": 16}, 1, 3),
    ({"right": 31}, 0, 0),                              # a column is missing
    ({"loaded": (0, ROWS, 1, 63)}, 0, 0),
    ({"loaded": (0, ROWS - 1, 0, 64)}, 0, 0),
    ({"rows": ROWS - 1}, 0, 0),
    ({"stored_width": 33}, 0, 0),                       # a column of the tile is not stored
    ({"twice": True}, 0, 0),
    ({"dtype": BFLOAT16}, 0, 0),
    ({"address": (0, 4096)}, 0, 0),
    ({"after": "store"}, 0, 0),
    ({"after": "write"}, 0, 0),
    ({"large": machine_named("trn2").sbuf_bytes_per_partition // 4 - 100}, 0, 0)], ids=str)
def test_tiles_that_were_stored_side_by_side__become_parts_of_a_loaded_one(changes, loads, transfers):
    assert Parts(**changes).outcome() == (loads, transfers)
    if loads:
        parts = Parts(**changes)
        assert not forward_stores(parts.b.code, join=False)


def test_many_stores__are_compared_with_a_few():
    b = Builder()
    x, y = b.hbm("x", (128, 4), "input"), b.hbm("y", (300, 4), "output")
    scratch, tile = b.hbm("scratch", (300, 4)), b.on_chip("tile", (128, 4))
    b.copy((tile, 0, 128, 0, 4), (x, 0, 128, 0, 4))
    for k in range(300):
        b.copy((scratch, k, 1, 0, 4), (tile, 0, 1, 0, 4))
    for k in range(300):
        again = b.on_chip("again", (1, 4))
        b.copy((again, 0, 1, 0, 4), (scratch, k, 1, 0, 4))
        b.copy((y, k, 1, 0, 4), (again, 0, 1, 0, 4))
    assert len(forward_stores(b.code)) == 256


@pytest.mark.parametrize("chosen", [{}, {"fixed": True}, {"addresses": ((0, 64),)}, {"attributes": {"nki.address": None}}],
                         ids=str)
def test_tiles_whose_address_the_kernel_chose__stay_where_they_are(chosen):
    assert _Forwarding.is_free(DeviceBuffer("tile", "sbuf", (128, 4), FLOAT32, **chosen)) is (not chosen)
