# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation that read and write by numbers known at run time, or by index grids of many axes."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc.nki.language import par_dim

BLOCK = 16


@nki.jit
def gather_pages(pages, table):
    """The rows of pages that a table numbers, one page of several rows for each partition."""
    num_pages, page_rows, dim = pages.shape
    n = table.shape[0]
    out = nl.ndarray((n, page_rows * dim), dtype=pages.dtype, buffer=nl.shared_hbm)
    flat = pages.reshape((num_pages, page_rows * dim))
    numbers = nl.load(table)
    i_p, i_f = nl.arange(n)[:, None], nl.arange(page_rows * dim)[None, :]
    rows = nl.ndarray((n, page_rows * dim), dtype=pages.dtype, buffer=nl.sbuf)
    nisa.dma_copy(src=flat[numbers[i_p, 0], i_f], dst=rows[i_p, i_f])
    nl.store(out[i_p, i_f], value=rows)
    return out


@nki.jit
def scatter_rows(values, slots, cache: nt.mutable_tensor):
    """Writes the tokens of a batch to their slots of a cache; a slot outside of the cache is skipped."""
    n, dim = values.shape
    i_p, i_f = nl.arange(n)[:, None], nl.arange(dim)[None, :]
    slot_tile = nl.load(slots)
    tile = nl.load(values[i_p, i_f])
    nisa.dma_copy(dst=cache[slot_tile[i_p, 0], i_f], src=tile, oob_mode=nisa.oob_mode.skip)
    return cache


@nki.jit
def token_of_block(x, starts):
    """A window that begins at a run-time position, without its first and last columns."""
    n, length = x.shape
    out = nl.ndarray((n, BLOCK), dtype=nl.float32, buffer=nl.shared_hbm)
    tile, start = nl.load(x), nl.load(starts)
    i_p, i_f = nl.mgrid[0:n, 0:BLOCK]
    window = nl.zeros((n, BLOCK), dtype=nl.float32)
    window[i_p, i_f] = nisa.tensor_copy_dynamic_src(tile[i_p, start[0, 0] + i_f], mask=(i_f < BLOCK - 2))
    nl.store(out, window)
    return out


