# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that reduce over each other become loops that end before each reduction, which adds the tiles of all."""

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from .test_migration import loaded
from .test_text import HEAD, assert_same_values, new_text

ROWS = (np.arange(48 * 8, dtype=np.float32).reshape(48, 8) % 13 - 5) / 4

NORMALIZED = """def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    start = i * 16
    # what each program has
    tile = nl.load(x[nl.ds(start, 16)], dtype=nl.float32)
    part = nl.sum(tile, axis=1)
    total = nl.all_reduce(part, op=np.add, program_axes=[0])
    # each row by its total
    nl.store(out[nl.ds(start, 16)], tile * total)
    return out
"""
NEW = """def kernel(x, grid=(1,)):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    part_of = []
    tile_of = []
    for i in range(grid[0]):
        start = i * 16
        # what each program has
        tile = nl.load(x[nl.ds(start, 16)], dtype=nl.float32)
        part = nl.sum(tile, axis=1)
        part_of.append(part)
        tile_of.append(tile)
    total = nl.copy(part_of[0])
    for i in range(1, grid[0]):
        nisa.tensor_tensor(dst=total, data1=total, data2=part_of[i], op=nl.add)
    for i in range(grid[0]):
        start = i * 16
        tile = tile_of[i]
        # each row by its total
        nl.store(out[nl.ds(start, 16)], nl.multiply(tile, total.broadcast(1, tile.shape[1])))
    return out
"""


def test_the_loop_over_programs_ends_before_the_reduction(tmp_path):
    assert NEW in new_text(NORMALIZED)
    assert_same_values(NORMALIZED, tmp_path, ROWS, grid=(3,))


def kernel_with(statements):
    body = "\n    ".join(statements.splitlines())
    return f"""def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    tile = nl.load(x[nl.ds(i * 16, 16)], dtype=nl.float32)
    {body}
    return out
"""


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_tiles_of_an_unknown_dtype(dtype, tmp_path):
    """Sums of float16 round once, those of int32 are exact."""
    text = kernel_with("nl.store(out[nl.ds(i * 16, 16)], nl.all_reduce(nl.load(x[nl.ds(i * 16, 16)]), nl.add, (0,)))")
    assert "total = nl.copy(part_of[0], dtype=total_dtype(x.dtype))" in new_text(text)
    rows = np.full((48, 8), (1 << 24) + 1, np.int32) if dtype is np.int32 else (np.cbrt(ROWS) * 300).astype(dtype)
    assert_same_values(text, tmp_path, rows, grid=(3,))


def test_products_in_psum_are_copied(tmp_path):
    text = kernel_with("product = nisa.nc_matmul(tile, tile)\ntotal = nl.all_reduce(product, np.add, [0])\n"
                       "nl.store(out[nl.ds(i * 16, 8)], total)\nnl.store(out[nl.ds(i * 16 + 8, 8)], total)")
    assert "part_of.append(nl.copy(product))" in new_text(text)
    assert_same_values(text, tmp_path, ROWS, grid=(3,))


def test_a_result_that_programs_change_is_copied(tmp_path):
    """Two reductions: the softmax of the elements in the same column of all programs."""
    text = kernel_with("""largest = nl.all_reduce(tile, op=np.maximum, program_axes=[0])
weights = nl.exp(tile - largest)
total = nl.all_reduce(weights, op=nl.add, program_axes=[0])
total = total + i
nl.store(out[nl.ds(i * 16, 16)], weights * total)""")
    lines = new_text(text).splitlines()
    loop = lines.index("    for i in range(grid[0]):", lines.index("    total_of_all = nl.copy(weights_of[0])"))
    assert lines[loop + 1] == "        total = nl.copy(total_of_all)"
    assert_same_values(text, tmp_path, ROWS, grid=(3,))


SPLIT = ("nl.all_reduce in a loop, a branch or a helper, or along some of several axes: let a loop over the programs end "
         "before it, combine the tiles of all, and begin another loop")


@pytest.mark.parametrize(("statements", "why"), [
    ("for k in range(2):\n    tile = nl.all_reduce(tile, op=np.add, program_axes=[0])", SPLIT),
    ("j = nl.program_id(1)\ntile = nl.all_reduce(tile + j, op=np.add, program_axes=[1])", SPLIT),
    ("tile = nl.all_reduce(tile, op=np.add, program_axes=[0], mask=nl.arange(16)[:, None] < 4)",
     "nl.all_reduce under a mask: fill the elements that it leaves out with the identity first"),
    ("tile = nl.all_reduce(nl.copy(tile, dtype=nl.int32), op=np.add, program_axes=[0])",
     "nl.all_reduce of integers, whose sums are exact"),
    ("if i > 1:\n    more = tile + 1\ntotal = nl.all_reduce(tile, op=np.add, program_axes=[0])\n"
     "if i > 1:\n    nl.store(out[nl.ds(i * 16, 16)], more + total)",
     "nl.all_reduce in a kernel that reads more after it, which not each program binds"),
    ("part = tile + 1\ntotal = nl.all_reduce(part, op=np.add, program_axes=[0])\npart = part * total\n"
     "nl.store(out[nl.ds(i * 16, 16)], part)", "nl.all_reduce in a kernel that binds part again after it")])
def test_what_is_left(statements, why):
    report = MigrationReport("kernel.py")
    text = rewritten(HEAD + kernel_with(statements), report)
    assert [entry.text for entry in report.entries if entry.left] == [why] and "nl.all_reduce(" in text


BY_HELPERS = HEAD.rpartition("@nki.jit")[0] + """def of_all(part, op=np.add):
    return nl.all_reduce(part, op=op, program_axes=[0])


def mean_of_all(tile, count):
    # over the columns of all programs
    total = of_all(nl.sum(tile, axis=1))
    return total * (1.0 / count)


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    tile = nl.load(x[nl.ds(i * 24, 24)], dtype=nl.float32)
    nl.store(out[nl.ds(i * 24, 24)], tile - mean_of_all(tile, 16))
    return out
"""


@pytest.mark.parametrize("launch", ["", "\n\n\nresult = kernel[2](np.ones((48, 8), np.float32))\n"])
def test_helpers_that_reduce_are_inlined(launch, tmp_path):
    report = MigrationReport("kernel.py")
    text = rewritten(BY_HELPERS + launch, report)
    assert report.is_complete and "def of_all" not in text and "def mean_of_all" not in text
    assert "def kernel(x, grid=(1,)):" in text and "# over the columns of all programs" in text
    assert "kernel(np.ones((48, 8), np.float32), grid=(2,))" in text or not launch
    install()
    values = []
    for name, source in ("reduced_old", BY_HELPERS), ("reduced_new", rewritten(BY_HELPERS, MigrationReport("kernel.py"))):
        (tmp_path / f"{name}.py").write_text(source)
        kernel = loaded(tmp_path / f"{name}.py", name).kernel
        values.append((kernel[2] if name == "reduced_old" else kernel).run((ROWS,), {} if name == "reduced_old" else {"grid": (2,)}, "eager"))
    np.testing.assert_array_equal(*values)
