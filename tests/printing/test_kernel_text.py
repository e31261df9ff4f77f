# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a printed kernel: names, loops, slices, comments; what has no form is an error at its line."""

import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import cloned, ir
from nki_mlir.cli.source import read_module
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel import FormatWarning, formatted, kernel_text

from .reading import printed, reread, reread_beta

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n@nki.jit\n"


@nki.jit
def ragged(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:x.shape[1]]
    for i in nl.affine_range(2):
        rows = nl.load(x[i * 128 + p, f], mask=i * 128 + p < x.shape[0])
        doubled = nl.multiply(rows, 2.0, mask=i * 128 + p < x.shape[0])
        nl.store(out[i * 128 + p, f], doubled, mask=i * 128 + p < x.shape[0])
    return out


@nki.jit
def looped(x):
    out = nl.ndarray((512, 64), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        rows = nl.load(x[i * 128:(i + 1) * 128, 32:96])
        root = nl.sqrt(nl.exp(rows))
        nl.store(out[i * 128:(i + 1) * 128, :], nl.floor(root, dtype=nl.bfloat16))
    return out


@nki.jit
def triangle(x):
    p, f = nl.mgrid[0:8, 0:8]
    rows = nl.load(x)
    kept = nl.zeros((8, 8), nl.float32)
    kept[p, f] = nl.copy(rows[p, f], mask=p >= f)
    out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, kept)
    return out


@nki.jit
def reduced_triangle(x):
    p, f = nl.mgrid[0:8, 0:8]
    out = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.sum(nl.load(x)[p, f], axis=1, mask=p >= f))
    return out


def text_of(captured, *arrays):
    return kernel_text(captured.lower(*arrays).specialization.modules, comments=False)


def test_loops_and_names_stay():
    x = np.random.default_rng(0).random((512, 128), np.float32)
    assert text_of(looped, x) == HEAD + '''\
def looped(x):
    """x [512, 128] float32."""
    out = nl.ndarray((512, 64), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    for i in range(4):
        rows = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x[nl.ds(i * 128, 128), 32:96])
        exp = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=exp, op=nl.exp, data=rows)
        root = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=root, op=nl.sqrt, data=exp)
        floor = nl.floor(root, dtype=nl.bfloat16)
        nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=floor)
    return out
'''


@nki.jit
def listed(x):
    out = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    transposed = [nl.copy(nisa.nc_transpose(nl.load(x[k * 64:k * 64 + 64, :]), engine=nisa.tensor_engine)) for k in (2, 0, 1)]
    nl.store(out, nl.add(transposed[2], transposed[0]))
    return out


def test_names_of_lists_stay_beside_those_of_operations():
    """The names of the source get no second number, also where an operation's name is written before them."""
    assert text_of(listed, np.zeros((192, 64), np.float32)).partition("@nki.jit\n")[2] == '''\
def listed(x):
    """x [192, 64] float32."""
    x_tile = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_tile, src=x[128:192, :])
    transposed = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=transposed, data=x_tile, engine=nisa.engine.tensor)
    transposed_0 = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=transposed_0, src=transposed)
    x_tile_2 = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_tile_2, src=x[64:128, :])
    transposed_3 = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=transposed_3, data=x_tile_2, engine=nisa.engine.tensor)
    transposed_2 = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=transposed_2, src=transposed_3)
    added = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=added, data1=transposed_2, data2=transposed_0, op=nl.add)
    out = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=added)
    return out
'''


