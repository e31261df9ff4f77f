# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each instruction against the formula in NumPy, with every kind of operand."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl

from ..tolerances import assert_steps, assert_within, product_bound, unit
from .running import check, floats, numbers, on_tiles, run

FULL, PART = (128, 40), (32, 3, 8)


@pytest.mark.parametrize("op, formula", [
    (nl.add, np.add), (nl.subtract, np.subtract), (nl.multiply, np.multiply), (nl.maximum, np.maximum),
    (np.minimum, np.minimum), (nl.greater, np.greater), (nl.not_equal, np.not_equal)])
@pytest.mark.parametrize("shape", [FULL, PART])
def test_tensor_tensor(on, op, formula, shape):
    x, y = numbers(*shape), numbers(*shape, seed=1)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b, op), formula(x, y).astype(np.float32), x, y)


def test_tensor_tensor_of_integers_is_exact(on):
    x, y = numbers(32, 8, dtype=np.int32) + 2**30, numbers(32, 8, dtype=np.int32, seed=1)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.add), x + y, x, y)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.bitwise_xor), x ^ y, x, y)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.add, engine=nisa.vector_engine),
          np.rint((x.astype(np.float32) + y.astype(np.float32)).astype(np.float64)).astype(np.int32), x, y)


@pytest.mark.parametrize("dst, a, b", [(np.uint8, np.uint8, np.uint32), (np.int32, np.int8, np.int32), (np.float32, np.int32, np.int32),
                                       (np.float16, np.uint32, np.uint32), (np.int16, np.int32, np.int32),
                                       (np.int32, np.int32, np.uint32)])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_other_integers_are_computed_with_in_float32(on, name, dst, a, b):
    """Exact is what has operands of one type of 32 bits and a destination of as many: 1 - 3 to uint8 is 0, not 255."""
    x, y = (np.resize(np.array(v), (4, 8)).astype(t) for v, t in (([1, 0, 7, 100, 0, 2], a), ([3, 1, 2**24 + 1, 5, 0, 2**30 + 1], b)))
    op, wide = getattr(nl, name), getattr(np, name)(x.astype(np.float32), y.astype(np.float32))
    limits = None if np.dtype(dst).kind == "f" else np.iinfo(dst)
    with np.errstate(over="ignore"):
        expected = wide.astype(dst) if limits is None else np.clip(np.rint(wide.astype(np.float64)), limits.min, limits.max).astype(dst)
    check(on, lambda d, s, t: nisa.tensor_tensor(d, s, t, op), expected, x, y)
    check(on, lambda d, s, t: nisa.tensor_copy(d, op(s, t, dtype=d.dtype)), expected, x, y)


def test_whole_numbers_beside_32_bit_integers_are_exact(on):
    x = np.array([[2**31 - 1, -2**31, 2**24 + 1, 0]], np.int32)
    with np.errstate(over="ignore"):
        check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.add, 1, op1=nl.multiply, operand1=3), (x + 1) * 3, x)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.subtract, 1), (x.astype(np.float32) - 1).astype(np.float32), x, dtype=np.float32)
    none = np.zeros((1, 4), np.uint32)
    check(on, lambda d, t: nisa.tensor_copy(d, nl.subtract(t, 1, dtype=nl.float16)), np.full((1, 4), -1, np.float16), none)


def test_one_instruction_in_place_and_on_parts(on):
    x = numbers(64, 32)

    def body(d, t):
        nisa.tensor_copy(d, t)
        nisa.tensor_tensor(d[0:32, 0:16], d[0:32, 0:16], t[32:64, 16:32], nl.add)
    expected = x.copy()
    expected[:32, :16] += x[32:, 16:]
    check(on, body, expected, x)


def test_tensor_scalar(on):
    x, column = numbers(32, 4, 8), numbers(32, 1, seed=2)
    beside = column.reshape(32, 1, 1)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.multiply, 2.0, op1=nl.add, operand1=-1.0), x * 2 - 1, x)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.subtract, 3.0, reverse0=True), 3 - x, x)
    check(on, lambda d, t, c: nisa.tensor_scalar(d, t, nl.add, c, op1=nl.maximum, operand1=0.0),
          np.maximum(x + beside, 0), x, column)
    check(on, lambda d, t, c: nisa.tensor_scalar(d, t, nl.multiply, 0.5, False, nl.subtract, c, True),
          beside - x * 0.5, x,
          column)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.abs, None), np.abs(x), x)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.square, 0.0), x * x, x)


