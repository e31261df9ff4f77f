# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranges of integers: no value of random graphs leaves its range, and ranges of single operations are exact."""

import itertools
import random

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.graph import integer_ranges
from nki_mlir.graph.integer_ranges import BINARY, UNARY, IntegerRanges
from nki_mlir.graph.upstream import graph_context

from .reference import evaluated

WIDTHS = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32, "ui32": np.uint32, "i64": np.int64}
EXTENT = 6
SPANS = [(low, high) for low in range(-5, 6) for high in range(low, 6)]
FEW_SPANS = [(-5, -5), (-5, -2), (-4, 0), (-3, 4), (-1, 1), (0, 0), (0, 3), (1, 1), (2, 5), (4, 5)]


# -- single operations -------------------------------------------------------------------------------------------------
def quotient(x, y):
    return int(x / y)


SCALAR = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "minimum": min, "maximum": max, "divide": quotient, "remainder": lambda x, y: x - quotient(x, y) * y,
    "negate": lambda x: -x, "not": lambda x: ~x, "sign": lambda x: (x > 0) - (x < 0), "abs": abs,
}


def exact(function, *spans):
    numbers = [function(*values) for values in itertools.product(*(range(low, high + 1) for low, high in spans))]
    return min(numbers), max(numbers)


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations__have_the_exact_range(name):
    assert all(UNARY[name](span) == exact(SCALAR[name], span) for span in SPANS)


@pytest.mark.parametrize("name", [name for name in BINARY if name not in ("divide", "remainder")])
def test_binary_operations__have_the_exact_range(name):
    for a, b in itertools.product(FEW_SPANS, FEW_SPANS):
        assert BINARY[name](a, b) == exact(SCALAR[name], a, b), (a, b)


@pytest.mark.parametrize("name", ["divide", "remainder"])
def test_quotients_and_remainders__stay_in_their_range(name):
    """Divisors may be 0: a quotient by zero is -1, a remainder the dividend. The range is exact enough to be useful."""
    at_zero = {"divide": lambda x: -1, "remainder": lambda x: x}[name]
    for a, b in itertools.product(SPANS, SPANS):
        low, high = exact(lambda x, y: SCALAR[name](x, y) if y else at_zero(x), a, b)
        span = BINARY[name](a, b)
        assert span[0] <= low and high <= span[1], (a, b)
        most = max(map(abs, a))
        if not b[0] <= 0 <= b[1]:
            if name == "divide":
                assert span == (low, high)
            most = min(most, max(map(abs, b)) - 1)
        if name == "remainder":
            assert span == (-most if a[0] <= -most else min(a[0], 0), most if a[1] >= most else max(a[1], 0)), (a, b)
        elif b[0] <= 0 <= b[1]:
            assert span == (-max(most, 1), max(most, 1)), (a, b)


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_bits__stay_in_their_range(name):
    function = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}[name]
    for a, b in itertools.product(SPANS, SPANS):
        low, high = exact(function, a, b)
        span = integer_ranges.bitwise(name, a, b)
        bits = max(n.bit_length() if n >= 0 else (~n).bit_length() for n in (*a, *b))
        assert span[0] <= low and high <= span[1], (a, b)
        assert -(1 << bits) <= span[0] and span[1] < 1 << bits
        assert span[0] == 0 or not (min(a[0], b[0]) >= 0 or (name == "and" and max(a[0], b[0]) >= 0))
        if name == "and" and max(a[0], b[0]) >= 0:
            assert span[1] == min(s[1] for s in (a, b) if s[0] >= 0)


@pytest.mark.parametrize("name", ["shift_left", "shift_right_logical", "shift_right_arithmetic"])
def test_shifts__stay_in_their_range(name):
    """Shifts by all bits or more give 0, or the sign. Unknown are shifts to the left by that many, and logical ones of
    negative numbers."""
    bits = 8
    for a, by in itertools.product(FEW_SPANS, [*SPANS, (3, 9), (7, 8), (7, 7), (8, 8), (9, 12)]):
        span = integer_ranges.shifted(name, a, by, bits)
        if by[0] < 0 or (name == "shift_left" and by[1] >= bits) or (name == "shift_right_logical" and a[0] < 0):
            assert span is None
        elif name == "shift_left":
            assert span == exact(lambda x, n: x << n, a, by)
        else:
            assert span == exact(lambda x, n: x >> min(n, bits), a, by)


