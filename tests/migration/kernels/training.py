# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of a training library: a backward layer norm, blocked products, rotary embedding, fp8 rows, a gate."""
import math
from collections import namedtuple
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P_MAX = nl.tile_size.pmax
N_MAX = nl.tile_size.gemm_moving_fmax
TileShape = namedtuple("TileShape", ["rows", "cols"])
TILE = TileShape(128, 512)


@dataclass(frozen=True)
class NormConfig:
    """Settings of a normalization."""
    hidden: int
    eps: float = 1e-5
    tile: TileShape = TILE
    acc_dtype: object = nl.float32

    @property
    def inv_hidden(self):
        return 1.0 / self.hidden

    def num_tiles(self, rows):
        return math.ceil(rows / self.tile.rows)


@nki.jit
def layernorm_bwd(dy, x, gamma, cfg=NormConfig(hidden=96)):
    """dx of a layer norm, and gradients of gamma and beta by a product with ones."""
    rows, cols = x.shape
    assert cols == cfg.hidden, f"expected {cfg.hidden} columns, got {cols}"
    dx = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    dgamma = nl.ndarray((1, cols), dtype=nl.float32, buffer=nl.shared_hbm)
    dbeta = nl.ndarray((1, cols), dtype=nl.float32, buffer=nl.shared_hbm)

    i_p = nl.arange(P_MAX)[:, None]
    i_f = nl.arange(cols)[None, :]
    i_1 = nl.arange(1)[:, None]
    g = nl.load(gamma.reshape((1, cols))[i_1, i_f])
    g_bc = g.broadcast_to((P_MAX, cols))
    ones = nl.ones((P_MAX, 1), dtype=nl.float32)
    dgamma_acc = nl.zeros((1, cols), dtype=nl.float32, buffer=nl.psum)
    dbeta_acc = nl.zeros((1, cols), dtype=nl.float32, buffer=nl.psum)
    for t in nl.affine_range(cfg.num_tiles(rows)):
        mask = (t * P_MAX + i_p < rows)
        x_t = nl.load(x[t * P_MAX + i_p, i_f], mask=mask)
        dy_t = nl.load(dy[t * P_MAX + i_p, i_f], mask=mask)
        mean = nl.sum(x_t, axis=1, keepdims=True, mask=mask) * cfg.inv_hidden
        xc = nl.subtract(x_t, mean, mask=mask)
        var = nl.sum(nl.square(xc, mask=mask), axis=1, keepdims=True, mask=mask) * cfg.inv_hidden
        rstd = nl.rsqrt(var + cfg.eps, mask=mask)
        xhat = nl.multiply(xc, rstd, mask=mask)
        dxhat = nl.multiply(dy_t, g_bc, mask=mask)
        c1 = nl.sum(nl.multiply(dxhat, xhat, mask=mask), axis=1, keepdims=True, mask=mask) * cfg.inv_hidden
        c2 = nl.sum(dxhat, axis=1, keepdims=True, mask=mask) * cfg.inv_hidden
        inner = nl.subtract(nl.subtract(dxhat, c2, mask=mask), nl.multiply(xhat, c1, mask=mask), mask=mask)
        nl.store(dx[t * P_MAX + i_p, i_f], value=nl.multiply(inner, rstd, mask=mask), mask=mask)
        prod = nl.multiply(dy_t, xhat, mask=mask)
        dgamma_acc += nisa.nc_matmul(ones[i_p, nl.arange(1)[None, :]], prod[i_p, i_f], mask=mask)
        dbeta_acc += nisa.nc_matmul(ones[i_p, nl.arange(1)[None, :]], dy_t[i_p, i_f], mask=mask)
    nl.store(dgamma, nl.copy(dgamma_acc))
    nl.store(dbeta, nl.copy(dbeta_acc))
    return dx, dgamma, dbeta


