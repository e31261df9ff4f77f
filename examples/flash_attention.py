# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flash attention, forward and backward: each program computes a head, one block of scores at a time.

python -m nki_mlir examples/flash_attention.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

ROWS, BLOCK = 128, 512


@nki.jit
def flash_forward(q_t, k_t, v, scale):
    """Compute softmax(q @ k.T * scale) @ v for q_t, k_t [N, D, S], v [N, S, D], and log of each row's sum [N, S, 1].

    D is at most 128, S a multiple of 512.
    """
    heads, d, s = q_t.shape
    head = nl.program_id(0)
    out = nl.ndarray((heads, s, d), dtype=v.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((heads, s, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(s // ROWS):
        queries = nl.load(q_t[head, :, nl.ds(i * ROWS, ROWS)])
        highest = nl.full((ROWS, 1), -3e38, dtype=nl.float32)
        total = nl.zeros((ROWS, 1), dtype=nl.float32)
        mixed = nl.zeros((ROWS, d), dtype=nl.float32)
        for j in nl.sequential_range(s // BLOCK):
            scores = nisa.nc_matmul(queries, nl.load(k_t[head, :, nl.ds(j * BLOCK, BLOCK)]))
            raised = nl.maximum(highest, nl.max(scores, axis=1) * scale)
            fading = nl.exp(highest - raised)
            added = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
            weights = nisa.activation_reduce(np.exp, scores, bias=nl.negative(raised), scale=scale,
                                             reduce_op=np.add, reduce_res=added, dtype=v.dtype)
            block = nl.zeros((ROWS, d), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(BLOCK // ROWS):
                transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(k * ROWS, ROWS)]))
                block += nisa.nc_matmul(transposed, nl.load(v[head, nl.ds(j * BLOCK + k * ROWS, ROWS), :]))
            mixed[...] = nl.add(nl.multiply(mixed, fading), block)
            total[...] = nl.add(nl.multiply(total, fading), added)
            highest[...] = nl.copy(raised)
        nl.store(out[head, nl.ds(i * ROWS, ROWS), :], nl.multiply(mixed, nl.reciprocal(total)))
        nl.store(sums[head, nl.ds(i * ROWS, ROWS), :], nl.add(highest, nl.log(total)))
    return out, sums


@nki.jit
def flash_backward(q, k, v, g, out, sums, scale):
    """Compute gradients for q, k, v [N, S, D] from g [N, S, D] of the output and the results of ``flash_forward``."""
    heads, s, d = q.shape
    head, tiles = nl.program_id(0), s // ROWS
    to_q, to_k, to_v = (nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm) for _ in range(3))
    keys, values, from_keys, from_values = (
        nl.zeros((tiles, nl.par_dim(ROWS), d), dtype=dtype, buffer=nl.sbuf)
        for dtype in (k.dtype, v.dtype, nl.float32, nl.float32))
    keys_t, values_t = (nl.ndarray((nl.par_dim(d), s), dtype=q.dtype, buffer=nl.sbuf) for _ in range(2))
    for j in nl.affine_range(tiles):
        rows = nl.ds(j * ROWS, ROWS)
        keys[j], values[j] = nl.load(k[head, rows, :]), nl.load(v[head, rows, :])
        keys_t[:, rows] = nisa.nc_transpose(keys[j])
        values_t[:, rows] = nisa.nc_transpose(values[j])
    for i in nl.sequential_range(tiles):
        rows = nl.ds(i * ROWS, ROWS)
        queries, gradient = nl.load(q[head, rows, :]), nl.load(g[head, rows, :])
        queries_t, gradient_t = nl.copy(nisa.nc_transpose(queries)), nl.copy(nisa.nc_transpose(gradient))
        lowered = nl.negative(nl.load(sums[head, rows, :]))
        inner = nl.sum(nl.multiply(gradient, nl.load(out[head, rows, :])), axis=1)
        from_queries = nl.zeros((ROWS, d), dtype=nl.float32, buffer=nl.psum)
        for j in nl.sequential_range(tiles):
            columns = nl.ds(j * ROWS, ROWS)
            weights = nisa.activation(np.exp, nisa.nc_matmul(queries_t, keys_t[:, columns]), bias=lowered, scale=scale,
                                      dtype=g.dtype)
            toward = nisa.nc_matmul(gradient_t, values_t[:, columns])
            scores = nl.multiply(nl.multiply(weights, nl.subtract(toward, inner)), scale, dtype=k.dtype)
            from_values[j] = nl.add(from_values[j], nisa.nc_matmul(weights, gradient))
            from_keys[j] = nl.add(from_keys[j], nisa.nc_matmul(scores, queries))
            from_queries += nisa.nc_matmul(nl.copy(nisa.nc_transpose(scores)), keys[j])
        nl.store(to_q[head, rows, :], from_queries)
    for j in nl.affine_range(tiles):
        nl.store(to_k[head, nl.ds(j * ROWS, ROWS), :], from_keys[j])
        nl.store(to_v[head, nl.ds(j * ROWS, ROWS), :], from_values[j])
    return to_q, to_k, to_v


def transposed(x):
    return np.ascontiguousarray(x.swapaxes(-1, -2))


def forward(q, k, v, scale):
    """Return the output and the logarithm of each row's sum."""
    scores = q @ k.swapaxes(-1, -2) * scale
    highest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - highest)
    total = powers.sum(-1, keepdims=True)
    return powers @ v / total, highest + np.log(total)


def backward(q, k, v, g, scale):
    out, sums = forward(q, k, v, scale)
    weights = np.exp(q @ k.swapaxes(-1, -2) * scale - sums)
    scores = weights * (g @ v.swapaxes(-1, -2) - (g * out).sum(-1, keepdims=True)) * scale
    return scores @ k, scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g


def cases():
    q, k, v, g = np.random.default_rng(0).standard_normal((4, 2, 512, 64)).astype(np.float32)
    wide = [x.astype(np.float64) for x in (q, k, v, g)]
    known = forward(*wide[:3], 0.125)
    saved = [x.astype(np.float32) for x in known]
    return [(flash_forward[2], (transposed(q), transposed(k), v, 0.125), known, 1e-5),
            (flash_backward[2], (q, k, v, g, *saved, 0.125), backward(*wide, 0.125), 1e-4)]


if __name__ == "__main__":
    for kernel, arguments, answers, tolerance in cases():
        results = kernel(*arguments)
        error = max(np.abs(result - answer).max() for result, answer in zip(results, answers))
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
