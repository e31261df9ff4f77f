# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bitwise operators and shifts, on integers only.

A shift amount is read as unsigned. At or beyond the width nothing of the value is left: the result is 0, or the sign
in every bit for the arithmetic shift.
"""

from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.alu.op import AluOperator, fold
from nki_mlir.scalar.dtypes import BOOL, DType, Encoding

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter


def _all_ones(dtype: DType) -> int:
    if dtype.kind is Encoding.SIGNED:
        return -1
    return 1 if dtype is BOOL else int(np.iinfo(dtype.numpy).max)


def _right_shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    unsigned = f"u{a.itemsize}"
    return np.right_shift(a.view(unsigned), b.view(unsigned)).view(a.dtype)


def _arith_shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    signed = f"i{a.itemsize}"
    return np.right_shift(a.view(signed), b.view(signed)).view(a.dtype)


def _left_shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    unsigned = f"u{a.itemsize}"
    return np.left_shift(a.view(unsigned), b.view(unsigned)).view(a.dtype)


def _expand_logical_shift(e: "ScalarEmitter", d: DType, a: "Value", b: "Value", shift: str) -> "Value":
    inside = e.cmp("ult", b, d.bits)
    return e.select(inside, getattr(e, shift)(a, e.select(inside, b, e.const(b, 0))), e.const(a, 0))


AluOperator("bitwise_and", 2, "bitwise", np.bitwise_and, lambda e, d, a, b: e.and_(a, b), floats=False,
            commutative=True, start=_all_ones, reduce=fold(np.bitwise_and))
AluOperator("bitwise_or", 2, "bitwise", np.bitwise_or, lambda e, d, a, b: e.or_(a, b), floats=False, commutative=True,
            start=0, reduce=fold(np.bitwise_or))
AluOperator("bitwise_xor", 2, "bitwise", np.bitwise_xor, lambda e, d, a, b: e.xor(a, b), floats=False, commutative=True,
            start=0, reduce=fold(np.bitwise_xor))
# Of a truth value, which is a byte of 0 or 1, only the lowest bit counts.
AluOperator("invert", 1, "bitwise", np.invert, lambda e, d, a: e.xor(a, 1 if d.kind is Encoding.BOOL else -1),
            asm="bitwise_not", floats=False)

AluOperator("left_shift", 2, "shift", _left_shift, lambda e, d, a, b: _expand_logical_shift(e, d, a, b, "shl"),
            asm="logical_shift_left", floats=False)
AluOperator("right_shift", 2, "shift", _right_shift, lambda e, d, a, b: _expand_logical_shift(e, d, a, b, "shrui"),
            asm="logical_shift_right", floats=False)
AluOperator("arith_shift_right", 2, "shift", _arith_shift_right,
            lambda e, d, a, b: e.shrsi(a, e.minui(b, e.const(b, d.bits - 1))), floats=False)
