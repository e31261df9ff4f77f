# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of a sum, which print without ``accumulate`` if the language implies it, and with it otherwise."""

import numpy as np
import pytest

from nki_mlir.language.beta import language as bnl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .reading import printed, reread

RNG = np.random.default_rng(3)
X, W = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((512, 64), (512, 256)))


def factors(x, w, k):
    rows = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
    columns = nl.ndarray((128, 256), w.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=x[k * 128:(k + 1) * 128, :])
    nisa.dma_copy(dst=columns, src=w[k * 128:(k + 1) * 128, :])
    return rows, columns


def stored(out, total):
    tile = nl.ndarray(total.shape, out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    nisa.dma_copy(dst=out, src=tile)


def product_into(allocate):
    @nki.jit
    def product(x, w):
        out = nl.ndarray((64, 256), x.dtype, buffer=nl.shared_hbm)
        total = allocate((64, 256), nl.float32, buffer=nl.psum)
        for k in range(4):
            rows, columns = factors(x, w, k)
            nisa.nc_matmul(dst=total, stationary=rows, moving=columns)
        stored(out, total)
        return out
    return product


product, product_of_zeros_first = product_into(nl.ndarray), product_into(nl.zeros)


@nki.jit
def product_in_halves(x, w):
    """Both halves of the columns in one PSUM tile; the first is read before the second is complete."""
    out = nl.ndarray((64, 256), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((64, 2, 128), nl.float32, buffer=nl.psum)
    for half in range(2):
        for k in range(4):
            rows, columns = factors(x, w, k)
            nisa.nc_matmul(dst=total[:, half, :], stationary=rows, moving=columns[:, half * 128:half * 128 + 128])
        stored(out[:, half * 128:half * 128 + 128], total[:, half, :])
    return out


@nki.jit
def product_twice(x, w):
    """The tile has a sum of two products, is read, and has another sum without a new allocation."""
    out = nl.ndarray((64, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((64, 256), nl.float32, buffer=nl.psum)
    for half in range(2):
        for k in range(2):
            rows, columns = factors(x, w, 2 * half + k)
            nisa.nc_matmul(dst=total, stationary=rows, moving=columns, accumulate=k > 0)
        stored(out[:, half * 256:half * 256 + 256], total)
    return out


@nki.jit
def sum_read_between(x, w):
    out = nl.ndarray((64, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((64, 256), nl.float32, buffer=nl.psum)
    for k in range(2):
        rows, columns = factors(x, w, k)
        nisa.nc_matmul(dst=total, stationary=rows, moving=columns, accumulate=k > 0)
        stored(out[:, k * 256:k * 256 + 256], total)
    return out


@nki.jit
def sum_from_ones(x, w):
    out = nl.ndarray((64, 256), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((64, 256), nl.float32, buffer=nl.psum)
    nisa.memset(dst=total, value=1.0)
    for k in range(4):
        rows, columns = factors(x, w, k)
        nisa.nc_matmul(dst=total, stationary=rows, moving=columns, accumulate=True)
    stored(out, total)
    return out


@nki.jit
def sum_of_half_the_columns(x, w):
    """Products of half of the columns: the other half keeps the zeros of the memset."""
    out = nl.ndarray((64, 256), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((64, 256), nl.float32, buffer=nl.psum)
    for k in range(4):
        rows, columns = factors(x, w, k)
        nisa.nc_matmul(dst=total[:, 0:128], stationary=rows, moving=columns[:, 0:128])
    stored(out, total)
    return out


@nki.jit
def last_product_alone(x, w):
    out = nl.ndarray((64, 256), x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((64, 256), nl.float32, buffer=nl.psum)
    for k in range(4):
        rows, columns = factors(x, w, k)
        nisa.nc_matmul(dst=total, stationary=rows, moving=columns, accumulate=False)
    stored(out, total)
    return out


@beta_nki.jit
def beta_product(x, w):
    out = bnl.ndarray((64, 256), dtype=x.dtype, buffer=bnl.shared_hbm)
    total = bnl.zeros((64, 256), bnl.float32, buffer=bnl.psum)
    for k in bnl.affine_range(4):
        rows = bnl.load(x[bnl.ds(k * 128, 128), :])
        columns = bnl.load(w[bnl.ds(k * 128, 128), :])
        total += bnl.matmul(rows, columns, transpose_x=True)
    bnl.store(out, total)
    return out


@beta_nki.jit
def product_in_blocks(x, w):
    """Each iteration has its own block of PSUM, which is read before the next product."""
    out = bnl.ndarray((64, 256), dtype=x.dtype, buffer=bnl.shared_hbm)
    total = bnl.zeros((2, bnl.par_dim(64), 128), bnl.float32, buffer=bnl.psum, lazy_initialization=True)
    for half in bnl.affine_range(2):
        for k in bnl.affine_range(4):
            rows = bnl.load(x[bnl.ds(k * 128, 128), :])
            columns = bnl.load(w[bnl.ds(k * 128, 128), bnl.ds(half * 128, 128)])
            total[half] += bnl.matmul(rows, columns, transpose_x=True)
        bnl.store(out[:, bnl.ds(half * 128, 128)], total[half])
    return out


PRODUCT = X.T @ W
HALVES = np.concatenate([X[:256].T @ W[:256], X[256:].T @ W[256:]], 1)
BETWEEN = np.concatenate([X[:128].T @ W[:128], X[:256].T @ W[:256]], 1)


@pytest.mark.parametrize(("kernel", "loops"), [(product, 1), (product_of_zeros_first, 1), (product_in_halves, 2),
                                               (beta_product, 1), (product_in_blocks, 2)])
def test_implied_sums_are_one_loop(kernel, loops):
    text = printed(kernel, [X, W])
    assert "accumulate" not in text and "memset" not in text
    assert text.count("nc_matmul(") == 1 == text.count("in range(4):") and text.count("for ") == loops
    again = reread(text)
    for on in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(again.on(on)(X, W), PRODUCT)
    assert printed(again, [X, W]) == text


@pytest.mark.parametrize(("kernel", "wanted"), [
    (product_twice, HALVES), (sum_read_between, BETWEEN), (sum_from_ones, PRODUCT + 1), (last_product_alone,
                                                                                       X[384:].T @ W[384:])])
def test_other_sums_are_stated(kernel, wanted):
    text = printed(kernel, [X, W])
    assert text.count("accumulate=") == text.count("nc_matmul(")
    np.testing.assert_array_equal(reread(text)(X, W), wanted)
    assert printed(reread(text), [X, W]) == text


def test_zeros_that_are_read_stay():
    text = printed(sum_of_half_the_columns, [X, W])
    assert "memset" in text and "accumulate" not in text
    wanted = np.concatenate([PRODUCT[:, :128], np.zeros_like(PRODUCT[:, 128:])], 1)
    np.testing.assert_array_equal(reread(text)(X, W), wanted)
    assert printed(reread(text), [X, W]) == text


def test_older_releases_and_beta():
    for release in ("2.29", "2.30"):
        text = printed(product, [X, W], release=release)
        np.testing.assert_array_equal(reread(text)(X, W), PRODUCT)


@nki.jit
def product_of_zeros(x):
    """The zeros are an operand of the product, and wider than its result."""
    out = nl.ndarray((64, 64), x.dtype, buffer=nl.shared_hbm)
    zeros = nl.zeros((128, 256), x.dtype, buffer=nl.sbuf)
    rows = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=x[0:128, :])
    total = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=rows, moving=zeros[:, 64:128])
    stored(out, total)
    return out


def test_an_operand_of_zeros_is_filled():
    text = printed(product_of_zeros, [X])
    assert "nisa.memset(dst=zeros, value=0)\n" in text.replace("0.0", "0") and "accumulate" not in text
    np.testing.assert_array_equal(reread(text)(X), np.zeros((64, 64), np.float32))
