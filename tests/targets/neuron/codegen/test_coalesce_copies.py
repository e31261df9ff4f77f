# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies go where their source may be their destination, and values stay bit for bit."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import nki_mlir
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, MemsetOp, TensorCopyOp
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.coalesce_copies import coalesce_copies
from nki_mlir.targets.neuron.codegen.emission import Emission
from nki_mlir.targets.neuron.codegen.records import copied
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.codegen.test_fuse_instructions import ROWS, WIDTH, Expressions, names


@pytest.mark.parametrize("seed", range(30))
def test_values__stay_bit_for_bit(seed):
    one = Expressions(seed)
    code = replace(one.b.code, body=copied(one.b.code.body))
    coalesce_copies(code)
    np.testing.assert_array_equal(one.result(code), one.result(one.b.code))


def test_random_code__has_copies_that_go():
    assert sum(coalesce_copies(Expressions(seed).b.code) for seed in range(30)) > 10


def left(between=lambda b, x, t, q: None, dtype=FLOAT32, fixed=False, engine="unknown", address=None):
    """The instructions that are left of t = x; t = t + 1; q = copy t, with something before the copy."""
    b = Builder()
    x, q = b.on_chip("x", (ROWS, WIDTH)), b.on_chip("q", (ROWS, WIDTH), address=(0, 0) if fixed else None)
    t = b.on_chip("t", (ROWS, WIDTH), dtype=dtype, address=address)
    b.step(TensorCopyOp, dst=Expressions.tile(t), src=Expressions.tile(x))
    b.step(TensorScalarOp, dst=Expressions.tile(t), src=Expressions.tile(t), op0="add", imm0=1.0)
    between(b, *(Expressions.tile(buffer) for buffer in (x, t, q)))
    b.step(TensorCopyOp, dst=Expressions.tile(q), src=Expressions.tile(t), engine=engine)
    coalesce_copies(b.code)
    return names(b.code)


@pytest.mark.parametrize("address", [None, (0, 4096)])
def test_tile_that_dies_at_a_copy__is_the_copy(address):
    """Also one at an address that the kernel chose."""
    assert left(address=address) == ["tensor_copy", "tensor_scalar"]


@pytest.mark.parametrize("changes", [
    {"between": lambda b, x, t, q: b.step(MemsetOp, dst=q, value=2.0)},             # something else writes there
    {"between": lambda b, x, t, q: b.step(ActivationOp, dst=x, src=q, fn="exp")},   # or reads what was there
    {"between": lambda b, x, t, q: b.step(ActivationOp, dst=x, src=t, fn="exp")},   # or reads the tile
    {"dtype": BFLOAT16}, {"fixed": True}, {"engine": "scalar"}],
    ids=["written", "read", "two readers", "converted", "an address", "an engine"])
def test_copies_that_stay(changes):
    assert left(**changes)[-1] == "tensor_copy"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_copies_of_copies__all_go(length):
    """What wrote the source of a copy that is gone wrote the source of the next one, whether or not something else
    writes there before."""
    for others in (0, 1):
        b = Builder()
        x, *tiles = (b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(length + 2))
        for _ in range(others):
            b.step(MemsetOp, dst=Expressions.tile(tiles[0]), value=2.0)
        b.step(TensorCopyOp, dst=Expressions.tile(tiles[0]), src=Expressions.tile(x))
        b.step(TensorScalarOp, dst=Expressions.tile(tiles[0]), src=Expressions.tile(tiles[0]), op0="add", imm0=1.0)
        for source, target in pairwise(tiles):
            b.step(TensorCopyOp, dst=Expressions.tile(target), src=Expressions.tile(source), engine="unknown")
        assert coalesce_copies(b.code) == length
        assert [step.op.dst.handle for step in b.code.body.nodes] == [tiles[-1]] * (2 + others)


def test_part_of_a_tile_is_copied():
    b = Builder()
    t, q = b.on_chip("t", (ROWS, 2 * WIDTH)), b.on_chip("q", (ROWS, WIDTH))
    b.step(MemsetOp, dst=Expressions.tile(t), value=2.0)
    b.step(TensorCopyOp, dst=Expressions.tile(q),
           src=replace(Expressions.tile(t), access=Expressions.tile(q).access))
    assert not coalesce_copies(b.code)


