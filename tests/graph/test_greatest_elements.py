# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches for the first elements of a sort, and sums of narrow floats, against StableHLO's interpreter and float32."""

import itertools

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.frameworks.stablehlo import run_linked
from nki_mlir.graph.greatest_elements import rewrite_searches
from nki_mlir.graph.sorting_network import steps
from nki_mlir.graph.upstream import graph_context
from nki_mlir.graph.wide_sums import widen_sums

from .reference import results_before_and_after

ELEMENTS = {"f32": np.float32, "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui16": np.uint16, "i32": np.int32,
            "ui32": np.uint32}


def kind(shape, element):
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def sort_text(shape, element, direction, count, compare="", axis=None, iota=None, compared="%a, %b"):
    """A stable sort with the positions, of which ``count`` elements along the last axis are read."""
    axis, iota = (len(shape) - 1 if n is None else n for n in (axis, iota))
    values, positions, part = kind(shape, element), kind(shape, "i32"), [*shape[:-1], count]
    compare = compare or ("TOTALORDER" if element[0] in "fb" else "UNSIGNED" if element[0] == "u" else "SIGNED")
    bounds = ", ".join([*(f"0:{n}" for n in shape[:-1]), f"0:{count}"])
    scalar = f"tensor<{element}>" if compared == "%a, %b" else "tensor<i32>"
    return f"""func.func @main(%x: {values}) -> ({kind(part, element)}, {kind(part, "i32")}) {{
  %i = stablehlo.iota dim = {iota} : {positions}
  %v:2 = "stablehlo.sort"(%x, %i) ({{
  ^bb0(%a: tensor<{element}>, %b: tensor<{element}>, %c: tensor<i32>, %d: tensor<i32>):
    %e = stablehlo.compare {direction}, {compared}, {compare} : ({scalar}, {scalar}) -> tensor<i1>
    stablehlo.return %e : tensor<i1>
  }}) {{dimension = {axis} : i64, is_stable = true}} : ({values}, {positions}) -> ({values}, {positions})
  %p = stablehlo.slice %v#0 [{bounds}] : ({values}) -> {kind(part, element)}
  %q = stablehlo.slice %v#1 [{bounds}] : ({positions}) -> {kind(part, "i32")}
  return %p, %q : {kind(part, element)}, {kind(part, "i32")}
}}"""


def numbers(seed, shape, element):
    """Numbers with ties, and those at the ends of the type."""
    rng, dtype = np.random.default_rng(seed), ELEMENTS[element]
    if element == "f32":
        ends = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, 1.5000001, 1e-45, -1e-45, -2.25, 3.4e38]
    else:
        limits = np.iinfo(dtype)
        ends = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, limits.max // 3, limits.max // 3 + 1]
    return rng.choice(np.array(ends, dtype), shape)


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


def in_order(x):
    """Integers in the total order of numbers: -NaN first, -0.0 before 0.0, NaN last."""
    if x.dtype != np.float32:
        return x.astype(np.int64)
    number = x.view(np.int32).astype(np.int64)
    return np.where(number < 0, -(number & 0x7FFFFFFF) - 1, number)


@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_first_elements__are_those_of_a_stable_sort(element, direction):
    for seed, (shape, count) in enumerate([((9,), 1), ((2, 9), 3), ((3, 2, 17), 5), ((4, 1), 1), ((2, 6), 6)]):
        text, x = sort_text(shape, element, direction, count), numbers(seed, shape, element)
        _, after, module = results_before_and_after(text, rewrite_searches, [x])
        is_rewritten = count <= len(list(steps(shape[-1])))
        assert ("stablehlo.sort" not in module) == is_rewritten
        positions = np.argsort(in_order(x) * (1 if direction == "LT" else -1), kind="stable")[..., :count]
        if is_rewritten or element != "f32":        # StableHLO's interpreter has no total order of floats
            np.testing.assert_array_equal(after[1], positions)
            np.testing.assert_array_equal(bits(after[0]), bits(np.take_along_axis(x, positions, -1)))


def test_searches__are_for_as_many_elements_as_a_network_has_steps():
    for extent in (4, 8, 16):
        most = min(extent, len(list(steps(extent))))
        for count in range(1, extent + 1):
            text = sort_text((2, extent), "i32", "GT", count)
            x = numbers(0, (2, extent), "i32")
            _, _, module = results_before_and_after(text, rewrite_searches, [x])
            assert ("stablehlo.sort" not in module) == (count <= most)


