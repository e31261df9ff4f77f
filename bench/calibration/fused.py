# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that combine products with other work: attention in its published versions, convolution, SwiGLU."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P, MOVING = 128, 512


@nki.jit
def attention(q, k, v, separate=False, wide=False, group=1):
    """Compute softmax(q.T @ k) @ v.T of q, k, v [d, S] for complete rows of scores.

    ``separate``: subtract maxima and sum powers with separate instructions; ``wide``: keep powers in float32;
    ``group``: write this many transposes to a bank of PSUM.
    """
    d, s = q.shape
    out = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys, values = (nl.load(x) for x in (q, k, v))
    blocks = s // MOVING
    kind = nl.float32 if wide else q.dtype
    transposed_values = nl.ndarray((s // (P * group), nl.par_dim(P), group, d), dtype=kind, buffer=nl.sbuf)
    for j in nl.affine_range(s // (P * group)):
        bank = nl.ndarray((P, group, d), dtype=q.dtype, buffer=nl.psum)
        for g in nl.affine_range(group):
            bank[:, g, :] = nisa.nc_transpose(values[:, nl.ds((j * group + g) * P, P)])
        transposed_values[j] = nisa.activation(nl.copy, bank, dtype=kind)
    for i in nl.affine_range(s // P):
        rows = nl.ndarray((blocks, nl.par_dim(P), MOVING), nl.float32, buffer=nl.psum)
        maxima = nl.ndarray((P, blocks), nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(blocks):
            rows[j] = nisa.nc_matmul(queries[:, nl.ds(i * P, P)], keys[:, nl.ds(j * MOVING, MOVING)])
            maxima[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, rows[j], axis=1, keepdims=True)
        top = nisa.tensor_reduce(np.max, maxima, axis=1, negate=True, keepdims=True)
        sums = nl.ndarray((P, blocks), nl.float32, buffer=nl.sbuf)
        powers = nl.ndarray((blocks, nl.par_dim(P), MOVING), dtype=kind, buffer=nl.sbuf)
        for j in nl.affine_range(blocks):
            if separate:
                shifted = nisa.tensor_scalar(rows[j], np.add, top)
                powers[j] = nisa.activation(nl.exp, shifted, dtype=kind)
                sums[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.add, powers[j], axis=1, keepdims=True, dtype=nl.float32)
            else:
                powers[j] = nisa.activation_reduce(nl.exp, rows[j], bias=top, reduce_op=np.add,
                                                   reduce_res=sums[:, nl.ds(j, 1)], dtype=kind)
        inverse = nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=1, keepdims=True))
        mixed = nl.zeros((P, d), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(s // (P * group)):
            bank = nl.ndarray((P, group, P), dtype=kind, buffer=nl.psum)
            for g in nl.affine_range(group):
                column = (j * group + g) * P
                bank[:, g, :] = nisa.nc_transpose(powers[column // MOVING, :, nl.ds(column % MOVING, P)])
            transposed = nisa.activation(nl.copy, bank, dtype=kind)
            for g in nl.affine_range(group):
                mixed += nisa.nc_matmul(transposed[:, g, :], transposed_values[j, :, g, :])
        nl.store(out[nl.ds(i * P, P), :], nisa.tensor_scalar(mixed, np.multiply, inverse, dtype=out.dtype))
    return out


@nki.jit
def attention_in_steps(q, k, v):
    """Compute attention in steps: each step processes all scores before the next begins, and the scores are in HBM
    between steps."""
    d, s = q.shape
    rows, blocks = s // P, s // MOVING
    out = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys, values = (nl.load(x) for x in (q, k, v))
    transposed_values = nl.ndarray((rows, nl.par_dim(P), d), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(rows):
        transposed_values[j] = nl.copy(nisa.nc_transpose(values[:, nl.ds(j * P, P)]), dtype=nl.float32)
    scores, shifted, powers, weights, transposed = (
        nl.ndarray((rows, blocks, P, MOVING), nl.float32, buffer=nl.hbm) for _ in range(5))
    top, inverse = (nl.ndarray((P, rows), nl.float32, buffer=nl.sbuf) for _ in range(2))
    for i in nl.affine_range(rows):
        for j in nl.affine_range(blocks):
            nl.store(scores[i, j], nisa.nc_matmul(queries[:, nl.ds(i * P, P)], keys[:, nl.ds(j * MOVING, MOVING)]))
    for i in nl.affine_range(rows):
        maxima = nl.ndarray((P, blocks), nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(blocks):
            maxima[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, nl.load(scores[i, j]), axis=1, keepdims=True)
        top[:, nl.ds(i, 1)] = nisa.tensor_reduce(np.max, maxima, axis=1, keepdims=True)
    for i in nl.affine_range(rows):
        for j in nl.affine_range(blocks):
            nl.store(shifted[i, j], nisa.tensor_scalar(nl.load(scores[i, j]), np.subtract, top[:, nl.ds(i, 1)]))
    for i in nl.affine_range(rows):
        for j in nl.affine_range(blocks):
            nl.store(powers[i, j], nisa.activation(nl.exp, nl.load(shifted[i, j])))
    for i in nl.affine_range(rows):
        sums = nl.ndarray((P, blocks), nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(blocks):
            sums[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.add, nl.load(powers[i, j]), axis=1, keepdims=True)
        inverse[:, nl.ds(i, 1)] = nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=1, keepdims=True))
    for i in nl.affine_range(rows):
        for j in nl.affine_range(blocks):
            nl.store(weights[i, j], nisa.tensor_scalar(nl.load(powers[i, j]), np.multiply, inverse[:, nl.ds(i, 1)]))
    for i in nl.affine_range(rows):
        for j in nl.affine_range(blocks):
            tile = nl.load(weights[i, j])
            bank = nl.ndarray((P, MOVING), nl.float32, buffer=nl.psum)
            for g in nl.affine_range(MOVING // P):
                bank[:, nl.ds(g * P, P)] = nisa.nc_transpose(tile[:, nl.ds(g * P, P)])
            nl.store(transposed[i, j], nl.copy(bank))
    for i in nl.affine_range(rows):
        mixed = nl.zeros((P, d), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(blocks):
            tile = nl.load(transposed[i, j])
            for g in nl.affine_range(MOVING // P):
                mixed += nisa.nc_matmul(tile[:, nl.ds(g * P, P)], transposed_values[j * (MOVING // P) + g])
        nl.store(out[nl.ds(i * P, P), :], nl.copy(mixed, dtype=out.dtype))
    return out


@nki.jit
def bmm_softmax(a, b):
    """Compute rows of softmax(a.T @ b) of a [batch, K, rows], b [batch, K, columns], and store all of them to HBM."""
    batch, _, rows = a.shape
    columns = b.shape[2]
    out = nl.ndarray((batch, rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    blocks = columns // MOVING
    for n in nl.affine_range(batch):
        left, right = nl.load(a[n]), nl.load(b[n])
        for i in nl.affine_range(rows // P):
            scores = nl.ndarray((blocks, nl.par_dim(P), MOVING), nl.float32, buffer=nl.psum)
            maxima, sums = (nl.ndarray((P, blocks), nl.float32, buffer=nl.sbuf) for _ in range(2))
            for j in nl.affine_range(blocks):
                scores[j] = nisa.nc_matmul(left[:, nl.ds(i * P, P)], right[:, nl.ds(j * MOVING, MOVING)])
                maxima[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, scores[j], axis=1, keepdims=True)
            top = nisa.tensor_reduce(np.max, maxima, axis=1, negate=True, keepdims=True)
            powers = nl.ndarray((P, columns), nl.float32, buffer=nl.sbuf)
            for j in nl.affine_range(blocks):
                powers[:, nl.ds(j * MOVING, MOVING)] = nisa.activation_reduce(
                    nl.exp, scores[j], bias=top, reduce_op=np.add, reduce_res=sums[:, nl.ds(j, 1)])
            inverse = nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=1, keepdims=True))
            nl.store(out[n, nl.ds(i * P, P), :], nisa.tensor_scalar(powers, np.multiply, inverse))
    return out


@nki.jit
def convolution(x, w, taps=3, block=37):
    """Convolve x [C, H, W] with w [C, taps * taps, F]: products for each tap and 128 channels, a row of pixels at a
    time.

    It loads the rows of a block once, with those that the next block also needs.
    """
    channels, height, width = x.shape
    filters = w.shape[2]
    rows, columns, groups = height - taps + 1, width - taps + 1, channels // P
    out = nl.ndarray((filters, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = nl.ndarray((groups, nl.par_dim(P), taps * taps, filters), dtype=w.dtype, buffer=nl.sbuf)
    for g in nl.affine_range(groups):
        weights[g] = nl.load(w[nl.ds(g * P, P)])
    for first in nl.affine_range(rows // block):
        pixels = nl.ndarray((block + taps - 1, groups, nl.par_dim(P), width), dtype=x.dtype, buffer=nl.sbuf)
        for r in nl.affine_range(block + taps - 1):
            for g in nl.affine_range(groups):
                pixels[r, g] = nl.load(x[nl.ds(g * P, P), first * block + r, :])
        for r in nl.affine_range(block):
            for f in nl.affine_range(filters // P):
                total = nl.zeros((P, columns), nl.float32, buffer=nl.psum)
                for dy in nl.affine_range(taps):
                    for dx in nl.affine_range(taps):
                        for g in nl.affine_range(groups):
                            total += nisa.nc_matmul(weights[g, :, dy * taps + dx, nl.ds(f * P, P)],
                                                    pixels[r + dy, g, :, nl.ds(dx, columns)])
                nl.store(out[nl.ds(f * P, P), first * block + r, :], nl.copy(total, dtype=out.dtype))
    return out


@nki.jit
def swiglu(x, gate, up, down, block=4):
    """Compute (silu(x @ gate) * (x @ up)) @ down in float32; load the weights once for each block of row tiles."""
    rows, width = x.shape
    hidden = gate.shape[1]
    kx, nh, kh, no = width // P, hidden // MOVING, hidden // P, width // MOVING
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // (P * block)):
        transposed = nl.ndarray((block, kx, nl.par_dim(P), P), dtype=x.dtype, buffer=nl.sbuf)
        for r in nl.affine_range(block):
            tile = nl.load(x[nl.ds((i * block + r) * P, P), :])
            for k in nl.affine_range(kx):
                transposed[r, k] = nisa.activation(nl.copy, nisa.nc_transpose(tile[:, nl.ds(k * P, P)]))
        middle = nl.ndarray((block, kh, nl.par_dim(P), P), dtype=x.dtype, buffer=nl.sbuf)
        for h in nl.affine_range(nh):
            left, right = (nl.ndarray((kx, nl.par_dim(P), MOVING), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
            for k in nl.affine_range(kx):
                left[k] = nl.load(gate[nl.ds(k * P, P), nl.ds(h * MOVING, MOVING)])
                right[k] = nl.load(up[nl.ds(k * P, P), nl.ds(h * MOVING, MOVING)])
            for r in nl.affine_range(block):
                gated, raised = (nl.zeros((P, MOVING), nl.float32, buffer=nl.psum) for _ in range(2))
                for k in nl.affine_range(kx):
                    gated += nisa.nc_matmul(transposed[r, k], left[k])
                for k in nl.affine_range(kx):
                    raised += nisa.nc_matmul(transposed[r, k], right[k])
                products = nisa.tensor_tensor(nisa.activation(nl.silu, gated), raised, np.multiply)
                for t in nl.affine_range(MOVING // P):
                    middle[r, h * (MOVING // P) + t] = nisa.activation(
                        nl.copy, nisa.nc_transpose(products[:, nl.ds(t * P, P)]))
        for n in nl.affine_range(no):
            weights = nl.ndarray((kh, nl.par_dim(P), MOVING), dtype=x.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(kh):
                weights[k] = nl.load(down[nl.ds(k * P, P), nl.ds(n * MOVING, MOVING)])
            for r in nl.affine_range(block):
                total = nl.zeros((P, MOVING), nl.float32, buffer=nl.psum)
                for k in nl.affine_range(kh):
                    total += nisa.nc_matmul(middle[r, k], weights[k])
                nl.store(out[nl.ds((i * block + r) * P, P), nl.ds(n * MOVING, MOVING)], nl.copy(total))
    return out
