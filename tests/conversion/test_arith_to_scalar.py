# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bodies of upstream's operations on the CPU and in the interpreter, which both read them through ``arith-to-scalar``."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.capture.attempts import Captured, Variant
from nki_mlir.conversion.arith_to_scalar import ArithToScalar
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import new_context
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.interpreter.module import compile_function

from ..scalar.samples import NUMPY_ULP

NAN, INF = np.nan, np.inf
X = np.float32([0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-10, -3e-8, 1e-40, 88.0, 1e10, -3e9, 4e9, INF, -INF, NAN,
                0.3, -127.9, 200.7, -5e9, 7.25])
Y = np.roll(X, 5)
RANDOM = np.random.default_rng(0)


def integers(bits: int, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    kind = np.dtype(f"i{bits // 8}")
    limits = np.iinfo(kind)
    edges = np.array([0, 1, -1, 2, -3, 7, limits.max, limits.min, limits.min + 1], kind)
    x, y = (np.concatenate([edges, RANDOM.integers(limits.min, limits.max, count, kind)]) for _ in range(2))
    return x, np.roll(y, 4)


def module_of(operations: str, kind: str, result: str, count: int) -> Any:
    text = f"""func.func @f(%a: memref<{count}x{kind}, "hbm">, %b: memref<{count}x{kind}, "hbm">,
                            %o: memref<{count}x{result}, "hbm">) {{
      linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                      iterator_types = ["parallel"]}}
          ins(%a, %b : memref<{count}x{kind}, "hbm">, memref<{count}x{kind}, "hbm">)
          outs(%o : memref<{count}x{result}, "hbm">) {{
      ^bb0(%x: {kind}, %y: {kind}, %old: {result}):
        {operations}
        linalg.yield %r : {result}
      }}
      return
    }}"""
    with new_context():
        return ir.Module.parse(text)


def results(operations: str, x: np.ndarray, y: np.ndarray, kind: str, result: str) -> list[np.ndarray]:
    """What the CPU and the interpreter compute."""
    module = module_of(operations, kind, result, x.size)
    outputs = []
    for run in (NativeKernel(Captured({(): Variant(module, [], None, 0)}, 0, {}), ()),
                lambda buffers, shared: compile_function(the_kernel(module))((), buffers, shared)):
        out = np.zeros(x.size, BY_MLIR[result].numpy)
        run([x.copy(), y.copy(), out], [])
        outputs.append(out)
    return outputs


def equal(operations: str, x: np.ndarray, y: np.ndarray, wanted: np.ndarray, kind: str, result: str) -> None:
    for got in results(operations, x, y, kind, result):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("number, wanted", [
    (1, np.equal), (2, np.greater), (3, np.greater_equal), (4, np.less), (5, np.less_equal),
    (6, lambda a, b: (a < b) | (a > b)), (7, lambda a, b: ~(np.isnan(a) | np.isnan(b))),
    (8, lambda a, b: ~((a < b) | (a > b))), (9, lambda a, b: ~(a <= b)), (10, lambda a, b: ~(a < b)),
    (11, lambda a, b: ~(a >= b)), (12, lambda a, b: ~(a > b)), (13, np.not_equal),
    (14, lambda a, b: np.isnan(a) | np.isnan(b))])
def test_comparisons__of_floats(number: int, wanted: Any) -> None:
    name = "false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno".split()[number]
    equal(f"%r = arith.cmpf {name}, %x, %y : f32", X, Y, wanted(X, Y), "f32", "i1")
    a, b = (v.astype(ml_dtypes.bfloat16) for v in (X, Y))
    equal(f"%r = arith.cmpf {name}, %x, %y : bf16", a, b, wanted(a.astype(np.float32), b.astype(np.float32)), "bf16",
          "i1")
    if number == 14:
        equal("%r = arith.cmpf uno, %x, %x : f32", X, Y, np.isnan(X), "f32", "i1")


@pytest.mark.parametrize("bits", [8, 32, 64])
@pytest.mark.parametrize("name, wanted", [
    ("eq", np.equal), ("ne", np.not_equal), ("slt", np.less), ("sle", np.less_equal), ("sgt", np.greater),
    ("sge", np.greater_equal), ("ult", np.less), ("ule", np.less_equal), ("ugt", np.greater), ("uge", np.greater_equal)])
def test_comparisons__of_integers(name: str, wanted: Any, bits: int) -> None:
    x, y = integers(bits)
    a, b = (v.view(f"u{v.itemsize}") for v in (x, y)) if name.startswith("u") else (x, y)
    equal(f"%r = arith.cmpi {name}, %x, %y : i{bits}", x, y, wanted(a, b), f"i{bits}", "i1")


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([0 if q == 0 else abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1)
                     for p, q in zip(a, b)], object)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([0 if q == 0 else int(p) - int(t) * int(q) for p, q, t in zip(a, b, quotient(a, b))], object)


