# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation with windows, blocks and masks on both axes, as public repositories have them."""
import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def tensor_maxpool_kernel_(in_tensor, sz_pool):
    # Get input/output dimensions
    sz_p, sz_hin, sz_win = in_tensor.shape
    sz_hout, sz_wout = sz_hin - sz_pool + 1, sz_win - sz_pool + 1
    out_tensor = nl.ndarray((sz_p, sz_hout, sz_wout), dtype=in_tensor.dtype, buffer=nl.shared_hbm)

    # Set relevant sizes
    i_p = nl.arange(sz_p)[:, None, None]
    i_win = nl.arange(sz_win)[None, None, :]
    i_hin = nl.arange(sz_hin)[None, :, None]
    i_wout = nl.arange(sz_wout)[None, None, :]
    i_hout = nl.arange(sz_hout)[None, :, None]

    # Generate pool index patterns
    i_0 = nl.arange(sz_p)[:, None, None, None, None]
    i_1 = nl.arange(sz_hin - sz_pool + 1)[None, :, None, None, None]
    i_2 = nl.arange(sz_win - sz_pool + 1)[None, None, :, None, None]
    i_3 = nl.arange(sz_pool)[None, None, None, :, None]
    i_4 = nl.arange(sz_pool)[None, None, None, None, :]

    in_tile = nl.load(in_tensor[i_p, i_hin, i_win])
    out_tile = nl.max(in_tile[i_0, i_1 + i_3, i_2 + i_4], axis=[3, 4])
    nl.store(out_tensor[i_p, i_hout, i_wout], value=out_tile)
    return out_tensor



@nki.jit
def resize_nearest_fixed_dma_kernel(data_tensor, out_shape):
    in_b, in_h, in_w, in_c = data_tensor.shape
    out_b, out_h, out_w, out_c = out_shape
    out_tensor = nl.ndarray(out_shape, dtype=data_tensor.dtype, buffer=nl.shared_hbm)
    h_scale, w_scale = 1.0 * in_h / out_h, 1.0 * in_w / out_w
    map_h = np.floor(np.arange(out_h) * h_scale).astype(int)
    map_w = np.floor(np.arange(out_w) * w_scale).astype(int)
    for b_map in nl.affine_range(in_b):
        for i in range(out_h):
            for j in range(out_w):
                target = nl.load(data_tensor[b_map, map_h[i], map_w[j]:map_w[j] + 1, :])
                nl.store(out_tensor[b_map, i, j:j + 1, :], value=target)
    return out_tensor



@nki.jit
def nki_fused_rms_norm_qkv(hidden, weights, norm_dtype=nl.float32, eps=1e-6):
    batch, batchless_shape = hidden.shape[0], hidden.shape[1:]
    seqlen, dim = batchless_shape
    _dim, head_dim = weights.shape
    assert batchless_shape[1] == _dim, "Reduction dimension must match"
    pmax, fmax = nl.tile_size.pmax, 64
    ix, iy = nl.mgrid[0:pmax, 0:dim]
    i_lhs = nl.mgrid[0:pmax, 0:pmax]
    i_rhs = nl.mgrid[0:pmax, 0:fmax]
    i_res = nl.mgrid[0:pmax, 0:fmax]
    M = math.ceil(dim / pmax)
    NUM_TRANSP_TILES = math.ceil(dim / fmax)
    NUM_TILES = math.ceil(seqlen / pmax)
    TILES_INT = math.ceil(NUM_TILES / 2)
    scale = 1 / dim
    out_tensor = nl.ndarray((batch, seqlen, head_dim), dtype=hidden.dtype, buffer=nl.shared_hbm)
    iden_x, iden_y = nl.mgrid[0:pmax, 0:128]
    identity_a = nl.shared_constant(np.identity(n=128, dtype=np.int8), dtype=hidden.dtype)
    identity_tensor = nl.ndarray((par_dim(128), 128), dtype=weights.dtype, buffer=nl.sbuf)
    identity_tensor[iden_x, iden_y] = nl.load(identity_a, dtype=weights.dtype)
    bias_placeholder = nl.ndarray((par_dim(pmax), 1), dtype=np.float32, buffer=nl.sbuf)
    bias_placeholder[...] = 0
    weights_buffer = nl.ndarray((M, par_dim(pmax), head_dim), dtype=weights.dtype, buffer=nl.sbuf)
    for m in nl.affine_range(M):
        weights_buffer[m, i_rhs.p, nl.arange(head_dim)[None, :]] = nl.load(
            weights[m * pmax + nl.arange(pmax)[:, None], nl.arange(head_dim)[None, :]])
    for b in nl.affine_range(batch):
        for i in nl.affine_range(NUM_TILES):
            in_tile = nl.load(hidden[b, i * pmax + ix, iy], mask=(i * pmax + ix < seqlen))
            square_sum = nl.ndarray((par_dim(pmax), 1), dtype=norm_dtype, buffer=nl.sbuf)
            act = nisa.activation_reduce(op=nl.square, data=in_tile, reduce_op=np.add, reduce_res=square_sum[...],
                                         bias=bias_placeholder[...])
            inv = nisa.tensor_scalar(square_sum, np.multiply, scale, op1=np.add, operand1=eps)
            inv = nl.rsqrt(inv)
            out_tile = nl.multiply(in_tile, inv, dtype=weights.dtype)
            res_psum = nl.zeros((par_dim(pmax), head_dim), dtype=nl.float32, buffer=nl.psum)
            for m in nl.affine_range(M):
                trans = nisa.nc_transpose(out_tile[i_lhs.p, m * pmax + i_lhs.x])
                lhs = nl.ndarray((par_dim(pmax), pmax), dtype=weights.dtype, buffer=nl.sbuf)
                lhs[i_lhs.p, i_lhs.x] = nl.copy(trans, dtype=weights.dtype)
                res_psum += nisa.nc_matmul(lhs, weights_buffer[m])
            res_sb = nl.copy(res_psum, dtype=hidden.dtype)
            nl.store(out_tensor[b, i * pmax + nl.arange(pmax)[:, None], nl.arange(head_dim)[None, :]], value=res_sb,
                     mask=(i * pmax + nl.arange(pmax)[:, None] < seqlen))
    return out_tensor



