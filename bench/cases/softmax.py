# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax of 4096 rows of 4096."""

import nki_mlir.compat

nki_mlir.compat.install()

import numpy as np  # noqa: E402
import softmax as example  # noqa: E402
from cases.contestants import kernel_call, largest_error, numpy_jax_torch  # noqa: E402

x = np.random.default_rng(0).standard_normal((4096, 4096)).astype(np.float32)
kernel = kernel_call(example.softmax_fused, (x,))


def formula(xp, x):
    powers = xp.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def peers():
    return numpy_jax_torch(formula, lambda x: x.softmax(1), (x,))


def error():
    return largest_error(kernel(), example.reference(x))
