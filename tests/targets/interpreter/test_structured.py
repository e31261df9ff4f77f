# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interpreter on structured operations, also in forms that no conversion of ours writes."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import new_context
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.targets.interpreter.module import compile_function
from nki_mlir.targets.interpreter.scalars import scalar_function
from nki_mlir.waist.reader import scalar_value

MAPS = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#none = affine_map<(d0, d1) -> ()>
"""


def run(text, *arrays, point=()):
    """The arrays after the module's function ran on copies of them."""
    with new_context():
        module = ir.Module.parse(MAPS + text)
    after = [a.copy() for a in arrays]
    compile_function(the_kernel(module))(point, after, [])
    return after


def numbers(*shape, dtype=np.float32):
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 8).astype(dtype)


A, B = numbers(4, 6), numbers(4, 6)


def test_body__takes_numbers_from_outside():
    text = """func.func @f(%a: memref<4x6xf32>, %o: memref<4x6xf32>, %p: index {nki.program_id = 0 : i64}) attributes {nki.grid = [9]} {
      %k = arith.index_cast %p : index to i32
      linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : memref<4x6xf32>) outs(%o : memref<4x6xf32>) {
      ^bb0(%x: f32, %z: f32):
        %f = arith.sitofp %k : i32 to f32
        %r = arith.addf %x, %f : f32
        linalg.yield %r : f32
      }
      return
    }"""
    np.testing.assert_array_equal(run(text, A, 0 * A, point=(5,))[1], A + 5)


def test_select__of_arrays_takes_each_element_from_one():
    with new_context():
        module = ir.Module.parse("""func.func @f(%c: i1, %a: index, %b: index) -> index {
          %r = arith.select %c, %a, %b : index
          return %r : index
        }""")
        operation = module.body.operations[0].regions[0].blocks[0].operations[0]
        function = scalar_function(scalar_value(operation.operation))
    assert function(np.array([True, False]), np.array([1, 2]), np.array([3, 4])).tolist() == [1, 4]
    assert function(True, 1, 2) == 1 and function(False, 1, 2) == 2


# -- bodies ------------------------------------------------------------------------------------------------------------
def body(operations, kind="f32", result="f32"):
    return f"""func.func @f(%a: memref<4x6x{kind}>, %b: memref<4x6x{kind}>, %o: memref<4x6x{result}>) {{
      linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}}
          ins(%a, %b : memref<4x6x{kind}>, memref<4x6x{kind}>) outs(%o : memref<4x6x{result}>) {{
      ^bb0(%x: {kind}, %y: {kind}, %z: {result}):
        {operations}
        linalg.yield %r : {result}
      }}
      return
    }}"""


@pytest.mark.parametrize("operations, expected", [
    ("%r = arith.addf %x, %y : f32", lambda x, y: x + y),
    ("%s = arith.subf %x, %y : f32\n %r = math.exp %s : f32", lambda x, y: np.exp(x - y)),
    ("%c = arith.constant 2.0 : f32\n %r = arith.divf %c, %y : f32", lambda x, y: np.float32(2) / y),
    ("%c = arith.cmpf ogt, %x, %y : f32\n %r = arith.select %c, %x, %y : f32", np.maximum),
    ("%c = arith.cmpf une, %x, %x : f32\n %r = arith.select %c, %x, %y : f32", lambda x, y: y),
    ("%n = arith.negf %x : f32\n %m = arith.mulf %n, %y : f32\n %r = arith.addf %m, %x : f32", lambda x, y: -x * y + x),
    ("%h = arith.truncf %x : f32 to bf16\n %r = arith.extf %h : bf16 to f32",
     lambda x, y: x.astype("bfloat16").astype(np.float32)),
    ("%i = arith.fptosi %x : f32 to i32\n %r = arith.sitofp %i : i32 to f32", lambda x, y: np.trunc(x)),
    ("%r = math.powf %x, %x : f32", lambda x, y: np.power(x, x)),
    ("%i = linalg.index 1 : index\n %j = arith.index_cast %i : index to i32\n %r = arith.sitofp %j : i32 to f32",
     lambda x, y: np.arange(6, dtype=np.float32) + 0 * x),
    ("%i = linalg.index 0 : index\n %j = linalg.index 1 : index\n"
     "%k = affine.apply affine_map<(d0) -> (3 - d0)>(%i)\n"
     "%l = memref.load %a[%k, %j] : memref<4x6xf32>\n %r = arith.addf %l, %y : f32", lambda x, y: x[::-1] + y),
])
def test_body__of_float_operations(operations, expected):
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(body(operations), A, B, 0 * A)[2], expected(A, B))


