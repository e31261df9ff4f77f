# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A function that was read into records and written back: its text, its attributes and its source lines stay."""

from dataclasses import replace

import pytest

from nki_mlir.bindings import Operation, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.targets.neuron.codegen.code_writer import write_code
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.codegen.records import Block, Branch

# Constants of the head are in the opposite order of their first uses.
EVERYTHING = """#map = affine_map<() -> (0, 0)>
#map1 = affine_map<() -> (0)>
#map2 = affine_map<()[s0] -> (s0 * 2)>
#set = affine_set<() : (0 == 0)>
module attributes {nki.target = "trn2"} {
  memref.global "private" constant @table : memref<2x3xf32, "hbm"> = dense<1.500000e+00>
  func.func @kernel(%arg0: memref<4x4xf32, "hbm"> {nki.name = "x"}, %arg1: memref<4x4xf32, "hbm"> {nki.name = "o", \
nki.shared = 0 : i64}, %arg2: index {nki.program_id = 0 : i64}) attributes {nki.grid = [3], nki.results = [1]} {
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c0 = arith.constant 0 : index
    %c3 = arith.constant 3 : index
    %c1 = arith.constant 1 : index
    %0 = memref.get_global @table : memref<2x3xf32, "hbm">
    %alloc = memref.alloc() {nki.name = "t"} : memref<2x3xf32, "sbuf">
    %alloc_0 = memref.alloc() {nki.address = [32, 64]} : memref<4x3x5xi32, "sbuf">
    %alloc_1 = memref.alloc() {nki.address = [0, 128], nki.other = 5 : i64, nki.placed} : memref<4x3xi1, "sbuf">
    %alloc_2 = memref.alloc() {nki.addresses = [[0, 32, 8], [3, 64, 1024]]} : memref<4x2x16xf32, "psum">
    %alloc_3 = memref.alloc() {nki.addresses = [[32, 8], [64, 3072]]} : memref<4x2x16xf32, "sbuf">
    "nisa.dma_copy"(%alloc, %0) {access = [#nki.access<f32, #map, [[1, 2], [1, 3]]>, \
#nki.access<f32, #map1, [[3, 2], [1, 3]]>], engine = "sync", mask = #set} : (memref<2x3xf32, "sbuf">, \
memref<2x3xf32, "hbm">) -> ()
    scf.while : () -> () {
      %1 = memref.load %alloc_1[%c3, %c1] : memref<4x3xi1, "sbuf">
      %2 = arith.index_castui %1 : i1 to index
      %3 = arith.cmpi ne, %2, %c0 : index
      scf.condition(%3)
    } do {
      %1 = memref.load %alloc_0[%c2, %c1, %c4] : memref<4x3x5xi32, "sbuf">
      %2 = arith.index_cast %1 : i32 to index
      %3 = arith.cmpi slt, %2, %arg2 : index
      scf.if %3 {
        %alloc_4 = memref.alloc() : memref<2x3xf32, "sbuf">
        "nisa.tensor_copy"(%alloc_4, %alloc) {access = [#nki.access<f32, #map, [[1, 2], [1, 3]]>, \
#nki.access<f32, #map, [[1, 2], [1, 3]]>], engine = "vector", mask = #set} : \
(memref<2x3xf32, "sbuf">, memref<2x3xf32, "sbuf">) -> ()
      } else {
        scf.for %arg3 = %c0 to %c4 step %c2 {
          %4 = affine.apply #map2()[%arg3]
          %5 = arith.minsi %2, %4 : index
          %6 = arith.cmpi sge, %5, %c0 : index
          scf.if %6 {
          }
        } {nki.loop = "sequential"}
      }
      scf.yield
    }
    return
  }
}
"""


def operations(operation: Operation) -> list[Operation]:
    """Return an operation and all in it, in order."""
    return [operation, *(inner for region in operation.regions for block in region for op in block
                         for inner in operations(op.operation))]