@nki.jit
def every_second(x):
    out = nl.ndarray((2, 3, 64, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        tile = nl.load(x[i])
        p, f = nl.arange(64)[:, None], nl.arange(8)[None, :]
        nl.store(out[0, i], tile[p, 2 * f])
        nl.store(out[1, i], nl.exp(tile[p, 2 * f + 1]))
    return out


def test_subscripts_leave_out_what_is_complete():
    """Behind the numbers of first axes, and the bounds of steps through a complete axis."""
    x = np.random.default_rng(0).random((3, 64, 16), np.float32)
    text = text_of(every_second, x)
    assert text.partition("@nki.jit\n")[2] == '''\
def every_second(x):
    """x [3, 64, 16] float32."""
    out = nl.ndarray((2, 3, 64, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(3):
        tile = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i])
        nisa.dma_copy(dst=out[0, i], src=tile[:, ::2])
        exp = nl.ndarray((64, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=exp, op=nl.exp, data=tile[:, 1::2])
        nisa.dma_copy(dst=out[1, i], src=exp)
    return out
'''
    in_beta = printed(every_second, [x], generation="beta")
    for again in (reread(text), reread_beta(in_beta)):
        np.testing.assert_array_equal(again.on("interpreter")(x), every_second.on("interpreter")(x))
    assert "tile = nl.load(x[i])" in in_beta and "nl.store(out[0, i], " in in_beta


def test_masks_become_slices():
    x = np.random.default_rng(0).random((200, 16), np.float32)
    text = text_of(ragged, x)
    assert "x[0:128, :]" in text and "x[128:200, :]" in text and "doubled" in text
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), x * 2)


def test_a_mask_that_is_no_box_becomes_a_predicate():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    text = text_of(triangle, x)
    assert "nisa.tensor_copy_predicated(dst=kept, src=rows, predicate=" in text
    for executor in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(reread(text).on(executor)(x), np.tril(x))


def test_comments_name_lines_of_the_source():
    x = np.zeros((512, 128), np.float32)
    first = looped.func.__code__.co_firstlineno
    lines = kernel_text(looped.lower(x).specialization.modules).splitlines()
    assert [line.strip() for line in lines if "#" in line] == [f"# test_kernel_text.py:{first + n}" for n in (4, 5, 6)]


@pytest.mark.parametrize("width", [None, 60])
def test_the_text_is_formatted(width, tmp_path):
    modules = ragged.lower(np.zeros((200, 16), np.float32)).specialization.modules
    file = tmp_path / "printed.py"
    if width is not None:
        (tmp_path / "ruff.toml").write_text(f"line-length = {width}\n")
    file.write_text(kernel_text(modules, file=None if width is None else file))
    command = [sys.executable, "-m", "ruff", "format", "--check", str(file)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert (width or 88) / 2 < max(map(len, file.read_text().splitlines())) <= (width or 88)


def test_settings_that_ruff_refuses__give_the_default_format_and_a_warning(tmp_path):
    (tmp_path / "ruff.toml").write_text("line-length = 'wide'\n")
    with pytest.warns(FormatWarning, match="the text has ruff's default format: .*line-length"):
        assert formatted("x = [1,2]\n", tmp_path / "printed.py") == "x = [1, 2]\n"


@pytest.mark.parametrize("executor", ["eager", "interpreter", "jit", "isa"])
def test_a_masked_sum_selects_what_is_summed(executor):
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    x[0, 1] = np.nan
    text = printed(reduced_triangle, [x])
    assert "on_false_value=0.0, cmp_op=nl.greater_equal)" in text and "nisa.tensor_reduce(dst=total, op=nl.add, data=copied" in text
    got = reread(text).on(executor)(x)
    np.testing.assert_array_equal(got[:, 0], [x[p, :p + 1].sum() for p in range(8)])


@nki.jit
def last_columns(x):
    """The second condition leaves one column, in which the first is one on the rows."""
    tile, out = nl.load(x), nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:8, 0:8]
    total = nl.zeros((8, 1), nl.float32)
    total[...] = nisa.tensor_reduce(np.add, tile, axis=[1], keepdims=True, mask=(p >= f - 4) & (f >= 7))
    nl.store(out, total)
    return out


def test_conditions_that_are_a_box_together():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    text = printed(last_columns, [x])
    assert "affine_select" not in text and "tile[3:8, 7:8]" in text
    for executor in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(reread(text).on(executor)(x)[:, 0], np.where(np.arange(8) >= 3, x[:, 7], 0))


