# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""narrow-integers: programs of 64-bit integers give the same numbers in 32 bits, or are refused."""

import numpy as np
import pytest

from nki_mlir.bindings import Module, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.frameworks.stablehlo import LinkedProgram, run_linked, simulate_linked
from nki_mlir.graph.host_integers import DoesNotFit
from nki_mlir.graph.upstream import graph_context
from nki_mlir.passes.pass_manager import pass_named, run_passes

N = 12
PROGRAMS = 40
BINARY = ("add", "subtract", "multiply", "and", "or", "xor", "minimum", "maximum", "divide", "remainder", "shift_left",
          "shift_right_logical", "shift_right_arithmetic")
UNARY = ("negate", "not", "abs", "sign")
MOST = (1 << 30) - 1                # of arguments
LIMITS = [-(1 << 31), (1 << 31) - 1, -1, 0, 1, 7, 100, -40000, 65536, 1 << 20]


def narrowed(text: str) -> str:
    with graph_context(), ir.Location.unknown():
        module: Module = ir.Module.parse(text)
        run_passes(module, [pass_named("narrow-integers")])
        return str(module)


class RandomProgram:
    """A function of 64-bit integers, of positions, arguments and constants, with results of several types."""

    def __init__(self, rng: np.random.Generator, unsigned: bool) -> None:
        self.rng, self.sign = rng, "UNSIGNED" if unsigned else "SIGNED"
        self.wide, self.word = ("ui64", "ui32") if unsigned else ("i64", "i32")
        self.lines: list[str] = []
        self.values = [self.line(f"convert %a : (tensor<{N}x{self.word}>) -> {self.kind}"), "%b",
                       self.line(f"iota dim = 0 : {self.kind}"),
                       self.line(f"convert %c : (tensor<{N}xi1>) -> {self.kind}")]

    @property
    def kind(self) -> str:
        return f"tensor<{N}x{self.wide}>"

    def line(self, text: str) -> str:
        self.lines.append(f"%{len(self.lines)} = stablehlo.{text}")
        return f"%{len(self.lines) - 1}"

    def number(self, limit: int) -> str:
        number = int(self.rng.integers(-limit, limit)) if self.sign == "SIGNED" else int(self.rng.integers(limit))
        return self.line(f"constant dense<{number}> : {self.kind}")

    def any(self) -> str:
        recent = self.values[-6:] if self.rng.random() < 0.7 else self.values
        return str(self.rng.choice(recent))

    def grow(self) -> None:
        kind, draw = self.kind, self.rng.random()
        if draw < 0.2:
            value = self.number(1 << int(self.rng.integers(1, 40)))
        elif draw < 0.3:
            low, high = sorted(int(n) for n in self.rng.integers(0, 1 << 20, 2))
            low, high = (self.line(f"constant dense<{n}> : {kind}") for n in (low, high))
            value = self.line(f"clamp {low}, {self.any()}, {high} : {kind}")
        elif draw < 0.45:
            direction = self.rng.choice(["LT", "LE", "GT", "GE", "EQ", "NE"])
            x, limit = self.any(), self.rng.choice([self.any(), self.number(1000)])
            holds = self.line(f"compare {direction}, {x}, {limit}, {self.sign} : ({kind}, {kind}) -> tensor<{N}xi1>")
            moved = self.line(f"add {x}, {self.number(1 << 16)} : {kind}")
            ends = self.rng.permutation([moved, self.any()])
            value = self.line(f"select {holds}, {ends[0]}, {ends[1]} : tensor<{N}xi1>, {kind}")
        elif draw < 0.55 and self.sign == "SIGNED":
            value = self.line(f"{self.rng.choice(UNARY)} {self.any()} : {kind}")
        else:
            name, other = self.rng.choice(BINARY), self.any()
            if name.startswith("shift"):
                other = self.line(f"constant dense<{self.rng.integers(0, 70)}> : {kind}")
            value = self.line(f"{name} {self.any()}, {other} : {kind}")
        self.values.append(value)

    def text(self) -> str:
        kinds = [self.kind, f"tensor<{N}x{self.word}>", f"tensor<{N}xf32>"]
        last = self.values[-1]
        results = [last] + [self.line(f"convert {last} : ({self.kind}) -> {kind}") for kind in kinds[1:]]
        wanted = self.rng.permutation(3)[:self.rng.integers(1, 3)]
        arguments = f"%a: tensor<{N}x{self.word}>, %b: {self.kind}, %c: tensor<{N}xi1>"
        return "\n".join([f"func.func @main({arguments}) -> ({', '.join(kinds[k] for k in wanted)}) {{", *self.lines,
                          f"return {', '.join(results[k] for k in wanted)} : {', '.join(kinds[k] for k in wanted)}", "}"])


