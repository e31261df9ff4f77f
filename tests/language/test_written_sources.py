# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An operation reads all of its sources before it writes, also if it becomes several instructions or runs row by row."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, numbers, output_of

X = numbers(8, 32)
ROWS = numbers(128, 8) % 3


@pytest.mark.parametrize("in_hbm", [True, False])
@pytest.mark.parametrize("back", [True, False])
def test_transfers_under_a_mask__to_the_elements_beside(on, in_hbm, back):
    """One transfer for each row would copy the first row to all others."""
    @nki.jit
    def kernel(x):
        t = output_of(nl.load(x)) if in_hbm else nl.load(x)
        i, j = nl.mgrid[0:7, 0:31]
        lower, upper = t[i, j], t[i + 1, j + 1]
        nisa.dma_copy(dst=lower if back else upper, src=upper if back else lower, mask=(j >= i))
        return t if in_hbm else output_of(t)
    expected, active = X.copy(), np.triu(np.ones((7, 31), bool))
    target, source = (expected[:-1, :-1], X[1:, 1:]) if back else (expected[1:, 1:], X[:-1, :-1])
    target[active] = source[active]
    check(on, kernel, expected, X)


def test_transfers_under_a_mask__of_a_loop_variable(on):
    @nki.jit
    def kernel(x):
        t = output_of(nl.load(x))
        i, j = nl.mgrid[0:7, 0:31]
        for k in nl.sequential_range(3):
            nisa.dma_copy(dst=t[i + 1, j + 1], src=t[i, j], mask=(j >= i + 9 * k))
        return t
    expected = X.copy()
    for k in range(3):
        before, active = expected.copy(), np.triu(np.ones((7, 31), bool), 9 * k)
        expected[1:, 1:][active] = before[:-1, :-1][active]
    check(on, kernel, expected, X)


@pytest.mark.parametrize("back", [True, False])
def test_scans_under_a_mask__to_later_partitions(on, back):
    """Rows with other active elements are scanned apart, and one group's results are the sources of another."""
    first, second = (32, 0) if back else (0, 32)

    @nki.jit
    def kernel(x):
        t = nl.load(x)
        i, j = nl.mgrid[0:64, 0:8]
        t[i + second, j] = nisa.tensor_tensor_scan(t[i + first, j], t[i + first, j], 0.0, nl.multiply, nl.add,
                                                   mask=(j >= i - 40))
        return output_of(t)
    expected = ROWS.copy()
    for row in range(64):
        carry = np.float32(0)
        for column in range(max(0, row - 40), 8):
            carry = ROWS[row + first, column] * carry + ROWS[row + first, column]
            expected[row + second, column] = carry
    check(on, kernel, expected, ROWS)


@pytest.mark.parametrize("scatters", [True, False])
def test_rows_chosen_by_data_under_a_mask__of_one_tensor(on, scatters):
    """Row i has the elements from i on: each row is a transfer, from rows that others write."""
    chosen = np.int32([[3], [0], [1], [2], [7], [4], [5], [6]])

    @nki.jit
    def kernel(x, rows):
        out, index = output_of(nl.load(x)), nl.load(rows)
        i, j = nl.mgrid[0:8, 0:32]
        here, there = out[i, j], out[index[i, 0], j]
        nisa.dma_copy(dst=there if scatters else here, src=here if scatters else there, mask=(j >= i))
        return out
    expected = X.copy()
    for row, (other,) in enumerate(chosen):
        target, source = (other, row) if scatters else (row, other)
        expected[target, row:] = X[source, row:]
    check(on, kernel, expected, X, chosen)


def test_sums__into_their_terms(on):
    """The sums of five dims are several instructions, and are rounded to the destination's dtype by each."""
    values = (numbers(8, 4, 4, 4, 4, 4) % 7).astype(ml_dtypes.bfloat16)

    @nki.jit
    def kernel(x):
        t = nl.load(x)
        i, a, b, c, d = nl.mgrid[0:8, 0:4, 0:4, 0:4, 0:4]
        t[i, d, c, b, a, 0] = nl.sum(t, axis=[5])
        return output_of(t)
    expected = values.copy()
    expected[..., 0] = values.astype(np.float32).sum(-1).transpose(0, 4, 3, 2, 1)
    check(on, kernel, expected, values)
