# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops over conditions that the device computes."""

import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from .test_text import HEAD, assert_same_values, floats, migrated

HALVED = """def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    left = nl.full((1, 1), 3, nl.{dtype})
    going = nt.scalar(True)
    while going:
        # half of it
        tile[...] = nl.multiply(tile, 0.5)
        {inner}left[...] = nl.subtract(left, 1)
        going = nt.scalar({condition})
    nl.store(out, tile)
    return out
"""
PLAIN = {"dtype": "int32", "inner": "", "condition": "left"}


def test_condition_is_in_a_register_and_the_body_is_a_function(tmp_path):
    kernel = HALVED.format(**PLAIN)
    assert """    going = nisa.register_alloc(1)
    def repeat(going):
        # half of it
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
        nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
        nisa.register_load(dst=going, src=left)
        return going
    nl.while_loop(going, repeat)
    nl.store(out, tile)
""" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(32, 8))


@pytest.mark.parametrize(("dtype", "condition"), [
    ("float32", "left"), ("float32", "nl.greater(left, 0)"), ("int32", "left > 1"), ("bfloat16", "left")])
def test_condition_that_is_no_integer_is_compared_with_zero(dtype, condition, tmp_path):
    assert_same_values(HALVED.format(dtype=dtype, inner="", condition=condition), tmp_path, floats(32, 8))


def test_loop_in_a_loop(tmp_path):
    inner = """again = nl.full((1, 1), 2, nl.int32)
        more = nt.scalar(True)
        while more:
            tile[...] = nl.add(tile, 1.0)
            again[...] = nl.subtract(again, 1)
            more = nt.scalar(again)
        """
    kernel = HALVED.format(dtype="int32", inner=inner, condition="left")
    assert "def repeat_2(more):" in migrated(kernel)
    assert_same_values(kernel, tmp_path, floats(32, 8))


@pytest.mark.parametrize(("change", "why"), [
    ({"inner": "if x.shape[0] > 3: break\n        "}, "a loop over nt.scalar with else, break, continue or return"),
    ({"inner": "tile = nl.multiply(tile, 2.0)\n        "},
     "a loop over nt.scalar that assigns tile anew: update it in place"),
    ({"condition": "tile"}, "nt.scalar of a value that the text does not show to be a tile of one element")])
def test_left(change, why):
    report = MigrationReport("kernel.py")
    rewritten(HEAD + HALVED.format(**PLAIN | change), report)
    assert [e.text for e in report.entries if e.left] == [why]


def test_condition_that_begins_with_a_tile_is_left():
    report = MigrationReport("kernel.py")
    rewritten(HEAD + HALVED.format(**PLAIN).replace("nt.scalar(True)", "nt.scalar(left)"), report)
    assert ("nt.scalar whose first value is not True: keep the condition in a register (nisa.register_load), and loop "
            "by nl.while_loop") in [e.text for e in report.entries if e.left]
