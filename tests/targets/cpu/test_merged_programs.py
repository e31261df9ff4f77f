# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of a grid on parts of the same rows run as one; other grids stay as they are."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import mutable_tensor
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.contraction import MULTIPLY_ADD
from nki_mlir.targets.cpu.native_nodes import FIRST_ID, ScratchBuffer, compute
from nki_mlir.targets.cpu.passes.merge_programs import merged_call
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion

P, WIDTH = 128, 64


def launched(kernel: Any, grid: tuple[int, ...], *arrays: np.ndarray) -> tuple[Any, int]:
    """Return the result on the JIT, and the number of programs that the machine launched."""
    fresh = nki.jit(kernel.func)[grid]
    result = fresh.on("jit")(*arrays)
    (spec,) = fresh.specializations.values()
    return result, int(spec.program("jit").record[0])


@nki.jit
def difference(a, b, c):
    """Compute exp(a - b * c) on tiles of 128 x 64; b is one row, c one column."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    rows, columns = nl.ds(i * P, P), nl.ds(j * WIDTH, WIDTH)
    scaled = nl.multiply(nl.load(b[:, columns]), nl.load(c[rows, :]))
    nl.store(out[rows, columns], nl.exp(nl.subtract(nl.load(a[rows, columns]), scaled)))
    return out


@nki.jit
def added(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    rows, columns = nl.ds(i * P, P), nl.ds(j * WIDTH, WIDTH)
    nl.store(out[rows, columns], nl.add(nl.load(a[rows, columns]), nl.load(b[rows, columns])))
    return out


@nki.jit
def row_sums(a):
    """Sum the 64 columns of a program in each row, as [rows, programs along the axis]."""
    out = nl.ndarray((a.shape[0], a.shape[1] // WIDTH), dtype=nl.float32, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    rows = nl.ds(i * P, P)
    nl.store(out[rows, nl.ds(j, 1)], nl.sum(nl.load(a[rows, nl.ds(j * WIDTH, WIDTH)]), axis=1, keepdims=True))
    return out


@nki.jit
def in_place(a: mutable_tensor):
    """Double the program's tile of an input."""
    i, j = nl.program_id(0), nl.program_id(1)
    rows, columns = nl.ds(i * P, P), nl.ds(j * WIDTH, WIDTH)
    nl.store(a[rows, columns], nl.multiply(nl.load(a[rows, columns]), 2.0))
    return a


@nki.jit
def by_column(a):
    """Add the number of the program's tile of columns."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    rows, columns = nl.ds(i * P, P), nl.ds(j * WIDTH, WIDTH)
    nl.store(out[rows, columns], nl.add(nl.load(a[rows, columns]), nl.load(a[rows, nl.ds(j, 1)])))
    return out


@nki.jit
def first_columns(a, b):
    """Compute a + b in the columns for which the grid has programs."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    rows, columns = nl.ds(i * P, P), nl.ds(j * WIDTH, WIDTH)
    nl.store(out[rows, columns], nl.add(nl.load(a[rows, columns]), nl.load(b[rows, columns])))
    return out