@nki.jit
def biased_row(x):
    """A row where no engine begins, and a bias that all its columns share."""
    tile, out = nl.load(x), nl.ndarray((40, 2, 3), dtype=nl.float32, buffer=nl.shared_hbm)
    i = nl.arange(40)[:, None, None]
    shown = nl.zeros((40, 2, 3), nl.float32)
    shown[...] = nisa.activation(nl.square, tile.reshape((40, 2, 3)), bias=tile[:, 0:1], mask=i == 39)
    nl.store(out, shown)
    return out


def test_a_column_of_rows_where_no_engine_begins():
    x = np.arange(240, dtype=np.float32).reshape(40, 6)
    expected = np.zeros((40, 2, 3), np.float32)
    expected[39] = ((x[39] + x[39, 0]) ** 2).reshape(2, 3)
    again = reread(printed(biased_row, [x]))
    for executor in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(again.on(executor)(x), expected)


@nki.jit
def masked_product(x):
    rows, out = nl.load(x), nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((8, 16), nl.float32, buffer=nl.psum)
    k, m = nl.mgrid[0:16, 0:8]
    total[...] += nisa.nc_matmul(rows[k, m], rows, mask=k >= 2 * m)
    nl.store(out, total)
    return out


@pytest.mark.filterwarnings("ignore")
def test_a_masked_product_leaves_out_even_what_is_no_number():
    x = np.random.default_rng(0).random((16, 16), np.float32)
    x[1, 1:8] = np.nan
    expected = np.stack([np.where(np.arange(16)[:, None] >= 2 * m, x[:, m:m + 1] * x, 0).sum(0) for m in range(8)])
    again = reread(printed(masked_product, [x]))
    for executor in ("interpreter", "jit"):
        np.testing.assert_allclose(again.on(executor)(x), expected, rtol=1e-5)
    np.testing.assert_array_equal(np.isnan(expected).any(1), np.arange(8) < 1)


