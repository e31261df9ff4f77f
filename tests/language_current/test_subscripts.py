# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts of tensors in HBM and on chip, against those of an array that has the number of each element."""

import random
from math import prod

import numpy as np
import pytest

from nki_mlir.language.current import indexing, nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl


def in_a_kernel(look):
    """Return what a function returns in a kernel."""
    looks = []

    def kernel(x):
        looks.append(look())
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    nki.simulate(kernel)(np.zeros((1, 1), np.float32))
    return looks[0]


def numbers_of(view):
    """The numbers of the elements of a view, in its shape."""
    total = np.full(tuple(view.shape), view.offset)
    for axis, (n, step) in enumerate(zip(view.shape, view.strides)):
        total = total + (np.arange(n) * step).reshape([-1 if k == axis else 1 for k in range(len(view.shape))])
    return total


def drawn_item(rng, extent):
    """A subscript of one dimension, and whether it lies inside."""
    match rng.randrange(7):
        case 0 | 1:
            n = rng.randint(-extent - 1, extent)
            return (np.int64(n) if rng.random() < 0.3 else n), -extent <= n < extent
        case 2:
            start, size = rng.randint(0, extent), rng.randint(1, 4)
            return nl.ds(start, size), start + size <= extent
        case 3:
            return slice(None), True
        case 4:
            return slice(None, None, step := rng.choice([1, 2, 3, 5, 0, -1])), step > 0
    start, stop = (rng.choice([None, rng.randint(-extent - 1, extent + 1)]) for _ in range(2))
    low, high = (default if n is None else n + extent if n < 0 else n for n, default in ((start, 0), (stop, extent)))
    return slice(start, stop, rng.choice([None, 1, 2, 3])), 0 <= low <= high <= extent


def expected(array, items, on_chip):
    """NumPy's elements. On chip the partition stays, and so does one free dimension: the last that an integer removes.
    """
    every = [i for i in items if i is not Ellipsis]
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    every = [*items[:at], *[slice(None)] * (array.ndim - len(every)), *items[at + 1:]]
    dropped = [d for d, i in enumerate(every) if not isinstance(i, slice) and (d or not on_chip)]
    if dropped and array.ndim - len(dropped) < (2 if on_chip else 1):
        dropped.pop()
    kept = [slice(i, i + 1 if i != -1 else None) if not isinstance(i, slice) and d not in dropped else i
            for d, i in enumerate(every)]
    return array[tuple(kept)]


@pytest.mark.parametrize("on_chip", [False, True])
def test_subscripts__select_the_elements_that_numpy_selects(on_chip):
    rng, kinds = random.Random(on_chip), {True: 0, False: 0}

    def look():
        for _ in range(500):
            shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(2, 4) if on_chip else rng.randint(1, 3)))
            tensor = nl.ndarray(shape, nl.float32, buffer=nl.sbuf if on_chip else nl.shared_hbm)
            array = np.arange(prod(shape)).reshape(shape)
            assert np.array_equal(numbers_of(tensor), array)
            for _ in range(2):                                      # of the tensor, then of its part
                items, inside = zip(*[drawn_item(rng, n) for n in tensor.shape])
                if rng.random() < 0.3:
                    at = rng.randint(0, len(items))
                    items, inside = (*items[:at], Ellipsis), inside[:at]
                kinds[all(inside)] += 1
                if not all(inside):
                    with pytest.raises((IndexError, ValueError, AssertionError), match=r"out of range|zero or negative"):
                        tensor[items]
                    break
                part = tensor[items[0] if len(items) == 1 else items]
                array = expected(array, items, on_chip)
                assert np.array_equal(numbers_of(part), array), (shape, items)
                if 0 in part.shape:
                    break
                tensor = part
    in_a_kernel(look)
    assert min(kinds.values()) > 100


