# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A structured operation as a loop nest over buffers: what is selected from. No MLIR in here.

Its body, what a ``linalg.generic`` yields, is a tree of plain values. Equal subtrees are equal objects for
dictionaries, which is how an instruction's result is used again.

An operand says how its buffer is walked: a start, and the step of each axis of the nest in its free offset; at most one
axis, its ``lanes``, walks through the partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from nki_mlir.dialects.access import HBM, Access, Constraint, Linear, Mask, Ranges, Tile
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import INT32, DType, convert
from nki_mlir.waist.nest import joined, renamed


@dataclass(frozen=True)
class Input:
    """The element of an input."""

    dtype: DType
    index: int


@dataclass(frozen=True)
class Output:
    """The element that the output holds before."""

    dtype: DType


@dataclass(frozen=True)
class Constant:
    """A number; 0.0 and -0.0 are two, and NaN is equal to itself."""

    dtype: DType
    value: float | int = field(compare=False)
    text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repr(self.value))


@dataclass(frozen=True)
class Position:
    """The value of an affine form at the current iteration."""

    form: Linear
    dtype: DType = INT32


@dataclass(frozen=True)
class Convert:
    dtype: DType
    value: "Node"


@dataclass(frozen=True)
class Alu:
    """An ALU operation; its operands and its result have the dtype."""

    dtype: DType
    fn: str
    args: tuple["Node", ...]


@dataclass(frozen=True)
class Activation:
    dtype: DType
    fn: str
    value: "Node"


Node: TypeAlias = Input | Output | Constant | Position | Convert | Alu | Activation


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Convert() | Activation():
            return (node.value,)
        case Alu():
            return node.args
    return ()


def is_copy(body: Node) -> bool:
    """Whether an expression is an element of the input, converted at most once."""
    return isinstance(body.value if isinstance(body, Convert) else body, Input)


def below(node: Node) -> Iterator[Node]:
    """A node and all that it is computed from."""
    yield node
    for child in children(node):
        yield from below(child)


def inputs_of(node: Node) -> set[int]:
    """The numbers of the inputs that an expression reads."""
    return {one.index for one in below(node) if isinstance(one, Input)}


def forms_of(node: Node) -> list[Linear]:
    """The forms whose values an expression has."""
    return [one.form for one in below(node) if isinstance(one, Position)]