def arguments_of(rng: np.random.Generator, unsigned: bool) -> list[np.ndarray]:
    numbers = np.array([n for n in LIMITS if n >= 0 or not unsigned])
    a = rng.choice(numbers, N).astype(np.uint32 if unsigned else np.int32)
    b = np.clip(rng.choice(numbers, N), -MOST, MOST).astype(np.uint64 if unsigned else np.int64)
    return [a, b, rng.random(N) < 0.5]


def same_or_refused(seed: int) -> bool:
    """Compare a random program with its narrowed form on the CPU; return whether it was not refused."""
    rng = np.random.default_rng(seed)
    unsigned = bool(rng.random() < 0.25)
    program = RandomProgram(rng, unsigned)
    for _ in range(rng.integers(1, 9)):
        program.grow()
    text, arguments = program.text(), arguments_of(rng, unsigned)
    try:
        narrow_text = narrowed(text)
    except Unsupported:
        return False
    program_of_words = LinkedProgram(narrow_text)
    words = [a.astype(dtype) for a, (_, dtype) in zip(arguments, program_of_words.inputs)]
    for result, word in zip(run_linked(text, arguments), program_of_words(*words), strict=True):
        np.testing.assert_array_equal(result, word.astype(result.dtype), text)
    return True


def test_random_programs_are_the_same_or_refused():
    """Most of them are narrowed, although few of their values are bounded."""
    ran = sum(same_or_refused(seed) for seed in range(PROGRAMS))
    assert PROGRAMS // 5 <= ran < PROGRAMS


IDENTITY = """func.func @main(%a: tensor<4xi64>) -> (tensor<4xi64>, tensor<4xf32>) {
  %0 = stablehlo.negate %a : tensor<4xi64>
  %1 = stablehlo.convert %0 : (tensor<4xi64>) -> tensor<4xf32>
  return %0, %1 : tensor<4xi64>, tensor<4xf32>
}"""


def test_arguments_and_results__of_streams():
    numbers = np.array([-MOST, -1, 0, MOST])
    negative, as_float = simulate_linked(IDENTITY, [numbers])
    assert negative.dtype == np.int64 and negative.tolist() == [MOST, 1, 0, -MOST]
    np.testing.assert_array_equal(as_float, (-numbers).astype(np.float32))


@pytest.mark.parametrize("number", [MOST + 1, -MOST - 1, 1 << 40, -1 << 63])
def test_argument_that_does_not_fit(number):
    with pytest.raises(DoesNotFit) as caught:
        simulate_linked(IDENTITY, [np.array([0, 1, number, 2])])
    assert str(caught.value).startswith(
        f"error: argument 0 has the int64 {number}; instruction streams take numbers from -1073741823 to 1073741823")


def test_moved_integers_keep_64_bits():
    text = ("func.func @main(%a: tensor<4x8xi64>) -> tensor<8x4xi64> { %0 = stablehlo.transpose %a, dims = [1, 0] : "
            "(tensor<4x8xi64>) -> tensor<8x4xi64> return %0 : tensor<8x4xi64> }")
    numbers = np.random.default_rng(0).integers(-1 << 63, 1 << 63, (4, 8))
    np.testing.assert_array_equal(simulate_linked(text, [numbers])[0], numbers.T)


LOOP = """func.func @main(%a: tensor<4xi32>) -> tensor<4xi64> {{
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %step = stablehlo.constant dense<{step}> : tensor<i64>
  %limit = stablehlo.constant dense<{limit}> : tensor<i64>
  %0:2 = stablehlo.while(%n = %zero, %x = %zero) : tensor<i64>, tensor<i64>
  cond {{
    %1 = stablehlo.compare LT, %n, %limit, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }} do {{
    %1 = stablehlo.add %n, %step : tensor<i64>
    stablehlo.return %1, %{carried} : tensor<i64>, tensor<i64>
  }}
  %2 = stablehlo.broadcast_in_dim %0#1, dims = [] : (tensor<i64>) -> tensor<4xi64>
  return %2 : tensor<4xi64>
}}"""


def test_loops():
    """A counter has the range of its limit; the last sum may leave it by one step."""
    text = narrowed(LOOP.format(step=1 << 30, limit=1 << 30, carried="n"))
    assert "-> tensor<4xi32>" in text and "i64" not in text
    for step, limit, carried in ((1 << 30, (1 << 30) + 1, "1"), (1, 1 << 31, "n"), (-1, 5, "1")):
        with pytest.raises(Unsupported, match="which may not fit 32 bits"):
            narrowed(LOOP.format(step=step, limit=limit, carried=carried))


@pytest.mark.parametrize("low, high, x, fits", [
    ("5", "3", [0, 4, 9], False),                           # the upper limit applies last: 3
    ("6", "7", [0, 4, 9], True), ("6.0", "7.0", [np.nan, 7, 1], False), ("0.0", "7.0", [np.nan, 7, 1], False)])
