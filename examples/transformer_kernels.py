# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of a small transformer, forward and backward: attention, RMS normalization, rotary embedding.

Attention and rotary embedding run one program per head of each sequence: sequences have at most 128 positions, heads
at most 128 dimensions. Programs that train with them: train_transformer_jax.py, train_transformer_torch.py.

    python -m nki_mlir examples/transformer_kernels.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def transposed(tile):
    """Return the transpose of a tile, in SBUF."""
    return nl.copy(nisa.nc_transpose(tile))


def attention_weights(queries, keys, scale):
    """Compute softmax(queries @ keys.T * scale), masked so that no query sees a later key; arguments are [D, S]."""
    steps = queries.shape[1]
    scores = nl.multiply(nisa.nc_matmul(queries, keys), scale)
    p, f = nl.arange(steps)[:, None], nl.arange(steps)[None, :]
    seen = nisa.affine_select(pred=(f <= p), on_true_tile=scores, on_false_value=-1e9)
    powers = nl.exp(nl.subtract(seen, nl.max(seen, axis=1)))
    return nl.divide(powers, nl.sum(powers, axis=1))


@nki.jit
def attention_forward(q, k, v, scale):
    """Compute causal attention of q, k, v [N, S, D]; program n computes head n."""
    n = nl.program_id(0)
    _, steps, width = q.shape
    p, f = nl.arange(steps)[:, None], nl.arange(width)[None, :]
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys, values = (nl.load(x[n, p, f]) for x in (q, k, v))
    weights = attention_weights(transposed(queries), transposed(keys), scale)
    nl.store(out[n, p, f], nl.copy(nisa.nc_matmul(transposed(weights), values)))
    return out


@nki.jit
def attention_backward(q, k, v, g, scale):
    """Compute gradients for q, k, v [N, S, D] from g of the output. It computes the weights again."""
    n = nl.program_id(0)
    _, steps, width = q.shape
    p, f = nl.arange(steps)[:, None], nl.arange(width)[None, :]
    toward_q, toward_k, toward_v = (nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm) for _ in range(3))
    queries, keys, values, gradient = (nl.load(x[n, p, f]) for x in (q, k, v, g))
    weights = attention_weights(transposed(queries), transposed(keys), scale)
    toward_weights = nl.copy(nisa.nc_matmul(transposed(gradient), transposed(values)))
    inner = nl.sum(nl.multiply(toward_weights, weights), axis=1)
    toward_scores = nl.multiply(nl.multiply(weights, nl.subtract(toward_weights, inner)), scale)
    nl.store(toward_q[n, p, f], nl.copy(nisa.nc_matmul(transposed(toward_scores), keys)))
    nl.store(toward_k[n, p, f], nl.copy(nisa.nc_matmul(toward_scores, queries)))
    nl.store(toward_v[n, p, f], nl.copy(nisa.nc_matmul(weights, gradient)))
    return toward_q, toward_k, toward_v


@nki.jit
def rotary(x, cosine, sine, inverse=False):
    """Rotate the halves of each position of x [N, S, D] by the angles of cosine, sine [S, D / 2], or back by them."""
    n = nl.program_id(0)
    _, steps, width = x.shape
    half = width // 2
    p, f = nl.arange(steps)[:, None], nl.arange(half)[None, :]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first, second, c, s = nl.load(x[n, p, f]), nl.load(x[n, p, half + f]), nl.load(cosine), nl.load(sine)
    if inverse:
        nl.store(out[n, p, f], first * c + second * s)
        nl.store(out[n, p, half + f], second * c - first * s)
    else:
        nl.store(out[n, p, f], first * c - second * s)
        nl.store(out[n, p, half + f], second * c + first * s)
    return out


