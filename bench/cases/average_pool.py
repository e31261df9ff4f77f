# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Average pool 2x2 of 128 x 256 x 256, in blocks of rows that fit a partition."""

import nki_mlir.compat

nki_mlir.compat.install()

import average_pool2d as example  # noqa: E402
import neuronxcc.nki as nki  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402
import numpy as np  # noqa: E402
from cases.contestants import kernel_call, largest_error, numpy_jax_torch  # noqa: E402

image = np.random.default_rng(0).standard_normal((128, 256, 256)).astype(np.float32)
ROWS = 64


@nki.jit
def average_pool2d(image, window):
    channels, height, width = image.shape
    pooled = nl.ndarray((channels, height // window, width // window), dtype=image.dtype, buffer=nl.shared_hbm)
    c, i, di, j, dj = nl.mgrid[0:channels, 0:ROWS // window, 0:window, 0:width // window, 0:window]
    for block in nl.affine_range(height // ROWS):
        tile = nl.load(image[:, nl.ds(block * ROWS, ROWS), :])
        total = nl.sum(tile[c, i * window + di, j * window + dj], axis=[2, 4])
        nl.store(pooled[:, nl.ds(block * (ROWS // window), ROWS // window), :], value=total / (window * window))
    return pooled


kernel = kernel_call(average_pool2d, (image, 2))


def peers():
    def torch_formula(x):
        import torch
        return torch.nn.functional.avg_pool2d(x, 2)
    return numpy_jax_torch(lambda xp, x: x.reshape(128, 128, 2, 128, 2).mean((2, 4)), torch_formula, (image,))


def error():
    return largest_error(kernel(), example.reference(image.astype(np.float64), 2))
