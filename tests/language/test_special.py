# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions without a loop form, and the queries and enumerations around them, against NumPy on every executor."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import scalar

from .running import check, compare, floats, run

P = 128
pytestmark = pytest.mark.parametrize("executor", ["eager", "interpreter", "jit", "isa"])


def out(shape, dtype=np.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def recurrence(a, b, first=0.0):
    states, carry = np.empty(a.shape, np.float64), np.full(len(a), first)
    for i in range(a.shape[1]):
        carry = a[:, i] * carry + b[:, i]
        states[:, i] = carry
    return states


def test_tensor_tensor_scan(executor):
    @nki.jit
    def kernel(a, b):
        o = out(a.shape)
        start = nl.full((P, 1), 0.5, nl.float32)
        nl.store(o, nisa.tensor_tensor_scan(nl.load(a), nl.load(b), initial=start, op0=np.multiply, op1=np.add))
        return o
    a, b = np.random.default_rng(0).random((2, P, 64)).astype(np.float32)
    check(executor, kernel, recurrence(a, b, 0.5).astype(np.float32), a, b, rtol=1e-5)


@pytest.mark.parametrize("command", ["reset_reduce", "load_reduce"])
def test_tensor_scalar_cumulative(executor, command):
    """Running sums of two halves: the second goes on where the first ended."""
    @nki.jit
    def kernel(x):
        o, tile = out(x.shape), nl.load(x)
        sums = nl.ndarray(x.shape, nl.float32)
        for k in nl.static_range(2):
            nisa.tensor_scalar_cumulative(
                src=tile[:, 32 * k:32 * k + 32], dst=sums[:, 32 * k:32 * k + 32], op0=np.multiply, op1=np.add, imm0=2.0,
                imm1=5.0, reduce_cmd=nisa.reduce_cmd.reduce if k else getattr(nisa.reduce_cmd, command))
        nl.store(o, sums)
        return o
    x = np.floor(floats(P, 64) * 8)
    check(executor, kernel, np.cumsum(2 * x, axis=1) + (5 if command == "load_reduce" else 0), x)


@pytest.mark.parametrize("loops", ["affine_range", "sequential_range"])
def test_registers_that_each_iteration_loads(executor, loops):
    """They belong to the iteration: nothing that iterations of an affine_range share."""
    @nki.jit
    def kernel(x):
        o = out(x.shape)
        for k in getattr(nl, loops)(2):
            tile, sums = nl.load(x[:, nl.ds(32 * k, 32)]), nl.ndarray((P, 32), nl.float32)
            nisa.tensor_scalar_cumulative(src=tile, dst=sums, op0=np.multiply, op1=np.add, imm0=2.0, imm1=tile[:, 0:1],
                                          reduce_cmd=nisa.reduce_cmd.load_reduce)
            nl.store(o[:, nl.ds(32 * k, 32)], sums)
        return o
    x = np.floor(floats(P, 64) * 8).astype(np.float32)
    halves = [np.cumsum(2 * h, axis=1) + h[:, :1] for h in (x[:, :32], x[:, 32:])]
    check(executor, kernel, np.concatenate(halves, 1), x)


def test_bn_stats_and_aggregate(executor):
    @nki.jit
    def kernel(x):
        stats, moments = out((P, 6)), out((P, 2))
        pieces = nisa.bn_stats(nl.load(x))
        nl.store(stats, pieces)
        nl.store(moments, nisa.bn_aggr(pieces))
        return stats, moments
    x = floats(P, 100)
    even, odd = x[:, ::2].astype(np.float64), x[:, 1::2].astype(np.float64)
    full = np.full(P, 50.0)
    stats = np.stack([full, even.mean(1), even.var(1) * 50, full, odd.mean(1), odd.var(1) * 50], 1)
    moments = np.stack([x.astype(np.float64).mean(1), x.astype(np.float64).var(1)], 1)
    check(executor, kernel, (stats.astype(np.float32), moments.astype(np.float32)), x, rtol=1e-4, atol=1e-5)


def test_max8_find_and_replace(executor):
    @nki.jit
    def kernel(x):
        best, places, left = out((P, 8)), out((P, 8), nl.uint32), out(x.shape)
        tile = nl.load(x)
        top = nisa.max8(src=tile)
        nl.store(best, top)
        nl.store(places, nisa.nc_find_index8(data=tile, vals=top))
        nl.store(left, nisa.nc_match_replace8(data=tile, vals=top, imm=-1.0))
        return best, places, left
    x = np.random.default_rng(2).permuted(np.tile(np.arange(40, dtype=np.float32), (P, 1)), axis=1)
    order = np.argsort(-x, 1)[:, :8]
    replaced = x.copy()
    np.put_along_axis(replaced, order, -1, 1)
    check(executor, kernel, (np.take_along_axis(x, order, 1), order.astype(np.uint32), replaced), x)


def test_max8_needs_eight_values_under_its_mask(executor):
    @nki.jit
    def kernel(x):
        best, tile = out((P, 8)), nl.load(x)
        i, j = nl.mgrid[0:P, 0:16]
        nl.store(best, nisa.max8(src=tile[i, j], mask=(j < 5)))
        return best
    with pytest.raises(NkiMlirError, match=r"'max8'.* 5"):
        run(executor, kernel, floats(P, 16))


def test_find_index_of_equal_values_takes_successive_places(executor):
    @nki.jit
    def kernel(x):
        places = out((1, 8), nl.uint32)
        tile = nl.load(x)
        nl.store(places, nisa.nc_find_index8(data=tile, vals=nisa.max8(src=tile)))
        return places
    x = np.array([[5, 1, 5, 2, 0, 7, 3, 3, 4]], np.float32)
    check(executor, kernel, np.array([[5, 0, 2, 8, 6, 7, 3, 1]], np.uint32), x)


def test_stream_shuffle_rotates_and_broadcasts(executor):
    @nki.jit
    def kernel(x):
        turned, spread = out(x.shape), out((32, 16))
        tile = nl.load(x)
        target = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.nc_stream_shuffle(tile, target, [(i - 1) % 32 for i in range(32)])
        nl.store(turned, target)
        wide = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.sbuf)
        nisa.nc_stream_shuffle(tile[0:1, :], wide, [0] * 32)
        nl.store(spread, wide)
        return turned, spread
    x = floats(P, 16)
    turned = np.concatenate([np.roll(q, 1, 0) for q in x.reshape(4, 32, 16)])
    check(executor, kernel, (turned, np.tile(x[:1], (32, 1))), x)


