# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles in lists, tuples and dictionaries, also as arguments of functions that call no operation; shapes of such tiles."""

import numpy as np

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from tests.migration.test_helpers import HEAD, same_values

RANDOM = np.random.default_rng(5)
GROUPS = """def total_of(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def scaled(group):
    tile, factor = group
    return tile * factor


def entry(table, key):
    return table[key] - 1.0


@nki.jit
def kernel(x):
    rows, cols = x.shape
    out = nl.ndarray((3, rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows + 127) // 128):
        ip, jf = nl.mgrid[0:128, 0:cols]
        mask = i * 128 + ip < rows
        tile = nl.load(x[i * 128 + ip, jf], mask=mask)
        nl.store(out[0, i * 128 + ip, jf], total_of([tile, tile, tile]), mask=mask)
        nl.store(out[1, i * 128 + ip, jf], scaled((tile, 3.0)), mask=mask)
        nl.store(out[2, i * 128 + ip, jf], entry({"a": tile}, "a"), mask=mask)
    return out
"""
SHAPES = """@nki.jit
def kernel(x, column):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, narrow = nl.load(x), nl.load(column)
    nl.store(out, tile * narrow.reshape((32, 4, 1)))
    return out
"""
UNKNOWN = """@nki.jit
def kernel(x, column):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = {"x": nl.load(x), "column": nl.load(column)}
    nl.store(out, tiles["x"] * tiles["column"])
    return out
"""


def test_functions_of_groups_of_tiles_are_rewritten():
    new = same_values(GROUPS)
    assert "total = nl.add(total, part)" in new and "return nl.multiply(tile, factor, dtype=nl.float32)" in new
    assert "return nl.subtract(table[key], 1.0, dtype=nl.float32)" in new


def test_one_element_along_an_axis_is_repeated_for_a_tile_of_unknown_shape():
    new = same_values(SHAPES, arguments=(RANDOM.random((32, 4, 8), np.float32), RANDOM.random((32, 4), np.float32)))
    assert "nl.multiply(tile, nl.broadcast_to(narrow.reshape((32, 4, 1)), tile.shape))" in new


def test_the_report_says_that_two_tiles_of_unknown_shapes_must_be_alike():
    report = MigrationReport("kernel.py")
    assert 'nl.multiply(tiles["x"], tiles["column"])' in rewritten(HEAD + UNKNOWN, report)
    assert [e.line for e in report.entries if e.text.startswith("the text does not show the shapes of both tiles, "
                                                                "which must be the same: ")] == [11]
    same_values(UNKNOWN, arguments=(RANDOM.random((32, 8), np.float32), RANDOM.random((32, 8), np.float32)))
