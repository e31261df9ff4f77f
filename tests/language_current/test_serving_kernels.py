# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of token generation: a cache that two cores share, lists of tokens, blocks of experts that data count."""

from dataclasses import dataclass
from enum import Enum

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .kernel_pieces import cores, kernel_assert, near, psum, sbuf, tiles_of

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3


def numbers_of(*shape, dtype=np.float32, scale=1.0, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def wide(x):
    return np.asarray(x).astype(np.float64)


@dataclass
class PatternView(nl.NKIObject):
    """A view that rests on ``.ap`` alone: dimensions with strides, and an index of the run time for one of them."""

    base: nl.NkiTensor
    shape: tuple = None
    strides: tuple = None
    offset: int = 0
    index: nl.NkiTensor = None
    index_dim: int = 0

    def __post_init__(self):
        if self.shape == None:  # noqa: E711
            self.shape = tuple(self.base.shape)
            self.strides = tuple(int(np.prod(self.shape[k + 1:], dtype=int)) for k in range(len(self.shape)))

    def _changed(self, **parts):
        kept = {"shape": self.shape, "strides": self.strides, "offset": self.offset, "index": self.index,
                "index_dim": self.index_dim}
        return PatternView(self.base, **{**kept, **parts})

    def slice(self, dim, start, end):
        kernel_assert(0 <= start < end <= self.shape[dim], f"slice {start}:{end} of {self.shape[dim]}")
        shape = (*self.shape[:dim], end - start, *self.shape[dim + 1:])
        return self._changed(shape=shape, offset=self.offset + start * self.strides[dim])

    def permute(self, dims):
        return self._changed(shape=tuple(self.shape[d] for d in dims), strides=tuple(self.strides[d] for d in dims))

    def select(self, dim, index):
        rest = {"shape": self.shape[:dim] + self.shape[dim + 1:], "strides": self.strides[:dim] + self.strides[dim + 1:]}
        if isinstance(index, int):
            return self._changed(**rest, offset=self.offset + index * self.strides[dim])
        return self._changed(**rest, index=index, index_dim=dim)

    def view(self):
        pattern = [[step, count] for step, count in zip(self.strides, self.shape)]
        if self.index != None:  # noqa: E711
            return self.base.ap(pattern=pattern, offset=self.offset, scalar_offset=self.index,
                                indirect_dim=self.index_dim)
        return self.base.ap(pattern=pattern, offset=self.offset)


# -- attention of a token: each core has a part of the sequence ----------------------------------------------------------
@nki.jit
def attention_of_shards(q, keys, values, mask, scale=1.0):
    """q (B, H, D), keys (B, D, S), values (B, S, D), mask (B, S); cores exchange maxima, then sums and values."""
    batch, heads, width = q.shape
    extent = values.shape[1]
    count, core = cores()
    share = -(-extent // (32 * count)) * 32 if count > 1 else extent
    start, end = core * share, min(extent, core * share + share)
    other, columns = 1 - core, end - start
    out = nl.ndarray((batch, heads, width), q.dtype, buffer=nl.shared_hbm)
    for b in range(batch):
        queries = sbuf((width, heads), q.dtype)
        nisa.dma_copy(dst=queries, src=PatternView(q).select(0, b).permute((1, 0)).view())
        nisa.activation(dst=queries, op=nl.copy, data=queries, scale=scale)
        shard = sbuf((width, columns), keys.dtype)
        nisa.dma_copy(dst=shard, src=PatternView(keys).select(0, b).slice(1, start, end).view())
        scores, visible = sbuf((heads, columns)), sbuf((heads, columns), nl.uint8)
        nisa.memset(scores, value=-30000.0)
        nisa.dma_copy(dst=visible, src=mask.ap([[0, heads], [1, columns]], offset=b * extent + start))
        for part in tiles_of(columns, nl.tile_size.gemm_moving_fmax):
            products = psum((heads, part.size))
            nisa.nc_matmul(products, queries, shard[:, part.rows])
            nisa.tensor_copy_predicated(dst=scores[:, part.rows], src=products, predicate=visible[:, part.rows])
        least, both = sbuf((heads, 1)), sbuf((heads, width + 1))
        nisa.tensor_reduce(dst=least, op=nl.maximum, data=scores, axis=1, negate=True)
        if count > 1:
            theirs = sbuf((heads, 1))
            nisa.sendrecv(src=least, dst=theirs, send_to_rank=other, recv_from_rank=other, pipe_id=0)
            nisa.tensor_tensor(dst=least, data1=least, data2=theirs, op=nl.minimum)
        weights = sbuf((heads, columns), q.dtype)
        nisa.activation_reduce(dst=weights, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=both[:, width:],
                               bias=least)
        total = psum((heads, width))
        for part in tiles_of(columns, 128):
            turned = psum((part.size, heads), q.dtype)
            nisa.nc_transpose(dst=turned, data=weights[:, nl.ds(part.start, part.size)])
            rows = sbuf((part.size, width), values.dtype)
            nisa.dma_copy(dst=rows, src=values[b, nl.ds(start + part.start, part.size), :])
            nisa.nc_matmul(dst=total, stationary=nl.copy(turned), moving=rows)
        nisa.tensor_copy(dst=both[:, 0:width], src=total)
        if count > 1:
            theirs = sbuf((heads, width + 1))
            nisa.sendrecv(src=both, dst=theirs, send_to_rank=other, recv_from_rank=other, pipe_id=1,
                          dma_engine=nisa.dma_engine.gpsimd_dma)
            nisa.tensor_tensor(dst=both, data1=both, data2=theirs, op=nl.add)
        nisa.reciprocal(dst=both[:, width:], data=both[:, width:])
        result = sbuf((heads, width), q.dtype)
        nisa.tensor_scalar(dst=result, data=both[:, 0:width], op0=nl.multiply, operand0=both[:, width:width + 1])
        if core == 0:
            nisa.dma_copy(dst=out[b], src=result)
    return out


@pytest.mark.parametrize("batch, heads, width, extent, dtype, launch, bound", [
    (2, 8, 64, 200, np.float32, 1, 1e-5), (2, 5, 32, 700, np.float32, 2, 1e-5),
    (1, 1, 128, 96, BF16, 2, 2e-2)])                # weights and outputs are rounded to 8 bits
def test_attention_of_shards(on, batch, heads, width, extent, dtype, launch, bound):
    q, keys = numbers_of(batch, heads, width, dtype=dtype), numbers_of(batch, width, extent, dtype=dtype, seed=1)
    values = numbers_of(batch, extent, width, dtype=dtype, seed=2)
    mask = (np.arange(extent)[None] < np.array([[extent - 7], [extent // 2 + 1]])[:batch]).astype(np.uint8)
    got = attention_of_shards[launch].on(on)(q, keys, values, mask, scale=0.125)
    scores = np.where(mask[:, None] != 0, np.einsum("bhd,bds->bhs", wide(q) * 0.125, wide(keys)), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhs,bsd->bhd", weights / weights.sum(-1, keepdims=True), wide(values))
    near([got], [expected.astype(dtype)], bound)


# -- lists of tokens -----------------------------------------------------------------------------------------------------
@nki.jit
def flattened_positions(mask, room=512, padding=-1):
    """Positions of the ones of each row, row after row, with how many each has and where it starts."""
    rows, width = mask.shape
    kernel_assert(rows <= 8, f"{rows} rows, of which 8 have a group of partitions")
    flat = nl.ndarray((1, room), nl.int32, buffer=nl.shared_hbm)
    starts = nl.ndarray((1, rows + 1), nl.int32, buffer=nl.shared_hbm)
    source, places = sbuf((128, width), nl.int32), sbuf((128, width + 1), nl.int32)
    nisa.memset(source, value=0)
    nisa.memset(places, value=0)
    for row in range(rows):
        nisa.dma_copy(dst=source[16 * row:16 * row + 1, :], src=mask[row:row + 1, :])
    nisa.nonzero_with_count(dst=places, src=source, index_offset=0, padding_val=padding)
    counts, ones = sbuf((1, rows)), sbuf((1, rows))
    nisa.memset(ones, 1.0)
    for row in range(rows):
        nisa.dma_copy(dst=counts[0:1, row:row + 1], src=places[16 * row:16 * row + 1, width:width + 1])
    sums, first = sbuf((1, rows)), sbuf((1, rows + 1), nl.int32)
    nisa.tensor_tensor_scan(dst=sums, data0=ones, data1=counts, initial=0.0, op0=nl.multiply, op1=nl.add)
    nisa.memset(first, value=0)
    nisa.tensor_copy(dst=first[:, 1:], src=sums)
    nisa.dma_copy(dst=starts, src=first)
    empty = nl.full((1, room), padding, nl.int32)
    nisa.dma_copy(dst=flat, src=empty)
    for row in range(rows):
        at = nisa.register_alloc(None)
        nisa.register_load(at, first[0:1, row:row + 1])
        nisa.dma_copy(dst=flat.ap([[1, 1], [1, width]], scalar_offset=at, indirect_dim=1),
                      src=places[16 * row:16 * row + 1, 0:width])
    return flat, starts


@pytest.mark.parametrize("rows, width", [(4, 37), (8, 60), (1, 1)])
def test_flattened_positions(on, rows, width):
    mask = (np.random.default_rng(rows).random((rows, width)) < 0.3).astype(np.int32)
    flat, starts = np.full((1, 512), -1, np.int32), np.zeros((1, rows + 1), np.int32)
    starts[0, 1:] = mask.sum(1).cumsum()
    flat[0, :starts[0, -1]] = np.nonzero(mask)[1]
    for got, expected in zip(flattened_positions.on(on)(mask), (flat, starts), strict=True):
        np.testing.assert_array_equal(got, expected)


# -- experts over blocks of tokens, of which data say how many there are -------------------------------------------------
@nki.jit
def experts_of_counted_blocks(hidden, gate_up, down, positions, experts, used, block=32):
    """Cores take blocks in turn in a loop of the run time, each sums in its part, and both parts are added."""
    tokens, width = hidden.shape
    inner = gate_up.shape[2] // 2
    count, core = cores()
    parts = [nl.ndarray((tokens, width), nl.float32, buffer=nl.shared_hbm, name=f"part_{c}") for c in range(count)]
    out = nl.ndarray((tokens, width), nl.float32, buffer=nl.shared_hbm, name="out")
    zeros = nl.zeros((128, width), nl.float32)
    for tile in tiles_of(tokens, 128):
        nisa.dma_copy(parts[core][tile.rows], zeros[:tile.size])
    turns, number = nl.load(used), nl.full((1, 1), core, nl.int32)
    nisa.tensor_scalar(turns, turns, nl.add, count - 1 - core)
    if count == 2:
        nisa.tensor_scalar(turns, turns, nl.right_shift, 1)
    limit = nisa.register_alloc()
    nisa.register_load(limit, turns)

    def body(turn):
        current, expert = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(current, number)
        nisa.tensor_scalar(number, number, nl.add, count)
        rows, chosen = sbuf((block, 1), nl.int32), sbuf((1, 1), nl.int32)
        nisa.dma_copy(rows, positions.ap([[1, block], [1, 1]], scalar_offset=current, indirect_dim=0))
        nisa.dma_copy(chosen, PatternView(experts).select(0, current).view())
        nisa.register_load(expert, chosen)
        x, sums = sbuf((block, width), hidden.dtype), sbuf((block, width))
        nisa.memset(x, 0.0)
        nisa.memset(sums, 0.0)
        nisa.dma_copy(x, hidden.ap([[width, block], [1, width]], vector_offset=rows), oob_mode=nisa.oob_mode.skip)
        weights, last = sbuf((width, 2, inner), gate_up.dtype), sbuf((inner, width), down.dtype)
        nisa.dma_copy(weights, gate_up.ap([[2 * inner, width], [inner, 2], [1, inner]], scalar_offset=expert))
        nisa.dma_copy(last, down.select(0, expert))
        turned, gate, up = psum((width, block), x.dtype), psum((inner, block)), psum((inner, block))
        nisa.nc_transpose(turned, x)
        columns = nl.copy(turned)
        nisa.nc_matmul(gate, weights[:, 0], columns)
        nisa.nc_matmul(up, weights[:, 1], columns)
        activated, products = sbuf((inner, block)), sbuf((inner, block), hidden.dtype)
        nisa.activation(activated, nl.silu, gate)
        nisa.tensor_tensor(products, activated, up, nl.multiply)
        result = psum((block, width))
        nisa.nc_matmul(result, products, last)
        there = parts[core].ap([[width, block], [1, width]], vector_offset=rows)
        nisa.dma_copy(sums, there, oob_mode=nisa.oob_mode.skip)
        nisa.tensor_tensor(sums, sums, result, nl.add)
        nisa.dma_copy(there, sums, oob_mode=nisa.oob_mode.skip)
    nl.fori_loop(0, limit, body)
    if count > 1:
        for part in parts:
            nisa.core_barrier(part, (0, 1))
    share = -(-tokens // count)
    for tile in tiles_of(min(tokens, core * share + share) - core * share, 128):
        rows = slice(core * share + tile.start, core * share + tile.end)
        total = nl.load(parts[0][rows])
        if count > 1:
            nisa.tensor_tensor(total, total, nl.load(parts[1][rows]), nl.add)
        nisa.dma_copy(out[rows], total)
    return out


@pytest.mark.parametrize("tokens, width, inner, used, launch, dtype, bound", [
    (70, 64, 48, 5, 1, np.float32, 1e-5), (70, 64, 48, 5, 2, np.float32, 1e-5), (9, 128, 128, 0, 2, np.float32, 0),
    (9, 128, 128, 1, 2, BF16, 2e-2)])               # products of the activation are rounded to 8 bits
def test_experts_of_counted_blocks(on, tokens, width, inner, used, launch, dtype, bound):
    random = np.random.default_rng(tokens)
    positions, experts = np.full((6, 32), -1, np.int32), random.integers(0, 3, (6, 1)).astype(np.int32)
    for k, row in enumerate(positions):
        row[:min(tokens, 3 + 5 * k)] = random.permutation(tokens)[:min(tokens, 3 + 5 * k)]
    hidden = numbers_of(tokens, width, dtype=dtype)
    gate_up = numbers_of(3, width, 2 * inner, dtype=dtype, scale=0.1, seed=1)
    down = numbers_of(3, inner, width, dtype=dtype, scale=0.1, seed=2)
    got = experts_of_counted_blocks[launch].on(on)(hidden, gate_up, down, positions, experts,
                                                   np.array([[used]], np.int32))
    expected = np.zeros((tokens, width))
    for row, (expert,) in list(zip(positions, experts))[:used]:
        tokens_there = row[row >= 0]
        products = wide(hidden[tokens_there]) @ wide(gate_up[expert])
        gate, up = products[:, :inner], products[:, inner:]
        expected[tokens_there] += (gate / (1 + np.exp(-gate)) * up) @ wide(down[expert])
    near([got], [expected.astype(np.float32)], bound)


# -- normalized rows in 8 bits to slots of a cache -----------------------------------------------------------------------
class Quantization(Enum):
    NONE = 0
    ROW = 1
    STATIC = 2


@nki.jit
def normalized_to_slots(x, gamma, cache, scales, slots, quantization, static=1.0, largest=240.0):
    """Rows over their root mean square, in units of their largest number or of a constant; slots outside are left."""
    rows, width = x.shape
    for tile in tiles_of(rows, 128):
        values, squares, scale = sbuf((tile.size, width), x.dtype), sbuf((tile.size, width)), sbuf((tile.size, 1))
        nisa.dma_copy(dst=values, src=x[nl.ds(tile.start, tile.size), :])
        norm, factors = sbuf((tile.size, 1)), sbuf((tile.size, width))
        nisa.activation_reduce(dst=squares, op=nl.square, data=values, reduce_op=nl.add, reduce_res=norm)
        nisa.tensor_scalar(dst=norm, data=norm, op0=nl.multiply, operand0=1.0 / width, op1=nl.add, operand1=1e-6)
        nisa.tensor_scalar(dst=norm, data=norm, op0=nl.rsqrt, operand0=0.0, engine=nisa.gpsimd_engine)
        nisa.dma_copy(dst=factors, src=gamma.ap(pattern=[[0, tile.size], [1, width]]))
        scaled = sbuf((tile.size, width))
        nisa.scalar_tensor_tensor(dst=scaled, data=values, op0=nl.multiply, operand0=norm, op1=nl.multiply,
                                  operand1=factors)
        nisa.memset(scale, value=static if quantization == Quantization.STATIC else 1.0)
        if quantization == Quantization.ROW:
            greatest = sbuf((tile.size, 1))
            nisa.tensor_scalar_reduce(dst=squares, data=scaled, op0=nl.abs, operand0=0.0, reduce_op=nl.maximum,
                                      reduce_res=greatest)
            nisa.tensor_scalar(scale, greatest, op0=nl.maximum, operand0=1e-6, op1=nl.multiply, operand1=1.0 / largest)
        inverse, bits = sbuf((tile.size, 1)), sbuf((tile.size, width), cache.dtype)
        nisa.reciprocal(inverse, scale)
        nisa.tensor_scalar(scaled, scaled, nl.multiply, inverse)
        nisa.tensor_scalar(bits, scaled, op0=nl.minimum, operand0=largest, op1=nl.maximum, operand1=-largest)
        at = sbuf((tile.size, 1), nl.int32)
        nisa.dma_copy(dst=at, src=slots[tile.rows, :])
        nisa.dma_copy(dst=cache.ap(pattern=[[width, tile.size], [1, width]], vector_offset=at, indirect_dim=0),
                      src=bits, oob_mode=nisa.oob_mode.skip, dge_mode=nisa.dge_mode.swdge)
        nisa.dma_copy(dst=scales.ap(pattern=[[1, tile.size], [1, 1]], vector_offset=at, indirect_dim=0), src=scale,
                      oob_mode=nisa.oob_mode.skip)
    return cache, scales


@pytest.mark.parametrize("rows, width, quantization, dtype", [
    (130, 96, Quantization.ROW, np.float32), (1, 64, Quantization.STATIC, BF16), (40, 33, Quantization.NONE, np.float16)])
def test_normalized_to_slots(on, rows, width, quantization, dtype):
    x, gamma = numbers_of(rows, width, dtype=dtype), numbers_of(1, width, dtype=dtype, seed=1)
    slots = np.random.default_rng(0).permutation(200)[:rows].astype(np.int32)
    cache, scales = np.zeros((150, width), FP8), np.zeros((150, 1), np.float32)
    got, units = normalized_to_slots.on(on)(x, gamma, cache.copy(), scales.copy(), slots[:, None], quantization,
                                            static=0.05)
    exact = wide(x) / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 1e-6) * wide(gamma)
    expected, inside = np.zeros((150, width)), slots < 150
    expected[slots[inside]] = exact[inside]
    written = np.zeros(150, bool)
    written[slots[inside]] = True
    np.testing.assert_array_equal(units[~written], 0)
    unit = {Quantization.ROW: np.abs(expected[written]).max(1) / 240, Quantization.STATIC: 0.05, Quantization.NONE: 1.0}
    np.testing.assert_allclose(units[written, 0], np.broadcast_to(unit[quantization], written.sum()), rtol=1e-6)
    decoded = wide(got) * units
    limit = 240 * units
    # A number has 3 bits behind its first one; below 2^-6 units the step is 2^-9 units.
    error = np.abs(decoded - np.clip(expected, -limit, limit))
    assert (error <= np.maximum(np.abs(expected) / 16, units / 1024) * 1.001).all()
