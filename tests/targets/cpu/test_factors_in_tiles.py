# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of products: transposed without a copy, in panels, with a line behind each row, and over other tiles.

The bits stay the same.
"""

import re
from typing import Any

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu import function_pass
from nki_mlir.targets.cpu.contraction import tile_of
from nki_mlir.targets.cpu.passes import forward_factors
from nki_mlir.targets.cpu.passes.widen_tiles import can_be_wide
from nki_mlir.targets.cpu.pipeline import PIPELINE

from .test_stored_products import result_and_text

P = 128
RNG = np.random.default_rng(0)


def weights_of(a: Any) -> Any:
    """Return a tile that is not an input, so that its copies are not copies of an input."""
    return nl.multiply(nl.load(a), 0.5)


@nki.jit
def mixed(a, v):
    """Multiply transposed parts of a tile by parts of another one."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights, tiles = weights_of(a), a.shape[1] // P
    values = nl.ndarray((P, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(tiles):
        values[:, nl.ds(j * P, P)] = nl.load(v[nl.ds(j * P, P), :])
    total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
    for j in nl.affine_range(tiles):
        transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(j * P, P)]))
        total += nisa.nc_matmul(transposed, values[:, nl.ds(j * P, P)])
    nl.store(out, nl.copy(total))
    return out


@nki.jit
def written_between(a, v):
    """Write the tile between its copy and the product."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = weights_of(a)
    transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(0, P)]))
    weights[:, nl.ds(0, P)] = nl.multiply(weights[:, nl.ds(0, P)], 3.0)
    product = nisa.nc_matmul(transposed, nl.load(v[nl.ds(0, P), :]))
    nl.store(out, nl.add(product, weights[:, nl.ds(0, P)]))
    return out


@nki.jit
def read_twice(a, v):
    """Read the copy in another operation, too."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = weights_of(a)
    transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(0, P)]))
    product = nisa.nc_matmul(transposed, nl.load(v[nl.ds(0, P), :]))
    nl.store(out, nl.add(product, transposed))
    return out


@nki.jit
def read_before(a, v):
    """Read the copy in another operation before the product, which is its last reader."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights, values = weights_of(a), nl.load(v[nl.ds(0, P), :])
    transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(0, P)]))
    largest = nl.max(transposed, axis=1, keepdims=True)
    nl.store(out, nl.add(nisa.nc_matmul(transposed, values), largest))
    return out


@nki.jit
def every_second_column(a, v):
    """Multiply a copy of every second column: without it, the product would read single elements along neither rows nor
    columns of the tile."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = weights_of(a)
    transposed = nl.copy(nisa.nc_transpose(weights[:, 0:2 * P:2]))
    nl.store(out, nisa.nc_matmul(transposed, nl.load(v[nl.ds(0, P), :])))
    return out


@nki.jit
def onto_itself(a, v):
    """Store the product over its factor, by a copy behind it."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = weights_of(a)
    transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(0, P)]))
    weights[:, nl.ds(0, P)] = nisa.nc_matmul(transposed, nl.load(v[nl.ds(0, P), :]))
    nl.store(out, weights[:, nl.ds(0, P)])
    return out


@nki.jit
def as_right_factor(a, v):
    """Use the copy as the factor that is read in vectors."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = weights_of(a)
    transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(0, P)]))
    nl.store(out, nl.copy(nisa.nc_matmul(nl.load(v[nl.ds(0, P), :]), transposed)))
    return out


