# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flash attention backward, allocated matmul, conv1d, interpolate, scripts."""
import logging
import os
from functools import reduce as functools_reduce
from operator import mul as operator_mul

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim

logger = logging.getLogger(__name__)


def n_elts(shape):
    return functools_reduce(operator_mul, shape, 1)


@nki.jit
def flash_attn_bwd(q_ref, k_ref, v_ref, o_ref, dy_ref, lse_ref, use_causal_mask=False, mixed_precision=False,
                   softmax_scale=None):
    """One head for each program; q, k, v, o, dy [bs, h, d, s], lse [bs, h, 128, s // 128]."""
    kernel_dtype = nl.bfloat16 if mixed_precision else q_ref.dtype
    mixed_dtype = np.dtype(np.float32) if mixed_precision else kernel_dtype
    assert q_ref.dtype == k_ref.dtype == v_ref.dtype == o_ref.dtype == dy_ref.dtype
    bs, nheads, d_head, seqlen_q = q_ref.shape
    _, _, _, seqlen_k = k_ref.shape
    assert tuple(k_ref.shape) == (bs, nheads, d_head, seqlen_k), f"Input K shape mismatch, got {k_ref.shape}"
    out_dq_ref = nl.ndarray((bs, nheads, d_head, seqlen_q), dtype=q_ref.dtype, buffer=nl.shared_hbm)
    out_dk_ref = nl.ndarray((bs, nheads, d_head, seqlen_k), dtype=q_ref.dtype, buffer=nl.shared_hbm)
    out_dv_ref = nl.ndarray((bs, nheads, d_head, seqlen_k), dtype=q_ref.dtype, buffer=nl.shared_hbm)
    softmax_scale = softmax_scale if softmax_scale else 1.0 / float(d_head ** 0.5)
    T = 128
    nq, nk = seqlen_q // T, seqlen_k // T
    batch_id = nl.program_id(axis=0)
    head_id = nl.program_id(axis=1)
    dy_o_sum = nl.ndarray((nq, par_dim(T), 1), dtype=mixed_dtype, buffer=nl.sbuf)
    for i in nl.affine_range(nq):
        dy = nl.load(dy_ref[batch_id, head_id, :, nl.ds(i * T, T)], dtype=mixed_dtype)
        o = nl.load(o_ref[batch_id, head_id, :, nl.ds(i * T, T)], dtype=mixed_dtype)
        prod = nl.multiply(dy, o)
        prod_T = nisa.nc_transpose(prod)
        dy_o_sum[i, :, :] = nisa.tensor_reduce(np.add, prod_T, axis=(1,), dtype=mixed_dtype)
    dq_acc = nl.zeros((nq, par_dim(d_head), T), dtype=mixed_dtype)
    for j in nl.affine_range(nk):
        k_j = nl.load(k_ref[batch_id, head_id, :, nl.ds(j * T, T)], dtype=kernel_dtype)
        v_j = nl.load(v_ref[batch_id, head_id, :, nl.ds(j * T, T)], dtype=kernel_dtype)
        k_jT = nl.copy(nisa.nc_transpose(k_j), dtype=kernel_dtype)
        dk_psum = nl.zeros((par_dim(d_head), T), dtype=np.float32, buffer=nl.psum)
        dv_psum = nl.zeros((par_dim(d_head), T), dtype=np.float32, buffer=nl.psum)
        for i in nl.affine_range(nq):
            q_i = nl.multiply(nl.load(q_ref[batch_id, head_id, :, nl.ds(i * T, T)], dtype=kernel_dtype), softmax_scale, dtype=kernel_dtype)
            dy_i = nl.load(dy_ref[batch_id, head_id, :, nl.ds(i * T, T)], dtype=kernel_dtype)
            neg_lse = nl.load(lse_ref[batch_id, head_id, :, i]) * -1.0
            qk_psum = nl.zeros((par_dim(T), T), dtype=np.float32, buffer=nl.psum)
            qk_psum += nisa.nc_matmul(q_i, k_j)
            qk = nl.ndarray((par_dim(T), T), dtype=mixed_dtype)
            if use_causal_mask:
                iq, ik = nl.mgrid[0:T, 0:T]
                qk[...] = nisa.affine_select(pred=(i * T + iq >= j * T + ik), on_true_tile=nl.copy(qk_psum),
                                             on_false_value=-9984.0, dtype=mixed_dtype)
            else:
                qk[...] = nl.copy(qk_psum, dtype=mixed_dtype)
            p = nisa.activation(np.exp, qk, bias=neg_lse, scale=1.0)
            p_cast = nl.copy(p, dtype=kernel_dtype)
            dy_iT = nl.copy(nisa.nc_transpose(dy_i))
            dv_psum += nisa.nc_matmul(dy_iT, p_cast)
            dp_psum = nl.zeros((par_dim(T), T), dtype=np.float32, buffer=nl.psum)
            dp_psum += nisa.nc_matmul(dy_i, v_j)
            ds = nisa.scalar_tensor_tensor(data=dp_psum, op0=np.subtract, operand0=dy_o_sum[i], op1=np.multiply, operand1=p)
            ds_cast = nl.copy(ds, dtype=kernel_dtype)
            q_iT = nl.copy(nisa.nc_transpose(q_i))
            dk_psum += nisa.nc_matmul(q_iT, ds_cast)
            ds_T = nl.copy(nisa.nc_transpose(ds_cast))
            dq_local = nisa.nc_matmul(k_jT, ds_T)
            dq_acc[i] += dq_local * softmax_scale
        nl.store(out_dk_ref[batch_id, head_id, :, nl.ds(j * T, T)], nl.copy(dk_psum, dtype=q_ref.dtype))
        nl.store(out_dv_ref[batch_id, head_id, :, nl.ds(j * T, T)], nl.copy(dv_psum, dtype=q_ref.dtype))
    for i in nl.affine_range(nq):
        nl.store(out_dq_ref[batch_id, head_id, :, nl.ds(i * T, T)], value=dq_acc[i])
    return out_dq_ref, out_dk_ref, out_dv_ref


