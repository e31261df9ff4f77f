# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folds of rows of 16-bit floats. Extrema are computed on their bits: every kind of number, at every place of a row.
Sums, and functions beside them, are those of float32."""

import numpy as np
import pytest

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from nki_mlir.targets.cpu.narrow_extrema import narrow_extrema
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step

from .nest_reference import ALL_FORMS, Memory, run

NARROW = (BFLOAT16, FLOAT16)
ROWS, ROW = 9, 512


def extremum(fn: str, dtype: DType, columns: int = ROW) -> Nest:
    """Return a nest that folds rows into float32."""
    steps = (Step("convert", FLOAT32, (0,)), Step("alu", FLOAT32, (1, 2), fn))
    return Nest((ROWS, columns), frozenset({1}), (Operand(dtype, (columns, 1)),), 0, (Operand(FLOAT32, (1, 0)),), steps,
                (3,))


def folded(nest: Nest, values: np.ndarray, start: float) -> np.ndarray:
    source, result = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:] = values.ravel()
    result.array[:] = start
    run(nest, [source, result], forms=ALL_FORMS)
    return result.array


def check(fn: str, dtype: DType, values: np.ndarray) -> None:
    """Compare bits with NumPy's extremum, whose zeros are +0; NaN compares equal to NaN."""
    start = -np.inf if fn == "maximum" else np.inf
    wanted = getattr(np, fn).reduce(values.astype(np.float32), axis=1, initial=start) + np.float32(0)
    result = folded(extremum(fn, dtype, values.shape[1]), values, start)
    np.testing.assert_array_equal(result, wanted)
    assert np.array_equal(np.signbit(result[wanted == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.parametrize("fn", ("maximum", "minimum"))
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("columns", (16, 100, 256, 320, 512, 1000, 4096))
def test_extremum__of_random_bits_and_numbers(fn: str, dtype: DType, columns: int) -> None:
    rng = np.random.default_rng(columns)
    check(fn, dtype, rng.standard_normal((ROWS, columns)).astype(dtype.numpy))
    bits = rng.integers(0, 1 << 16, (ROWS, columns)).astype(np.uint16).view(dtype.numpy)
    check(fn, dtype, bits)
    check(fn, dtype, np.where(np.isnan(bits.astype(np.float32)), np.array(1, dtype.numpy), bits))


@pytest.mark.parametrize("fn", ("maximum", "minimum"))
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("others", (-2.0, 3.0, 0.0, -0.0))
def test_extremum__one_number_of_a_kind_at_every_place(fn: str, dtype: DType, others: float) -> None:
    kinds = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8, -6e-8, 60000.0]
    for column in (*range(0, 70), 255, 256, 300, ROW - 1):
        values = np.full((ROWS, ROW), others, dtype.numpy)
        values[range(ROWS), column] = np.array(kinds, np.float32).astype(dtype.numpy)
        check(fn, dtype, values)


@pytest.mark.skipif(host.lanes() != 16, reason="registers of 32 such numbers")
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_extrema__are_of_long_rows(dtype: DType) -> None:
    def folds_of(nest: Nest) -> list[int]:
        return [*narrow_extrema(nest, schedule(nest))]
    assert folds_of(extremum("maximum", dtype)) == [0] == folds_of(extremum("minimum", dtype))
    assert folds_of(extremum("maximum", dtype, 100)) == [] == folds_of(extremum("add", dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("columns", (100, 128, 512, 4096))
def test_sums__of_narrow_rows_have_the_order_of_float32(dtype: DType, columns: int) -> None:
    values = np.random.default_rng(columns).standard_normal((ROWS, columns)).astype(dtype.numpy)
    wide = Nest((ROWS, columns), frozenset({1}), (Operand(FLOAT32, (columns, 1)),), 0, (Operand(FLOAT32, (1, 0)),),
                (Step("alu", FLOAT32, (1, 0), "add"),), (2,))
    sums = folded(extremum("add", dtype, columns), values, 0.5)
    assert np.array_equal(sums, folded(wide, values.astype(np.float32), 0.5))


def exponentials(dtype: DType, columns: int) -> Nest:
    """Compute exp of rows, and its sum along each row."""
    steps = (Step("activation", FLOAT32, (0,), "exp"), Step("alu", FLOAT32, (2, 3), "add"))
    results = (3, 4)
    if dtype is not FLOAT32:
        steps = (Step("convert", FLOAT32, (0,)), Step("activation", FLOAT32, (3,), "exp"),
                 Step("alu", FLOAT32, (2, 4), "add"), Step("convert", dtype, (4,)))
        results = (6, 5)
    return Nest((ROWS, columns), frozenset({1}), (Operand(dtype, (columns, 1)),), 0,
                (Operand(dtype, (columns, 1)), Operand(FLOAT32, (1, 0))), steps, results)


def exponentiated(nest: Nest, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    source, powers, sums = (Memory(nest, operand, np.random.default_rng(0)) for operand in nest.operands)
    source.array[:], powers.array[:], sums.array[:] = values.ravel(), 0, 0.5
    run(nest, [source, powers, sums], forms=ALL_FORMS)
    return powers.array, sums.array


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("columns", (100, 128, 512, 576, 4096))
def test_functions__of_narrow_rows_are_those_of_float32(dtype: DType, columns: int) -> None:
    rng = np.random.default_rng(columns)
    values = rng.standard_normal((ROWS, columns)).astype(dtype.numpy)
    values[1:, ::7] = rng.choice([np.inf, -np.inf, np.nan, -0.0, -88.5, -100.0, 80.0], (ROWS - 1, -(-columns // 7)))
    powers, sums = exponentiated(exponentials(dtype, columns), values)
    wide_powers, wide_sums = exponentiated(exponentials(FLOAT32, columns), values.astype(np.float32))
    np.testing.assert_array_equal(sums, wide_sums)
    with np.errstate(over="ignore"):
        rounded = wide_powers.astype(dtype.numpy)
    np.testing.assert_array_equal(powers.astype(np.float32), rounded.astype(np.float32))


@pytest.mark.skipif(host.lanes() != 16, reason="registers of 32 such numbers")
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_functions__fill_four_registers_at_once(dtype: DType) -> None:
    assert [schedule(exponentials(dtype, columns)).lanes for columns in (100, 512, 4096)] == [16, 64, 64]
    assert schedule(exponentials(FLOAT32, 512)).lanes == 16
    assert schedule(extremum("add", dtype)).lanes == 32