@pytest.mark.parametrize("operations, expected", [
    ("%r = arith.addi %x, %y : i32", lambda x, y: x + y),
    ("%r = arith.divsi %x, %y : i32", lambda x, y: np.trunc(x / y).astype(np.int32)),
    ("%r = arith.remsi %x, %y : i32", np.fmod),
    ("%r = arith.shrui %x, %y : i32", lambda x, y: (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32)),
    ("%r = arith.maxui %x, %y : i32", lambda x, y: np.maximum(x.view(np.uint32), y.view(np.uint32)).view(np.int32)),
    ("%c = arith.cmpi ult, %x, %y : i32\n %r = arith.extui %c : i1 to i32",
     lambda x, y: (x.view(np.uint32) < y.view(np.uint32)).astype(np.int32)),
    ("%s = arith.trunci %x : i32 to i8\n %r = arith.extui %s : i8 to i32", lambda x, y: x & 255),
])
def test_body__of_integer_operations(operations, expected):
    x, y = (np.random.default_rng(k).integers(-2**31, 2**31, (4, 6), np.int32) for k in range(2))
    y = y & 31 if "shrui" in operations else y
    np.testing.assert_array_equal(run(body(operations, "i32", "i32"), x, y, 0 * x)[2], expected(x, y))


def test_body__takes_constants_from_outside():
    text = body("%s = arith.mulf %x, %two : f32\n %r = arith.addf %s, %two : f32").replace(
        "linalg.generic", "%two = arith.constant 2.0 : f32\n linalg.generic", 1)
    np.testing.assert_array_equal(run(text, A, B, 0 * A)[2], A * 2 + 2)


def test_body__unknown_operation_is_named():
    with pytest.raises(Unsupported, match=r"'math\.acosh' in the body of a linalg operation"):
        run(body("%r = math.acosh %x : f32"), A, B, A)


# -- folds -------------------------------------------------------------------------------------------------------------
def fold(operations, kind="f32", iterators='"parallel", "reduction"'):
    return f"""func.func @f(%a: memref<4x6x{kind}>, %o: memref<4x{kind}>) {{
      linalg.generic {{indexing_maps = [#id, #row], iterator_types = [{iterators}]}}
          ins(%a : memref<4x6x{kind}>) outs(%o : memref<4x{kind}>) {{
      ^bb0(%x: {kind}, %t: {kind}):
        {operations}
        linalg.yield %r : {kind}
      }}
      return
    }}"""


@pytest.mark.parametrize("operations, expected", [
    ("%r = arith.addf %t, %x : f32", lambda a, o: o + a.sum(1)),
    ("%r = arith.maximumf %x, %t : f32", lambda a, o: np.maximum(o, a.max(1))),
    ("%s = arith.mulf %x, %x : f32\n %r = arith.addf %s, %t : f32", lambda a, o: o + (a * a).sum(1)),
    ('%r = "scalar.alu"(%t, %x) {fn = "minimum"} : (f32, f32) -> f32', lambda a, o: np.minimum(o, a.min(1))),
])
def test_fold__is_one_reduction(operations, expected):
    start = numbers(4)
    np.testing.assert_array_equal(run(fold(operations), A, start)[1], expected(A, start))


