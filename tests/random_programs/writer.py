# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write random kernels: scopes, loops, masks, operands, and what is known about the values of each tile.

All values that a kernel uses are exact: equal on all executors, bit for bit. It stores a result that is not exact (a
sum that rounds, a transcendental function) at once, with the bound within which executors may differ, and uses it for
nothing else.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, prod
from typing import Any

import numpy as np

from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import ALL, BOOL, DType, convert

DTYPES = tuple(d for d in ALL if d.bits <= 32)
FLOATS = tuple(d for d in DTYPES if d.is_float)
WIDE = tuple(d for d in FLOATS if d.bits > 8)
INTEGERS = tuple(d for d in DTYPES if d.is_integer)
ROWS, COLUMNS = 192, 192                # of the input arrays
WIDEST = COLUMNS - 12                   # elements of a partition that a tile loaded from them can have
EXACT_BITS = 2.0 ** 23


@dataclass(frozen=True)
class Facts:
    """Values are multiples of ``unit`` (0: any), at most ``bound`` in magnitude (inf: anything, NaN included)."""

    bound: float = inf
    unit: float = 0.0

    def cast(self, dtype: DType) -> "Facts":
        if dtype is BOOL:
            return Facts(1, 1)
        if dtype.is_integer:
            return Facts(min(self.bound, float(np.iinfo(dtype.numpy).max) + 1), max(1.0, self.unit))
        largest = float(np.asarray(_largest(dtype)))
        # Rounding leaves multiples of a power of two that are not below the least normal number.
        return Facts(inf if self.bound > largest else self.bound * 1.125, self.unit if self.unit >= 2.0 ** -5 else 0.0)

    def join(self, other: "Facts") -> "Facts":
        return Facts(max(self.bound, other.bound), min(self.unit, other.unit))

    def sums_exactly(self, count: int) -> bool:
        """Whether any sum of so many values is exact in float32, whatever the order."""
        return self.unit > 0 and count * self.bound / self.unit < EXACT_BITS


@cache
def _largest(dtype: DType) -> float:
    import ml_dtypes
    return float(ml_dtypes.finfo(dtype.numpy).max)


@dataclass(frozen=True)
class Tile:
    text: str
    shape: tuple[int, ...]
    dtype: DType
    facts: Facts
    space: str = "sbuf"

    @property
    def free(self) -> int:
        return prod(self.shape[1:])


@dataclass(frozen=True)
class Loop:
    name: str
    count: int
    parallel: bool = False
    symbolic: bool = True               # a name that subscripts and masks may use


@dataclass(frozen=True)
class Output:
    name: str
    shape: tuple[int, ...]
    dtype: DType
    rtol: float = 0.0
    atol: float = 0.0


@dataclass
class Program:
    """The text of a kernel, the arrays it takes, and what its results are compared within."""

    text: str
    arrays: dict[str, np.ndarray]
    outputs: list[Output]
    used: set[str] = field(default_factory=set)
    grid: tuple[int, ...] = ()
    ranks: int = 1                      # the number of ranks that run it, each on different arrays


