# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops, branches, grids and masks written out; what stays a loop when there are too many instructions."""

import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError, Unsupported
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.nisa.elementwise import TensorTensorOp
from nki_mlir.targets.neuron.codegen.records import Branch, InstructionStep, Loop, LoopVariable, blocks, compute
from nki_mlir.targets.neuron.codegen.unroll_loops import unrolled, with_grid
from tests.targets.neuron.code_builder import Builder, run_in_order


def nested(outer=4, inner=5):
    b = Builder()
    y = b.hbm("y", (128, 64), "output")
    t = b.on_chip("t", (128, 64))
    b.memset((t, 0, 128, 0, 64), 1)
    with b.loop(outer) as i:
        with b.loop(inner, start=2, step=3) as j:
            fresh = b.on_chip("fresh", (128, 2))
            b.memset((fresh, 0, 128, 0, 2), 3)
            at = 0, {i: 8, compute("floordiv", j, 2): 2}
            b.add((t, 0, 128, at, 2), (t, 0, 128, at, 2), (fresh, 0, 128, 0, 2))
    b.copy((y, 0, 128, 0, 64), (t, 0, 128, 0, 64))
    return b, y


def value_of(code, y):
    result = np.zeros(y.shape, np.float32)
    run_in_order(code, {y: result})
    return result


def steps_of(code):
    return [n for b in blocks(code.body) for n in b.nodes if isinstance(n, InstructionStep)]


def test_loops__become_numbers_and_each_iteration_its_own_buffers():
    b, y = nested()
    code = unrolled(b.code)
    assert len(code.body.nodes) == 1 + 4 * 5 * 2 + 1
    assert all(isinstance(n, InstructionStep) and not n.op.symbols for n in code.body.nodes)
    assert len(code.body.buffers) == 1 + 20 and len({id(x) for x in code.body.buffers}) == 21
    np.testing.assert_array_equal(value_of(code, y), value_of(b.code, y))


@pytest.mark.parametrize("limit", [1, 3, 11, 12, 20, 41])
def test_over_the_limit__loops_stay_with_the_same_values(limit):
    b, y = nested()
    code = unrolled(b.code, limit)
    loops = [n for x in blocks(code.body) for n in x.nodes if isinstance(n, Loop)]
    assert loops and code.notes and "stays a register loop" in code.notes[0]
    np.testing.assert_array_equal(value_of(code, y), value_of(b.code, y))


def test_outer_loop__stays_and_inner_is_written_out():
    b, _ = nested()
    code = unrolled(b.code, 15)
    (loop,) = [n for n in code.body.nodes if isinstance(n, Loop)]
    assert loop.span == range(4) and all(isinstance(n, InstructionStep) for n in loop.body.nodes) and len(loop.body.nodes) == 10


def test_small_body__has_several_iterations_and_the_rest_behind():
    b, y = nested(outer=7, inner=1)
    code = unrolled(b.code, 6)
    (loop,) = [n for n in code.body.nodes if isinstance(n, Loop)]
    assert loop.span == range(0, 6, 3) and len(loop.body.nodes) == 6
    assert len(code.body.nodes) == 1 + 1 + 2 + 1
    np.testing.assert_array_equal(value_of(code, y), value_of(b.code, y))


def test_branches__are_decided_where_the_condition_is_a_number():
    b = Builder()
    t = b.on_chip("t", (128, 8))
    with b.loop(3) as i:
        with b.when(compute("ge", i, 2)) as branch:
            b.memset((t, 0, 128, 0, 8), 1)
        with b.otherwise(branch):
            b.memset((t, 0, 128, 0, 8), 2)
    assert [s.op.value for s in steps_of(unrolled(b.code))] == [2.0, 2.0, 1.0]
    unrolled_code = unrolled(b.code, 1)
    assert any(isinstance(n, Branch) for x in blocks(unrolled_code.body) for n in x.nodes)


