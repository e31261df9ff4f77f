# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Idioms of lists and factories: rings of tiles, slices of lists, sizes from a class method, closures over numbers."""
from typing import NamedTuple

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


class Shapes(NamedTuple):
    rows: int
    cols: int
    block: int = 32

    @classmethod
    def of(cls, x, block=32):
        return cls(x.shape[0], x.shape[1], block)


@nki.jit
def clipped_relu_stats(x, lo=-1.0, hi=1.0):
    """Clip x, and count the clipped elements of each row by a function within the kernel."""
    sh = Shapes.of(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    counts = nl.ndarray((sh.rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    n = nl.zeros((sh.rows, 1), dtype=nl.float32)

    def outside(t):
        return nl.add(nl.less(t, lo, dtype=nl.float32), nl.greater(t, hi, dtype=nl.float32))

    for b in nl.sequential_range(sh.cols // sh.block):
        cs = nl.ds(b * sh.block, sh.block)
        t = nl.load(x[:, cs])
        n[:, :] = n + nl.sum(outside(t), axis=1, keepdims=True)
        c = nisa.tensor_scalar(t, op0=np.maximum, operand0=lo, op1=np.minimum, operand1=hi)
        nl.store(out[:, cs], c)
    nl.store(counts, n)
    return out, counts


@nki.jit
def where_rows(x, y, flags):
    """Select rows by a flag."""
    p, f = x.shape
    out = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    fl = nl.load(flags)
    cond = nl.not_equal(fl, 0)
    nl.store(out, nl.where(cond.broadcast_to((p, f)), a, b))
    return out


@nki.jit
def ring_buffer(x, depth=2):
    """Tiles of earlier iterations in a list; the sum of the last `depth` blocks."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ring = []
    for i in range(rows // 64):
        t = nl.load(x[i * 64:(i + 1) * 64, :])
        ring.append(t)
        if len(ring) > depth:
            ring.pop(0)
        s = ring[0]
        for h in ring[1:]:
            s = s + h
        nl.store(out[i * 64:(i + 1) * 64, :], s / len(ring))
    return out


@nki.jit
def ema_rows(x, alpha=0.25):
    """A recurrence over columns, one at a time."""
    p, n = x.shape
    out = nl.ndarray((p, n), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    y = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
    y[:, 0] = nl.copy(t[:, 0])
    for j in nl.sequential_range(n - 1):
        y[:, j + 1] = alpha * t[:, j + 1] + (1 - alpha) * y[:, j]
    nl.store(out, y)
    return out


@nki.jit
def upsample_rows(x, scale: int = 2):
    """Repeat rows and columns: a four-dimensional result."""
    c, h, w = x.shape
    out = nl.ndarray((c, h * scale, w * scale), dtype=x.dtype, buffer=nl.shared_hbm)
    src = nl.load(x)
    dst = nl.ndarray((c, h, scale, w, scale), dtype=x.dtype, buffer=nl.sbuf)
    i_c, i_h, i_w = nl.mgrid[0:c, 0:h, 0:w]
    for a in range(scale):
        for b in range(scale):
            dst[i_c, i_h, a, i_w, b] = nl.copy(src[i_c, i_h, i_w])
    nl.store(out, value=dst.reshape((c, h * scale, w * scale)))
    return out


@nki.jit
def pairwise_distance(a, b):
    """Squared distances of rows: a2 + b2 - 2ab with one product."""
    m, d = a.shape
    n = b.shape[0]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    at, bt = nl.load_transpose2d(a), nl.load_transpose2d(b)
    ab = nl.matmul(at, bt, transpose_x=True)
    a2 = nl.sum(nl.square(nl.load(a)), axis=[1], keepdims=True)
    ones = nl.ones((d, m), dtype=nl.float32)
    b2 = nl.matmul(ones, nl.square(bt), transpose_x=True)
    dist = nl.maximum(a2 + b2 - 2 * ab, 0.0)
    nl.store(out, dist)
    return out


def cases():
    rng = np.random.default_rng(4)

    def f(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    x = f(128, 64)
    out = [(clipped_relu_stats, (x,), (x.clip(-1, 1), ((x < -1) | (x > 1)).sum(1, keepdims=True)), 1e-6)]
    a, b, fl = f(64, 16), f(64, 16), rng.integers(0, 2, (64, 1)).astype(np.int32)
    out.append((where_rows, (a, b, fl), np.where(fl, a, b), 0))
    x = f(256, 12)
    y = x.reshape(4, 64, 12)
    rings = [y[0], *((y[k] + y[k + 1]) / 2 for k in range(3))]
    out.append((ring_buffer, (x,), np.concatenate(rings), 1e-6))
    x = f(32, 9)
    y = x.copy()
    for j in range(8):
        y[:, j + 1] = .25 * x[:, j + 1] + .75 * y[:, j]
    out.append((ema_rows, (x,), y, 1e-6))
    x = f(16, 5, 6)
    out.append((upsample_rows, (x,), x.repeat(2, 1).repeat(2, 2), 0))
    a, b = f(64, 32), f(48, 32)
    out.append((pairwise_distance, (a, b), ((a[:, None] - b[None]) ** 2).sum(-1), 1e-3))
    return out
