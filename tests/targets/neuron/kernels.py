# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that exercise the emission: rotation, accumulation, branches, masks, grids, scratch memory."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from ...tolerances import product_bound


@nki.jit
def pipeline(a, w):
    """out = w.T @ exp(a) + a, a row block at a time."""
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.load(w)
    for i in nl.affine_range(a.shape[0] // 128):
        tile = nl.load(a[i * 128:(i + 1) * 128, :])
        product = nisa.nc_matmul(weights, nisa.activation(nl.exp, tile))
        nl.store(out[i * 128:(i + 1) * 128, :], nisa.tensor_tensor(nisa.tensor_copy(product), tile, nl.add))
    return out


@nki.jit
def masked_rows(a):
    """Row blocks of 128 of a height that 128 does not divide."""
    n, m = a.shape
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(m)[None, :]
    for i in nl.affine_range((n + 127) // 128):
        tile = nl.load(a[i * 128 + p, f], mask=(i * 128 + p < n))
        nl.store(out[i * 128 + p, f], nl.multiply(tile, 2.0), mask=(i * 128 + p < n))
    return out


@nki.jit
def triangle(a):
    """The lower triangle; nothing else is written."""
    n = a.shape[0]
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(n)[:, None], nl.arange(n)[None, :]
    tile = nl.load(a)
    nl.store(out[p, f], tile[p, f], mask=(p >= f))
    return out


@nki.jit
def running_sum(a):
    """A sum that is carried from one iteration to the next, with another operation in some of them."""
    out = nl.ndarray((a.shape[0], 64), dtype=nl.float32, buffer=nl.shared_hbm)
    program = nl.program_id(0)
    total = nl.zeros((nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.sbuf)
    rows = nl.arange(128)[:, None]
    columns = nl.arange(64)[None, :]
    for i in nl.sequential_range(6):
        tile = nl.load(a[program * 128 + rows, (i % 3) * 64 + columns])
        if i + program >= 4:
            total[...] = nl.add(total, tile)
        else:
            total[...] = nl.subtract(total, tile)
    nl.store(out[program * 128 + rows, columns], total)
    return out


@nki.jit
def through_scratch(a):
    """A row block to scratch memory in HBM and back, transposed blocks of it."""
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.hbm)
    nl.store(scratch, nl.add(nl.load(a), 1.0))
    for i in nl.affine_range(4):
        part = nl.load(scratch[:, nl.ds(i * 32, 32)])
        nl.store(out[nl.ds(i * 32, 32), :], nl.copy(nl.transpose(part)))
    nl.device_print("scratch", nl.load(scratch))
    return out


@nki.jit
def uneven(a):
    """The first program id is the number of tiles, so each value of it needs separate code; the second is a variable."""
    out = nl.ndarray((3, 2, 128, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    first, second = nl.program_id(0), nl.program_id(1)
    total = nl.zeros((nl.par_dim(128), 32), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(int(first) + 1):
        total[...] = nl.add(total, nl.load(a[nl.ds(second * 128, 128), nl.ds(i * 32, 32)]))
    nl.store(out[first, second], total)
    return out


def cases():
    """(kernel, arguments, answer, how far each element may be from it)."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((512, 192)).astype(np.float32)
    square = rng.standard_normal((128, 128)).astype(np.float32)
    exp = np.exp(a[:, :192].astype(np.float64)).reshape(4, 128, 192)
    bounds = np.concatenate([product_bound(square, tile) for tile in exp])
    yield pipeline, (a, square), (square.astype(np.float64).T @ exp).reshape(512, 192) + a, bounds
    yield masked_rows, (a[:300].copy(),), 2.0 * a[:300], 0
    yield triangle, (square[:64, :64].copy(),), np.tril(square[:64, :64]), 0
    total = np.zeros((4, 128, 64), np.float32)
    for program in range(4):
        for i in range(6):
            tile = a[program * 128:(program + 1) * 128, (i % 3) * 64:(i % 3) * 64 + 64]
            total[program] += tile if i + program >= 4 else -tile
    yield running_sum[4], (a,), total.reshape(512, 64), 1e-6
    parts = a[:256, :96].reshape(2, 128, 3, 32).transpose(2, 0, 1, 3)
    yield uneven[3, 2], (a,), np.cumsum(parts, axis=0), 1e-6
    yield through_scratch, (square,), (square + 1.0).T, 0
