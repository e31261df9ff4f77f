# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Destinations that name an element twice are the documented error; what a mask keeps apart is not."""

import numpy as np
import pytest

from nki_mlir.dialects.verifier import OverlappingWrite
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, numbers, output_of, run

X = numbers(8, 32)
I, J, K = nl.mgrid[0:8, 0:3, 0:8]


def copied(x):
    tile = nl.zeros((8, 32), nl.float32)
    tile[I, 4 * J + K] = nl.copy(nl.load(x)[I, 8 * J + K])
    return output_of(tile)


def added(x):
    tile = nl.zeros((8, 32), nl.float32)
    tile[I, 4 * J + K] += nl.load(x)[I, 8 * J + K]
    return output_of(tile)


def filled(x):
    tile = nl.load(x)
    tile[I, 9 - 2 * J + K] = 1.0
    return output_of(tile)


def stored(x):
    out = output_of(nl.load(x))
    i, j = nl.mgrid[0:4, 0:8]
    nl.store(out[0, i + j], nl.load(x[i, j]))
    return out


def transferred(x):
    out = output_of(nl.load(x))
    nisa.dma_copy(dst=out[I, 4 * J + K], src=x[I, 8 * J + K])
    return out


def masked(x):
    out = output_of(nl.load(x))
    nl.store(out[I, 4 * J + K], nl.load(x[I, 8 * J + K]), mask=(K < 5))
    return out


@pytest.mark.parametrize("kernel", [copied, added, filled, stored, transferred, masked])
def test_an_element_named_twice(on, kernel):
    with pytest.raises(OverlappingWrite, match="names the same element more than once") as caught:
        run(on, nki.jit(kernel), X)
    assert caught.value.code == "err_store_dst_shape_smaller_than_other_shape"


def test_a_mask_on_an_axis_keeps_elements_apart(on):
    @nki.jit
    def kernel(x):
        out = output_of(nl.load(x))
        nl.store(out[I, 4 * J + K], nl.load(x[I, 8 * J + K]), mask=(K < 4))
        return out
    expected = X.copy()
    expected[:, :12] = X[:, :24].reshape(8, 3, 8)[:, :, :4].reshape(8, 12)
    check(on, kernel, expected, X)


def test_a_mask_over_two_axes_keeps_elements_apart(on):
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        spread = nl.zeros((8, 32), nl.float32)
        i, j, k = nl.mgrid[0:8, 0:2, 0:8]
        spread[i, 4 * j + k] = nl.copy(tile[i, 8 * j + k], mask=(k - 4 * j < 4) & (k - 4 * j >= 0))
        return output_of(spread)
    expected = np.zeros_like(X)
    expected[:, 0:4], expected[:, 8:12] = X[:, 0:4], X[:, 12:16]
    check(on, kernel, expected, X)


def test_interleaved_elements_are_apart(on):
    @nki.jit
    def kernel(x):
        tile, interleaved = nl.load(x), nl.zeros((8, 32), nl.float32)
        i, j, k = nl.mgrid[0:8, 0:2, 0:3]
        interleaved[i, 2 * k + 3 * (1 - j)] = nl.copy(tile[i, 3 * j + k])
        return output_of(interleaved)
    expected = np.zeros_like(X)
    expected[:, [3, 5, 7]], expected[:, [0, 2, 4]] = X[:, 0:3], X[:, 3:6]
    check(on, kernel, expected, X)
