# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A selective state-space scan, as in Mamba: the recurrence is one instruction per state.

    python -m nki_mlir examples/selective_scan.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def selective_scan(delta, u, a, b, c):
    """Compute y[d, t] = sum over n of c[n, t] h[n, d, t], h[n, d, t] = exp(delta a[d, n]) h[n, d, t-1] + delta u b[n,
    t].

    delta, u [D, T] with D at most 128, a [D, N], b and c [N, T].
    """
    channels, steps = delta.shape
    states = a.shape[1]
    out = nl.ndarray((channels, steps), dtype=u.dtype, buffer=nl.shared_hbm)
    rate, inputs, decay = nl.load(delta), nl.load(u), nl.load(a)
    driven = nl.multiply(rate, inputs)
    total = nl.zeros((channels, steps), dtype=nl.float32, buffer=nl.sbuf)
    for n in nl.affine_range(states):
        kept = nisa.activation(np.exp, rate, scale=decay[:, n])
        weight, reading = nl.load(b[nl.ds(n, 1), :]), nl.load(c[nl.ds(n, 1), :])
        added = nl.multiply(driven, weight.broadcast_to((channels, steps)))
        state = nisa.tensor_tensor_scan(kept, added, initial=0.0, op0=np.multiply, op1=np.add)
        total += nl.multiply(state, reading.broadcast_to((channels, steps)))
    nl.store(out, total)
    return out


def reference(delta, u, a, b, c):
    delta, u, a, b, c = (x.astype(np.float64) for x in (delta, u, a, b, c))
    state, out = np.zeros(a.shape), np.zeros(u.shape)
    for t in range(u.shape[1]):
        state = np.exp(delta[:, t:t + 1] * a) * state + (delta[:, t] * u[:, t])[:, None] * b[:, t]
        out[:, t] = state @ c[:, t]
    return out


def cases():
    rng = np.random.default_rng(0)
    delta, u = rng.uniform(0, 0.1, (64, 96)).astype(np.float32), rng.standard_normal((64, 96)).astype(np.float32)
    a = -rng.uniform(0.5, 2, (64, 8)).astype(np.float32)
    b, c = rng.standard_normal((2, 8, 96)).astype(np.float32)
    return [(selective_scan, (delta, u, a, b, c), reference(delta, u, a, b, c), 1e-5)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
