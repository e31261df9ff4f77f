# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folds and products as instructions, against NumPy: any axes, old values, masks, sizes beyond those of the engine."""

import random

import numpy as np
import pytest

from nki_mlir.bindings import ir, operations_of
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named, run_passes

from ..graph.nests import Operation, placed, run

FOLDS = {"add": 0.0, "maximum": -9.0, "minimum": 9.0}


def alu(fn, *operands, kind="f32"):
    return f'"scalar.alu"({", ".join(operands)}) {{fn = "{fn}"}} : ({", ".join([kind] * len(operands))}) -> {kind}'


def check(operation, rng, monkeypatch):
    module = placed(operation.text, monkeypatch)
    run_passes(module, [pass_named("linalg-to-nisa")])
    assert not operations_of(module, lambda name: name.startswith("linalg."))
    inputs, before = operation.arrays(rng)
    np.testing.assert_array_equal(run(module, inputs, before), operation.expected(inputs, before), operation.text)
    return [op.name for op in operations_of(module, lambda name: name.startswith("nisa."))]


def drawn_fold(rng):
    """A fold of up to four axes, of which one at least is reduced; inputs broadcast along the axes that they lack."""
    rank = rng.randint(2, 4)
    extents = tuple(rng.choice([1, 2, 3, 5, 9]) for _ in range(rank))
    axes = tuple(range(rank))
    output = tuple(sorted(rng.sample(axes, rng.randint(1, rank - 1))))
    fn, kind = rng.choice([*FOLDS]), rng.choice(["f32", "f32", "i32"])
    some = tuple(sorted(rng.sample(axes, rng.randint(1, rank))))
    term = rng.choice(["%p0", "sum", "product"])
    body = {"%p0": "", "sum": f"%t = {alu('add', '%p0', '%p1', kind=kind)}\n",
            "product": f"%t = {alu('multiply', '%p0', '%p1', kind=kind)}\n"}[term]
    meaning = {"%p0": lambda a, b: a + 0 * b, "sum": lambda a, b: a + b, "product": lambda a, b: a * b}[term]
    operands = ["%old", "%t" if body else "%p0"]
    return Operation(extents, (axes, some), output, kind, body + f"%new = {alu(fn, *operands, kind=kind)}", meaning, fn,
                     rng.choice([None, FOLDS[fn], 2.0]))


@pytest.mark.parametrize("part", range(3))
def test_random_folds(part, monkeypatch):
    for seed in range(part * 20, part * 20 + 20):
        check(drawn_fold(random.Random(seed)), np.random.default_rng(seed), monkeypatch)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_products_of_any_sizes(kind, monkeypatch):
    """Rows of the result may be many or one, columns along one axis, several or none; the depth is cut into parts."""
    body = f"%t = {alu('multiply', '%p0', '%p1', kind=kind)}\n%new = {alu('add', '%old', '%t', kind=kind)}"
    for seed, (m, k, n) in enumerate([(3, 5, 7), (1, 5, 7), (3, 5, 1), (3, 1, 7), (130, 4, 3), (3, 200, 5), (5, 4, 600)]):
        for inputs in (((0, 1), (1, 2)), ((1, 0), (2, 1))):
            if kind == "f32" or seed < 3:
                for start in (None, 0.0):
                    names = check(Operation((m, k, n), inputs, (0, 2), kind, body, lambda a, b: a * b, "add", start),
                                  np.random.default_rng(seed), monkeypatch)
                    assert kind == "bf16" or min(m, k, n) == 1 or any("matmul" in name for name in names)


# -- masks -------------------------------------------------------------------------------------------------------------
@nki.jit
def masked_sums(x, rows, columns, step, fn, keep):
    """Fold the elements of which a box, or a triangle, is active; other results keep what they have."""
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f, o = nl.arange(128)[:, None], nl.arange(40)[None, :], nl.arange(1)[None, :]
    result = nl.full((128, 1), keep, dtype=x.dtype)
    tile = nl.load(x)
    result[p, o] = fn(tile[p, f], axis=1, mask=(p < rows) & (f < columns + step * p))
    nl.store(out, result)
    return out


@pytest.mark.parametrize("rows, columns, step", [(128, 40, 0), (128, 7, 0), (50, 40, 0), (3, 1, 0), (128, 1, 1), (60, 5, 1)])
@pytest.mark.parametrize("fn, numpy", [(nl.sum, np.sum), (nl.max, np.max), (nl.min, np.min)])
def test_folds_under_masks(rows, columns, step, fn, numpy):
    x = np.random.default_rng(rows).integers(-9, 9, (128, 40)).astype(np.float32)
    got = masked_sums.on("isa")(x, rows, columns, step, fn, -50.0)
    expected = [numpy(x[r, :min(40, columns + step * r)]) for r in range(rows)]
    np.testing.assert_array_equal(got[:rows, 0], expected)


