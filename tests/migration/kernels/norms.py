# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms: rmsnorm with quantisation, layernorm by bn_stats, fused add, group norm."""
import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.typing import tensor


@nki.jit
def nki_rmsnorm_quant_kernel(hidden, gamma, eps=1e-6, clip=448.0):
    # Calculate out_tensor = a_tensor/RMS(a_tensor) * g_tensor, then quantize per row to fp8
    B, S, H = hidden.shape
    assert H == gamma.shape[0], f"hidden {H} and gamma {gamma.shape} do not agree"
    out = nl.ndarray((B, S, H), dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    scales = nl.ndarray((B, S, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    P = nl.tile_size.pmax
    ix = nl.arange(P)[:, None]
    iw = nl.arange(1)[:, None]
    iy = nl.arange(H)[None, :]
    i1 = nl.arange(1)[None, :]
    g_tile = nl.load(gamma.reshape((1, H))[iw, iy])
    for b in nl.affine_range(B):
        for i in nl.affine_range(math.ceil(S / P)):
            mask = (i * P + ix < S)
            a_tile = nl.load(hidden[b, i * P + ix, iy], mask=mask, dtype=nl.float32)
            in_square = nl.square(a_tile, mask=mask)
            square_sum = nl.sum(in_square, axis=[1], mask=mask)
            mean = square_sum / H
            rms_reciprocal = nl.rsqrt(mean + eps, mask=mask)
            out_tile = nl.multiply(a_tile, rms_reciprocal, mask=mask)
            g_bcast = g_tile.broadcast_to((P, H))
            out_tile[...] = nl.multiply(out_tile, g_bcast, mask=mask)
            amax = nl.max(nl.abs(out_tile, mask=mask), axis=[1], keepdims=True, mask=mask)
            amax = nl.maximum(amax, 1e-5, mask=mask)
            q_scale = nl.divide(amax, clip, mask=mask)
            inv = nisa.reciprocal(q_scale, mask=mask)
            q = nisa.tensor_scalar(out_tile, np.multiply, inv, op1=np.minimum, operand1=clip, dtype=nl.float8_e4m3, mask=mask)
            nl.store(out[b, i * P + ix, iy], value=q, mask=mask)
            nl.store(scales[b, i * P + ix, i1], value=q_scale, mask=mask)
    return out, scales


@nki.jit
def nki_layernorm_kernel(input_tensor, epsilon, gamma_vector, beta_vector):
    """LayerNorm by bn_stats."""
    output_tensor = nl.ndarray(input_tensor.shape, dtype=input_tensor.dtype, buffer=nl.shared_hbm)
    assert input_tensor.shape[1] == gamma_vector.shape[0] == beta_vector.shape[0]
    num_rows, num_cols = input_tensor.shape
    i_p_io = nl.arange(nl.tile_size.pmax)[:, None]
    i_f_io = nl.arange(num_cols)[None, :]
    i_p_param = nl.arange(1)[:, None]
    gamma_sb = nl.load(gamma_vector.reshape((1, num_cols))[i_p_param, i_f_io])
    beta_sb = nl.load(beta_vector.reshape((1, num_cols))[i_p_param, i_f_io])
    gamma_sb_bcast = gamma_sb.broadcast_to((nl.tile_size.pmax, num_cols))
    beta_sb_bcast = beta_sb.broadcast_to((nl.tile_size.pmax, num_cols))
    FMAX = min(nl.tile_size.bn_stats_fmax, 96)
    for i in nl.affine_range(math.ceil(num_rows / nl.tile_size.pmax)):
        input_sb = nl.load(input_tensor[i * nl.tile_size.pmax + i_p_io, i_f_io], mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        stats_num_tiles = math.ceil(num_cols / FMAX)
        stats_results = nl.ndarray((nl.tile_size.pmax, 6 * stats_num_tiles), dtype=np.float32, buffer=nl.sbuf)
        for j in nl.affine_range(stats_num_tiles):
            i_f_stats = nl.arange(FMAX)[None, :]
            i_f6 = nl.arange(6)[None, :]
            stats_results[i_p_io, j * 6 + i_f6] = nisa.bn_stats(
                input_sb[i_p_io, j * FMAX + i_f_stats],
                mask=(i * nl.tile_size.pmax + i_p_io < num_rows) & (j * FMAX + i_f_stats < num_cols), dtype=np.float32)
        i_f_aggr = nl.arange(6 * stats_num_tiles)[None, :]
        mean_var = nisa.bn_aggr(stats_results[i_p_io, i_f_aggr], mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        shift_scale_tensor = nl.rsqrt(mean_var[i_p_io, 1] + epsilon)
        output_sb = nisa.tensor_scalar(data=input_sb, op0=np.subtract, operand0=mean_var[i_p_io, 0], op1=np.multiply,
                                       operand1=shift_scale_tensor[i_p_io, 0], mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
        output_sb[...] = output_sb * gamma_sb_bcast + beta_sb_bcast
        nl.store(output_tensor[i * nl.tile_size.pmax + i_p_io, i_f_io], value=output_sb, mask=(i * nl.tile_size.pmax + i_p_io < num_rows))
    return output_tensor


@nki.jit
def fused_add_rmsnorm(x, residual, weight):
    """y = rmsnorm(x + residual) * weight; also gives the sum back."""
    N, D = x.shape
    y = nl.ndarray((N, D), dtype=x.dtype, buffer=nl.shared_hbm)
    new_residual = nl.ndarray((N, D), dtype=x.dtype, buffer=nl.shared_hbm)
    w: tensor[1, D] = nl.load(weight.reshape((1, D)))
    for t in nl.affine_range((N + 127) // 128):
        i_p, i_f = nl.mgrid[0:128, 0:D]
        row = t * 128 + i_p
        h = nl.load(x[row, i_f], mask=row < N)
        h += nl.load(residual[row, i_f], mask=row < N)
        nl.store(new_residual[row, i_f], h, mask=row < N)
        var = nl.mean(nl.square(h), axis=-1, keepdims=True)
        normed = h * nl.rsqrt(var + 1e-5)
        nl.store(y[row, i_f], normed * w.broadcast_to((128, D)), mask=row < N)
    return y, new_residual


def group_norm_kernel(x, gamma, beta, num_groups: int, eps: float = 1e-5):
    C, HW = x.shape
    cg = C // num_groups
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    xt = nl.load(x)
    stat = nl.ndarray((nl.par_dim(C), 2), dtype=nl.float32)
    stat[:, 0] = nl.mean(xt, axis=1)
    stat[:, 1] = nl.mean(xt * xt, axis=1)
    # transpose statistics so that channels are on the free axis
    stat_T = nl.copy(nl.transpose(stat))
    grouped = nl.sum(stat_T.reshape((2, num_groups, cg)), axis=-1) / cg
    back = nl.ndarray((2, num_groups, cg), dtype=nl.float32, buffer=nl.sbuf)
    for g in nl.static_range(num_groups):
        back[:, g, :] = grouped[:, g].broadcast_to((2, cg))
    st = nl.transpose(back.reshape((2, C)))
    mean, sq = st[:, 0], st[:, 1]
    var = sq - mean * mean
    inv = nl.rsqrt(var + eps)
    g_t, b_t = nl.load(gamma), nl.load(beta)
    nl.store(y, (xt - mean) * inv * g_t + b_t)
    return y


group_norm = nki.jit(group_norm_kernel)


def cases():
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [(nki_rmsnorm_quant_kernel, (f(2, 150, 64), f(64))), (nki_layernorm_kernel, (f(200, 96 * 2), 1e-5, f(192), f(192))),
            (nki_layernorm_kernel, (f(200, 200), 1e-5, f(200), f(200))),
            (fused_add_rmsnorm, (f(150, 48), f(150, 48), f(48))), (group_norm, (f(32, 40), f(32, 1), f(32, 1), 4))]
