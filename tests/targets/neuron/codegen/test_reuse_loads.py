# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads of unchanged data: what is dropped, what is not, and that values stay under every order."""

import random
from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.dialects.op import on_engine
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.records import copied
from nki_mlir.targets.neuron.codegen.reuse_loads import BytesInUse, reuse_loads
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, WIDTH = 32, 16


class Repeated:
    """Tiles that are loaded again and again from inputs and from scratch memory, which is written between; some are
    changed on chip."""

    def __init__(self, seed: int, steps: int = 40) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.inputs = [b.hbm(f"x{k}", (ROWS, 4 * WIDTH), "input") for k in range(2)]
        self.output = b.hbm("y", (ROWS, steps * WIDTH), "output")
        scratch = b.hbm("scratch", (ROWS, 4 * WIDTH))
        for k in range(4):
            self.load(scratch, k, self.load(self.inputs[0], k), store=True)
        tiles = [self.load(self.inputs[0], 0)]
        for k in range(steps):
            at = r.randrange(4)
            source = r.choice((*self.inputs, scratch))
            match r.randrange(6):
                case 0 | 1:
                    tiles.append(self.load(source, at))
                case 2:
                    self.load(scratch, at, r.choice(tiles), store=True)
                case 3:
                    t = r.choice(tiles)
                    b.add(self.all(t), self.all(t), self.all(r.choice(tiles)), r.choice(("maximum", "subtract")))
                case 4:
                    u = b.on_chip(f"u{k}", (ROWS, WIDTH))
                    b.add(self.all(u), self.all(self.load(source, at)), self.all(r.choice(tiles)))
                    tiles.append(u)
                case 5:                                             # a row in all partitions
                    u = b.on_chip(f"u{k}", (ROWS, WIDTH))
                    b.copy(self.all(u), (r.choice(tiles[-2:]), 0, ROWS, 0, WIDTH))
                    tiles.append(u)
            b.copy((self.output, 0, ROWS, k * WIDTH, WIDTH), self.all(tiles[-1]))
        self.arrays = [np.random.default_rng(seed + k).integers(-4, 5, x.shape).astype(np.float32)
                       for k, x in enumerate(self.inputs)]

    @staticmethod
    def all(tile):
        return tile, 0, ROWS, 0, WIDTH

    def load(self, hbm, at, tile=None, store=False):
        tile = tile or self.b.on_chip("t", (ROWS, WIDTH))
        sides = self.all(tile), (hbm, 0, ROWS, at * WIDTH, WIDTH)
        self.b.copy(*(sides[::-1] if store else sides))
        return tile

    def result(self) -> np.ndarray:
        result = np.zeros(self.output.shape, np.float32)
        run_in_order(self.b.code, {**{x: a.copy() for x, a in zip(self.inputs, self.arrays)}, self.output: result})
        return result


@pytest.mark.parametrize("seed", range(12))
def test_values__stay(seed):
    repeated = Repeated(seed)
    expected = repeated.result()
    assert reuse_loads(repeated.b.code)
    np.testing.assert_array_equal(repeated.result(), expected)


@pytest.mark.parametrize("seed", range(6))
def test_streams__compute_the_same_in_any_order(seed):
    expected = Repeated(seed).result()
    for options in (Emission(), Emission(reorder=False), Emission(loads=False)):
        repeated = Repeated(seed)
        program = emit_code(repeated.b.code, options)
        for scheduler in range(4):
            output = np.zeros_like(expected)
            simulate(program, [a.copy() for a in repeated.arrays], [output], scheduler)
            np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("piece", [1, 3, 8, 4096])
def test_levels__are_those_of_each_step(monkeypatch, piece):
    monkeypatch.setattr("nki_mlir.targets.neuron.codegen.reuse_loads.PIECE", piece)
    r = random.Random(piece)
    changes = [r.randint(-3, 6) for _ in range(50)]
    plain, level, refused = np.cumsum(changes), BytesInUse(changes), 0
    for _ in range(200):
        begin, size, limit = r.randrange(49), r.randint(1, 9), r.choice((120, 250, 400))
        end = r.randint(begin + 1, 50)
        fits = plain[begin:end].max() + size <= limit
        assert level.raised(begin, end, size, limit) == fits
        plain[begin:end] += size * fits
        refused += not fits
    assert 20 < refused < 180


def products(columns):
    """A tile that is loaded before and behind work on tiles that fill ``columns`` of SBUF."""
    b = Builder()
    x, y = b.hbm("x", (128, 8192), "input"), b.hbm("y", (128, 8192), "output")
    for k in range(2):
        again = b.on_chip(f"again{k}", (128, 8192))
        b.copy((again, 0, 128, 0, 8192), (x, 0, 128, 0, 8192))
        b.copy((y, 0, 128, 0, 8192), (again, 0, 128, 0, 8192))
        if not k:
            large = b.on_chip("large", (128, columns))
            b.memset((large, 0, 128, 0, columns), 1)
    return b.code


