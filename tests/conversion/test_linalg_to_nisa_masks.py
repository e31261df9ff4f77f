# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linalg-to-nisa under masks: boxes, triangles, masks of loop variables, on operations and on instructions."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets.interpreter.module import compile_function

from ..transforms.masked_kernels import CASES, capture
from .nisa_level import BF16, check, floats, instructions, integers, lower, names


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_masked_kernels(case):
    captured = case.captured()
    waist = captured.module()
    run_passes(waist, [pass_named("split-masked-loops"), pass_named("nki-to-linalg")])
    case.check(captured.run(waist)[0])
    case.check(captured.run(lower(captured.module()))[0])


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, BF16])
def test_transfers_under_a_triangle(dtype):
    @nki.jit
    def kernel(x):
        n, m = x.shape
        out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:n, 0:m]
        tile = nl.load(x[p, f], mask=p >= f)
        nl.store(out[p, f], tile, mask=p + f < 20)
        return out
    x = integers(24, 24, dtype=dtype) if np.dtype(dtype).kind in "iu" else floats(24, 24, dtype=dtype)
    _, result = check(kernel, x)
    p, f = np.indices(x.shape)
    np.testing.assert_array_equal(result, np.where(p + f < 20, np.where(p >= f, x, 0), dtype(77)))


