# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Idioms that meet: masks in branches, lists of tensors, defaults, functions as arguments, imports of test helpers."""

import numpy as np
import pytest

from nki_mlir.migration.files import migrated as migrated_files
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.names import with_named_imports
from nki_mlir.migration.report import MigrationReport

from .test_text import assert_same_values, floats, migrated, new_text

BRANCHES = """def kernel(x, bias=None, act="relu"):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:128, 0:32]
    for i in nl.affine_range((rows + 127) // 128):
        ok = i * 128 + ip < rows
        tile = nl.zeros((128, 32), dtype=nl.float32)
        tile[...] = nl.load(x[i * 128 + ip, jf], mask=ok)
        result = nl.copy(tile)
        if bias is not None:
            result = nl.add(result, nl.load(bias).broadcast_to((128, 32)), mask=ok)
        if act == "relu":
            result = nl.relu(result, mask=ok)
        nl.store(out[i * 128 + ip, jf], result, mask=ok)
    return out
"""
REPEATED = """def kernel(x, b):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:64, 0:32]
    row = nl.load(b)
    for j in nl.affine_range((cols + 31) // 32):
        ok = (ip < rows) & (j * 32 + jf < cols)
        tile = nl.load(x[ip, j * 32 + jf], mask=ok)
        part = nl.add(tile, row[nl.arange(1)[:, None], j * 32 + jf].broadcast_to((64, 32)), mask=ok)
        nl.store(out[ip, j * 32 + jf], part, mask=ok)
    return out
"""
REPEATED_IN_HBM = """def kernel(x, b):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:32, 0:cols]
    all_rows = nl.load(b.reshape((1, cols)).broadcast_to(x.shape))
    for i in nl.affine_range(rows // 32):
        row = nl.load(b.reshape((1, cols)).broadcast_to((32, cols))[ip, jf])
        nl.store(out[i * 32 + ip, jf], nl.load(x[i * 32 + ip, jf]) * row + all_rows[0:32, :])
    return out
"""
LISTED = """def kernel(a, b, c):
    tensors = [a, b, c]
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:16, 0:32]
    tiles = [nl.load(t[ip, jf]) for t in tensors]
    total = tiles[0]
    for scale, tile in zip((2.0, 3.0), tiles[1:]):
        total = nl.add(total, nl.multiply(tile, scale))
    assert isinstance(total, nl.Tensor)
    nl.store(out, total)
    return out
"""
NAMED_BLOCKS = """def kernel(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    n = x.shape[0] // 16
    tiles = {name: nl.ndarray((n, nl.par_dim(16), t.shape[1]), dtype=t.dtype) for name, t in (("x", x), ("y", y))}
    for k in nl.affine_range(n):
        tiles["x"][k] = nl.load(x[k * 16:(k + 1) * 16, :])
        tiles["y"][k] = nl.load(y[k * 16:(k + 1) * 16, :])
        nl.store(out[k * 16:(k + 1) * 16, :], nl.add(tiles["x"][k], tiles["y"][k]))
    return out
"""
DEFAULTS = """def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    into(tile, shifted(tile), op=nl.maximum)
    into(tile, tile, factor=0.5)
    nl.store(out, tile)
    return out


def shifted(tile, axis=1, mask=None, dtype=None):
    return nl.subtract(tile, nl.max(tile, axis=axis, mask=mask, keepdims=True), mask=mask)


def into(dst, src, factor=1.0, op=nl.add):
    dst[...] = op(dst, nl.multiply(src, factor))
"""
IMPORTS = """from neuronxcc.nki import *
from neuronxcc.nki.language import *
from neuronxcc.starfish.support.util import allclose
from neuronxcc.starfish.support.dtype import static_cast
import neuronxcc.nki.typing as nt
import neuronxcc.nki as nki


@jit
def kernel(x):
    out = ndarray(x.shape, dtype=x.dtype, buffer=shared_hbm)
    store(out, exp(load(x)))
    return out


measured = nki.benchmark(warmup=2)(kernel)
measured(nt.tensor[[128, 64], float32])
print(measured.benchmark_result.nc_latency.get_latency_percentile(50))
assert allclose(simulate_kernel(kernel, static_cast(X, float32)), Y, atol=1e-2, verbose=1)
"""


def test_a_mask_cuts_a_tile_in_one_branch_alone(tmp_path):
    text = migrated(BRANCHES)
    assert "nl.store(out[nl.ds(i * 128, num_rows), 0:32], result[0:num_rows])" in text
    assert_same_values(BRANCHES, tmp_path, floats(200, 32))
    assert_same_values(BRANCHES, tmp_path, floats(200, 32), floats(1, 32))


def test_a_mask_cuts_a_view_that_is_repeated(tmp_path):
    assert "nl.ds(j * 32, num_columns)], (num_rows, num_columns))" in migrated(REPEATED)
    assert_same_values(REPEATED, tmp_path, floats(50, 40), floats(1, 40))
    text = migrated(REPEATED_IN_HBM)
    assert "nl.load(b.reshape((1, cols)).broadcast(0, 32))" in text
    assert "nl.load(b.reshape((1, cols)).broadcast(0, x.shape[0]))" in text or ".broadcast(0, rows))" in text
    assert_same_values(REPEATED_IN_HBM, tmp_path, floats(64, 40), floats(40))