@pytest.mark.parametrize("options", [
    {"compare": "FLOAT", "element": "f32"}, {"axis": 0}, {"iota": 0}, {"direction": "GE"}, {"direction": "LE"},
    {"compared": "%b, %a"}, {"compared": "%c, %d"}])
def test_other_sorts__stay(options):
    """A float order that is not total, another axis, other numbers than positions, an order by the positions."""
    text = sort_text((3, 9), options.pop("element", "i32"), options.pop("direction", "GT"), 2, **options)
    x = np.array([[3, 1, 2, 9, 8, 7, 5, 4, 6]] * 3)
    x = x.astype(np.float32 if "xf32" in text else np.int32)
    before, after, module = results_before_and_after(text, rewrite_searches, [x])
    assert "stablehlo.sort" in module
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_sorts_of_which_all_is_read__stay():
    text = sort_text((3, 9), "i32", "GT", 2).replace("return %p, %q :", "return %p, %v#1 :").replace(
        "tensor<3x2xi32>\n}", "tensor<3x9xi32>\n}").replace("tensor<3x2xi32>) {\n", "tensor<3x9xi32>) {\n")
    *_, module = results_before_and_after(text, rewrite_searches, [numbers(1, (3, 9), "i32")])
    assert "stablehlo.sort" in module


