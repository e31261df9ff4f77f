# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compute fused attention, forward and backward, with scores that never leave the chip.

python -m nki_mlir examples/attention.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def attention_forward(q_t, k_t, v, scale):
    """Compute softmax(q @ k.T * scale) @ v for q_t, k_t [D, S], v [S, D]; D at most 128, S a multiple of 128."""
    d, s = q_t.shape
    tiles = s // 128
    out = nl.ndarray((s, d), dtype=v.dtype, buffer=nl.shared_hbm)
    keys = nl.load(k_t)
    values = nl.ndarray((tiles, nl.par_dim(128), d), dtype=v.dtype, buffer=nl.sbuf)
    for j in nl.affine_range(tiles):
        values[j] = nl.load(v[nl.ds(j * 128, 128), :])
    for i in nl.affine_range(tiles):
        queries = nl.load(q_t[:, nl.ds(i * 128, 128)])
        scores = nl.ndarray((128, s), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(tiles):
            scores[:, nl.ds(j * 128, 128)] = nisa.nc_matmul(queries, keys[:, nl.ds(j * 128, 128)])
        lowest = nisa.tensor_reduce(np.max, scores, axis=1, negate=True, keepdims=True)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        weights = nisa.activation_reduce(np.exp, scores, bias=nl.multiply(lowest, scale), scale=scale,
                                         reduce_op=np.add, reduce_res=total, dtype=v.dtype)
        mixed = nl.zeros((128, d), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(tiles):
            transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(j * 128, 128)]))
            mixed += nisa.nc_matmul(transposed, values[j])
        nl.store(out[nl.ds(i * 128, 128), :], nisa.tensor_scalar(mixed, np.multiply, nisa.reciprocal(total)))
    return out


@nki.jit
def attention_backward(q, k, v, g, scale):
    """Compute gradients for q, k, v [S, D] from g [S, D] of the output, a tile of queries at a time; S <= 128."""
    s, d = q.shape
    outputs = [nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm) for _ in range(3)]
    queries, keys, values, gradient = (nl.load(x) for x in (q, k, v, g))
    transposed = [nl.copy(nisa.nc_transpose(x)) for x in (queries, keys, values, gradient)]
    scores = nl.multiply(nisa.nc_matmul(transposed[0], transposed[1]), scale)
    powers = nl.exp(nl.subtract(scores, nl.max(scores, axis=1)))
    weights = nl.divide(powers, nl.sum(powers, axis=1))
    toward_weights = nl.copy(nisa.nc_matmul(transposed[3], transposed[2]))
    inner = nl.sum(nl.multiply(toward_weights, weights), axis=1)
    toward_scores = nl.multiply(nl.multiply(weights, nl.subtract(toward_weights, inner)), scale)
    nl.store(outputs[0], nl.copy(nisa.nc_matmul(nl.copy(nisa.nc_transpose(toward_scores)), keys)))
    nl.store(outputs[1], nl.copy(nisa.nc_matmul(toward_scores, queries)))
    nl.store(outputs[2], nl.copy(nisa.nc_matmul(weights, gradient)))
    return tuple(outputs)


def forward(q, k, v, scale):
    scores = q @ k.T * scale
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True) @ v


def backward(q, k, v, g, scale):
    scores = q @ k.T * scale
    powers = np.exp(scores - scores.max(1, keepdims=True))
    weights = powers / powers.sum(1, keepdims=True)
    toward = g @ v.T
    toward_scores = weights * (toward - (toward * weights).sum(1, keepdims=True)) * scale
    return np.stack([toward_scores @ k, toward_scores.T @ q, weights.T @ g])


def cases():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 256, 64)).astype(np.float32)
    small = rng.standard_normal((4, 128, 64)).astype(np.float32)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    return [(attention_forward, (np.ascontiguousarray(q.T), np.ascontiguousarray(k.T), v, 0.125),
             forward(*wide, 0.125), 1e-5),
            (attention_backward, (*small, 0.125), backward(*small.astype(np.float64), 0.125), 1e-5)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
