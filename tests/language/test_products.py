# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products, transposes and moves between memories."""

import re

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from ..tolerances import product_bound
from .running import check, floats, kernel_of, numbers, output_of, run

BF16 = ml_dtypes.bfloat16


def small(*shape, seed=0):
    return np.floor(numbers(*shape, seed=seed) / 16)


def test_matmul__both_forms(on):
    x, y = small(24, 40), small(40, 32, seed=1)
    check(on, kernel_of(lambda a, b: nl.matmul(a, b)), x @ y, x, y)
    check(on, kernel_of(lambda a, b: nl.matmul(a, b, transpose_x=True)), x @ y, np.ascontiguousarray(x.T), y)


def test_matmul__result_is_float32_in_psum(on):
    def body(a, b):
        product = nl.matmul(a, b, transpose_x=True)
        assert product.buffer.space == "psum" and product.dtype == nl.float32
        return nl.copy(product, dtype=nl.bfloat16)
    x, y = small(40, 24).astype(BF16), small(40, 32, seed=1).astype(BF16)
    expected = (x.astype(np.float32).T @ y.astype(np.float32)).astype(BF16)
    check(on, kernel_of(body), expected, x, y)


def test_matmul__of_a_product(on):
    """A result in PSUM is moved to SBUF where the tensor engine reads it."""
    x, y, z = small(8, 8) % 5, small(8, 8, seed=1) % 5, small(8, 8, seed=2) % 5
    check(on, kernel_of(lambda a, b, c: nl.matmul(nl.matmul(a, b), c)), (x @ y) @ z, x, y, z)


def test_nc_matmul__of_a_transpose(on):
    """The kernel leaves the memory of a transpose to the compiler, which moves it to where the product reads it."""
    x, y = small(64, 48), small(48, 40, seed=1)
    check(on, kernel_of(lambda a, b: nisa.nc_matmul(nisa.nc_transpose(a), b)), x @ y, x, y)


