# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parallel, sequential and static loops in one kernel: values that iterations carry, masks on the last tile."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def cumulative_sum(x, tile_cols=64):
    """Sums along the columns; the last sum of a tile begins the next one."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.ones((128, tile_cols), dtype=nl.float32)
    for r in nl.affine_range(math.ceil(rows / 128)):
        ip = nl.arange(128)[:, None]
        ic = nl.arange(tile_cols)[None, :]
        init = nl.zeros((128, 1), dtype=nl.float32)
        for c in nl.sequential_range(math.ceil(cols / tile_cols)):
            mask = (r * 128 + ip < rows) & (c * tile_cols + ic < cols)
            data = nl.load(x[r * 128 + ip, c * tile_cols + ic], mask=mask)
            result = nisa.tensor_tensor_scan(ones, data, initial=init, op0=np.multiply, op1=np.add, mask=mask)
            nl.store(out[r * 128 + ip, c * tile_cols + ic], value=result, mask=mask)
            init[:, :] = nl.copy(result[:, tile_cols - 1])
    return out


@nki.jit
def newton_sqrt(x, steps=4):
    """Roots by Newton's method: a fixed number of steps on tiles in parallel."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 64):
        a = nl.load(x[i * 64:(i + 1) * 64, :])
        guess = nl.add(nl.multiply(a, 0.5), 0.5)
        for _ in nl.static_range(steps):
            guess = nl.multiply(nl.add(guess, nl.multiply(a, nl.reciprocal(guess))), 0.5)
        nl.store(out[i * 64:(i + 1) * 64, :], value=guess)
    return out


@nki.jit
def running_softmax(x, tile=32):
    """A softmax in one pass: maximum and sum change with each tile."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    m = nl.full((rows, 1), fill_value=-1e30, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.zeros((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    for t in nl.sequential_range(cols // tile):
        part = nl.load(x[:, nl.ds(t * tile, tile)])
        m_new = nl.maximum(m, nl.max(part, axis=1, keepdims=True))
        factor = nl.exp(nl.subtract(m, m_new))
        total[...] = total * factor + nl.sum(nl.exp(part - m_new), axis=1, keepdims=True)
        m[...] = nl.copy(m_new)
    inverse = nl.reciprocal(total)
    for t in nl.affine_range(cols // tile):
        part = nl.load(x[:, nl.ds(t * tile, tile)])
        nl.store(out[:, nl.ds(t * tile, tile)], value=nl.exp(part - m) * inverse)
    return out


@nki.jit
def lower_triangle(x, tile=32):
    """Tiles under the diagonal are copied, those on it are masked, those above it become a value."""
    n, _ = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:tile, 0:tile]
    for i in nl.affine_range(n // tile):
        for j in nl.affine_range(n // tile):
            result = nl.full((tile, tile), fill_value=-1.0, dtype=x.dtype, buffer=nl.sbuf)
            block = nl.load(x[i * tile + i_p, j * tile + i_f])
            result[i_p, i_f] = nl.copy(block, mask=(i * tile + i_p >= j * tile + i_f))
            nl.store(out[i * tile + i_p, j * tile + i_f], value=result)
    return out


@nki.jit
def recurrent_layer(x_t, w, u, steps=6):
    """x_t [d, steps * n]: h = tanh(w x + u h), one step after the other; all states are results."""
    d, total = x_t.shape
    n = total // steps
    h_size = w.shape[1]
    states = nl.ndarray((steps, h_size, n), dtype=x_t.dtype, buffer=nl.shared_hbm)
    w_tile, u_tile = nl.load(w), nl.load(u)
    h = nl.zeros((nl.par_dim(h_size), n), dtype=x_t.dtype, buffer=nl.sbuf)
    for s in nl.sequential_range(steps):
        x = nl.load(x_t[:, nl.ds(s * n, n)])
        acc = nl.zeros((nl.par_dim(h_size), n), dtype=nl.float32, buffer=nl.psum)
        acc += nisa.nc_matmul(w_tile, x)
        acc += nisa.nc_matmul(u_tile, h)
        h[...] = nl.tanh(acc)
        nl.store(states[s], value=h)
    return states


def cases():
    r = np.random.default_rng(16)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (cumulative_sum, (r.integers(-4, 5, (200, 160)).astype(np.float32),)),
        (newton_sqrt, (np.abs(f(128, 40)) + 0.5,)),
        (running_softmax, (f(64, 128),)),
        (lower_triangle, (f(96, 96),)),
        (recurrent_layer, (f(32, 6 * 20), f(32, 48), f(48, 48) * 0.1)),
    ]
