# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles split by columns: values stay under every order, each condition is needed, and kernels take less time."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nki_mlir.cli.source import load_kernel
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import split_columns as tested
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.records import Code, steps_in
from nki_mlir.targets.neuron.codegen.split_columns import split_columns
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROOT = Path(__file__).parent.parent.parent.parent.parent
ROWS, WIDTH, TILES, SHIFT = 32, 1100, 3, 40


class Mixture:
    """Loads of wide tiles, sums of their columns and of shifted ones, in place or not, factors and maxima of rows, and
    stores, also of tiles of which a part is loaded again."""

    def __init__(self, seed: int, steps: int = 12) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, TILES * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, TILES * WIDTH), "output")
        tiles = [b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(TILES)]
        column = b.on_chip("column", (ROWS, 1))
        for k, tile in enumerate(tiles):
            b.copy((tile, 0, ROWS, 0, WIDTH), (self.x, 0, ROWS, k * WIDTH, WIDTH))
        b.memset((column, 0, ROWS, 0, 1), 2.0)
        for _ in range(steps):
            kind = r.choice(("sum", "sum", "shifted", "factor", "largest", "store", "load", "constant"))
            (dst, lhs, rhs), k = [r.choice(tiles) for _ in range(3)], r.randrange(TILES)
            start, length = r.choice(((0, WIDTH), (0, WIDTH - SHIFT), (SHIFT, WIDTH - SHIFT)))
            if kind == "sum":
                b.add((dst, 0, ROWS, start, length), (lhs, 0, ROWS, start, length), (rhs, 0, ROWS, start, length),
                      r.choice(("add", "maximum")))
            elif kind == "shifted":
                to, at = r.choice(((0, SHIFT), (SHIFT, 0)))
                b.add((dst, 0, ROWS, to, WIDTH - SHIFT), (lhs, 0, ROWS, at, WIDTH - SHIFT),
                      (rhs, 0, ROWS, to, WIDTH - SHIFT), r.choice(("add", "subtract")))
            elif kind == "factor":
                b.step(TensorScalarOp, dst=b.tile({}, dst, 0, ROWS, start, length), op0="minimum", operand1=None,
                       src=b.tile({}, lhs, 0, ROWS, start, length), operand0=b.tile({}, column, 0, ROWS, 0, length, 0))
            elif kind == "largest":
                b.step(TensorReduceOp, dst=b.tile({}, column, 0, ROWS, 0, 1), op="maximum", axes=(1,),
                       src=b.tile({}, lhs, 0, ROWS, start, length))
            elif kind == "constant":
                b.memset((dst, 0, ROWS, start, length), r.randrange(9))
            elif kind == "store":
                b.copy((self.y, 0, ROWS, k * WIDTH, WIDTH), (lhs, 0, ROWS, 0, WIDTH))
            else:
                b.copy((dst, 0, ROWS, start, SHIFT), (r.choice((self.x, self.y)), 0, ROWS, k * WIDTH + start, SHIFT))
        for k, tile in enumerate(tiles):
            b.copy((self.y, 0, ROWS, k * WIDTH, WIDTH), (tile, 0, ROWS, 0, WIDTH))
        self.array = np.random.default_rng(seed).integers(-9, 9, self.x.shape).astype(np.float32)

    def result(self) -> np.ndarray:
        y = np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: self.array.copy(), self.y: y})
        return y


def stays(seed: int, run: Callable[[Code, int], int]) -> bool:
    mixture = Mixture(seed)
    expected = mixture.result()
    run(mixture.b.code, 2)
    return np.array_equal(mixture.result(), expected)


def test_values__stay() -> None:
    split_count = 0
    for seed in range(60):
        split_count += split_columns(Mixture(seed).b.code, 2)
        assert stays(seed, split_columns), seed
    assert split_count > 400


@pytest.mark.parametrize("old, new", [
    ("tile.access != target.access", "False"),
    ("waits[k] = len(earlier)", "waits[k] = 0"),
    ("if not waits[other]:", "if waits[other] <= 1:"),
    ("Linear(by * start)", "Linear(by)"),
    ("min(width, count - start)", "width")])
def test_each_condition__is_needed(old: str, new: str) -> None:
    source = Path(tested.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    faulty = ModuleType("faulty")
    exec(source.replace(old, new).replace('name="split-columns"', 'name=""'), faulty.__dict__)

    def differs(seed: int) -> bool:
        try:
            return not stays(seed, faulty.split_columns)
        except (IndexError, ValueError):                # tiles outside of their buffers
            return True
    assert any(differs(seed) for seed in range(60))


@pytest.mark.parametrize("seed", range(4))
def test_streams__compute_the_same_in_any_order(seed: int) -> None:
    expected = Mixture(seed).result()
    mixture = Mixture(seed)
    assert split_columns(mixture.b.code, 2)
    program = emit_code(mixture.b.code, Emission())
    for scheduler in range(4):
        y = np.zeros_like(expected)
        simulate(program, [mixture.array.copy()], [y], scheduler)
        np.testing.assert_array_equal(y, expected)


def test_tiles_of_one_axis__stay_whole() -> None:
    """A column of a tile that is read into one element of each partition, and the same tile with its columns."""
    b = Builder()
    x, tile, column = b.hbm("x", (ROWS, 4096), "input"), b.on_chip("tile", (ROWS, 4096)), b.on_chip("column", (ROWS, 2))
    target, source = b.tile({}, column, 0, ROWS, 0, 1), b.tile({}, x, 0, ROWS, 0, 1)
    one_axis = [t.patterned(free=t.access.free, dims=t.access.dims[:1]) for t in (target, source)]
    b.step(DmaCopyOp, dst=one_axis[0], src=one_axis[1])
    b.copy((tile, 0, ROWS, 0, 4096), (x, 0, ROWS, 0, 4096))
    b.tensor_copy((column, 0, ROWS, 1, 1), (tile, 0, ROWS, 4095, 1))
    assert split_columns(b.code, 4) == 1
    assert [step.op.dst.shape for step in steps_in(b.code.body)] == [(ROWS,), *[(ROWS, 1024)] * 4, (ROWS, 1)]


def test_search__splits_a_large_load_before_a_chain_of_instructions() -> None:
    kernel = load_kernel(str(ROOT / "examples/convolution.py:depthwise"), "trn2")
    arguments = [np.zeros((128, 8192), np.float32), np.zeros((128, 16), np.float32)]
    specialization = kernel.lower(*arguments).specialization
    times = [neuron.timed(neuron.streams(specialization.captured, specialization.grid, options)).total_ns
             for options in (Emission(), Emission(split_columns=False))]
    assert times[0] < times[1] * 0.95
