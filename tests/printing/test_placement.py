# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text that keeps a placement: order, engines, addresses, fused instructions; what has no words is listed."""

import re
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.beta.typing import scalar
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import kernel_text

from ..random_programs.comparing import EXECUTORS
from .counts import instructions
from .reading import printed, reread
from .test_examples import first_cases

ALL = ("allocated_transpose", "attention", "average_pool2d", "convolution", "cumulative_sum", "current_matmul",
       "current_normalization", "current_tensor_add", "embedding", "giou", "interpolation", "matmul", "matmul_walk",
       "normalization", "selective_scan", "softmax", "tensor_add", "top_k", "transpose2d")
ROWS = np.arange(96, dtype=np.float32).reshape(16, 6)
TRIED = ("current_matmul", "embedding", "softmax")
OTHER_NAMES = ("attention", "embedding")    # a sum in registers, rows by indices: other instructions, as many of them


def check_placement(name):
    for launched, arguments in first_cases(name):
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        again = reread(kernel_text(launched.lower(*arguments).specialization.modules, comments=False,
                                   keep_placement=True))
        expected, got = launched.on("interpreter")(*arguments), again.on("interpreter")(*arrays)
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (expected, got))):
            np.testing.assert_array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64))
        before, after = instructions(launched, arguments), instructions(again, arrays)
        assert after.total() == before.total() and (name in OTHER_NAMES or after == before)


@pytest.mark.parametrize("name", TRIED)
@pytest.mark.filterwarnings("ignore")
def test_kept_placements_have_as_many_instructions(name):
    check_placement(name)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", sorted({*ALL} - {*TRIED}))
@pytest.mark.filterwarnings("ignore")
def test_other_kept_placements_have_as_many_instructions(name):
    check_placement(name)


@nki.jit
def scaled(x):
    out = nl.ndarray((256, 64), nl.float32, buffer=nl.shared_hbm)
    for i in range(2):
        rows = nl.load(x[i * 128:(i + 1) * 128])
        doubled = nl.ndarray((128, 64), nl.float32)
        nisa.tensor_scalar(doubled, rows, op0=nl.multiply, operand0=2.0, engine=nisa.engine.gpsimd)
        nisa.dma_copy(out[i * 128:(i + 1) * 128], doubled)
    return out


def test_engines_and_addresses_are_in_the_text():
    x = np.ones((256, 64), np.float32)
    lines = kernel_text(scaled.lower(x).specialization.modules, comments=False, keep_placement=True,
                        file=Path(__file__)).splitlines()
    assert [line for line in lines if "NKI cannot express: " in line and "semaphores" in line and "queues" in line]
    assert sum("buffer=nl.sbuf, address=(0, " in line for line in lines) == 4
    assert sum("engine=nisa.engine.gpsimd" in line for line in lines) == 2
    assert any("dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync" in line for line in lines)


@nki.jit
def first_rows(x, count):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, nl.zeros(x.shape, x.dtype))
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(count))

    def copy(row):
        nisa.dma_copy(out.ap([[6, 1], [1, 6]], scalar_offset=row), x.ap([[6, 1], [1, 6]], scalar_offset=row))
    nl.fori_loop(0, register, copy)
    return out


@pytest.mark.parametrize("kernel, regions", [(scaled, 1), (first_rows, 2)])
def test_nothing_moves_in_the_text(kernel, regions):
    """Loops of the run time are between regions, and their bodies have their own."""
    arrays = [np.ones((256, 64), np.float32)] if kernel is scaled else [ROWS, np.array([[5]], np.int32)]
    text = printed(kernel, arrays, keep_placement=True)
    heads = [line for line in text.splitlines() if line.endswith("with nl.no_reorder():")]
    assert len(heads) == regions and text.splitlines()[-1].startswith("    return")
    assert printed(reread(text), arrays, keep_placement=True) == text


