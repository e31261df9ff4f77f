# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Buffers behind views, and which of them the operations of a function read and write."""

from dataclasses import dataclass, field

from nki_mlir.bindings import Operation, Value, enclosing, ir, operations_of
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op

# Views that begin where their source does: the type has the layout.
RESHAPES = ("memref.expand_shape", "memref.collapse_shape", "memref.cast", "memref.transpose",
            "memref.memory_space_cast", "nki.reinterpret")
VIEWS = ("nki.view", "memref.subview", "memref.reinterpret_cast", *RESHAPES)
NO_EFFECT = (*VIEWS, "memref.alloc", "memref.get_global", "affine.apply")


@dataclass
class Effects:
    """The buffers that an operation, with all inside it, reads and writes."""

    reads: set[Value] = field(default_factory=set)
    writes: set[Value] = field(default_factory=set)

    def touches(self, buffer: Value) -> bool:
        return buffer in self.reads or buffer in self.writes


def defining(value: Value) -> Operation | None:
    """The operation that makes a value; None for a block argument."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def memory_of(value: Value) -> Value:
    """The buffer behind a chain of views, of whatever element types."""
    op = defining(value)
    while op is not None and op.name in VIEWS:
        value = op.operands[0]
        op = defining(value)
    return value


def own_effects(op: Operation) -> Effects:
    """Those of an operation alone, without what is inside it."""
    found = Effects()
    _add(op, found)
    return found


def effects_of(op: Operation) -> Effects:
    found = Effects()
    for inner in operations_of(op, lambda name: True):
        _add(inner, found)
    return found


def _add(op: Operation, found: Effects) -> None:
    if op.name in NO_EFFECT:
        return
    if op.name in ("linalg.generic", "linalg.fill"):
        inputs, _ = op.attributes["operandSegmentSizes"]
        for k, value in enumerate(op.operands):
            if isinstance(value.type, ir.MemRefType):
                if k < inputs:
                    found.reads.add(memory_of(value))
                    continue
                found.writes.add(memory_of(value))
                if op.name == "linalg.generic" and has_uses(op.regions[0].blocks[0].arguments[k]):
                    found.reads.add(memory_of(value))
        return
    if is_tile_op(op):
        tile_op = read_op(op)
        found.reads |= {memory_of(t.handle) for f, t in tile_op.operands() if f.reads}
        found.writes |= {memory_of(t.handle) for _, t in tile_op.targets()}
        if tile_op.acts_outside:        # other programs write what all of them share
            *_, function = enclosing(op)
            found.writes |= {a for a in function.regions[0].blocks[0].arguments
                             if isinstance(a.type, ir.MemRefType)}
    for value in op.operands:
        if isinstance(value.type, ir.MemRefType) and not is_tile_op(op):
            found.reads.add(memory_of(value))
            if op.name != "memref.load":
                found.writes.add(memory_of(value))


def has_uses(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None


def users_through_views(value: Value) -> list[Operation]:
    """The operations that use a buffer, or a view of it, as anything but a view."""
    found: list[Operation] = []
    for use in value.uses:
        op = use.owner.operation
        if op.name in VIEWS:
            found += users_through_views(op.results[0])
        elif op not in found:
            found.append(op)
    return found