@pytest.mark.parametrize("mode", ["double_row_gen3", "double_row"])
def test_nc_matmul__double_row(on, mode):
    @nki.jit
    def kernel(a, b):
        total = nl.zeros((32, 48), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            total += nisa.nc_matmul(nl.load(a[k]), nl.load(b[k]), perf_mode=mode)
        return output_of(total)
    x, y = (small(2, 24, 2, n, seed=n).astype(nl.float8_e4m3) for n in (32, 48))
    check(on, kernel, np.einsum("tkjm,tkjn->mn", x.astype(np.float32), y.astype(np.float32)), x, y)


@pytest.mark.parametrize("mode, shape, dtype, target, text", [
    ("double_column", (24, 2, 8), nl.float8_e4m3, "trn2", "no such mode"),
    ("double_row_gen3", (24, 2, 8), nl.bfloat16, "trn2", "stationary must have 8-bit floats of shape [K, 2, N], got [24, 2, 8] bfloat16"),
    ("double_row_gen3", (24, 16), nl.float8_e5m2, "trn2", "shape [K, 2, N], got [24, 16]"),
    ("double_row_gen3", (24, 2, 8), nl.float8_e4m3, "trn1", "trn1 does not have it")])
def test_nc_matmul__bad_double_row(mode, shape, dtype, target, text):
    @nki.jit(platform_target=target)
    def kernel(a):
        tile = nl.load(a)
        return output_of(nisa.nc_matmul(tile, tile, perf_mode=mode))
    with pytest.raises(KernelError, match=re.escape(text)):
        run("eager", kernel, np.zeros(shape, dtype))


def test_affine_select__of_a_product(on):
    """The GpSimd engine cannot read PSUM, so the product is copied to SBUF."""
    def body(a, b):
        p, f = nl.mgrid[0:40, 0:32]
        return nisa.affine_select(p >= f, nl.matmul(a, b, transpose_x=True), -1.0)
    x, y = small(24, 40), small(24, 32, seed=1)
    places = np.arange(40)[:, None] >= np.arange(32)
    check(on, kernel_of(body), np.where(places, x.T @ y, np.float32(-1)), x, y)


def test_matmul__true_float32(on):
    x, y = floats(128, 64) * 100, floats(128, 200, seed=1) * 100
    exact = x.T.astype(np.float64) @ y.astype(np.float64)
    check(on, kernel_of(lambda a, b: nisa.nc_matmul(a, b)), exact.astype(np.float32), x, y,
          within=product_bound(x, y))


def test_matmul__views_as_operands(on):
    def body(a, b):
        return nisa.nc_matmul(a[0:16, 2:18:2], b.reshape((40, 4, 8))[0:16, 1:3, :])
    x, y = small(40, 24), small(40, 32, seed=1)
    expected = x[0:16, 2:18:2].T @ y.reshape(40, 4, 8)[0:16, 1:3].reshape(16, 16)
    check(on, kernel_of(body), expected.reshape(8, 2, 8), x, y)


def test_matmul__several_free_axes(on):
    x, y = small(16, 4, 6), small(16, 5, 3, seed=1)
    expected = x.reshape(16, 24).T @ y.reshape(16, 15)
    got = run(on, kernel_of(lambda a, b: nisa.nc_matmul(a, b)), x, y)
    np.testing.assert_array_equal(got.reshape(24, 15), expected)


def test_matmul__into_slices_of_psum(on):
    def body(a, b):
        acc = nl.ndarray((24, 64), nl.float32, buffer=nl.psum)
        for i in nl.affine_range(2):
            acc[:, nl.ds(i * 32, 32)] = nisa.nc_matmul(a, b)
        return nl.copy(acc)
    x, y = small(40, 24), small(40, 32, seed=1)
    check(on, kernel_of(body), np.concatenate([x.T @ y] * 2, 1), x, y)


def test_matmul__into_sbuf(on):
    def body(a, b):
        t = nl.ndarray((24, 32), nl.bfloat16)
        t[...] = nisa.nc_matmul(a, b)
        return t
    x, y = small(40, 24), small(40, 32, seed=1)
    check(on, kernel_of(body), (x.T @ y).astype(BF16), x, y)


def test_transpose(on):
    x = numbers(24, 40)
    check(on, kernel_of(lambda t: nl.transpose(t)), x.T.copy(), x)
    check(on, kernel_of(lambda t: nl.transpose(t[2:10, 3:30:3])), x[2:10, 3:30:3].T.copy(), x)
    check(on, kernel_of(lambda t: nl.transpose(t, dtype=nl.bfloat16)), x.T.astype(BF16), x)


@pytest.mark.parametrize("engine", [None, nisa.tensor_engine, nisa.vector_engine])
def test_nc_transpose(on, engine):
    x = numbers(24, 32)
    keywords = {} if engine is None else {"engine": engine}
    check(on, kernel_of(lambda t: nisa.nc_transpose(t, **keywords)), x.T.copy(), x)


@pytest.mark.parametrize("shape", [(128, 128), (33, 40), (1, 100), (20, 4, 10)])
def test_nc_transpose__in_blocks_of_the_vector_engine(on, shape):
    x = numbers(*shape)
    flat = x.reshape(shape[0], -1)
    with pytest.warns(UserWarning, match="on the vector engine is"):
        check(on, kernel_of(lambda t: nisa.nc_transpose(t, engine=nisa.vector_engine)), flat.T.copy(), x)

    def masked(t):
        transposed = nl.zeros((flat.shape[1], shape[0]), nl.float32, buffer=nl.sbuf)
        p, f = nl.mgrid[0:shape[0], 0:flat.shape[1]]
        transposed[...] = nisa.nc_transpose(t, engine=nisa.vector_engine, mask=(f < 5) & (p < 18))
        return transposed
    if len(shape) == 2:
        expected = np.zeros_like(flat.T)
        expected[:5, :18] = flat.T[:5, :18]
        check(on, kernel_of(masked), expected, x)


@pytest.mark.parametrize("side, blocks", [(32, 1), (128, 16)])
def test_nc_transpose__costs_its_blocks(side, blocks):
    stream = kernel_of(lambda t: nisa.nc_transpose(t, engine=nisa.vector_engine)).lower(numbers(side, side)).as_text("isa")
    assert len(re.findall(r"^dve .* TRANSPOSE dst=fp32@\S+\[1\]\[32\] ", stream, re.MULTILINE)) == blocks


def test_nc_transpose__into_another_dtype_and_buffer(on):
    def body(x):
        p = nl.ndarray((40, 24), nl.float32, buffer=nl.psum)
        p[...] = nisa.nc_transpose(x)
        s = nl.ndarray((40, 48), nl.bfloat16)
        s[:, 24:48] = nisa.nc_transpose(x)
        s[:, 0:24] = p
        return s
    x = numbers(24, 40, dtype=BF16)
    check(on, kernel_of(body), np.concatenate([x.T, x.T], 1), x)


def test_load_transpose2d(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((40, 24), nl.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            nl.store(out[nl.ds(i * 20, 20), :], nl.load_transpose2d(x[:, nl.ds(i * 20, 20)]))
        return out
    x = numbers(24, 40)
    check(on, kernel, x.T.copy(), x)


def test_load_transpose2d__with_index_tensors_and_mask(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 24), nl.float32, buffer=nl.shared_hbm)
        r, c = nl.arange(24)[:, None], nl.arange(16)[None, :]
        tile = nl.zeros((16, 24), nl.float32)
        tile[...] = nl.load_transpose2d(x[r, c], mask=(c < 10) & (r < 20))
        nl.store(out, tile)
        return out
    x = numbers(20, 10)
    expected = np.zeros((16, 24), np.float32)
    expected[:10, :20] = x.T
    check(on, kernel, expected, x)


def test_load__casts(on):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x, dtype=nl.bfloat16)), output_of(nl.load(x[0:3, 2:4], dtype=np.int32))
    x = numbers(24, 40)
    check(on, kernel, (x.astype(BF16), x[0:3, 2:4].astype(np.int32)), x)


def test_store__casts_and_repeats(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((24, 40), nl.int32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[:, 0:1]))
        nl.store(out[3:5, :], 7)
        nl.store(out[5:6, 0:4], value=nl.load(x[5:6, 0:4]))
        return out
    x = numbers(24, 40)
    expected = np.repeat(x[:, 0:1], 40, 1)
    expected[3:5] = 7
    expected[5, 0:4] = x[5, 0:4]
    check(on, kernel, expected.astype(np.int32), x)


