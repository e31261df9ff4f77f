# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Zeros of a tile go where other operations write each element before one reads it, and stay elsewhere."""

import pytest

from nki_mlir.analysis.dead_code import erase_dead_code
from nki_mlir.bindings import ir, operations_of
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context

HEAD = """
#all = affine_set<() : (0 == 0)>
#half = affine_set<()[s0] : (s0 - 1 >= 0)>
#none = affine_set<(d0, d1)[s0] : (s0 - 1 >= 0)>
#whole = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 64]]>
#left = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 128], [1, 32]]>
#right = #nki.access<f32, affine_map<() -> (0, 32)>, [[1, 128], [1, 32]]>
#upper = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 64], [1, 64]]>
#lower = #nki.access<f32, affine_map<() -> (64, 0)>, [[1, 64], [1, 64]]>
#third = #nki.access<f32, affine_map<() -> (32, 0)>, [[1, 32], [1, 64]]>
#moving = #nki.access<f32, affine_map<()[s0] -> (0, s0 * 32)>, [[1, 128], [1, 32]]>
#rows = #nki.access<f32, affine_map<() -> (0)>, [[64, 128], [1, 64]]>
#part = #nki.access<f32, affine_map<() -> (0)>, [[64, 128], [1, 32]]>
#rows32 = #nki.access<f32, affine_map<() -> (0)>, [[64, 32], [1, 64]]>
#rows64 = #nki.access<f32, affine_map<() -> (0)>, [[64, 64], [1, 64]]>
!x = memref<128x64xf32, "hbm">
!t = memref<128x64xf32, "sbuf">
func.func @f(%x: !x, %y: !x, %p: index {nki.program_id = 0}) attributes {nki.grid = [2]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %first = arith.cmpi eq, %p, %c0 : index
  %t = memref.alloc() : !t
  "nki.memset"(%t) {access = [#whole], mask = #all, value = 0.0 : f64} : (!t) -> ()
"""
STORE = '  "nki.store"(%y, %t) {access = [#rows, #whole], mask = #all} : (!x, !t) -> ()\n  return\n}\n'
STORE_LEFT = '  "nki.store"(%y, %t) {access = [#part, #left], mask = #all} : (!x, !t) -> ()\n  return\n}\n'
STORE_THIRD = '  "nki.store"(%y, %t) {access = [#rows32, #third], mask = #all} : (!x, !t) -> ()\n  return\n}\n'

FILL = '  "nki.memset"(%t{}) {{access = [#{}], mask = #all, value = 1.0 : f64}} : (!t{}) -> ()\n'


def fill(part, symbols=""):
    """Return a memset of a part of the tile."""
    return FILL.format(symbols, part, ", index" if symbols else "")


def load(part, source="part", symbols=""):
    index = ", index" if symbols else ""
    return (f'  "nki.load"(%t, %x{symbols}) {{access = [#{part}, #{source}], mask = #all}} : (!t, !x{index}) -> ()\n')


def when(then, otherwise=None):
    side = "" if otherwise is None else f" else {{\n{otherwise}  }}"
    return f"  scf.if %first {{\n{then}  }}{side}\n"


def loop(body):
    return f"  scf.for %i = %c0 to %c2 step %c1 {{\n{body}  }}\n"


ADD = ('  "nki.binary_scalar"(%t, %t) {access = [#left, #left], mask = #all, op = "add", reverse = false, '
       'scalar = 1.0 : f64} : (!t, !t) -> ()\n')


def select(operands, access):
    """Return a predicated copy of a tile of flags, which chooses the elements that it writes."""
    return f"""  %flags = memref.alloc() : memref<128x64xui8, "sbuf">
  %u = memref.alloc() : !t
  "nisa.tensor_copy_predicated"({operands}, %flags) {{access = [{access}, #nki.access<ui8, affine_map<() -> (0, 0)>,
      [[1, 128], [1, 64]]>], engine = "vector", mask = #all, reverse_pred = false}} : (!t, !t, memref<128x64xui8, "sbuf">) -> ()
"""