MASKED = """#same = affine_map<(p, f) -> (p, f)>
func.func @k(%a: memref<6x9xf32, "hbm">, %r: memref<6x1xf32, "hbm"> {nki.shared = 0 : i64})
    attributes {nki.results = [1]} {
  %x = memref.alloc() : memref<6x9xf32, "sbuf">
  %y = memref.alloc() : memref<6x1xf32, "sbuf">
  %t = memref.reinterpret_cast %y to offset: [0], sizes: [6], strides: [1]
    : memref<6x1xf32, "sbuf"> to memref<6xf32, strided<[1]>, "sbuf">
  linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<6x9xf32, "hbm">) outs(%x : memref<6x9xf32, "sbuf">) {
  ^bb0(%v: f32, %o: f32):
    linalg.yield %v : f32
  }
  %old = arith.constant 5.0 : f32
  linalg.fill ins(%old : f32) outs(%t : memref<6xf32, strided<[1]>, "sbuf">)
  %least = arith.constant 0xFF800000 : f32
  START
  linalg.generic {indexing_maps = [#same, affine_map<(p, f) -> (p)>],
                  iterator_types = ["parallel", "reduction"], nki.mask = affine_set<(p, f) : (p - f - 3 >= 0)>}
      ins(%x : memref<6x9xf32, "sbuf">) outs(%t : memref<6xf32, strided<[1]>, "sbuf">) {
  ^bb0(%v: f32, %o: f32):
    %n = "scalar.alu"(%o, %v) {fn = "maximum"} : (f32, f32) -> f32
    linalg.yield %n : f32
  }
  linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%y : memref<6x1xf32, "sbuf">) outs(%r : memref<6x1xf32, "hbm">) {
  ^bb0(%v: f32, %o: f32):
    linalg.yield %v : f32
  }
  return
}"""
STARTS = {
    "all": 'linalg.fill ins(%least : f32) outs(%t : memref<6xf32, strided<[1]>, "sbuf">)',
    "active": """linalg.generic {indexing_maps = [#same, affine_map<(p, f) -> (p)>],
                  iterator_types = ["parallel", "reduction"], nki.mask = affine_set<(p, f) : (p - f - 3 >= 0)>}
      ins(%x : memref<6x9xf32, "sbuf">) outs(%t : memref<6xf32, strided<[1]>, "sbuf">) {
  ^bb0(%v: f32, %o: f32):
    linalg.yield %least : f32
  }""", "old": ""}


@pytest.mark.parametrize("start", STARTS)
def test_masked_fold__starts_where_its_start_was_written(start):
    """Rows without an active element have the start if all elements got it, else what was there before."""
    with shared_context():
        module = ir.Module.parse(MASKED.replace("START", STARTS[start]))
    x = np.random.default_rng(0).integers(-9, 9, (6, 9)).astype(np.float32)
    before = run(module, [x], np.zeros((6, 1), np.float32))
    run_passes(module, [pass_named("linalg-to-nisa")])
    got = run(module, [x], np.zeros((6, 1), np.float32))
    unused = {"all": -np.inf, "active": 5.0, "old": 5.0}[start]
    expected = [max(([5.0] if start == "old" else []) + [*x[p, :max(0, p - 2)]], default=unused) for p in range(6)]
    np.testing.assert_array_equal(before[:, 0], expected)
    np.testing.assert_array_equal(got[:, 0], expected)
    names = [op.name for op in operations_of(module, lambda name: name.startswith("nisa."))]
    assert ("nisa.tensor_copy_predicated" in names) == (start != "all")


@nki.jit
def masked_product(a, b, depth, columns):
    out = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.shared_hbm)
    k, m, n = nl.arange(32)[:, None], nl.arange(16)[None, :], nl.arange(24)[None, :]
    left, right = nl.load(a, mask=k + 0 * m < 32), nl.load(b)
    total = nl.zeros((nl.par_dim(16), 24), dtype=nl.float32, buffer=nl.psum)
    total += nl.matmul(left[k, m], right[k, n], transpose_x=True, mask=(k < depth) & (n < columns))
    nl.store(out, total)
    return out


@pytest.mark.parametrize("depth, columns", [(32, 24), (20, 24), (32, 9), (1, 1)])
def test_products_under_masks(depth, columns):
    a, b = (np.random.default_rng(depth).integers(-4, 4, (32, n)).astype(np.float32) for n in (16, 24))
    expected = a[:depth].T @ b[:depth]
    got = masked_product.on("isa")(a, b, depth, columns)
    np.testing.assert_array_equal(got[:, :columns], expected[:, :columns])
