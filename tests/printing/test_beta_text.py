# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of both generations printed for the beta generation: equal values, and a text that stays."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as old_nisa
from nki_mlir.language.beta import language as old_nl
from nki_mlir.language.beta import nki as old_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing.beta_operands import index_vector
from nki_mlir.printing.errors import Unprintable

from ..random_programs.comparing import flat
from .reading import printed, reread_beta
from .test_examples import first_cases
from .test_run_time import COUNT, X, beta_while, conditional, gathered_and_scattered

QUICK = ("average_pool2d", "convolution", "current_normalization", "embedding", "giou", "multi_core_add", "softmax",
         "top_k", "transpose2d")
OTHERS = ("allocated_transpose", "attention", "cumulative_sum", "current_average_pool2d", "current_cumulative_sum",
          "current_gather_scatter", "current_matmul", "current_tensor_add", "current_transpose2d", "flash_attention",
          "interpolation", "matmul", "matmul_walk", "normalization", "rotary", "selective_scan", "tensor_add",
          "transformer_kernels")


def check(launched, arguments, executors=("interpreter",)):
    """The text of a kernel that computes the same once it is read, and whose second text is the first."""
    grid = launched.lower(*arguments).specialization.grid
    text = printed(launched, arguments, generation="beta")
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    again = reread_beta(text, grid)
    expected = flat([launched.on("interpreter")(*arguments)])
    for executor in executors:
        for one, other in zip(expected, flat([again.on(executor)(*[a.copy() for a in arrays])]), strict=True):
            np.testing.assert_array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64))
    assert printed(again, arrays, generation="beta") == text
    return text


@pytest.mark.share(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.fuzz) for name in OTHERS)])
def test_examples_compute_the_same(name, monkeypatch):
    monkeypatch.syspath_prepend("examples")
    for launched, arguments in first_cases(name):
        check(launched, arguments)


@nki.jit
def scaled(x, w):
    out = nl.ndarray((128, 32), nl.float32, buffer=nl.shared_hbm)
    weights = nl.load(w)
    rows = nl.load(x)
    nisa.tensor_scalar(rows, rows, op0=nl.multiply, operand0=2.0)
    turned = nl.ndarray((64, 128), nl.float32, buffer=nl.psum)
    nisa.nc_transpose(turned, rows)
    copied = nl.ndarray((64, 128), nl.float32)
    nisa.tensor_copy(copied, turned)
    total = nl.ndarray((128, 32), nl.float32, buffer=nl.psum)
    for _ in range(2):
        nisa.nc_matmul(total, copied, weights)
    result = nl.ndarray((128, 32), nl.float32)
    nisa.tensor_copy(result, total)
    nisa.dma_copy(out, result)
    return out


def test_results_define_tiles_and_products_accumulate():
    x = np.random.default_rng(0).integers(-4, 4, (128, 64)).astype(np.float32)
    w = np.random.default_rng(1).integers(-4, 4, (64, 32)).astype(np.float32)
    text = check(scaled, [x, w], ("eager", "interpreter", "jit", "isa"))
    assert text.split('"""\n')[1].replace("    ", "") == """\
weights = nl.load(w)
rows = nl.load(x)
rows_2 = nisa.tensor_scalar(data=rows, op0=nl.multiply, operand0=2.0)
turned = nisa.nc_transpose(data=rows_2, engine=nisa.engine.tensor)
copied = nisa.tensor_copy(src=turned)
total = nisa.nc_matmul(stationary=copied, moving=weights)
total[...] += nisa.nc_matmul(stationary=copied, moving=weights)
result = nisa.tensor_copy(src=total)
out = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.shared_hbm)
nl.store(out, result)
return out
"""


@pytest.mark.parametrize("kernel, arrays", [(beta_while, [X, COUNT]), (
    gathered_and_scattered, [X, np.array([[5], [0], [63], [7]], np.int32)])], ids=["while", "rows by indices"])
def test_loops_and_addresses_of_the_run_time(kernel, arrays):
    check(kernel, arrays)


@nki.jit
def gathered(x, indices):
    out = nl.ndarray((8, 12), nl.bfloat16, buffer=nl.shared_hbm)
    data, chosen = nl.load(x), nl.load(indices)
    for k in range(2):
        part = nl.ndarray((8, 3, 2), nl.bfloat16)
        nisa.nc_n_gather(part, data, chosen[:, 6 * k:6 * k + 6])
        nisa.dma_copy(out[:, 6 * k:6 * k + 6], part.reshape((8, 6)))
    return out


