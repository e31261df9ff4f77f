# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions over free axes and the functions made of them."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, floats, kernel_of, numbers, output_of, run

BF16 = ml_dtypes.bfloat16
KINDS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


def with_two_axes(array):
    return array[:, None] if array.ndim == 1 else array


AXES = [1, 2, 3, -1, -2, [1], [3], [2, 3], [1, 2, 3], (1, 3), [-2, -1], [3, 1], np.int64(2), [1, 2]]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes(on, axis, keepdims):
    x = numbers(16, 3, 4, 5)
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else axis
    expected = with_two_axes(x.sum(axis=axes, keepdims=keepdims))
    check(on, kernel_of(lambda t: nl.sum(t, axis=axis, keepdims=keepdims)), expected, x)


@pytest.mark.parametrize("name", KINDS)
def test_kind(on, name):
    x = numbers(16, 5) % 4 + 1
    check(on, kernel_of(lambda t: getattr(nl, name)(t, axis=1)), KINDS[name](x, axis=1, keepdims=True), x)
    check(on, kernel_of(lambda t: getattr(nl, name)(t, 1, dtype=nl.bfloat16)),
          KINDS[name](x, axis=1, keepdims=True).astype(BF16), x)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8, BF16, np.float16])
def test_dtype_of_the_operand_is_kept(on, dtype):
    x = (np.abs(numbers(16, 8)) % 9).astype(dtype)
    check(on, kernel_of(lambda t: nl.max(t, axis=1)), x.max(axis=1, keepdims=True), x)
    check(on, kernel_of(lambda t: nl.sum(t, axis=1)), x.astype(np.float32).sum(axis=1, keepdims=True).astype(dtype), x)


def test_sums_are_float32(on):
    """16-bit tiles are summed in float32 and rounded once."""
    x = np.full((4, 4096), 1, np.float16)
    check(on, kernel_of(lambda t: nl.sum(t, axis=1)), np.full((4, 1), 4096, np.float16), x)
    y = np.full((4, 1024), 0.1, BF16)
    check(on, kernel_of(lambda t: nl.sum(t, axis=1, dtype=nl.float32)),
          y.astype(np.float32).sum(axis=1, keepdims=True), y, rtol=1e-5)


def test_of_strided_views(on):
    """An average pool: two of four free axes of an overlapping view."""
    def body(x):
        p, a, b, c, d = (nl.arange(n)[tuple(slice(None) if k == m else None for m in range(5))]
                         for k, n in enumerate((4, 3, 3, 2, 2)))
        return nl.sum(x[p, 2 * a + c, 2 * b + d], axis=[3, 4]) / 4
    x = numbers(4, 6, 6)
    expected = x.reshape(4, 3, 2, 3, 2).sum(axis=(2, 4)) / 4
    check(on, kernel_of(body), expected, x)