def test_local_gather(executor):
    @nki.jit
    def kernel(x, index):
        o = out((32, 3, 16, 2))
        nl.store(o, nisa.local_gather(nl.load(x), nl.load(index), num_elem_per_idx=2))
        return o
    x = floats(32, 20)
    index = np.random.default_rng(3).integers(0, 9, (32, 3)).astype(np.uint16) * 2
    expected = np.empty((32, 48, 2), np.float32)
    for g in (0, 16):
        order = index[g:g + 16].flatten(order="F").astype(int)
        expected[g:g + 16] = x[g:g + 16][:, order[:, None] + np.arange(2)]
    check(executor, kernel, expected.reshape(32, 3, 16, 2), x, index)


@pytest.mark.parametrize("rows, fits", [(slice(0, 32), True), (slice(32, 128), True), (slice(0, 128), True),
                                        (slice(0, 40), False), (slice(8, 128), False)], ids=str)
def test_shuffles_and_local_gathers_take_masks_of_whole_groups(executor, rows, fits):
    """Partitions of a group take from each other: a part of a group would be another group."""
    @nki.jit
    def kernel(x, index):
        turned, gathered = out(x.shape), out((P, 1, 16, 1))
        tile, p = nl.load(x), nl.arange(P)[:, None]
        target = nl.full(x.shape, 7, nl.float32)
        nisa.nc_stream_shuffle(tile, target, [(i - 1) % 32 for i in range(32)], mask=(p >= rows.start) & (p < rows.stop))
        nl.store(turned, target)
        nl.store(gathered, 0)
        nl.store(gathered, nisa.local_gather(tile, nl.load(index), mask=(p >= rows.start) & (p < rows.stop)))
        return turned, gathered
    x, index = floats(P, 16), np.arange(P, dtype=np.uint16)[:, None] % 16
    if not fits:
        with pytest.raises(NkiMlirError, match="'nc_stream_shuffle': a mask on partitions must select complete groups of 32"):
            run(executor, kernel, x, index)
        return
    turned, gathered = np.full_like(x, 7), np.zeros((P, 16), np.float32)
    turned[rows] = np.concatenate([np.roll(q, 1, 0) for q in x.reshape(4, 32, 16)])[rows]
    gathered[rows] = x[rows]
    check(executor, kernel, (turned, gathered.reshape(P, 1, 16, 1)), x, index)


