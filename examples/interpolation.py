# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bilinear upsampling by two: weighted sums of neighbors, written through strided patterns.

    python -m nki_mlir examples/interpolation.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def upsample(x):
    """Upsample x [C, H, W] to [C, 2H, 2W]: each output is 3/4 of the nearest pixel and 1/4 of the next; edges repeat.
    """
    channels, height, width = x.shape
    out = nl.ndarray((channels, 2 * height, 2 * width), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    rows = nl.ndarray((channels, 2 * height, width), dtype=nl.float32, buffer=nl.sbuf)
    near, far = 0.75, 0.25
    c, i, j = nl.mgrid[0:channels, 0:height - 1, 0:width]
    near_part = nl.multiply(tile, near)
    part = nl.multiply(tile, far)
    rows[c, 2 * i + 1, j] = nl.add(near_part[c, i, j], part[c, i + 1, j])
    rows[c, 2 * i + 2, j] = nl.add(part[c, i, j], near_part[c, i + 1, j])
    rows[:, 0, :] = nl.copy(tile[:, 0, :])
    rows[:, 2 * height - 1, :] = nl.copy(tile[:, height - 1, :])
    wide = nl.ndarray((channels, 2 * height, 2 * width), dtype=nl.float32, buffer=nl.sbuf)
    c, i, j = nl.mgrid[0:channels, 0:2 * height, 0:width - 1]
    near_part = nl.multiply(rows, near)
    part = nl.multiply(rows, far)
    wide[c, i, 2 * j + 1] = nl.add(near_part[c, i, j], part[c, i, j + 1])
    wide[c, i, 2 * j + 2] = nl.add(part[c, i, j], near_part[c, i, j + 1])
    wide[:, :, 0] = nl.copy(rows[:, :, 0])
    wide[:, :, 2 * width - 1] = nl.copy(rows[:, :, width - 1])
    nl.store(out, wide)
    return out


def doubled(x, axis):
    x = np.moveaxis(x, axis, -1)
    out = np.empty((*x.shape[:-1], 2 * x.shape[-1]))
    out[..., 1:-1:2] = 0.75 * x[..., :-1] + 0.25 * x[..., 1:]
    out[..., 2::2] = 0.25 * x[..., :-1] + 0.75 * x[..., 1:]
    out[..., 0], out[..., -1] = x[..., 0], x[..., -1]
    return np.moveaxis(out, -1, axis)


def cases():
    x = np.random.default_rng(0).standard_normal((32, 6, 10)).astype(np.float32)
    return [(upsample, (x,), doubled(doubled(x.astype(np.float64), 1), 2), 1e-6)]


if __name__ == "__main__":
    for kernel, arguments, answer, tolerance in cases():
        result = kernel(*arguments)
        error = np.abs(np.asarray(result, np.float64) - answer).max()
        print(f"{kernel.__name__}: largest error {error:.1e}")
        assert error <= tolerance
