# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure the cost of capture per operation, of 1,000 to 100,000 unrolled ones, and of a process's first capture.

Figures are CPU time, which other work on the machine disturbs less.
"""

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


def seconds(count):
    x = np.zeros((128, 64), np.float32)
    kernel = Kernel(unrolled(count), options={"unroll_limit": 1_000_000})
    started = time.process_time()
    kernel.specialize(kernel.bind((x, x), {}, is_array, describe_array))
    return time.process_time() - started


def measure():
    first = seconds(1) * 1e3            # imports the bindings, loads the dialects
    times_us = {n: min(seconds(n) for _ in range(3)) / n * 1e6 for n in (1000, 10_000, 100_000)}
    lines = [f"{first:.0f} ms for the first capture of a process",
             *[f"{us:.0f} us an operation of {n}" for n, us in times_us.items()]]
    return {"first_capture_ms": first, "us_per_operation": times_us, "lines": lines}
