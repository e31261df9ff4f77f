# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A fault in each pass of the CPU that changes code: it breaks an answer that the pass relies on, and values change."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT32
from nki_mlir.targets.cpu import code_forms, extrema, fitted, loops, packed_products, roundings, routines, tabulated
from nki_mlir.targets.cpu.delayed_stores import DelayedStores
from nki_mlir.targets.cpu.forwarding import ByteBox
from nki_mlir.targets.cpu.function_pass import function_pass
from nki_mlir.targets.cpu.lanes import FunctionEmitter
from nki_mlir.targets.cpu.narrow_extrema import NarrowExtremum
from nki_mlir.targets.cpu.passes import (
    copy_words,
    deepen_products,
    form_products,
    load_fields,
    merge_programs,
    spread_nests,
    trim_tiles,
    widen_factors,
    widen_tiles,
    zero_unwritten,
)
from nki_mlir.targets.cpu.pipeline import NAMES, PIPELINE
from nki_mlir.targets.runtime import host
from nki_mlir.waist.fusion import ElementMove
from nki_mlir.waist.nest import Nest, Step

from ...forced_passes import forced
from .compiled import compiled


def overwritten(x, y):
    """Read a tile of ``x`` after ``x`` was written."""
    tile = nl.load(x)
    nl.store(x, nl.multiply(tile, 2.0))
    nl.store(y, nl.add(tile, 1.0))


def shifted(x, y):
    """Read rows of the other half, which another chunk has."""
    sums = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    nl.store(sums, nl.add(nl.load(x), 1.0))
    nl.store(y[0:64, :], nl.multiply(nl.load(sums[64:128, :]), 2.0))
    nl.store(y[64:128, :], nl.multiply(nl.load(sums[0:64, :]), 3.0))


def read_twice(x, y):
    """Two long sums need a short one."""
    short = nl.add(nl.load(x[:, 0:1]), 1.0)
    nl.store(y[:, 0:32], nl.add(nl.load(x[:, 0:32]), short))
    nl.store(y[:, 32:64], nl.add(nl.load(x[:, 32:64]), short))


def rows_below(x, y):
    """Read rows below each row, which a walk over the rows has yet to write."""
    rows = nl.ndarray((65, 64), dtype=x.dtype, buffer=nl.hbm)
    nl.store(rows[64:65, :], nl.load(x[64:65, :]))
    tile = nl.load(x[0:64, :])
    nl.store(rows[0:64, :], nl.add(tile, 1.0))
    nl.store(y[0:64, :], nl.multiply(nl.load(rows[1:65, :]), tile))


def products(x, y):
    """Multiply parts of ``x``, of which the second one does not start where ``x`` does."""
    for i in nl.affine_range(2):
        left = nl.load(x[0:64, nl.ds(i * 32, 32)])
        nl.store(y[nl.ds(i * 32, 32), :], nl.matmul(left, nl.load(x[64:128, :]), transpose_x=True))


def odd_products(x, y):
    """Multiply with rows and columns that fill no register tiles."""
    for i in nl.affine_range(2):
        left = nl.load(x[0:64, nl.ds(i * 25, 25)])
        nl.store(y[nl.ds(i * 25, 25), 0:61], nl.matmul(left, nl.load(x[64:128, 0:61]), transpose_x=True))


def repeated_factors(x, y):
    """Multiply parts of ``x``, all of which each iteration of the outer loop reads."""
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            tile, factor = nl.load(x[0:64, nl.ds(i * 32, 32)]), nl.load(x[64:128, nl.ds(j * 32, 32)])
            nl.store(y[nl.ds(i * 64 + j * 32, 32), 0:32], nl.copy(nisa.nc_matmul(tile, factor)))


def changed_factors(x, y):
    """Multiply by a copy of a tile that each iteration of the loop changes."""
    tile = nl.load(x[0:64, 0:32])
    for i in nl.sequential_range(2):
        factor = nl.copy(tile, dtype=nl.float32)
        nl.store(y[nl.ds(i * 32, 32), 0:32], nl.copy(nisa.nc_matmul(factor, factor)))
        tile[...] = nl.multiply(tile, 2.0)


