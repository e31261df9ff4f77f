# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cumulative sums along rows in the current generation: a scan for each tile, whose last column starts the next tile.

python -m nki_mlir examples/current_cumulative_sum.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def cumulative_sum(x, width=128):
    """Compute running sums of the rows of x [P, M] in tiles of ``width`` columns."""
    partitions, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.ndarray((partitions, width), dtype=nl.float32, buffer=nl.sbuf)
    carry = nl.ndarray((partitions, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    nisa.memset(dst=carry, value=0.0)
    for start in range(0, columns, width):
        tile = nl.ndarray((partitions, width), dtype=x.dtype, buffer=nl.sbuf)
        sums = nl.ndarray((partitions, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, start:start + width])
        nisa.tensor_tensor_scan(dst=sums, data0=ones, data1=tile, initial=carry, op0=nl.multiply, op1=nl.add)
        nisa.tensor_copy(dst=carry, src=sums[:, width - 1:width])
        nisa.dma_copy(dst=out[:, start:start + width], src=sums)
    return out


def cases():
    x = np.random.default_rng(0).standard_normal((96, 512)).astype(np.float32)
    return [(cumulative_sum, (x,), np.cumsum(x, 1, np.float64), 1e-4)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
