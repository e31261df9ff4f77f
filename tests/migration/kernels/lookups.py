# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows and blocks by indices that the device reads: tables, caches, permutations, bins, segments."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.isa.constants import oob_mode


@nki.jit
def token_embeddings(ids, table, positions):
    """ids [n, 1], table [v, d], positions [n, d]: rows of the table plus those of the positions, tiles of 128."""
    n, _ = ids.shape
    _, d = table.shape
    out = nl.ndarray((n, d), dtype=table.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_d = nl.arange(d)[None, :]
    for t in nl.affine_range(math.ceil(n / 128)):
        valid = t * 128 + i_p < n
        idx = nl.load(ids[t * 128 + i_p, 0], mask=valid)
        rows = nl.load(table[idx[i_p, 0], i_d], mask=valid)
        pos = nl.load(positions[t * 128 + i_p, i_d], mask=valid)
        nl.store(out[t * 128 + i_p, i_d], value=nl.add(rows, pos, mask=valid), mask=valid)
    return out


@nki.jit
def permuted_store(x, order):
    """Rows of x at the positions that order says."""
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(n)[:, None]
    jf = nl.arange(d)[None, :]
    where = nl.load(order)
    nl.store(out[where[ip, 0], jf], value=nl.load(x))
    return out


@nki.jit
def kv_blocks(cache, block_table, block_size=16):
    """cache [blocks, block_size, d], block_table [1, n]: the blocks of a sequence, one after the other."""
    _, _, d = cache.shape
    n = block_table.shape[1]
    out = nl.ndarray((n * block_size, d), dtype=cache.dtype, buffer=nl.shared_hbm)
    table = nl.load(block_table)
    for b in nl.static_range(n):
        block = nl.load(cache[table[0, b], 0:block_size, 0:d])
        nl.store(out[b * block_size:(b + 1) * block_size, :], value=block)
    return out


@nki.jit
def guarded_rows(table, idx, default=0.0):
    """Rows whose index is beyond the table keep the default."""
    n = idx.shape[0]
    v, d = table.shape
    out = nl.ndarray((n, d), dtype=table.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:n, 0:d]
    rows = nl.full((n, d), default, dtype=table.dtype, buffer=nl.sbuf)
    where = nl.load(idx)
    nisa.dma_copy(dst=rows[ip, jf], src=table[where[ip, 0], jf], oob_mode=oob_mode.skip)
    nl.store(out, rows)
    return out


@nki.jit
def gathered_columns(x, idx):
    """Elements of each row by the indices of that row."""
    out = nl.ndarray(idx.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.gather_flattened(data=nl.load(x), indices=nl.load(idx)))
    return out


@nki.jit
def histogram(values, bins=16):
    """values [rows, n] of integers: how many of each row are in each bin."""
    rows, n = values.shape
    out = nl.ndarray((rows, bins), dtype=nl.float32, buffer=nl.shared_hbm)
    v = nl.load(values)
    counts = nl.zeros((rows, bins), dtype=nl.float32, buffer=nl.sbuf)
    for b in nl.static_range(bins):
        hit = nl.equal(v, b, dtype=nl.float32)
        counts[:, b:b + 1] = nl.sum(hit, axis=1, keepdims=True)
    nl.store(out, counts)
    return out


def cases():
    r = np.random.default_rng(21)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    i = lambda high, *s: r.integers(0, high, s).astype(np.int32)
    return [
        (token_embeddings, (i(50, 200, 1), f(50, 24), f(200, 24))),
        (permuted_store, (f(64, 20), r.permutation(64).reshape(64, 1).astype(np.int32))),
        (kv_blocks, (f(10, 16, 24), i(10, 1, 5))),
        (guarded_rows, (f(30, 16), i(60, 40, 1)), {"default": -2.0}),
        (gathered_columns, (f(32, 40), r.integers(0, 40, (32, 12)).astype(np.uint32))),
        (histogram, (i(16, 48, 60),)),
    ]