def test_local_gather_of_many_dims_under_a_mask_is_one_instruction(executor):
    """Not one for each part of the row that it looks things up in."""
    @nki.jit
    def kernel(x, index):
        o = out((64, 2, 16, 2))
        nl.store(o, 0)
        nl.store(o, nisa.local_gather(nl.load(x), nl.load(index), num_elem_per_idx=2, mask=nl.arange(64)[:, None] >= 48))
        return o
    x, index = floats(64, 20), (np.arange(128).reshape(64, 2) % 2).astype(np.uint16)
    order = index[48:].flatten(order="F").astype(int)
    expected = np.zeros((64, 2, 16, 2), np.float32)
    expected[48:] = x[48:][:, order[:, None] + np.arange(2)].reshape(16, 2, 16, 2)
    check(executor, kernel, expected, x, index)


def test_gather_flattened(executor):
    @nki.jit
    def kernel(x, index):
        o = out((2, 2, 2))
        nl.store(o, nl.gather_flattened(nl.load(x), nl.load(index)))
        return o
    x = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
    index = np.array([[[0, 1], [1, 3]], [[3, 3], [1, 0]]], np.uint32)
    check(executor, kernel, np.array([[[1, 2], [2, 4]], [[8, 8], [6, 5]]], np.float32), x, index)


def test_activation_runs_its_accumulators(executor):
    @nki.jit
    def kernel(x):
        sums, last = out((P, 1)), out(x.shape)
        bias = nl.zeros((P, 1), nl.float32)
        total = nl.ndarray((P, 1), nl.float32)
        for i in nl.static_range(3):
            command = nisa.reduce_cmd.reset_reduce if i == 0 else nisa.reduce_cmd.reduce
            tile = nisa.activation(np.square, nl.load(x), bias=bias, reduce_op=np.add, reduce_res=total,
                                   reduce_cmd=command)
        nl.store(sums, total)
        nl.store(last, tile)
        return sums, last
    x = floats(P, 20)
    check(executor, kernel, (3 * (x.astype(np.float64) ** 2).sum(1, keepdims=True).astype(np.float32), x * x), x,
          rtol=1e-5)


def test_range_select_keeps_a_running_maximum(executor):
    @nki.jit
    def kernel(x, low, high):
        o, top = out(x.shape), out((P, 1))
        best = nl.ndarray((P, 1), nl.float32)
        chosen = nisa.range_select(on_true_tile=nl.load(x), comp_op0=np.greater_equal, comp_op1=np.less,
                                   bound0=nl.load(low), bound1=nl.load(high), reduce_res=best,
                                   reduce_cmd=nisa.reduce_cmd.reset_reduce, range_start=2)
        nl.store(o, chosen)
        nl.store(top, best)
        return o, top
    x, low, high = floats(P, 24), np.full((P, 1), 3, np.float32), np.full((P, 1), 9, np.float32)
    column = np.arange(24) + 2
    expected = np.where((column >= 3) & (column < 9), x, np.float32(nl.fp32.min))
    check(executor, kernel, (expected, expected.max(1, keepdims=True)), x, low, high)


