# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views on the way to instructions: a tile keeps its partitions, ``memref``'s own views have to show theirs."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import read_op, shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets.interpreter.module import compile_function

from .nisa_level import check, floats, instructions

SOURCE = """
func.func @k(%x: memref<8x32xf32, "hbm"> {{nki.name = "x"}},
             %r: memref<4x8xf32, "hbm"> {{nki.name = "r", nki.shared = 0 : i64}}) attributes {{nki.results = [1]}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %t = memref.alloc() : memref<8x32xf32, "sbuf">
  %y = memref.alloc() : memref<4x8xf32, "sbuf">
  linalg.generic {{indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}}
    ins(%x : memref<8x32xf32, "hbm">) outs(%t : memref<8x32xf32, "sbuf">) {{
  ^bb0(%p: f32, %q: f32):
    linalg.yield %p : f32
  }}
  scf.for %i = %c0 to %c2 step %c1 {{
    {view}
    linalg.generic {{indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}}
      ins(%v : {kind}) outs(%y : memref<4x8xf32, "sbuf">) {{
    ^bb0(%p: f32, %q: f32):
      %n = "scalar.alu"(%p, %p) {{fn = "add"}} : (f32, f32) -> f32
      linalg.yield %n : f32
    }}
  }}
  linalg.generic {{indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}}
    ins(%y : memref<4x8xf32, "sbuf">) outs(%r : memref<4x8xf32, "hbm">) {{
  ^bb0(%p: f32, %q: f32):
    linalg.yield %p : f32
  }}
  return
}}"""
ROWS = 'memref<4x8xf32, strided<[32, 1], offset: ?>, "sbuf">'
LANE = 'memref<4x8xf32, strided<[0, 1], offset: 66>, "sbuf">'
CUT = 'memref<4x8xf32, strided<[32, 2], offset: ?>, "sbuf">'


def module_with(view: str, kind: str):
    with shared_context():
        return ir.Module.parse("#same = affine_map<(d0, d1) -> (d0, d1)>" + SOURCE.format(view=view, kind=kind))


def at(mapping: str, *operands: str) -> str:
    return (f"%at = affine.apply affine_map<{mapping}>()[%i]\n"
            f"%v = memref.reinterpret_cast %t to offset: [%at], sizes: [4, 8], strides: [32, 1] "
            f': memref<8x32xf32, "sbuf"> to {ROWS}')


@pytest.mark.parametrize("view, kind, partition, free, dims, expected", [
    (at("()[s0] -> (s0 * 64 + 67)"), ROWS, (2, ((0, 2),)), (3, ()), ((1, 4), (1, 8)), lambda x: x[4:8, 3:11]),
    (at("()[s0] -> (s0 * -40 + 100)"), ROWS, (3, ((0, -1),)), (4, ((0, -8),)), None, None),
    (at("()[s0] -> (s0 * 41 + 32)"), ROWS, (1, ((0, 1),)), (0, ((0, 9),)), ((1, 4), (1, 8)), lambda x: x[2:6, 9:17]),
    ('%v = memref.reinterpret_cast %t to offset: [66], sizes: [4, 8], strides: [0, 1] '
     f': memref<8x32xf32, "sbuf"> to {LANE}', LANE, (2, ()), (2, ()), ((0, 4), (1, 8)),
     lambda x: np.repeat(x[2:3, 2:10], 4, axis=0)),
    (f'%v = memref.subview %t[%i, 3] [4, 8] [1, 2] : memref<8x32xf32, "sbuf"> to {CUT}', CUT, (0, ((0, 1),)), (3, ()),
     ((1, 4), (2, 8)), lambda x: x[1:5, 3:19:2]),
    (f'%v = memref.subview %t[2, %i] [4, 8] [1, 2] : memref<8x32xf32, "sbuf"> to {CUT}', CUT, (2, ()), (0, ((0, 1),)),
     ((1, 4), (2, 8)), lambda x: x[2:6, 1:17:2]),
], ids=["rows", "backwards", "diagonal", "one lane", "subview of rows", "subview of columns"])
def test_memref_view__shows_its_partitions(view, kind, partition, free, dims, expected):
    module = module_with(view, kind)
    if expected is None:                        # for i = 1 it would begin at element 28, and end in the next partition
        with pytest.raises(Unsupported, match="in several partitions by one offset"):
            run_passes(module, [pass_named("linalg-to-nisa")])
        return
    x = floats(8, 32)
    waist = run(module, x)
    run_passes(module, [pass_named("linalg-to-nisa")])
    assert module.operation.verify()
    access, = {tile.access for op in map(read_op, instructions(module)) for _, tile in op.sources()
               if tile.base_shape == (8, 32) and tile.on_chip}
    assert (access.partition.const, access.partition.symbols) == partition
    assert (access.free.const, access.free.symbols) == free and access.dims == dims
    np.testing.assert_array_equal(waist, 2 * expected(x))
    np.testing.assert_array_equal(run(module, x), waist)


def run(module, x: np.ndarray) -> np.ndarray:
    result = np.zeros((4, 8), np.float32)
    compile_function(the_kernel(module))((), [x], [result])
    return result


def test_memref_view__over_the_end_of_a_row_is_refused():
    """Elements 28 to 35 are in two partitions: no pattern of an engine has them."""
    view = "memref<4x8xf32, strided<[32, 1], offset: 28>, \"sbuf\">"
    module = module_with("%v = memref.reinterpret_cast %t to offset: [28], sizes: [4, 8], strides: [32, 1] "
                         f': memref<8x32xf32, "sbuf"> to {view}', view)
    with pytest.raises(Unsupported, match="rows in several partitions by one offset"):
        run_passes(module, [pass_named("linalg-to-nisa")])


def test_tile__that_a_mask_cuts_keeps_its_partitions():
    """From column -2 i, of which a mask takes out what is before the row: as a flat offset, of the partition before."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 4, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        p, f = nl.mgrid[0:4, 0:40]
        for i in nl.affine_range(3):
            moved = nl.zeros((4, 40), x.dtype, buffer=nl.sbuf)
            moved[p, f] = nl.multiply(tile[p + i, f - 12 * i], 2.0, mask=(f >= 12 * i) & (f + p < 50))
            nl.store(out[i, p, f], moved)
        return out
    x = floats(6, 40)
    module, result = check(kernel, x)
    expected = np.zeros((3, 4, 40), np.float32)
    for i, p, f in np.ndindex(expected.shape):
        if f >= 12 * i and f + p < 50:
            expected[i, p, f] = 2 * x[p + i, f - 12 * i]
    np.testing.assert_array_equal(result, expected)