@nki.jit
def as_both_factors(a, v):
    """Use the copy as both factors of the product."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    transposed = nl.copy(nisa.nc_transpose(weights_of(a)[:, nl.ds(0, P)]))
    nl.store(out, nl.copy(nisa.nc_matmul(transposed, transposed)))
    return out


@nki.jit
def rounded(a, v):
    """Multiply transposed parts of a tile in bfloat16, as attention does; its rows are converted and summed."""
    out = nl.ndarray((P, P + 1), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.multiply(nl.load(a), 0.7, dtype=nl.bfloat16)
    total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
    for j in nl.affine_range(a.shape[1] // P):
        transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(j * P, P)]), dtype=nl.float32)
        total += nisa.nc_matmul(transposed, nl.load(v[nl.ds(j * P, P), :]))
    nl.store(out[:, nl.ds(0, P)], nl.copy(total))
    nl.store(out[:, nl.ds(P, 1)], nl.sum(weights, axis=1, dtype=nl.float32))
    return out


@nki.jit
def rounded_and_stored(a, v):
    """Multiply a tile in bfloat16 that is also stored unchanged."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = nl.ndarray((P, a.shape[1]), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    weights = nl.multiply(nl.load(a), 0.7, dtype=nl.bfloat16)
    transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(0, P)]), dtype=nl.float32)
    nl.store(out, nl.copy(nisa.nc_matmul(transposed, nl.load(v[nl.ds(0, P), :]))))
    nl.store(tiles, weights)
    return out


@nki.jit
def rounded_for_products(a, v):
    """Multiply converted copies of parts of a tile in bfloat16 several times; the tile is also stored unchanged."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = nl.ndarray((P, a.shape[1]), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    weights = nl.multiply(nl.load(a), 0.7, dtype=nl.bfloat16)
    total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
    for j in nl.static_range(a.shape[1] // P):
        transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(j * P, P)]), dtype=nl.float32)
        total += nisa.nc_matmul(transposed, nl.load(v[nl.ds(j * P, P), :]))
    nl.store(out, nl.copy(total))
    nl.store(tiles, weights)
    return out


@nki.jit
def rounded_between(a, v):
    """Write the tile in bfloat16 between its copy and the product."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.multiply(nl.load(a), 0.7, dtype=nl.bfloat16)
    transposed = nl.copy(nisa.nc_transpose(weights[:, nl.ds(0, P)]), dtype=nl.float32)
    weights[:, nl.ds(0, P)] = nl.multiply(weights[:, nl.ds(0, P)], 3.0, dtype=nl.float32)
    product = nisa.nc_matmul(transposed, nl.load(v[nl.ds(0, P), :]))
    nl.store(out, nl.add(product, weights[:, nl.ds(0, P)], dtype=nl.float32))
    return out


def arrays() -> tuple[np.ndarray, np.ndarray]:
    a, v = RNG.standard_normal((P, 4 * P)).astype(np.float32), RNG.standard_normal((4 * P, P)).astype(np.float32)
    for x in (a, v):
        x.flat[::4099] = np.resize(np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40], np.float32), x.flat[::4099].size)
    return a, v


def bits(array: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(array), np.float32(np.nan), array).view(np.uint32)


def compared(kernel: Any, monkeypatch: pytest.MonkeyPatch, name: str, columns: int = P) -> tuple[str, str]:
    """Return the programs with and without a pass, whose results must have the same bits. The second operand has
    ``columns``."""
    a, v = arrays()
    operands = a, np.ascontiguousarray(v[:, :columns])
    result, text = result_and_text(kernel, operands)
    with monkeypatch.context() as without:
        without.delitem(PIPELINE, name)
        expected, plain = result_and_text(kernel, operands)
    assert np.array_equal(bits(result), bits(expected))
    return text, plain


@pytest.mark.parametrize("kernel, forwards", [
    (mixed, True), (written_between, False), (read_twice, False), (read_before, False), (every_second_column, False),
    (onto_itself, True), (as_right_factor, False),
    (as_both_factors, False), (rounded, True), (rounded_and_stored, False), (rounded_for_products, False), (rounded_between, False)],
    ids=lambda value: getattr(value, "__name__", None))
def test_transposed_copy__is_dropped_where_only_a_product_reads_it(kernel, forwards, monkeypatch) -> None:
    text, plain = compared(kernel, monkeypatch, "forward-factors")
    assert re.search(r"copy_\d+x128_float32", plain)
    assert (text != plain) == forwards


