# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over a context, with tiles that are skipped, and of one token on a cache of blocks."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .kernel_pieces import cores, kernel_assert, near, psum, sbuf, tiles_of, transposed

BF16 = ml_dtypes.bfloat16
LEAST = -9984.0


# -- a context ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reach(nl.NKIObject):
    """Which keys a query sees: those up to its position, ``window`` of them."""

    causal: bool = True
    window: int = 0
    shift: int = 0

    def sees(self, queries, keys):
        if not self.causal:
            return True
        if keys.start > queries.end - 1 + self.shift:
            return False
        return self.window == 0 or keys.end - 1 >= queries.start + self.shift - self.window + 1

    def cuts(self, queries, keys):
        if not self.causal:
            return False
        return keys.end - 1 > queries.start + self.shift or (
            self.window > 0 and keys.start < queries.end - 1 + self.shift - self.window + 1)


class Running(nl.NKIObject):
    """Maximum, sum and weighted values so far of the rows of a tile of queries."""

    def __init__(self, rows, width):
        self.maximum, self.total, self.values = sbuf((rows, 1)), sbuf((rows, 1)), sbuf((rows, width))
        self.started = False

    def add(self, scores, row_blocks, dtype):
        rows, count = scores.shape
        maximum = nl.max(scores, axis=1, keepdims=True)
        if self.started:
            nisa.tensor_tensor(maximum, self.maximum, maximum, nl.maximum)
        negative = nl.multiply(maximum, -1.0)
        weights, total = sbuf((rows, count), dtype), sbuf((rows, 1))
        nisa.activation(weights, nl.exp, scores, bias=negative, reduce_op=nl.add, reduce_res=total,
                        reduce_cmd=nisa.reduce_cmd.reset_reduce)
        values = psum(self.values.shape)
        for block in tiles_of(count, 128):
            nisa.nc_matmul(values, transposed(weights[:, block.rows]), row_blocks[block.index])
        if self.started:
            factor = sbuf((rows, 1))
            nisa.activation(factor, nl.exp, self.maximum, bias=negative)
            nisa.scalar_tensor_tensor(self.values, self.values, nl.multiply, factor, nl.add, values)
            nisa.scalar_tensor_tensor(self.total, self.total, nl.multiply, factor, nl.add, total)
        else:
            nisa.tensor_copy(self.values, values)
            nisa.tensor_copy(self.total, total)
        nisa.tensor_copy(self.maximum, maximum)
        self.started = True


def masked(scores, queries, keys, reach):
    """Scores of keys that a query does not see become small."""
    first, count = queries.start + reach.shift, scores.shape[1]
    nisa.affine_select(dst=scores, pattern=[[-1, count]], channel_multiplier=1, offset=first - keys.start,
                       on_true_tile=scores, on_false_value=LEAST, cmp_op=nl.greater_equal)
    if reach.window > 0:
        nisa.affine_select(dst=scores, pattern=[[1, count]], channel_multiplier=-1,
                           offset=keys.start - first + reach.window - 1, on_true_tile=scores, on_false_value=LEAST,
                           cmp_op=nl.greater_equal)


@nki.jit
def attention_of_a_context(q, k, v, scale=1.0, causal=True, window=0, sink=None, tile=256):
    """q (batch, queries, d), k (heads, d, keys), v (heads, keys, d): results and logarithms of their sums."""
    batch, count, width = q.shape
    heads, _, keys = k.shape
    kernel_assert(batch % heads == 0, f"{batch} queries and {heads} heads")
    out = nl.ndarray(q.shape, q.dtype, buffer=nl.shared_hbm)
    logs = nl.ndarray((batch, count, 1), nl.float32, buffer=nl.shared_hbm)
    reach, (programs, program) = Reach(causal, window, keys - count), cores()
    for b in range(batch):
        if b % programs != program:
            continue
        head = b * heads // batch
        columns = nl.load(k[head])
        blocks = [nl.load(v[head, block.rows]) for block in tiles_of(keys, 128)]
        for queries in tiles_of(count, 128):
            stationary = sbuf((width, queries.size), q.dtype)
            nisa.dma_transpose(dst=stationary, src=q[b, queries.rows, :])
            running = Running(queries.size, width)
            for part in tiles_of(keys, tile):
                if not reach.sees(queries, part):
                    continue
                product, scores = psum((queries.size, part.size)), sbuf((queries.size, part.size))
                nisa.nc_matmul(product, stationary, columns[:, part.rows])
                nisa.activation(scores, nl.copy, product, scale=scale)
                if reach.cuts(queries, part):
                    masked(scores, queries, part, reach)
                running.add(scores, blocks[part.start // 128:], q.dtype)
            if sink is not None:
                extra, negative = sbuf((queries.size, 1)), nl.multiply(running.maximum, -1.0)
                nisa.dma_copy(extra, sink.ap([[0, queries.size], [1, 1]], offset=b))
                nisa.activation(extra, nl.exp, extra, bias=negative)
                nisa.tensor_tensor(running.total, running.total, extra, nl.add)
            inverse, rows = nl.reciprocal(running.total), sbuf((queries.size, width), q.dtype)
            nisa.tensor_scalar(rows, running.values, nl.multiply, inverse)
            nisa.dma_copy(out[b, nl.ds(queries.start, queries.size), :], rows)
            nl.store(logs[b, queries.rows], nl.add(nl.log(running.total), running.maximum))
    return out, logs


def context_reference(q, k, v, scale, causal, window, sink):
    repeats = len(q) // len(k)
    k, v = np.repeat(k.astype(float), repeats, 0), np.repeat(v.astype(float), repeats, 0)
    scores = q.astype(float) @ k * scale
    position, key = np.arange(q.shape[1])[:, None] + k.shape[2] - q.shape[1], np.arange(k.shape[2])
    visible = (key <= position) & ((key > position - window) | (window == 0)) if causal else True
    scores = np.where(visible, scores, -np.inf)
    maximum = scores.max(-1, keepdims=True)
    weights = np.exp(scores - maximum)
    total = weights.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink[:, None] - maximum))
    return (weights / total @ v).astype(q.dtype), (np.log(total) + maximum).astype(np.float32)


