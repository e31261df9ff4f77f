# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Average pooling in the current generation: the windows are one access pattern, the sum is one instruction.

    python -m nki_mlir examples/current_average_pool2d.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def average_pool2d(image, window):
    """Pool image [C, H, W] to [C, H / window, W / window]; channels are partitions, C is at most 128."""
    channels, height, width = image.shape
    rows, columns = height // window, width // window
    tile = nl.ndarray(image.shape, dtype=image.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=image)
    # Axes: channel, row of windows, column of windows, row in a window, column in a window.
    windows = tile.ap([[height * width, channels], [window * width, rows], [window, columns], [width, window],
                       [1, window]])
    total = nl.ndarray((channels, rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=windows, axis=[3, 4])
    nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1.0 / (window * window))
    pooled = nl.ndarray((channels, rows, columns), dtype=image.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=pooled, src=total)
    return pooled


def cases():
    image = np.random.default_rng(0).standard_normal((64, 32, 48)).astype(np.float32)
    return [(average_pool2d, (image, 4), image.reshape(64, 8, 4, 12, 4).mean((2, 4)), 1e-6)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
