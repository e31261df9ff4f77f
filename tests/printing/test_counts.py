# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Printed kernels run the instructions of the kernels that they were printed from, and compute the same."""

import os
from unittest.mock import patch

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa_beta
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki

from ..property_counts import FUZZ
from ..random_programs.comparing import EXECUTORS
from .counts import differing, drawn, instructions, limits
from .reading import printed, reread

X = np.arange(-32, 32, dtype=np.float32).reshape(8, 8)


@nki.jit
def below_diagonal(x):
    out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
    tile, kept = nl.load(x), nl.zeros((8, 8), nl.float32)
    kept[...] = nl.multiply(tile, 2.0, mask=nl.arange(8)[:, None] >= nl.arange(8)[None, :])
    nl.store(out, kept)
    return out


@nki.jit
def copied_to_itself(x):
    out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    tile[...] = nl.copy(tile)
    nl.store(out, nl.add(tile, 1.0))
    return out


@nki.jit
def sum_of_programs(x):
    out = nl.ndarray((2, 8, 8), nl.float32, buffer=nl.shared_hbm)
    program = nl.program_id(0)
    total = nl.all_reduce(nl.add(nl.load(x), program * 3.0), op=np.add, program_axes=0)
    nl.store(out[program], total)
    return out


@nki.jit
def converted_rows(x):
    out = nl.ndarray((8, 8), nl.float16, buffer=nl.shared_hbm)
    tile, kept = nl.load(x), nl.zeros((8, 8), nl.float16)
    kept[3:6] = nl.copy(tile[3:6], dtype=nl.float16)
    nl.store(out, kept)
    return out


@nki.jit
def rows_multiplied(x):
    """Rows from a partition where no engine begins, as both operands."""
    out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
    tile, kept = nl.load(x), nl.zeros((8, 8), nl.float32)
    kept[3:6] = nl.multiply(tile[3:6], tile[3:6])
    nl.store(out, kept)
    return out


@nki.jit
def transposed(x):
    out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.transpose(nl.load(x)))
    return out


@nki.jit
def lower_half_of_rows(x):
    """What operations under a mask write is all that others read."""
    out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
    below = nl.arange(64)[:, None] >= 32
    tile = nl.load(x)
    raised = nl.exp(nl.subtract(tile, nl.max(tile, axis=1, mask=below), mask=below), mask=below)
    total = nl.sum(raised, axis=1, mask=below)
    nl.store(out, nl.zeros(x.shape, nl.float32))
    nl.store(out[32:64], nl.divide(raised, total, mask=below)[32:64])
    return out


@nki.jit
def kept_above_diagonal(x):
    """A tile keeps its elements, whatever the mask."""
    out, tile = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    tile[...] = nl.copy(tile, mask=nl.arange(8)[:, None] >= nl.arange(8)[None, :])
    nl.store(out, tile)
    return out


@nki.jit
def fifth_row_of_products(x):
    """A row of a product, from a partition where no engine begins."""
    out, tile = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    nl.store(out, nl.copy(nl.matmul(tile, tile, transpose_x=True, mask=nl.arange(8)[None, :, None] == 5)))
    return out


@nki.jit
def compared_with_a_row(x):
    """A row, which two operations write, is repeated once before the loop."""
    out, tile = nl.ndarray((3, 8, 8), nl.float32, buffer=nl.shared_hbm), nl.zeros((8, 8), nl.float32)
    tile[:, 0:4] = nl.load(x[:, 0:4])
    for i in nl.sequential_range(3):
        nl.store(out[i], nl.add(nl.load(x), tile[2:3]))
    return out


@nki.jit
def shifted_columns(x):
    """All reads precede the writes: the copy goes through another tile."""
    out, tile = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    tile[:, 2:8] = nl.copy(tile[:, 0:6])
    nl.store(out, tile)
    return out


@nki.jit
def shifted_rows(x):
    out, tile = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    tile[2:8] = nl.add(tile[0:6], tile[2:8])
    nl.store(out, tile)
    return out


@current_nki.jit
def regrouped_rows(x):
    """Rows of HBM that are read in another shape, which is not an axis of the tensor."""
    out = current_nl.ndarray((4, 16), current_nl.float32, buffer=current_nl.shared_hbm)
    tile, rows = current_nl.ndarray((8, 8), current_nl.float32), current_nl.ndarray((4, 16), current_nl.float32)
    memory = current_nl.ndarray((8, 8), current_nl.float32, buffer=current_nl.private_hbm)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=memory, src=tile)
    nisa.dma_copy(dst=rows, src=memory.reshape((4, 16)))
    nisa.dma_copy(dst=out, src=rows)
    return out


