# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One instruction for two: which become one, which must not, and that values stay bit for bit."""

import random
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import nki_mlir
from nki_mlir.dialects.access import PSUM, Access, Constraint, Linear, Tile
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.fuse_instructions import FusedPairs, fuse_instructions, in_one_bank
from nki_mlir.targets.neuron.codegen.records import Code, copied, steps_in
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

ROWS, WIDTH = 32, 256


class Expressions:
    """Random instructions on few tiles: most results are read once, some again, some tiles are written again before
    they are read, some round."""

    def __init__(self, seed: int, steps: int = 40) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, WIDTH), "input")
        self.y = b.hbm("y", (ROWS, (steps + 2) * WIDTH), "output")
        old, row = b.on_chip("old", (ROWS, WIDTH)), b.on_chip("row", (ROWS, 1))
        b.copy(self.all(old), self.all(self.x))
        b.copy((row, 0, ROWS, 0, 1), (self.x, 0, ROWS, 3, 1))
        tiles, rows = [old], [row]
        for k in range(steps):
            source = r.choice((tiles[-1], tiles[-1], tiles[-1], r.choice(tiles)))
            dtype = r.choice((FLOAT32, FLOAT32, FLOAT32, BFLOAT16))
            target = b.on_chip(f"t{k}", (ROWS, WIDTH), dtype=dtype) if r.randrange(5) else r.choice(tiles)
            one = {"dst": self.tile(target), "src": self.tile(source)}
            operand = self.tile(r.choice(rows[-2:]), repeated=True) if r.randrange(2) else None
            match r.randrange(9):
                case 0 | 1 | 2:
                    b.step(TensorScalarOp, **one, operand0=operand, op0=r.choice(("subtract", "multiply", "add")),
                           imm0=r.choice((0.5, -3.0, 1.0, 0.1, 2.5, 7.0)), reverse0=not r.randrange(4))
                case 3 | 4:
                    b.step(ActivationOp, **one, fn=r.choice(("exp", "copy", "square", "tanh")),
                           bias=operand if r.randrange(2) else None, imm=r.choice((1.0, 0.25)))
                case 5:
                    b.step(TensorTensorOp, dst=one["dst"], lhs=one["src"], rhs=self.tile(r.choice(tiles)),
                           op=r.choice(("subtract", "multiply")), engine="vector")
                case 6:
                    b.step(TensorCopyOp, **one)
                case _:
                    rows.append(b.on_chip(f"r{k}", (ROWS, 1)))
                    b.step(TensorReduceOp, dst=self.tile(rows[-1]), src=one["src"], axes=(1,),
                           op=r.choice(("maximum", "add")))
                    continue
            if target not in tiles:
                tiles.append(target)
        for k, tile in enumerate((*tiles[-2:], *r.sample(tiles, min(6, len(tiles))))):
            last = b.on_chip(f"l{k}", (ROWS, WIDTH))
            b.step(TensorCopyOp, dst=self.tile(last), src=self.tile(tile))
            b.copy((self.y, 0, ROWS, k * WIDTH, WIDTH), self.all(last))
        for step in steps_in(b.code.body):
            if not step.op.queued and r.randrange(4):
                step.op.engine = "unknown"
        self.input = np.random.default_rng(seed).standard_normal(self.x.shape).astype(np.float32)

    @staticmethod
    def all(tile):
        return tile, 0, ROWS, 0, WIDTH

    @staticmethod
    def tile(buffer, repeated=False) -> Tile:
        free = (0, WIDTH) if repeated else (1, buffer.shape[1])
        access = Access(buffer.dtype, Linear(), Linear(), ((1, ROWS), free))
        return Tile(buffer, buffer.space, buffer.shape, buffer.dtype, access, buffer.name)

    def result(self, code: Code) -> np.ndarray:
        result = np.zeros(self.y.shape, np.float32)
        with np.errstate(all="ignore"):
            run_in_order(code, {self.x: self.input.copy(), self.y: result})
        return result


@pytest.mark.parametrize("seed", range(40))
def test_values__stay_bit_for_bit(seed):
    one = Expressions(seed)
    code = replace(one.b.code, body=copied(one.b.code.body))
    fuse_instructions(code)
    np.testing.assert_array_equal(one.result(code), one.result(one.b.code))