def test_select_reduce(executor):
    @nki.jit
    def kernel(x, where):
        o, top = out(x.shape), out((P, 1))
        chosen, best = nl.ndarray(x.shape, x.dtype), nl.ndarray((P, 1), nl.float32)
        nisa.select_reduce(dst=chosen, predicate=nl.load(where), on_true=nl.load(x), on_false=-9.0, reduce_res=best,
                           reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nl.store(o, chosen)
        nl.store(top, best)
        return o, top
    x, where = floats(P, 24), np.random.default_rng(4).integers(0, 2, (P, 24)).astype(np.uint8)
    expected = np.where(where, x, np.float32(-9))
    check(executor, kernel, (expected, expected.max(1, keepdims=True)), x, where)


def test_sequence_bounds(executor):
    @nki.jit
    def kernel(ids):
        o = out((1, 2, 8), nl.int32)
        nl.store(o, nisa.sequence_bounds(segment_ids=nl.load(ids)))
        return o
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 1]], np.int32)
    expected = np.array([[[8, 1, 1, 3, 3, 3, 8, 7], [-1, 3, 3, 6, 6, 6, -1, 8]]], np.int32)
    check(executor, kernel, expected, ids)


def test_dma_transpose(executor):
    @nki.jit
    def kernel(x):
        o = out((24, 5, 16))
        nl.store(o, nisa.dma_transpose(nl.load(x)))
        return o
    x = floats(16, 5, 24)
    check(executor, kernel, x.transpose(2, 1, 0), x)


# -- indirect ----------------------------------------------------------------------------------------------------------
def test_gather_of_rows(executor):
    @nki.jit
    def kernel(table, index):
        o = out((64, 40))
        rows = nl.load(index)
        p, f = nl.arange(64)[:, None], nl.arange(40)[None, :]
        nl.store(o, nl.load(table[rows[p, 0], f]))
        return o
    table, index = floats(200, 40), np.random.default_rng(5).integers(0, 200, (64, 1)).astype(np.int32)
    check(executor, kernel, table[index[:, 0]], table, index)


def test_gather_of_rows__masked_in_a_loop_of_the_device(executor):
    """The mask leaves one row, at a partition where no engine begins but a transfer may."""
    @nki.jit
    def kernel(table, index):
        o = out((8, 6))
        nl.store(o, 0.0)
        going, turns, last = scalar(True), nl.full((1, 1), 2, nl.int32), nl.arange(8)[:, None] >= 7
        while going:
            rows = nl.add(nl.load(index), 1, dtype=nl.int32)
            nl.store(o, nl.load(table[rows, nl.arange(6)[None, :]], mask=last), mask=last)
            turns[...] = nl.subtract(turns, 1)
            going = scalar(turns)
        return o
    table, index = floats(20, 6), np.arange(8, dtype=np.int32)[:, None]
    check(executor, kernel, np.r_[np.zeros((7, 6), np.float32), table[8:9]], table, index)


def test_block_at_run_time__its_rows(executor):
    """A [1, 1] tile picks a block, an index its rows: loaded and stored."""
    @nki.jit
    def kernel(blocks, chosen):
        o = out((3, 64, 20))
        zeros, which = nl.zeros((64, 20), nl.float32), nl.load(chosen)
        p, f = nl.arange(32)[:, None], nl.arange(20)[None, :]
        for i in nl.affine_range(3):
            nl.store(o[i], zeros)
        for i in nl.affine_range(2):
            nl.store(o[which[0, 1], 32 * i + p, f], nl.load(blocks[which[0, 0], 32 * i + p, 1, f]))
        return o
    blocks, expected = floats(5, 64, 2, 20), np.zeros((3, 64, 20), np.float32)
    expected[2] = blocks[4, :, 1]
    check(executor, kernel, expected, blocks, np.array([[4, 2]], np.int32))


