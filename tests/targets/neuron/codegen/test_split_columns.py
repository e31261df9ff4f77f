# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles split by columns: values stay under every order, each condition is needed, and kernels take less time."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.cli.source import load_kernel
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.dialects.nisa.search import EIGHT, Max8Op
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, DType
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import split_columns as tested
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.records import Code, steps_in
from nki_mlir.targets.neuron.codegen.split_columns import loading_ns, split_columns
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.timing.transfers import Transfers
from tests.targets.neuron.code_builder import Builder, run_in_order

ROOT = Path(__file__).parent.parent.parent.parent.parent
ROWS, WIDTH, TILES, SHIFT = 32, 1100, 3, 40


class Mixture:
    """Loads of wide tiles, sums of their columns and of shifted ones, in place or not, factors, maxima and greatest values
    of rows, and stores, also of tiles of which a part is loaded again."""

    def __init__(self, seed: int, steps: int = 12) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, TILES * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, TILES * WIDTH), "output")
        tiles = [b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(TILES)]
        column, eight = b.on_chip("column", (ROWS, 1)), b.on_chip("eight", (ROWS, EIGHT))
        for k, tile in enumerate(tiles):
            b.copy((tile, 0, ROWS, 0, WIDTH), (self.x, 0, ROWS, k * WIDTH, WIDTH))
        b.memset((column, 0, ROWS, 0, 1), 2.0)
        b.memset((eight, 0, ROWS, 0, EIGHT), 3.0)
        for _ in range(steps):
            kind = r.choice(("sum", "sum", "shifted", "factor", "largest", "store", "load", "constant",
                             "greatest", "greatest"))
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
                b.step(TensorReduceOp, dst=b.tile({}, column, 0, ROWS, 0, 1), op=r.choice(("maximum", "minimum", "add")),
                       axes=(1,), src=b.tile({}, lhs, 0, ROWS, start, length), negate=r.random() < 0.4)
            elif kind == "greatest":
                b.step(Max8Op, dst=b.tile({}, eight, 0, ROWS, 0, EIGHT), src=b.tile({}, lhs, 0, ROWS, start, length))
                b.add((dst, 0, ROWS, 0, EIGHT), (eight, 0, ROWS, 0, EIGHT), (rhs, 0, ROWS, 0, EIGHT))
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
    ("ranked_order(before, ranks)", "ranked_order([()] * len(ranks), ranks)"),
    ("Linear(by * start)", "Linear(by)"),
    ("columns_of(values, count * k, count)", "columns_of(values, 0, count)"),
    ("src=columns_of(src, *span)", "src=columns_of(src, *spans[0])"),
    ("changed(op, None, src=values)", "changed(op, None, src=columns_of(values, 0, count))"),
    ('{"negate": False} if isinstance(op, TensorReduceOp) else {}', "{}"),
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


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("op", ["maximum", "minimum", "greatest"])
def test_extrema__of_pieces_that_differ_in_length(op: str, dtype: DType) -> None:
    """Also of NaN, of zeros of both signs, and of values that many columns share."""
    b, count = Builder(), EIGHT if op == "greatest" else 1
    x, y = b.hbm("x", (ROWS, WIDTH), "input"), b.hbm("y", (ROWS, count), "output")
    tile, extrema = b.on_chip("tile", (ROWS, WIDTH), dtype=dtype), b.on_chip("extrema", (ROWS, count))
    b.copy((tile, 0, ROWS, 0, WIDTH), (x, 0, ROWS, 0, WIDTH))
    tiles = {"dst": b.tile({}, extrema, 0, ROWS, 0, count), "src": b.tile({}, tile, 0, ROWS, 0, WIDTH)}
    if op == "greatest":
        b.step(Max8Op, **tiles)
    else:
        b.step(TensorReduceOp, **tiles, op=op, axes=(1,), negate=True)
    b.copy((y, 0, ROWS, 0, count), (extrema, 0, ROWS, 0, count))
    array = np.random.default_rng(0).choice(np.array([-0.0, 0.0, -1.0, -2.0, np.nan], np.float32), (ROWS, WIDTH))
    array[4:] = np.where(np.isnan(array[4:]), np.float32(0.5), array[4:])
    array[8:16] = np.where(array[8:16] > 0, np.float32(-0.0), array[8:16])
    array[:2] = np.nan
    array[:2, ::300] = -np.inf
    results = []
    for pieces in (1, 2):
        if pieces > 1:
            assert split_columns(b.code, pieces) == 2
        results.append(np.zeros(y.shape, np.float32))
        run_in_order(b.code, {x: array.copy(), y: results[-1]})
    assert results[0].tobytes() == results[1].tobytes()


def test_loading_ns__is_of_large_tiles_that_are_loaded_once() -> None:
    b = Mixture(0).b
    load = next(step.op for step in steps_in(b.code.body) if type(step.op) is DmaCopyOp)
    assert loading_ns(b.code, 2) == pytest.approx(TILES * max(Transfers(b.code.machine).of(load).parts))
    assert loading_ns(b.code, 8) == 0
    x, tile = b.code.globals[0], b.code.body.buffers[0]
    b.copy((tile, 0, ROWS, 0, WIDTH), (x, 0, ROWS, 0, WIDTH))
    assert loading_ns(b.code, 2) == 0


@nki.jit
def convolved(x, w):
    """Products of parts of an image, which begin when their lines are loaded."""
    (channels, lines, columns), (taps, _, _, outputs) = x.shape, w.shape
    height, width = lines - taps + 1, columns - taps + 1
    out = nl.ndarray((outputs, height, width), dtype=x.dtype, buffer=nl.shared_hbm)
    image, weights = nl.load(x), nl.ndarray((channels, taps * taps, outputs), dtype=x.dtype, buffer=nl.sbuf)
    for tap in nl.static_range(taps * taps):
        weights[:, tap, :] = nl.load(w[tap // taps, tap % taps])
    for row in nl.affine_range(height // 4):
        total = nl.zeros((outputs, 4, width), nl.float32, buffer=nl.psum)
        for tap in nl.static_range(taps * taps):
            total += nisa.nc_matmul(weights[:, tap, :],
                                    image[:, nl.ds(row * 4 + tap // taps, 4), nl.ds(tap % taps, width)])
        nl.store(out[:, nl.ds(row * 4, 4), :], nl.copy(total, dtype=x.dtype))
    return out


def test_search__splits_the_image_of_a_convolution() -> None:
    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in ((128, 130, 130), (3, 3, 128, 128))]
    specialization = convolved.lower(*arrays).specialization
    times = [neuron.timed(neuron.streams(specialization.captured, specialization.grid, options)).total_ns
             for options in (Emission(), Emission(split_columns=False))]
    assert times[0] < times[1] * 0.92


@pytest.mark.parametrize("name, shapes, most", [("convolution.py:depthwise", [(128, 8192), (128, 16)], 0.95),
                                                ("top_k.py:top16", [(128, 16384)], 0.9), ("softmax.py:softmax", [(128, 8192)], 0.85)])
def test_search__splits_a_large_load_before_a_chain_of_instructions(name: str, shapes: list[tuple[int, ...]], most: float
                                                                    ) -> None:
    kernel = load_kernel(str(ROOT / "examples" / name), "trn2")
    arguments = [np.zeros(shape, np.float32) for shape in shapes]
    specialization = kernel.lower(*arguments).specialization
    times = [neuron.timed(neuron.streams(specialization.captured, specialization.grid, options)).total_ns
             for options in (Emission(), Emission(split_columns=False))]
    assert times[0] < times[1] * most
