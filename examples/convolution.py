# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions in one dimension: depthwise by scaled shifts, dense by products accumulated in PSUM.

    python -m nki_mlir examples/convolution.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def depthwise(x, w):
    """Compute y[c, t] = sum over k of w[c, k] x[c, t + k] of x [C, T], w [C, K]; T - K + 1 columns."""
    channels, steps = x.shape
    taps = w.shape[1]
    length = steps - taps + 1
    out = nl.ndarray((channels, length), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, weight = nl.load(x), nl.load(w)
    total = nl.zeros((channels, length), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.static_range(taps):
        total[...] = nisa.scalar_tensor_tensor(data=tile[:, k:k + length], op0=np.multiply, operand0=weight[:, k],
                                               op1=np.add, operand1=total)
    nl.store(out, total)
    return out


@nki.jit
def dense(x, w):
    """Compute y[o, t] = sum over k and c of w[k, c, o] x[c, t + k] of x [C, T], w [K, C, O]."""
    channels, steps = x.shape
    taps, _, outputs = w.shape
    length = steps - taps + 1
    out = nl.ndarray((outputs, length), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.zeros((outputs, length), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(taps):
        total += nisa.nc_matmul(nl.load(w[k]), tile[:, nl.ds(k, length)])
    nl.store(out, nl.copy(total))
    return out


def cases():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 200)).astype(np.float32)
    w, filters = rng.standard_normal((64, 5)).astype(np.float32), rng.standard_normal((5, 64, 96)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 5, axis=1)
    return [(depthwise, (x, w), np.einsum("ctk,ck->ct", windows, w), 1e-5),
            (dense, (x, filters), np.einsum("ctk,kco->ot", windows, filters), 1e-4)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
