# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules from elsewhere cannot make compiled code leave its buffers; what is in bounds costs no check."""

from typing import Any

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.targets.cpu.kernel import NativeKernel

from .compiled import CompiledModule, compiled

ROW = 'memref<4xf32, strided<[1], offset: ?>, "hbm">'
FUNCTION = """
func.func @f(%x: memref<10x4xf32, "hbm"> {{nki.name = "x"}}, %y: memref<4xf32, "hbm">, %n: memref<1x1xi32, "sbuf">,
             %i: index {{nki.program_id = 0 : i64}}) attributes {{nki.grid = [{grid}]}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10 = arith.constant 10 : index
  {before}
  %a = memref.reinterpret_cast %x to offset: [%at], sizes: [4], strides: [1] : memref<10x4xf32, "hbm"> to """ + ROW + """
  linalg.copy ins(%a : """ + ROW + """) outs(%y : memref<4xf32, "hbm">)
  {after}
  return
}}"""
TIMES_FOUR = "%at = affine.apply affine_map<()[s] -> (s * 4)>()[{0}]"
LOADED = """%v = memref.load %n[%c0, %c0] : memref<1x1xi32, "sbuf">
  %k = arith.index_cast %v : i32 to index
  """


def kernel_of(before: str, after: str = "", grid: int = 1) -> CompiledModule:
    with shared_context(), ir.Location.unknown():
        return compiled(ir.Module.parse(FUNCTION.format(before=before, after=after, grid=grid)), (grid,))


def run(kernel: NativeKernel, number: int = 0) -> np.ndarray:
    x, y = np.arange(40, dtype=np.float32).reshape(10, 4), np.zeros(4, np.float32)
    kernel([x, y, np.array([[number]], np.int32)], [])
    return y


def checks_of(kernel: CompiledModule) -> int:
    names = [i.function if isinstance(i.function, str) else type(i.function).__name__
             for i in kernel.assembly.instructions]
    return names.count("nki_check") + names.count("Limits")


def test_program_id__inside_needs_no_check() -> None:
    kernel = kernel_of(TIMES_FOUR.format("%i"), grid=10)
    assert checks_of(kernel) == 0
    assert run(kernel).tolist() == [36, 37, 38, 39]


def test_program_id__outside_is_an_error() -> None:
    with pytest.raises(OutOfBounds, match=r"`x` on dimension 0 \(flat\): index range \[0, 43\] exceed dimension size of 40"):
        run(kernel_of(TIMES_FOUR.format("%i"), grid=11))


def test_loaded_value__is_checked_when_it_runs() -> None:
    kernel = kernel_of(LOADED + TIMES_FOUR.format("%k"))
    assert checks_of(kernel) == 2
    assert run(kernel, 3).tolist() == [12, 13, 14, 15]
    for number, outside in ((-1, "-4, 39"), (10, "0, 43"), (2**31 - 1, r"0, \d+")):
        with pytest.raises(OutOfBounds, match=rf"index range \[{outside}\] exceed dimension size of 40"):
            run(kernel, number)


def test_loaded_value__that_was_limited_is_proved() -> None:
    kernel = kernel_of(LOADED + "%at = affine.apply affine_map<()[s] -> ((s mod 10) * 4)>()[%k]")
    assert checks_of(kernel) == 0
    assert run(kernel, 13).tolist() == [12, 13, 14, 15]


def test_branch__its_condition_counts() -> None:
    before = LOADED + """%p = arith.cmpi sge, %k, %c0 : index
  %q = arith.cmpi slt, %k, %c10 : index
  %c = arith.andi %p, %q : i1
  scf.if %c {
    """ + TIMES_FOUR.format("%k")
    kernel = kernel_of(before, "}")
    assert checks_of(kernel) == 0
    assert run(kernel, 2).tolist() == [8, 9, 10, 11] and run(kernel, 99).tolist() == [0, 0, 0, 0]


def test_branch__its_condition_does_not_count_behind_it() -> None:
    before = LOADED.replace("index_cast ", "index_castui ") + """%c = arith.cmpi slt, %k, %c10 : index
  scf.if %c {
    linalg.copy ins(%y : memref<4xf32, "hbm">) outs(%y : memref<4xf32, "hbm">)
  }
  """ + TIMES_FOUR.format("%k")
    kernel = kernel_of(before)
    assert checks_of(kernel) > 0
    assert run(kernel, 9).tolist() == [36, 37, 38, 39]
    with pytest.raises(OutOfBounds, match=r"`x` on dimension 0 \(flat\): index range \[0, 43\] exceed"):
        run(kernel, 10)


