# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launch grids: ids, extents, core dimensions, programs that differ."""

import re

import numpy as np
import pytest

from nki_mlir.capture.errors import NestedGrid
from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.nisa.meeting import UnlikeOperands
from nki_mlir.dialects.verifier import WrongDtype
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.functions import BadGridAxis
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.language.launch_grid import TooManyPrograms, flat_grid

from .running import check, numbers, run


@nki.jit
def scaled_tiles(x):
    """Each program scales one row of tiles by its place in the grid."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    ids = [nl.program_id(axis) for axis in range(nl.program_ndim())]
    position = 0
    for axis, index in enumerate(ids):
        position = position * nl.num_programs(axis) + index
    nl.store(out[position], nl.load(x[position]) * (position + 1))
    return out


GRIDS = [2, (2,), [2], (2, 3), (2, 3, 2), (nl.nc(2), 3), (nl.spmd_dim(nl.nc(2), 2), 2), (nl.nc(2) * 2, 2),
         (2 * nl.nc(2),), (nl.spmd_dim(2, nl.nc(2)),), ((2, 3), 2), (1, 4), (4, 1)]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda g: "x".join(map(str, flat_grid(g))))
def test_grid(on, grid):
    count = int(np.prod(flat_grid(grid)))
    x = numbers(count, 4, 8)
    check(on, scaled_tiles, x * np.arange(1, count + 1, dtype=np.float32)[:, None, None], x, grid=grid)


@pytest.mark.parametrize("grid", [10 ** 12, 10 ** 5000, (1 << 20, 1 << 20), ((1 << 12, 1 << 13),)], ids=range(4))
def test_grid_that_no_machine_launches(grid):
    with pytest.raises(TooManyPrograms, match=r"has .* programs; at most 16,777,216 can run") as error:
        scaled_tiles[grid]
    assert error.value.at.file == __file__


def test_launch_without_a_grid(on):
    @nki.jit
    def kernel(x):
        assert nl.program_ndim() == 0 and nl.num_programs() == 1
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out
    x = numbers(4, 8)
    check(on, kernel, x, x)


def test_grid_of_the_documentation(on):
    """a + b in tiles of 128 x 512, one program each."""
    @nki.jit
    def add(a_input, b_input):
        c_output = nl.ndarray(a_input.shape, dtype=a_input.dtype, buffer=nl.shared_hbm)
        offset_x, offset_y = nl.program_id(0) * 128, nl.program_id(1) * 512
        ix = offset_x + nl.arange(128)[:, None]
        iy = offset_y + nl.arange(512)[None, :]
        nl.store(c_output[ix, iy], value=nl.load(a_input[ix, iy]) + nl.load(b_input[ix, iy]))
        return c_output
    a, b = numbers(256, 1024), numbers(256, 1024, seed=1)
    check(on, add, a + b, a, b, grid=(2, 2))


def test_queries(on):
    @nki.jit
    def kernel(x):
        assert nl.num_programs() == 6 and nl.num_programs(0) == 2 and nl.num_programs([0, 1]) == 6
        assert nl.num_programs(axes=1) == 3 and nl.program_ndim() == 2 and isinstance(nl.num_programs(0), int)
        out = nl.ndarray((2, 3, 4, 8), x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0), nl.program_id(axis=1)], nl.load(x))
        return out
    x = numbers(4, 8)
    check(on, kernel, np.broadcast_to(x, (2, 3, 4, 8)), x, grid=(2, 3))


def test_programs_that_differ_by_a_python_if(on):
    """Sizes and values that depend on the program id are Python numbers in each program."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        shard, shards = nl.program_id(0), nl.num_programs(0)
        each = x.shape[0] // shards
        if shard == shards - 1:
            size, scale = x.shape[0] - each * (shards - 1), 3.0
        else:
            size, scale = each, 2.0
        rows = nl.ds(shard * each, size)
        tile = nl.ndarray((size, x.shape[1]), nl.float32)
        tile[...] = nl.load(x[rows, :]) * scale
        nl.store(out[rows, :], tile)
        return out
    x = numbers(10, 8)
    expected = x * 2
    expected[6:] = x[6:] * 3
    check(on, kernel, expected, x, grid=3)