@nki.jit
def converted_transpose(x):
    out = nl.ndarray((8, 16), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(out, nisa.dma_transpose(nl.load(x), axes=(1, 0), dtype=nl.bfloat16))
    return out


def test_a_transpose_that_converts_is_followed_by_a_copy():
    x = np.random.default_rng(0).random((16, 8), np.float32)
    got = reread(printed(converted_transpose, [x])).on("interpreter")(x)
    np.testing.assert_array_equal(got, x.T.astype(got.dtype))


@nki.jit
def transposed(x):
    out = nl.ndarray((x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.transpose(nl.load(x)))
    return out


@pytest.mark.parametrize("rows, columns, calls", [(32, 32, 1), (48, 40, 4), (32, 100, 2), (128, 33, 2)])
def test_transposes_of_integers_are_those_of_blocks(rows, columns, calls):
    """Blocks of 32 by 32 elements, smaller ones at the ends. Three or more equal ones are a loop."""
    x = np.random.default_rng(rows).integers(-1 << 31, 1 << 31, (rows, columns)).astype(np.int32)
    text = printed(transposed, [x])
    assert text.count("nisa.nc_transpose(") == calls
    for on in ("interpreter", "isa"):
        np.testing.assert_array_equal(reread(text).on(on)(x), x.T)


@nki.jit
def transposed_loads(x, half):
    out = nl.ndarray((8, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        both = nl.ndarray((8, 16), dtype=half.dtype, buffer=nl.sbuf)
        both[:, 0:8] = nl.load_transpose2d(half[i * 8:(i + 1) * 8, :])
        both[:, 8:16] = nl.load_transpose2d(half[i * 8:(i + 1) * 8, :], dtype=half.dtype)
        tile = nl.load_transpose2d(x[i * 16:(i + 1) * 16, :])
        nl.store(out[:, i * 16:(i + 1) * 16], nl.add(tile, both))
    return out


@pytest.mark.parametrize("level", ["nki", "nisa"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_load_that_the_kernel_states_as_a_transpose_is_one(level, dtype):
    rng = np.random.default_rng(0)
    x, half = rng.random((32, 8), np.float32).astype(dtype), rng.random((16, 8), np.float32).astype(np.float16)
    module = cloned(transposed_loads.lower(x, half).specialization.modules[0])
    if level != "nki":
        with module.context, ir.Location.unknown():
            run_passes(module, passes_to(level, module))
    text = kernel_text([module], comments=False)
    assert text.count("tile = nl.load_transpose2d(x[nl.ds(i * 16, 16), :])") == 1
    assert text.count("nl.load_transpose2d(") + text.count("nisa.dma_transpose(") == 3 and "dma_copy(dst=both" not in text
    expected = x.T + np.concatenate([half[:8], half[:8], half[8:], half[8:]]).T
    for executor in ("interpreter", "jit", "isa"):
        np.testing.assert_array_equal(reread(text).on(executor)(x, half), expected)
    beta = reread_beta(printed(transposed_loads, [x, half], generation="beta"))
    np.testing.assert_array_equal(beta.on("interpreter")(x, half), expected)


@pytest.mark.parametrize("level", ["linalg", "nisa"])
def test_modules_below_the_nki_level(level):
    x = np.random.default_rng(0).random((200, 16), np.float32)
    module = cloned(ragged.lower(x).specialization.modules[0])
    with module.context, ir.Location.unknown():
        run_passes(module, passes_to(level, module))
    text = kernel_text([module], comments=False)
    assert "op0=nl.multiply, operand0=2.0" in text
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), x * 2)


def test_a_graph():
    text = kernel_text([read_module("""
        func.func @main(%x: tensor<8x16xf32>, %y: tensor<16xf32>) -> tensor<8x16xf32> {
          %0 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
          %1 = stablehlo.add %x, %0 : tensor<8x16xf32>
          %2 = stablehlo.exponential %1 : tensor<8x16xf32>
          return %2 : tensor<8x16xf32>
        }""", "<graph>")])
    x, y = np.random.default_rng(0).random((8, 16), np.float32), np.random.default_rng(1).random(16, np.float32)
    np.testing.assert_allclose(reread(text).on("interpreter")(x, y), np.exp(x + y), rtol=1e-6)


def test_a_tile_of_one_dimension_of_a_graph_is_a_column():
    text = kernel_text([read_module("""
        func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x16xf32>, tensor<f32>) -> tensor<8xf32>
          %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
          %2 = stablehlo.subtract %x, %1 : tensor<8x16xf32>
          return %2 : tensor<8x16xf32>
        }""", "<graph>")])
    assert "total = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.sbuf)" in text and "(8,)" not in text
    x = np.random.default_rng(0).integers(-9, 9, (8, 16)).astype(np.float32)
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), x - x.sum(1, keepdims=True))


@nki.jit
def weighted(x, g):
    """Rows that a mask leaves, times a row that all partitions read."""
    out, weight = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), nl.load(g)
    p, f = nl.mgrid[0:128, 0:x.shape[1]]
    for i in nl.affine_range(2):
        inside = i * 128 + p < x.shape[0]
        rows = nl.subtract(nl.load(x[i * 128 + p, f], mask=inside), 1.0, mask=inside)
        nl.store(out[i * 128 + p, f], nl.exp(rows, mask=inside) * weight.broadcast_to((128, 16)), mask=inside)
    return out


def test_a_row_is_repeated_once_and_tiles_have_the_rows_that_are_used():
    x, g = np.random.default_rng(0).random((200, 16), np.float32), np.ones((1, 16), np.float32) * 3
    text = printed(weighted, [x, g])
    assert text.count("nl.broadcast_to(") == 1
    assert "rows_2 = nl.ndarray((72, 16)" in text
    again = reread(text)
    np.testing.assert_array_equal(again.on("interpreter")(x, g), weighted.on("interpreter")(x, g))
    before, after = ([len(s) for p in k.lower(x, g).streams for s in p.streams.values()] for k in (weighted, again))
    assert sum(after) <= sum(before)


@nki.jit
def scaled_on_one_program(x):
    out, program = nl.ndarray((2, 64, 16), dtype=x.dtype, buffer=nl.shared_hbm), nl.program_id(0)
    tile = nl.load(x[nl.ds(program, 64)])
    result = nl.full((64, 16), 1.0, dtype=nl.float32)
    result[...] = nl.multiply(tile, tile[32:33, :].broadcast_to((64, 16)),
                              mask=nl.arange(64)[:, None] >= 32 * program)
    nl.store(out[program], result)
    return out


def test_nothing_stands_between_a_branch_and_its_else():
    x = np.random.default_rng(0).random((65, 16), np.float32)
    text = printed(scaled_on_one_program[2], [x])
    assert "\n    else:\n" in text
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), scaled_on_one_program[2].on("interpreter")(x))


