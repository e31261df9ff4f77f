# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks as tests draw them: comparisons of partition, column and iteration of a loop, in a kernel and in NumPy."""

import numpy as np
from hypothesis import strategies as st

from nki_mlir.language.beta import language as nl

ROWS, COLUMNS, TURNS = 12, 10, 3
P, F = nl.arange(16)[:, None], nl.arange(8)[None, :]            # of the tiles [16, 8] under fixed masks


@st.composite
def comparisons(draw):
    """``a * p + b * f + c * i (cmp) d``."""
    return (*(draw(st.integers(-2, 2)) for _ in range(3)), draw(st.integers(-12, 14)),
            draw(st.sampled_from(["<", "<=", ">", ">=", "=="])))


def holds(terms, p, f, i, all_of):
    result = all_of
    for a, b, c, d, op in terms:
        value = a * p + b * f + c * i
        term = {"<": value < d, "<=": value <= d, ">": value > d, ">=": value >= d, "==": value == d}[op]
        result = result & term
    return result


def grid_of(terms):
    """Where the mask holds, per turn of the loop, in NumPy."""
    p, f = np.ogrid[:ROWS, :COLUMNS]
    return [np.broadcast_to(holds(terms, p, f, i, True), (ROWS, COLUMNS)) for i in range(TURNS)]
