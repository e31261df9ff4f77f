# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index grids: nl.mgrid with members, nl.arange along up to five axes, sums and multiples of indices."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def pixel_shuffle(x, factor=2):
    """x [c * f * f, h, w] to [c, h * f, w * f]."""
    channels, h, w = x.shape
    c = channels // (factor * factor)
    out = nl.ndarray((c, h * factor, w * factor), dtype=x.dtype, buffer=nl.shared_hbm)
    grid = nl.mgrid[0:c, 0:h, 0:w]
    big = nl.ndarray((nl.par_dim(c), h * factor, w * factor), dtype=x.dtype, buffer=nl.sbuf)
    for dy in nl.static_range(factor):
        for dx in nl.static_range(factor):
            plane = nl.load(x[(dy * factor + dx) * c + grid.p, grid.x, grid.y])
            big[grid.p, grid.x * factor + dy, grid.y * factor + dx] = nl.copy(plane)
    nl.store(out, value=big)
    return out


@nki.jit
def interleave(a, b):
    """Columns of a and b in turn."""
    rows, cols = a.shape
    out = nl.ndarray((rows, 2 * cols), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(rows)[:, None]
    i_f = nl.arange(cols)[None, :]
    both = nl.ndarray((nl.par_dim(rows), 2 * cols), dtype=a.dtype, buffer=nl.sbuf)
    both[i_p, 2 * i_f] = nl.load(a[i_p, i_f])
    both[i_p, 2 * i_f + 1] = nl.load(b[i_p, i_f])
    nl.store(out, both)
    return out


@nki.jit
def rotary_halves(x, cos, sin):
    """x [seq, dim]: the halves of each row are rotated."""
    seq, dim = x.shape
    half = dim // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip = nl.arange(seq)[:, None]
    ih = nl.arange(half)[None, :]
    t = nl.load(x)
    c, s = nl.load(cos), nl.load(sin)
    result = nl.ndarray((nl.par_dim(seq), dim), dtype=x.dtype, buffer=nl.sbuf)
    result[ip, ih] = nl.subtract(nl.multiply(t[ip, ih], c), nl.multiply(t[ip, ih + half], s))
    result[ip, half + ih] = nl.add(nl.multiply(t[ip, half + ih], c), nl.multiply(t[ip, ih], s))
    nl.store(out[ip, nl.arange(dim)[None, :]], result)
    return out


@nki.jit
def window_sums(x, size=3, stride=2):
    """Sums of windows of rows of three dimensions, with a stride."""
    p, h, w = x.shape
    oh, ow = (h - size) // stride + 1, (w - size) // stride + 1
    out = nl.ndarray((p, oh, ow), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    i0 = nl.arange(p)[:, None, None, None, None]
    i1 = nl.arange(oh)[None, :, None, None, None]
    i2 = nl.arange(ow)[None, None, :, None, None]
    i3 = nl.arange(size)[None, None, None, :, None]
    i4 = nl.arange(size)[None, None, None, None, :]
    nl.store(out, value=nl.sum(t[i0, stride * i1 + i3, stride * i2 + i4], axis=[3, 4]))
    return out


@nki.jit
def diagonal_blocks(x, n=16):
    """The blocks of n x n on the diagonal, each transposed."""
    size, _ = x.shape
    out = nl.ndarray((size // n, n, n), dtype=x.dtype, buffer=nl.shared_hbm)
    g = nl.mgrid[0:n, 0:n]
    for b in nl.affine_range(size // n):
        block = nl.load(x[b * n + g.p, b * n + g.x])
        nl.store(out[b, g.p, g.x], value=nisa.nc_transpose(block))
    return out


@nki.jit
def shifted_difference(x, shift=1):
    """x[:, k + shift] - x[:, k], with the last columns under a mask."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    d = nl.zeros((rows, cols), dtype=x.dtype, buffer=nl.sbuf)
    ip, jf = nl.mgrid[0:rows, 0:cols]
    d[ip, jf] = nl.subtract(t[ip, jf + shift], t[ip, jf], mask=jf + shift < cols)
    nl.store(out, d)
    return out


def cases():
    r = np.random.default_rng(17)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (pixel_shuffle, (f(32, 6, 10),)),
        (interleave, (f(48, 20), f(48, 20))),
        (rotary_halves, (f(64, 32), f(64, 16), f(64, 16))),
        (window_sums, (f(24, 11, 9),)),
        (diagonal_blocks, (f(64, 64),)),
        (shifted_difference, (f(40, 30),)),
        (shifted_difference, (f(40, 30),), {"shift": 4}),
    ]
