# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic of registers: of 32 bits, rounded down, and errors for a divisor of 0."""

import pytest

from nki_mlir.dialects.isa.instruction import ARITHMETIC, RegisterDivision, signed


@pytest.mark.parametrize("op, lhs, rhs, result", [
    ("add", 3, 4, 7), ("subtract", 3, 4, -1), ("mult", -3, 4, -12), ("min", 3, 4, 3), ("max", 3, 4, 4),
    ("floordiv", 7, 2, 3), ("floordiv", -7, 2, -4), ("floordiv", 7, -2, -4), ("mod", 7, 3, 1), ("mod", -7, 3, 2),
    ("and", 6, 3, 2), ("or", 6, 3, 7), ("lt", 3, 4, True), ("lt", 4, 4, False), ("le", 4, 4, True),
    ("gt", 4, 3, True), ("ge", 3, 4, False), ("eq", 4, 4, True), ("ne", 4, 4, False)])
def test_arithmetic(op: str, lhs: int, rhs: int, result: int) -> None:
    assert ARITHMETIC[op](lhs, rhs) == result


@pytest.mark.parametrize("op", ("floordiv", "mod"))
def test_division_by_zero(op: str) -> None:
    with pytest.raises(RegisterDivision, match=rf"{op} of 5 by 0 in a register"):
        ARITHMETIC[op](5, 0)


@pytest.mark.parametrize("value, number", [
    (0, 0), (2 ** 31 - 1, 2 ** 31 - 1), (2 ** 31, -(2 ** 31)), (2 ** 32 - 1, -1), (2 ** 32, 0), (-1, -1), (-(2 ** 31) - 1, 2 ** 31 - 1)])
def test_signed_number(value: int, number: int) -> None:
    assert signed(value) == number