def test_room__decides():
    size = machine_named("trn2").sbuf_bytes_per_partition // 4
    assert len(reuse_loads(products(size // 3))) == 1
    assert not reuse_loads(products(size - 8192))


@pytest.mark.parametrize("between, dropped", [((), 1), ((64,), 1), ((0,), 0), ((32,), 0)], ids=str)
@pytest.mark.parametrize("again", [0, 4096, None])
def test_tiles_at_addresses__stay_if_nothing_else_uses_their_bytes(between, again, dropped):
    """Tiles of 64 bytes: the first at byte 0, the second, which has the same elements, at ``again``."""
    b = Builder()
    x, y = b.hbm("x", (ROWS, WIDTH), "input"), b.hbm("y", (ROWS, 3 * WIDTH), "output")

    def kept(name, at, byte):
        tile = b.on_chip(name, (ROWS, WIDTH), address=None if byte is None else (0, byte))
        if at == 1:
            b.memset((tile, 0, ROWS, 0, WIDTH), 1)
        else:
            b.copy((tile, 0, ROWS, 0, WIDTH), (x, 0, ROWS, 0, WIDTH))
        b.copy((y, 0, ROWS, at * WIDTH, WIDTH), (tile, 0, ROWS, 0, WIDTH))
    kept("first", 0, 0)
    for byte in between:
        kept("other", 1, byte)
    kept("second", 2, again)
    assert len(reuse_loads(b.code)) == dropped
    allocate(b.code)                            # no two live tiles share a byte
    values = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    result = np.zeros((ROWS, 3 * WIDTH), np.float32)
    simulate(emit_code(b.code, Emission()), [values], [result])
    np.testing.assert_array_equal(result[:, :WIDTH], values)
    np.testing.assert_array_equal(result[:, 2 * WIDTH:], values)


@pytest.mark.parametrize("seed", range(20))
def test_random_addresses__never_conflict(seed):
    """Tiles at few addresses, each loaded and stored before the next one that shares bytes with it."""
    r, b = random.Random(seed), Builder()
    x, y = b.hbm("x", (ROWS, 4 * WIDTH), "input"), b.hbm("y", (ROWS, 40 * WIDTH), "output")
    for k in range(40):
        tile = b.on_chip(f"t{k}", (ROWS, WIDTH), address=(0, r.choice((0, 32, 64, 256, 1024))) if r.random() < 0.8 else None)
        b.copy((tile, 0, ROWS, 0, WIDTH), (x, 0, ROWS, r.randrange(4) * WIDTH, WIDTH))
        b.copy((y, 0, ROWS, k * WIDTH, WIDTH), (tile, 0, ROWS, 0, WIDTH))
    code = replace(b.code, body=copied(b.code.body))
    assert reuse_loads(code)
    allocate(code)
    values, results = np.random.default_rng(seed).standard_normal((ROWS, 4 * WIDTH)).astype(np.float32), []
    for options in (Emission(), Emission(loads=False)):
        results.append(np.zeros((ROWS, 40 * WIDTH), np.float32))
        simulate(emit_code(b.code, options), [values], [results[-1]])
    np.testing.assert_array_equal(*results)


def test_as_written__keeps_loads():
    def loads(options):
        code = products(1024)
        for step in code.body.nodes:
            if step.op.name == "dma_copy":
                step.op = on_engine(step.op, Engine.SYNC)
        return sum(i.queue is not None for i in emit_code(code, options).streams[Engine.SYNC])
    assert (loads(Emission()), loads(Emission(loads=False)), loads(Emission.as_written())) == (3, 4, 4)


@beta_nki.jit
def sums_with_a_row(x, row, changed=False):
    out = beta_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta_nl.shared_hbm)
    repeated = beta_nl.load(row)
    for i in range(x.shape[0] // 128):
        rows = beta_nl.load(x[i * 128:(i + 1) * 128, :])
        total = beta_nl.add(rows, repeated.broadcast_to((128, x.shape[1])))
        beta_nl.store(out[i * 128:(i + 1) * 128, :], total)
        if changed:
            repeated[...] = beta_nl.add(repeated, 1.0)
    return out


@pytest.mark.parametrize("width, changed, copies", [(64, False, 1), (64, True, 3), (11264, False, 1)])
@pytest.mark.parametrize("options", [Emission(), Emission(loads=False), Emission.as_written()], ids=str)
def test_a_row__is_copied_to_all_partitions_once(options, width, changed, copies):
    """Unless it is written in between; also in a mode that keeps the loads of the kernel, and if its copy and the tiles
    of an iteration fill 85% of SBUF."""
    arrays = np.zeros((384, width), np.float32), np.zeros((1, width), np.float32)
    spec = sums_with_a_row.specialize(sums_with_a_row.bind(arrays, {"changed": changed}, is_array, describe_array))
    (program,) = neuron.streams(spec.captured, spec.grid, options)
    within = [i for stream in program.streams.values() for i in stream
              if i.queue is not None and i.op.src.on_chip and i.op.dst.on_chip]
    assert len(within) == copies


def test_a_tile_that_a_loop_reads__keeps_its_load():
    """The loop of the run time is another run, which the first tile would have to reach, too."""
    @nki.jit
    def kernel(x, n):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        first = nl.load(x)
        second = nl.load(x)
        total, bound = nl.add(first, second), nisa.register_alloc()
        nisa.register_load(bound, n)
        for _ in nl.dynamic_range(bound):
            nisa.tensor_tensor(dst=total, data1=total, data2=second, op=nl.add)
        nl.store(out, total)
        return out
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    expected = x + x
    for _ in range(3):
        expected = expected + x
    n = np.full((1, 1), 3, np.int32)
    streams = kernel.lower(x, n).streams
    assert sum(i.queue is not None for p in streams for stream in p.streams.values() for i in stream) == 4
    np.testing.assert_array_equal(kernel.on("isa")(x, n), expected)
