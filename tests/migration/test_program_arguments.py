# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that read the number of their program get it from the kernel, whose programs become loops."""

import linecache

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


"""
ROWS = np.random.default_rng(5).random((24, 16), np.float32)
KERNEL = """

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    BODY
    return out
"""


def migrated(text):
    report = MigrationReport("kernel.py")
    new = rewritten(HEAD + text, report)
    assert [entry.text for entry in report.entries if entry.left] == []
    return new


def value(text, grid, arguments):
    install()
    file = f"programs of {hash((text, grid))}"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {}
    exec(compile(text, file, "exec"), scope)
    kernel = scope["kernel"]
    return np.asarray((kernel if grid is None else kernel[grid]).on("eager")(*arguments))


def same_values(text, grid, arguments=(ROWS,)):
    new = migrated(text)
    expected = value(HEAD + text, grid, arguments)
    call = new + f"\n\nkernel_on_grid = kernel\n\n\nclass kernel:\n    @staticmethod\n    def on(name):\n" \
                 f"        return lambda *a: kernel_on_grid.on(name)(*a, grid={grid})\n"
    np.testing.assert_allclose(value(call, None, arguments), expected, rtol=3e-7)
    return new


def test_kernel_passes_its_variable():
    new = same_values("""def rows_of(x):
    return nl.load(x[nl.ds(nl.program_id(axis=0) * 8, 8)])
""" + KERNEL.replace("BODY", "row = nl.program_id(0)\n    nl.store(out[nl.ds(row * 8, 8)], rows_of(x))"), (3,))
    assert "def rows_of(x, row):" in new and "rows_of(x, row=row)" in new and "nl.program_id" not in new


def test_function_that_a_function_calls_reads_the_program():
    """The kernel itself reads nothing; the functions have defaults and keyword arguments."""
    new = same_values("""def part(n, *, first=0):
    return first + nl.program_id(0) * n + 0 * nl.program_ndim()


def columns(x, n=8):
    start = part(n)
    across = nl.program_id(1) * (16 // nl.num_programs(1))
    return nl.load(x[nl.ds(start, n), nl.ds(across, 8)]), start, across


def scaled(x, out, factor=2.0):
    tile, start, across = columns(x)
    nl.store(out[nl.ds(start, 8), nl.ds(across, 8)], tile * factor)
""" + KERNEL.replace("BODY", "scaled(x, out)"), (3, 2))
    assert "def columns(x, n=8, program_0=0, program_1=0" in new and "for program_1 in range(grid[1]):" in new
    assert "nl.program" not in new and "nl.num_programs" not in new


def test_programs_that_are_the_cores_of_a_launch_stay():
    text = """def rows_of(x):
    return nl.load(x[nl.ds(nl.program_id(0) * 8, 8)])
""" + KERNEL.replace("BODY", "nl.store(out[nl.ds(nl.program_id(0) * 8, 8)], rows_of(x))") + """

def run(x):
    return kernel[2](x)
"""
    new = migrated(text)
    assert "def rows_of(x):" in new and "rows_of(x)" in new and new.count("nl.program_id(0)") == 2


def test_kernel_that_the_host_calls_gets_no_argument():
    """A function of the host is no kernel: it has no programs."""
    new = migrated(KERNEL.replace("BODY", "nl.store(out[nl.ds(nl.program_id(0) * 8, 8)], nl.load(x[0:8]))") + """

def run(x):
    return kernel(x)
""")
    assert "def kernel(x, grid=(1,)):" in new and "return kernel(x)" in new


@pytest.mark.parametrize("name", ["row", "program_0"])
def test_parameter_has_a_free_name(name):
    """The function uses the name for another value."""
    new = same_values(f"""def rows_of(x):
    {name} = nl.ds(nl.program_id(0) * 8, 8)
    return nl.load(x[{name}])
""" + KERNEL.replace("BODY", f"{name} = nl.program_id(0)\n    nl.store(out[nl.ds({name} * 8, 8)], rows_of(x))"), (3,))
    assert f"def rows_of(x, {'program_0_' if name == 'program_0' else 'program_0'}):" in new


def test_sizes_of_a_tensor_with_blocks():
    """The new shape begins with the partition axis."""
    new = same_values("""def doubled(tiles, x):
    blocks, rows, _ = tiles.shape
    for b in nl.affine_range(blocks):
        tiles[b] = nl.load(x[nl.ds(b * rows, rows)]) * 2.0
""" + KERNEL.replace("BODY", """tiles = nl.ndarray((3, nl.par_dim(8), 16), dtype=x.dtype)
    doubled(tiles, x)
    for b in nl.affine_range(3):
        nl.store(out[nl.ds(b * 8, 8)], tiles[b])
    if nl.program_ndim() > 4:
        return out"""), (1,))
    assert "rows, blocks, _ = tiles.shape" in new


def test_factor_in_psum_is_copied():
    """The published backward pass of attention multiplies the result of a transpose."""
    new = same_values(KERNEL.replace("BODY", """tile = nl.load(x[0:16])
    turned = nisa.nc_transpose(tile)
    total = nl.zeros((16, 16), dtype=np.float32, buffer=nl.psum)
    total[...] += nisa.nc_matmul(turned, tile)
    total[...] += nl.matmul(tile, turned, transpose_x=True)
    nl.store(out[0:16], total + nl.program_id(0))
    nl.store(out[16:24], nl.load(x[16:24]))"""), (1,))
    assert "factor = nl.copy(turned)" in new and "stationary=factor, moving=tile" in new and "moving=factor_2" in new
