# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention, an image enlarged by chunks with a halo, maxima of windows that the edge cuts."""
import os

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def attention_gradients(q_hbm, k_hbm, v_hbm, o_hbm, dy_hbm, logs_hbm, is_causal=False, mixed=False,
                   scale=None):
    """One head for each program; q, k, v, o, dy [B, H, D, S], logs [B, H, 128, S // 128]."""
    narrow = nl.bfloat16 if mixed else q_hbm.dtype
    wide = np.dtype(np.float32) if mixed else narrow
    assert q_hbm.dtype == k_hbm.dtype == v_hbm.dtype == o_hbm.dtype == dy_hbm.dtype, "one dtype"
    bs, heads, head_size, queries = q_hbm.shape
    _, _, _, keys = k_hbm.shape
    assert tuple(k_hbm.shape) == (bs, heads, head_size, keys), f"k has shape {k_hbm.shape}"
    toward_q = nl.ndarray((bs, heads, head_size, queries), dtype=q_hbm.dtype, buffer=nl.shared_hbm)
    toward_k = nl.ndarray((bs, heads, head_size, keys), dtype=q_hbm.dtype, buffer=nl.shared_hbm)
    toward_v = nl.ndarray((bs, heads, head_size, keys), dtype=q_hbm.dtype, buffer=nl.shared_hbm)
    scale = scale if scale else 1.0 / float(head_size ** 0.5)
    T = 128
    nq, nk = queries // T, keys // T
    batch = nl.program_id(axis=0)
    head = nl.program_id(axis=1)
    row_sums = nl.ndarray((nq, par_dim(T), 1), dtype=wide, buffer=nl.sbuf)
    for i in nl.affine_range(nq):
        dy = nl.load(dy_hbm[batch, head, :, nl.ds(i * T, T)], dtype=wide)
        o = nl.load(o_hbm[batch, head, :, nl.ds(i * T, T)], dtype=wide)
        prod = nl.multiply(dy, o)
        prod_T = nisa.nc_transpose(prod)
        row_sums[i, :, :] = nisa.tensor_reduce(np.add, prod_T, axis=(1,), dtype=wide)
    dq_acc = nl.zeros((nq, par_dim(head_size), T), dtype=wide)
    for j in nl.affine_range(nk):
        k_j = nl.load(k_hbm[batch, head, :, nl.ds(j * T, T)], dtype=narrow)
        v_j = nl.load(v_hbm[batch, head, :, nl.ds(j * T, T)], dtype=narrow)
        k_jT = nl.copy(nisa.nc_transpose(k_j), dtype=narrow)
        k_sums = nl.zeros((par_dim(head_size), T), dtype=np.float32, buffer=nl.psum)
        v_sums = nl.zeros((par_dim(head_size), T), dtype=np.float32, buffer=nl.psum)
        for i in nl.affine_range(nq):
            q_i = nl.multiply(nl.load(q_hbm[batch, head, :, nl.ds(i * T, T)], dtype=narrow), scale, dtype=narrow)
            dy_i = nl.load(dy_hbm[batch, head, :, nl.ds(i * T, T)], dtype=narrow)
            negative = nl.load(logs_hbm[batch, head, :, i]) * -1.0
            scores = nl.zeros((par_dim(T), T), dtype=np.float32, buffer=nl.psum)
            scores += nisa.nc_matmul(q_i, k_j)
            qk = nl.ndarray((par_dim(T), T), dtype=wide)
            if is_causal:
                iq, ik = nl.mgrid[0:T, 0:T]
                qk[...] = nisa.affine_select(pred=(i * T + iq >= j * T + ik), on_true_tile=nl.copy(scores),
                                             on_false_value=-9984.0, dtype=wide)
            else:
                qk[...] = nl.copy(scores, dtype=wide)
            p = nisa.activation(np.exp, qk, bias=negative, scale=1.0)
            p_narrow = nl.copy(p, dtype=narrow)
            dy_iT = nl.copy(nisa.nc_transpose(dy_i))
            v_sums += nisa.nc_matmul(dy_iT, p_narrow)
            toward_p = nl.zeros((par_dim(T), T), dtype=np.float32, buffer=nl.psum)
            toward_p += nisa.nc_matmul(dy_i, v_j)
            ds = nisa.scalar_tensor_tensor(data=toward_p, op0=np.subtract, operand0=row_sums[i], op1=np.multiply, operand1=p)
            ds_narrow = nl.copy(ds, dtype=narrow)
            q_iT = nl.copy(nisa.nc_transpose(q_i))
            k_sums += nisa.nc_matmul(q_iT, ds_narrow)
            ds_T = nl.copy(nisa.nc_transpose(ds_narrow))
            dq_local = nisa.nc_matmul(k_jT, ds_T)
            dq_acc[i] += dq_local * scale
        nl.store(toward_k[batch, head, :, nl.ds(j * T, T)], nl.copy(k_sums, dtype=q_hbm.dtype))
        nl.store(toward_v[batch, head, :, nl.ds(j * T, T)], nl.copy(v_sums, dtype=q_hbm.dtype))
    for i in nl.affine_range(nq):
        nl.store(toward_q[batch, head, :, nl.ds(i * T, T)], value=dq_acc[i])
    return toward_q, toward_k, toward_v


