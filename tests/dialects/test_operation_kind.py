# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations share what is known of their kind only if all attributes are identical."""

import itertools

import numpy as np

from nki_mlir.dialects.access import full_tile
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp
from nki_mlir.dialects.op import changed, on_engine
from nki_mlir.dialects.operation_kind import kind_of, same_value
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import FLOAT32

VALUES = (0, 1, 2, -1, True, False, 0.0, -0.0, 1.0, 2.0, -1.0, float("inf"), float("-inf"), float("nan"), "0", "1", "",
          "True", None, (), (0,), (0.0,), (-0.0,), (1, 2), (True, 2), np.float32(1), np.float64(1), np.float32(0))


def test_same_value__is_equal_for_identical_values_alone() -> None:
    """Numbers that are equal differ by their type or sign, and NaN is the same as itself."""
    for (i, a), (j, b) in itertools.product(enumerate(VALUES), repeat=2):
        assert (same_value(a) == same_value(b)) is (i == j), (a, b)
        assert (kind_of((same_value(a),)) is kind_of((same_value(b),))) is (i == j), (a, b)


def test_same_value__of_another_object_with_the_same_value() -> None:
    for value in ("x" * 40, 10 ** 20, -(10 ** 20), 1.5e300, (1, -2.5), float("nan")):
        other = eval(repr(value), {"nan": float("nan")})
        assert same_value(value) == same_value(other)
        assert hash(same_value(value)) == hash(same_value(other))


def test_kind_on_another_engine__is_that_of_an_operation_which_names_the_engine() -> None:
    def added(number: float, engine: str = "unknown") -> TensorScalarOp:
        tile = full_tile(object(), (4, 8), FLOAT32, "sbuf")
        return TensorScalarOp(dst=tile, src=tile, op0="add", imm0=number, engine=engine)
    for number in (2.0, 3.0, 2.0):
        op = added(number)
        op.kind()
        for engine in (Engine.VECTOR, Engine.GPSIMD, Engine.VECTOR):
            moved = on_engine(op, engine)
            assert moved.engine == engine.value and op.engine == "unknown"
            assert moved.kind() is added(number, engine.value).kind() is changed(op, None, engine=engine.value).kind()
        assert on_engine(added(number), Engine.VECTOR).kind() is added(number, "vector").kind()
