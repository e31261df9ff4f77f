# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotary position embedding: halves of each head rotated by angles of the position.

    python -m nki_mlir examples/rotary.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def rotary(x, cosine, sine):
    """Rotate x [S, D] by cosine, sine [S, D / 2]: (x1, x2) to (x1 cos - x2 sin, x2 cos + x1 sin) of the two halves of
    D."""
    steps, width = x.shape
    half = width // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(steps // 128):
        rows = nl.ds(i * 128, 128)
        tile, c, s = nl.load(x[rows, :]), nl.load(cosine[rows, :]), nl.load(sine[rows, :])
        first, second = tile[:, 0:half], tile[:, half:width]
        nl.store(out[rows, 0:half], first * c - second * s)
        nl.store(out[rows, half:width], second * c + first * s)
    return out


def cases():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 64)).astype(np.float32)
    angles = np.outer(np.arange(256), 10000.0 ** (-np.arange(32) / 32))
    c, s = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = x[:, :32].astype(np.float64), x[:, 32:].astype(np.float64)
    return [(rotary, (x, c, s), np.concatenate([a * c - b * s, b * c + a * s], 1), 1e-6)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