@nki.jit
def swapped_count_downs(x):
    """Each core doubles its half of the rows, and the second adds one."""
    core = nl.program_id(0)
    out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
    rows, theirs = nl.ndarray((64, 64), nl.float32), nl.ndarray((64, 64), nl.float32)
    nisa.dma_copy(rows, x[nl.ds(core * 64, 64)])
    nisa.tensor_scalar(rows, rows, op0=nl.multiply, operand0=2.0)
    if core == 1:
        nisa.tensor_scalar(rows, rows, op0=nl.add, operand0=1.0)
    nisa.sendrecv(rows, theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nisa.dma_copy(out[nl.ds(core * 64, 64)], theirs)
    return out


@nki.jit
def doubled_rows(x):
    core = nl.program_id(0)
    out = nl.ndarray((256, 64), nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        rows = nl.ndarray((64, 64), nl.float32)
        nisa.dma_copy(rows, x[nl.ds(core * 128 + i * 64, 64)])
        nisa.tensor_scalar(rows, rows, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(out[nl.ds(core * 128 + i * 64, 64)], rows)
    return out


@pytest.mark.parametrize("executor", ["interpreter", "jit", "isa"])
def test_each_core_of_a_launch_has_its_part_of_the_text(executor):
    x = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)
    answer = np.concatenate([2 * x[64:128] + 1, 2 * x[:64]])
    for kernel, argument, expected in ((swapped_count_downs, x[:128], answer), (doubled_rows, x, 2 * x)):
        text = kernel_text(kernel[2].lower(argument).specialization.modules, comments=False, keep_placement=True)
        lines = text.splitlines()
        first, second = (lines[lines.index(f"    {head}:"):] for head in ("if program_id == 0", "else"))
        assert "address=(0, 0)" in "".join(first[:5]) and "address=(0, 0)" in "".join(second[:5])
        again = reread(text)
        np.testing.assert_array_equal(again[2].on(executor)(argument), expected)
        assert kernel_text(again[2].lower(argument).specialization.modules, comments=False, keep_placement=True) == text


def test_programs_of_one_core_that_differ_are_refused():
    @beta.jit
    def first_apart(x):
        row = beta_language.program_id(0)
        out = beta_language.ndarray((3, 64), dtype=x.dtype, buffer=beta_language.shared_hbm)
        tile = beta_language.load(x[row:row + 1])
        beta_language.store(out[row:row + 1], tile * 2 if row == 0 else tile)
        return out
    modules = first_apart[3].lower(np.ones((3, 64), np.float32)).specialization.modules
    with pytest.raises(Unprintable, match="the placement of programs that differ and run on one core cannot be printed"):
        kernel_text(modules, keep_placement=True)


@beta.jit
def summed_column(x):
    out = beta_language.ndarray((7, 1), dtype=x.dtype, buffer=beta_language.shared_hbm)
    tile = beta_language.load(x)
    beta_language.store(out, beta_language.add(beta_language.sum(tile[:, 1:2], axis=1, keepdims=True), 1.0))
    return out


@beta.jit
def upside_down(x):
    rows, columns = beta_language.mgrid[0:16, 0:6]
    out = beta_language.ndarray((16, 6), dtype=x.dtype, buffer=beta_language.shared_hbm)
    beta_language.store(out, beta_language.load(x[15 - rows, columns]))
    return out


@beta.jit
def right_to_left(x):
    rows, columns = beta_language.mgrid[0:16, 0:6]
    out = beta_language.ndarray((16, 6), dtype=x.dtype, buffer=beta_language.shared_hbm)
    beta_language.store(out, beta_language.load(x[rows, 5 - columns]))
    return out


def test_an_engine_reverses_rows():
    x = np.arange(96, dtype=np.float32).reshape(16, 6)
    text = kernel_text(right_to_left.lower(x).specialization.modules, comments=False, keep_placement=True)
    assert text.count("nisa.dma_copy") == 2 and text.count("nisa.tensor_copy") == 1
    for executor in EXECUTORS:
        np.testing.assert_array_equal(reread(text).on(executor)(x), x[:, ::-1])


def test_a_reduction_of_one_column_names_its_axis():
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    text = kernel_text(summed_column.lower(x).specialization.modules, comments=False, keep_placement=True)
    assert "axis=1" in text
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), x[:, 1:2] + 1)


@beta.jit
def rounded_down(x):
    out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
    beta_language.store(out, beta_language.floor(beta_language.load(x)))
    return out


@pytest.mark.parametrize("kernel, what", [
    (upside_down, "a transfer of rows from the last to the first"), (rounded_down, "the activation 'floor'")])
def test_what_one_call_cannot_say_is_refused(kernel, what):
    modules = kernel.lower(np.zeros((16, 6), np.float32)).specialization.modules
    with pytest.raises(Unprintable, match=f"{what} in one instruction cannot be printed"):
        kernel_text(modules, keep_placement=True)


