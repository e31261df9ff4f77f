# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that print tiles while they run, that draw random numbers, and whose loops end when the device says so."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np


@nki.jit
def debugged(x, verbose=False):
    """Prints the parts of a computation if asked."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ix = nl.arange(rows)[:, None]
    iy = nl.arange(cols)[None, :]
    tile = nl.load(x[ix, iy])
    if verbose:
        nl.device_print("x", tile)
        print("shape", tile.shape)
    e = nl.exp(tile)
    nl.device_print("sums: ", nl.sum(e, axis=1, keepdims=True), mask=ix < 2)
    nl.store(out[ix, iy], e)
    return out


@nki.jit
def dropped(x, seed, p=0.25):
    """Dropout with a seed: which elements remain depends on it alone."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.random_seed(nl.load(seed))
    for i in nl.affine_range(rows // 32):
        tile = nl.load(x[nl.ds(i * 32, 32), :])
        nl.store(out[nl.ds(i * 32, 32), :], nl.multiply(nl.dropout(tile, rate=p), 1.0 / (1.0 - p)))
    return out


@nki.jit
def noise_range(x, scale=0.5):
    """Random numbers are between 0 and 1: their sums with a scale are within bounds."""
    rows, cols = x.shape
    out = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    noise = nl.rand((rows, cols))
    inside = nl.logical_and(nl.greater_equal(noise, 0.0), nl.less(noise, 1.0))
    both = nl.ndarray((nl.par_dim(rows), 2), dtype=nl.float32, buffer=nl.sbuf)
    both[:, 0:1] = nl.min(nl.copy(inside, dtype=nl.float32), axis=1, keepdims=True)
    both[:, 1:2] = nl.multiply(nl.max(nl.load(x), axis=1, keepdims=True), scale)
    nl.store(out, both)
    return out


@nki.jit
def halved_until(x, count):
    """x / 2 ** count, where the device has the count."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    left = nl.load(count[0:1, 0:1])
    going = nt.scalar(True)
    while going:
        tile[...] = nl.multiply(tile, 0.5)
        left[...] = nl.subtract(left, 1)
        going = nt.scalar(left)
    nl.store(out, tile)
    return out


@nki.jit
def shuffled_lanes(x):
    """Rows within groups of 32 in reverse order, then a check value that is printed."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    shuffled = nl.ndarray((nl.par_dim(rows), cols), dtype=x.dtype, buffer=nl.sbuf)
    nisa.nc_stream_shuffle(src=tile, dst=shuffled, shuffle_mask=[31 - i for i in range(32)])
    nl.device_print("first", shuffled[0:1, 0:4])
    nl.store(out, shuffled)
    return out


def cases():
    r = np.random.default_rng(20)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (debugged, (f(16, 8),)),
        (debugged, (f(8, 4),), {"verbose": True}),
        (noise_range, (f(32, 64),)),
        (halved_until, (f(32, 16), np.array([[3]], np.int32))),
        (shuffled_lanes, (f(64, 12),)),
    ]
