# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers as libraries have them: projections at addresses of a stack, routers, experts, convolutions, cache writes."""

from enum import Enum

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .kernel_pieces import SbufStack, cores, kernel_assert, near, psum, sbuf, tiles_of, transposed

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3


class Norm(Enum):
    NONE = 0
    RMS = 1


def numbers_of(*shape, dtype=np.float32, scale=1.0, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


# -- projection of normalized rows, all tiles at addresses -------------------------------------------------------------
def normalized(rows, count, width, epsilon, stack):
    square = stack.allocate((128, width), nl.float32, "square")
    statistic = stack.allocate((128, 1), nl.float32, "statistic")
    nisa.activation(dst=square[:count], op=nl.square, data=rows[:count], reduce_op=nl.add, reduce_res=statistic[:count],
                    reduce_cmd=nisa.reduce_cmd.reset_reduce)
    nisa.activation(dst=statistic[:count], op=nl.rsqrt, data=statistic[:count], scale=1.0 / width, bias=epsilon)
    nisa.activation(dst=rows[:count], op=nl.copy, data=rows[:count], scale=statistic[:count])


@nki.jit
def projection(hidden, weights, norm=Norm.NONE, gamma=None, bias=None, epsilon=1e-6, automatic=False):
    """(batch, rows, width) times (width, columns); the weights take gamma, and stay in SBUF."""
    batch, count, width = hidden.shape
    columns = weights.shape[1]
    stack = SbufStack(nl.tile_size.total_available_sbuf_size - 16384, automatic)
    out = nl.ndarray((batch, count, columns), hidden.dtype, buffer=nl.shared_hbm)
    flat_out, flat = out.reshape((batch * count, columns)), hidden.reshape((batch * count, width))
    identity, blocks = nl.shared_identity_matrix(128, dtype=hidden.dtype), []
    for part in tiles_of(width, 128):
        block = stack.allocate((part.size, columns), weights.dtype, "weights")
        nisa.dma_copy(dst=block, src=weights[part.rows, :], dge_mode=nisa.dge_mode.none)
        if gamma is not None:
            factor = stack.allocate((128, 1), nl.float32, "gamma")
            nisa.dma_copy(dst=factor[:part.size], src=gamma.ap([[1, part.size], [1, 1]], offset=part.start))
            nisa.tensor_scalar(dst=block, data=block, op0=nl.multiply, operand0=factor[:part.size, 0:1])
        blocks.append(block)
    if bias is not None:
        row = stack.allocate((128, columns), bias.dtype, "bias")
        nisa.dma_copy(dst=row[0:1], src=bias)
        for quadrant in tiles_of(128, 32):
            nisa.nc_stream_shuffle(src=row[0:1, :], dst=row[quadrant.rows, :], shuffle_mask=[0] * 32)
    for tile in tiles_of(batch * count, 128):
        stack.open_scope()
        rows = stack.allocate((128, width), hidden.dtype, "rows")
        nisa.dma_copy(dst=rows[0:tile.size, :], src=flat[nl.ds(tile.start, tile.size), :])
        if norm == Norm.RMS:
            normalized(rows, tile.size, width, epsilon, stack)
        turned = []
        for part in tiles_of(width, 128):
            product = psum((part.size, tile.size), hidden.dtype)
            nisa.nc_matmul(product, stationary=rows[:tile.size, nl.ds(part.start, part.size)],
                           moving=identity[:tile.size, :tile.size], is_transpose=True)
            turned.append(stack.allocate((part.size, tile.size), hidden.dtype, "turned"))
            nisa.tensor_copy(dst=turned[-1], src=product,
                             engine=nisa.scalar_engine if part.index % 2 else nisa.vector_engine)
        result = stack.allocate((128, columns), hidden.dtype, "result")
        for part in tiles_of(columns, 512):
            total = psum((tile.size, part.size))
            for block, stationary in zip(blocks, turned):
                nisa.nc_matmul(dst=total, stationary=stationary, moving=block[:, part.rows])
            if bias is not None:
                nisa.tensor_tensor(dst=result[:tile.size, part.rows], data1=total, data2=row[:tile.size, part.rows],
                                   op=nl.add)
            else:
                nisa.tensor_copy(dst=result[:tile.size, part.rows], src=total)
        nisa.dma_copy(dst=flat_out[nl.ds(tile.start, tile.size)], src=result[:tile.size])
        stack.close_scope()
    return out


@pytest.mark.parametrize("shape, columns, dtype, norm, automatic, bound", [
    ((2, 70, 200), 96, np.float32, Norm.RMS, False, 1e-4), ((1, 1, 256), 640, BF16, Norm.RMS, False, 2e-2),
    ((1, 130, 64), 128, np.float32, Norm.NONE, True, 1e-4)], ids=["batch", "one row", "automatic"])
@pytest.mark.parametrize("has_vectors", [False, True])
def test_projection_at_addresses_of_a_stack(on, shape, columns, dtype, norm, automatic, bound, has_vectors):
    hidden, weights = numbers_of(*shape, dtype=dtype), numbers_of(shape[2], columns, dtype=dtype, scale=0.1, seed=1)
    gamma = numbers_of(1, shape[2], seed=2) if has_vectors else None
    bias = numbers_of(1, columns, dtype=dtype, seed=3) if has_vectors else None
    rows = hidden.astype(float)
    if norm == Norm.RMS:
        rows = rows / np.sqrt((rows ** 2).mean(-1, keepdims=True) + 1e-6)
    expected = rows * (gamma if has_vectors else 1) @ weights.astype(float) + (bias.astype(float) if has_vectors else 0)
    got = projection.on(on)(hidden, weights, norm=norm, gamma=gamma, bias=bias, automatic=automatic)
    near([got], [expected.astype(dtype)], bound)


# -- experts -----------------------------------------------------------------------------------------------------------
@nki.jit
def experts_by_blocks(hidden, affinities, gate_up, down, positions, experts, size):
    """The rows of each block (positions of tokens, the last row of zeros for none) through the block's expert.

    hidden (tokens + 1, width), gate_up (experts, width, 2, inner), down (experts, inner, width), experts (blocks, 1).
    """
    rows, width = hidden.shape
    count, inner, _ = down.shape
    out = nl.ndarray((rows, width), hidden.dtype, buffer=nl.shared_hbm)
    zeros = nl.zeros((128, width), hidden.dtype)
    for tile in tiles_of(rows, 128):
        nisa.dma_copy(dst=out[tile.rows], src=zeros[:tile.size])
    flat_gate_up = gate_up.reshape((count, width * 2 * inner))
    flat_affinities = affinities.reshape((rows * count, 1))
    for n in range(experts.shape[0]):
        expert, repeated, index, entry = (sbuf((k, 1), nl.int32) for k in (1, size, size, size))
        nisa.dma_copy(expert, experts[nl.ds(n, 1), :])
        nisa.dma_copy(repeated, experts.ap([[0, size], [1, 1]], offset=n))
        nisa.dma_copy(index, positions.reshape((experts.shape[0], size, 1))[n])
        tokens = sbuf((size, width), hidden.dtype)
        nisa.dma_copy(tokens, hidden.ap([[width, size], [1, width]], vector_offset=index, indirect_dim=0),
                      oob_mode=nisa.oob_mode.skip)
        nisa.tensor_scalar(entry, index, nl.multiply, count)
        nisa.tensor_tensor(entry, entry, repeated, nl.add)
        affinity = sbuf((size, 1))
        nisa.dma_copy(affinity, flat_affinities.ap([[1, size], [1, 1]], vector_offset=entry))
        columns = [transposed(tokens[:, part.rows]) for part in tiles_of(width, 128)]
        products = []
        for part in tiles_of(inner, 128):
            pair = [psum((part.size, size)) for _ in range(2)]
            for k, total in enumerate(pair):
                for rows_of in tiles_of(width, 128):
                    block = sbuf((rows_of.size, part.size), gate_up.dtype)
                    nisa.dma_copy(block, flat_gate_up.ap(
                        [[2 * inner, rows_of.size], [1, part.size]], scalar_offset=expert, indirect_dim=0,
                        offset=rows_of.start * 2 * inner + k * inner + part.start))
                    nisa.nc_matmul(total, block, columns[rows_of.index])
            gate, product = sbuf((part.size, size)), sbuf((part.size, size), hidden.dtype)
            nisa.activation(gate, nl.silu, pair[0])
            nisa.tensor_tensor(product, gate, pair[1], nl.multiply)
            products.append(product)
        result = sbuf((size, width), hidden.dtype)
        for part in tiles_of(width, 512):
            total = psum((size, part.size))
            for rows_of in tiles_of(inner, 128):
                block = sbuf((rows_of.size, part.size), down.dtype)
                nisa.dma_copy(block, down.select(0, expert)[rows_of.rows, part.rows])
                nisa.nc_matmul(total, products[rows_of.index], block)
            nisa.tensor_scalar(result[:, part.rows], total, nl.multiply, affinity)
        before = sbuf((size, width), hidden.dtype)
        nisa.dma_copy(before, out.ap([[width, size], [1, width]], vector_offset=index))
        nisa.tensor_tensor(before, before, result, nl.add)
        nisa.dma_copy(out.ap([[width, size], [1, width]], vector_offset=index), before)
    return out


@pytest.mark.parametrize("tokens, width, count, inner, size, chosen, dtype, bound", [
    (40, 160, 4, 48, 16, 2, np.float32, 1e-4), (7, 128, 8, 130, 32, 1, np.float32, 1e-4),
    (20, 64, 2, 32, 128, 2, BF16, 3e-2)], ids=["two of four", "large", "bf16"])
def test_experts_by_blocks(on, tokens, width, count, inner, size, chosen, dtype, bound):
    hidden = numbers_of(tokens + 1, width, dtype=dtype)
    hidden[tokens] = 0
    gate_up = numbers_of(count, width, 2, inner, dtype=dtype, scale=0.2, seed=1)
    down = numbers_of(count, inner, width, dtype=dtype, scale=0.2, seed=2)
    order = np.argsort(numbers_of(tokens, count, seed=3), 1)[:, :chosen]
    affinities = np.zeros((tokens + 1, count), np.float32)
    np.put_along_axis(affinities[:tokens], order, np.abs(numbers_of(tokens, chosen, seed=4)) + 0.1, 1)
    positions, experts, expected = [], [], np.zeros(hidden.shape)
    for expert in range(count):
        members = np.flatnonzero((order == expert).any(1))
        for start in range(0, len(members), size):
            block = members[start:start + size]
            positions.extend([*block, *[tokens] * (size - len(block))])
            experts.append(expert)
        gate, up = (hidden[members].astype(float) @ gate_up[expert, :, k].astype(float) for k in range(2))
        product = gate / (1 + np.exp(-gate)) * up @ down[expert].astype(float)
        expected[members] += product * affinities[members, expert, None]
    got = experts_by_blocks.on(on)(hidden, affinities, gate_up, down, np.array(positions, np.int32),
                                   np.array(experts, np.int32)[:, None], size)
    near([got], [expected.astype(dtype)], bound)


# -- the largest numbers of a row, more than eight ---------------------------------------------------------------------
@nki.jit
def largest(x, count):
    """The largest numbers of each row in their order, and where they are."""
    rows, width = x.shape
    values_out = nl.ndarray((rows, count), x.dtype, buffer=nl.shared_hbm)
    places_out = nl.ndarray((rows, count), nl.uint32, buffer=nl.shared_hbm)
    for tile in tiles_of(rows, 128):
        rest = nl.load(x[tile.rows])
        rounds = -(-count // 8)
        values, places = sbuf((tile.size, rounds * 8)), sbuf((tile.size, rounds * 8), nl.uint32)
        for k in range(rounds):
            eight = nl.ds(8 * k, 8)
            nisa.max8(dst=values[:, eight], src=rest)
            if k % 2:
                nisa.nc_find_index8(dst=places[:, eight], data=rest, vals=values[:, eight])
                nisa.nc_match_replace8(dst=rest, data=rest, vals=values[:, eight], imm=-3.0e38)
            else:
                other = sbuf((tile.size, width))
                nisa.nc_match_replace8(dst=other, data=rest, vals=values[:, eight], imm=-3.0e38,
                                       dst_idx=places[:, eight])
                rest = other
        nisa.dma_copy(values_out[tile.rows], values[:, :count])
        nisa.dma_copy(places_out[tile.rows], places[:, 0:count])
    return values_out, places_out


@pytest.mark.parametrize("rows, width, count", [(130, 300, 20), (1, 8, 3), (5, 1000, 64)])
def test_more_than_eight_of_the_largest(on, rows, width, count):
    x = np.random.default_rng(0).permutation(rows * width).reshape(rows, width).astype(np.float32)
    places = np.argsort(-x, 1)[:, :count]
    values, indices = largest.on(on)(x, count)
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))
    np.testing.assert_array_equal(indices, places.astype(np.uint32))


