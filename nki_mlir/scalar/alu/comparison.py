# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons and logical operators, 1 or 0 in the compute dtype; operators on bits.

NaN is not equal to anything, and is true.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.alu.op import AluOperator, fold, fold_truth
from nki_mlir.scalar.dtypes import BOOL, DType, Encoding

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter


# -- bits --------------------------------------------------------------------------------------------------------------
# Bitwise operators and shifts, on integers only.
# A shift amount is read as unsigned. At or beyond the width nothing of the value is left: the result is 0, or the sign
# in every bit for the arithmetic shift.

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


# -- comparisons -------------------------------------------------------------------------------------------------------
def _truth(predicate: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *arrays: predicate(*arrays).astype(arrays[0].dtype)


def _comparison(predicate: str) -> "Callable[[ScalarEmitter, DType, Value, Value], Value]":
    """``predicate`` is gt, ge, lt, le, eq or ne."""
    def expand(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
        if d.is_float:
            prefix = "u" if predicate == "ne" else "o"
        elif predicate in ("eq", "ne"):
            prefix = ""
        else:
            prefix = "s" if d.kind is Encoding.SIGNED else "u"
        return e.truth(e.cmp(prefix + predicate, a, b), a)
    return expand


AluOperator("equal", 2, "comparison", _truth(np.equal), _comparison("eq"), asm="is_equal", commutative=True)
AluOperator("not_equal", 2, "comparison", _truth(np.not_equal), _comparison("ne"), commutative=True)
AluOperator("greater", 2, "comparison", _truth(np.greater), _comparison("gt"), asm="is_gt")
AluOperator("greater_equal", 2, "comparison", _truth(np.greater_equal), _comparison("ge"), asm="is_ge")
AluOperator("less", 2, "comparison", _truth(np.less), _comparison("lt"), asm="is_lt")
AluOperator("less_equal", 2, "comparison", _truth(np.less_equal), _comparison("le"), asm="is_le")

# NumPy's logical functions are ten times slower on floats than comparisons with zero.
AluOperator("logical_and", 2, "logical", _truth(lambda a, b: (a != 0) & (b != 0)),
            lambda e, d, a, b: e.truth(e.and_(e.nonzero(a), e.nonzero(b)), a),
            commutative=True, start=1, reduce=fold_truth(np.logical_and))
AluOperator("logical_or", 2, "logical", _truth(lambda a, b: (a != 0) | (b != 0)),
            lambda e, d, a, b: e.truth(e.or_(e.nonzero(a), e.nonzero(b)), a),
            commutative=True, start=0, reduce=fold_truth(np.logical_or))
AluOperator("logical_xor", 2, "logical", _truth(lambda a, b: (a != 0) ^ (b != 0)),
            lambda e, d, a, b: e.truth(e.xor(e.nonzero(a), e.nonzero(b)), a),
            commutative=True, start=0, reduce=fold_truth(np.logical_xor))
AluOperator("logical_not", 1, "logical", _truth(lambda a: a == 0), lambda e, d, a: e.truth(e.not_(e.nonzero(a)), a))
