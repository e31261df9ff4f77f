# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches, choices and loops of graphs within each other, on the instruction streams, against Python."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.frameworks.stablehlo import LinkedProgram

ROOT = Path(__file__).parents[2]
I32, F32 = "tensor<i32>", "tensor<4xf32>"
BOTH = f"({I32}, {F32})"
State = tuple[int, np.ndarray]
Step = Callable[[State], State]


class Writer:
    """Statements on an integer and a tile, as StableHLO and as Python, which agree."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def put(self, text: str) -> str:
        self.lines.append(f"{(name := self.name())} = {text}")
        return name

    def number(self, value: int) -> str:
        return self.put(f"stablehlo.constant dense<{value}> : {I32}")

    def region(self, n: str, x: str, depth: int) -> Step:
        """A region of one more statement, which returns both."""
        n, x, step = self.statement(n, x, depth - 1)
        self.lines.append(f"stablehlo.return {n}, {x} : {I32}, {F32}")
        return step

    def compared(self, n: str, direction: str, limit: int) -> str:
        bound = self.number(limit)
        return self.put(f"stablehlo.compare {direction}, {n}, {bound} : ({I32}, {I32}) -> tensor<i1>")

    def statement(self, n: str, x: str, depth: int) -> tuple[str, str, Step]:
        kind = self.rng.choice(["if", "case", "while"]) if depth else "plain"
        return getattr(self, f"{kind}_")(n, x, depth)

    def plain_(self, n: str, x: str, depth: int) -> tuple[str, str, Step]:
        more, factor = self.rng.randint(1, 4), self.rng.choice([-1.0, 0.5, 2.0])
        by, constant = self.number(more), self.put(f"stablehlo.constant dense<{factor}> : {F32}")
        total = self.put(f"stablehlo.add {n}, {by} : {I32}")
        one = self.put(f"stablehlo.constant dense<1.0> : {F32}")
        scaled = self.put(f"stablehlo.multiply {x}, {constant} : {F32}")
        return total, self.put(f"stablehlo.add {scaled}, {one} : {F32}"), lambda s: (
            s[0] + more, s[1] * np.float32(factor) + 1)

    def if_(self, n: str, x: str, depth: int) -> tuple[str, str, Step]:
        limit = self.rng.randint(-2, 8)
        holds = self.compared(n, "LT", limit)
        name = self.name()
        self.lines.append(f'{name}:2 = "stablehlo.if"({holds}) ({{')
        first = self.region(n, x, depth)
        self.lines.append("}, {")
        second = self.region(n, x, depth)
        self.lines.append(f"}}) : (tensor<i1>) -> {BOTH}")
        return f"{name}#0", f"{name}#1", lambda s: first(s) if s[0] < limit else second(s)

    def case_(self, n: str, x: str, depth: int) -> tuple[str, str, Step]:
        name, steps = self.name(), []
        self.lines.append(f'{name}:2 = "stablehlo.case"({n}) ({{')
        for k in range(count := self.rng.randint(2, 3)):
            steps.append(self.region(n, x, depth))
            self.lines.append("}, {" if k < count - 1 else f"}}) : ({I32}) -> {BOTH}")
        return f"{name}#0", f"{name}#1", lambda s: steps[s[0] if 0 <= s[0] < count else -1](s)

    def while_(self, n: str, x: str, depth: int) -> tuple[str, str, Step]:
        limit, name, i, t = self.rng.randint(1, 6), self.name(), self.name(), self.name()
        self.lines.append(f"{name}:2 = stablehlo.while({i} = {n}, {t} = {x}) : {I32}, {F32} cond {{")
        self.lines.append(f"stablehlo.return {self.compared(i, 'LT', limit)} : tensor<i1>")
        self.lines.append("} do {")
        body = self.region(i, t, depth)
        self.lines.append("}")

        def run(state: State) -> State:
            while state[0] < limit:
                state = body(state)
            return state
        return f"{name}#0", f"{name}#1", run


@pytest.mark.parametrize("on", ["jit", "isa"])
def test_a_counter_of_one_bit(on):
    """Its numbers are truths, whose constants have no digits."""
    text = (ROOT / "tests" / "fuzzing" / "corpus" / "stablehlo" / "counter_of_one_bit").read_text()
    x = np.linspace(-2, 3, 32, dtype=np.float32).reshape(4, 8)
    result, = LinkedProgram(text, on)(x)
    np.testing.assert_array_equal(result, x * x)


@pytest.mark.parametrize("seed", range(5))
def test_regions_within_each_other(seed):
    """What each region gives goes on in the next; each starts on both sides of its bounds."""
    writer = Writer(random.Random(seed))
    n, x, first = writer.statement("%n", "%x", 2)
    n, x, second = writer.statement(n, x, 1)
    text = "\n".join([f"func.func @main(%n: {I32}, %x: {F32}) -> {BOTH} {{", *writer.lines,
                      f"return {n}, {x} : {I32}, {F32}", "}"])
    program, tile = LinkedProgram(text, "isa"), np.arange(4, dtype=np.float32)
    for start in (-1, 0, 2, 9):
        wanted = second(first((start, tile)))
        got = program(np.int32(start), tile)
        assert got[0] == wanted[0]
        np.testing.assert_array_equal(got[1], wanted[1])
