# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Merged instructions: which, where they go, and that values stay under every order."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nki_mlir.dialects.nisa.elementwise import TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcTransposeOp
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.targets.neuron.codegen import merge_instructions as tested
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.merge_instructions import merge_instructions
from nki_mlir.targets.neuron.codegen.records import Code, blocks, steps_in
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, WIDTH = 32, 16


def all_of(tile):
    return tile, 0, ROWS, 0, WIDTH


def part_of(tile, number):
    return tile, 0, ROWS, number * WIDTH, WIDTH


class Mixture:
    """Sums, copies, functions and maxima of tiles that lie in separate buffers, side by side in one, or in PSUM, in
    groups of one form whose members may depend on each other, and loops that use some of them."""

    def __init__(self, seed: int, groups: int = 8) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, 4 * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, groups * 4 * WIDTH), "output")
        wide = b.on_chip("wide", (ROWS, 4 * WIDTH))
        b.copy((wide, 0, ROWS, 0, 4 * WIDTH), (self.x, 0, ROWS, 0, 4 * WIDTH))
        tiles = [part_of(wide, number) for number in range(4)]
        for g in range(groups):
            kind, together = r.randrange(7), r.random() < 0.4
            side_by_side = b.on_chip(f"s{g}", (ROWS, 4 * WIDTH)) if together else None
            results = []
            for k in range(4):
                dst = part_of(side_by_side, k) if side_by_side else all_of(b.on_chip(f"r{g}_{k}", (ROWS, WIDTH)))
                lhs, rhs = tiles[k], tiles[r.randrange(4)] if r.random() < 0.3 else tiles[0]
                match kind:
                    case 0:
                        b.add(dst, lhs, rhs, "maximum")
                    case 1:
                        b.tensor_copy(dst, lhs)
                    case 2:
                        b.add(dst, lhs, tiles[3 - k], "subtract")       # two buffers in opposite orders
                    case 3:
                        b.activation(dst, lhs)
                    case 4:                                             # each depends on the one before
                        b.add(dst, lhs, results[-1] if results else lhs, "subtract")
                    case 5:                                             # through PSUM
                        bank = all_of(b.on_chip(f"p{g}_{k}", (ROWS, WIDTH), "psum"))
                        b.tensor_copy(bank, lhs)
                        b.tensor_copy(dst, bank)
                    case 6:                                             # a maximum in each row
                        b.tensor_copy(dst, lhs)
                        b.copy((dst[0], 0, ROWS, dst[3], 1), dst, TensorReduceOp, op="maximum", axes=(1,), negate=False)
                results.append(dst)
                if r.random() < 0.1:
                    with b.loop(2):
                        b.add(dst, dst, dst)
                        if r.random() < 0.5:
                            for tile in results:            # buffers of the code around the loop
                                b.tensor_copy(tile, dst)
            tiles = results if r.random() < 0.7 else r.sample(results, 4)
            for k in range(4):
                b.copy((self.y, 0, ROWS, (4 * g + k) * WIDTH, WIDTH), tiles[k])
        self.array = np.random.default_rng(seed).integers(-9, 9, self.x.shape).astype(np.float32)

    def result(self) -> np.ndarray:
        y = np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: self.array.copy(), self.y: y})
        return y


def stays(seed: int, run: Callable[[Code], int]) -> bool:
    """Return whether values stay, and whether all buffers that are used are allocated."""
    mixture = Mixture(seed)
    expected, code = mixture.result(), mixture.b.code
    run(code)
    allocated = {buffer for block in blocks(code.body) for buffer in block.buffers} | {mixture.x, mixture.y}
    used = {tile.handle for step in steps_in(code.body) for _, tile in step.op.operands()}
    return used <= allocated and np.array_equal(mixture.result(), expected)


def test_values__stay() -> None:
    merged = 0
    for seed in range(60):
        merged += merge_instructions(Mixture(seed).b.code)
        assert stays(seed, merge_instructions), seed
    assert merged > 200


@pytest.mark.parametrize("old, new", [
    ("                    if other == first:\n                        return None\n", ""),
    ("[*hoisted, *[n for n in self.order[begin:end] if n not in moved], GONE]", "[*self.order[begin:end], GONE]"),
    (" if len(set(chain(*together))) == sum(map(len, together)) else None", ""),
    ("set(steps) == {step} and ", ""),
    ("buffer not in self.local or ", "")])
