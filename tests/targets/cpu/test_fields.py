# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fields of records that are loaded together, and folds that walk together: which do, and the values."""

import ctypes
import mmap

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets.cpu import lowering
from nki_mlir.targets.cpu.addressed_nest import AddressedNest

from .compiled import compiled, set_options

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    set_options(monkeypatch, "forward-copies", least=16)
    monkeypatch.setattr(lowering, "WORTH_FUSING", 16)


def records(rows, count, step, dtype=np.float32):
    x = RNG.integers(-30, 31, (rows, count * step)).astype(dtype)
    if x.dtype == np.float32:
        x.flat[::11] = np.resize(np.float32([np.nan, np.inf, -0.0, 1e-40]), x.flat[::11].size)
    return x


@nki.jit
def chosen(x, step, fields):
    """Compute maximum(first field, second field) - ... over the fields."""
    rows, count = x.shape[0], x.shape[1] // step
    out = nl.ndarray((rows, count), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(rows)[:, None], nl.arange(count)[None, :]
    tile = nl.load(x)
    result = nl.maximum(tile[p, step * f + fields[0]], tile[p, step * f + fields[1]])
    for field in fields[2:]:
        result = nl.subtract(result, tile[p, step * f + field])
    nl.store(out, result)
    return out


@nki.jit
def sums(x):
    """Sum both fields, and their products."""
    rows, count = x.shape[0], x.shape[1] // 2
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(rows)[:, None], nl.arange(count)[None, :]
    tile = nl.load(x)
    nl.store(out, nl.sum(nl.multiply(tile[p, 2 * f], tile[p, 2 * f + 1]), axis=1, keepdims=True))
    return out


def native(function, *arguments):
    specialization = function.specialize(function.bind(arguments, {}, is_array, describe_array))
    return compiled(specialization.captured.variants[()].module)


def together(function, *arguments):
    """Return which inputs are loaded with which one, and the distance at which they begin."""
    functions = [i.function for i in native(function, *arguments).assembly.instructions]
    return [sorted((offset, base) for _, base, offset in f.use.fields) for f in functions
            if isinstance(f, AddressedNest) and f.use.fields]


FIELDS = [(2, (0, 1)), (2, (1, 0)), (4, (0, 1, 2, 3)), (4, (3, 1)), (4, (2, 0, 1)), (4, (1, 2)), (3, (0, 2, 1)),
          (5, (0, 4))]


@pytest.mark.share(4)
@pytest.mark.parametrize("step, fields", FIELDS)
@pytest.mark.parametrize("count", [1, 5, 16, 33, 80])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.int8])
def test_values(step, fields, count, dtype):
    x = records(128, count, step, dtype)
    result, expected = (chosen.on(where)(x, step, fields) for where in ("jit", "interpreter"))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("step, fields", FIELDS)
def test_which_are_loaded_together(step, fields):
    x = records(128, 64, step)
    groups = together(chosen, x, step, fields)
    if step in (2, 4):
        (group,), first = groups, min(fields)
        assert [offset for offset, _ in group] == sorted(f - first for f in fields)
        assert len({base for _, base in group}) == 1
    else:
        assert groups == []


def test_numbers_from_outside__beside_fields():
    """Each program adds three times its number, and four times that of the second axis, to the sum of two fields."""
    text = """
#id = affine_map<(d0) -> (d0)>
#row = affine_map<()[s] -> (s * 64)>
func.func @f(%x: memref<128xf32, "hbm">, %y: memref<6x64xf32, "hbm">, %i: index {nki.program_id = 0 : i64},
             %j: index {nki.program_id = 1 : i64}) attributes {nki.grid = [3, 2]} {
  %a = memref.reinterpret_cast %x to offset: [0], sizes: [64], strides: [2] : memref<128xf32, "hbm"> to memref<64xf32, strided<[2]>, "hbm">
  %b = memref.reinterpret_cast %x to offset: [1], sizes: [64], strides: [2] : memref<128xf32, "hbm"> to
    memref<64xf32, strided<[2], offset: 1>, "hbm">
  %at = affine.apply affine_map<()[s, t] -> (s * 128 + t * 64)>()[%i, %j]
  %r = memref.reinterpret_cast %y to offset: [%at], sizes: [64], strides: [1] : memref<6x64xf32, "hbm"> to
    memref<64xf32, strided<[1], offset: ?>, "hbm">
  linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
    ins(%a, %b : memref<64xf32, strided<[2]>, "hbm">, memref<64xf32, strided<[2], offset: 1>, "hbm">)
    outs(%r : memref<64xf32, strided<[1], offset: ?>, "hbm">) {
  ^bb0(%p: f32, %q: f32, %old: f32):
    %k = affine.apply affine_map<()[s, t] -> (s * 3 + t * 4)>()[%i, %j]
    %n = arith.index_cast %k : index to i32
    %f = arith.sitofp %n : i32 to f32
    %s = arith.addf %p, %q : f32
    %v = arith.addf %s, %f : f32
    linalg.yield %v : f32
  }
  return
}"""
    with shared_context(), ir.Location.unknown():
        kernel = compiled(ir.Module.parse(text), (3, 2))
    nest, = [i.function for i in kernel.assembly.instructions if isinstance(i.function, AddressedNest)]
    assert nest.use.fields and nest.nest.symbols == 2
    x, y = np.arange(128, dtype=np.float32), np.zeros((6, 64), np.float32)
    kernel([x, y], [])
    np.testing.assert_array_equal(y, x[::2] + x[1::2] + np.float32([[0], [4], [3], [7], [6], [10]]))


