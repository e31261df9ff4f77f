# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions and tables in the beta generation: rotations of all layouts, embeddings with padding, segments and shuffles."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.isa.constants import oob_mode

PMAX = nl.tile_size.pmax
PADDING_ID = 0


class RopeOptions:
    """Which part of a head rotates, and how its halves lie in memory."""

    def __init__(self, head_dim: int, rotary_dim: int | None = None, interleaved: bool = False):
        self.head_dim = head_dim
        self.rotary_dim = rotary_dim or head_dim
        self.interleaved = interleaved
        assert self.rotary_dim % 2 == 0 and self.rotary_dim <= head_dim

    @property
    def half(self):
        return self.rotary_dim // 2

    @property
    def is_partial(self):
        return self.rotary_dim < self.head_dim


@nki.jit
def partial_rope(x, cos, sin, opts):
    """x [S, H * D], cos, sin [S, R / 2]: the first R columns of each head rotate, the others stay."""
    S, width = x.shape
    D, R, half = opts.head_dim, opts.rotary_dim, opts.half
    heads = width // D
    out = nl.ndarray((S, width), dtype=x.dtype, buffer=nl.shared_hbm)
    for s in nl.affine_range((S + PMAX - 1) // PMAX):
        i_p = nl.arange(PMAX)[:, None]
        i_h = nl.arange(half)[None, :]
        i_w = nl.arange(width)[None, :]
        valid = s * PMAX + i_p < S
        c = nl.load(cos[s * PMAX + i_p, i_h], mask=valid)
        n = nl.load(sin[s * PMAX + i_p, i_h], mask=valid)
        tile = nl.load(x[s * PMAX + i_p, i_w], mask=valid)
        y = nl.ndarray((nl.par_dim(PMAX), width), dtype=x.dtype, buffer=nl.sbuf)
        for h in nl.affine_range(heads):
            if opts.interleaved:
                first, second = h * D + 2 * i_h, h * D + 2 * i_h + 1
            else:
                first, second = h * D + i_h, h * D + half + i_h
            a, b = tile[i_p, first], tile[i_p, second]
            y[i_p, first] = nl.subtract(nl.multiply(a, c, mask=valid), nl.multiply(b, n, mask=valid), mask=valid)
            y[i_p, second] = nl.add(nl.multiply(b, c, mask=valid), nl.multiply(a, n, mask=valid), mask=valid)
            if opts.is_partial:
                i_rest = nl.arange(D - R)[None, :]
                y[i_p, h * D + R + i_rest] = nl.copy(tile[i_p, h * D + R + i_rest], mask=valid)
        nl.store(out[s * PMAX + i_p, i_w], value=y[i_p, i_w], mask=valid)
    return out


@nki.jit
def embed_tokens(ids, table, scale=None, pad_id=PADDING_ID):
    """ids int32 [N, 1], table [V, D]: rows of the table; the row of a padding id and of an id beyond V is zero."""
    N, _ = ids.shape
    V, D = table.shape
    out = nl.ndarray((N, D), dtype=table.dtype, buffer=nl.shared_hbm)
    for t in range((N + 127) // 128):
        n = min(128, N - 128 * t)
        idx = nl.load(ids[nl.ds(128 * t, n), 0:1])
        rows = nl.zeros((n, D), dtype=table.dtype, buffer=nl.sbuf)
        ip, jf = nl.mgrid[0:n, 0:D]
        nisa.dma_copy(dst=rows[ip, jf], src=table[idx[ip, 0], jf], oob_mode=oob_mode.skip)
        keep = nl.not_equal(idx, pad_id, dtype=nl.float32)
        rows = nl.multiply(rows, keep)
        if scale is not None:
            rows = nl.multiply(rows, scale)
        nl.store(out[nl.ds(128 * t, n), :], value=rows)
    return out


@nki.jit
def scatter_gradients(grad_table, ids, grads):
    """grad_table [V, D] += grads [N, D] at rows ids [N, 1]; the table is an argument that the kernel copies."""
    V, D = grad_table.shape
    N = ids.shape[0]
    out = nl.ndarray((V, D), dtype=grad_table.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=grad_table)
    ip, jf = nl.mgrid[0:N, 0:D]
    idx = nl.load(ids)
    g = nl.load(grads)
    nl.atomic_rmw(out[idx[ip, 0], jf], value=g, op=np.add)
    return out


@nki.jit
def position_ids_of_segments(segment_ids):
    """segment_ids int32 [1, N]: the position of each token within its run of equal ids, and the length of the run."""
    _, N = segment_ids.shape
    positions = nl.ndarray((1, N), dtype=nl.int32, buffer=nl.shared_hbm)
    lengths = nl.ndarray((1, N), dtype=nl.int32, buffer=nl.shared_hbm)
    ids = nl.load(segment_ids, dtype=nl.float32)
    bounds = nisa.sequence_bounds(segment_ids=ids)
    column = nisa.iota(nl.arange(N)[None, :], dtype=nl.float32)
    start = bounds[:, 0, :]
    end = bounds[:, 1, :]
    position = nisa.tensor_tensor(column, start, op=np.subtract)
    length = nisa.tensor_tensor(end, start, op=np.subtract)
    is_token = nl.greater(ids, 0.0, dtype=nl.float32)
    nl.store(positions, nl.copy(nl.multiply(position, is_token), dtype=nl.int32))
    nl.store(lengths, nl.copy(nl.multiply(length, is_token), dtype=nl.int32))
    return positions, lengths


@nki.jit
def rotate_rows(x, shift: int = 1):
    """x [128, F]: the rows of each quadrant of 32 move by ``shift``; the first row of all quadrants, repeated."""
    P, F = x.shape
    moved = nl.ndarray((P, F), dtype=x.dtype, buffer=nl.shared_hbm)
    firsts = nl.ndarray((P, F), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    shuffled = nl.ndarray((P, F), dtype=x.dtype, buffer=nl.sbuf)
    repeated = nl.ndarray((P, F), dtype=x.dtype, buffer=nl.sbuf)
    nisa.nc_stream_shuffle(src=tile, dst=shuffled, shuffle_mask=[(i - shift) % 32 for i in range(32)])
    nisa.nc_stream_shuffle(src=tile, dst=repeated, shuffle_mask=[0] * 32)
    nl.store(moved, shuffled)
    nl.store(firsts, repeated)
    return moved, firsts


@nki.jit
def alibi_attention(q, k, v, slope: float = 0.25, causal: bool = True):
    """q, k [D, S], v [S, D]: a bias of -slope * distance, one tile of queries after the other."""
    D, S = q.shape
    out = nl.ndarray((S, D), dtype=q.dtype, buffer=nl.shared_hbm)
    block = min(S, 64)
    keys = nl.load(k)
    values = nl.load(v)
    for b in nl.affine_range(S // block):
        queries = nl.load(q[:, nl.ds(b * block, block)])
        qk = nisa.nc_matmul(queries, keys)
        i_q, i_k = nl.mgrid[0:block, 0:S]
        behind = nisa.iota(b * block + i_q - i_k, dtype=nl.float32)
        bias = nl.multiply(nl.abs(behind), -slope)
        scores = nl.add(qk, bias)
        if causal:
            scores = nisa.affine_select(pred=(b * block + i_q >= i_k), on_true_tile=scores[i_q, i_k],
                                        on_false_value=-3.0e38)
        neg_max = nisa.tensor_reduce(op=np.max, data=scores, axis=(1,), negate=True)
        total = nl.zeros((nl.par_dim(block), 1), dtype=nl.float32)
        p = nisa.activation(op=np.exp, data=scores, bias=neg_max, reduce_op=np.add, reduce_res=total[:, 0],
                            reduce_cmd=nisa.reduce_cmd.reset_reduce)
        p = nisa.tensor_scalar(p, np.multiply, nl.reciprocal(total))
        p_t = nl.copy(nisa.nc_transpose(p[:, 0:S]))
        nl.store(out[nl.ds(b * block, block), :], nl.matmul(p_t, values, transpose_x=True))
    return out


def cases():
    r = np.random.default_rng(47)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    ids = r.integers(0, 60, (200, 1)).astype(np.int32)
    return [(partial_rope, (f(150, 96), f(150, 12), f(150, 12), RopeOptions(32, 24))),
            (partial_rope, (f(64, 64), f(64, 16), f(64, 16), RopeOptions(32, interleaved=True))),
            (embed_tokens, (ids, f(50, 24))), (embed_tokens, (ids[:30], f(50, 24), 4.0, 7)),
            (scatter_gradients, (f(40, 16), r.permutation(40)[:30, None].astype(np.int32), f(30, 16))),
            (position_ids_of_segments, (np.array([[1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0]], np.int32),)),
            (rotate_rows, (f(128, 20), 5)),
            (alibi_attention, (f(32, 128), f(32, 128), f(128, 32))),
            (alibi_attention, (f(16, 32), f(16, 32), f(32, 16), 0.5, False))]
