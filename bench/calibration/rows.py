# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels without a matrix product: sums, activations and statistics of rows, pooling, the selective scan."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128


@nki.jit
def vector_add(a, b, free=1):
    """Add vectors as tiles of ``free`` columns."""
    n, = a.shape
    out = nl.ndarray((n,), dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = (view.reshape((n // (P * free), P, free)) for view in (a, b))
    result = out.reshape((n // (P * free), P, free))
    for i in nl.affine_range(n // (P * free)):
        nl.store(result[i], nl.add(nl.load(rows[i]), nl.load(columns[i])))
    return out


@nki.jit
def silu(x):
    """Apply silu to a tile of 128 rows at a time."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // P):
        nl.store(out[nl.ds(i * P, P), :], nisa.activation(nl.silu, nl.load(x[nl.ds(i * P, P), :])))
    return out


@nki.jit
def layernorm(x, gamma, beta):
    """Subtract the mean, divide by the deviation, scale and shift each row."""
    rows, n = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scale, shift = (to_all(v.reshape((1, n)), 0, 0, n) for v in (gamma, beta))
    for i in nl.affine_range(rows // P):
        tile = nl.load(x[nl.ds(i * P, P), :])
        mean = nisa.tensor_scalar(nisa.tensor_reduce(np.add, tile, axis=1, keepdims=True), np.multiply, 1.0 / n)
        centered = nisa.tensor_scalar(tile, np.subtract, mean)
        squares = nisa.tensor_tensor(centered, centered, np.multiply)
        variance = nisa.tensor_reduce(np.add, squares, axis=1, keepdims=True)
        inverse = nisa.activation(nl.rsqrt, variance, scale=1.0 / n)
        normal = nisa.tensor_scalar(centered, np.multiply, inverse)
        scaled = nisa.tensor_tensor(normal, scale, np.multiply)
        nl.store(out[nl.ds(i * P, P), :], nisa.tensor_tensor(scaled, shift, np.add))
    return out


@nki.jit
def maxpool(x, tile_rows=89):
    """Compute 3 x 3 maxima with stride 1: over three loads that are a row apart, then over columns."""
    rows, columns = x.shape
    out = nl.ndarray((rows - 2, columns - 2), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows - 2) // tile_rows):
        first, second, third = (nl.load(x[nl.ds(i * tile_rows + k, tile_rows), :]) for k in range(3))
        over_rows = nisa.tensor_tensor(nisa.tensor_tensor(first, second, np.maximum), third, np.maximum)
        pairs = nisa.tensor_tensor(over_rows[:, 0:columns - 2], over_rows[:, 1:columns - 1], np.maximum)
        nl.store(out[nl.ds(i * tile_rows, tile_rows), :],
                 nisa.tensor_tensor(pairs, over_rows[:, 2:columns], np.maximum))
    return out


def to_all(rows, row, first, count):
    """Load a row of a matrix in HBM, or a piece of it, to every partition."""
    partitions, columns = nl.mgrid[0:P, 0:count]
    return nl.load(rows[row + 0 * partitions, first + columns])


@nki.jit
def mamba_states_outside(delta, u, a, b, c):
    """Scan delta, u [channels, L], a [channels, states], b, c [states, L] with channels in the inner loop."""
    channels, length = delta.shape
    states = a.shape[1]
    out = nl.ndarray((channels, length), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.zeros((channels // P, nl.par_dim(P), length), nl.float32, buffer=nl.sbuf)
    for s in nl.affine_range(states):
        for t in nl.affine_range(channels // P):
            delta_tile, u_tile = (nl.load(v[nl.ds(t * P, P), :]) for v in (delta, u))
            rate = nl.load(a[nl.ds(t * P, P), nl.ds(s, 1)])
            b_row, c_row = (to_all(v, s, 0, length) for v in (b, c))
            decay = nisa.activation(nl.exp, delta_tile, scale=rate)
            weighted = nisa.tensor_tensor(delta_tile, u_tile, np.multiply)
            driven = nisa.tensor_tensor(weighted, b_row, np.multiply)
            scanned = nisa.tensor_tensor_scan(decay, driven, initial=0.0, op0=np.multiply, op1=np.add)
            sums[t] += nisa.tensor_tensor(scanned, c_row, np.multiply)
    for t in nl.affine_range(channels // P):
        nl.store(out[nl.ds(t * P, P), :], sums[t])
    return out


@nki.jit
def mamba_channels_outside(delta, u, a, b, c, piece=0):
    """Scan with states in the inner loop, so that loads are shared; optionally cut the sequence into pieces."""
    channels, length = delta.shape
    states = a.shape[1]
    step = piece or length
    out = nl.ndarray((channels, length), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(channels // P):
        delta_tile, u_tile = (nl.load(v[nl.ds(t * P, P), :]) for v in (delta, u))
        rates = nl.load(a[nl.ds(t * P, P), :])
        weighted = nisa.tensor_tensor(delta_tile, u_tile, np.multiply)
        sums = nl.zeros((P, length), nl.float32, buffer=nl.sbuf)
        for s in nl.affine_range(states):
            last = nl.zeros((P, 1), nl.float32, buffer=nl.sbuf)
            for k in nl.static_range(length // step):
                columns = nl.ds(k * step, step)
                b_row, c_row = (to_all(v, s, k * step, step) for v in (b, c))
                decay = nisa.activation(nl.exp, delta_tile[:, columns], scale=rates[:, nl.ds(s, 1)])
                driven = nisa.tensor_tensor(weighted[:, columns], b_row, np.multiply)
                scanned = nisa.tensor_tensor_scan(decay, driven, initial=last, op0=np.multiply, op1=np.add)
                last = scanned[:, step - 1:step]
                sums[:, columns] += nisa.tensor_tensor(scanned, c_row, np.multiply)
        nl.store(out[nl.ds(t * P, P), :], sums)
    return out
