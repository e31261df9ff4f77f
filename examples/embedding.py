# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gather rows of a table by an index tensor, of valid or of any numbers, and add gradients to the rows.

python -m nki_mlir examples/embedding.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def gather(table, indices):
    """Gather rows [N, D] of table [V, D] by indices [N, 1]; N a multiple of 128."""
    count, width = indices.shape[0], table.shape[1]
    out = nl.ndarray((count, width), dtype=table.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(width)[None, :]
    for i in nl.affine_range(count // 128):
        index = nl.load(indices[nl.ds(i * 128, 128), :])
        nl.store(out[nl.ds(i * 128, 128), :], nl.load(table[index[p, 0], f]))
    return out


@nki.jit
def gather_known(table, indices):
    """Gather rows, with zeros for numbers outside of the table, which ``oob_mode.error`` would refuse."""
    count, width = indices.shape[0], table.shape[1]
    out = nl.ndarray((count, width), dtype=table.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(width)[None, :]
    for i in nl.affine_range(count // 128):
        index = nl.load(indices[nl.ds(i * 128, 128), :])
        rows = nl.zeros((128, width), table.dtype)
        nisa.dma_copy(dst=rows, src=table[index[p, 0], f], oob_mode=nisa.oob_mode.skip)
        nl.store(out[nl.ds(i * 128, 128), :], rows)
    return out


@nki.jit
def scatter_add(rows, indices, vocabulary):
    """Add rows [N, D] to zeros [V, D] at indices [N, 1]; rows of equal indices add up."""
    count, width = rows.shape
    out = nl.ndarray((vocabulary, width), dtype=rows.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(vocabulary // 128):
        nl.store(out[nl.ds(i * 128, 128), :], 0.0)
    f = nl.arange(width)[None, :]
    for i in nl.sequential_range(count // 128):
        index = nl.load(indices[nl.ds(i * 128, 128), :])
        nl.atomic_rmw(out[index, f], nl.load(rows[nl.ds(i * 128, 128), :]), op=np.add)
    return out


def cases():
    rng = np.random.default_rng(0)
    table, rows = rng.standard_normal((256, 48)).astype(np.float32), rng.standard_normal((256, 48)).astype(np.float32)
    indices = rng.integers(0, 256, (256, 1)).astype(np.int32)
    added = np.zeros((256, 48))
    np.add.at(added, indices[:, 0], rows.astype(np.float64))
    beyond = np.where(np.arange(256)[:, None] % 4 == 0, indices + 256, indices).astype(np.int32)
    known = np.where(beyond < 256, table[indices[:, 0]], np.float32(0))
    return [(gather, (table, indices), table[indices[:, 0]], 0), (gather_known, (table, beyond), known, 0),
            (scatter_add, (rows, indices, 256), added, 1e-5)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