THREE_ROWS = np.where((np.arange(8)[:, None] >= 3) & (np.arange(8)[:, None] < 6), X, 0)


@pytest.mark.parametrize("kernel, expected", [
    (below_diagonal, np.tril(X * 2)), (copied_to_itself, X + 1), (converted_rows, THREE_ROWS),
    (rows_multiplied, THREE_ROWS ** 2), (transposed, X.T), (regrouped_rows, X.reshape(4, 16)), (kept_above_diagonal, X),
    (shifted_columns, np.concatenate([X[:, :2], X[:, :6]], axis=1)),
    (shifted_rows, np.concatenate([X[:2], X[2:] + X[:6]])),
    (fifth_row_of_products, np.where(np.arange(8)[:, None] == 5, X.T @ X, 0)),
    (compared_with_a_row, np.stack([X + np.where(np.arange(8) < 4, X[2], 0)] * 3))])
def test_instructions_stay(kernel, expected):
    again = reread(printed(kernel, [X]))
    assert instructions(again, [X]) == instructions(kernel, [X])
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), expected)


def test_operations_on_some_rows_are_fused():
    x = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    again = reread(printed(lower_half_of_rows, [x]))
    assert instructions(again, [x]) == instructions(lower_half_of_rows, [x])
    assert instructions(again, [x])["ACTIVATE_REDUCE"] == 1


@nki.jit
def column_of_factors(x):
    """The subtraction of one element a partition becomes the bias of the activation."""
    out, tile = nl.ndarray((8, 1), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    high = nl.max(tile, axis=1, keepdims=True)
    nl.store(out, nl.exp(nl.subtract(nl.min(tile, axis=1, keepdims=True), high)))
    return out


def test_operations_on_columns_are_fused():
    again = reread(printed(column_of_factors, [X]))
    assert instructions(again, [X]) == instructions(column_of_factors, [X])
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), column_of_factors.on(executor)(X))


@nki.jit
def transposed_integers(x):
    out = nl.ndarray((36, 128), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.transpose(nl.load(x)))
    return out


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32])
def test_the_vector_engine_transposes_blocks_of_integers(dtype):
    x = np.arange(128 * 36).reshape(128, 36).astype(dtype)
    again = reread(text := printed(transposed_integers, [x]))
    assert "engine.tensor" not in text and text.count("nisa.nc_transpose(") == 2
    assert instructions(again, [x]) == instructions(transposed_integers, [x])
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(x), x.T)


@nki.jit
def exponential_that_a_copy_overwrites(x):
    out, tile = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    raised = nl.exp(tile, mask=nl.arange(8)[:, None] >= nl.arange(8)[None, :])
    raised[...] = nl.copy(tile)
    nl.store(out, raised)
    return out


def test_a_tile_that_nothing_has_written_needs_no_mask():
    text = printed(exponential_that_a_copy_overwrites, [X])
    assert "nisa.activation(dst=raised, op=nl.exp, data=tile)" in text and "predicate" not in text
    for executor in EXECUTORS:
        np.testing.assert_array_equal(reread(text).on(executor)(X), X)


def test_registers_that_an_instruction_resets_need_no_fill():
    @nki.jit
    def counted(x):
        out, tile = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm), nl.load(x)
        totals = nl.ndarray((8, 1), nl.float32, buffer=nl.sbuf)
        nl.store(out, nisa_beta.tensor_scalar_reduce(data=tile, op0=np.multiply, operand0=2.0, reduce_op=np.add,
                                                     reduce_res=totals))
        nl.store(out[:, 0:1], totals)
        return out
    counts = instructions(reread(printed(counted, [X])), [X])
    assert counts.total() == instructions(counted, [X]).total() and not counts["MEMSET"]


def test_registers_that_an_instruction_resets_in_a_loop_need_no_fill():
    @current_nki.jit
    def summed(x, count):
        out, totals = current_nl.ndarray((8, 1), x.dtype, buffer=current_nl.shared_hbm), current_nl.zeros((8, 1), x.dtype)
        tile, left = current_nl.load(x), current_nl.load(count)

        def body(going):
            doubled = current_nl.ndarray((8, 8), x.dtype)
            nisa.tensor_scalar_reduce(doubled, tile, op0=current_nl.multiply, operand0=2.0, reduce_op=current_nl.add,
                                      reduce_res=totals)
            nisa.tensor_scalar(left, left, op0=current_nl.subtract, operand0=1)
            nisa.register_load(going, left)
            return going
        current_nl.while_loop(nisa.register_alloc(1), body)
        nisa.dma_copy(dst=out, src=totals)
        return out
    arrays = [X, np.array([[3]], np.int32)]
    assert instructions(summed, arrays)["MEMSET"] == 2          # the totals and the register of the loop
    for executor in EXECUTORS:
        np.testing.assert_array_equal(summed.on(executor)(*arrays), 2 * X.sum(1, keepdims=True))


