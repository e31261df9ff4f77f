# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Structured operations as values and maps, and two of them written as one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from nki_mlir.analysis.effects import has_uses
from nki_mlir.bindings import Block, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import structured_operation

OWN = ("indexing_maps", "iterator_types", "operandSegmentSizes")
MOST_OPERATIONS, MOST_INPUTS = 40, 12           # of a fused body, changes of type not counted
CHANGES = ("scalar.convert", "scalar.wrap")


@dataclass(frozen=True)
class GenericOperation:
    """A ``linalg.generic`` with one output."""

    op: Operation
    inputs: tuple[ir.Value, ...]
    output: Value
    maps: tuple[ir.AffineMap, ...]                       # affine maps of the inputs, then of the output

    @property
    def block(self) -> Block:
        return self.op.regions[0].blocks[0]

    @property
    def body(self) -> list[Operation]:
        return _inside(self.op)

    @property
    def parallel(self) -> bool:
        return "reduction" not in str(self.op.attributes["iterator_types"])

    @property
    def writes_only(self) -> bool:
        """Whether the operation ignores the old value of its output."""
        return not has_uses(self.block.arguments[len(self.inputs)])

    @property
    def pointwise(self) -> bool:
        """Whether the operation is pointwise: all loops are parallel, and each memref is indexed by the identity."""
        identity = ir.AffineMap.get_identity(self.maps[0].n_dims)
        return self.parallel and self.writes_only and all(
            m == identity for v, m in zip((*self.inputs, self.output), self.maps)
            if isinstance(v.type, ir.MemRefType))

    @property
    def one_place_a_value(self) -> bool:
        """Whether each iteration writes a different element: the output's map is a permutation."""
        return sorted(axes_of(self.maps[-1])) == list(range(self.maps[-1].n_dims))

    @property
    def extents(self) -> dict[int, int]:
        """The extent of each axis."""
        extent_of: dict[int, int] = {}
        for value, mapping in zip((*self.inputs, self.output), self.maps):
            if isinstance(value.type, ir.MemRefType):
                extent_of |= zip(axes_of(mapping), ir.MemRefType(value.type).shape)
        return extent_of

    @property
    def points(self) -> int:
        """The number of iterations."""
        return prod(self.extents.values())


def work(body: Sequence[Operation]) -> int:
    """The number of arithmetic operations in the body."""
    return sum(op.name not in CHANGES for op in body)


def axes_of(mapping: ir.AffineMap) -> list[int]:
    """The axis of each result of a map; -1 for one that is no axis."""
    return [e.position if isinstance(e, ir.AffineDimExpr) else -1 for e in mapping.results]


def structured(op: Operation) -> GenericOperation | None:
    """The operation, if it is a plain ``linalg.generic``: one output, no mask, a body that can be moved."""
    if op.name != "linalg.generic":
        return None
    attributes = op.attributes
    inputs, outputs = list(attributes["operandSegmentSizes"])
    if outputs != 1 or any(attributes[k].name not in OWN for k in range(len(attributes))):
        return None
    body = _inside(op)
    if work(body) > MOST_OPERATIONS or any(len(inner.regions) or inner.name == "linalg.index" for inner in body):
        return None
    if not all(_is_inside(v, op) for inner in body for v in inner.operands):
        return None
    operands = list(op.operands)
    maps = tuple(m.value for m in attributes["indexing_maps"])
    return GenericOperation(op, tuple(operands[:inputs]), operands[inputs], maps)


def _inside(op: Operation) -> list[Operation]:
    return operations_of(op, lambda name: True)[1:]


def _is_inside(value: Value, op: Operation) -> bool:
    """Whether a value is computed in the body, or is a constant."""
    if isinstance(value.owner, ir.Block):
        return bool(value.owner == op.regions[0].blocks[0])
    return value.owner.name == "arith.constant" or bool(value.owner.operation.block == op.regions[0].blocks[0])


