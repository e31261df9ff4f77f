# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results that are written over operands: where, where not, and that values stay under every order."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.targets.neuron.codegen import overwrite_operands as tested
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.overwrite_operands import overwrite_operands
from nki_mlir.targets.neuron.codegen.records import Code, blocks, steps_in
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, WIDTH = 32, 16


def all_of(tile):
    return tile, 0, ROWS, 0, WIDTH


class Chains:
    """Sums of tiles, of parts of them and of their columns, copies, and tiles that are changed or used by a loop."""

    def __init__(self, seed: int, steps: int = 30) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x, self.y = b.hbm("x", (ROWS, 4 * WIDTH), "input"), b.hbm("y", (ROWS, steps * WIDTH), "output")
        tiles = [b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(4)]
        for k, tile in enumerate(tiles):
            b.copy(all_of(tile), (self.x, 0, ROWS, k * WIDTH, WIDTH))
        for k in range(steps):
            tile, other, result = r.choice(tiles[-4:]), r.choice(tiles[-4:]), b.on_chip(f"r{k}", (ROWS, WIDTH))
            match r.randrange(7):
                case 0 | 1:
                    b.add(all_of(result), all_of(tile), all_of(other), r.choice(("maximum", "subtract")))
                case 2:                                             # columns in the opposite order
                    b.add(all_of(result), all_of(other), (tile, 0, ROWS, WIDTH - 1, WIDTH, -1))
                case 3:
                    b.tensor_copy(all_of(result), all_of(tile))
                case 4:                                             # in two parts
                    for half in (0, WIDTH // 2):
                        part = 0, ROWS, half, WIDTH // 2
                        b.add((result, *part), (tile, *part), (other, *part))
                case 5:
                    b.tensor_copy(all_of(result), all_of(tile))
                    with b.loop(2):
                        b.add(all_of(result), all_of(result), all_of(other))
                case 6:                                             # a tile that has been used before
                    b.add(all_of(tile), all_of(other), all_of(tiles[-1]))
                    result = tile
            tiles.append(result)
            if r.random() < 0.5:
                b.copy((self.y, 0, ROWS, k * WIDTH, WIDTH), all_of(r.choice(tiles[-3:])))
        self.array = np.random.default_rng(seed).integers(-9, 9, self.x.shape).astype(np.float32)

    def result(self) -> np.ndarray:
        y = np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: self.array.copy(), self.y: y})
        return y


def stays(seed: int, run: Callable[[Code], bool]) -> bool:
    """Return whether values stay, all buffers that are used are allocated, and instructions that write over operands
    read each element where they write it."""
    chains = Chains(seed)
    expected, code = chains.result(), chains.b.code
    run(code)
    allocated = {buffer for block in blocks(code.body) for buffer in block.buffers} | {chains.x, chains.y}
    for op in [step.op for step in steps_in(code.body)]:
        (_, target), *_ = op.targets()
        if any(tile.handle not in allocated for _, tile in op.operands()) or any(
                tile.handle is target.handle and tile.access != target.access for _, tile in op.sources()):
            return False
    return np.array_equal(chains.result(), expected)


@pytest.mark.parametrize("seed", range(20))
def test_values__stay(seed: int) -> None:
    buffers = len(Chains(seed).b.code.body.buffers)
    chains = Chains(seed)
    assert overwrite_operands(chains.b.code) and len(chains.b.code.body.buffers) < buffers
    assert stays(seed, overwrite_operands)


@pytest.mark.parametrize("old, new", [
    ("last[buffer] == at and ", ""),
    (" or first[result.handle] != at", ""),
    ("tile.access == result.access and ", ""),
    ("if tile.handle not in read_elsewhere", ""),
    (" or buffer in shared", "")])
def test_each_condition__is_needed(old: str, new: str) -> None:
    source = Path(tested.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    faulty = ModuleType("faulty")
    exec(source.replace(old, new).replace('name="overwrite-operands"', 'name=""'), faulty.__dict__)
    assert not all(stays(seed, faulty.overwrite_operands) for seed in range(40))


@pytest.mark.parametrize("seed", range(6))
def test_streams__compute_the_same_in_any_order(seed: int) -> None:
    expected = Chains(seed).result()
    chains = Chains(seed)
    overwrite_operands(chains.b.code)
    program = emit_code(chains.b.code, Emission())
    for scheduler in range(4):
        y = np.zeros_like(expected)
        simulate(program, [chains.array.copy()], [y], scheduler)
        np.testing.assert_array_equal(y, expected)


def test_operands_that_are_read_later__or_have_an_address__stay() -> None:
    b = Builder()
    x, y = b.hbm("x", (ROWS, WIDTH), "input"), b.hbm("y", (ROWS, 3 * WIDTH), "output")
    read, fixed = b.on_chip("read", (ROWS, WIDTH)), b.on_chip("fixed", (ROWS, WIDTH), address=(0, 4096))
    for tile in (read, fixed):
        b.copy(all_of(tile), (x, 0, ROWS, 0, WIDTH))
    for k, tile in enumerate((read, fixed, read)):
        result = b.on_chip(f"r{k}", (ROWS, WIDTH))
        b.activation(all_of(result), all_of(tile), "exp")
        b.copy((y, 0, ROWS, k * WIDTH, WIDTH), all_of(result))
    assert overwrite_operands(b.code)
    assert [buffer.name for buffer in b.code.body.buffers] == ["read", "fixed", "r0", "r1"]


def test_a_chain__needs_one_buffer() -> None:
    b = Builder()
    x, y = b.hbm("x", (ROWS, WIDTH), "input"), b.hbm("y", (ROWS, WIDTH), "output")
    tiles = [b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(5)]
    b.copy(all_of(tiles[0]), (x, 0, ROWS, 0, WIDTH))
    for tile, result in pairwise(tiles):
        b.add(all_of(result), all_of(tile), all_of(tile))
    b.copy((y, 0, ROWS, 0, WIDTH), all_of(tiles[-1]))
    assert overwrite_operands(b.code)
    assert [buffer.name for buffer in b.code.body.buffers] == ["t0"]
    output = np.zeros(y.shape, np.float32)
    run_in_order(b.code, {x: np.full(x.shape, 3, np.float32), y: output})
    np.testing.assert_array_equal(output, 48)


def test_a_transpose__reads_elements_elsewhere() -> None:
    b = Builder()
    t, transposed = b.on_chip("t", (32, 32)), b.on_chip("transposed", (32, 32))
    b.copy((t, 0, 32, 0, 32), (b.hbm("x", (32, 32), "input"), 0, 32, 0, 32))
    b.copy((transposed, 0, 32, 0, 32), (t, 0, 32, 0, 32), NcTransposeOp, engine="vector")
    b.copy((b.hbm("y", (32, 32), "output"), 0, 32, 0, 32), (transposed, 0, 32, 0, 32))
    assert not overwrite_operands(b.code) and len(b.code.body.buffers) >= 2
