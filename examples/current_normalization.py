# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""RMS normalization and softmax in the current generation: the last tile is a slice of fewer partitions.

python -m nki_mlir examples/current_normalization.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


@nki.jit
def rmsnorm(x, g, epsilon=1e-6):
    """Compute x [N, M] / sqrt(mean of its squares) * g [1, M]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weight = nl.ndarray((128, columns), dtype=g.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weight, src=g.ap([[0, 128], [1, columns]]))          # one row for every partition
    shift = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=shift, value=epsilon)
    for start in range(0, rows, 128):
        count = min(128, rows - start)
        tile = nl.ndarray((count, columns), dtype=x.dtype, buffer=nl.sbuf)
        square = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        scale = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:start + count])
        nisa.activation_reduce(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=scale)
        nisa.activation(dst=scale, op=nl.rsqrt, data=scale, scale=1.0 / columns, bias=shift[0:count])
        nisa.scalar_tensor_tensor(dst=tile, data=tile, op0=nl.multiply, operand0=scale, op1=nl.multiply,
                                  operand1=weight[0:count])
        nisa.dma_copy(dst=out[start:start + count], src=tile)
    return out


@nki.jit
def softmax(x):
    """Compute exp(x - largest of the row) over its sum, for rows of x [N, M]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        count = min(128, rows - start)
        tile = nl.ndarray((count, columns), dtype=x.dtype, buffer=nl.sbuf)
        below, total = (nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=tile, src=x[start:start + count])
        nisa.tensor_reduce(dst=below, op=nl.maximum, data=tile, axis=1, negate=True)
        nisa.activation_reduce(dst=tile, op=nl.exp, data=tile, bias=below, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[start:start + count], src=tile)
    return out


def cases():
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((300, 160)).astype(np.float32), rng.standard_normal((1, 160)).astype(np.float32)
    x64 = x.astype(np.float64)
    exponentials = np.exp(x64 - x64.max(1, keepdims=True))
    return [(rmsnorm, (x, g), x64 / np.sqrt((x64 ** 2).mean(1, keepdims=True) + 1e-6) * g, 1e-5),
            (softmax, (x,), exponentials / exponentials.sum(1, keepdims=True), 1e-6)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
