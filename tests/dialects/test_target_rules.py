# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of targets for one instruction: where tiles begin, what a mask leaves open, and what errors say to do."""

from dataclasses import replace

import pytest

from nki_mlir.dialects.access import Constraint, Linear, Tile
from nki_mlir.dialects.op import changed
from nki_mlir.dialects.target_findings import findings, may_replace
from nki_mlir.dialects.target_rules import CrossesBank, StartPartition, rows_around
from nki_mlir.dialects.verifier import dtype_advice
from nki_mlir.machine import machine_named

from .samples import SAMPLES, tile

TRN2 = machine_named("trn2")


def part(first: int, rows: int, column: int = 3, columns: int = 5) -> Tile:
    """Rows and columns of a tile of all partitions."""
    return tile("sbuf 128x16xf32").patterned(partition=Linear(first), free=Linear(column), dims=((1, rows), (1, columns)))


@pytest.mark.parametrize("first, rows, start", [
    (0, 1, 0), (5, 1, 0), (31, 1, 0), (31, 2, 0), (31, 33, 0), (31, 34, 0), (32, 1, 32), (40, 5, 32), (40, 24, 32),
    (40, 25, 0), (64, 64, 64), (65, 63, 64), (70, 40, 64), (96, 32, 96), (100, 28, 96), (90, 6, 64), (90, 7, 64), (90, 38, 64)])
def test_rows_around_a_tile__begin_where_engines_can(first: int, rows: int, start: int) -> None:
    result = rows_around(TRN2, part(first, rows))
    assert result is not None
    around, inside = result
    assert around.access.partition == Linear(start) and around.access.free == Linear(3)
    assert around.access.dims == ((1, first - start + rows), (1, 5))
    assert inside == range(first - start, first - start + rows)
    assert TRN2.legal_start_partition(start, around.shape[0])


def test_rows_around_a_tile_that_a_loop_moves__are_unknown() -> None:
    assert rows_around(TRN2, part(0, 4).patterned(partition=Linear(0, ((0, 32),)))) is None


@pytest.mark.parametrize("mask, limits, reported", [
    ((), (), True), ((Constraint(Linear(-1, (), ((0, 1),))),), (), False),
    ((), (Constraint(Linear(-1, (), ((0, 1),))),), False)])
def test_masks_and_limits__leave_open_where_tiles_begin(mask: tuple, limits: tuple, reported: bool) -> None:
    """Each leaves rows out, so that the parts that remain may begin at other partitions."""
    op = SAMPLES["nisa.tensor_scalar"].make(dst=part(5, 4), src=part(5, 4))
    broken = findings(changed(op, lambda t: replace(t), mask=mask, limits=limits), TRN2)
    assert [type(f.error) for f in broken] == [StartPartition] * (2 * reported)
    assert [f.error.values["operand"] for f in broken] == ["dst", "src"] * reported


@pytest.mark.parametrize("operand, expected, advice", [
    ("index", "an integer type", "convert it first, for example with nl.copy(x, dtype=nl.int32)"),
    ("src", "bfloat16 or float32", "convert it first, for example with nl.copy(x, dtype=nl.bfloat16)"),
    ("src", "float16, float32", "convert it first, for example with nl.copy(x, dtype=nl.float16)"),
    ("src", "a packed type", "convert it first, for example with nl.copy(x, dtype=...)"),
    ("dst", "an integer type", "create it with dtype=nl.int32"), ("dst_scale", "uint8", "create it with dtype=nl.uint8"),
    ("dst", "a packed type", "create it with a packed type")])
def test_advice_about_dtypes__names_the_first_one_that_is_allowed(operand: str, expected: str, advice: str) -> None:
    assert dtype_advice(operand, expected) == advice


def test_operand_with_a_value_for_each_element__is_to_become_a_column() -> None:
    (finding,) = findings(SAMPLES["nisa.tensor_scalar"].make(operand0="sbuf PxFxf32"), TRN2)
    assert str(finding.error) == (
        "error: operand 'operand0' of 'tensor_scalar' has 6 values in each partition; it must have one [NKI-ROW-OPERAND]\n"
        "  fix: give it the shape (4, 1); nisa.tensor_tensor takes one value for each element")


def test_replacement__breaks_only_rules_that_an_instruction_before_it_breaks() -> None:
    right, wrong = (SAMPLES["nisa.tensor_scalar"].make(dst=part(first, 4), src=part(0, 4)) for first in (0, 5))
    unverified = SAMPLES["nisa.tensor_scalar"].make(dst="hbm 4x5xf32", src=part(0, 4))
    assert may_replace(right, [], TRN2) and may_replace(right, [wrong], TRN2)
    assert may_replace(wrong, [right, wrong], TRN2) and not may_replace(wrong, [right], TRN2)
    assert not may_replace(unverified, [unverified], TRN2)


@pytest.mark.parametrize("columns, start, count, bytes_", [
    (1024, 0, 512, None), (1024, 512, 512, None), (1024, 511, 1, None), (1024, 512, 1, None), (1024, 511, 2, (2044, 2051)),
    (1024, 1, 512, (4, 2051)), (1024, 256, 512, (1024, 3071)), (512, 0, 512, None), (512, 1, 511, None)])
def test_result_of_a_product__lies_in_one_bank(columns: int, start: int, count: int, bytes_: tuple[int, int] | None) -> None:
    dst = tile(f"psum 3x{columns}xf32").patterned(free=Linear(start), dims=((1, 3), (1, count)))
    op = SAMPLES["nisa.nc_matmul"].make(dst=dst, moving=f"sbuf Px{count}xf32")
    crossing = [f.error.values for f in findings(op, TRN2) if isinstance(f.error, CrossesBank)]
    assert [(values["first"], values["last"]) for values in crossing] == ([] if bytes_ is None else [bytes_])
