# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assignments and in-place updates: what they write, in which dtype, and how often they round."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, floats, kernel_of, numbers, output_of

BF16 = ml_dtypes.bfloat16


def to_bf16(x):
    return np.asarray(x, np.float32).astype(BF16)


# -- what is written ---------------------------------------------------------------------------------------------------
def test_assign__forms(on):
    def body(x):
        t = nl.ndarray((16, 8), nl.float32)
        t[...] = 1.5
        t[2:5, :] = 2
        t[5:9] = np.float32(3)
        t[:, 4] = x[:, 0]
        t[9:12, 1:3] = x[0:3, 2:4]
        t[12] = 7
        t[13, 5] = x[1, 1]
        t[14:16, 0:8] = x[2:3, :].broadcast_to((2, 8))
        t[0:2, ...] = x[4:5, 0:1]
        return t
    x = numbers(16, 8)
    e = np.full((16, 8), 1.5, np.float32)
    e[2:5] = 2
    e[5:9] = 3
    e[:, 4] = x[:, 0]
    e[9:12, 1:3] = x[0:3, 2:4]
    e[12] = 7
    e[13, 5] = x[1, 1]
    e[14:16] = x[2:3]
    e[0:2] = x[4:5, 0:1]
    check(on, kernel_of(body), e, x)


def test_assign__loop_variable_is_a_number(on):
    @nki.jit
    def kernel():
        out = nl.ndarray((4, 4), nl.int32, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            t = nl.ndarray((1, 4), nl.int32)
            t[...] = i * 3 + 1
            nl.store(out[i:i + 1, :], t)
        return out
    check(on, kernel, np.repeat(np.arange(4, dtype=np.int32)[:, None] * 3 + 1, 4, 1))


def test_assign__to_a_tensor_in_hbm(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        out[...] = nl.load(x)
        out[0:2, :] = 5.0
        out[3, 1:3] = nl.load(x[0:1, 0:2])[0, 0:2].reshape((1, 2))
        return out
    x = numbers(16, 8)
    e = x.copy()
    e[0:2] = 5
    e[3, 1:3] = x[0, 0:2]
    check(on, kernel, e, x)


def test_assign__overlapping_parts_of_one_tile(on):
    def body(x):
        x[:, 1:8] = x[:, 0:7]
        x[:, 0:7] = nl.add(x[:, 1:8], 1)
        return x
    x = numbers(16, 8)
    e = x.copy()
    e[:, 1:8] = e[:, 0:7].copy()
    e[:, 0:7] = e[:, 1:8] + 1
    check(on, kernel_of(body), e, x)


def test_assign__value_used_again(on):
    def body(x):
        t, u = nl.ndarray((16, 8), nl.float32), nl.ndarray((16, 8), nl.float32)
        y = nl.multiply(x, 2)
        t[...] = y
        u[...] = y + t
        return u
    x = numbers(16, 8)
    check(on, kernel_of(body), x * 4, x)


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16], ids=str)
@pytest.mark.parametrize("between", ["the operand changes", "it is stored", "another tile is filled"])
def test_assign__a_result_behind_another_operation(on, between, dtype):
    """Only the last operation can write its result to another tile instead, in the dtype of that tile."""
    @nki.jit
    def kernel(x):
        first, second = (nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm) for _ in range(2))
        nl.store(first, 0.0)
        tile, t = nl.load(x), nl.ndarray((16, 8), dtype)
        y = nl.multiply(tile, 2)
        if between == "the operand changes":
            tile[...] = 5.0
        elif between == "it is stored":
            nl.store(first, y)
        else:
            nisa.memset((16, 8), 3.0, nl.float32)
        t[...] = y
        nl.store(second, nl.add(t, y, dtype=nl.float32))
        return first, second
    x = numbers(16, 8)
    check(on, kernel, (x * 2 if between == "it is stored" else np.zeros_like(x), x * 4), x)


def test_assign__evaluates_the_subscript_once(on):
    calls = []

    def counted(i):
        calls.append(i)
        return i % 2

    @nki.jit
    def kernel(x):
        t = nl.zeros((16, 2, 8), nl.float32)
        tile = nl.load(x)
        for i in nl.affine_range(4):
            t[:, counted(i)] += tile.reshape((16, 1, 8))[:, 0]
        return output_of(t)
    x = numbers(16, 8)
    check(on, kernel, np.stack([x * 2, x * 2], 1), x)


# -- one rounding ------------------------------------------------------------------------------------------------------
def test_rounding__result_goes_to_the_destination_unrounded(on):
    """The sum of bfloat16 tiles is bfloat16, unless it is assigned to a wider tensor at once."""
    def body(a, b):
        t = nl.ndarray((16, 8), nl.float32)
        t[...] = nl.add(a, b)
        return t
    a, b = floats(16, 8, dtype=BF16), floats(16, 8, dtype=BF16, seed=1)
    check(on, kernel_of(body), a.astype(np.float32) + b.astype(np.float32), a, b)


