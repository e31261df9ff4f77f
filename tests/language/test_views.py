# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subscripts and views of HBM and on-chip tensors, one kernel a rule, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.capture.errors import BadStep
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, numbers


def output(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def store_new(tile):
    """A new output with the tile's elements."""
    out = output(tile.shape, tile.dtype)
    nl.store(out, tile)
    return out


def load_store(pick):
    """A kernel that loads what ``pick`` takes of an HBM tensor."""
    @nki.jit
    def kernel(x):
        return store_new(nl.load(pick(x)))
    return kernel


def tile_store(pick):
    """A kernel that takes of a tile what ``pick`` takes."""
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        return store_new(nl.copy(pick(tile)))
    return kernel


P, F = nl.arange(16)[:, None], nl.arange(8)[None, :]

HBM_PICKS = {
    "all": (lambda x: x, lambda x: x),
    "ellipsis": (lambda x: x[...], lambda x: x),
    "rows": (lambda x: x[3:9], lambda x: x[3:9]),
    "rows_and_columns": (lambda x: x[3:9, 2:5], lambda x: x[3:9, 2:5]),
    "steps": (lambda x: x[1:30:3, 2:16:4], lambda x: x[1:30:3, 2:16:4]),
    "open_step": (lambda x: x[::5, 1::3], lambda x: x[::5, 1::3]),
    "negative_bounds": (lambda x: x[-5:-1, :-2], lambda x: x[-5:-1, :-2]),
    "column_is_n_by_1": (lambda x: x[:, 3], lambda x: x[:, 3:4]),
    "row_is_n_by_1": (lambda x: x[4, :], lambda x: x[4, :, None]),
    "row_kept": (lambda x: x[4:5, :], lambda x: x[4:5]),
    "negative_integer": (lambda x: x[-1, :], lambda x: x[-1, :, None]),
    "element": (lambda x: x[3, 5], lambda x: x[3:4, 5:6]),
    "numpy_integers": (lambda x: x[np.int64(3), np.int32(5):np.int64(8)], lambda x: x[3, 5:8, None]),
    "ds": (lambda x: x[nl.ds(4, 8), nl.ds(2, 3)], lambda x: x[4:12, 2:5]),
    "ds_and_slice": (lambda x: x[nl.ds(4, 8), 2:5], lambda x: x[4:12, 2:5]),
    "view_of_view": (lambda x: x[4:20, 2:10][3:7, ::2], lambda x: x[4:20, 2:10][3:7, ::2]),
    "sub_tensor_by_integer": (lambda x: x.reshape((4, 8, 16))[2], lambda x: x.reshape(4, 8, 16)[2]),
    "sub_tensor_subscripted": (lambda x: x.reshape((4, 8, 16))[2][1:5, 3:9], lambda x: x.reshape(4, 8, 16)[2, 1:5, 3:9]),
    "middle_integer": (lambda x: x.reshape((4, 8, 16))[:, 3, 2:6], lambda x: x.reshape(4, 8, 16)[:, 3, 2:6]),
    "last_integer": (lambda x: x.reshape((4, 8, 16))[:, :, 5], lambda x: x.reshape(4, 8, 16)[:, :, 5]),
    "ellipsis_in_front": (lambda x: x.reshape((4, 8, 16))[..., 5], lambda x: x.reshape(4, 8, 16)[..., 5]),
    "ellipsis_in_the_middle": (lambda x: x.reshape((4, 8, 16))[1, ..., 2:5], lambda x: x.reshape(4, 8, 16)[1, :, 2:5]),
    "ellipsis_of_nothing": (lambda x: x.reshape((4, 8, 16))[1, 2:4, ..., 2:5],
                            lambda x: x.reshape(4, 8, 16)[1, 2:4, 2:5]),
    "index_tensors": (lambda x: x[P + 3, F * 2], lambda x: x[3:19, 0:16:2]),
    "index_tensors_swapped": (lambda x: x[F, P], lambda x: x[:8, :16].T),
    "index_tensor_diagonal": (lambda x: x[P, P], lambda x: np.diagonal(x[:16, :16])[:, None]),
    "index_tensor_and_integer": (lambda x: x[P, 3], lambda x: x[:16, 3:4]),
    "integer_and_index_tensor": (lambda x: x[2, F], lambda x: x[2:3, :8]),
    "index_sum": (lambda x: x[P, P * 0 + F + 1], lambda x: x[:16, 1:9]),
    "index_broadcast": (lambda x: x[P * 0 + 2, F], lambda x: np.repeat(x[2:3, :8], 16, 0)),
    "index_reversed": (lambda x: x[31 - P, 15 - F], lambda x: x[31:15:-1, 15:7:-1]),
    "mgrid": (lambda x: x[nl.mgrid[4:20, 2:10]], lambda x: x[4:20, 2:10]),
    "mgrid_attributes": (lambda x: x[nl.mgrid[0:8, 0:4].p * 2, nl.mgrid[0:8, 0:4].x * 3], lambda x: x[0:16:2, 0:12:3]),
    "view_then_index": (lambda x: x[4:24, 2:14][P, F], lambda x: x[4:20, 2:10]),
    "index_then_slice": (lambda x: x[P * 2, F][3:6, 1:4], lambda x: x[0:32:2][3:6, 1:4]),
    "reshape_all": (lambda x: x.reshape((16, 32)), lambda x: x.reshape(16, 32)),
    "reshape_keyword_minus_one": (lambda x: x.reshape(shape=(64, -1)), lambda x: x.reshape(64, 8)),
    "reshape_arguments": (lambda x: x.reshape(64, 8), lambda x: x.reshape(64, 8)),
    "reshape_of_view": (lambda x: x[4:8].reshape((2, 32)), lambda x: x[4:8].reshape(2, 32)),
    "reshape_splits_strided": (lambda x: x[:, 4:12].reshape((32, 2, 4)), lambda x: x[:, 4:12].reshape(32, 2, 4)),
    "reshape_adds_ones": (lambda x: x[:, 1:3].reshape((32, 1, 2, 1)), lambda x: x[:, 1:3].reshape(32, 1, 2, 1)),
    "flat_row": (lambda x: x.reshape((512,)).reshape((1, 512))[:, 100:200], lambda x: x.reshape(1, 512)[:, 100:200]),
    "flat_slice_is_n_by_1": (lambda x: x.reshape((512,))[100:200], lambda x: x.reshape(512)[100:200, None]),
    "flat_element": (lambda x: x.reshape((512,))[77], lambda x: x.reshape(512)[77:78, None]),
    "broadcast_rows": (lambda x: x[3:4].broadcast_to((32, 16)), lambda x: np.repeat(x[3:4], 32, 0)),
    "broadcast_columns": (lambda x: x[:, 3:4].broadcast_to(32, 5), lambda x: np.repeat(x[:, 3:4], 5, 1)),
    "expand_dims": (lambda x: x.expand_dims(1), lambda x: x[:, None]),
    "expand_dims_tuple": (lambda x: x.expand_dims((1, 3)), lambda x: x[:, None, :, None]),
    "expand_dims_negative": (lambda x: nl.expand_dims(x, -1), lambda x: x[..., None]),
    "view_down": (lambda x: x.view(nl.bfloat16), lambda x: x.view(ml_dtypes.bfloat16)),
    "view_same_size": (lambda x: x.view(nl.int32), lambda x: x.view(np.int32)),
    "view_bytes_of_slice": (lambda x: x[:, 2:5].view(nl.uint8), lambda x: np.ascontiguousarray(x[:, 2:5]).view(np.uint8)),
    "view_up_again": (lambda x: x.view(nl.uint8)[:, 8:24].view(nl.float32), lambda x: x[:, 2:6]),
}


@pytest.mark.parametrize("name", HBM_PICKS)
def test_hbm_view(on, name):
    pick, expected = HBM_PICKS[name]
    x = numbers(32, 16)
    check(on, load_store(pick), np.ascontiguousarray(expected(x)), x)


TILE_PICKS = {
    "all": (lambda t: t[...], lambda x: x),
    "rows": (lambda t: t[4:9], lambda x: x[4:9]),
    "columns": (lambda t: t[:, 3:7], lambda x: x[:, 3:7]),
    "column_steps": (lambda t: t[:, 1::3], lambda x: x[:, 1::3]),
    "column_kept": (lambda t: t[:, 3], lambda x: x[:, 3:4]),
    "row_kept": (lambda t: t[3, 2:7], lambda x: x[3:4, 2:7]),
    "element_kept": (lambda t: t[3, 5], lambda x: x[3:4, 5:6]),
    "element_as_slices": (lambda t: t[3:4, 5:6], lambda x: x[3:4, 5:6]),
    "negative": (lambda t: t[-1, -4:-1], lambda x: x[-1:, -4:-1]),
    "subscript_of_kept_column": (lambda t: t[:, 3][:, 0], lambda x: x[:, 3:4]),
    "subscript_of_kept_row": (lambda t: t[3][0, 4:6], lambda x: x[3:4, 4:6]),
    "subscript_of_index_row": (lambda t: t[3, F][0, 4:6], lambda x: x[3:4, 4:6]),
    "subscript_of_broadcast": (lambda t: t[2:3].broadcast_to((32, 16))[5, 3:9], lambda x: x[2:3, 3:9]),
    "index_tensors": (lambda t: t[P + 8, F * 2 + 1], lambda x: x[8:24, 1:16:2]),
    "index_rank_3": (lambda t: t[nl.arange(32)[:, None, None], nl.arange(4)[None, :, None] * 4
                               + nl.arange(4)[None, None, :]], lambda x: x.reshape(32, 4, 4)),
    "index_window": (lambda t: t[nl.arange(32)[:, None, None], nl.arange(5)[None, :, None]
                               + nl.arange(4)[None, None, :]],
                     lambda x: np.lib.stride_tricks.sliding_window_view(x, 4, 1)[:, :5]),
    "index_transposed_free": (lambda t: t.reshape((32, 4, 4))[nl.arange(32)[:, None, None], nl.arange(4)[None, None, :],
                                                             nl.arange(4)[None, :, None]],
                              lambda x: x.reshape(32, 4, 4).transpose(0, 2, 1)),
    "index_repeats_free": (lambda t: t[nl.arange(32)[:, None, None], nl.arange(3)[None, None, :]
                                     + 0 * nl.arange(2)[None, :, None]],
                           lambda x: np.repeat(x[:, None, :3], 2, 1)),
    "reshape_free": (lambda t: t.reshape((32, 2, 8)), lambda x: x.reshape(32, 2, 8)),
    "reshape_merge": (lambda t: t.reshape((32, 2, 8))[:, 1:2, 2:6].reshape((32, 4)), lambda x: x[:, 10:14]),
    "reshape_minus_one": (lambda t: t.reshape((32, -1, 2)), lambda x: x.reshape(32, 8, 2)),
    "reshape_list": (lambda t: t.reshape([32, 4, 4]), lambda x: x.reshape(32, 4, 4)),
    "index_tensors_backwards": (lambda x: x[P, 7 - F], lambda x: x[:16, 7::-1]),
    "broadcast_partitions": (lambda t: t[5:6, :].broadcast_to((128, 16)), lambda x: np.repeat(x[5:6], 128, 0)),
    "broadcast_free": (lambda t: nl.broadcast_to(t[:, 5], shape=(32, 7)), lambda x: np.repeat(x[:, 5:6], 7, 1)),
    "broadcast_to_rank_3": (lambda t: t.expand_dims(1).broadcast_to((32, 3, 16)), lambda x: np.repeat(x[:, None], 3, 1)),
    "expand_trailing": (lambda t: t.expand_dims(2), lambda x: x[:, :, None]),
    "expand_tuple": (lambda t: t.expand_dims((1, 2)), lambda x: x[:, None, None]),
    "view_bfloat16": (lambda t: t.view(nl.bfloat16), lambda x: x.view(ml_dtypes.bfloat16)),
    "view_column": (lambda t: t[:, 3].view(nl.uint8), lambda x: np.ascontiguousarray(x[:, 3:4]).view(np.uint8)),
    "view_then_index": (lambda t: t.view(nl.uint16)[P, F], lambda x: x.view(np.uint16)[:16, :8]),
    "view_up": (lambda t: t.view(nl.int16)[:, 4:12].view(nl.int32), lambda x: x.view(np.int32)[:, 2:6]),
}


def test_slices_do_not_go_backwards():
    x = numbers(32, 16)
    with pytest.raises(BadStep) as raised:
        tile_store(lambda t: t[:, ::-1])(x)
    assert raised.value.headline == "a slice has step -1; steps must be positive"
    assert raised.value.advice[1] == "reverse with an index: tile[i_p, last - i_f], where i_p, i_f = nl.mgrid[...]"


@pytest.mark.parametrize("name", TILE_PICKS)
def test_tile_view(on, name):
    pick, expected = TILE_PICKS[name]
    x = numbers(32, 16)
    check(on, tile_store(pick), np.ascontiguousarray(expected(x)), x)


# -- block dimensions --------------------------------------------------------------------------------------------------
def test_blocks__integer_then_tile(on):
    @nki.jit
    def kernel(x):
        blocks = nl.ndarray((4, nl.par_dim(32), 16), nl.float32)
        out = output((4, 32, 16))
        for i in nl.affine_range(4):
            blocks[i] = nl.load(x[i])
        for i in nl.affine_range(4):
            nl.store(out[i], blocks[i] * 2)
        return out
    x = numbers(4, 32, 16)
    check(on, kernel, x * 2, x)


def test_blocks__index_tensors_beside_an_integer(on):
    @nki.jit
    def kernel(x):
        ip, jf = nl.arange(32)[:, None], nl.arange(8)[None, :]
        blocks = nl.zeros((2, 3, nl.par_dim(32), 16), nl.float32)
        out = output((2, 3, 32, 16))
        for i in nl.affine_range(2):
            for j in nl.affine_range(3):
                blocks[i, j, ip, jf * 2] = nl.load(x[i, j, ip, jf * 2])
        for i in nl.affine_range(2):
            for j in nl.affine_range(3):
                nl.store(out[i, j], blocks[i, j])
        return out
    x = numbers(2, 3, 32, 16)
    expected = x.copy()
    expected[..., 1::2] = 0
    check(on, kernel, expected, x)


def test_blocks__slices_inside_a_block(on):
    @nki.jit
    def kernel(x):
        blocks = nl.zeros((2, nl.par_dim(32), 16), nl.float32)
        out = output((2, 32, 16))
        for i in nl.affine_range(2):
            blocks[i, 4:20, 2:10] = nl.load(x[i, 4:20, 2:10])
            nl.store(out[i, :, :], blocks[i, :, :])
        return out
    x = numbers(2, 32, 16)
    expected = np.zeros_like(x)
    expected[:, 4:20, 2:10] = x[:, 4:20, 2:10]
    check(on, kernel, expected, x)


def test_blocks__set_whole(on):
    @nki.jit
    def kernel(x):
        blocks = nl.ndarray((2, nl.par_dim(32), 16), nl.float32)
        blocks[...] = 3.0
        blocks[1] = nl.load(x)
        other = nl.ndarray((2, nl.par_dim(32), 16), nl.float32)
        other[...] = blocks
        out = output((2, 32, 16))
        for i in nl.affine_range(2):
            nl.store(out[i], other[i])
        return out
    x = numbers(32, 16)
    check(on, kernel, np.stack([np.full_like(x, 3), x]), x)


def test_blocks__between_partition_and_free(on):
    """Dimensions behind the partition are ordinary free ones."""
    @nki.jit
    def kernel(x):
        blocks = nl.ndarray((nl.par_dim(32), 4, 16), nl.float32)
        for i in nl.affine_range(4):
            blocks[:, i, :] = nl.load(x[i])
        out = output((32, 4, 16))
        nl.store(out, blocks)
        return out
    x = numbers(4, 32, 16)
    check(on, kernel, np.ascontiguousarray(x.transpose(1, 0, 2)), x)


def test_blocks__reshape_to_blocks(on):
    @nki.jit
    def kernel(x):
        blocks = nl.ndarray((2, nl.par_dim(32), 16), nl.float32)
        for i in nl.affine_range(2):
            blocks[i] = nl.load(x[i])
        finer = blocks.reshape((2, nl.par_dim(32), 4, 4))
        out = output((2, 32, 4))
        for i in nl.affine_range(2):
            nl.store(out[i], nl.copy(finer[i, :, 2, :]))
        return out
    x = numbers(2, 32, 16)
    check(on, kernel, np.ascontiguousarray(x[:, :, 8:12]), x)


def test_blocks__in_psum(on):
    @nki.jit
    def kernel(x):
        blocks = nl.ndarray((3, nl.par_dim(32), 32), nl.float32, buffer=nl.psum)
        out = output((3, 32, 32))
        a = nl.load(x)
        for i in nl.affine_range(3):
            blocks[i, :, :] += nisa.nc_matmul(a, a)
            blocks[i, :, :] += nisa.nc_matmul(a, a)
        for i in nl.affine_range(3):
            nl.store(out[i], nl.copy(blocks[i]))
        return out
    x = np.floor(numbers(32, 32) / 25)
    check(on, kernel, np.stack([2 * (x.T @ x)] * 3), x)


def test_shapes_are_tuples_of_ints(on):
    @nki.jit
    def kernel(x):
        k = nl.par_dim(16) * 2
        blocks = nl.ndarray([2, nl.par_dim(k), x.shape[-1]], nl.float32)
        assert blocks.shape == (2, 32, 16) and type(k) is int and blocks.shape[1] // 2 == 16
        assert blocks[0].shape == x.shape[1:] and blocks[0].shape[:-1] + (4, 4) == (32, 4, 4)
        out = output((2,) + x.shape[1:])
        for i in nl.affine_range(len(blocks)):
            blocks[i] = nl.load(x[i])
            nl.store(out[i], blocks[i].reshape((nl.par_dim(32), 4, 4)).reshape(blocks[i].shape))
        return out
    x = numbers(2, 32, 16)
    check(on, kernel, x, x)


# -- stores ------------------------------------------------------------------------------------------------------------
STORES = {
    "columns": (lambda o: o[:, 3:7], (slice(None), slice(3, 7))),
    "steps": (lambda o: o[1::2, ::3], (slice(1, None, 2), slice(None, None, 3))),
    "column": (lambda o: o[2:9, 3], (slice(2, 9), slice(3, 4))),
    "element": (lambda o: o[2, 3], (slice(2, 3), slice(3, 4))),
    "view_of_view": (lambda o: o[4:20][2:5, 3:9], (slice(6, 9), slice(3, 9))),
    "index_tensors": (lambda o: o[P + 3, F * 2 + 1], (slice(3, 19), slice(1, 16, 2))),
}


@pytest.mark.parametrize("name", STORES)
def test_store_view(on, name):
    pick, index = STORES[name]
    expected = np.zeros((32, 16), np.float32)
    value = numbers(*expected[index].shape) + 200
    expected[index] = value

    @nki.jit
    def kernel(x):
        out = output((32, 16))
        nl.store(pick(out), nl.load(x))
        return out
    check(on, kernel, expected, value)


@pytest.mark.parametrize("name", STORES)
def test_assign_to_tile_view(on, name):
    if name == "steps":
        pytest.skip("partitions have no step")
    pick, index = STORES[name]
    expected = np.full((32, 16), 7, np.float32)
    value = numbers(*expected[index].shape) + 200
    expected[index] = value

    @nki.jit
    def kernel(x):
        tile = nl.full((32, 16), 7, nl.float32)
        pick(tile)[...] = nl.load(x)
        return store_new(tile)
    check(on, kernel, expected, value)


def test_hbm_view__passed_to_helpers_and_indexed_again(on):
    def rows(head, i):
        return head[i * 8:(i + 1) * 8, :]

    def double(destination, source, count):
        for i in nl.affine_range(count):
            nl.store(rows(destination, i), nl.load(rows(source, i)) * 2)

    @nki.jit
    def kernel(q):
        out = output(q.shape)
        b = nl.program_id(0)
        for h in nl.affine_range(3):
            double(out[b, h], q[b, h], 2)
        return out
    q = numbers(2, 3, 16, 4)
    check(on, kernel, q * 2, q, grid=(2,))


def test_hbm_view__ellipsis_of_a_picked_view_is_stored_to(on):
    @nki.jit
    def kernel(x):
        out = output((2, 3, 16, 4))
        for b in nl.affine_range(2):
            for h in nl.affine_range(3):
                o = out[b, h]
                nl.store(o[...], nl.load(x[b, h, :, :]))
        return out
    x = numbers(2, 3, 16, 4)
    check(on, kernel, x, x)


def test_hbm_scalar_tensor(on):
    @nki.jit
    def kernel(seed, x):
        return store_new(nl.load(x) * nl.load(seed[0]))
    check(on, kernel, numbers(1, 8) * 3, np.array([3], np.float32), numbers(1, 8))


def test_zero_dimensional_argument(on):
    @nki.jit
    def kernel(seed):
        return store_new(nl.load(seed) * 2)
    check(on, kernel, np.array([[6]], np.float32), np.array(3, np.float32))


def test_parts_of_parts__of_two_tensors_whose_dimensions_of_one_element_differ(on):
    """Equal subscripts of views that lie alike, one of which has its own partition, the other one that repeats."""
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        alone, first = nl.load(x[0:1, :]), tile[0:1, :]
        repeated = first.broadcast_to((4, 16))
        out = output((4, 12))
        nl.store(out, 0.0)
        nl.store(out[0:1, 0:4], nl.add(alone[0:1, 4:8], first[0:1, 4:8]))
        nl.store(out[0:4, 4:8], nl.add(tile[0:4, 4:8], repeated[0:4, 4:8]))
        nl.store(out[0:1, 8:12], nl.add(alone[:, 2:14][:, 2:6], repeated[0:1, 4:8]))
        return out
    x = numbers(4, 16)
    expected = np.zeros((4, 12), np.float32)
    expected[0, 0:4] = expected[0, 8:12] = x[0, 4:8] * 2
    expected[:, 4:8] = x[:, 4:8] + x[0, 4:8]
    check(on, kernel, expected, x)
