# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the beta generation that keep tiles in Python's containers, and that address parts of tensors and rows."""

import functools
from collections import deque

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np


@nki.jit
def cached_heads(new, cache: nt.mutable_tensor, position):
    """A row of each head's part of a cache, at a position known at run time."""
    heads, rows, d = cache.shape
    pos = nl.load(position)
    for h in nl.static_range(heads):
        nl.store(cache[h][pos, nl.arange(d)[None, :]], nl.load(new[h:h + 1, :]))
    return cache


@nki.jit
def gathered_heads(cache, rows):
    heads, n, d = cache.shape
    out = nl.ndarray((heads, rows.shape[0], d), dtype=cache.dtype, buffer=nl.shared_hbm)
    ix = nl.load(rows)
    for h in nl.static_range(heads):
        part = cache[h]
        nl.store(out[h], nl.load(part[ix, nl.arange(d)[None, :]]))
    return out


@nki.jit
def rows_between(x):
    """Each row is copied to the row of the same number of another tile."""
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    low = nl.zeros((n, d), dtype=nl.float32)
    for k in range(n):
        low[k:k + 1, k:d] = nl.copy(tile[k:k + 1, k:d])
    nl.store(out, low)
    return out


@nki.jit
def appended_in_a_loop(x, k):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.load(x)]
    for i in range(3):
        tiles.append(nl.exp(tiles[-1] * 0.1))
    nl.store(out, tiles[-1] + k)
    return out


@nki.jit
def unpacked_rest(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.load(x)]
    while len(tiles) < 3:
        tiles += [nl.exp(tiles[-1] * 0.1)]
    first, *rest = tiles
    *_, last = [*rest, first * 2]
    nl.store(out, rest[0] * first + last)
    return out


@nki.jit
def reversed_pair(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    by, tile = reversed((nl.load(x), 3.0))
    nl.store(out, tile * by)
    return out


@nki.jit
def of_a_dict(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = dict(x=nl.load(x), y=nl.load(y))
    total = functools.reduce(nl.add, tiles.values())
    nl.store(out, total * 2 + tiles["x"])
    return out


@nki.jit
def in_a_queue(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    queue = deque([nl.load(x)], maxlen=2)
    for k in range(3):
        queue.append(nl.add(queue[-1], queue[0]))
    last = queue.pop()
    nl.store(out, last * 2.0)
    return out


def cases():
    r = np.random.default_rng(0)

    def floats(*shape):
        return r.standard_normal(shape).astype(np.float32)
    x, y = floats(64, 8), floats(64, 8)
    return [(cached_heads, (floats(2, 32), floats(2, 192, 32), np.array([[77]], np.int32))),
            (gathered_heads, (floats(3, 60, 16), r.permutation(60)[:20, None].astype(np.int32))),
            (rows_between, (floats(24, 30),)), (appended_in_a_loop, (x, 1.5)), (unpacked_rest, (x,)),
            (reversed_pair, (x,)), (of_a_dict, (x, y)), (in_a_queue, (x,))]


def expected():
    """The same by NumPy alone, in the order of the cases."""
    (new, cache, at), (heads, rows), (square,), (x, k), _, _, (_, y), _ = (arguments for _, arguments in cases())
    cache = cache.copy()
    cache[:, at[0, 0]] = new
    grown, *_ = chain = [np.exp(x * 0.1)]
    for _ in range(2):
        chain.append(np.exp(chain[-1] * 0.1))
    queue = [x]
    for _ in range(3):
        queue = [*queue, queue[-1] + queue[0]][-2:]
    return [cache, heads[:, rows[:, 0]], np.triu(square), chain[-1] + k, grown * x + 2 * x, 3 * x, 2 * (x + y) + x,
            2 * queue[-1]]