@nki.jit
def scaled_by_one(x, g):
    out = nl.ndarray((8, 6), dtype=nl.float32, buffer=nl.shared_hbm)
    tile, factor = nl.load(x), nl.load(g[0:1, 2:3])
    nl.store(out, nl.multiply(tile, factor.broadcast_to((8, 6))))
    return out


def test_an_element_is_repeated_over_the_rows_alone():
    x, g = np.arange(48, dtype=np.float32).reshape(8, 6), np.arange(4, dtype=np.float32)[None]
    text = printed(scaled_by_one, [x, g])
    assert "nl.broadcast_to(factor, (8, 1))" in text
    for executor in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(reread(text).on(executor)(x, g), 2 * x)


@nki.jit
def integers(x, y):
    out = nl.ndarray((8, 16), dtype=nl.int32, buffer=nl.shared_hbm)
    rows = nl.load(x)
    rows[...] = nl.subtract(nl.bitwise_or(rows, nl.load(y)), 7)
    nl.store(out, rows)
    return out


def test_integers_are_computed_by_instructions():
    x, y = np.arange(2 ** 30, 2 ** 30 + 128, dtype=np.int32).reshape(2, 8, 8).repeat(2, 2)
    text = printed(integers, [x, y])
    assert "op=nl.bitwise_or)" in text and "op0=nl.subtract, operand0=7.0)" in text and "tensor_copy" not in text
    for executor in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_array_equal(reread(text).on(executor)(x, y), (x | y) - 7)


@nki.jit
def sum_in_psum(x):
    rows, out = nl.load(x), nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((8, 8), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(1):
        total += nisa.nc_matmul(rows, rows, mask=k > 0)
    nl.store(out, total)
    return out


@pytest.mark.filterwarnings("ignore")
def test_an_instruction_reads_one_tile_of_psum():
    x = np.ones((8, 8), np.float32)
    np.testing.assert_array_equal(reread(printed(sum_in_psum, [x])).on("interpreter")(x), 0 * x)


@nki.jit
def halves(x):
    out, rows = nl.ndarray((8, 16), dtype=nl.float16, buffer=nl.shared_hbm), nl.load(x)
    nl.store(out, nl.maximum(rows, rows[:, 0:1].broadcast_to((8, 16)), dtype=nl.float16))
    return out


@nki.jit
def causal_product(x):
    p, f = nl.mgrid[0:8, 0:8]
    rows = nl.load(x)
    out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.affine_select(p >= f, nisa.nc_matmul(rows, rows), -1.0, dtype=nl.float32))
    return out


@pytest.mark.filterwarnings("ignore::nki_mlir.diagnostics.DeviceRuleWarning")
def test_a_selection_from_psum_reads_a_copy_in_sbuf():
    """The beta generation's instruction reads PSUM, the current generation's does not."""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    text = printed(causal_product, [x])
    selects, = (line for line in text.splitlines() if "affine_select" in line)
    source = selects.split("on_true_tile=")[1].split(",")[0]
    assert f"nisa.tensor_copy(dst={source}, src=" in text
    np.testing.assert_array_equal(reread(text)(x), np.where(np.tri(8, dtype=bool), x.T @ x, -1))
    assert text.count("tensor_copy") == 1 and "tensor_copy" not in printed(causal_product, [x], generation="beta")


@nki.jit
def squashed(x):
    out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(nisa.activation(nl.tanh, nl.load(x), scale=1.0)))
    return out