def rebuilt(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """The tree with the subtrees exchanged for which ``change`` gives another."""
    if (other := change(node)) is not None:
        return other
    match node:
        case Convert() | Activation():
            return replace(node, value=rebuilt(node.value, change))
        case Alu():
            return replace(node, args=tuple(rebuilt(a, change) for a in node.args))
    return node


def converted(value: Node, dtype: DType) -> Node:
    if value.dtype is dtype:
        return value
    if isinstance(value, Constant):
        array = convert(np.asarray(value.value, value.dtype.numpy), dtype, value.dtype)
        return Constant(dtype, float(array) if dtype.is_float else int(array))
    return Convert(dtype, value)


def alu(fn: str, *args: Node) -> Node:
    dtype = args[-1].dtype
    if all(isinstance(a, Constant) for a in args):
        arrays = [np.asarray(a.value, dtype.numpy) for a in args if isinstance(a, Constant)]
        value = np.asarray(ALU[fn].numpy(*arrays))
        return Constant(dtype, float(value) if dtype.is_float else int(value))
    return Alu(dtype, fn, args)


# -- folds -------------------------------------------------------------------------------------------------------------
# What an expression folds into its output, and how; whether that is a product.

@dataclass(frozen=True)
class Fold:
    """``output = output (fn) element``, computed in ``dtype``."""

    fn: str
    element: Node
    dtype: DType

    @property
    def identity(self) -> float | int | None:
        """The value that changes nothing when it is folded in; None where there is none."""
        return ALU[self.fn].identity(self.dtype)


def fold_of(body: Node) -> Fold | None:
    """An expression as a fold, whose step may be in another dtype than its output."""
    step = without_conversion(body)
    if not isinstance(step, Alu) or len(step.args) != 2 or ALU[step.fn].reduce is None:
        return None
    for old, element in (step.args, step.args[::-1])[:2 if ALU[step.fn].commutative else 1]:
        if isinstance(without_conversion(old), Output) and not reads_output(element):
            return Fold(step.fn, element, step.dtype)
    return None


def factors_of(element: Node) -> tuple[int, int] | None:
    """The numbers of the two inputs that are multiplied, converted or not; None for anything else."""
    if isinstance(element, Alu) and element.fn == "multiply":
        match [without_conversion(v) for v in element.args]:
            case [Input(index=first), Input(index=second)]:
                return first, second
    return None


def without_conversion(node: Node) -> Node:
    return node.value if isinstance(node, Convert) else node


def reads_output(node: Node) -> bool:
    return any(isinstance(one, Output) for one in below(node))


@dataclass(frozen=True)
class TileOperand:
    """``partition`` and ``free`` are the start (partition None in HBM); ``steps`` are per axis, 0 for ``lanes``."""

    handle: Any
    space: str
    base_shape: tuple[int, ...]
    base_dtype: DType
    dtype: DType
    partition: Linear | None
    free: Linear
    steps: tuple[int, ...]
    lanes: int | None = None

    @property
    def on_chip(self) -> bool:
        return self.space != HBM

    def moves(self, axis: int) -> bool:
        return axis == self.lanes or self.steps[axis] != 0

    def tile(self, counts: Sequence[int], axes: Sequence[int] | None = None) -> Tile:
        """The tile for a box at the origin with these counts along ``axes``, the first of which is the partition."""
        axes = range(len(counts)) if axes is None else axes
        dims = [(self.steps[a] if n > 1 else 1, n) for a, n in zip(axes, counts)]
        if self.on_chip:
            dims[0] = (1 if self.lanes == axes[0] or counts[0] == 1 else 0, counts[0])
        access = Access(self.dtype, self.partition, self.free, tuple(dims))
        return Tile(self.handle, self.space, self.base_shape, self.base_dtype, access)

    def at(self, starts: Sequence[int]) -> "TileOperand":
        """The operand for a nest that begins at ``starts``."""
        free = sum(step * start for step, start in zip(self.steps, starts))
        partition = self.partition
        if self.lanes is not None and partition is not None:
            partition = partition.plus(Linear(starts[self.lanes]))
        return replace(self, partition=partition, free=self.free.plus(Linear(free)))


def walked(tile: Tile, steps: Iterable[int], lanes: int | None = None) -> TileOperand:
    """A tile's buffer from where the tile starts, as the axes of a nest step through it."""
    return TileOperand(tile.handle, tile.space, tile.base_shape, tile.base_dtype, tile.dtype, tile.access.partition,
                       tile.access.free, tuple(steps), lanes)


@dataclass(frozen=True)
class TileNest:
    """One output, ``output = body`` at each point; reduced axes fold into it. Symbols are counted by position."""

    extents: tuple[int, ...]
    reduced: frozenset[int]
    inputs: tuple[TileOperand, ...]
    output: TileOperand
    body: Node
    mask: Mask = ()
    limits: Mask = ()
    symbols: tuple[Any, ...] = ()
    ranges: Ranges = ()

    @property
    def operands(self) -> tuple[TileOperand, ...]:
        return (*self.inputs, self.output)

    def partition_axis(self) -> int | None:
        """The axis that the engines' lanes take: what the result's partitions, or else the sources', go along."""
        for operand in (self.output, *self.inputs):
            if operand.lanes is not None:
                return operand.lanes
        return None

    def windows(self, axis: int, size: int) -> list["TileNest"]:
        """The nest in pieces of at most ``size`` along an axis."""
        return [self.window(axis, start, min(size, self.extents[axis] - start))
                for start in range(0, self.extents[axis], size)]

    def boxes(self, sizes: Iterable[tuple[int, int]]) -> list["TileNest"]:
        """The nest in boxes of at most these sizes along some axes, those at the ends smaller, in row-major order."""
        parts = [self]
        for axis, size in sizes:
            parts = [window for part in parts for window in part.windows(axis, size)]
        return parts

    def window(self, axis: int, start: int, count: int) -> "TileNest":
        starts = [start if a == axis else 0 for a in range(len(self.extents))]
        extents = tuple(count if a == axis else n for a, n in enumerate(self.extents))
        moved = self.with_forms(lambda form: form.moved(starts))
        return replace(moved, extents=extents, inputs=tuple(o.at(starts) for o in self.inputs),
                       output=self.output.at(starts))

    def with_forms(self, change: Callable[[Linear], Linear]) -> "TileNest":
        """The nest with every form over its axes changed."""
        def position(node: Node) -> Node | None:
            return Position(change(node.form), node.dtype) if isinstance(node, Position) else None
        mask, limits = (tuple(Constraint(change(c.form), c.equal) for c in m) for m in (self.mask, self.limits))
        return replace(self, body=rebuilt(self.body, position), mask=mask, limits=limits)

    def forms(self) -> list[Linear]:
        return [c.form for c in (*self.mask, *self.limits)] + forms_of(self.body)

    # -- normal form ---------------------------------------------------------------------------------------------------
    def arranged(self, partition: int | None, keep: int | None = None) -> "TileNest":
        """The same nest with ``partition`` as axis 0, then the axes that are kept, then the reduced ones.

        Axes of extent 1 go (but not ``keep``), neighbours that every operand walks as one become one; at least one axis
        follows the partition. Without a partition axis there is one of extent 1. Limits are told by axis to the
        engine's operation, so nothing is merged under them.
        """
        extents = self.extents
        first = partition if partition is not None else len(extents)
        rest = [a for a, n in enumerate(extents) if a != first and (n > 1 or a == keep or self.limits)]
        nest = self if partition is not None else self._with_unit_axis()
        groups = joined([*(a for a in rest if a not in nest.reduced), *(a for a in rest if a in nest.reduced)],
                        nest._walked_as_one)
        if not groups:
            groups, nest = [[len(nest.extents)]], nest._with_unit_axis()
        return nest._grouped([[first], *groups])

    def _with_unit_axis(self) -> "TileNest":
        def wider(operand: TileOperand) -> TileOperand:
            return replace(operand, steps=(*operand.steps, 0))
        return replace(self, extents=(*self.extents, 1), inputs=tuple(map(wider, self.inputs)),
                       output=wider(self.output))

    def _walked_as_one(self, outer: int, inner: int) -> bool:
        n = self.extents[inner]
        same_kind = (outer in self.reduced) == (inner in self.reduced) and not self.limits
        return same_kind and all(
            o.lanes not in (outer, inner) and o.steps[outer] == o.steps[inner] * n for o in self.operands
        ) and all(dict(f.axes).get(outer, 0) == dict(f.axes).get(inner, 0) * n for f in self.forms())

    def _grouped(self, groups: list[list[int]]) -> "TileNest":
        place = {axes[-1]: k for k, axes in enumerate(groups)}      # a group steps as its innermost axis

        def operand(o: TileOperand) -> TileOperand:
            steps = tuple(o.steps[axes[-1]] for axes in groups)
            return replace(o, steps=steps, lanes=place.get(o.lanes) if o.lanes is not None else None)
        nest = self.with_forms(lambda form: renamed(form, place))
        return replace(nest, extents=tuple(prod(self.extents[a] for a in axes) for axes in groups),
                       reduced=frozenset(k for k, axes in enumerate(groups) if axes[0] in self.reduced),
                       inputs=tuple(map(operand, self.inputs)), output=operand(self.output))
