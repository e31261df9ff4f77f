# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known at run time only: loops, registers, addresses, programs that reduce over each other, generators."""

import numpy as np
import pytest

from nki_mlir.cli.runnable import run_module
from nki_mlir.cli.source import read_module
from nki_mlir.language.beta import isa as beta_nisa
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.beta.typing import scalar
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import kernel_text

from ..targets.cpu.test_host_operations import counted_rows_of_cores
from .reading import printed, reread, reread_beta

EXECUTORS = ("eager", "interpreter", "jit", "isa")
X = np.arange(512, dtype=np.float32).reshape(64, 8)
COUNT = np.array([[3]], np.int32)
ROWS = np.array([[5], [0], [63], [5]], np.int32)


def checked(kernel, arrays, expected, executors=EXECUTORS[:2]):
    """The text of a kernel that computes such an array, before and after it is read; its third text is the second."""
    text = printed(kernel, arrays)
    again = reread(text)
    for executor in executors:
        np.testing.assert_array_equal(again.on(executor)(*arrays), expected)
    second = printed(again, arrays)
    assert printed(reread(second), arrays) == second
    return text


@nki.jit
def counted(x, count):
    out = nl.ndarray((64, 8), nl.float32, buffer=nl.shared_hbm)
    rows, number = nl.load(x), nl.load(count)
    limit = nisa.register_alloc()
    nisa.register_load(limit, number)

    def body(i):
        nisa.tensor_scalar(rows, rows, op0=nl.add, operand0=1.0)
    nl.fori_loop(1, limit, body)
    nisa.dma_copy(out, rows)
    return out


def test_a_counted_loop_is_fori_loop():
    text = checked(counted, [X, COUNT], X + 2, EXECUTORS)
    assert "    nl.fori_loop(1, register, body)\n" in text and "nisa.register_load(register, number)" in text


ADDS, SETS = '"nki.binary_scalar"(%alloc_2, %alloc_2)', '"nisa.memset"(%alloc_2)'     # of the loop's counter


@pytest.mark.parametrize("edit, turns", [
    (lambda add, begin: add.replace("scalar = 1.0", "scalar = 2.0"), 2),
    (lambda add, begin: add + add, 2),
    (lambda add, begin: add + add.replace("(%alloc_2, ", "(%alloc_0, "), 3),       # a copy of it after the last addition
    (lambda add, begin: add.replace("scalar = 1.0", "scalar = 0.0") + add, 3),
    (lambda add, begin: add + add.replace("scalar = 1.0", "scalar = 0.0"), 3),
    (lambda add, begin: add.replace("scalar = 1.0", "scalar = 4.0") + add.replace("scalar = 1.0", "scalar = -3.0"), 3),
    (lambda add, begin: add.replace('"add"', '"multiply"').replace("= 1.0", "= 2.0"), 2),
    (lambda add, begin: begin.replace("value = 1.0", "value = 3.0") + add, 1),
    (lambda add, begin: add + "%last = arith.constant 5 : index\n", 3)])
def test_a_loop_counts_if_one_addition_is_the_last_use_of_its_counter(edit, turns):
    """Another loop has another form, and all run as often as the module's."""
    module = counted.lower(X, COUNT).specialization.program_modules[0]
    lines = module.operation.get_asm().splitlines(keepends=True)
    add, begin = (next(line for line in lines if text in line) for text in (ADDS, SETS))
    changed = edit(add, begin)
    module = read_module("".join(lines).replace(add, changed), "counted.mlir")
    text = kernel_text([module], comments=False)
    assert ("nl.fori_loop(1, register, body" in text) == (
        changed.count('"nki.') == 1 and '"add"' in changed and "memset" not in changed)
    count = np.array([[4]], np.int32)
    np.testing.assert_array_equal(reread(text).on("interpreter")(X, count), X + turns)
    np.testing.assert_array_equal(dict(run_module(module, [X, count, np.zeros_like(X)], "interpreter"))["out"], X + turns)