@nki.jit
def interpolate_bilinear_2x_fwd(src_arr, chunk_size=4):
    """[N, C, H, W] to [N, C, 2H - 2, 2W - 2], by chunks of rows that overlap by one; the border is left out."""
    N, C, H, W = src_arr.shape
    out = nl.ndarray((N, C, 2 * (H - 1), 2 * (W - 1)), dtype=src_arr.dtype, buffer=nl.shared_hbm)
    step = chunk_size - 1
    n_chunks = div_ceil(H - 1, step)
    for n in nl.affine_range(N):
        for c in nl.affine_range(n_chunks):
            i_p = nl.arange(C)[:, None, None]
            i_y = nl.arange(chunk_size)[None, :, None]
            i_x = nl.arange(W)[None, None, :]
            ok = c * step + i_y < H
            rows = nl.load(src_arr[n, i_p, c * step + i_y, i_x], mask=ok)
            v = nl.ndarray((par_dim(C), 2 * step, W), dtype=nl.float32)
            j_y = nl.arange(step)[None, :, None]
            inside = c * step + j_y < H - 1
            v[i_p, 2 * j_y, i_x] = nl.add(rows[i_p, j_y, i_x] * 0.75, rows[i_p, j_y + 1, i_x] * 0.25, mask=inside)
            v[i_p, 2 * j_y + 1, i_x] = nl.add(rows[i_p, j_y, i_x] * 0.25, rows[i_p, j_y + 1, i_x] * 0.75, mask=inside)
            h = nl.ndarray((par_dim(C), 2 * step, 2 * (W - 1)), dtype=nl.float32)
            k_y = nl.arange(2 * step)[None, :, None]
            k_x = nl.arange(W - 1)[None, None, :]
            here = 2 * c * step + k_y < 2 * (H - 1)
            h[i_p, k_y, 2 * k_x] = nl.add(0.75 * v[i_p, k_y, k_x], 0.25 * v[i_p, k_y, k_x + 1], mask=here)
            h[i_p, k_y, 2 * k_x + 1] = nl.add(0.25 * v[i_p, k_y, k_x], 0.75 * v[i_p, k_y, k_x + 1], mask=here)
            o_x = nl.arange(2 * (W - 1))[None, None, :]
            nl.store(out[n, i_p, 2 * c * step + k_y, o_x], h[i_p, k_y, o_x], mask=here)
    return out


def div_ceil(n, d):
    return (n + d - 1) // d


@nki.jit
def max_pool_stride1_tail(img, k: int = 3):
    """k x k windows, stride 1; the last rows and columns see what is left (masked)."""
    H, W = img.shape
    out = nl.ndarray((H, W), dtype=img.dtype, buffer=nl.shared_hbm)
    acc = nl.full((H, W), nl.fp32.min, dtype=nl.float32)
    i_p, i_w = nl.mgrid[0:H, 0:W]
    for dy in range(k):
        for dx in range(k):
            shifted = nl.load(img[i_p + dy, i_w + dx], mask=(i_p + dy < H) & (i_w + dx < W))
            acc[i_p, i_w] = nl.maximum(acc[i_p, i_w], shifted[i_p, i_w], mask=(i_p + dy < H) & (i_w + dx < W))
    nl.store(out, acc)
    return out


def cases():
    os.environ.setdefault("NEURON_CC_FLAGS", "--model-type=transformer")
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    q, k, v, o, dy = (f(1, 2, 32, 256) / 8 for _ in range(5))
    lse = 3 + np.abs(f(1, 2, 128, 2))
    return [(attention_gradients[1, 2], (q, k, v, o, dy, lse)), (attention_gradients[1, 2], (q, k, v, o, dy, lse, True)),
            (interpolate_bilinear_2x_fwd, (f(2, 8, 9, 10),)),
            (max_pool_stride1_tail, (f(32, 20),))]