@pytest.mark.parametrize("seed", range(20))
def test_pairs_that_differ_in_their_buffers__become_what_each_becomes_alone(monkeypatch, seed):
    one = Expressions(seed)
    quick, plain = (replace(one.b.code, body=copied(one.b.code.body)) for _ in range(2))
    fuse_instructions(quick)
    monkeypatch.setattr(FusedPairs, "decided", FusedPairs.judged)
    fuse_instructions(plain)
    for a, b in zip(steps_in(quick.body), steps_in(plain.body), strict=True):
        assert (a.op.full_name(), a.op.attribute_values(), a.op.extra) == (
            b.op.full_name(), b.op.attribute_values(), b.op.extra)
        assert [(f.name, t.handle, t.access, t.label) for f, t in a.op.operands()] == [
            (f.name, t.handle, t.access, t.label) for f, t in b.op.operands()]


def test_random_code__has_what_fuses():
    gone, new = 0, Counter()
    for seed in range(40):
        code = Expressions(seed).b.code
        gone += fuse_instructions(code)
        new.update(step.op.name for step in steps_in(code.body))
    assert gone > 60 and min(new["activation_reduce"], new["scalar_tensor_tensor"], new["tensor_scalar_reduce"]) > 3


@pytest.mark.parametrize("seed", range(4))
def test_streams__compute_the_same_in_any_order(seed):
    one = Expressions(seed)
    expected = one.result(one.b.code)
    program = emit_code(one.b.code, Emission())
    for scheduler in range(3):
        result = np.zeros_like(expected)
        with np.errstate(all="ignore"):
            simulate(program, [one.input.copy()], [result], scheduler)
        np.testing.assert_array_equal(result, expected)


def names(code: Code) -> list[str]:
    return [step.op.name for step in steps_in(code.body) if not step.op.queued]


def fused(code: Code) -> Code:
    for step in steps_in(code.body):
        step.op.engine = "unknown"
    fuse_instructions(code)
    return code


def shifted(between=lambda b, x, m: None, reader=False, dtype=FLOAT32, fixed=""):
    """exp(x - m), with something between the two instructions."""
    b = Builder()
    x, t, e, m = (b.on_chip(name, (ROWS, width), dtype=dtype if name == "t" else FLOAT32,
                            address=(0, 0) if name == fixed else None)
                  for name, width in (("x", WIDTH), ("t", WIDTH), ("e", WIDTH), ("m", 1)))
    tile = Expressions.tile
    b.step(TensorReduceOp, dst=tile(m), src=tile(x), axes=(1,), op="maximum")
    b.step(TensorScalarOp, dst=tile(t), src=tile(x), operand0=tile(m, repeated=True), op0="subtract")
    between(b, x, m)
    b.step(ActivationOp, dst=tile(e), src=tile(t), fn="exp")
    if reader:
        b.step(TensorTensorOp, dst=tile(e), lhs=tile(e), rhs=tile(t), op="add", engine="vector")
    return fused(b.code)


def test_a_shift_that_only_the_exponential_reads__is_its_bias():
    code = shifted()
    assert names(code) == ["tensor_reduce", "activation"] and code.body.nodes[0].op.negate
    assert code.body.nodes[1].op.bias.handle.name == "m"


@pytest.mark.parametrize("how", [
    {"between": lambda b, x, m: b.memset((x, 0, ROWS, 0, 4), 1)}, {"between": lambda b, x, m: b.memset((m, 0, ROWS, 0, 1), 1)},
    {"reader": True}, {"dtype": BFLOAT16}, {"fixed": "t"}, {"fixed": "x"}],
    ids=["written", "maximum", "read", "rounds", "address", "address of the source"])
def test_a_shift__stays_where_values_or_memory_would_change(how):
    """Then nothing negates the maximum."""
    code = shifted(**how)
    reduction, = (step.op for step in steps_in(code.body) if step.op.name == "tensor_reduce")
    assert "tensor_scalar" in names(code) and not reduction.negate


def test_a_maximum_that_others_read__is_not_negated():
    def read(b, x, m):
        other = b.on_chip("other", (ROWS, 1))
        b.step(TensorCopyOp, dst=Expressions.tile(other), src=Expressions.tile(m))
    code = shifted(read)
    assert "tensor_scalar" in names(code) and not code.body.nodes[0].op.negate