def test_tensor_scalar_on_bits(on):
    x = numbers(32, 16, dtype=np.uint32)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.left_shift, 3, op1=nl.bitwise_or, operand1=1), x << 3 | 1, x)
    check(on, lambda d, t: nisa.tensor_scalar(d, t, nl.invert, None), ~x, x)


def test_scalar_tensor_tensor(on):
    x, y, column = numbers(32, 16), numbers(32, 4, 4, seed=1), numbers(32, 1, seed=2)
    check(on, lambda d, t, u, c: nisa.scalar_tensor_tensor(d, t, nl.multiply, c, nl.add, u),
          x * column + y.reshape(32, 16),
          x, y, column)
    check(on, lambda d, t, u: nisa.scalar_tensor_tensor(d, t, nl.add, 1.0, nl.subtract, u, reverse1=True),
          y.reshape(32, 16) - (x + 1), x, y)


def test_activation(on):
    x, column = floats(32, 3, 8), floats(32, 1, seed=1)
    beside = column.reshape(32, 1, 1)
    check(on, lambda d, t: nisa.activation(d, nl.exp, t), np.exp(x), x, rtol=1e-6)
    check(on, lambda d, t, c: nisa.activation(d, nl.tanh, t, bias=c, scale=0.5), np.tanh(x * 0.5 + beside), x, column,
          rtol=1e-5, atol=1e-6)
    check(on, lambda d, t, c: nisa.activation(d, nl.square, t, scale=c, bias=1.5), (x * beside + 1.5) ** 2, x, column,
          rtol=1e-5)
    check(on, lambda d, t: nisa.activation(d, nl.copy, t), x.astype(ml_dtypes.bfloat16), x, dtype=nl.bfloat16)


