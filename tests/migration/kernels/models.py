# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers and attention as contributors write them: configs, factories, ragged loops, slices that functions return."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import ds, par_dim

B_P = 64
NEG = -9984.0


class Act(Enum):
    RELU = "relu"
    SILU = "silu"


class Tiling(NamedTuple):
    m: int = 32
    n: int = 48
    k: int = 64


@dataclass
class MatmulSpec:
    tiling: Tiling = field(default_factory=Tiling)
    acc_dtype: Any = nl.float32
    act: Act = Act.RELU
    names: list[str] = field(default_factory=list)


ACT_FNS = {Act.RELU: nl.relu, Act.SILU: nl.silu}


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


@nki.jit
def matmul_with_spec(lhsT, rhs, spec: MatmulSpec = MatmulSpec()):
    """Matmul whose tiles are of any size: masks on every edge."""
    K, M = lhsT.shape
    _, N = rhs.shape
    TM, TN, TK = spec.tiling
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(_cdiv(M, TM)):
        for n in nl.affine_range(_cdiv(N, TN)):
            acc = nl.zeros((TM, TN), dtype=spec.acc_dtype, buffer=nl.psum)
            for k in nl.affine_range(_cdiv(K, TK)):
                i_k, i_m = nl.mgrid[0:TK, 0:TM]
                j_k, j_n = nl.mgrid[0:TK, 0:TN]
                lt = nl.load(lhsT[k * TK + i_k, m * TM + i_m], mask=(k * TK + i_k < K) & (m * TM + i_m < M))
                rt = nl.load(rhs[k * TK + j_k, n * TN + j_n], mask=(k * TK + j_k < K) & (n * TN + j_n < N))
                acc += nl.matmul(lt, rt, transpose_x=True)
            o_m, o_n = nl.mgrid[0:TM, 0:TN]
            act = ACT_FNS[spec.act]
            res = act(acc)
            nl.store(out[m * TM + o_m, n * TN + o_n], value=res, mask=(m * TM + o_m < M) & (n * TN + o_n < N))
    return out


