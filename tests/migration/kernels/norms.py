# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms: rmsnorm with quantization, layernorm by bn_stats, fused add, group norm."""
import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.typing import tensor


@nki.jit
def rmsnorm_to_fp8(hidden, gamma, eps=1e-6, clip=448.0):
    # each row by its root of the mean square and the weights, then by its largest value to 8 bits
    B, S, H = hidden.shape
    assert H == gamma.shape[0], f"hidden {H} and gamma {gamma.shape} do not agree"
    out = nl.ndarray((B, S, H), dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    scales = nl.ndarray((B, S, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    P = nl.tile_size.pmax
    ix = nl.arange(P)[:, None]
    iw = nl.arange(1)[:, None]
    iy = nl.arange(H)[None, :]
    i1 = nl.arange(1)[None, :]
    weights = nl.load(gamma.reshape((1, H))[iw, iy])
    for b in nl.affine_range(B):
        for i in nl.affine_range(math.ceil(S / P)):
            mask = (i * P + ix < S)
            rows = nl.load(hidden[b, i * P + ix, iy], mask=mask, dtype=nl.float32)
            squares = nl.square(rows, mask=mask)
            total = nl.sum(squares, axis=[1], mask=mask)
            mean = total / H
            factor = nl.rsqrt(mean + eps, mask=mask)
            normal = nl.multiply(rows, factor, mask=mask)
            weight_rows = weights.broadcast_to((P, H))
            normal[...] = nl.multiply(normal, weight_rows, mask=mask)
            amax = nl.max(nl.abs(normal, mask=mask), axis=[1], keepdims=True, mask=mask)
            amax = nl.maximum(amax, 1e-5, mask=mask)
            step = nl.divide(amax, clip, mask=mask)
            inv = nisa.reciprocal(step, mask=mask)
            q = nisa.tensor_scalar(normal, np.multiply, inv, op1=np.minimum, operand1=clip, dtype=nl.float8_e4m3, mask=mask)
            nl.store(out[b, i * P + ix, iy], value=q, mask=mask)
            nl.store(scales[b, i * P + ix, i1], value=step, mask=mask)
    return out, scales


@nki.jit
def layernorm_by_statistics(x, eps, gamma, beta):
    """LayerNorm by bn_stats."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    assert x.shape[1] == gamma.shape[0] == beta.shape[0]
    n, width = x.shape
    i_p = nl.arange(nl.tile_size.pmax)[:, None]
    i_f = nl.arange(width)[None, :]
    i_one = nl.arange(1)[:, None]
    gamma_tile = nl.load(gamma.reshape((1, width))[i_one, i_f])
    beta_tile = nl.load(beta.reshape((1, width))[i_one, i_f])
    gamma_rows = gamma_tile.broadcast_to((nl.tile_size.pmax, width))
    beta_rows = beta_tile.broadcast_to((nl.tile_size.pmax, width))
    PIECE = min(nl.tile_size.bn_stats_fmax, 96)
    for i in nl.affine_range(math.ceil(n / nl.tile_size.pmax)):
        tile = nl.load(x[i * nl.tile_size.pmax + i_p, i_f], mask=(i * nl.tile_size.pmax + i_p < n))
        pieces = math.ceil(width / PIECE)
        statistics = nl.ndarray((nl.tile_size.pmax, 6 * pieces), dtype=np.float32, buffer=nl.sbuf)
        for j in nl.affine_range(pieces):
            i_piece = nl.arange(PIECE)[None, :]
            i_six = nl.arange(6)[None, :]
            statistics[i_p, j * 6 + i_six] = nisa.bn_stats(
                tile[i_p, j * PIECE + i_piece],
                mask=(i * nl.tile_size.pmax + i_p < n) & (j * PIECE + i_piece < width), dtype=np.float32)
        i_all = nl.arange(6 * pieces)[None, :]
        moments = nisa.bn_aggr(statistics[i_p, i_all], mask=(i * nl.tile_size.pmax + i_p < n))
        factor = nl.rsqrt(moments[i_p, 1] + eps)
        result = nisa.tensor_scalar(data=tile, op0=np.subtract, operand0=moments[i_p, 0], op1=np.multiply,
                                       operand1=factor[i_p, 0], mask=(i * nl.tile_size.pmax + i_p < n))
        result[...] = result * gamma_rows + beta_rows
        nl.store(y[i * nl.tile_size.pmax + i_p, i_f], value=result, mask=(i * nl.tile_size.pmax + i_p < n))
    return y


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
    return [(rmsnorm_to_fp8, (f(2, 150, 64), f(64))), (layernorm_by_statistics, (f(200, 96 * 2), 1e-5, f(192), f(192))),
            (layernorm_by_statistics, (f(200, 200), 1e-5, f(200), f(200))),
            (fused_add_rmsnorm, (f(150, 48), f(150, 48), f(48))), (group_norm, (f(32, 40), f(32, 1), f(32, 1), 4))]
