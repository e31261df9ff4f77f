# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation after idioms of public code, each with arguments: what ``nki-migrate`` has to rewrite."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import par_dim
from neuronxcc.nki.typing import tensor

TILE = nl.tile_size.pmax


@nki.jit
def ceil_tiles(a):
    """Index vectors, a mask on the last tile, and a result in a tile that exists."""
    rows, cols = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ix = nl.arange(128)[:, None]
    iy = nl.arange(cols)[None, :]
    for i in nl.affine_range(math.ceil(rows / 128)):
        # Load what the mask leaves
        tile = nl.load(a[i * 128 + ix, iy], mask=(i * 128 + ix < rows))
        square = nl.square(tile, mask=(i * 128 + ix < rows))
        total = nl.sum(square, axis=[1], mask=(i * 128 + ix < rows))
        mean = total / cols
        # normalize
        root = nl.rsqrt(mean)
        result = nl.multiply(tile, root.broadcast_to((128, cols)), mask=(i * 128 + ix < rows))
        nl.store(out[i * 128 + ix, iy], value=result, mask=(i * 128 + ix < rows))
    return out


@nki.jit
def two_masks(a):
    """Rows and columns are both cut."""
    rows, cols = a.shape
    out = nl.ndarray((rows, cols), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range((rows + 127) // 128):
        for j in nl.affine_range((cols + 511) // 512):
            inside = (i * 128 + i_p < rows) & (j * 512 + i_f < cols)
            tile = nl.load(a[i * 128 + i_p, j * 512 + i_f], mask=inside)
            tile = nl.exp(tile, mask=inside)
            nl.store(out[i * 128 + i_p, j * 512 + i_f], tile, mask=inside)
    return out


@nki.jit
def block_dimensions(a_t, b):
    """Tiles in a tensor with a block dimension, products accumulated in PSUM."""
    k, m = a_t.shape
    _, n = b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((k // TILE, par_dim(TILE), m), dtype=a_t.dtype, buffer=nl.sbuf)
    for s in nl.affine_range(k // TILE):
        kept[s] = nl.load(a_t[s * TILE:(s + 1) * TILE, :])
    i_p, i_f = nl.mgrid[0:TILE, 0:n]
    for i in nl.affine_range(m // TILE):
        acc = nl.zeros((TILE, n), nl.float32, buffer=nl.psum)
        for s in nl.affine_range(k // TILE):
            right = nl.load(b[s * TILE:(s + 1) * TILE, :])
            acc[...] += nisa.nc_matmul(kept[s, i_p, nl.arange(TILE)[None, :] + i * TILE], right)
        result = nisa.tensor_copy(acc, dtype=out.dtype)
        nl.store(out[i * TILE + i_p, i_f], value=result)
    return out


@nki.jit
def two_blocks(a):
    """Two block dimensions, slices and integers in one subscript."""
    rows, cols = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((rows // 128, 2, nl.par_dim(128), cols // 2), dtype=a.dtype, buffer=nl.sbuf)
    half = cols // 2
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(2):
            tiles[i, j, :, :] = nl.load(a[nl.ds(i * 128, 128), nl.ds(j * half, half)])
    for i in nl.affine_range(rows // 128):
        for j in nl.affine_range(2):
            tiles[i, j] = nl.multiply(tiles[i, j], 3.0)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * half, half)], tiles[i, j, :, 0:half])
    return out


@nki.jit
def pooled(image, window=2):
    """A pattern of five dimensions on one of three."""
    c, h, w = image.shape
    out = nl.ndarray((c, h // window, w // window), dtype=image.dtype, buffer=nl.shared_hbm)
    i0, i1, i2, i3, i4 = nl.mgrid[0:c, 0:h // window, 0:window, 0:w // window, 0:window]
    tile: tensor[c, h, w] = nl.load(image)
    result = nl.max(tile[i0, i1 * window + i2, i3 * window + i4], axis=[2, 4])
    nl.store(out, value=result)
    return out


@nki.jit
def swapped(a):
    """Partition and free index exchanged in HBM, strides in SBUF."""
    rows, cols = a.shape
    out = nl.ndarray((cols, rows), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p = nl.arange(cols)[:, None]
    i_f = nl.arange(rows)[None, :]
    tile = nl.load(a[i_f, i_p])
    even = nl.arange(rows // 2)[None, :]
    mixed = nl.ndarray((cols, rows), dtype=a.dtype, buffer=nl.sbuf)
    mixed[i_p, 2 * even] = nl.copy(tile[i_p, 2 * even + 1])
    mixed[i_p, 2 * even + 1] = nl.negative(tile[i_p, 2 * even])
    nl.store(out[i_p, i_f], value=mixed)
    return out


@nki.jit
def operators(a, b, scale):
    """Python's operators on tiles and numbers, from either side, and in place."""
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    z = (x + y) * scale - x / 2.0
    z = 1.0 - z
    z += x
    z *= 0.5
    z = -z + (x > y) * 2
    z -= nl.maximum(x, 0)
    nl.store(out, z)
    return out


@nki.jit
def row_statistics(a):
    """Instructions that return results, used in one another."""
    rows, cols = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        tile = nl.load(a[i * 128:(i + 1) * 128, :])
        stats = nisa.bn_stats(tile)
        moments = nisa.bn_aggr(stats)
        centered = nisa.tensor_scalar(tile, np.subtract, moments[:, 0:1])
        scale = nisa.activation(op=nl.rsqrt, data=moments[:, 1:2], scale=1.0)
        nl.store(out[i * 128:(i + 1) * 128, :], nisa.tensor_scalar(centered, op0=np.multiply, operand0=scale))
    return out


@nki.jit
def triangle(a):
    """A predicate on indices, index numbers as a tile."""
    rows, cols = a.shape
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    i_p = nl.arange(rows)[:, None]
    i_f = nl.arange(cols)[None, :]
    seen = nisa.affine_select(pred=(i_f <= i_p), on_true_tile=nl.load(a), on_false_value=-1.0)
    numbers = nisa.iota(3 + 2 * i_f, dtype=nl.float32)
    both = nl.add(seen, numbers.broadcast_to((rows, cols)))
    nl.store(out, both)
    return out


def helper(tile, gain):
    """A function that a kernel calls: a tile and a row."""
    wide = gain.broadcast_to(tile.shape)
    return nl.multiply(nl.tanh(tile), wide)


def in_place(buffer, value):
    for k in nl.static_range(2):
        buffer[...] = nl.add(buffer, value)


@nki.jit
def with_helpers(a, g):
    """Functions of the file, a closure, a tile carried through a loop."""
    rows, cols = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    gain = nl.load(g)
    carried = nl.zeros((128, cols), dtype=nl.float32, buffer=nl.sbuf)

    def scaled(value, by):
        return nl.multiply(value, by)

    for i in nl.sequential_range(rows // 128):
        tile = nl.load(a[nl.ds(i * 128, 128), :])
        result = helper(tile, gain)
        in_place(carried, result)
        nl.store(out[nl.ds(i * 128, 128), :], scaled(carried, 0.25))
    return out


@nki.trace
def by_reference(a, b, out):
    """The result is a parameter."""
    x = nl.load(a)
    y = nl.load(b)
    nl.store(out, nl.subtract(x, y))


@nki.jit
def updated(a: nt.mutable_tensor, b):
    """A parameter that is updated."""
    nl.store(a, nl.load(a) + nl.load(b))
    return a


@nki.jit
def on_grid(a, b):
    """A program for each tile of a grid of two dimensions."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    row = nl.program_id(0) * 128
    column = nl.program_id(axis=1) * 64
    ix = row + nl.arange(128)[:, None]
    iy = column + nl.arange(64)[None, :]
    nl.store(out[ix, iy], value=nl.load(a[ix, iy]) + nl.load(b[ix, iy]))
    return out


@nki.jit
def heads(x):
    """One axis of programs, their number, and a condition."""
    h, rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    head = nl.program_id(0)
    assert nl.num_programs(0) == h
    tile = nl.load(x[head])
    if head > 0:
        nl.store(out[head, :, :], nl.exp(tile))
    else:
        nl.store(out[head, :, :], tile)
    return out


@nki.jit
def gathered(table, indices):
    """Rows by a tile of indices."""
    count, width = indices.shape[0], table.shape[1]
    out = nl.ndarray((count, width), dtype=table.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(width)[None, :]
    index = nl.load(indices)
    nl.store(out, nl.load(table[index, i_f]))
    return out


@nki.jit
def softmax_of_scores(q_t, k_t):
    """A product, the row's largest as a bias, the row's sum as a by-product, a transpose."""
    d, s = q_t.shape
    out = nl.ndarray((s, s), dtype=nl.float32, buffer=nl.shared_hbm)
    scores = nl.ndarray((s, s), dtype=nl.float32, buffer=nl.psum)
    scores[...] = nisa.nc_matmul(stationary=nl.load(q_t), moving=nl.load(k_t))
    largest = nisa.tensor_reduce(np.max, scores, axis=(1,), negate=True)
    total = nl.ndarray((s, 1), dtype=nl.float32)
    weights = nisa.activation_reduce(op=np.exp, data=scores, bias=largest, reduce_op=np.add, reduce_res=total)
    weights = nl.multiply(weights, nisa.reciprocal(total))
    transposed = nisa.nc_transpose(weights)
    nl.store(out, nl.copy(transposed))
    return out


@nki.jit
def low_precision(a):
    """bfloat16 with numbers: the beta generation computes those in float32."""
    out = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    wide = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.load(a, dtype=nl.bfloat16)
    y = nl.add(x, 1.001)
    nl.store(wide, nl.multiply(y, 1.0009765625))
    nl.store(out, nl.exp(x, dtype=nl.float32))
    return out, wide


def launch_grid(a, b):
    return on_grid[2, 2](a, b)


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    some = floats(200, 96), floats(128, 64), floats(128, 64)
    return [
        (ceil_tiles, (some[0],)), (two_masks, (floats(150, 700),)), (block_dimensions, (floats(256, 256), floats(256, 96))),
        (two_blocks, (floats(256, 64),)), (pooled, (floats(16, 8, 12),)), (swapped, (floats(64, 48),)),
        (operators, (some[1], some[2], 0.3)), (row_statistics, (floats(256, 100),)), (triangle, (floats(64, 80),)),
        (with_helpers, (floats(256, 40), floats(1, 40))), (by_reference, (*some[1:], np.zeros((128, 64), np.float32))),
        (updated, some[1:]), (on_grid[2, 2], (floats(256, 128), floats(256, 128))), (heads[3], (floats(3, 32, 20),)),
        (gathered, (floats(90, 24), rng.integers(0, 90, (64, 1)).astype(np.int32))),
        (softmax_of_scores, (floats(64, 128), floats(64, 128))), (low_precision, (some[1],))]