def test_block_at_run_time__out_of_bounds(executor):
    @nki.jit
    def kernel(blocks, chosen):
        o, which = out((64, 20)), nl.load(chosen)
        nl.store(o, nl.load(blocks[which[0, 0], nl.arange(64)[:, None], nl.arange(20)[None, :]]))
        return o
    with pytest.raises(IndexError, match="is out of bounds for axis 0 with size"):
        run(executor, kernel, floats(5, 64, 20), np.array([[5]], np.int32))


def test_slice_of_hbm_from_a_place_known_at_run_time(executor):
    @nki.jit
    def kernel(x, places):
        rows, columns, at = out((8, 30)), out((50, 6)), nl.load(places)
        nl.store(rows, nl.load(x[at[0, 0] + nl.arange(8)[:, None], nl.arange(30)[None, :]]))
        nl.store(columns, nl.load(x[nl.arange(50)[:, None], at[0, 1] + 2 * nl.arange(6)[None, :]]))
        return rows, columns
    x = floats(50, 30)
    check(executor, kernel, (x[41:49], x[:, 7:19:2]), x, np.array([[41, 7]], np.int32))


def test_tile_plus_index__is_a_tile_where_it_is_no_subscript(executor):
    @nki.jit
    def kernel(x):
        o, total = out(x.shape), nl.load(x) + nl.arange(8)[None, :]
        assert total.shape == x.shape and total.dtype == x.dtype
        nl.store(o, nl.maximum(3 - total, 0) + total * 2)
        return o
    x = np.floor(floats(16, 8) * 10)
    total = x + np.arange(8, dtype=np.float32)
    check(executor, kernel, np.maximum(3 - total, 0) + total * 2, x)


def test_scatter_and_accumulate(executor):
    @nki.jit
    def kernel(rows, index):
        o = out((P, 40))
        nl.store(o, 1.0)
        f = nl.arange(40)[None, :]
        nl.atomic_rmw(o[nl.load(index), f], nl.load(rows), op=np.add)
        return o
    rows, index = floats(64, 40), np.random.default_rng(6).integers(0, 50, (64, 1)).astype(np.int32)
    expected = np.ones((P, 40))
    np.add.at(expected, index[:, 0], rows)
    check(executor, kernel, expected.astype(np.float32), rows, index, atol=1e-5)


@pytest.mark.parametrize("mode", ["skip", "error"])
def test_rows_out_of_bounds(executor, mode):
    @nki.jit
    def kernel(rows, index):
        o = out((P, 40))
        nl.store(o, -1.0)
        f = nl.arange(40)[None, :]
        nisa.dma_copy(dst=o[nl.load(index), f], src=nl.load(rows), oob_mode=getattr(nisa.oob_mode, mode),
                      dge_mode=nisa.dge_mode.unknown)
        return o
    rows, index = floats(64, 40), (3 * np.arange(64)).astype(np.int32)[:, None]
    if mode == "error":
        with pytest.raises(IndexError, match="is out of bounds for axis 0 with size"):
            run(executor, kernel, rows, index)
        return
    expected = np.full((P, 40), -1, np.float32)
    expected[3 * np.arange(43)] = rows[:43]
    check(executor, kernel, expected, rows, index)


def test_free_offsets_known_at_run_time(executor):
    @nki.jit
    def kernel(x, offset):
        o, moved = out((P, 16)), out(x.shape)
        tile, at = nl.load(x), nl.load(offset)
        p, f = nl.arange(P)[:, None], nl.arange(16)[None, :]
        piece = nisa.tensor_copy_dynamic_src(tile[p, at[0, 0] + f])
        nl.store(o, piece)
        target = nl.zeros(x.shape, x.dtype)
        nisa.tensor_copy_dynamic_dst(dst=target[p, at[0, 0] + f], src=piece)
        nl.store(moved, target)
        return o, moved
    x = floats(P, 64)
    moved = np.zeros_like(x)
    moved[:, 37:53] = x[:, 37:53]
    check(executor, kernel, (x[:, 37:53], moved), x, np.array([[37]], np.int32))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, ml_dtypes.float8_e4m3, ml_dtypes.bfloat16, np.float16])