def horner(a, o):
    for k in range(6):
        o = o * np.float32(0.5) + a[:, k]
    return o


@pytest.mark.parametrize("operations, expected", [
    ("%c = arith.constant 0.5 : f32\n %s = arith.mulf %t, %c : f32\n %r = arith.addf %s, %x : f32", horner),
    ("%r = arith.subf %t, %x : f32", lambda a, o: o - a[:, 0] - a[:, 1] - a[:, 2] - a[:, 3] - a[:, 4] - a[:, 5]),
    ("%r = arith.addf %t, %t : f32", lambda a, o: o * 64),
])
def test_fold__that_is_no_reduction_goes_step_by_step(operations, expected):
    start = numbers(4)
    np.testing.assert_array_equal(run(fold(operations), A, start)[1], expected(A, start))


def test_fold__assignment_keeps_the_last():
    assert np.array_equal(run(fold("%r = arith.negf %x : f32"), A, numbers(4))[1], -A[:, -1])
    assert np.array_equal(run(fold("%r = arith.constant 3.0 : f32"), A, numbers(4))[1], np.full(4, 3))


def test_generic__two_outputs_swap():
    text = """func.func @f(%a: memref<4x6xf32>, %b: memref<4x6xf32>) {
      linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          outs(%a, %b : memref<4x6xf32>, memref<4x6xf32>) {
      ^bb0(%x: f32, %y: f32):
        linalg.yield %y, %x : f32, f32
      }
      return
    }"""
    a, b = run(text, A, B)
    assert np.array_equal(a, B) and np.array_equal(b, A)


def test_generic__broadcasts_scalars_and_rows():
    text = """func.func @f(%r: memref<4xf32>, %c: memref<6xf32>, %o: memref<4x6xf32>) {
      %two = arith.constant 2.0 : f32
      linalg.generic {indexing_maps = [#row, #col, #none, #id], iterator_types = ["parallel", "parallel"]}
          ins(%r, %c, %two : memref<4xf32>, memref<6xf32>, f32) outs(%o : memref<4x6xf32>) {
      ^bb0(%x: f32, %y: f32, %k: f32, %z: f32):
        %s = arith.mulf %x, %k : f32
        %t = arith.addf %s, %y : f32
        linalg.yield %t : f32
      }
      return
    }"""
    r, c = numbers(4), numbers(6)
    np.testing.assert_array_equal(run(text, r, c, 0 * A)[2], r[:, None] * 2 + c)


def test_generic__takes_numbers_and_constants_from_outside():
    """A number that is loaded is given to the body; a constant outside of it is as one in it."""
    text = """func.func @f(%n: memref<1xf32>, %a: memref<4x6xf32>, %o: memref<4x6xf32>) {
      %zero = arith.constant 0 : index
      %two = arith.constant 2.0 : f32
      %k = memref.load %n[%zero] : memref<1xf32>
      linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a, %k : memref<4x6xf32>, f32) outs(%o : memref<4x6xf32>) {
      ^bb0(%x: f32, %y: f32, %z: f32):
        %s = arith.mulf %x, %two : f32
        %t = arith.addf %s, %y : f32
        linalg.yield %t : f32
      }
      return
    }"""
    np.testing.assert_array_equal(run(text, np.float32([3]), A, 0 * A)[2], A * 2 + 3)


def test_generic__of_equal_structure_on_other_memory():
    generic = body("%r = arith.subf %x, %y : f32")
    start, end = generic.index("linalg.generic"), generic.index("return")
    one = generic[start:end]
    other = one.replace("ins(%a, %b", "ins(%b, %a").replace("outs(%o", "outs(%p")
    text = generic.replace(one, one + other).replace("%o: memref<4x6xf32>)", "%o: memref<4x6xf32>, %p: memref<4x6xf32>)")
    _, _, o, p = run(text, A, B, 0 * A, 0 * A)
    assert np.array_equal(o, A - B) and np.array_equal(p, B - A)