def test_subview__that_moves_with_a_loop() -> None:
    before = """scf.for %p = %c0 to %c10 step %c1 {
    %row = memref.subview %x[%p, 0] [1, 4] [1, 1] : memref<10x4xf32, "hbm"> to memref<1x4xf32, strided<[4, 1], offset: ?>, "hbm">
    %flat = memref.subview %row[0, 0] [1, 4] [1, 1] : memref<1x4xf32, strided<[4, 1], offset: ?>, "hbm"> to
      memref<4xf32, strided<[1], offset: ?>, "hbm">
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%flat : memref<4xf32, strided<[1], offset: ?>, "hbm">) outs(%y : memref<4xf32, "hbm">) {
    ^bb0(%v: f32, %old: f32):
      %s = arith.addf %v, %old : f32
      linalg.yield %s : f32
    }
  }
  """
    text = FUNCTION.format(before=before, after="", grid=1)
    text = text[:text.index("  %a = memref")] + "  return\n}"
    with shared_context(), ir.Location.unknown():
        kernel = compiled(ir.Module.parse(text), (1,))
    assert run(kernel).tolist() == [180, 190, 200, 210]


def test_inner_loop__bounded_by_an_outer_one() -> None:
    before = """scf.for %p = %c0 to %c10 step %c1 {
    scf.for %q = %c0 to %p step %c1 {
    """ + TIMES_FOUR.format("%q")
    kernel = kernel_of(before, "} }")
    assert checks_of(kernel) == 0
    assert run(kernel).tolist() == [32, 33, 34, 35]


def test_static_offset__outside_fails_where_it_runs() -> None:
    with pytest.raises(OutOfBounds, match=r"index range \[0, 40\] exceed dimension size of 40"):
        run(kernel_of("%at = arith.constant 37 : index"))
    guarded = "%c = arith.cmpi sgt, %i, %c10 : index\n  scf.if %c {\n  %at = arith.constant 37 : index"
    assert run(kernel_of(guarded, "}")).tolist() == [0, 0, 0, 0]


def test_branch__the_opposite_of_its_condition_counts_in_the_other() -> None:
    """In the branch without 9 < k, rows 0 to 9 are inside; in the one without k < 10, no row is."""
    branch = LOADED + """%at_least = affine.max affine_map<()[s] -> (s, 0)>()[%k]
  %c9 = arith.constant 9 : index
  %c = arith.cmpi CONDITION : index
  scf.if %c {
  } else {
    """ + TIMES_FOUR.format("%at_least")
    inside = kernel_of(branch.replace("CONDITION", "sgt, %at_least, %c9"), "}")
    assert checks_of(inside) == 0
    assert run(inside, 9).tolist() == [36, 37, 38, 39] and run(inside, 10).tolist() == [0, 0, 0, 0]
    outside = kernel_of(branch.replace("CONDITION", "slt, %at_least, %c10"), "}")
    assert checks_of(outside) == 2
    assert run(outside, 9).tolist() == [0, 0, 0, 0]
    with pytest.raises(OutOfBounds, match=r"index range \[0, 43\] exceed dimension size of 40"):
        run(outside, 10)


# -- masks -------------------------------------------------------------------------------------------------------------
def masked(mask: str, offset: int = 0, step: int = 1) -> CompiledModule:
    view = f'memref<8x8xf32, strided<[8, {step}], offset: {offset}>, "hbm">'
    text = f"""
func.func @f(%x: memref<50xf32, "hbm"> {{nki.name = "x"}}, %y: memref<8x8xf32, "hbm">) {{
  %a = memref.reinterpret_cast %x to offset: [{offset}], sizes: [8, 8], strides: [8, {step}] : memref<50xf32, "hbm"> to {view}
  linalg.generic {{indexing_maps = [affine_map<(p, f) -> (p, f)>, affine_map<(p, f) -> (p, f)>],
                  iterator_types = ["parallel", "parallel"], nki.mask = affine_set<(p, f) : ({mask})>}}
    ins(%a : {view}) outs(%y : memref<8x8xf32, "hbm">) {{
  ^bb0(%v: f32, %old: f32):
    linalg.yield %v : f32
  }}
  return
}}"""
    with shared_context(), ir.Location.unknown():
        return compiled(ir.Module.parse(text))