@nki.jit
def rmsnorm_forward(x, gain, epsilon=1e-6):
    """Compute x [R, M] / sqrt(mean of its squares) * gain [1, M]; R a multiple of 128."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weight = nl.load(gain).broadcast_to((128, columns))
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        scale = nl.rsqrt(nl.sum(nl.square(tile), axis=[1]) / columns + epsilon)
        nl.store(out[nl.ds(i * 128, 128), :], tile * scale * weight)
    return out


@nki.jit
def rmsnorm_backward(x, gain, g, epsilon=1e-6):
    """Compute gradients for x [R, M] and gain [1, M] from g [R, M] of the output; M at most 512."""
    rows, columns = x.shape
    toward_x = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    toward_gain = nl.ndarray(gain.shape, dtype=gain.dtype, buffer=nl.shared_hbm)
    weight = nl.load(gain).broadcast_to((128, columns))
    ones = nl.ones((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.zeros((1, columns), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(rows // 128):
        tile, gradient = nl.load(x[nl.ds(i * 128, 128), :]), nl.load(g[nl.ds(i * 128, 128), :])
        scale = nl.rsqrt(nl.sum(nl.square(tile), axis=[1]) / columns + epsilon)
        normal = tile * scale
        total += nisa.nc_matmul(ones, gradient * normal)        # a sum over partitions
        weighted = gradient * weight
        mean = nl.sum(weighted * normal, axis=[1]) / columns
        nl.store(toward_x[nl.ds(i * 128, 128), :], (weighted - normal * mean) * scale)
    nl.store(toward_gain, nl.copy(total))
    return toward_x, toward_gain


# -- the same in NumPy -------------------------------------------------------------------------------------------------
def causal_weights(q, k, scale):
    scores = np.where(np.tri(q.shape[1], dtype=bool), q @ k.swapaxes(1, 2) * scale, -np.inf)
    powers = np.exp(scores - scores.max(2, keepdims=True))
    return powers / powers.sum(2, keepdims=True)


def attention_gradients(q, k, v, g, scale):
    weights = causal_weights(q, k, scale)
    toward = g @ v.swapaxes(1, 2)
    toward_scores = weights * (toward - (toward * weights).sum(2, keepdims=True)) * scale
    return np.stack([toward_scores @ k, toward_scores.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ g])


def rmsnorm_gradients(x, gain, g, epsilon=1e-6):
    scale = 1 / np.sqrt((x ** 2).mean(1, keepdims=True) + epsilon)
    normal = x * scale
    return ((g * gain - normal * (g * gain * normal).mean(1, keepdims=True)) * scale,
            (g * normal).sum(0, keepdims=True))


def angles(steps, width):
    """Return cosine and sine [steps, width / 2] of the rotary embedding."""
    turns = np.outer(np.arange(steps), 10000.0 ** (-np.arange(width // 2) / (width // 2)))
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


def cases():
    rng = np.random.default_rng(0)
    q, k, v, g = rng.standard_normal((4, 2, 128, 64)).astype(np.float32)
    wide = [x.astype(np.float64) for x in (q, k, v, g)]
    cosine, sine = angles(128, 64)
    a, b = wide[0][..., :32], wide[0][..., 32:]
    there = np.concatenate([a * cosine - b * sine, b * cosine + a * sine], 2)
    back = np.concatenate([a * cosine + b * sine, b * cosine - a * sine], 2)
    x, gain = rng.standard_normal((256, 128)).astype(np.float32), rng.standard_normal((1, 128)).astype(np.float32)
    x64 = x.astype(np.float64)
    normal = x64 / np.sqrt((x64 ** 2).mean(1, keepdims=True) + 1e-6) * gain
    return [(attention_forward[2], (q, k, v, 0.125), causal_weights(*wide[:2], 0.125) @ wide[2], 1e-5),
            (attention_backward[2], (q, k, v, g, 0.125), attention_gradients(*wide, 0.125), 2e-5),
            (rotary[2], (q, cosine, sine), there, 1e-6), (rotary[2], (q, cosine, sine, True), back, 1e-6),
            (rmsnorm_forward, (x, gain), normal, 1e-5)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        error = np.abs(np.asarray(kernel(*arguments), np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
