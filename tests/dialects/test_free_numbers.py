# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which numbers of operations no decision depends on, and the numbers that stand for them."""

import pytest

from nki_mlir.dialects.access import full_tile
from nki_mlir.dialects.free_numbers import FreeNumber, free_number, with_standin
from nki_mlir.dialects.nisa.elementwise import ScalarTensorTensorOp, TensorScalarOp
from nki_mlir.dialects.nki.elementwise import BinaryOp, BinaryScalarOp
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32


def tile(dtype=FLOAT32, shape=(128, 8)):
    return full_tile(object(), shape, dtype, "sbuf")


def product(number, function="multiply", dtype=FLOAT32):
    return BinaryScalarOp(dst=tile(), src=tile(dtype), op=function, scalar=number, reverse=False)


@pytest.mark.parametrize(("number", "float32", "standin"), [
    (2.0, 2.0, 12_345.0), (-3.0, -3.0, -12_345.0), (0.5, 0.5, 1_234.5), (0.1, 0.10000000149011612, 1_234.1),
    (16_777_217.0, 16_777_216.0, 123_456_789.0), (7, 7.0, 12_345.0)])
def test_number__has_one_that_stands_for_it_and_its_like(number, float32, standin):
    assert free_number(product(number)) == FreeNumber("scalar", float32, standin)
    assert free_number(product(standin)).standin == standin


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -1.0, 1e-40, 2.0 ** 126, 1e39, float("inf"), float("nan")])
def test_special_number__is_not_free(number):
    assert free_number(product(number)) is None


def test_number__is_free_in_float32_arithmetic_on_floats_only():
    assert free_number(product(3.0, dtype=BFLOAT16)) is not None
    assert free_number(product(3.0, dtype=INT32)) is None
    assert free_number(product(3.0, "power")) is None
    assert free_number(BinaryOp(dst=tile(), lhs=tile(), rhs=tile(), op="add")) is None


def test_number_of_an_instruction__is_free_without_a_tile_in_its_place():
    with_number = TensorScalarOp(dst=tile(), src=tile(), op0="add", imm0=3.0)
    assert free_number(with_number) == FreeNumber("imm0", 3.0, 12_345.0)
    with_column = TensorScalarOp(dst=tile(), src=tile(), op0="add", imm0=3.0, operand0=tile(shape=(128, 1)))
    assert free_number(with_column) is None


def test_standins__stand_for_free_numbers_alone():
    def scaled(number, op1="add"):
        return ScalarTensorTensorOp(dst=tile(), src=tile(), rhs=tile(), op0="multiply", op1=op1, imm0=number)
    assert with_standin(scaled(3.0)).kind() is with_standin(scaled(5.0)).kind() is scaled(12_345.0).kind()
    assert with_standin(scaled(3.0)).kind() is not with_standin(scaled(3.5)).kind()
    assert with_standin(scaled(3.0)).kind() is not with_standin(scaled(3.0, "subtract")).kind()
    for op in (scaled(0.0), scaled(12_345.0), product(1.0)):
        assert with_standin(op) is op