def test_each_condition__is_needed(old: str, new: str) -> None:
    source = Path(tested.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    faulty = ModuleType("faulty")
    exec(source.replace(old, new).replace('name="merge-instructions"', 'name=""'), faulty.__dict__)

    def fails(seed: int) -> bool:
        try:
            return not stays(seed, faulty.merge_instructions)
        except (ArithmeticError, LookupError, ValueError):
            return True
    assert any(fails(seed) for seed in range(60))


@pytest.mark.parametrize("seed", range(4))
def test_streams__compute_the_same_in_any_order(seed: int) -> None:
    expected = Mixture(seed).result()
    mixture = Mixture(seed)
    assert merge_instructions(mixture.b.code)
    program = emit_code(mixture.b.code, Emission())
    for scheduler in range(4):
        y = np.zeros_like(expected)
        simulate(program, [mixture.array.copy()], [y], scheduler)
        np.testing.assert_array_equal(y, expected)


def transposes(count: int, width: int = 32, between: int = 0) -> Builder:
    """Transpose tiles into PSUM, each of which a copy evicts, behind ``between`` instructions that compute it."""
    b = Builder()
    x, y = b.hbm("x", (32, count * width), "input"), b.hbm("y", (32, count * width), "output")
    wide = b.on_chip("wide", (32, count * width))
    b.copy((wide, 0, 32, 0, count * width), (x, 0, 32, 0, count * width))
    for k in range(count):
        tile = wide, 0, 32, k * width, width
        for n in range(between):
            source, tile = tile, (b.on_chip(f"t{k}_{n}", (32, width)), 0, 32, 0, width)
            b.add(tile, source, source, ("maximum", "minimum")[k % 2])
        bank = b.on_chip(f"p{k}", (32, width), "psum"), 0, 32, 0, width
        turned = b.on_chip(f"u{k}", (32, width)), 0, 32, 0, width
        b.copy(bank, tile, NcTransposeOp, engine="tensor")
        b.tensor_copy(turned, bank)
        b.copy((y, 0, 32, k * width, width), turned)
    return b


def copies(b: Builder) -> list[tuple[int, ...]]:
    return [step.op.dst.shape for step in steps_in(b.code.body) if isinstance(step.op, TensorCopyOp)]


def test_copies_from_psum__are_one_for_all_tiles_of_a_bank() -> None:
    b = transposes(4)
    assert merge_instructions(b.code) == 3
    assert copies(b) == [(32, 128)]
    assert [(buffer.space, buffer.shape) for buffer in b.code.body.buffers] == [
        ("sbuf", (32, 128)), ("sbuf", (32, 4, 32)), ("psum", (32, 4, 32))]


def test_operand_that_all_instructions_read__stays_and_one_that_all_write_does_not() -> None:
    """Of the writes of one tile the last one counts, so they are not one instruction."""
    for same, merged in ((True, 0), (False, 3)):
        b = Builder()
        shared, tiles, results = (b.on_chip(name, (ROWS, 4 * WIDTH)) for name in ("shared", "tiles", "results"))
        for k in range(4):
            b.add(part_of(results, 0 if same else k), part_of(tiles, k), part_of(shared, 0), "maximum")
        assert merge_instructions(b.code) == merged
        if merged:
            op, = (step.op for step in steps_in(b.code.body))
            assert (op.dst.shape, op.rhs.access.dims) == ((ROWS, 4, WIDTH), ((1, ROWS), (0, 4), (1, WIDTH)))


def test_elements__bound_merged_instructions() -> None:
    b = transposes(6)
    assert merge_instructions(b.code, elements=64) == 3
    assert copies(b) == [(32, 64)] * 3


def test_operands_behind_many_instructions__are_not_computed_early() -> None:
    assert merge_instructions(transposes(2, between=7).code) == 1
    assert merge_instructions(transposes(2, between=8).code) == 0


def test_columns__are_merged_as_tiles_whichever_operand_they_are() -> None:
    b = Builder()
    a, c, d = (b.on_chip(name, (32, 4)) for name in "acd")
    for k in range(4):
        dst, src, operand = (b.tile({}, buffer, 0, 32, k, 1) for buffer in (d, a, c))
        b.step(TensorScalarOp, dst=dst, src=src, operand0=operand, op0="subtract", reverse0=True)
    b.step(TensorScalarOp, dst=b.tile({}, a, 0, 32, 0, 1), src=b.tile({}, d, 0, 32, 0, 1),
           operand0=b.tile({}, d, 0, 32, 1, 1), op0="add")
    assert merge_instructions(b.code) == 3
    pair, alone = (step.op for step in steps_in(b.code.body))
    assert (type(pair), pair.dst.shape, pair.lhs.handle, type(alone)) == (TensorTensorOp, (32, 4), c, TensorScalarOp)