def test_body__index_that_is_not_linear_is_refused():
    with pytest.raises(Unsupported, match=r"error: the index d0 mod 2 is not supported"):
        run(body("%i = linalg.index 1 : index\n %m = affine.apply affine_map<(d0) -> (d0 mod 2)>(%i)\n "
                 "%j = arith.index_cast %m : index to i32\n %r = arith.sitofp %j : i32 to f32"), A, B, A)


# -- products and named operations -------------------------------------------------------------------------------------
def test_named__matmul_and_transposed_result():
    a, b = numbers(5, 7), numbers(7, 3)
    text = """func.func @f(%a: memref<5x7xf32>, %b: memref<7x3xf32>, %o: memref<5x3xf32>, %p: memref<3x5xf32>) {
      linalg.matmul ins(%a, %b : memref<5x7xf32>, memref<7x3xf32>) outs(%o : memref<5x3xf32>)
      linalg.transpose ins(%o : memref<5x3xf32>) outs(%p : memref<3x5xf32>) permutation = [1, 0]
      return
    }"""
    _, _, product, transposed = run(text, a, b, np.ones((5, 3), np.float32), numbers(3, 5))
    np.testing.assert_allclose(product, a @ b + 1, rtol=1e-6)
    np.testing.assert_array_equal(transposed, product.T)


def test_named__batch_matmul_of_integers():
    a, b = (np.random.default_rng(k).integers(-9, 9, s, np.int32) for k, s in enumerate([(2, 4, 5), (2, 5, 3)]))
    text = """func.func @f(%a: memref<2x4x5xi32>, %b: memref<2x5x3xi32>, %o: memref<2x4x3xi32>) {
      linalg.batch_matmul ins(%a, %b : memref<2x4x5xi32>, memref<2x5x3xi32>) outs(%o : memref<2x4x3xi32>)
      return
    }"""
    np.testing.assert_array_equal(run(text, a, b, np.zeros((2, 4, 3), np.int32))[2], a @ b)


def test_named__convolution_and_elementwise():
    x, w = numbers(1, 8, 2) / 8, numbers(3, 2, 4) / 8
    text = """func.func @f(%x: memref<1x8x2xf32>, %w: memref<3x2x4xf32>, %o: memref<1x6x4xf32>, %e: memref<1x6x4xf32>) {
      linalg.conv_1d_nwc_wcf {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>}
          ins(%x, %w : memref<1x8x2xf32>, memref<3x2x4xf32>) outs(%o : memref<1x6x4xf32>)
      linalg.exp ins(%o : memref<1x6x4xf32>) outs(%e : memref<1x6x4xf32>)
      return
    }"""
    zeros = np.zeros((1, 6, 4), np.float32)
    _, _, o, e = run(text, x, w, zeros, zeros)
    expected = sum(x[0, k:k + 6] @ w[k] for k in range(3))
    np.testing.assert_allclose(o[0], expected, rtol=1e-5)
    np.testing.assert_array_equal(e, np.exp(o))


@pytest.mark.parametrize("left, right, out", [("(m, k)", "(k, n)", "(m, n)"), ("(k, m)", "(n, k)", "(n, m)"),
                                              ("(k, m)", "(k, n)", "(m, n)"), ("(k)", "(k, n)", "(n)"),
                                              ("(m, p, k)", "(n, k)", "(m, n, p)"), ("(n, k)", "(m, p, k)", "(m, n, p)"),
                                              ("(m, p, k)", "(k, n)", "(p, n, m)"), ("(k, n)", "(k, m)", "(m, n)")])