@pytest.mark.share(3)
@pytest.mark.parametrize("shape, dtype, options, programs, bound", [
    ((2, 1, 200, 300, 64), np.float32, {}, None, 1e-4),
    ((1, 1, 300, 300, 40), np.float32, {"window": 50}, None, 1e-4),
    ((2, 2, 130, 640, 128), BF16, {"causal": False}, 2, 3e-2),
    ((1, 1, 1, 1, 32), np.float32, {}, None, 1e-4)], ids=["groups", "window", "two cores", "one"])
@pytest.mark.parametrize("has_sink", [False, True])
def test_attention_of_a_context(on, shape, dtype, options, programs, bound, has_sink):
    batch, heads, count, keys, width = shape
    numbers = np.random.default_rng(0)
    q, k, v = (numbers.standard_normal(s).astype(dtype) for s in (
        (batch, count, width), (heads, width, keys), (heads, keys, width)))
    sink = numbers.standard_normal((batch, 1)).astype(np.float32) if has_sink else None
    keywords = {"scale": width ** -0.5, "causal": True, "window": 0, "sink": sink} | options
    kernel = attention_of_a_context if programs is None else attention_of_a_context[programs]
    near(kernel.on(on)(q, k, v, **keywords), context_reference(q, k, v, **keywords), bound)


# -- one token on a cache of blocks ------------------------------------------------------------------------------------
def write_row(cache, row, table, length, b):
    """Write the row of a sequence's next token into its block; where that is, the device computes."""
    blocks, size, width = cache.shape
    shift = size.bit_length() - 1
    number, within, row_index = (sbuf((1, 1), nl.int32) for _ in range(3))
    nisa.tensor_scalar(number, length, nl.right_shift, shift)
    nisa.tensor_scalar(within, length, nl.bitwise_and, size - 1)
    flat = table.reshape((table.size, 1))
    nisa.dma_copy(row_index, flat.ap([[1, 1], [1, 1]], offset=b * table.shape[1], scalar_offset=number, indirect_dim=0))
    nisa.tensor_scalar(row_index, row_index, nl.left_shift, shift)
    nisa.tensor_tensor(row_index, row_index, within, nl.add)
    rows = cache.reshape((blocks * size, width))
    nisa.dma_copy(dst=rows.ap([[width, 1], [1, width]], scalar_offset=row_index), src=row)


