# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tiles on chip have the elements of HBM buffers, so that what follows in a graph need not load them again.

What an operation writes is no longer what was loaded before; a kernel needs the memory for itself. ``bytes`` of each
partition are kept at most, those that were used last.
"""

from dataclasses import dataclass, replace

from nki_mlir.analysis.effects import VIEWS, effects_of, memory_of, own_effects, users_through_views
from nki_mlir.bindings import Block, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import HBM, Access, Linear, Tile

HARMLESS = (*VIEWS, "memref.get_global", "arith.", "affine.apply", "memref.load")


@dataclass(frozen=True)
class Elements:
    """Elements of an HBM buffer, in order; ``terms`` (values with their factors) are added to where they start."""

    buffer: ir.Value
    access: Access
    terms: frozenset[tuple[Value, int]]

    def span(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        (low, high), start, size = self.access.reach(), self.access.free.const, self.access.dtype.itemsize
        return (start + low) * size, (start + high + 1) * size

    def may_meet(self, other: "Elements") -> bool:
        (low, high), (least, most) = self.span(), other.span()
        return self.buffer == other.buffer and (self.terms != other.terms or (low < most and least < high))


def elements_of(tile: Tile, symbols: tuple[Value, ...]) -> Elements:
    free = tile.access.free
    terms = frozenset((symbols[position], c) for position, c in free.symbols)
    return Elements(memory_of(tile.handle), replace(tile.access, free=Linear(free.const)), terms)


class TileCache:
    """The tiles at the place of one operation of the graph after the other."""

    def __init__(self, bytes: int) -> None:
        self.bytes = bytes
        self.tiles: dict[Elements, Tile] = {}               # the least recently used first
        self.block: Block | None = None
        self.following: list[Operation] = []

    def begin(self, op: Operation) -> None:
        """Go on to an operation: forget what those in between change."""
        if self.block is None or op.block != self.block or op not in self.following:
            self.tiles, self.block = {}, op.block
            self.following = [one.operation for one in op.block.operations]
        else:
            for between in self.following[1:self.following.index(op)]:
                self.pass_by(between)
        self.following = self.following[self.following.index(op):]

    def pass_by(self, op: Operation) -> None:
        if op.name in ("linalg.generic", "linalg.fill", "memref.alloc") and all(
                in_memory(v) for v in (*op.operands, *op.results)):
            for buffer in effects_of(op).writes:
                self.forget(buffer)
        elif not op.name.startswith(HARMLESS):
            self.tiles = {}

    def forget(self, buffer: Value) -> None:
        memory = memory_of(buffer)
        self.tiles = {have: tile for have, tile in self.tiles.items() if have.buffer != memory}

    def find(self, wanted: Elements) -> Tile | None:
        found = self.tiles.pop(wanted, None)
        if found is not None:
            self.tiles[wanted] = found
        return found

    def stored(self, elements: Elements, tile: Tile) -> None:
        """A tile was written to elements, which others may have, too."""
        self.tiles = {have: other for have, other in self.tiles.items() if not have.may_meet(elements)}
        self.keep(elements, tile)

    def keep(self, elements: Elements, tile: Tile) -> None:
        self.tiles[elements] = tile
        while sum(t.free_elements * t.dtype.itemsize for t in self.tiles.values()) > self.bytes:
            del self.tiles[next(iter(self.tiles))]


def in_memory(value: Value) -> bool:
    return not isinstance(value.type, ir.MemRefType) or (
        ir.MemRefType(value.type).memory_space == ir.StringAttr.get(HBM))


def drop_unread(function: Operation) -> None:
    """Erase what writes buffers in HBM that nobody reads any more."""
    for alloc in reversed(operations_of(function, lambda name: name == "memref.alloc")):
        if not in_memory(alloc.results[0]):
            continue
        buffer, users = alloc.results[0], users_through_views(alloc.results[0])
        if all(op.name in ("linalg.generic", "linalg.fill") and buffer not in own_effects(op).reads for op in users):
            for op in users:
                op.erase()