def test_average_pool_of_the_documentation(on):
    @nki.jit
    def kernel(x, pool_size):
        channels, height, width = x.shape
        out = nl.ndarray((channels, height // pool_size, width // pool_size), x.dtype, buffer=nl.shared_hbm)
        i = [nl.arange(n)[tuple(slice(None) if k == m else None for m in range(5))]
             for k, n in enumerate((channels, height // pool_size, pool_size, width // pool_size, pool_size))]
        tile: nl.ndarray = nl.load(x)
        pooled = nl.sum(tile[i[0], pool_size * i[1] + i[2], pool_size * i[3] + i[4]], axis=[2, 4]) / pool_size ** 2
        nl.store(out, pooled)
        return out
    x = np.arange(72, dtype=np.float32).reshape(2, 6, 6)
    first = np.array([[3.5, 5.5, 7.5], [15.5, 17.5, 19.5], [27.5, 29.5, 31.5]], np.float32)
    check(on, kernel, np.stack([first, first + 36]), x, pool_size=2)


def test_all(on):
    x = (numbers(16, 3) % 3).astype(np.float32)
    check(on, kernel_of(lambda t: nl.all(t, axis=1)), np.all(x, axis=1, keepdims=True), x)


def test_mean_and_var(on):
    x = floats(16, 6, 10)
    check(on, kernel_of(lambda t: nl.mean(t, axis=1)), x.mean(axis=1), x, rtol=1e-5, atol=1e-6)
    check(on, kernel_of(lambda t: nl.mean(t, axis=[1, 2])), x.mean(axis=(1, 2))[:, None], x, rtol=1e-5, atol=1e-6)
    check(on, kernel_of(lambda t: nl.mean(t, axis=-1, keepdims=True)), x.mean(axis=2, keepdims=True), x, rtol=1e-5,
          atol=1e-6)
    check(on, kernel_of(lambda t: nl.var(t, axis=[1, 2])), x.var(axis=(1, 2))[:, None], x, rtol=1e-5)
    check(on, kernel_of(lambda t: t - nl.mean(t, axis=[1, 2])), x - x.mean(axis=(1, 2), keepdims=True), x, rtol=1e-4,
          atol=1e-6)


def test_mean_of_integers_is_float(on):
    x = numbers(16, 8, dtype=np.int32)
    check(on, kernel_of(lambda t: nl.mean(t, axis=1)), x.mean(axis=1, keepdims=True).astype(np.float32), x, rtol=1e-6)


def test_mean_rounds_once(on):
    x = floats(16, 300, dtype=BF16)
    expected = x.astype(np.float64).mean(axis=1, keepdims=True).astype(np.float32).astype(BF16)
    check(on, kernel_of(lambda t: nl.mean(t, axis=1)), expected, x, steps=1)
    check(on, kernel_of(lambda t: nl.mean(t, axis=1, dtype=nl.float32)),
          x.astype(np.float32).mean(axis=1, keepdims=True), x, rtol=1e-4, atol=1e-6)


def test_mean_and_var__of_what_a_mask_lets_through(on):
    def body(x, function):
        p, f = nl.arange(16)[:, None], nl.arange(40)[None, :]
        return function(x[p, f], axis=1, mask=(f < 30) & (f >= 2 * p))
    x = floats(16, 40)
    p, f = np.ogrid[:16, :40]
    masked = np.ma.masked_array(x, ~((f < 30) & (f >= 2 * p)))
    for name in ("mean", "var"):
        expected = np.asarray(getattr(masked, name)(axis=1).filled(0), np.float32)[:, None]
        got = run(on, kernel_of(lambda t, name=name: body(t, getattr(nl, name))), x)
        np.testing.assert_allclose(got[:15], expected[:15], rtol=1e-4, atol=1e-6)
    check(on, kernel_of(lambda t: nl.mean(t[nl.arange(40)[None, :] < 10], axis=1)), x[:, :10].mean(axis=1, keepdims=True),
          x, rtol=1e-5, atol=1e-6)


def test_composites_of_integers_are_floats(on):
    x = numbers(16, 8, dtype=np.int32) % 5
    check(on, kernel_of(lambda t: nl.var(t, axis=1)), x.var(axis=1, keepdims=True).astype(np.float32), x, rtol=1e-5)
    check(on, kernel_of(lambda t: nl.softmax(t, axis=1)), softmax(x.astype(np.float32)), x, rtol=1e-5)


def softmax(x, axis=-1):
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def test_softmax(on):
    x = floats(16, 40) * 5
    check(on, kernel_of(lambda t: nl.softmax(t, axis=1)), softmax(x), x, rtol=1e-5)
    check(on, kernel_of(lambda t: nl.softmax(t, axis=-1, dtype=nl.bfloat16)), softmax(x).astype(BF16), x, steps=1)
    y = floats(16, 4, 10)
    check(on, kernel_of(lambda t: nl.softmax(t, axis=[1, 2])), softmax(y.reshape(16, 40)).reshape(16, 4, 10), y, rtol=1e-5)


def test_rms_norm(on):
    x, w = floats(16, 40), floats(16, 40, seed=1)
    expected = x / np.sqrt((x * x).sum(axis=1, keepdims=True) / 40 + 1e-6) * w
    check(on, kernel_of(lambda t, g: nl.rms_norm(t, g, axis=1, n=40)), expected, x, w, rtol=1e-5)
    row = floats(1, 40, seed=2)
    expected = x / np.sqrt((x * x).sum(axis=1, keepdims=True) / 40 + 1e-3) * row
    check(on, kernel_of(lambda t, g: nl.rms_norm(t, g, axis=[1], n=40, epsilon=1e-3)), expected, x, row, rtol=1e-5)


def test_partition_axis_is_refused(on):
    for body in (lambda t: nl.sum(t, axis=0), lambda t: nl.max(t, axis=[0, 1]), lambda t: nl.sum(t, axis=-2)):
        with pytest.raises(KernelError, match="NKI-AXIS"):
            run(on, kernel_of(body), numbers(16, 8))


def test_axis_out_of_range_is_refused(on):
    for body in (lambda t: nl.sum(t, axis=2), lambda t: nl.sum(t, axis=3), lambda t: nl.mean(t, axis=[1, -3])):
        with pytest.raises(KernelError, match="NKI-AXIS"):
            run(on, kernel_of(body), numbers(16, 8))


# -- instructions ------------------------------------------------------------------------------------------------------
def test_tensor_reduce(on):
    x = numbers(16, 4, 6)
    for op, axis in itertools.product((np.add, np.max, nl.min, nl.add, "maximum"), (2, [1, 2], [2])):
        f = {np.add: np.sum, nl.add: np.sum, np.max: np.max, "maximum": np.max}.get(op, np.min)
        expected = with_two_axes(f(x, axis=tuple(axis) if isinstance(axis, list) else axis))
        check(on, kernel_of(lambda t: nisa.tensor_reduce(op, t, axis)), expected, x)
    check(on, kernel_of(lambda t: nisa.tensor_reduce(np.add, t, [1, 2], negate=True)), -x.sum(axis=(1, 2))[:, None], x)
    check(on, kernel_of(lambda t: nisa.tensor_reduce(np.add, t, [2], keepdims=True)), x.sum(axis=2, keepdims=True), x)


def test_tensor_partition_reduce(on):
    x = numbers(16, 8)
    check(on, kernel_of(lambda t: nisa.tensor_partition_reduce(np.add, t)), x.sum(axis=0, keepdims=True), x)
    check(on, kernel_of(lambda t: nisa.tensor_partition_reduce(np.max, t)), x.max(axis=0, keepdims=True), x)


def test_activation_reduce(on):
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        rows = nl.ndarray((16, 1), nl.float32)
        powers = nisa.activation_reduce(np.exp, tile, reduce_op=np.add, reduce_res=rows, bias=None, scale=0.5)
        return output_of(powers), output_of(rows)
    x = floats(16, 8)
    e = np.exp(x * 0.5)
    check(on, kernel, (e, e.sum(axis=1, keepdims=True)), x, rtol=1e-6)


def test_tensor_scalar_reduce(on):
    @nki.jit
    def kernel(x, c):
        tile = nl.load(x)
        rows = nl.ndarray((16, 1), nl.float32)
        scaled = nisa.tensor_scalar_reduce(data=tile, op0=np.multiply, operand0=nl.load(c), reduce_op=np.add,
                                           reduce_res=rows[:, 0])
        return output_of(scaled), output_of(rows)
    x, c = numbers(16, 8), numbers(16, 1, seed=1)
    check(on, kernel, (x * c, (x * c).sum(axis=1, keepdims=True)), x, c)