def test_restricted_integers__have_the_exact_range():
    compare = {"LT": lambda x, y: x < y, "LE": lambda x, y: x <= y, "GT": lambda x, y: x > y, "GE": lambda x, y: x >= y,
               "EQ": lambda x, y: x == y, "NE": lambda x, y: True}
    for direction, holds in compare.items():
        for a, b in itertools.product(SPANS, FEW_SPANS):
            left = [x for x in range(a[0], a[1] + 1) if any(holds(x, y) for y in range(b[0], b[1] + 1))]
            span = integer_ranges.restricted(a, direction, b)
            assert span == (None if not left or (left[0], left[-1]) == a else (left[0], left[-1])), (direction, a, b)
            assert integer_ranges.restricted(None, direction, b) is integer_ranges.restricted(a, direction, None) is None


def test_types__have_their_limits():
    with graph_context():
        for bits, name in itertools.product((8, 16, 32, 64), ("i", "ui")):
            kind = ir.Type.parse(f"{name}{bits}")
            numbers = np.iinfo(f"{'u' * (name == 'ui')}int{bits}")
            assert integer_ranges.limits_of(kind) == (numbers.min, numbers.max)
            assert integer_ranges.limits_of(kind, 32) == ((0, 2 ** 32 - 1) if name == "ui" else (-2 ** 31, 2 ** 31 - 1))
        assert integer_ranges.limits_of(ir.Type.parse("i1")) == (0, 1)
        least, most = integer_ranges.argument_range(ir.Type.parse("i64"))
        assert (least, most) == (-(2 ** 30 - 1), 2 ** 30 - 1) and -2 ** 31 <= 2 * least and 2 * most < 2 ** 31
        assert integer_ranges.argument_range(ir.Type.parse("ui64")) == (0, 2 ** 31 - 1)


@pytest.mark.parametrize("text, span", [
    ("dense<[3, -7, 5]> : tensor<3xi32>", (-7, 5)), ("dense<-7> : tensor<3xi64>", (-7, -7)),
    ("dense<255> : tensor<2xui8>", (255, 255)), ("dense<true> : tensor<2xi1>", (1, 1)),
    ("dense<[true, false]> : tensor<2xi1>", (0, 1)), ("dense<128> : tensor<1xui8>", (128, 128)),
    ("dense<-128> : tensor<1xi8>", (-128, -128)), ("dense<127> : tensor<1xi8>", (127, 127)),
    ("dense<> : tensor<0xi32>", (0, 0)), ("dense<2.5> : tensor<2xf32>", (2.5, 2.5)),
    ("dense<0x7FC00000> : tensor<2xf32>", None), ("dense<[2.5, 1.0]> : tensor<2xf32>", None)])
def test_constants__have_their_numbers_as_range(text, span):
    with graph_context():
        assert integer_ranges.constant_range(ir.Attribute.parse(text)) == span


