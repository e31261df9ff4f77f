# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops around products of tiles that run as one packed product: which do, and that values are the same."""

import importlib
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.dialects.access import Linear
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets.cpu import host_measurements, packed_products
from nki_mlir.targets.cpu.contraction import MULTIPLY_ADD, RegisterTile
from nki_mlir.targets.cpu.loop_products import LoopNest, _continued
from nki_mlir.targets.cpu.lowering import listing
from nki_mlir.targets.cpu.packed_products import (
    LEAST_DEPTH,
    PackingOptions,
    can_pack,
    depth_of_blocks,
    divisor,
    divisors,
    gains_alone,
)
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion

from .compiled import set_options

RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal(shape).astype(np.float32) for shape in ((256, 384), (256, 1024)))
WHOLE_A, WHOLE_B = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((256, 384), (256, 1024)))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    set_options(monkeypatch, "form-products", worth=1 << 10, depth=64, rows=64, columns=128)


@pytest.fixture
def example(example_modules):
    """Return a kernel of the examples by module and name, which shares no code with other tests."""
    return lambda module, name: nki.jit(getattr(importlib.import_module(module), name).__wrapped__)


def is_packed(kernel, *arguments):
    return "_panels" in listing(kernel.lower(*arguments).module("nisa")).split("module {")[0]