def test_grid__programs_come_in_row_major_order():
    b = Builder()
    x, y = b.hbm("x", (6, 8), "input"), b.hbm("y", (6, 8), "output")
    b.code.grid = (2, 3)
    b.code.programs = [LoopVariable("p0", 0, 1, 0), LoopVariable("p1", 0, 2, 1)]
    row = 0, {b.code.programs[0]: 3, b.code.programs[1]: 1}
    t = b.on_chip("t", (1, 8))
    b.copy((t, 0, 1, 0, 8), (x, row, 1, 0, 8))
    b.copy((y, row, 1, 0, 8), (t, 0, 1, 0, 8))
    code = unrolled(with_grid(b.code))
    assert [s.op.src.access.free.const for s in steps_of(code) if s.op.src.handle is x] == [0, 8, 16, 24, 32, 40]
    assert code.grid == () and code.programs == []


# -- masks -------------------------------------------------------------------------------------------------------------
def masked(mask, count=3, rows=128, op="copy", limits=()):
    b = Builder()
    x, t = b.hbm("x", (512, 32), "input"), b.on_chip("t", (128, 32))
    with b.loop(count) as i:
        if op == "copy":
            b.copy((t, 0, rows, 0, 32), (x, (0, {i: 128}), rows, 0, 32))
        else:
            b.add((t, 0, rows, 0, 32), (t, 0, rows, 0, 32), (t, 0, rows, 0, 32))
            b.code.body.nodes[0].body.nodes[-1].op.symbols = (i,)
        last = b.code.body.nodes[0].body.nodes[-1].op
        last.mask, last.limits = mask, limits
    return b.code


def test_mask__becomes_a_box_in_each_iteration():
    inside = Constraint(Linear(299, ((0, -128),), ((0, -1),)))           # 128 i + p < 300
    code = unrolled(masked((inside,), 4))
    assert [s.op.dst.partitions for s in steps_of(code)] == [128, 128, 44]
    assert not any(s.op.mask for s in steps_of(code))


def test_mask__loop_of_a_masked_operation_is_written_out_whatever_the_limit():
    inside = Constraint(Linear(299, ((0, -128),), ((0, -1),)))
    assert len(unrolled(masked((inside,), 4), 1).body.nodes) == 3


def test_mask__of_a_transfer_that_is_no_box_becomes_rows():
    triangle = Constraint(Linear(0, (), ((0, 1), (1, -1))))              # p >= f
    code = unrolled(masked((triangle,), 1))
    tiles = [s.op.dst for s in steps_of(code)]
    assert [(t.access.partition.const, t.partitions, t.access.dims[1][1]) for t in tiles] == [
        (p, 1, min(32, p + 1)) for p in range(128)]


def test_mask__of_an_engine_is_cut_along_free_axes():
    upper = Constraint(Linear(40, (), ((0, -1), (1, -1))))               # p + f <= 40
    code = unrolled(masked((upper,), 1, op="add"))
    tiles = [s.op.dst for s in steps_of(code)]
    assert [(t.access.partition.const, t.partitions) for t in tiles] == [(0, 41 - f) for f in range(32)]


def test_error__mask_of_an_engine_that_cuts_partitions():
    lower = Constraint(Linear(0, (), ((0, 1), (1, -1))))
    with pytest.raises(Unsupported, match=r"a mask of 'nisa.tensor_tensor' that cuts partitions"):
        unrolled(masked((lower,), 1, op="add"))


def test_error__limit_that_no_mask_keeps():
    beyond = Constraint(Linear(383, ((0, -128),), ((0, -1),)))           # rows below 384, four blocks of 128
    code = masked((), 5, limits=(beyond,))
    with pytest.raises(KernelError, match="Out-of-bound access for tensor `x`"):
        unrolled(code)


def test_engine__of_the_operation_is_kept():
    b = Builder()
    t = b.on_chip("t", (128, 8))
    with b.loop(2):
        b.add((t, 0, 128, 0, 8), (t, 0, 128, 0, 8), (t, 0, 128, 0, 8), engine="gpsimd")
    steps = steps_of(unrolled(b.code))
    assert {type(s.op) for s in steps} == {TensorTensorOp} and {s.op.engine for s in steps} == {"gpsimd"}