# -- random graphs -----------------------------------------------------------------------------------------------------
class Graph:
    """A random graph on tensors of one shape, all of whose values are results."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.lines, self.values, self.arguments = [], [], []
        for k, (kind, dtype) in enumerate(WIDTHS.items()):
            self.values.append((f"%a{k}", kind))
            limits = np.iinfo(dtype)
            numbers = [limits.min, limits.max, 0, 1, limits.max // 3, *np.random.default_rng(seed).integers(0, 100, 1)]
            self.arguments.append(np.array(self.rng.sample(numbers, EXTENT), dtype))
        self.values.append(("%f", "f32"))
        self.arguments.append(np.array([-3e9, 2.5, 0.0, -0.75, 7e20, 65519.5], np.float32))
        for _ in range(16):
            self.step()

    def kind(self, element):
        return f"tensor<{EXTENT}x{element}>"

    def let(self, operation, element):
        self.values.append((f"%v{len(self.lines)}", element))
        self.lines.append(f"%v{len(self.lines)} = {operation}")
        return self.values[-1][0]

    def pick(self, elements):
        return self.rng.choice([v for v in self.values[-8:] if v[1] in elements] or
                               [v for v in self.values if v[1] in elements])

    def constant(self, element, *numbers):
        number = self.rng.choice(numbers)
        return self.let(f"stablehlo.constant dense<{number}> : {self.kind(element)}", element)

    def another(self, value, element):
        """A value of the same type: an existing one or a constant."""
        if self.rng.random() < 0.5:
            return self.pick([element])[0]
        return self.constant(element, *((-9.5, 0.0, 40955.0, 4.2e9, 2147483000.0) if element[0] in "fb"
                                        else (0, 1, 3, 100, 127) if element[0] == "u" else (0, 1, -1, 7, -100, 127)))

    def step(self):
        rng = self.rng
        match rng.randrange(11):
            case 0:
                x, t = self.pick(WIDTHS)
                name = rng.choice([*(n for n in UNARY if t[0] == "i" or n in ("not",))])
                self.let(f"stablehlo.{name} {x} : {self.kind(t)}", t)
            case 1 | 2:
                x, t = self.pick(WIDTHS)
                name = rng.choice(["add", "subtract", "multiply", "minimum", "maximum", "and", "or", "xor"])
                self.let(f"stablehlo.{name} {x}, {self.another(x, t)} : {self.kind(t)}", t)
            case 3:
                x, t = self.pick(WIDTHS)
                by = self.constant(t, 1, 3, 100, *([-1, -7] if t[0] == "i" else []))
                name = rng.choice(["divide", "remainder"])
                one = self.let(f"stablehlo.{name} {x}, {by} : {self.kind(t)}", t)
                if name == "divide" and rng.random() < 0.5:
                    product = self.let(f"stablehlo.multiply {one}, {by} : {self.kind(t)}", t)
                    self.let(f"stablehlo.subtract {x}, {product} : {self.kind(t)}", t)
            case 4:
                x, t = self.pick(WIDTHS)
                by = self.constant(t, 0, 1, 3, 7, 8, 31, 63, 100)
                name = rng.choice(["left", "right_logical", "right_arithmetic"])
                self.let(f"stablehlo.shift_{name} {x}, {by} : {self.kind(t)}", t)
            case 5 | 6:
                x, t = self.pick(WIDTHS)
                y, name = self.another(x, t), rng.choice(sorted(integer_ranges.OPPOSITE))
                sign = "UNSIGNED" if t[0] == "u" else "SIGNED"
                holds = self.let(f"stablehlo.compare {name}, {x}, {y}, {sign} : ({self.kind(t)}, {self.kind(t)}) -> "
                                 f"{self.kind('i1')}", "i1")
                other = self.let(f"stablehlo.{rng.choice(['add', 'subtract', 'maximum'])} "
                                 f"{', '.join(rng.sample([x, self.another(x, t)], 2))} : {self.kind(t)}", t)
                ends = rng.sample([x, other, self.another(x, t)], 2)
                self.let(f"stablehlo.select {holds}, {ends[0]}, {ends[1]} : {self.kind('i1')}, {self.kind(t)}", t)
            case 7:
                x, t = self.pick([*WIDTHS, "f32"])
                low, high = self.another(x, t), self.another(x, t)
                if t == "f32":
                    high = self.constant(t, 0.5, 40955.0, 65519.0, 2147483000.0, 4e9)
                    low = self.constant(t, -40955.0, -0.5, -65519.0, -2147483000.0)
                else:
                    low, high = (self.let(f"stablehlo.{n} {low}, {high} : {self.kind(t)}", t)
                                 for n in ("minimum", "maximum"))
                self.let(f"stablehlo.clamp {low}, {x}, {high} : {self.kind(t)}", t)
            case 8:
                x, t = self.pick([*WIDTHS, "f32", "bf16", "f16"])
                to = rng.choice([n for n in (*WIDTHS, "f32", "bf16", "f16") if n != t and (t[0] in "iu" or n[0] in "fb"
                                                                                        )])
                wide = self.let(f"stablehlo.convert {x} : ({self.kind(t)}) -> {self.kind(to)}", to)
                if to[0] in "fb" and to != "f32":
                    self.let(f"stablehlo.convert {wide} : ({self.kind(to)}) -> {self.kind('f32')}", "f32")
            case 9:
                x, t = self.pick(["f32"])
                name = rng.choice(["floor", "ceil", "round_nearest_even", "round_nearest_afz"])
                self.let(f"stablehlo.{name} {x} : {self.kind(t)}", t)
            case 10:
                x, t = self.pick(WIDTHS)
                name, start = rng.choice([("add", 0), ("maximum", 0), ("minimum", 1), ("multiply", 1)])
                scalar = f"tensor<{t}>"
                self.lines.append(f"%s{len(self.lines)} = stablehlo.constant dense<{start}> : {scalar}")
                start = f"%s{len(self.lines) - 1}"
                self.lines.append(f"%s{len(self.lines)} = stablehlo.reduce({x} init: {start}) applies stablehlo.{name} "
                                  f"across dimensions = [0] : ({self.kind(t)}, {scalar}) -> {scalar}")
                self.let(f"stablehlo.broadcast_in_dim %s{len(self.lines) - 1}, dims = [] : ({scalar}) -> "
                         f"{self.kind(t)}", t)

    def text(self):
        arguments = ", ".join(f"{name}: {self.kind(t)}" for name, t in self.values[:len(self.arguments)])
        results = [(name, t) for name, t in self.values if t not in ("bf16", "f16")]
        kinds = ", ".join(self.kind(t) for _, t in results)
        return (f"func.func @main({arguments}) -> ({kinds}) {{\n  " + "\n  ".join(self.lines)
                + f"\n  return {', '.join(name for name, _ in results)} : {kinds}\n}}")


def assert_values_are_in_their_ranges(text, arguments):
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        ranges = IntegerRanges(module, False)
        block = module.body.operations[0].operation.regions[0].blocks[0]
        values = [*block.operations][-1].operation.operands
        for value, array in zip(values, evaluated(module, arguments), strict=True):
            span = ranges.range(value)
            if span is not None and array.size and not np.isnan(array).any():
                least, most = array.min().item(), array.max().item()
                assert span[0] <= least and most <= span[1], f"{value}: {span}, {least} to {most}\n{text}"


@pytest.mark.parametrize("seed", range(60))
def test_values_of_random_graphs__are_in_their_ranges(seed):
    graph = Graph(seed)
    assert_values_are_in_their_ranges(graph.text(), graph.arguments)


# -- loops, branches and folds -----------------------------------------------------------------------------------------
def loop_text(start, direction, limit, step, carried="stablehlo.add %s, %n"):
    """A loop that counts, and carries another number that each iteration changes."""
    return f"""func.func @main() -> (tensor<i32>, tensor<i32>) {{
  %a = stablehlo.constant dense<{start}> : tensor<i32>
  %l = stablehlo.constant dense<{limit}> : tensor<i32>
  %b = stablehlo.constant dense<{step}> : tensor<i32>
  %z = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%n = %a, %s = %z) : tensor<i32>, tensor<i32>
    cond {{
      %c = stablehlo.compare {direction}, %n, %l, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      %m = stablehlo.add %n, %b : tensor<i32>
      %t = {carried} : tensor<i32>
      stablehlo.return %m, %t : tensor<i32>, tensor<i32>
    }}
  return %r#0, %r#1 : tensor<i32>, tensor<i32>
}}"""


def spans_of_results(text):
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        ranges = IntegerRanges(module, False)
        end = [*module.body.operations[0].operation.regions[0].blocks[0].operations][-1].operation
        return [ranges.range(value) for value in end.operands]


@pytest.mark.share(3)
@pytest.mark.parametrize("carried", ["stablehlo.add %s, %n", "stablehlo.maximum %s, %n", "stablehlo.minimum %s, %n",
                                     "stablehlo.subtract %n, %s", "stablehlo.add %n, %n", "stablehlo.negate %s"])
@pytest.mark.parametrize("start, direction, limit, step", [
    (0, "LT", 7, 1), (0, "LE", 7, 3), (9, "GT", 2, -1), (9, "GE", 2, -4), (0, "NE", 6, 2), (3, "LT", 3, 1),
    (5, "LT", -5, 1), (-20, "LT", 20, 7), (3, "EQ", 3, 2)])
def test_loops__have_ranges_that_iterations_keep(start, direction, limit, step, carried):
    text = loop_text(start, direction, limit, step, carried)
    assert_values_are_in_their_ranges(text, [])
    span = spans_of_results(text)[0]
    if direction not in ("NE", "EQ") and (start < limit) == (step > 0) and start != limit:
        assert span == tuple(sorted([start, limit + (direction == "GT") - (direction == "LT") + step]))


def test_counters__end_at_most_a_step_behind_their_limit():
    """A number that iterations add to may wrap, so it has the range of its type."""
    every = (-2 ** 31, 2 ** 31 - 1)
    assert spans_of_results(loop_text(0, "LT", 7, 1)) == [(0, 7), every]
    assert spans_of_results(loop_text(9, "GT", 2, -1, "stablehlo.maximum %s, %n")) == [(2, 9), (1, every[1])]
    assert spans_of_results(loop_text(9, "GT", 2, -1, "stablehlo.minimum %s, %n")) == [(2, 9), (1, 1)]


def branches_text(operation, index, *bodies):
    regions = ", ".join(f"{{\n    %v{k} = {body} : tensor<i32>\n    stablehlo.return %v{k} : tensor<i32>\n  }}"
                        for k, body in enumerate(bodies))
    return f"""func.func @main(%i: tensor<{index}>, %x: tensor<i32>) -> tensor<i32> {{
  %c = stablehlo.constant dense<9> : tensor<i32>
  %r = "stablehlo.{operation}"(%i) ({regions}) : (tensor<{index}>) -> tensor<i32>
  return %r : tensor<i32>
}}"""


def test_branches__have_the_ranges_of_all_ends():
    three = ["stablehlo.constant dense<3>", "stablehlo.negate %c", "stablehlo.constant dense<4>"]
    text = branches_text("case", "i32", *three)
    assert spans_of_results(text) == [(-9, 4)]
    for k in range(3):
        assert_values_are_in_their_ranges(text, [np.int32(k), np.int32(0)])
    assert spans_of_results(branches_text("if", "i1", *three[:2])) == [(-9, 3)]
    assert spans_of_results(branches_text("if", "i1", three[0], "stablehlo.abs %x")) == [(-2 ** 31, 2 ** 31 - 1)]


FOLDS = {               # operands, attributes and types
    "reduce": ("%y, %s", "dimensions = array<i64: 0>", "(tensor<5xi32>, tensor<i32>) -> tensor<i32>"),
    "reduce_window": ("%y, %s", "window_dimensions = array<i64: 2>", "(tensor<5xi32>, tensor<i32>) -> tensor<4xi32>"),
    "scatter": ("%t, %i, %y", "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
                "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>",
                "(tensor<4xi32>, tensor<5x1xi32>, tensor<5xi32>) -> tensor<4xi32>"),
}


def fold_text(operation, body):
    """A fold of 5 numbers from -2 to 3 into 7; the scatter adds all of them to one."""
    operands, attributes, kinds = FOLDS[operation]
    result = kinds.partition("-> ")[2]
    return f"""func.func @main(%x: tensor<5xi32>) -> {result} {{
  %l = stablehlo.constant dense<-2> : tensor<5xi32>
  %h = stablehlo.constant dense<3> : tensor<5xi32>
  %y = stablehlo.clamp %l, %x, %h : tensor<5xi32>
  %s = stablehlo.constant dense<7> : tensor<i32>
  %t = stablehlo.constant dense<7> : tensor<4xi32>
  %i = stablehlo.constant dense<1> : tensor<5x1xi32>
  %r = "stablehlo.{operation}"({operands}) ({{
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    {body}
    stablehlo.return %c : tensor<i32>
  }}) {{{attributes}}} : {kinds}
  return %r : {result}
}}"""


ADD = "%c = stablehlo.add %a, %b : tensor<i32>"


@pytest.mark.parametrize("operation, body, span", [
    ("reduce", ADD, (7 - 10, 7 + 15)), ("reduce", ADD.replace("%a, %b", "%b, %a"), (-3, 22)),
    ("reduce_window", ADD, (7 - 4, 7 + 6)), ("scatter", ADD, (7 - 10, 7 + 15)),
    ("reduce", ADD.replace("add", "maximum"), (-2, 7)), ("scatter", ADD.replace("add", "minimum"), (-2, 7)),
    ("reduce", ADD.replace("add", "multiply"), (-2 ** 31, 2 ** 31 - 1)),
    ("reduce", ADD.replace("%a, %b", "%a, %a"), (-2 ** 31, 2 ** 31 - 1)),
    ("reduce", ADD.replace("%c", "%d") + "\n    %c = stablehlo.negate %d : tensor<i32>", (-2 ** 31, 2 ** 31 - 1))])
def test_folds__have_the_ranges_of_their_sums(operation, body, span):
    text = fold_text(operation, body)
    assert spans_of_results(text) == [span]
    for x in ([9] * 5, [-9] * 5, [1, -5, 2, 0, 3]):
        assert_values_are_in_their_ranges(text, [np.array(x, np.int32)])
