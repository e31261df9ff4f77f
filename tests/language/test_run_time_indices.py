# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of a tile as subscripts, in every dimension of tiles and of tensors in HBM: places by NumPy, random shapes."""


import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds
from nki_mlir.language import indirect
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, numbers, run

X = numbers(4, 8, 6)


def out(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def axis(k, rank, n):
    """An index along one of several axes."""
    return nl.arange(n)[tuple(slice(None) if a == k else None for a in range(rank))]


P, F = nl.arange(4)[:, None], nl.arange(6)[None, :]
IX, IY, IZ = axis(0, 3, 4), axis(1, 3, 8), axis(2, 3, 6)
J, K = axis(1, 3, 3), axis(2, 3, 3)
# By its text: a subscript of a kernel, and the same elements in NumPy. The indices a and b are known at run time.
SUBSCRIPTS = {
    "t[p, a, f]": (lambda t, a, b: t[P, a, F], lambda x, a, b: x[:, a, :]),
    "t[:, a, :]": (lambda t, a, b: t[:, a, :], lambda x, a, b: x[:, a, :]),
    "t[:, a]": (lambda t, a, b: t[:, a], lambda x, a, b: x[:, a]),
    "t[..., b]": (lambda t, a, b: t[..., b], lambda x, a, b: x[..., b]),
    "t[1:3, :, b]": (lambda t, a, b: t[0:3, :, b], lambda x, a, b: x[0:3, :, b]),
    "t[:, 2, b]": (lambda t, a, b: t[:, 2, b], lambda x, a, b: x[:, 2, b:b + 1]),
    "t[:, a + 1, ::2]": (lambda t, a, b: t[:, a + 1, ::2], lambda x, a, b: x[:, a + 1, ::2]),
    "t[x, y, b + z]": (lambda t, a, b: t[IX, IY, b + K], lambda x, a, b: x[:, :, b:b + 3]),
    "t[x, a + y, 2 * z + 1]": (lambda t, a, b: t[IX, a + J, 2 * K + 1], lambda x, a, b: x[:, a:a + 3, 1::2]),
    "t[x, a + 5 - y, z]": (lambda t, a, b: t[IX, a + 5 - 2 * J, IZ], lambda x, a, b: x[:, [a + 5, a + 3, a + 1]]),
    "t[x, y, z + b - 1]": (lambda t, a, b: t[IX, J, K + b - 1], lambda x, a, b: x[:, :3, b - 1:b + 2]),
    "t[:, ds(a, 3), 1:6:2]": (lambda t, a, b: t[:, nl.ds(a, 3), 1:6:2], lambda x, a, b: x[:, a:a + 3, 1:6:2]),
    "t[:, a, ds(b, 2)]": (lambda t, a, b: t[:, a, nl.ds(b, 2)], lambda x, a, b: x[:, a, b:b + 2]),
    "t[:, a, b]": (lambda t, a, b: t[:, a, b], lambda x, a, b: x[:, a, b:b + 1]),
    "t[x, a + y, b - z]": (lambda t, a, b: t[IX, a + J, b - axis(2, 3, 2)], lambda x, a, b: x[:, a:a + 3, b - 1:b + 1][..., ::-1]),
    "t[x, a + 2 * y, z + y]": (lambda t, a, b: t[IX, a + 2 * J, K + J],
                               lambda x, a, b: np.stack([x[:, a + 2 * j, j:j + 3] for j in range(3)], 1)),
    "t[a]": (lambda t, a, b: t[a - 1], lambda x, a, b: x[a - 1:a]),
    "t[a + p, y, 2]": (lambda t, a, b: t[a - 1 + nl.arange(2)[:, None], nl.arange(8)[None, :], 2],
                       lambda x, a, b: x[a - 1:a + 1, :, 2]),
    "t[b, :, a]": (lambda t, a, b: t[b, :, a], lambda x, a, b: x[b:b + 1, :, a]),
}


@pytest.mark.parametrize("name", SUBSCRIPTS)
def test_tiles_of_three_dimensions(on, name):
    """Read, and written: other elements stay."""
    make, expect = SUBSCRIPTS[name]

    @nki.jit
    def kernel(x, at, values):
        tile, a, b = nl.load(x), nl.load(at)[0, 0], nl.load(at)[0, 1]
        read = nisa.tensor_copy_dynamic_src(make(tile, a, b))
        nisa.tensor_copy_dynamic_dst(dst=make(tile, a, b), src=nl.load(values))
        first, second = out(read.shape), out(x.shape)
        nl.store(first, read)
        nl.store(second, tile)
        return first, second
    for a, b in ((2, 3), (1, 1)):
        expected, places = expect(X, a, b), expect(np.arange(X.size).reshape(X.shape), a, b)
        written = X.copy()
        written.reshape(-1)[places] = expected + 1000
        check(on, kernel, (expected, written), X, np.array([[a, b]], np.int32), expected + 1000)


IN_HBM = {
    "t[a]": (lambda t, a, b: t[a], lambda x, a, b: x[a]),
    "t[a, :, :]": (lambda t, a, b: t[a, :, :], lambda x, a, b: x[a]),
    "t[a, p, f]": (lambda t, a, b: t[a, axis(0, 2, 8), axis(1, 2, 6)], lambda x, a, b: x[a]),
    "t[a, 2]": (lambda t, a, b: t[a, 2], lambda x, a, b: x[a:a + 1, 2]),
    "t[a, 2:6, 3]": (lambda t, a, b: t[a, 2:6, 3], lambda x, a, b: x[a, 2:6, 3:4].reshape(1, 4)),
    "t[:, :, b]": (lambda t, a, b: t[:, :, b], lambda x, a, b: x[..., b]),
    "t[:, a, :]": (lambda t, a, b: t[:, a, :], lambda x, a, b: x[:, a]),
    "t[:, a, 2]": (lambda t, a, b: t[:, a, 2], lambda x, a, b: x[:, a, 2:3]),
    "t[a, b]": (lambda t, a, b: t[a, b], lambda x, a, b: x[a:a + 1, b]),
    "t[a, :, b]": (lambda t, a, b: t[a, :, b], lambda x, a, b: x[a, :, b:b + 1].reshape(1, 8)),
    "t[ds(a, 2), 3]": (lambda t, a, b: t[nl.ds(a, 2), 3], lambda x, a, b: x[a:a + 2, 3]),
    "t[1, ds(a, 3), ds(b, 2)]": (lambda t, a, b: t[1, nl.ds(a, 3), nl.ds(b, 2)], lambda x, a, b: x[1, a:a + 3, b:b + 2]),
    "t[a + p, 2 * f, 1]": (lambda t, a, b: t[a + axis(0, 2, 2), 2 * axis(1, 2, 4), 1], lambda x, a, b: x[a:a + 2, ::2, 1]),
}


@pytest.mark.parametrize("name", IN_HBM)
def test_tensors_in_hbm(on, name):
    make, expect = IN_HBM[name]

    @nki.jit
    def kernel(x, at, values):
        a, b = nl.load(at)[0, 0], nl.load(at)[0, 1]
        read, stored = nl.load(make(x, a, b)), out(x.shape)
        nl.store(stored, nl.load(x.reshape((4, 48))).reshape((4, 8, 6)))
        nl.store(make(stored, a, b), nl.load(values))
        first = out(read.shape)
        nl.store(first, read)
        return first, stored
    for a, b in ((2, 3), (1, 0)):
        expected, places = expect(X, a, b), expect(np.arange(X.size).reshape(X.shape), a, b)
        written = X.copy()
        written.reshape(-1)[places] = expected + 1000
        check(on, kernel, (expected, written), X, np.array([[a, b]], np.int32), expected + 1000)


PARTS = {
    "t[a][2:5, 1:3]": (lambda t, a: t[a][2:5, 1:3], lambda x, a: x[a, 2:5, 1:3]),
    "t[a][::3, 2]": (lambda t, a: t[a][::3, 2], lambda x, a: x[a, ::3, 2:3]),
    "t[a][4]": (lambda t, a: t[a][4], lambda x, a: x[a, 4][:, None]),
    "t[:, a][p, f]": (lambda t, a: t[:, a][1 + axis(0, 2, 2), 2 * axis(1, 2, 3)], lambda x, a: x[1:3, a, ::2]),
    "t[ds(a, 2), :, 3][...][1, 2:]": (lambda t, a: t[nl.ds(a, 2), :, 3][...][0:2, 2:], lambda x, a: x[a:a + 2, 2:, 3]),
    "t[a][1:7, :][2:, ds(1, 4)]": (lambda t, a: t[a][1:7, :][2:, nl.ds(1, 4)], lambda x, a: x[a, 3:7, 1:5]),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_what_a_value_names_in_hbm(on, name):
    make, expect = PARTS[name]

    @nki.jit
    def kernel(x, at, values):
        a, stored = nl.load(at), out(x.shape)
        first = out(values.shape)
        nl.store(first, nl.load(make(x, a[0, 0])))
        nl.store(stored, nl.load(x))
        nl.store(make(stored, a[0, 0]), nl.load(values))
        return first, stored
    expected, written = expect(X, 2), X.copy()
    written.reshape(-1)[expect(np.arange(X.size).reshape(X.shape), 2)] = expected + 1000
    check(on, kernel, (expected, written), X, np.array([[2]], np.int32), expected + 1000)


def test_parts_that_are_outside_of_it(on):
    @nki.jit
    def kernel(x, at):
        read = nl.load(x[nl.load(at)][2:9, :])
        return read
    with pytest.raises(IndexError, match=r"dimension 0: index range \[2, 8\]"):
        run(on, kernel, X, np.array([[2]], np.int32))


OUTSIDE = {
    "the middle": (lambda t, a: t[:, a, :], (-1, 8, 100)),
    "the last": (lambda t, a: t[:, :, a], (-1, 6)),
    "an index beside": (lambda t, a: t[IX, a + J, K], (-1, 6, 7)),
    "a negative step": (lambda t, a: t[IX, a - J, K], (1, 8)),
    "an extent": (lambda t, a: t[:, nl.ds(a, 3), 1], (-1, 6)),
    "the first": (lambda t, a: t[a], (-1, 4)),
    "the first, an extent": (lambda t, a: t[a + nl.arange(2)[:, None], 1, F], (-1, 3)),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("memory", ["sbuf", "hbm"])
def test_bounds_are_those_of_the_dimension(on, name, memory):
    """Also where the place is still in the tensor; negative values count from nowhere."""
    make, values = OUTSIDE[name]

    @nki.jit
    def reading(x, at):
        value = nl.load(at)[0, 0]
        read = nl.load(make(x, value)) if memory == "hbm" else nisa.tensor_copy_dynamic_src(make(nl.load(x), value))
        result = out(read.shape)
        nl.store(result, read)
        return result

    @nki.jit
    def writing(x, at):
        value, result = nl.load(at)[0, 0], out(x.shape)
        tile = nl.load(x)
        shape = make(x, value).shape
        if memory == "hbm":
            nl.store(result, tile)
            nl.store(make(result, value), nl.zeros(shape, x.dtype))
        else:
            nisa.tensor_copy_dynamic_dst(dst=make(tile, value), src=nl.zeros(make(tile, value).shape, x.dtype))
            nl.store(result, tile)
        return result
    for value in values:
        for kernel in (reading, writing):
            with pytest.raises(IndexError, match=r"index -?\d+ is out of bounds") as raised:
                run(on, kernel, X, np.array([[value]], np.int32))
            assert isinstance(raised.value.__cause__, IndirectOutOfBounds)


def test_the_error_counts_elements_of_the_whole_tensor(on):
    """The first access that is outside, where it would lie in the tensor, flattened."""
    cases = ((lambda x, a: x[:, a, 2:4], 9, 9 * 6 + 2), (lambda x, a: x[a, axis(0, 2, 8), 1 + axis(1, 2, 3)], -1, 1 - 48),
             (lambda x, a: x[1, nl.ds(a, 3), ::2], 6, 48 + 8 * 6), (lambda x, a: x[2, 3, a], 6, 2 * 48 + 3 * 6 + 6))
    for make, value, flat in cases:
        @nki.jit
        def kernel(x, at, make=make):
            read = nl.load(make(x, nl.load(at)[0, 0]))
            result = out(read.shape)
            nl.store(result, read)
            return result
        with pytest.raises(IndexError, match=rf"^index {flat} is out of bounds for axis 0 with size {X.size}$"):
            run(on, kernel, X, np.array([[value]], np.int32))


def test_the_error_names_the_index_that_is_out_of_bounds(on):
    """Of two run-time indices, it is the second one."""
    @nki.jit
    def kernel(x, at):
        offsets = nl.load(at)
        read = nl.load(x[offsets[0, 0], offsets[0, 1], axis(0, 2, 6)])
        result = out(read.shape)
        nl.store(result, read)
        return result
    with pytest.raises(IndexError, match="is out of bounds for axis 0") as raised:
        run(on, kernel, X, np.array([[1, 9]], np.int32))
    assert raised.value.__cause__.advice[0] == "a run-time index is 9, and must be at least 0 and below 8"


def test_rows_and_a_place_of_each(on):
    """An index tile of rows, and one value for all of them: in HBM."""
    @nki.jit
    def kernel(x, rows, at):
        index, a = nl.load(rows), nl.load(at)[0, 0]
        f, elements = nl.arange(3)[None, :], out((3, 3))
        nl.store(elements, nl.load(x[index, a, 1 + f]))
        full_rows, stored = out((3, 6)), out(x.shape)
        nl.store(full_rows, nl.load(x[index, a, :]))
        nl.store(stored, nl.load(x))
        nl.store(stored[index, a, 2 * f], nl.load(x[index, a, 1 + f]))
        return elements, full_rows, stored
    rows, a = np.array([3, 0, 2]), 5
    stored = X.copy()
    stored[rows, a, :6:2] = X[rows, a, 1:4]
    check(on, kernel, (X[rows, a, 1:4], X[rows, a], stored), X, rows[:, None].astype(np.int32), np.array([[a]], np.int32))


def test_skipped_and_accumulated(on):
    @nki.jit
    def kernel(x, at):
        a, rows, total = nl.load(at), out((8, 6)), out(x.shape)
        target = nl.full((8, 6), 7.0, nl.float32)
        nisa.dma_copy(dst=target, src=x[a[0, 0]], oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(dst=target[0:3, :], src=x[a[0, 1], a[0, 1] + axis(0, 2, 3), axis(1, 2, 6)])
        nl.store(rows, target)
        nl.store(total, nl.load(x))
        nl.atomic_rmw(total[a[0, 1], axis(0, 2, 8), axis(1, 2, 6)], target, op=np.add)
        nisa.dma_copy(dst=total[a[0, 0]], src=target, oob_mode=nisa.oob_mode.skip)
        return rows, total
    rows, total = np.full((8, 6), 7, np.float32), X.copy()
    rows[:3] = X[1, 1:4]
    total[1] += rows
    check(on, kernel, (rows, total), X, np.array([[4, 1]], np.int32))


def test_in_loops_under_masks_and_of_other_dtypes(on):
    """Positions are integers for elements of each dtype; elements that the mask leaves out keep their values."""
    @nki.jit
    def kernel(x, at):
        tile, a, result = nl.load(x), nl.load(at), out((2, 4, 40), nl.bfloat16)
        f = nl.arange(40)[None, :]
        for i in nl.affine_range(2):
            row = nl.full((4, 40), 3, nl.bfloat16)
            row[...] = nisa.tensor_copy_dynamic_src(tile[P, i, a[0, 0] + 301 + f], mask=f < 10 + 5 * i)
            nl.store(result[i], row)
        return result
    x = numbers(4, 2, 400).astype(nl.bfloat16)
    expected = np.full((2, 4, 40), 3, np.float32).astype(nl.bfloat16)
    for i in range(2):
        expected[i, :, :10 + 5 * i] = x[:, i, 341:351 + 5 * i]
    check(on, kernel, expected, x, np.array([[40]], np.int32))


def test_blocks_views_and_integers_of_other_kinds(on):
    """Block tensors, strided views, and an index of 8 bits that is computed."""
    @nki.jit
    def kernel(x, at):
        blocks = nl.ndarray((3, nl.par_dim(4), 8, 6), nl.float32)
        for k in nl.static_range(3):
            blocks[k] = nl.load(x) + 100 * k
        value, p = nl.load(at), P
        picked_rows, other, picked = out((4, 6)), out((4, 2)), out((4, 6))
        nl.store(picked_rows, nisa.tensor_copy_dynamic_src(blocks[1, p, value[0, 1] * 2, F]))
        part = blocks[2][:, 1:8:2, 2:]
        nl.store(other, nisa.tensor_copy_dynamic_src(part[:, value[0, 0] + value[0, 1], 1:4:2]))
        nl.store(picked, nisa.tensor_copy_dynamic_src(blocks[value[0, 1], p, 5, F]))
        return picked_rows, other, picked
    check(on, kernel, (X[:, 4] + 100, X[:, 7, 3::2] + 200, X[:, 5] + 200), X, np.array([[1, 2]], np.uint8))


def test_random_subscripts(on):
    """Every dimension of tiles and tensors of two to five, any of one or two at run time, with NumPy's places."""
    random = np.random.default_rng(7)
    for _ in range(25):
        rank = int(random.integers(2, 6))
        shape = tuple(int(n) for n in random.integers(2, 6, rank))
        count = int(random.integers(1, min(rank, 3)))
        chosen = sorted(random.choice(np.arange(1, rank), count, replace=False).tolist()) if rank > count else [1]
        kinds, spans = [], []
        for k, n in enumerate(shape):
            start = int(random.integers(0, n))
            size = int(random.integers(1, n - start + 1))
            step = int(random.integers(1, 3)) if k else 1
            size = (size + step - 1) // step
            kinds.append((k in chosen, start, step, size))
            spans.append(start + step * np.arange(size))
        if shape[0] > 1:
            kinds[0], spans[0] = (False, 0, 1, shape[0]), np.arange(shape[0])
        x, places = numbers(*shape), np.ix_(*spans)
        values = [start for moved, start, _, _ in kinds if moved]

        def items(at, kinds=kinds, rank=rank):
            items, column = [], 0
            for k, (moved, start, step, size) in enumerate(kinds):
                index = step * axis(k, rank, size)
                items.append(at[0, column] + index if moved else index + start)
                column += moved
            return tuple(items)

        @nki.jit
        def kernel(x, at, values, items=items):
            at, tile = nl.load(at), nl.load(x)
            read = nisa.tensor_copy_dynamic_src(tile[items(at)])
            nisa.tensor_copy_dynamic_dst(dst=tile[items(at)], src=nl.load(values))
            results = [read, tile, nl.load(x[items(at)])]
            outputs = [out(r.shape) for r in results]
            for target, result in zip(outputs, results):
                nl.store(target, result)
            last = out(x.shape)
            nl.store(last, nl.load(x))
            nl.store(last[items(at)], nl.load(values))
            return (*outputs, last)
        expected, written = x[places], x.copy()
        written[places] = expected + 1000
        check(on, kernel, (expected, written, expected, written), x, np.array([values], np.int32), expected + 1000)


REFUSED = {
    "three": (lambda t, a: t[a, a, a], indirect.ManyRunTimeIndices,
              r"3 dimensions of \(4, 8, 6\) are indexed at run time; an access can have at most 2"),
    "a row of values": (lambda t, a: t[P, nl.zeros((1, 3), nl.int32), F], indirect.IndirectFreeDim,
                        r"an index tile addresses dimension 1 of \(4, 8, 6\); it can address rows only"),
    "a sum of a row": (lambda t, a: t[P, 2 * (a + F), F], indirect.IndirectFreeDim, "dimension 1"),
    "beside slices": (lambda t, a: t[:, a + F, :], Exception, "err_unsupported_mixing_basic_advanced"),
    "another partition": (lambda t, a: t[3 - P, a, F], Exception, "does not step through its partitions one by one"),
    "a float": (lambda t, a: t[:, nl.zeros((1, 1), nl.float32)], Exception,
                "'index 1' of 'a subscript' has dtype float32, which must be an integer type"),
    "a static index outside": (lambda t, a: t[P, a, F + 1], Exception, r"dimension 2: index range \[1, 6\]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(on, name):
    make, error, text = REFUSED[name]

    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        read = nisa.tensor_copy_dynamic_src(make(tile, nl.zeros((1, 1), nl.int32)))
        result = out(read.shape)
        nl.store(result, read)
        return result
    with pytest.raises(error, match=text):
        run(on, kernel, X)




@pytest.mark.parametrize(("rank", "axes"), [(2, None), (2, (1, 0)), (3, (2, 1, 0)), (3, None), (4, (3, 1, 2, 0))])
@pytest.mark.parametrize("memory", ["hbm", "sbuf"])
def test_transposed_rows(on, memory, rank, axes):
    """``dma_transpose`` of rows that an index tile names: gathered, then transposed."""
    x = numbers(16, *(3, 2, 4)[4 - rank:])
    rows = np.array([5, 0, 5, 15, 2, 9, 1, 3])

    @nki.jit
    def kernel(x, index):
        source = x if memory == "hbm" else nl.load(x)
        part = [axis(k, rank, n) for k, n in enumerate(x.shape)][1:]
        turned = nisa.dma_transpose(source[(nl.load(index)[axis(0, 2, 8), 0], *part)], axes=axes)
        result = out(turned.shape)
        nl.store(result, turned)
        return result
    permutation = axes or {2: (1, 0), 3: (2, 1, 0)}[rank]
    check(on, kernel, x[rows].transpose(permutation), x, rows[:, None].astype(np.int32))


@pytest.mark.parametrize("use", [lambda t: nl.copy(t), lambda t: nl.add(t, 1), lambda t: t + 1, lambda t: 2 * t,
                                 lambda t: -t, lambda t: nl.exp(t), lambda t: nisa.tensor_copy(t), lambda t: nl.sum(t, axis=1)])
def test_only_copies_take_places_of_the_run_time(on, use):
    @nki.jit
    def kernel(x):
        return use(nl.load(x)[:, nl.zeros((1, 1), nl.int32)])
    with pytest.raises(indirect.PlainDynamicCopy, match=r"use nisa\.tensor_copy_dynamic_src"):
        run(on, kernel, X)


ROW = nl.arange(20)[:, None]


@pytest.mark.parametrize("rows", [20, 33])
@pytest.mark.parametrize("columns, expect", [
    (lambda: ROW, lambda p, f: p), (lambda: ROW + nl.arange(4)[None, :], lambda p, f: p + f[:, :4]),
    (lambda: ROW * 0, lambda p, f: p * 0), (lambda: ROW * 0 + nl.arange(7)[None, :], lambda p, f: p * 0 + f)],
    ids=["the partition", "partition and free", "one place", "free"])
def test_columns_beside_rows_that_a_tile_names(on, rows, columns, expect):
    """Another index may count along the partitions as well: then it is one of each row."""
    @nki.jit
    def kernel(x, at, values):
        tile = nl.load(at)
        read = nl.load(x[tile, columns()])
        first, second = out(read.shape), out(x.shape)
        nl.store(first, read)
        nl.store(second, nl.load(x))
        nl.store(second[tile, columns()], nl.load(values))
        return first, second
    x, at = numbers(rows, 24), np.random.default_rng(rows).permutation(rows)[:20].astype(np.int32)[:, None]
    places = at, expect(np.arange(20)[:, None], np.arange(7)[None, :])
    written = x.copy()
    written[places] = x[places] + 1000
    check(on, kernel, (x[places], written), x, at, x[places] + 1000)


def test_error__columns_of_another_number_of_rows(on):
    @nki.jit
    def kernel(x, at):
        nl.load(x[nl.load(at), nl.arange(19)[:, None] * 0 + nl.arange(7)[None, :]])
    with pytest.raises(KernelError, match=r"a subscript: shapes \(19, 7\) and \(20, 1\)"):
        run(on, kernel, numbers(20, 24), np.zeros((20, 1), np.int32))
