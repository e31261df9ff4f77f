# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A trip count that only the device knows: a loop adds rows, and a register has its bound.

python -m nki_mlir examples/current_dynamic_add.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def add_rows(a, b, count):
    """Add the first count [1, 1] of the T blocks of a and b [P, T, M], and write zeros to the others."""
    partitions, blocks, width = a.shape
    left, right, total = (nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf) for _ in range(3))
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    nisa.memset(dst=total, value=0.0)
    row_count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=row_count, src=count)
    bound = nisa.register_alloc()
    nisa.register_load(bound, row_count)

    def one_block(i):
        block = [[blocks * width, partitions], [1, width]]
        at = dict(scalar_offset=i, indirect_dim=1)
        nisa.tensor_tensor(dst=total.ap(block, **at), data1=left.ap(block, **at), data2=right.ap(block, **at),
                           op=nl.add)

    nl.fori_loop(0, bound, one_block)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


def cases():
    a, b = np.random.default_rng(0).standard_normal((2, 64, 8, 32)).astype(np.float32)
    answer = lambda count: np.where(np.arange(8)[:, None] < count, a + b, np.float32(0))
    return [(add_rows, (a, b, np.array([[n]], np.int32)), answer(n), 0) for n in (0, 5, 8)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