def test_product__of_any_order_of_axes(left, right, out):
    sizes = {"m": 4, "n": 5, "k": 6, "p": 3}
    shapes = [[sizes[c] for c in axes if c in sizes] for axes in (left, right, out)]
    kinds = ["memref<" + "".join(f"{n}x" for n in shape) + "f32>" for shape in shapes]
    loops = "(m, n, p, k)" if "p" in out else "(m, n, k)" if "m" in out else "(n, k)"
    iterators = ", ".join('"reduction"' if c == "k" else '"parallel"' for c in loops if c in sizes)
    maps = ", ".join(f"affine_map<{loops} -> {axes}>" for axes in (left, right, out))
    text = f"""func.func @f(%a: {kinds[0]}, %b: {kinds[1]}, %o: {kinds[2]}) {{
      linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
          ins(%a, %b : {kinds[0]}, {kinds[1]}) outs(%o : {kinds[2]}) {{
      ^bb0(%x: f32, %y: f32, %t: f32):
        %s = arith.mulf %x, %y : f32
        %r = arith.addf %t, %s : f32
        linalg.yield %r : f32
      }}
      return
    }}"""
    a, b, start = (numbers(*shape) for shape in shapes)
    spec = "{},{}->{}".format(*("".join(c for c in axes if c in sizes) for axes in (left, right, out)))
    np.testing.assert_allclose(run(text, a, b, start)[2], start + np.einsum(spec, a, b), rtol=1e-5, atol=1e-5)


def test_product__with_a_number_is_a_sum():
    text = """func.func @f(%a: memref<4x6xf32>, %o: memref<4xf32>, %n: memref<f32>) {
      %k = memref.load %n[] : memref<f32>
      linalg.generic {indexing_maps = [#id, #none, #row], iterator_types = ["parallel", "reduction"]}
          ins(%a, %k : memref<4x6xf32>, f32) outs(%o : memref<4xf32>) {
      ^bb0(%x: f32, %y: f32, %t: f32):
        %s = arith.mulf %x, %y : f32
        %r = arith.addf %t, %s : f32
        linalg.yield %r : f32
      }
      return
    }"""
    start, number = numbers(4), np.float32(3)
    np.testing.assert_array_equal(run(text, A, start, np.array(number))[1], start + (A * number).sum(1))


# -- views and memory --------------------------------------------------------------------------------------------------
def test_views__of_views():
    text = """func.func @f(%a: memref<4x6xf32>, %o: memref<2x3xf32>) {
      %one = arith.constant 1 : index
      %v = memref.subview %a[%one, 0] [3, 6] [1, 1]
        : memref<4x6xf32> to memref<3x6xf32, strided<[6, 1], offset: ?>>
      %w = memref.subview %v[1, %one] [2, 3] [1, 2]
        : memref<3x6xf32, strided<[6, 1], offset: ?>> to memref<2x3xf32, strided<[6, 2], offset: ?>>
      linalg.copy ins(%w : memref<2x3xf32, strided<[6, 2], offset: ?>>) outs(%o : memref<2x3xf32>)
      return
    }"""
    assert np.array_equal(run(text, A, np.zeros((2, 3), np.float32))[1], A[2:4, 1::2])


def test_views__collapsed_and_cast():
    text = """func.func @f(%a: memref<4x6xf32>, %o: memref<24xf32>) {
      %c = memref.collapse_shape %a [[0, 1]] : memref<4x6xf32> into memref<24xf32>
      %d = memref.cast %c : memref<24xf32> to memref<24xf32, strided<[1], offset: ?>>
      memref.copy %d, %o : memref<24xf32, strided<[1], offset: ?>> to memref<24xf32>
      return
    }"""
    assert np.array_equal(run(text, A, np.zeros(24, np.float32))[1], A.ravel())


