# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads of on-chip memory that nothing has written, found in a captured kernel by going through its loops.

It is done where the first operation on a buffer does not write all of it, for the first and the last program of a
grid. Behind addresses and conditions that only a run knows, and after ``MOST_STEPS`` operations, nothing is looked for.
"""

from typing import Any

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Operation, Value
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.symbol_ranges import loop_span, symbol_range
from nki_mlir.frontend.tensor import Buffer
from nki_mlir.targets.interpreter.scalars import SCALAR_OPERATIONS, scalar_function
from nki_mlir.targets.interpreter.unwritten_tiles import FreshTile, Shadow, UnwrittenTiles

MOST_STEPS = 20_000


class OnlyARunKnows(Exception):
    """What the rest of the kernel does is not known from its text."""


class Walk:
    """One program's way through a function. ``fresh`` are the buffers by their allocations' values."""

    def __init__(self, fresh: dict[Value, Buffer], program_ids: dict[Value, int]) -> None:
        self.fresh, self.numbers = fresh, program_ids
        self.shadows: dict[Value, Shadow] = {}
        self.tiles, self.left = UnwrittenTiles(), MOST_STEPS
        self.known: dict[Operation, Op] = {}

    def block(self, block: Any) -> None:
        for operation in block.operations:
            self.step(operation.operation)

    def step(self, operation: Operation) -> None:
        name = operation.name
        if name == "memref.alloc":
            self.allocated(operation)
        elif is_tile_op(operation):
            self.perform(operation)
        elif name == "scf.for":
            span = loop_span(operation)
            if span is None:
                raise OnlyARunKnows
            body = operation.regions[0].blocks[0]
            for number in span:
                self.numbers[body.arguments[0]] = number
                self.block(body)
        elif name == "scf.if":
            region = operation.regions[0 if self.number(operation.operands[0]) else 1]
            for block in region.blocks:
                self.block(block)
        elif operation.regions:
            raise OnlyARunKnows

    def allocated(self, operation: Operation) -> None:
        value = operation.results[0]
        self.shadows[value] = FreshTile(self.fresh[value].name, location_of(operation)) if value in self.fresh else None

    def perform(self, operation: Operation) -> None:
        values = list(operation.operands)
        if not any(self.shadows.get(v) is not None for v in values):
            return
        self.left -= 1
        if not self.left:
            raise OnlyARunKnows
        op = self.known.get(operation)
        if op is None:
            op = self.known[operation] = read_op(operation)
        handles = [tile.handle for _, tile in op.operands()]
        shadows = [self.shadows.get(h) for h in handles]
        after = self.tiles.perform(op, shadows, [self.number(s) for s in op.symbols], lambda: location_of(operation))
        self.shadows.update(zip(handles, after))

    def number(self, value: Value) -> int:
        """An index or truth value."""
        if value not in self.numbers:
            operation = defining(value)
            if operation is None or operation.name not in SCALAR_OPERATIONS:
                raise OnlyARunKnows
            return int(scalar_function(operation)(*[self.number(v) for v in operation.operands]))
        return self.numbers[value]


def report_unwritten(function: Operation, fresh: dict[Value, Buffer]) -> None:
    """Warn of what the function reads of these buffers before it has written it, an error under ``NKI_MLIR_STRICT``."""
    block = function.regions[0].blocks[0]
    ids = [a for a in block.arguments if str(a.type) == "index"]
    for end in range(2 if ids else 1):
        try:
            Walk(fresh, {a: symbol_range(a)[end] for a in ids}).block(block)
        except OnlyARunKnows:
            pass