def test_store__rows_and_columns_of_rank_1(on):
    @nki.jit
    def kernel(x):
        v = nl.ndarray((40,), nl.float32, buffer=nl.shared_hbm)
        m = nl.ndarray((3, 40), nl.float32, buffer=nl.shared_hbm)
        nl.store(v, nl.load(x[2:3, :]))
        nl.store(m[0], nl.load(x[1:2, :]))
        nl.store(m[1, 0:24], nl.load(x[:, 5]))
        nl.store(m[1, 24:40], nl.load(x[0:1, 0:16]))
        nl.store(m[2:3, :], nl.load(x[4:5, :]))
        return v, m
    x = numbers(24, 40)
    check(on, kernel, (x[2], np.stack([x[1], np.concatenate([x[:, 5], x[0, :16]]), x[4]])), x)


def test_store__from_psum(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((40, 40), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nisa.nc_matmul(tile, tile))
        return out
    x = small(24, 40)
    check(on, kernel, x.T @ x, x)


def test_store__from_psum_by_row_numbers(on):
    @nki.jit
    def kernel(x, numbers):
        out = nl.ndarray((40, 40), nl.float32, buffer=nl.shared_hbm)
        tile, rows = nl.load(x), nl.load(numbers)
        i_p, i_f = nl.mgrid[0:40, 0:40]
        nl.store(out[rows[i_p, 0], i_f], nisa.nc_matmul(tile, tile))
        return out
    x, order = small(24, 40), np.roll(np.arange(40), 7).astype(np.int32)
    expected = np.empty((40, 40), np.float32)
    expected[order] = x.T @ x
    check(on, kernel, expected, x, order[:, None])


def test_private_hbm_as_scratch(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((40, 24), nl.float32, buffer=nl.shared_hbm)
        scratch = nl.ndarray((24, 40), nl.float32, buffer=nl.private_hbm)
        other = nl.ndarray((24, 40), nl.float32, buffer=nl.hbm)
        nl.store(scratch, nl.load(x) * 2)
        nisa.dma_copy(dst=other, src=scratch)
        nl.store(out, nl.load_transpose2d(other))
        return out
    x = numbers(24, 40)
    check(on, kernel, (x * 2).T.copy(), x)


def test_shared_constants(on):
    table = np.arange(24, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)

    @nki.jit
    def kernel(x):
        identity = nl.load(nl.shared_identity_matrix(24, dtype=nl.float32))
        constant = nl.load(nl.shared_constant(table, dtype=nl.bfloat16))
        return output_of(nisa.nc_matmul(nl.load(x), identity)), output_of(constant)
    x = numbers(24, 40)
    check(on, kernel, (x.T.copy(), table.astype(BF16)), x)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, np.int8,
                                   np.uint16, np.int32, np.uint32, np.bool_], ids=lambda d: np.dtype(d).name)
def test_shared_constant__of_each_dtype(on, dtype):
    table = (np.arange(120) % 7).reshape(8, 15).astype(dtype)

    @nki.jit
    def kernel():
        one = nl.load(nl.shared_constant(table))
        for _ in nl.static_range(2):
            one[...] = nl.load(nl.shared_constant(np.zeros((8, 1)), dtype=dtype).broadcast_to((8, 15)))
            one[...] = nl.load(nl.shared_constant(table))
        return output_of(one)
    check(on, kernel, table)


def test_buffers_by_name(on):
    @nki.jit
    def kernel(x):
        t = nl.ndarray((24, 40), "float32", buffer="sbuf")
        t[...] = nl.load(x)
        p = nl.zeros(shape=[24, 40], dtype=np.float32, buffer="psum")
        p += t
        out = nl.ndarray(x.shape, x.dtype, buffer="shared_hbm", name="result")
        nl.store(out, p)
        return out
    x = numbers(24, 40)
    check(on, kernel, x, x)


def test_creation_functions(on):
    def body(x):
        t = nl.zeros((8, 5), nl.float32) + nl.ones((8, 5), dtype=nl.float32) + nl.full((8, 5), 2.5, nl.float32)
        t += nl.zeros_like(x)
        e = nl.empty_like(x, dtype=nl.float32)
        e[...] = t
        return e
    check(on, kernel_of(body), np.full((8, 5), 3.5, np.float32), numbers(8, 5))


def test_sum_of_products__is_accumulated_by_the_products_themselves():
    def kernel(x):
        t = nl.load(x)
        p = nl.zeros((8, 8), nl.float32, buffer=nl.psum, name="sums")
        for _ in nl.affine_range(3):
            p += nl.matmul(t, t, transpose_x=True)
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, p)
        return out
    text = nki.jit(kernel).lower(np.ones((8, 8), np.float32)).as_text()
    assert text.count('"nki.matmul"') == text.count("accumulate = true") == 1 and '"nki.binary"' not in text
    assert '{nki.name = "sums"} : memref<8x8xf32, "psum">' in text
