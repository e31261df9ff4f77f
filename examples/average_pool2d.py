# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Average pooling of an image: one strided access pattern, one reduction over two free axes.

python -m nki_mlir examples/average_pool2d.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def average_pool2d(image, window):
    """Pool image [C, H, W] to [C, H / window, W / window]; channels are partitions, C is at most 128."""
    channels, height, width = image.shape
    pooled = nl.ndarray((channels, height // window, width // window), dtype=image.dtype, buffer=nl.shared_hbm)
    tile = nl.load(image)
    # Axes: channel, row of windows, row in a window, column of windows, column in a window.
    c, i, di, j, dj = nl.mgrid[0:channels, 0:height // window, 0:window, 0:width // window, 0:window]
    total = nl.sum(tile[c, i * window + di, j * window + dj], axis=[2, 4])
    nl.store(pooled, value=total / (window * window))
    return pooled


def reference(image, window):
    channels, height, width = image.shape
    return image.reshape(channels, height // window, window, width // window, window).mean((2, 4))


def cases():
    image = np.random.default_rng(0).standard_normal((64, 32, 48)).astype(np.float32)
    return [(average_pool2d, (image, 4), reference(image, 4), 1e-6)]


if __name__ == "__main__":
    (kernel, arguments, answer, tolerance), = cases()
    error = np.abs(kernel(*arguments) - answer).max()
    print(f"average pool 4x4 of {arguments[0].shape}: largest error {error:.1e}")
    assert error < tolerance
