# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix product of 1024 x 1024 in float32."""

import nki_mlir.compat

nki_mlir.compat.install()

import matmul as example  # noqa: E402
import numpy as np  # noqa: E402
from cases.contestants import kernel_call, largest_error, numpy_jax_torch  # noqa: E402

a_t, b = np.random.default_rng(0).standard_normal((2, 1024, 1024)).astype(np.float32)
kernel = kernel_call(example.matmul_blocked, (a_t, b))


def peers():
    return numpy_jax_torch(lambda xp, a, b: xp.matmul(a.T, b), lambda a, b: a.T @ b, (a_t, b))


def error():
    return largest_error(kernel(), a_t.astype(np.float64).T @ b)
