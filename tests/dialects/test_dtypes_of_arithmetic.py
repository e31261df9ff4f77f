# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dtypes in which operations of the language compute, and the numbers that they combine with tiles."""

import pytest

from nki_mlir.dialects.nki.elementwise import (
    alu_compute,
    exact_integer,
    holding_integer,
    number_dtype,
    number_with_tile,
)
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT32, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, DType


@pytest.mark.parametrize("dtypes, kind", [
    ((INT32,), INT32), ((INT32, INT8), INT32), ((UINT32, UINT8), UINT32), ((INT32, INT32), INT32), ((INT64, INT32), INT64),
    ((INT8,), None), ((INT16, UINT8), None), ((FLOAT32, INT32), None), ((INT32, BFLOAT16), None), ((FLOAT32,), None)])
def test_integer_that_holds_all_operands(dtypes: tuple[DType, ...], kind: DType | None) -> None:
    assert holding_integer(*dtypes) is kind


@pytest.mark.parametrize("op, dst, dtypes, exact", [
    ("add", INT32, (INT32, INT32), True), ("multiply", UINT32, (INT32, INT32), True), ("subtract", INT64, (INT32,), True),
    ("maximum", INT32, (INT32, INT32), False), ("add", INT16, (INT32, INT32), False), ("add", INT32, (INT32, INT8), False),
    ("add", INT32, (INT32, UINT32), False), ("add", FLOAT32, (INT32, INT32), False), ("add", INT32, (INT16, INT16), False)])
def test_exact_integers(op: str, dst: DType, dtypes: tuple[DType, ...], exact: bool) -> None:
    assert exact_integer(op, dst, *dtypes) is exact
    assert alu_compute(op, dst, *dtypes) is (dtypes[0] if exact else FLOAT32)


@pytest.mark.parametrize("dtypes, kind", [((INT8, INT16), INT16), ((UINT8,), UINT8), ((FLOAT32, INT8), FLOAT32)])
def test_operations_on_bits__compute_in_the_wider_dtype(dtypes: tuple[DType, ...], kind: DType) -> None:
    assert alu_compute("bitwise_and", INT32, *dtypes) is kind


@pytest.mark.parametrize("op, number, beside, reverse, used", [
    ("bitwise_and", 255.0, INT8, False, -1.0), ("bitwise_and", 127.0, INT8, False, 127.0),
    ("bitwise_and", 128.0, INT8, False, -128.0), ("bitwise_and", 256.0, UINT8, False, 0.0),
    ("bitwise_or", -1.0, UINT16, False, 65535.0), ("bitwise_xor", -1.0, INT32, False, -1.0),
    ("bitwise_xor", 2.0 ** 31, INT32, False, -(2.0 ** 31)), ("add", 300.0, UINT8, False, 300.0),
    ("bitwise_and", 3.0, BOOL, False, 3.0), ("left_shift", 300.0, UINT8, False, 300.0),
    ("left_shift", 300.0, UINT8, True, 44.0)])
def test_number_with_a_tile__has_its_low_bits(op: str, number: float, beside: DType, reverse: bool, used: float) -> None:
    assert number_with_tile(op, number, beside, reverse) == used


@pytest.mark.parametrize("number, beside, dtype", [
    (5, INT32, INT32), (-1, UINT32, INT32), (2 ** 31, INT32, UINT32), (2 ** 31, UINT32, UINT32), (2 ** 31 - 1, INT32, INT32),
    (-(2 ** 31), INT32, INT32)])
def test_dtype_of_a_number(number: int, beside: DType, dtype: DType) -> None:
    assert number_dtype(number, beside) is dtype
