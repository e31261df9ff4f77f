# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the text of a call says about the parameters of the function."""

import ast
from pathlib import Path

import pytest

from nki_mlir.migration.files import migrated
from nki_mlir.migration.parameters import has_options

ROWS = Path(__file__).parent / "kernels" / "rows.py"
HEAD = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\nimport numpy as np\n\n\n"
HELPER = """def scale(total, column, keep):
    scaled = nl.multiply(total, column, mask=keep)
    total[...] = nl.add(scaled, 1.0, mask=keep)


"""


def text_of(folder, source):
    file = folder / "kernel.py"
    file.write_text(HEAD + source)
    result, = migrated(file, "2.32")
    return result.new, [entry.text for entry in result.report.entries if entry.left]


def kernel(*lines):
    body = ["rows, cols = x.shape", "out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)", *lines, "return out"]
    return "@nki.jit\ndef run(x):\n" + "".join(f"    {line}\n" for line in body)


CALL = ("for i in nl.affine_range(2):", "    scale(total, column, i < 1)", "nl.store(out, total)")


@pytest.mark.parametrize("dtype", ["np.dtype(np.float32)", "x.dtype", "np.float32 if rows > 1 else nl.bfloat16"])
def test_parameters_of_one_dtype_have_a_tile_of_it(dtype, tmp_path):
    text, left = text_of(tmp_path, HELPER + kernel(
        f"kind = {dtype}", "total = nl.zeros((rows, cols), dtype=kind)", "column = nl.ones((rows, 1), dtype=kind)", *CALL))
    assert left == []
    assert "scaled = nl.multiply(total, column.broadcast(1, total.shape[1]))\n" in text


def test_parameters_of_several_calls_keep_what_all_have(tmp_path):
    text, left = text_of(tmp_path, HELPER + kernel(
        "total = nl.zeros((rows, cols), dtype=x.dtype)", "column = nl.ones((rows, 1), dtype=x.dtype)",
        "wide = nl.ones((rows, cols), dtype=nl.bfloat16)", "for i in nl.affine_range(2):",
        "    scale(total, column, i < 1)", "    scale(total, wide, i < 1)", "nl.store(out, total)"))
    assert left == ["a tile that is computed under a condition",
                    "nl.add under a mask, of operands that the text does not show to be tiles"]
    assert "scaled = nl.multiply(total, column, mask=keep)" in text     # no text says which dtype the product has


def test_rows_by_number_behind_an_integer_are_selected():
    result, = migrated(ROWS, "2.32")
    assert "src=cache[head].vector_select(0, numbers[0:num_rows]))\n" in result.new


def test_names_of_tensors_are_unique(tmp_path):
    text, left = text_of(tmp_path, kernel(
        'a = nl.ndarray((rows, cols), dtype=x.dtype, name="a")', 'b = nl.ndarray((rows, cols), dtype=x.dtype, name="a")',
        "a[...] = nl.load(x)", "for i in nl.affine_range(2):",
        '    c = nl.ndarray((rows, cols), dtype=x.dtype, name="c")', "    c[...] = nl.add(a, a)",
        "    b[...] = nl.copy(c)", "nl.store(out, b)"))
    assert left == []
    assert text.count('name="a"') == 1 and 'name="c"' not in text


def test_arguments_by_position_are_those_of_the_release_that_takes_them(tmp_path):
    """The first release of dma_copy took (src, dst), activation of 2.20 its bias and scale by position."""
    text, left = text_of(tmp_path, """import neuronxcc.nki.isa as nisa


@nki.trace
def by_position(x, y, z):
    nisa.dma_copy(x, y)
    tile = nl.load(x)
    nl.store(z, nisa.activation(np.tanh, tile, nl.zeros((64, 1), np.float32), 0.5))
""")
    assert left == []
    assert "nisa.dma_copy(dst=y, src=x)\n" in text and "return y, z\n" in text
    assert "bias=nl.zeros((64, 1), dtype=nl.float32, buffer=nl.sbuf)" in text and "scale=0.5" in text


def test_a_function_that_is_a_value_has_no_mask(tmp_path):
    text, left = text_of(tmp_path, """@nki.jit
def run(x, wide=False):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    function = nl.gelu if wide else nl.silu
    p, f = nl.mgrid[0:128, 0:64]
    tile = nl.zeros((128, 64), dtype=x.dtype)
    nl.store(out[p, f], function(tile, mask=p < 100), mask=p < 100)
    return out
""")
    assert left == [] and "function(tile[0:100])" in text


def test_a_mask_of_an_unknown_function_is_left(tmp_path):
    text, left = text_of(tmp_path, kernel("p, f = nl.mgrid[0:128, 0:64]", "tile = nl.load(x)",
                                          "nl.store(out, x.functions[rows](tile, mask=p < 100))"))
    assert left == ["a mask of x.functions[rows], of which the text does not show what it computes"]


OPTIONS = """class Options:
    def __init__(self, rows=32, dtype=nl.float32):
        self.rows, self.dtype = rows, dtype


def load_rows(x, i, options):
    i_p = nl.arange(options.rows)[:, None]
    tile = nl.zeros((options.rows, 16), dtype=options.dtype)
    tile[i_p, nl.arange(16)[None, :]] = nl.load(x[i * options.rows + i_p, nl.arange(16)[None, :]])
    return tile


@nki.jit
def run(x, options):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // options.rows):
        nl.store(out[nl.ds(i * options.rows, options.rows), :], load_rows(x, i, options))
    return out
"""


def test_object_with_a_dtype_and_other_attributes_is_no_tensor(tmp_path):
    text, left = text_of(tmp_path, OPTIONS)
    assert left == []
    assert "nisa.dma_copy(dst=tile, src=x[nl.ds(i * options.rows, options.rows), 0:16])\n" in text


@pytest.mark.parametrize(("body", "expected"), [
    ("return x.dtype, x.rows", True), ("return x.dtype, x.shape, x.view(nl.int32)", False),
    ("return x.rows[0], x.dtype", False), ("return x.p + 1", False), ("return y.rows", False)])
def test_options__have_attributes_that_no_tensor_has(body, expected):
    function, = ast.parse(f"def f(x, y):\n    {body}\n").body
    assert has_options(function, "x") is expected