class Writer:
    """``draw(n)`` decides: a number below n. A generation of the language is a subclass with its rules."""

    indent = 1

    def __init__(self, draw: Callable[[int], int], special: bool = False) -> None:
        self.draw = draw
        self.special = special              # whether all inputs of floats have NaN, infinities and -0 in them
        self.lines: list[str] = []
        self.scopes: list[list[Tile]] = [[]]
        self.loops: list[Loop] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.outputs: list[Output] = []
        self.grid: tuple[int, ...] = ()
        self.ranks = 1
        self.declared: list[str] = []       # tensors that all programs of the grid share
        self.updated: list[str] = []        # inputs that are written
        self.kept: list[Tile] = []          # written in loops; what they hold stays within their facts
        self.used: set[str] = set()
        self.conditional = 0
        self.count = 0
        self.budget = self.between(2, 11)
        self.P = self.pick(1, 4, 7, 16, 32, 33, 40, 64, 128)
        self.F = self.pick(1, 2, 6, 8, 12, 20, 24, 36)

    # -- decisions -----------------------------------------------------------------------------------------------------
    def pick(self, *choices: Any) -> Any:
        return choices[self.draw(len(choices))] if len(choices) > 1 else choices[0]

    def between(self, low: int, high: int) -> int:
        return low + self.draw(high - low + 1)

    def maybe(self, one_in: int = 2) -> bool:
        return self.draw(one_in) == one_in - 1

    # -- text ----------------------------------------------------------------------------------------------------------
    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def note(self, *operations: str) -> None:
        """What was drawn from the tables."""
        self.used.update(operations)

    def keep(self, tile: Tile) -> Tile:
        if self.special and tile.dtype.is_integer:      # it may have been converted from an infinity
            tile = replace(tile, facts=Facts().cast(tile.dtype))
        self.scopes[-1].append(tile)
        return tile

    @contextmanager
    def block(self, *loops: Loop):
        self.indent += 1
        self.scopes.append([])
        self.loops += loops
        yield
        for _ in loops:
            self.loops.pop()
        self.scopes.pop()
        self.indent -= 1

    # -- programs that run side by side --------------------------------------------------------------------------------
    def launch(self, grids: tuple[tuple[int, ...], ...]) -> None:
        """The ids of the grid are variables like those of loops around all of the kernel."""
        self.grid = self.pick(*grids)
        for axis, count in enumerate(self.grid):
            self.emit(f"g{axis} = nl.program_id({axis})")
            self.loops.append(Loop(f"g{axis}", count))
        self.note(*["grid"][:len(self.grid)])

    # -- values --------------------------------------------------------------------------------------------------------
    def tiles(self) -> list[Tile]:
        return [t for scope in self.scopes for t in scope] + self.kept

    def shape(self) -> tuple[int, ...]:
        F = self.F
        splits = [(self.P, a, F // a) for a in range(2, F) if F % a == 0]
        return self.pick((self.P, F), (self.P, F), (self.P, F), *splits[:2], (self.P, 1))

    def array(self, dtype: DType, kind: str) -> tuple[str, Facts]:
        """An input whose values are of a kind: small, fraction, amount (of a shift), wild, one (0 or 1)."""
        name = f"x_{dtype.name}_{kind}"
        if dtype.is_integer:
            top = {"small": 9, "fraction": 9, "amount": 6, "one": 1, "wild": 2.0 ** dtype.bits}[kind]
        else:
            top = {"small": 6, "fraction": 2, "amount": 6, "one": 1, "wild": inf}[kind]
        facts = Facts(min(top, 1) if dtype is BOOL else top, 0.125 if kind == "fraction" and dtype.is_float else
                      0.0 if kind == "wild" and dtype.is_float else 1.0)
        if name not in self.inputs:
            self.inputs[name] = values(dtype, kind, top, self.special).copy()
        return name, facts

    def fresh(self, shape: tuple[int, ...], dtype: DType, kind: str | None = None) -> Tile:
        """A new tile with values from an input."""
        kind = kind or self.pick("small", "small", "fraction", "wild")
        source, facts = self.array(dtype, kind)
        row, column = self.between(0, 40), self.between(0, COLUMNS - WIDEST)
        text = self.loaded(source, row, column, shape)
        tile = Tile(self.name(), shape, dtype, facts)
        self.emit(f"{tile.text} = {text}")
        return self.keep(tile)

    def loaded(self, source: str, row: int, column: int, shape: tuple[int, ...]) -> str:
        free = prod(shape[1:])
        rows = f"{row}"
        names = [loop.name for loop in self.loops if loop.symbolic]
        if names and self.maybe():
            rows = f"{row} + {self.pick(*names)} * {self.between(1, 3)}"
        where = f"{source}[nl.ds({rows}, {shape[0]}), {column}:{column + free}]"
        text = f"nl.load({where})"
        return text if len(shape) == 2 else f"{text}.reshape({shape})"

    def operand(self, shape: tuple[int, ...] | None = None, dtypes: tuple[DType, ...] = DTYPES,
                fits: Callable[[Tile], bool] = lambda t: True, kind: str | None = None) -> Tile:
        """Return a tile of the shape: an existing one, a view of one, or a new one."""
        candidates = []
        for t in self.tiles():
            if t.dtype not in dtypes or not fits(t) or not t.facts.bound >= 0 or t.free > WIDEST:
                continue
            if shape is None or t.shape == shape:
                candidates.append(t)
            elif t.shape[0] == shape[0] and t.free == prod(shape[1:]) and t not in self.kept:
                candidates.append(replace(t, text=f"{t.text}.reshape({shape})", shape=shape))
            elif len(t.shape) == len(shape) == 2 and t.shape[0] >= shape[0] and t.shape[1] >= shape[1]:
                candidates.append(self.part(t, shape))
        if candidates and not self.maybe(5):
            return self.pick(*candidates[-8:])
        tile = self.fresh(shape or self.shape(), self.pick(*dtypes), kind)
        return tile if fits(tile) else self.fresh(tile.shape, tile.dtype, "small")

    def part(self, t: Tile, shape: tuple[int, ...]) -> Tile:
        row, column = t.shape[0] - shape[0], (t.shape[1] - shape[1]) // 2
        align = 32 if shape[0] <= 32 else 64 if shape[0] <= 64 else 128        # where engines begin so many
        row = row // align * align
        rows = "" if row == 0 and shape[0] == t.shape[0] else f"{row}:{row + shape[0]}"
        if shape[1] * 2 <= t.shape[1]:
            return replace(t, text=f"{t.text}[{rows or ':'}, ::2][:, 0:{shape[1]}]", shape=shape)
        return replace(t, text=f"{t.text}[{rows or ':'}, {column}:{column + shape[1]}]", shape=shape)

    def elide(self, items: list[str]) -> None:
        """Insert an ellipsis in a subscript, in place of full slices or of no dimension."""
        first = last = self.pick(*(k for k, item in enumerate(items) if item == ":"), self.between(0, len(items)))
        while last < len(items) and items[last] == ":":
            last += 1
        self.note("subscript.ellipsis" if last == len(items) else "subscript.ellipsis before others")
        items[first:last] = ["..."]

    # -- outputs -------------------------------------------------------------------------------------------------------
    def output(self, shape: tuple[int, ...], dtype: DType, rtol: float = 0.0, atol: float = 0.0) -> str:
        self.outputs.append(Output(self.name("out"), shape, dtype, rtol, atol))
        return self.outputs[-1].name

    def tolerance(self, dtype: DType, rtol: float, atol: float) -> tuple[float, float]:
        """Return the facts of a result that is rounded from float32 to a dtype."""
        return (rtol + (2.0 ** -dtype.mantissa if dtype.mantissa < 23 else 0.0), atol + 1e-30)

    # -- the table -----------------------------------------------------------------------------------------------------
    def alu(self, group: str, integers: bool, names: Any = None) -> str:
        """An operator of two operands that is defined for these."""
        groups = {"arithmetic": ("arithmetic",), "bits": ("bitwise", "shift"), "any": ("arithmetic", "comparison",
                                                                                      "logical")}[group]
        names_of_group = [n for n, op in ALU.items() if op.arity == 2 and op.group in groups and op.ulp == 0
                          and (names is None or n in names)]
        chosen = self.pick(*names_of_group)
        self.note(f"alu.{chosen}")
        return chosen


def facts_of(op: str, a: Facts, b: Facts) -> Facts:
    """Return the facts of ``a (op) b`` in float32."""
    match op:
        case "add" | "subtract":
            return Facts(a.bound + b.bound, min(a.unit, b.unit))
        case "multiply":
            return Facts(a.bound * b.bound if a.bound and b.bound else 0.0, a.unit * b.unit)
        case "maximum" | "minimum" | "abs_max" | "abs_min":
            return a.join(b)
        case _ if ALU[op].group in ("comparison", "logical"):
            return Facts(1, 1)
    return Facts()


@cache
def values(dtype: DType, kind: str, top: float, special: bool = False) -> np.ndarray:
    """An input array: the same for each kind in all programs. ``special``: a few of its floats are no numbers. Where sums
    of the others are exact, these sums still have one value, whatever the order."""
    rng = np.random.default_rng([ord(c) for c in f"{dtype.name} {kind}"])
    shape = (ROWS, COLUMNS)
    if dtype is BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    unsigned = dtype.is_integer and np.iinfo(dtype.numpy).min == 0
    if dtype.is_integer:
        low, high = (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max) if kind == "wild" else (
            0 if unsigned or kind in ("amount", "one") else -int(top), int(top))
        numbers = rng.integers(low, high, shape, endpoint=True)
        if kind == "wild":
            special = np.array([low, low + 1, high, high - 1, 0, 1])
            numbers = np.where(rng.random(shape) < 0.3, special[rng.integers(0, len(special), shape)], numbers)
        return numbers.astype(dtype.numpy)
    numbers = rng.integers(-int(min(top, 6)), int(min(top, 6)), shape, endpoint=True).astype(np.float32)
    if kind in ("amount", "one"):
        numbers = np.abs(numbers)
    if kind == "fraction":
        numbers = rng.integers(-16, 16, shape, endpoint=True).astype(np.float32) / 8
    if kind == "wild":
        numbers = (rng.standard_normal(shape) * 10.0 ** rng.integers(-40, 38, shape)).astype(np.float32)
        special = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-45, -1e-40, 3.4e38, 1.5, 2.5, -0.5], np.float32)
        numbers = np.where(rng.random(shape) < 0.3, special[rng.integers(0, len(special), shape)], numbers)
    elif special:
        placed = np.array([np.inf, -np.inf, np.nan, -0.0, -0.0], np.float32)[rng.integers(0, 5, shape)]
        numbers = np.where(rng.random(shape) < 0.05, placed, numbers)
    return convert(numbers, dtype)
