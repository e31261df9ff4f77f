# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transpose the two flattened free axes of a tile in the current generation: a copy between two access patterns.

python -m nki_mlir examples/current_transpose2d.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def transpose_free(x, height, width):
    """Transpose each partition's matrix: x [P, height * width] to [P, width * height]."""
    partitions, size = x.shape
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    transposed = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_copy(dst=transposed.ap([[size, partitions], [height, width], [1, height]]),
                     src=tile.ap([[size, partitions], [1, width], [width, height]]))
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=transposed)
    return out


def cases():
    x = np.random.default_rng(0).standard_normal((96, 12 * 20)).astype(np.float32)
    return [(transpose_free, (x, 12, 20), x.reshape(96, 12, 20).transpose(0, 2, 1).reshape(96, -1), 0)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