def factors_before_and_after(x, y):
    """Multiply by copies of a tile that changes between them."""
    tile = nl.load(x[0:64, 0:32])
    factor = nl.copy(tile, dtype=nl.float32)
    nl.store(y[0:32, 0:32], nl.copy(nisa.nc_matmul(factor, factor)))
    tile[...] = nl.multiply(tile, 2.0)
    factor = nl.copy(tile, dtype=nl.float32)
    nl.store(y[32:64, 0:32], nl.copy(nisa.nc_matmul(factor, factor)))


def pieces_apart(x, y):
    """Multiply in two pieces, between which a row of the summed axis is left out."""
    total = nl.zeros((64, 64), nl.float32, buffer=nl.psum)
    for rows in (slice(0, 32), slice(33, 65)):
        tile = nl.load(x[rows, :])
        total += nisa.nc_matmul(tile, tile)
    nl.store(y[0:64, :], nl.copy(total))


def fields(x, y):
    """Combine the three fields of each record."""
    p, f = nl.arange(128)[:, None], nl.arange(16)[None, :]
    tile = nl.load(x)
    first = nl.subtract(tile[p, 4 * f], tile[p, 4 * f + 1])
    nl.store(y[p, f], nl.subtract(first, tile[p, 4 * f + 2]))


def doubled(x, y):
    nl.store(y, nl.multiply(nl.load(x), 2.0))


def eight_largest(x, y):
    nl.store(y[:, 0:8], nisa.max8(src=nl.load(x)))


def filled_twice(x, y):
    """Fill a tile with another number after it was read."""
    fill = nl.full((128, 32), 2.0, nl.float32)
    tile = nl.load(x)
    nl.store(y[:, 0:32], nl.multiply(tile[:, 0:32], fill))
    fill[...] = nl.full((128, 32), 3.0, nl.float32)
    nl.store(y[:, 32:64], nl.multiply(tile[:, 32:64], fill))


def narrow_products(x, y):
    """Multiply factors in float16, which represents these numbers exactly."""
    left, right = (nl.copy(nl.load(x[nl.ds(k * 64, 64), :]), dtype=nl.float16) for k in range(2))
    nl.store(y[0:64, :], nl.matmul(left, right, transpose_x=True))


def products_of_pairs(x, y):
    """Multiply factors in bfloat16, which represents these numbers exactly."""
    left, right = (nl.copy(nl.load(x[nl.ds(k * 64, 64), :]), dtype=nl.bfloat16) for k in range(2))
    nl.store(y[0:64, :], nl.matmul(left, right, transpose_x=True))


def products_of_odd_depth(x, y):
    """Multiply factors in bfloat16 with an odd number of positions of the summed axis."""
    left, right = (nl.copy(nl.load(x[nl.ds(k * 64, 63), :]), dtype=nl.bfloat16) for k in range(2))
    nl.store(y[0:64, :], nl.matmul(left, right, transpose_x=True))


def narrow_function(x, y):
    """Compute a function of numbers in float16, which represents these and their squares exactly."""
    nl.store(y, nl.square(nl.copy(nl.load(x), dtype=nl.float16)))


def bounded_function(x, y):
    """Compute a function of numbers in bfloat16."""
    nl.store(y, nl.tanh(nl.copy(nl.load(x), dtype=nl.bfloat16), dtype=nl.bfloat16))


def rounded_products(x, y):
    """Multiply in bfloat16, which does not represent all products."""
    tile = nl.load(x)
    nl.store(y, nl.subtract(nl.multiply(tile, 33.125, dtype=nl.bfloat16), tile))


def products_beside(x, y):
    """Write two products beside each other to one tile."""
    tile = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
    upper, lower = nl.load(x[0:64, :]), nl.load(x[64:128, :])
    tile[:, 0:64] = nl.matmul(upper, lower, transpose_x=True)
    tile[:, 64:128] = nl.matmul(lower, upper, transpose_x=True)
    doubled_tile = nl.multiply(tile, 2.0)
    nl.store(y[0:64, :], doubled_tile[:, 0:64])
    nl.store(y[64:128, :], doubled_tile[:, 64:128])


def product_in_a_corner(x, y):
    """Write a product to a corner of a tile of zeros and store the tile, which then gets other values."""
    for i in nl.sequential_range(2):
        tile = nl.zeros((64, 64), nl.float32, buffer=nl.psum)
        tile[0:32, 0:16] += nisa.nc_matmul(nl.load(x[0:64, 0:32]), nl.load(x[64:128, 0:16]))
        nl.store(y[nl.ds(i * 64, 64), :], nl.copy(tile))
        tile[:, :] = nl.add(nl.load(x[0:64, :]), 5.0)


