# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that read objects of the host: data classes with properties and methods, named tuples, enumerations."""

import dataclasses
import enum
from typing import NamedTuple

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


class Activation(enum.Enum):
    NONE = "none"
    RELU = "relu"
    SILU = "silu"
    GELU = "gelu"


@dataclasses.dataclass(frozen=True)
class MatmulConfig:
    """The sizes of tiles, and what is derived from them."""

    tile_m: int = 64
    tile_k: int = 128
    tile_n: int = 96
    activation: Activation = Activation.NONE
    out_scale: float | None = None

    def num_tiles(self, m, k, n):
        return m // self.tile_m, k // self.tile_k, n // self.tile_n

    @property
    def rhs_elements(self):
        return self.tile_k * self.tile_n

    @staticmethod
    def ceil_div(a, b):
        return -(-a // b)


class AttnShape(NamedTuple):
    heads: int
    seq: int
    dim: int

    @property
    def scale(self):
        return 1.0 / float(self.dim) ** 0.5


class TileWalker:
    """Computes where tiles begin and how many of their rows exist."""

    def __init__(self, total, size):
        self.total = total
        self.size = size
        self.starts = [s for s in range(0, total, size)]

    def __len__(self):
        return len(self.starts)

    def begin(self, i):
        return i * self.size

    def rows(self, i):
        return min(self.size, self.total - i * self.size)


def apply_activation(tile, activation):
    if activation == Activation.RELU:
        return nl.relu(tile)
    elif activation == Activation.SILU:
        return nl.silu(tile)
    elif activation == Activation.GELU:
        return nl.gelu(tile)
    return tile


@nki.jit
def configured_matmul(lhsT, rhs, config: MatmulConfig = MatmulConfig()):
    """lhsT [K, M], rhs [K, N] by the tiles of the config."""
    K, M = lhsT.shape
    K_, N = rhs.shape
    assert K == K_, "lhsT and rhs must have the same contraction dimension"
    num_m, num_k, num_n = config.num_tiles(M, K, N)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(num_m):
        for n in nl.affine_range(num_n):
            acc = nl.zeros((config.tile_m, config.tile_n), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(num_k):
                lhs_tile = nl.load(lhsT[nl.ds(k * config.tile_k, config.tile_k), nl.ds(m * config.tile_m, config.tile_m)])
                rhs_tile = nl.load(rhs[nl.ds(k * config.tile_k, config.tile_k), nl.ds(n * config.tile_n, config.tile_n)])
                acc += nl.matmul(lhs_tile, rhs_tile, transpose_x=True)
            out_tile = apply_activation(nl.copy(acc), config.activation)
            if config.out_scale is not None:
                out_tile = out_tile * config.out_scale
            nl.store(result[nl.ds(m * config.tile_m, config.tile_m), nl.ds(n * config.tile_n, config.tile_n)],
                     value=nl.copy(out_tile, dtype=result.dtype))
    return result


@nki.jit
def scaled_scores(q, k, shape: AttnShape):
    """q, k [heads, dim, seq]: the scaled scores of all heads."""
    out = nl.ndarray((shape.heads, shape.seq, shape.seq), dtype=q.dtype, buffer=nl.shared_hbm)
    for h in nl.affine_range(shape.heads):
        q_tile = nl.load(q[h, :, :])
        q_tile[...] = nl.multiply(q_tile, shape.scale)
        k_tile = nl.load(k[h, :, :])
        qk = nisa.nc_matmul(stationary=q_tile, moving=k_tile)
        nl.store(out[h, :, :], value=nisa.tensor_copy(qk))
    return out


@nki.jit
def walked_rows(x, tile_rows=48):
    """Tiles whose starts and sizes an object computes."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    walker = TileWalker(rows, tile_rows)
    for i in range(len(walker)):
        n = walker.rows(i)
        start = walker.begin(i)
        tile = nl.load(x[start:start + n, :])
        shifted = nl.subtract(tile, nl.min(tile, axis=1, keepdims=True))
        nl.store(out[start:start + n, :], value=shifted)
    return out


@nki.jit
def masked_walk(x, walker):
    """The same with a mask, and an object as an argument."""
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:walker.size, 0:cols]
    for i in nl.affine_range(len(walker)):
        mask = walker.begin(i) + i_p < walker.total
        tile = nl.load(x[walker.begin(i) + i_p, i_f], mask=mask)
        nl.store(out[walker.begin(i) + i_p, i_f], value=nl.log(nl.abs(tile, mask=mask) + 1.0, mask=mask), mask=mask)
    return out


def cases():
    r = np.random.default_rng(15)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    return [
        (configured_matmul, (f(128, 128), f(128, 96))),
        (configured_matmul, (f(256, 64), f(256, 96)), {"config": MatmulConfig(32, 128, 48, Activation.SILU, 0.5)}),
        (scaled_scores, (f(2, 32, 48), f(2, 32, 48), AttnShape(2, 48, 32))),
        (walked_rows, (f(100, 40),)),
        (masked_walk, (f(100, 40), TileWalker(100, 64))),
    ]
