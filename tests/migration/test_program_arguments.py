# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that read the number of their program get it from the kernel, whose programs become loops."""

import numpy as np
import pytest

from .test_text import assert_same_values, new_text

ROWS = np.random.default_rng(5).random((24, 16), np.float32)


def kernel_with(body, functions=""):
    return f"""def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    {body}
    return out


{functions}"""


def same_values(text, folder, grid):
    assert_same_values(text, folder, ROWS, grid=grid)
    return new_text(text)


def test_kernel_passes_its_variable(tmp_path):
    body = "row = nl.program_id(0)\n    nl.store(out[nl.ds(row * 8, 8)], rows_of(x))"
    new = same_values(kernel_with(body, """def rows_of(x):
    return nl.load(x[nl.ds(nl.program_id(axis=0) * 8, 8)])
"""), tmp_path, (3,))
    assert "def rows_of(x, row):" in new and "rows_of(x, row=row)" in new and "nl.program_id" not in new


def test_function_that_a_function_calls_reads_the_program(tmp_path):
    """The kernel itself reads nothing; the functions have defaults and keyword arguments."""
    new = same_values(kernel_with("scaled(x, out)", """def part(n, *, first=0):
    return first + nl.program_id(0) * n + 0 * nl.program_ndim()


def columns(x, n=8):
    start = part(n)
    across = nl.program_id(1) * (16 // nl.num_programs(1))
    return nl.load(x[nl.ds(start, n), nl.ds(across, 8)]), start, across


def scaled(x, out, factor=2.0):
    tile, start, across = columns(x)
    nl.store(out[nl.ds(start, 8), nl.ds(across, 8)], tile * factor)
"""), tmp_path, (3, 2))
    assert "def columns(x, n=8, program_0=0, program_1=0" in new and "for program_1 in range(grid[1]):" in new
    assert "nl.program" not in new and "nl.num_programs" not in new


def test_programs_that_are_the_cores_of_a_launch_stay():
    text = kernel_with("nl.store(out[nl.ds(nl.program_id(0) * 8, 8)], rows_of(x))", """def rows_of(x):
    return nl.load(x[nl.ds(nl.program_id(0) * 8, 8)])
""") + """

def run(x):
    return kernel[2](x)
"""
    new = new_text(text)
    assert "def rows_of(x):" in new and "rows_of(x)" in new and new.count("nl.program_id(0)") == 2


def test_kernel_that_the_host_calls_gets_no_argument():
    """A function of the host is no kernel: it has no programs."""
    new = new_text(kernel_with("nl.store(out[nl.ds(nl.program_id(0) * 8, 8)], nl.load(x[0:8]))") + """

def run(x):
    return kernel(x)
""")
    assert "def kernel(x, grid=(1,)):" in new and "return kernel(x)" in new


@pytest.mark.parametrize("name", ["row", "program_0"])
def test_parameter_has_a_free_name(name, tmp_path):
    """The function uses the name for another value."""
    body = f"{name} = nl.program_id(0)\n    nl.store(out[nl.ds({name} * 8, 8)], rows_of(x))"
    new = same_values(kernel_with(body, f"""def rows_of(x):
    {name} = nl.ds(nl.program_id(0) * 8, 8)
    return nl.load(x[{name}])
"""), tmp_path, (3,))
    assert f"def rows_of(x, {'program_0_' if name == 'program_0' else 'program_0'}):" in new


def test_sizes_of_a_tensor_with_blocks(tmp_path):
    """The new shape begins with the partition axis."""
    new = same_values(kernel_with("""tiles = nl.ndarray((3, nl.par_dim(8), 16), dtype=x.dtype)
    doubled(tiles, x)
    for b in nl.affine_range(3):
        nl.store(out[nl.ds(b * 8, 8)], tiles[b])
    if nl.program_ndim() > 4:
        return out""", """def doubled(tiles, x):
    blocks, rows, _ = tiles.shape
    for b in nl.affine_range(blocks):
        tiles[b] = nl.load(x[nl.ds(b * rows, rows)]) * 2.0
"""), tmp_path, (1,))
    assert "rows, blocks, _ = tiles.shape" in new


def test_factor_in_psum_is_copied(tmp_path):
    """The published backward pass of attention multiplies the result of a transpose."""
    new = same_values(kernel_with("""tile = nl.load(x[0:16])
    transposed = nisa.nc_transpose(tile)
    total = nl.zeros((16, 16), dtype=np.float32, buffer=nl.psum)
    total[...] += nisa.nc_matmul(transposed, tile)
    total[...] += nl.matmul(tile, transposed, transpose_x=True)
    nl.store(out[0:16], total + nl.program_id(0))
    nl.store(out[16:24], nl.load(x[16:24]))"""), tmp_path, (1,))
    assert "factor = nl.copy(transposed)" in new and "stationary=factor, moving=tile" in new and "moving=factor_2" in new


def test_parameter_has_the_name_of_a_kernel_that_calls_the_function():
    """Another kernel of the file has another variable for its program."""
    text = kernel_with("nl.store(out[nl.ds(nl.program_id(0) * 8, 8)], rows_of(x))", """def rows_of(x):
    return nl.load(x[nl.ds(nl.program_id(0) * 8, 8)])


@nki.jit
def other(x):
    head = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[nl.ds(head * 8, 8)], nl.load(x[nl.ds(head * 8, 8)]))
    return out
""")
    assert "def rows_of(x, program_0):" in new_text(text)
