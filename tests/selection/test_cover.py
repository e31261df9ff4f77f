# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions for random expressions: the values of NumPy, whichever instructions take an operand, a constant or both."""

from collections.abc import Callable

import numpy as np
import pytest

from nki_mlir.bindings import operations_of
from nki_mlir.passes.pass_manager import pass_named, run_passes

from ..graph.nests import Operation, placed, run

BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "less": np.less, "greater_equal": np.greater_equal, "equal": np.equal, "not_equal": np.not_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or}
UNARY: dict[str, Callable[..., np.ndarray]] = {"negative": np.negative, "abs": np.abs}
FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {            # with scale and bias in one instruction
    "relu": lambda x: np.maximum(x, 0), "square": np.square}
POSITIONS = """%i = linalg.index 1 : index
%n = arith.index_cast %i : index to i32
%column = "scalar.convert"(%n) : (i32) -> f32"""
FULL, ROWS, COLUMNS = (0, 1), (0,), (1,)                # axes of inputs: one element a partition, or the same for all


def expression(random: np.random.Generator, size: int) -> tuple[list[str], Callable[..., np.ndarray]]:
    """Return the lines of a body that defines %new, and its meaning as a function of three inputs."""
    lines = [POSITIONS]
    values: list[tuple[str, Callable[..., np.ndarray]]] = [
        (f"%p{k}", lambda *inputs, k=k: inputs[k]) for k in (0, 0, 1, 2)]
    values.append(("%column", lambda *inputs: np.arange(7, dtype=np.float32)))
    for number in (2.0, -1.0):
        lines.append(f"%c{len(lines)} = arith.constant {number} : f32")
        values.append((f"%c{len(lines) - 1}", lambda *inputs, number=number: np.float32(number)))
    for step in range(size):
        last = step == size - 1
        fn = str(random.choice([*BINARY, "add", "multiply", "subtract", *UNARY, *FUNCTIONS, *FUNCTIONS, "select", "select"]))
        count = 1 if fn in UNARY or fn in FUNCTIONS else 3 if fn == "select" else 2
        chosen = [values[-1 if k == 0 and random.integers(2) else int(random.integers(len(values)))] for k in range(count)]
        random.shuffle(chosen)
        name = "%new" if last else f"%v{step}"
        kind = "activation" if fn in FUNCTIONS else "alu"
        lines.append(f'{name} = "scalar.{kind}"({", ".join(v for v, _ in chosen)}) {{fn = "{fn}"}} : '
                     f'({", ".join(["f32"] * count)}) -> f32')

        def meaning(*inputs, fn=fn, parts=tuple(f for _, f in chosen)):
            arrays = [part(*inputs) for part in parts]
            if fn == "select":
                return np.where(arrays[0] != 0, arrays[1], arrays[2])
            return np.asarray((UNARY | BINARY | FUNCTIONS)[fn](*arrays)).astype(np.float32)
        values.append((name, meaning))
    return lines, values[-1][1]


def check(operation: Operation, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    module = placed(operation.text, monkeypatch)
    run_passes(module, [pass_named("linalg-to-nisa")])
    assert not operations_of(module, lambda name: name.startswith("linalg."))
    inputs, before = operation.arrays(random)
    np.testing.assert_array_equal(run(module, inputs, before), operation.expected(inputs, before), operation.text)


def chain(random: np.random.Generator, kind: str, size: int) -> tuple[list[str], Callable[..., np.ndarray]]:
    """Return the lines of a body in which each step takes the result of the last one and an input, and its meaning."""
    functions = ["add", "subtract", "maximum", "minimum", *(["bitwise_xor", "bitwise_and"] if kind == "i32" else ["abs"])]
    steps = [(str(random.choice(functions)), int(random.integers(3)), bool(random.integers(2))) for _ in range(size)]
    lines, name = [], "%p0"
    for number, (fn, k, first) in enumerate(steps):
        operands = [name] if fn == "abs" else [name, f"%p{k}"] if first else [f"%p{k}", name]
        name = "%new" if number == size - 1 else f"%v{number}"
        lines.append(f'{name} = "scalar.alu"({", ".join(operands)}) {{fn = "{fn}"}} : '
                     f'({", ".join([kind] * len(operands))}) -> {kind}')

    def meaning(*inputs):
        total = inputs[0]
        for fn, k, first in steps:
            operands = [total] if fn == "abs" else [total, inputs[k]] if first else [inputs[k], total]
            total = getattr(np, fn)(*operands)
        return total
    return lines, meaning


def test_integers_and_deep_expressions(monkeypatch):
    for seed in range(24):
        random, kind = np.random.default_rng(seed), "i32" if seed % 2 else "f32"
        lines, meaning = chain(random, kind, 40 if seed % 4 > 1 else 4)
        check(Operation((5, 7), (FULL, ROWS, COLUMNS), (0, 1), kind, "\n".join(lines), meaning), random, monkeypatch)


@pytest.mark.parametrize("part", range(3))
def test_random_expressions(part, monkeypatch):
    for seed in range(part * 30, part * 30 + 30):
        random = np.random.default_rng(seed)
        lines, meaning = expression(random, int(random.integers(1, 9)))
        check(Operation((5, 7), (FULL, ROWS, COLUMNS), (0, 1), "f32", "\n".join(lines), meaning), random, monkeypatch)


def test_quotients_by_one_number_for_each_row(monkeypatch):
    """A divisor that is constant along some axes, whichever these are, beside a row that has only one element."""
    random = np.random.default_rng(0)

    def meaning(*inputs):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(*inputs)
    body = '%new = "scalar.alu"(%p0, %p1) {fn = "divide"} : (f32, f32) -> f32'
    for extents in ((5, 3, 40), (5, 40, 3), (3, 2, 2, 30), (5, 4, 1)):
        every = tuple(range(len(extents)))
        for axes in ((0, 1), (0, 2), (1,), (2,), every[1:], every):
            check(Operation(extents, (every, axes), every, "f32", body, meaning), random, monkeypatch)
