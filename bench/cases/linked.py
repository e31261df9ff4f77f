# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""a * b * kernel(a, b) of 256 x 1024 as one linked program, beside XLA with the opaque call and XLA's own fusion."""

import nki_mlir.compat

nki_mlir.compat.install()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import tensor_add as example  # noqa: E402
from cases.contestants import largest_error  # noqa: E402

from nki_mlir.frameworks.stablehlo import LinkedProgram  # noqa: E402

a, b = np.random.default_rng(0).standard_normal((2, 256, 1024)).astype(np.float32)


def with_kernel(a, b):
    return a * b * example.tensor_add[2, 2](a, b)


opaque = jax.jit(with_kernel)
native = jax.jit(lambda a, b: a * b * (a + b))
program = LinkedProgram(opaque.lower(a, b).as_text())
result = np.empty_like(a)


def kernel():
    """Into memory that is there, as XLA's is after the first call."""
    program.run([a, b], [result])
    return result


def peers():
    x, y = jax.device_put(a), jax.device_put(b)
    return {"XLA, opaque call": lambda: opaque(x, y).block_until_ready(),
            "XLA, fused": lambda: native(x, y).block_until_ready()}


def error():
    return largest_error(kernel(), a.astype(np.float64) * b * (a.astype(np.float64) + b))
