# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the elements of its outputs that a captured kernel does not write, in the modules of the kernel.

``left_out`` enumerates every write of an output: over the iterations of the loops around it and the programs of the
grid, under its mask and the branches around it. If only a run can decide a write (loaded addresses, loops of the
device), the output stays undecided, unless the other writes cover it.
"""

from collections.abc import Collection, Iterable
from math import prod
from typing import NamedTuple

import numpy as np

from nki_mlir.analysis.effects import END_OF_MEMORY, defining
from nki_mlir.analysis.enclosing_control import control_around
from nki_mlir.bindings import Module, Operation, Value, ir
from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, symbol_range
from nki_mlir.dialects.op import Op

MOST_ELEMENTS = 1 << 26         # most elements of an output that is checked
MOST_POINTS = 1 << 22           # most points of one write under conditions


class UndecidedWrites(Exception):
    """An operation writes elements that data decide, so only a run can tell which."""


class LeftOut(NamedTuple):
    """Elements of an output that no program writes: how many, and the index of the first."""

    elements: int
    first: tuple[int, ...]


def left_out(modules: Iterable[Module], complete: Collection[int] = ()) -> dict[int, LeftOut | None]:
    """Return the unwritten elements of each shared output, by its number: None if it has none; no entry if only a run
    can decide.

    ``modules`` has the modules of all programs of the grid, ``complete`` the outputs that are known to be written
    everywhere.
    """
    flags: dict[int, np.ndarray] = {}
    undecided: set[int] = set()
    for module in modules:
        kernel = the_kernel(module)
        for argument, value in zip(kernel.arguments, kernel.op.regions[0].blocks[0].arguments):
            if argument.kind != "shared" or argument.index in complete:
                continue
            if prod(argument.shape) > MOST_ELEMENTS:
                undecided.add(argument.index)
                continue
            written = flags.setdefault(argument.index, np.zeros(argument.shape, np.bool_))
            if not all([mark(use, written) for use in value.uses]):
                undecided.add(argument.index)
    result: dict[int, LeftOut | None] = dict.fromkeys(complete)
    for number, written in flags.items():
        if written.all():
            result[number] = None
        elif number not in undecided:
            position = np.unravel_index(np.argmin(written), written.shape)
            result[number] = LeftOut(written.size - int(np.count_nonzero(written)), tuple(int(k) for k in position))
    return result


def read_outputs(module: Module) -> set[int]:
    """Return the numbers of the shared outputs that an operation reads, or may read."""
    kernel = the_kernel(module)
    return {argument.index for argument, value in zip(
        kernel.arguments, kernel.op.regions[0].blocks[0].arguments)
        if argument.kind == "shared" and any(map(reads, value.uses))}


def reads(use: ir.OpOperand) -> bool:
    """Return whether a use of an output may read it."""
    operation = use.owner.operation
    if not is_tile_op(operation):
        return operation.name != END_OF_MEMORY
    field, _ = read_op(operation).operands()[use.operand_number]
    return bool(field.reads)


def mark(use: ir.OpOperand, written: np.ndarray) -> bool:
    """Mark the elements that a use of an output writes, and return whether they are known."""
    operation = use.owner.operation
    if not is_tile_op(operation):
        return bool(operation.name == END_OF_MEMORY)
    op = read_op(operation)
    field, tile = op.operands()[use.operand_number]
    if not field.writes:
        return True
    if tile.dtype.itemsize != tile.base_dtype.itemsize:
        return False
    sources = {name for name, _ in op.sources()}
    if field.name in sources and not op.is_loop_nest and not op.acts_outside:
        return False                            # a scatter: the rows are in a tile
    try:
        mark_tile(Space(operation, op), field.name, tile, written)
    except UndecidedWrites:
        return False
    return True


def mark_tile(space: "Space", name: str, tile: Tile, written: np.ndarray) -> None:
    op = space.op
    if not op.mask and not op.limits and not space.branches and all(isinstance(s.owner, ir.Block) for s in op.symbols):
        return space.mark_linear(tile, written)
    dims = tuple(n for _, n in tile.access.dims)
    extents, axes = (op.iteration().extents, op.iteration().axes[name]) if op.mask else (dims, range(len(dims)))
    total = prod(extents) * prod(map(len, space.spans.values()))
    if total > MOST_POINTS:
        raise UndecidedWrites
    grid = OperationPoints(space, extents)
    offset = grid.of(tile.access.free)
    for (step, count), axis in zip(tile.access.dims, axes):
        if count > 1:
            offset = offset + step * grid.axis(axis)
    active = np.ones((), np.bool_)
    for constraint in op.mask:
        position = grid.of(constraint.form)
        active = active & ((position == 0) if constraint.equal else (position >= 0))
    for condition, holds in space.branches:
        active = active & (grid.value(condition).astype(np.bool_) == holds)
    offset, active = np.broadcast_arrays(offset, active & (offset >= 0) & (offset < written.size))
    written.reshape(-1)[offset[active]] = True


class Space:
    """The loops and branches around an operation, and the symbols of its patterns."""

    def __init__(self, operation: Operation, op: Op) -> None:
        around = control_around(operation)
        self.op, self.branches = op, around.branches
        self.spans: dict[object, range] = {}                    # by loop variable or program id
        for variable, span in around.loops:
            if span is None:
                raise UndecidedWrites
            self.spans[variable] = span
        if around.is_repeated:
            raise UndecidedWrites
        for value in (*op.symbols, *(condition for condition, _ in self.branches)):
            self.root(value)

    def root(self, value: Value) -> None:
        """Note the program ids that a value is computed from."""
        if isinstance(value.owner, ir.Block):
            if value not in self.spans:
                low, high = symbol_range(value)
                self.spans[value] = range(low, high + 1)
            return
        for operand in value.owner.operation.operands:
            self.root(operand)

    def mark_linear(self, tile: Tile, written: np.ndarray) -> None:
        """Mark a pattern that is linear in loop variables and program ids, for all values of these."""
        if any(not len(span) for span in self.spans.values()):
            return
        shape, steps = [n for _, n in tile.access.dims], [step for step, _ in tile.access.dims]
        start = tile.access.free.const
        for position, factor in tile.access.free.symbols:
            span = self.spans[self.op.symbols[position]]
            shape.append(len(span))
            steps.append(factor * span.step)
            start += factor * span.start
        low = start + sum(min(0, s * (n - 1)) for s, n in zip(steps, shape))
        high = start + sum(max(0, s * (n - 1)) for s, n in zip(steps, shape))
        if low < 0 or high >= written.size:
            raise UndecidedWrites                     # the run reports this error
        np.ndarray(tuple(shape), np.bool_, written, start, tuple(steps))[...] = True


class OperationPoints:
    """All points of an operation: its axes, then the loop variables and program ids, a dimension each."""

    def __init__(self, space: Space, extents: tuple[int, ...]) -> None:
        self.space, self.extents = space, extents
        self.rank = len(extents) + len(space.spans)
        self.values: dict[object, np.ndarray] = {v: self.along(np.array(s, np.int64), len(extents) + k)
                                      for k, (v, s) in enumerate(space.spans.items())}

    def along(self, values: np.ndarray, dim: int) -> np.ndarray:
        return values.reshape([-1 if k == dim else 1 for k in range(self.rank)])

    def axis(self, number: int) -> np.ndarray:
        return self.along(np.arange(self.extents[number]), number)

    def of(self, form: Linear) -> np.ndarray:
        total = np.full((1,) * self.rank, form.const, np.int64)
        for position, factor in form.symbols:
            total = total + factor * self.value(self.space.op.symbols[position])
        for axis, factor in form.axes:
            total = total + factor * self.axis(axis)
        return total

    def value(self, value: Value) -> np.ndarray:
        """Return an index or truth value at all points."""
        if value not in self.values:
            self.values[value] = self.computed(value)
        return self.values[value]

    def computed(self, value: ir.Value) -> np.ndarray:
        from nki_mlir.targets.interpreter.scalars import scalar_function  # start-up: few need them
        from nki_mlir.waist.reader import scalar_value  # start-up: loads the records of functions
        operation = defining(value)
        node = scalar_value(operation) if operation is not None else None
        if node is None:
            raise UndecidedWrites
        return np.asarray(scalar_function(node)(*[self.value(v) for v in node.operands]))
