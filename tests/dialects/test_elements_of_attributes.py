# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of constants in modules: from Python's buffers, and from text where Python has no such element type."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.buffer_types import element_dtype, elements, printed_elements
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT32, INT8, DType

from .samples import context


@pytest.mark.parametrize("text, dtype, values", [
    ("dense<[1.0, 2.5, -3.0]> : tensor<3xbf16>", BFLOAT16, [1.0, 2.5, -3.0]),
    ("dense<[[1.0, 0x7F80], [0xFF80, -0.0]]> : tensor<2x2xbf16>", BFLOAT16, [1.0, np.inf, -np.inf, -0.0]),
    ('dense<"0x803F00C0"> : tensor<2xbf16>', BFLOAT16, [1.0, -2.0]),
    ("dense<1.5> : tensor<f8E4M3>", FLOAT8_E4M3, [1.5]), ("dense<[-7, 12]> : tensor<2xi8>", INT8, [-7, 12])])
def test_elements_of_a_text(text: str, dtype: DType, values: list[float]) -> None:
    result = printed_elements(text, dtype)
    assert result.dtype == dtype.numpy
    np.testing.assert_array_equal(result.astype(np.float64), values)
    np.testing.assert_array_equal(np.signbit(result.astype(np.float64)), np.signbit(values))


@pytest.mark.parametrize("text, shape, dtype, values", [
    ("dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>", (2, 2), FLOAT32, [[1, 2], [3, 4]]),
    ("dense<2.0> : tensor<2x3xf32>", (2, 3), FLOAT32, [[2] * 3] * 2),
    ("dense<[1.0, -2.0]> : tensor<2xbf16>", (2, 1), BFLOAT16, [[1], [-2]]),
    ("dense<0.5> : tensor<2x2xbf16>", (2, 2), BFLOAT16, [[0.5] * 2] * 2)])
def test_elements_of_an_attribute(text: str, shape: tuple[int, ...], dtype: DType, values: list[object]) -> None:
    with context():
        result = elements(ir.Attribute.parse(text), shape, dtype)
    assert result.dtype == dtype.numpy and result.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(result.astype(np.float64), values)


def test_other_element_types__are_refused() -> None:
    with context():
        assert element_dtype(ir.Type.parse("bf16")) is BFLOAT16
        with pytest.raises(Unsupported, match="the element type f64 is not supported"):
            element_dtype(ir.Type.parse("f64"))
