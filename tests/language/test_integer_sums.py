# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of integers: exact and rounded to float32 once, so that they are the same bits on every executor."""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl

from .running import check, kernel_of

INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]
dtypes = pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.__name__)


def integers(dtype, *shape, seed=0):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def exact(x, axis, where=True):
    """Elements are float32, their sum has no rounding but the last."""
    return np.sum(x.astype(np.float32).astype(np.int64), axis=axis, keepdims=True, where=where).astype(np.float32)


def to_int32(x):
    return np.clip(np.rint(x.astype(np.float64)), -2**31, 2**31 - 1).astype(np.int32)


@dtypes
@pytest.mark.parametrize("columns", [1, 7, 16, 513])
def test_sum_over_the_free_axis(on, dtype, columns):
    x = integers(dtype, 128, columns)
    check(on, kernel_of(lambda t: nl.sum(t, axis=1, dtype=nl.float32, keepdims=True)), exact(x, 1), x)
    check(on, kernel_of(lambda t: nl.sum(t, axis=1, dtype=nl.int32, keepdims=True)), to_int32(exact(x, 1)), x)


@dtypes
def test_sum_over_two_axes(on, dtype):
    x = integers(dtype, 64, 6, 40)
    check(on, kernel_of(lambda t: nl.sum(t, axis=(1, 2), dtype=nl.float32, keepdims=True)), exact(x, (1, 2)), x)
    check(on, kernel_of(lambda t: nl.sum(t, axis=1, dtype=nl.float32, keepdims=True)), exact(x, 1), x)


@dtypes
def test_sum_of_differences_and_mean(on, dtype):
    x = integers(dtype, 128, 100)
    signs = np.where(np.arange(100) == 0, 1, -1)
    left = np.sum(x.astype(np.float32).astype(np.int64) * signs, axis=1, keepdims=True).astype(np.float32)
    check(on, kernel_of(lambda t: nisa.tensor_reduce(np.subtract, t, axis=1, dtype=nl.float32, keepdims=True)), left, x)
    check(on, kernel_of(lambda t: nisa.tensor_reduce(np.add, t, axis=1, dtype=nl.float32, negate=True, keepdims=True)),
          -exact(x, 1), x)
    check(on, kernel_of(lambda t: nl.mean(t, axis=1, dtype=nl.float32, keepdims=True)), exact(x, 1) * np.float32(1 / 100), x)


@dtypes
def test_sum_over_partitions(on, dtype):
    x = integers(dtype, 128, 40)
    check(on, kernel_of(lambda t: nisa.tensor_partition_reduce(np.add, t, dtype=nl.float32)), exact(x, 0), x)


@dtypes
@pytest.mark.parametrize("function", ["copy", "square"])
def test_sum_of_an_activation(on, dtype, function):
    x = integers(dtype, 128, 300)

    def body(t):
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(getattr(nl, function), t, reduce_op=np.add, reduce_res=total)
        return total
    values = x.astype(np.float32)
    values = values * values if function == "square" else values
    expected = np.array([[int(sum(int(v) for v in row))] for row in values], object).astype(np.float64)
    check(on, kernel_of(body), expected.astype(np.float32), x)


@dtypes
def test_sum_of_a_product_in_integers(on, dtype):
    """Each element is an integer of 32 bits, made by its own instruction, before they are summed."""
    x, y = integers(dtype, 128, 64), integers(np.int16, 128, 64, seed=1)

    def body(t, u):
        return nl.sum(nl.multiply(t, u, dtype=nl.int32), axis=1, dtype=nl.float32, keepdims=True)
    product = to_int32(x.astype(np.float32) * y.astype(np.float32))
    check(on, kernel_of(body), exact(product, 1), x, y)


@dtypes
def test_sum_under_masks(on, dtype):
    x = integers(dtype, 128, 200)
    i, j = np.indices(x.shape)

    def triangle(t):
        p, f = nl.mgrid[0:128, 0:200]
        return nl.sum(t, axis=1, dtype=nl.float32, keepdims=True, mask=f <= 72 + p)

    def box(t):
        return nl.sum(t, axis=1, dtype=nl.float32, keepdims=True, mask=nl.arange(200)[None, :] < 150)
    check(on, kernel_of(triangle), exact(x, 1, j <= 72 + i), x)
    check(on, kernel_of(box), exact(x, 1, j < 150), x)


def test_sum_that_a_loop_builds(on):
    """Each iteration's sum is rounded, and added in float32."""
    x = integers(np.int32, 128, 256)

    def body(t):
        total = nl.zeros((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.sequential_range(4):
            total[...] = total + nl.sum(t[:, nl.ds(k * 64, 64)], axis=1, dtype=nl.float32, keepdims=True)
        return total
    expected = np.zeros((128, 1), np.float32)
    for k in range(4):
        expected = expected + exact(x[:, k * 64:k * 64 + 64], 1)
    check(on, kernel_of(body), expected, x)


def test_rows_without_an_active_element_keep_their_value(on):
    x = integers(np.int32, 128, 16)
    i, j = np.indices(x.shape)

    def body(t):
        total = nl.full((128, 1), 7.0, dtype=nl.float32, buffer=nl.sbuf)
        p, f = nl.mgrid[0:128, 0:16]
        total[...] = nl.sum(t, axis=1, dtype=nl.float32, keepdims=True, mask=f < p - 40)
        return total
    expected = np.where((j < i - 40).any(1, keepdims=True), exact(x, 1, j < i - 40), np.float32(7))
    check(on, kernel_of(body), expected.astype(np.float32), x)