def test_activation_accumulates(on):
    x = floats(32, 8)

    def body(d, r, t):
        nisa.activation(d[:, 0:4], nl.square, t[:, 0:4], reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(d[:, 4:8], nl.square, t[:, 4:8], reduce_op=nl.add, reduce_res=r,
                        reduce_cmd=nisa.reduce_cmd.reduce)
    activated, rows = on_tiles(on, body, [((32, 8), nl.float32), ((32, 1), nl.float32)], x)
    np.testing.assert_allclose(activated, x * x, rtol=1e-6)
    np.testing.assert_allclose(rows, (x * x).sum(1, keepdims=True), rtol=1e-5)


def test_activation_reduce(on):
    x = floats(32, 2, 8)
    activated, rows = on_tiles(on, lambda d, r, t: nisa.activation_reduce(d, nl.exp, t, nl.add, r, scale=0.5),
                               [((32, 16), nl.float32), ((32, 1), nl.float32)], x)
    np.testing.assert_allclose(activated, np.exp(x * 0.5).reshape(32, 16), rtol=1e-6)
    np.testing.assert_allclose(rows[:, 0], np.exp(x * 0.5).sum((1, 2)), rtol=1e-5)


def test_activation_continues_the_total_of_activation_reduce(on):
    x, y = numbers(8, 6), numbers(8, 6, seed=1)

    def body(activated, rounded, total, first, second):
        nisa.activation_reduce(activated, nl.copy, first, nl.add, rounded)
        nisa.activation(activated, nl.copy, second, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reduce,
                        reduce_res=total)
    rows = x.sum(1, keepdims=True)
    _, rounded, total = on_tiles(on, body, [((8, 6), nl.float32), ((8, 1), nl.bfloat16), ((8, 1), nl.float32)], x, y)
    np.testing.assert_array_equal(rounded, rows.astype(rounded.dtype))
    np.testing.assert_array_equal(total, rows + y.sum(1, keepdims=True))


def test_activate2(on):
    x, column = floats(32, 8), floats(32, 1, seed=1)
    check(on, lambda d, t, c: nisa.activate2(d, nl.prelu, t, c, 0.5, nl.multiply, nl.subtract, relu_param=0.25),
          np.where(x * column - 0.5 >= 0, x * column - 0.5, (x * column - 0.5) * 0.25), x, column, rtol=1e-6)

    def body(d, r, t):
        nisa.activate2(d, nl.copy, t, 1.0, None, nl.add, nl.bypass, reduce_op=nl.abs_max, reduce_res=r,
                       reduce_cmd=nisa.reduce_cmd.reset_reduce)
    activated, rows = on_tiles(on, body, [((32, 8), nl.float32), ((32, 1), nl.float32)], x)
    np.testing.assert_allclose(activated, x + 1)
    np.testing.assert_allclose(rows[:, 0], (x + 1)[np.arange(32), np.abs(x + 1).argmax(1)])


def test_exponential(on):
    x = floats(32, 8)
    largest = x.max(1, keepdims=True)

    def body(d, r, t, m):
        nisa.exponential(d, t, max_value=m, reduce_res=r, reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=2.0)
    powers, rows = on_tiles(on, body, [((32, 8), nl.bfloat16), ((32, 1), nl.float32)], x, largest)
    assert_steps(powers, np.exp(x - largest).astype(powers.dtype), 1)
    np.testing.assert_allclose(rows, np.exp(x - largest).sum(1, keepdims=True) + 2, rtol=1e-5)


def test_tensor_reduce(on):
    x = numbers(32, 3, 4, 5)
    check(on, lambda d, t: nisa.tensor_reduce(d, nl.add, t, axis=[2, 3]), x.sum((2, 3)), x)
    check(on, lambda d, t: nisa.tensor_reduce(d, nl.maximum, t, axis=-1, negate=True, keepdims=True),
          -x.max(3, keepdims=True), x)
    check(on, lambda d, t: nisa.tensor_reduce(d, np.amin, t, axis=(1, 2, 3)), x.min((1, 2, 3)).reshape(32, 1), x)
    bits = numbers(32, 6, dtype=np.uint16)
    check(on, lambda d, t: nisa.tensor_reduce(d, nl.bitwise_or, t, axis=1), np.bitwise_or.reduce(bits, 1)[:, None],
          bits)


def test_tensor_partition_reduce(on):
    x = numbers(48, 3, 4)
    check(on, lambda d, t: nisa.tensor_partition_reduce(d, nl.add, t), x.sum(0).reshape(1, 12), x)
    check(on, lambda d, t: nisa.tensor_partition_reduce(d, nl.average, t), x.mean(0).reshape(1, 12), x, rtol=1e-6)


def test_tensor_scalar_reduce(on):
    x = floats(32, 8)

    def body(d, r, t):
        nisa.tensor_scalar_reduce(d[:, 0:4], t[:, 0:4], nl.multiply, 2.0, nl.add)
        nisa.tensor_scalar_reduce(d[:, 4:8], t[:, 4:8], nl.multiply, 2.0, nl.add, r, reduce_cmd=nisa.reduce_cmd.reduce,
                                  reduce_res_negate=True)
    scaled, rows = on_tiles(on, body, [((32, 8), nl.float32), ((32, 1), nl.float32)], x)
    np.testing.assert_allclose(scaled, x * 2)
    np.testing.assert_allclose(rows[:, 0], -(x * 2).sum(1), rtol=1e-5, atol=1e-6)


def test_select_reduce(on):
    x, chosen = floats(32, 8), (floats(32, 8, seed=1) > 0).astype(np.uint8)

    def body(d, r, t, p):
        nisa.select_reduce(d, p, t, -5.0, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce, reverse_pred=True)
    selected, rows = on_tiles(on, body, [((32, 8), nl.float32), ((32, 1), nl.float32)], x, chosen)
    expected = np.where(chosen == 0, x, np.float32(-5))
    np.testing.assert_array_equal(selected, expected)
    np.testing.assert_array_equal(rows[:, 0], expected.max(1))


def test_copy_predicated(on):
    x, chosen = numbers(32, 8), (floats(32, 2, 4, seed=1) > 0).astype(np.uint8)
    check(on, lambda d, t, p: nisa.tensor_copy_predicated(d, t, p), np.where(chosen.reshape(32, 8), x, 7), x, chosen,
          before=7.0)
    check(on, lambda d, p: nisa.tensor_copy_predicated(d, 3.0, p, reverse_pred=True),
          np.where(chosen.reshape(32, 8), 7, 3).astype(np.float32), chosen, before=7.0)


def test_memset_reciprocal_copy(on):
    x = floats(32, 8) + 5
    check(on, lambda d: nisa.memset(d, 3), np.full((32, 8), 3, np.int32))
    check(on, lambda d: nisa.memset(d, 0, engine=nisa.gpsimd_engine), np.zeros((32, 8), np.uint32))
    check(on, lambda d, t: nisa.reciprocal(d, t), 1 / x, x, rtol=1e-6)
    check(on, lambda d, t: nisa.tensor_copy(d, t, engine=nisa.engine.scalar), x.reshape(32, 2, 4), x)


def exact_product(left, right):
    return (left.astype(np.float64).T @ right).astype(np.float32)


def test_matmul(on):
    a, b = floats(64, 48), floats(64, 96, seed=1)
    check(on, lambda d, x, y: nisa.nc_matmul(d, x, y), a.T @ b, a, b, memory=nl.psum, rtol=1e-5, atol=1e-5)
    check(on, lambda d, x, y: nisa.nc_matmul(d, x, y, tile_position=(0, 0), tile_size=(64, 64)), a.T @ b, a, b,
          memory=nl.psum, rtol=1e-5, atol=1e-5)


def test_matmul_of_wide_results_uses_several_banks(on):
    a, b = floats(64, 16), floats(64, 1100, seed=1)
    check(on, lambda d, x, y: nisa.nc_matmul(d, x, y), a.T @ b, a, b, memory=nl.psum, rtol=1e-5, atol=1e-5)


def test_matmul_overwrites_first_and_accumulates_then(on):
    a, b = floats(3, 64, 32), floats(3, 64, 40, seed=1)

    def body(d, x0, x1, x2, y0, y1, y2):
        for x, y in ((x0, y0), (x1, y1), (x2, y2)):
            nisa.nc_matmul(d, x, y)
    parts = [np.ascontiguousarray(v) for v in (*a, *b)]
    rows = a.reshape(192, 32), b.reshape(192, 40)
    check(on, body, exact_product(*rows), *parts, memory=nl.psum, within=product_bound(*rows))

    def explicit(d, x0, x1, x2, y0, y1, y2):
        nisa.nc_matmul(d, x0, y0, accumulate=False)
        nisa.nc_matmul(d, x1, y1, accumulate=True)
        nisa.nc_matmul(d, x2, y2, accumulate=False)
    check(on, explicit, exact_product(a[2], b[2]), *parts, memory=nl.psum, within=product_bound(a[2], b[2]))


def test_matmul_adds_where_results_overlap(on):
    a, b = floats(64, 32), floats(64, 40, seed=1)

    def body(d, x, y):
        nisa.nc_matmul(d[:, 0:40], x, y)
        nisa.nc_matmul(d[:, 20:60], x, y)
        nisa.nc_matmul(d[:, 60:64], x, y[:, 0:4])
    expected, bounds = np.zeros((2, 32, 64), np.float32)
    for first, count in ((0, 40), (20, 40), (60, 4)):
        expected[:, first:first + count] += exact_product(a, b)[:, :count]
        bounds[:, first:first + count] += product_bound(a, b)[:, :count]
    check(on, body, expected, a, b, memory=nl.psum, within=bounds)


def test_matmul_onto_zeros(on):
    a, b = floats(64, 32), floats(64, 40, seed=1)

    def body(d, x, y):
        nisa.memset(d, 0.0)
        nisa.nc_matmul(d, x, y)
    check(on, body, a.T @ b, a, b, memory=nl.psum, rtol=1e-5, atol=1e-5)


def test_matmul_with_patterns(on):
    a, b = floats(32, 16), floats(32, 6, 10, seed=1)
    expected = np.einsum("km,kab->mab", a, b[:, 1:5, 2:8]).reshape(16, 24)
    check(on, lambda d, x, y: nisa.nc_matmul(d, x, y[:, 1:5, 2:8]), expected, a, b, memory=nl.psum, rtol=1e-5,
          atol=1e-5)


def test_wide_matmul_with_patterns(on):
    a, b = floats(32, 16), floats(32, 20, 40, seed=1)
    expected = np.einsum("km,kab->mab", a, b[:, :, 2:38]).reshape(16, 720)
    check(on, lambda d, x, y: nisa.nc_matmul(d, x, y[:, :, 2:38]), expected, a, b, memory=nl.psum, rtol=1e-5, atol=1e-5)


def test_transpose_mode_moves_bits(on):
    x = floats(32, 48)
    x[3, 5], x[7, 7] = np.nan, np.inf

    def body(d, t):
        nisa.nc_matmul(d, t, nl.shared_identity_matrix(32, nl.float32), is_transpose=True)
    check(on, body, x.T, x, memory=nl.psum)


def test_transposes(on):
    x, small = numbers(100, 60), numbers(20, 30, dtype=np.int32)
    check(on, lambda d, t: nisa.nc_transpose(d, t), x.T, x, memory=nl.psum)
    check(on, lambda d, t: nisa.nc_transpose(d, t), small.T, small)
    check(on, lambda d, t: nisa.nc_transpose(d, t.reshape((20, 5, 6))), small.T, small)


@pytest.mark.parametrize("element, kind", [("float8_e4m3fn", ml_dtypes.float8_e4m3fn), ("float8_e5m2",
                                                                                        ml_dtypes.float8_e5m2)])
def test_quantize_and_multiply(on, element, kind):
    packed = getattr(nl, f"{element}_x4")
    a, b = floats(128, 64).astype(ml_dtypes.bfloat16), (floats(128, 96, seed=1) * 10).astype(ml_dtypes.bfloat16)

    def body(d, left, right, left_scale, right_scale, x, y):
        for dst, scale, src in ((left, left_scale, x), (right, right_scale, y)):
            nisa.quantize_mx(dst.view(packed), src, scale)
        product = nl.ndarray((16, 24), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(product, left.view(packed), right.view(packed), left_scale, right_scale)
        nisa.tensor_copy(d, product)
    results = on_tiles(on, body, [((16, 24), nl.float32), ((128, 16), nl.uint32), ((128, 24), nl.uint32),
                                  ((128, 16), nl.uint8, 0), ((128, 24), nl.uint8, 0)], a, b)

    def dequantized(data, scale):
        values = data.view(kind).astype(np.float32).reshape(128, -1, 4)
        rows = [32 * (k // 8 // 4) + k // 8 % 4 for k in range(128)]
        steps = np.exp2(scale[rows].astype(np.float32) - 127)[..., None]
        return values * steps, np.broadcast_to(steps, values.shape).reshape(128, -1)
    (left, left_steps), (right, right_steps) = dequantized(results[1], results[3]), dequantized(results[2], results[4])
    for got, original, steps in ((left, a, left_steps), (right, b, right_steps)):
        # Half a step: of the number, or of the subnormal ones.
        bound = np.maximum(unit(kind) * abs(original.astype(np.float64)), steps * float(ml_dtypes.finfo(kind).smallest_subnormal) / 2)
        assert_within(got.reshape(128, -1), original, bound)
    columns = [v.transpose(0, 2, 1).reshape(512, -1) for v in (left, right)]
    assert_within(results[0], np.einsum("kmq,knq->mn", left, right, dtype=np.float64), product_bound(*columns))


def test_quantize_scales(on):
    x = np.zeros((32, 8), ml_dtypes.bfloat16)
    x[0, 0] = 448

    def body(data, scale, t):
        nisa.quantize_mx(data.view(nl.float8_e4m3fn_x4), t, scale)
    data, scale = on_tiles(on, body, [((32, 2), nl.uint32), ((4, 2), nl.uint8, 9)], x)
    assert scale.tolist() == [[128, 0], [0, 0], [0, 0], [0, 0]]
    assert data.view(ml_dtypes.float8_e4m3fn)[0, 0] == 224


def test_dma_transpose(on):
    def kernel(x, y):
        outs = [nl.ndarray(s, x.dtype, buffer=nl.shared_hbm) for s in ((6, 4), (5, 3, 2), (7, 3, 5, 2))]
        for out, src in zip(outs, (x, y, None)):
            if src is None:
                src = nl.shared_constant(np.arange(2 * 7 * 3 * 5).reshape(3, 7, 5, 2).transpose(1, 0, 2, 3) * 0.0)
                continue
            t = nl.ndarray(src.shape[::-1], x.dtype)
            nisa.dma_transpose(t, src)
            nisa.dma_copy(out, t)
        return outs[0], outs[1]
    x, y = numbers(4, 6), numbers(2, 3, 5)
    a, b = run(on, kernel, x, y)
    np.testing.assert_array_equal(a, x.T)
    np.testing.assert_array_equal(b, y.transpose(2, 1, 0))


def test_dma_transpose_of_gathered_rows(on):
    x, rows = numbers(64, 16), np.array([[3], [1], [60], [7]] * 4, np.uint32)

    def kernel(x, rows):
        out = nl.ndarray((16, 16), x.dtype, buffer=nl.shared_hbm)
        t, v = nl.ndarray((16, 16), x.dtype), nl.load(rows)
        nisa.dma_transpose(t, x.ap([[16, 16], [1, 16]], vector_offset=v))
        nisa.dma_copy(out, t)
        return out
    np.testing.assert_array_equal(run(on, kernel, x, rows), x[rows[:, 0]].T)


def test_dma_compute(on):
    x, y, z = numbers(40, 16), numbers(40, 16, seed=1), numbers(40, 16, seed=2)

    def kernel(x, y, z):
        out = nl.ndarray((40, 16), nl.float32, buffer=nl.shared_hbm)
        t = nl.load(y)
        nisa.dma_compute(out, [x, t, z], nl.add)
        nisa.dma_compute(out, [out, x], reduce_op=nl.add)
        return out
    np.testing.assert_array_equal(run(on, kernel, x, y, z), x + y + z + x)


def test_dma_compute_scatters_a_sum(on):
    table, x, rows = numbers(16, 8), numbers(4, 8, seed=1), np.array([[3], [15], [0], [7]], np.int32)

    def kernel(table, x, rows):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, table)
        t, v = nl.load(x), nl.load(rows)
        target = out.ap([[8, 4], [1, 8]], vector_offset=v)
        nisa.dma_compute(target, [t, target], nl.add)
        return out
    expected = table.copy()
    expected[rows[:, 0]] += x
    np.testing.assert_array_equal(run(on, kernel, table, x, rows), expected)


def test_random_numbers(on):
    def body(a, b, c, bits, seed):
        nisa.set_rng_seed(seed)
        nisa.rand2(a, 2.0, 4.0)
        nisa.set_rng_seed(seed)
        nisa.rand2(b, 2.0, 4.0)
        nisa.rand2(c, 2.0, 4.0)
        nisa.rng(bits)
    a, b, c, bits = on_tiles(on, body, [((64, 50), nl.float32)] * 3 + [((64, 50), nl.uint8)], np.array([[7]], np.int32))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any() and a.min() >= 2 and a.max() <= 4
    assert abs(a.mean() - 3) < 5 * np.sqrt(4 / 12 / a.size)                             # five standard deviations
    assert len(np.unique(bits)) > 200


def test_generator_state_comes_back(on):
    def body(a, b):
        state = nl.ndarray((32, 6), nl.uint32)
        nisa.rng(a, engine=nisa.engine.gpsimd)
        nisa.rand_get_state(state)
        nisa.rng(a, engine=nisa.engine.gpsimd)
        nisa.rand_set_state(state)
        nisa.rng(b, engine=nisa.engine.gpsimd)
    a, b = on_tiles(on, body, [((32, 9), nl.int32)] * 2)
    np.testing.assert_array_equal(a, b)


def test_dropout(on):
    x = floats(128, 100) + 10
    dropped, = on_tiles(on, lambda d, t: nisa.dropout(d, t, 0.3), [((128, 100), nl.float32)], x)
    remains = dropped != 0
    np.testing.assert_array_equal(dropped[remains], x[remains])
    assert abs(remains.mean() - 0.7) < 5 * np.sqrt(0.7 * 0.3 / remains.size)            # five standard deviations
    check(on, lambda d, t: nisa.dropout(d, t, 0.0), x, x)


def test_dma_compute_of_one_source(on):
    """It is added to what has been written, and is a copy elsewhere: to each row on its own, and always to inputs."""
    x, y = numbers(4, 16), numbers(4, 16, seed=1)

    def kernel(x, y):
        rows, sums, partly = (nl.ndarray((4, 16), nl.float32, buffer=nl.shared_hbm) for _ in range(3))
        tile, part = nl.ndarray((4, 16), nl.float32), nl.ndarray((4, 16), nl.float32)
        for k in range(4):
            nisa.dma_compute(rows[k], [x[k]], nl.add)               # nobody wrote this row
        nisa.dma_copy(sums, x)
        nisa.memset(tile, 1.0)
        nisa.memset(part[:, 0:8], 2.0)
        nisa.dma_compute(part[:, 8:16], [x[:, 8:16]], nl.add)
        with pytest.warns(UserWarning, match="has been written; list dst"):
            nisa.dma_compute(sums[1:3], [y[1:3]], nl.add)
            nisa.dma_compute(tile, [y], nl.add)
            nisa.dma_compute(x, [y], nl.add)
        nisa.dma_copy(partly, part)
        nisa.dma_compute(sums, [sums, tile], nl.add)
        return rows, sums, partly, x
    rows, sums, partly, updated = run(on, kernel, x, y)
    expected = x + y + 1
    expected[1:3] += y[1:3]
    np.testing.assert_array_equal(rows, x)
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(partly, np.concatenate([np.full((4, 8), 2), x[:, 8:]], 1))
    np.testing.assert_array_equal(updated, x + y)
