# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters and gathers as comparisons, against StableHLO's interpreter, which runs the operations that they replace."""

import random
import re
from math import prod

import numpy as np
import pytest

from nki_mlir.diagnostics import Unsupported
from nki_mlir.graph import comparisons
from nki_mlir.graph.comparisons import rewrite_indexed

from .reference import results_before_and_after
from .test_sort_and_scatter import Scatter

FUNCTIONS = ("add", "subtract", "multiply", "minimum", "maximum", "and", "or", "")
DTYPES = {"f32": np.float32, "bf16": np.float32, "f16": np.float32, "i32": np.int32, "ui32": np.uint32, "i1": np.bool_,
          "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "i64": np.int64, "f64": np.float64}


def is_supported(fn, element):
    """Sums and products need floats or 32 bits, extremes signed integers or floats of at most 32 bits."""
    if element[0] in "fb":
        return element != "f64" or fn == ""
    if fn in ("minimum", "maximum"):
        return not element.startswith("u")
    return element in ("i1", "i32", "ui32") or fn in ("and", "or", "")


def combinations():
    return [(fn, element) for fn in FUNCTIONS for element in DTYPES
            if not (fn in ("and", "or") and element[0] in "fb") and not (fn == "subtract" and element == "i1")]


def of_element(text, element, index="i32"):
    """The text of a graph on other types. Narrow floats are float32 outside of the graph."""
    text = re.sub(r"(%i: tensor<(?:\d+x)*)i32", rf"\1{index}", text)
    text = re.sub(r"(, tensor<(?:\d+x)*)i32(>[,)])", rf"\1{index}\2", text)
    if element not in ("bf16", "f16"):
        return text.replace("xf32", f"x{element}").replace("tensor<f32>", f"tensor<{element}>")
    head, body = text.split("{\n", 1)
    *body, end = re.split(r"(?=  return)", body)
    inner = "".join(body).replace("xf32", f"x{element}").replace("tensor<f32>", f"tensor<{element}>")
    for name, kind in re.findall(r"%([xu]): (tensor<[\dx]*f32>)", head):
        narrow = kind.replace("f32", element)
        head = head.replace(f"%{name}:", f"%wide{name}:")
        inner = f"  %{name} = stablehlo.convert %wide{name} : ({kind}) -> {narrow}\n{inner}"
    kind = re.search(r"-> (tensor<[\dx]*f32>)", head)[1]
    return (f"{head}{{\n{inner}  %wide = stablehlo.convert %r : ({kind.replace('f32', element)}) -> {kind}\n"
            f"  return %wide : {kind}\n}}")


def fitting(scatter):
    """The scatter with windows that lie in the tensor, or outside. StableHLO's interpreter cuts the others; XLA and
    this project skip these (``test_sort_and_scatter.py``)."""
    axes = [d for d in range(len(scatter.operand)) if d not in (*scatter.inserted, *scatter.batching)]
    sizes = {d: scatter.updates[w] for d, w in zip(axes, scatter.windows)}
    for at in np.ndindex(*scatter.indices.shape):
        axis = scatter.scattered[at[scatter.vector] if scatter.vector < len(at) else 0]
        if not 0 <= scatter.indices[at] <= scatter.operand[axis] - sizes.get(axis, 1):
            scatter.indices[at] *= 20 if scatter.indices[at] else 1
    return scatter


def drawn(rng, shape, element):
    low = 0 if element.startswith("u") else -3
    numbers = rng.integers(0, 2, shape) if element == "i1" else rng.integers(low, 4, shape)
    return numbers.astype(DTYPES[element])


def assert_rewritten(text, arguments):
    before, after, module = results_before_and_after(text, rewrite_indexed, arguments)
    np.testing.assert_array_equal(after[0], before[0])
    assert "stablehlo.scatter" not in module
    return module


@pytest.mark.share(3)
@pytest.mark.parametrize("fn, element", combinations())
def test_scatters(fn, element):
    """Each function on each type, on shapes of any dimension numbers: the values of the scatter, or an error."""
    seed = FUNCTIONS.index(fn) * 31 + [*DTYPES].index(element)
    for number in range(2):
        rng, values = random.Random(f"{seed} {number}"), np.random.default_rng(seed)
        scatter = fitting(Scatter.drawn(rng))
        text = of_element(scatter.text(fn), element)
        arguments = [drawn(values, scatter.operand, element), scatter.indices, drawn(values, scatter.updates, element)]
        if is_supported(fn, element):
            assert_rewritten(text, arguments)
        else:
            with pytest.raises(Unsupported, match="as engine instructions"):
                results_before_and_after(text, rewrite_indexed, arguments)


@pytest.mark.parametrize("seed", range(24))
def test_scatters_and_gathers_of_any_dimension_numbers(seed):
    rng, values = random.Random(seed), np.random.default_rng(seed)
    scatter, index = fitting(Scatter.drawn(rng)), rng.choice(["i8", "i16", "i32", "i64"])
    scatter.indices = scatter.indices.astype(index.replace("i", "int"))
    x, updates = (values.integers(-9, 9, shape).astype(np.float32) for shape in (scatter.operand, scatter.updates))
    assert_rewritten(of_element(scatter.text(rng.choice(FUNCTIONS[:5])), "f32", index), [x, scatter.indices, updates])
    assert_rewritten(of_element(scatter.text(""), "f32", index), [x, scatter.indices, updates])
    module = assert_rewritten(of_element(scatter.gather_text(), "f32", index), [x, scatter.indices])
    assert all("collapsed_slice_dims = [0], start_index_map = [0]" in line for line in module.splitlines()
               if "stablehlo.gather" in line)


def test_no_update_of_an_element__leaves_its_sign():
    """A zero is not added to elements without an update: -0.0 stays, and so does NaN where nothing replaces it."""
    scatter = Scatter((4,), np.array([[1], [1], [9]], np.int32), (3,), [], [0], [], [], [0], 1)
    for fn in ("add", "multiply", "minimum", "maximum", ""):
        x = np.array([-0.0, -0.0, np.nan, 5], np.float32)
        before, after, _ = results_before_and_after(scatter.text(fn), rewrite_indexed,
                                                    [x, scatter.indices, np.array([-0.0, -0.0, 7], np.float32)])
        np.testing.assert_array_equal(after[0].view(np.int32), before[0].view(np.int32))


@pytest.mark.parametrize("element", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("rows, updates, width", [(5, 8, 8), (5, 8, 7), (5, 7, 8), (3, 16, 12)])
def test_sums_of_many_updates__are_products(element, rows, updates, width):
    """From 8 updates of 8 elements each on the tensor engine adds. Infinities and NaN reach their rows alone."""
    values = np.random.default_rng(rows)
    indices = values.integers(-1, rows + 1, (updates, 1)).astype(np.int32)
    scatter = Scatter((rows, width), indices, (updates, width), [1], [0], [], [], [0], 1)
    x, new = (values.integers(-9, 9, shape).astype(np.float32) for shape in ((rows, width), (updates, width)))
    for fn in ("add", "subtract"):
        module = assert_rewritten(of_element(scatter.text(fn), element), [x, indices, new])
        assert ("dot_general" in module) == (min(updates, width) >= comparisons.MANY)
    for at, value in enumerate((np.inf, -np.inf, np.nan, np.inf, -np.inf)):
        new[at, at] = value
    x[-1, :3] = np.inf, -np.inf, np.nan
    assert_rewritten(of_element(scatter.text("add"), element), [x, indices, new])


@pytest.mark.parametrize("element", ["f32", "i32", "i1", "ui8"])
def test_the_last_update_of_an_element__counts(element):
    values = np.random.default_rng(2)
    for shape, batching in (((4, 3), []), ((3, 4), [0])):
        indices = values.integers(-1, 5, (3, 6, 1)).astype(np.int32)
        if batching:
            scatter = Scatter(shape, indices, (3, 6), [], [1], [0], [0], [1], 2)
        else:
            scatter = Scatter(shape, indices, (3, 6, 3), [2], [0], [], [], [0], 2)
        arguments = [drawn(values, shape, element), indices, drawn(values, scatter.updates, element)]
        assert_rewritten(of_element(scatter.text(""), element), arguments)


def test_gathers_of_complete_rows__stay():
    values = np.random.default_rng(3)
    for operand, indices, result, windows, is_row in (
            ((6, 4), (3, 1), (3, 4), [1], True), ((6, 4), (3, 1), (3, 2), [1], False),
            ((6, 4, 2), (3, 1), (3, 4, 2), [1, 2], True), ((6, 4, 2), (3, 1), (3, 4, 1), [1, 2], False)):
        gather = Scatter(operand, values.integers(-1, 8, indices).astype(np.int32), result, windows, [0], [], [], [0], 1)
        module = assert_rewritten(gather.gather_text(), [values.random(operand).astype(np.float32), gather.indices])
        assert ("compared" not in module) == is_row
    column = Scatter((6, 4), np.array([[1], [9]], np.int32), (2, 6), [1], [1], [], [], [1], 1)
    assert "compared" in assert_rewritten(column.gather_text(), [values.random((6, 4)).astype(np.float32),
                                                                 column.indices])


@pytest.mark.parametrize("body, is_known", [
    ("%c = stablehlo.add %a, %b : tensor<f32>", True), ("%c = stablehlo.add %b, %a : tensor<f32>", True),
    ("%c = stablehlo.subtract %a, %b : tensor<f32>", True), ("%c = stablehlo.subtract %b, %a : tensor<f32>", False),
    ("%c = stablehlo.add %b, %b : tensor<f32>", False), ("%c = stablehlo.divide %a, %b : tensor<f32>", False),
    ("%d = stablehlo.add %a, %b : tensor<f32>\n    %c = stablehlo.add %d, %b : tensor<f32>", False),
    ("%d = stablehlo.add %a, %b : tensor<f32>\n    %c = stablehlo.negate %d : tensor<f32>", False)])
def test_bodies_of_scatters(body, is_known):
    scatter = Scatter((4, 2), np.array([[1], [1], [3]], np.int32), (3, 2), [1], [0], [], [], [0], 1)
    text = scatter.text("add").replace("%c = stablehlo.add %a, %b : tensor<f32>", body)
    x, updates = (np.arange(1, prod(s) + 1, dtype=np.float32).reshape(s) for s in ((4, 2), (3, 2)))
    if is_known:
        assert_rewritten(text, [x, scatter.indices, updates])
    else:
        with pytest.raises(Unsupported, match="combines values otherwise"):
            results_before_and_after(text, rewrite_indexed, [x, scatter.indices, updates])


def test_a_body_that_returns_the_old_value__is_an_error():
    scatter = Scatter((4,), np.array([[1]], np.int32), (1,), [], [0], [], [], [0], 1)
    with pytest.raises(Unsupported, match="combines values otherwise"):
        results_before_and_after(scatter.text("").replace("return %b", "return %a"), rewrite_indexed,
                                 [np.zeros(4, np.float32), scatter.indices, np.ones(1, np.float32)])
