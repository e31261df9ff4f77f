# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies at run-time addresses add what instructions added to their indices, and accept the same indices."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.isa.instruction import Control
from nki_mlir.dialects.nisa.dynamic_access import DynamicReadOp, DynamicWriteOp
from nki_mlir.dialects.nisa.elementwise import ScalarTensorTensorOp, TensorScalarOp
from nki_mlir.dialects.nisa.movement import IotaOp, MemsetOp
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.targets.neuron.codegen import fold_addresses as tested
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_lowered
from nki_mlir.targets.neuron.codegen.fold_addresses import fold_addresses
from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel
from nki_mlir.targets.neuron.codegen.records import Code, steps_in
from tests.targets.neuron.code_builder import Builder, run_in_order

TABLE = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)


def mnemonics(kernel, *arrays, **options):
    module, = kernel.lower(*arrays).specialization.modules
    program, = emit_lowered(LoweredKernel(module), Emission(kernel_as_written=False, **options))     # the pass folds nothing as written
    return [i.op.mnemonic for stream in program.streams.values() for i in stream if not isinstance(i.op, Control)]


@nki.jit
def columns_behind(x, start):
    """Three columns of a tile, from the fifth behind the start; then two columns back."""
    out = nl.ndarray((16, 24), x.dtype, buffer=nl.shared_hbm)
    tile, index = nl.load(x), nl.load(start)
    behind, piece = nl.add(index, 5, dtype=nl.int32), nl.ndarray((16, 3), x.dtype)
    nisa.dma_copy(dst=piece, src=tile.ap([[24, 16], [1, 3]], scalar_offset=behind, indirect_dim=1))
    before = nl.add(index, 2, dtype=nl.int32)
    nisa.dma_copy(dst=tile.ap([[24, 16], [1, 2]], scalar_offset=before, indirect_dim=1), src=piece[:, 0:2])
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def diagonal(x, rows, start):
    """Row p of the result begins at column ``start + p`` of a row that an index names."""
    out = nl.ndarray((8, 4), x.dtype, buffer=nl.shared_hbm)
    index, tile = nl.load(rows), nl.ndarray((8, 4), x.dtype)
    counted, elements = nl.ndarray((8, 1), nl.int32), nl.ndarray((8, 1), nl.int32)
    nisa.iota(counted, [[0, 1]], offset=start, channel_multiplier=1)
    nisa.scalar_tensor_tensor(elements, index, nl.multiply, 24.0, nl.add, counted)
    nisa.dma_copy(dst=tile, src=x.ap([[1, 16 * 24 - 4], [1, 4]])[elements, :])
    nisa.dma_copy(dst=out, src=tile)
    return out


def moved_columns(start):
    expected = TABLE.copy()
    expected[:, start + 2:start + 4] = TABLE[:, start + 5:start + 7]
    return expected


@pytest.mark.parametrize("start", [-2, 0, 16])
@pytest.mark.parametrize("on", ["interpreter", "jit", "isa"])
def test_columns_behind_an_index(start, on):
    got = columns_behind.on(on)(TABLE, np.array([[start]], np.int32))
    np.testing.assert_array_equal(got, moved_columns(start))


@pytest.mark.parametrize("start", [-3, 17, 19, 2**31 - 1, -2**31])
def test_indices_outside_stay_errors(start):
    with pytest.raises(IndexError, match="out of bounds"):
        columns_behind.on("isa")(TABLE, np.array([[start]], np.int32))


@nki.jit
def infinitely_far(x, start):
    """Columns of a tile, infinitely far from the start."""
    out = nl.ndarray((16, 3), x.dtype, buffer=nl.shared_hbm)
    tile, index, piece = nl.load(x), nl.load(start), nl.ndarray((16, 3), x.dtype)
    far = nl.add(index, float("inf"), dtype=nl.int32)
    nisa.dma_copy(dst=piece, src=tile.ap([[24, 16], [1, 3]], scalar_offset=far, indirect_dim=1))
    nisa.dma_copy(dst=out, src=piece)
    return out


def test_an_infinite_sum_is_an_error_of_the_index():
    with pytest.raises(IndexError, match="index 2147483647 is out of bounds"):
        infinitely_far.on("isa")(TABLE, np.array([[1]], np.int32))