# -- sums of narrow floats ---------------------------------------------------------------------------------------------
def rounded(array, element):
    """Float32 numbers rounded to a narrow type."""
    if element == "f16":
        return array.astype(np.float16).astype(np.float32)
    number = np.ascontiguousarray(array, np.float32).view(np.uint32).astype(np.uint64)
    return ((number + 0x7FFF + ((number >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def wide_text(body, arguments, result, element):
    """A graph whose arguments and result are float32 outside of a body on narrow floats."""
    names = [f"%w{k}: {kind(shape, 'f32')}" for k, shape in enumerate(arguments)]
    lines = [f"%x{k} = stablehlo.convert %w{k} : ({kind(shape, 'f32')}) -> {kind(shape, element)}"
             for k, shape in enumerate(arguments)]
    return "\n  ".join([f"func.func @main({', '.join(names)}) -> {kind(result, 'f32')} {{", *lines, body,
                        f"%out = stablehlo.convert %r : ({kind(result, element)}) -> {kind(result, 'f32')}",
                        f"return %out : {kind(result, 'f32')}"]) + "\n}"


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_products__are_rounded_once(element):
    a, b = (rounded(np.random.default_rng(k).standard_normal(shape).astype(np.float32), element)
            for k, shape in enumerate([(3, 40), (40, 2)]))
    for op in ("dot_general %x0, %x1, contracting_dims = [1] x [0]", "dot %x0, %x1"):
        text = wide_text(f"%r = stablehlo.{op} : ({kind(a.shape, element)}, {kind(b.shape, element)}) -> "
                         f"{kind((3, 2), element)}", [a.shape, b.shape], (3, 2), element)
        with graph_context(), ir.Location.unknown():
            widen_sums(module := ir.Module.parse(text))
        (got,) = run_linked(text, [a, b])
        exact = a.astype(np.float64) @ b.astype(np.float64)
        assert f"-> {kind((3, 2), 'f32')}" in str(module).partition("stablehlo.convert %r")[0]
        assert (np.abs(got - exact) <= np.abs(rounded(exact.astype(np.float32), element) - exact) + 2e-5).all()


def fold_text(body, start, element, shape=(3, 50), narrow="%x0"):
    scalar = f"tensor<{element}>"
    return wide_text(f"""%init = stablehlo.constant dense<{start}> : {scalar}
  %r = "stablehlo.reduce"({narrow}, %init) ({{
  ^bb0(%a: {scalar}, %b: {scalar}):
    {body.replace('T', scalar)}
  }}) {{dimensions = array<i64: 1>}} : ({kind(shape, element)}, {scalar}) -> {kind(shape[:1], element)}""",
                     [shape], shape[:1], element)


@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("fn, start", [("add", 1.5), ("multiply", 2.0)])
@pytest.mark.parametrize("operands", ["%a, %b", "%b, %a"])
def test_folds__are_rounded_once(element, fn, start, operands):
    x = np.random.default_rng(4).standard_normal((3, 50)).astype(np.float32)
    x = rounded(x if fn == "add" else 1 + x / 16, element)
    text = fold_text(f"%c = stablehlo.{fn} {operands} : T\n    stablehlo.return %c : T", start, element)
    _, (got,), module = results_before_and_after(text, widen_sums, [x])
    exact = {"add": np.add, "multiply": np.multiply}[fn].reduce(x.astype(np.float64), 1, initial=start)
    assert f"(tensor<3x50xf32>, tensor<f32>) -> {kind((3,), 'f32')}" in module
    assert f"dense<{start:e}".partition("e+")[0] in module and module.count("stablehlo.convert %cst") == 0
    error = np.abs(rounded(exact.astype(np.float32), element) - exact)
    assert (np.abs(got - exact) <= error + 1e-5 * np.abs(exact)).all()


@pytest.mark.parametrize("body", [
    "%c = stablehlo.maximum %a, %b : T\n    stablehlo.return %c : T",
    "%c = stablehlo.add %a, %a : T\n    stablehlo.return %c : T",
    "%c = stablehlo.add %a, %b : T\n    stablehlo.return %a : T",
    "%c = stablehlo.add %a, %b : T\n    %d = stablehlo.negate %c : T\n    stablehlo.return %d : T",
    "%c = stablehlo.subtract %a, %b : T\n    stablehlo.return %c : T"])
def test_other_folds__stay(body):
    x = np.arange(150, dtype=np.float32).reshape(3, 50) / 8
    (before,), (after,), module = results_before_and_after(fold_text(body, 0.0, "bf16"), widen_sums, [rounded(x, "bf16")])
    np.testing.assert_array_equal(before, after)
    assert "xbf16>, tensor<bf16>) -> tensor<3xbf16>" in module and module.count("stablehlo.convert") == 2


@pytest.mark.parametrize("element", ["f32", "i32"])
def test_wide_sums__stay(element):
    x = np.ones((3, 50), np.float32)
    text = fold_text("%c = stablehlo.add %a, %b : T\n    stablehlo.return %c : T", {"f32": "0.0", "i32": 0}[element],
                     element)
    (before,), (after,), module = results_before_and_after(text, widen_sums, [x])
    np.testing.assert_array_equal(before, after)
    assert module.count("stablehlo.convert") == 2


def test_starts_that_are_not_constants__are_converted():
    body = "%c = stablehlo.add %a, %b : T\n    stablehlo.return %c : T"
    text = fold_text(body, 0.0, "bf16").replace("dense<0.0> : tensor<bf16>", "dense<[1.0, 2.5]> : tensor<2xbf16>").replace(
        "%r =", "%s0 = stablehlo.slice %init [1:2] : (tensor<2xbf16>) -> tensor<1xbf16>\n"
        "  %s1 = stablehlo.reshape %s0 : (tensor<1xbf16>) -> tensor<bf16>\n  %r =").replace("(%x0, %init)", "(%x0, %s1)")
    x = rounded(np.random.default_rng(5).standard_normal((3, 50)).astype(np.float32), "bf16")
    _, (got,), _ = results_before_and_after(text, widen_sums, [x])
    np.testing.assert_allclose(got, rounded((x.astype(np.float64).sum(1) + 2.5).astype(np.float32), "bf16"), rtol=1e-5)


def test_windows__are_rounded_once():
    for element, (size, step) in itertools.product(["bf16", "f16"], [(30, 1), (20, 3)]):
        count = (50 - size) // step + 1
        scalar = f"tensor<{element}>"
        text = wide_text(f"""%init = stablehlo.constant dense<0.0> : {scalar}
  %r = "stablehlo.reduce_window"(%x0, %init) ({{
  ^bb0(%a: {scalar}, %b: {scalar}):
    %c = stablehlo.add %a, %b : {scalar}
    stablehlo.return %c : {scalar}
  }}) {{window_dimensions = array<i64: {size}>, window_strides = array<i64: {step}>}}
      : (tensor<50x{element}>, {scalar}) -> tensor<{count}x{element}>""", [(50,)], (count,), element)
        x = rounded(np.random.default_rng(6).standard_normal(50).astype(np.float32), element)
        _, (got,), _ = results_before_and_after(text, widen_sums, [x])
        exact = np.array([x[k * step:k * step + size].astype(np.float64).sum() for k in range(count)])
        error = np.abs(rounded(exact.astype(np.float32), element) - exact)
        assert (np.abs(got - exact) <= error + 1e-5).all()
