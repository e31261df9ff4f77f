# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions to the greatest or least value and its position: bodies that select otherwise, and starts that count."""

from itertools import product

import numpy as np
import pytest

from nki_mlir.bindings import ir, operations_of
from nki_mlir.frameworks.stablehlo import read_graph, run_linked
from nki_mlir.graph.extremes import evaluated, rewrite_extremes, splat_of
from nki_mlir.graph.upstream import graph_context
from tests.graph.lowered_graph import results_of

X = np.float32([[-3, -1, -2, -1], [-5, -5, -4, -7], [0, -1, 0, -2], [-np.inf] * 4])
POSITIONS = np.tile(np.arange(4, dtype=np.int32), (4, 1))
WORSE = "0x7F800000"


def graph(direction: str, start: object, first: int, tie: str = "LT", chosen: tuple[int, int] = (0, 1)) -> str:
    """A body that selects the first pair where its value compares so, or is equal and its position compares as ``tie``.
    ``chosen``: the pair that it then returns, and the other one."""
    one, other = chosen
    return f"""func.func @main(%x: tensor<4x4xf32>, %i: tensor<4x4xi32>) -> (tensor<4xf32>, tensor<4xi32>) {{
  %start = stablehlo.constant dense<{start}> : tensor<f32>
  %first = stablehlo.constant dense<{first}> : tensor<i32>
  %r:2 = stablehlo.reduce(%x init: %start), (%i init: %first) across dimensions = [1]
    : (tensor<4x4xf32>, tensor<4x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
   reducer(%v0: tensor<f32>, %v1: tensor<f32>) (%p0: tensor<i32>, %p1: tensor<i32>) {{
    %beyond = stablehlo.compare {direction}, %v0, %v1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %equal = stablehlo.compare EQ, %v0, %v1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %before = stablehlo.compare {tie}, %p0, %p1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %and = stablehlo.and %equal, %before : tensor<i1>
    %or = stablehlo.or %beyond, %and : tensor<i1>
    %v = stablehlo.select %or, %v{one}, %v{other} : tensor<i1>, tensor<f32>
    %p = stablehlo.select %or, %p{one}, %p{other} : tensor<i1>, tensor<i32>
    stablehlo.return %v, %p : tensor<f32>, tensor<i32>
  }}
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xi32>
}}"""


def folded(greatest: bool, first_of_equals: bool, start: float, first: int, positions: np.ndarray) -> list[np.ndarray]:
    """What the definition gives, pair by pair."""
    rows = []
    for row, numbers in zip(X.tolist(), positions.tolist()):
        pairs = [(start, first), *zip(row, numbers)]
        value = max(pair[0] for pair in pairs) if greatest else min(pair[0] for pair in pairs)
        equals = [pair[1] for pair in pairs if pair[0] == value]
        rows.append((value, min(equals) if first_of_equals else max(equals)))
    return [np.float32([v for v, _ in rows]), np.int32([p for _, p in rows])]