def test_two_programs_each_add():
    launched = sum_of_programs[2]
    again = reread(printed(launched, [X]))
    before, after = (instructions(kernel, [X]) for kernel in (launched, again))
    assert before["CC_ALL_REDUCE"] == 2 and not after["COPY"]
    assert after.total() <= before.total() - 2      # they load once, and the sum is one instruction
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), np.stack([2 * X + 3] * 2))


@nki.jit
def least_of_programs(x):
    """The tile of the reduction is behind a loop that the text unrolls."""
    out, program = nl.ndarray((2, 8, 8), nl.float32, buffer=nl.shared_hbm), nl.program_id(0)
    tile, kept = nl.add(nl.load(x), program * 3.0), nl.zeros((8, 6), nl.float32)
    for _ in range(1):
        for i in nl.sequential_range(3):
            kept[...] = nisa_beta.bn_stats(tile, mask=nl.arange(8)[:, None] < i)
        least = nl.all_reduce(tile, op=np.minimum, program_axes=0)
    nl.store(out[program], least)
    return out


def test_a_reduction_behind_an_unrolled_loop():
    again = reread(printed(least_of_programs[2], [X]))
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), np.stack([X] * 2))


@nki.jit
def one_program_apart(x):
    out = nl.ndarray((2, 8, 8), nl.float32, buffer=nl.shared_hbm)
    tile, program = nl.load(x), nl.program_id(0)
    nl.store(out[program], nl.exp(tile) if program == 0 else tile)
    return out


def test_programs_that_differ_count_once_each():
    launched = one_program_apart[2]
    again = reread(printed(launched, [X]))
    assert instructions(again, [X]) == instructions(launched, [X]) == {"DMA": 4, "ACTIVATE": 1}


@nki.jit
def maxima_of_columns(x):
    out = nl.ndarray((8, 1), nl.float32, buffer=nl.shared_hbm)
    largest = nl.load(x[0:8, 0:1])
    for column in nl.static_range(1, 8):
        largest[...] = nl.maximum(largest, nl.load(x[0:8, nl.ds(column, 1)]))
    nl.store(out, largest)
    return out


def test_counts_before_the_search_have_each_load():
    """The search merges the loads of eight columns. Before it each counts, so that no merge hides a needless one."""
    again = reread(printed(maxima_of_columns, [X]))
    for kernel in maxima_of_columns, again:
        assert instructions(kernel, [X], searched=False) == {"DMA": 9, "TENSOR_SCALAR": 7}
        assert instructions(kernel, [X])["DMA"] < 9


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("generation, count, most", [("current", 50, 2), ("beta", 80, 4)], ids=["current", "beta"])
def test_random_kernels_keep_their_counts(generation, count, most):
    """But for those that have what docs/limits.md names, and for what only one of the texts can fuse."""
    counted, far = 0, []
    with patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn3"), np.errstate(all="ignore"):
        for program, launched in drawn(generation, count if FUZZ else count // 4, seed=1):
            arrays = list(program.arrays.values())
            if generation == "beta" and limits(launched, arrays):
                continue
            counted += 1
            again = reread(printed(launched, arrays), program.grid)
            if difference := differing(instructions(launched, arrays), instructions(again, arrays)):
                far.append(difference)
    assert len(far) <= most and counted >= (20 if FUZZ else 5), (counted, far)


INDEX = np.array([[1]], np.int32)


@nki.jit
def columns_left_out(x, start):
    """The mask leaves out the first columns of a copy from a run-time position."""
    out = nl.ndarray((8, 4), nl.float32, buffer=nl.shared_hbm)
    tile, index = nl.load(x), nl.load(start)
    nl.store(out, nisa_beta.tensor_copy_dynamic_src(tile[nl.arange(8)[:, None], index[0, 0] + nl.arange(4)[None, :]],
                                                    mask=nl.arange(4)[None, :] >= 2))
    return out


@nki.jit
def one_position(x, start):
    """The index is below 2^32, never negative."""
    out = nl.ndarray((8, 4), nl.float32, buffer=nl.shared_hbm)
    tile, index = nl.load(x), nl.copy(nl.load(start), dtype=nl.uint32)
    nl.store(out, nisa_beta.tensor_copy_dynamic_src(tile[nl.arange(8)[:, None], index[0, 0] + nl.arange(4)[None, :]],
                                                    mask=nl.arange(4)[None, :] >= 2))
    return out


@nki.jit
def rows_and_their_numbers(x, start):
    """Row p begins p elements behind the row of its index."""
    out, tile = nl.ndarray((3, 2), nl.float32, buffer=nl.shared_hbm), nl.ndarray((3, 1), nl.int32, buffer=nl.sbuf)
    tile[...] = nl.broadcast_to(nl.load(start), shape=(3, 1))
    nl.store(out, nl.load(x[tile, nl.arange(3)[:, None] + nl.arange(2)[None, :]]))
    return out


@nki.jit
def converted_transpose(x, start):
    out = nl.ndarray((8, 8), nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(out, nisa_beta.dma_transpose(nl.load(x), axes=(1, 0), dtype=nl.bfloat16))
    return out


@nki.jit
def rows_of_a_wide_tile(x, start):
    """Parts of a tile get a row in all partitions."""
    out, wide = nl.ndarray((8, 2, 8), nl.float32, buffer=nl.shared_hbm), nl.zeros((8, 2, 8), nl.float32, buffer=nl.sbuf)
    tile = nl.load(x[0:1, 0:8])
    for i in range(2):
        wide[:, i, :] = nl.copy(nl.broadcast_to(tile, shape=(8, 8)))
    nl.store(out, wide)
    return out


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("kernel", [columns_left_out, one_position, rows_and_their_numbers, converted_transpose,
                                    rows_of_a_wide_tile], ids=lambda kernel: kernel.__name__)
def test_as_many_instructions_for(kernel, placed):
    again = reread(printed(kernel, [X, INDEX], keep_placement=placed))
    assert instructions(again, [X, INDEX]).total() == instructions(kernel, [X, INDEX]).total()
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X, INDEX), kernel.on(executor)(X, INDEX))


