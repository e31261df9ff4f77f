# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks attached to tiles by a subscript, and masks of products: destinations, stores, operands, views."""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .masking import F, P
from .running import check, numbers


def test_mask_as_subscript__of_a_destination(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        tile[P < 5] = 9.0
        tile[F > 5] = nl.copy(tile) * 2
        tile[P == 7] += 1000
        nl.store(out, tile)
        return out
    x = numbers(16, 8)
    expected = x.copy()
    expected[:5] = 9
    expected[:, 6:] *= 2
    expected[7] += 1000
    check(on, kernel, expected, x)


def test_mask_as_subscript__of_a_store(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[P, F], 0.0)
        nl.store(out[P, F][P > F], nl.load(x))
        return out
    x = numbers(16, 8)
    p, f = np.ogrid[:16, :8]
    check(on, kernel, np.where(p > f, x, 0).astype(np.float32), x)


@pytest.mark.parametrize("which", ["stationary", "moving", "both"])
def test_mask_as_subscript__of_matmul_operands(on, which):
    """The free axis of an operand is an axis of the product, its partitions are the summed ones."""
    i_l, i_r = nl.arange(12)[None, :], nl.arange(20)[None, :]
    k = nl.arange(16)[:, None]

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((12, 20), nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(a), nl.load(b)
        product = nl.full((12, 20), 77, nl.float32, buffer=nl.psum)
        left = left[(i_l < 7) & (k < 9)] if which != "moving" else left
        right = right[i_r < 11] if which != "stationary" else right
        product[...] = nisa.nc_matmul(left, right)
        nl.store(out, nl.copy(product))
        return out
    a, b = (np.floor(numbers(16, n) / 10) for n in (12, 20))
    rows, columns = (7 if which != "moving" else 12), (11 if which != "stationary" else 20)
    summed = 9 if which != "moving" else 16
    expected = np.full((12, 20), 77, np.float32)
    expected[:rows, :columns] = a[:summed, :rows].T @ b[:summed, :columns]
    check(on, kernel, expected, a, b)


def test_mask_on_matmul__partition_predicate_limits_the_sum(on):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((12, 20), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nisa.nc_matmul(nl.load(a), nl.load(b), mask=nl.arange(16)[:, None] < 9))
        return out
    a, b = (np.floor(numbers(16, n) / 10) for n in (12, 20))
    check(on, kernel, a[:9].T @ b[:9], a, b)


def test_mask_on_matmul__loop_predicate(on):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((12, 20), nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((12, 20), nl.float32, buffer=nl.psum)
        for i in nl.affine_range(5):
            acc += nisa.nc_matmul(nl.load(a), nl.load(b), mask=i < 3)
        nl.store(out, acc)
        return out
    a, b = (np.floor(numbers(16, n) / 10) for n in (12, 20))
    check(on, kernel, 3 * (a.T @ b), a, b)


def test_mask_as_subscript__of_an_indexed_tile_in_a_product(on):
    @nki.jit
    def kernel(ones, g):
        out = nl.ndarray((8, 12), nl.float32, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(1)[:, None], nl.arange(12)[None, :]
        for j in nl.affine_range(2):
            mask = j * 12 + i_f < 20
            row = nl.load(g[i_p, j * 12 + i_f], mask=mask)
            repeated = nisa.nc_matmul(nl.load(ones), row[i_p, i_f][mask])
            if j == 1:
                nl.store(out, 0.0)
                nl.store(out, repeated, mask=(i_f < 8) & (nl.arange(8)[:, None] < 8))
        return out
    g = numbers(1, 20)
    expected = np.zeros((8, 12), np.float32)
    expected[:, :8] = g[:, 12:20]
    check(on, kernel, expected, np.ones((1, 8), np.float32), g)


@pytest.mark.parametrize("truth", [True, False, np.True_, np.False_])
def test_mask_as_subscript__that_python_knows(on, truth):
    """``True`` is not an index 1: conditions on numbers are masks as well."""
    @nki.jit
    def kernel(x, ones, last):
        out, copied = (nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm) for _ in range(2))
        tile, target = nl.load(x), nl.zeros((16, 8), nl.float32)
        target[P, F][truth] = 5.0
        target[P, F][last > 3] += tile[P, F][last > 3][truth]
        nl.store(copied, 1.0)
        nl.store(copied[P, F][truth], tile)
        product = nl.full((16, 8), 77, nl.float32, buffer=nl.psum)
        product[...] = nisa.nc_matmul(nl.load(ones), tile[P, F][truth])
        nl.store(out, target + nl.copy(product))
        return out, copied
    x, ones = numbers(16, 8), np.ones((16, 16), np.float32)
    total = np.broadcast_to(x.sum(0), (16, 8)) + x + 5 if truth else np.full((16, 8), 77)
    check(on, kernel, (total.astype(np.float32), x if truth else np.ones_like(x)), x, ones, 4)


def test_mask_as_subscript__keeps_its_negation_in_views(on):
    """A negated mask that the mask of a view cannot express is refused."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[4:12, 2:6], nl.load(x)[(P < 5) | (F > 3)][4:12, 2:6])
        return out
    with pytest.raises(NkiMlirError, match="the mask attached to a tile contains"):
        check(on, kernel, None, numbers(16, 8))


def test_mask_as_subscript__survives_views(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.zeros((16, 8), nl.float32)
        masked = nl.load(x)[P + F < 12]
        tile[4:16, 2:7] = masked[4:16, 2:7]
        nl.store(out, tile)
        return out
    x = numbers(16, 8)
    p, f = np.ogrid[:16, :8]
    expected = np.where((p + f < 12) & (p >= 4) & (f >= 2) & (f < 7), x, 0).astype(np.float32)
    check(on, kernel, expected, x)


def test_mask_on_broadcast_operands(on):
    """The mask is over the result's axes, whatever the operands repeat."""
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        tile = nl.zeros((16, 8), nl.float32)
        tile[...] = nl.multiply(nl.load(x), nl.load(w), mask=(P < 9) & (F < 5))
        nl.store(out, tile)
        return out
    x, w = numbers(16, 8), numbers(1, 8)
    expected = x * w
    expected[9:] = 0
    expected[:, 5:] = 0
    check(on, kernel, expected, x, w)