# -- a convolution along time with the state of the last call ----------------------------------------------------------
@nki.jit
def causal_convolution(x, weights, state, bias=None, activation="silu", tile=64):
    """x (batch, channels, time), weights (channels, taps), state (batch, channels, taps - 1)."""
    batch, channels, time = x.shape
    taps = weights.shape[1]
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    states = nl.ndarray(state.shape, x.dtype, buffer=nl.shared_hbm)
    function = {"silu": nl.silu, "none": nl.copy}[activation]
    for b in range(batch):
        for part in tiles_of(channels, 128):
            taps_of = nl.load(weights[part.rows], dtype=nl.float32)
            offset = nl.load(bias.reshape((channels, 1))[part.rows]) if bias is not None else None
            before = nl.load(state[b, part.rows])
            for step in tiles_of(time, tile):
                window = sbuf((part.size, taps - 1 + step.size), x.dtype)
                nisa.tensor_copy(window[:, :taps - 1], before)
                nisa.dma_copy(window[:, taps - 1:], x[b, part.rows, step.rows])
                total = sbuf((part.size, step.size))
                nisa.tensor_scalar(total, window[:, 0:step.size], nl.multiply, taps_of[:, 0:1])
                for k in range(1, taps):
                    nisa.scalar_tensor_tensor(total, window[:, k:k + step.size], nl.multiply, taps_of[:, k:k + 1],
                                              nl.add, total)
                before = nl.copy(window[:, step.size:])
                result = sbuf((part.size, step.size), x.dtype)
                nisa.activation(result, function, total, bias=offset)
                nisa.dma_copy(out[b, part.rows, step.rows], result)
            nisa.dma_copy(states[b, part.rows], before)
    return out, states