def test_text_and_source_lines_stay() -> None:
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(EVERYTHING)
        before = [(op.name, location_of(op)) for op in operations(module.operation)]
        write_code(the_kernel(module), read_code(the_kernel(module)))
        assert module.operation.verify()
        assert str(module) == EVERYTHING
        after = [(op.name, location_of(op)) for op in operations(module.operation)]
    # numbers belong to no statement, nor does the end of a block
    shared = [k for k, (name, _) in enumerate(before) if name not in ("arith.constant", "scf.yield", "func.return")]
    assert [after[k][0] for k in shared] == [before[k][0] for k in shared]
    lines = {before[k][0]: (before[k][1], after[k][1]) for k in shared}
    assert all(location is not None for location, _ in lines.values())
    for name in ("memref.get_global", "memref.alloc", "memref.load", "nisa.dma_copy", "nisa.tensor_copy", "scf.if",
                 "scf.for", "scf.while"):
        assert lines[name][0] == lines[name][1], name


PROGRAMS = """module attributes {nki.target = "trn2"} {
  func.func @kernel(%x: memref<4x4xf32, "hbm"> {nki.name = "x"}, %p: index {nki.program_id = 0 : i64}, \
%q: index {nki.program_id = 1 : i64}, %o: memref<4x4xf32, "hbm"> {nki.name = "o", nki.shared = 0 : i64}, \
%r: index {nki.program_id = 2 : i64}) attributes {nki.grid = [3, 2, 5], nki.results = [3, 0]} {
    %go = arith.cmpi eq, %q, %q : index
    scf.if %go {
    }
    return
  }
}
"""


@pytest.mark.parametrize("left", [(0, 1, 2), (1,), (1, 2), (0, 1)], ids=str)
def test_program_ids_that_the_code_lacks__are_no_arguments(left) -> None:
    """Loops over programs replace them; the numbers of results follow."""
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(PROGRAMS)
        arguments = the_kernel(module).arguments
        code = read_code(the_kernel(module))
        code.programs = [p for p in code.programs if p.axis in left]
        code.grid = tuple(n if k in left else 1 for k, n in enumerate((3, 2, 5)))
        write_code(the_kernel(module), code)
        assert module.operation.verify()
        kernel = the_kernel(module)
        kinds = [str(t) for t in kernel.op.attributes["function_type"].value.inputs]
    assert kernel.grid == code.grid
    assert [(a.kind, a.index) for a in kernel.arguments] == [
        (a.kind, a.index) for a in arguments if a.kind != "program_id" or a.index in left]
    assert kernel.inputs + kernel.shared == [a for a in arguments if a.kind != "program_id"]
    assert [kernel.arguments[k].kind for k in kernel.results] == ["shared", "input"]
    assert kinds == ["index" if a.kind == "program_id" else 'memref<4x4xf32, "hbm">' for a in kernel.arguments]


def test_a_condition_of_two_branches__is_computed_in_each() -> None:
    """A value that one block computes is not known in another one."""
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(PROGRAMS)
        code = read_code(the_kernel(module))
        branch, = code.body.nodes
        assert isinstance(branch, Branch)
        first, second = (replace(branch, then=Block(), otherwise=Block()) for _ in range(2))
        code.body.nodes = [replace(branch, condition=1, then=Block([first]), otherwise=Block([second]))]
        write_code(the_kernel(module), code)
        assert module.operation.verify()
        assert str(module).count("arith.cmpi eq, %arg2, %arg2") == 2


def test_unsigned_comparisons__are_refused() -> None:
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(PROGRAMS.replace("cmpi eq", "cmpi ult"))
        with pytest.raises(Unsupported) as raised:
            read_code(the_kernel(module))
    assert str(raised.value) == ("-:3:11: error: 'arith.cmpi' in an instruction stream is not supported "
                                 "[NKI-UNSUPPORTED]\n  fix: lower to the nisa level")
