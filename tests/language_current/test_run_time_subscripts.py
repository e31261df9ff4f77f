# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers and tiles of integers as subscripts, in every dimension of tensors on chip and in HBM; empty slices."""

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl

from .running import check, numbers, run

X = numbers(32, 4, 6)


def register(value):
    loaded = nisa.register_alloc(0)
    nisa.register_load(loaded, value)
    return loaded


SUBSCRIPTS = {
    "t[:, i]": (lambda t, i: t[:, i], lambda x, i: x[:, i], 4),
    "t[:, i, 2:5]": (lambda t, i: t[:, i, 2:5], lambda x, i: x[:, i, 2:5], 4),
    "t[..., i]": (lambda t, i: t[..., i], lambda x, i: x[..., i], 6),
    "t[3:9, :, i]": (lambda t, i: t[0:9, ::2, i], lambda x, i: x[0:9, ::2, i], 6),
    "t[:, 2, i]": (lambda t, i: t[:, 2, i], lambda x, i: x[:, 2, i:i + 1], 6),
    "t[:, ds(i, 2)]": (lambda t, i: t[:, nl.ds(i, 2), 1], lambda x, i: x[:, i:i + 2, 1], 3),
    "t[:, :, ds(i, 3)]": (lambda t, i: t[:, 1:, nl.ds(i, 3)], lambda x, i: x[:, 1:, i:i + 3], 4),
    "t[i]": (lambda t, i: t[i], lambda x, i: x[i:i + 1], 32),
    "t[i, :, 1]": (lambda t, i: t[i, :, 1], lambda x, i: x[i:i + 1, :, 1], 32),
    "t[ds(i, 5), 2]": (lambda t, i: t[nl.ds(i, 5), 2], lambda x, i: x[i:i + 5, 2], 28),
    "t[1:, ::2][i]": (lambda t, i: t[1:, ::2][i], lambda x, i: x[i + 1:i + 2, ::2], 31),
    "t.select(0, i)": (lambda t, i: t.select(0, i), lambda x, i: x[i:i + 1], 32),
    "t.select(2, i)": (lambda t, i: t.select(2, i), lambda x, i: x[..., i], 6),
    "t[2:, :, ::2].select(2, i)": (lambda t, i: t[0:8, :, ::2].select(2, i), lambda x, i: x[0:8, :, ::2][..., i], 3),
}
# What of these is another shape in HBM, where integers leave no dimension behind.
IN_HBM = {"t[:, 2, i]": lambda x, i: x[:, 2, i], "t[i]": lambda x, i: x[i], "t[i, :, 1]": lambda x, i: x[i, :, 1],
          "t[1:, ::2][i]": lambda x, i: x[i + 1, ::2], "t.select(0, i)": lambda x, i: x[i]}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", SUBSCRIPTS)
@pytest.mark.parametrize("kind", ["tile", "register"])
def test_read_and_written(on, name, kind):
    make, expect, extent = SUBSCRIPTS[name]

    def kernel(x, at, values):
        index = nl.load(at)
        value = index[0, 0] if kind == "tile" else register(index)
        tile, source = nl.load(x), nl.load(values)
        read = nl.ndarray(source.shape, x.dtype)
        nisa.dma_copy(read, make(tile, value))
        nisa.dma_copy(make(tile, value), source)
        outputs = [nl.ndarray(t.shape, t.dtype, buffer=nl.shared_hbm) for t in (read, tile)]
        for out, t in zip(outputs, (read, tile)):
            nisa.dma_copy(out, t)
        return tuple(outputs)

    def in_hbm(x, at, values):
        index = nl.load(at)
        value = index[0, 0] if kind == "tile" else register(index)
        read = nl.ndarray(values.shape, x.dtype, buffer=nl.shared_hbm)
        updated = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(updated, x)
        nisa.dma_copy(read, make(x, value))
        nisa.dma_copy(make(updated, value), values)
        return read, updated
    for i in (0, extent - 1):
        for body, wanted in ((kernel, expect), (in_hbm, IN_HBM.get(name, expect))):
            expected, places = wanted(X, i), wanted(np.arange(X.size).reshape(X.shape), i)
            written = X.copy()
            written.reshape(-1)[places] = expected + 1000
            read, updated = run(on, body, X, np.array([[i]], np.int32), expected + 1000)
            np.testing.assert_array_equal(read, expected)
            np.testing.assert_array_equal(updated, written)
    for i in (-1, extent):
        for body in (kernel, in_hbm):
            new_values = expect(X, 0) if body is kernel else IN_HBM.get(name, expect)(X, 0)
            with pytest.raises(IndexError, match=r"index -?\d+ is out of bounds"):
                run(on, body, X, np.array([[i]], np.int32), new_values)


@pytest.mark.parametrize(("make", "rows"), [
    (lambda t, v: t[v], lambda x, v: x[v]), (lambda t, v: t[v, 1:3], lambda x, v: x[v, 1:3]),
    (lambda t, v: t[v, 2], lambda x, v: x[v, 2]), (lambda t, v: t[v][:, :, ::2], lambda x, v: x[v][:, :, ::2]),
    (lambda t, v: t[4:20][v], lambda x, v: x[4:20][v])], ids=["rows", "parts", "column", "steps", "of a part"])
