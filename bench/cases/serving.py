# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of a language model's server, for ``backend.py``: a step of decoding, heads in another order, projections."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P, MOVING = 128, 512


def transposed(tile):
    """Return the transpose of a tile, in SBUF and its dtype."""
    return nl.copy(nisa.nc_transpose(tile), dtype=tile.dtype)


@nki.jit
def decode_grouped(q, keys, values):
    """Compute attention of one token. q [heads, D] has queries that are scaled already, as many neighboring ones for
    each of keys [groups, D, positions] and values [groups, positions, D]; positions a multiple of 512."""
    heads, depth = q.shape
    groups, _, positions = keys.shape
    size = heads // groups
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    queries = transposed(nl.load(q))
    for g in nl.affine_range(groups):
        key = nl.load(keys[g])
        scores = nl.ndarray((size, positions), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(positions // MOVING):
            scores[:, nl.ds(j * MOVING, MOVING)] = nl.copy(nisa.nc_matmul(
                queries[:, nl.ds(g * size, size)], key[:, nl.ds(j * MOVING, MOVING)]))
        top = nisa.tensor_reduce(np.max, scores, axis=1, negate=True, keepdims=True)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        powers = nisa.activation_reduce(nl.exp, scores, bias=top, reduce_op=np.add, reduce_res=total, dtype=q.dtype)
        mixed = nl.zeros((size, depth), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(positions // P):
            some = nl.ds(k * P, P)
            mixed += nisa.nc_matmul(transposed(powers[:, some]), nl.load(values[g, some, :]))
        nl.store(out[nl.ds(g * size, size), :], nisa.tensor_scalar(mixed, np.multiply, nisa.reciprocal(total),
                                                                   dtype=out.dtype))
    return out


@nki.jit
def heads_apart(x, heads=16):
    """Return x [positions, heads * D] as [heads, positions, D]; positions a multiple of 128."""
    positions, width = x.shape
    depth = width // heads
    out = nl.ndarray((heads, positions, depth), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(positions // P):
        rows = nl.ds(i * P, P)
        tile = nl.load(x[rows, :])
        for h in nl.affine_range(heads):
            nl.store(out[h, rows, :], tile[:, nl.ds(h * depth, depth)])
    return out


@nki.jit
def normalized_projection(x, gamma, w, epsilon=1e-6):
    """Compute (x / sqrt(mean of x^2 + epsilon) * gamma) @ w for x [positions, K], gamma [1, K] and w [K, N], the
    weights of queries, keys and values side by side; positions and K multiples of 128, N of 512."""
    (positions, depth), columns = x.shape, w.shape[1]
    out = nl.ndarray((positions, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    steps = depth // P
    factors = nl.load(gamma).broadcast_to((P, depth))
    weights = nl.ndarray((steps, nl.par_dim(P), columns), dtype=w.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(steps):
        weights[k] = nl.load(w[nl.ds(k * P, P), :])
    for i in nl.affine_range(positions // P):
        tile = nl.load(x[nl.ds(i * P, P), :])
        squares = nl.sum(nl.square(tile, dtype=nl.float32), axis=1, keepdims=True)
        normal = nl.multiply(tile, nl.rsqrt(squares * (1 / depth) + epsilon), dtype=nl.float32)
        scaled = nl.multiply(normal, factors, dtype=x.dtype)
        left = nl.ndarray((steps, nl.par_dim(P), P), dtype=x.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(steps):
            left[k] = transposed(scaled[:, nl.ds(k * P, P)])
        for j in nl.affine_range(columns // MOVING):
            some = nl.ds(j * MOVING, MOVING)
            total = nl.zeros((P, MOVING), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(steps):
                total += nisa.nc_matmul(left[k], weights[k, :, some])
            nl.store(out[nl.ds(i * P, P), some], nl.copy(total, dtype=out.dtype))
    return out