@pytest.mark.parametrize("generation", ["current", "beta"])
def test_a_scale_of_one_is_the_default(generation):
    """A function of one operand and an activation that is not scaled have one text, also on the second round."""
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    text = printed(squashed, [x], generation=generation)
    again = (reread_beta if generation == "beta" else reread)(text)
    assert text.count("nisa.activation(") == 2 and "scale" not in text + printed(again, [x], generation=generation)
    np.testing.assert_array_equal(again.on("interpreter")(x), squashed.on("interpreter")(x))


def test_columns_that_are_not_float32_are_operands_of_tiles():
    x = np.random.default_rng(0).random((8, 16), np.float32).astype(np.float16)
    text = printed(halves, [x])
    assert "nisa.tensor_tensor(" in text and ".broadcast(1, 16)" in text
    np.testing.assert_array_equal(reread(text).on("interpreter")(x), np.maximum(x, x[:, :1]))


CONSTANTS = {"square": np.eye(128), "broad": np.eye(3, 5), "equal": np.full((80, 60), 1.5), "zeros": np.zeros((70, 70)),
             "negative": np.eye(2) * -1.0}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, np.int8])
def test_large_constants_with_a_rule_have_a_text(name, kind):
    values = CONSTANTS[name].astype(kind)

    @nki.jit
    def constants(x):
        out = nl.ndarray(values.shape, dtype=nl.shared_constant(values).dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(nl.shared_constant(values)))
        return out
    x = np.zeros((1, 1), np.float32)
    got = np.asarray(reread(printed(constants, [x])).on("interpreter")(x))
    assert got.dtype == values.dtype and got.tobytes() == values.tobytes()


@nki.jit
def with_constant(x):
    rows = nl.load(x)
    numbers = nl.load(nl.shared_constant(np.random.default_rng(0).random((128, 64), np.float32)))
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.add(rows, numbers))
    return out


def test_what_has_no_form_is_an_error_at_its_line():
    with pytest.raises(Unprintable) as caught:
        printed(with_constant, [np.zeros((128, 64), np.float32)])
    error = caught.value
    assert error.at is not None and error.at.line == with_constant.func.__code__.co_firstlineno + 3
    assert error.headline == "a constant of 8192 elements cannot be printed as NKI Python"
    assert error.advice == ("no function of that generation computes the same",
                            "make it an argument of the kernel")


EMBEDDING = """module {
  func.func public @main(%table: tensor<50x16xf32>, %rows: tensor<20xi32>) -> tensor<20x16xf32> {
    %zero = stablehlo.constant dense<0> : tensor<20xi32>
    %count = stablehlo.constant dense<50> : tensor<20xi32>
    %0 = stablehlo.compare LT, %rows, %zero, SIGNED : (tensor<20xi32>, tensor<20xi32>) -> tensor<20xi1>
    %1 = stablehlo.add %rows, %count : tensor<20xi32>
    %2 = stablehlo.select %0, %1, %rows : tensor<20xi1>, tensor<20xi32>
    %3 = stablehlo.reshape %2 : (tensor<20xi32>) -> tensor<20x1xi32>
    %4 = "stablehlo.gather"(%table, %3) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 16>}>
        : (tensor<50x16xf32>, tensor<20x1xi32>) -> tensor<20x16xf32>
    %5 = stablehlo.exponential %4 : tensor<20x16xf32>
    return %5 : tensor<20x16xf32>
  }
}"""


def test_tiles_of_graphs_have_names_of_what_computes_them():
    text = kernel_text([read_module(EMBEDDING, "graph.mlir")])
    assert "rows_tile = nl.ndarray(" in text or "arg1_tile = nl.ndarray(" in text
    assert "nisa.activation(dst=exp, op=nl.exp" in text and "dst=is_less," in text.replace("\n        ", "")
    assert not re.search(r"\btile(_\d+)? = nl.ndarray\(.*nl\.(sbuf|psum)", text)
    table = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    rows = np.random.default_rng(1).integers(-50, 50, 20).astype(np.int32)
    for on in ("eager", "jit", "isa"):
        np.testing.assert_allclose(reread(text, ()).run((table, rows), {}, on), np.exp(table[rows]), rtol=1e-6)


