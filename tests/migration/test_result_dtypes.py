# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dtypes that the beta generation gives to results: of two tiles, of means, of a tile of integers and a number."""

import pytest

from .test_text import assert_same_values, floats

KERNEL = """def kernel(x):
    out = nl.ndarray((4, {columns}), dtype=nl.float32, buffer=nl.shared_hbm)
    f = nl.load(x[0:4, 0:8])
    m = nl.greater(f, 0)
    u = nl.copy(nl.abs(f) * 50, dtype=nl.uint8)
    i = nl.copy(f * 50, dtype=nl.int8)
    w = nl.copy(nl.abs(f) * 50, dtype=nl.uint32)
    h = nl.copy(f, dtype=nl.float16)
    nl.store(out, nl.copy({operation}, dtype=nl.float32))
    return out
"""


@pytest.mark.parametrize("operation", [
    "nl.add(m, m)", "nl.subtract(m, m)", "m + m", "nisa.tensor_tensor(m, m, np.add)", "nisa.tensor_tensor(u, i, np.add)",
    "nisa.tensor_tensor(h, f, np.add)", "nl.where(m, u, i)", "nl.where(m, m, f)", "nl.where(m, h, f)", "nl.where(m, m, m)",
    "nl.add(w, 2)", "2 - w", "nl.maximum(w, 60)", "nl.where(m, w, 2)", "nl.softmax(u, axis=[1])",
    "nl.softmax(i, axis=[1])"])
def test_values(operation, tmp_path):
    assert_same_values(KERNEL.format(operation=operation, columns=8), tmp_path, floats(4, 8))


@pytest.mark.parametrize("operation", ["nl.mean(m, axis=[1])", "nl.mean(u, axis=[1])", "nl.var(u, axis=[1])"])
def test_values_of_moments(operation, tmp_path):
    assert_same_values(KERNEL.format(operation=operation, columns=1), tmp_path, floats(4, 8))


UNKNOWN = """def kernel(x, y):
    out = nl.ndarray((4, {columns}), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = nl.load(x[0:4, 0:8]), nl.load(y[0:4, 0:8])
    nl.store(out, nl.copy({operation}, dtype=nl.float32))
    return out
"""


@pytest.mark.parametrize(("operation", "columns"), [
    ("nisa.tensor_tensor(a, b, np.multiply)", 8), ("nl.where(nl.greater(a, b), a, b)", 8),
    ("nl.mean(a, axis=[1])", 1), ("nl.softmax(a, axis=[1])", 8)])
@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("uint8", "float32"), ("float32", "float16")])
def test_values_of_parameters_whose_dtypes_the_text_does_not_show(operation, columns, dtypes, tmp_path):
    arguments = [abs(floats(4, 8) * 50).astype(dtype) for dtype in dtypes]
    assert_same_values(UNKNOWN.format(operation=operation, columns=columns), tmp_path, *arguments)


@pytest.mark.parametrize("dtype", ["nl.float32", "nl.uint8"])
def test_bits_that_another_dtype_gets(dtype, tmp_path):
    kernel = KERNEL.replace("    nl.store(", f"    kept = nl.full((4, 8), 1, {dtype})\n    kept[...] = nl.bitwise_and(w, 7)\n"
                                             "    kept[:, 0:4] = nl.bitwise_or(u[:, 0:4], w[:, 0:4])\n    nl.store(")
    assert_same_values(kernel.format(operation="kept", columns=8), tmp_path, floats(4, 8))


TRANSPOSED = """def kernel(x):
    out = nl.ndarray((8, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((8, 4), dtype=nl.float32)
    narrow = nisa.{transpose}(nl.load(x), dtype=nl.bfloat16)
    total[...] = nisa.{transpose}(nl.load(x), dtype=nl.bfloat16)
    nl.store(out, total + narrow)
    return out
"""


@pytest.mark.parametrize("transpose", ["nc_transpose", "dma_transpose"])
def test_transposes_to_another_dtype(transpose, tmp_path):
    """A tile of a wider dtype gets the rounded values."""
    assert_same_values(TRANSPOSED.format(transpose=transpose), tmp_path, floats(4, 8))