@nki.jit
def matmul_block_free(lhsT, rhs, block_m=2, block_k=2):
    """Block dimensions before and after the partition axis, sums in SBUF."""
    K, M = lhsT.shape
    _, N = rhs.shape
    TILE_M, TILE_K, TILE_N = nl.tile_size.gemm_stationary_fmax, P_MAX, min(N, N_MAX)
    BLOCK_M, BLOCK_K = block_m * TILE_M, block_k * TILE_K
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    i_k, i_m = nl.mgrid[0:TILE_K, 0:TILE_M]
    i_kn, i_n = nl.mgrid[0:TILE_K, 0:TILE_N]
    i_mo, i_no = nl.mgrid[0:TILE_M, 0:TILE_N]
    for m in nl.affine_range(M // BLOCK_M):
        acc = nl.zeros((block_m, nl.par_dim(TILE_M), TILE_N), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.sequential_range(K // BLOCK_K):
            lhs_tiles = nl.ndarray((block_k, block_m, nl.par_dim(TILE_K), TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
            rhs_tiles = nl.ndarray((block_k, nl.par_dim(TILE_K), TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
            for bk in nl.affine_range(block_k):
                rhs_tiles[bk, i_kn, i_n] = nl.load(rhs[(k * block_k + bk) * TILE_K + i_kn, i_n])
                for bm in nl.affine_range(block_m):
                    lhs_tiles[bk, bm, i_k, i_m] = nl.load(
                        lhsT[(k * block_k + bk) * TILE_K + i_k, (m * block_m + bm) * TILE_M + i_m])
            for bm in nl.affine_range(block_m):
                res = nl.zeros((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                for bk in nl.affine_range(block_k):
                    res[...] += nisa.nc_matmul(lhs_tiles[bk, bm, i_k, i_m], rhs_tiles[bk, i_kn, i_n])
                acc[bm, i_mo, i_no] += res[i_mo, i_no]
        for bm in nl.affine_range(block_m):
            out_tile = nl.copy(acc[bm, i_mo, i_no], dtype=result.dtype)
            nl.store(result[(m * block_m + bm) * TILE_M + i_mo, i_no], value=out_tile)
    return result


@nki.jit
def rope_half(x, cos, sin, start: int = 0):
    """Rotary embedding: [batch, heads, seq, dim] by halves, a helper within the kernel."""
    b, h, s, d = x.shape
    half = d // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_s = nl.arange(P_MAX)[:, None]
    i_h = nl.arange(half)[None, :]

    def rotate(lo, hi, c, sn):
        return lo * c - hi * sn, hi * c + lo * sn

    for bi in nl.affine_range(b):
        for t in nl.affine_range((s + P_MAX - 1) // P_MAX):
            valid = (t * P_MAX + i_s < s)
            c = nl.load(cos[start + t * P_MAX + i_s, i_h], mask=valid)
            sn = nl.load(sin[start + t * P_MAX + i_s, i_h], mask=valid)
            for hi_ in nl.affine_range(h):
                lo = nl.load(x[bi, hi_, t * P_MAX + i_s, i_h], mask=valid)
                hi = nl.load(x[bi, hi_, t * P_MAX + i_s, half + i_h], mask=valid)
                r0, r1 = rotate(lo, hi, c, sn)
                nl.store(out[bi, hi_, t * P_MAX + i_s, i_h], value=r0, mask=valid)
                nl.store(out[bi, hi_, t * P_MAX + i_s, half + i_h], value=r1, mask=valid)
    return out


@nki.jit
def quantize_rowwise_fp8(x, max_val=240.0):
    """Rows in float8 with a scale each."""
    rows, cols = x.shape
    q = nl.ndarray((rows, cols), dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    scales = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(math.ceil(rows / nl.tile_size.pmax)):
        ip, jf = nl.mgrid[0:nl.tile_size.pmax, 0:cols]
        ip1, j1 = nl.mgrid[0:nl.tile_size.pmax, 0:1]
        tile = nl.load(x[t * nl.tile_size.pmax + ip, jf], mask=(ip < rows - t * nl.tile_size.pmax))
        amax = nisa.tensor_reduce(np.max, nl.abs(tile, mask=(ip < rows - t * nl.tile_size.pmax)), axis=(1,),
                                  keepdims=True, mask=(ip < rows - t * nl.tile_size.pmax))
        scale = nl.multiply(nl.maximum(amax, 1e-12, mask=(ip1 < rows - t * nl.tile_size.pmax)), 1.0 / max_val,
                            mask=(ip1 < rows - t * nl.tile_size.pmax))
        inv = nisa.reciprocal(scale, mask=(ip1 < rows - t * nl.tile_size.pmax))
        scaled = nisa.tensor_scalar(tile, np.multiply, inv, dtype=nl.float8_e4m3,
                                    mask=(ip < rows - t * nl.tile_size.pmax))
        nl.store(q[t * nl.tile_size.pmax + ip, jf], scaled, mask=(ip < rows - t * nl.tile_size.pmax))
        nl.store(scales[t * nl.tile_size.pmax + ip1, j1], scale, mask=(ip1 < rows - t * nl.tile_size.pmax))
    return q, scales


@nki.jit
def top1_gate(logits, x, num_experts=8):
    """Softmax, the best expert as one-hot columns, and the hidden state times its probability."""
    tokens, e = logits.shape
    _, hdim = x.shape
    assert e == num_experts
    onehot = nl.ndarray((tokens, e), dtype=nl.float32, buffer=nl.shared_hbm)
    gated = nl.ndarray((tokens, hdim), dtype=x.dtype, buffer=nl.shared_hbm)
    idx_out = nl.ndarray((tokens, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    for t in nl.affine_range(tokens // P_MAX):
        rows = nl.ds(t * P_MAX, P_MAX)
        lg = nl.load(logits[rows, :])
        neg_max = nisa.tensor_reduce(np.max, lg, axis=[1], negate=True)
        denom = nl.ndarray((P_MAX, 1), dtype=nl.float32, buffer=nl.sbuf)
        probs = nisa.activation_reduce(np.exp, lg, reduce_op=np.add, reduce_res=denom, bias=neg_max)
        probs = nisa.tensor_scalar(probs, np.multiply, nisa.reciprocal(denom))
        best = nisa.max8(src=probs)
        where = nisa.nc_find_index8(data=probs, vals=best)
        columns = nisa.iota(nl.arange(e)[None, :], dtype=nl.float32).broadcast_to((P_MAX, e))
        first = nl.copy(where[:, 0:1], dtype=nl.float32)
        hot = nl.equal(columns, first, dtype=nl.float32)
        nl.store(onehot[rows, :], hot)
        nl.store(idx_out[rows, :], nl.copy(where[:, 0:1], dtype=nl.int32))
        hidden = nl.load(x[rows, :])
        nl.store(gated[rows, :], hidden * best[:, 0:1])
    return onehot, gated, idx_out


def cases():
    r = np.random.default_rng(0)
    def f(*s):
        return r.standard_normal(s).astype(np.float32)
    return [(layernorm_bwd, (f(200, 96), f(200, 96), f(96))),
            (matmul_block_free, (f(512, 256), f(512, 256))),
            (rope_half, (f(2, 2, 150, 32), f(200, 16), f(200, 16)), {"start": 3}),
            (quantize_rowwise_fp8, (f(150, 64),)),
            (top1_gate, (f(256, 8), f(256, 32)))]