def test_index_vectors__select_the_elements_that_numpy_selects():
    rng = random.Random(4)

    def look():
        for _ in range(150):
            shape = tuple(rng.randint(3, 6) for _ in range(rng.randint(2, 3)))
            on_chip = rng.random() < 0.5
            tensor = nl.ndarray(shape, nl.float32, buffer=nl.sbuf if on_chip else nl.shared_hbm)
            array, rank = np.arange(prod(shape)).reshape(shape), 2
            items, arrays = [], []
            for d, n in enumerate(shape):
                count, step = rng.randint(1, 2), rng.randint(1, 2)
                start = rng.randint(0, n - 1 - (count - 1) * step)
                if rng.random() < 0.3:
                    number = rng.choice([start, start - n])
                    items.append(number)
                    arrays.append(number)
                    continue
                axis = min(d, rank - 1)
                subscript = tuple(slice(None) if k == axis else None for k in range(rank))
                size = 3 if axis == rank - 1 and count > 1 else count
                size = min(size, (n - 1 - start) // step + 1) if len(shape) == 2 else count
                items.append(nl.arange(size)[subscript] * step + start)
                arrays.append((np.arange(size) * step + start)[subscript])
            if not any(isinstance(i, np.ndarray) for i in arrays) or (
                    len(shape) == 3 and len({a.shape[1] for a in arrays[1:] if isinstance(a, np.ndarray)}) > 1):
                continue
            wanted = array[tuple(arrays)]
            assert np.array_equal(numbers_of(tensor[tuple(items)]), wanted), (shape, items)
    in_a_kernel(look)


@pytest.mark.parametrize("subscript, message", [
    (lambda t: t[Ellipsis, Ellipsis], r"can have one ellipsis \(\.\.\.\) at most"), (lambda t: t[0, 0, 0], "too many indexes for shape"),
    (lambda t: t[0, None, 0], r"tile.expand_dim\(dim\)"), (lambda t: t[True], "a bool cannot be an index"),
    (lambda t: t[[0, 1]], "nested tuple/list"), (lambda t: t[1.5], "a value of type float cannot be an index"),
    (lambda t: t[0:4:0], "zero or negative"), (lambda t: t[3:2], "start the slice at 0 or more, and before its end"),
    (lambda t: t[0:9], "end the slice at 4"), (lambda t: t[4], "use -4 to 3"), (lambda t: t[-5], "use -4 to 3"),
    (lambda t: t[nl.arange(4)[:, None], 0:2], "mixes slices with index tensors"),
    (lambda t: t[nl.arange(5)[:, None], nl.arange(4)[None, :]], "indices 0 to 4 of dimension 0 with size 4"),
    (lambda t: t[nl.arange(4)[:, None] - 1, nl.arange(4)[None, :]], "indices -1 to 2 of dimension 0"),
    (lambda t: t[nl.arange(4)[None, :], nl.arange(4)[None, :]], "the first dimension of index tensors is the partition"),
    (lambda t: t[0, nl.arange(4)[:, None] + nl.arange(1)[None, :]], "varies along the partition"),
    (lambda t: nl.ds(0, -1), "size"), (lambda t: t[t], "an index tensor must have integers")])
def test_wrong_subscripts(subscript, message):
    def look():
        with pytest.raises(Exception, match=message):
            subscript(nl.ndarray((4, 6), nl.float32, buffer=nl.sbuf))
    in_a_kernel(look)


def test_slices_of_a_start_and_a_size():
    assert nl.ds(3, 4) == slice(3, 7, 1) and nl.ds(np.int32(0), 0) == slice(0, 0, 1)
    assert indexing.RegisterSlice(None, 4).size == 4


@pytest.mark.parametrize("rows", [[3, 0, 2], [1]])
def test_indices_in_tiles__gather_and_select_rows(rows):
    """A tile of several integers gathers rows of a tensor in HBM, after dimensions that integers index; a tile of one
    selects a row, or the first of a slice."""
    x = np.arange(5 * 4 * 6, dtype=np.float32).reshape(5, 4, 6)

    def kernel(x, i):
        n = i.shape[0]
        tile = nl.ndarray((n, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(tile, i)
        out = nl.ndarray((n, 4), nl.float32, buffer=nl.shared_hbm)
        if n == 1:
            nisa.dma_copy(out, x[nl.ds(tile, 1), 2, 1:5])
            first = nl.ndarray((1, 4), nl.float32, buffer=nl.shared_hbm)
            nisa.dma_copy(first, x[2, tile, 1:5])
            return out, first
        nisa.dma_copy(out, x[2, tile, 1:5])
        return out
    results = nki.simulate(kernel)(x, np.array(rows, np.int32)[:, None])
    if len(rows) == 1:
        np.testing.assert_array_equal(results[0], x[rows, 2, 1:5])
        np.testing.assert_array_equal(results[1], x[2, rows, 1:5])
    else:
        np.testing.assert_array_equal(results, x[2, rows, 1:5])


@pytest.mark.parametrize("subscript, message", [
    (lambda x, t: x[0:2, t], "only index the first dimension"), (lambda x, t: x[t, t], "second index|first dimension"),
    (lambda x, t: x[t[0:1, 0:1], t[0:1, 0:1]], "second index")])
def test_wrong_indices_in_tiles(subscript, message):
    def kernel(x):
        tile = nl.ndarray((3, 1), nl.int32, buffer=nl.sbuf)
        nisa.memset(tile, 0)
        with pytest.raises(Exception, match=message):
            subscript(x, tile)
        return x
    nki.simulate(kernel)(np.zeros((5, 4, 6), np.float32))