def test_items_of_a_list_are_tensors(tmp_path):
    assert "tiles.append(nl.load(t[0:16, 0:32]))" in (text := migrated(LISTED)) and "isinstance(total, nl.NkiTensor)" in text
    assert_same_values(LISTED, tmp_path, *(floats(16, 32) + k for k in range(3)))


def test_tensors_of_a_dictionary_have_block_dimensions(tmp_path):
    assert 'nisa.dma_copy(dst=tiles["x"][:, k], src=x[nl.ds(k * 16, 16), :])' in migrated(NAMED_BLOCKS)
    assert_same_values(NAMED_BLOCKS, tmp_path, floats(48, 20), floats(48, 20))


def test_defaults_that_no_call_changes_are_known(tmp_path):
    text = migrated(DEFAULTS)
    assert "nl.max(tile, axis=1, keepdims=True)" in text and "mask=mask" not in text
    assert "src=op(dst, nl.multiply(src, factor" in text
    assert_same_values(DEFAULTS, tmp_path, floats(16, 32))


def test_names_of_test_helpers_come_from_elsewhere(tmp_path):
    (tmp_path / "kernels.py").write_text(IMPORTS)
    result, = migrated_files(tmp_path / "kernels.py", "2.32")
    assert "neuronxcc" not in result.new and "static_cast" not in result.new
    assert "from numpy import allclose" in result.new and "measured(np.zeros((128, 64), dtype=float32))" in result.new
    assert "allclose(nki.simulate(kernel)(X.astype(float32)), Y, atol=1e-2)" in result.new
    assert with_named_imports("if x:\n    from neuronxcc.nki import *\n") == "if x:\n    pass\n"
    kept = "from helpers import allclose\nallclose(a, b, verbose=True)\n"
    assert with_named_imports(kept) == kept             # a function that is not of the compiler's package


def test_a_wrapper_on_a_grid_is_a_launch():
    text = new_text("""def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(nl.program_id(0) * 16, 16)
    nl.store(out[rows], nl.load(x[rows]))
    return out


first = nki.baremetal(kernel)[4](X)
second = nki.simulate_kernel(nki.baremetal(kernel)[4], X)
""")
    assert "first = kernel(X, grid=(4,))" in text and "second = nki.simulate(kernel)(X, grid=(4,))" in text


def test_exports_go_with_their_functions(tmp_path):
    (tmp_path / "grids.py").write_text("""import neuronxcc.nki.language as nl

__all__ = ["grid", "half"]


def grid(p, f):
    return nl.arange(p)[:, None], nl.arange(f)[None, :]


def half(tile):
    return nl.multiply(tile, 0.5)
""")
    (tmp_path / "kernels.py").write_text("""import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import grids
from grids import grid, half


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = grid(16, 32)
    nl.store(out[ip, jf], half(nl.load(x[ip, jf])))
    return out
""")
    grids, kernels = migrated_files(tmp_path, "2.32")
    assert grids.report.is_complete and kernels.report.is_complete
    assert '__all__ = ["half"]' in grids.new and "def grid" not in grids.new
    assert "nl.store(out[0:16, 0:32], half(nl.load(x[0:16, 0:32])))" in kernels.new


def test_a_row_and_a_column_of_unknown_shape_are_broadcast(tmp_path):
    assert_same_values("""def kernel(x, lengths):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:rows, 0:cols]
    valid = nl.less(nisa.iota(jf, dtype=nl.float32), nl.load(lengths), dtype=nl.uint8)
    nl.store(out, nl.where(valid, nl.load(x), 0.0))
    return out
""", tmp_path, floats(20, 12), np.arange(20, dtype=np.float32)[:, None])


def test_a_column_selects_between_tiles(tmp_path):
    """The result has the shape of the widest operand, and the condition is repeated, also as a predicate."""
    assert_same_values("""def kernel(x, c):
    rows, cols = x.shape
    out = nl.ndarray((1, cols), dtype=nl.float32, buffer=nl.shared_hbm)
    tile, column = nl.load(x, dtype=nl.float32), nl.load(c[0:rows, 0:1], dtype=nl.float32)
    is_chosen = nl.greater(column, 0.5)
    kept = nl.ndarray((nl.par_dim(rows), cols), dtype=nl.float32)
    kept[...] = nl.where(is_chosen, tile, 0.25)
    kept[...] = nl.where(is_chosen, kept, column)
    nl.store(out, nisa.tensor_partition_reduce(np.add, nl.where(nl.less(column, 0.75), kept, tile)))
    return out
""", tmp_path, floats(20, 12), floats(20, 1))


STRIDES = """def kernel(x, width=3, stride=2):
    rows, cols = x.shape
    n = (cols - 1) // stride + 1
    out = nl.ndarray((rows, n), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    res = nl.full((nl.par_dim(rows), n), -3.0e38, dtype=x.dtype, buffer=nl.sbuf)
    ip, jn = nl.arange(rows)[:, None], nl.arange(n)[None, :]
    for k in nl.static_range(width):
        res[ip, jn] = nl.maximum(res[ip, jn], t[ip, stride * jn + k], mask=MASK)
    nl.store(out, res)
    return out
"""


