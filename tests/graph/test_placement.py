# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of products on tiles: whatever is there before is added to, in dtypes that differ from the sum's."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets.interpreter.module import compile_function

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
RANDOM = np.random.default_rng(0)
FILL = """%c = arith.constant START : f32
  linalg.fill ins(%c : f32) outs(%r : memref<MxNxf32, "hbm">)"""


def product(rows: int, inner: int, columns: int, kind: str, fill: str) -> str:
    """A product that is added to its output, which starts as it is or with a constant."""
    before, after = ("%old", "%total") if kind == "f32" else ("%wide", "%narrow")
    widened = [f'%{n} = "scalar.convert"(%{v}) : ({kind}) -> f32' for n, v in (("x", "p"), ("y", "q"))]
    wide = "" if kind == "f32" else f'%wide = "scalar.convert"(%old) : ({kind}) -> f32'
    narrow = "" if kind == "f32" else f'%narrow = "scalar.convert"(%total) : (f32) -> {kind}'
    x, y = ("%p", "%q") if kind == "f32" else ("%x", "%y")
    a, b, r = (f'memref<{m}x{n}x{kind}, "hbm">' for m, n in ((rows, inner), (inner, columns), (rows, columns)))
    return f"""func.func @k(%a: {a}, %b: {b}, %r: {r} {{nki.shared = 0 : i64}}) attributes {{nki.results = [2]}} {{
  {fill}
  linalg.generic {{indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
      affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}}
    ins(%a, %b : {a}, {b}) outs(%r : {r}) {{
  ^bb0(%p: {kind}, %q: {kind}, %old: {kind}):
    {chr(10).join(widened) if kind != "f32" else ""}
    {wide}
    %m = "scalar.alu"({x}, {y}) {{fn = "multiply"}} : (f32, f32) -> f32
    %total = "scalar.alu"({before}, %m) {{fn = "add"}} : (f32, f32) -> f32
    {narrow}
    linalg.yield {after} : {kind}
  }}
  return
}}"""


def placed(text: str, a: np.ndarray, b: np.ndarray, before: np.ndarray) -> np.ndarray:
    with shared_context():
        module = ir.Module.parse(text)
    run_passes(module, [pass_named("tile-and-place")])
    assert '"psum"' in str(module)
    return run(module, [a, b], before)


def run(module: ir.Module, inputs: list[np.ndarray], before: np.ndarray) -> np.ndarray:
    result = before.copy()
    compile_function(the_kernel(module))((), inputs, [result])
    return result


@pytest.mark.parametrize("sizes", [(5, 4, 7), (150, 130, 3)], ids=str)
@pytest.mark.parametrize("kind", DTYPES)
def test_a_product_is_added_to_what_is_there(kind, sizes):
    m, k, n = sizes
    a, b, before = (RANDOM.integers(-1, 2, s).astype(DTYPES[kind]) for s in ((m, k), (k, n), (m, n)))
    wanted = before.astype(np.float32) + a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(placed(product(m, k, n, kind, ""), a, b, before).astype(np.float32), wanted)


@pytest.mark.parametrize("start", ["0.0", "2.5", "-1.0"])
def test_a_product_starts_with_a_constant(start):
    a, b, before = (RANDOM.integers(-2, 3, s).astype(np.float32) for s in ((5, 4), (4, 7), (5, 7)))
    fill = FILL.replace("START", start).replace("MxN", "5x7")
    np.testing.assert_array_equal(placed(product(5, 4, 7, "f32", fill), a, b, before), a @ b + np.float32(start))


FOLD = """func.func @k(%a: memref<5x7x3xi32, "hbm">, %r: memref<5xi32, "hbm"> {nki.shared = 0 : i64})
    attributes {nki.results = [1]} {
  linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i)>],
      iterator_types = ["parallel", "reduction", "reduction"]}
    ins(%a : memref<5x7x3xi32, "hbm">) outs(%r : memref<5xi32, "hbm">) {
  ^bb0(%x: i32, %old: i32):
    %total = "scalar.alu"(%old, %x) {fn = "FN"} : (i32, i32) -> i32
    linalg.yield %total : i32
  }
  return
}"""


@pytest.mark.parametrize("fn", ["add", "multiply", "maximum"])
def test_integers_are_folded_by_halves(fn):
    a, before = (RANDOM.choice([-2, -1, 1], shape).astype(np.int32) for shape in ((5, 7, 3), 5))
    with shared_context():
        module = ir.Module.parse(FOLD.replace("FN", fn))
    run_passes(module, [pass_named("tile-and-place")])
    ufunc = getattr(np, fn)
    np.testing.assert_array_equal(run(module, [a], before), ufunc(before, ufunc.reduce(a, axis=(1, 2))))