def test_an_index_that_is_not_negative_is_not_moved():
    assert "moved" in printed(columns_left_out, [X, INDEX]) and "moved" not in printed(one_position, [X, INDEX])


@nki.jit
def narrow_factor(x, start):
    """A column of float16 is the second operand of one instruction, which the function takes as a tile."""
    out, column = nl.ndarray((8, 1), nl.float32, buffer=nl.shared_hbm), nl.load(x[:, 0:1])
    narrow = nl.copy(nl.load(x[:, 3:4]), dtype=nl.float16)
    nl.store(out, nl.multiply(nl.multiply(column, 2.0), narrow))
    return out


@nki.jit
def sums_around_a_reduction(x, start):
    """Two selections begin new sums in the same registers, before and after the programs reduce."""
    out, program = nl.ndarray((2, 8, 1), nl.float32, buffer=nl.shared_hbm), nl.program_id(0)
    tile, rows, kept = nl.load(x), nl.zeros((8, 1), nl.float32), nl.zeros((8, 8), nl.float32)
    chosen = nl.copy(nl.greater(tile, 3.0), dtype=nl.uint8)
    for _ in range(2):
        nisa_beta.select_reduce(dst=kept, predicate=chosen, on_true=tile, on_false=-3.0, reduce_res=rows,
                                reduce_cmd=nisa_beta.reduce_cmd.reset_reduce, reduce_op=np.max)
        tile = nl.all_reduce(kept, op=np.add, program_axes=0)
    nl.store(out[program], rows)
    return out


@pytest.mark.parametrize("placed", [False, True])
def test_narrow_second_operand(placed):
    again = reread(printed(narrow_factor, [X, INDEX], keep_placement=placed))
    assert instructions(again, [X, INDEX]).total() == instructions(narrow_factor, [X, INDEX]).total()
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X, INDEX), narrow_factor.on(executor)(X, INDEX))


def test_registers_of_sums_around_a_reduction():
    launched = sums_around_a_reduction[2]
    again, counts = reread(printed(launched, [X, INDEX])), instructions(launched, [X, INDEX])
    assert "CC_ALL_REDUCE" not in counts and counts.total() == instructions(again, [X, INDEX]).total()
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X, INDEX), launched.on(executor)(X, INDEX))


@nki.jit
def reversed_rows_from_one(x):
    """A store reads the columns of some rows from the last on, where no engine can start."""
    out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.zeros((8, 8), nl.float32))
    rows, columns = nl.arange(8)[:, None], nl.arange(8)[None, :]
    nl.store(out[rows, 7 - columns], tile, mask=rows >= 1)
    return out


def test_a_store_reads_rows_of_the_reversed_tile():
    """One copy reverses the tile, and the transfer reads its rows: no other tile has these rows alone."""
    text = printed(reversed_rows_from_one, [X])
    again = reread(text)
    assert "nisa.dma_copy(dst=out[1:8, :], src=staged[1:8, :])" in text, text
    assert instructions(again, [X]) == instructions(reversed_rows_from_one, [X])
    expected = np.concatenate([np.zeros((1, 8)), X[1:, ::-1]])
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), expected)
