# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sum of two matrices of 1024 x 4096 over a grid of programs."""

import nki_mlir.compat

nki_mlir.compat.install()

import numpy as np  # noqa: E402
import tensor_add as example  # noqa: E402
from cases.contestants import kernel_call, largest_error, numpy_jax_torch  # noqa: E402

a, b = np.random.default_rng(0).standard_normal((2, 1024, 4096)).astype(np.float32)
kernel = kernel_call(example.tensor_add[8, 8], (a, b))


def peers():
    return numpy_jax_torch(lambda xp, a, b: a + b, lambda a, b: a + b, (a, b))


def error():
    return largest_error(kernel(), a.astype(np.float64) + b)