@pytest.mark.parametrize("memory", ["sbuf", "hbm"])
def test_a_tile_of_indices_picks_rows(on, make, rows, memory):
    indices = np.array([3, 0, 15, 7, 7])
    places = rows(np.arange(X.size).reshape(X.shape), indices)

    def kernel(x, at, values):
        index = nl.load(at)
        updated = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = updated
        if memory == "sbuf":
            tile = nl.load(x)
        else:
            nisa.dma_copy(updated, x)
        read = nl.ndarray(values.shape, x.dtype)
        nisa.dma_copy(read, make(tile, index))
        nisa.dma_copy(make(tile, index), nl.load(values))
        if memory == "sbuf":
            nisa.dma_copy(updated, tile)
        out = nl.ndarray(read.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, read)
        return out, updated
    expected = X.reshape(-1)[places]
    values = expected + 1000
    values[3] = values[4]               # of equal indices
    written = X.copy()
    written.reshape(-1)[places] = values
    read, updated = run(on, kernel, X, indices[:, None].astype(np.int32), values)
    np.testing.assert_array_equal(read, expected)
    np.testing.assert_array_equal(updated, written)


def test_rows_behind_an_integer(on):
    def kernel(x, at):
        out = nl.ndarray((3, 6), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x[5, nl.load(at)])
        return out
    np.testing.assert_array_equal(run(on, kernel, X, np.array([[3], [0], [2]], np.uint32)), X[5, [3, 0, 2]])


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("memory", ["sbuf", "hbm"])
def test_patterns_in_every_dimension(on, dim, memory):
    """``.ap(scalar_offset=, indirect_dim=)``: the value counts the dimension of the whole tensor."""
    x = X.reshape(32, 2, 2, 6)
    pattern = [[24, 3], [12, 2], [1, 2]] if dim != 1 else [[24, 3], [1, 2]]
    value, steps = 1, (24, 12, 6, 1)
    places = sum(np.arange(n).reshape(-1, *(1,) * (len(pattern) - 1 - k)) * s for k, (s, n) in enumerate(pattern))
    expected = x.reshape(-1)[places + 2 + value * steps[dim]]

    def kernel(x, at):
        source = nl.load(x) if memory == "sbuf" else x
        picked, out = (nl.ndarray(expected.shape, x.dtype, **b) for b in ({}, {"buffer": nl.shared_hbm}))
        nisa.dma_copy(picked, source.ap(pattern, offset=2, scalar_offset=nl.load(at), indirect_dim=dim))
        nisa.dma_copy(out, picked)
        return out
    np.testing.assert_array_equal(run(on, kernel, x, np.array([[value]], np.int32)), expected)


REFUSED = {
    "two": (lambda t, i: t[:, i, i], "a second index cannot address a tensor that is already indexed at run time"),
    "a float": (lambda t, i: t[:, nl.zeros((1, 1), nl.float32)], "an index tensor must have integers, got a tensor of float32"),
    "indices of a free dimension": (lambda t, i: t[:, nl.zeros((4, 1), nl.int32)],
                                    "a tensor of 4 indices can only index the first dimension that no integer indexes, not dim"),
    "a table": (lambda t, i: t[nl.zeros((4, 2), nl.int32)], r"a tile of indices must have shape \[N, 1\], got \[4, 2\]"),
    "a broadcast": (lambda t, i: t[:, 0:1].broadcast(1, 5)[:, i], "a broadcast dimension cannot be indexed at run time"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(on, name):
    make, text = REFUSED[name]
    with pytest.raises(AssertionError, match=text):
        check(on, lambda d, t: make(t, nl.zeros((1, 1), nl.int32)), X, X)


# -- empty slices ------------------------------------------------------------------------------------------------------
def test_empty_parts_are_left_alone(on):
    """A remainder of nothing: instructions on it do nothing."""
    def kernel(x):
        tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rest = tile[:, 4:4]
        assert rest.shape == (32, 0, 6) and rest.size == 0 and tile[0:0].shape == (0, 4, 6)
        nisa.tensor_copy(tile[:, 0:0], rest)
        nisa.tensor_tensor(rest, rest, rest, nl.add)
        nisa.tensor_scalar(tile[0:0], tile[0:0], nl.multiply, 3.0)
        nisa.activation(rest, nl.exp, rest, bias=tile[:, 0, 0:1])
        nisa.memset(tile[:, :, 6:6], 1.0)
        nisa.dma_copy(rest, x[:, 0:0])
        nisa.dma_copy(out, tile)
        nisa.dma_copy(out[3:3], tile[0:0])
        return out
    np.testing.assert_array_equal(run(on, kernel, X), X)


def test_an_empty_part_beside_one_that_is_not(on):
    for body, text in ((lambda d, t: nisa.tensor_copy(d[:, 0:0], t), r"dst of shape \[32, 0\] is empty, an operand of"),
                       (lambda d, t: nisa.tensor_copy(d, t[:, 0:0]), r"src has 0 elements per partition"),
                       (lambda d, t: nisa.activation(d, nl.exp, t[:, 2:2]), r"0 elements per partition"),
                       (lambda d, t: t[:, 3:2], r"slice 3:2 of a dimension with size 24")):
        with pytest.raises(AssertionError, match=text):
            check(on, body, X.reshape(32, 24), X.reshape(32, 24))
