# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gather and add rows by a tensor of row numbers in the current generation, also with numbers of rows that do not
exist.

python -m nki_mlir examples/current_gather_scatter.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def row_numbers(indices, start):
    """Load 128 row numbers, one to each partition."""
    tile = nl.ndarray((128, 1), dtype=indices.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=indices[start:start + 128])
    return tile


@nki.jit
def gather(table, indices):
    """Gather rows [N, D] of table [V, D] by indices [N, 1]; a number outside of the table is an error."""
    count, width = indices.shape[0], table.shape[1]
    out = nl.ndarray((count, width), dtype=table.dtype, buffer=nl.shared_hbm)
    for start in range(0, count, 128):
        rows = nl.ndarray((128, width), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=table.ap([[width, 128], [1, width]], vector_offset=row_numbers(indices, start)))
        nisa.dma_copy(dst=out[start:start + 128], src=rows)
    return out


@nki.jit
def gather_known(table, indices, filling):
    """Gather rows, with ``filling`` in place of rows that the table does not have."""
    count, width = indices.shape[0], table.shape[1]
    out = nl.ndarray((count, width), dtype=table.dtype, buffer=nl.shared_hbm)
    for start in range(0, count, 128):
        rows = nl.ndarray((128, width), dtype=table.dtype, buffer=nl.sbuf)
        nisa.memset(dst=rows, value=filling)
        nisa.dma_copy(dst=rows, src=table.ap([[width, 128], [1, width]], vector_offset=row_numbers(indices, start)),
                      oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(dst=out[start:start + 128], src=rows)
    return out


@nki.jit
def scatter_add(table, rows, indices):
    """Add rows [N, D] to table [V, D] at indices [N, 1], which differ from each other."""
    (count, width), out = rows.shape, nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=table)
    for start in range(0, count, 128):
        tile = nl.ndarray((128, width), dtype=rows.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=rows[start:start + 128])
        places = out.ap([[width, 128], [1, width]], vector_offset=row_numbers(indices, start))
        nisa.dma_compute(dst=places, srcs=[tile, places], reduce_op=nl.add)
    return out


def cases():
    rng = np.random.default_rng(0)
    table, rows = rng.standard_normal((512, 48)).astype(np.float32), rng.standard_normal((256, 48)).astype(np.float32)
    known, distinct = rng.integers(0, 512, (256, 1)).astype(np.int32), rng.permutation(512)[:256, None].astype(np.int32)
    unknown = np.where(np.arange(256)[:, None] % 3 == 0, 9999, known).astype(np.int32)
    filled = np.where(unknown == 9999, np.float32(7), table[known[:, 0]])
    added = table.copy()
    added[distinct[:, 0]] += rows
    return [(gather, (table, known), table[known[:, 0]], 0), (gather_known, (table, unknown, 7.0), filled, 0),
            (scatter_add, (table, rows, distinct), added, 0)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
