# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A function as records: numbers that registers load from tiles."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.targets.neuron.codegen.code_writer import write_code
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.codegen.records import Load, tiles_of, value_range

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



def part_of_program(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows, columns = nl.ds(nl.program_id(0) * 8, 8), nl.ds(nl.program_id(1) * 4, 4)
    nl.store(out[rows, columns], nl.load(x[rows, columns]) * 2.0)
    return out


def columns_of_program(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    columns = nl.ds(nl.program_id(1) * 4, 4)
    nl.store(out[:, columns], nl.load(x[:, columns]))
    return out


@pytest.mark.filterwarnings("ignore:.*NKI-SAME-WRITES")
@pytest.mark.parametrize("function", [part_of_program, columns_of_program], ids=lambda f: f.__name__)
@pytest.mark.parametrize("grid", [(2, 3), (1, 3), (2, 1)], ids=str)
def test_program_ids__that_instructions_read_stay_arguments(function, grid):
    """Writing the records of a kernel back leaves its arguments and what its instructions read."""
    module = nki.jit(function)[grid].lower(np.zeros((8 * grid[0], 4 * grid[1]), np.float32)).module("nisa")
    with module.context, ir.Location.unknown():
        kernel = the_kernel(module)
        arguments, before = kernel.arguments, read_code(kernel)
        write_code(kernel, before)
        assert module.operation.verify()
        after = read_code(the_kernel(module))
        assert the_kernel(module).arguments == arguments and the_kernel(module).grid == grid
        text = str(module)
        write_code(the_kernel(module), after)
    assert str(module) == text
    used = [0, 1] if function is part_of_program else [1]
    for code in (before, after):
        assert [(p.axis, value_range(p)) for p in code.programs] == [(k, (0, grid[k] - 1)) for k in used if grid[k] > 1]
    accesses = [[(type(node.op), [tile.access for tile in tiles_of(node)]) for node in code.body.nodes]
                for code in (before, after)]
    assert accesses[0] == accesses[1] and len(accesses[0]) >= 2