@pytest.mark.parametrize("bits", [8, 32, 64])
@pytest.mark.parametrize("name, wanted", [
    ("addi", lambda a, b: a + b), ("subi", lambda a, b: a - b), ("muli", lambda a, b: a * b), ("andi", np.bitwise_and),
    ("ori", np.bitwise_or), ("xori", np.bitwise_xor), ("maxsi", np.maximum), ("minsi", np.minimum),
    ("maxui", np.maximum), ("minui", np.minimum), ("divsi", quotient), ("remsi", remainder), ("divui", quotient),
    ("remui", remainder)])
def test_functions__of_integers(name: str, wanted: Any, bits: int) -> None:
    x, y = integers(bits)
    kind = f"u{bits // 8}" if name.endswith("ui") else f"i{bits // 8}"
    exact = np.array([int(v) % (1 << bits) for v in wanted(x.view(kind), y.view(kind))], f"u{bits // 8}").view(x.dtype)
    equal(f"%r = arith.{name} %x, %y : i{bits}", x, y, exact, f"i{bits}", f"i{bits}")


@pytest.mark.parametrize("name, wanted", [
    ("shli", np.left_shift), ("shrsi", np.right_shift),
    ("shrui", lambda a, b: np.right_shift(a.view("u4"), b.view("u4")).view("i4"))])
def test_shifts(name: str, wanted: Any) -> None:
    x, y = integers(32)
    y &= 31
    equal(f"%r = arith.{name} %x, %y : i32", x, y, wanted(x, y), "i32", "i32")


@pytest.mark.parametrize("operations, frm, to, wanted", [
    ("%r = arith.trunci %x : i32 to i8", "i32", "i8", lambda x: x.astype("i1")),
    ("%r = arith.trunci %x : i64 to i32", "i64", "i32", lambda x: x.astype("i4")),
    ("%r = arith.trunci %x : i32 to i1", "i32", "i1", lambda x: x % 2 == 1),
    ("%r = arith.extui %x : i8 to i32", "i8", "i32", lambda x: x.view("u1").astype("i4")),
    ("%r = arith.extui %x : i32 to i64", "i32", "i64", lambda x: x.view("u4").astype("i8")),
    ("%r = arith.extsi %x : i8 to i64", "i8", "i64", lambda x: x.astype("i8")),
    ("%r = arith.sitofp %x : i32 to f32", "i32", "f32", lambda x: x.astype("f4")),
    ("%r = arith.uitofp %x : i32 to f32", "i32", "f32", lambda x: x.view("u4").astype("f4")),
    ("%r = arith.uitofp %x : i8 to f32", "i8", "f32", lambda x: x.view("u1").astype("f4")),
    ("%r = arith.bitcast %x : i32 to f32", "i32", "f32", lambda x: x.view("f4")),
    ("%c = arith.cmpi slt, %x, %y : i32\n %r = arith.extsi %c : i1 to i32", "i32", "i32", None),
    ("%c = arith.cmpi slt, %x, %y : i32\n %r = arith.uitofp %c : i1 to f32", "i32", "f32", None),
    ("%c = arith.cmpi slt, %x, %y : i32\n %r = arith.select %c, %x, %y : i32", "i32", "i32", None)])
def test_conversions__of_integers(operations: str, frm: str, to: str, wanted: Any) -> None:
    x, y = integers(int(frm[1:]))
    below = x < y
    expected = wanted(x) if wanted else (
        np.minimum(x, y) if "select" in operations else np.where(below, -1, 0).astype("i4") if to == "i32" else
        below.astype("f4"))
    equal(operations, x, y, expected, frm, to)


@pytest.mark.parametrize("to", ["i8", "i32", "i64"])
@pytest.mark.parametrize("frm", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["fptosi", "fptoui"])
def test_floats_to_integers__go_towards_zero_and_saturate(name: str, frm: str, to: str) -> None:
    x, y = (v.astype(BY_MLIR[frm].numpy) for v in (X, Y))
    bits = int(to[1:])
    low, high = (0, (1 << bits) - 1) if name == "fptoui" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    wanted = [0 if np.isnan(v) else high if v == INF else low if v == -INF else min(max(int(v), low), high)
              for v in x.astype(np.float64)]
    exact = np.array([v % (1 << bits) for v in wanted], f"u{bits // 8}").view(f"i{bits // 8}")
    equal(f"%r = arith.{name} %x : {frm} to {to}", x, y, exact, frm, to)