@nki.jit
def window_of_zeros(x, starts):
    """A part of each row that begins at a run-time position becomes the mean of the row."""
    n, length = x.shape
    out = nl.ndarray((n, length), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, start = nl.load(x), nl.load(starts)
    means = nl.mean(tile, axis=[1]).broadcast_to((n, BLOCK))
    i_p, i_f = nl.arange(n)[:, None], nl.arange(BLOCK)[None, :]
    nisa.tensor_copy_dynamic_dst(dst=tile[i_p, start[0, 0] + i_f], src=means, mask=(i_p < n - 1))
    nl.store(out, tile)
    return out


@nki.jit
def transposed_to_float32(x):
    """DMA transposes the tile and converts it: as its dtype says, and as the tile that gets it."""
    rows, columns = x.shape
    out = nl.ndarray((2, columns, rows), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out[0], nisa.dma_transpose(x, axes=(1, 0), dtype=nl.float32))
    transposed = nl.ndarray((columns, rows), dtype=nl.float32, buffer=nl.sbuf)
    transposed[...] = nisa.dma_transpose(x)
    nl.store(out[1], nl.multiply(transposed, 2.0))
    return out


@nki.jit
def blocks_of_two_axes(x, w):
    """Tiles in an array of two block dimensions, read in another order than they were written."""
    rows, columns = x.shape
    r, c = rows // 32, columns // BLOCK
    out = nl.ndarray((c, r, 32, BLOCK), dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((r, c, par_dim(32), BLOCK), dtype=x.dtype, buffer=nl.sbuf)
    factors = nl.ndarray((r, par_dim(32), 1), dtype=w.dtype)
    i_p, i_f = nl.mgrid[0:32, 0:BLOCK]
    for i in nl.affine_range(r):
        factors[i, i_p, 0] = nl.load(w[i * 32 + i_p, 0])
        for j in nl.affine_range(c):
            kept[i, j, i_p, i_f] = nl.load(x[i * 32 + i_p, j * BLOCK + i_f])
    for j in nl.affine_range(c):
        for i in nl.affine_range(r):
            scaled = nl.multiply(kept[i, j], factors[i])
            nl.store(out[j, i, i_p, i_f], value=scaled)
    return out


@nki.jit
def pairs_of_heads(x, y):
    """Each head of one tile with each head of the other: index grids of four axes, each with axes of one element."""
    n, heads, dim = x.shape
    out = nl.ndarray((n, heads, heads, dim), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(x), nl.load(y)
    i_p, i_a, i_b, i_d = nl.mgrid[0:n, 0:heads, 0:heads, 0:dim]
    product = nl.ndarray((n, heads, heads, dim), dtype=nl.float32, buffer=nl.sbuf)
    product[i_p, i_a, i_b, i_d] = nl.multiply(left[i_p, i_a, i_d], right[i_p, i_b, i_d])
    nl.store(out[i_p, i_a, i_b, i_d], product)
    return out


@nki.jit
def greatest_of_tiles(x):
    """The greatest and the least element of each row over the tiles of two loops."""
    rows, columns = x.shape
    out = nl.ndarray((2, 32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    most, least = (nl.ndarray((32, 1), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    for i in nl.affine_range(rows // 32):
        for j in nl.affine_range(columns // BLOCK):
            tile = nl.load(x[nl.ds(i * 32, 32), nl.ds(j * BLOCK, BLOCK)])
            most[...] = nl.loop_reduce(nl.max(tile, axis=[1]), op=np.max, loop_indices=[i, j], dtype=x.dtype)
            least[...] = nl.loop_reduce(nl.min(tile, axis=[1]), op=np.min, loop_indices=(i, j))
    nl.store(out[0], most)
    nl.store(out[1], least)
    return out


@nki.jit
def four_pieces(x):
    """A function in four pieces: conditions within conditions."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    low = nl.where(t < -1.0, nl.multiply(t, 0.1), nl.negative(t))
    high = nl.where(nl.greater(t, 1.0), nl.sqrt(nl.maximum(t, 0.25)), t * t)
    result = nl.where(nl.less(t, 0.0), low, nl.where(t == 0.0, 5.0, high))
    nl.store(out, result)
    return out


@nki.jit
def shares_of_rows(x, total: nt.mutable_tensor):
    """A grid of two axes: each program writes its tile, and its sums to a parameter."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    height, width = rows // nl.num_programs(0), columns // nl.num_programs(1)
    i_p, i_f = nl.arange(height)[:, None], nl.arange(width)[None, :]
    tile = nl.load(x[i * height + i_p, j * width + i_f])
    nl.store(out[i * height + i_p, j * width + i_f], value=nl.exp(tile))
    nl.store(total[i * height + i_p, j], value=nl.sum(tile, axis=1, keepdims=True))
    return out, total


def cases():
    rng = np.random.default_rng(3)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    pages = rng.permutation(24)[:20].astype(np.int32).reshape(20, 1)
    slots = np.array([3, 9, 40, 0, 7, 31, 64, 5], np.int32).reshape(8, 1)
    at = np.array([[5]], np.int32)
    return [(gather_pages, (floats(24, 4, 8), pages)), (scatter_rows, (floats(8, 16), slots, floats(40, 16))),
            (token_of_block, (floats(20, 40), at)), (window_of_zeros, (floats(20, 40), at)),
            (transposed_to_float32, (floats(32, 48).astype(nl.bfloat16),)),
            (blocks_of_two_axes, (floats(96, 64), floats(96, 1))), (pairs_of_heads, (floats(16, 3, 8), floats(16, 3, 8))),
            (greatest_of_tiles, (floats(64, 48),)), (four_pieces, (floats(32, 40),)),
            (shares_of_rows[2, 4], (floats(64, 32), np.zeros((64, 4), np.float32)))]