@nki.jit
def triangle(x, count):
    """How many pairs there are of i < count and j from i to 7, two at a time; how often 1 comes off a number."""
    out = nl.ndarray((1, 2), nl.int32, buffer=nl.shared_hbm)
    total, left, steps = nl.zeros((1, 1), nl.int32), nl.load(count), nl.zeros((1, 1), nl.int32)
    limit, going = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(limit, left)
    nisa.register_load(going, left)

    def inner(j):
        nisa.tensor_scalar(total, total, op0=nl.add, operand0=1)

    def count_down(going):
        nisa.tensor_scalar(left, left, op0=nl.subtract, operand0=1)
        nisa.tensor_scalar(steps, steps, op0=nl.add, operand0=1)
        nisa.register_load(going, left)
        return going
    nl.fori_loop(0, limit, lambda i: nl.fori_loop(i, 7, inner, step=2))
    nl.while_loop(going, count_down)
    nisa.dma_copy(out[:, 0:1], total)
    nisa.dma_copy(out[:, 1:2], steps)
    return out


@beta.jit
def counted_down(x, count):
    out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
    rows, left = beta_language.load(x), beta_language.load(count)
    going = scalar(True)
    while going:
        rows[...] = beta_language.add(rows, 1.0)
        left[...] = beta_language.subtract(left, 1)
        going = scalar(left)
    beta_language.store(out, rows)
    return out


@pytest.mark.parametrize("kernel, expected", [
    (first_rows, np.where(np.arange(16)[:, None] < 5, ROWS, 0)),
    (triangle, np.array([[sum(len(range(i, 7, 2)) for i in range(5)), 5]])),
    (counted_down, ROWS + 5)], ids=["first_rows", "triangle", "counted_down"])
def test_loops_of_the_run_time_keep_their_placement(kernel, expected):
    arrays = [ROWS, np.array([[5]], np.int32)]
    text = printed(kernel, arrays, keep_placement=True)
    assert "engine=nisa.engine." in text and "address=(" in text
    again = reread(text)
    assert instructions(again, arrays).total() == instructions(kernel, arrays).total()
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(*arrays), expected)
    second = printed(again, arrays, keep_placement=True)
    assert printed(reread(second), arrays, keep_placement=True) == second
    older = printed(kernel, arrays, keep_placement=True, release="2.29")
    assert ("    while going" in older) == (kernel is not first_rows) and ("nl.dynamic_range(" in older) == (
        kernel is not counted_down)


@beta.jit
def row_behind_a_loop(x, count):
    out = beta_language.ndarray((16, 6), dtype=x.dtype, buffer=beta_language.shared_hbm)
    rows, left = beta_language.load(x), beta_language.load(count)
    going = scalar(True)
    while going:
        left[...] = beta_language.subtract(left, 1)
        going = scalar(left)
    row = beta_language.copy(rows[0:1])
    beta_language.store(out, beta_language.copy(row.broadcast_to((16, 6))))
    return out


def test_a_result_defines_its_tile_behind_a_loop():
    arrays = [ROWS, np.array([[5]], np.int32)]
    text = printed(row_behind_a_loop, arrays, keep_placement=True)
    assert re.search(r"\n +\w+ = nl.broadcast_to", text[text.index("nl.while_loop("):])
    assert printed(reread(text), arrays, keep_placement=True) == text
    for executor in EXECUTORS:
        np.testing.assert_array_equal(reread(text).on(executor)(*arrays), np.broadcast_to(ROWS[:1], (16, 6)))


@beta.jit
def at_most_a_column(x, column):
    """The operand of one element a partition is no float32."""
    out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
    beta_language.store(out, beta_language.minimum(beta_language.load(x), beta_language.load(column)))
    return out


@beta.jit
def power_of_a_column(x, column):
    """The vector engine has power with a column, not of two tiles."""
    out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
    result = beta_isa.tensor_scalar(beta_language.load(x), np.power, beta_language.load(column))
    beta_language.store(out, result)
    return out


@beta.jit
def parity_of_groups(x):
    """A reduction of what another one has left, without its last axis."""
    out = beta_language.ndarray((16, 1, 1), dtype=np.uint32, buffer=beta_language.shared_hbm)
    groups = beta_language.load(x)
    parts = beta_isa.tensor_reduce(np.bitwise_xor, groups, axis=[2], keepdims=True)
    total = beta_isa.tensor_reduce(np.bitwise_xor, parts, axis=[1], keepdims=True)
    beta_language.store(out, total)
    return out


def test_reductions_have_the_axes_of_their_tiles():
    x = np.arange(96, dtype=np.uint32).reshape(16, 3, 2)
    again = reread(printed(parity_of_groups, [x], keep_placement=True))
    assert instructions(again, [x]) == instructions(parity_of_groups, [x])
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(x)[:, 0, 0], np.bitwise_xor.reduce(x.reshape(16, 6), 1))


