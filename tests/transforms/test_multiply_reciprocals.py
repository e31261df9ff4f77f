# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""multiply-reciprocals: products have the values of quotients, for each form of an instruction that divides."""

from itertools import product

import numpy as np
import pytest

from nki_mlir.bindings import ir, operations_of
from nki_mlir.dialects.access import SBUF, Access, Linear, Tile
from nki_mlir.dialects.mlir_ops import read_op, shared_context
from nki_mlir.dialects.nisa.elementwise import ReciprocalOp, ScalarTensorTensorOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nki.elementwise import BinaryOp, BinaryScalarOp, UnaryOp
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.scalar.dtypes import FLOAT32
from tests.conversion.lowering import module_of, run_module, run_reference

ROWS, COLUMNS, WIDTH, STEP = 4, 6, 20, 7        # a tile of a wider buffer, which begins at STEP times the symbol
OPERATORS = ("divide", "add", "multiply")
SYMBOL = {"symbols": (object(),), "ranges": ((0, 1),)}
KEPT = "nki.kept"               # an attribute that replacements have, too


def tile(seed: int, repeated: bool = False) -> Tile:
    """A tile at an offset that the symbol gives; with ``repeated``, a column, once for each position."""
    numbers = np.random.default_rng(seed).uniform(0.5, 2.0, (ROWS, WIDTH)).astype(np.float32)
    dims = ((1, ROWS), (0 if repeated else 1, COLUMNS))
    return Tile(numbers, SBUF, numbers.shape, FLOAT32, Access(FLOAT32, Linear(0), Linear(1, ((0, STEP),)), dims), "t")


def check(op_class, divides: bool = False, **fields) -> list:
    """Compare the values, for each value of the symbol; return the operations that replace the operation."""
    with shared_context():
        op = op_class(**fields, **SYMBOL, extra={KEPT: ir.UnitAttr.get()})
    module = module_of(op)
    with module.context, ir.Location.unknown():
        run_passes(module, [pass_named("multiply-reciprocals")])
    for position in range(2):
        for expected, result in zip(run_reference(op, (position,)), run_module(module, op, (position,)), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6)
    ops = [read_op(operation) for operation in operations_of(module, lambda name: name.startswith(("nki.", "nisa.")))]
    for replacement in ops:
        assert replacement.ranges == SYMBOL["ranges"]
        assert KEPT in replacement.extra
    names = [getattr(replacement, name, "") for replacement in ops for name in ("op", "op0", "op1")]
    assert ("divide" in names) == divides
    return ops


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("op_class", [BinaryOp, TensorTensorOp])
def test_two_tiles(op_class, repeated):
    """One reciprocal for each element in memory, although the tile repeats it."""
    reciprocal, last = check(op_class, dst=tile(0), lhs=tile(1), rhs=tile(2, repeated), op="divide",
                             **({"engine": "vector"} if op_class is TensorTensorOp else {}))
    assert type(reciprocal) is (UnaryOp if op_class is BinaryOp else ReciprocalOp)
    assert reciprocal.dst.shape == ((ROWS, 1) if repeated else (ROWS, COLUMNS))
    assert last.op == "multiply"
    if op_class is TensorTensorOp:
        assert last.engine == "vector"


@pytest.mark.parametrize(("scalar", "reverse", "names"), [
    (3.0, False, ["multiply"]), (0.0, False, ["divide"]), (1.0, True, ["reciprocal"]),
    (3.0, True, ["reciprocal", "multiply"]), (0.0, True, ["reciprocal", "multiply"])])
def test_a_tile_and_a_scalar(scalar, reverse, names):
    ops = check(BinaryScalarOp, divides="divide" in names, dst=tile(0), src=tile(1), op="divide", scalar=scalar,
                reverse=reverse)
    assert [getattr(op, "fn", getattr(op, "op", "")) for op in ops] == names


OPERANDS = [(None, 1.0), (None, 3.0), (tile(3, True), 0.0)]


@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize(("op0", "op1"), [pair for pair in product(OPERATORS, (*OPERATORS, "bypass"))
                                          if "divide" in pair])
def test_two_steps(op0, op1, reverse0, reverse1):
    """Each operand is a constant or a column; the first step disappears if it only multiplies by 1."""
    if op1 == "bypass" and reverse1:
        pytest.skip("there is no second step")
    for (operand0, imm0), (operand1, imm1) in product(OPERANDS, OPERANDS if op1 != "bypass" else OPERANDS[:1]):
        ops = check(TensorScalarOp, dst=tile(0), src=tile(1), operand0=operand0, operand1=operand1 and tile(4, True),
                    op0=op0, imm0=imm0, reverse0=reverse0, op1=op1, imm1=imm1 if op1 != "bypass" else 0.0,
                    reverse1=reverse1, engine="vector")
        assert all(op.engine == "vector" for op in ops if isinstance(op, TensorScalarOp | TensorTensorOp))
        if op0 == "divide" and reverse0 and operand0 is None and imm0 == 1.0 and op1 != "divide":
            assert [type(op) for op in ops] == [ReciprocalOp, TensorScalarOp]
            assert op1 == "bypass" or (ops[1].op0, ops[1].op1) == (op1, "bypass")
        if op1 != "bypass":
            check(ScalarTensorTensorOp, dst=tile(0), src=tile(1), operand0=operand0, rhs=tile(5), op0=op0, op1=op1,
                  imm0=imm0, reverse0=reverse0, reverse1=reverse1)


@pytest.mark.parametrize("fields", [{"op0": "divide"}, {"op0": "add", "op1": "divide"}])
def test_quotients_by_the_constant_0_stay(fields):
    """The pass computes reciprocals of constants in Python, which has none of 0."""
    op, = check(TensorScalarOp, divides=True, dst=tile(0), src=tile(1), operand0=None, operand1=None, **fields)
    assert op.op0 == fields["op0"]


def test_a_first_step_by_the_constant_0_stays():
    first, reciprocal, last = check(TensorScalarOp, divides=True, dst=tile(0), src=tile(1), operand0=None, operand1=None,
                                    op0="divide", op1="divide", imm1=2.0, reverse1=True)
    assert (first.op0, type(reciprocal), last.op0) == ("divide", ReciprocalOp, "multiply")
