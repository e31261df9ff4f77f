# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that functions and classes of the host create, and that get tuples and dictionaries of tensors."""
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np

DTYPES = {"fp32": nl.float32, "bf16": nl.bfloat16}


def ceil_div(a, b):
    return (a + b - 1) // b


@dataclass
class TileIter:
    total: int
    size: int

    def __len__(self):
        return ceil_div(self.total, self.size)

    def bounds(self, i):
        lo = i * self.size
        return lo, min(self.size, self.total - lo)


def make_norm(kind, eps=1e-6, acc="fp32"):
    acc_dtype = DTYPES[acc]

    @nki.jit
    def norm(x, weight):
        n, d = x.shape
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        w = nl.load(weight.reshape((1, d)))
        it = TileIter(n, 128)
        for i in range(len(it)):
            lo, size = it.bounds(i)
            t = nl.load(x[lo:lo + size, :], dtype=acc_dtype)
            if kind == "layer":
                t = t - nl.mean(t, axis=1, keepdims=True)
            ms = nl.mean(nl.square(t), axis=1, keepdims=True)
            t = t * nl.rsqrt(ms + eps)
            nl.store(y[lo:lo + size, :], t * w.broadcast_to((size, d)))
        return y
    return norm


rms_norm = make_norm("rms")
layer_norm = make_norm("layer", eps=1e-5)


class Linear:
    """A layer on the host that launches its kernel."""

    def __init__(self, tile_n=128):
        self.tile_n = tile_n

    @staticmethod
    @nki.jit
    def kernel(xT, w, tile_n=128):
        k, m = xT.shape
        _, n = w.shape
        out = nl.ndarray((m, n), dtype=xT.dtype, buffer=nl.shared_hbm)
        for j in nl.affine_range(n // tile_n):
            acc = nl.zeros((nl.par_dim(m), tile_n), dtype=nl.float32, buffer=nl.psum)
            for kk in nl.affine_range(k // 128):
                acc += nl.matmul(nl.load(xT[kk * 128:(kk + 1) * 128, :]), nl.load(w[kk * 128:(kk + 1) * 128,
                                 j * tile_n:(j + 1) * tile_n]), transpose_x=True)
            nl.store(out[:, j * tile_n:(j + 1) * tile_n], value=acc)
        return out

    def __call__(self, xT, w):
        return Linear.kernel(xT, w, tile_n=self.tile_n)


def _body(x_t, y_t, op):
    return op(x_t, y_t)


@nki.jit
def reduce_pairs(xs, op_name="max"):
    """A tuple of tensors, folded in pairs by Python."""
    ops = {"max": nl.maximum, "add": nl.add}
    first, *rest = xs
    out = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.shared_hbm)
    acc = nl.load(first)
    for other in rest:
        acc = _body(acc, nl.load(other), ops[op_name])
    nl.store(out, acc)
    return out


@nki.jit
def dict_of_weights(x, weights):
    """Named tensors in a dictionary."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for name in ("scale", "shift"):
        t = nl.load(weights[name])
        tile = nl.multiply(tile, t) if name == "scale" else nl.add(tile, t)
    nl.store(out, tile)
    return out


@nki.jit
def ema_update(param: nt.mutable_tensor, grad, decay=0.9):
    """A parameter updated in place, tile by tile."""
    n, d = param.shape
    i_p, i_f = nl.mgrid[0:128, 0:d]
    for t in nl.affine_range(ceil_div(n, 128)):
        m = (t * 128 + i_p < n)
        p = nl.load(param[t * 128 + i_p, i_f], mask=m)
        g = nl.load(grad[t * 128 + i_p, i_f], mask=m)
        nl.store(param[t * 128 + i_p, i_f], value=p * decay + g * (1 - decay), mask=m)
    return param


@nki.jit
def bucket_counts(x, edges):
    """Counts of values below each edge, with a product of ones over partitions."""
    rows, cols = x.shape
    _, n_edges = edges.shape
    out = nl.ndarray((1, n_edges), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    ones = nl.full((rows, 1), 1.0, dtype=nl.float32)
    counts = nl.ndarray((rows, n_edges), dtype=nl.float32, buffer=nl.sbuf)
    e_sb = nl.load(edges)
    for e in nl.static_range(n_edges):
        edge = e_sb[0:1, e:e + 1].broadcast_to((rows, 1))
        below = nisa.tensor_scalar(tile, np.less, edge, dtype=nl.float32)
        counts[:, e:e + 1] = nl.sum(below, axis=1, keepdims=True)
    total = nl.matmul(ones, counts, transpose_x=True)
    nl.store(out, value=total)
    return out


@nki.jit
def while_halving(x):
    """A tree reduction of columns, whose width Python halves."""
    rows, cols = x.shape
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    width = cols
    while width > 1:
        half = width // 2
        t = nl.add(t[:, 0:half], t[:, half:width])
        width = half
    nl.store(out, t)
    return out


def cases():
    r = np.random.default_rng(0)
    def f(*s):
        return r.standard_normal(s).astype(np.float32)
    return [(rms_norm, (f(200, 64), f(64))), (layer_norm, (f(130, 64), f(64))),
            (Linear.kernel, (f(256, 64), f(256, 256))),
            (reduce_pairs, ((f(64, 32), f(64, 32), f(64, 32)),)),
            (dict_of_weights, (f(64, 32), {"scale": f(64, 32), "shift": f(64, 32)})),
            (ema_update, (f(200, 32), f(200, 32))), (bucket_counts, (f(64, 50), f(1, 5))), (while_halving, (f(64, 32),))]