@nki.jit
def nki_matmul_fully_optimized_(lhsT, rhs, TILES_IN_BLOCK_M=2, TILES_IN_BLOCK_N=1, TILES_IN_BLOCK_K=2):
    K, M = lhsT.shape
    K_, N = rhs.shape
    assert K == K_, "lhsT and rhs must have the same contraction dimension"
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    TILE_M = nl.tile_size.gemm_stationary_fmax
    TILE_K = nl.tile_size.pmax
    TILE_N = nl.tile_size.gemm_moving_fmax
    BLOCK_M = TILE_M * TILES_IN_BLOCK_M
    BLOCK_N = TILE_N * TILES_IN_BLOCK_N
    BLOCK_K = TILE_K * TILES_IN_BLOCK_K
    assert M % BLOCK_M == 0 and N % BLOCK_N == 0 and K % BLOCK_K == 0
    NUM_BLOCK_M, NUM_BLOCK_N, NUM_BLOCK_K = M // BLOCK_M, N // BLOCK_N, K // BLOCK_K
    # Blocking N dimension (the RHS free dimension)
    for n in nl.affine_range(NUM_BLOCK_N):
        result_tiles = nl.zeros((NUM_BLOCK_M, TILES_IN_BLOCK_M, TILES_IN_BLOCK_N, nl.par_dim(TILE_M), TILE_N),
                                dtype=lhsT.dtype, buffer=nl.sbuf)
        for k in nl.sequential_range(NUM_BLOCK_K):
            # Loading tiles from rhs
            i_rhs = nl.mgrid[0:TILE_K, 0:BLOCK_N]
            rhs_tiles = nl.ndarray((TILES_IN_BLOCK_K, nl.par_dim(TILE_K), BLOCK_N), dtype=rhs.dtype, buffer=nl.sbuf)
            for bk_r in nl.affine_range(TILES_IN_BLOCK_K):
                rhs_tiles[bk_r, i_rhs.p, i_rhs.x] = nl.load(
                    rhs[(TILES_IN_BLOCK_K * k + bk_r) * TILE_K + i_rhs.p, BLOCK_N * n + i_rhs.x])
            for m in nl.affine_range(NUM_BLOCK_M):
                i_lhsT = nl.mgrid[0:TILE_K, 0:BLOCK_M]
                lhsT_tiles = nl.ndarray((TILES_IN_BLOCK_K, nl.par_dim(TILE_K), BLOCK_M), dtype=lhsT.dtype,
                                        buffer=nl.sbuf)
                for bk_l in nl.affine_range(TILES_IN_BLOCK_K):
                    lhsT_tiles[bk_l, i_lhsT.p, i_lhsT.x] = nl.load(
                        lhsT[(TILES_IN_BLOCK_K * k + bk_l) * TILE_K + i_lhsT.p, BLOCK_M * m + i_lhsT.x])
                i_lhsT_mm = nl.mgrid[0:TILE_K, 0:TILE_M]
                i_rhs_mm = nl.mgrid[0:TILE_K, 0:TILE_N]
                i_res_mm = nl.mgrid[0:TILE_M, 0:TILE_N]
                for bn in nl.affine_range(TILES_IN_BLOCK_N):
                    for bm in nl.affine_range(TILES_IN_BLOCK_M):
                        res_tile = nl.zeros((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                        for bk in nl.affine_range(TILES_IN_BLOCK_K):
                            res_tile[...] += nisa.nc_matmul(
                                lhsT_tiles[bk, i_lhsT_mm.p, bm * TILE_M + i_lhsT_mm.x],
                                rhs_tiles[bk, i_rhs_mm.p, bn * TILE_N + i_rhs_mm.x])
                        result_tiles[m, bm, bn, i_res_mm.p, i_res_mm.x] += res_tile[i_res_mm.p, i_res_mm.x]
        for m in nl.affine_range(NUM_BLOCK_M):
            for bm in nl.affine_range(TILES_IN_BLOCK_M):
                i_res = nl.mgrid[0:TILE_K, 0:TILE_N]
                i_res_packed = nl.mgrid[0:TILE_K, 0:BLOCK_N]
                result_packed = nl.ndarray((TILE_K, BLOCK_N), dtype=result_tiles.dtype, buffer=nl.sbuf)
                for bn in nl.affine_range(TILES_IN_BLOCK_N):
                    result_packed[i_res.p, bn * TILE_N + i_res.x] = nl.copy(
                        result_tiles[m, bm, bn, i_res.p, i_res.x])
                nl.store(result[(TILES_IN_BLOCK_M * m + bm) * TILE_K + i_res_packed.p, BLOCK_N * n + i_res_packed.x],
                         value=result_packed[i_res_packed.p, i_res_packed.x])
    return result



@nki.jit
def mamba_v3(delta, u, A, B, C):
    batch_size, channels, seq_len = delta.shape
    output = nl.ndarray((batch_size, channels, seq_len), dtype=delta.dtype, buffer=nl.shared_hbm)
    _, state_size = A.shape
    channel_psize = nl.tile_size.pmax
    n_channel_tile = channels // channel_psize
    seq_len_fsize = 64
    n_seq_len_tile = seq_len // seq_len_fsize
    for i_batch in nl.affine_range(batch_size):
        for i_channel_tile in nl.affine_range(n_channel_tile):
            channel_start = i_channel_tile * channel_psize
            scanC_accum = nl.zeros((nl.par_dim(channel_psize), seq_len), dtype=delta.dtype)
            delta_i = nl.load(delta[i_batch, channel_start:channel_start + channel_psize, 0:seq_len])
            u_i = nl.load(u[i_batch, channel_start:channel_start + channel_psize, 0:seq_len])
            for i_state in nl.affine_range(state_size):
                A_i = nl.load(A[channel_start:channel_start + channel_psize, i_state])
                scan_init = nl.zeros((channel_psize, 1), dtype=delta_i.dtype)
                for i_seq_len_tile in nl.static_range(n_seq_len_tile):
                    seq_len_start = i_seq_len_tile * seq_len_fsize
                    deltaA = nisa.activation(op=nl.exp, data=delta_i[0:channel_psize, seq_len_start:seq_len_start + seq_len_fsize], scale=A_i)
                    B_i = nl.load(B[i_batch, i_state:i_state + 1, seq_len_start:seq_len_start + seq_len_fsize])
                    deltaU = nisa.tensor_tensor(delta_i[0:channel_psize, seq_len_start:seq_len_start + seq_len_fsize],
                                                u_i[0:channel_psize, seq_len_start:seq_len_start + seq_len_fsize],
                                                op=nl.multiply)
                    B_i_bcast = B_i.broadcast_to((nl.tile_size.pmax, seq_len_fsize))
                    deltaBu = nisa.tensor_tensor(deltaU, B_i_bcast, op=nl.multiply)
                    scan_res = nki.isa.tensor_tensor_scan(deltaA, deltaBu, initial=scan_init, op0=np.multiply,
                                                          op1=np.add)
                    scan_init[...] = scan_res[0:channel_psize, seq_len_fsize - 1]
                    C_i = nl.load(C[i_batch, i_state:i_state + 1, seq_len_start:seq_len_start + seq_len_fsize])
                    C_i_bcast = C_i.broadcast_to((nl.tile_size.pmax, seq_len_fsize))
                    scanC = nisa.tensor_tensor(scan_res, C_i_bcast, op=nl.multiply)
                    scanC_accum[0:channel_psize, seq_len_start:seq_len_start + seq_len_fsize] += scanC
            nl.store(output[i_batch, channel_start:channel_start + channel_psize, 0:seq_len],
                     scanC_accum[0:channel_psize, 0:seq_len])
    return output



@nki.jit
def nki_layernorm_kernel_v2(input_tensor, epsilon, gamma_vector, beta_vector):
    output_tensor = nl.ndarray(input_tensor.shape, dtype=input_tensor.dtype, buffer=nl.shared_hbm)
    assert input_tensor.shape[1] == gamma_vector.shape[0] == beta_vector.shape[0]
    i_p_io = nl.arange(nl.tile_size.pmax)[:, None]
    i_f_io = nl.arange(input_tensor.shape[1])[None, :]
    i_p_param = nl.arange(1)[:, None]
    gamma_sb = nl.load(gamma_vector.reshape((1, gamma_vector.shape[0]))[i_p_param, i_f_io])
    beta_sb = nl.load(beta_vector.reshape((1, beta_vector.shape[0]))[i_p_param, i_f_io])
    gamma_sb_bcast = gamma_sb.broadcast_to((nl.tile_size.pmax, gamma_vector.shape[0]))
    beta_sb_bcast = beta_sb.broadcast_to((nl.tile_size.pmax, beta_vector.shape[0]))
    num_rows, sequence_length = input_tensor.shape
    for i in nl.affine_range(math.ceil(input_tensor.shape[0] / nl.tile_size.pmax)):
        input_sb = nl.load(input_tensor[i * nl.tile_size.pmax + i_p_io, i_f_io],
                           mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        i_f_bn = nl.arange(nl.tile_size.bn_stats_fmax)[None, :]
        i_f_stats = nl.arange(6)[None, :]
        num_bn_stats = math.ceil(input_tensor.shape[1] / nl.tile_size.bn_stats_fmax)
        stats_results = nl.ndarray((nl.tile_size.pmax, 6 * num_bn_stats), dtype=np.float32)
        for j in nl.affine_range(num_bn_stats):
            stats_results[i_p_io, j * 6 + i_f_stats] = nisa.bn_stats(
                input_sb[i_p_io, j * nl.tile_size.bn_stats_fmax + i_f_bn],
                mask=(j * nl.tile_size.bn_stats_fmax + i_f_bn < sequence_length) & (i * nl.tile_size.pmax + i_p_io < num_rows),
                dtype=np.float32)
        i_f_aggr = nl.arange(6 * num_bn_stats)[None, :]
        mean_var = nisa.bn_aggr(stats_results[i_p_io, i_f_aggr], mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        shift_scale_tensor = nl.rsqrt(mean_var[i_p_io, 1] + epsilon, mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        output_sb = nisa.tensor_scalar(data=input_sb, op0=np.subtract, operand0=mean_var[i_p_io, 0], op1=np.multiply,
                                       operand1=shift_scale_tensor, mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        output_sb[i_p_io, i_f_io] = nl.multiply(output_sb[i_p_io, i_f_io], gamma_sb_bcast[i_p_io, i_f_io],
                                                mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        output_sb[i_p_io, i_f_io] = nl.add(output_sb[i_p_io, i_f_io], beta_sb_bcast[i_p_io, i_f_io],
                                           mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        nl.store(output_tensor[i * nl.tile_size.pmax + i_p_io, i_f_io], value=output_sb[i_p_io, i_f_io],
                 mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
    return output_tensor


def cases():
    r = np.random.default_rng(0)
    def f(*s): return r.standard_normal(s).astype(np.float32)
    return [(tensor_maxpool_kernel_, (f(64, 12, 14), 3)),
            (resize_nearest_fixed_dma_kernel, (f(2, 4, 5, 16), (2, 6, 8, 16))),
            (nki_fused_rms_norm_qkv, (f(2, 160, 256), f(256, 96))),
            (nki_matmul_fully_optimized_, (f(256, 256), f(256, 512))),
            (mamba_v3, (abs(f(1, 128, 128)) * .1, f(1, 128, 128), -abs(f(128, 4)), f(1, 4, 128), f(1, 4, 128))),
            (nki_layernorm_kernel_v2, (f(200, 700), 1e-5, f(700), f(700)))]