def test_programs_that_differ_by_a_tile_operation(on):
    """A condition that only guards operations stays in the program: one module serves all."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        tile = nl.load(x[i])
        if i >= 1:
            tile[...] = tile * 2
        nl.store(out[i], tile)
        return out
    x = numbers(3, 4, 8)
    expected = x.copy()
    expected[1:] *= 2
    check(on, kernel, expected, x, grid=3)
    if on != "eager":
        bound = kernel.bind((x,), {}, is_array, describe_array)
        assert len(kernel[3].specialize(bound).modules) == 1


def test_tensor_of_a_branch_on_the_program_id(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        if i >= 1:
            tile = nl.load(x[i]) * 2
        else:
            tile = nl.load(x[i])
        nl.store(out[i], tile)
        return out
    x = numbers(3, 4, 8)
    expected = x.copy()
    expected[1:] *= 2
    check(on, kernel, expected, x, grid=3)


def test_program_ids_in_loops_masks_and_operands(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.program_id(0), nl.program_id(1)
        p, f = nl.arange(5)[:, None], nl.arange(8)[None, :]
        for k in nl.affine_range(2):
            row = (i * 2 + k) * 5 + p
            mask = (row < 13) & (j * 8 + f < 14)
            nl.store(out[row, j * 8 + f], nl.load(x[row, j * 8 + f], mask=mask) * (i + 1) + j, mask=mask)
        return out
    x = numbers(13, 14)
    rows, columns = np.ogrid[:13, :14]
    check(on, kernel, (x * (rows // 10 + 1) + columns // 8).astype(np.float32), x, grid=(2, 2))


def test_programs_read_what_earlier_ones_wrote_of_an_input(on):
    """By reference: the programs run one after the other."""
    @nki.trace
    def kernel(x):
        nl.store(x[nl.program_id(0) + 1], nl.load(x[nl.program_id(0)]) + 1)
    x = np.zeros((5, 4, 8), np.float32)
    kernel[4].on(on)(x)
    np.testing.assert_array_equal(x[:, 0, 0], np.arange(5))


def test_program_id_as_python_value(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        scales = {0: 2.0, 1: 5.0, 2: 7.0}
        names = [f"program {nl.program_id(0)}"]
        i = int(nl.program_id(0))
        nl.store(out[i], nl.load(x[i]) * scales[nl.program_id(0)] * len(names))
        return out
    x = numbers(3, 4, 8)
    check(on, kernel, x * np.float32([2, 5, 7])[:, None, None], x, grid=3)


def test_cores_of_a_dimension():
    assert [nl.spmd_dim(nl.nc(2), 2).core_of(i) for i in range(4)] == [0, 0, 1, 1]
    assert [nl.spmd_dim(2, nl.nc(2)).core_of(i) for i in range(4)] == [0, 1, 0, 1]
    assert [(nl.nc(2) * 2).core_of(i) for i in range(4)] == [0, 0, 1, 1]
    assert [(2 * nl.nc(2)).core_of(i) for i in range(4)] == [0, 1, 0, 1]


def test_axis_beyond_the_grid(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(1)], nl.load(x[0]))
        return out
    with pytest.raises(BadGridAxis, match="a launch grid of 1 dimension has no axis 1") as caught:
        run(on, kernel, numbers(2, 4, 8), grid=2)
    assert caught.value.at.file == __file__


def test_bad_extent():
    with pytest.raises(KernelError, match="extent"):
        scaled_tiles[0]


def test_nested_kernel_has_no_grid(on):
    @nki.jit(mode="trace")
    def inner(tile):
        return tile * 2

    @nki.jit
    def kernel(x, gridded):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, inner[4, 4](tile) if gridded else inner(tile))
        return out
    x = numbers(4, 8)
    check(on, kernel, x * 2, x, False)
    with pytest.raises(NestedGrid) as caught:
        run(on, kernel, x, True)
    assert caught.value.name == "err_nested_kernel_with_spmd_grid" and caught.value.at.file == __file__


# -- reductions over programs ------------------------------------------------------------------------------------------
@nki.jit
def of_all(x, axes, op):
    out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    nl.store(out[i, j], nl.all_reduce(nl.load(x[i, j]), op=op, program_axes=axes, dtype=nl.float32))
    return out


@pytest.mark.parametrize("axes, op", [(0, np.add), ((1,), np.max), ([0, 1], nl.add), ([1, 0], np.min)],
                         ids=["sum", "max", "all", "min"])
def test_all_reduce(on, axes, op):
    x = numbers(3, 2, 16, 8)
    fold = {np.max: np.max, np.min: np.min}.get(op, np.sum)
    expected = np.broadcast_to(fold(x, axis=axes if isinstance(axes, int) else tuple(axes), keepdims=True), x.shape)
    check(on, of_all, expected, x, axes, op, grid=(3, 2))


@nki.jit
def bits_of_all(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i], nl.all_reduce(nl.load(x[i]), op=nl.bitwise_xor, program_axes=0))
    return out


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_all_reduce_of_bits(on, dtype):
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (3, 16, 8), dtype, endpoint=True)
    check(on, bits_of_all, np.stack([np.bitwise_xor.reduce(x)] * 3), x, grid=(3,))


def test_all_reduce_of_a_float_s_bits_is_an_error(on):
    with pytest.raises(WrongDtype, match="operand 'x' of 'all_reduce' has dtype float32, which must be an integer"):
        run(on, bits_of_all[3], numbers(3, 16, 8))


@pytest.mark.parametrize("rows", [(4, 6), (1, 4)])
def test_all_reduce_of_programs_with_unlike_tiles_is_an_error(on, rows):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 16, 8), nl.float32, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        n = rows[1] if i == 1 else rows[0]
        nl.store(out[i, 0:n], nl.all_reduce(nl.load(x[0:n]), np.max, program_axes=0))
        return out
    text = f"nisa.all_reduce: program 0 passes float32[{rows[0]}, 8], but program 1 passes float32[{rows[1]}, 8]"
    with pytest.raises(UnlikeOperands, match=re.escape(text)) as caught:
        run(on, kernel[2], numbers(16, 8))
    assert caught.value.at.file == __file__


@pytest.mark.parametrize("op", [np.add, np.max, np.min], ids=["add", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_all_reduce_under_masks(on, op, dtype):
    """What a program's mask leaves out is not a part of what others get, and is not written where it is."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        total = nl.full((16, 8), 77, x.dtype)
        total[...] = nl.all_reduce(nl.load(x[i]), op, program_axes=0, mask=nl.arange(16)[:, None] >= 3 * i)
        nl.store(out[i], total)
        return out
    x = numbers(3, 16, 8, dtype=dtype)
    inside = np.broadcast_to(np.arange(16)[None, :, None] >= 3 * np.arange(3)[:, None, None], x.shape)
    neutral = {np.add: 0, np.max: -1000, np.min: 1000}[op]
    fold = {np.add: np.sum}.get(op, op)
    together = fold(np.where(inside, x, dtype(neutral)), axis=0, keepdims=True).astype(dtype)
    check(on, kernel, np.where(inside, together, dtype(77)), x, grid=(3,))