def test_rounding__also_behind_an_index_expression_and_with_a_second_use(on):
    def body(a, b):
        t, u = nl.ndarray((16, 4, 8), nl.float32), nl.ndarray((16, 4, 8), nl.float32)
        for i in nl.affine_range(4):
            t[:, (i % 2) + 2 * (i // 2)] = nl.add(a, b)
            y = nl.add(a, b)
            u[:, i] = y
            u[:, i] += nl.subtract(y, y)
        t[:, 3] = u[:, 3]
        return t
    a, b = floats(16, 8, dtype=BF16), floats(16, 8, dtype=BF16, seed=1)
    exact = a.astype(np.float32) + b.astype(np.float32)
    check(on, kernel_of(body), np.repeat(exact[:, None], 4, 1), a, b)


def test_rounding__explicit_dtype_comes_first(on):
    def body(a, b):
        t = nl.ndarray((16, 8), nl.float32)
        t[...] = nl.add(a, b, dtype=nl.bfloat16)
        return t
    a, b = floats(16, 8), floats(16, 8, seed=1)
    check(on, kernel_of(body), to_bf16(a + b).astype(np.float32), a, b)


def test_rounding__otherwise_at_the_results_dtype(on):
    def body(a, b):
        y = nl.add(a, b)
        z = nl.add(b, b)
        t = nl.ndarray((16, 8), nl.float32)
        t[...] = y
        t += z * 0
        return t
    a, b = floats(16, 8, dtype=BF16), floats(16, 8, dtype=BF16, seed=1)
    check(on, kernel_of(body), to_bf16(a.astype(np.float32) + b.astype(np.float32)).astype(np.float32), a, b)


def test_rounding__reduction_over_several_axes(on):
    def body(x):
        t = nl.ndarray((16, 3), nl.float32)
        t[...] = nl.sum(x, axis=[2])
        return t
    x = floats(16, 3, 50, dtype=BF16)
    check(on, kernel_of(body), x.astype(np.float32).sum(axis=2), x, rtol=1e-6)


@pytest.mark.parametrize("to", [np.float16, BF16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, np.int8, np.int32, np.uint8])
def test_conversion_on_assignment(on, to):
    def body(x):
        t = nl.ndarray((16, 8), to)
        t[...] = x
        return t
    x = floats(16, 8) * 40
    info = np.iinfo(to) if np.dtype(to).kind in "iu" else None
    expected = np.clip(np.rint(x), info.min, info.max).astype(to) if info else x.astype(to)
    check(on, kernel_of(body), expected, x)


def test_load_into_a_tensor_of_another_dtype(on):
    @nki.jit
    def kernel(x):
        t = nl.ndarray((16, 8), nl.bfloat16)
        t[...] = nl.load(x)
        return output_of(t)
    x = floats(16, 8)
    check(on, kernel, x.astype(BF16), x)


# -- in place ----------------------------------------------------------------------------------------------------------
def test_in_place__operators(on):
    def body(x, y):
        t = nl.copy(x)
        name = t
        t += y
        t -= 3
        t *= y
        t /= 2.0
        assert t is name
        return t
    x, y = numbers(16, 8), numbers(16, 8, seed=1)
    check(on, kernel_of(body), (x + y - 3) * y / 2, x, y)


def test_in_place__integer_operators(on):
    def body(x, y):
        t = nl.copy(x)
        name = t
        t %= 7
        t **= 2
        t <<= 1
        t |= 1
        t &= 0x1F
        t ^= y
        t //= 3
        t >>= 1
        assert t is name
        return t
    x, y = (np.abs(numbers(16, 8, dtype=np.int32, seed=s)) for s in (0, 1))
    e = ((((((x % 7) ** 2) << 1) | 1) & 0x1F) ^ y) // 3 >> 1
    check(on, kernel_of(body), e, x, y)


def test_in_place__keeps_the_dtype(on):
    def body(x):
        t = nl.ndarray((16, 8), nl.bfloat16)
        t[...] = x
        t += 0.1
        t *= x
        return t
    x = floats(16, 8)
    e = to_bf16(to_bf16(to_bf16(x).astype(np.float32) + np.float32(0.1)).astype(np.float32) * x)
    check(on, kernel_of(body), e, x)


def test_in_place__of_a_subscript(on):
    def body(x):
        x[2:5, 1:3] += 10
        x[:, 7] *= 2
        x[3] -= x[4]
        x[:, 0:4] += x[:, 4:8]
        return x
    x = numbers(16, 8)
    e = x.copy()
    e[2:5, 1:3] += 10
    e[:, 7] *= 2
    e[:, 0:4] += 0
    with_row = e.copy()
    with_row[3] = e[3]
    def body_without_partition_shift(x):
        x[2:5, 1:3] += 10
        x[:, 7] *= 2
        x[:, 0:4] += x[:, 4:8]
        return x
    e[:, 0:4] += e[:, 4:8]
    check(on, kernel_of(body_without_partition_shift), e, x)


def test_in_place__broadcasts_columns(on):
    def body(x):
        x += x[:, 0]
        x *= x[:, 3:4]
        return x
    x = numbers(16, 8)
    e = x + x[:, 0:1]
    check(on, kernel_of(body), e * e[:, 3:4], x)


def test_in_place__does_not_touch_the_tensor_it_was_copied_from(on):
    def body(x):
        y = nl.copy(x)
        y += 1
        return x
    x = numbers(16, 8)
    check(on, kernel_of(body), x, x)


# -- accumulation ------------------------------------------------------------------------------------------------------
def product_kernel(body):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((24, 20), nl.float32, buffer=nl.shared_hbm)
        body(a, b, out)
        return out
    return kernel


def ab(k=64):
    return np.floor(numbers(k, 24) / 20), np.floor(numbers(k, 20, seed=1) / 20)


def test_accumulate__product_into_zeros(on):
    def body(a, b, out):
        acc = nl.zeros((24, 20), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc += nl.matmul(nl.load(a[k * 16:(k + 1) * 16, :]), nl.load(b[k * 16:(k + 1) * 16, :]), transpose_x=True)
        nl.store(out, acc)
    a, b = ab()
    check(on, product_kernel(body), a.T @ b, a, b)


def test_accumulate__product_into_what_was_only_declared(on):
    def body(a, b, out):
        acc = nl.ndarray((24, 20), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc[...] += nisa.nc_matmul(nl.load(a[k * 16:(k + 1) * 16, :]), nl.load(b[k * 16:(k + 1) * 16, :]))
        nl.store(out, acc)
    a, b = ab()
    check(on, product_kernel(body), a.T @ b, a, b)


def test_accumulate__declared_anew_in_each_iteration(on):
    def body(a, b, out):
        for j in nl.affine_range(2):
            acc = nl.ndarray((24, 10), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(4):
                rows = nl.ds(k * 16, 16)
                acc += nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[rows, nl.ds(j * 10, 10)]))
            nl.store(out[:, nl.ds(j * 10, 10)], acc)
    a, b = ab()
    check(on, product_kernel(body), a.T @ b, a, b)


def test_accumulate__in_nested_loops_by_subscript(on):
    def body(a, b, out):
        acc = nl.ndarray((2, nl.par_dim(12), 20), nl.float32, buffer=nl.psum)
        for k in nl.sequential_range(4):
            rows = nl.ds(k * 16, 16)
            right = nl.load(b[rows, :])
            for i in nl.affine_range(2):
                for half in nl.affine_range(2):
                    columns = nl.ds(half * 10, 10)
                    acc[i, :, columns] += nisa.nc_matmul(nl.load(a[rows, nl.ds(i * 12, 12)]), right[:, columns])
        for i in nl.affine_range(2):
            nl.store(out[nl.ds(i * 12, 12), :], acc[i])
    a, b = ab()
    check(on, product_kernel(body), a.T @ b, a, b)


def test_accumulate__conditionally(on):
    def body(a, b, out):
        acc = nl.zeros((24, 20), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            rows = nl.ds(k * 16, 16)
            if k >= 2:
                acc += nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[rows, :]))
        nl.store(out, acc)
    a, b = ab()
    check(on, product_kernel(body), a[32:].T @ b[32:], a, b)


def test_accumulate__product_into_sbuf(on):
    def body(a, b, out):
        acc = nl.zeros((24, 20), nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(4):
            rows = nl.ds(k * 16, 16)
            acc += nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[rows, :]))
        nl.store(out, acc)
    a, b = ab()
    check(on, product_kernel(body), a.T @ b, a, b)


def test_accumulate__scaled_product_is_an_addition(on):
    def body(a, b, out):
        acc = nl.zeros((24, 20), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            rows = nl.ds(k * 16, 16)
            acc[...] += nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[rows, :])) * 2.0
        nl.store(out, acc)
    a, b = ab()
    check(on, product_kernel(body), 2 * (a.T @ b), a, b)


def test_accumulate__assignment_of_a_product_overwrites(on):
    def body(a, b, out):
        acc = nl.full((24, 20), 5.0, nl.float32, buffer=nl.psum)
        acc[...] = nisa.nc_matmul(nl.load(a), nl.load(b))
        nl.store(out, acc)
    a, b = ab()
    check(on, product_kernel(body), a.T @ b, a, b)


def test_accumulate__explicit_sum(on):
    def body(a, b, out):
        acc = nl.zeros((24, 20), nl.float32, buffer=nl.psum)
        for k in nl.sequential_range(4):
            rows = nl.ds(k * 16, 16)
            acc[...] = acc + nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[rows, :]))
        nl.store(out, acc)
    a, b = ab()
    check(on, product_kernel(body), a.T @ b, a, b)


def test_accumulate__tiles_in_sbuf(on):
    @nki.jit
    def kernel(x):
        acc = nl.zeros((16, 8), nl.float32)
        for i in nl.affine_range(5):
            acc[...] += nl.load(x[i])
            acc += i
        return output_of(acc)
    x = numbers(5, 16, 8)
    check(on, kernel, x.sum(0) + 10, x)