def matrix(rows: int, columns: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, (rows * P, columns * WIDTH)).astype(dtype)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "2")
    monkeypatch.setattr(host, "WORTH_WAKING", 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("grid, programs", [((4, 3), 4), ((4, 2), 4), ((3, 4), 12), ((8, 1), 8)])
def test_programs__of_neighboring_columns_run_as_one(grid: tuple[int, int], programs: int, dtype: str) -> None:
    a, b = matrix(*grid, dtype), matrix(*grid, dtype, 1)
    total, count = launched(added, grid, a, b)
    np.testing.assert_array_equal(total, a + b)
    assert count == programs                                # at least two for each of two threads


def test_programs__keep_rows_and_columns_that_all_share() -> None:
    a, b, c = matrix(4, 3), matrix(1, 3, seed=1)[:1], matrix(4, 1, seed=2)[:, :1]
    result, _ = launched(difference, (4, 3), a / 8, b / 8, c / 8)
    np.testing.assert_allclose(result, np.exp(a / 8 - b / 8 * (c / 8)), rtol=2e-6)


@pytest.mark.parametrize("kernel, expected", [
    (row_sums, lambda a: a.reshape(4 * P, 3, WIDTH).sum(2)),
    (in_place, lambda a: 2 * a),
    (by_column, lambda a: a + np.repeat(a[:, :3], WIDTH, 1))])
def test_programs__that_are_no_parts_of_rows_stay_apart(kernel: Any, expected: Any) -> None:
    a = matrix(4, 3)
    wanted = expected(a)
    result, count = launched(kernel, (4, 3), a.copy())
    np.testing.assert_array_equal(result, wanted)
    assert count == 12


def test_programs__on_some_columns_of_a_matrix_touch_no_others() -> None:
    a, b = matrix(4, 5), matrix(4, 5, seed=1)
    with pytest.warns(UserWarning, match="65536 of the 163840 elements of the output out are never written"):
        result, count = launched(first_columns, (4, 3), a, b)
    wanted = np.where(np.arange(5 * WIDTH) < 3 * WIDTH, a + b, 0)
    np.testing.assert_array_equal(result, wanted)
    assert count == 4


# -- one computation of several programs -------------------------------------------------------------------------------
LINE = 4 * WIDTH                    # elements of a row, of which each of two programs has a quarter
FUNCTION = SimpleNamespace(axes=2, only_written={"out"})
COPY = Nest((P, WIDTH), frozenset(), (Operand(FLOAT32, (LINE, 1)),), 0, (Operand(FLOAT32, (LINE, 1)),), (), (0,))
PRODUCT = Nest((P, WIDTH, 8), frozenset({2}), (Operand(FLOAT32, (8, 0, 1)), Operand(FLOAT32, (0, 1, LINE))), 0,
               (Operand(FLOAT32, (LINE, 1, 0)),), MULTIPLY_ADD, (4,))


def region(root: Any, step: int = 4 * WIDTH, start: int = 0) -> ByteRegion:
    """Return the memory of a program: rows of the first id, columns of the second."""
    symbols = ((FIRST_ID, 4 * LINE * P), (FIRST_ID + 1, step)) if step else ((FIRST_ID, 4 * LINE * P),)
    return ByteRegion(root, Linear(), 1 << 20, Linear(start, symbols))


def merged(nest: Nest = COPY, roots: tuple[Any, ...] = ("a", "out"), steps: tuple[int, ...] = (4 * WIDTH,) * 2,
           symbols: tuple[Linear, ...] = ()) -> Any:
    regions = [region(root, step, 16) for root, step in zip(roots, steps)]
    return merged_call(FUNCTION, compute(nest, regions, symbols), 2)


def test_rows_of_two_programs_become_longer_rows() -> None:
    call = merged()
    assert call.nest.extents == (P, 2 * WIDTH) and call.nest.operands == COPY.operands
    assert [r.offset for r in call.regions] == [Linear(16, ((FIRST_ID, 4 * LINE * P),))] * 2
    assert [r.root for r in call.regions] == ["a", "out"]


def test_one_column_for_both_programs_is_read_by_the_longer_rows() -> None:
    nest = replace(COPY, inputs=(Operand(FLOAT32, (LINE, 0)),))
    call = merged(nest, steps=(0, 4 * WIDTH))
    assert call.nest.extents == (P, 2 * WIDTH)
    assert [dict(r.offset.symbols) for r in call.regions] == [{FIRST_ID: 4 * LINE * P}] * 2


@pytest.mark.parametrize("case", ["mask", "limits", "symbols", "product", "read and written", "scratch", "short step",
                                  "long step", "fixed input", "strided output"])
def test_computations_of_no_part_of_a_row__are_not_merged(case: str) -> None:
    edge = (Constraint(Linear(WIDTH - 1, (), ((1, -1),))),)
    match case:
        case "mask":
            call = merged(replace(COPY, mask=edge))
        case "limits":
            call = merged(replace(COPY, limits=edge))
        case "symbols":
            call = merged(symbols=(Linear(3),))
        case "product":
            call = merged(PRODUCT, ("a", "b", "out"), (0, 4 * WIDTH, 4 * WIDTH))
        case "read and written":
            call = merged(roots=("a", "a"))
        case "scratch":
            call = merged(roots=(ScratchBuffer(1 << 20, 0), "out"))
        case "short step":
            call = merged(steps=(4 * WIDTH, 4 * WIDTH - 4))
        case "long step":
            call = merged(steps=(4 * WIDTH + 4, 4 * WIDTH))
        case "fixed input":
            call = merged(steps=(0, 4 * WIDTH))
        case _:
            call = merged(replace(COPY, outputs=(Operand(FLOAT32, (LINE, 2)),)), steps=(4 * WIDTH, 8 * WIDTH))
    assert call is None