def copy(kernel: NativeKernel) -> np.ndarray:
    y = np.zeros((8, 8), np.float32)
    kernel([np.arange(50, dtype=np.float32), y], [])
    return y


def test_mask__that_keeps_inside_needs_no_check() -> None:
    kernel = masked("49 - p * 8 - f >= 0")
    assert checks_of(kernel) == 0
    assert np.count_nonzero(copy(kernel)) == 49


def test_mask__that_may_not_is_checked_element_by_element() -> None:
    fine = masked("p - f >= 0, 11 - p - f >= 0, 5 - p >= 0")        # true of no element that is outside, but not proved
    assert np.array_equal(copy(fine) > 0, [[p >= f and p <= 5 and p * 8 + f > 0 for f in range(8)] for p in range(8)])
    with pytest.raises(OutOfBounds, match="an index is 14 elements outside"):
        copy(masked("p - f >= 0"))
    with pytest.raises(OutOfBounds, match="an index is 6 elements outside"):
        copy(masked("5 - p >= 0", 8))
    with pytest.raises(OutOfBounds, match="an index is 2 elements outside"):
        copy(masked("4 - p >= 0, 5 - f >= 0", 3, -1))               # before the first element


def loop_until(limit: int) -> Any:
    return f"""
func.func @f(%y: memref<4xf32, "hbm">) {{
  %c0 = arith.constant 0 : index
  %n = memref.alloc() : memref<1x1xi32, "sbuf">
  %zero = arith.constant 0 : i32
  linalg.fill ins(%zero : i32) outs(%n : memref<1x1xi32, "sbuf">)
  %limit = arith.constant {limit} : i32
  scf.while : () -> () {{
    %v = memref.load %n[%c0, %c0] : memref<1x1xi32, "sbuf">
    %more = arith.cmpi slt, %v, %limit : i32
    scf.condition(%more)
  }} do {{
    %t = memref.alloc() : memref<4xf32, "sbuf">
    linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
      ins(%y : memref<4xf32, "hbm">) outs(%t : memref<4xf32, "sbuf">) {{
    ^bb0(%a: f32, %old: f32):
      %two = arith.constant 2.0 : f32
      %r = arith.mulf %a, %two : f32
      linalg.yield %r : f32
    }}
    linalg.copy ins(%t : memref<4xf32, "sbuf">) outs(%y : memref<4xf32, "hbm">)
    linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      outs(%n : memref<1x1xi32, "sbuf">) {{
    ^bb0(%old: i32):
      %one = arith.constant 1 : i32
      %r = arith.addi %old, %one : i32
      linalg.yield %r : i32
    }}
    scf.yield
  }}
  return
}}"""


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_while__runs_until_a_buffer_says_so(limit: int) -> None:
    with shared_context(), ir.Location.unknown():
        kernel = compiled(ir.Module.parse(loop_until(limit)))
    y = np.ones(4, np.float32)
    kernel([y], [])
    assert y.tolist() == [2.0**limit] * 4


@pytest.mark.parametrize("kind, dtype", [("i8", np.int8), ("i16", np.int16), ("i32", np.int32)])
@pytest.mark.parametrize("cast", ["index_cast", "index_castui"])
def test_loaded_value__keeps_its_sign_or_its_bits(cast: str, kind: str, dtype: type[np.generic]) -> None:
    text = FUNCTION.replace("memref<1x1xi32", f"memref<1x1x{kind}").format(before=f"""
  %v = memref.load %n[%c0, %c0] : memref<1x1x{kind}, "sbuf">
  %k = arith.{cast} %v : {kind} to index
  %at = affine.apply affine_map<()[s] -> ((s mod 7) * 4)>()[%k]""", after="", grid=1)
    with shared_context(), ir.Location.unknown():
        kernel = compiled(ir.Module.parse(text), (1,))
    bits = 8 * np.dtype(dtype).itemsize
    for number in (0, 1, 100, -1, -3, -100, 2**(bits - 1) - 1, -2**(bits - 1)):
        x, y = np.arange(40, dtype=np.float32).reshape(10, 4), np.zeros(4, np.float32)
        kernel([x, y, np.array([[number]], dtype)], [])
        row = (number if cast == "index_cast" else number % 2**bits) % 7
        assert y.tolist() == x[row].tolist()
