# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation whose masks leave fewer rows and columns, through lists, helpers and statistics."""
import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def pieces_of_statistics(x):
    """The mask cuts the columns of a source, none of those of the result."""
    rows, columns = x.shape
    out = nl.ndarray((rows, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f, i_s = nl.arange(128)[:, None], nl.arange(32)[None, :], nl.arange(6)[None, :]
    for i in nl.affine_range(math.ceil(rows / 128)):
        tile = nl.load(x[i * 128 + i_p, nl.arange(columns)[None, :]], mask=(i * 128 + i_p < rows))
        stats = nl.ndarray((128, 12), dtype=nl.float32)
        for j in nl.affine_range(2):
            stats[i_p, j * 6 + i_s] = nisa.bn_stats(
                tile[i_p, j * 32 + i_f], mask=(j * 32 + i_f < columns) & (i * 128 + i_p < rows), dtype=nl.float32)
        nl.store(out[i * 128 + i_p, nl.arange(12)[None, :]], stats, mask=(i * 128 + i_p < rows))
    return out


@nki.jit
def shifted_and_summed(x):
    """Operands of one value a partition have all partitions, the tile those that a mask leaves."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:columns]
    bias = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32)
    bias[...] = 0.5
    for i in nl.affine_range(math.ceil(rows / 128)):
        tile = nl.load(x[i * 128 + i_p, i_f], mask=(i * 128 + i_p < rows))
        total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32)
        shifted = nisa.activation_reduce(op=nl.square, data=tile, reduce_op=np.add, reduce_res=total[...],
                                         bias=bias[...])
        for _ in nl.affine_range(1):
            nl.store(out[i * 128 + i_p, i_f], nl.multiply(shifted[i_p, i_f], total), mask=(i * 128 + i_p < rows))
    return out


@nki.jit
def chunked_softmax(x, chunk=96):
    rows, cols = x.shape
    out = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    n_chunks = math.ceil(cols / chunk)
    for t in nl.affine_range(math.ceil(rows / 128)):
        ip = nl.arange(128)[:, None]
        iff = nl.arange(chunk)[None, :]
        tiles, maxes = [], []
        for c in range(n_chunks):
            m = (t * 128 + ip < rows) & (c * chunk + iff < cols)
            tile = nl.load(x[t * 128 + ip, c * chunk + iff], mask=m)
            tiles.append(tile)
            maxes.append(nl.max(tile, axis=[1], mask=m))
        row_max = maxes[0]
        for other in maxes[1:]:
            row_max = nl.maximum(row_max, other, mask=(t * 128 + ip < rows))
        total = nl.zeros((128, 1), dtype=nl.float32)
        exps = []
        for c, tile in enumerate(tiles):
            m = (t * 128 + ip < rows) & (c * chunk + iff < cols)
            e = nl.exp(nl.subtract(tile, row_max, mask=m), mask=m)
            exps.append(e)
            part = nl.sum(e, axis=[1], mask=m)
            total[ip, 0] = nl.add(total, part, mask=(t * 128 + ip < rows))
        inv = nl.reciprocal(total, mask=(t * 128 + ip < rows))
        for c, e in enumerate(exps):
            m = (t * 128 + ip < rows) & (c * chunk + iff < cols)
            nl.store(out[t * 128 + ip, c * chunk + iff], nl.multiply(e, inv, mask=m), mask=m)
    return out


@nki.jit
def bias_relu_grid(x, bias):
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    r0 = nl.program_id(0) * 128
    c0 = nl.program_id(1) * 256
    i_p = r0 + nl.arange(128)[:, None]
    i_f = c0 + nl.arange(256)[None, :]
    m = (i_p < n) & (i_f < d)
    t = nl.load(x[i_p, i_f], mask=m)
    b = nl.load(bias[nl.arange(1)[:, None], i_f], mask=(i_f < d))
    r = nl.maximum(nl.add(t, b.broadcast_to((128, 256)), mask=m), 0.0, mask=m)
    nl.store(out[i_p, i_f], value=r, mask=m)
    return out


def _stats(tile, rows):
    mx = nl.max(tile, axis=1, keepdims=True)
    sh = nl.subtract(tile, mx)
    ex = nl.exp(sh)
    sm = nl.sum(ex, axis=1, keepdims=True)
    return sh, ex, sm


@nki.jit
def kl_rows(p_logits, q_logits):
    n, d = p_logits.shape
    out = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(n // 128):
        p = nl.load(p_logits[nl.ds(i * 128, 128), :])
        q = nl.load(q_logits[nl.ds(i * 128, 128), :])
        p_sh, p_ex, p_sm = _stats(p, 128)
        q_sh, q_ex, q_sm = _stats(q, 128)
        probs = p_ex / p_sm
        log_p = p_sh - nl.log(p_sm)
        log_q = q_sh - nl.log(q_sm)
        kl = nl.sum(probs * (log_p - log_q), axis=1, keepdims=True)
        nl.store(out[nl.ds(i * 128, 128), :], kl)
    return out


@nki.jit
def squares_apart(x, limit=0.5):
    """A result that nothing reads, and tiles in a dictionary and in a list whose items are replaced."""
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles, older = {}, [None, None]
    for i in range(n // 32):
        tiles[i] = nl.load(x[i * 32:(i + 1) * 32, :])
        older[i] = tiles[i]
    for i in range(n // 32):
        total = nl.ndarray((32, 1), dtype=nl.float32)
        _ = nisa.activation_reduce(op=nl.square, data=tiles[i], reduce_op=np.add, reduce_res=total[...])
        tiles[i] = nl.minimum(tiles[i] * total, limit)
        nl.store(out[i * 32:(i + 1) * 32, :], tiles[i] + older[i])
    return out


@nki.jit
def named_blocks(a):
    """Views that have names, whose elements masks select where they are read and written."""
    rows, cols = a.shape
    out = nl.ndarray((rows, cols), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    for i in nl.affine_range((rows + 127) // 128):
        for j in nl.affine_range((cols + 63) // 64):
            source, target = a[i * 128 + i_p, j * 64 + i_f], out[i * 128 + i_p, j * 64 + i_f]
            block = a[i * 128 + i_p, j * 64 + i_f]
            inside = (i * 128 + i_p < rows) & (j * 64 + i_f < cols)
            tile = nl.load(source, mask=inside) * nl.load(block, mask=inside)
            nl.store(target, value=tile, mask=inside)
    return out


@nki.jit
def named_neighbors(a):
    """Views of a tile that have names and leave the tile, but for masks."""
    rows, cols = a.shape
    out = nl.ndarray((rows, cols), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(rows)[:, None], nl.arange(cols)[None, :]
    tile, sums = nl.load(a), nl.zeros((rows, cols), a.dtype)
    before, after = tile[i_p, i_f - 1], tile[i_p, i_f + 1]
    sums[i_p, i_f] = nl.copy(after, mask=i_f + 1 < cols)
    shifted = sums[i_p, i_f + 2]
    shifted[...] = nl.add(before, 1.0, mask=(i_f >= 1) & (i_f < cols - 2))
    results = sums[i_p, i_f]
    nl.store(out, results)
    return out


def cases():
    r = np.random.default_rng(0)

    def f(*shape):
        return r.standard_normal(shape).astype(np.float32)
    return [(pieces_of_statistics, (f(160, 56),)), (shifted_and_summed, (f(160, 24),)), (chunked_softmax, (f(160, 40), 24)),
            (bias_relu_grid[2, 2], (f(200, 300), f(1, 300))), (kl_rows, (f(256, 40), f(256, 40))),
            (chunked_softmax, (f(200, 250),)), (squares_apart, (f(64, 24),)), (named_blocks, (f(200, 100),)),
            (named_neighbors, (f(32, 24),))]
