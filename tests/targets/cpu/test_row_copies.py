# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that move by their numbers, compiled: the interpreter's values and errors."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

P, WIDTH = 32, 40


@nki.jit
def gather(table, indices, dtype=None, first=0, mode="error"):
    out = nl.ndarray((indices.shape[0], WIDTH), dtype=dtype or table.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(P)[:, None], nl.arange(WIDTH)[None, :]
    for i in nl.affine_range(indices.shape[0] // P):
        index = nl.load(indices[nl.ds(i * P, P), :])
        rows = nl.full((P, WIDTH), 7.0, dtype=dtype or table.dtype)
        nisa.dma_copy(dst=rows, src=table[index[p, 0], first + f],
                      oob_mode=nisa.oob_mode.skip if mode == "skip" else nisa.oob_mode.error)
        nl.store(out[nl.ds(i * P, P), :], rows)
    return out


@nki.jit
def scatter_add(rows, indices, vocabulary):
    out = nl.ndarray((vocabulary, WIDTH), dtype=rows.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0.0)
    f = nl.arange(WIDTH)[None, :]
    for i in nl.sequential_range(rows.shape[0] // P):
        nl.atomic_rmw(out[nl.load(indices[nl.ds(i * P, P), :]), f], nl.load(rows[nl.ds(i * P, P), :]), op=np.add)
    return out


@nki.jit
def scatter(rows, indices, vocabulary):
    out = nl.ndarray((vocabulary, WIDTH), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, -1.0)
    p, f = nl.arange(P)[:, None], nl.arange(WIDTH)[None, :]
    index, tile = nl.load(indices), nl.load(rows)
    nl.store(out[index[p, 0], f], tile)
    return out


def numbers(count, below, dtype=np.int32, seed=0):
    return np.random.default_rng(seed).integers(0, below, (count, 1)).astype(dtype)


def table_of(rows, dtype=np.float32, width=WIDTH):
    return np.random.default_rng(1).standard_normal((rows, width)).astype(dtype)


def no_calls_of_the_interpreter(kernel):
    for specialization in kernel.specializations.values():
        assert not specialization.programs["jit"].hosts.runners


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, np.int32, np.uint8])
@pytest.mark.parametrize("index", [np.int32, np.uint32])
def test_gather__dtypes(dtype, index):
    table, chosen = table_of(100).view(np.int32).astype(dtype), numbers(3 * P, 100, index)
    assert np.array_equal(gather(table, chosen).view(np.uint8), table[chosen[:, 0]].view(np.uint8))
    no_calls_of_the_interpreter(gather)


def test_gather__from_a_start_inside_of_the_table():
    table, chosen = table_of(50, width=2 * WIDTH), numbers(P, 50)
    assert np.array_equal(gather(table, chosen, first=17), table[chosen[:, 0], 17:17 + WIDTH])


def test_gather__bits_of_nan_and_negative_zero_stay():
    table, chosen = table_of(64), numbers(2 * P, 64)
    table.view(np.uint32)[:, ::3] = 0x7FC12345
    table[:, 1::3] = -0.0
    assert np.array_equal(gather(table, chosen).view(np.uint32), table[chosen[:, 0]].view(np.uint32))


def test_gather__skips_what_is_no_row():
    table, chosen = table_of(20), numbers(2 * P, 40)
    chosen[3] = -1
    inside = (chosen >= 0) & (chosen < 20)
    expected = np.where(inside, table[np.where(inside, chosen, 0)[:, 0]], np.float32(7))
    assert np.array_equal(gather(table, chosen, mode="skip"), expected)
    no_calls_of_the_interpreter(gather)


@pytest.mark.parametrize("bad", [20, -1, 2**31 - 1])
def test_gather__the_first_bad_row_is_the_error(bad):
    table, chosen = table_of(20, width=2 * WIDTH), numbers(P, 20)
    chosen[5], chosen[9] = bad, 77
    caught = []
    for executor in ("interpreter", "jit"):
        with pytest.raises(IndexError, match="out of bounds for axis 0") as error:
            gather.on(executor)(table, chosen, first=3)
        caught.append((str(error.value), str(error.value.__cause__)))
    assert caught[0] == caught[1] and f"a run-time index is {bad}, and must be at least 0 and below 20" in caught[1][1]


def test_scatter__the_last_of_equal_numbers_stays():
    rows, chosen = table_of(P, ml_dtypes.bfloat16), numbers(P, 10)
    expected = np.full((12, WIDTH), -1, np.float32)
    for row, number in zip(rows, chosen[:, 0]):
        expected[number] = row
    assert np.array_equal(scatter(rows, chosen, 12), expected)
    no_calls_of_the_interpreter(scatter)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_scatter_add__equal_numbers_add_up_in_order(dtype):
    rows, chosen = table_of(4 * P, dtype), numbers(4 * P, 9)
    expected = np.zeros((9, WIDTH), dtype)
    for row, number in zip(rows, chosen[:, 0]):
        expected[number] = (expected[number].astype(np.float32) + row.astype(np.float32)).astype(dtype)
    assert np.array_equal(scatter_add(rows, chosen, 9), expected)
    assert np.array_equal(scatter_add.on("interpreter")(rows, chosen, 9), expected)
    no_calls_of_the_interpreter(scatter_add)