@nki.jit
def picked_columns(x, index):
    """An instruction picks columns into the tile at an address."""
    out, tile = nl.ndarray((16, 4), x.dtype, buffer=nl.shared_hbm), nl.ndarray((16, 4), x.dtype)
    nisa.tensor_copy(dst=tile, src=nl.load(x).indirect(nl.load(index), 4))
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_operands_that_calls_take_in_other_forms(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    column, index = np.arange(40, 56).astype(np.float16)[:, None], np.zeros((16, 1), np.uint32)
    index[:4, 0] = 3, 0, 5, 0
    half = np.array([[1.0], [2.0]] * 8, np.float16)
    for kernel, operand, expected in ((at_most_a_column, column, np.minimum(ROWS, column.astype(np.float32))),
                                      (power_of_a_column, half, ROWS ** half.astype(np.float32)),
                                      (picked_columns, index, ROWS[:, [3, 0, 5, 0]])):
        again = reread(printed(kernel, [ROWS, operand], keep_placement=True))
        assert instructions(again, [ROWS, operand]).total() == instructions(kernel, [ROWS, operand]).total()
        for executor in EXECUTORS:
            np.testing.assert_array_equal(again.on(executor)(ROWS, operand), expected)


@beta.jit
def by_two_columns(x, half):
    out, column = beta_language.ndarray(x.shape, x.dtype, buffer=beta_language.shared_hbm), beta_language.load(half)
    beta_language.store(out, beta_isa.tensor_scalar(
        beta_language.load(x), np.multiply, beta_language.sqrt(column, dtype=np.float32), op1=np.add, operand1=column,
        engine=beta_isa.scalar_engine))
    return out


@beta.jit
def by_two_half_columns(x, half):
    out, column = beta_language.ndarray(x.shape, x.dtype, buffer=beta_language.shared_hbm), beta_language.load(half)
    beta_language.store(out, beta_isa.tensor_scalar(beta_language.load(x), np.multiply, column, op1=np.add, operand1=column))
    return out


@pytest.mark.parametrize("kernel, more", [(by_two_columns, 0), (by_two_half_columns, 1)])
def test_columns_of_narrow_floats_are_second_tiles(kernel, more, monkeypatch):
    """Calls take them as second tiles, but not as scalar operands: one that converts such a column has an engine and an
    address, so that the text stays."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    arrays = [ROWS, np.linspace(0.5, 2.0, 16, dtype=np.float16)[:, None]]
    text = printed(kernel, arrays, keep_placement=True)
    again = reread(text)
    assert text.count("nisa.tensor_copy(dst=converted, src=column, engine=nisa.engine.vector)") == more
    assert instructions(again, arrays).total() == instructions(kernel, arrays).total() + more
    assert printed(again, arrays, keep_placement=True) == text
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(*arrays), kernel.on(executor)(*arrays))


@nki.jit
def random_columns(x):
    """Numbers in a part of a tile, for which no function returns a tile."""
    out, tile = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
    nisa.rand2(tile[:, 0:4], min=0, max=1)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("placed", [False, True])
def test_random_numbers_are_one_instruction(placed, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert instructions(random_columns, [ROWS]) == {"DMA": 2, "MEMSET": 1, "RNG": 1}
    text = printed(random_columns, [ROWS], keep_placement=placed)
    assert text.count("nisa.rand2(") == 1 and "tensor_copy" not in text
    again = reread(text)
    assert instructions(again, [ROWS]) == instructions(random_columns, [ROWS])
    for executor in EXECUTORS:
        got = again.on(executor)(ROWS)
        np.testing.assert_array_equal(got, random_columns.on(executor)(ROWS))
        np.testing.assert_array_equal(got[:, 4:], ROWS[:, 4:])
        assert np.all((got[:, :4] >= 0) & (got[:, :4] < 1))


@nki.jit
def begun(x, first):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows, begin, sums = nl.load(x), nl.load(first), nl.ndarray(x.shape, x.dtype)
    nisa.tensor_scalar_cumulative(sums, rows, op0=nl.multiply, op1=nl.add, imm0=2.0, imm1=begin,
                                  reduce_cmd=nisa.reduce_cmd.load_reduce)
    nisa.tensor_copy(begin, rows[:, 0:1])
    nisa.dma_copy(out, sums)
    return out


def test_seeds_of_several_programs_have_addresses(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @beta.jit
    def kernel(x):
        out = beta_language.ndarray((3, 16, 6), beta_language.float32, buffer=beta_language.shared_hbm)
        tile = beta_language.load(x)
        noise = beta_language.rand((16, 6), dtype=beta_language.float32)
        total = beta_language.all_reduce(beta_language.add(tile, noise), op=np.add, program_axes=0)
        beta_language.store(out[beta_language.program_id(0)], total)
        return out
    text = printed(kernel[3], [ROWS], keep_placement=True)
    allocations = [line for line in text.splitlines() if " seed" in line and "nl.ndarray(" in line]
    assert len(allocations) == 2 and len({re.search(r"address=\(0, \d+\)", line)[0] for line in allocations}) == 2
    assert printed(reread(text), [ROWS], keep_placement=True) == text
    for executor in EXECUTORS:
        np.testing.assert_array_equal(reread(text).on(executor)(ROWS), kernel[3].on(executor)(ROWS))


def test_what_a_sum_begins_with_is_read_where_it_is_printed(monkeypatch):
    """The text names it in the instruction that accumulates, where another tile may be at its address."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    first = np.arange(16, dtype=np.float32)[:, None]
    text = printed(begun, [ROWS, first], keep_placement=True)
    begin, = re.findall(r"imm1=(\w+)", text)
    assert re.search(rf"    {begin} = nl.ndarray\(\(16, 1\), dtype=nl.float32, buffer=nl.sbuf\)", text)
    for executor in EXECUTORS:
        np.testing.assert_allclose(reread(text).on(executor)(ROWS, first), first + np.cumsum(ROWS * 2, 1), rtol=1e-6)


def test_a_sum_that_begins_with_what_is_overwritten_is_refused(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    module, = begun.lower(ROWS, np.ones((16, 1), np.float32)).specialization.modules
    lines = str(module).splitlines()
    adds = next(n for n, line in enumerate(lines) if "nisa.tensor_scalar_cumulative" in line)
    overwrites = next(n for n, line in enumerate(lines) if n > adds and "nisa.tensor_copy" in line)
    lines.insert(adds, lines.pop(overwrites))
    with module.context:
        moved = type(module).parse("\n".join(lines))
    with pytest.raises(Unprintable, match="a sum that begins with the earlier contents of a tile cannot be printed"):
        kernel_text([moved])


@nki.jit
def one_address_twice(x):
    """The second tile is where the first was, whose last four columns are stored before."""
    out = nl.ndarray((2, 16, 6), x.dtype, buffer=nl.shared_hbm)
    first = nl.ndarray((16, 6), x.dtype, buffer=nl.sbuf, address=(0, 64))
    nisa.memset(first, 0.0)
    nisa.dma_copy(first[:, 2:6], x[:, 2:6])
    nisa.dma_copy(out[0, :, 2:6], first[:, 2:6])
    nisa.dma_copy(out[0, :, 0:2], x[:, 0:2])
    second = nl.ndarray((16, 2), x.dtype, buffer=nl.sbuf, address=(0, 64))
    nisa.dma_copy(second, x[:, 0:2])
    wide = nl.ndarray((16, 6), x.dtype)
    nisa.memset(wide, 1.0)
    nisa.tensor_scalar(wide[:, 0:2], second, op0=nl.add, operand0=1.0)
    nisa.dma_copy(out[1], wide)
    return out


def test_addresses_that_only_the_order_of_the_text_allows():
    assert instructions(one_address_twice, [ROWS]) == {"DMA": 5, "MEMSET": 1, "TENSOR_SCALAR": 1}
    expected = np.stack([ROWS, np.where(np.arange(6) < 2, ROWS + 1, 1)])
    for executor in EXECUTORS:
        np.testing.assert_array_equal(one_address_twice.on(executor)(ROWS), expected)


def test_rows_that_indices_start_inside_a_row_are_printed_again():
    """The rows of the pattern that the text indexes overlap: each begins an element after the one before."""
    @beta.jit
    def gathered(x, index):
        out = beta_language.ndarray((8, 6), x.dtype, buffer=beta_language.shared_hbm)
        p, f = beta_language.arange(8)[:, None], beta_language.arange(6)[None, :]
        rows = beta_language.load(index)
        beta_language.store(out, beta_language.load(x[rows, p + f]))
        return out
    x, index = np.arange(32 * 20, dtype=np.float32).reshape(32, 20), np.arange(8, dtype=np.int32)[:, None] * 3
    text = printed(gathered, [x, index], keep_placement=True)
    again = reread(text)
    assert "ap([[1, " in text and printed(again, [x, index], keep_placement=True) == text
    expected = np.stack([x[row, p:p + 6] for p, row in enumerate(index[:, 0])])
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(x, index), expected)
