# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Promotion: the table of dtypes, weak Python numbers, typed NumPy numbers."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.scalar.dtypes import ALL, BY_NAME, operand_dtype, promote

SHORT = {"f32": "float32", "tf32": "tfloat32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3",
         "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2", "bool": "bool"}
SHORT |= {f"{k}{n}": f"{'u' if k == 'u' else ''}int{n}" for k in "iu" for n in (8, 16, 32, 64)}

TABLE = """
f32 tf32 f32     f32 bf16 f32     f32 f16 f32     f32 e4m3 f32    tf32 bf16 f32   tf32 f16 f32    tf32 e5m2 f32
f16 bf16 f32     e4m3 f16 f16     e5m2 f16 f16    e4m3 bf16 bf16  e5m2 bf16 bf16  e4m3 e5m2 bf16  e4m3fn e4m3 bf16
f32 i32 f32      f16 i32 f16      bf16 u8 bf16    e4m3 i16 e4m3   tf32 i8 tf32    bf16 bool bf16
i16 i32 i32      i8 i16 i16       u8 u16 u16      u16 u32 u32     u8 u32 u32
u8 i8 i16        u8 i16 i16       u8 i32 i32      u16 i8 i32      u16 i16 i32     u16 i32 i32
u32 i8 f32       u32 i16 f32      u32 i32 f32     u32 i64 i64     u64 i8 f32      u64 i64 f32     u64 u8 u64
i32 i64 i64      bool u8 u8       bool i8 i16     bool i32 i32    bool bool u8
""".split()


@pytest.mark.parametrize("row", list(zip(*[iter(TABLE)] * 3)), ids=lambda r: "-".join(r))
def test_promote__follows_the_table(row: tuple[str, str, str]) -> None:
    a, b, result = (BY_NAME[SHORT[n]] for n in row)
    assert promote(a, b) is promote(b, a) is result


def test_promote__of_two_dtypes_is_symmetric_and_keeps_equal_ones() -> None:
    for a, b in product(ALL, ALL):
        assert promote(a, b) is promote(b, a)
        assert a.name == "bool" or promote(a, a) is a


@pytest.mark.parametrize(("name", "number", "result"), [
    ("i8", 2, "i32"), ("f16", 1.2, "f32"), ("bf16", 1.0, "f32"), ("f16", 2, "f16"), ("bf16", True, "bf16"),
    ("i16", True, "i16"), ("i8", True, "i16"), ("i32", 1.5, "f32"), ("u32", 3, "f32"), ("u8", 3, "i32"),
    ("u32", 2**32 - 1, "u32"), ("i32", 2**40, "f32"), ("u8", -1, "i32"),
    ("f16", np.float16(2), "f16"), ("bf16", np.float32(2), "f32"), ("i8", np.int8(2), "i8"),
    ("bf16", np.int32(2), "bf16"),
    ("bf16", ml_dtypes.bfloat16(1), "bf16"), ("f16", np.float64(2), "f32"), ("u8", np.bool_(True), "u8"),
])
def test_promote__with_a_number(name: str, number: object, result: str) -> None:
    dtype = BY_NAME[SHORT[name]]
    assert promote(dtype, number) is promote(number, dtype) is BY_NAME[SHORT[result]]


def test_operand_dtype__refuses_what_is_no_number() -> None:
    with pytest.raises(TypeError, match="neither a dtype nor a number"):
        operand_dtype("float32")
