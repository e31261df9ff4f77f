# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that get and return index grids, masks and records of tiles; tables of functions; partial kernels."""

import functools
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

Moments = namedtuple("Moments", ["mean", "spread"])


class Shape(Enum):
    RELU = "relu"
    PLAIN = "plain"


@dataclass(frozen=True)
class Options:
    shape: Shape = Shape.RELU
    factor: float = 1.0
    rows: int = 64


FUNCTIONS = {Shape.RELU: nl.relu, Shape.PLAIN: nl.copy}


def grid_of(t, sizes):
    """The index grid of a tile of 128 rows, and its mask."""
    i_p, i_f = nl.mgrid[0:128, 0:sizes[1]]
    return t * 128 + i_p, i_f, (t * 128 + i_p < sizes[0])


def load_rows(x, t):
    rows, columns, valid = grid_of(t, x.shape)
    return nl.load(x[rows, columns], mask=valid)


def load_at(x, ix, iy, mask=None):
    # every load of the file
    tile = nl.load(x[ix, iy], mask=mask)
    return tile


def store_at(dst, tile, ix, iy, mask):
    nl.store(dst[ix, iy], value=tile, mask=mask)


def vectors(rows, columns):
    return nl.arange(rows)[:, None], nl.arange(columns)[None, :]


@nki.jit
def row_products(a, b):
    """Sums of products of rows, of which the last tile has fewer."""
    n, d = a.shape
    out = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range((n + 127) // 128):
        x, y = load_rows(a, t), load_rows(b, t)
        i_p = nl.arange(128)[:, None]
        keep = t * 128 + i_p < n
        total = nl.sum(nl.multiply(x, y, mask=keep), axis=1, mask=keep)
        nl.store(out[t * 128 + i_p, nl.arange(1)[None, :]], total, mask=keep)
    return out


@nki.jit
def biased(x, bias):
    n, d = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = vectors(128, d)
    i0, _ = vectors(1, 1)
    b = load_at(bias, i0, jf).broadcast_to((128, d))
    for t in nl.affine_range((n + 127) // 128):
        rows = t * 128 + ip
        tile = load_at(x, rows, jf, mask=rows < n)
        y = nl.relu(nl.add(tile, b, mask=rows < n))
        store_at(out, y, rows, jf, rows < n)
    return out


@nki.jit(mode="trace")
def moments(tile):
    n, d = tile.shape
    mean = nl.sum(tile, axis=1) * (1.0 / d)
    return Moments(mean, nl.sum(nl.square(tile - mean), axis=1) * (1.0 / d))


@nki.jit
def standardized(x, eps=1e-6):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    both = moments(tile)
    nl.store(out, (tile - both.mean) * nl.rsqrt(both.spread + eps))
    return out


def scaled_tile(x, t, rows, scale):
    tile = nl.ndarray((nl.par_dim(rows), x.shape[1]), dtype=nl.float32)
    tile[...] = nl.multiply(nl.load(x[t * rows:(t + 1) * rows, :]), scale, dtype=nl.float32)
    return tile


@nki.jit
def by_table(
    x,  # rows
    # how to compute
    options=Options(),
    *,
    scale=None,  # of the rows
):
    scale = scale or (1.0 / x.shape[1])
    out = nl.ndarray(
        x.shape,
        # as the rows have it
        dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(x.shape[0] // options.rows):
        tile = FUNCTIONS[options.shape](scaled_tile(x, t, options.rows, scale))
        nl.store(out[t * options.rows:(t + 1) * options.rows, :], nisa.tensor_scalar(
            tile,  # of float32
            np.multiply, options.factor))
    return out


doubled = functools.partial(by_table, scale=2.0)


def cases():
    numbers = np.random.default_rng(0)
    f = lambda *sizes: numbers.standard_normal(sizes).astype(np.float32)
    return [(row_products, (f(150, 20), f(150, 20))), (biased, (f(200, 24), f(1, 24))), (standardized, (f(30, 16),)),
            (by_table, (f(128, 12),)), (doubled, (f(64, 12), Options(Shape.PLAIN, 0.5, 32)))]