@nki.jit
def attention_of_a_token(q, keys, values, table, lengths, key, value, scale=1.0):
    """q (batch, heads, d), caches (blocks, size, d), table (batch, n): results; the caches take the token's rows."""
    batch, heads, width = q.shape
    _, size, _ = keys.shape
    count = table.shape[1]
    out = nl.ndarray(q.shape, q.dtype, buffer=nl.shared_hbm)
    position = sbuf((heads, count * size))
    nisa.iota(position, [[1, count * size]])
    for b in range(batch):
        numbers = sbuf((count, 1), nl.int32)
        nisa.dma_copy(numbers, table.ap([[1, count], [1, 1]], offset=b * count))
        old_keys, old_values = sbuf((count, size, width), keys.dtype), sbuf((count, size, width), values.dtype)
        nisa.dma_copy(old_keys, keys.ap([[size * width, count], [width, size], [1, width]], vector_offset=numbers))
        nisa.dma_copy(old_values, values.vector_select(0, numbers))
        stationary = sbuf((width, heads), q.dtype)
        nisa.dma_copy(stationary, q.ap([[1, width], [width, heads]], offset=b * heads * width))
        scores = sbuf((heads, count, size))
        for k in range(size):
            product = psum((heads, count))
            nisa.nc_matmul(product, stationary, transposed(old_keys[:, k, :]))
            nisa.activation(scores[:, :, k], nl.copy, product, scale=scale)
        length, hidden = sbuf((heads, 1)), sbuf((heads, count * size), nl.uint8)
        nisa.dma_copy(length, lengths.ap([[0, heads], [1, 1]], offset=b))
        nisa.tensor_scalar(hidden, position, nl.greater_equal, length)
        flat = scores.reshape((heads, count * size))
        nisa.tensor_copy_predicated(dst=flat, src=-1e30, predicate=hidden)
        column, product, last = sbuf((width, 1), key.dtype), psum((heads, 1)), sbuf((heads, 1))
        nisa.dma_copy(column, key.reshape((batch, width, 1))[b])
        nisa.nc_matmul(product, stationary, column)
        nisa.tensor_scalar(last, product, nl.multiply, scale)
        negative = nl.max(flat, axis=1, keepdims=True)
        nisa.tensor_tensor(negative, negative, last, nl.maximum)
        nisa.tensor_scalar(negative, negative, nl.multiply, -1.0)
        weights, total, weight = sbuf(scores.shape, values.dtype), sbuf((heads, 1)), sbuf((heads, 1), values.dtype)
        nisa.activation_reduce(weights, nl.exp, scores, reduce_op=nl.add, reduce_res=total, bias=negative)
        nisa.activation(weight, nl.exp, last, bias=negative)
        nisa.tensor_tensor(total, total, weight, nl.add)
        sums = psum((heads, width))
        for k in range(size):
            nisa.nc_matmul(sums, transposed(weights[:, :, k]), old_values[:, k, :])
        nisa.nc_matmul(sums, transposed(weight), nl.load(value[b:b + 1]))
        rows, inverse = sbuf((heads, width), q.dtype), nl.reciprocal(total)
        nisa.activation(rows, nl.copy, sums, scale=inverse)
        nisa.dma_copy(out[b], rows)
    for b in range(batch):
        next_position = sbuf((1, 1), nl.int32)
        nisa.dma_copy(next_position, lengths.ap([[1, 1], [1, 1]], offset=b))
        write_row(keys, key[b:b + 1, :], table, next_position, b)
        write_row(values, value[b:b + 1, :], table, next_position, b)
    return out, keys, values


def token_reference(q, keys, values, table, lengths, key, value, scale):
    width, size = q.shape[2], keys.shape[1]
    out, new_keys, new_values = np.zeros(q.shape), keys.copy(), values.copy()
    for b, (blocks, length) in enumerate(zip(table, lengths)):
        visible = [np.concatenate([cache[blocks].reshape(-1, width)[:length], row[b:b + 1]]).astype(float)
                   for cache, row in ((keys, key), (values, value))]
        scores = q[b].astype(float) @ visible[0].T * scale
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[b] = weights / weights.sum(1, keepdims=True) @ visible[1]
        new_keys[blocks[length // size], length % size] = key[b]
        new_values[blocks[length // size], length % size] = value[b]
    return out.astype(q.dtype), new_keys, new_values


@pytest.mark.parametrize("shape, dtype, bound", [((3, 8, 64, 20, 4, 5), np.float32, 1e-4),
                                                 ((1, 1, 128, 10, 16, 3), BF16, 2e-2),
                                                 ((2, 5, 16, 8, 1, 4), np.float32, 1e-4)],
                         ids=["blocks of 4", "one head", "blocks of 1"])
def test_attention_of_a_token_on_blocks(on, shape, dtype, bound):
    batch, heads, width, blocks, size, count = shape
    numbers = np.random.default_rng(1)
    q, keys, values, key, value = (numbers.standard_normal(s).astype(dtype) for s in (
        (batch, heads, width), (blocks, size, width), (blocks, size, width), (batch, width), (batch, width)))
    table = numbers.permutation(blocks)[:batch * count].reshape(batch, count).astype(np.int32)
    lengths = np.append(numbers.integers(0, count * size, batch - 1), count * size - 1).astype(np.int32)
    inputs = q, keys, values, table, lengths, key, value
    expected = token_reference(*inputs, width ** -0.5)
    near(attention_of_a_token.on(on)(*(a.copy() for a in inputs), scale=width ** -0.5), expected, bound)