REARRANGED = """
#all = affine_set<() : (0 == 0)>
#tile = #nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 6]]>
#rows = #nki.access<f32, affine_map<() -> (0)>, [[6, 4], [1, 6]]>
func.func @f(%a: memref<4x6xf32, "hbm">, %b: memref<30xf32, "hbm">, %o: memref<2x12xf32, "hbm">) {
  %t = memref.alloc() : memref<4x6xf32, "sbuf">
  %u = memref.alloc() : memref<4x6xf32, "sbuf">
  %c = memref.collapse_shape %a [[0, 1]] : memref<4x6xf32, "hbm"> into memref<24xf32, "hbm">
  %s = memref.subview %b[0] [24] [1] : memref<30xf32, "hbm"> to memref<24xf32, strided<[1]>, "hbm">
  "nki.load"(%t, %c) {access = [#tile, #rows], mask = #all} : (memref<4x6xf32, "sbuf">, memref<24xf32, "hbm">) -> ()
  "nki.load"(%u, %s) {access = [#tile, #rows], mask = #all}
    : (memref<4x6xf32, "sbuf">, memref<24xf32, strided<[1]>, "hbm">) -> ()
  "nki.binary"(%t, %t, %u) {access = [#tile, #tile, #tile], mask = #all, op = "add"}
    : (memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">, memref<4x6xf32, "sbuf">) -> ()
  %r = memref.collapse_shape %o [[0, 1]] : memref<2x12xf32, "hbm"> into memref<24xf32, "hbm">
  "nki.store"(%r, %t) {access = [#rows, #tile], mask = #all} : (memref<24xf32, "hbm">, memref<4x6xf32, "sbuf">) -> ()
  return
}"""


def test_views__of_complete_buffers_are_reinterpreted():
    text = """func.func @f(%a: memref<4x6xf32, "hbm">, %o: memref<24xi32, "hbm">) {
      %c = memref.collapse_shape %a [[0, 1]] : memref<4x6xf32, "hbm"> into memref<24xf32, "hbm">
      %d = "nki.reinterpret"(%c) : (memref<24xf32, "hbm">) -> memref<24xi32, "hbm">
      memref.copy %d, %o : memref<24xi32, "hbm"> to memref<24xi32, "hbm">
      return
    }"""
    assert np.array_equal(run(text, A, np.zeros(24, np.int32))[1], A.view(np.int32).ravel())


def test_views__of_complete_buffers_are_operands_of_instructions():
    b = numbers(30)
    assert np.array_equal(run(REARRANGED, A, b, np.zeros((2, 12), np.float32))[2], (A + b[:24].reshape(4, 6)).reshape(2, 12))


def test_elements__are_loaded_and_stored():
    text = """func.func @f(%a: memref<6xf32>, %o: memref<6xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c6 = arith.constant 6 : index
      scf.for %i = %c0 to %c6 step %c1 {
        %j = affine.apply affine_map<(d0) -> (-d0 + 5)>(%i)
        %x = memref.load %a[%i] : memref<6xf32>
        %y = "scalar.alu"(%x, %x) {fn = "add"} : (f32, f32) -> f32
        memref.store %y, %o[%j] : memref<6xf32>
      }
      return
    }"""
    x = numbers(6)
    assert np.array_equal(run(text, x, 0 * x)[1], 2 * x[::-1])


def test_affine__bounds_of_a_ragged_loop():
    text = """func.func @f(%o: memref<6xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      %c6 = arith.constant 6 : index
      %one = arith.constant 1.0 : f32
      scf.for %i = %c0 to %c6 step %c4 {
        %end = affine.min affine_map<(d0) -> (d0 + 3, 5)>(%i)
        scf.for %j = %i to %end step %c1 {
          memref.store %one, %o[%j] : memref<6xf32>
        }
      }
      return
    }"""
    assert run(text, np.zeros(6, np.float32))[0].tolist() == [1, 1, 1, 0, 1, 0]


def test_elements__outside_are_an_error():
    text = """func.func @f(%a: memref<6xf32>) {
      %c6 = arith.constant 6 : index
      %x = memref.load %a[%c6] : memref<6xf32>
      return
    }"""
    with pytest.raises(OutOfBounds, match=r"dimension 0: index range \[6, 6\] exceed dimension size of 6"):
        run(text, numbers(6))


