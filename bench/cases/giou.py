# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generalised IoU of 1024 x 256 pairs."""

import nki_mlir.compat

nki_mlir.compat.install()

import giou as example  # noqa: E402
import numpy as np  # noqa: E402
from cases.contestants import kernel_call, largest_error, numpy_jax_torch  # noqa: E402

first, second = example.random_boxes(1024, 256, 0), example.random_boxes(1024, 256, 1)
out = np.empty((1024, 256), np.float32)
kernel = kernel_call(example.giou, (first, second, out))


def formula(xp, a, b):
    a, b = a.reshape(1024, -1, 4), b.reshape(1024, -1, 4)
    common = xp.clip(xp.minimum(a[..., 2:], b[..., 2:]) - xp.maximum(a[..., :2], b[..., :2]), 0, None).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - common
    around = (xp.maximum(a[..., 2:], b[..., 2:]) - xp.minimum(a[..., :2], b[..., :2])).prod(-1)
    return common / xp.maximum(union, 1e-5) - (around - union) / xp.maximum(around, 1e-5)


def peers():
    return numpy_jax_torch(formula, None, (first, second))


def error():
    kernel()
    return largest_error(out, example.reference(first, second))
