# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons and logical operators: 1 or 0 in the compute dtype. NaN is not equal to anything, and is true."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.alu.op import AluOperator, fold_truth
from nki_mlir.scalar.dtypes import DType, Encoding

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter


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
