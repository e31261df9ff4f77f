# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar operations on numbers, as they are in loops and addresses, and on arrays, as they are in bodies."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import new_context
from nki_mlir.scalar.dtypes import BY_NAME, convert
from nki_mlir.targets.interpreter import scalars
from nki_mlir.targets.interpreter.scalars import Function, scalar_function
from nki_mlir.waist.nest import Step
from nki_mlir.waist.reader import scalar_value

NUMBERS = [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (0, 5), (5, 5), (-1, 1), (-1, -1)]
TWO_TO_64 = 1 << 64
OPERATIONS = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b, "arith.ori": lambda a, b: a | b, "arith.xori": lambda a, b: a ^ b,
    "arith.minsi": min, "arith.maxsi": max, "arith.floordivsi": lambda a, b: a // b,
    "arith.cmpi eq,": lambda a, b: a == b, "arith.cmpi ne,": lambda a, b: a != b, "arith.cmpi slt,": lambda a, b: a < b,
    "arith.cmpi sle,": lambda a, b: a <= b, "arith.cmpi sgt,": lambda a, b: a > b, "arith.cmpi sge,": lambda a, b: a >= b,
    "arith.cmpi ult,": lambda a, b: a % TWO_TO_64 < b % TWO_TO_64,
    "arith.cmpi ule,": lambda a, b: a % TWO_TO_64 <= b % TWO_TO_64,
    "arith.cmpi ugt,": lambda a, b: a % TWO_TO_64 > b % TWO_TO_64,
    "arith.cmpi uge,": lambda a, b: a % TWO_TO_64 >= b % TWO_TO_64}
MAPS = {
    "affine.apply affine_map<(d0, d1) -> (d0 * 3 - d1 + 5)>(%a, %b)": lambda a, b: a * 3 - b + 5,
    "affine.apply affine_map<(d0)[s0] -> (d0 + s0 * 2)>(%a)[%b]": lambda a, b: a + b * 2,
    "affine.apply affine_map<(d0, d1) -> (d0 mod 4 + d1 floordiv 2)>(%a, %b)": lambda a, b: a % 4 + b // 2,
    "affine.min affine_map<(d0, d1) -> (d0, d1, 3)>(%a, %b)": lambda a, b: min(a, b, 3),
    "affine.max affine_map<(d0, d1) -> (d0 - 1, d1 + 1)>(%a, %b)": lambda a, b: max(a - 1, b + 1)}


def function_of(operation: str, kind: str = "index") -> Function:
    with new_context():
        module = ir.Module.parse(f"func.func @f(%a: {kind}, %b: {kind}) {{ %r = {operation} return }}")
        return scalar_function(scalar_value(module.body.operations[0].regions[0].blocks[0].operations[0].operation))


@pytest.mark.parametrize("operation, expected", [
    *((f"{name} %a, %b : index", f) for name, f in OPERATIONS.items()), *MAPS.items()])
def test_integers(operation, expected):
    function, results = function_of(operation), [expected(a, b) for a, b in NUMBERS]
    as_list = "affine." in operation
    call = function if not as_list else lambda a, b: function(a, b)
    assert [int(call(a, b)) for a, b in NUMBERS] == results
    if not as_list:
        assert call(*(np.array(side) for side in zip(*NUMBERS))).tolist() == results


def test_quotient_by_zero__is_zero():
    function = function_of("arith.floordivsi %a, %b : index")
    assert [function(7, 0), function(-7, 0), function(0, 0)] == [0, 0, 0]


@pytest.mark.parametrize("operation, kind, value, result, dtype", [
    ("arith.index_cast %a : index to i8", "index", 300, 44, np.int8),
    ("arith.index_cast %a : i32 to index", "i32", -3, -3, np.int64),
    ("arith.index_castui %a : i8 to index", "i8", np.int8(-3), 253, np.int64),
    ("arith.extsi %a : i8 to i32", "i8", np.int8(-3), -3, np.int32),
    ("arith.extui %a : i8 to i32", "i8", np.int8(-3), 253, np.int32),
    ("arith.trunci %a : i32 to i16", "i32", 65_537, 1, np.int16)])
def test_casts(operation, kind, value, result, dtype):
    converted = function_of(operation, kind)(value)
    assert (converted, converted.dtype) == (result, dtype)
    assert function_of(operation, kind)(np.array([value] * 2)).tolist() == [result] * 2


@pytest.mark.parametrize("operation, number, kind", [
    ("arith.constant 5 : index", 5, int), ("arith.constant -3 : i32", -3, np.int32), ("arith.constant 0.5 : f32", 0.5, np.float32)])
def test_constants(operation, number, kind):
    constant = function_of(operation)()
    assert constant == number and isinstance(constant, kind)


@pytest.mark.parametrize("to", BY_NAME.values(), ids=str)
def test_conversions_of_numbers(to):
    """A number of Python is one of the source's dtype."""
    for frm in BY_NAME.values():
        function = scalars.function_of(Step("convert", to, (0,)), [frm])
        for value in (0, 1, 2, 2.75) if frm.is_float else (0, 1):
            expected = convert(np.asarray(value, frm.numpy), to, frm)
            for operand in (value, np.asarray(value, frm.numpy)):
                converted = function(operand)
                assert converted.dtype == expected.dtype and converted.tobytes() == expected.tobytes()