@pytest.mark.parametrize("operations, wanted", [
    ("%r = arith.maximumf %x, %y : f32", lambda x, y: np.maximum(x, y) + np.float32(0)),
    ("%r = arith.minimumf %x, %y : f32", lambda x, y: np.minimum(x, y) + np.float32(0)),
    ("%r = arith.remf %x, %y : f32", np.fmod), ("%r = arith.divf %x, %y : f32", np.divide),
    ("%r = math.copysign %x, %y : f32", np.copysign), ("%r = math.roundeven %x : f32", lambda x, y: np.rint(x)),
    ("%r = math.round %x : f32", lambda x, y: np.copysign(np.floor(np.abs(x) + (np.abs(x) < 2**22) * 0.5), x)),
    ("%r = math.floor %x : f32", lambda x, y: np.floor(x)),
    ("%h = arith.truncf %x : f32 to f16\n %r = arith.extf %h : f16 to f32",
     lambda x, y: x.astype(np.float16).astype(np.float32))])
def test_functions__of_floats_that_are_exact(operations: str, wanted: Any) -> None:
    with np.errstate(all="ignore"):
        expected = wanted(X, Y).astype(np.float32)
    for got in results(operations, X, Y, "f32", "f32"):
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(expected[~np.isnan(expected)]))


@pytest.mark.parametrize("name, arity, ulp", [
    ("log1p", 1, 3), ("expm1", 1, 4), ("cbrt", 1, 1), ("atan2", 2, 4), ("exp", 1, 2), ("log", 1, 2), ("sin", 1, 3),
    ("tanh", 1, 5), ("powf", 2, 4)])
def test_functions__of_floats_are_accurate_everywhere(name: str, arity: int, ulp: int) -> None:
    random = np.random.default_rng(1)
    x = np.concatenate([X, np.float32(10) ** np.linspace(-37, 37, 400, dtype=np.float32) * random.choice([-1, 1], 400),
                        random.standard_normal(400).astype(np.float32)]).astype(np.float32)
    if name == "sin":
        x = np.clip(x, -100, 100)
    y = np.roll(x, 7)
    function = np.power if name == "powf" else np.arctan2 if name == "atan2" else getattr(np, name)
    with np.errstate(all="ignore"):
        exact = function(*(v.astype(np.float64) for v in (x, y)[:arity]))
        wanted = exact.astype(np.float32)
        unit = np.spacing(np.abs(wanted)).astype(np.float64)
        computed = results(f"%r = math.{name} %x{', %y' if arity == 2 else ''} : f32", x, y, "f32", "f32")
        for got, bound in zip(computed, (ulp, max(ulp, NUMPY_ULP))):        # the interpreter's functions are NumPy's
            same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
            assert np.all(same | (np.abs(got.astype(np.float64) - exact) <= bound * unit)), name


def test_narrow_floats__round_after_every_operation() -> None:
    random = np.random.default_rng(2)
    x, y = (random.standard_normal(64).astype(ml_dtypes.bfloat16) for _ in range(2))
    equal("%p = arith.mulf %x, %y : bf16\n %r = arith.addf %p, %x : bf16", x, y, x * y + x, "bf16", "bf16")
    equal("%c = arith.cmpf olt, %x, %y : bf16\n %r = arith.select %c, %x, %y : bf16", x, y,
          np.where(x < y, x, y), "bf16", "bf16")


def test_truth_values() -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for name, wanted in (("andi", x & y), ("ori", x | y), ("xori", x ^ y), ("addi", x ^ y), ("muli", x & y)):
        equal(f"%r = arith.{name} %x, %y : i1", x, y, wanted, "i1", "i1")
    equal("%r = arith.cmpi ult, %x, %y : i1", x, y, x < y, "i1", "i1")
    equal("%r = arith.cmpi slt, %x, %y : i1", x, y, x > y, "i1", "i1")
    equal("%t = arith.constant true\n %r = arith.xori %x, %t : i1", x, y, ~x, "i1", "i1")


def test_unknown__operation_and_type_are_named() -> None:
    for operations, what in (("%r = math.acosh %x : f32", "'math.acosh' in the body of a linalg operation"),
                             ("%d = arith.extf %x : f32 to f64\n %r = arith.truncf %d : f64 to f32",
                              "'arith.extf' on f64 in the body of a linalg operation")):
        with pytest.raises(Unsupported, match=what):
            ArithToScalar().run(module_of(operations, "f32", "f32", 4))
