# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A selective scan of 256 channels, 1024 steps and 16 states."""

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from case import Case, case, random, tolerance
from selective_scan import reference


@nki.jit
def selective_scan(delta, u, a, b, c):
    """Scan as the example does, for D channels, a multiple of 128: delta, u [D, T], a [D, N], b and c [N, T]."""
    channels, steps = delta.shape
    out = nl.ndarray((channels, steps), dtype=u.dtype, buffer=nl.shared_hbm)
    for tile in nl.affine_range(channels // 128):
        rows = nl.ds(tile * 128, 128)
        rate, inputs = nl.load(delta[rows, :]), nl.load(u[rows, :])
        decay = nl.copy(nl.load(a[rows, :]), dtype=nl.float32)
        driven = nl.multiply(rate, inputs)
        total = nl.zeros((128, steps), dtype=nl.float32, buffer=nl.sbuf)
        for n in nl.affine_range(a.shape[1]):
            fading = nisa.activation(np.exp, rate, scale=decay[:, n])
            weight, reading = nl.load(b[nl.ds(n, 1), :]), nl.load(c[nl.ds(n, 1), :])
            added = nl.multiply(driven, weight.broadcast_to((128, steps)))
            state = nisa.tensor_tensor_scan(fading, added, initial=0.0, op0=np.multiply, op1=np.add)
            total += nl.multiply(state, reading.broadcast_to((128, steps)))
        nl.store(out[rows, :], total)
    return out


def formula(xp: Any, delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    if xp is np:
        state, out = np.zeros(a.shape, np.float32), np.zeros_like(u)
        for t in range(u.shape[1]):
            state = np.exp(delta[:, t:t + 1] * a) * state + (delta[:, t] * u[:, t])[:, None] * b[:, t]
            out[:, t] = state @ c[:, t]
        return out
    import jax

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]
    fading = xp.exp(delta[None] * a.T[:, :, None])
    _, states = jax.lax.associative_scan(combine, (fading, (delta * u)[None] * b[:, None]), axis=2)
    return (states * c[:, None]).sum(0)


def torch_formula(delta: Any, u: Any, a: Any, b: Any, c: Any) -> Any:
    import torch
    fading, driven = torch.exp(delta[:, None] * a[:, :, None]), (delta * u)[:, None] * b[None]
    state, rows = torch.zeros_like(a), []
    for t in range(u.shape[1]):
        state = fading[..., t] * state + driven[..., t]
        rows.append(state @ c[:, t])
    return torch.stack(rows, 1)


@case("selective_scan")
def scan(dtype: str = "float32") -> Case:
    rng = np.random.default_rng(0)
    delta, a = (rng.uniform(*span, shape).astype(dtype) for span, shape in
                (((0, 0.1), (256, 1024)), ((-2, -0.5), (256, 16))))
    u, b, c = random(256, 1024, dtype=dtype), random(16, 1024, seed=1, dtype=dtype), random(16, 1024, seed=2,
                                                                                           dtype=dtype)
    arrays = delta, u, a, b, c
    return Case(arrays, selective_scan, formula, torch_formula, "copy", 3 * u.nbytes, lambda: reference(*arrays),
                tolerance(dtype))
