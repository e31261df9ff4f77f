# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooling, convolution, interpolation."""
import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import par_dim


@nki.jit
def max_pool2d_with_indices(img, pool=2, stride=2):
    """Max pool, and the flat index of each maximum."""
    C, H, W = img.shape
    H_o, W_o = (H - pool) // stride + 1, (W - pool) // stride + 1
    out = nl.ndarray((C, H_o, W_o), dtype=img.dtype, buffer=nl.shared_hbm)
    idx = nl.ndarray((C, H_o, W_o), dtype=nl.int32, buffer=nl.shared_hbm)
    i_c, i_h, i_w = nl.mgrid[0:C, 0:H, 0:W]
    x = nl.load(img[i_c, i_h, i_w])
    i0 = nl.arange(C)[:, None, None, None, None]
    i1 = nl.arange(H_o)[None, :, None, None, None]
    i2 = nl.arange(W_o)[None, None, :, None, None]
    i3 = nl.arange(pool)[None, None, None, :, None]
    i4 = nl.arange(pool)[None, None, None, None, :]
    best = nl.max(x[i0, stride * i1 + i3, stride * i2 + i4], axis=[3, 4])
    flat = nl.zeros((C, H_o, W_o), dtype=nl.float32, buffer=nl.sbuf)
    flat[...] = nl.full((C, H_o, W_o), -1.0, dtype=nl.float32)
    for p in nl.static_range(pool):
        for q in nl.static_range(pool):
            o_c, o_h, o_w = nl.mgrid[0:C, 0:H_o, 0:W_o]
            window = x[o_c, stride * o_h + p, stride * o_w + q]
            here = nl.equal(window, best, dtype=nl.float32)
            pos = nisa.iota((stride * o_h + p) * W + stride * o_w + q + 0 * o_c, dtype=nl.float32)
            flat[o_c, o_h, o_w] = nl.maximum(flat, here * (pos + 1.0) - 1.0)
    nl.store(out, best)
    nl.store(idx, nl.copy(flat, dtype=nl.int32))
    return out, idx


@nki.jit
def depthwise_conv2d(x, w, padding=1):
    """x [C, H, W], w [C, kh, kw]: same convolution with zero padding."""
    C, H, W = x.shape
    _, kh, kw = w.shape
    Hp, Wp = H + 2 * padding, W + 2 * padding
    out = nl.ndarray((C, H, W), dtype=x.dtype, buffer=nl.shared_hbm)
    padded = nl.zeros((par_dim(C), Hp, Wp), dtype=x.dtype, buffer=nl.sbuf)
    padded[:, padding:padding + H, padding:padding + W] = nl.load(x)
    w_sb = nl.load(w)
    acc = nl.zeros((par_dim(C), H, W), dtype=nl.float32)
    for i in range(kh):
        for j in range(kw):
            acc[...] += padded[:, i:i + H, j:j + W] * w_sb[:, i, j]
    nl.store(out[...], value=acc)
    return out


@nki.jit
def conv2d_im2col(x, w, bias=None, stride=1):
    """x [N, Cin, H, W], w [Cin, kh, kw, Cout]: one matmul for each filter tap."""
    N, Cin, H, W = x.shape
    Cin_, kh, kw, Cout = w.shape
    assert Cin_ == Cin and Cout <= nl.tile_size.pmax
    Ho, Wo = (H - kh) // stride + 1, (W - kw) // stride + 1
    y = nl.ndarray((N, Cout, Ho, Wo), dtype=x.dtype, buffer=nl.shared_hbm)
    w_sb = nl.load(w)
    b_sb = nl.load(bias) if bias is not None else None
    for n in nl.affine_range(N):
        x_sb = nl.load(x[n])
        for r in nl.affine_range(Ho):
            psum = nl.zeros((Cout, Wo), nl.float32, buffer=nl.psum)
            for dh in nl.affine_range(kh):
                for dw in nl.affine_range(kw):
                    i_k = nl.arange(Cin)[:, None]
                    i_m = nl.arange(Cout)[None, :]
                    i_n = nl.arange(Wo)[None, :]
                    psum += nisa.nc_matmul(w_sb[i_k, dh, dw, i_m], x_sb[i_k, r * stride + dh, i_n * stride + dw])
            if b_sb is not None:
                res = nisa.activation(nl.copy, psum, bias=b_sb)
            else:
                res = nl.copy(psum, dtype=x.dtype)
            nl.store(y[n, :, r, :], res)
    return y


