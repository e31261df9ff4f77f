# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax over rows, with language functions and with three fused instructions, for any number of rows.

python -m nki_mlir examples/softmax.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def softmax(x):
    """Compute exp(x - max) / sum over each row of x [N, M]."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:columns]
    for i in nl.affine_range(-(-rows // 128)):
        inside = i * 128 + p < rows
        tile = nl.load(x[i * 128 + p, f], mask=inside)
        shifted = nl.subtract(tile, nl.max(tile, axis=1, keepdims=True, mask=inside), mask=inside)
        powers = nl.exp(shifted, mask=inside)
        nl.store(out[i * 128 + p, f], powers / nl.sum(powers, axis=1, keepdims=True, mask=inside), mask=inside)
    return out


@nki.jit
def softmax_fused(x):
    """Compute the same with instructions that also compute the maximum and the sum of the row."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.load(x[nl.ds(i * 128, 128), :])
        lowest = nisa.tensor_reduce(np.max, tile, axis=1, negate=True, keepdims=True)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        powers = nisa.activation_reduce(np.exp, tile, bias=lowest, reduce_op=np.add, reduce_res=total)
        nl.store(out[nl.ds(i * 128, 128), :], nisa.tensor_scalar(powers, np.multiply, nisa.reciprocal(total)))
    return out


def reference(x):
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def cases():
    rng = np.random.default_rng(0)
    ragged, even = (rng.standard_normal(s).astype(np.float32) for s in ((200, 96), (256, 192)))
    return [(softmax, (ragged,), reference(ragged), 1e-6), (softmax_fused, (even,), reference(even), 1e-6)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
