# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that the writer of operations converts."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.scalar.dtypes import UINT64
from nki_mlir.waist.writer import Writer


@pytest.mark.parametrize("kind, conversion", [
    ("index", None), ("i1", "arith.index_castui"), ("i8", "arith.index_cast"), ("i32", "arith.index_cast"),
    ("i64", "arith.index_cast")])
def test_integers_as_indices__keep_their_sign_and_truth_values_have_none(kind: str, conversion: str | None) -> None:
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(f"func.func @f(%a: {kind}) {{ return }}")
        block = module.body.operations[0].regions[0].blocks[0]
        writer = Writer()
        writer.at(block.operations[0].operation)
        index = writer.as_index(block.arguments[0])
        assert index.type == ir.IndexType.get()
        assert [op.operation.name for op in block.operations][:-1] == [conversion] * (conversion is not None)
        assert module.operation.verify()


@pytest.mark.parametrize("function, name", [
    ("eq", "eq"), ("lt", "slt"), ("ge", "sge"), ("ult", "ult"), ("add", "arith.addi"), ("mult", "arith.muli")])
def test_numbers__are_compared_and_combined(function: str, name: str) -> None:
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%a: index, %b: index) { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        writer = Writer()
        writer.at(block.operations[0].operation)
        value = writer.computed(function, *block.arguments)
        op, _ = block.operations
        assert [*op.operands] == [*block.arguments] and value == op.result and module.operation.verify()
        if name.startswith("arith."):
            assert op.operation.name == name and value.type == ir.IndexType.get()
        else:
            assert f"arith.cmpi {name}, %" in str(op) and value.type == ir.IntegerType.get_signless(1)


@pytest.mark.parametrize("number", [0, 7, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_unsigned_constants__are_converted_from_signed_ones(number: int) -> None:
    """arith has no constants of unsigned integers. Beyond the greatest signed one all bits are inverted."""
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f() { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        writer = Writer()
        writer.at(block.operations[0].operation)
        writer.scalars(UINT64).constant(number)
        constant, conversion, *inverted = list(block.operations)[:-1]
        value = ir.IntegerAttr(constant.attributes["value"]).value
        assert (constant.operation.name, conversion.operation.name) == ("arith.constant", "scalar.convert")
        assert [op.attributes["fn"].value for op in inverted] == ["invert"] * (number >= 1 << 63)
        assert number == ((1 << 64) - 1 - value if inverted else value)