def test_dynamic_places_are_integers_whatever_the_elements_are(executor, dtype):
    """Places up to 600 as numbers of the elements' own types would be other places."""
    @nki.jit
    def kernel(x, offset):
        o, moved = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        tile, at = nl.load(x), nl.load(offset)
        p, f = nl.arange(P)[:, None], nl.arange(590)[None, :]
        piece, target = nl.zeros(x.shape, x.dtype), nl.zeros(x.shape, x.dtype)
        piece[p, f] = nisa.tensor_copy_dynamic_src(tile[p, at[0, 0] + f])
        nisa.tensor_copy_dynamic_dst(dst=target[p, at[0, 0] + f], src=tile[p, f])
        nl.store(o, piece)
        nl.store(moved, target)
        return o, moved
    x = np.random.default_rng(0).integers(0, 2, (P, 600)).astype(dtype)
    read, written = np.zeros_like(x), np.zeros_like(x)
    read[:, :590], written[:, 7:597] = x[:, 7:597], x[:, :590]
    check(executor, kernel, (read, written), x, np.array([[7]], np.int32))


# -- loops, random numbers, queries ------------------------------------------------------------------------------------
def test_loop_reduce(executor):
    @nki.jit
    def kernel(x):
        o = out((P, 32))
        best = nl.ndarray((P, 32), nl.float32)
        for i in nl.affine_range(4):
            best[...] = nl.loop_reduce(nl.load(x[:, nl.ds(i * 32, 32)]), op=np.maximum, loop_indices=[i])
        nl.store(o, best)
        return o
    x = -np.abs(floats(P, 128))
    check(executor, kernel, x.reshape(P, 4, 32).max(1), x)


@pytest.mark.parametrize("loop", [nl.affine_range, nl.static_range, range])
def test_loop_reduce_in_a_loop_that_does_not_begin_at_0(executor, loop):
    """The first iteration is that of the loop, also where another loop around it has the same number."""
    @nki.jit
    def kernel(x):
        o, each = out((P, 32)), out((4, P, 32))
        best = nl.ndarray((P, 32), nl.float32)
        most = nl.ndarray((4, nl.par_dim(P), 32), nl.float32)
        for i in loop(2, 6):
            best[...] = nl.loop_reduce(nl.load(x[:, nl.ds(i * 32, 32)]), op=np.maximum, loop_indices=[i])
        for i in loop(0, 4):
            for j in loop(2, 6):
                most[j - 2] = nl.loop_reduce(nl.load(x[:, nl.ds((i + j) * 32, 32)]), op=np.max, loop_indices=i)
        nl.store(o, best)
        for j in range(4):
            nl.store(each[j], most[j])
        return o, each
    x = -np.abs(floats(P, 288))
    parts = x.reshape(P, 9, 32)
    check(executor, kernel, (parts[:, 2:6].max(1), np.stack([parts[:, j:j + 4].max(1) for j in range(2, 6)])), x)


def test_loop_reduce_into_a_variable(executor):
    """The reduction allocates a tile, which each run of the loops outside of it reduces into anew. The evaluator cannot
    know what the call's value is assigned to."""
    @nki.jit
    def kernel(x):
        o, total, last = out((4, P, 8)), out((P, 1)), out((P, 8))
        runs = []
        for i in nl.affine_range(4):
            for j in nl.affine_range(2, 8):
                t = nl.load(x[:, nl.ds(i * 64 + j * 8, 8)])
                part = nl.loop_reduce(t, op=np.add, loop_indices=[j], dtype=nl.float32)
                everything = nl.loop_reduce(nl.sum(t, axis=1), op=np.add, loop_indices=[i, j])
            nl.store(o[i], part)
        for i in nl.static_range(2):
            most = nl.zeros((P, 8), nl.float32)
            for j in nl.affine_range(2 * i, 2 * i + 2):
                most = nl.loop_reduce(nl.load(x[:, nl.ds(j * 8, 8)]), op=np.max, loop_indices=j)
            runs.append(most)
        nl.store(total, everything)
        nl.store(last, runs[0] * 2 + runs[1])
        return o, total, last
    x = np.round(floats(P, 256) * 64) / 64
    parts = x.reshape(P, 4, 8, 8)[:, :, 2:]
    first, second = (x.reshape(P, 32, 8)[:, k:k + 2].max(1) for k in (0, 2))
    expected = parts.sum(2).swapaxes(0, 1), parts.sum((1, 2, 3))[:, None], first * 2 + second
    compare(run(executor, kernel, x), expected)