def make_elementwise(fn: Callable, tile_f: int = 32):
    """Return a kernel for a function of a tile."""
    @nki.jit
    def elementwise(x):
        rows, cols = x.shape
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for j in nl.affine_range(cols // tile_f):
            t = nl.load(x[:, ds(j * tile_f, tile_f)])
            nl.store(out[:, ds(j * tile_f, tile_f)], fn(t))
        return out
    return elementwise


squared = make_elementwise(nl.square)


class Blocks:
    """Kernels as static methods."""
    WIDTH = 32

    @staticmethod
    @nki.jit
    def scale_add(x, y, alpha=2.0, beta=0.5):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        W = Blocks.WIDTH
        for j in nl.affine_range(x.shape[1] // W):
            a, b = nl.load(x[:, j * W:(j + 1) * W]), nl.load(y[:, j * W:(j + 1) * W])
            nl.store(out[:, j * W:(j + 1) * W], a * alpha + b * beta)
        return out


@nki.jit
def ragged_tail_both(x, *, block_rows=48, block_cols=40):
    """Loops whose last iteration is empty for some blocks."""
    R, C = x.shape
    out = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    i_r = nl.arange(block_rows)[:, None]
    i_c = nl.arange(block_cols)[None, :]
    for br in nl.affine_range(R // block_rows + 1):
        for bc in nl.affine_range(C // block_cols + 1):
            rows, cols = br * block_rows + i_r, bc * block_cols + i_c
            inside = (rows < R) & (cols < C)
            t = nl.load(x[rows, cols], mask=inside)
            y = nl.sin(t, mask=inside)
            nl.store(out[rows, cols], value=y, mask=inside)
    return out


@dataclass(frozen=True)
class ConvConfig:
    """Static configuration of a convolution."""
    kernel_h: int = 3
    kernel_w: int = 3
    stride: int = 1
    pad: int = 1

    def out_size(self, n: int) -> int:
        return (n + 2 * self.pad - self.kernel_h) // self.stride + 1


@nki.jit
def conv2d_same(img: nt.tensor, weights: nt.tensor, config: ConvConfig = ConvConfig()):
    """2-D convolution with padding.

    Args:
        img: [C_in, H, W]
        weights: [C_in, KH, KW, C_out]

    Returns:
        [C_out, H_out, W_out]

    >>> conv2d_same(np.zeros((4, 8, 8)), np.zeros((4, 3, 3, 8))).shape
    (8, 8, 8)
    """
    C_in, H, W = img.shape
    C_, KH, KW, C_out = weights.shape
    assert C_in == C_, f"expected {C_in} input channels, got {C_}"
    assert C_in <= nl.tile_size.pmax and C_out <= nl.tile_size.gemm_stationary_fmax
    H_out, W_out = config.out_size(H), config.out_size(W)
    out = nl.ndarray((C_out, H_out, W_out), dtype=img.dtype, buffer=nl.shared_hbm)

    # padded image in SBUF
    padded = nl.zeros((par_dim(C_in), H + 2 * config.pad, W + 2 * config.pad), dtype=img.dtype, buffer=nl.sbuf)
    i_c, i_h, i_w = nl.mgrid[0:C_in, 0:H, 0:W]
    padded[i_c, i_h + config.pad, i_w + config.pad] = nl.load(img[i_c, i_h, i_w])
    w_sb = nl.load(weights)

    i_ci = nl.arange(C_in)[:, None, None]
    i_wo = nl.arange(W_out)[None, None, :]
    for h in nl.affine_range(H_out):
        acc = nl.zeros((par_dim(C_out), W_out), dtype=nl.float32, buffer=nl.psum)
        for kh in nl.affine_range(KH):
            for kw in nl.affine_range(KW):
                moving = padded[nl.arange(C_in)[:, None], h * config.stride + kh,
                                nl.arange(W_out)[None, :] * config.stride + kw]
                acc += nisa.nc_matmul(w_sb[nl.arange(C_in)[:, None], kh, kw, nl.arange(C_out)[None, :]], moving)
        nl.store(out[0:C_out, h, 0:W_out], value=nl.copy(acc, dtype=out.dtype))
    return out


@nki.jit
def max_pool2d_padded(x, k=3, stride=2, pad=1):
    """Max pooling whose windows reach over the edge: the mask drops what is outside."""
    C, H, W = x.shape
    HO = (H + 2 * pad - k) // stride + 1
    WO = (W + 2 * pad - k) // stride + 1
    out = nl.ndarray((C, HO, WO), dtype=x.dtype, buffer=nl.shared_hbm)
    padded = nl.full((nl.par_dim(C), H + 2 * pad, W + 2 * pad), fill_value=-3.0e38, dtype=x.dtype, buffer=nl.sbuf)
    i0 = nl.arange(C)[:, None, None]
    i1 = nl.arange(H)[None, :, None]
    i2 = nl.arange(W)[None, None, :]
    padded[i0, i1 + pad, i2 + pad] = nl.load(x[i0, i1, i2])
    j0 = nl.arange(C)[:, None, None, None, None]
    j1 = nl.arange(HO)[None, :, None, None, None]
    j2 = nl.arange(WO)[None, None, :, None, None]
    j3 = nl.arange(k)[None, None, None, :, None]
    j4 = nl.arange(k)[None, None, None, None, :]
    pooled = nl.max(padded[j0, stride * j1 + j3, stride * j2 + j4], axis=[3, 4])
    nl.store(out, value=pooled)
    return out


@nki.jit
def avg_pool1d_ragged(x, k=4):
    """Mean over windows, of which the last is shorter."""
    rows, cols = x.shape
    n = (cols + k - 1) // k
    out = nl.ndarray((rows, n), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    ip = nl.arange(rows)[:, None]
    ik = nl.arange(k)[None, :]
    sums = nl.zeros((par_dim(rows), n), dtype=nl.float32)
    for w in range(n):
        size = min(k, cols - w * k)
        sums[ip, w] = nl.sum(tile[ip, w * k + ik], axis=[1], mask=(w * k + ik < cols)) * (1.0 / size)
    nl.store(out, sums)
    return out


@nki.jit
def rope_interleaved(x, freqs):
    """Even and odd columns are real and imaginary parts."""
    S, D = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(S)[:, None]
    i_h = nl.arange(D // 2)[None, :]
    tile = nl.load(x)
    f = nl.load(freqs)
    cos = nisa.activation(nl.sin, f, bias=nl.full((S, 1), math.pi / 2, dtype=nl.float32))
    sin = nl.sin(f)
    res = nl.ndarray((par_dim(S), D), dtype=x.dtype)
    res[i_p, 2 * i_h] = tile[i_p, 2 * i_h] * cos - tile[i_p, 2 * i_h + 1] * sin
    res[i_p, 2 * i_h + 1] = tile[i_p, 2 * i_h] * sin + tile[i_p, 2 * i_h + 1] * cos
    nl.store(out[i_p, nl.arange(D)[None, :]], res)
    return out


def softmax_rows(scores, acc_type=nl.float32):
    row_max = nisa.tensor_reduce(np.max, scores, axis=(1,), dtype=acc_type, negate=True)
    row_sum = nl.ndarray((scores.shape[0], 1), dtype=acc_type)
    e = nisa.activation_reduce(np.exp, scores, bias=row_max, scale=1.0, reduce_op=np.add, reduce_res=row_sum)
    return e, nisa.reciprocal(row_sum)


@nki.jit
def attention_ragged(q, k, v, kv_len, use_mask=True, softmax_scale: float | None = None):
    """Attention where only the first kv_len keys count."""
    D, SQ = q.shape
    _, SK = k.shape
    softmax_scale = softmax_scale or 1.0 / (D ** 0.5)
    o = nl.ndarray((SQ, D), dtype=q.dtype, buffer=nl.shared_hbm)
    q_t, k_t, v_t = nl.load(q), nl.load(k), nl.load(v)
    q_t = nl.multiply(q_t, softmax_scale)
    qk_psum = nl.ndarray((par_dim(SQ), SK), dtype=np.float32, buffer=nl.psum)
    qk_psum[nl.arange(SQ)[:, None], nl.arange(SK)[None, :]] = nisa.nc_matmul(q_t, k_t)
    i_q, i_k = nl.mgrid[0:SQ, 0:SK]
    if use_mask:
        qk = nisa.affine_select(pred=(i_k < kv_len), on_true_tile=qk_psum, on_false_value=NEG, dtype=nl.float32)
    else:
        qk = nl.copy(qk_psum)
    p, rcp = softmax_rows(qk)
    p_t = nisa.nc_transpose(p)
    p_sb = nisa.tensor_copy(p_t, dtype=v.dtype)
    pv = nl.matmul(p_sb, v_t, transpose_x=True)
    nl.store(o, value=nl.multiply(pv, rcp))
    return o


@nki.jit
def flash_fwd(q, k, v, use_causal_mask=True):
    """Online softmax with running statistics in block-dimension tensors."""
    d, seqlen = q.shape
    n_tiles = seqlen // B_P
    o = nl.ndarray((seqlen, d), dtype=q.dtype, buffer=nl.shared_hbm)
    lse = nl.ndarray((n_tiles, nl.par_dim(B_P), 1), dtype=nl.float32, buffer=nl.shared_hbm)
    scale = 1.0 / d ** 0.5
    for i in nl.affine_range(n_tiles):
        o_buf = nl.zeros((par_dim(B_P), d), dtype=nl.float32)
        m_buf = nl.full((par_dim(B_P), 1), NEG, dtype=nl.float32)
        l_buf = nl.zeros((par_dim(B_P), 1), dtype=nl.float32)
        q_tile = nl.load(q[:, nl.ds(i * B_P, B_P)])
        q_tile = nl.multiply(q_tile, scale)
        for j in nl.sequential_range(n_tiles):
            forward_mask = i >= j if use_causal_mask else None
            k_tile = nl.load(k[:, nl.ds(j * B_P, B_P)], mask=forward_mask)
            v_tile = nl.load(v[nl.ds(j * B_P, B_P), :], mask=forward_mask)
            s = nl.ndarray((par_dim(B_P), B_P), dtype=nl.float32, buffer=nl.psum)
            s[:, :] = nisa.nc_matmul(q_tile, k_tile, mask=forward_mask)
            qp = i * B_P + nl.arange(B_P)[:, None]
            kp = j * B_P + nl.arange(B_P)[None, :]
            if use_causal_mask:
                s_sb = nisa.affine_select(pred=qp >= kp, on_true_tile=s, on_false_value=NEG, dtype=nl.float32,
                                          mask=forward_mask)
            else:
                s_sb = nl.copy(s, mask=forward_mask)
            m_new = nisa.tensor_reduce(np.max, s_sb, axis=(1,), negate=False, mask=forward_mask)
            m_cur = nl.maximum(m_buf, m_new, mask=forward_mask)
            alpha = nisa.activation(np.exp, m_cur, bias=m_buf, scale=-1.0, mask=forward_mask)
            p = nisa.activation(np.exp, s_sb, bias=-1 * m_cur, mask=forward_mask)
            l_new = nisa.tensor_reduce(np.add, p, axis=(1,), mask=forward_mask)
            m_buf[...] = nl.copy(m_cur, mask=forward_mask)
            l_buf[...] = nl.add(nl.multiply(l_buf, alpha, mask=forward_mask), l_new, mask=forward_mask)
            p_t = nisa.nc_transpose(p, mask=forward_mask)
            p_tsb = nl.copy(p_t, mask=forward_mask)
            pv = nisa.nc_matmul(p_tsb, v_tile, mask=forward_mask)
            o_buf[...] = nl.multiply(o_buf, alpha, mask=forward_mask)
            o_buf[...] = nl.add(o_buf, pv, mask=forward_mask)
        out_tile = nl.divide(o_buf, l_buf)
        nl.store(o[nl.ds(i * B_P, B_P), :], out_tile)
        nl.store(lse[i, :, :], nl.log(l_buf) + m_buf)
    return o, lse


@nki.jit
def softmax_bwd(dy, y):
    """dx = y * (dy - sum(dy * y))."""
    n, m = y.shape
    dx = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.shared_hbm)
    for t in nl.static_range(n // B_P):
        rows = slice(t * B_P, (t + 1) * B_P)
        dyt, yt = nl.load(dy[rows, :]), nl.load(y[rows, :])
        dot = nl.ndarray((B_P, 1), dtype=nl.float32, buffer=nl.sbuf)
        prod = nisa.tensor_tensor(dyt, yt, op=nl.multiply)
        dot[...] = nisa.tensor_reduce(nl.add, prod, axis=[1])
        res = nisa.scalar_tensor_tensor(data=dyt, op0=np.subtract, operand0=dot, op1=np.multiply, operand1=yt)
        nl.store(dx[rows, :], res)
    return dx


@nki.jit
def strided_views(x):
    """mgrid members, 4-dimensional index grids."""
    P, F = x.shape
    g = 4
    out = nl.ndarray((P, g, F // (2 * g), 2), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    idx = nl.mgrid[0:P, 0:g, 0:F // (2 * g), 0:2]
    swapped = nl.ndarray((P, g, F // (2 * g), 2), dtype=x.dtype, buffer=nl.sbuf)
    i_p = nl.arange(P)[:, None, None, None]
    i_g = nl.arange(g)[None, :, None, None]
    i_m = nl.arange(F // (2 * g))[None, None, :, None]
    i_2 = nl.arange(2)[None, None, None, :]
    swapped[i_p, i_g, i_m, i_2] = nl.copy(t[i_p, i_m * (2 * g) + i_g * 2 + i_2])
    nl.store(out[idx[0], idx[1], idx[2], idx[3]], swapped)
    return out


@nki.jit
def quantize_rows_int8(x):
    """Symmetric int8 quantization of each row; returns values and scales."""
    N, D = x.shape
    P = nl.tile_size.pmax
    q = nl.ndarray((N, D), dtype=nl.int8, buffer=nl.shared_hbm)
    scales = nl.ndarray((N, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(math.ceil(N / P)):
        i_p = nl.arange(P)[:, None]
        i_f = nl.arange(D)[None, :]
        tile = nl.load(x[t * P + i_p, i_f], mask=(t * P + i_p < N))
        absmax = nl.max(nl.abs(tile, mask=(t * P + i_p < N)), axis=1, keepdims=True, mask=(t * P + i_p < N))
        scale = nl.maximum(absmax, 1e-8, mask=(t * P + i_p < N)) / 127.0
        inv = nisa.reciprocal(scale, mask=(t * P + i_p < N))
        y = nisa.tensor_scalar(tile, np.multiply, inv, mask=(t * P + i_p < N))
        y = nl.minimum(nl.maximum(y, -127.0, mask=(t * P + i_p < N)), 127.0, mask=(t * P + i_p < N))
        y8 = nl.copy(y, dtype=nl.int8, mask=(t * P + i_p < N))
        nl.store(q[t * P + i_p, i_f], value=y8, mask=(t * P + i_p < N))
        nl.store(scales[t * P + i_p, nl.arange(1)[None, :]], value=scale, mask=(t * P + i_p < N))
    return q, scales


@nki.jit
def ssm_scan_channels(delta, u, A, B, C, D=None, seq_tile=32):
    """Selective scan: (channels, states) by loops, the skip connection optional."""
    channels, T = delta.shape
    _, states = A.shape
    out = nl.ndarray((channels, T), dtype=delta.dtype, buffer=nl.shared_hbm)
    P = 32
    for c in nl.affine_range(channels // P):
        A_t = nl.load(A[c * P:(c + 1) * P, :])
        carry = nl.zeros((P, states), dtype=nl.float32)
        for s in nl.sequential_range(T // seq_tile):
            cols = nl.ds(s * seq_tile, seq_tile)
            d_t = nl.load(delta[nl.ds(c * P, P), cols])
            u_t = nl.load(u[nl.ds(c * P, P), cols])
            du = nisa.tensor_tensor(d_t, u_t, op=nl.multiply)
            acc = nl.zeros((P, seq_tile), dtype=nl.float32)
            for n in nl.affine_range(states):
                dA = nisa.activation(op=nl.exp, data=d_t, scale=A_t[:, n])
                B_row = nl.load(B[n:n + 1, cols])
                B_bc = B_row.broadcast_to((P, seq_tile))
                dBu = nisa.tensor_tensor(du, B_bc, op=np.multiply)
                h = nisa.tensor_tensor_scan(dA, dBu, initial=carry[0:P, n], op0=np.multiply, op1=np.add)
                carry[0:P, n] = h[0:P, seq_tile - 1]
                C_row = nl.load(C[n:n + 1, cols])
                y = nisa.tensor_tensor(h, C_row.broadcast_to((P, seq_tile)), op=np.multiply)
                acc += y
            if D is not None:
                D_t = nl.load(D[nl.ds(c * P, P), :])
                skip = nisa.tensor_scalar(u_t, op0=np.multiply, operand0=D_t)
                acc[...] = nl.add(acc, skip)
            nl.store(out[nl.ds(c * P, P), cols], acc)
    return out


@nki.jit
def embedding_bag(table, ids, weights):
    """Weighted sum of rows of a table."""
    vocab, dim = table.shape
    n, bag = ids.shape
    out = nl.ndarray((n, dim), dtype=table.dtype, buffer=nl.shared_hbm)
    id_t, w_t = nl.load(ids), nl.load(weights)
    acc = nl.zeros((n, dim), dtype=nl.float32, buffer=nl.sbuf)
    i_p, i_f = nl.mgrid[0:n, 0:dim]
    for b in range(bag):
        rows = nl.load(table[id_t[i_p, b], i_f])
        acc[i_p, i_f] = acc[i_p, i_f] + rows * w_t[i_p, b]
    nl.store(out, value=acc)
    return out


def rows_of(i, size):
    return slice(i * size, (i + 1) * size)


@nki.jit
def slices_from_helper(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 32):
        tile = nl.load(x[rows_of(i, 32), :])
        nl.store(out[rows_of(i, 32), :], nisa.activation(np.exp, tile))
    return out


@nki.jit
def ragged_loop(x, block=48):
    """The last iteration selects nothing where the block divides the rows."""
    R, C = x.shape
    out = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    i_r = nl.arange(block)[:, None]
    i_c = nl.arange(C)[None, :]
    for b in nl.affine_range(R // block + 1):
        rows = b * block + i_r
        t = nl.load(x[rows, i_c], mask=(rows < R))
        y = nl.tanh(t, mask=(rows < R))
        nl.store(out[rows, i_c], value=y, mask=(rows < R))
    return out


@nki.jit
def conv1d_depthwise(x, w, bias=None):
    """Depthwise causal convolution: shifted slices, an activation with a bias."""
    C, T = x.shape
    _, K = w.shape
    out = nl.ndarray((C, T), dtype=x.dtype, buffer=nl.shared_hbm)
    xt = nl.zeros((par_dim(C), T + K - 1), dtype=x.dtype)
    xt[:, K - 1:] = nl.load(x)
    wt = nl.load(w)
    acc = nl.zeros((C, T), dtype=nl.float32)
    for k in nl.static_range(K):
        acc += nisa.tensor_scalar(xt[:, k:k + T], np.multiply, wt[:, k:k + 1])
    if bias is not None:
        bt = nl.load(bias)
        acc[...] = nisa.activation(nl.silu, acc, bias=bt[:, 0:1])
    nl.store(out, acc)
    return out


@nki.jit
def image_patches(img, patch: int = 4):
    """[C, H, W] -> [patches, C*p*p] by 5-dimensional views in HBM."""
    C, H, W = img.shape
    nh, nw = H // patch, W // patch
    out = nl.ndarray((nh * nw, C, patch, patch), dtype=img.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(nh):
        for j in nl.affine_range(nw):
            i_c, i_y, i_x = nl.mgrid[0:C, 0:patch, 0:patch]
            t = nl.load(img[i_c, i * patch + i_y, j * patch + i_x])
            nl.store(out[i * nw + j, i_c, i_y, i_x], t)
    return out


@nki.jit
def psum_banks(a_t, b):
    """Several products in one tensor in PSUM, a block dimension in front."""
    K, M = a_t.shape
    _, N = b.shape
    nb = N // 64
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    at, bt = nl.load(a_t), nl.load(b)
    ps = nl.zeros((nb, par_dim(M), 64), dtype=nl.float32, buffer=nl.psum)
    for n in nl.affine_range(nb):
        ps[n] += nisa.nc_matmul(at, bt[:, n * 64:(n + 1) * 64])
    for n in nl.affine_range(nb):
        res = nl.copy(ps[n], dtype=nl.float32)
        nl.store(out[:, n * 64:(n + 1) * 64], res)
    return out


def cases():
    r = np.random.default_rng(0)
    def f(*s):
        return r.standard_normal(s).astype(np.float32)
    columns = np.abs(f(64, 64)), f(64, 64), -np.abs(f(64, 4)), f(4, 64), f(4, 64)
    return [(matmul_with_spec, (np.rint(4 * f(128, 50)), np.rint(4 * f(128, 70)))), (squared, (f(16, 64),)),
            (Blocks.scale_add, (f(16, 64), f(16, 64))), (ragged_tail_both, (f(96, 100) / 8,)),
            (ragged_tail_both, (f(96, 80) / 8,)), (conv2d_same, (f(4, 8, 8), f(4, 3, 3, 8))),
            (max_pool2d_padded, (f(8, 9, 9),)), (avg_pool1d_ragged, (f(16, 30),)),
            (rope_interleaved, (f(64, 32), f(64, 16) / 8)), (attention_ragged, (f(32, 64), f(32, 96), f(96, 32), 70)),
            (attention_ragged, (f(32, 64), f(32, 96), f(96, 32), 70, False)),
            (flash_fwd, (f(32, 192), f(32, 192), f(192, 32))), (softmax_bwd, (f(128, 40), f(128, 40))),
            (strided_views, (f(16, 32),)), (quantize_rows_int8, (f(200, 48),)),
            (ssm_scan_channels, (*columns, f(64, 1))),
            (ssm_scan_channels, columns),
            (embedding_bag, (f(64, 24), r.integers(0, 64, (16, 4)).astype(np.int32), f(16, 4))),
            (slices_from_helper, (f(64, 24),)), (ragged_loop, (f(96, 24),)), (ragged_loop, (f(100, 24),)),
            (conv1d_depthwise, (f(16, 32), f(16, 4), f(16, 1))), (conv1d_depthwise, (f(16, 32), f(16, 4))),
            (image_patches, (f(8, 16, 12),)), (psum_banks, (f(32, 48), f(32, 192)))]
