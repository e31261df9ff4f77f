# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Determines effects on memory: which buffers operations read and write, and how a kernel uses each of its arguments.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nki_mlir.analysis.enclosing_control import always_runs
from nki_mlir.bindings import Block, Operation, Value, enclosing, ir, operations_of
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op, symbol_range
from nki_mlir.dialects.nki.matmul import MatrixProduct
from nki_mlir.dialects.op import REGISTRY, Op

# Views that begin where their source begins; the type has the layout.
RESHAPES = ("memref.expand_shape", "memref.collapse_shape", "memref.cast", "memref.transpose",
            "memref.memory_space_cast", "nki.reinterpret")
VIEWS = ("nki.view", "memref.subview", "memref.reinterpret_cast", *RESHAPES)
END_OF_MEMORY = "memref.dealloc"        # ends the live range of a buffer, and has no other effect
COUNTED = 1 << 24               # elements of a buffer that are counted one by one
NO_EFFECT = (*VIEWS, "memref.alloc", "memref.get_global", "affine.apply", "linalg.index", "linalg.yield")
NUMBERS = "arith.", "math.", "scalar."          # dialects whose operations compute numbers


@dataclass
class Effects:
    """The buffers that an operation and the operations inside it read and write."""

    reads: set[Value] = field(default_factory=set)
    writes: set[Value] = field(default_factory=set)

    def touches(self, buffer: Value) -> bool:
        return buffer in self.reads or buffer in self.writes


def defining(value: Value) -> Operation | None:
    """Return the operation that defines a value, None for a block argument."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def memory_of(value: Value) -> Value:
    """Return the buffer behind a chain of views, whatever their element types."""
    op = defining(value)
    while op is not None and op.name in VIEWS:
        value = op.operands[0]
        op = defining(value)
    return value


def local_effects(op: Operation) -> Effects:
    """Return the effects of an operation without those of the operations inside it."""
    effects = Effects()
    _add(op, effects)
    return effects


def effects_of(op: Operation) -> Effects:
    effects = Effects()
    for inner in operations_of(op, lambda name: True):
        _add(inner, effects)
    return effects


def _add(op: Operation, effects: Effects) -> None:
    name = op.name
    if name in NO_EFFECT or (name.startswith(NUMBERS) and name != "arith.select"):       # that may select a buffer
        return
    if name in ("linalg.generic", "linalg.fill", "linalg.copy"):
        inputs, _ = op.attributes["operandSegmentSizes"]
        for k, value in enumerate(op.operands):
            if isinstance(value.type, ir.MemRefType):
                if k < inputs:
                    effects.reads.add(memory_of(value))
                    continue
                effects.writes.add(memory_of(value))
                if name == "linalg.generic" and has_uses(op.regions[0].blocks[0].arguments[k]):
                    effects.reads.add(memory_of(value))
        return
    if is_tile_op(op):
        tile_op = read_op(op)
        effects.reads |= {memory_of(t.handle) for f, t in tile_op.operands() if f.reads}
        effects.writes |= {memory_of(t.handle) for _, t in tile_op.targets()}
        if tile_op.acts_outside:        # other programs write what all of them share
            *_, function = enclosing(op)
            effects.writes |= {a for a in function.regions[0].blocks[0].arguments
                             if isinstance(a.type, ir.MemRefType)}
    for value in op.operands:
        if isinstance(value.type, ir.MemRefType) and not is_tile_op(op):
            effects.reads.add(memory_of(value))
            if name != "memref.load":
                effects.writes.add(memory_of(value))


def has_uses(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None


def users_through_views(value: Value) -> list[Operation]:
    """Return the operations that use a buffer, or a view of it, except operations that create views."""
    users: list[Operation] = []
    for use in value.uses:
        op = use.owner.operation
        if op.name in VIEWS:
            users += users_through_views(op.results[0])
        elif op not in users:
            users.append(op)
    return users


# -- arguments of a kernel ---------------------------------------------------------------------------------------------
# A parameter that no operation reads can be a plain result of the call, and an output that is provably written
# everywhere needs no initial zeros. ``covered`` is the result of a proof: False means not proved.

@dataclass
class ArgumentEffects:
    """The use of one argument by the operations of a kernel: ``covered`` says that they, one of them or several
    together, provably write every element."""

    reads: bool = False
    writes: bool = False
    covered: bool = False


def argument_effects(kernel: KernelFunction) -> list[ArgumentEffects]:
    """Return the effects on each argument of the function, in order (program ids have none)."""
    block = kernel.op.regions[0].blocks[0]
    effects_by_argument = [ArgumentEffects() for _ in block.arguments]
    written: dict[int, list[WrittenElements]] = {}
    for operation in operations_of(kernel.op, lambda name: True)[1:]:
        if is_tile_op(operation):
            op = read_op(operation)
            for field, tile in op.operands():
                number = argument_number(tile.handle, block)
                if number is not None:
                    effects = effects_by_argument[number]
                    effects.reads |= field.reads
                    effects.writes |= field.writes
                    if field.writes and (elements := written_elements(operation, op, tile)) is not None:
                        effects.covered |= elements.are_all(prod(tile.base_shape))
                        written.setdefault(number, []).append(elements)
            continue
        for value in operation.operands:        # other operations may do anything with a buffer
            number = argument_number(value, block)
            if number is not None and isinstance(value.type, ir.MemRefType):
                effects_by_argument[number].reads = effects_by_argument[number].writes = True
    for number, written_sets in written.items():
        if not effects_by_argument[number].covered:
            effects_by_argument[number].covered = are_all_together(
                written_sets, prod(block.arguments[number].type.shape))
    return effects_by_argument


def argument_number(value: Value, block: Block) -> int | None:
    """Return the index of a value among a block's arguments; None if it is not an argument."""
    if isinstance(value.owner, ir.Block) and value.owner == block:
        return ir.BlockArgument(value).arg_number
    return None


