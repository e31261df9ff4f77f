# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flash attention forward and backward, GQA, masks and configs."""
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


@dataclass(frozen=True)
class FlashConfig:
    """Config of the flash attention kernel."""
    seq_tile_size: int = 256
    training: bool = True
    should_transpose_v: bool = False

    __annotations__ = {'seq_tile_size': int, 'training': bool, 'should_transpose_v': bool}


@nki.jit(mode='trace')
def transpose_p_local(p_local_transposed, p_local, LARGE_TILE_SZ, B_F=128):
    for i in nl.affine_range(LARGE_TILE_SZ // B_F):
        p_local_t_tmp = nl.ndarray((par_dim(128), B_F), buffer=nl.psum, dtype=np.float32)
        for j in nl.affine_range(B_F // 128):
            j_128_slice = nl.ds(j * 128, 128)
            i_j_128_slice = nl.ds(i * B_F + j * 128, 128)
            p_local_t_tmp[:, j_128_slice] = nisa.nc_transpose(p_local[:, i_j_128_slice])
        p_local_transposed[:, nl.ds(i * B_F, B_F)] = nl.copy(p_local_t_tmp, dtype=p_local_transposed.dtype)


@nki.jit(mode='trace')
def attention_core(q_local_tile, k, v, q_h_per_k_h, seqlen_q, nheads, o_buffer, l_buffer, m_buffer, batch_id, head_id,
                   gqa_head_idx, q_tile_idx, local_k_large_tile_idx, kernel_dtype, acc_type, flash_config, use_causal_mask,
                   initialize, B_P_SIZE=128, B_F_SIZE=128, B_D_SIZE=64):
    LARGE_TILE_SZ = flash_config.seq_tile_size
    num_k_tile_per_large_tile = LARGE_TILE_SZ // B_F_SIZE
    qk_res_buf = nl.ndarray((par_dim(B_P_SIZE), LARGE_TILE_SZ), buffer=nl.sbuf, dtype=acc_type)
    max_local = nl.ndarray((par_dim(B_P_SIZE), num_k_tile_per_large_tile), dtype=acc_type)
    for k_i in nl.affine_range(num_k_tile_per_large_tile):
        k_i_b_f_slice = nl.ds(k_i * B_F_SIZE, B_F_SIZE)
        qk_psum = nl.zeros((par_dim(B_P_SIZE), B_F_SIZE), dtype=np.float32, buffer=nl.psum)
        if use_causal_mask:
            multiplication_required_selection = local_k_large_tile_idx * LARGE_TILE_SZ + k_i * B_F_SIZE <= q_tile_idx * B_P_SIZE
        else:
            multiplication_required_selection = True
        if multiplication_required_selection:
            qk_psum[:, :] = nl.matmul(q_local_tile, k[:, k_i_b_f_slice], transpose_x=True)
        else:
            qk_psum[:, :] = 0
        if use_causal_mask:
            left_diagonal_selection = q_tile_idx * B_P_SIZE >= local_k_large_tile_idx * LARGE_TILE_SZ + (k_i + 1) * B_F_SIZE
            diagonal_and_right_selection = (q_tile_idx * B_P_SIZE < local_k_large_tile_idx * LARGE_TILE_SZ + (k_i + 1) * B_F_SIZE)
            i_q_p, i_q_f = nl.mgrid[0:B_P_SIZE, 0:B_F_SIZE]
            q_pos = q_tile_idx * B_P_SIZE + i_q_p
            k_pos = local_k_large_tile_idx * LARGE_TILE_SZ + k_i * B_F_SIZE + i_q_f
            pred = q_pos >= k_pos
            qk_select_tmp = nl.ndarray(qk_psum.shape, dtype=qk_psum.dtype, buffer=nl.sbuf)
            qk_select_tmp[...] = nl.copy(qk_psum, dtype=qk_select_tmp.dtype)
            if left_diagonal_selection:
                qk_res_buf[:, k_i_b_f_slice] = nl.copy(qk_psum, dtype=acc_type)
            if diagonal_and_right_selection:
                qk_res_buf[:, k_i_b_f_slice] = nisa.affine_select(pred=pred, on_true_tile=qk_select_tmp,
                                                                  on_false_value=-9984.0, dtype=acc_type)
        else:
            qk_res_buf[:, k_i_b_f_slice] = nl.copy(qk_psum, dtype=acc_type)
        max_local[:, k_i] = nisa.tensor_reduce(np.max, qk_res_buf[:, k_i_b_f_slice], axis=(1,), dtype=acc_type, negate=False)
    max_ = nisa.tensor_reduce(np.max, max_local[:, :], axis=(1,), dtype=acc_type, negate=False)
    o_previous_scaled = nl.ndarray((par_dim(B_P_SIZE), B_D_SIZE), dtype=o_buffer.dtype)
    if initialize:
        m_buffer[:, 0] = nl.copy(max_)
        m_current = max_
    else:
        m_previous = nl.copy(m_buffer[:, 0])
        m_buffer[:, 0] = nl.maximum(m_previous, max_)
        m_current = m_buffer[:, 0]
        alpha = nisa.activation(np.exp, m_current, bias=m_previous, scale=-1.0)
        o_previous_scaled[...] = nl.multiply(o_buffer[:, :], alpha)
    p_local = nl.ndarray((par_dim(B_P_SIZE), LARGE_TILE_SZ), dtype=kernel_dtype)
    REDUCTION_TILE = min(2048, LARGE_TILE_SZ // 2)
    p_partial_sum = nl.ndarray((par_dim(B_P_SIZE), LARGE_TILE_SZ // REDUCTION_TILE), dtype=acc_type)
    for k_r_i in nl.affine_range(LARGE_TILE_SZ // REDUCTION_TILE):
        k_r_i_reduce_slice = nl.ds(k_r_i * REDUCTION_TILE, REDUCTION_TILE)
        p_local[:, k_r_i_reduce_slice] = nisa.activation_reduce(
            np.exp, qk_res_buf[:, k_r_i_reduce_slice], bias=-1 * m_current, scale=1.0, reduce_op=nl.add,
            reduce_res=p_partial_sum[:, k_r_i], dtype=kernel_dtype)
    ps = nl.sum(p_partial_sum, axis=1, dtype=acc_type)
    p_local_transposed = nl.ndarray((par_dim(B_P_SIZE), LARGE_TILE_SZ), dtype=kernel_dtype)
    transpose_p_local(p_local_transposed=p_local_transposed, p_local=p_local, LARGE_TILE_SZ=LARGE_TILE_SZ)
    pv_psum = nl.zeros((par_dim(B_P_SIZE), B_D_SIZE), dtype=np.float32, buffer=nl.psum, lazy_initialization=True)
    for k_i in nl.affine_range(LARGE_TILE_SZ // B_P_SIZE):
        pv_psum[:, :] += nl.matmul(p_local_transposed[:, nl.ds(k_i * B_P_SIZE, B_P_SIZE)], v[k_i, :, :], transpose_x=True)
    if initialize:
        o_buffer[:, :] = nl.copy(pv_psum[:, :])
        l_buffer[:, 0] = nl.add(nl.log(ps), max_)
    else:
        o_buffer[:, :] = nl.add(o_previous_scaled, pv_psum)
        exp = nisa.activation(nl.exp, m_current, bias=l_buffer[:, 0], scale=-1.0)
        l_buffer[:, 0] = nl.add(m_current, nisa.activation(nl.log, exp, bias=ps))


@nki.jit(mode='trace')
def load_v_tile(v_hbm_tile, cur_v_tile, j, v_i, config):
    LARGE_TILE_SZ = config.seq_tile_size
    B_P_SIZE = 128
    if not config.should_transpose_v:
        cur_v_tile[v_i, :, :] = nl.load(v_hbm_tile[nl.ds(j * LARGE_TILE_SZ + B_P_SIZE * v_i, B_P_SIZE), :], dtype=cur_v_tile.dtype)
        return
    v_tile_transposed = nisa.nc_transpose(nl.load(v_hbm_tile[:, nl.ds(j * LARGE_TILE_SZ + B_P_SIZE * v_i, B_P_SIZE)], dtype=cur_v_tile.dtype))
    cur_v_tile[v_i, :, :] = nisa.tensor_copy(v_tile_transposed, dtype=cur_v_tile.dtype)


@nki.jit
def flash_fwd(q, k, v, softmax_scale=None, use_causal_mask=True, mixed_precision=True, config=None):
    """
    Flash attention forward.

    IO tensor layouts:
      - q: shape   (bs, n_heads, d, seq_q)
      - k: shape   (bs, nk_heads, d, seq_k)
      - v: shape   (bs, nv_heads, seq_v, d)
    """
    config = config or FlashConfig()
    B_F_SIZE = 128
    B_P_SIZE = 128
    b, h, d, seqlen_q = q.shape
    B_D_SIZE = d
    _, k_h, _, seqlen_k = k.shape
    if config.should_transpose_v:
        assert tuple(v.shape) == (b, k_h, d, seqlen_k), f"Expect shape of V to be {(b, k_h, d, seqlen_k)} (batch, heads, d_head, seqlen_k) but got {v.shape}"
    else:
        assert tuple(v.shape) == (b, k_h, seqlen_k, d), f"Expect shape of V to be {(b, k_h, seqlen_k, d)} (batch, heads, seqlen_k, d_head) but got {v.shape}"
    assert d <= 128, f" we do not support head_dim > 128, got head dim {d}"
    kernel_dtype = nl.bfloat16 if mixed_precision else q.dtype
    acc_type = np.dtype(np.float32) if mixed_precision else kernel_dtype
    o = nl.ndarray((b, h, seqlen_q, d), dtype=q.dtype, buffer=nl.shared_hbm)
    if config.training:
        lse = nl.ndarray((b, h, nl.tile_size.pmax, seqlen_q // nl.tile_size.pmax), dtype=acc_type, buffer=nl.shared_hbm)
    else:
        lse = None
    assert nl.program_ndim() == 2, f'Expect spmd grid with 2 dimensions, got {nl.program_ndim()} instead!'
    batch_id = nl.program_id(axis=0)
    head_id = nl.program_id(axis=1)
    softmax_scale = softmax_scale or (1.0 / (d ** 0.5))
    n_tile_q = seqlen_q // B_P_SIZE
    LARGE_TILE_SZ = config.seq_tile_size
    assert config.seq_tile_size >= 128, f" seq tile_size {config.seq_tile_size} cannot be less than 128"
    assert seqlen_k % LARGE_TILE_SZ == 0, f"Need seqlen_k to be divisible by {LARGE_TILE_SZ} but got {seqlen_k}"
    num_large_k_tile = seqlen_k // LARGE_TILE_SZ
    q_h_per_k_h = h // k_h
    for i_q_h in nl.affine_range(q_h_per_k_h):
        l_buffer = nl.zeros((par_dim(B_P_SIZE), n_tile_q), dtype=acc_type, buffer=nl.sbuf, lazy_initialization=True)
        o_buffer = nl.zeros((n_tile_q, par_dim(B_P_SIZE), d), dtype=acc_type, buffer=nl.sbuf, lazy_initialization=True)
        m_buffer = nl.zeros((n_tile_q, par_dim(B_P_SIZE), 1), dtype=acc_type, buffer=nl.sbuf, lazy_initialization=True)
        for j in nl.sequential_range(0, num_large_k_tile):
            cur_k_tile = nl.ndarray((par_dim(B_D_SIZE), LARGE_TILE_SZ), dtype=kernel_dtype)
            cur_v_tile = nl.ndarray((LARGE_TILE_SZ // B_P_SIZE, par_dim(B_P_SIZE), B_D_SIZE), dtype=kernel_dtype)
            cur_k_tile[:, :] = nl.load(k[batch_id, head_id, :, nl.ds(j * LARGE_TILE_SZ, LARGE_TILE_SZ)], dtype=cur_k_tile.dtype)
            load_tile_size = B_P_SIZE
            v_hbm_tile = v[batch_id, head_id]
            for v_i in nl.affine_range(LARGE_TILE_SZ // load_tile_size):
                load_v_tile(v_hbm_tile=v_hbm_tile, cur_v_tile=cur_v_tile, j=j, v_i=v_i, config=config)
            for i in nl.affine_range(n_tile_q):
                q_tile = nl.ndarray((B_D_SIZE, B_P_SIZE), dtype=kernel_dtype)
                q_hbm_tile = q[batch_id, head_id * q_h_per_k_h + i_q_h]
                q_sbuf_tile = nl.load(q_hbm_tile[:, nl.ds(i * B_P_SIZE, B_P_SIZE)], dtype=kernel_dtype)
                q_tile[:, :] = q_sbuf_tile * softmax_scale
                attention_core(q_local_tile=q_tile, k=cur_k_tile, v=cur_v_tile, q_h_per_k_h=q_h_per_k_h, seqlen_q=seqlen_q,
                               nheads=h, o_buffer=o_buffer[i], l_buffer=l_buffer[:, i], m_buffer=m_buffer[i],
                               batch_id=batch_id, head_id=head_id, gqa_head_idx=i_q_h, q_tile_idx=i,
                               local_k_large_tile_idx=j, kernel_dtype=kernel_dtype, acc_type=acc_type,
                               flash_config=config, use_causal_mask=use_causal_mask, initialize=j == 0, B_D_SIZE=d)
        for i in nl.affine_range(n_tile_q):
            out = nl.ndarray((par_dim(B_P_SIZE), B_D_SIZE), dtype=kernel_dtype)
            exp = nisa.activation(np.exp, l_buffer[:, i], bias=m_buffer[i, :, :], scale=-1.0)
            out[:, :] = nl.multiply(o_buffer[i, :, :], exp, dtype=kernel_dtype)
            nl.store(o[batch_id, head_id * q_h_per_k_h + i_q_h, nl.ds(i * B_P_SIZE, B_P_SIZE), :], out)
        if config.training:
            nl.store(lse[batch_id, head_id * q_h_per_k_h + i_q_h, :, :], l_buffer[:, :])
    if config.training:
        return o, lse
    return o


def cases():
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    q, k, v = f(1, 2, 64, 256), f(1, 1, 64, 512), f(1, 1, 512, 64)
    return [(flash_fwd[1, 1], (q, k, v, None, True, False)), (flash_fwd[1, 1], (q, k, v, 0.25, False, False))]
