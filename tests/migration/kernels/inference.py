# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Beta kernels as model ports have them: decoding from a cache, gating, convolutions by taps, adapters, optimizers."""

import math
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.typing import tensor

B_P_SIZE = nl.tile_size.pmax
NEG_INF = -9984.0


@dataclass(frozen=True)
class ConvShape:
    kernel: int = 3
    stride: int = 1
    padding: int = 1

    def out(self, n):
        return (n + 2 * self.padding - self.kernel) // self.stride + 1


@nki.jit
def flash_decode(q, k_cache, v_cache, lengths, softmax_scale=None):
    """
    Decode one token against a KV cache.

    q: (bs, d, heads)   k_cache: (bs, d, seq)   v_cache: (bs, seq, d)
    lengths: (bs, 1) int32, number of valid positions
    """
    bs, d, heads = q.shape
    _, _, seq = k_cache.shape
    scale = softmax_scale or (1.0 / math.sqrt(d))
    out = nl.ndarray((bs, heads, d), dtype=q.dtype, buffer=nl.shared_hbm)
    n_tiles = seq // B_P_SIZE
    i_d = nl.arange(d)[:, None]
    i_h = nl.arange(heads)[None, :]
    i_s = nl.arange(seq)[None, :]

    for b in nl.affine_range(bs):
        q_tile = nl.load(q[b, i_d, i_h])
        k_tile = nl.load(k_cache[b, i_d, i_s])
        scores_psum = nl.zeros((heads, seq), dtype=nl.float32, buffer=nl.psum)
        scores_psum[:, :] += nisa.nc_matmul(q_tile, k_tile)
        # positions beyond the valid length
        length = nl.load(lengths[b:b + 1, 0:1])
        length_f = nl.copy(length, dtype=nl.float32)
        length_b = nl.broadcast_to(length_f, shape=(heads, 1))
        position = nisa.iota(i_s, dtype=nl.float32)
        position_b = nl.broadcast_to(position, shape=(heads, seq))
        valid = nl.less(position_b, length_b, dtype=nl.uint8)
        scaled = nisa.tensor_scalar(scores_psum, op0=np.multiply, operand0=scale)
        masked = nl.where(valid, scaled, nl.full((heads, seq), NEG_INF, dtype=nl.float32))
        neg_max = nisa.tensor_reduce(np.max, masked, axis=(1,), negate=True)
        exp = nisa.activation(np.exp, masked, bias=neg_max, scale=1.0)
        denominator = nisa.tensor_reduce(np.add, exp, axis=(1,))
        acc = nl.zeros((heads, d), dtype=nl.float32, buffer=nl.psum)
        for t in nl.affine_range(n_tiles):
            p_t = nisa.nc_transpose(exp[:, nl.ds(t * B_P_SIZE, B_P_SIZE)])
            p_sb = nl.copy(p_t, dtype=q.dtype)
            v_tile = nl.load(v_cache[b, nl.ds(t * B_P_SIZE, B_P_SIZE), :])
            acc[...] += nl.matmul(p_sb, v_tile, transpose_x=True)
        result = nl.multiply(acc, nl.reciprocal(denominator))
        nl.store(out[b], result)
    return out