def test_sums_of_indices_go():
    arrays = TABLE, np.zeros((1, 1), np.int32)
    assert mnemonics(columns_behind, *arrays).count("TENSOR_SCALAR") == 0
    assert mnemonics(columns_behind, *arrays, addresses=False).count("TENSOR_SCALAR") == 2


@nki.jit
def later_copy(x, start):
    """Columns of a tile after the start, after another tile is filled with numbers."""
    out = nl.ndarray((16, 3), x.dtype, buffer=nl.shared_hbm)
    tile, index, ones = nl.load(x), nl.load(start), nl.ndarray((16, 3), x.dtype)
    after = nl.add(index, 5, dtype=nl.int32)
    nisa.memset(ones, 1.0)
    piece = nl.ndarray((16, 3), x.dtype)
    nisa.dma_copy(dst=piece, src=tile.ap([[24, 16], [1, 3]], scalar_offset=after, indirect_dim=1))
    nisa.tensor_tensor(piece, piece, ones, nl.multiply)
    nisa.dma_copy(dst=out, src=piece)
    return out


@pytest.mark.parametrize(("index_at", "ones_at", "dropped"), [
    (None, None, 1), ((0, 64), None, 1), ((0, 64), (0, 68), 1), ((0, 64), (1, 64), 1), (None, (0, 60), 1),
    ((0, 64), (0, 60), 0), ((15, 64), (0, 64), 0)])
def test_an_index_stays_if_another_tile_is_written_at_its_address(index_at, ones_at, dropped):
    module, = later_copy.lower(TABLE, np.zeros((1, 1), np.int32)).specialization.modules
    code = LoweredKernel(module).code()
    index = next(step.op.src.handle for step in steps_in(code.body) if type(step.op) is TensorScalarOp)
    ones = next(step.op.dst.handle for step in steps_in(code.body) if type(step.op) is MemsetOp)
    for buffer, address in ((index, index_at), (ones, ones_at)):
        if address is not None:
            buffer.address, buffer.fixed = address, True
    assert fold_addresses(code) == dropped


@pytest.mark.parametrize("on", ["interpreter", "jit", "isa"])
def test_rows_that_are_counted(on):
    rows = np.array([[3], [0], [15], [7], [7], [1], [2], [14]], np.int32)
    expected = np.stack([TABLE[row, 1 + p:5 + p] for p, row in enumerate(rows[:, 0])])
    np.testing.assert_array_equal(diagonal.on(on)(TABLE, rows, 1), expected)


@pytest.mark.parametrize("row", [-1, 16, 2**31 - 1])
def test_rows_outside_stay_errors(row):
    with pytest.raises(IndexError, match="out of bounds"):
        diagonal.on("isa")(TABLE, np.full((8, 1), row, np.int32), 1)


def test_products_of_indices_go():
    arrays = TABLE, np.zeros((8, 1), np.int32)
    assert not {"IOTA", "SCALAR_TENSOR_TENSOR"} & set(mnemonics(diagonal, *arrays, 1))
    assert {"IOTA", "SCALAR_TENSOR_TENSOR"} <= set(mnemonics(diagonal, *arrays, 1, addresses=False))


def test_rows_with_other_bounds_stay():
    """The first row may go over the end of a row of the table, the last one may not."""
    assert "SCALAR_TENSOR_TENSOR" in mnemonics(diagonal, TABLE, np.zeros((8, 1), np.int32), 20)


@nki.jit
def changed_between(x, start):
    out, where = nl.ndarray((16, 3), x.dtype, buffer=nl.shared_hbm), nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
    tile, index, piece = nl.load(x), nl.load(start), nl.ndarray((16, 3), x.dtype)
    behind = nl.add(index, 5, dtype=nl.int32)
    nisa.memset(index, 0)
    nisa.dma_copy(dst=piece, src=tile.ap([[24, 16], [1, 3]], scalar_offset=behind, indirect_dim=1))
    nisa.dma_copy(dst=out, src=piece)
    nisa.dma_copy(dst=where, src=index)
    return out, where


@nki.jit
def read_elsewhere(x, start):
    out, where = nl.ndarray((16, 3), x.dtype, buffer=nl.shared_hbm), nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
    tile, index, piece = nl.load(x), nl.load(start), nl.ndarray((16, 3), x.dtype)
    behind = nl.add(index, 5, dtype=nl.int32)
    nisa.dma_copy(dst=piece, src=tile.ap([[24, 16], [1, 3]], scalar_offset=behind, indirect_dim=1))
    nisa.dma_copy(dst=out, src=piece)
    nisa.dma_copy(dst=where, src=behind)
    return out, where