def part_of_tile(x, y):
    """Store some columns of some rows of a tile."""
    tile = nl.multiply(nl.load(x), 2.0)
    nl.store(y[0:100, 0:40], nl.copy(tile[0:100, 0:40]))
    nl.store(y[0:90, 40:50], nl.copy(tile[0:90, 0:10]))


def beside_equal_numbers(x, y):
    """Write other values to a part of a tile of equal numbers."""
    tile = nl.full((128, 64), 3.0, nl.float32, buffer=nl.sbuf)
    tile[:, 0:32] = nl.load(x[:, 0:32])
    nl.store(y[:, 0:48], tile[:, 0:48])


def turned_back(x, y):
    """Multiply transposed tiles, of which the second one is written again before its product."""
    tile, other = nl.load(x[0:64, :]), nl.load(x[64:128, :])
    turned = nl.copy(nisa.nc_transpose(tile))
    nl.store(y[0:64, :], nl.copy(nisa.nc_matmul(turned, other)))
    turned = nl.copy(nisa.nc_transpose(other))
    other[:, :] = nl.multiply(other, 2.0)
    nl.store(y[64:128, :], nl.copy(nisa.nc_matmul(turned, tile)))


def halves(x, y):
    """Multiply by a tile whose halves are written separately."""
    tile = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    tile[0:32, :] = nl.load(x[0:32, :])
    tile[32:64, :] = nl.multiply(nl.load(x[32:64, :]), 2.0)
    nl.store(y[0:64, :], nl.copy(nisa.nc_matmul(nl.load(x[64:128, :]), tile)))


def products_of_columns(x, y):
    """Multiply by both halves of a tile's columns."""
    tile = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
    left = nl.load(x[0:64, :])
    tile[:, 0:64] = left
    tile[:, 64:128] = nl.multiply(nl.load(x[64:128, :]), 2.0)
    for k in nl.affine_range(2):
        nl.store(y[nl.ds(k * 64, 64), :], nl.copy(nisa.nc_matmul(left, tile[:, nl.ds(k * 64, 64)])))


def sums_read_again(x, y):
    """Read the sums of a product again after another tile was computed from them."""
    left, right = nl.load(x[0:64, :]), nl.load(x[64:128, :])
    sums = nl.copy(nisa.nc_matmul(left, right))
    nl.store(y[0:64, :], nl.copy(nisa.nc_matmul(nl.multiply(sums, 0.5), right)))
    nl.store(y[64:128, :], sums)


