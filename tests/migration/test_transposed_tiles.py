# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that get the dtype of the tensor whose transpose they keep."""

import ast

import pytest

from nki_mlir.migration.transposed_tiles import transposed_tiles


@pytest.mark.parametrize("statements, expected", [
    ("t[...] = nisa.nc_transpose(p); u[...] = nl.copy(t)", {"t": "p"}),
    ("t[0:4] = nisa.nc_transpose(data=p[0]); t[4:8] = nisa.nc_transpose(p[1])", {"t": "p"}),
    ("t[...] = nisa.nc_transpose(nl.load(x)); u = nisa.tensor_copy(t[0], dtype=nl.float32)", {"t": "x"}),
    ("t[0:4] = nisa.nc_transpose(p); t[4:8] = nisa.nc_transpose(q)", {}),               # of two dtypes, perhaps
    ("t[...] = nisa.nc_transpose(p + q)", {}),
    ("t[...] = nisa.nc_transpose(nl.load(x, dtype=nl.float32))", {}),                   # not the dtype of x
    ("t[...] = nisa.nc_transpose(p); u = nl.copy(t)", {}),                              # u gets the dtype of t
    ("t[...] = nisa.nc_transpose(p); u = nl.add(t, 1.0)", {}),
    ("t = nisa.nc_transpose(p)", {}), ("t[...] = nl.copy(p)", {})])
def test_tiles_that_only_transposes_write(statements, expected):
    function, = ast.parse(f"def kernel():\n    {statements}").body
    assert transposed_tiles(function, ast.unparse) == expected
