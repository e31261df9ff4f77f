# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Objects whose methods compute on tiles: records, objects in objects, two of one class, a pool of tiles."""
from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@dataclass
class Tile2D:
    """A part of a tensor in HBM."""
    src: object
    rows: int
    cols: int

    def load(self, i, j, dtype=None):
        r, c = i * self.rows, j * self.cols
        return nl.load(self.src[nl.ds(r, self.rows), nl.ds(c, self.cols)], dtype=dtype or self.src.dtype)

    @property
    def count(self):
        return self.src.shape[0] // self.rows


class Statistics:
    EPS = 1e-5

    def __init__(self, rows, dtype=nl.float32):
        self.dtype = dtype
        self.rows = rows
        self.sum, self.squares = nl.zeros((rows, 1), dtype=dtype), nl.zeros((rows, 1), dtype=dtype)
        self.n = 0

    def add(self, tile):
        self.sum += nl.sum(tile, axis=1, dtype=self.dtype)
        self.squares += nl.sum(nl.square(tile), axis=1, dtype=self.dtype)
        self.n += tile.shape[1]

    def mean(self):
        return nl.multiply(self.sum, 1.0 / self.n)

    def inverse_deviation(self):
        m = self.mean()
        var = nl.subtract(nl.multiply(self.squares, 1.0 / self.n), nl.square(m))
        return nl.rsqrt(nl.add(var, self.EPS))


class Normalizer:
    """Normalizes by the statistics of the tiles that it has seen."""

    def __init__(self, rows):
        self.stats = Statistics(rows)
        self.scale = 1.0

    def run(self, tile):
        self.stats.add(tile)
        mean, inverse = self.stats.mean(), self.stats.inverse_deviation()
        c = nisa.tensor_scalar(tile, np.subtract, mean, op1=np.multiply, operand1=inverse)
        return nl.multiply(c, self.scale)


def finish(stats, tile):
    return nl.multiply(nl.subtract(tile, stats.mean()), stats.inverse_deviation())


@nki.jit
def normalize(x, y):
    rows, cols = x.shape
    out = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    out2 = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    part = Tile2D(x, 128, cols)
    other = Tile2D(y, 128, cols)
    for i in nl.affine_range(part.count):
        t = part.load(i, 0)
        u = other.load(i, 0, dtype=nl.float32)
        norm = Normalizer(128)
        nl.store(out[nl.ds(i * 128, 128), :], norm.run(t))
        half = Statistics(128, dtype=nl.float32)
        half.add(u)
        nl.store(out2[nl.ds(i * 128, 128), :], finish(half, u))
    return out, out2


class PsumPool:
    """Two tiles in PSUM that take turns."""

    def __init__(self, n, shape):
        self.tiles = [nl.zeros(shape, dtype=nl.float32, buffer=nl.psum) for _ in range(n)]

    def get(self, i):
        return self.tiles[i % len(self.tiles)]


@nki.jit
def pooled_products(a, b):
    K, M = a.shape
    N = b.shape[1]
    out = nl.ndarray((2, M, N), dtype=a.dtype, buffer=nl.shared_hbm)
    pool = PsumPool(2, (M, N))
    at, bt = nl.load(a), nl.load(b)
    for i in nl.static_range(2):
        acc = pool.get(i)
        acc[...] += nisa.nc_matmul(at, bt)
        nl.store(out[i], nl.copy(acc))
    return out


def cases():
    r = np.random.default_rng(0)
    x, y = r.standard_normal((2, 256, 40)).astype(np.float32)
    a, b = r.standard_normal((64, 32)).astype(np.float32), r.standard_normal((64, 48)).astype(np.float32)
    return [(normalize, (x, y)), (pooled_products, (a, b))]
