# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows where no engine can start are copied to tiles of the text as seldom as the lowering copies them."""

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki

from .counts import instructions
from .reading import printed, reread

X = np.arange(-512, 512, dtype=np.float32).reshape(64, 16)


@nki.jit
def last_rows_in_a_loop(x):
    out = nl.ndarray((3, 55, 16), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    row, column = nl.mgrid[0:55, 0:16]
    for i in nl.affine_range(3):
        nl.store(out[i], nl.multiply(tile[9 + row, column], nl.load(x[3 * i + row, column])))
    return out


@nki.jit
def changing_rows_in_a_loop(x):
    out = nl.ndarray((3, 55, 16), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    row, column = nl.mgrid[0:55, 0:16]
    for i in nl.sequential_range(3):
        nl.store(out[i], nl.multiply(tile[9 + row, column], nl.load(x[3 * i + row, column])))
        tile[...] = nl.add(tile, 1.0)
    return out


@current_nki.jit
def row_of_a_region_in_order(x):
    out = current_nl.ndarray((3, 64, 16), current_nl.float32, buffer=current_nl.shared_hbm)
    tile = current_nl.load(x)
    for i in current_nl.sequential_range(3):
        scaled = current_nl.multiply(tile, current_nl.load(x))
        with current_nl.no_reorder():
            current_nl.store(out[i], current_nl.add(scaled, tile.ap([[0, 64], [1, 16]])))
    return out


@nki.jit
def largest_of_last_rows(x):
    out = nl.ndarray((64, 1), nl.float16, buffer=nl.shared_hbm)
    tile, largest = nl.load(x), nl.full((64, 1), 1, nl.float16)
    largest[...] = nl.max(tile, axis=1, keepdims=True, dtype=nl.float32, mask=nl.arange(64)[:, None] >= 9)
    nl.store(out, largest)
    return out


def test_rows_are_staged_before_the_loop_that_reads_them():
    text = printed(last_rows_in_a_loop, [X])
    assert text.index("nisa.dma_copy(dst=staged, src=tile[9:64, :])") < text.index("for i in range(3):")
    assert text.count("staged = nl.ndarray") == 1
    again = reread(text)
    np.testing.assert_array_equal(again(X), last_rows_in_a_loop(X))
    assert instructions(again, [X], searched=False) == instructions(last_rows_in_a_loop, [X], searched=False)


def test_rows_that_the_loop_changes_are_staged_in_each_iteration():
    text = printed(changing_rows_in_a_loop, [X])
    assert text.index("for i in range(3):") < text.index("nisa.dma_copy(dst=staged, src=tile[9:64, :])")
    np.testing.assert_array_equal(reread(text)(X), changing_rows_in_a_loop(X))


def test_a_row_repeated_before_a_loop_leaves_the_region_in_order():
    text = printed(row_of_a_region_in_order, [X])
    assert text.index("    tile_rows = nl.broadcast_to(tile[0:1, :], (64, 16))") < text.index("    for i in range(3):")
    np.testing.assert_array_equal(reread(text)(X), row_of_a_region_in_order(X))


def test_a_result_that_a_copy_moves_to_its_rows_is_written_once():
    text = printed(largest_of_last_rows, [X])
    assert "nisa.tensor_reduce(dst=largest_2, op=nl.maximum, data=staged, axis=1)" in text, text
    again = reread(text)
    np.testing.assert_array_equal(again(X), largest_of_last_rows(X))
    assert instructions(again, [X], searched=False).total() == instructions(
        largest_of_last_rows, [X], searched=False).total() == 6
