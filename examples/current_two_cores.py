# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two cores share the work on a row: they exchange partial sums in shared memory, after a barrier.

python -m nki_mlir examples/current_two_cores.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def centered(x):
    """Subtract the mean of each row from x [P, M]; each core processes half of the columns."""
    partitions, columns = x.shape
    core, cores = nl.program_id(0), nl.num_programs()
    width = columns // cores
    mine = nl.ds(core * width, width)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((partitions, cores), dtype=nl.float32, buffer=nl.shared_hbm, name="sums")
    tile = nl.ndarray((partitions, width), dtype=x.dtype, buffer=nl.sbuf)
    part, mean = (nl.ndarray((partitions, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=tile, src=x[:, mine])
    nisa.tensor_reduce(dst=part, op=nl.add, data=tile, axis=1)
    nisa.dma_copy(dst=sums[:, core:core + 1], src=part)
    nisa.core_barrier(sums, tuple(range(cores)))
    parts = nl.ndarray((partitions, cores), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=parts, src=sums)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=parts, axis=1)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=mean)
    nisa.dma_copy(dst=out[:, mine], src=tile)
    return out


def cases():
    x = np.random.default_rng(0).standard_normal((128, 512)).astype(np.float32)
    answer = x - x.mean(1, keepdims=True, dtype=np.float64)
    return [(centered[2], (x,), answer, 1e-6)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