@nki.jit
def of_unsigned(x, start):
    """Sums of unsigned numbers could wrap around into bounds."""
    out, piece = nl.ndarray((16, 3), x.dtype, buffer=nl.shared_hbm), nl.ndarray((16, 3), x.dtype)
    tile, index = nl.load(x), nl.load(start)
    behind = nl.add(index, 5, dtype=nl.uint32)
    nisa.dma_copy(dst=piece, src=tile.ap([[24, 16], [1, 3]], scalar_offset=behind, indirect_dim=1))
    nisa.dma_copy(dst=out, src=piece)
    return out


@pytest.mark.parametrize("kernel, dtype", [(changed_between, np.int32), (read_elsewhere, np.int32),
                                           (of_unsigned, np.uint32)])
def test_sums_that_stay(kernel, dtype):
    index = np.array([[4]], dtype)
    assert mnemonics(kernel, TABLE, index).count("TENSOR_SCALAR") == 1
    got = kernel.on("isa")(TABLE, index)
    np.testing.assert_array_equal(got[0] if isinstance(got, tuple) else got, TABLE[:, 9:12])


# -- random code -------------------------------------------------------------------------------------------------------
ROWS, WIDTH, PIECE, GROUPS = 4, 16, 3, 5
SEEDS = 100
KINDS = ("plain", "plain", "plain", "changed", "rewritten", "read", "looped", "shared count")


