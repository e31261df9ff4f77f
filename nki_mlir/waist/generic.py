# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Takes ``linalg.generic`` apart: operands, maps, body. No other module below the waist reads these attributes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from nki_mlir.analysis.effects import has_uses
from nki_mlir.bindings import Block, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import value_of

STRUCTURAL = ("indexing_maps", "iterator_types", "operandSegmentSizes")


@dataclass(frozen=True)
class GenericOperation:
    """A ``linalg.generic``. ``maps`` are the maps of the inputs, then of the outputs."""

    op: Operation
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    maps: tuple[ir.AffineMap, ...]

    @property
    def output(self) -> Value:
        """Return the first output."""
        return self.outputs[0]

    @property
    def operands(self) -> tuple[Value, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def accesses(self) -> tuple[tuple[Value, ir.AffineMap], ...]:
        """Return the inputs, each with its map."""
        return tuple(zip(self.inputs, self.maps))

    @property
    def block(self) -> Block:
        return self.op.regions[0].blocks[0]

    @property
    def body(self) -> list[Operation]:
        return operations_of(self.op, lambda name: True)[1:]

    @property
    def parallel(self) -> bool:
        return "reduction" not in str(self.op.attributes["iterator_types"])

    @property
    def writes_only(self) -> bool:
        """Return whether the operation ignores the old value of its output."""
        return not has_uses(self.block.arguments[len(self.inputs)])

    @property
    def pointwise(self) -> bool:
        """Return whether all loops are parallel and each memref is indexed by the identity."""
        identity = ir.AffineMap.get_identity(self.maps[0].n_dims)
        return self.parallel and self.writes_only and all(
            m == identity for v, m in zip(self.operands, self.maps) if isinstance(v.type, ir.MemRefType))

    @property
    def writes_each_element_once(self) -> bool:
        """Return whether each iteration writes a different element: the output's map is a permutation."""
        return sorted(axes_of(self.maps[-1])) == list(range(self.maps[-1].n_dims))

    @property
    def extents(self) -> dict[int, int]:
        """Return the extent of each axis."""
        extent_of: dict[int, int] = {}
        for value, mapping in zip(self.operands, self.maps):
            if isinstance(value.type, ir.MemRefType):
                extent_of |= zip(axes_of(mapping), ir.MemRefType(value.type).shape)
        return extent_of

    @property
    def points(self) -> int:
        """Return the number of iterations."""
        return prod(self.extents.values())

    def replace_inputs(self, accesses: Mapping[int, tuple[Value, ir.AffineMap]]) -> None:
        """Replace the inputs of these numbers, with their maps."""
        maps = list(self.maps)
        for k, (value, mapping) in accesses.items():
            self.op.operands[k], maps[k] = value, mapping
        self.op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])

    def read_as_inputs(self) -> None:
        """Replace the operation, on tensors, by one that reads the old values of its results as inputs."""
        count, old = len(self.inputs), self.block.arguments
        reads = [k for k in range(count, len(self.operands)) if has_uses(old[k])]
        if not reads:
            return
        order = [*range(count), *reads, *range(count, len(self.operands))]
        with self.op.context, ir.InsertionPoint(self.op), self.op.location:
            outputs = [value_of("tensor.empty", v.type) for v in self.outputs]
            new = ir.Operation.create(
                self.op.name, results=[r.type for r in self.op.results], regions=1,
                operands=[*self.inputs, *(self.operands[k] for k in reads), *outputs], attributes={
                    "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(self.maps[k]) for k in order]),
                    "iterator_types": self.op.attributes["iterator_types"],
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([count + len(reads), len(outputs)])})
            kinds = [old[k].type for k in order]
            block = new.regions[0].blocks.append(*kinds, arg_locs=[self.op.location] * len(kinds))
        for k, argument in zip(order, block.arguments):         # the inputs first
            old[k].replace_all_uses_with(argument)
        for inner in [entry.operation for entry in self.block.operations]:
            block.append(inner)
        for before, after in zip(self.op.results, new.results):
            before.replace_all_uses_with(after)
        self.op.erase()


def generic_of(op: Operation | None) -> GenericOperation | None:
    """Return the operation if it is a ``linalg.generic``."""
    if op is None or op.name != "linalg.generic":
        return None
    attributes, operands = op.attributes, tuple(op.operands)
    inputs, _ = attributes["operandSegmentSizes"]
    return GenericOperation(op, operands[:inputs], operands[inputs:],
                            tuple([m.value for m in attributes["indexing_maps"]]))


def axes_of(mapping: ir.AffineMap) -> list[int]:
    """Return the axis of each result of a map; -1 for a result that is not an axis."""
    return [e.position if isinstance(e, ir.AffineDimExpr) else -1 for e in mapping.results]
