# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Composes a nest with the nest that writes its input, and writes two nests as one.

A nest that reads a copy can read the copy's source. A nest that reads the result of a pointwise nest can read that
nest's inputs and compute each element itself. ``read_through`` follows the maps of operations, ``ElementMove`` the
strides of records, which native code has, ``target_through`` tiles of instructions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.creation import structured_operation
from nki_mlir.waist.generic import STRUCTURAL, GenericOperation, axes_of, generic_of
from nki_mlir.waist.nest import AnyNest, Operand
from nki_mlir.waist.tile_operand import TileNest, TileOperand

MOST_OPERATIONS, MOST_INPUTS = 40, 12           # operations and inputs of a fused body, changes of type not counted
CHANGES = ("scalar.convert", "scalar.wrap")

Access = tuple[Value, ir.AffineMap]             # a value, and the map by which a nest reads it


def work(body: Sequence[Operation]) -> int:
    """Count the arithmetic operations of the body."""
    return sum(op.name not in CHANGES for op in body)


def fusible(op: Operation | None, indices: bool = False) -> GenericOperation | None:
    """Return the operation if it is a plain ``linalg.generic``: one output, no mask, a body that can move. ``indices``:
    the body may compute with positions."""
    nest = generic_of(op)
    if nest is None or len(nest.outputs) != 1:
        return None
    attributes = nest.op.attributes
    if any(attributes[k].name not in STRUCTURAL for k in range(len(attributes))):
        return None
    body = nest.body
    if work(body) > MOST_OPERATIONS or any(
            len(inner.regions) or (inner.name == "linalg.index" and not indices) for inner in body):
        return None
    return nest if all(_is_inside(v, nest.block) for inner in body for v in inner.operands) else None


def _is_inside(value: Value, block: ir.Block) -> bool:
    """Return whether a value is computed in the body, or is a constant."""
    if isinstance(value.owner, ir.Block):
        return bool(value.owner == block)
    return value.owner.operation.name == "arith.constant" or bool(value.owner.operation.block == block)


# -- operations, by maps -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Fusion:
    """A consumer that computes the elements of its input ``operand`` itself, instead of reading the producer's result.

    ``sources`` are the inputs of ``producer``, and their maps over the axes of ``consumer``.
    """

    producer: GenericOperation
    consumer: GenericOperation
    operand: int
    sources: tuple[Access, ...]

    @cached_property
    def inputs(self) -> tuple[Access, ...]:
        """Return the inputs of the fused operation, each once."""
        return tuple(dict.fromkeys([*self.sources, *self._others.values()]))

    @property
    def _others(self) -> dict[int, Access]:
        return {k: access for k, access in enumerate(self.consumer.accesses) if k != self.operand}

    def has_extents(self) -> bool:
        """Return whether the memory that the fused operation accesses gives the extent of every loop."""
        maps = [m for v, m in (*self.inputs, (self.consumer.output, self.consumer.maps[-1]))
                if isinstance(v.type, ir.MemRefType)]
        return {axis for m in maps for axis in axes_of(m)} >= set(range(self.consumer.maps[-1].n_dims))

    def write(self) -> Operation:
        """Write the fused operation before the insertion point."""
        producer, consumer = self.producer, self.consumer
        number_of = {access: k for k, access in enumerate(self.inputs)}

        def body(arguments: list[Value]) -> Value:
            passed: dict[Value, Value] = {a: arguments[number_of[source]]
                                          for a, source in zip(producer.block.arguments, self.sources)}
            parameters = consumer.block.arguments
            value_of: dict[Value, Value] = {parameters[self.operand]: clone(producer.body, passed),
                                            parameters[len(consumer.inputs)]: arguments[-1]}
            value_of |= {parameters[k]: arguments[number_of[access]] for k, access in self._others.items()}
            return clone(consumer.body, value_of)
        return structured_operation([*(v for v, _ in self.inputs), consumer.output],
                                    [*(m for _, m in self.inputs), consumer.maps[-1]],
                                    consumer.op.attributes["iterator_types"], body)


def read_through(producer: GenericOperation, consumer: GenericOperation, operand: int) -> Fusion:
    """Return the fusion of a producer with the consumer that reads its result as input ``operand``.

    The producer's output map is a permutation of its axes: each axis becomes a subscript of the consumer.
    """
    mapping = consumer.maps[operand]
    subscript_of = dict(zip(axes_of(producer.maps[-1]), mapping.results))

    def followed(access: Access) -> Access:
        value, read = access
        results = [subscript_of[e.position] if isinstance(e, ir.AffineDimExpr) else e for e in read.results]
        return value, ir.AffineMap.get(mapping.n_dims, 0, results)
    return Fusion(producer, consumer, operand, tuple(map(followed, producer.accesses)))


