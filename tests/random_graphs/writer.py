# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write random functions of JAX or PyTorch that call kernels, and record what is known about the values of each array.

Values are small integers, which every program computes without rounding, so results are compared bit for bit. A result
that rounds (a division, a transcendental function) is returned with a bound, and no other operation uses it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ..tolerances import unit

FLOATS = ("float32", "bfloat16", "float16")
INTEGERS = ("int32", "int8", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
SIZES = (1, 2, 3, 4, 7, 16, 17, 33)
LARGE = (128, 130, 200)
ELEMENTS = 1 << 15
SMALL = 4                               # the greatest magnitude of a value that operations take
# How many roundings of its dtype a result may have gone through: where a graph's operations run one by one, each step of
# a gelu rounds to the dtype; in float32, what is summed over a large dimension.
ROUNDINGS = {"float32": 300, "bfloat16": 10, "float16": 10}


@dataclass(frozen=True)
class Value:
    """An array of the function: ``limit`` bounds the magnitude of its whole numbers."""

    text: str
    shape: tuple[int, ...]
    dtype: str
    limit: int = SMALL

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Graph:
    """A function's text, the shapes and dtypes of its arguments, and how much each of its results may be off."""

    text: str
    arguments: list[tuple[tuple[int, ...], str]]
    tolerances: list[float]

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        import ml_dtypes
        arrays, random = [], np.random.default_rng(seed)
        for shape, dtype in self.arguments:
            low = 0 if dtype in ("uint8", "bool") else -SMALL
            values = random.integers(low, 2 if dtype == "bool" else SMALL + 1, shape)
            arrays.append(values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
        return arrays


@dataclass
class GraphWriter:
    """Draws with ``below(n)``, a number from 0 to n - 1."""

    below: Callable[[int], int]
    library: str = "jnp"
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    arguments: list[Value] = field(default_factory=list)
    results: list[tuple[str, float]] = field(default_factory=list)

    def pick(self, *of: Any) -> Any:
        return of[self.below(len(of))]

    def shape(self, rank: int) -> tuple[int, ...]:
        sizes = [self.pick(*SIZES) for _ in range(rank)]
        if rank and self.below(4) == 0:
            sizes[self.below(rank)] = self.pick(*LARGE)
        while prod(sizes) > ELEMENTS:
            sizes[sizes.index(max(sizes))] = 2
        return tuple(sizes)

    # -- operands ------------------------------------------------------------------------------------------------------
    def argument(self, shape: tuple[int, ...], dtype: str) -> Value:
        argument = Value(f"x{len(self.arguments)}", shape, dtype)
        self.arguments.append(argument)
        self.values.append(argument)
        return argument

    def value(self, fits: Callable[[Value], bool] = lambda v: True, shape: tuple[int, ...] | None = None,
              dtypes: tuple[str, ...] = DTYPES) -> Value:
        """A value that was made before, or a new argument."""
        candidates = [v for v in self.values if fits(v) and v.dtype in dtypes and (shape is None or v.shape == shape)]
        if candidates and self.below(5):
            return self.small(candidates[max(self.below(len(candidates)), self.below(len(candidates)))])
        for _ in range(20):
            wanted = Value("", self.shape(self.pick(1, 2, 2, 2, 3, 4)) if shape is None else shape, self.pick(*dtypes))
            if fits(wanted):
                return self.argument(wanted.shape, wanted.dtype)
        raise Skip

    def small(self, value: Value) -> Value:
        """The value, clamped if it may have become great."""
        if value.limit <= SMALL:
            return value
        low = 0 if value.dtype == "uint8" else -SMALL
        return self.let(f"{self.library}.clip({value.text}, {low}, {SMALL})", value.shape, value.dtype)

    # -- results -------------------------------------------------------------------------------------------------------
    def let(self, text: str, shape: tuple[int, ...], dtype: str, limit: int = SMALL) -> Value:
        if prod(shape) > ELEMENTS:
            raise Skip
        value = Value(f"v{len(self.lines)}", tuple(shape), dtype, limit)
        self.lines.append(f"{value.text} = {text}")
        self.values.append(value)
        return value

    def rounded(self, text: str, dtype: str) -> None:
        """A result that programs may round in their own ways; nothing uses it."""
        name = f"r{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.results.append((name, ROUNDINGS[dtype] * unit(dtype)))

    def graph(self, rules: list[Callable[["GraphWriter"], Any]], kernels: list[Callable[["GraphWriter"], Any]]) -> Graph:
        """A function of 3 to 14 operations, a kernel among them at least."""
        steps = [self.pick(*rules) for _ in range(2 + self.below(10))]
        for _ in range(1 + self.below(3)):
            steps.insert(self.below(len(steps) + 1), self.pick(*kernels))
        for step in steps:
            try:
                step(self)
            except Skip:
                pass
        computed = [v for v in self.values if not v.text.startswith("x")]
        used = " ".join(line.split(" = ", 1)[1] for line in self.lines).replace("(", " ").replace(",", " ").replace(
            ")", " ").replace("[", " ").replace("]", " ").split()
        ends = [(v.text, 0.0) for v in computed if v.text not in used or self.below(8) == 0]
        results = ends + self.results
        if not results:
            return self.graph(rules, kernels)
        body = "".join(f"    {line}\n" for line in self.lines)
        text = (f"def function({', '.join(a.text for a in self.arguments)}):\n{body}"
                f"    return ({', '.join(n for n, _ in results)},)\n")
        return Graph(text, [(a.shape, a.dtype) for a in self.arguments], [t for _, t in results])


class Skip(Exception):
    """An operation does not suit what there is."""