@pytest.mark.parametrize("count", [16, 31, 64, 200])
def test_sums_of_fields(count):
    x = RNG.integers(-4, 5, (128, 2 * count)).astype(np.float32)
    np.testing.assert_array_equal(sums.on("jit")(x), (x[:, ::2] * x[:, 1::2]).sum(1, keepdims=True))
    assert [[offset for offset, _ in group] for group in together(sums, x)] == [[0, 1]]


@nki.jit
def two_folds(x):
    """Fold one tile twice; the second fold is not a sum."""
    out = nl.ndarray((x.shape[0], 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    highest, lowest = nl.max(tile, axis=1, keepdims=True), nl.min(tile, axis=1, keepdims=True)
    nl.store(out[:, 0:1], highest)
    nl.store(out[:, 1:2], lowest)
    return out


@nki.jit
def one_after_the_other(x, y):
    """Write the tile between two folds."""
    out = nl.ndarray((x.shape[0], 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    highest = nl.max(tile, axis=1, keepdims=True)
    tile[...] = nl.maximum(nl.load(y), 1.0)
    nl.store(out[:, 1:2], nl.min(tile, axis=1, keepdims=True))
    nl.store(out[:, 0:1], highest)
    return out


@nki.jit
def statistics(x):
    out = nl.ndarray((x.shape[0], 6), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.bn_stats(nl.load(x)))
    return out


def walks(function, *arguments):
    """Return the numbers of inputs and outputs of the folds over more than one element."""
    functions = [getattr(i.function, "nest", i.function)
                 for i in native(function, *arguments).assembly.instructions]
    return [(len(f.inputs), len(f.outputs)) for f in functions if getattr(f, "reduced", None)]


@pytest.mark.parametrize("columns", [64, 65, 250])
def test_folds_of_one_tile__are_one_walk(columns):
    x = records(128, columns, 1)
    np.testing.assert_array_equal(*(two_folds.on(where)(x) for where in ("jit", "interpreter")))
    assert walks(two_folds, x) == [(1, 2)]


def test_folds_of_what_was_written_between__are_two():
    x, y = records(128, 64, 1), records(128, 64, 1)
    np.testing.assert_array_equal(*(one_after_the_other.on(where)(x, y) for where in ("jit", "interpreter")))
    assert walks(one_after_the_other, x, y) == [(1, 1), (1, 1)]


@pytest.mark.parametrize("columns", [64, 500, 510, 65, 511])
def test_statistics__of_both_parts_at_once(columns):
    """An odd number of elements has parts of different lengths."""
    x = RNG.integers(-8, 9, (128, columns)).astype(np.float32)
    result, expected = (statistics.on(where)(x) for where in ("jit", "interpreter"))
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)
    assert walks(statistics, x) == ([(2, 2), (4, 2)] if columns % 2 == 0 else [(1, 1), (1, 1), (2, 1), (2, 1)])


@pytest.mark.parametrize("step, fields", [(2, (0, 1)), (4, (0, 1)), (4, (0, 2)), (4, (1, 3)), (4, (0, 3))])
def test_nothing_is_read_behind_the_array(step, fields):
    """It ends where memory ends that may be read."""
    x = records(128, 64, step)
    pages = -(-x.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    guard = ctypes.c_void_p(start + pages * mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    at_end = np.frombuffer(memory, np.float32, x.size, pages * mmap.PAGESIZE - x.nbytes).reshape(x.shape)
    at_end[...] = x
    code, out = native(chosen, x, step, fields), np.empty((128, 64), np.float32)
    assert libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    try:
        code([at_end], [out])
    finally:
        libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 3)
    np.testing.assert_array_equal(out, chosen.on("interpreter")(x, step, fields))