def joined(first: GenericOperation, second: GenericOperation) -> Operation:
    """Fuse two operations over the same axes into one with two outputs, before the insertion point."""
    read = dict.fromkeys([*first.accesses, *second.accesses])
    number_of = {access: k for k, access in enumerate(read)}
    values = [*(v for v, _ in read), first.output, second.output]
    maps = [*(m for _, m in read), first.maps[-1], second.maps[-1]]
    op = ir.Operation.create("linalg.generic", operands=values, regions=1, attributes={
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": second.op.attributes["iterator_types"],
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(read), 2])})
    kinds = [v.type.element_type if isinstance(v.type, ir.MemRefType) else v.type for v in values]
    arguments = list(op.regions[0].blocks.append(*kinds, arg_locs=[op.location] * len(kinds)).arguments)
    with ir.InsertionPoint(op.regions[0].blocks[0]):
        results = []
        for nest, old in ((first, arguments[-2]), (second, arguments[-1])):
            passed = [arguments[number_of[access]] for access in nest.accesses]
            results.append(clone(nest.body, dict(zip(nest.block.arguments, [*passed, old]))))
        ir.Operation.create("linalg.yield", operands=results)
    return op


def clone(operations: Sequence[Operation], values: dict[Value, Value]) -> Value:
    """Clone a body to the insertion point with other values for its arguments, and return the value that it yields."""
    for inner in operations[:-1]:
        copy = inner.clone()
        for k, value in enumerate(inner.operands):
            if value in values:
                copy.operation.operands[k] = values[value]
        for old, new in zip(inner.results, copy.operation.results):
            values[old] = new
    yielded = operations[-1].operands[0]
    return values.get(yielded, yielded)


# -- records, by strides -----------------------------------------------------------------------------------------------
class ElementMove(NamedTuple):
    """A nest that moves each element of its input to its output. ``source`` and ``target`` are the bytes from the start
    of each buffer to these elements."""

    nest: AnyNest
    source: Linear
    target: Linear

    def at_source(self, operand: Operand, offset: Linear, extents: tuple[int, ...]) -> tuple[Operand, Linear] | None:
        """Return the elements of the source, and their offset, that an operand reads through the target.

        Return None unless the move writes all that the operand reads.
        """
        return self._followed(operand, offset, extents, to_source=True)

    def at_target(self, operand: Operand, offset: Linear, extents: tuple[int, ...]) -> tuple[Operand, Linear] | None:
        """Return the elements of the target, and their offset, to which the move copies the elements that an operand
        writes to the source.

        Return None unless the move reads all that the operand writes.
        """
        return self._followed(operand, offset, extents, to_source=False)

    def _followed(self, operand: Operand, offset: Linear, extents: tuple[int, ...], to_source: bool
                  ) -> tuple[Operand, Linear] | None:
        """Divide each step of the operand into steps of the move on this side, and add up its steps on the other side.

        Positions on all axes must stay within the extents of the move.
        """
        from_operand, to_operand, start, other_start = (*self.nest.outputs, *self.nest.inputs, self.target, self.source)
        if not to_source:
            from_operand, to_operand, start, other_start = to_operand, from_operand, other_start, start
        distance = offset.plus(start, -1)
        elements, remainder = divmod(distance.const, from_operand.dtype.itemsize)
        if distance.symbols or remainder or elements < 0 or from_operand.dtype is not operand.dtype:
            return None
        axes = sorted([(stride, other_stride, n) for stride, other_stride, n in zip(
            from_operand.strides, to_operand.strides, self.nest.extents) if n > 1], reverse=True)
        reached = [0] * len(axes)

        def followed(step: int, times: int) -> int | None:
            total = 0
            for k, (stride, other_stride, _) in enumerate(axes):
                count, step = divmod(step, stride) if stride > 0 else (0, step)
                reached[k] += count * times
                total += count * other_stride
            return None if step else total
        start_element = followed(elements, 1)
        steps = [followed(s, n - 1) if s >= 0 else None for s, n in zip(operand.strides, extents)]
        if start_element is None or None in steps or any(k >= n for k, (_, _, n) in zip(reached, axes)):
            return None
        return (Operand(to_operand.dtype, tuple([s for s in steps if s is not None])),
                other_start.plus(Linear(start_element * to_operand.dtype.itemsize)))


# -- tiles of instructions ---------------------------------------------------------------------------------------------
def target_through(fold: TileNest, after: TileNest) -> TileOperand | None:
    """Return the target of ``after``, which copies the result of the fold, along the fold's axes.

    Return None if the copy does not read exactly the elements that the fold writes, or if the fold cannot write the
    target.
    """
    source = after.inputs[0]

    def movement(operand: TileOperand, axis: int) -> tuple[bool, int]:
        return axis == operand.lanes, operand.strides[axis]
    movements = {movement(source, a): a for a, n in enumerate(after.extents) if n > 1}
    axis_of: dict[int, int] = {}
    for axis, n in enumerate(fold.extents):
        if n > 1 and axis not in fold.reduced:
            target_axis = movements.pop(movement(fold.output, axis), None)
            if target_axis is None or after.extents[target_axis] != n:
                return None
            axis_of[axis] = target_axis
    if movements or source.partition != fold.output.partition or source.free != fold.output.free:
        return None
    target = after.output
    lanes = next((a for a, b in axis_of.items() if b == target.lanes), None)
    if lanes is None and fold.output.lanes is not None and fold.extents[fold.output.lanes] == 1:
        lanes = fold.output.lanes
    if target.on_chip and lanes is None and target.lanes is not None and after.extents[target.lanes] > 1:
        return None
    strides = tuple(target.strides[axis_of[a]] if a in axis_of else 0 for a in range(len(fold.extents)))
    return replace(target, strides=strides, lanes=lanes if target.on_chip else None)
