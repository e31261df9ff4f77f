# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that work on blocks: microscaled layers, layers at addresses of a manager, state spaces, masks of a window."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .kernel_pieces import cores, kernel_assert, near, psum, sbuf, tiles_of, transposed

BF16 = ml_dtypes.bfloat16


def numbers_of(*shape, dtype=np.float32, scale=1.0, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def wide(x):
    return np.asarray(x).astype(np.float64)


def silu(x):
    return x / (1 + np.exp(-x))


# -- microscaled numbers -------------------------------------------------------------------------------------------------
@nki.jit
def microscaled_layer(x, first, first_scales, second, second_scales, function=nl.silu):
    """Rows of 512 through 512 columns of 8 bits, a function, and as many of 4 bits; blocks of 32 share a scale."""
    rows, width = x.shape
    kernel_assert(width == 512 and first.shape[1] == 512, f"one tile of 512: {width}, {first.shape[1]}")
    quads = sbuf((128, rows, 4), nl.bfloat16)
    for quad in range(4):
        nisa.dma_copy(quads[:, :, quad], x.ap([[1, 128], [width, rows]], offset=quad * 128))
    moving, moving_scales = sbuf((128, rows), nl.float8_e4m3fn_x4), sbuf((128, rows), nl.uint8)
    nisa.memset(moving_scales, 0)
    nisa.quantize_mx(dst=moving, src=quads.reshape((128, rows * 4)), dst_scale=moving_scales)
    weights, scales = sbuf((128, 512), nl.float8_e4m3fn_x4), sbuf((128, 512), nl.uint8)
    nisa.dma_copy(weights, first)
    nisa.dma_copy(scales, first_scales)
    inner = sbuf((128, rows, 4), nl.bfloat16)
    for quad in range(4):
        columns, products = slice(quad * 128, quad * 128 + 128), psum((128, rows))
        nisa.nc_matmul_mx(dst=products, stationary=weights[:, columns], moving=moving,
                          stationary_scale=scales[:, columns], moving_scale=moving_scales)
        nisa.activation(dst=inner[:, :, quad], op=function, data=products)
    stationary, inner_scales = sbuf((128, rows), nl.float8_e5m2_x4), sbuf((128, rows), nl.float8_e8m0fnu)
    nisa.quantize_mx(dst=stationary, src=inner.reshape((128, rows * 4)), dst_scale=inner_scales)
    last, last_scales, sums = sbuf((128, 512), nl.float4_e2m1fn_x4), sbuf((128, 512), nl.uint8), psum((rows, 512))
    nisa.dma_copy(last, second)
    nisa.dma_copy(last_scales, second_scales)
    nisa.nc_matmul_mx(sums, stationary, last, inner_scales, last_scales)
    out = nl.ndarray((rows, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, nl.copy(sums))
    return out


def microscaled(values, greatest_exponent, dtype):
    """Values [128, n, 4] as rounded, their bits, and the bytes of the scales where the hardware has them."""
    blocks = values.reshape(16, 8, -1, 4)
    exponents = np.floor(np.log2(np.abs(blocks).max((1, 3)))) - (greatest_exponent - 1)
    units = np.exp2(exponents)[:, None, :, None]
    bits = (blocks / units).astype(dtype)
    scales = np.zeros((128, values.shape[1]), np.uint8)
    for row in range(16):
        scales[row // 4 * 32 + row % 4] = exponents[row] + 127
    return (bits.astype(np.float64) * units).reshape(values.shape), bits.reshape(values.shape).view(np.uint8), scales


@pytest.mark.parametrize("rows", [6, 2])
def test_microscaled_layer(on, rows):
    x = numbers_of(rows, 512, dtype=BF16)
    first, first_bits, first_scales = microscaled(numbers_of(128, 512, 4, scale=0.05), 8, ml_dtypes.float8_e4m3fn)
    second, nibbles, second_scales = microscaled(numbers_of(128, 512, 4, scale=0.05, seed=3), 2,
                                                 ml_dtypes.float4_e2m1fn)
    packed = sum((nibbles[..., k].astype(np.uint16) & 15) << 4 * k for k in range(4)).astype(np.uint16)
    got = microscaled_layer.on(on)(x, np.ascontiguousarray(first_bits).view(np.uint32)[..., 0], first_scales, packed,
                                   second_scales)
    moving, _, _ = microscaled(wide(x).reshape(rows, 4, 128).transpose(2, 0, 1), 8, ml_dtypes.float8_e4m3fn)
    inner = silu(np.einsum("knq,ktq->nt", first, moving)).reshape(4, 128, rows).transpose(1, 2, 0).astype(BF16)
    rounded, _, _ = microscaled(wide(inner), 15, ml_dtypes.float8_e5m2)
    # A number of float8_e5m2 that lies between two may go to either.
    near([got], [np.einsum("ktq,knq->tn", rounded, second).astype(np.float32)], 2e-2)


# -- a gated layer at addresses: a stack with sections in turn, a heap from the other end, banks ---------------------------
SIZES = {str(nl.float32): 4, str(nl.bfloat16): 2, str(nl.float16): 2}


class Memory(nl.NKIObject):
    def __init__(self, end, automatic=False):
        self.top, self.bottom, self.automatic = 0, end, automatic
        self.scopes, self.count = [], 0

    def _tile(self, shape, dtype, name, address):
        self.count += 1
        fixed = {} if self.automatic else {"address": (0, address)}
        return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, name=f"{name}_{self.count}", **fixed)

    def size(self, shape, dtype):
        size = SIZES[str(dtype)]
        for extent in shape[1:]:
            size *= extent
        return -(-size // 4) * 4

    def open_scope(self, sections=1):
        self.scopes.append({"start": self.top, "base": self.top, "sections": sections, "section": 0, "size": 0})

    def next_section(self):
        scope = self.scopes[-1]
        scope["size"] = max(scope["size"], self.top - scope["base"])
        scope["section"] = (scope["section"] + 1) % scope["sections"]
        scope["base"] = self.top = scope["start"] + scope["section"] * scope["size"]

    def close_scope(self):
        self.top = self.scopes.pop()["start"]

    def stack(self, shape, dtype=nl.float32, name="tile"):
        size, start = self.size(shape, dtype), self.top
        kernel_assert(start + size <= self.bottom, f"Allocation failure: {name}, {size} B, free={self.bottom - start} B")
        self.top += size
        return self._tile(shape, dtype, name, start)

    def heap(self, shape, dtype, name="tile"):
        self.bottom -= self.size(shape, dtype)
        return self._tile(shape, dtype, name, self.bottom)

    def bank(self, shape):
        self.count += 1
        fixed = {} if self.automatic else {"address": (0, self.count % 8 * nl.tile_size.psum_bank_fmax_bytes)}
        return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum, name=f"bank_{self.count}", **fixed)


@nki.jit
def gated_layer(x, gate, up, down, bias=None, automatic=False):
    """(silu(x gate) * (x up)) down + bias; cores take halves of the inner columns and exchange the sums."""
    rows, width = x.shape
    inner, (count, core) = gate.shape[1], cores()
    memory = Memory(nl.tile_size.total_available_sbuf_size - 520, automatic)
    out = nl.ndarray((rows, width), x.dtype, buffer=nl.shared_hbm)
    share = -(-inner // count)
    end, activated, parts = min(inner, core * share + share), [], tiles_of(width, 128)
    memory.open_scope()
    columns = memory.stack((128, len(parts), rows), x.dtype, "columns")
    for part in parts:
        nisa.dma_copy(dst=columns[0:part.size, part.index, :], src=x.ap([[1, part.size], [width, rows]], offset=part.start))
    memory.open_scope(sections=2)
    for tile in tiles_of(end - core * share, 128):
        inside = slice(core * share + tile.start, core * share + tile.end)
        sums = [memory.bank((tile.size, rows)), memory.bank((tile.size, rows))]
        for part in parts:
            for total, source in zip(sums, (gate, up)):
                weights = memory.stack((128, tile.size), source.dtype, "weights")
                nisa.dma_copy(dst=weights[:part.size], src=source[part.rows, inside])
                nisa.nc_matmul(dst=total, stationary=weights[:part.size], moving=columns[0:part.size, part.index, :])
        function, products = memory.stack((128, rows)), memory.heap((128, rows), x.dtype)
        nisa.activation(dst=function[:tile.size], op=nl.silu, data=sums[0])
        nisa.tensor_tensor(dst=products[:tile.size], data1=function[:tile.size], data2=sums[1], op=nl.multiply)
        activated.append((products, tile.size, inside))
        memory.next_section()
    memory.close_scope()
    for part in tiles_of(width, 512):
        memory.open_scope()
        total = memory.bank((rows, part.size))
        for products, size, inside in activated:
            weights = memory.stack((128, part.size), down.dtype, "weights")
            nisa.dma_copy(weights[:size], down[inside, part.rows])
            nisa.nc_matmul(total, products[:size], weights[:size])
        result = memory.stack((rows, part.size))
        nisa.tensor_copy(result, total)
        if count > 1:
            theirs = memory.stack((rows, part.size))
            nisa.sendrecv(src=result, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
            nisa.tensor_tensor(result, result, theirs, nl.add)
        if bias != None:  # noqa: E711
            added = memory.stack((rows, part.size), bias.dtype)
            nisa.dma_copy(added, bias.ap([[0, rows], [1, part.size]], offset=part.start))
            nisa.tensor_tensor(result, result, added, nl.add)
        rounded = memory.stack((rows, part.size), x.dtype)
        nisa.tensor_copy(rounded, result)
        if core == 0:
            nisa.dma_copy(out[:, part.rows], rounded)
        memory.close_scope()
    memory.close_scope()
    return out


@pytest.mark.parametrize("rows, width, inner, launch, dtype, has_bias, automatic, bound", [
    (5, 200, 300, 2, np.float32, True, False, 1e-5), (1, 128, 256, 2, np.float32, False, True, 1e-5),
    (128, 640, 384, 1, BF16, True, False, 2e-2)])   # the activation and the output are rounded to 8 bits
def test_gated_layer_at_addresses(on, rows, width, inner, launch, dtype, has_bias, automatic, bound):
    x, down = numbers_of(rows, width, dtype=dtype, scale=0.3), numbers_of(inner, width, dtype=dtype, scale=0.2, seed=1)
    gate, up = (numbers_of(width, inner, dtype=dtype, scale=0.2, seed=seed) for seed in (2, 3))
    bias = numbers_of(1, width, dtype=dtype, seed=4) if has_bias else None
    got = gated_layer[launch].on(on)(x, gate, up, down, bias, automatic=automatic)
    expected = (silu(wide(x) @ wide(gate)) * (wide(x) @ wide(up))) @ wide(down) + (wide(bias) if has_bias else 0)
    near([got], [expected.astype(dtype)], bound)


# -- a state space by chunks ---------------------------------------------------------------------------------------------
@nki.jit
def state_space(x, decay, b, c, chunk=32):
    """y_t = c_t h_t of h_t = exp(decay_t) h_(t-1) + b_t x_t, a chunk of steps by products; and the last h."""
    steps, width = x.shape
    size = b.shape[1]
    out, last = nl.ndarray((steps, width), x.dtype, nl.shared_hbm), nl.ndarray((size, width), nl.float32, nl.shared_hbm)
    state, ones = sbuf((size, width)), sbuf((1, 128))
    nisa.memset(state, 0.0)
    nisa.memset(ones, 1.0)
    for part in tiles_of(steps, chunk):
        n = part.size
        logs, sums = sbuf((1, n)), sbuf((1, n))
        nisa.dma_copy(logs, decay.ap([[1, 1], [1, n]], offset=part.start))
        nisa.tensor_tensor_scan(sums, ones[:, :n], logs, initial=0.0, op0=nl.multiply, op1=nl.add)
        column, row, final = psum((n, 1)), psum((n, n)), psum((max(n, size), 1))
        nisa.nc_matmul(column, sums, ones[:, 0:1])
        nisa.nc_matmul(row, ones[:, :n], sums)
        nisa.nc_matmul(final, ones[:, :max(n, size)], sums[:, n - 1:n])
        there = nl.copy(column)
        factors = sbuf((n, n))                          # exp(sums of step t - sums of step s), for s up to t
        nisa.tensor_scalar(factors, row, nl.subtract, there)
        nisa.affine_select(dst=factors, pattern=[[1, n]], channel_multiplier=-1, on_true_tile=factors,
                           on_false_value=-1e4, cmp_op=nl.greater_equal)
        nisa.activation(factors, nl.exp, factors)
        b_columns, c_columns, rows = sbuf((size, n)), sbuf((size, n)), sbuf((n, width))
        for columns, source in ((b_columns, b), (c_columns, c)):
            nisa.dma_copy(columns, source.ap([[1, size], [size, n]], offset=part.start * size))
        nisa.dma_copy(rows, x[part.rows])
        products, inside, before = psum((n, n)), psum((n, width)), psum((n, width))
        nisa.nc_matmul(products, b_columns, c_columns)
        nisa.tensor_tensor(factors, products, factors, nl.multiply)
        nisa.nc_matmul(inside, factors, rows)
        nisa.nc_matmul(before, c_columns, state)
        grown, result = sbuf((n, 1)), sbuf((n, width))
        nisa.activation(grown, nl.exp, there)
        nisa.tensor_scalar(result, before, nl.multiply, grown)
        nisa.tensor_tensor(result, result, inside, nl.add)
        nisa.dma_copy(out[part.rows], result)
        weights, added, kept = sbuf((n, 1)), sbuf((n, size)), sbuf((size, 1))
        nisa.tensor_tensor(weights, final[:n], there, nl.subtract)
        nisa.activation(weights, nl.exp, weights)
        nisa.dma_copy(added, b[part.rows])
        nisa.activation(added, nl.copy, added, scale=weights)
        update = psum((size, width))
        nisa.nc_matmul(update, added, rows)
        nisa.activation(kept, nl.exp, final[:size])
        nisa.scalar_tensor_tensor(dst=state, data=state, op0=nl.multiply, operand0=kept, op1=nl.add, operand1=update)
    nisa.dma_copy(last, state)
    return out, last


@pytest.mark.parametrize("steps, width, size", [(100, 48, 16), (1, 5, 3), (64, 130, 64)])
def test_state_space(on, steps, width, size):
    x, decay = numbers_of(steps, width), -np.abs(numbers_of(steps, 1, seed=1)) * np.float32(0.2)
    b, c = numbers_of(steps, size, seed=2), numbers_of(steps, size, seed=3)
    state, expected = np.zeros((size, width)), []
    for t in range(steps):
        state = np.exp(wide(decay[t])) * state + np.outer(wide(b[t]), wide(x[t]))
        expected.append(wide(c[t]) @ state)
    near(state_space.on(on)(x, decay, b, c), [np.array(expected, np.float32), state.astype(np.float32)], 2e-6)


# -- a context behind a prefix -------------------------------------------------------------------------------------------
LEAST = -3.4028235e38


@dataclass(frozen=True)
class Window(nl.NKIObject):
    """How many keys a query sees, its own last; 0: all."""

    size: int = 0
    scale: float = 1.0


@nki.jit
def attention_behind_a_prefix(q, prefix_keys, prefix_values, keys, values, used, sink=None, window=None):
    """Queries see the ``used`` first keys of a prefix and those up to their place; a sink takes a part of the weights."""
    rows, width = q.shape
    prefix, window = prefix_keys.shape[0], window or Window()
    out, logs = nl.ndarray((rows, width), q.dtype, nl.shared_hbm), nl.ndarray((rows, 1), nl.float32, nl.shared_hbm)
    end, number = sbuf((128, 1)), sbuf((128, 1), nl.int32)
    nisa.dma_copy(number, used.ap([[0, 128], [1, 1]]))
    nisa.tensor_copy(end, number)
    sources = ((prefix_keys, prefix_values, 0), (keys, values, prefix))
    for tile in tiles_of(rows, 128):
        queries, scores = transposed(nl.load(q[tile.rows])), sbuf((tile.size, prefix + rows))
        for source, _, start in sources:
            for part in tiles_of(source.shape[0], 128):
                products = psum((tile.size, part.size))
                nisa.nc_matmul(products, queries, transposed(nl.load(source[part.rows])))
                nisa.activation(scores[:, start + part.start:start + part.end], nl.copy, products, scale=window.scale)
        first, maxima = sbuf((tile.size, 1)), sbuf((tile.size, 2))
        nisa.iota(first, [[0, 1]], offset=tile.start - (window.size or 100_000), channel_multiplier=1)
        nisa.tensor_tensor(first, first, end[0:tile.size], nl.add)
        visible, weights, total = sbuf(scores.shape), sbuf(scores.shape, q.dtype), sbuf((tile.size, 1))
        before, own_keys = visible[:, 0:prefix], visible[:, prefix:]
        nisa.range_select(dst=before, on_true_tile=scores[:, 0:prefix], comp_op0=nl.greater, comp_op1=nl.less,
                          bound0=first, bound1=end[0:tile.size], reduce_cmd=nisa.reduce_cmd.reset_reduce,
                          reduce_res=maxima[:, 0:1], reduce_op=nl.maximum, range_start=0, on_false_value=LEAST)
        nisa.affine_select(dst=own_keys, pattern=[[-1, rows]], offset=tile.start, channel_multiplier=1,
                           on_true_tile=scores[:, prefix:], on_false_value=LEAST, cmp_op=nl.greater_equal)
        if window.size:
            nisa.affine_select(dst=own_keys, pattern=[[1, rows]], offset=window.size - 1 - tile.start,
                               channel_multiplier=-1, on_true_tile=own_keys, on_false_value=LEAST,
                               cmp_op=nl.greater_equal)
        nisa.tensor_reduce(maxima[:, 1:2], nl.maximum, own_keys, axis=1)
        greatest, negative = nl.max(maxima, axis=1, keepdims=True), sbuf((tile.size, 1))
        if sink != None:  # noqa: E711
            sinks = sbuf((tile.size, 1))
            nisa.dma_copy(sinks, sink.ap([[0, tile.size], [1, 1]]))
            nisa.tensor_tensor(greatest, greatest, sinks, nl.maximum)
        nisa.tensor_scalar(negative, greatest, nl.multiply, -1.0)
        nisa.activation(weights[:, 0:prefix], nl.exp, before, bias=negative, reduce_op=nl.add,
                        reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(weights[:, prefix:], nl.exp, own_keys, bias=negative, reduce_op=nl.add, reduce_res=total,
                        reduce_cmd=nisa.reduce_cmd.reduce)
        if sink != None:  # noqa: E711
            nisa.activation(sinks, nl.exp, sinks, bias=negative)
            nisa.tensor_tensor(total, total, sinks, nl.add)
        result = psum((tile.size, width))
        for _, source, start in sources:
            for part in tiles_of(source.shape[0], 128):
                columns = transposed(weights[:, start + part.start:start + part.end])
                nisa.nc_matmul(result, columns, nl.load(source[part.rows]))
        divided, log = sbuf((tile.size, width), q.dtype), sbuf((tile.size, 1))
        nisa.activation(log, nl.log, total)
        nisa.tensor_tensor(log, log, greatest, nl.add)
        nisa.activation(divided, nl.copy, result, scale=nl.reciprocal(total))
        nisa.dma_copy(out[tile.rows], divided)
        nisa.dma_copy(logs[tile.rows], log)
    return out, logs


@pytest.mark.parametrize("rows, prefix, width, used, window, has_sink, dtype, bound", [
    (130, 200, 64, 150, 40, True, np.float32, 1e-5), (1, 33, 32, 33, 0, False, np.float32, 1e-5),
    (77, 128, 128, 0, 16, True, BF16, 2e-2)])       # weights and outputs are rounded to 8 bits
def test_attention_behind_a_prefix(on, rows, prefix, width, used, window, has_sink, dtype, bound):
    q, keys, values = (numbers_of(rows, width, dtype=dtype, seed=seed) for seed in range(3))
    old_keys, old_values = (numbers_of(prefix, width, dtype=dtype, seed=seed) for seed in (3, 4))
    sink = np.array([[0.7]], np.float32) if has_sink else None
    got = attention_behind_a_prefix.on(on)(q, old_keys, old_values, keys, values, np.array([[used]], np.int32), sink,
                                           window=Window(window, 0.2))
    scores = wide(q) @ np.concatenate([wide(old_keys), wide(keys)]).T * 0.2
    of_query, key = used + np.arange(rows)[:, None], np.arange(prefix + rows)[None]
    of_key = np.where(key < prefix, key, key - prefix + used)
    visible = np.where(key < prefix, key < used, of_key <= of_query) & (of_key > of_query - (window or 10_000))
    scores = np.where(visible, scores, -np.inf)
    if has_sink:
        scores = np.concatenate([scores, np.full((rows, 1), 0.7)], 1)
    logs = np.log(np.exp(scores).sum(1, keepdims=True))
    expected = np.exp(scores - logs)[:, :prefix + rows] @ np.concatenate([wide(old_values), wide(values)])
    near(got, [expected.astype(dtype), logs.astype(np.float32)], bound)
