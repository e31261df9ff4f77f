# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows by numbers behind an integer, helpers whose arguments have equal sizes, names of tensors that loops create."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def rows_of_a_head(cache, table, head):
    """Rows of one head of a cache by a table, the last tile of rows under a mask."""
    _, _, d = cache.shape
    n = table.shape[0]
    out = nl.ndarray((n, d), dtype=cache.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range((n + 127) // 128):
        i_p = nl.arange(128)[:, None]
        i_d = nl.arange(d)[None, :]
        numbers = nl.zeros((128, 1), dtype=nl.int32)
        numbers[i_p, 0] = nl.load(table[t * 128 + i_p, 0], mask=(t * 128 + i_p < n))
        rows = nl.ndarray((128, d), dtype=cache.dtype, name="rows", buffer=nl.sbuf)
        nisa.dma_copy(dst=rows[i_p, i_d], src=cache[head, numbers[i_p, 0], i_d], mask=(t * 128 + i_p < n))
        nl.store(out[t * 128 + i_p, i_d], rows[i_p, i_d], mask=(t * 128 + i_p < n))
    return out


def rescale(total, largest, tile, step, accumulator_dtype, only_first=False):
    """A running maximum; the total is computed under a condition on the loop variable."""
    mask = step < 1 if only_first else None
    new = nl.maximum(largest, nl.max(tile, axis=1), mask=mask)
    factor = nl.exp(nl.subtract(largest, new), dtype=accumulator_dtype, mask=mask)
    scaled = nl.multiply(total, factor, mask=mask)
    total[...] = nl.add(scaled, tile, mask=mask)
    largest[...] = nl.copy(new, mask=mask)


@nki.jit
def running(x, only_first=False):
    n, p, d = x.shape
    kind = np.dtype(np.float32)
    out = nl.ndarray((p, d), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((p, d), dtype=kind, buffer=nl.sbuf)
    largest = nl.full((p, 1), -1e4, dtype=kind, buffer=nl.sbuf)
    for i in nl.sequential_range(n):
        rescale(total, largest, nl.load(x[i]), i, kind, only_first)
    nl.store(out, total)
    return out


def cases():
    r = np.random.default_rng(0)
    cache = r.standard_normal((3, 50, 24)).astype(np.float32)
    table = r.integers(0, 50, (150, 1)).astype(np.int32)
    x = r.standard_normal((3, 64, 24)).astype(np.float32)
    return [(rows_of_a_head, (cache, table, 2)), (running, (x,)), (running, (x,), {"only_first": True})]
