# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations share what is known of their kind only if all attributes are identical."""

import itertools

import numpy as np

from nki_mlir.dialects.operation_kind import kind_of, same_value

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
