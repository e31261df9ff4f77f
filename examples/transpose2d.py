# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transpose the two flattened free axes of a tile, and partitions with the free axis.

python -m nki_mlir examples/transpose2d.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def transpose_free(x, height, width):
    """Transpose each partition's matrix with a strided copy: x [P, height * width] to [P, width * height]."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    partitions = x.shape[0]
    tile = nl.load(x)
    transposed = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    p, i, j = nl.mgrid[0:partitions, 0:height, 0:width]
    transposed[p, j * height + i] = nl.copy(tile[p, i * width + j])
    nl.store(out, transposed)
    return out


@nki.jit
def transpose(x):
    """Transpose x [N, M] in 128 x 128 tiles on the tensor engine."""
    n, m = x.shape
    out = nl.ndarray((m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(n // 128):
        for j in nl.affine_range(m // 128):
            transposed = nl.transpose(nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 128, 128)]))
            nl.store(out[nl.ds(j * 128, 128), nl.ds(i * 128, 128)], transposed)
    return out


def cases():
    rng = np.random.default_rng(0)
    rows, x = rng.standard_normal((96, 12 * 20)).astype(np.float32), rng.standard_normal((256, 384)).astype(np.float32)
    transposed = rows.reshape(96, 12, 20).transpose(0, 2, 1).reshape(96, -1)
    return [(transpose_free, (rows, 12, 20), transposed, 0), (transpose, (x,), x.T, 0)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
