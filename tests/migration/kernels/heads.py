# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in the beta generation: gradients of queries, keys and values, dropout, differences, and linear states."""

import math
from typing import NamedTuple

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim

NEG_INF = -9984.0


class BackwardConfig(NamedTuple):
    """Sizes of the blocks of the backward pass, and the probability of dropout."""

    q_tile: int = 128
    k_tile: int = 128
    dropout_p: float = 0.0


@nki.jit(mode="trace")
def load_tile(src, block, size, scale=None):
    """Load columns of [d, seq]; queries are scaled while they are loaded."""
    tile = nl.load(src[:, nl.ds(block * size, size)], dtype=nl.float32)
    if scale is not None:
        tile = nl.multiply(tile, scale)
    return tile


@nki.jit(mode="trace")
def rowsum_of_products(o_ref, dy_ref, n_tiles, size):
    """The sum over d of o * dy for each query, negated, as columns of one tile."""
    sums = nl.ndarray((par_dim(size), n_tiles), dtype=nl.float32, buffer=nl.sbuf)
    for t in nl.affine_range(n_tiles):
        o = nl.load_transpose2d(o_ref[:, nl.ds(t * size, size)])
        dy = nl.load_transpose2d(dy_ref[:, nl.ds(t * size, size)])
        product = nl.multiply(o, dy, dtype=nl.float32)
        sums[:, t] = nisa.tensor_reduce(np.add, data=product, axis=(1,), negate=True)
    return sums


