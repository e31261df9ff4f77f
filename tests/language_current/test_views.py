# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views, subscripts and access patterns: shapes, strides and offsets, and the elements they name."""

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from .running import check, numbers, run


def looked_at(look):
    """Run a function of no tensors as a kernel, and give what it returned."""
    looks = []

    def kernel(x):
        looks.append(look())
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    nki.simulate(kernel)(np.zeros((1, 1), np.float32))
    return looks[0]


def facts(view):
    return tuple(view.shape), view.strides, view.offset


def test_a_fresh_tensor():
    def look():
        t = nl.ndarray((128, 64), nl.float32)
        assert t.shape == [128, 64] and t.shape == (128, 64) and not t.shape != [128, 64]
        assert t.buffer is nl.sbuf and t.ndim == 2 and t.dtype == nl.float32 and t is not None and t != None  # noqa: E711
        assert str(t.dtype) == str(nl.float32) and nl.is_on_chip(t.buffer) and not nl.is_hbm(t.buffer)
        return facts(t), t.size
    assert looked_at(look) == (((128, 64), (64, 1), 0), 8192)


def test_slice_is_an_access_pattern():
    def look():
        t = nl.ndarray((128, 64), nl.float32)
        a, b = t.slice(1, 8, 24), t.ap([[64, 128], [1, 16]], offset=8)
        return a.get_pattern(), a.offset, facts(a) == facts(b)
    assert looked_at(look) == ([[64, 128], [1, 16]], 8, True)