def test_all_reduce_again_and_again(on):
    """What a step of a loop adds up is what the one before gave to all."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        value = nl.load(x[i])
        for _ in nl.sequential_range(3):
            value[...] = nl.all_reduce(value, np.add, program_axes=0) - value
        nl.store(out[i], value)
        return out
    x = numbers(4, 16, 8)
    expected = x
    for _ in range(3):
        expected = expected.sum(0, keepdims=True) - expected
    check(on, kernel, expected, x, grid=(4,))


def test_all_reduce_of_exact_integers(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        nl.store(out[i], nl.all_reduce(nl.load(x[i]), np.add, program_axes=0))
        return out
    x = np.arange(24, dtype=np.int32).reshape(2, 4, 3) + (1 << 24)
    check(on, kernel, np.broadcast_to(x.sum(0, dtype=np.int32, keepdims=True), x.shape), x, grid=(2,))


def test_all_reduce_of_an_axis_that_is_not_there(on):
    @nki.jit
    def kernel(x):
        nl.store(x, nl.all_reduce(nl.load(x), np.add, program_axes=1))
    with pytest.raises(BadGridAxis, match="a launch grid of 1 dimension has no axis 1"):
        run(on, kernel, numbers(4, 4), grid=(2,))


def test_all_reduce_along_an_axis_twice(on):
    @nki.jit
    def kernel(x):
        nl.store(x, nl.all_reduce(nl.load(x), np.add, program_axes=[0, 0]))
    with pytest.raises(KernelError, match=r"program_axes \[0, 0\] name an axis of the grid twice \[NKI-GRID-AXIS\]"):
        run(on, kernel, numbers(4, 4), grid=(2,))


def test_all_reduce_that_one_program_does_not_reach(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        total = nl.load(x[i])
        if i < 2:
            total[...] = nl.all_reduce(total, np.add, program_axes=0)
        nl.store(out[i], total)
        return out
    with pytest.raises(NkiMlirError, match=r"core 0 waits in nisa.all_reduce for core 2 .*; core 2 has ended"):
        run(on, kernel, numbers(3, 4, 4), grid=(3,))