@nki.jit
def top2_gating(logits, capacity: int = 4):
    """Top-2 gating of MoE: probabilities of both experts, indices."""
    T, E = logits.shape
    weights = nl.ndarray((T, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    indices = nl.ndarray((T, 2), dtype=nl.uint32, buffer=nl.shared_hbm)
    for t in nl.affine_range((T + 127) // 128):
        i_p, i_e = nl.mgrid[0:128, 0:E]
        rows = t * 128 + i_p
        tile = nl.load(logits[rows, i_e], mask=rows < T)
        probs = nl.softmax(tile, axis=1, mask=rows < T)
        best = nisa.max8(src=probs[i_p, i_e], mask=rows < T)
        where = nisa.nc_find_index8(data=probs[i_p, i_e], vals=best[i_p, nl.arange(8)[None, :]], mask=rows < T)
        i_2 = nl.arange(2)[None, :]
        total = nl.sum(best[i_p, i_2], axis=1, mask=rows < T)
        normed = nl.divide(best[i_p, i_2], total, mask=rows < T)
        nl.store(weights[t * 128 + nl.arange(128)[:, None], i_2], normed,
                 mask=t * 128 + nl.arange(128)[:, None] < T)
        nl.store(indices[t * 128 + nl.arange(128)[:, None], i_2], where[i_p, i_2],
                 mask=t * 128 + nl.arange(128)[:, None] < T)
    return weights, indices


@nki.jit
def conv2d_nchw(img, filt, shape=ConvShape()):
    """img (C_in, H, W), filt (C_in, K*K*C_out); one matmul per tap."""
    c_in, h, w = img.shape
    k = shape.kernel
    c_out = filt.shape[1] // (k * k)
    oh, ow = shape.out(h), shape.out(w)
    out = nl.ndarray((c_out, oh, ow), dtype=img.dtype, buffer=nl.shared_hbm)
    padded = nl.zeros((c_in, h + 2 * shape.padding, w + 2 * shape.padding), dtype=img.dtype)
    i_c, i_h, i_w = nl.mgrid[0:c_in, 0:h, 0:w]
    padded[i_c, i_h + shape.padding, i_w + shape.padding] = nl.load(img)
    weights = nl.load(filt)
    acc = nl.zeros((c_out, oh, ow), dtype=nl.float32, buffer=nl.psum)
    j_c, j_h, j_w = nl.mgrid[0:c_in, 0:oh, 0:ow]
    for ky in nl.affine_range(k):
        for kx in nl.affine_range(k):
            tap = weights[:, nl.ds((ky * k + kx) * c_out, c_out)]
            window = padded[j_c, j_h * shape.stride + ky, j_w * shape.stride + kx]
            acc[...] += nisa.nc_matmul(tap, window)
    nl.store(out, value=nl.relu(acc))
    return out


@nki.jit
def histogram_fixed(x, bins: int = 8, lo=-2.0, hi=2.0):
    P, F = x.shape
    counts = nl.ndarray((1, bins), dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    width = (hi - lo) / bins
    index = nl.floor((tile - lo) * (1.0 / width))
    index = nl.minimum(nl.maximum(index, 0.0), float(bins - 1))
    per_row = nl.ndarray((P, bins), dtype=nl.float32)
    for b in nl.affine_range(bins):
        per_row[:, b:b + 1] = nl.sum(nl.equal(index, b, dtype=nl.float32), axis=1, keepdims=True)
    total = nisa.nc_matmul(nl.ones((P, 1), dtype=nl.float32), per_row)
    nl.store(counts, nl.copy(total, dtype=nl.int32))
    return counts


@nki.jit
def adaptive_avgpool(x, out_size: int = 3):
    """x (C, H, W) with H, W not a multiple of out_size."""
    C, H, W = x.shape
    y = nl.ndarray((C, out_size, out_size), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    pooled = nl.ndarray((C, out_size, out_size), dtype=nl.float32)
    for i in range(out_size):
        h0, h1 = i * H // out_size, -(-(i + 1) * H // out_size)
        for j in range(out_size):
            w0, w1 = j * W // out_size, -(-(j + 1) * W // out_size)
            window = t[:, h0:h1, w0:w1]
            pooled[:, i, j] = nl.mean(window, axis=[1, 2])
    nl.store(y, pooled)
    return y


class RowTiler:
    """Yields the rows of each tile."""

    def __init__(self, rows, tile=128):
        self.rows = rows
        self.tile = tile

    @property
    def count(self):
        return (self.rows + self.tile - 1) // self.tile

    def start(self, i):
        return i * self.tile


def reduce_rows(tile, op, valid):
    return nisa.tensor_reduce(op, tile, axis=(1,), mask=valid, keepdims=True)


@nki.jit
def log_softmax(x):
    tiler = RowTiler(x.shape[0])
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    cols = x.shape[1]
    for i in nl.affine_range(tiler.count):
        i_p = nl.arange(tiler.tile)[:, None]
        i_f = nl.arange(cols)[None, :]
        valid = tiler.start(i) + i_p < tiler.rows
        t = nl.load(x[tiler.start(i) + i_p, i_f], mask=valid)
        m = reduce_rows(t, np.max, valid)
        z = nisa.tensor_scalar(t, np.subtract, m, mask=valid)
        s = nl.log(nl.sum(nl.exp(z, mask=valid), axis=1, mask=valid), mask=valid)
        nl.store(y[tiler.start(i) + i_p, i_f], nl.subtract(z, s, mask=valid), mask=valid)
    return y


@nki.jit
def sgd_momentum(p, g, m, lr=0.1, beta=0.9, weight_decay=0.01):
    """Returns the new parameters and momentum."""
    p_new = nl.ndarray(p.shape, dtype=p.dtype, buffer=nl.shared_hbm)
    m_new = nl.ndarray(m.shape, dtype=m.dtype, buffer=nl.shared_hbm)
    for r in nl.affine_range(p.shape[0] // 128):
        rows = slice(r * 128, (r + 1) * 128)
        p_t = nl.load(p[rows, :])
        g_t = nl.load(g[rows, :])
        m_t: tensor[128, p.shape[1]] = nl.load(m[rows, :])
        if weight_decay:
            g_t = g_t + weight_decay * p_t
        m_t = beta * m_t + g_t
        nl.store(m_new[rows, :], m_t)
        nl.store(p_new[rows, :], p_t - lr * m_t)
    return p_new, m_new


@nki.jit
def transpose_blocked(x):
    rows, cols = x.shape
    y = nl.ndarray((cols, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(math.ceil(rows / 128)):
        for j in nl.affine_range(math.ceil(cols / 128)):
            ip, jf = nl.mgrid[0:128, 0:128]
            inside = (i * 128 + ip < rows) & (j * 128 + jf < cols)
            t = nl.load(x[i * 128 + ip, j * 128 + jf], mask=inside)
            tt = nisa.nc_transpose(t[ip, jf], mask=inside)
            out_mask = (j * 128 + ip < cols) & (i * 128 + jf < rows)
            sb = nl.copy(tt[ip, jf], mask=out_mask)
            nl.store(y[j * 128 + ip, i * 128 + jf], sb, mask=out_mask)
    return y


@nki.jit
def lora_linear(x_t, w, a, b, alpha=16.0):
    """y = x w + alpha / r * (x a) b;  x_t (K, M), w (K, N), a (K, r), b (r, N)."""
    K, M = x_t.shape
    N, r = w.shape[1], a.shape[1]
    assert M <= 128 and r <= 128
    y = nl.ndarray((M, N), dtype=x_t.dtype, buffer=nl.shared_hbm)
    xa = nl.zeros((r, M), dtype=nl.float32, buffer=nl.psum)
    base = nl.zeros((M, N), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(K // 128):
        ks = nl.ds(k * 128, 128)
        x_k = nl.load(x_t[ks, :])
        xa += nisa.nc_matmul(nl.load(a[ks, :]), x_k)
        base += nisa.nc_matmul(x_k, nl.load(w[ks, :]))
    xa_sb = nl.multiply(xa, alpha / r)
    delta = nisa.nc_matmul(xa_sb, nl.load(b))
    nl.store(y, value=nl.add(base, nl.copy(delta)))
    return y


def cases():
    r = np.random.default_rng(0)

    def f(*shape):
        return r.standard_normal(shape).astype(np.float32)
    return [
        (flash_decode, (f(2, 32, 8), f(2, 32, 256), f(2, 256, 32), np.array([[100], [256]], np.int32))),
        (top2_gating, (f(150, 16),)), (conv2d_nchw, (f(16, 12, 10), f(16, 9 * 8))), (histogram_fixed, (f(64, 20),)),
        (adaptive_avgpool, (f(16, 8, 7),)), (log_softmax, (f(150, 20),)),
        (sgd_momentum, (f(128, 16), f(128, 16), f(128, 16))), (transpose_blocked, (f(150, 140),)),
        (lora_linear, (f(256, 64), f(256, 96), f(256, 8), f(8, 96)))]
