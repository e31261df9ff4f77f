# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of records: their intervals, and what they are once they were written to MLIR and read back."""

import itertools
import random

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.targets.neuron.codegen.code_writer import write_code
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.codegen.records import (
    ARITHMETIC,
    Block,
    Branch,
    Computed,
    Loop,
    LoopVariable,
    Value,
    compute,
    value_range,
)

KERNEL = """module attributes {nki.target = "trn2"} {
  func.func @kernel(%x: memref<4x4xf32, "hbm"> {nki.name = "x"}) attributes {nki.grid = [], nki.results = []} {
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %five = arith.constant 5 : index
    %six = arith.constant 6 : index
    scf.for %i = %one to %six step %two {
      scf.for %j = %one to %five step %one {
        %go = arith.cmpi slt, %i, %j : index
        scf.if %go { }
      }
    }
    return
  }
}"""
TRUTHS = "lt", "le", "gt", "ge", "eq", "ne"


def drawn(r: random.Random, variables: list[Value], depth: int, truth: bool = False) -> Value:
    """Draw a value; products, quotients and remainders are by constants."""
    if truth:
        if depth > 1 and r.random() < 0.4:
            return compute(r.choice(("and", "or")), *(drawn(r, variables, depth - 1, True) for _ in range(2)))
        return compute(r.choice(TRUTHS), *(drawn(r, variables, depth - 1) for _ in range(2)))
    if depth <= 0 or r.random() < 0.15:
        return r.choice([*variables, *variables, r.randint(-5, 5)])
    op = r.choice(("add", "subtract", "mult", "mod", "floordiv", "min", "max", "truth"))
    lhs = drawn(r, variables, depth - 1)
    if op == "truth":
        return drawn(r, variables, depth - 1, True)
    if op in ("mod", "floordiv"):
        return compute(op, lhs, r.randint(1, 5))
    return compute(op, lhs, r.randint(-3, 3) if op == "mult" else drawn(r, variables, depth - 1))


def evaluated(value: Value, values: dict[LoopVariable, int]) -> int:
    if isinstance(value, Computed):
        return int(ARITHMETIC[value.op](evaluated(value.lhs, values), evaluated(value.rhs, values)))
    return value if isinstance(value, int) else values[value]


def test_interval_contains_the_value() -> None:
    r = random.Random(0)
    variables = LoopVariable("i", 1, 5), LoopVariable("j", -3, 4)
    exact = 0
    for _ in range(300):
        value = drawn(r, [*variables], 3)
        numbers = [evaluated(value, dict(zip(variables, at))) for at in itertools.product(range(1, 6), range(-3, 5))]
        low, high = value_range(value)
        assert low <= min(numbers) and max(numbers) <= high
        exact += (low, high) == (min(numbers), max(numbers))
    assert exact > 200


@pytest.mark.parametrize("op", ["and", "or"])
def test_interval_of_bits__contains_the_value(op: str) -> None:
    """A clamp whose limits the interval keeps is left out, so that numbers must not count as truths."""
    r = random.Random(1)
    for _ in range(300):
        lows = [r.randint(-9, 9) for _ in range(2)]
        sides = [LoopVariable(name, low, low + r.randint(0, 6)) for name, low in zip("ij", lows)]
        low, high = value_range(compute(op, *sides))
        numbers = [ARITHMETIC[op](a, b) for a, b in itertools.product(*[range(v.low, v.high + 1) for v in sides])]
        assert low <= min(numbers) and max(numbers) <= high
    truths = [LoopVariable(name, 0, 1) for name in "ij"]
    assert value_range(compute(op, *truths)) == (0, 1)
    assert isinstance(compute("min", compute("and", LoopVariable("i", 0, 5), 6), 2), Computed)


def loops(block: Block) -> tuple[Loop, Loop]:
    outer, = (node for node in block.nodes if isinstance(node, Loop))
    inner, = outer.body.nodes
    assert isinstance(inner, Loop)
    return outer, inner


@pytest.mark.parametrize("part", range(2))
def test_values_in_mlir(part: int) -> None:
    """Conditions in two loops are equal for all values of the variables after they were written and read."""
    for seed in range(40 * part, 40 * part + 40):
        r = random.Random(seed)
        with shared_context(), ir.Location.unknown():
            module = ir.Module.parse(KERNEL)
            code = read_code(the_kernel(module))
            before = loops(code.body)
            branch, = before[1].body.nodes
            assert isinstance(branch, Branch)
            branch.condition = condition = drawn(r, [loop.variable for loop in before], 4, True)
            if isinstance(condition, int):
                continue
            write_code(the_kernel(module), code)
            assert module.operation.verify()
            after = loops(read_code(the_kernel(module)).body)
            again, = after[1].body.nodes
        assert isinstance(again, Branch)
        for at in itertools.product(*(loop.span for loop in before)):
            expected, result = (bool(evaluated(value, dict(zip([loop.variable for loop in both], at))))
                                for value, both in ((condition, before), (again.condition, after)))
            assert result is expected, (seed, at, condition, again.condition)
