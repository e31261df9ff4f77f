# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Average pool 2x2 of 128 x 256 x 256."""

import nki_mlir.compat

nki_mlir.compat.install()

import average_pool2d as example  # noqa: E402
import numpy as np  # noqa: E402
from cases.contestants import kernel_call, largest_error, numpy_jax_torch  # noqa: E402

image = np.random.default_rng(0).standard_normal((128, 256, 256)).astype(np.float32)
kernel = kernel_call(example.average_pool2d, (image, 2))


def peers():
    def torch_formula(x):
        import torch
        return torch.nn.functional.avg_pool2d(x, 2)
    return numpy_jax_torch(lambda xp, x: x.reshape(128, 128, 2, 128, 2).mean((2, 4)), torch_formula, (image,))


def error():
    return largest_error(kernel(), example.reference(image.astype(np.float64), 2))
