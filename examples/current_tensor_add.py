# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor addition in the current generation, on one core and split over the cores of the launch.

    python -m nki_mlir examples/current_tensor_add.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def add(a, b):
    """Compute a + b [N, M] in tiles of 128 x 512; each core adds every n-th tile of rows."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(nl.program_id(0), rows // 128, nl.num_programs()):
        for j in range(columns // 512):
            block = (nl.ds(i * 128, 128), nl.ds(j * 512, 512))
            left = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf)
            right = nl.ndarray((128, 512), dtype=b.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=a[block])
            nisa.dma_copy(dst=right, src=b[block])
            nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
            nisa.dma_copy(dst=out[block], src=left)
    return out


def cases():
    a, b = np.random.default_rng(0).standard_normal((2, 512, 1024)).astype(np.float32)
    return [(add, (a, b), a + b, 0), (add[2], (a, b), a + b, 0)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
