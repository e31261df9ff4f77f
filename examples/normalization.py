# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layer and RMS normalization: masks for the last rows, instructions for statistics, weights broadcast over
partitions.

python -m nki_mlir examples/normalization.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def rmsnorm(x, g, epsilon=1e-6):
    """Compute x [N, M] / sqrt(mean of its squares) * g [1, M]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weight = nl.load(g)
    p, f = nl.arange(128)[:, None], nl.arange(columns)[None, :]
    for i in nl.affine_range(-(-rows // 128)):
        inside = i * 128 + p < rows
        tile = nl.load(x[i * 128 + p, f], mask=inside)
        mean = nl.sum(nl.square(tile, mask=inside), axis=[1], mask=inside) / columns
        scaled = tile * nl.rsqrt(mean + epsilon)
        nl.store(out[i * 128 + p, f], scaled * weight.broadcast_to((128, columns)), mask=inside)
    return out


@nki.jit
def layernorm(x, g, b, epsilon=1e-5):
    """Compute (x - mean) / sqrt(variance) * g + b over rows of x [N, M]; statistics in pieces of at most 512."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weight, shift = nl.load(g), nl.load(b)
    pieces = -(-columns // nl.tile_size.bn_stats_fmax)
    width = columns // pieces
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        stats = nl.ndarray((128, 6 * pieces), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(pieces):
            stats[:, nl.ds(6 * k, 6)] = nisa.bn_stats(tile[:, nl.ds(k * width, width)])
        moments = nisa.bn_aggr(stats)
        scale = nl.rsqrt(moments[:, 1] + epsilon)
        normal = nisa.tensor_scalar(tile, np.subtract, moments[:, 0], op1=np.multiply, operand1=scale)
        nl.store(out[nl.ds(i * 128, 128), :], nl.add(nl.multiply(normal, weight), shift))
    return out


def cases():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 160)).astype(np.float32), rng.standard_normal((256, 1024)).astype(np.float32)
    g, h, b = (rng.standard_normal((1, n)).astype(np.float32) for n in (160, 1024, 1024))
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    rms = x64 / np.sqrt((x64 ** 2).mean(1, keepdims=True) + 1e-6) * g
    layer = (y64 - y64.mean(1, keepdims=True)) / np.sqrt(y64.var(1, keepdims=True) + 1e-5) * h + b
    return [(rmsnorm, (x, g), rms, 1e-5), (layernorm, (y, h, b), layer, 1e-5)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