@old_nki.jit
def gathered_by_beta(x, indices):
    out = old_nl.ndarray((8, 3, 4), dtype=x.dtype, buffer=old_nl.shared_hbm)
    chosen = old_nl.load(indices).reshape((8, 3, 4))
    old_nl.store(out, old_nl.gather_flattened(old_nl.load(x), chosen))
    return out


@pytest.mark.parametrize("kernel", [gathered, gathered_by_beta])
def test_gathers_within_partitions(kernel):
    generator = np.random.default_rng(0)
    x = generator.integers(-90, 90, (8, 4, 5)).astype(ml_dtypes.bfloat16)
    indices = generator.integers(0, 20, (8, 12)).astype(np.uint32)
    text = check(kernel, [x, indices], ("eager", "interpreter", "isa"))
    assert "nl.gather_flattened(" in text


@old_nki.jit
def convolved(x, w):
    """The taps' windows are not rows of the image: they stay products' operands of three axes."""
    out = old_nl.ndarray((8, 4, 5), dtype=old_nl.float32, buffer=old_nl.shared_hbm)
    image, taps = old_nl.load(x), old_nl.load(w)
    sums = old_nl.zeros((8, 4, 5), old_nl.float32, buffer=old_nl.psum)
    for a in old_nl.affine_range(3):
        sums[...] += old_nisa.nc_matmul(taps[:, a, :], image[:, old_nl.ds(a, 4), old_nl.ds(a, 5)])
    old_nl.store(out, old_nl.copy(sums))
    return out


@old_nki.jit
def shifted_by_blocks(x, w):
    """Each block of ``means`` has one number in each partition: the partition is not the first dimension."""
    out = old_nl.ndarray((2, 4, 8), dtype=old_nl.float32, buffer=old_nl.shared_hbm)
    means = old_nl.ndarray((2, old_nl.par_dim(4), 1), dtype=old_nl.float32)
    for i in old_nl.affine_range(2):
        means[i] = old_nl.mean(old_nl.load(w[:, i, :]), axis=1, keepdims=True)
        part = old_nl.load(x[:, i, 0:8])
        old_nl.store(out[i], old_nisa.scalar_tensor_tensor(data=part, op0=np.subtract, operand0=means[i], op1=np.multiply,
                                                           operand1=part))
    return out


@pytest.mark.parametrize("kernel, shown", [(convolved, "[:, nl.ds(a, 4), nl.ds(a, 5)])"),
                                           (shifted_by_blocks, "operand0=means[:, i, :]")])
def test_operands_of_three_axes(kernel, shown):
    """What stays for products, and one value a partition, which has two axes."""
    rng = np.random.default_rng(0)
    text = check(kernel, [rng.standard_normal((4, 7, 8)).astype(np.float32), rng.standard_normal((4, 3, 8)).astype(
        np.float32)], ("eager", "interpreter", "isa"))
    assert shown in text


@nki.jit
def halves_and_rows(x, w):
    """Operands of equally many elements, in two shapes."""
    out = nl.ndarray((8, 2, 3), nl.float32, buffer=nl.shared_hbm)
    halves, rows = nl.ndarray((8, 2, 3), nl.float32), nl.ndarray((8, 6), nl.float32)
    nisa.dma_copy(halves, x)
    nisa.dma_copy(rows, w)
    nisa.scalar_tensor_tensor(halves, halves, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=rows)
    nisa.dma_copy(out, halves)
    return out


@nki.jit
def sums_of_partitions(x):
    out = nl.ndarray((1, 32), nl.float32, buffer=nl.shared_hbm)
    rows, total = nl.load(x), nl.ndarray((1, 32), nl.float32)
    doubled = nl.ndarray((16, 4, 8), nl.float32)
    nisa.tensor_scalar(doubled, rows.reshape((16, 4, 8)), op0=nl.multiply, operand0=2.0)
    nisa.tensor_partition_reduce(total, nl.add, doubled)
    nisa.dma_copy(out, total)
    return out


def test_sums_of_partitions_have_the_axes_of_their_operand():
    text = check(sums_of_partitions, [np.arange(512, dtype=np.float32).reshape(16, 32)])
    assert " = nisa.tensor_partition_reduce(" in text and ".reshape((1, 32))" in text