VIEWS = {
    "permute and pick": (lambda t: t((128, 4, 16))[0:64].permute((0, 2, 1))[:, 0, :], ((64, 4), (64, 16), 0)),
    "an ap replaces the view": (lambda t: t((128, 256)).ap([[256, 128], [2, 128]]).ap([[256, 128], [1, 64]]),
                                ((128, 64), (256, 1), 0)),
    "integers keep two dimensions": (lambda t: t((64, 64, 64))[0, 0, 10], ((1, 1), (4096, 1), 10)),
    "an integer in the middle": (lambda t: t((64, 64, 64))[:, 0], ((64, 64), (4096, 1), 0)),
    "the last integer stays": (lambda t: t((64, 64, 64))[:, 0, 10], ((64, 1), (4096, 1), 10)),
    "an integer on the partition": (lambda t: t((64, 64, 64))[0], ((1, 64, 64), (4096, 64, 1), 0)),
    "a step": (lambda t: t((64, 64, 64))[:, :, ::2], ((64, 64, 32), (4096, 64, 2), 0)),
    "ellipsis": (lambda t: t((64, 8, 4))[..., 1:3], ((64, 8, 2), (32, 4, 1), 1)),
    "negative": (lambda t: t((64, 8))[-1, -3:], ((1, 3), (8, 1), 63 * 8 + 5)),
    "ds": (lambda t: t((64, 8))[nl.ds(32, 16), nl.ds(2, 4)], ((16, 4), (8, 1), 32 * 8 + 2)),
    "select": (lambda t: t((64, 8, 4)).select(1, 3), ((64, 4), (32, 1), 12)),
    "broadcast": (lambda t: t((64, 1, 4)).broadcast(1, 5), ((64, 5, 4), (4, 0, 1), 0)),
    "expand": (lambda t: t((64, 8)).expand_dim(1), ((64, 1, 8), (8, 8, 1), 0)),
    "squeeze": (lambda t: t((64, 1, 8)).squeeze_dim(1), ((64, 8), (8, 1), 0)),
    "reshape_dim": (lambda t: t((64, 24)).reshape_dim(1, (2, -1, 3)), ((64, 2, 4, 3), (24, 12, 3, 1), 0)),
    "flatten": (lambda t: t((64, 2, 4, 3)).flatten_dims(1, 2), ((64, 8, 3), (24, 3, 1), 0)),
    "reshape of a strided view": (lambda t: t((64, 8, 4))[:, :, 0:2].reshape((64, 2, 4, 2)),
                                  ((64, 2, 4, 2), (32, 16, 4, 1), 0)),
    "rearrange": (lambda t: t((64, 24)).rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 6}),
                  ((64, 4, 6), (24, 1, 4), 0)),
    "view": (lambda t: t((64, 24), nl.int32).view(nl.bfloat16), ((64, 48), (48, 1), 0)),
    "view of a part": (lambda t: t((64, 24), nl.bfloat16)[:, 4:8].view(nl.int32), ((64, 2), (12, 1), 2)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_on_chip(name):
    make, expected = VIEWS[name]
    assert looked_at(lambda: facts(make(lambda shape, dtype=nl.float32: nl.ndarray(shape, dtype)))) == expected


def test_views_in_hbm():
    def look():
        h = nl.ndarray((4, 128, 32), nl.float32, buffer=nl.private_hbm)
        return facts(h[0]), facts(h[1, 2]), facts(h[1, 2, 3]), facts(h.permute((2, 0, 1)))
    assert looked_at(look) == (((128, 32), (32, 1), 0), ((32,), (1,), 4096 + 64), ((1,), (1,), 4096 + 64 + 3),
                               ((32, 4, 128), (1, 4096, 32), 0))


WRONG = {
    "partition stride": (lambda t: t((16, 32)).ap([[64, 8], [1, 32]]), "partition stride 64"),
    "too many subscripts": (lambda t: t((16, 32))[0, 0, 0], "too many indexes for shape"),
    "beyond": (lambda t: t((16, 32))[:, 0:33], "index out of range of tensor dimension"),
    "an integer beyond": (lambda t: t((16, 32))[16], "index out of range of tensor dimension"),
    "nested": (lambda t: t((16, 32))[(0, 1), 0], "nested tuple/list indexes not supported"),
    "step": (lambda t: t((16, 32))[:, ::-1], "slice step cannot be zero or negative"),
    "reshape": (lambda t: t((16, 32)).reshape((16, 33)), "cannot reshape"),
    "reshape of the partition": (lambda t: t((16, 32)).reshape((32, 16)), "dimension 0, which is the partition"),
    "reshape needs a copy": (lambda t: t((16, 8, 4)).permute((0, 2, 1)).reshape((16, 32)), "cannot reshape a complex"),
    "permute": (lambda t: t((16, 32)).permute((1, 0)), "moves the partition dimension"),
    "broadcast": (lambda t: t((16, 32)).broadcast(1, 4), "has size 32, not 1"),
    "flatten": (lambda t: t((16, 8, 4))[:, :, 0:2].flatten_dims(1, 2), "not contiguous"),
    "two offsets": (lambda t: t((16, 32)).ap([[32, 16], [1, 1]], scalar_offset=t((1, 1), nl.int32), indirect_dim=1,
                                             vector_offset=t((16, 1), nl.int32)), "only one of"),
    "a float offset": (lambda t: t((16, 32)).ap([[32, 16], [1, 1]], scalar_offset=t((1, 1)), indirect_dim=1),
                       "must be an integer type"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_views_do_not_allow(name):
    make, text = WRONG[name]
    with pytest.raises(AssertionError, match=text):
        looked_at(lambda: make(lambda shape, dtype=nl.float32, **more: nl.ndarray(shape, dtype, **more)))


@pytest.mark.parametrize("backwards", [lambda t: t[:, ::-1], lambda t: t.slice(1, 0, 32, -1)])
def test_what_goes_backwards__is_refused_with_the_pattern_that_does(backwards):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, copied = nl.load(x), nl.ndarray(x.shape, x.dtype)
        nisa.tensor_copy(copied, turned(tile))
        nl.store(out, copied)
        return out
    x = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    turned = lambda tile: tile.ap([[32, 16], [-1, 32]], offset=31)
    assert np.array_equal(nki.jit(kernel)(x), x[:, ::-1])
    turned = backwards
    with pytest.raises(AssertionError, match=r"tile\.ap\(\[\[row, partitions\], \[-1, count\]\], offset=count - 1\)"):
        nki.jit(kernel)(x)


BEYOND = {
    "a pattern beyond its row": (lambda t: t((16, 32)).ap([[32, 16], [4, 9]]), "elements 0 to 32 of a partition"),
    "a pattern below its row": (lambda t: t((16, 32)).ap([[32, 1], [-1, 4]], offset=66), "elements -1 to 2 of a part"),
    "a pattern beyond the partitions": (lambda t: t((16, 32)).ap([[32, 16], [1, 8]], offset=32),
                                        "partitions 1 to 16, t0 has 16"),
    "a pattern beyond HBM": (lambda t: t((16, 32), buffer=nl.private_hbm).ap([[32, 16], [1, 32]], offset=1),
                             "elements 1 to 512 of the tensor"),
    "a view's start and an offset": (lambda t: t((16, 32))[:, 8:].ap([[32, 16], [1, 24]], offset=1),
                                     "elements 9 to 32 of a partition"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_the_reach_of_a_pattern_is_checked_where_it_is_used(name):
    make, text = BEYOND[name]

    def look(use):
        view = make(lambda shape, dtype=nl.float32, **more: nl.ndarray(shape, dtype, **more))
        use(view)
    looked_at(lambda: look(facts))
    for use in (lambda v: v.sim_value, lambda v: (nisa.tensor_copy if v.on_chip else nisa.dma_copy)(v, v)):
        with pytest.raises(IndexError, match=text):
            looked_at(lambda use=use: look(use))


# -- elements ----------------------------------------------------------------------------------------------------------
def test_reading_bits_as_another_type(on):
    x = numbers(128, 256, dtype=np.int32)
    views = (lambda t: t.view(nl.bfloat16), lambda t: t.ap([[512, 128], [1, 512]], offset=0, dtype=nl.bfloat16))
    for view in views:
        check(on, lambda d, t, view=view: nisa.tensor_copy(d, view(t).view(nl.uint16)), x.view(np.uint16), x)


def test_max_pool_through_five_dimensions(on):
    c, h, w = 16, 8, 6
    x = numbers(c, h, w)
    pattern = [[h * w, c], [2 * w, h // 2], [2, w // 2], [w, 2], [1, 2]]

    def body(d, t):
        nisa.tensor_copy(d, nl.max(t.ap(pattern), axis=[3, 4]))
    check(on, body, x.reshape(c, h // 2, 2, w // 2, 2).max((2, 4)), x)


def test_shapes_that_only_agree_in_counts(on):
    x, y = numbers(32, 6, 4), numbers(32, 3, 8, seed=1)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b, nl.add), x.reshape(32, 24) + y.reshape(32, 24), x, y)


def test_shapes_whose_extents_do_not_nest(on):
    x, y = numbers(32, 6, 4), numbers(32, 4, 6, seed=1)
    check(on, lambda d, a, b: nisa.tensor_tensor(d, a, b.permute((0, 2, 1)), nl.subtract),
          x - y.transpose(0, 2, 1), x, y)
    check(on, lambda d, a: nisa.tensor_copy(d, a.permute((0, 2, 1))), x.transpose(0, 2, 1).reshape(32, 3, 8), x)


def test_dma_between_any_shapes(on):
    x = numbers(64, 32)

    def kernel(x):
        out = nl.ndarray((16, 128), x.dtype, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.ndarray((128, 16), x.dtype)
        nisa.dma_copy(b, a)                     # partitions do not correspond
        nisa.dma_copy(out, b)
        return out
    np.testing.assert_array_equal(run(on, kernel, x), x.reshape(16, 128))


def test_one_row_to_all_partitions(on):
    x = numbers(1, 40)

    def kernel(x):
        out = nl.ndarray((128, 40), x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((128, 40), x.dtype)
        nisa.dma_copy(t, x.ap([[0, 128], [1, 40]]))
        nisa.dma_copy(out, t)
        return out
    np.testing.assert_array_equal(run(on, kernel, x), np.repeat(x, 128, 0))


# -- addresses known at run time ---------------------------------------------------------------------------------------
def test_a_scalar_offset(on):
    x, at = numbers(512, 512), np.array([[384]], np.int32)

    def kernel(x, at):
        out = nl.ndarray((128, 256), x.dtype, buffer=nl.shared_hbm)
        i, t = nl.load(at), nl.ndarray((128, 256), x.dtype)
        nisa.dma_copy(t, x.ap([[512, 128], [1, 256]], scalar_offset=i, indirect_dim=0))
        nisa.dma_copy(out, t)
        return out
    np.testing.assert_array_equal(run(on, kernel, x, at), x[384:512, 0:256])


def test_rows_written_at_run_time_from_any_partition(on):
    x, at = numbers(3, 8), np.array([[4, 0, 2]], np.int32)

    def kernel(x, at):
        out = nl.ndarray((5, 8), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.zeros((5, 8), x.dtype))
        i, t = nl.load(at), nl.load(x)
        for row in range(3):
            nisa.dma_copy(out.select(0, i[0:1, row:row + 1]), t[row:row + 1])
        return out
    expected = np.zeros((5, 8), np.float32)
    expected[at[0]] = x
    np.testing.assert_array_equal(run(on, kernel, x, at), expected)


def test_rows_written_at_run_time_from_a_tile_of_another_shape(on):
    x, at = numbers(4, 16), np.array([[3, 1]], np.int32)

    def kernel(x, at):
        out = nl.ndarray((5, 64), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.zeros((5, 64), x.dtype))
        i, t = nl.load(at), nl.load(x)
        nisa.dma_copy(out.select(0, i[0:1, 0:1]), t)                                    # a row of 64 elements
        nisa.dma_copy(out.ap([[8, 8], [1, 8]], scalar_offset=i[0:1, 1:2], indirect_dim=0), t)
        return out
    expected = np.zeros((5, 64), np.float32)
    expected[at[0]] = x.reshape(-1)
    np.testing.assert_array_equal(run(on, kernel, x, at), expected)


def test_a_row_longer_than_an_engine_counts(on):
    x = numbers(2, 3, 25000, dtype=np.int8)

    def kernel(x):
        out, t = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.ndarray(x.shape, x.dtype)
        nisa.dma_copy(t, x)
        nisa.dma_copy(out, t)
        return out
    np.testing.assert_array_equal(run(on, kernel, x), x)


def test_a_vector_offset_and_vector_select(on):
    x, rows = numbers(128, 512), np.arange(0, 128, 2, dtype=np.int32).reshape(64, 1)

    def kernel(x, rows):
        outs = [nl.ndarray((64, 512), x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
        v = nl.load(rows)
        for out, view in zip(outs, (x.ap([[512, 64], [1, 512]], vector_offset=v), x.vector_select(0, v))):
            t = nl.ndarray((64, 512), x.dtype)
            nisa.dma_copy(t, view)
            nisa.dma_copy(out, t)
        return outs
    for got in run(on, kernel, x, rows):
        np.testing.assert_array_equal(got, x[::2])


def scatter(x, rows):
    out = nl.ndarray((8, 16), x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, nl.zeros((8, 16), x.dtype))
    v, t = nl.load(rows), nl.load(x)
    nisa.dma_copy(out.ap([[16, 4], [1, 16]], vector_offset=v), t, oob_mode=nisa.oob_mode.skip)
    return out


def test_a_scatter_that_skips(on):
    x, rows = numbers(4, 16), np.array([[6], [100], [0], [3]], np.uint32)
    expected = np.zeros((8, 16), np.float32)
    expected[[6, 0, 3]] = x[[0, 2, 3]]
    np.testing.assert_array_equal(run(on, scatter, x, rows), expected)


def gather(x, rows):
    out = nl.ndarray((4, 16), x.dtype, buffer=nl.shared_hbm)
    t = nl.zeros((4, 16), x.dtype)
    nisa.dma_copy(t, x.vector_select(0, nl.load(rows)))
    nisa.dma_copy(out, t)
    return out


def test_an_index_out_of_bounds_is_an_error(on):
    with pytest.raises(IndexError, match="out of bounds"):
        run(on, gather, numbers(8, 16), np.array([[6], [100], [0], [3]], np.uint32))


def test_select_at_run_time_on_chip(on):
    x, at = numbers(16, 5, 8), np.array([[3]], np.int32)
    check(on, lambda d, t, i: nisa.tensor_copy(d, t.select(1, i)), x[:, 3], x, at)
    check(on, lambda d, t, i: nisa.tensor_scalar(d, t.select(1, i), nl.multiply, 2.0), x[:, 3] * 2, x, at)

    def write(d, t, i):
        nisa.tensor_copy(d.select(1, i), t[:, 0])
    expected = np.zeros_like(x)
    expected[:, 3] = x[:, 0]
    check(on, write, expected, x, at, before=0)


def test_columns_by_shared_offsets(on):
    x = numbers(32, 40)
    index = np.random.default_rng(0).integers(0, 40, (32, 3)).astype(np.uint32)
    expected = np.empty((32, 48), np.float32)
    for p in range(32):
        group = index[p // 16 * 16:p // 16 * 16 + 16]
        expected[p] = x[p, [group[j % 16, j // 16] for j in range(48)]]
    check(on, lambda d, t, i: nisa.tensor_copy(d, t.indirect(i)), expected, x, index)
    check(on, lambda d, t, i: nisa.tensor_scalar(d, t.indirect(i, 20), nl.add, 1.0), expected[:, :20] + 1, x, index)


def test_columns_scattered(on):
    x = numbers(16, 32)
    index = np.random.default_rng(1).permutation(40)[:32].reshape(2, 16).T.astype(np.uint32)
    expected = np.zeros((16, 40), np.float32)
    expected[:, index.T.reshape(-1)] = x
    check(on, lambda d, t, i: nisa.tensor_copy(d.indirect(i), t), expected, x, np.ascontiguousarray(index), before=0)


def test_assignment_by_subscript_is_reported_where_asked(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    x = numbers(16, 8)

    def body(d, t):
        with pytest.warns(UserWarning, match="not portable"):
            d[:, 0:4] = t[:, 4:8]
        d[:, 4:8] = 2.0
    check(on, body, np.concatenate([x[:, 4:], np.full((16, 4), 2, np.float32)], 1), x)
