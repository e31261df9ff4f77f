# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Split a matrix product over ranks: each rank computes a part of the sum, and an all-reduce adds the parts.

python -m nki_mlir examples/current_all_reduce.py
"""

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import numpy as np

from nki_mlir.language.current.simulator import simulate_ranks

RANKS = 4


@nki.jit
def matmul_of_ranks(a_t, b):
    """Multiply this rank's rows a_t [K, M], b [K, N]; every rank returns the complete a_t.T @ b [M, N]."""
    (k, m), (_, n) = a_t.shape, b.shape
    left = nl.ndarray((k, m), dtype=a_t.dtype, buffer=nl.sbuf)
    right = nl.ndarray((k, n), dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a_t)
    nisa.dma_copy(dst=right, src=b)
    product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=left, moving=right)
    result = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=product)
    part = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.private_hbm)
    total = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=part, src=result)
    ncc.all_reduce(srcs=[part], dsts=[total], replica_group=ncc.ReplicaGroup([list(range(RANKS))]), op=nl.add)
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


def matmul(a_t, b, executor="jit"):
    """Return the results of all ranks, along a new first axis."""
    parts = zip(np.split(a_t, RANKS), np.split(b, RANKS))
    return np.stack(simulate_ranks(matmul_of_ranks, list(parts), executor=executor))


def cases():
    rng = np.random.default_rng(0)
    a_t, b = rng.standard_normal((512, 64)).astype(np.float32), rng.standard_normal((512, 256)).astype(np.float32)
    return [(matmul, (a_t, b), np.stack([a_t.astype(np.float64).T @ b] * RANKS), 1e-4)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
