# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose profiles have what the vendor's tables have columns for."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def transposed(x):
    """x [128, 256], the transposes of both halves beside each other."""
    out = nl.ndarray((128, 256), dtype=x.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range(2):
        nl.store(out[:, nl.ds(k * 128, 128)], nl.load_transpose2d(x[:, nl.ds(k * 128, 128)]))
    return out


@nki.jit
def fast(x):
    """x [128, N] of 16 bits: instructions that the vector engine executes at twice and four times its speed."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    twice = nisa.tensor_scalar(tile, np.multiply, 2.0, engine=nisa.vector_engine)
    sums = nisa.tensor_tensor(tile, twice, np.add, engine=nisa.vector_engine)
    nl.store(out, nisa.activation(nl.exp, sums))
    return out


@nki.jit
def gathered(table, rows):
    """table [M, N], rows [128, 1]: the rows of the table with these numbers."""
    out = nl.ndarray((128, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    numbers = nl.load(rows)
    nl.store(out, nl.load(table[numbers[nl.arange(128)[:, None], 0], nl.arange(table.shape[1])[None, :]]))
    return out