@pytest.mark.parametrize("how", ["maximum", "rounds", "minimum of two", "set"])
def test_a_shift_by_other_rows_than_a_reduction_in_float32__stays(how):
    b, tile = Builder(), Expressions.tile
    x, t, e = (b.on_chip(name, (ROWS, WIDTH)) for name in ("x", "t", "e"))
    m, n = b.on_chip("m", (ROWS, 1), dtype=BFLOAT16 if how == "rounds" else FLOAT32), b.on_chip("n", (ROWS, 1))
    match how:
        case "maximum" | "rounds":
            b.step(TensorReduceOp, dst=tile(m), src=tile(x), axes=(1,), op="maximum")
        case "minimum of two":
            b.step(TensorTensorOp, dst=tile(m), lhs=tile(n), rhs=tile(n), op="minimum", engine="vector")
        case _:
            b.memset((m, 0, ROWS, 0, 1), 1)
    b.step(TensorScalarOp, dst=tile(t), src=tile(x), operand0=tile(m, repeated=True), op0="subtract")
    b.step(ActivationOp, dst=tile(e), src=tile(t), fn="exp")
    assert ("tensor_scalar" in names(fused(b.code))) == (how != "maximum")


def test_a_maximum_from_which_itself_is_subtracted__is_not_negated():
    b, tile = Builder(), Expressions.tile
    x, m, d, e = (b.on_chip(name, (ROWS, n)) for name, n in (("x", WIDTH), ("m", 1), ("d", 1), ("e", 1)))
    b.step(TensorReduceOp, dst=tile(m), src=tile(x), axes=(1,), op="maximum")
    b.step(TensorScalarOp, dst=tile(d), src=tile(m), operand0=tile(m), op0="subtract")
    b.step(ActivationOp, dst=tile(e), src=tile(d), fn="exp")
    code = fused(b.code)
    assert names(code) == ["tensor_reduce", "tensor_scalar", "activation"] and not code.body.nodes[0].op.negate


@nki.jit
def rounded_sums(x, y):
    """Sums of integers, in float32 between the addition and the copy."""
    out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    total[...] = nisa.tensor_tensor(nl.load(x), nl.load(y), op=np.add, dtype=nl.float32)
    nl.store(out, nisa.tensor_copy(total, dtype=nl.int32))
    return out


def test_sums_of_integers_that_are_float32__round():
    x, y = np.full((ROWS, 4), 2**24 + 1, np.int32), np.full((ROWS, 4), 2, np.int32)
    spec = rounded_sums.lower(x, y).specialization
    program, = neuron.streams(spec.captured, spec.grid, Emission())
    got = np.zeros_like(x)
    simulate(program, [x, y], [got])
    np.testing.assert_array_equal(got, 2**24 + 2)


def masked(condition):
    """A product, then a sum of the rows of a mask; the product has more rows, in an outer loop. The mask of the sum has
    the same form."""
    b, tile = Builder(), Expressions.tile
    x, t, y = b.on_chip("x", (ROWS, WIDTH)), b.on_chip("t", (ROWS, WIDTH)), b.on_chip("y", (ROWS, WIDTH))
    with b.loop(2, 16) as outer, b.loop(2) as inner:
        for variable, result, source, op in ((outer, t, x, "multiply"), (condition(outer, inner), y, t, "add")):
            rows = Constraint(Linear(0, ((0, 1),), ((0, -1),)))
            b.step(TensorScalarOp, {variable: 1}, dst=tile(result), src=tile(source), op0=op, imm0=2.0, mask=(rows,))
    return names(fused(b.code))


def test_rows_of_another_variable__stay():
    assert masked(lambda outer, inner: outer) == ["tensor_scalar"]
    assert masked(lambda outer, inner: inner) == ["tensor_scalar", "tensor_scalar"]


def test_a_product__is_not_put_across_banks():
    def copied_to(start):
        b = Builder()
        left, right = b.on_chip("left", (128, 128)), b.on_chip("right", (128, 512))
        p, banks = b.on_chip("p", (128, 512), PSUM), b.on_chip("banks", (128, 1536), PSUM)
        b.matmul((p, 0, 128, 0, 512), (left, 0, 128, 0, 128), (right, 0, 128, 0, 512))
        b.tensor_copy((banks, 0, 128, start, 512), (p, 0, 128, 0, 512))
        return names(fused(b.code))
    assert copied_to(512) == ["nc_matmul"]
    assert copied_to(100) == ["nc_matmul", "tensor_copy"]


