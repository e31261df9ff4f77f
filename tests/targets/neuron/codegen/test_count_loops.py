# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that do not count exactly from a constant to a constant keep their counters in tiles."""

from pathlib import Path

import pytest

import nki_mlir

TEXT = Path(__file__).parents[4].joinpath("lit_tests/nisa/count-loops.mlir").read_text()
FIRST, STEP, ELEMENT = "value = 1.0", "imm0 = 3.0", "memref<1x1xi32"
ALL, NONE = "#all = affine_set<() : (0 == 0)>", "#never = affine_set<() : (0 - 1 >= 0)>"


def loops(text: str) -> tuple[int, int]:
    """Return how many loops of a text have known bounds, and how many read a tile, after the pass."""
    printed = str(nki_mlir.opt(text, "count-loops"))
    return printed.count("scf.for"), printed.count("scf.while")


def test_loops_between_constants() -> None:
    assert loops(TEXT) == (2, 1)


@pytest.mark.parametrize("old, new", [
    (STEP, "imm0 = 0.0"), (STEP, "imm0 = -1.0"), (STEP, "imm0 = 2.5"), (FIRST, "value = 0.5"),
    (STEP, "imm0 = 16777216.0"), (FIRST, "value = -16777217.0")])
def test_counters_that_do_not_grow_exactly_stay_in_tiles(old: str, new: str) -> None:
    assert loops(TEXT.replace(old, new, 1)) == (1, 2)


@pytest.mark.parametrize("instruction", ('"nisa.memset"(%i)', '"nisa.tensor_scalar"(%i, %i)'))
def test_counters_that_are_written_under_a_mask_stay_in_tiles(instruction: str) -> None:
    start = TEXT.index(instruction)
    masked = TEXT[:start] + TEXT[start:].replace("mask = #all", "mask = #never", 1)
    assert loops(masked.replace(ALL, f"{ALL}\n{NONE}")) == (1, 2)