CASES = {
    "all at once": (load("whole", "rows"), STORE, True),
    "columns": (load("left") + load("right"), STORE, True),
    "rows": (load("upper", "rows64") + load("lower", "rows64"), STORE, True),
    "rows, of which some are read": (load("upper", "rows64"), STORE_THIRD, True),
    "other rows than those that are read": (load("lower", "rows64"), STORE_THIRD, False),
    "half": (load("left"), STORE, False),
    "half, of which that is read": (load("left"), STORE_LEFT, True),
    "a part is read too early": (load("left") + ADD.replace("#left, #left", "#left, #right") + load("right"), STORE, False),
    "in place on what is written": (load("left") + ADD + load("right"), STORE, True),
    "in place on zeros": (ADD + load("whole", "rows"), STORE, False),
    "both sides of a condition": (when(load("left") + load("right"), load("whole", "rows")), STORE, True),
    "one side of a condition": (when(load("whole", "rows")), STORE, False),
    "sides that write other parts": (when(load("left"), load("right")), STORE, False),
    "a condition behind": (load("left") + when(ADD, load("right")), STORE_LEFT, True),
    "a predicated copy that keeps what is written later": (
        select("%t, %u", "#whole, #whole") + load("whole", "rows"), STORE, True),
    "a predicated copy that keeps zeros": (select("%t, %u", "#whole, #whole"), STORE, False),
    "a predicated copy of zeros": (select("%u, %t", "#whole, #whole") + load("whole", "rows"), STORE, False),
    "a loop that reads": (load("left") + loop(ADD), STORE_LEFT, True),
    "a loop that writes": (loop(load("moving", symbols=", %i")), STORE, False),
    "a loop before": (loop(load("left")) + load("whole", "rows"), STORE, True),
    "a loop that reads zeros": (loop(ADD) + load("whole", "rows"), STORE, False),
}


@pytest.mark.parametrize(("body", "end", "goes"), CASES.values(), ids=list(CASES))
def test_zeros(body, end, goes):
    with shared_context():
        module = ir.Module.parse(HEAD + body + end)
        erase_dead_code(the_kernel(module).op)
    assert module.operation.verify()
    assert len(operations_of(module, lambda name: name == "nki.memset")) == (not goes)


@pytest.mark.parametrize(("body", "goes"), [
    (loop(load("moving", symbols=", %i")), True), (loop(load("moving", symbols=", %i") + ADD), True),
    (loop(ADD + load("moving", symbols=", %i")), False), (loop(load("left")), False)])
def test_zeros_that_loops_overwrite(body, goes):
    with shared_context():
        module = ir.Module.parse(HEAD + body + STORE)
        erase_dead_code(the_kernel(module).op, printed=True)
    assert len(operations_of(module, lambda name: name == "nki.memset")) == (not goes)


@pytest.mark.parametrize(("body", "remaining"), [
    (load("right") + fill("left") + load("left"), 0),
    (fill("left") + load("right") + load("left"), 0),
    (fill("left") + load("right"), 1),
    (load("whole", "rows") + fill("left") + fill("right") + load("left"), 1),
    (load("whole", "rows") + fill("left") + ADD + load("left"), 1),
    (loop(fill("moving", ", %i") + load("moving", symbols=", %i")), 0),
    (load("right") + loop(fill("left")) + loop(load("left")), 0),
    (load("right") + loop(ADD + fill("left")) + load("left"), 2),
    (fill("left") + when(load("left"), fill("left")) + load("right"), 1),
    (fill("left") + when(load("left")) + load("right"), 1),
    (load("whole", "rows") + when(fill("left") + load("left"), ADD), 0)])
def test_fills_of_parts(body, remaining):
    """A memset goes if others write each of its elements before one reads it, also in loops; the first one may, too."""
    with shared_context():
        module = ir.Module.parse(HEAD + body + STORE)
        erase_dead_code(the_kernel(module).op, printed=True)
    assert module.operation.verify()
    assert len(operations_of(module, lambda name: name == "nki.memset")) == remaining
