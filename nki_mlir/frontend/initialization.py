# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fresh on-chip memory reads as zero: a memset where the first operation on a buffer does not overwrite all of it.

Kernels accumulate into tensors that were only declared. Most buffers are written whole by the operation that makes
them, and need nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nki_mlir.bindings import Operation, ir
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.nki.movement import MemsetOp
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.frontend.builder import Operands
from nki_mlir.frontend.tensor import Buffer, View


@dataclass
class Covering:
    """A buffer that a loop's iterations write piece by piece: all of it has been written when ``scope`` has closed."""

    scope: object
    access: Access
    symbols: tuple[object, ...] # that the access is over


class FirstUses:
    """Watches the first operations on each on-chip buffer of one capture."""

    def __init__(self) -> None:
        self.open: dict[Buffer, Covering | None] = {}      # not used yet, or not written whole
        self.zeros: dict[Buffer, None] = {}             # to be set
        self.unwritten: Callable[[Buffer], None] | None = None      # told of what is read before it is written
        self.allocations: dict[Buffer, Operation] = {}        # those that stand, with the operation that makes each

    def allocated(self, buffer: Buffer, zeroed: bool = False) -> None:
        if zeroed:
            self.zeros[buffer] = None
        elif buffer.space != HBM:
            self.open[buffer] = None

    def forget(self, buffer: Buffer) -> None:
        for known in (self.open, self.zeros, self.allocations):
            known.pop(buffer, None)

    def used(self, op: Op, operands: Operands, views: Sequence[View], scopes: list[Any]) -> None:
        """``views`` are those of the operands, ``scopes`` the blocks that are open where the op stands."""
        for (field, tile), view in zip(operands, views):
            if view.buffer in self.open:
                self.used_open(op, operands, field, tile, view.buffer, scopes)

    def used_open(self, op: Op, operands: Operands, field: TileField, tile: Tile, buffer: Buffer, scopes: list[Any]
                  ) -> None:
        state = self.open[buffer]
        # An operation may do without reading what its class says it reads (``sources``).
        read = field.reads and field.name in [name for name, _ in op.sources()]
        for f, t in operands:
            if t.handle is tile.handle and f.reads and not f.writes:
                read = True
                if state is None and self.unwritten is not None:
                    self.unwritten(buffer)
                break
        if state is None:
            whole = field.writes and not read and not op.mask and first_write(op, tile, buffer, scopes)
        elif state.scope not in scopes:
            whole = True
        else:           # a piece that another iteration writes may be read before
            whole = state if not read or (tile.access == state.access and op.symbols == state.symbols) else False
        if isinstance(whole, Covering):
            self.open[buffer] = whole
            return
        del self.open[buffer]
        if not whole:
            self.zeros[buffer] = None

    def fill(self, make: Attributes) -> None:
        """Insert the memsets. Buffers whose allocation was taken back have been forgotten."""
        for buffer in self.zeros:
            _memset(buffer, self.allocations[buffer], make)


def first_write(op: Op, tile: Tile, buffer: Buffer, scopes: list[Any]) -> bool | Covering:
    """What the first operation on a buffer, a write, leaves to be initialised."""
    if buffer.scope is scopes[-1]:
        return tile.layout.form.is_whole and not (op.symbols and tile.access.symbols_used())
    inner = scopes[scopes.index(buffer.scope) + 1:] if buffer.scope in scopes else scopes
    if any(scope.symbol is None for scope in inner) or tile.partitions != tile.base_shape[0]:
        return False                                # under an if, or on some partitions only
    place = {id(handle): k for k, handle in enumerate(op.symbols)}
    steps = [(abs(step), count) for step, count in tile.access.free_dims if count > 1]
    coefficients, first = dict(tile.access.free.symbols), tile.access.free.const
    for symbol in (scope.symbol for scope in inner):
        position = place.get(id(symbol.value))
        if position in coefficients:
            c = coefficients.pop(position)
            first += c * symbol.first
            steps.append((c * symbol.step, (symbol.last - symbol.first) // symbol.step + 1))
    if coefficients or first or tile.access.partition != Linear():
        return False
    covered = 1
    for step, count in sorted(steps):
        if step != covered:
            return False
        covered *= count
    return Covering(inner[0], tile.access, op.symbols) if covered == tile.row else False


def _memset(buffer: Buffer, allocation: Operation, make: Attributes) -> None:
    shape, free = buffer.physical_shape, 1
    for extent in shape[1:]:
        free *= extent
    access = Access(buffer.dtype, Linear(), Linear(), ((1, shape[0]), (1, free)))
    tile = Tile(buffer.handle.value, buffer.space, shape, buffer.dtype, access)
    write_op(MemsetOp(dst=tile, value=0.0), make, allocation.location, ir.InsertionPoint.after(allocation))
