# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transposes by DMA convert where only a copy after them did, and values stay."""

import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nki_mlir.dialects.access import Access, Constraint, Linear, Tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp, DmaTransposeOp, MemsetOp, TensorCopyOp
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32
from nki_mlir.targets.neuron.codegen import fold_conversions as tested
from nki_mlir.targets.neuron.codegen.fold_conversions import fold_conversions
from nki_mlir.targets.neuron.codegen.records import copied, steps_in
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, COLUMNS = 8, 16
MASK = (Constraint(Linear(-1, (), ((0, 1),)), False),)


def entire(buffer, dtype=None) -> Tile:
    rows, columns = buffer.shape
    access = Access(dtype or buffer.dtype, Linear(), Linear(), ((1, rows), (1, columns)))
    return Tile(buffer, buffer.space, buffer.shape, buffer.dtype, access, buffer.name)


class Transposed:
    """s = transpose of x;  ... ;  t = copy s (bfloat16), with the steps that ``between`` adds in between."""

    def __init__(self, between=lambda one: None, after=lambda one: None, dtype=BFLOAT16, engine="unknown", copies=TensorCopyOp,
                 address=None, target=None, part=False, backwards=False, kinds=(), mask=(), loop=False):
        self.b = b = Builder()
        self.x, self.s = b.hbm("x", (ROWS, COLUMNS), "input"), b.on_chip("s", (COLUMNS, ROWS), address=address)
        self.t = b.on_chip("t", (COLUMNS, ROWS), dtype=dtype, address=target)
        b.step(DmaTransposeOp, dst=entire(self.s), src=b.tile({}, self.x, 0, ROWS, 0, COLUMNS),
               permutation=(1, 0))
        between(self)
        dst, src = entire(self.t), entire(self.s)
        if part:
            dst, src = (tile.patterned(dims=((1, COLUMNS), (1, 4))) for tile in (dst, src))
        if backwards:
            src = src.patterned(free=Linear(ROWS - 1), dims=((1, COLUMNS), (-1, ROWS)))
        if loop:
            with b.loop(2):
                self.copy(copies, dst, src, engine, mask)
        else:
            self.copy(copies, dst, src, engine, mask)
        after(self)
        for step in steps_in(b.code.body):
            step.op.extra = dict.fromkeys(kinds)

    def copy(self, cls, dst, src, engine, mask):
        self.b.step(cls, dst=dst, src=src, mask=mask)
        self.b.open[-1].nodes[-1].op.engine = engine

    def memset(self, buffer):
        self.b.step(MemsetOp, dst=entire(buffer), value=2.0)

    def left(self, run=fold_conversions):
        """The number of dropped copies; the values of all tiles stay, but for the transposed one's."""
        code = replace(self.b.code, body=copied(self.b.code.body))
        dropped, results = run(code), []
        for version in (self.b.code, code):
            arrays = {self.x: (np.random.default_rng(0).standard_normal((ROWS, COLUMNS)) * 9).astype(np.float32)}
            run_in_order(version, arrays)
            results.append([array.tobytes() for buffer, array in arrays.items() if buffer is not self.s])
        assert results[0] == results[1]
        return dropped


@pytest.mark.parametrize("changes", [
    {}, {"dtype": FLOAT16}, {"dtype": INT32}, {"copies": DmaCopyOp}, {"target": (0, 64)}, {"kinds": (NO_REORDER,)},
    {"between": lambda one: one.memset(one.b.on_chip("other", (4, 4)))},
    {"after": lambda one: one.memset(one.t)}],
    ids=["bfloat16", "float16", "integers", "by DMA", "to an address", "in order", "others between", "written later"])
def test_copies_that_go(changes):
    assert Transposed(**changes).left() == 1


OTHER = {"between": lambda one: one.memset(one.b.on_chip("other", (4, 4)))}


STAY = {
    "no conversion": {"dtype": FLOAT32},
    "an engine": {"engine": "vector"},
    "an address": {"address": (0, 64)},
    "a part": {"part": True},
    "backwards": {"backwards": True},
    "a mask": {"mask": MASK},
    "another run": {"loop": True},
    "to an address, later": OTHER | {"target": (0, 64)},
    "in order, later": OTHER | {"kinds": (NO_REORDER,)},
    "written between": {"between": lambda one: one.memset(one.t)},
    "overwritten": {"between": lambda one: one.memset(one.s)},
    "written again": {"after": lambda one: one.memset(one.s)},
    "read between": {"between": lambda one: one.copy(TensorCopyOp, entire(one.b.on_chip("u", (COLUMNS, ROWS), dtype=BFLOAT16)),
                                                     entire(one.t), "unknown", ())},
    "two readers": {"after": lambda one: one.copy(TensorCopyOp, entire(one.b.on_chip("u", (COLUMNS, ROWS))), entire(one.s), "unknown", ())},
}


@pytest.mark.parametrize("name", STAY)
def test_copies_that_stay(name):
    assert Transposed(**STAY[name]).left() == 0


@pytest.mark.parametrize("old, new", [
    ("[*tile_uses.writers] != [step]", "False"),
    ("len(tile_uses.readers) != 1", "not tile_uses.readers"),
    ("copy not in following", "False"),
    ("if any(tile.handle is target for other in between_them for tile in tiles_of(other)):", "if not target:"),
    ("not same_pattern(copied.src, between) or ", ""),
    ("target.fixed or target.addresses or ", ""),
    ("not tile_uses.free or ", ""),
    ("op.mask or op.limits or op.dst.dtype is op.src.dtype", "op.limits or op.dst.dtype is op.src.dtype")])
def test_each_condition__is_needed(old, new):
    source = Path(tested.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    faulty = ModuleType("faulty")
    exec(source.replace(old, new).replace('name="fold-conversions"', 'name=""'), faulty.__dict__)

    def stays(changes):
        try:
            return Transposed(**changes).left(faulty.fold_conversions) == 0
        except (AssertionError, LookupError, ValueError):
            return False
    assert not all(map(stays, STAY.values()))


@pytest.mark.parametrize("seed", range(10))
def test_values__stay_in_random_code(seed):
    """Transposes and copies among few tiles of two dtypes, of which each reads what others wrote."""
    r, b = random.Random(seed), Builder()
    wide = [b.on_chip(f"w{k}", (8, 8), dtype=r.choice((FLOAT32, BFLOAT16))) for k in range(5)]
    for buffer in wide:
        b.step(MemsetOp, dst=entire(buffer), value=float(r.randrange(9)))
    for _ in range(40):
        source, target = r.sample(wide, 2)
        if r.randrange(2) and source.dtype is target.dtype:
            b.step(DmaTransposeOp, dst=entire(target), src=entire(source), permutation=(1, 0))
        else:
            middle = b.on_chip("m", (8, 8), dtype=source.dtype)
            b.step(DmaTransposeOp, dst=entire(middle), src=entire(source), permutation=(1, 0))
            if r.randrange(3) == 0:
                b.step(MemsetOp, dst=entire(r.choice(wide)).patterned(dims=((1, 8), (1, 3))), value=float(r.randrange(9)))
            b.step(TensorCopyOp, dst=entire(target), src=entire(middle))
            b.code.body.nodes[-1].op.engine = "unknown"
    code, results = replace(b.code, body=copied(b.code.body)), []
    assert fold_conversions(code) > 3
    for version in (b.code, code):
        arrays = {}
        run_in_order(version, arrays)
        results.append([arrays[buffer].tobytes() for buffer in wide])
    assert results[0] == results[1]