def source_map(producer: GenericOperation, mapping: ir.AffineMap, number: int = 0) -> ir.AffineMap:
    """The map by which a nest reads an input of ``producer``, where it reads the producer's output by ``mapping``."""
    axes = dict(zip(axes_of(producer.maps[-1]), mapping.results))
    results = [axes[e.position] if isinstance(e, ir.AffineDimExpr) else e for e in producer.maps[number].results]
    return ir.AffineMap.get(mapping.n_dims, 0, results)


def inputs_through(producer: GenericOperation, consumer: GenericOperation, place: int
                   ) -> list[tuple[Value, ir.AffineMap]]:
    """The producer's inputs, and their maps over the axes of the consumer, whose input ``place`` it writes."""
    mapping = consumer.maps[place]
    return [(v, source_map(producer, mapping, k)) for k, v in enumerate(producer.inputs)]


def fused(first: GenericOperation, second: GenericOperation, place: int,
          first_inputs: Sequence[tuple[Value, ir.AffineMap]], second_operands: Sequence[Value]) -> Operation:
    """``second`` with ``first`` computed in place of its input ``place``, before the insertion point.

    ``first_inputs`` are values and maps over the axes of ``second``; ``second_operands`` are what it works on now.
    """
    slots: dict[tuple[Value, ir.AffineMap], int] = {}
    for value, mapping in [*first_inputs, *((v, m) for k, (v, m) in enumerate(zip(second_operands[:-1], second.maps))
                                            if k != place)]:
        slots.setdefault((value, mapping), len(slots))
    values = [v for v, _ in slots] + [second_operands[-1]]
    maps = [m for _, m in slots] + [second.maps[-1]]

    def body(arguments: list[Value]) -> Value:
        value_of: dict[Value, Value] = {a: arguments[slots[key]]
                                        for a, key in zip(first.block.arguments, first_inputs)}
        value = clone(first.body, value_of)
        value_of = {second.block.arguments[place]: value, second.block.arguments[len(second.inputs)]: arguments[-1]}
        for k, (v, m) in enumerate(zip(second_operands[:-1], second.maps)):
            if k != place:
                value_of[second.block.arguments[k]] = arguments[slots[v, m]]
        return clone(second.body, value_of)
    return structured_operation(values, maps, second.op.attributes["iterator_types"], body)


def joined(first: GenericOperation, second: GenericOperation) -> Operation:
    """Fuse two operations over the same axes into one with two outputs, before the insertion point."""
    read = dict.fromkeys([*zip(first.inputs, first.maps), *zip(second.inputs, second.maps)])
    number_of = {operand: k for k, operand in enumerate(read)}
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
        for one, old in ((first, arguments[-2]), (second, arguments[-1])):
            passed = [arguments[number_of[operand]] for operand in zip(one.inputs, one.maps)]
            results.append(clone(one.body, dict(zip(one.block.arguments, [*passed, old]))))
        ir.Operation.create("linalg.yield", operands=results)
    return op


def keeps_extents(second: GenericOperation, place: int, maps: Iterable[ir.AffineMap]) -> bool:
    """Whether operands still give the extent of every loop of ``second`` where its input ``place`` has gone.

    ``maps`` are those of the memory that what is computed in its place reads, over the axes of ``second``.
    """
    left = [m for k, m in enumerate(second.maps) if k != place]
    return {axis for m in (*left, *maps) for axis in axes_of(m)} >= set(range(second.maps[place].n_dims))


def clone(operations: Sequence[Operation], known: dict[Value, Value]) -> Value:
    """Clone a body to the insertion point with other values for its arguments; the value that it yields."""
    for inner in operations[:-1]:
        copy = inner.clone()
        for k, value in enumerate(inner.operands):
            if value in known:
                copy.operation.operands[k] = known[value]
        for old, new in zip(inner.results, copy.operation.results):
            known[old] = new
    yielded = operations[-1].operands[0]
    return known.get(yielded, yielded)