def summed_products(x, y):
    """Sum products of two tiles with themselves."""
    tiles = nl.ndarray((2, nl.par_dim(64), 64), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.zeros((64, 64), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(2):
        tiles[k] = nl.load(x[nl.ds(k * 64, 64), :])
    for k in nl.affine_range(2):
        total += nisa.nc_matmul(tiles[k], tiles[k])
    nl.store(y[0:64, :], nl.copy(total))


def without_rows(*arguments: Any) -> Any:
    """Return a converted factor that has its first row in place of all rows."""
    operand, region = CONVERTED(*arguments)
    return replace(operand, strides=tuple(step if step <= 1 else 0 for step in operand.strides)), region


def with_other_polynomials(function: Nest) -> fitted.FittedFunction | None:
    """Return a fit in which each segment has the polynomials of the one beside it."""
    fit = FIT_OF(function)
    if fit is None:
        return None
    table = fit.table.copy()
    table[fitted.COEFFICIENTS:-4] = np.roll(table[fitted.COEFFICIENTS:-4], 2)
    return replace(fit, table=table)


def fewer_parts(nest: Any, least: int, most: int) -> Any:
    """Return one part less than the rows need."""
    parts = PARTS_OF(nest, least, most)
    return None if parts is None else (parts[0], parts[1] - 1, parts[2])


WITH_SUM = deepen_products.with_sum
IN_PARTS = spread_nests.in_parts
PARTS_OF, PRODUCT, BESIDE = spread_nests.parts_of, form_products.as_one_product, load_fields.adjacent_fields
AT_TARGET, PIECES = ElementMove.at_target, packed_products.PackedProduct.pieces
MERGED = merge_programs.merged_call
WIDE_OUTPUT = widen_tiles.with_wide_output
SIZES = trim_tiles.read_sizes
TABLE_OF, FIT_OF = tabulated.table_of, fitted.fit_of
CONVERTED = widen_factors.WidenFactors.converted
RUNS = 20                           # of a fault, of which at least one shows it
FAULTS: dict[str, tuple[object, str, Any, Callable[..., None]]] = {
    "forward-copies": ("passes.forward_copies", "inputs_written", lambda *_: set(), overwritten),
    "forward-constants": ("passes.forward_constants", "is_only_writer", lambda *_: True, filled_twice),
    "trim-tiles": ("passes.trim_tiles", "read_sizes", lambda *access: (sizes := SIZES(*access)) and (
        sizes[0] - 1, sizes[1]), part_of_tile),
    "trim-tiles of overwritten elements": ("passes.trim_tiles", "written_elements", lambda nest: [], beside_equal_numbers),
    "chunk-rows": ("passes.chunk_rows.TouchedMemory", "dependent_calls", lambda *_: [], shifted),
    "join-nests": ("walk", "are_apart", lambda *_: True, rows_below),
    "spread-nests": ("passes.spread_nests", "parts_of", fewer_parts, doubled),
    "join-parts": ("passes.join_parts.PartAccess", "is_independent_of", lambda *_: True, shifted),
    "spread-sections": ("sections", "links", lambda *_: iter(()), read_twice),
    "parallelize": ("passes.parallelize", "part_of_search", lambda search, count: replace(
        search, count=search.count // count - 1), eight_largest),
    "form-products": ("passes.form_products", "as_one_product", lambda nodes: (
        nest := PRODUCT(nodes)) and replace(nest, regions=tuple(
            replace(region, offset=Linear()) for region in nest.regions)), products),
    # The rows behind the last whole panel are those before it.
    "form-products of odd sizes": ("packed_products.PackedProduct", "pieces", property(lambda product: [
        (row and row - product.a.width, count) for row, count in PIECES.fget(product)]), odd_products),
    "form-products of pieces": ("loop_products", "_follows", lambda second, first, nest, axis: (
        axis in nest.reduced), pieces_apart),
    "hoist-tiles": ("passes.hoist_tiles", "with_values", lambda form, values: Linear(form.const), repeated_factors),
    "hoist-factors": ("passes.hoist_factors.HoistFactors", "unchanged", lambda one, function, *_: {
        *function.buffers, *function.only_read}, changed_factors),
    "share-factors": ("function.NativeFunction", "written_by", lambda *_: set(), factors_before_and_after),
    "widen-factors": ("passes.widen_factors.WidenFactors", "converted", without_rows, narrow_products),
    "pair-factors": ("passes.pair_factors", "halved", lambda extents, axis: tuple(
        extent // 4 if a == axis else extent for a, extent in enumerate(extents)), products_of_pairs),
    # The word of the last position is 0.
    "pair-factors of odd sizes": ("passes.pair_factors", "WIDEN", (Step("constant", UINT32, (), "", 0),),
                                  products_of_odd_depth),
    "widen-tiles": ("passes.widen_tiles", "with_wide_output", lambda nest, number: replace(
        WIDE_OUTPUT(nest, number), outputs=(replace(nest.outputs[0], dtype=FLOAT32, strides=tuple(
            64 * (stride > 1) for stride in nest.outputs[0].strides)),)), narrow_products),
    "load-fields": ("passes.load_fields", "adjacent_fields", lambda nest, arguments: tuple(
        (k, first, 0) for k, first, _ in BESIDE(nest, arguments)), fields),
    "fit-functions": ("passes.fit_functions", "fit_of", with_other_polynomials, bounded_function),
    "tabulate-functions": ("tabulated", "table_of", lambda nest: np.roll(TABLE_OF(nest), 1),
                           narrow_function),
    "forward-factors": ("passes.forward_factors", "calls_in", lambda *nodes: iter(()), turned_back),
    "drop-roundings": ("passes.drop_roundings", "is_representable", lambda *_: True, rounded_products),
    "divide-columns": ("passes.divide_columns.ColumnPanels", "moved", lambda panels, distance: (
        distance // panels.row * panels.width), products_of_columns),
    "pad-rows": ("passes.pad_rows", "in_padded", lambda distance, row: distance + (distance > row) * (
        distance // row * host.LINE), halves),
    "store-products of boxes": ("passes.store_products", "stays_inside", lambda *_: True, product_in_a_corner),
    "reuse-tiles": ("passes.reuse_tiles", "one_is_needed", lambda *_: True, sums_read_again),
    "deepen-products": ("passes.deepen_products", "with_sum", lambda nest, times, steps: WITH_SUM(
        nest, times, [0, *steps[1:]]), summed_products),
    "store-products": ("forwarding.ElementMove", "at_target", lambda *arguments: (
        target := AT_TARGET(*arguments)) and (replace(target[0], strides=tuple(min(stride, 64) for stride in (
            target[0].strides))), target[1]), products_beside),
}


@pytest.mark.parametrize("name", FAULTS)
def test_seeded_fault__changes_values(name: str, monkeypatch: pytest.MonkeyPatch,
                                      request: pytest.FixtureRequest) -> None:
    if name.startswith(("pair-factors", "fit-functions")):
        request.getfixturevalue("pairs")
    rng = np.random.default_rng(0)
    monkeypatch.setattr(host, "threads", lambda: 2)

    def agrees() -> bool:
        """Run on new arrays, as buffers still contain the values of an earlier run."""
        x, y = rng.integers(-4, 5, (128, 64)).astype(np.float32), np.zeros((128, 64), np.float32)
        expected = x.copy(), y.copy()
        with forced(name.partition(" ")[0]):
            nki.trace(kernel).on("jit")(x, y)
        nki.trace(kernel).on("interpreter")(*expected)
        return np.array_equal((x, y), expected)
    target, answer, fault, kernel = FAULTS[name]
    assert agrees()
    monkeypatch.setattr(f"nki_mlir.targets.cpu.{target}.{answer}", fault)
    # Threads that other processes delay may run in the right order by chance.
    assert any(not agrees() for _ in range(RUNS))


def gathered(table, index):
    """Gather rows of a table by their numbers, into an output that nothing reads."""
    rows = nl.ndarray((128, 64), dtype=table.dtype, buffer=nl.shared_hbm)
    numbers = nl.load(index)
    nl.store(rows, nl.load(table[numbers[nl.arange(128)[:, None], 0], nl.arange(64)[None, :]]))
    return rows


def test_seeded_fault_of_store_rows__changes_values(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    table, index = rng.random((96, 64), np.float32), rng.integers(0, 96, (128, 1)).astype(np.int32)

    def agrees() -> bool:
        with forced("store-rows"):
            return np.array_equal(nki.jit(gathered).on("jit")(table, index), table[index[:, 0]])
    assert agrees()
    monkeypatch.setattr(ElementMove, "at_target", lambda *arguments: (
        target := AT_TARGET(*arguments)) and (replace(target[0], strides=(0, *target[0].strides[1:])), target[1]))
    assert not agrees()


def beside_powers(x, y):
    """Compute powers of all elements, and double the first columns, which are too few to wake a thread."""
    nl.store(y[:, 0:48], nl.exp(nl.load(x[:, 0:48])))
    nl.store(y[:, 48:64], nl.multiply(nl.load(x[:, 48:64]), 2.0))


def test_seeded_fault_of_spread_nests__changes_values_of_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "threads", lambda: 2)
    rng = np.random.default_rng(0)
    passes = {"zero-unwritten": "", "spread-nests": "worth=500 least=1"}

    def first_part(node: Any) -> Any:
        spread = IN_PARTS(node)
        code, _, *others = spread.arguments
        return replace(spread, arguments=(code, Linear(1), *others))

    def agrees() -> bool:
        x, y = rng.integers(-4, 5, (128, 64)).astype(np.float32), np.zeros((128, 64), np.float32)
        expected = np.concatenate([np.exp(x[:, :48]), 2 * x[:, 48:]], 1)
        with patch.dict(PIPELINE, passes, clear=True):
            nki.trace(beside_powers).on("jit")(x, y)
        return np.allclose(y, expected, rtol=1e-6)
    assert agrees()
    monkeypatch.setattr("nki_mlir.targets.cpu.passes.spread_nests.in_parts", first_part)
    assert not agrees()


@nki.jit
def added(a, b):
    """Add in each program of a grid on tiles of 128 x 64."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = nl.ds(nl.program_id(0) * 128, 128), nl.ds(nl.program_id(1) * 64, 64)
    nl.store(out[rows, columns], nl.add(nl.load(a[rows, columns]), nl.load(b[rows, columns])))
    return out


def test_seeded_fault_of_merge_programs__changes_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "threads", lambda: 2)
    rng = np.random.default_rng(0)

    def agrees() -> bool:
        a, b = rng.random((2, 512, 192), np.float32)
        with forced("merge-programs"):
            return np.array_equal(nki.jit(added.func)[4, 3].on("jit")(a, b), a + b)
    assert agrees()
    monkeypatch.setattr(merge_programs, "merged_call", lambda function, call, count: MERGED(function, call, count - 1))
    assert not agrees()


def twice(x):
    """Double rows of bfloat16."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


def power(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(nl.load(x)))
    return out


def doubled_power(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.exp(nl.load(x)), 2.0))
    return out


def rounded_twice(x):
    """Double a number and round, then subtract one and round."""
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(out, nl.subtract(nl.multiply(nl.load(x), 2.0, dtype=nl.bfloat16), 1.0))
    return out


def greatest(x):
    out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.max(nl.load(x), axis=1, keepdims=True, dtype=nl.float32))
    return out


def test_seeded_fault_of_leave_nans__loses_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN with all bits set overflows if a half is added to it."""
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    x = np.full((128, 64), np.uint32(0x7FFFFFFF)).view(np.float32)

    def is_nan() -> bool:
        routines.clear_memo()                    # the fault is in the code of a routine
        with forced("leave-nans"):
            return np.isnan(nki.jit(rounded_twice).on("jit")(x).astype(np.float32)).all()
    assert is_nan()
    monkeypatch.setattr(roundings, "has_short_nans", lambda *_: True)
    assert not is_nan()
    routines.clear_memo()


def least(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.minimum(nl.load(x), nl.load(y)))
    return out


def test_seeded_fault_of_simplify_extrema__loses_nan_and_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """The minimum is the result: a NaN of its first operand shows, and so does the sign of a zero."""
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    x = np.full((128, 64), np.nan, np.float32)
    x[64:] = -0.0
    y = np.full_like(x, -0.0)
    fact = extrema.unrepaired

    def results() -> tuple[bool, bool]:
        routines.clear_memo()
        with forced("simplify-extrema"):
            result = nki.jit(least).on("jit")(x, y)
        return bool(np.isnan(result[:64]).all()), not np.signbit(result[64:]).any()
    assert results() == (True, True)

    def every(nest: Nest) -> extrema.Unrepaired:
        values = frozenset(value for value, step in enumerate(nest.steps, nest.first_step)
                           if extrema.is_float_extremum(step))
        return extrema.Unrepaired(values, values)
    for module in (code_forms, loops):
        assert module.unrepaired is fact
        monkeypatch.setattr(module, "unrepaired", every)
    assert results() == (False, False)
    routines.clear_memo()


PUT = FunctionEmitter.put
FAULTS_OF_FORMS: dict[str, tuple[object, str, Callable[..., Any], Callable[..., Any]]] = {
    # Results stay in the order in which words are loaded.
    "load-words": (FunctionEmitter, "put_even_and_odd", lambda code, value, pointer, lanes, streams: PUT(
        code, value, pointer, 1, BFLOAT16, lanes, None), twice),
    "select-powers": (FunctionEmitter, "selected", lambda code, index, numbers: code.const(
        code.bitcast(index, "f32"), numbers[0]), power),
    "find-zeros": (FunctionEmitter, "_none_of", lambda code, flags: code.cmp("eq", code.i64(0), 0), power),
    "compare-words": (NarrowExtremum, "combine", lambda extremum, code, a, b: a, greatest),
    "round-pairs": (FunctionEmitter, "unless_denormal", lambda code, rounded, usual, otherwise: list(usual), doubled_power),
    "round-words": (FunctionEmitter, "_words_added", lambda code, total, a, b: code.const(total, 0), doubled_power),
    "delay-stores": (DelayedStores, "finish", lambda delayed, points, kept: None, power),
}


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("name", FAULTS_OF_FORMS)
def test_seeded_fault_of_code__changes_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of two rows have denormal exponentials."""
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    owner, attribute, fault, kernel = FAULTS_OF_FORMS[name]
    x = np.random.default_rng(0).random((128, 512), np.float32)
    x[3:5] = -90.5
    narrow = x.astype(BFLOAT16.numpy)

    def agrees() -> bool:
        routines.clear_memo()                    # the fault is in the code of a routine
        with forced(name):
            result, wanted = (nki.jit(kernel).on(executor)(narrow) for executor in ("jit", "interpreter"))
        # one unit in the last of the eight bits of bfloat16: functions of two executors differ before they are rounded
        return np.allclose(result.astype(np.float32), wanted.astype(np.float32), rtol=2.0**-7, atol=2.0**-140)
    assert agrees()
    monkeypatch.setattr(owner, attribute, fault)
    assert not agrees()
    routines.clear_memo()


UNWRITTEN = """
func.func @k(%x: memref<64x64xf32, "hbm">, %y: memref<64x64xf32, "hbm">) attributes {nki.kernel, nki.results = [1 : i64],
    arg_attrs = [{nki.name = "x"}, {nki.name = "y", nki.shared = 0 : i64}], nki.target = "trn2"} {
  %one = arith.constant 1.0 : f32
  %a = memref.alloc() : memref<64x64xf32, "sbuf">
  linalg.fill ins(%one : f32) outs(%a : memref<64x64xf32, "sbuf">)
  memref.copy %a, %y : memref<64x64xf32, "sbuf"> to memref<64x64xf32, "hbm">
  %b = memref.alloc() : memref<64x64xf32, "sbuf">
  %part = memref.subview %b[0, 0][32, 64][1, 1] : memref<64x64xf32, "sbuf"> to memref<32x64xf32, strided<[64, 1]>, "sbuf">
  linalg.fill ins(%one : f32) outs(%part : memref<32x64xf32, strided<[64, 1]>, "sbuf">)
  memref.copy %b, %y : memref<64x64xf32, "sbuf"> to memref<64x64xf32, "hbm">
  return
}"""


@pytest.mark.parametrize("owner, answer, fault", [(zero_unwritten.WriteTracker, "open", lambda *_: None),
                                                  (ByteBox, "contains", lambda *_: True)], ids=["open", "contains"])
def test_seeded_fault_of_zero_unwritten__shows_what_a_buffer_held(
        monkeypatch: pytest.MonkeyPatch, owner: type, answer: str, fault: Callable[..., Any]) -> None:
    """The second buffer has the address of the first one, which holds ones."""
    def lower_half() -> np.ndarray:
        y = np.zeros((64, 64), np.float32)
        with forced("zero-unwritten"):
            compiled(ir.Module.parse(UNWRITTEN, shared_context()))([np.zeros((64, 64), np.float32)], [y])
        return y[32:]
    assert not lower_half().any()
    monkeypatch.setattr(owner, answer, fault)
    assert lower_half().all()


COPIED_BACK = "linalg.copy ins(%columns : !columns) outs(%turned : !turned)\n"


def test_seeded_fault_of_copy_words__reads_a_tile_that_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The FileCheck test's first function, in which the tile is written once more before its transposed copy is
    joined."""
    text = (Path(__file__).parents[3] / "lit_tests/cpu/copy-words.mlir").read_text(encoding="utf-8")
    text = text[:text.index("func.func @neighbors_of_floats(")]
    changed = text.replace(COPIED_BACK, COPIED_BACK + "linalg.copy ins(%z : !input) outs(%rows : !rows)\n").replace(
        "%y: !words", '%z: !input {nki.name = "z"}, %y: !words')
    x = np.arange(2048, dtype=np.uint16).reshape(32, 64) + 7

    def agrees(module: str, *more: np.ndarray) -> bool:
        words, parsed = np.zeros((32, 32), np.uint32), ir.Module.parse(module, shared_context())
        function_pass("copy-words").run(parsed)
        compiled(parsed)([x, *more], [words])
        return np.array_equal(words, x.view(np.uint32).T)
    assert agrees(text) and agrees(changed, 2 * x)
    monkeypatch.setattr(copy_words, "is_unchanged", lambda *_: True)
    assert agrees(text) and not agrees(changed, 2 * x)


def test_each_pass_that_can_change_values__has_a_fault() -> None:
    """Prefetches and the sizes of registers change no values, so no wrong ones show in them."""
    named = {name.partition(" ")[0] for name in FAULTS}
    assert named | {*FAULTS_OF_FORMS, "copy-words", "leave-nans", "merge-programs", "simplify-extrema",
                    "store-rows", "zero-unwritten"} == {*NAMES} - {"halve-vectors", "prefetch-factors", "prefetch-rows"}