@pytest.mark.parametrize("kernel", [mixed, rounded])
def test_transposed_copy__stays_for_a_product_of_many_columns(kernel, monkeypatch) -> None:
    blocks = -(-P // tile_of(P).width)
    assert blocks > 1
    for most in (1, blocks - 1, blocks):
        monkeypatch.setitem(PIPELINE, "forward-factors", f"most={most}")
        text, plain = compared(kernel, monkeypatch, "forward-factors")
        assert (text != plain) == (most == blocks)


@pytest.mark.parametrize("more, forwards", [(0, True), (-1, False)])
def test_converted_copy__is_dropped_where_the_tile_in_float32_is_small(more, forwards, monkeypatch) -> None:
    monkeypatch.setitem(PIPELINE, "forward-factors", f"size={4 * P * 4 * P + more}")
    text, plain = compared(rounded, monkeypatch, "forward-factors")
    assert (text != plain) == forwards


def test_tile_of_many_products__is_judged_once(monkeypatch) -> None:
    """Kernels whose loops are unrolled have thousands of products of one tile."""
    judged: list[Any] = []

    def verdict(source: Any, calls: Any, size: int) -> bool:
        judged.append(source)
        return can_be_wide(source, calls, size)
    monkeypatch.setattr(forward_factors, "can_be_wide", verdict)
    result_and_text(rounded_for_products, arrays())
    assert judged and len(judged) == len({id(tile) for tile in judged})     # the program is built twice


@pytest.mark.parametrize("kernel", [mixed, written_between, read_twice, onto_itself, as_right_factor, as_both_factors])
def test_rows__have_a_line_behind_each(kernel, monkeypatch) -> None:
    compared(kernel, monkeypatch, "pad-rows")


@nki.jit
def beside_sums(a, v):
    """Sum the right factor along its columns, too; the order of these sums must stay."""
    out = nl.ndarray((P, 5), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = weights_of(a)
    nl.store(out[:, 0:4], nisa.nc_matmul(nl.load(v[nl.ds(0, P), :]), tile[:, nl.ds(P, P)])[:, 0:4])
    nl.store(out[:, 4:5], nl.sum(tile, axis=1))
    return out


@pytest.mark.parametrize("kernel, divides", [
    (mixed, True), (written_between, True), (onto_itself, True), (as_both_factors, True), (beside_sums, False)],
    ids=lambda value: getattr(value, "__name__", None))
def test_columns__lie_in_panels(kernel, divides, monkeypatch) -> None:
    monkeypatch.setitem(PIPELINE, "divide-columns", "least=1 width=32")
    text, plain = compared(kernel, monkeypatch, "divide-columns")
    assert (text != plain) == divides


@nki.jit
def over_rows(a, v):
    """Read all rows as one axis in one operation, and pairs of rows in another one."""
    out = nl.ndarray((P, 5 * P), dtype=nl.float32, buffer=nl.shared_hbm)
    right = nl.load(a)
    left = nl.load(v[nl.ds(0, P), :])
    doubled = nl.multiply(right, 2.0)
    nl.store(out[:, nl.ds(0, P)], nl.copy(nisa.nc_matmul(left, doubled[:, nl.ds(P, P)])))
    nl.store(out[:, nl.ds(P, 4 * P)], nl.negative(doubled))
    return out


def test_rows__are_those_of_all_operations_on_the_tile(monkeypatch) -> None:
    for other in ("divide-columns", "chunk-rows"):
        monkeypatch.delitem(PIPELINE, other)
    text, plain = compared(over_rows, monkeypatch, "pad-rows")
    assert "multiply_65536_" in plain and "multiply_65536_" not in text and "multiply_128x512_" in text


@nki.jit
def rescaled(a, v):
    """Multiply functions of sums of products by a tile, and sum each row."""
    out = nl.ndarray((P, P + 1), dtype=nl.float32, buffer=nl.shared_hbm)
    right, total = nl.load(v[nl.ds(0, P), :]), nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    sums = nisa.nc_matmul(nl.load(a[:, nl.ds(0, P)]), right)
    powers = nisa.activation_reduce(np.square, sums, scale=0.1, reduce_op=np.add, reduce_res=total)
    nl.store(out[:, nl.ds(0, P)], nl.copy(nisa.nc_matmul(powers, right)))
    nl.store(out[:, nl.ds(P, 1)], total)
    return out


@pytest.mark.parametrize("kernel, reuses", [(rescaled, True), (read_twice, False)],
                         ids=lambda value: getattr(value, "__name__", None))
def test_sums__are_overwritten_by_what_is_computed_from_them(kernel, reuses, monkeypatch) -> None:
    monkeypatch.setitem(PIPELINE, "reuse-tiles", "least=1")
    text, plain = compared(kernel, monkeypatch, "reuse-tiles")
    assert (text != plain) == reuses


@nki.jit
def onto_a_factor(a, v):
    """Add each product to one of its factors, which the next product reads."""
    out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    total, right = nl.load(a[:, nl.ds(0, P)]), nl.load(v[nl.ds(0, P), :])
    for _ in nl.sequential_range(4):
        total += nisa.nc_matmul(total, right)
    nl.store(out, total)
    return out


@pytest.mark.parametrize("depth, times", [(512, 4), (300, 2), (255, 1)])
def test_products_of_iterations__are_added_in_registers(depth, times, monkeypatch) -> None:
    monkeypatch.setitem(PIPELINE, "deepen-products", f"depth={depth}")
    text, plain = compared(mixed, monkeypatch, "deepen-products")
    assert (f"x{times}x128_float32" in text) == (times > 1) == (text != plain)


def test_products__that_a_later_one_reads_stay_in_their_iterations(monkeypatch) -> None:
    text, plain = compared(onto_a_factor, monkeypatch, "deepen-products")
    assert text == plain


@nki.jit
def narrow(a, v):
    """Multiply tiles of the input by rows of another input that are as short as those of a register tile."""
    out = nl.ndarray((P, v.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((P, v.shape[1]), nl.float32, buffer=nl.psum)
    for j in nl.affine_range(4):
        total += nisa.nc_matmul(nl.load(a[:, nl.ds(j * P, P)]), nl.load(v[nl.ds(j * P, P), :]))
    nl.store(out, nl.copy(total))
    return out


@pytest.mark.parametrize("columns, forwards", [(16, True), (P, False)])
def test_rows_of_a_panel__are_read_from_the_input(columns, forwards, monkeypatch) -> None:
    monkeypatch.setitem(PIPELINE, "forward-copies", "least=1")
    text, plain = compared(narrow, monkeypatch, "forward-copies", columns)
    assert (text != plain) == forwards and ("add_128x16x128_float32" in text) == forwards


@nki.jit
def one_by_one(a, v):
    """Multiply by rows that are as short as those of a register tile; each product starts its sums from 0."""
    out = nl.ndarray((2, P, v.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for j in nl.affine_range(2):
        total = nisa.nc_matmul(nl.load(a[:, nl.ds(j * P, P)]), nl.load(v[nl.ds(j * P, P), :]))
        nl.store(out[j], nl.add(total, 1.0))
    return out


def test_products_that_start_from_0__read_their_own_tiles(monkeypatch) -> None:
    """A pass that let such a product read another factor would forget that it starts from 0."""
    a, v = arrays()
    operands = a, np.ascontiguousarray(v[:, :16])
    expected, _ = result_and_text(one_by_one, operands)
    monkeypatch.setattr(function_pass, "NAMES", ("zero-unwritten", "store-products", "forward-copies"))
    monkeypatch.setitem(PIPELINE, "forward-copies", "least=1")
    result, text = result_and_text(one_by_one, operands)
    assert np.array_equal(bits(result), bits(expected))
    assert "copy_" in text