@nki.jit
def scores(a, b):
    """Products that go to a tensor of tiles, block by block, and are scaled and rounded from there."""
    blocks = b.shape[1] // 512
    out = nl.ndarray((128, b.shape[1]), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    rows = nl.ndarray((blocks, nl.par_dim(128), 512), nl.float32, buffer=nl.psum)
    for j in nl.affine_range(blocks):
        rows[j] = nisa.nc_matmul(left, right[:, nl.ds(j * 512, 512)])
    for j in nl.affine_range(blocks):
        nl.store(out[:, nl.ds(j * 512, 512)], nl.copy(nl.exp(nl.multiply(rows[j], 0.125)), dtype=nl.bfloat16))
    return out


def test_kernel__has_the_interpreters_values_with_fewer_instructions():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((128, 128), (128, 1024)))
    spec = scores.lower(nki_mlir.spec(a.shape, "float32"), nki_mlir.spec(b.shape, "float32")).specialization
    expected = np.asarray(scores.on("interpreter")(a, b)).view(np.uint16)
    counts = []
    for options in (Emission(), Emission(fuse=False, coalesce=False)):
        program, = neuron.streams(spec.captured, spec.grid, options)
        result = np.zeros(expected.shape, np.uint16)
        simulate(program, [a.copy(), b.copy()], [result.view(np.asarray(scores.on("interpreter")(a, b)).dtype)])
        np.testing.assert_array_equal(result, expected)
        counts.append(sum(i.queue is None and isinstance(i.op, NisaOp) for s in program.streams.values() for i in s))
    assert counts == [4, 8]


@pytest.mark.parametrize(("size", "start", "moves", "expected"), [
    (2048, 0, 0, True), (8192, 0, 0, True), (8192, 256, 0, False), (8192, 512, 512, True), (8192, 512, 256, False)])
def test_a_tile_stays_in_one_bank__wherever_its_buffer_goes(size, start, moves, expected):
    b = Builder()
    buffer = b.on_chip("p", (128, size // 4), "psum")
    access = Access(FLOAT32, Linear(0), Linear(start, ((0, moves),) if moves else ()), ((1, 128), (1, 300)))
    assert in_one_bank(Tile(buffer, PSUM, (128, size // 4), FLOAT32, access), b.code.machine) is expected


def pairs_in_one_tile(count: int) -> Code:
    """Pairs of instructions that become one, all of which read and write one tile."""
    b = Builder()
    shared = b.on_chip("shared", (ROWS, WIDTH))
    tile = Expressions.tile(shared)
    for k in range(count):
        between = Expressions.tile(b.on_chip(f"t{k}", (ROWS, WIDTH)))
        b.step(TensorScalarOp, dst=between, src=tile, op0="multiply", imm0=0.5)
        b.step(TensorScalarOp, dst=tile, src=between, op0="add", imm0=1.0)
    return b.code


def test_work__grows_with_the_number_of_users_of_a_tile():
    """Bytecodes are counted, so that a loop inside of one expression counts by its iterations."""
    def bytecodes(count: int) -> int:
        code, executed = pairs_in_one_tile(count), 0

        def trace(frame, event, argument):
            nonlocal executed
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            executed += event == "opcode"
            return trace
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            assert fuse_instructions(code) == count
        finally:
            sys.settrace(before)
        return executed
    bytecodes(10)
    assert bytecodes(800) < 9 * bytecodes(100)              # eight times as many pairs


def test_column_may_be_either_operand_of_the_second():
    """Of columns, the tile that only the second reads is its other operand."""
    b = Builder()
    x, y, t, z = (b.on_chip(name, (ROWS, 1)) for name in "xytz")
    b.step(TensorScalarOp, dst=Expressions.tile(t), src=Expressions.tile(x), op0="multiply", imm0=2.0)
    b.step(TensorScalarOp, dst=Expressions.tile(z), src=Expressions.tile(y), operand0=Expressions.tile(t), op0="subtract")
    assert fuse_instructions(b.code) == 1
    op, = (step.op for step in steps_in(b.code.body))
    assert (op.op0, op.op1, op.reverse1, op.operand1.handle) == ("multiply", "subtract", True, y)
