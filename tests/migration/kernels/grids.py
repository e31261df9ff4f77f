# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of a grid: tiles of rows and columns by program_id, numbers of programs, edges under masks, blocks."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def edge_tiles(x, y, alpha=0.5):
    """A grid of tiles, of which those at the edges are smaller."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p = nl.program_id(0) * 128 + nl.arange(128)[:, None]
    i_f = nl.program_id(1) * 96 + nl.arange(96)[None, :]
    inside = (i_p < rows) & (i_f < cols)
    a = nl.load(x[i_p, i_f], mask=inside)
    b = nl.load(y[i_p, i_f], mask=inside)
    nl.store(out[i_p, i_f], nl.add(nl.multiply(a, alpha), b), mask=inside)
    return out


@nki.jit
def split_k_matmul(lhsT, rhs):
    """Each program computes the product of its part of K; the host adds the parts."""
    K, M = lhsT.shape
    _, N = rhs.shape
    num = nl.num_programs(0)
    pid = nl.program_id(0)
    per_program = K // num
    parts = nl.ndarray((num, M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((par_dim(M), N), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(per_program // 32):
        start = pid * per_program + k * 32
        l_tile = nl.load(lhsT[start:start + 32, :])
        r_tile = nl.load(rhs[start:start + 32, :])
        acc += nisa.nc_matmul(l_tile, r_tile)
    nl.store(parts[pid, 0:M, 0:N], value=acc)
    return parts


@nki.jit
def head_softmax(scores, temperature=1.0):
    """scores [batch, heads, q, k]: one program for each head of each batch, tiles of 64 queries."""
    batch, heads, q_len, k_len = scores.shape
    out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.shared_hbm)
    b, h = nl.program_id(0), nl.program_id(1)
    for t in nl.affine_range(math.ceil(q_len / 64)):
        i_q = nl.arange(64)[:, None]
        i_k = nl.arange(k_len)[None, :]
        tile = nl.load(scores[b, h, t * 64 + i_q, i_k], mask=(t * 64 + i_q < q_len))
        tile = nl.multiply(tile, 1.0 / temperature)
        row_max = nl.max(tile, axis=1, keepdims=True)
        e = nl.exp(tile - row_max)
        total = nl.sum(e, axis=1, keepdims=True)
        nl.store(out[b, h, t * 64 + i_q, i_k], value=e * nl.reciprocal(total), mask=(t * 64 + i_q < q_len))
    return out


@nki.jit
def blocked_matmul(lhsT, rhs):
    """Programs compute columns; the rows of lhsT stay in tiles with a block dimension."""
    K, M = lhsT.shape
    _, N = rhs.shape
    TILE_K, TILE_M = 128, 64
    TILE_N = N // nl.num_programs(0)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    n = nl.program_id(0)
    i_k = nl.arange(TILE_K)[:, None]
    i_n = nl.arange(TILE_N)[None, :]
    rhs_tiles = nl.ndarray((K // TILE_K, par_dim(TILE_K), TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(K // TILE_K):
        rhs_tiles[k, i_k, i_n] = nl.load(rhs[k * TILE_K + i_k, n * TILE_N + i_n])
    for m in nl.affine_range(M // TILE_M):
        i_m = nl.arange(TILE_M)[None, :]
        res_psum = nl.zeros((par_dim(TILE_M), TILE_N), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(K // TILE_K):
            lhsT_tile = nl.load(lhsT[k * TILE_K + i_k, m * TILE_M + i_m])
            res_psum[...] += nisa.nc_matmul(lhsT_tile, rhs_tiles[k, i_k, i_n])
        res_sb = nl.copy(res_psum, dtype=result.dtype)
        i_p = nl.arange(TILE_M)[:, None]
        nl.store(result[m * TILE_M + i_p, n * TILE_N + i_n], value=res_sb)
    return result


@nki.jit
def strided_programs(x):
    """Programs take every num_programs-th tile; the last program has fewer."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    pid, count = nl.program_id(0), nl.num_programs(0)
    tiles = rows // 32
    for t in nl.static_range(math.ceil(tiles / count)):
        tile_id = t * count + pid
        if tile_id < tiles:
            tile = nl.load(x[nl.ds(tile_id * 32, 32), :])
            nl.store(out[nl.ds(tile_id * 32, 32), :], nl.tanh(tile))
    return out


@nki.jit
def three_axes(x, w):
    """x [a, b, 32, n], w [c, n]: a program for each of a, b, c."""
    A, B, P, n = x.shape
    C = w.shape[0]
    out = nl.ndarray((A, B, C, P, n), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j, k = nl.program_id(0), nl.program_id(1), nl.program_id(2)
    tile = nl.load(x[i, j])
    row = nl.load(w[k:k + 1, :])
    nl.store(out[i, j, k], value=nl.multiply(tile, row.broadcast_to((P, n))))
    return out


def cases():
    r = np.random.default_rng(14)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (edge_tiles[2, 3], (f(200, 250), f(200, 250)), {"alpha": 0.25}),
        (split_k_matmul[4], (f(256, 48), f(256, 40))),
        (head_softmax[2, 3], (f(2, 3, 100, 56),), {"temperature": 2.0}),
        (blocked_matmul[2], (f(256, 128), f(256, 64))),
        (strided_programs[3], (f(224, 40),)),
        (three_axes[2, 1, 3], (f(2, 1, 32, 20), f(3, 20))),
    ]