@pytest.mark.parametrize("shape, taps, dtype, activation, bound", [
    ((2, 130, 150), 4, np.float32, "silu", 1e-5), ((1, 3, 1), 2, np.float32, "none", 1e-5),
    ((1, 64, 65), 4, BF16, "silu", 2e-2)], ids=["tiles", "one step", "bf16"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_causal_convolution(on, shape, taps, dtype, activation, bound, has_bias):
    batch, channels, time = shape
    x, weights = numbers_of(*shape, dtype=dtype), numbers_of(channels, taps, seed=1)
    state = numbers_of(batch, channels, taps - 1, dtype=dtype, seed=2)
    bias = numbers_of(channels, seed=3) if has_bias else None
    longer = np.concatenate([state, x], 2).astype(float)
    total = sum(longer[:, :, k:k + time] * weights[:, k, None] for k in range(taps))
    total = total + (bias[:, None] if has_bias else 0)
    expected = total / (1 + np.exp(-total)) if activation == "silu" else total
    near(causal_convolution.on(on)(x, weights, state, bias=bias, activation=activation),
         [expected.astype(dtype), longer[:, :, time:].astype(dtype)], bound)


# -- quantized rows of a cache -----------------------------------------------------------------------------------------
@nki.jit
def write_quantized(rows, cache, scales, slots):
    """Rows (tokens, heads, d) in 8 bits with a scale for each head; tokens with a slot out of range are left out."""
    tokens, heads, width = rows.shape
    for tile in tiles_of(tokens, 128):
        values, slot = nl.load(rows[tile.rows]), nl.load(slots.reshape((tokens, 1))[tile.rows])
        scale, short = sbuf((tile.size, heads)), sbuf((tile.size, heads, width), cache.dtype)
        nisa.tensor_reduce(scale, nl.maximum, nl.abs(values, dtype=nl.float32), axis=2)
        nisa.tensor_scalar(scale, scale, nl.multiply, 1 / 240.0, op1=nl.maximum, operand1=1e-8)
        inverse = nl.reciprocal(scale)
        nisa.tensor_tensor(short, values, inverse.expand_dim(2).broadcast(2, width), nl.multiply)
        for target, source, size in ((cache, short, heads * width), (scales, scale, heads)):
            nisa.dma_copy(dst=target.ap([[size, tile.size], [1, size]], vector_offset=slot, indirect_dim=0), src=source,
                          oob_mode=nisa.oob_mode.skip)
    return cache, scales


@pytest.mark.parametrize("tokens, heads, width, slots, dtype", [(140, 3, 16, 300, np.float32), (1, 1, 64, 4, BF16)])
def test_quantized_rows_of_a_cache(on, tokens, heads, width, slots, dtype):
    rows = numbers_of(tokens, heads, width, dtype=dtype)
    places = np.random.default_rng(1).permutation(slots)[:tokens].astype(np.int32)
    places[tokens // 2] = slots + 5
    scale = np.maximum(np.abs(rows.astype(np.float32)).max(2) * np.float32(1 / 240), np.float32(1e-8))
    cache, scales = np.zeros((slots, heads, width), FP8), np.zeros((slots, heads), np.float32)
    got, got_scales = write_quantized.on(on)(rows, cache.copy(), scales.copy(), places)
    has_slot = places < slots
    scales[places[has_slot]] = scale[has_slot]
    near([got_scales], [scales], 1e-6)
    exact = np.zeros(cache.shape)
    exact[places[has_slot]] = rows[has_slot]
    read = got.astype(float) * scales[:, :, None]
    assert np.abs(read - exact).max() <= np.abs(exact).max() / 16 and not read[np.abs(scales).max(1) == 0].any()


# -- rows of which each core has half of the columns -------------------------------------------------------------------
@nki.jit
def split_softmax(x):
    rows, width = x.shape
    programs, program = cores()
    kernel_assert(width >= programs, f"{width} columns")
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    half = -(-width // programs)
    columns = slice(program * half, min(width, program * half + half))
    for tile in tiles_of(rows, 128):
        values = nl.load(x[tile.rows, columns])
        stats, weights, scale = sbuf((tile.size, 2)), sbuf(values.shape), sbuf((tile.size, 1))
        nisa.tensor_reduce(stats[:, 0:1], nl.maximum, values, axis=1)
        negative = nl.multiply(stats[:, 0:1], -1.0)
        nisa.activation_reduce(weights, nl.exp, values, nl.add, stats[:, 1:2], bias=negative)
        if programs > 1:
            other = sbuf((tile.size, 2))
            nisa.sendrecv(src=stats, dst=other, send_to_rank=1 - program, recv_from_rank=1 - program, pipe_id=0)
            shift = nl.multiply(nl.maximum(stats[:, 0:1], other[:, 0:1]), -1.0)
            factors = [sbuf((tile.size, 1)) for _ in range(2)]
            for factor, part in zip(factors, (stats, other)):
                nisa.activation(factor, nl.exp, part[:, 0:1], bias=shift)
            sums = nl.add(nl.multiply(factors[0], stats[:, 1:2]), nl.multiply(factors[1], other[:, 1:2]))
            nisa.reciprocal(scale, sums)
            nisa.tensor_tensor(scale, scale, factors[0], nl.multiply)
        else:
            nisa.reciprocal(scale, stats[:, 1:2])
        nl.store(out[tile.rows, columns], nl.multiply(weights, scale.broadcast(1, values.shape[1])))
    return out


@pytest.mark.parametrize("rows, width, programs", [(130, 301, 2), (1, 2, 2), (3, 10, None)])
def test_softmax_of_columns_of_two_cores(on, rows, width, programs):
    x = numbers_of(rows, width)
    weights = np.exp(x - x.max(1, keepdims=True))
    kernel = split_softmax if programs is None else split_softmax[programs]
    near([kernel.on(on)(x)], [weights / weights.sum(1, keepdims=True)], 1e-5)
