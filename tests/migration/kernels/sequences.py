# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels after further public idioms: resizing, pooling of unequal windows, cross entropy, a cache, a router."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

PMAX = nl.tile_size.pmax


@nki.jit
def resized_twice(images, factor=2):
    """Nearest neighbors: each element of an image becomes a square of them."""
    rows, height, width = images.shape
    out = nl.ndarray((rows, height * factor, width * factor), dtype=images.dtype, buffer=nl.shared_hbm)
    for block in nl.affine_range(math.ceil(rows / PMAX)):
        i_p, i_h, i_w = nl.mgrid[0:PMAX, 0:height, 0:width]
        inside = block * PMAX + i_p < rows
        tile = nl.load(images[block * PMAX + i_p, i_h, i_w], mask=inside)
        large = nl.ndarray((nl.par_dim(PMAX), height * factor, width * factor), dtype=images.dtype, buffer=nl.sbuf)
        for dy in nl.static_range(factor):
            for dx in nl.static_range(factor):
                large[i_p, i_h * factor + dy, i_w * factor + dx] = nl.copy(tile[i_p, i_h, i_w], mask=inside)
        o_p, o_h, o_w = nl.mgrid[0:PMAX, 0:height * factor, 0:width * factor]
        nl.store(out[block * PMAX + o_p, o_h, o_w], value=large[o_p, o_h, o_w], mask=block * PMAX + o_p < rows)
    return out


@nki.jit
def pooled_to_size(x, size: int):
    """Adaptive pooling: windows of unequal length, their bounds computed on the host."""
    channels, length = x.shape
    assert channels <= PMAX, "one block of channels"
    out = nl.ndarray((channels, size), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    means = nl.ndarray((channels, size), dtype=nl.float32, buffer=nl.sbuf)
    bounds = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
    for i, (first, last) in enumerate(bounds):
        window = tile[:, first:last]
        means[:, i:i + 1] = nl.multiply(nl.sum(window, axis=1, keepdims=True), 1.0 / (last - first))
    nl.store(out, value=nl.copy(means, dtype=x.dtype))
    return out


@nki.jit
def cross_entropy(logits, labels):
    """The loss of each row over columns in chunks: a running maximum, a running sum, and the logit of the label."""
    rows, columns = logits.shape
    chunk = 128
    loss = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p = nl.arange(PMAX)[:, None]
    i_f = nl.arange(chunk)[None, :]
    for r in nl.affine_range(math.ceil(rows / PMAX)):
        label = nl.load(labels[r * PMAX + i_p, nl.arange(1)[None, :]], mask=r * PMAX + i_p < rows)
        highest = nl.full((PMAX, 1), nl.fp32.min, dtype=nl.float32)
        total = nl.zeros((PMAX, 1), dtype=nl.float32)
        chosen = nl.zeros((PMAX, 1), dtype=nl.float32)
        for c in nl.sequential_range(columns // chunk):
            tile = nl.load(logits[r * PMAX + i_p, c * chunk + i_f], mask=r * PMAX + i_p < rows)
            peak = nl.maximum(highest, nl.max(tile, axis=[1], keepdims=True, mask=r * PMAX + i_p < rows))
            scale = nl.exp(nl.subtract(highest, peak))
            powers = nisa.activation(op=np.exp, data=tile, bias=nl.negative(peak), scale=1.0,
                                     mask=r * PMAX + i_p < rows)
            total[...] = total * scale + nl.sum(powers, axis=[1], keepdims=True, mask=r * PMAX + i_p < rows)
            numbers = nisa.iota(c * chunk + i_f, dtype=nl.float32)
            hit = nl.equal(numbers.broadcast_to((PMAX, chunk)), label, dtype=nl.float32, mask=r * PMAX + i_p < rows)
            chosen[...] = chosen + nl.sum(hit * tile, axis=[1], keepdims=True, mask=r * PMAX + i_p < rows)
            highest[...] = nl.copy(peak)
        logarithm = nl.log(total, mask=r * PMAX + i_p < rows)
        nl.store(loss[r * PMAX + i_p, nl.arange(1)[None, :]], value=logarithm + highest - chosen,
                 mask=r * PMAX + i_p < rows)
    return loss


@nki.jit
def window_of_a_cache(cache, position):
    """Four columns from a position that the device knows, and the columns in reverse order."""
    rows, columns = cache.shape
    near = nl.ndarray((rows, 4), dtype=cache.dtype, buffer=nl.shared_hbm)
    reversed_rows = nl.ndarray((rows, columns), dtype=cache.dtype, buffer=nl.shared_hbm)
    tile = nl.load(cache)
    start = nl.load(position)
    i_p, i_f = nl.mgrid[0:rows, 0:4]
    window = nisa.tensor_copy_dynamic_src(tile[i_p, start[0, 0] + i_f])
    nl.store(near, value=window)
    j_p, j_f = nl.mgrid[0:rows, 0:columns]
    nl.store(reversed_rows, value=nl.copy(tile[j_p, columns - 1 - j_f]))
    return near, reversed_rows


@nki.jit
def routed(scores, k: int = 8):
    """The weights of the best experts of each token: softmax over the eight highest scores, zeros elsewhere."""
    tokens, experts = scores.shape
    weights = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(scores)
    best = nisa.max8(src=tile)
    rest = nisa.nc_match_replace8(data=tile, vals=best, imm=nl.fp32.min)
    is_best = nl.not_equal(tile, rest, dtype=nl.float32)
    shifted = nisa.tensor_scalar(tile, np.subtract, best[:, 0:1])
    powers = nl.exp(shifted) * is_best
    normal = nl.reciprocal(nl.sum(powers, axis=[1], keepdims=True))
    nl.store(weights, value=nl.multiply(powers, normal))
    return weights


@nki.jit
def stacked(x, y):
    """Rows of a tile from partitions where no engine begins: written, read, updated and filled."""
    out = nl.ndarray((64, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    both = nl.ndarray((nl.par_dim(64), 8), dtype=x.dtype, buffer=nl.sbuf)
    both[0:16, :] = nl.exp(nl.load(x))
    both[16:48, :] = nl.multiply(nl.load(y), 2.0)
    both[48:64, :] = nl.copy(both[0:16, :])
    part = nl.add(both[16:48, :], 1.0)
    both[16:48, :] = part
    both[16:48, :] += 1.5
    both[nl.ds(16, 32), 0:4] = 3.0
    nl.store(out, value=both)
    return out


def cases():
    random = np.random.default_rng(3)
    numbers = random.standard_normal
    return [(resized_twice, [numbers((130, 5, 6)).astype(np.float32)]),
            (pooled_to_size, [numbers((64, 29)).astype(np.float32), 6]),
            (cross_entropy, [numbers((200, 384)).astype(np.float32),
                             random.integers(0, 384, (200, 1)).astype(np.float32)]),
            (window_of_a_cache, [numbers((32, 16)).astype(np.float32), np.array([[5]], np.int32)]),
            (stacked, [numbers((16, 8)).astype(np.float32), numbers((32, 8)).astype(np.float32)]),
            (routed, [numbers((100, 32)).astype(np.float32)])]
