# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Grids, helpers, closures, default arguments and the code around kernels, as the beta generation has them."""

from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

WIDTH = 32


@nki.jit
def grid_of_one(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    p, f = nl.arange(32)[:, None], nl.arange(WIDTH)[None, :]
    nl.store(out[i * 32 + p, f], value=nl.load(x[i * 32 + p, f]) + nl.load(y[i * 32 + p, f]))
    return out


@nki.jit
def grid_of_two(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(axis=0), nl.program_id(axis=1)
    rows, cols = nl.ds(i * 64, 64), nl.ds(j * 16, 16)
    nl.store(out[rows, cols], nl.multiply(nl.load(x[rows, cols]), nl.load(y[rows, cols])))
    return out


@nki.jit
def heads_of_a_batch(q):
    batch, heads, rows, cols = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    b, h = nl.program_id(0), nl.program_id(1)
    tile = nl.load(q[b, h])
    nl.store(out[b, h], tile / nl.max(tile, axis=1, keepdims=True))
    return out


def scaled(tile, gain=2.0):
    return nl.multiply(tile, gain)


def normalized(tile, width):
    """Divided by the root of the mean of the squares."""
    mean = nl.sum(nl.square(tile), axis=1, keepdims=True) / width
    return nl.multiply(tile, nl.rsqrt(mean + 1e-5))


def load_rows(x, i, n=32):
    return nl.load(x[nl.ds(i * n, n), :])


def store_rows(out, i, tile, n=32):
    nl.store(out[nl.ds(i * n, n), :], value=tile)


@nki.jit
def by_helpers(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 32):
        store_rows(out, i, normalized(scaled(load_rows(x, i)), x.shape[1]))
    return out


@nki.jit
def by_a_closure(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def piece(i):
        return nl.load(x[nl.ds(i * 32, 32), :])
    for i in nl.affine_range(4):
        nl.store(out[nl.ds(i * 32, 32), :], piece(i) + 1.0)
    return out


@nki.jit
def default_arguments(x, gain=0.5, op=np.add, repeat=2):
    out = nl.ndarray((32, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:32])
    for _ in range(repeat):
        tile = nisa.tensor_scalar(tile, op, gain)
    nl.store(out, tile)
    return out


@nki.jit
def optional_operand(x, bias=None):
    out = nl.ndarray((32, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:32])
    if bias is not None:
        tile = nl.add(tile, nl.load(bias[0:32]))
    nl.store(out, tile)
    return out


@nki.jit
def checked_shapes(x):
    rows, cols = x.shape
    assert rows % 32 == 0, f"{rows} rows are not a multiple of 32"
    out = nl.ndarray((rows // 32, 32, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 32):
        nl.store(out[i], nl.sigmoid(nl.load(x[i * 32:(i + 1) * 32, 0:cols])))
    return out


@nki.jit
def several_results(x):
    low = nl.ndarray((32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    high = nl.ndarray((32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:32])
    nl.store(low, nl.min(tile, axis=1, keepdims=True))
    nl.store(high, nl.max(tile, axis=1, keepdims=True))
    return low, high


@nki.jit
def tiles_in_a_list(x):
    out = nl.ndarray((32, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for i in nl.static_range(4):
        tiles.append(nl.load(x[i * 32:(i + 1) * 32, :]))
    total = tiles[0]
    for tile in tiles[1:]:
        total = nl.add(total, tile)
    nl.store(out, total)
    return out


@nki.jit
def tiles_by_comprehension(x):
    out = nl.ndarray((32, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.load(x[i * 32:(i + 1) * 32, :]) for i in range(4)]
    nl.store(out, nl.maximum(nl.maximum(tiles[0], tiles[1]), nl.maximum(tiles[2], tiles[3])))
    return out


@dataclass(frozen=True)
class Config:
    """What a kernel is made for."""

    rows: int = 64
    gain: float = 3.0


@nki.jit
def configured(x, config=Config()):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // config.rows):
        rows = nl.load(x[nl.ds(i * config.rows, config.rows), :])
        nl.store(out[nl.ds(i * config.rows, config.rows), :], rows * config.gain)
    return out


@nki.jit
def annotated(x, scale: float = 1.5):
    """Annotations and a conditional expression."""
    out: nl.ndarray = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    function = nl.exp if scale > 1 else nl.log
    tile = nl.load(x)
    nl.store(out, function(tile * scale))
    return out


@nki.jit
def blocked(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows_of_block = 2
    for block in nl.affine_range(x.shape[0] // (32 * rows_of_block)):
        for inner in nl.affine_range(rows_of_block):
            start = (block * rows_of_block + inner) * 32
            nl.store(out[nl.ds(start, 32), :], nl.relu(nl.load(x[nl.ds(start, 32), :])))
    return out


@nki.baremetal
def on_metal(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.sqrt(nl.abs(nl.load(x))))
    return out


@nki.benchmark(warmup=2, iters=3)
def measured(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.cos(nl.load(x)))
    return out


def simulated(x):
    return nki.simulate_kernel(by_helpers, x)


def simulated_grid(x, y):
    return nki.simulate_kernel(grid_of_one[4], x, y)


def called(x, y):
    return grid_of_two[2, 2](x, y)


class Call:
    """A case that is a function of the host, whatever executor."""

    def __init__(self, function):
        self.function, self.__name__ = function, function.__name__

    def run(self, arguments, keywords, on):
        return self.function(*arguments, **keywords)


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    x, y = floats(128, WIDTH), floats(128, WIDTH)
    one = [by_helpers, by_a_closure, default_arguments, optional_operand, checked_shapes, several_results,
           tiles_in_a_list, tiles_by_comprehension, configured, annotated, blocked]
    return [*((kernel, (x,)) for kernel in one), (optional_operand, (x, y)), (grid_of_one[4], (x, y)),
            (grid_of_two[2, 2], (x, y)), (heads_of_a_batch[2, 3], (floats(2, 3, 32, 16),)), (Call(simulated), (x,)),
            (Call(simulated_grid), (x, y)), (Call(called), (x, y)), (Call(on_metal), (x,)), (Call(measured), (x,))]
