# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure the complete first call of a kernel of 5,000 and of 50,000 unrolled instructions on each executor.

It measures from the Python source to the result: capture, lowering, compilation and one run, in CPU time of one
process.
"""

import time

import numpy as np

from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel

EXECUTORS = ("eager", "interpreter", "jit", "isa")


def unrolled(count):
    """Run instructions on 64 slots of a tile in turn, as an unrolled loop does."""
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.static_range(count):
            tile[:, i % 64:i % 64 + 8] = nl.add(tile[:, i % 64:i % 64 + 8], 1.0)
        nl.store(out, tile)
        return out
    return kernel


def seconds(count, executor):
    x = np.zeros((128, 128), np.float32)
    expected = np.zeros(128, np.float32)
    for i in range(count):
        expected[i % 64:i % 64 + 8] += 1
    kernel = Kernel(unrolled(count), options={"unroll_limit": 1_000_000}).on(executor)
    started = time.process_time()
    got = kernel(x)
    spent = time.process_time() - started
    assert (got == expected).all()
    return spent


def measure():
    for executor in EXECUTORS:
        seconds(10, executor)               # loads imports and dialects, which are not measured
    spent = {count: {executor: seconds(count, executor) for executor in EXECUTORS} for count in (5_000, 50_000)}
    lines = [f"{count:,} instructions: " + ", ".join(f"{executor} {s:.1f} s ({s / count * 1e6:.0f} us each)"
                                                     for executor, s in of.items()) for count, of in spent.items()]
    return {"first_call_s": spent, "lines": lines}
