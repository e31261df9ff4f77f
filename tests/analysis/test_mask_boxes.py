# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Boxes of operations: an operation on the box that its mask leaves does what the masked operation does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.analysis.mask_boxes import resolved
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Access, Constraint, Linear, Tile
from nki_mlir.dialects.nisa.elementwise import AffineSelectOp, TensorScalarOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, IotaOp
from nki_mlir.dialects.nisa.reduction import TensorPartitionReduceOp, TensorReduceOp, TensorScalarReduceOp
from nki_mlir.dialects.nki.elementwise import BinaryOp
from nki_mlir.dialects.nki.movement import TransposeOp
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.interpreter.execute import compile_op

SYMBOLS = (3, 1)            # the values of two symbols


def tile(shape, base=None, start=(0, 0), steps=None, space=SBUF):
    """A tile of a buffer whose rows have 64 elements, beginning at (partition, free) plus what the symbols add."""
    base = base or (16, 64)
    free, dims = 1, []
    for extent in reversed(shape[1:]):
        dims.insert(0, (free, extent))
        free *= extent
    dims = [(step, n) for step, (_, n) in zip(steps, dims)] if steps else dims
    partition = Linear(start[0], ((1, 1),))
    offset = Linear(start[1], ((0, 1),))
    if space == HBM:
        return Tile(None, space, base, FLOAT32, Access(FLOAT32, None, offset, ((64, shape[0]), *dims)))
    return Tile(None, space, base, FLOAT32, Access(FLOAT32, partition, offset, ((1, shape[0]), *dims)))


def operations():
    full, other, row = tile((6, 5)), tile((6, 5), start=(2, 9)), tile((6, 1), start=(1, 40))
    yield "binary", lambda **k: BinaryOp(dst=full, lhs=other, rhs=tile((6, 5), steps=[0]), op="add", **k)
    yield "dma", lambda **k: DmaCopyOp(dst=full, src=tile((6, 5), start=(0, 7), space=HBM), **k)
    yield "transpose", lambda **k: TransposeOp(dst=tile((5, 6)), src=other, **k)
    yield "iota", lambda **k: IotaOp(dst=full, expression=Linear(4, ((0, 2),), ((0, 10), (1, -3))), **k)
    yield "affine_select", lambda **k: AffineSelectOp(
        dst=full, src=other, predicate=Linear(-1, ((1, 1),), ((0, 1), (1, -1))), value=-7.0, **k)
    yield "reduce", lambda **k: TensorReduceOp(dst=row, src=other, op="add", axes=(1,), **k)
    yield "maximum", lambda **k: TensorReduceOp(
        dst=tile((6, 1, 3)), src=tile((6, 5, 3), start=(0, 20)), op="maximum", axes=(1,), **k)
    yield "partition_reduce", lambda **k: TensorPartitionReduceOp(dst=tile((1, 5)), src=other, op="add", **k)
    yield "rows", lambda **k: TensorScalarReduceOp(
        dst=full, reduce_res=row, src=other, op0="multiply", reduce_op="add", imm0=2.0, **k)
    yield "scalars", lambda **k: TensorScalarOp(
        dst=full, src=other, operand0=tile((6, 5), start=(0, 50), steps=[0]), op0="subtract", op1="abs", **k)
    yield "matmul", lambda **k: NcMatmulOp(
        dst=tile((4, 5), space=PSUM), stationary=tile((6, 4)), moving=other, accumulate=True, **k)


OPERATIONS = dict(operations())
terms = st.lists(st.tuples(st.integers(0, 2), st.integers(-6, 10), st.sampled_from([-2, -1, 1, 2]),
                           st.sampled_from([0, 0, -1, 1]), st.booleans()), max_size=3)


def run(op):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(t.base_shape).astype(np.float32) for _, t in op.operands()]
    compile_op(op)(arrays, [SYMBOLS[k] for k in op.symbols])
    return arrays


@pytest.mark.parametrize("name", OPERATIONS)
@given(terms=terms)
def test_an_operation_on_its_box_is_the_masked_operation(name, terms):
    make = OPERATIONS[name]
    extents = make(symbols=(0, 1), ranges=((3, 3), (1, 1))).iteration().extents
    mask = tuple(Constraint(Linear(const, ((0, by),) if by else (), ((axis, c),)), equal)
                 for axis, const, c, by, equal in terms if axis < len(extents))
    masked = make(symbols=(0, 1), ranges=((3, 3), (1, 1)), mask=mask)
    boxed = resolved(masked, lambda form: (form.at(SYMBOLS),) * 2)
    want = run(masked)
    if boxed is None:
        untouched = run(make(symbols=(0, 1), ranges=((3, 3), (1, 1)),
                             mask=(Constraint(Linear(-1)),)))
        for a, b in zip(want, untouched):
            np.testing.assert_array_equal(a, b)
        return
    assert boxed.mask == () and boxed.symbols == ()
    for a, b in zip(want, run(boxed)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_symbols_of_one_value_become_numbers_and_others_stay():
    op = OPERATIONS["binary"](symbols=("i", "j"), ranges=((3, 3), (0, 1)))
    resolved_op = resolved(op, lambda form: form.interval(((3, 3), (0, 1))))
    assert resolved_op.symbols == ("j",) and resolved_op.ranges == ((0, 1),)
    assert resolved_op.dst.access.free == Linear(3) and resolved_op.dst.access.partition == Linear(0, ((0, 1),))


def test_nothing_to_resolve_is_the_same_operation():
    op = OPERATIONS["binary"](symbols=("i", "j"), ranges=((0, 3), (0, 1)))
    assert resolved(op, lambda form: form.interval(op.ranges)) is op