class WrittenElements(NamedTuple):
    """Elements of a buffer: the first one, and (step, count) pairs, with steps and counts above 0."""

    start: int
    steps: tuple[tuple[int, int], ...]

    def are_all(self, size: int) -> bool:
        """Return whether the pairs tile a buffer of this size."""
        return self.start == 0 and without_gap(self.steps) == size


def written_elements(operation: Operation, op: Op, tile: Tile) -> WrittenElements | None:
    """Return the elements of its buffer that the operation provably writes through a tile, over all iterations and
    programs; None if that is not known."""
    by_data = op.addressed_by_data and getattr(op, op.addressed_by_data) is tile
    if by_data or op.mask or op.limits or tile.dtype is not tile.base_dtype or not always_runs(operation):
        return None
    steps, start = list(tile.access.free_dims), tile.access.free.const
    for position, coefficient in tile.access.free.symbols:
        values = symbol_values(op.symbols[position])
        if not values:
            return None
        steps.append((coefficient * values.step, len(values)))
        start += coefficient * values.start
    long_steps = tuple([(step, count) for step, count in steps if count > 1])
    last = start + sum(step * (count - 1) for step, count in long_steps)
    if start < 0 or last >= prod(tile.base_shape) or any(step <= 0 for step, _ in long_steps):
        return None
    return WrittenElements(start, long_steps)


def are_all_together(writes: Sequence[WrittenElements], size: int) -> bool:
    """Return whether elements of a buffer of this size are all of it. Large buffers are not looked at."""
    if size > COUNTED or sum(prod([count for _, count in elements.steps]) for elements in writes) < size:
        return False
    written = np.zeros(size, bool)
    for start, steps in writes:
        as_strided(written[start:], [count for _, count in steps], [step for step, _ in steps])[...] = True
    return bool(written.all())


def without_gap(steps: Iterable[tuple[int, int]]) -> int:
    """Return the number of elements that (step, count) pairs reach, if the pairs tile them like digits of a mixed-radix
    number; else return 0."""
    filled = 1
    for step, count in sorted(steps):
        if step != filled:
            return 0
        filled *= count
    return filled


def symbol_values(symbol: Value) -> range | None:
    """Return all values of a loop variable or program id; None for values that are computed from them."""
    if not isinstance(symbol.owner, ir.Block):
        return None
    holder = symbol.owner.owner.operation
    if holder.name == "scf.for":
        return loop_span(holder)
    low, high = symbol_range(symbol)
    return range(low, high + 1)


def multiply_accumulates(kernel: KernelFunction) -> int:
    """Return the number of multiply-accumulates in the matrix products of one launch."""
    total = 0
    for operation in operations_of(kernel.op, lambda name: issubclass(REGISTRY.get(name, Op), MatrixProduct)):
        runs = prod(len(loop_span(op) or ()) for op in enclosing(operation) if op.name == "scf.for")
        total += runs * prod(read_op(operation).iteration().extents)
    return total * prod(kernel.grid)