def test_too_many_transfers_are_refused_with_their_number():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((24, 24), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:24, 0:24]
        nl.store(out[p, f], nl.load(x), mask=p >= f)
        return out
    with pytest.raises(Unsupported, match="more than 7 boxes"):
        lower(capture(kernel, floats(24, 24)).module(), "pieces=7")


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_copy_under_a_triangle_keeps_the_rest(dtype):
    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((50, 60), dtype=x.dtype, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(y)
        p, f = nl.mgrid[0:50, 0:60]
        a[p, f] = nl.maximum(b, a, mask=p > 2 * f)
        nl.store(out, a)
        return out
    make_data = (lambda: integers(50, 60, low=-10**6, high=10**6)) if dtype is np.int32 else (lambda: floats(50, 60))
    check(kernel, make_data(), make_data())


@pytest.mark.parametrize("fn", ["sum", "max"])
def test_reduction_under_a_triangle(fn):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((50, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:50, 0:60]
        total = nl.full((50, 1), -5.0, dtype=x.dtype, buffer=nl.sbuf)
        q, g = nl.mgrid[0:50, 0:1]
        total[q, g] = getattr(nl, fn)(nl.load(x), axis=[1], mask=p > f + 3)
        nl.store(out, total)
        return out
    x = floats(50, 60)
    _, result = check(kernel, x, tolerance=1e-5)
    want = [getattr(x[p, :max(0, p - 3)], fn)() if p > 3 else None for p in range(50)]
    np.testing.assert_allclose(result[4:, 0], want[4:], rtol=1e-4, atol=1e-5)


def test_mask_of_a_loop_variable_that_is_not_cut():
    """Too many edges to peel: the predicate depends on the loop variable, and the loop stays."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((20, 16, 30), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:16, 0:30]
        for i in nl.affine_range(20):
            tile = nl.load(x[i, p, f])
            target = nl.zeros((16, 30), dtype=x.dtype, buffer=nl.sbuf)
            target[p, f] = nl.multiply(tile, 2.0, mask=p + i > f)
            nl.store(out[i, p, f], target)
        return out
    x = floats(20, 16, 30)
    module, result = check(kernel, x)
    i, p, f = np.indices(x.shape)
    np.testing.assert_array_equal(result, np.where(p + i > f, x * 2, 0))
    assert str(module).count("scf.for") == 1


def test_transfers_under_such_a_mask_are_cases():
    """One condition for each value of the loop variable that leaves something to move."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((12, 6, 9), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:6, 0:9]
        for i in nl.affine_range(12):
            tile = nl.load(x[i, p, f], mask=p + f < i + 1)
            nl.store(out[i, p, f], tile, mask=p + 2 > i)
            nl.store(out[i, p, f], tile, mask=p + i > f + 8)
        return out
    x = floats(12, 6, 9)
    module, result = check(kernel, x)
    i, p, f = np.indices(x.shape)
    np.testing.assert_array_equal(result, np.where((p + 2 > i) | (p + i > f + 8), np.where(p + f <= i, x, 0), 77))
    assert str(module).count("scf.for") == 2 and "scf.if" in str(module)


# -- instructions of the kernel with a mask ----------------------------------------------------------------------------
@pytest.mark.parametrize("low", [0, 1, 32])
def test_instruction_whose_mask_is_a_box(low):
    """A box that begins where no engine does is reached by a transfer."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((64, 20), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        p, f = nl.mgrid[0:64, 0:20]
        tile[p, f] = nisa.activation(nl.exp, tile, mask=(p >= low) & (f < 7))
        nl.store(out, tile)
        return out
    x = floats(64, 20) / 4
    module, result = check(kernel, x)
    p, f = np.indices(x.shape)
    np.testing.assert_allclose(result, np.where((p >= low) & (f < 7), np.exp(x), x), rtol=1e-6)
    assert names(module) == ["activation"]


@pytest.mark.parametrize("case", ["activation", "memset", "tensor_tensor", "select", "transpose", "copy", "iota"])
def test_instruction_under_a_triangle(case):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((30, 30), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, other = nl.load(x), nl.load(x)
        p, f = nl.mgrid[0:30, 0:30]
        inside = p > f + 2
        if case == "activation":
            tile[p, f] = nisa.activation(nl.exp, other, mask=inside)
        elif case == "memset":
            tile[p, f] = nisa.memset((30, 30), 5.0, nl.float32, mask=inside)
        elif case == "tensor_tensor":
            tile[p, f] = nisa.tensor_tensor(other, tile, np.add, mask=inside)
        elif case == "select":
            tile[p, f] = nisa.affine_select(p + f < 30, other, -1.0, mask=inside)
        elif case == "transpose":
            tile[p, f] = nisa.nc_transpose(other, engine=nisa.vector_engine, mask=f > p + 2)
        elif case == "copy":
            nisa.dma_copy(dst=out[p, f], src=other[p, f], mask=inside)
        else:
            tile[p, f] = nisa.iota(3 * p + f, dtype=nl.float32, mask=inside)
        nl.store(out[p, f], tile[p, f], mask=p <= f + 2)
        if case != "copy":
            nl.store(out[p, f], tile[p, f], mask=inside)
        return out
    module, _ = check(kernel, floats(30, 30))
    assert all(str(op.attributes["mask"]) == "affine_set<() : (0 == 0)>" for op in instructions(module))


SEQUENCES = {                       # what the active elements of a row, one after the other, give, and how much
    "max8": (8, lambda tile, active: nisa.max8(src=tile, mask=active)),
    "bn_stats": (6, lambda tile, active: nisa.bn_stats(tile, mask=active)),
    "tensor_tensor_scan": (40, lambda tile, active: nisa.tensor_tensor_scan(tile, tile, 0.0, np.subtract, np.add,
                                                                            mask=active)),
}


@pytest.mark.parametrize("case", SEQUENCES)
@pytest.mark.parametrize("mask", ["triangle", "cases", "two blocks of rows"])
def test_instruction_on_the_sequence_of_a_row__gathers_its_active_elements(case, mask):
    """Rows with the same active elements are gathered, computed together, and scattered."""
    width, compute = SEQUENCES[case]

    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 30, width), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:30, 0:40]
        q, g = nl.mgrid[0:30, 0:width]
        for i in nl.sequential_range(2):
            tile = nl.load(x)
            result = nl.zeros((30, width), dtype=x.dtype, buffer=nl.sbuf)
            if mask == "two blocks of rows":
                active = (p < 10) | (p >= 20)
            else:
                active = 3 * p + 8 > f if mask == "triangle" else 3 * p + 8 * i + 8 > f
            result[q, g] = compute(tile[p, f], active)
            nl.store(out[i, q, g], result[q, g])
        return out
    x = floats(30, 40).round()
    module, result = check(kernel, x)
    for i in range(2):
        for row in range(30):
            active = x[row, :3 * row + 8 + (8 * i if mask == "cases" else 0)]
            if mask == "two blocks of rows":
                active = x[row] if row < 10 or row >= 20 else None
            if active is None:
                assert not result[i, row].any()
            elif case == "max8":
                np.testing.assert_array_equal(result[i, row], np.sort(active)[::-1][:8])
            elif case == "tensor_tensor_scan":
                want, total = np.zeros(40, np.float32), np.float32(0)
                for k, value in enumerate(active):
                    want[k] = total = value - total + value
                np.testing.assert_array_equal(result[i, row], want)
    assert names(module).count(case) == {"triangle": 12, "cases": 12 + 9, "two blocks of rows": 4}[mask]


def test_reduction_instruction_under_a_triangle():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((30, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.full((30, 1), -5.0, dtype=x.dtype, buffer=nl.sbuf)
        p, f = nl.mgrid[0:30, 0:40]
        q, g = nl.mgrid[0:30, 0:1]
        total[q, g] = nisa.tensor_reduce(np.max, nl.load(x), axis=1, mask=p > f + 3)
        nl.store(out, total)
        return out
    check(kernel, floats(30, 40))


@pytest.mark.parametrize("space", ["sbuf", "psum"])
def test_a_product__is_added_to_what_is_there(space):
    text = f"""func.func @k(%x: memref<8x11xf32, "hbm">, %z: memref<8x6xf32, "hbm">, %r: memref<11x6xf32, "hbm"> {{nki.shared = 0 : i64}})
    attributes {{nki.results = [2]}} {{
  %a = memref.alloc() : memref<8x11xf32, "sbuf">
  %b = memref.alloc() : memref<8x6xf32, "sbuf">
  %y = memref.alloc() : memref<11x6xf32, "{space}">
  linalg.copy ins(%x : memref<8x11xf32, "hbm">) outs(%a : memref<8x11xf32, "sbuf">)
  linalg.copy ins(%z : memref<8x6xf32, "hbm">) outs(%b : memref<8x6xf32, "sbuf">)
  %five = arith.constant 5.0 : f32
  linalg.fill ins(%five : f32) outs(%y : memref<11x6xf32, "{space}">)
  linalg.generic {{indexing_maps = [affine_map<(k, i, j) -> (k, i)>, affine_map<(k, i, j) -> (k, j)>,
      affine_map<(k, i, j) -> (i, j)>], iterator_types = ["reduction", "parallel", "parallel"]}}
    ins(%a, %b : memref<8x11xf32, "sbuf">, memref<8x6xf32, "sbuf">) outs(%y : memref<11x6xf32, "{space}">) {{
  ^bb0(%p: f32, %q: f32, %old: f32):
    %m = "scalar.alu"(%p, %q) {{fn = "multiply"}} : (f32, f32) -> f32
    %v = "scalar.alu"(%old, %m) {{fn = "add"}} : (f32, f32) -> f32
    linalg.yield %v : f32
  }}
  %s = memref.alloc() : memref<11x6xf32, "sbuf">
  linalg.copy ins(%y : memref<11x6xf32, "{space}">) outs(%s : memref<11x6xf32, "sbuf">)
  linalg.copy ins(%s : memref<11x6xf32, "sbuf">) outs(%r : memref<11x6xf32, "hbm">)
  return
}}"""
    with shared_context():
        module = ir.Module.parse(text)
    run_passes(module, [pass_named("linalg-to-nisa"), pass_named("verify-target")])
    assert "matmul" in " ".join(names(module))
    x, z, result = floats(8, 11).round(), floats(8, 6).round(), np.zeros((11, 6), np.float32)
    compile_function(the_kernel(module))((), [x, z], [result])
    np.testing.assert_array_equal(result, x.T @ z + 5)


# -- nests under masks, whatever they compute -------------------------------------------------------------------------
BODIES = {"assignment": '%v = "scalar.alu"(%c, %two) {fn = "multiply"} : (f32, f32) -> f32',
          "position": """%i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %f = "scalar.convert"(%n) : (i32) -> f32
    %v = "scalar.alu"(%f, %two) {fn = "multiply"} : (f32, f32) -> f32""",
          "sum": '%v = "scalar.alu"(%old, %p) {fn = "add"} : (f32, f32) -> f32',
          "maximum": '%v = "scalar.alu"(%old, %p) {fn = "maximum"} : (f32, f32) -> f32'}
MASKS = ("d0 - d1 >= 0", "d1 - d0 - 3 >= 0", "d0 + d1 - 9 >= 0", "d0 - 2 >= 0, d1 - d0 >= 0", "-d0 + 6 >= 0")
FORMS = {"parallel": ("(d0, d1)", "parallel", (8, 11)),
         "reduced": ("(d0, 0)", "reduction", (8, 1))}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", FORMS)
def test_nests_under_masks(form, mask, body):
    """Element by element and as instructions; an assignment along a reduced axis has a value that is one there."""
    write, iterator, shape = FORMS[form]
    dims = "x".join(map(str, shape))
    text = f"""func.func @k(%x: memref<8x11xf32, "hbm">, %z: memref<8x1xf32, "hbm">, %r: memref<{dims}xf32, "hbm"> {{nki.shared = 0 : i64}})
    attributes {{nki.results = [2]}} {{
  %a = memref.alloc() : memref<8x11xf32, "sbuf">
  %column = memref.alloc() : memref<8x1xf32, "sbuf">
  %y = memref.alloc() : memref<{dims}xf32, "sbuf">
  linalg.copy ins(%x : memref<8x11xf32, "hbm">) outs(%a : memref<8x11xf32, "sbuf">)
  linalg.copy ins(%z : memref<8x1xf32, "hbm">) outs(%column : memref<8x1xf32, "sbuf">)
  linalg.copy ins(%r : memref<{dims}xf32, "hbm">) outs(%y : memref<{dims}xf32, "sbuf">)
  linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>,
      affine_map<(d0, d1) -> {write}>],
      iterator_types = ["parallel", "{iterator}"], nki.mask = affine_set<(d0, d1) : ({mask})>}}
    ins(%a, %column : memref<8x11xf32, "sbuf">, memref<8x1xf32, "sbuf">) outs(%y : memref<{dims}xf32, "sbuf">) {{
  ^bb0(%p: f32, %c: f32, %old: f32):
    %two = arith.constant 2.0 : f32
    {BODIES[body]}
    linalg.yield %v : f32
  }}
  linalg.copy ins(%y : memref<{dims}xf32, "sbuf">) outs(%r : memref<{dims}xf32, "hbm">)
  return
}}"""
    with shared_context():
        waist, module = ir.Module.parse(text), ir.Module.parse(text)
    run_passes(module, [pass_named("linalg-to-nisa"), pass_named("verify-target")])
    x, before = floats(8, 11).round(), floats(*shape).round()
    results = [before.copy(), before.copy()]
    for one, result in zip((waist, module), results):
        compile_function(the_kernel(one))((), [x, x[:, :1].copy()], [result])
    np.testing.assert_array_equal(*results)
    rows = [any(holds(mask, p, f) for f in range(11)) for p in range(8)]
    changed = (results[0] != before).any(axis=1)
    assert changed.any() and not changed[~np.array(rows)].any()


def holds(mask, p, f):
    """Whether an element is active by the text of a mask."""
    return all(eval(part.partition(">=")[0], {"d0": p, "d1": f}) >= 0 for part in mask.split(","))
