# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of scalar operations: MLIR accepts all functions of their tables, and reports others at the operation."""

import re
from typing import Any

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import new_context
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.mathematics import MATH

TABLES: dict[str, dict[str, Any]] = {"alu": ALU, "activation": ACTIVATIONS, "math": MATH}


def parsed(op: str, operands: int, attributes: str, operand: str = "f32", result: str = "f32") -> ir.Module:
    """A module of one function, whose second line is the operation."""
    values, kinds = ", ".join(["%x"] * operands), ", ".join([operand] * operands)
    with new_context():
        return ir.Module.parse(f"""func.func @f(%x: {operand}) {{
  %0 = "scalar.{op}"({values}) {attributes} : ({kinds}) -> {result}
  return
}}""")


@pytest.mark.parametrize("op", TABLES)
def test_functions_of_the_table__take_their_number_of_operands(op: str) -> None:
    for fn, function in TABLES[op].items():
        parsed(op, function.arity, f'{{fn = "{fn}"}}')
        for operands in {0, 1, 2, 3, 4} - {function.arity}:
            refusal = f"function '{fn}' takes {function.arity} operands" if op != "activation" or operands == 1 else ""
            with pytest.raises(ir.MLIRError, match=re.escape(f"2:8: 'scalar.{op}' op {refusal}" if refusal else "2:8: ")):
                parsed(op, operands, f'{{fn = "{fn}"}}')


@pytest.mark.parametrize("op, attributes, operand, result, problem", [
    ("alu", '{fn = "plus"}', "f32", "f32", "has no function 'plus'"),
    ("activation", '{fn = "add"}', "f32", "f32", "has no function 'add'"),
    ("math", '{fn = ""}', "f32", "f32", "has no function ''"),
    ("convert", "", "i3", "f32", "converts between element types, not i3"),
    ("convert", "", "f32", "f80", "converts between element types, not f80"),
    ("convert", "", "f32", "tensor<4xf32>", "converts between element types, not tensor<4xf32>")])
def test_other_functions_and_types__are_reported_at_the_operation(op: str, attributes: str, operand: str, result: str,
                                                                  problem: str) -> None:
    with pytest.raises(ir.MLIRError, match=re.escape(f"2:8: 'scalar.{op}' op {problem}")):
        parsed(op, 1, attributes, operand, result)


@pytest.mark.parametrize("operand, result", [("f32", "bf16"), ("i8", "f32"), ("index", "f32"), ("f8E4M3", "i32"), ("i1", "i8")])
def test_conversions_between_element_types__are_accepted(operand: str, result: str) -> None:
    parsed("convert", 1, "", operand, result)
