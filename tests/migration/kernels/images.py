# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation on images: windows, borders, channels in blocks, and programs for each image."""

from functools import reduce
from operator import mul

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim
from neuronxcc.nki.typing import tensor

P_MAX = 128


def get_pool_shape(size, kernel, stride, padding=(0, 0)):
    """The rows and columns of a pooled image."""
    return tuple((n + 2 * p - k) // s + 1 for n, k, s, p in zip(size, kernel, stride, padding))


@nki.jit(mode="simulation")
def max_pool_with_stride(in_tensor, kernel=(3, 2), stride=(2, 1)):
    """in_tensor [C, H, W]: the largest of each window, read as one pattern of five dimensions."""
    C, H, W = in_tensor.shape
    kh, kw = kernel
    oh, ow = get_pool_shape((H, W), kernel, stride)
    out_tensor = nl.ndarray((C, oh, ow), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    in_tile: tensor[C, H, W] = nl.load(in_tensor)
    i_c = nl.arange(C)[:, None, None, None, None]
    i_oh = nl.arange(oh)[None, :, None, None, None]
    i_ow = nl.arange(ow)[None, None, :, None, None]
    i_kh = nl.arange(kh)[None, None, None, :, None]
    i_kw = nl.arange(kw)[None, None, None, None, :]
    out_tile: tensor[C, oh, ow] = nl.max(in_tile[i_c, stride[0] * i_oh + i_kh, stride[1] * i_ow + i_kw], axis=[3, 4])
    nl.store(out_tensor, value=out_tile)
    return out_tensor


@nki.jit
def instance_norm(img, gamma, beta, eps=1e-5):
    """img [N, C, H, W], a program for each image: every channel has its own mean and variance."""
    N, C, H, W = img.shape
    n = nl.program_id(axis=0)
    out = nl.ndarray(img.shape, dtype=img.dtype, buffer=nl.shared_hbm)
    free = H * W
    fmax = nl.tile_size.bn_stats_fmax
    pieces = (free + fmax - 1) // fmax
    flat_in = img.reshape((N, C, free))
    flat_out = out.reshape((N, C, free))
    i_p, i_f = nl.mgrid[0:P_MAX, 0:free]
    for c in nl.affine_range((C + P_MAX - 1) // P_MAX):
        mask = c * P_MAX + i_p < C
        x = nl.load(flat_in[n, c * P_MAX + i_p, i_f], mask=mask)
        g = nl.load(gamma[c * P_MAX + nl.arange(P_MAX)[:, None]], mask=c * P_MAX + nl.arange(P_MAX)[:, None] < C)
        b = nl.load(beta[c * P_MAX + nl.arange(P_MAX)[:, None]], mask=c * P_MAX + nl.arange(P_MAX)[:, None] < C)
        stats = nl.ndarray((P_MAX, pieces, 6), dtype=nl.float32)
        for k in nl.affine_range(pieces):
            i_s = nl.arange(fmax)[None, :]
            valid = (c * P_MAX + nl.arange(P_MAX)[:, None] < C) & (k * fmax + i_s < free)
            stats[:, k, :] = nisa.bn_stats(x[nl.arange(P_MAX)[:, None], k * fmax + i_s], mask=valid, dtype=nl.float32)
        moments = nisa.bn_aggr(stats, mask=c * P_MAX + nl.arange(P_MAX)[:, None, None] < C)
        scale = nl.rsqrt(moments[:, 1:2] + eps) * g
        shift = b - moments[:, 0:1] * scale
        y = nisa.tensor_scalar(x, op0=np.multiply, operand0=scale, op1=np.add, operand1=shift, mask=mask)
        nl.store(flat_out[n, c * P_MAX + i_p, i_f], value=y, mask=mask)
    return out


@nki.jit
def pixel_shuffle(img, factor=2):
    """img [C * r * r, H, W] to [C, H * r, W * r]: partitions become rows and columns of the image."""
    Crr, H, W = img.shape
    C = Crr // (factor * factor)
    out = nl.ndarray((C, H * factor, W * factor), dtype=img.dtype, buffer=nl.shared_hbm)
    planes = img.reshape((C, factor, factor, H, W))
    i_c, i_h, i_w = nl.mgrid[0:C, 0:H, 0:W]
    wide = nl.ndarray((par_dim(C), H * factor, W * factor), dtype=img.dtype, buffer=nl.sbuf)
    for dy in nl.static_range(factor):
        for dx in nl.static_range(factor):
            wide[i_c, factor * i_h + dy, factor * i_w + dx] = nl.load(planes[i_c, dy, dx, i_h, i_w])
    nl.store(out[0:C], value=wide)
    return out


@nki.jit
def conv2d_with_halo(img, weights, bias, stride=1):
    """img [N, Cin, H, W], weights [Cin, Kh, Kw, Cout]: products accumulated over channels and taps, in bands of rows."""
    N, Cin, H, W = img.shape
    _, Kh, Kw, Cout = weights.shape
    Ho, Wo = (H - Kh) // stride + 1, (W - Kw) // stride + 1
    out = nl.ndarray((N, Cout, Ho, Wo), dtype=img.dtype, buffer=nl.shared_hbm)
    band = max(1, min(Ho, 512 // Wo))
    c_tiles = (Cin + P_MAX - 1) // P_MAX

    w_sb = nl.ndarray((c_tiles, nl.par_dim(P_MAX), Kh, Kw, Cout), dtype=weights.dtype, buffer=nl.sbuf)
    i_ci, i_kh, i_kw, i_co = nl.mgrid[0:P_MAX, 0:Kh, 0:Kw, 0:Cout]
    for c in nl.affine_range(c_tiles):
        w_sb[c, i_ci, i_kh, i_kw, i_co] = nl.load(weights[c * P_MAX + i_ci, i_kh, i_kw, i_co],
                                                  mask=(c * P_MAX + i_ci < Cin))
    bias_sb = nl.load(bias.reshape((Cout, 1)))

    for n in nl.affine_range(N):
        for t in nl.affine_range((Ho + band - 1) // band):
            acc = nl.zeros((nl.par_dim(Cout), band, Wo), dtype=nl.float32, buffer=nl.psum)
            rows_in = (band - 1) * stride + Kh
            i_p = nl.arange(P_MAX)[:, None, None]
            i_r = nl.arange(rows_in)[None, :, None]
            i_w = nl.arange(W)[None, None, :]
            o_r = nl.arange(band)[None, :, None]
            o_w = nl.arange(Wo)[None, None, :]
            for c in nl.affine_range(c_tiles):
                x = nl.load(img[n, c * P_MAX + i_p, t * band * stride + i_r, i_w],
                            mask=(c * P_MAX + i_p < Cin) & (t * band * stride + i_r < H))
                for kh in nl.affine_range(Kh):
                    for kw in nl.affine_range(Kw):
                        acc += nisa.nc_matmul(w_sb[c, :, kh, kw, :], x[i_p, stride * o_r + kh, stride * o_w + kw],
                                              mask=(c * P_MAX + i_p < Cin) & (t * band + o_r < Ho))
            i_o = nl.arange(Cout)[:, None, None]
            y = nisa.activation(op=nl.relu, data=acc, bias=bias_sb, dtype=img.dtype)
            nl.store(out[n, i_o, t * band + o_r, o_w], value=y[i_o, o_r, o_w], mask=(t * band + o_r < Ho))
    return out


def _lerp(a, b, weight):
    """a + (b - a) * weight"""
    return nl.add(a, nl.multiply(nl.subtract(b, a), weight))


@nki.jit
def upsample_rows_linear(img):
    """img [H, W, C] to [2 H, W, C], each new row between two old ones; channels lie along partitions."""
    H, W, C = img.shape
    out = nl.ndarray((2 * H, W, C), dtype=img.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range((C + P_MAX - 1) // P_MAX):
        i_c = nl.arange(P_MAX)[:, None, None]
        i_h = nl.arange(H)[None, :, None]
        i_w = nl.arange(W)[None, None, :]
        channel = t * P_MAX + i_c
        tile = nl.load(img[i_h, i_w, channel], mask=channel < C)
        local = nl.ndarray((P_MAX, 2 * H, W), dtype=img.dtype, buffer=nl.sbuf)
        inner = nl.arange(H - 1)[None, :, None]
        local[i_c, 2 * inner + 1, i_w] = _lerp(tile[i_c, inner, i_w], tile[i_c, inner + 1, i_w], 0.25)
        local[i_c, 2 * inner + 2, i_w] = _lerp(tile[i_c, inner, i_w], tile[i_c, inner + 1, i_w], 0.75)
        local[:, 0:1, :] = tile[:, 0:1, :]
        local[:, 2 * H - 1:2 * H, :] = tile[:, H - 1:H, :]
        i_h2 = nl.arange(2 * H)[None, :, None]
        nl.store(out[i_h2, i_w, channel], local[i_c, i_h2, i_w], mask=channel < C)
    return out


@nki.jit
def histogram_of_oriented_edges(img, bins=4):
    """img [H, W]: horizontal and vertical differences by shifted loads, counted by the sign of both."""
    H, W = img.shape
    out = nl.ndarray((H, bins), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p = nl.arange(P_MAX)[:, None]
    i_f = nl.arange(W - 1)[None, :]
    for t in nl.affine_range((H - 1 + P_MAX - 1) // P_MAX):
        inside = t * P_MAX + i_p < H - 1
        here = nl.load(img[t * P_MAX + i_p, i_f], mask=inside)
        right = nl.load(img[t * P_MAX + i_p, i_f + 1], mask=inside)
        below = nl.load(img[t * P_MAX + i_p + 1, i_f], mask=inside)
        dx = nl.subtract(right, here, mask=inside)
        dy = nl.subtract(below, here, mask=inside)
        code = nl.add(nl.multiply(nl.greater(dx, 0.0, mask=inside), 2.0, dtype=nl.float32, mask=inside),
                      nl.greater(dy, 0.0, mask=inside), dtype=nl.float32, mask=inside)
        counts = nl.ndarray((P_MAX, bins), dtype=nl.float32, buffer=nl.sbuf)
        for b in nl.static_range(bins):
            is_bin = nl.equal(code, float(b), dtype=nl.float32, mask=inside)
            counts[i_p, b] = nl.sum(is_bin, axis=[1], keepdims=True, mask=inside)
        nl.store(out[t * P_MAX + i_p, nl.arange(bins)[None, :]], value=counts, mask=inside)
    zero = nl.zeros((1, bins), dtype=nl.float32)
    nl.store(out[H - 1:H, :], value=zero)
    return out


@nki.jit
def global_average_pool(img):
    """img [N, C, H, W] to [N, C]: a grid of images and blocks of channels; means become columns of one tile."""
    N, C, H, W = img.shape
    out = nl.ndarray((N, C), dtype=nl.float32, buffer=nl.shared_hbm)
    n, c = nl.program_id(0), nl.program_id(1)
    start = c * 64
    i_p = nl.arange(64)[:, None, None]
    x = nl.load(img[n, start + i_p, nl.arange(H)[None, :, None], nl.arange(W)[None, None, :]], mask=(start + i_p < C))
    size = reduce(mul, (H, W))
    mean = nl.sum(x, axis=[1, 2], mask=(start + i_p < C), dtype=nl.float32) / float(size)
    nl.store(out[n, start + nl.arange(64)[:, None]], value=mean, mask=(start + nl.arange(64)[:, None] < C))
    return out


def cases():
    r = np.random.default_rng(11)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [(max_pool_with_stride, (f(40, 9, 8),)),
            (instance_norm[2], (f(2, 150, 24, 30), f(150), f(150))),
            (pixel_shuffle, (f(32, 6, 5),)),
            (pixel_shuffle, (f(27, 4, 4), 3)),
            (conv2d_with_halo, (f(2, 140, 9, 8), 0.1 * f(140, 3, 3, 24), f(24))),
            (conv2d_with_halo, (f(1, 20, 40, 41), 0.1 * f(20, 2, 3, 16), f(16), 2)),
            (upsample_rows_linear, (f(5, 6, 140),)),
            (histogram_of_oriented_edges, (f(150, 40),)),
            (global_average_pool[3, 2], (f(3, 100, 6, 7),))]
