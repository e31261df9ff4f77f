# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index grids, masks, operators and functions of tiles, as kernels of the beta generation write them."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

PMAX = nl.tile_size.pmax


@nki.jit
def members_of_a_grid(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    grid = nl.mgrid[0:64, 0:48]
    tile = nl.load(x[grid.p, grid.x])
    nl.store(out[grid.p, grid.x], value=nl.abs(tile))
    return out


@nki.jit
def members_of_three(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    grid = nl.mgrid[0:16, 0:4, 0:6]
    tile = nl.load(x[grid.p, grid.x, grid.y])
    nl.store(out[grid.p, grid.x, grid.y], tile * 3.0)
    return out


@nki.jit
def shifted_columns(x):
    n = x.shape[1] - 2
    out = nl.ndarray((64, n), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(64)[:, None], nl.arange(n)[None, :]
    tile = nl.load(x)
    nl.store(out[p, f], (tile[p, f] + tile[p, f + 1] + tile[p, f + 2]) / 3)
    return out


@nki.jit
def every_second(x):
    out = nl.ndarray((64, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(64)[:, None], nl.arange(24)[None, :]
    tile = nl.load(x)
    nl.store(out[p, f], nl.maximum(tile[p, 2 * f], tile[p, 2 * f + 1]))
    return out


@nki.jit
def interleaved(x):
    out = nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:64, 0:24]
    tile = nl.load(x)
    mixed = nl.ndarray((64, 48), dtype=x.dtype)
    mixed[p, 2 * f] = nl.copy(tile[p, f])
    mixed[p, 2 * f + 1] = nl.negative(tile[p, f + 24])
    nl.store(out, mixed)
    return out


@nki.jit
def tail_of_columns(x):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(64)[:, None], nl.arange(20)[None, :]
    for j in nl.affine_range((cols + 19) // 20):
        tile = nl.load(x[p, j * 20 + f], mask=(j * 20 + f < cols))
        nl.store(out[p, j * 20 + f], nl.exp(tile, mask=(j * 20 + f < cols)), mask=(j * 20 + f < cols))
    return out


@nki.jit
def tail_of_both(x):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:48, 0:32]
    for i in nl.affine_range(math.ceil(rows / 48)):
        for j in nl.affine_range(math.ceil(cols / 32)):
            inside = (i * 48 + p < rows) & (j * 32 + f < cols)
            tile = nl.load(x[i * 48 + p, j * 32 + f], mask=inside)
            nl.store(out[i * 48 + p, j * 32 + f], value=nl.tanh(tile, mask=inside), mask=inside)
    return out


@nki.jit
def first_elements(x):
    out = nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:64, 0:48]
    tile = nl.zeros((64, 48), dtype=x.dtype)
    tile[p, f] = nl.load(x[p, f], mask=f < 10)
    nl.store(out[p, f], tile[p, f])
    return out


@nki.jit
def greater_rows(x):
    out = nl.ndarray((64, 48), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:64, 0:48]
    tile = nl.full((64, 48), 2.0, dtype=x.dtype)
    tile[p, f] = nl.load(x[p, f], mask=p >= 32)
    nl.store(out, tile)
    return out


@nki.jit
def compared(x, y):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    larger = nl.greater(a, b, dtype=nl.float32)
    nl.store(out, nl.add(nl.multiply(larger, a), nl.multiply(nl.subtract(1.0, larger), b)))
    return out


@nki.jit
def chained_operators(x, y):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    nl.store(out, -(a * b - 2.0) + (1.0 - a) * 0.5 + b / 4.0)
    return out


@nki.jit
def augmented(x, y):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.load(x)
    total += nl.load(y)
    total *= 2.0
    total -= 1.0
    nl.store(out, total)
    return out


@nki.jit
def row_softmax(x):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    top = nl.max(tile, axis=1, keepdims=True)
    powers = nl.exp(tile - top)
    nl.store(out, powers / nl.sum(powers, axis=[1], keepdims=True))
    return out


@nki.jit
def row_variance(x):
    out = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    mean = nl.mean(tile, axis=1, keepdims=True)
    centered = nl.subtract(tile, mean)
    nl.store(out, nl.sum(nl.square(centered), axis=1, keepdims=True) * (1.0 / 48))
    return out


@nki.jit
def masked_sum(x):
    out = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:64, 0:48]
    tile = nl.load(x)
    nl.store(out, nl.sum(tile[p, f], axis=1, mask=f < 30, keepdims=True))
    return out


@nki.jit
def chosen_by_predicate(x, y):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    nl.store(out, nl.where(nl.less(a, b), a, b))
    return out


@nki.jit
def clipped(x):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.minimum(nl.maximum(tile, -0.5), 0.5))
    return out


@nki.jit
def rounded_types(x):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    low = nl.copy(tile, dtype=nl.bfloat16)
    nl.store(out, nl.multiply(low, low, dtype=nl.float32))
    return out


@nki.jit
def counted_columns(x):
    out = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    numbers = nisa.iota(nl.arange(48)[None, :], dtype=nl.int32)
    counted = nl.copy(numbers.broadcast_to((64, 48)), dtype=nl.float32)
    nl.store(out, nl.add(nl.load(x), counted))
    return out


@nki.jit
def affine_triangle(x):
    out = nl.ndarray((48, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:48, 0:48]
    tile = nl.load(x[0:48, 0:48])
    nl.store(out, nisa.affine_select(pred=(p >= f), on_true_tile=tile[p, f], on_false_value=-9.0, dtype=nl.float32))
    return out


@nki.jit
def static_pieces(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sizes = [10, 20, 18]
    start = 0
    for k in nl.static_range(len(sizes)):
        n = sizes[k]
        nl.store(out[:, start:start + n], nl.load(x[:, start:start + n]) * float(k + 1))
        start = start + n
    return out


@nki.jit
def conditional_loop(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(2):
        tile = nl.load(x[nl.ds(i * 32, 32), :])
        if i == 0:
            tile = nl.exp(tile)
        else:
            tile = nl.square(tile)
        nl.store(out[nl.ds(i * 32, 32), :], tile)
    return out


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    x, y = floats(64, 48), floats(64, 48)
    one = [members_of_a_grid, shifted_columns, every_second, interleaved, tail_of_columns, first_elements, greater_rows,
           row_softmax, row_variance, masked_sum, clipped, rounded_types, counted_columns, affine_triangle,
           static_pieces, conditional_loop]
    return [*((kernel, (x,)) for kernel in one), (members_of_three, (floats(16, 4, 6),)),
            (tail_of_both, (floats(100, 75),)), (compared, (x, y)), (chained_operators, (x, y)), (augmented, (x, y)),
            (chosen_by_predicate, (x, y))]