def test_clamps__with_exchanged_limits_and_of_nan(low, high, x, fits):
    """A NaN becomes the integer 0, which may lie outside of the limits."""
    element = "f32" if "." in low else "i64"
    text = f"""func.func @main(%x: tensor<3x{element}>) -> tensor<3xf32> {{
  %low = stablehlo.constant dense<{low}> : tensor<{element}>
  %high = stablehlo.constant dense<{high}> : tensor<{element}>
  %eight = stablehlo.constant dense<8> : tensor<3xi64>
  %factor = stablehlo.constant dense<500000000> : tensor<3xi64>
  %y = stablehlo.clamp %low, %x, %high : (tensor<{element}>, tensor<3x{element}>, tensor<{element}>) -> tensor<3x{element}>
  %n = stablehlo.convert %y : (tensor<3x{element}>) -> tensor<3xi64>
  %d = stablehlo.subtract %eight, %n : tensor<3xi64>
  %m = stablehlo.multiply %d, %factor : tensor<3xi64>
  %r = stablehlo.convert %m : (tensor<3xi64>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}}"""
    numbers = np.array(x, np.float32 if element == "f32" else np.int64)
    clamped = np.nan_to_num(np.minimum(np.maximum(numbers, float(low)), float(high)))
    expected = np.float32(500000000 * (8 - clamped.astype(np.int64)))
    np.testing.assert_array_equal(run_linked(text, [numbers])[0], expected)
    if fits:
        np.testing.assert_array_equal(simulate_linked(text, [numbers])[0], expected)
    else:
        with pytest.raises(Unsupported, match=r"multiply.*which may not fit 32 bits"):
            simulate_linked(text, [numbers])


def test_sums_of_many_elements():
    text = """func.func @main(%a: tensor<{n}xi16>) -> tensor<i64> {{
      %0 = stablehlo.convert %a : (tensor<{n}xi16>) -> tensor<{n}xi64>
      %1 = stablehlo.constant dense<0> : tensor<i64>
      %2 = stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [0] : (tensor<{n}xi64>, tensor<i64>)
        -> tensor<i64>
      return %2 : tensor<i64>
    }}"""
    assert "-> tensor<i32>" in narrowed(text.format(n=65535))
    with pytest.raises(Unsupported, match=r"'stablehlo.reduce' on 64-bit integers with values from -2147516416"):
        narrowed(text.format(n=65536 + 1))


THREE_TIMES = """func.func @main(%a: tensor<4xi64>) -> (tensor<4xi1>, tensor<4xi64>) {
  %0 = stablehlo.add %a, %a : tensor<4xi64>
  %1 = stablehlo.add %0, %a : tensor<4xi64>
  %c = stablehlo.constant dense<9> : tensor<4xi64>
  %2 = stablehlo.compare LT, %1, %c, SIGNED : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %3 = stablehlo.divide %a, %c : tensor<4xi64>
  return %2, %3 : tensor<4xi1>, tensor<4xi64>
}"""
SUM_OF_WORDS = """func.func @main(%a: tensor<70000xi32>) -> tensor<i64> {
  %0 = stablehlo.convert %a : (tensor<70000xi32>) -> tensor<70000xi64>
  %1 = stablehlo.constant dense<0> : tensor<i64>
  %2 = stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [0] : (tensor<70000xi64>, tensor<i64>)
    -> tensor<i64>
  return %2 : tensor<i64>
}"""
FAULTS = {
    "every integer fits": ("graph.integer_ranges.IntegerRanges.fits", lambda *arguments: True, THREE_TIMES,
                           np.array([1 << 29, MOST, 0, -MOST])),
    "arguments are small": ("graph.integer_ranges.argument_range", lambda kind: (-100, 100), THREE_TIMES,
                            np.array([1 << 29, MOST, 0, -MOST])),
    "all results of an operation fit": ("transforms.narrow_integers.Narrowing.must_fit", lambda *arguments: None,
                                        SUM_OF_WORDS, np.full(70000, 65536, np.int32)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_seeded_fault__changes_values(name, monkeypatch):
    """The pass refuses these programs, as their arguments leave 32 bits. With the fault it does not."""
    target, fault, text, argument = FAULTS[name]
    with pytest.raises(Unsupported, match="which may not fit 32 bits, as engine instructions"):
        narrowed(text)
    monkeypatch.setattr(f"nki_mlir.{target}", fault)
    program = LinkedProgram(narrowed(text))
    results = program(argument.astype(program.inputs[0][1]))
    assert not all(np.array_equal(one, other) for one, other in zip(run_linked(text, [argument]), results, strict=True))