def test_operands_get_one_shape():
    x = np.arange(48, dtype=np.float32).reshape(8, 2, 3)
    assert "operand1=rows.reshape((8, 2, 3))" in check(halves_and_rows, [x, x.reshape(8, 6)])


def test_what_the_beta_generation_does_not_have_is_an_error():
    with pytest.raises(Unprintable, match="a register, which the beta generation does not have, cannot be printed") as error:
        printed(conditional, [X, COUNT], generation="beta")
    assert error.value.at.line == conditional.func.__code__.co_firstlineno + 5
    with pytest.raises(Unprintable, match="generation beta with a placement, or with a release of the current generation,"):
        printed(conditional, [X, COUNT], generation="beta", keep_placement=True)


@nki.jit
def rows_at_elements(x, index):
    """Rows of 20 elements, each from any element on."""
    out = nl.ndarray((16, 20), nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((16, 20), nl.float32, buffer=nl.sbuf)
    table = x.reshape((x.shape[0] * x.shape[1], 1))
    nisa.dma_copy(dst=tile, src=table.ap([[1, 16], [1, 20]], vector_offset=nl.load(index), indirect_dim=0))
    nl.store(out, tile)
    return out


def test_rows_that_begin_at_any_element_are_an_error():
    """Their columns would be outside of a table whose rows are its elements."""
    with pytest.raises(Unprintable, match="rows that begin at any element of a table in the beta generation"):
        printed(rows_at_elements, [X, np.zeros((16, 1), np.int32)], generation="beta")


def gathered(count, per_index):
    @nki.jit
    def kernel(x, index):
        out = nl.ndarray((16, count * 16 * per_index), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((16, count * 16 * per_index), nl.float32, buffer=nl.sbuf)
        nisa.local_gather(dst=tile, src_buffer=nl.load(x), index=nl.load(index), num_elem_per_idx=per_index)
        nisa.dma_copy(out, tile)
        return out
    return kernel


@pytest.mark.parametrize(("count", "per_index"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_gathered_elements_have_the_shape_of_indices_and_groups(count, per_index):
    index = np.random.default_rng(0).integers(0, 3, (16, count)).astype(np.uint16)
    text = check(gathered(count, per_index), [X[:16], index], ("eager", "interpreter", "jit"))
    assert "    tile = nisa.local_gather(" in text
    assert f"nl.store(out, tile.reshape((16, {count * 16 * per_index})))" in text


@nki.jit
def rows_that_exist(x, rows):
    out = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
    moved = nl.ndarray((64, 8), x.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((4, 1), nl.int32, buffer=nl.sbuf)
    tile = nl.ndarray((4, 8), x.dtype, buffer=nl.sbuf)
    zeros = nl.ndarray((64, 8), x.dtype, buffer=nl.sbuf)
    nisa.memset(tile, 0.0)
    nisa.memset(zeros, 0.0)
    nisa.dma_copy(moved, zeros)
    nisa.dma_copy(index, rows)
    nisa.dma_copy(tile, x.ap([[8, 4], [1, 8]], vector_offset=index), oob_mode=nisa.oob_mode.skip)
    nisa.dma_copy(moved.ap([[8, 4], [1, 8]], vector_offset=index), tile, oob_mode=nisa.oob_mode.skip)
    nisa.dma_copy(out, tile)
    return out, moved


def test_transfers_that_leave_out_rows_stay_transfers():
    text = check(rows_that_exist, [X, np.array([[5], [999], [63], [7]], np.int32)])
    assert [line.split("(")[0].strip() for line in text.splitlines() if "oob_mode.skip" in line] == ["nisa.dma_copy"] * 2


@old_nki.jit
def largest_of_programs(x):
    out = old_nl.ndarray((3, 32, 1), dtype=x.dtype, buffer=old_nl.shared_hbm)
    rows = old_nl.ndarray((3, 1, 1), dtype=x.dtype, buffer=old_nl.shared_hbm)
    program = old_nl.program_id(0)
    row = old_nl.load(x[old_nl.ds(program, 1), 0:1])
    column = old_nl.copy(old_nl.broadcast_to(row, shape=(32, 1)))
    old_nl.store(out[program], old_nl.all_reduce(column, op=np.max, program_axes=0))
    old_nl.store(rows[program], row)
    turned = old_nl.ndarray((3, 1, 32), dtype=x.dtype, buffer=old_nl.shared_hbm)
    old_nl.store(turned[program], old_nisa.dma_transpose(column))
    return out, rows, turned


def test_a_row_of_each_program_is_repeated():
    x = np.array([[3.0], [5.0], [4.0]], np.float32)
    text = printed(largest_of_programs[3], [x], generation="beta")
    assert "copied = nl.copy(row[:, program, :].broadcast_to((32, 1)))" in text
    largest, rows, turned = reread_beta(text).on("interpreter")(x)
    assert (largest == 5.0).all() and rows.shape == (3, 1, 1) and (rows[:, 0] == x).all()
    assert turned.shape == (3, 1, 32) and (turned[:, 0] == x).all()


@nki.jit
def largest_magnitudes(x):
    rows = nl.load(x)
    magnitudes = nl.ndarray((128, 32), nl.float32)
    largest = nl.ndarray((128, 1), nl.float32)
    nisa.tensor_scalar_reduce(magnitudes, rows, op0=nl.abs, operand0=None, reduce_op=nl.maximum, reduce_res=largest)
    out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, largest)
    return out


def test_operator_of_one_operand_under_a_reduction():
    x = np.linspace(-3, 2, 128 * 32, dtype=np.float32).reshape(128, 32)
    assert "op0=nl.abs, operand0=0.0" in check(largest_magnitudes, [x], ("interpreter", "jit")).replace("\n", " ")
    np.testing.assert_array_equal(largest_magnitudes(x), np.abs(x).max(1, keepdims=True))


def test_index_vectors_have_the_axes_that_give_them_their_shape():
    assert index_vector("6", [0, 0, 0, 1], [1, 1, 1, 2], keep_all=True) == "6 + nl.arange(2)[None, None, None, :]"
    assert index_vector("0", [0, 0], [1, 1], keep_all=True) == "nl.arange(1)[None, :]"
    assert index_vector("k", [0, 2], [4, 3], keep_all=True) == "k + nl.arange(4)[:, None] * 0 + nl.arange(3)[None, :] * 2"
    assert index_vector("k", [0, 2], [4, 3]) == "k + nl.arange(3)[None, :] * 2"


@old_nki.jit
def product_of_blocks(a, b, rows):
    """Tiles of an array, a sum in PSUM, gathered rows: slices and defaults as a person writes them."""
    out = old_nl.ndarray((64, 32), dtype=a.dtype, buffer=old_nl.shared_hbm)
    left = old_nl.ndarray((2, old_nl.par_dim(64), 64), dtype=a.dtype, buffer=old_nl.sbuf)
    total = old_nl.zeros((64, 32), old_nl.float32, buffer=old_nl.psum)
    for s in old_nl.affine_range(2):
        left[s] = old_nl.load(a[old_nl.ds(s * 64, 64), :])
    index = old_nl.load(rows)
    right = old_nl.load(b[index[old_nl.arange(64)[:, None], 0], old_nl.arange(32)[None, :]])
    for s in old_nl.affine_range(2):
        total += old_nisa.nc_matmul(left[s], right)
    old_nl.store(out, old_nl.multiply(right, old_nisa.reciprocal(old_nl.copy(total))))
    return out


def test_slices_and_defaults_are_those_that_a_person_writes():
    generator = np.random.default_rng(3)
    a, b = generator.random((128, 64), np.float32), generator.random((100, 32), np.float32)
    rows = generator.integers(0, 100, (64, 1)).astype(np.int32)
    body = check(product_of_blocks, [a, b, rows]).partition("@nki.jit\n")[2]
    assert body == '''\
def product_of_blocks(a, b, rows):
    """a [128, 64] float32, b [100, 32] float32, rows [64, 1] int32."""
    total = nl.zeros((64, 32), dtype=nl.float32, buffer=nl.psum)
    left = nl.ndarray((64, 2, 64), dtype=nl.float32, buffer=nl.sbuf)
    for s in nl.sequential_range(2):
        left[:, s, :] = nl.load(a[nl.ds(s * 64, 64), :])
    index = nl.load(rows)
    right = nl.load(b[index, nl.arange(32)[None, :]])
    for s in nl.sequential_range(2):
        total[...] += nisa.nc_matmul(stationary=left[:, s, :], moving=right)
    copied = nisa.tensor_copy(src=total)
    reciprocal = nisa.reciprocal(data=copied)
    multiplied = nisa.tensor_tensor(data1=right, data2=reciprocal, op=nl.multiply)
    out = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, multiplied)
    return out
'''
