# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cost of capture per operation, from 1,000 to 100,000 unrolled operations."""

import time

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel, describe_array, is_array


def unrolled(count):
    def kernel(x, out):
        tile = nl.load(x)
        for _ in nl.static_range(count):
            tile = nl.add(tile, tile)
        nl.store(out, tile)
    return kernel


def measure():
    x = np.zeros((128, 64), np.float32)
    made = {}
    for count in (1000, 10_000, 100_000):
        kernel = Kernel(unrolled(count), options={"unroll_limit": 1_000_000})
        started = time.perf_counter()
        kernel.specialize(kernel.bind((x, x), {}, is_array, describe_array))
        made[count] = (time.perf_counter() - started) / count * 1e6
    return {"us_per_operation": made, "lines": [f"{us:.0f} us an operation of {n}" for n, us in made.items()]}
