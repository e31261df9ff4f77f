# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cumulative sums along rows: a scan for each tile, in a loop that carries the last column to the next tile.

python -m nki_mlir examples/cumulative_sum.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def cumulative_sum(x, width=128):
    """Compute running sums of the rows of x [N, M], N a multiple of 128, in tiles of ``width`` columns."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.full((128, width), 1.0, nl.float32)
    for i in nl.affine_range(rows // 128):
        carry = nl.zeros((128, 1), nl.float32)
        for j in nl.sequential_range(columns // width):
            tile = nl.load(x[nl.ds(i * 128, 128), nl.ds(j * width, width)])
            sums = nisa.tensor_tensor_scan(ones, tile, initial=carry, op0=np.multiply, op1=np.add)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * width, width)], sums)
            carry[...] = nl.copy(sums[:, width - 1:width])
    return out


def cases():
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    return [(cumulative_sum, (x,), np.cumsum(x, 1, np.float64), 1e-4)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
