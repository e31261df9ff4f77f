# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation whose masks compare indices with each other: causal masks, bands and diagonals."""
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.typing import tensor


@nki.jit
def masked_scores(q, k, scale=0.25):
    """The causal mask of an operation that writes into a tile with other values."""
    _, n = q.shape
    out = nl.ndarray((n, n), dtype=q.dtype, buffer=nl.shared_hbm)
    i_q = nl.arange(64)[:, None]
    i_k = nl.arange(64)[None, :]
    q_tile, k_tile = nl.load(q), nl.load(k)
    for qi in nl.affine_range(n // 64):
        for ki in nl.affine_range(n // 64):
            scores = nl.full((64, 64), -30000.0, dtype=nl.float32)
            product = nisa.nc_matmul(q_tile[:, nl.ds(qi * 64, 64)], k_tile[:, nl.ds(ki * 64, 64)])
            # only what a query may see
            scores[i_q, i_k] = nl.multiply(product, scale, mask=(qi * 64 + i_q >= ki * 64 + i_k))
            nl.store(out[qi * 64 + i_q, ki * 64 + i_k], scores)
    return out


@nki.jit
def band(q: tensor, k: tensor, window):
    """Two conditions, and a mask that selects some rows."""
    _, n = q.shape
    out = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.shared_hbm)
    ix, iy = nl.mgrid[0:n, 0:n]
    s = nl.matmul(nl.load(q), nl.load(k), transpose_x=True)
    inside = nl.zeros((n, n), dtype=nl.float32, buffer=nl.sbuf)
    inside[ix, iy] = nl.copy(s, mask=(ix >= iy) & (ix - iy < window) & (ix < n - 8))
    nl.store(out[ix, iy], inside)
    return out


@nki.jit
def stored_triangle(x, shift=0):
    """A store writes nothing but the elements that the mask selects, in a row perhaps none."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:n, 0:m]
    nl.store(out[i_p, i_f], value=-1.0)
    tile = nl.load(x[i_p, i_f])
    nl.store(out[i_p, i_f], value=nl.exp(tile), mask=(i_p >= i_f + shift))
    nl.store(out[i_p, i_f], value=tile, mask=(i_p < i_f) & (i_f < m - 4) & (i_p > 2))
    nl.store(out[i_p, i_f], 7.0, mask=(i_f == i_p))
    return out


@nki.jit
def reduced_triangles(x):
    """What a mask leaves out is not a part of a reduction."""
    n, m = x.shape
    out = nl.ndarray((n, 5), dtype=nl.float32, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    tile = nl.load(x)
    nl.store(out[:, 0:1], nl.sum(tile[i, j], axis=1, keepdims=True, mask=(j <= i)))
    nl.store(out[:, 1:2], nl.max(tile, axis=[1], mask=(j <= i) & (j + 3 >= i)))
    least = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
    least[...] = nl.min(tile, axis=1, keepdims=True, mask=(j <= i))
    nl.store(out[:, 2:3], least)
    nl.store(out[:, 3:4], nisa.tensor_reduce(np.add, tile, axis=(1,), mask=(j == i), negate=True))
    nl.store(out[:, 4:5], nl.prod(tile, axis=1, keepdims=True, mask=(j <= i) & (i - j <= 2)))
    return out


@nki.jit
def loaded_triangle(x):
    """A load leaves elements of a tile, and the elements of a new tile are read under the mask alone."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    tile = nl.full((n, m), 0.5, dtype=x.dtype)
    tile[i, j] = nl.load(x[i, j], mask=(j <= i))
    upper = nl.load(x[i, j], mask=(j > i))
    root = nl.square(upper, mask=(j > i))
    tile[i, j] = nisa.tensor_scalar(root, np.multiply, 0.25, mask=(j > i))
    nl.store(out[i, j], tile)
    return out


@nki.jit
def heads(x):
    """Three axes, of which the mask compares the last two."""
    h, n, m = x.shape
    out = nl.ndarray((h, n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i_h, i, j = nl.mgrid[0:h, 0:n, 0:m]
    tile = nl.load(x[i_h, i, j])
    result = nl.zeros((nl.par_dim(h), n, m), dtype=x.dtype)
    result[i_h, i, j] = nisa.activation(np.tanh, tile, mask=(i >= j))
    nl.store(out[i_h, i, j], result)
    return out


@nki.jit
def middle_columns(x, first, after):
    """Two bounds of one axis."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    tile = nl.zeros((n, m), dtype=x.dtype)
    tile[i, j] = nl.load(x[i, j], mask=(j >= first) & (j < after))
    nl.store(out, tile)
    return out


@nki.jit
def last_columns(x, first):
    """New tiles whose first elements no mask selects."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    nl.store(out[i, j], value=0.0)
    tile = nl.load(x[i, j - 2], mask=(j >= first))
    result = nl.exp(tile, mask=(j >= first)) + 1.0
    nl.store(out[i, j], nl.multiply(result, tile, mask=(j >= first)), mask=(j >= first))
    return out


@nki.jit
def causal_norm(x, eps=1e-5):
    """Mean and variance of the elements up to the diagonal."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    causal = (j <= i) & (i < n)
    t = nl.load(x)
    mean = nl.mean(t, axis=1, keepdims=True, mask=causal)
    var = nl.var(t, axis=1, mask=causal)
    res = nl.zeros((n, m), dtype=x.dtype)
    res[i, j] = nl.multiply(nl.subtract(t, mean), nl.rsqrt(var + eps), mask=causal)
    nl.store(out, res)
    return out


@nki.jit
def causal_softmax(x):
    """A softmax of the elements up to the diagonal, 0 elsewhere."""
    n, m = x.shape
    out = nl.ndarray((n, m), dtype=nl.float32, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    t = nl.load(x)
    p = nl.zeros((n, m), dtype=nl.float32, buffer=nl.sbuf)
    p[i, j] = nl.softmax(t[i, j], axis=[1], mask=(j <= i))
    nl.store(out, p)
    return out


@nki.jit
def moments(x):
    """Moments with and without a mask, written into columns of another dtype."""
    n, m = x.shape
    out = nl.ndarray((n, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    t = nl.load(x)
    columns = nl.ndarray((nl.par_dim(n), 4), dtype=nl.float32)
    columns[:, 0:1] = nl.var(t, axis=[1])
    columns[:, 1:2] = nl.mean(t, axis=[1])
    columns[:, 2:3] = nl.var(t[i, j], axis=[1], mask=(j <= i))
    columns[:, 3:4] = nl.mean(t[i, j], axis=[1], mask=(j < i + 4), dtype=nl.float32)
    nl.store(out, columns)
    return out


def cases():
    r = np.random.default_rng(0)

    def f(*shape):
        return r.standard_normal(shape).astype(np.float32)
    return [(masked_scores, (f(32, 128), f(32, 128))), (band, (f(16, 48), f(16, 48), 12)), (stored_triangle, (f(32, 24),)),
            (stored_triangle, (f(16, 24), 5)), (reduced_triangles, (f(24, 32),)), (loaded_triangle, (f(24, 32),)),
            (heads, (f(4, 8, 10),)), (middle_columns, (f(16, 32), 5, 20)),
            (last_columns, (f(16, 32), 5)), *((kernel, (f(16, 24).astype(dtype),)) for dtype in (np.float32, nl.bfloat16)
                                              for kernel in (causal_norm, causal_softmax, moments))]