def test_a_scalar_buffer_of_a_graph():
    graph = """module {
  func.func public @main(%x: tensor<8x4xf32>, %c: tensor<i32>) -> tensor<8x4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.compare GT, %c, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.negate %x : tensor<8x4xf32>
    %2 = stablehlo.select %0, %1, %x : tensor<i1>, tensor<8x4xf32>
    return %2 : tensor<8x4xf32>
  }
}"""
    kernel, x = reread(kernel_text([read_module(graph, "graph.mlir")]), ()), np.arange(32, dtype=np.float32).reshape(8, 4)
    for number in (1, 0, -1, (1 << 31) - 1, -(1 << 31)):
        for on in ("eager", "jit", "isa"):
            result = kernel.run((x, np.array(number, np.int32)), {}, on)
            np.testing.assert_array_equal(np.reshape(result, x.shape), -x if number > 0 else x, f"{on} {number}")


NORMED = """func.func @main(%x: tensor<300x40xf32>, %w: tensor<40x40xf32>, %g: tensor<40xf32>
                                ) -> (tensor<300x40xf32>, tensor<300xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<300x40xf32>, tensor<40x40xf32>) -> tensor<300x40xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<300x40xf32>, tensor<f32>) -> tensor<300xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<300xf32>) -> tensor<300x40xf32>
  %3 = stablehlo.broadcast_in_dim %g, dims = [1] : (tensor<40xf32>) -> tensor<300x40xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<300x40xf32>
  %5 = stablehlo.subtract %0, %4 : tensor<300x40xf32>
  return %5, %1 : tensor<300x40xf32>, tensor<300xf32>
}"""


def test_equal_tiles_of_a_graph_are_a_loop():
    """What all tiles need is loaded in front; operations of one tile follow each other."""
    text = kernel_text([read_module(NORMED, "graph.mlir")])
    before, _, body = text.partition("for i in range(2):\n")
    assert "src=arg1)" in before and "src=arg0" not in before and "nl.ds(i * 128, 128)" in body
    assert text.count("nisa.nc_matmul(") == 2          # of a loop, and of the 44 rows behind it
    x, w, g = (np.random.default_rng(k).integers(-9, 9, shape).astype(np.float32)
               for k, shape in enumerate([(300, 40), (40, 40), (40,)]))
    product = x @ w
    for on in ("eager", "interpreter", "jit", "isa"):
        normed, total = reread(text, ()).run((x, w, g), {}, on)
        np.testing.assert_array_equal(normed, product - product.sum(1, keepdims=True) * g)
        np.testing.assert_array_equal(total, product.sum(1))


@nki.jit
def sums_of_columns(x):
    """The mask leaves out rows, which are undefined; every fourth element of the others."""
    out = nl.ndarray((128, 17), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    p = nl.arange(128)[:, None]
    total = nl.sum(tile, axis=1, mask=p < 44)
    tail = nl.multiply(tile[p, 1 + 4 * nl.arange(16)[None, :]], nisa.reciprocal(nl.add(total, 1.0)))
    nl.store(out[:, 0:16], tail)
    nl.store(out[:, 16:17], nl.copy(nl.load(x[:, 0:1])))
    return out


@pytest.mark.parametrize("generation", ["current", "beta"])
def test_tiles_have_the_name_of_what_writes_them(generation):
    x = np.random.default_rng(0).uniform(size=(128, 64)).astype(np.float32)
    text = printed(sums_of_columns, [x], generation=generation)
    again = (reread if generation == "current" else reread_beta)(text)
    np.testing.assert_array_equal(again(x)[:44], sums_of_columns(x)[:44])
    assert "filled" not in text and "tile_2" not in text
    if generation == "current":
        assert "nisa.tensor_reduce(dst=total[0:44, :], op=nl.add, data=tile[0:44, :], axis=1)" in text
        assert "nisa.reciprocal(dst=reciprocal, data=added)" in text
        assert "data=tile[:, 1::4], op0=nl.multiply, operand0=reciprocal)" in text        # up to the last column
