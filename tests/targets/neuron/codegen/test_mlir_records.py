# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A function as records: numbers that registers load from tiles."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.codegen.records import Load, value_range

CONDITION = """module attributes {nki.target = "trn2"} {
  func.func @kernel(%x: memref<4xi32, "hbm"> {nki.name = "x"}) attributes {nki.grid = [], nki.results = []} {
    %row = arith.constant ROW : index
    %column = arith.constant COLUMN : index
    %zero = arith.constant ZERO
    %t = memref.alloc() : memref<3x5xKIND, "sbuf">
    scf.while : () -> () {
      %n = memref.load %t[%row, %column] : memref<3x5xKIND, "sbuf">
      %go = arith.cmpi ne, %n, %zero : KIND
      scf.condition(%go)
    } do {
      scf.yield
    }
    return
  }
}"""


def loaded(kind: str, row: int, column: int) -> Load:
    text = CONDITION.replace("ROW", str(row)).replace("COLUMN", str(column)).replace("KIND", kind).replace(
        "ZERO", "false" if kind == "i1" else f"0 : {kind}")
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        loop, = read_code(the_kernel(module)).body.nodes
    return next(node for node in loop.test.nodes if isinstance(node, Load))


@pytest.mark.parametrize("kind", ["i1", "i8", "i16", "i32"])
@pytest.mark.parametrize("row, column", [(0, 0), (2, 0), (0, 4), (1, 3)])
def test_a_number_that_is_loaded__is_one_of_its_dtype_at_its_place(kind, row, column):
    load, dtype = loaded(kind, row, column), BY_MLIR[kind]
    low, high = value_range(load.variable)
    if kind == "i1":
        assert (low, high) == (0, 1)
    else:
        limits = np.iinfo(dtype.numpy)
        assert low <= limits.min and limits.max <= high and (low, high) == (-2**31, 2**31 - 1)
    access = load.tile.access
    assert (access.dtype, access.partition.const, access.free.const, access.dims) == (dtype, row, column,
                                                                                    ((1, 1), (1, 1)))