@pytest.mark.parametrize("mask, bound", [
    ("stride * jn + k < cols", "cols - k"), ("stride * jn + k <= cols - 1", "cols - k"),
    ("cols > stride * jn + k", "cols - k"), ("cols - 1 >= k + stride * jn", "cols - k"),
    ("(stride * jn + k < cols) & (ip < rows)", "cols - k")], ids=str)
def test_a_mask_on_steps_that_a_parameter_gives_becomes_a_count(mask, bound, tmp_path):
    """The last window is shorter: without the count the slice leaves the tile."""
    kernel = STRIDES.replace("MASK", mask)
    assert f"num_columns = min(n, -(-({bound}) // stride))" in migrated(kernel)
    for columns in (15, 16):
        assert_same_values(kernel, tmp_path, floats(8, columns))


def test_a_condition_of_the_host_is_no_mask_that_may_be_none():
    text = migrated("""def kernel(x, causal=True):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(2):
        active = i > 0 if causal else True
        t = nl.load(x, mask=active)
        nl.store(out, t, mask=active)
    return out
""")
    assert "        if active:\n" in text and "None" not in text


BLOCKS = """def kernel(x, first):
    rows, cols = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:32, 0:32]
    for b in nl.affine_range((rows + 63) // 64):
        for t in nl.affine_range(2):
            inside = (b * 64 + t * 32 + ip < rows) & (jf < cols)
            starts = (t >= 0) & (b >= first)
            tile = nl.load(x[b * 64 + t * 32 + ip, jf], mask=inside)
            total = nl.add(tile, 1.0, mask=inside)
            nl.store(out[b * 64 + t * 32 + ip, jf], total, mask=inside)
            nl.store(out[b * 64 + t * 32 + ip, jf], tile, mask=inside & starts)
    return out
"""


@pytest.mark.parametrize("rows", [100, 128, 65])
def test_tiles_of_the_last_block_may_be_beyond_the_rows(rows, tmp_path):
    """The last tile of 65 or 100 rows has none of them: nothing is read or written."""
    new = new_text(BLOCKS)
    assert_same_values(BLOCKS.replace("first", "1").replace("x, 1", "x"), tmp_path, floats(rows, 32))
    assert "if num_rows > 0" in new and "starts is None" not in new


CONSTANTS = """def kernel(x):
    out = nl.ndarray((16, 3), dtype=nl.float32, buffer=nl.shared_hbm)
    halves = nl.static_cast(np.array([[2.5, 3.6, -300.0]] * 16), nl.int8)
    table = nl.load(nl.shared_constant(halves, dtype=nl.int8))
    tile = nl.load(x)
    top = nl.full((16, 3), 0.25, dtype=nl.float32)
    least = nl.ndarray((16, 3), dtype=nl.float32)
    for k in nl.affine_range(3):
        top[...] = nl.loop_reduce(nl.load(x[0:16, 3 * k:3 * k + 3]), op=np.max, loop_indices=[k])
        least[...] = nl.loop_reduce(nl.load(x[0:16, 3 * k:3 * k + 3]), op=np.min, loop_indices=[k])
    flags = nl.all(tile, axis=[1])
    infinite = nl.minimum(tile[0:16, 0:3] / 0, 1e30)
    total = nl.add(nl.add(nl.add(top, least), table, dtype=nl.float32), nl.copy(flags, dtype=nl.float32))
    nl.store(out, nl.add(total, nl.multiply(nl.maximum(infinite, -1e30), 1e-30)))
    return out
"""


def test_arrays_reductions_and_quotients_of_constants(tmp_path):
    """Casts round and saturate, a reduction over a loop begins with the values of its tile, zero may divide."""
    assert_same_values(CONSTANTS, tmp_path, floats(16, 9))
    new = new_text(CONSTANTS)
    assert "np.clip(np.rint(np.float64(" in new and "dtype=nl.bool_" in new and new.count("if k == 0:") == 1


def test_conditions_on_the_device_are_left():
    report = MigrationReport("kernel.py")
    rewritten("""import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt


def kernel(x):
    going = nt.scalar(nl.load(x))
    while going:
        going = nt.scalar(nl.load(x))
""", report)
    assert [e.text for e in report.entries if e.left and "keep the condition in a register" in e.text]


def test_order_of_the_indices_of_equal_values_is_reported():
    report = MigrationReport("kernel.py")
    rewritten("""import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def kernel(x):
    data = nl.load(x[0:64, 0:32])
    places = nl.ndarray((64, 8), dtype=nl.uint32, buffer=nl.sbuf)
    rest = nisa.nc_match_replace8(data=data, vals=nisa.max8(src=data), imm=0.0, dst_idx=places)
""", report)
    assert (8, "the indices of equal values come in another order in the current generation") in [
        (e.line, e.text) for e in report.entries] and report.is_complete