@pytest.mark.parametrize("written", [True, False])
def test_loop_reduce_into_what_was_written_before(executor, written):
    """The destination is an operand: dst = op(dst, x). Only where nothing wrote it does the first x stand alone."""
    @nki.jit
    def kernel(x):
        o = out((P, 32))
        best = nl.ndarray((P, 32), nl.float32)
        if written:
            best[...] = -1.0
        for _ in nl.sequential_range(2):
            for i in nl.affine_range(4):
                best[...] = nl.loop_reduce(nl.load(x[:, nl.ds(i * 32, 32)]), op=np.maximum, loop_indices=i)
            best[...] = best - 0.25
        nl.store(o, best)
        return o
    x = -np.abs(floats(P, 128))
    most = x.reshape(P, 4, 32).max(1)
    best = np.maximum(most, np.float32(-1)) if written else most
    best = np.maximum(best - np.float32(0.25), most) if written else most
    check(executor, kernel, best - np.float32(0.25), x)


def test_iterations_that_seed_the_generator_are_independent(executor):
    """The generator is no memory of the kernel: each iteration of nl.affine_range may begin with its seed."""
    @nki.jit
    def kernel(x):
        o = out((4, P, 32))
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                nl.random_seed(5 + j)
                nl.store(o[2 * i + j], nl.dropout(nl.load(x), rate=0.5))
        return o
    kept = run(executor, kernel, np.ones((P, 32), np.float32))
    np.testing.assert_array_equal(kept[:2], kept[2:])
    assert not np.array_equal(kept[0], kept[1]) and set(np.unique(kept)) == {0, 1}


def test_random_numbers_repeat_with_their_seed(executor):
    @nki.jit
    def kernel(x):
        o, dropped = out((3, P, 32)), out((P, 32))
        nl.random_seed(11)
        nl.store(o[0], nl.rand((P, 32)))
        nl.store(o[1], nl.rand((P, 32)))
        nl.random_seed(11)
        nl.store(o[2], nl.rand((P, 32)))
        nl.store(dropped, nl.dropout(nl.load(x), rate=0.25))
        return o, dropped
    x = np.ones((P, 32), np.float32)
    numbers, dropped = run(executor, kernel, x)
    np.testing.assert_array_equal(numbers[0], numbers[2])
    assert not np.array_equal(numbers[0], numbers[1])
    # The means of n uniform numbers and of n choices are within five standard deviations.
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers[:2].mean() - 0.5) < 5 * np.sqrt(1 / 12 / numbers[:2].size)
    assert set(np.unique(dropped)) == {0, 1}
    assert abs((dropped == 0).mean() - 0.25) < 5 * np.sqrt(3 / 16 / dropped.size)
    np.testing.assert_array_equal(numbers, run("eager", kernel, x)[0])


def test_queries(executor):
    @nki.jit(platform_target="trn1")
    def kernel(x: nl.Tensor):
        o = out(x.shape)
        assert nisa.get_nc_version() == nisa.nc_version.gen2 < nisa.nc_version.gen3
        assert nisa.dma_engine is not nisa.unknown_engine and nisa.fp32.min == nl.fp32.min
        assert nl.tile_size.total_available_sbuf_size == 180224
        nl.store(o, nisa.tensor_copy(nl.load(x), engine=nisa.unknown_engine))
        return o
    x = floats(8, 8)
    check(executor, kernel, x, x)


def test_least_bfloat16(executor):
    assert float(nl.bfp16.min) == float(np.array(0xFF7F, np.uint16).view(nl.bfloat16))