@nki.jit
def flash_attention_bwd(q_ref, k_ref, v_ref, o_ref, dy_ref, lse_ref, use_causal_mask=True, softmax_scale=None,
                        config: BackwardConfig = BackwardConfig()):
    """
    Gradients of softmax(scale * q^T k) v of one batch and head per program.

    IO tensor layouts:
      - q, k, v, o, dy, dq, dk, dv: (bs, nheads, d, seq)
      - lse: (bs, nheads, 128, seq // 128), logarithms of the sums of exponentials
    """
    bs, nheads, d, seqlen = q_ref.shape
    assert tuple(k_ref.shape) == (bs, nheads, d, seqlen), f"Input K shape mismatch, got {k_ref.shape}"
    assert v_ref.shape == k_ref.shape and dy_ref.shape == q_ref.shape, "Inputs have the same shape"
    dq_ref = nl.ndarray(q_ref.shape, dtype=q_ref.dtype, buffer=nl.shared_hbm)
    dk_ref = nl.ndarray(k_ref.shape, dtype=k_ref.dtype, buffer=nl.shared_hbm)
    dv_ref = nl.ndarray(v_ref.shape, dtype=v_ref.dtype, buffer=nl.shared_hbm)
    assert nl.program_ndim() == 2, f"Expect spmd grid with 2 dimensions, got {nl.program_ndim()} instead!"
    batch_id = nl.program_id(axis=0)
    head_id = nl.program_id(axis=1)
    scale = softmax_scale or 1.0 / math.sqrt(d)
    qb, kb = config.q_tile, config.k_tile
    num_q, num_k = seqlen // qb, seqlen // kb

    lse = nl.load(lse_ref[batch_id, head_id, :, :])
    dy_o_sum = rowsum_of_products(o_ref[batch_id, head_id], dy_ref[batch_id, head_id], num_q, qb)

    dq_acc = nl.zeros((par_dim(d), num_q, qb), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(num_k):
        dk_psum = nl.zeros((par_dim(d), kb), dtype=np.float32, buffer=nl.psum)
        dv_psum = nl.zeros((par_dim(d), kb), dtype=np.float32, buffer=nl.psum)
        k_tile = load_tile(k_ref[batch_id, head_id], j, kb)
        v_tile = load_tile(v_ref[batch_id, head_id], j, kb)
        k_trans = nl.copy(nisa.nc_transpose(k_tile))
        for i in nl.affine_range(num_q):
            q_tile = load_tile(q_ref[batch_id, head_id], i, qb, scale)
            dy_tile = load_tile(dy_ref[batch_id, head_id], i, qb)
            q_trans = nl.copy(nisa.nc_transpose(q_tile))
            dy_trans = nl.copy(nisa.nc_transpose(dy_tile))
            i_q = nl.arange(qb)[:, None]
            i_k = nl.arange(kb)[None, :]
            causal = (i * qb + i_q >= j * kb + i_k) if use_causal_mask else None
            scores = nl.full((par_dim(qb), kb), NEG_INF, dtype=nl.float32)
            scores[i_q, i_k] = nisa.tensor_copy(nisa.nc_matmul(q_tile, k_tile), mask=causal)
            # p = exp(scores - lse)
            neg_lse = nl.multiply(lse[:, nl.ds(i, 1)], -1.0)
            p = nisa.activation(np.exp, scores, bias=neg_lse, scale=1.0)
            dv_psum[:, :] += nisa.nc_matmul(dy_trans, p)
            # ds = p * (dp - sum(dy * o))
            dp = nisa.nc_matmul(dy_tile, v_tile)
            ds = nisa.scalar_tensor_tensor(data=dp, op0=np.add, operand0=dy_o_sum[:, i], op1=np.multiply, operand1=p)
            dk_psum[:, :] += nisa.nc_matmul(q_trans, ds)
            ds_trans = nl.copy(nisa.nc_transpose(ds))
            dq_local = nisa.nc_matmul(k_trans, ds_trans)
            dq_acc[:, i, :] = nl.loop_reduce(dq_local, op=np.add, loop_indices=(j,), dtype=nl.float32)
        nl.store(dk_ref[batch_id, head_id, :, nl.ds(j * kb, kb)], value=dk_psum)
        nl.store(dv_ref[batch_id, head_id, :, nl.ds(j * kb, kb)], value=dv_psum)
    for i in nl.affine_range(num_q):
        nl.store(dq_ref[batch_id, head_id, :, nl.ds(i * qb, qb)], value=nl.multiply(dq_acc[:, i], scale))
    return dq_ref, dk_ref, dv_ref


@nki.jit
def attention_with_dropout(q, k, v, seed, dropout_p=0.25, scale=1.0):
    """q, k (d, s), v (s, d): probabilities are dropped and the rest is enlarged; the seed is a tile of one integer."""
    d, s = q.shape
    out = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    q_tile, k_tile, v_tile = nl.load(q), nl.load(k), nl.load(v)
    if dropout_p > 0.0:
        seed_local = nl.load(seed)
        nl.random_seed(seed=seed_local)
        keep = nl.full((s, 1), fill_value=dropout_p, dtype=nl.float32)
    scores = nl.multiply(nl.matmul(q_tile, k_tile, transpose_x=True), scale)
    largest = nl.max(scores, axis=[1], keepdims=True)
    p = nl.exp(nl.subtract(scores, largest))
    total = nl.sum(p, axis=[1], keepdims=True)
    if dropout_p > 0.0:
        p = nl.dropout(p, rate=keep[:, 0])
        p = nl.multiply(p, 1 / (1 - dropout_p))
    p_t = nl.copy(nl.transpose(p))
    context = nl.matmul(p_t, v_tile, transpose_x=True)
    nl.store(out, value=nl.multiply(context, nl.reciprocal(total)))
    return out


@nki.jit
def differential_attention(q1, q2, k1, k2, v, lam: float = 0.5):
    """q, k (heads, d, s), v (heads, s, d): the difference of two softmaxes, then the root mean square over d."""
    h, _, s = q1.shape
    _, _, width = v.shape
    out = nl.ndarray((h, s, width), dtype=v.dtype, buffer=nl.shared_hbm)

    def softmax_of(q, k):
        qk = nisa.nc_matmul(q, k)
        row_max = nisa.tensor_reduce(np.max, qk, axis=1, negate=True)
        row_sum = nl.ndarray((par_dim(s), 1), dtype=nl.float32, buffer=nl.sbuf)
        e = nisa.activation_reduce(np.exp, qk, bias=row_max, reduce_op=np.add, reduce_res=row_sum)
        return nisa.tensor_scalar(e, np.multiply, nisa.reciprocal(row_sum))

    for i in nl.affine_range(h):
        first, second = [softmax_of(nl.load(q[i]), nl.load(k[i])) for q, k in ((q1, k1), (q2, k2))]
        weights = nisa.scalar_tensor_tensor(data=second, op0=np.multiply, operand0=-lam, op1=np.add, operand1=first)
        w_t = nisa.tensor_copy(nisa.nc_transpose(weights), dtype=v.dtype)
        y = nl.copy(nisa.nc_matmul(w_t, nl.load(v[i])), dtype=nl.float32)
        mean_square = nl.mean(y * y, axis=1, keepdims=True)
        y *= nl.rsqrt(mean_square + 1e-5)
        nl.store(out[i], y * (1 - lam))
    return out


@nki.jit
def linear_attention_in_chunks(q, k, v, decay, chunk=32):
    """q, k (s, d), v (s, e), decay (1, 1): a state (d, e) is carried from one chunk to the next one."""
    s, d = q.shape
    e = v.shape[1]
    out = nl.ndarray((s, e), dtype=q.dtype, buffer=nl.shared_hbm)
    state = nl.zeros((par_dim(d), e), dtype=nl.float32, buffer=nl.sbuf)
    rate = nl.load(decay).broadcast_to((d, 1))
    for c in nl.sequential_range(s // chunk):
        rows = slice(c * chunk, (c + 1) * chunk)
        q_c, k_c, v_c = nl.load(q[rows, :]), nl.load(k[rows, :]), nl.load(v[rows, :])
        q_t = nl.copy(nisa.nc_transpose(q_c))
        k_t = nl.copy(nisa.nc_transpose(k_c))
        scores = nl.matmul(k_t, q_t, transpose_x=True)
        i_k, i_q = nl.mgrid[0:chunk, 0:chunk]
        seen = nisa.affine_select(pred=(i_q >= i_k), on_true_tile=nl.copy(scores), on_false_value=0.0)
        inside = nl.matmul(seen, v_c, transpose_x=True)
        before = nl.matmul(q_t, state, transpose_x=True)
        nl.store(out[rows, :], inside + before)
        state[...] = state * rate + nl.matmul(k_c, v_c, transpose_x=True)
    return out


def cases():
    r = np.random.default_rng(31)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    shape = (1, 2, 32, 256)
    logs = np.float32(4 + r.random((1, 2, 128, 2)))
    q, k, v, o, dy = (f(*shape) / 8 for _ in range(5))
    return [(flash_attention_bwd[1, 2], (q, k, v, o, dy, logs)),
            (flash_attention_bwd[1, 2], (q, k, v, o, dy, logs, False, 0.25)),
            (attention_with_dropout, (f(32, 64), f(32, 64), f(64, 32), np.array([[7]], np.int32))),
            (attention_with_dropout, (f(32, 64), f(32, 64), f(64, 32), np.array([[7]], np.int32), 0.0)),
            (differential_attention, (f(2, 16, 96), f(2, 16, 96), f(2, 16, 96), f(2, 16, 96), f(2, 96, 24), 0.3)),
            (linear_attention_in_chunks, (f(128, 16), f(128, 16), f(128, 24), np.array([[0.9]], np.float32)))]
