# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers of StableHLO at their edges: quotients, orders without a sign, small constants, truth values that data decide."""

from pathlib import Path

import numpy as np
import pytest

from nki_mlir.cli.runnable import runnable

ON = ("interpreter", "jit", "isa")


def results(folder: Path, on: str, function: str, *arguments: np.ndarray) -> list[np.ndarray]:
    file = folder / "graph.mlir"
    file.write_text(function)
    return [np.asarray(value) for _, value in runnable(str(file), list(arguments), {}, None, ()).run(on)]


def result(folder: Path, on: str, function: str, *arguments: np.ndarray) -> np.ndarray:
    value, = results(folder, on, function, *arguments)
    return value


def edges(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Each number with each other one: 0, 1, those around them, the lowest and the greatest."""
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.min + 1, 0, 1, 2, 7, limits.max - 1, limits.max, *((-1, -2, -7) if limits.min else ())]
    return tuple(np.array(grid, dtype) for grid in np.meshgrid(numbers, numbers))       # type: ignore[return-value]


@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("mlir, dtype", [("i8", np.int8), ("i32", np.int32), ("ui8", np.uint8)])
def test_quotients_and_remainders__by_0_and_of_the_lowest_by_minus_1(tmp_path, on, mlir, dtype):
    """As XLA computes them: a number divided by 0 is all ones, and is what remains."""
    a, b = edges(dtype)
    kind = f"tensor<{a.shape[0]}x{a.shape[1]}x{mlir}>"
    by = np.where(b == 0, 1, b).astype(object)
    quotient = [int(abs(x) // abs(y)) * (-1 if (x < 0) != (y < 0) else 1) for x, y in zip(a.astype(object).flat, by.flat)]
    quotient = np.where(b.ravel() == 0, -1, quotient).astype(np.int64).astype(dtype).reshape(a.shape)
    remainder = np.where(b == 0, a, np.fmod(a.astype(np.int64), by.astype(np.int64))).astype(dtype)
    computed = results(tmp_path, on, f"""func.func @main(%a: {kind}, %b: {kind}) -> ({kind}, {kind}) {{
  %0 = stablehlo.divide %a, %b : {kind}
  %1 = stablehlo.remainder %a, %b : {kind}
  return %0, %1 : {kind}, {kind}
}}""", a, b)
    for value, expected in zip(computed, (quotient, remainder), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("on", ON)
def test_numbers_without_sign__keep_their_order(tmp_path, on):
    a, b = edges(np.uint32)
    kind, truths = (f"tensor<{a.shape[0]}x{a.shape[1]}x{of}>" for of in ("ui32", "i1"))
    computed = results(tmp_path, on, f"""func.func @main(%a: {kind}, %b: {kind}) -> ({truths}, {kind}, {kind}) {{
  %0 = stablehlo.compare LT, %a, %b, UNSIGNED : ({kind}, {kind}) -> {truths}
  %1 = stablehlo.maximum %a, %b : {kind}
  %2 = stablehlo.minimum %a, %b : {kind}
  return %0, %1, %2 : {truths}, {kind}, {kind}
}}""", a, b)
    for value, expected in zip(computed, (a < b, np.maximum(a, b), np.minimum(a, b)), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("chosen", [False, True])
def test_a_branch_that_data_decide__is_taken_where_they_hold(tmp_path, on, chosen):
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    computed = result(tmp_path, on, """func.func @main(%p: tensor<i1>, %x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.negate %x : tensor<8x4xf32>
    stablehlo.return %1 : tensor<8x4xf32>
  }, {
    %2 = stablehlo.add %x, %x : tensor<8x4xf32>
    stablehlo.return %2 : tensor<8x4xf32>
  }) : (tensor<i1>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}""", np.array(chosen), x)
    np.testing.assert_array_equal(computed, -x if chosen else 2 * x)


@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("number, row", [(-2, 0), (1, 1), (0, 0)])
def test_constants_of_two_bits__are_starts_of_slices(tmp_path, on, number, row):
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    computed = result(tmp_path, on, f"""func.func @main(%x: tensor<8x4xf32>) -> tensor<2x4xf32> {{
  %n = stablehlo.constant dense<{number}> : tensor<i2>
  %zero = stablehlo.constant dense<0> : tensor<i2>
  %0 = stablehlo.dynamic_slice %x, %n, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i2>, tensor<i2>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}}""", x)
    np.testing.assert_array_equal(computed, x[row:row + 2])
