# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that get the dtype of the tensor whose transpose they keep."""

import ast

import pytest

from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
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
    ("t[...] = nisa.nc_transpose(p); u[...] = nl.copy(src=t)", {}),                     # only what comes first is looked at
    ("t = nisa.nc_transpose(p)", {}), ("t[...] = nl.copy(p)", {})])
def test_tiles_that_only_transposes_write(statements, expected):
    function, = ast.parse(f"def kernel():\n    {statements}").body
    assert transposed_tiles(function, ast.unparse) == expected


HELPER = """def transpose_into(to, tile):
    for i in nl.affine_range(2):
        bank = nl.ndarray((par_dim(128), 128), dtype=np.float32, buffer=nl.psum)
        bank[:, :] = nisa.nc_transpose(tile[:, nl.ds(i * 128, 128)])
        to[:, nl.ds(i * 128, 128)] = nl.copy(bank, dtype=to.dtype)


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 256), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    result = nl.ndarray((128, 256), dtype=x.dtype)
    transpose_into(result, tile)
    nl.store(out, result)
    return out
"""


def test_helper_whose_parameters_have_one_dtype_transposes_into_the_bank():
    new = rewritten("import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n"
                    f"import numpy as np\nfrom neuronxcc.nki.language import par_dim\n\n\n{HELPER}", MigrationReport("k.py"))
    assert """        bank = nl.ndarray((128, 128), dtype=tile.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=bank, data=tile[:, nl.ds(i * 128, 128)])
        nisa.tensor_copy(dst=to[:, nl.ds(i * 128, 128)], src=bank)
""" in new


def test_axes_of_a_transfer_give_the_shape_of_a_tensor_that_the_text_does_not_show():
    new = rewritten("""import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((64, 4, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nisa.dma_transpose(x, axes=(2, 1, 0))
    nl.store(out, t)
    return out
""", MigrationReport("k.py"))
    assert "t = nl.ndarray((x.shape[2], x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.sbuf)" in new