@nki.jit
def conditional(x, count):
    out = nl.ndarray((64, 8), nl.float32, buffer=nl.shared_hbm)
    rows, left = nl.load(x), nl.load(count)
    going = nisa.register_alloc()
    nisa.register_load(going, left)

    def body(going):
        nisa.tensor_scalar(rows, rows, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(left, left, op0=nl.subtract, operand0=1)
        nisa.register_load(going, left)
        return going
    nl.while_loop(going, body)
    nisa.dma_copy(out, rows)
    return out


def test_a_condition_in_a_register_is_while_loop():
    text = checked(conditional, [X, COUNT], X + 3, EXECUTORS)
    assert "    nl.while_loop(register, body)\n" in text
    assert "        nisa.register_load(going, left)\n        return going\n" in text


@beta_nki.jit
def beta_while(x, count):
    out = beta_nl.ndarray((64, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    rows, left = beta_nl.load(x), beta_nl.load(count)
    going = scalar(True)
    while going:
        rows[...] = beta_nl.add(rows, 1.0)
        left[...] = beta_nl.subtract(left, 1)
        going = scalar(left)
    beta_nl.store(out, rows)
    return out


def test_a_condition_in_a_tile_is_loaded():
    text = checked(beta_while, [X, COUNT], X + 3)
    assert "        nisa.register_load(going, left)\n        return going\n    nl.while_loop(nisa.register_alloc(1)" in text
    assert "nl.not_equal" not in text


@beta_nki.jit
def slanted(x, rows):
    out = beta_nl.ndarray((4, 2), beta_nl.float32, buffer=beta_nl.shared_hbm)
    index = beta_nl.load(rows)
    beta_nl.store(out, beta_nl.load(x[index, beta_nl.arange(4)[:, None] + beta_nl.arange(2)[None, :]]))
    return out


@beta_nki.jit
def slanted_back(x, rows):
    """The position moves to lower columns, the index begins one row further on."""
    out = beta_nl.ndarray((4, 2), beta_nl.float32, buffer=beta_nl.shared_hbm)
    index = beta_nl.load(rows)
    beta_nl.store(out, beta_nl.load(x[index + 1, 5 - beta_nl.arange(4)[:, None] + beta_nl.arange(2)[None, :]]))
    return out


@beta_nki.jit
def pieces(x, rows):
    """A piece of two columns of each row, the next piece for the next row."""
    out = beta_nl.ndarray((4, 2), beta_nl.float32, buffer=beta_nl.shared_hbm)
    index = beta_nl.load(rows)
    beta_nl.store(out, beta_nl.load(x[index, beta_nl.arange(4)[:, None] * 2 + beta_nl.arange(2)[None, :]]))
    return out


def test_pieces_of_rows_are_rows_of_a_table():
    """The beta generation reads no rows that begin at any element."""
    expected = [X[r, 2 * p:2 * p + 2] for p, r in enumerate(ROWS[:, 0])]
    assert "operand0=4.0, op1=nl.add" in checked(pieces, [X, ROWS], expected)
    beta = reread_beta(printed(pieces, [X, ROWS], generation="beta"))
    assert np.array_equal(beta.on("interpreter")(X, ROWS), expected)


def test_rows_by_an_index_that_also_move():
    text = checked(slanted, [X, ROWS], [[X[r, p], X[r, p + 1]] for p, r in enumerate(ROWS[:, 0])], EXECUTORS)
    assert text.count("nisa.iota(") == text.count("nisa.scalar_tensor_tensor(") == 1 and "tensor_scalar(" not in text
    rows = ROWS // 2
    checked(slanted_back, [X, rows], [[X[r + 1, 5 - p], X[r + 1, 6 - p]] for p, r in enumerate(rows[:, 0])], EXECUTORS)


def test_rows_by_an_index_that_also_move_in_a_large_tensor_are_refused():
    with pytest.raises(Unprintable, match="row indices in addition to a start that differs from row to row, in a large tensor"):
        printed(slanted, [np.zeros(((1 << 21) + 1, 8), np.float32), ROWS])


@nki.jit
def addressed(x, rows, count):
    out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    index, number, tile = nl.load(rows), nl.load(count), nl.load(x[0:4])
    gathered = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(gathered, x.ap([[8, 4], [1, 8]], vector_offset=index))
    part = nl.ndarray((4, 2), nl.float32)
    nisa.tensor_copy(part, tile.ap([[8, 4], [1, 2]], scalar_offset=number, indirect_dim=1))
    nisa.tensor_copy(gathered.ap([[8, 4], [1, 2]], scalar_offset=number, indirect_dim=1), part, nisa.engine.vector)
    nisa.dma_copy(out, gathered)
    return out


def test_run_time_addresses_are_access_patterns():
    expected = X[ROWS[:, 0]]
    expected[:, 3:5] = X[0:4, 3:5]
    text = checked(addressed, [X, ROWS, COUNT], expected, EXECUTORS)
    assert "src=x.ap([[8, 4], [1, 8]], vector_offset=" in text
    assert "nisa.tensor_copy(dst=part, src=tile.ap([[8, 4], [1, 2]], scalar_offset=number, indirect_dim=1))" in text
    line = ("nisa.tensor_copy(dst=gathered.ap([[8, 4], [1, 2]], scalar_offset=number, indirect_dim=1), src=part, "
            "engine=nisa.engine.vector)")
    assert line.replace(" ", "") in "".join(text.split()).replace(",)", ")")


def test_run_time_copies_of_a_named_engine_are_one_instruction():
    text = addressed.lower(X, ROWS, COUNT).as_text("nisa")
    assert text.count("nisa.dynamic_") == 2 and text.count("nisa.dma_gather") == 1 and "nisa.tensor_copy" not in text
    assert 'engine = "vector"' in text


@nki.jit
def rows_from_columns(x, rows):
    out = nl.ndarray((2, 4, 6), nl.float32, buffer=nl.shared_hbm)
    index = nl.load(rows)
    for k in range(2):
        nisa.dma_copy(out[k], x.ap([[8, 4], [1, 6]], offset=2 + k, vector_offset=index))
    return out


def test_rows_that_an_index_selects_are_gathered_where_all_are_in_the_tensor():
    rows = np.minimum(ROWS, 62)                 # from column 3 on, row 63 has no 6 elements
    expected = [X.reshape(-1)[rows * 8 + start + np.arange(6)] for start in (2, 3)]
    checked(rows_from_columns, [X, rows], np.array(expected), EXECUTORS)
    text = rows_from_columns.lower(X, rows).as_text("nki")
    assert text.count("nisa.dma_gather") == text.count("nisa.dynamic_read") == 1


@beta_nki.jit
def gathered_and_scattered(x, rows):
    out = beta_nl.ndarray((64, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    index, column = beta_nl.load(rows), beta_nl.arange(8)[None, :]
    beta_nl.store(out, beta_nl.load(x))
    beta_nl.store(out[index, column], beta_nl.load(x[index, column]) + 1000.0)
    return out


def test_rows_by_a_tile_of_indices():
    rows = np.array([[5], [0], [63], [7]], np.int32)
    expected = X.copy()
    expected[rows[:, 0]] += 1000
    text = checked(gathered_and_scattered, [X, rows], expected)
    assert text_has(text, "src=x.ap([[8, 4], [1, 8]], vector_offset=index)",
                    "dst=out.ap([[8, 4], [1, 8]], vector_offset=index)")


def text_has(text, *parts):
    return all(part in text for part in parts)


@beta_nki.jit
def dynamic_columns(x, count):
    out = beta_nl.ndarray((64, 2), beta_nl.float32, buffer=beta_nl.shared_hbm)
    tile, number = beta_nl.load(x), beta_nl.load(count)
    p, f = beta_nl.mgrid[0:64, 0:2]
    beta_nl.store(out, beta_nisa.tensor_copy_dynamic_src(tile[p, number[0, 0] + f]))
    return out


def test_columns_by_a_number_of_the_run_time():
    checked(dynamic_columns, [X, COUNT], X[:, 3:5])


@beta_nki.jit
def reversed_rows(x):
    out = beta_nl.ndarray((64, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    p, f = beta_nl.mgrid[0:64, 0:8]
    beta_nl.store(out[63 - p, f], beta_nl.load(x[63 - p, 7 - f]) * 2.0)
    return out


def test_rows_backwards_are_rows_of_a_table():
    text = checked(reversed_rows, [X], X[:, ::-1] * 2)
    assert "nisa.iota(" in text and "channel_multiplier=-1)" in text


@beta_nki.jit
def last_row_first(x):
    out = beta_nl.ndarray((4, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    p, f = beta_nl.mgrid[0:4, 0:8]
    rows = beta_nl.load(x[p, f])
    beta_nl.store(out[p, f], rows)
    beta_nl.store(out[3 - p, f], rows, mask=p >= 3)
    return out


def test_one_row_is_not_backwards():
    expected = X[:4].copy()
    expected[0] = X[3]
    assert "tensor_copy" not in checked(last_row_first, [X], expected)


@beta_nki.jit
def columns_backwards_of_some_rows(x):
    out = beta_nl.ndarray((8, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    p, f = beta_nl.mgrid[0:3, 0:8]
    rows, kept = beta_nl.load(x[0:16, 0:8]), beta_nl.zeros((16, 8), beta_nl.float32)
    kept[5 + p, 7 - f] = beta_nl.load(x[p, f])
    beta_nl.store(out[p, 7 - f], beta_nl.copy(rows[9 + p, f]))
    beta_nl.store(out[3 + p, 7 - f], rows[9 + p, f])
    beta_nl.store(out[6:8, 0:8], kept[6:8, 0:8])
    return out


def test_rows_where_no_engine_begins_are_backwards():
    expected = np.concatenate([X[9:12, ::-1], X[9:12, ::-1], X[1:3, ::-1]])
    np.testing.assert_array_equal(columns_backwards_of_some_rows(X), expected)
    checked(columns_backwards_of_some_rows, [X], expected, EXECUTORS)


@beta_nki.jit
def reducing(x):
    out = beta_nl.ndarray((2, 3, 8, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    i, j = beta_nl.program_id(0), beta_nl.program_id(1)
    loaded = beta_nl.load(x[beta_nl.ds((i * 3 + j) * 8, 8), :])
    total = beta_nl.all_reduce(loaded, op=np.add, program_axes=1)
    beta_nl.store(out[i, j], beta_nl.all_reduce(total, op=np.maximum, program_axes=[0, 1]) - loaded)
    return out


def test_programs_that_reduce_over_each_other():
    blocks = X[:48].reshape(2, 3, 8, 8)
    totals = blocks.sum(1, keepdims=True)
    text = checked(reducing[2, 3], [X], totals.max(0, keepdims=True) - blocks, EXECUTORS)
    assert text_has(text, "loaded = nl.ndarray((8, 2, 3, 8)", "total = nl.ndarray((8, 2, 8)", "for program_0 in range(2):",
                    "for program_1 in range(3):", "nisa.dma_copy(dst=loaded[:, program_0, program_1, :]")
    assert text.count("op=nl.add") <= 2             # in loops over the groups


@beta_nki.jit
def reducing_in_a_loop(x):
    out = beta_nl.ndarray((2, 64, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    for k in beta_nl.affine_range(2):
        part = beta_nl.load(x[beta_nl.ds(k * 32, 32), :])
        beta_nl.store(out[beta_nl.program_id(0), beta_nl.ds(k * 32, 32), :],
                      beta_nl.all_reduce(part, op=np.add, program_axes=0))
    return out


def test_a_loop_with_a_reduction_over_programs_stays():
    text = checked(reducing_in_a_loop[2], [X], np.stack([X * 2, X * 2]), EXECUTORS)
    assert text_has(text, "for k in range(2):", "dst=out[program, nl.ds(k * 32, 32), :]")


@beta_nki.jit
def reducing_in_a_branch(x):
    out = beta_nl.ndarray((2, 64, 8), beta_nl.float32, buffer=beta_nl.shared_hbm)
    part = beta_nl.load(x)
    for k in beta_nl.affine_range(2):
        if k > 0:
            beta_nl.store(out[beta_nl.program_id(0)], beta_nl.all_reduce(part, op=np.add, program_axes=0))
        else:
            beta_nl.store(out[beta_nl.program_id(0)], part)
    return out


def over_programs(op, dtype=None):
    @beta_nki.jit
    def reducing_parts(x):
        out = beta_nl.ndarray((3, 64, 8), dtype or x.dtype, buffer=beta_nl.shared_hbm)
        part = beta_nl.load(x[beta_nl.program_id(0)])
        beta_nl.store(out[beta_nl.program_id(0)], beta_nl.all_reduce(part, op=op, program_axes=0, dtype=dtype))
        return out
    return reducing_parts[3]


LARGE = np.random.default_rng(0).integers(-2 ** 30, 2 ** 30, (3, 64, 8)).astype(np.int32)


@pytest.mark.parametrize("op, array, dtype, expected", [
    (np.add, LARGE, None, LARGE.sum(0, dtype=np.int32)),
    (np.add, LARGE, beta_nl.float32, LARGE.sum(0, dtype=np.int32).astype(np.float32)),
    (np.multiply, LARGE, beta_nl.float32, LARGE.prod(0, dtype=np.int32).astype(np.float32)),
    (np.bitwise_xor, LARGE, None, np.bitwise_xor.reduce(LARGE)),
    (np.bitwise_xor, LARGE.astype(np.int16), None, np.bitwise_xor.reduce(LARGE.astype(np.int16))),
    (np.minimum, LARGE.astype(np.int16), None, LARGE.astype(np.int16).min(0)),
    (np.minimum, LARGE.astype(np.float32), None, LARGE.astype(np.float32).min(0)),
])
def test_reductions_over_programs_of_other_dtypes(op, array, dtype, expected):
    checked(over_programs(op, dtype), [array], np.stack([expected] * 3), EXECUTORS)


CLOSE = np.random.default_rng(1).integers(-2 ** 31, 2 ** 31, (64, 8)) + np.arange(-1, 2)[:, None, None]
CLOSE[1, 0] = -2 ** 31, 2 ** 31 - 1, 0, -1, 1, -2 ** 31, 2 ** 31 - 1, 2 ** 24 + 1
CLOSE[2, 0] = 2 ** 31 - 1, -2 ** 31, -2 ** 31, 0, -1, -2 ** 31, 2 ** 31 - 1, 2 ** 24


@pytest.mark.parametrize("op", [np.minimum, np.maximum])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_extremes_of_32_bit_integers_are_exact(op, dtype):
    """Neighbors that float32 does not tell apart, and differences beyond 32 bits."""
    array = CLOSE.astype(dtype)
    checked(over_programs(op), [array], np.stack([op.reduce(array)] * 3), EXECUTORS)


def test_programs_share_a_result_that_only_the_reduction_writes():
    text = printed(over_programs(np.add), [LARGE.astype(np.float32)])
    assert text_has(text, "part = nl.ndarray((64, 3, 8)", "added = nl.ndarray((64, 8)", "dst=added, src=part[:, 0, :])")
    assert text.count("op=nl.add") == 1             # in a loop over the other programs


def test_a_reduction_over_programs_in_a_branch_of_all_programs():
    text = checked(reducing_in_a_branch[2], [X], np.stack([X * 2, X * 2]), EXECUTORS)
    assert text.count("op=nl.add") == 1


@beta_nki.jit
def reducing_onto_itself(x):
    out = beta_nl.ndarray((3, 64, 8), x.dtype, buffer=beta_nl.shared_hbm)
    tile = beta_nl.load(x[beta_nl.program_id(0)])
    for _ in beta_nl.sequential_range(2):
        tile[:, 2:6] = beta_nl.all_reduce(tile[:, 1:5], op=np.add, program_axes=0)
    beta_nl.store(out[beta_nl.program_id(0)], tile)
    return out


def test_programs_reduce_parts_of_a_tile_onto_it():
    x = LARGE.astype(np.float32) % 64
    expected = x.copy()
    for _ in range(2):
        expected[:, :, 2:6] = expected[:, :, 1:5].sum(0)
    checked(reducing_onto_itself[3], [x], expected, EXECUTORS)


@beta_nki.jit
def moved_by_program(x):
    """Indices and masks follow from the program's id, in a loop."""
    out = beta_nl.ndarray((3, 16, 8), x.dtype, buffer=beta_nl.shared_hbm)
    i, rows = beta_nl.program_id(0), beta_nl.arange(16)[:, None]
    tile = beta_nl.zeros((16, 8), x.dtype)
    for k in beta_nl.sequential_range(2):
        tile[:, beta_nl.ds(k * 4, 4)] = beta_nl.copy(beta_nl.load(
            x[i * 16 + rows, k * 4 + beta_nl.arange(4)[None, :]], mask=rows < 8 + 4 * i), mask=rows < 8)
    total = beta_nl.all_reduce(tile, op=np.maximum, program_axes=0)
    beta_nl.store(out[i], beta_nl.add(total, tile))
    return out


def test_programs_that_move_by_their_id_and_reduce():
    parts = X[:48].reshape(3, 16, 8) * (np.arange(16)[:, None] < 8)
    checked(moved_by_program[3], [X], parts.max(0) + parts, EXECUTORS)


def test_a_reduction_over_one_program_is_a_copy():
    text = checked(over_programs_of_a_row[1, 3], [X], np.stack([X] * 3), EXECUTORS)
    assert "op=nl.add" not in text


@beta_nki.jit
def over_programs_of_a_row(x):
    out = beta_nl.ndarray((3, 64, 8), x.dtype, buffer=beta_nl.shared_hbm)
    beta_nl.store(out[beta_nl.program_id(1)], beta_nl.all_reduce(beta_nl.load(x), op=np.add, program_axes=0))
    return out


@beta_nki.jit
def reducing_while(x):
    out = beta_nl.ndarray((2, 64, 8), x.dtype, buffer=beta_nl.shared_hbm)
    tile, left = beta_nl.load(x), beta_nl.full((1, 1), 3, beta_nl.int32)
    going = scalar(True)
    while going:
        tile[...] = beta_nl.all_reduce(tile, op=np.add, program_axes=0)
        left[...] = beta_nl.subtract(left, 1)
        going = scalar(left)
    beta_nl.store(out[beta_nl.program_id(0)], tile)
    return out


def test_a_reduction_over_programs_in_a_run_time_loop():
    text = checked(reducing_while[2], [X], np.stack([8 * X] * 2), EXECUTORS)
    assert text_has(text, "nl.while_loop(", "tile = nl.ndarray((64, 2, 8)", "left = nl.ndarray((1, 1)")


@beta_nki.jit
def reducing_as_often(x, count):
    out = beta_nl.ndarray((2, 64, 8), x.dtype, buffer=beta_nl.shared_hbm)
    tile, left = beta_nl.load(x), beta_nl.load(count)
    going = scalar(True)
    while going:
        tile[...] = beta_nl.all_reduce(tile, op=np.add, program_axes=0)
        left[...] = beta_nl.subtract(left, 1)
        going = scalar(left)
    beta_nl.store(out[beta_nl.program_id(0)], tile)
    return out


def test_a_reduction_over_programs_in_a_loop_that_programs_may_leave_apart_is_an_error():
    with pytest.raises(Unprintable, match="a reduction over programs in a branch or in a run-time loop") as caught:
        printed(reducing_as_often[2], [X, COUNT])
    assert caught.value.at.line == reducing_as_often.func.__code__.co_firstlineno + 5


@nki.jit
def picked(x, columns):
    out = nl.ndarray((64, 16), nl.float32, buffer=nl.shared_hbm)
    tile, index, doubled = nl.load(x), nl.load(columns), nl.ndarray((64, 16), nl.float32)
    nisa.tensor_scalar(doubled, tile.indirect(index, 16), op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(out, doubled)
    return out


def test_columns_that_partitions_share(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    columns = np.random.default_rng(0).integers(0, 8, (64, 1)).astype(np.uint32)
    expected = np.stack([X[p, columns[p // 16 * 16:p // 16 * 16 + 16, 0]] for p in range(64)]) * 2
    text = checked(picked, [X, columns], expected)
    assert ".indirect(index" in text


@nki.jit
def drawn(x):
    out = nl.ndarray((1, 4), nl.float32, buffer=nl.shared_hbm)
    seed = nl.ndarray((1, 1), nl.int32)
    nisa.memset(seed, 5)
    nl.random_seed(seed)
    nisa.dma_copy(out, nl.floor(nl.rand((1, 4), nl.float32)))
    return out


def test_random_numbers_are_not_copied_once_more():
    text = checked(drawn, [X], np.zeros((1, 4)))
    assert "tensor_copy" not in text


@nki.jit
def generators(x):
    drawn = nl.ndarray((1, 4), nl.uint32, buffer=nl.shared_hbm)
    again = nl.ndarray((1, 4), nl.uint32, buffer=nl.shared_hbm)
    state = nl.ndarray((1, 6), nl.uint32)
    nisa.rand_get_state(state, engine=nisa.engine.gpsimd)
    for out in (drawn, again):
        nisa.rand_set_state(state, engine=nisa.engine.gpsimd)
        tile = nl.ndarray((1, 4), nl.uint32)
        nisa.rng(tile, engine=nisa.engine.gpsimd)
        nisa.dma_copy(out, tile)
    return drawn, again


def test_states_of_generators(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    text = printed(generators, [X])
    assert text_has(text, "nisa.rand_get_state(dst=", "nisa.rand_set_state(src_seeds=", "engine=nisa.engine.gpsimd)")
    drawn, again = reread(text).on("interpreter")(X)
    np.testing.assert_array_equal(drawn, again)
    np.testing.assert_array_equal(drawn, generators.on("interpreter")(X)[0])
    second = printed(reread(text), [X])
    assert second.count("nisa.memset") == text.count("nisa.memset") == 0


def test_checks_of_outputs_that_cores_write_are_not_printed():
    arrays = [X, np.array([[32, 32]], np.int32)]
    text = printed(counted_rows_of_cores[2], arrays)
    assert text.count("fori_loop") == 2
    for executor in EXECUTORS:
        np.testing.assert_array_equal(reread(text).on(executor)(*arrays), X)


@nki.jit
def the_only_row(x, index):
    out = nl.ndarray((1, 8), nl.float32, buffer=nl.shared_hbm)
    row = nl.zeros((1, 8), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(row, x.ap([[8, 1], [1, 8]], vector_offset=nl.load(index), indirect_dim=0),
                  oob_mode=nisa.oob_mode.skip)
    nisa.dma_copy(out, row)
    return out


@pytest.mark.parametrize("number", [0, 1, 5])
def test_the_only_row_of_a_table(number):
    """An index of a table with one row is 0, or skipped."""
    row, index = X[:1].copy() + 1, np.array([[number]], np.int32)
    checked(the_only_row, [row, index], row * (number == 0), EXECUTORS)
