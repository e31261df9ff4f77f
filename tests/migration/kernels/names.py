# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Less used names of the beta generation, other ways to import it, and Python around tiles."""

import math

import neuronxcc.nki.isa as ISA
import neuronxcc.nki.language as NL
import numpy as np
from neuronxcc import nki
from neuronxcc.nki.isa import tensor_copy
from neuronxcc.nki.language import affine_range, load, ndarray, shared_hbm, store

FUNCTIONS = {"exp": NL.exp, "square": NL.square}
ROWS, COLS = 32, 24


def output_like(x):
    return ndarray(x.shape, dtype=x.dtype, buffer=shared_hbm)


@nki.jit
def imported_names(x):
    out = output_like(x)
    for i in affine_range(x.shape[0] // ROWS):
        rows = load(x[i * ROWS:(i + 1) * ROWS, :])
        store(out[i * ROWS:(i + 1) * ROWS, :], tensor_copy(rows))
    return out


@nki.jit
def function_of_a_table(x, name="exp"):
    out = output_like(x)
    function = FUNCTIONS[name]
    result = NL.ndarray((128, COLS), dtype=x.dtype)
    result[...] = NL.exp(load(x)) if name == "exp" else NL.square(load(x))
    assert function in FUNCTIONS.values()
    store(out, result)
    return out


@nki.jit
def function_by_condition(x, scale=1.5):
    out = output_like(x)
    function = NL.exp if scale > 1 else NL.square
    store(out, function(load(x)))
    return out


def applied(function, tile):
    return NL.multiply(function(tile), 2.0)


@nki.jit
def function_as_argument(x):
    out = output_like(x)
    store(out, applied(NL.tanh, load(x)))
    return out


@nki.jit
def lambda_of_an_index(x):
    out = output_like(x)
    rows = lambda i: NL.ds(i * ROWS, ROWS)
    for i in NL.affine_range(4):
        store(out[rows(i), :], NL.silu(load(x[rows(i), :])))
    return out


@nki.jit
def enumerated(x):
    out = output_like(x)
    for k, (start, size) in enumerate(zip((0, 8, 20), (8, 12, 4))):
        store(out[:, start:start + size], load(x[:, start:start + size]) + float(k))
    return out


@nki.jit
def searched(x):
    out = output_like(x)
    size = 1
    while size * 2 <= min(128, x.shape[0]) and x.shape[0] % (size * 2) == 0:
        size *= 2
    for i in NL.affine_range(x.shape[0] // size):
        store(out[NL.ds(i * size, size), :], NL.gelu(load(x[NL.ds(i * size, size), :])))
    return out


@nki.jit
def two_indices(x):
    out = ndarray((4, 32, 24), dtype=x.dtype, buffer=shared_hbm)
    view = x.reshape((4, 32, 24))
    for i in NL.affine_range(4):
        store(out[3 - i, :, :], load(view[i, :, :]))
    return out


@nki.jit
def normed(x, g):
    out = output_like(x)
    store(out, NL.rms_norm(load(x), load(g), axis=1, n=COLS))
    return out


@nki.jit
def soft(x):
    out = output_like(x)
    store(out, NL.softmax(load(x), axis=1))
    return out


@nki.jit
def alike(x):
    out = output_like(x)
    tile = load(x)
    zeros = NL.zeros_like(tile)
    kept = NL.empty_like(tile)
    kept[...] = NL.maximum(tile, zeros)
    store(out, kept)
    return out


@nki.jit
def integers(n):
    out = output_like(n)
    tile = load(n)
    shifted = NL.left_shift(NL.bitwise_and(tile, 7), 2)
    store(out, NL.bitwise_or(shifted, NL.right_shift(tile, 4)))
    return out


@nki.jit
def logical(x, y):
    out = ndarray(x.shape, dtype=NL.uint8, buffer=shared_hbm)
    a, b = load(x), load(y)
    store(out, NL.logical_and(NL.greater(a, 0.0), NL.less_equal(b, 0.5), dtype=NL.uint8))
    return out


@nki.jit
def predicated(x, y):
    out = output_like(x)
    a, b = load(x), load(y)
    chosen = NL.greater(a, b, dtype=NL.uint8)
    kept = NL.copy(b)
    ISA.tensor_copy_predicated(src=a, dst=kept, predicate=chosen)
    store(out, kept)
    return out


@nki.jit
def over_partitions(x):
    out = ndarray((1, COLS), dtype=x.dtype, buffer=shared_hbm)
    store(out, ISA.tensor_partition_reduce(np.add, load(x)))
    return out


@nki.jit
def identity_product(x):
    out = ndarray((ROWS, COLS), dtype=x.dtype, buffer=shared_hbm)
    identity = load(NL.shared_identity_matrix(ROWS, dtype=x.dtype))
    product = ISA.nc_matmul(identity, load(x[0:ROWS, :]))
    store(out, NL.copy(product, dtype=x.dtype))
    return out


@nki.jit
def statistics(x):
    out = ndarray((128, 2), dtype=x.dtype, buffer=shared_hbm)
    parts = NL.ndarray((128, 2, 6), dtype=NL.float32)
    tile = load(x)
    for k in NL.affine_range(2):
        parts[:, k, :] = ISA.bn_stats(tile[:, k * 12:(k + 1) * 12])
    store(out, ISA.bn_aggr(parts))
    return out


@nki.jit
def replaced(x):
    out = output_like(x)
    tile = load(x)
    top = ISA.max8(src=tile)
    store(out, ISA.nc_match_replace8(data=tile, vals=top, imm=-1.0))
    return out


@nki.jit
def programs_that_count(x):
    out = ndarray(x.shape, dtype=x.dtype, buffer=shared_hbm)
    n = NL.num_programs(0)
    rows = x.shape[0] // n
    i = NL.program_id(0)
    store(out[NL.ds(i * rows, rows), :], NL.multiply(load(x[NL.ds(i * rows, rows), :]), float(n)))
    return out


@nki.jit
def ceiling(x):
    out = output_like(x)
    step = 50
    p = NL.arange(step)[:, None]
    f = NL.arange(COLS)[None, :]
    for i in NL.affine_range(math.ceil(x.shape[0] / step)):
        row = i * step + p
        tile = load(x[row, f], mask=row < x.shape[0])
        total = NL.sum(tile, axis=1, keepdims=True, mask=row < x.shape[0])
        store(out[row, f], NL.subtract(tile, total, mask=row < x.shape[0]), mask=row < x.shape[0])
    return out


@nki.jit
def images(image):
    channels, height, width = image.shape
    out = ndarray((channels, height - 2, width - 2), dtype=image.dtype, buffer=shared_hbm)
    c = NL.arange(channels)[:, None, None]
    h = NL.arange(height - 2)[None, :, None]
    w = NL.arange(width - 2)[None, None, :]
    tile = load(image)
    total = NL.zeros((channels, height - 2, width - 2), dtype=NL.float32)
    for dy in NL.static_range(3):
        for dx in NL.static_range(3):
            total[c, h, w] = NL.add(total[c, h, w], tile[c, h + dy, w + dx])
    store(out, NL.multiply(total, 1.0 / 9))
    return out


@nki.jit
def sums_of_windows(image):
    channels, height, width = image.shape
    out = ndarray((channels, height // 2, width // 2), dtype=image.dtype, buffer=shared_hbm)
    c, h, dy, w, dx = NL.mgrid[0:channels, 0:height // 2, 0:2, 0:width // 2, 0:2]
    tile = load(image)
    store(out, NL.sum(tile[c, h * 2 + dy, w * 2 + dx], axis=[2, 4]))
    return out


def cases():
    rng = np.random.default_rng(0)
    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    x, y = floats(128, COLS), floats(128, COLS)
    one = [imported_names, function_of_a_table, function_by_condition, function_as_argument, lambda_of_an_index,
           enumerated, searched, two_indices, soft, alike, over_partitions, identity_product, statistics, replaced,
           ceiling]
    image = floats(16, 8, 10)
    return [*((kernel, (x,)) for kernel in one), (normed, (x, floats(1, COLS))),
            (integers, (rng.integers(0, 1000, (64, 16)).astype(np.int32),)), (logical, (x, y)), (predicated, (x, y)),
            (programs_that_count[4], (x,)), (images, (image,)), (sums_of_windows, (image,))]