class Mixture:
    """Sums of an index and a number, products of indices with a count for each row added, and the copies that they move.

    In some groups something writes the index or the result in between, or reads the result or the count, or the copy is
    in a loop. Few indices are out of bounds.
    """

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.b = b = Builder()
        self.x, self.n = b.hbm("x", (1, ROWS * WIDTH), "input"), b.hbm("n", (ROWS, GROUPS), "input", INT32)
        self.y, self.z = b.hbm("y", (ROWS, GROUPS * WIDTH), "output"), b.hbm("z", (ROWS, GROUPS), "output", INT32)
        self.indices = np.zeros(self.n.shape, np.int32)
        for group in range(GROUPS):
            self.add_group(group, r.choice(KINDS), r.random() < 0.4)
        self.array = np.random.default_rng(seed).standard_normal(self.x.shape).astype(np.float32)

    def add_group(self, group: int, kind: str, is_counted: bool) -> None:
        r, b, rows = self.random, self.b, ROWS if is_counted else 1
        index, result, count = (b.on_chip(name, (rows, 1), dtype=INT32) for name in ("index", "result", "count"))
        piece, table = b.on_chip("piece", (ROWS, PIECE)), b.on_chip("table", (ROWS, WIDTH))
        scale, start, added = r.choice((1, 2)), r.choice((0, 1)), r.choice((-2, -1, 1, 4))
        extent = (WIDTH - PIECE - start) // scale + 1
        for row in range(ROWS):
            b.copy((table, row, 1, 0, WIDTH), (self.x, 0, 1, row * WIDTH, WIDTH))
        b.memset((piece, 0, ROWS, 0, PIECE), group)
        b.copy((index, 0, rows, 0, 1), (self.n, 0, rows, group, 1))
        if is_counted:
            factor, scale, extent = r.choice((4, 5)), 1, ROWS * WIDTH - PIECE + 1 - start - r.choice((0, 6))
            b.step(IotaOp, dst=b.tile({}, count, 0, rows, 0, 1), expression=Linear(r.choice((0, 1)), (), ((0, 1),)))
            b.step(ScalarTensorTensorOp, dst=b.tile({}, result, 0, rows, 0, 1), src=b.tile({}, index, 0, rows, 0, 1),
                   operand0=None, rhs=b.tile({}, count, 0, rows, 0, 1), op0="multiply", op1="add", imm0=float(factor))
            self.indices[:, group] = [r.randrange((extent - 6) // factor) for _ in range(ROWS)]
            if r.random() < 0.4:
                self.indices[r.randrange(ROWS), group] = r.choice((-1, (extent - 1) // factor, extent // factor))
            if kind == "shared count":
                b.copy((self.z, 0, rows, group, 1), (count, 0, rows, 0, 1))
        else:
            b.step(TensorScalarOp, dst=b.tile({}, result, 0, 1, 0, 1), src=b.tile({}, index, 0, 1, 0, 1), op0="add",
                   imm0=float(added), operand0=None, operand1=None)
            moved = r.choice((0, extent - 1, r.randrange(extent), *((-1, extent) if r.random() < 0.2 else ())))
            self.indices[0, group] = moved - added
        if kind in ("changed", "rewritten"):
            b.memset((index if kind == "changed" else result, 0, rows, 0, 1), 2)
        if kind == "looped":
            with b.loop(2):
                self.add_copy(piece, table, result, extent, scale, start, is_counted)
        else:
            self.add_copy(piece, table, result, extent, scale, start, is_counted)
        if kind == "read":
            b.copy((self.z, 0, rows, group, 1), (result, 0, rows, 0, 1))
        b.copy((self.y, 0, ROWS, group * WIDTH, PIECE), (piece, 0, ROWS, 0, PIECE))
        b.copy((self.y, 0, ROWS, group * WIDTH + PIECE, WIDTH - PIECE), (table, 0, ROWS, PIECE, WIDTH - PIECE))

    def add_copy(self, piece, table, result, extent, scale, start, is_counted) -> None:
        """Add a copy from HBM for an index in each row, else one from or to the table on chip."""
        b, form = self.b, {"start": start, "steps": (0, 1), "scale": scale, "extent": extent}
        index = b.tile({}, result, 0, result.shape[0], 0, 1)
        piece_tile, table_tile = b.tile({}, piece, 0, ROWS, 0, PIECE), b.tile({}, table, 0, ROWS, 0, WIDTH)
        if is_counted:
            x = b.tile({}, self.x, 0, 1, 0, ROWS * WIDTH)
            b.step(DynamicReadOp, dst=piece_tile, src=x, index=index, **form)
        elif self.random.random() < 0.5:
            b.step(DynamicReadOp, dst=piece_tile, src=table_tile, index=index, **form)
        else:
            b.step(DynamicWriteOp, dst=table_tile, src=piece_tile, index=index, **form)

    def result(self) -> tuple[bytes, bytes, bool]:
        """Return the values of the outputs, and whether an index was out of bounds."""
        y, z = np.zeros(self.y.shape, np.float32), np.zeros(self.z.shape, np.int32)
        try:
            run_in_order(self.b.code, {self.x: self.array, self.n: self.indices, self.y: y, self.z: z})
        except IndexError:
            return y.tobytes(), z.tobytes(), True
        return y.tobytes(), z.tobytes(), False


def stays(seed: int, run: Callable[[Code], int]) -> bool:
    mixture = Mixture(seed)
    expected = mixture.result()
    run(mixture.b.code)
    return mixture.result() == expected


def test_values__stay() -> None:
    dropped = errors = 0
    for seed in range(SEEDS):
        mixture = Mixture(seed)
        errors += mixture.result()[2]
        dropped += fold_addresses(mixture.b.code)
        assert stays(seed, fold_addresses), seed
    assert dropped > 200 and 20 < errors < 60


@pytest.mark.parametrize("old, new", [
    ("[*buffer_uses.writers] == [step]", "step in buffer_uses.writers"),
    ("if buffer is index:", "if False:"),
    ("position=address.position.plus(Linear(added * address.scale))", "position=address.position.plus(Linear(added))"),
    ("first=address.first.plus(Linear(added))", "first=address.first"),
    (" if position.get(reader, -1) > at else None", ""),
    ("not any(uses[t.handle].readers for _, t in unneeded.op.targets())", "unneeded is not step"),
    ("by_row = Linear(form.const, (), ((0, row),) if row else ())", "by_row = Linear(form.const)"),
    ("low, high), = bounds", "low, high), *_ = [(0, address.extent - 1)]"),
    ("scale=scale * address.scale", "scale=address.scale"),
    ("if unneeded is not None and not any(", "if unneeded is not None or any(")])
def test_each_condition__is_needed(old: str, new: str) -> None:
    source = Path(tested.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    faulty = ModuleType("faulty")
    exec(source.replace(old, new).replace('name="fold-addresses"', 'name=""'), faulty.__dict__)

    def fails(seed: int) -> bool:
        try:
            return not stays(seed, faulty.fold_addresses)
        except (AttributeError, LookupError, ValueError):
            return True
    assert any(fails(seed) for seed in range(SEEDS))
