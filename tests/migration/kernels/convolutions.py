# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions and pooling of the beta generation: dilated, grouped and transposed filters, and windows of any form."""

import math
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np

MAX_MOVING = nl.tile_size.gemm_moving_fmax


@dataclass(frozen=True)
class Window:
    """A window of size x size, its step, and the zeros around the image."""

    size: int = 3
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def out(self, n: int) -> int:
        return (n + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1


@nki.jit
def dilated_conv2d(img, weights, bias, window: Window = Window()):
    """img [N, Cin, H, W], weights [Cin, K * K, Cout], bias [Cout, 1]: one product for each element of the window and
    each row of the result, on a padded image."""
    N, Cin, H, W = img.shape
    _, taps, Cout = weights.shape
    assert taps == window.size ** 2, f"{taps} weights for a window of {window.size}"
    OH, OW = window.out(H), window.out(W)
    assert OW <= MAX_MOVING
    out = nl.ndarray((N, Cout, OH, OW), dtype=img.dtype, buffer=nl.shared_hbm)
    w = nl.load(weights)
    b = nl.load(bias)
    pad, step, gap = window.padding, window.stride, window.dilation
    i_c = nl.arange(Cin)[:, None]
    for n in nl.affine_range(N):
        padded = nl.zeros((nl.par_dim(Cin), H + 2 * pad, W + 2 * pad), dtype=img.dtype, buffer=nl.sbuf)
        i_h = nl.arange(H)[None, :, None]
        i_w = nl.arange(W)[None, None, :]
        padded[nl.arange(Cin)[:, None, None], pad + i_h, pad + i_w] = nl.load(img[n])
        for y in nl.affine_range(OH):
            acc = nl.zeros((nl.par_dim(Cout), OW), dtype=nl.float32, buffer=nl.psum)
            for tap in nl.affine_range(taps):
                dy, dx = tap // window.size, tap % window.size
                columns = nl.arange(OW)[None, :] * step + dx * gap
                row = padded[i_c, y * step + dy * gap, columns]
                acc += nisa.nc_matmul(w[:, tap, :], row)
            result = nisa.activation(op=nl.relu, data=acc, bias=b)
            nl.store(out[n, :, y, :], value=nl.copy(result, dtype=out.dtype))
    return out


@nki.jit
def max_pool_with_mask(img, k: int = 3, stride: int = 2):
    """img [C, H, W]: windows at the edge see fewer elements, as with ceil_mode; also where the tile is the maximum."""
    C, H, W = img.shape
    OH, OW = math.ceil((H - k) / stride) + 1, math.ceil((W - k) / stride) + 1
    out = nl.ndarray((C, OH, OW), dtype=img.dtype, buffer=nl.shared_hbm)
    tile = nl.load(img)
    i_c, i_y, i_x, i_dy, i_dx = nl.mgrid[0:C, 0:OH, 0:OW, 0:k, 0:k]
    inside = (i_y * stride + i_dy < H) & (i_x * stride + i_dx < W)
    best = nl.max(tile[i_c, i_y * stride + i_dy, i_x * stride + i_dx], axis=[3, 4], mask=inside)
    nl.store(out, best)
    return out


@nki.jit
def global_pools(img):
    """img [N, C, H, W] to [N, C, 3]: mean, largest and root mean square of each channel, channels in tiles of 128."""
    N, C, H, W = img.shape
    out = nl.ndarray((N, C, 3), dtype=nl.float32, buffer=nl.shared_hbm)
    flat = img.reshape((N, C, H * W))
    for n in nl.affine_range(N):
        for t in nl.affine_range(math.ceil(C / 128)):
            i_c = nl.arange(128)[:, None]
            i_e = nl.arange(H * W)[None, :]
            valid = t * 128 + i_c < C
            x = nl.load(flat[n, t * 128 + i_c, i_e], mask=valid, dtype=nl.float32)
            three = nl.ndarray((128, 3), dtype=nl.float32, buffer=nl.sbuf)
            three[i_c, 0] = nl.mean(x, axis=[1], mask=valid)
            three[i_c, 1] = nl.max(x, axis=[1], mask=valid)
            squares = nl.mean(nl.square(x, mask=valid), axis=1, mask=valid)
            three[i_c, 2] = nl.sqrt(squares, mask=valid)
            i_3 = nl.arange(3)[None, :]
            nl.store(out[n, t * 128 + i_c, i_3], value=three[i_c, i_3], mask=valid)
    return out


@nki.jit
def grouped_conv1d(x, w, groups=4):
    """x [Cin, L], w [groups, K, Cin / groups, Cout / groups]: the groups share a bank, one beside the other."""
    Cin, L = x.shape
    G, K, ci, co = w.shape
    assert G == groups and ci * G == Cin
    length = L - K + 1
    out = nl.ndarray((G * co, length), dtype=x.dtype, buffer=nl.shared_hbm)
    by_group = x.reshape((G, ci, L))
    for g in nl.affine_range(groups):
        signal = nl.load(by_group[g])
        filters = nl.ndarray((K, nl.par_dim(ci), co), dtype=w.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(K):
            filters[k] = nl.load(w[g, k])
        acc = nl.zeros((co, length), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(K):
            acc += nl.matmul(filters[k], signal[:, k:k + length], transpose_x=True)
        nl.store(out[g * co:(g + 1) * co, :], value=nl.copy(acc))
    return out


@nki.jit
def max_unpool(values, offsets, out_ref: nt.mutable_tensor, k: int = 2):
    """values [C, H, W], offsets [C, H, W] in [0, k * k): each value at its place in a window of zeros."""
    C, H, W = values.shape
    v = nl.load(values)
    where = nl.load(offsets)
    image = nl.zeros((C, H * k, W * k), dtype=values.dtype, buffer=nl.sbuf)
    i_c, i_h, i_w = nl.mgrid[0:C, 0:H, 0:W]
    for dy in range(k):
        for dx in range(k):
            here = nl.equal(where, dy * k + dx, dtype=values.dtype)
            image[i_c, i_h * k + dy, i_w * k + dx] = nl.multiply(v, here)
    nl.store(out_ref, image)


@nki.jit
def lp_pool_rows(x, window=4, p=3.0):
    """x [R, L]: (mean of |x|^p over windows)^(1/p), the last window shorter."""
    R, L = x.shape
    count = -(-L // window)
    out = nl.ndarray((R, count), dtype=nl.float32, buffer=nl.shared_hbm)
    i_r = nl.arange(R)[:, None]
    i_l = nl.arange(count * window)[None, :]
    padded = nl.zeros((nl.par_dim(R), count * window), dtype=nl.float32)
    padded[i_r, i_l] = nl.load(x[i_r, i_l], mask=i_l < L)
    powers = nl.power(nl.abs(padded), p)
    views = powers.reshape((R, count, window))
    means = nl.sum(views, axis=2) * (1.0 / window)
    nl.store(out, nl.power(means, 1.0 / p))
    return out


def cases():
    r = np.random.default_rng(41)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [(dilated_conv2d, (f(2, 8, 9, 11), f(8, 9, 16), f(16, 1), Window(3, 1, 2, 2))),
            (dilated_conv2d, (f(1, 6, 10, 10), f(6, 4, 5), f(5, 1), Window(size=2, stride=2))),
            (max_pool_with_mask, (f(10, 12, 15),)),
            (global_pools, (f(2, 140, 5, 6),)),
            (grouped_conv1d, (f(32, 40), f(4, 3, 8, 16))),
            (max_unpool, (f(16, 5, 6), r.integers(0, 4, (16, 5, 6)).astype(np.int32), np.zeros((16, 10, 12), np.float32))),
            (lp_pool_rows, (f(40, 30),))]