@nki.jit
def bilinear_2x(src):
    """Upsample [C, H, W] twice with the weights 0.75 and 0.25."""
    C, H, W = src.shape
    dst = nl.ndarray((C, 2 * H, 2 * W), dtype=src.dtype, buffer=nl.shared_hbm)
    img = nl.load(src)
    rows = nl.ndarray((C, 2 * H, W), dtype=nl.float32, buffer=nl.sbuf)
    i_c, i_h, i_w = nl.mgrid[0:C, 0:H - 1, 0:W]
    rows[i_c, 2 * i_h + 1, i_w] = 0.75 * img[i_c, i_h, i_w] + 0.25 * img[i_c, i_h + 1, i_w]
    rows[i_c, 2 * i_h + 2, i_w] = 0.25 * img[i_c, i_h, i_w] + 0.75 * img[i_c, i_h + 1, i_w]
    rows[:, 0, :] = nl.copy(img[:, 0, :])
    rows[:, 2 * H - 1, :] = nl.copy(img[:, H - 1, :])
    full = nl.ndarray((C, 2 * H, 2 * W), dtype=src.dtype, buffer=nl.sbuf)
    j_c, j_h, j_w = nl.mgrid[0:C, 0:2 * H, 0:W - 1]
    full[j_c, j_h, 2 * j_w + 1] = nl.add(nl.multiply(rows[j_c, j_h, j_w], 0.75), nl.multiply(rows[j_c, j_h, j_w + 1], 0.25))
    full[j_c, j_h, 2 * j_w + 2] = nl.add(nl.multiply(rows[j_c, j_h, j_w], 0.25), nl.multiply(rows[j_c, j_h, j_w + 1], 0.75))
    full[:, :, 0:1] = rows[:, :, 0:1]
    full[:, :, 2 * W - 1:2 * W] = rows[:, :, W - 1:W]
    nl.store(dst, full)
    return dst


@nki.jit
def causal_conv1d(x, weight, bias, activation: str = "silu"):
    """x [D, L], weight [D, K], bias [D, 1], as in mamba."""
    D, L = x.shape
    K = weight.shape[1]
    out = nl.ndarray((D, L), dtype=x.dtype, buffer=nl.shared_hbm)
    for d in nl.affine_range(D // 128):
        ip = d * 128 + nl.arange(128)[:, None]
        buf = nl.zeros((par_dim(128), K - 1 + L), dtype=nl.float32)
        buf[:, K - 1:] = nl.load(x[ip, nl.arange(L)[None, :]])
        wt = nl.load(weight[ip, nl.arange(K)[None, :]])
        bt = nl.load(bias[ip, nl.arange(1)[None, :]])
        acc = nl.ndarray((par_dim(128), L), dtype=nl.float32)
        acc[...] = nisa.tensor_scalar(buf[:, 0:L], np.multiply, wt[:, 0], op1=np.add, operand1=bt)
        for k in nl.static_range(1, K):
            acc[...] = nisa.scalar_tensor_tensor(data=buf[:, nl.ds(k, L)], op0=np.multiply, operand0=wt[:, k], op1=np.add, operand1=acc)
        if activation == "silu":
            acc = nl.silu(acc)
        elif activation is not None:
            raise ValueError(f"unsupported activation {activation!r}")
        nl.store(out[ip, nl.arange(L)[None, :]], acc)
    return out


@nki.jit
def trilinear_depth(x, y_ref: nt.mutable_tensor):
    """Interpolate along depth: [C, D, H*W] -> [C, 2D-1, H*W]."""
    C, D, N = x.shape
    t = nl.load(x)
    for d in nl.affine_range(D):
        nl.store(y_ref[:, 2 * d, :], t[:, d, :])
    for d in nl.affine_range(D - 1):
        mid = (t[:, d, :] + t[:, d + 1, :]) * 0.5
        nl.store(y_ref[:, 2 * d + 1, :], mid)


@nki.jit
def enlarged(x, by):
    """Each element in a square of equal ones: the indices on the left have axes that those on the right lack."""
    channels, height, width = x.shape
    out = nl.ndarray((channels, height * by, width * by), dtype=x.dtype, buffer=nl.shared_hbm)
    i_c, i_h, a, i_w, b = nl.mgrid[0:channels, 0:height, 0:by, 0:width, 0:by]
    tile = nl.load(x)
    squares = nl.ndarray((channels, height, by, width, by), dtype=x.dtype)
    squares[i_c, i_h, a, i_w, b] = nl.copy(tile[i_c, i_h, i_w])
    squares[i_c, i_h, a, i_w, b] = nl.exp(tile[i_c, i_h, i_w])
    nl.store(out, squares.reshape((channels, height * by, width * by)))
    return out


@nki.jit
def means_of_windows(x, count):
    """Windows whose sizes the text does not show."""
    channels, height, width = x.shape
    out = nl.ndarray((channels, count), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, means = nl.load(x), nl.ndarray((channels, count), dtype=x.dtype)
    for i in range(count):
        first, last = math.floor(i * height / count), math.ceil((i + 1) * height / count)
        means[:, i] = nl.mean(tile[:, first:last, :], axis=[1, 2])
    nl.store(out, means)
    return out


def cases():
    r = np.random.default_rng(0)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [(max_pool2d_with_indices, (f(16, 8, 10),)), (depthwise_conv2d, (f(16, 7, 9), f(16, 3, 3))),
            (conv2d_im2col, (f(2, 8, 7, 9), f(8, 3, 3, 16))), (conv2d_im2col, (f(2, 8, 7, 9), f(8, 3, 3, 16), f(16, 1))),
            (conv2d_im2col, (f(1, 8, 7, 9), f(8, 3, 3, 16), None, 2)), (bilinear_2x, (f(16, 6, 7),)),
            (causal_conv1d, (f(256, 40), f(256, 4), f(256, 1))), (trilinear_depth, (f(8, 5, 12), np.zeros((8, 9, 12), np.float32))),
            (enlarged, (f(16, 4, 5), 2)), (means_of_windows, (f(16, 10, 4), 3))]