@nki.jit
def copied_out(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, sums = nl.load(x), nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    sums[...] = nisa.tensor_scalar(tile, np.add, 1.0)
    sums[...] = nisa.tensor_tensor(sums, tile, np.multiply)
    nl.store(out, nisa.tensor_copy(sums))
    return out


@nki.jit
def greatest(x):
    out, total = nl.ndarray((128, 8), nl.float32, buffer=nl.shared_hbm), nl.ndarray((128, 8), nl.float32)
    for k in nl.affine_range(4):
        total[...] = nl.loop_reduce(nl.load(x[:, nl.ds(k * 8, 8)]), op=np.maximum, loop_indices=[k])
    nl.store(out, total)
    return out


def test_copy_of_one_iteration__goes_after_unrolling():
    x = np.random.default_rng(0).standard_normal((128, 32)).astype(np.float32)
    spec = greatest.lower(nki_mlir.spec(x.shape, "float32")).specialization
    copies = []
    for coalesce in (True, False):
        program, = neuron.streams(spec.captured, spec.grid, Emission(coalesce=coalesce))
        copies.append(sum(i.op.mnemonic == "COPY" for stream in program.streams.values() for i in stream))
        result = np.zeros((128, 8), np.float32)
        neuron.simulate([program], [x.copy()], [result])
        np.testing.assert_array_equal(result, x.reshape(128, 4, 8).max(axis=1))
    assert copies == [0, 1]


def test_option__turns_it_off():
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    spec = copied_out.lower(nki_mlir.spec(x.shape, "float32")).specialization
    copies = []
    for coalesce in (True, False):
        program, = neuron.streams(spec.captured, spec.grid, Emission(fuse=False, coalesce=coalesce))
        copies.append(sum(i.op.mnemonic == "COPY" for stream in program.streams.values() for i in stream))
        result = np.zeros_like(x)
        neuron.simulate([program], [x.copy()], [result])
        np.testing.assert_array_equal(result, (x + np.float32(1)) * x)
    assert copies == [0, 1]


@pytest.mark.parametrize("step, stays", [(1, False), (-1, True), (2, True)], ids=["a run", "backwards", "single elements"])
def test_load_goes_where_its_copy_is(step, stays):
    b = Builder()
    x, q = b.hbm("x", (ROWS, WIDTH)), b.on_chip("q", (ROWS, 2 * WIDTH))
    t = b.on_chip("t", (ROWS, WIDTH))
    source = Tile(x, HBM, x.shape, x.dtype, Access(x.dtype, None, Linear(0), ((WIDTH, ROWS), (1, WIDTH))))
    start = 2 * WIDTH - 1 if step < 0 else 0
    target = replace(Expressions.tile(q), access=Access(q.dtype, Linear(0), Linear(start), ((1, ROWS), (step, WIDTH))))
    b.step(DmaCopyOp, dst=Expressions.tile(t), src=source)
    b.step(TensorCopyOp, dst=target, src=Expressions.tile(t))
    b.code.body.nodes[-1].op.engine = "unknown"
    assert coalesce_copies(b.code) == int(not stays)
    assert names(b.code) == ["tensor_copy"] * stays


@pytest.mark.parametrize("before_copy", [0, 1])
@pytest.mark.parametrize("fixed", [True, False])
def test_copy_to_a_fixed_address__goes_if_it_follows_the_load_of_its_source(fixed, before_copy):
    """``before_copy``: the load before the copy is of its source, or of another tile."""
    b = Builder()
    x, y = b.hbm("x", (ROWS, WIDTH)), b.hbm("y", (ROWS, WIDTH))
    q = b.on_chip("q", (ROWS, WIDTH), address=(0, 0))
    q.fixed = fixed
    t, u = b.on_chip("t", (ROWS, WIDTH)), b.on_chip("u", (ROWS, WIDTH))
    access = Access(x.dtype, None, Linear(0), ((WIDTH, ROWS), (1, WIDTH)))
    loads = [(t, x), (u, y)] if before_copy else [(u, y), (t, x)]
    for tile, source in loads:
        b.step(DmaCopyOp, dst=Expressions.tile(tile), src=Tile(source, HBM, source.shape, source.dtype, access))
    b.step(TensorCopyOp, dst=Expressions.tile(q), src=Expressions.tile(t))
    b.code.body.nodes[-1].op.engine = "unknown"
    assert coalesce_copies(b.code) == int(not (fixed and before_copy))