def test_view__outside_of_its_buffer_is_an_error_when_it_is_used():
    text = """func.func @f(%a: memref<4x6xf32>, %o: memref<4x6xf32>) {
      %v = memref.reinterpret_cast %a to offset: [6], sizes: [4, 6], strides: [6, 1]
        : memref<4x6xf32> to memref<4x6xf32, strided<[6, 1], offset: 6>>
      linalg.copy ins(%v : memref<4x6xf32, strided<[6, 1], offset: 6>>) outs(%o : memref<4x6xf32>)
      return
    }"""
    with pytest.raises(OutOfBounds, match=r"index range \[6, 29\] exceed dimension size of 24"):
        run(text, A, B)
    assert np.array_equal(run(text.replace("linalg.copy", "// linalg.copy"), A, B)[1], B)


def test_dynamic_shapes__are_refused():
    text = """func.func @f(%a: memref<4x6xf32>) {
      %n = arith.constant 2 : index
      %v = memref.subview %a[0, 0] [%n, 6] [1, 1] : memref<4x6xf32> to memref<?x6xf32, strided<[6, 1]>>
      return
    }"""
    with pytest.raises(Unsupported, match="a buffer of type memref<\\?x6xf32"):
        run(text, A)


def test_unknown_operation__is_named_with_its_place():
    text = """func.func @f(%a: memref<4x6xf32>) {
      %v = memref.realloc %a : memref<4x6xf32> to memref<4x6xf32>
      return
    }""".replace("4x6", "24")
    with pytest.raises(NkiMlirError, match=r"'memref.realloc' in the interpreter is not supported"):
        run(text, A.ravel())


# -- masks -------------------------------------------------------------------------------------------------------------
MASKED = """func.func @f(%a: memref<4x6xf32>, %o: memref<4x6xf32>, %s: index {nki.program_id = 0 : i64})
  attributes {nki.grid = [8]} {
  linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel"],
                  nki.mask = affine_set<(d0, d1)[s0] : (MASK >= 0)>} ins(%a, %s : memref<4x6xf32>, index)
      outs(%o : memref<4x6xf32>) {
  ^bb0(%x: f32, %i: index, %z: f32):
    %j = linalg.index 1 : index
    %k = arith.addi %j, %i : index
    %l = arith.index_cast %k : index to i32
    %m = "scalar.convert"(%l) : (i32) -> f32
    %r = "scalar.alu"(%x, %m) {fn = "add"} : (f32, f32) -> f32
    linalg.yield %r : f32
  }
  return
}"""


@pytest.mark.parametrize("form", ["s0 - d1", "d1 - s0 - 1", "d0 + s0 - d1", "s0 - 1", "-d0 - d1 + 4"])
@pytest.mark.parametrize("symbol", [0, 1, 3])
def test_mask__leaves_other_elements(form, symbol):
    d0, d1 = np.mgrid[0:4, 0:6]
    holds = eval(form, {"d0": d0, "d1": d1, "s0": symbol}) >= 0
    expected = np.where(holds, A + (d1 + symbol).astype(np.float32), B)
    np.testing.assert_array_equal(run(MASKED.replace("MASK", form), A, B, point=(symbol,))[1], expected)


def test_mask__on_a_fold_that_goes_step_by_step():
    text = fold("%c = arith.constant 0.5 : f32\n %s = arith.mulf %t, %c : f32\n %r = arith.addf %s, %x : f32")
    text = text.replace("iterator_types", "nki.mask = affine_set<(d0, d1) : (d0 - d1 >= 0)>, iterator_types")
    start = numbers(4)
    want = start.copy()
    for p in range(4):
        for k in range(p + 1):
            want[p] = want[p] * np.float32(0.5) + A[p, k]
    np.testing.assert_array_equal(run(text, A, start)[1], want)