def product_of_tiles(a_t, b, i, j, rows=128, depth=128, columns=512):
    """Compute a tile of the product in PSUM, in a loop over tiles of both factors."""
    total = nl.zeros((rows, columns), nl.float32, buffer=nl.psum)
    for s in nl.affine_range(a_t.shape[0] // depth):
        left = nl.load(a_t[nl.ds(s * depth, depth), nl.ds(i * rows, rows)])
        total += nisa.nc_matmul(left, nl.load(b[nl.ds(s * depth, depth), nl.ds(j * columns, columns)]))
    return total


@nki.jit
def in_uneven_tiles(a_t, b):
    """Multiply tiles of 58 rows, which no panel's rows divide."""
    (_, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 58):
        for j in nl.affine_range(n // 512):
            total = product_of_tiles(a_t, b, i, j, rows=58, depth=64)
            nl.store(out[nl.ds(i * 58, 58), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
    return out


@nki.jit
def rectified(a_t, b):
    """Rectify the halves of a product of tiles."""
    (_, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 512):
            total = product_of_tiles(a_t, b, i, j)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.relu(nl.multiply(total, 0.5)))
    return out


@nki.jit
def then_more(a_t, b):
    """Multiply, and read the result in another operation."""
    (_, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 128):
        for j in nl.affine_range(n // 512):
            nl.store(sums[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.copy(product_of_tiles(a_t, b, i, j)))
    for i in nl.affine_range(m // 128):
        rows = nl.load(sums[nl.ds(i * 128, 128), :])
        nl.store(out[nl.ds(i * 128, 128), :], nl.add(rows, nl.max(rows, axis=1, keepdims=True)))
    return out, sums


@nki.jit
def sums_over_all_rows(a_t, b):
    """Add the products of all blocks of rows in one tile, which no operation sets to 0 between them."""
    (k, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for i in nl.sequential_range(m // 128):
        for j in nl.sequential_range(n // 512):
            for s in nl.sequential_range(k // 128):
                left = nl.load(a_t[nl.ds(s * 128, 128), nl.ds(i * 128, 128)])
                total[...] += nisa.nc_matmul(left, nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 512, 512)]))
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.copy(total))
    return out


@nki.jit
def one_place(a_t, b):
    """Store each block of rows to the same rows of the result."""
    (_, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((128, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(m // 128):
        for j in nl.sequential_range(n // 512):
            nl.store(out[:, nl.ds(j * 512, 512)], nl.copy(product_of_tiles(a_t, b, i, j)))
    return out


@nki.jit
def operand_of_before(a_t, b):
    """Multiply by a factor that the previous iteration has loaded."""
    (_, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    left = nl.zeros((128, 128), a_t.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(m // 128):
        for j in nl.affine_range(n // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            total += nisa.nc_matmul(left, nl.load(b[0:128, nl.ds(j * 512, 512)]))
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.copy(total))
        left[...] = nl.load(a_t[0:128, nl.ds(i * 128, 128)])
    return out


def of_pieces(a_t, b, depths, keep_left=False):
    """Multiply in tiles that Python's loops unroll, smaller ones at the edges; ``depths`` are the depths of the pieces.
    """
    (_, m), (_, n) = a_t.shape, b.shape
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, 128):
        rows = slice(i, min(i + 128, m))
        left = [nl.load(a_t[piece, rows]) for piece in depths] if keep_left else [None for _ in depths]
        for j in range(0, n, 512):
            columns = slice(j, min(j + 512, n))
            total = nl.zeros((rows.stop - i, columns.stop - j), nl.float32, buffer=nl.psum)
            for tile, piece in zip(left, depths):
                total += nisa.nc_matmul(nl.load(a_t[piece, rows]) if tile is None else tile, nl.load(b[piece, columns]))
            nl.store(out[rows, columns], nl.maximum(total, -40.0) if keep_left else nl.copy(total))
    return out


@nki.jit
def with_edges(a_t, b):
    return of_pieces(a_t, b, [slice(0, 128), slice(128, 200), slice(200, 256)])


@nki.jit
def with_edges_and_left_tiles(a_t, b):
    return of_pieces(a_t, b, [slice(0, 128), slice(128, 249)], keep_left=True)


@nki.jit
def with_a_gap(a_t, b):
    return of_pieces(a_t, b, [slice(0, 64), slice(65, 129)])


@nki.jit
def with_pieces_twice(a_t, b):
    return of_pieces(a_t, b, [slice(0, 64), slice(0, 64)])


@pytest.mark.parametrize("kernel, rows, packs", [
    (with_edges, [*range(256)], True), (with_edges_and_left_tiles, [*range(249)], True),
    (with_a_gap, [*range(64), *range(65, 129)], False), (with_pieces_twice, [*range(64)] * 2, False)])
def test_neighboring_pieces_of_a_product__are_packed_as_one(monkeypatch, kernel, rows, packs):
    set_options(monkeypatch, "form-products", worth=1 << 22)
    a, b = WHOLE_A[:, :300], WHOLE_B[:, :700]
    assert is_packed(kernel, a, b) == packs
    expected = a[rows].T @ b[rows]
    np.testing.assert_array_equal(kernel.on("jit")(a, b), np.maximum(expected, -40) if "left" in kernel.__name__
                                  else expected)


@pytest.mark.parametrize("module, name, rows", [
    ("matmul", "matmul_tiled", 384), ("matmul", "matmul_blocked", 256), ("matmul_walk", "transposed", 384),
    ("matmul_walk", "loaded_once", 384), ("matmul_walk", "large_transfers", 384)])
def test_a_product_in_tiles__is_packed(example, module, name, rows):
    kernel, a = example(module, name), A[:, :rows]
    assert is_packed(kernel, a, B)
    np.testing.assert_allclose(kernel.on("jit")(a, B), a.astype(np.float64).T @ B, rtol=1e-5, atol=1e-4)


@nki.jit
def of_uneven_depth(a_t, b):
    """Multiply tiles of 66 positions of the summed axis, which an iteration's positions do not divide."""
    out = nl.ndarray((a_t.shape[1], b.shape[1]), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a_t.shape[1] // 128):
        for j in nl.affine_range(b.shape[1] // 512):
            total = product_of_tiles(a_t, b, i, j, depth=66)
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 512, 512)], nl.copy(total, dtype=out.dtype))
    return out


def test_depth_of_blocks_that_is_no_multiple_of_an_iteration__keeps_values(monkeypatch):
    set_options(monkeypatch, "form-products", depth=66)
    a, b = WHOLE_A[:198], WHOLE_B[:198]
    assert is_packed(of_uneven_depth, a, b)
    np.testing.assert_array_equal(of_uneven_depth.on("jit")(a, b), a.T @ b)


@pytest.mark.parametrize("columns, tile", [(1024, (6, 4)), (1056, (12, 2)), (1040, (6, 4)), (40, (12, 2)), (31, None)])
def test_a_register_tile__is_the_fastest_that_fills_the_columns(monkeypatch, columns, tile):
    monkeypatch.setattr(host, "lanes", lambda: 16)
    monkeypatch.setattr(host_measurements, "memoized", lambda what: {"tiles": [1.0, 3.0, 2.0]}[what])
    expected = tile and RegisterTile(*tile)
    assert PackingOptions().tile(columns) == expected


@pytest.mark.parametrize("most", [4 * 256 * 128, 1 << 26])
def test_tiles_that_are_no_whole_panels(monkeypatch, most):
    set_options(monkeypatch, "form-products", packed=most)
    kernel, a = nki.jit(in_uneven_tiles.__wrapped__), A[:, :5 * 58]
    assert is_packed(kernel, a, B)
    np.testing.assert_allclose(kernel.on("jit")(a, B), a.astype(np.float64).T @ B, rtol=1e-5, atol=1e-4)


def test_a_factor_that_is_read_by_columns(example):
    kernel, a = example("matmul_walk", "as_it_comes"), np.ascontiguousarray(A.T)
    assert is_packed(kernel, a, B)
    np.testing.assert_allclose(kernel.on("jit")(a, B), a.astype(np.float64) @ B, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("module, name", [("matmul", "matmul_tiled"), ("matmul_walk", "large_transfers")])
def test_factors_of_fewer_bits(example, monkeypatch, module, name, pairs):
    """Factors are packed two at a time if the host has an instruction for pairs, else as float32."""
    set_options(monkeypatch, "form-products", pairs=int(pairs))
    kernel, a, b = example(module, name), A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    assert is_packed(kernel, a, b)
    result = kernel.on("jit")(a, b)
    expected = a.astype(np.float64).T @ b.astype(np.float64)
    rounding = 2.0 ** -8 if result.dtype == a.dtype else 1e-5       # results of bfloat16 are rounded to 8 bits
    np.testing.assert_allclose(result.astype(np.float64), expected, atol=1e-4, rtol=rounding)


@pytest.mark.parametrize("pairs", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_factors_that_float32_or_bfloat16_hold_exactly(example, monkeypatch, dtype, pairs):
    set_options(monkeypatch, "form-products", pairs=pairs)
    kernel, a, b = example("matmul_walk", "large_transfers"), WHOLE_A.astype(dtype), WHOLE_B.astype(dtype)
    assert is_packed(kernel, a, b)
    expected = (WHOLE_A.T @ WHOLE_B).astype(np.asarray(kernel.on("jit")(a, b)).dtype)
    np.testing.assert_array_equal(kernel.on("jit")(a, b), expected)


@pytest.mark.parametrize("options", [
    {"rows": 32, "columns": 32}, {"rows": 1024, "columns": 1024}, {"tile_rows": 4}, {"tile_rows": 12, "tile_vectors": 1},
    {"tile_rows": 6, "tile_vectors": 4}, {"tile_rows": 12, "tile_vectors": 2}, {"packed": 4 * 256 * 128}])
def test_blocks_and_register_tiles__change_no_bit(example, monkeypatch, options):
    usual = example("matmul", "matmul_tiled").on("jit")(A, B)
    set_options(monkeypatch, "form-products", **options)
    kernel = example("matmul", "matmul_tiled")
    assert is_packed(kernel, A, B)
    np.testing.assert_array_equal(np.asarray(kernel.on("jit")(A, B)).view(np.uint32), np.asarray(usual).view(np.uint32))


def test_functions_of_sums__read_the_sums_of_packed_products():
    assert is_packed(rectified, A, B)
    expected = np.maximum(A.astype(np.float64).T @ B / 2, 0)
    np.testing.assert_allclose(rectified.on("jit")(A, B), expected, rtol=1e-5, atol=1e-4)


def test_sums_of_one_block_that_are_finished__are_computed_once(monkeypatch):
    set_options(monkeypatch, "form-products", depth=256, rows=384, columns=1024)
    program = listing(rectified.lower(A, B).module("nisa")).split("module {")[0]
    assert program.count("_panels") == program.count("relu") == 1


def test_a_product__is_a_part_of_a_program():
    assert is_packed(then_more, WHOLE_A, WHOLE_B)
    product = WHOLE_A.T @ WHOLE_B
    out, sums = then_more.on("jit")(WHOLE_A, WHOLE_B)
    np.testing.assert_array_equal(sums, product)
    np.testing.assert_array_equal(out, product + product.max(1, keepdims=True))


def test_rows_are_packed__some_at_a_time(monkeypatch, example):
    set_options(monkeypatch, "form-products", packed=4 * 256 * 128)
    kernel = example("matmul", "matmul_tiled")
    np.testing.assert_array_equal(kernel.on("jit")(WHOLE_A, WHOLE_B), WHOLE_A.T @ WHOLE_B)


@pytest.mark.parametrize("kernel", [sums_over_all_rows, one_place, operand_of_before])
def test_loops_that_are_no_single_product__are_not_packed(kernel):
    assert not is_packed(kernel, WHOLE_A, WHOLE_B)
    np.testing.assert_array_equal(kernel.on("jit")(WHOLE_A, WHOLE_B), kernel.on("interpreter")(WHOLE_A, WHOLE_B))


def test_threads__change_no_bit(monkeypatch, example):
    results = []
    for threads in "12":
        monkeypatch.setenv("NKI_MLIR_NUM_THREADS", threads)
        kernel = example("matmul", "matmul_tiled")
        results.append(np.asarray(kernel.on("jit")(A, B)))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("threads, loops, halves", [(1, 2, 0), (2, 2, 1), (3, 2, 0)])
def test_two_threads__begin_with_a_half_of_the_rows_each(monkeypatch, example, threads, loops, halves):
    """Threads share a loop that packs rows, and one over blocks of columns: with two, over those of both halves."""
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((256, 768), (256, 512)))
    results = []
    for count in (threads, 1):
        monkeypatch.setenv("NKI_MLIR_NUM_THREADS", str(count))
        kernel = example("matmul", "matmul_tiled")
        text = listing(kernel.lower(a, b).module("nisa")).split("module {")[0]
        if count == threads:
            assert (text.count("nki_parallel("), text.count("nki_floordiv(")) == (loops, halves)
        results.append(np.asarray(kernel.on("jit")(a, b)))
    np.testing.assert_array_equal(*[result.view(np.uint32) for result in results])
    np.testing.assert_allclose(results[0], a.T.astype(np.float64) @ b, rtol=1e-5, atol=1e-4)


@nki.jit
def in_one_tile(a_t, b):
    out = nl.ndarray((a_t.shape[1], b.shape[1]), dtype=a_t.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.matmul(nl.load(a_t), nl.load(b), transpose_x=True), dtype=out.dtype))
    return out


@pytest.mark.parametrize("dtype, pairs", [
    (np.float32, 0), (ml_dtypes.bfloat16, 0), (ml_dtypes.bfloat16, 1), (ml_dtypes.float8_e5m2, 1)])
@pytest.mark.parametrize("depth, rows, columns", [(101, 67, 333), (97, 128, 65), (65, 64, 96)])
def test_sizes_that_fill_no_panel(monkeypatch, depth, rows, columns, dtype, pairs):
    """The last rows, columns and positions of the summed axis are narrower panels, and a pair with 0."""
    set_options(monkeypatch, "form-products", apart=1, high=1, pairs=pairs)
    kernel = nki.jit(in_one_tile.__wrapped__)
    a, b = (RNG.integers(-3, 4, (depth, size)).astype(np.float32) for size in (rows, columns))
    a[0, 0], a[-1, 1], b[-1, 2], a[:, 3], b[:, 4] = np.nan, np.inf, np.inf, -0.0, 0
    a, b = a.astype(dtype), b.astype(dtype)
    assert is_packed(kernel, a, b)
    with np.errstate(invalid="ignore"):
        expected = (a.astype(np.float32).T @ b.astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(kernel.on("jit")(a, b).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("panels, more_rows, parts", [(8, 0, 2), (7, 0, 1), (6, 2, 2), (4, 3, 1)])
@pytest.mark.parametrize("depth", [96, 101])
def test_halves_of_rows__may_end_in_a_narrower_panel(monkeypatch, panels, more_rows, parts, depth):
    tile = RegisterTile(8, 2)
    rows = panels * tile.panel + more_rows              # of one or two tiles a panel, by the registers of the host
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "2")
    monkeypatch.setattr(packed_products, "LEAST_HALVED", 4 * tile.panel)
    set_options(monkeypatch, "form-products", apart=1, high=1, tile_rows=tile.rows, tile_vectors=tile.vectors)
    kernel = nki.jit(in_one_tile.__wrapped__)
    a, b = (RNG.standard_normal((depth, size)).astype(np.float32) for size in (rows, 333))
    text = listing(kernel.lower(a, b).module("nisa")).split("module {")[0]
    assert is_packed(kernel, a, b) and ("nki_floordiv(" in text) == (parts == 2)
    result = np.asarray(kernel.on("jit")(a, b))
    np.testing.assert_allclose(result, a.T.astype(np.float64) @ b, rtol=1e-5, atol=1e-4)
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "1")
    alone = nki.jit(in_one_tile.__wrapped__).on("jit")(a, b)
    np.testing.assert_array_equal(result.view(np.uint32), np.asarray(alone).view(np.uint32))


@nki.jit
def of_rows(a, b):
    out = nl.ndarray((a.shape[0], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.matmul(nl.load(a), nl.load(b)), dtype=out.dtype))
    return out


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("depth, is_aligned", [(128, True), (102, True), (101, False), (75, False)])
def test_neighbors_along_the_summed_axis__are_copied_as_words(monkeypatch, depth, is_aligned):
    """Words are copied also from an array that begins between two words; rows of an odd number of elements are first
    copied to even ones."""
    set_options(monkeypatch, "form-products", apart=1, high=1, pairs=1, amx=0)
    kernel = nki.jit(of_rows.__wrapped__)
    a, b = (RNG.integers(-9, 10, shape).astype(ml_dtypes.bfloat16) for shape in ((67, depth), (depth, 96)))
    a[0, 0], a[1, -1], a[2, :] = np.nan, np.inf, -0.0
    text = listing(kernel.lower(a, b).module("nisa")).split("module {")[0]
    source = "a" if is_aligned else "memory"
    assert re.search(rf"copy_[\dx]+_uint32_\w{{10}}\({source}", text) and "_panels" in text
    assert bool(re.search(r"copy_[\dx]+_uint16_\w{10}\(a", text)) != is_aligned and not re.search(r"_or_\w+\(a", text)
    with np.errstate(invalid="ignore"):
        expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)
    for start in (0, 1, 2, 3):
        moved = np.empty(a.size + 4, a.dtype)[start:start + a.size].reshape(a.shape)
        moved[:] = a
        np.testing.assert_array_equal(kernel.on("jit")(moved, b).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("extents, dtype, gains", [
    ((512, 512, 512), FLOAT32, False), ((512, 640, 512), FLOAT32, True), ((255, 1024, 1024), FLOAT32, False),
    ((640, 640, 640), BFLOAT16, False), ((64, 1024, 1024), BFLOAT16, True), ((64, 256, 255), BFLOAT16, True)])
def test_a_product_without_loops__is_packed_where_that_is_faster(monkeypatch, extents, dtype, gains):
    monkeypatch.setattr(host, "multiplies_pairs", lambda: True)
    nest = product().nest
    inputs = tuple(Operand(dtype, operand.strides) for operand in nest.inputs)
    alone = replace(product(), nest=replace(nest, extents=extents, inputs=inputs))
    assert gains_alone(alone, PackingOptions(pairs=1, amx=0)) == gains


@pytest.mark.parametrize("depth, most, size", [
    (777, 85, 80), (131, 128, 80), (512, 85, 64), (96, 85, 48), (128, 128, 128), (101, 64, 64), (83, 85, 83), (86, 85, 43),
    (11, 4, 4)])
def test_depth_of_blocks__is_a_divisor_or_leaves_a_shorter_block(depth, most, size):
    assert depth_of_blocks(depth, most) == size


@pytest.mark.parametrize("extents, gains", [((512, 512, 512), True), ((256, 256, 256), True), ((512, 512, 500), False)])
def test_a_product_without_loops__is_packed_where_tile_registers_multiply_it(monkeypatch, extents, gains):
    monkeypatch.setattr(host, "multiplies_tiles", lambda: True)
    nest = product().nest
    inputs = tuple(Operand(BFLOAT16, operand.strides) for operand in nest.inputs)
    alone = replace(product(), nest=replace(nest, extents=extents, inputs=inputs))
    assert gains_alone(alone, PackingOptions(pairs=0, amx=1)) == gains


@pytest.mark.parametrize("number", range(25))
def test_divisors_are_those_that_are_at_most_so_large(number):
    for most in range(-1, 27):
        fitting = [d for d in range(1, most + 1) if number and number % d == 0 and d <= number]
        assert divisors(number, most) == (fitting[::-1] or [1])
        assert divisor(number, most) == max(fitting, default=1)


TILE = RegisterTile(4, 1)               # panels of 8 rows


def product(rows=8, columns=64, depth=LEAST_DEPTH, left=None, right=None, out=None, reduced=(2,)):
    nest = Nest((rows, columns, depth), frozenset(reduced), (Operand(FLOAT32, left or (depth, 0, 1)),
                                                             Operand(FLOAT32, right or (0, 1, columns))), 0,
                (Operand(FLOAT32, out or (columns, 1, 0)),), MULTIPLY_ADD, (4,))
    return LoopNest(nest, tuple(ByteRegion(name, Linear(), 0, Linear()) for name in ("a", "b", "out")), True)


@pytest.mark.parametrize(("case", "packs"), [
    ({}, True),
    ({"left": (1, 0, 8)}, True),                                    # its factors may be transposed
    ({"right": (0, LEAST_DEPTH, 1)}, True),
    ({"left": (0, 1, 64), "right": (LEAST_DEPTH, 0, 1)}, True),     # and exchanged
    ({"rows": 7}, False),                                           # less than a panel
    ({"rows": 9}, True),
    ({"columns": 65}, True),                                        # the last panel is narrower
    ({"columns": 15}, False),
    ({"depth": LEAST_DEPTH - 1}, False),
    ({"depth": LEAST_DEPTH + 1}, True),
    ({"depth": 2 * 61}, True),
    ({"depth": 131}, True),                                         # a prime: the last block is shorter
    ({"left": (LEAST_DEPTH, 1, 1)}, False),                         # each factor lacks one of the axes
    ({"right": (0, 1, 0)}, False),
    ({"left": (0, 1, 64)}, False),                                  # both the same
    ({"out": (1, 8, 0)}, False),                                    # columns that are not beside each other
    ({"reduced": (1,)}, False),
    ({"reduced": ()}, False),
])
def test_product_that_is_packed__has_rows_columns_and_one_summed_axis(case, packs, monkeypatch):
    monkeypatch.setattr(host, "lanes", lambda: 16)
    options = PackingOptions(tile_rows=TILE.rows, tile_vectors=TILE.vectors, depth=128)
    assert can_pack(product(**case), 1, options) == packs


@pytest.mark.parametrize("second_columns", [64, 32])
@pytest.mark.parametrize("distance, joins", [(256, True), (260, False)])
def test_products_of_adjacent_columns__are_joined(second_columns, distance, joins):
    def columns_of(count, offset):
        part = product(columns=count, right=(0, 1, 128), out=(128, 1, 0))
        moved = [replace(region, offset=Linear(offset)) if region.root != "a" else region for region in part.regions]
        return replace(part, regions=tuple(moved))
    joined = _continued(columns_of(64, 0), columns_of(second_columns, distance))
    assert (joined is not None) == joins
    if joined is not None:
        assert joined.nest.extents == (8, 64 + second_columns, LEAST_DEPTH)
        assert [region.offset for region in joined.regions] == [Linear()] * 3


def test_products__are_packed_from_so_many_multiplications_on():
    options = PackingOptions(tile_rows=TILE.rows, tile_vectors=TILE.vectors, depth=128)
    elements = 8 * 64 * LEAST_DEPTH
    assert can_pack(product(), elements, options) and not can_pack(product(), elements + 1, options)