@nki.jit
def nki_matmul_block_free_dimension(lhsT, rhs):
    """Blocks of rows and columns, k innermost."""
    K, M = lhsT.shape
    K_, N = rhs.shape
    assert K == K_, "lhsT and rhs must have the same contraction dimension"
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    TILE_M = nl.tile_size.gemm_stationary_fmax
    TILE_K = nl.tile_size.pmax
    TILE_N = nl.tile_size.gemm_moving_fmax
    TILES_IN_BLOCK_M, TILES_IN_BLOCK_N = 2, 1
    BLOCK_M, BLOCK_N = TILE_M * TILES_IN_BLOCK_M, TILE_N * TILES_IN_BLOCK_N
    assert M % BLOCK_M == 0
    assert N % BLOCK_N == 0
    for m in nl.affine_range(M // BLOCK_M):
        i_lhsT = nl.mgrid[0:TILE_K, 0:TILE_M]
        lhsT_tiles = nl.ndarray((TILES_IN_BLOCK_M, K // TILE_K, nl.par_dim(TILE_K), TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
        for bm in nl.affine_range(TILES_IN_BLOCK_M):
            for k in nl.affine_range(K // TILE_K):
                lhsT_tiles[bm, k, i_lhsT.p, i_lhsT.x] = nl.load(
                    lhsT[k * TILE_K + i_lhsT.p, (m * TILES_IN_BLOCK_M + bm) * TILE_M + i_lhsT.x])
        for n in nl.affine_range(N // BLOCK_N):
            i_rhs = nl.mgrid[0:TILE_K, 0:TILE_N]
            rhs_tiles = nl.ndarray((TILES_IN_BLOCK_N, K // TILE_K, nl.par_dim(TILE_K), TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
            for bn in nl.affine_range(TILES_IN_BLOCK_N):
                for k in nl.affine_range(K // TILE_K):
                    rhs_tiles[bn, k, i_rhs.p, i_rhs.x] = nl.load(rhs[k * TILE_K + i_rhs.p, (n * TILES_IN_BLOCK_N + bn) * TILE_N + i_rhs.x])
            for bm in nl.affine_range(TILES_IN_BLOCK_M):
                for bn in nl.affine_range(TILES_IN_BLOCK_N):
                    res_tile = nl.zeros((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(K // TILE_K):
                        res_tile[...] += nl.matmul(lhsT_tiles[bm, k, i_lhsT.p, i_lhsT.x], rhs_tiles[bn, k, i_rhs.p, i_rhs.x], transpose_x=True)
                    res_sb = nl.copy(res_tile, dtype=result.dtype)
                    i_res = nl.mgrid[0:TILE_K, 0:TILE_N]
                    nl.store(result[(m * TILES_IN_BLOCK_M + bm) * TILE_M + i_res.p, (n * TILES_IN_BLOCK_N + bn) * TILE_N + i_res.x], value=res_sb)
    return result


@nki.jit
def interpolate_bilinear_2x_fwd(src_arr, chunk_size=4):
    """[N, C, H, W] -> [N, C, 2H-2... as tiles of rows with halo; interior only."""
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
def tensor_avgpool_kernel(in_tensor, pool_size):
    sz_cin, sz_hin, sz_win = in_tensor.shape
    sz_hout = sz_hin // pool_size
    sz_wout = sz_win // pool_size
    out_tensor = nl.ndarray((sz_cin, sz_hout, sz_wout), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    sz_p = sz_cin
    sz_pool = pool_size
    i0 = nl.arange(sz_p)[:, None, None, None, None]
    i1 = nl.arange(sz_hin // sz_pool)[None, :, None, None, None]
    i2 = nl.arange(sz_pool)[None, None, :, None, None]
    i3 = nl.arange(sz_win // sz_pool)[None, None, None, :, None]
    i4 = nl.arange(sz_pool)[None, None, None, None, :]
    in_tile: tensor[sz_p, sz_hin, sz_win] = nl.load(in_tensor)
    out_tile = nl.sum(in_tile[i0, sz_pool * i1 + i2, sz_pool * i3 + i4], axis=[2, 4]) / (pool_size * pool_size)
    nl.store(out_tensor[...], value=out_tile)
    return out_tensor


def tensor(*_):
    return None


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
    return [(flash_attn_bwd[1, 2], (q, k, v, o, dy, lse)), (flash_attn_bwd[1, 2], (q, k, v, o, dy, lse, True)),
            (nki_matmul_block_free_dimension, (np.rint(4 * f(256, 256)), np.rint(4 * f(256, 512)))), (interpolate_bilinear_2x_fwd, (f(2, 8, 9, 10),)),
            (tensor_avgpool_kernel, (f(16, 8, 12), 2)), (max_pool_stride1_tail, (f(32, 20),))]