def assert_same(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.share(3)
@pytest.mark.parametrize("greatest", [True, False])
def test_starts_are_candidates(greatest):
    ends = ("0xFF800000", -np.inf), (WORSE, np.inf), ("0.0", 0.0), ("-1.0", -1.0), ("-4.0", -4.0)
    for (text, start), first, offset in product(ends, (-1, 0, 7), (0, 100)):
        program, positions = graph("GT" if greatest else "LT", text, first), POSITIONS + np.int32(offset)
        assert_same(run_linked(program, [X, positions]), folded(greatest, True, start, first, positions))
    assert_same(results_of(program, [X, positions], orders=(1,)), folded(greatest, True, start, first, positions))


@pytest.mark.parametrize("direction, tie, chosen", list(product(("GT", "LT"), ("LT", "GT"), ((0, 1), (1, 0)))))
def test_bodies__are_rewritten_only_if_they_select_the_extreme_and_the_first(direction, tie, chosen):
    """A body with the same comparisons may select the other pair, or the last one of equal values."""
    greatest = (direction == "GT") == (chosen == (0, 1))
    first_of_equals = (tie == "LT") == (chosen == (0, 1))
    text = graph(direction, "0xFF800000" if greatest else WORSE, 0, tie, chosen)
    with graph_context(), ir.Location.unknown():
        module = read_graph(text)
        rewrite_extremes(module)
        rewritten = bool(operations_of(module, lambda name: name == "func.call"))
    assert rewritten == first_of_equals
    expected = folded(greatest, first_of_equals, -np.inf if greatest else np.inf, 0, POSITIONS)
    assert_same(run_linked(text, [X, POSITIONS]), expected)


def test_splats__are_constants_of_one_number():
    text = """func.func @main(%x: tensor<2xi8>) -> (tensor<2xi8>, tensor<2xi8>, tensor<2xi8>, tensor<f32>, tensor<2xi8>) {
  %one = stablehlo.constant dense<-1> : tensor<2xi8>
  %several = stablehlo.constant dense<[1, 2]> : tensor<2xi8>
  %half = stablehlo.constant dense<-0.5> : tensor<f32>
  %sum = stablehlo.add %x, %one : tensor<2xi8>
  return %x, %one, %several, %half, %sum : tensor<2xi8>, tensor<2xi8>, tensor<2xi8>, tensor<f32>, tensor<2xi8>
}"""
    with graph_context(), ir.Location.unknown():
        module = read_graph(text)
        returned, = operations_of(module, lambda name: name == "func.return")
        assert [splat_of(value) for value in returned.operands] == [None, 255, None, -0.5, None]


COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
CONNECTIVES = {"and": "&", "or": "|", "xor": "^"}


def random_body(seed: int) -> tuple[str, list[str], list[str]]:
    """A body of comparisons, connectives, selections and extremes; its lines, and the same statements of Python."""
    rng = np.random.default_rng(seed)
    names = {"f32": ["v0", "v1"], "i32": ["p0", "p1"], "i1": []}
    lines, statements = [], []
    for number in range(rng.integers(2, 12)):
        kind = str(rng.choice(["f32", "i32"]))
        a, b = (str(rng.choice(names[kind])) for _ in range(2))
        truths, new = names["i1"], f"n{number}"
        match str(rng.choice(["compare", "not", "connective", "select", "extreme"])):
            case "not" if truths:
                c = str(rng.choice(truths))
                lines.append(f"%{new} = stablehlo.not %{c} : tensor<i1>")
                statements.append(f"{new} = not {c}")
                truths.append(new)
            case "connective" if truths:
                (c, d), name = rng.choice(truths, 2), str(rng.choice(list(CONNECTIVES)))
                lines.append(f"%{new} = stablehlo.{name} %{c}, %{d} : tensor<i1>")
                statements.append(f"{new} = {c} {CONNECTIVES[name]} {d}")
                truths.append(new)
            case "select" if truths:
                c = str(rng.choice(truths))
                lines.append(f"%{new} = stablehlo.select %{c}, %{a}, %{b} : tensor<i1>, tensor<{kind}>")
                statements.append(f"{new} = {a} if {c} else {b}")
                names[kind].append(new)
            case "extreme":
                name = str(rng.choice(["minimum", "maximum"]))
                lines.append(f"%{new} = stablehlo.{name} %{a}, %{b} : tensor<{kind}>")
                statements.append(f"{new} = {name[:3]}({a}, {b})")
                names[kind].append(new)
            case _:
                name = str(rng.choice(list(COMPARISONS)))
                lines.append(f"%{new} = stablehlo.compare {name}, %{a}, %{b} : (tensor<{kind}>, tensor<{kind}>) -> tensor<i1>")
                statements.append(f"{new} = {a} {COMPARISONS[name]} {b}")
                truths.append(new)
    return "\n".join(lines), statements, [names["f32"][-1], names["i32"][-1]]


@pytest.mark.parametrize("seed", range(60))
def test_bodies_are_evaluated_as_python_does(seed):
    lines, statements, (value, position) = random_body(seed)
    text = f"""func.func @main(%x: tensor<4xf32>, %i: tensor<4xi32>, %v: tensor<f32>, %p: tensor<i32>)
      -> (tensor<f32>, tensor<i32>) {{
  %r:2 = stablehlo.reduce(%x init: %v), (%i init: %p) across dimensions = [0]
    : (tensor<4xf32>, tensor<4xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
   reducer(%v0: tensor<f32>, %v1: tensor<f32>) (%p0: tensor<i32>, %p1: tensor<i32>) {{
    {lines}
    stablehlo.return %{value}, %{position} : tensor<f32>, tensor<i32>
  }}
  return %r#0, %r#1 : tensor<f32>, tensor<i32> }}"""
    with graph_context(), ir.Location.unknown():
        module = read_graph(text)
        reduce, = operations_of(module, lambda name: name == "stablehlo.reduce")
        block = reduce.regions[0].blocks[0]
        for v0, p0, v1, p1 in product(range(3), repeat=4):
            names = {"v0": v0, "p0": p0, "v1": v1, "p1": p1, "min": min, "max": max}
            exec("\n".join(statements), names)
            assert evaluated(block, (v0, p0, v1, p1)) == [("value", names[value]), ("position", names[position])]
