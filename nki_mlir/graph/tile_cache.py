# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Knows which on-chip tiles contain elements of HBM buffers, while the operations of a graph are emitted in order.

A later operation reads such a tile instead of loading its elements again. It reads the tile itself, a part of it, or a
copy of parts of several tiles. A write invalidates overlapping tiles, and a kernel empties the cache, because it
needs the memory. The cache keeps at most ``bytes`` of each partition. It drops a tile that no later operation reads,
then the one whose next reader is furthest away.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from nki_mlir.analysis.effects import VIEWS, Effects, effects_of, memory_of
from nki_mlir.analysis.view_starts import start_in_buffer
from nki_mlir.bindings import Block, Operation, Value, ir
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.buffer_types import element_dtype
from nki_mlir.graph.choices import TileChoices
from nki_mlir.waist.overlap import ANYWHERE, IndexBox, Region, index_boxes_apart, region_of

HARMLESS = (*VIEWS, "memref.get_global", "arith.", "affine.apply", "memref.load")
STRUCTURED = ("linalg.generic", "linalg.fill")
STARTS = (32, 64, 96)           # partitions other than the first from which engines read
NEVER = 1 << 30                 # the number of an operation after all others


@dataclass(frozen=True)
class Elements:
    """A sequence of elements of an HBM buffer. Its start is that of ``access`` plus ``terms``: values, each times a
    factor."""

    buffer: ir.Value
    access: Access
    terms: frozenset[tuple[Value, int]]

    @cached_property
    def region(self) -> Region:
        """The bytes of the elements. With terms, they may be anywhere in the buffer; only elements with equal terms
        are compared exactly."""
        region = region_of(self.access, self.buffer)
        return replace(region, low=-ANYWHERE, high=ANYWHERE, symbolic=self.terms) if self.terms else region

    def part_in(self, other: "Elements") -> tuple[list[int], list[int]] | None:
        """Return the box of ``other`` that has exactly these elements, as starts and counts by dim of ``other``.

        The count is 1 along a dim that these elements lack. Return None if there is no such box, or if its rows are not
        the first rows of ``other``.
        """
        access, other_access = self.access, other.access
        if access.dtype is not other_access.dtype or access.dims[0][0] != other_access.dims[0][0] or (
                access.dims[0][1] > other_access.dims[0][1]):
            return None
        counts = [access.dims[0][1]]
        free = [dim for dim in access.dims[1:] if dim[1] > 1]
        for step, count in other_access.dims[1:]:
            matches = bool(free) and free[0][0] == step and free[0][1] <= count
            counts.append(free.pop(0)[1] if matches else 1)
        remaining, starts = access.free.const - other_access.free.const, [0] * len(counts)
        if free or remaining < 0 or any(step <= 0 for step, _ in other_access.dims):
            return None
        for k in sorted(range(1, len(counts)), key=lambda k: -other_access.dims[k][0]):
            step, count = other_access.dims[k]
            starts[k] = min(remaining // step, count - counts[k])
            remaining -= starts[k] * step
        return None if remaining or self.terms != other.terms or self.buffer != other.buffer else (starts, counts)

    def inside(self, other: "Elements", tile: Tile, row: int = 0) -> Tile | None:
        """Return the part of ``tile``, which has the elements of ``other``, with these elements: a box of it, or every
        second one, for example. Return None if it lacks one, or if the rows are not those of ``other`` from ``row`` on.
        """
        rows, other_rows = self.access.dims[0], other.access.dims[0]
        remaining = self.access.free.const - other.access.free.const - row * other_rows[0]
        if (self.buffer, self.terms, self.access.dtype) != (other.buffer, other.terms, other.access.dtype) or (
                remaining < 0 or row + rows[1] > other_rows[1] or (rows[0] != other_rows[0] and rows[1] > 1)):
            return None
        hosts = sorted((k for k, (_, n) in enumerate(other.access.dims) if k and n > 1),
                       key=lambda k: -other.access.dims[k][0])
        reached, dims = dict.fromkeys(hosts, 0), [(tile.access.dims[0][0], rows[1])]
        for step, count in self.access.dims[1:]:
            host = next((k for k in hosts if count > 1 and 0 < other.access.dims[k][0] <= step), None)
            if host is None:
                dims.append((1, 1))
                if count > 1:
                    return None
                continue
            factor, remainder = divmod(step, other.access.dims[host][0])
            reached[host] += factor * (count - 1)
            if remainder or reached[host] >= other.access.dims[host][1]:
                return None
            dims.append((tile.access.dims[host][0] * factor, count))
        start = 0
        for host in hosts:
            step, count = other.access.dims[host]
            first = min(remaining // step, count - 1 - reached[host]) if step > 0 else 0
            remaining -= first * step
            start += first * tile.access.dims[host][0]
        partition = tile.access.partition
        assert partition is not None
        return None if remaining else tile.patterned(partition=partition.plus(Linear(row)),
                                                     free=tile.access.free.plus(Linear(start)), dims=tuple(dims))


def elements_of(tile: Tile, symbols: tuple[Value, ...]) -> Elements:
    access = tile.access
    terms = frozenset((symbols[position], c) for position, c in access.free.symbols)
    start = Access(access.dtype, access.partition, Linear(access.free.const), access.dims)
    return Elements(memory_of(tile.handle), start, terms)


def elements_in(value: Value) -> Elements:
    """Return the elements of a view in HBM; those of the complete buffer if the view has another type."""
    start, kind, memory = start_in_buffer(value), ir.MemRefType(value.type), memory_of(value)
    if start.buffer != memory or ir.MemRefType(memory.type).element_type != kind.element_type:
        return elements_in(memory)
    strides, _ = kind.get_strides_and_offset()
    dims = tuple([(step if n > 1 else 1, n) for step, n in zip(strides, kind.shape)]) or ((1, 1),)
    return Elements(start.buffer, Access(element_dtype(kind.element_type), None, Linear(start.offset), dims),
                    frozenset(start.terms))


def read_by(op: Operation, effects: Effects) -> list[Elements]:
    """Return the elements that an operation, or one inside it, reads, from its effects."""
    reads, views = effects.reads, []
    if op.name in STRUCTURED:
        views = [v for v in op.operands if isinstance(v.type, ir.MemRefType) and memory_of(v) in reads]
    return [elements_in(value) for value in (*views, *(reads - {memory_of(v) for v in views}))]


class TileCache:
    """Knows which tiles contain which elements of HBM, while operations of the graph are emitted in order."""

    def __init__(self, bytes: int, choices: TileChoices) -> None:
        self.bytes, self.choices = bytes, choices
        self.tiles: dict[Elements, Tile] = {}               # the oldest first
        self.images: dict[Elements, Tile] = {}              # images of convolutions
        self.pieces: dict[Value, int] = {}      # neighboring pixels in a partition of a buffer's tiles
        self.block: Block | None = None
        self.operations: list[Operation] = []               # operations of the block before any was emitted
        self.numbers_of: dict[Operation, int] = {}          # the index of each in ``operations``
        self.at = 0                                         # number of the operation that is emitted
        self.readers: dict[Value, list[tuple[int, Region]]] = {}    # a buffer to its reading operations and their bytes
        self.numbers: dict[Elements, list[int]] = {}        # memo: the operations that read some of the elements
        self.effects: dict[Operation, Effects] = {}         # memo: the effects of the graph's operations

    def advance_to(self, op: Operation) -> None:
        """Advance to an operation: forget the elements that the operations in between change, and the tiles that
        nothing reads from there on."""
        if self.block is None or op.block != self.block or self.numbers_of.get(op, -1) < self.at:
            self.begin_block(op.block)
        number = self.numbers_of[op]
        for between in self.operations[self.at + 1:number]:
            self.invalidate_effects(between)
        self.at = number
        if self.choices.readers:
            self.tiles, self.images = ({elements: tile for elements, tile in tiles.items()
                                        if self.next_reader(elements) < NEVER} for tiles in (self.tiles, self.images))

    def begin_block(self, block: Block) -> None:
        """Begin at the first operation of another block."""
        self.tiles, self.images, self.block, self.at, self.readers, self.numbers = {}, {}, block, 0, {}, {}
        self.operations = [entry.operation for entry in block.operations]
        self.numbers_of = {op: number for number, op in enumerate(self.operations)}
        for op, number in self.numbers_of.items():
            for elements in read_by(op, self.effects_of(op)):
                self.readers.setdefault(elements.buffer, []).append((number, elements.region))

    def effects_of(self, op: Operation) -> Effects:
        """Return the effects of an operation of the graph, which stays as it is until all are emitted."""
        if op not in self.effects:
            self.effects[op] = effects_of(op)
        return self.effects[op]

    def read_now(self, value: Value) -> None:
        """Note that the operation which is emitted reads a buffer that it has allocated."""
        elements = elements_in(value)
        self.readers[elements.buffer] = [(self.at, elements.region)]

    def next_reader(self, elements: Elements, later: bool = False) -> int:
        """Return the number of the next operation that reads some of the elements; ``later``: after the one that is
        emitted."""
        numbers = self.numbers.get(elements)
        if numbers is None:
            numbers = self.numbers[elements] = [number for number, region in self.readers.get(elements.buffer, [])
                                                if region.overlaps(elements.region)]
        following = bisect_left(numbers, self.at + later)
        return numbers[following] if following < len(numbers) else NEVER

    def invalidate_effects(self, op: Operation) -> None:
        if op.name in (*STRUCTURED, "memref.alloc") and all(
                in_memory(v) for v in (*op.operands, *op.results)):
            if op.name in STRUCTURED:
                self.invalidate(elements_in(op.operands[len(op.operands) - 1]))
        elif not op.name.startswith(HARMLESS):
            self.tiles, self.images = {}, {}

    def invalidate(self, written: Elements) -> None:
        """Forget the tiles of elements that an operation writes."""
        self.tiles, self.images = ({elements: tile for elements, tile in tiles.items()
                                    if not elements.region.overlaps(written.region)}
                                   for tiles in (self.tiles, self.images))

    def find(self, target: Elements) -> Tile | None:
        """Return a tile, or a part of a tile, with exactly these elements; None if the cache has none."""
        tile = self.tiles.get(target)
        if tile is not None or not self.choices.parts:
            return tile
        parts = (target.inside(elements, tile) for elements, tile in self.tiles.items()
                 if elements.buffer == target.buffer)
        return next((part for part in parts if part is not None), None)

    def find_in_later_rows(self, target: Elements) -> Tile | None:
        """Return a part of a tile with these elements that begins at a later row, from which engines can read; None if
        the cache has none."""
        parts = (target.inside(elements, tile, row) for elements, tile in self.tiles.items()
                 if elements.buffer == target.buffer for row in STARTS if row < elements.access.dims[0][1])
        return next((part for part in parts if part is not None), None) if self.choices.later_rows else None

    def contains(self, elements: Elements) -> bool:
        """Return whether the elements are on chip, in one tile or in several ones."""
        return self.find(elements) is not None or bool(self.cover(elements))

    def cover(self, target: Elements) -> list[tuple[Tile, IndexBox]]:
        """Return tiles that together have exactly the elements of ``target``, each with the box of ``target`` that it
        has. Return an empty list if there are no such tiles."""
        if not self.choices.compose:
            return []
        boxes: list[tuple[Tile, IndexBox]] = []
        remaining = prod(n for _, n in target.access.dims)
        for elements, tile in self.tiles.items():
            if elements.buffer != target.buffer or elements.access.dims[0] != target.access.dims[0]:
                continue
            part = elements.part_in(target)
            if part is not None and all(index_boxes_apart(part, other) for _, other in boxes):
                starts, counts = part
                boxes.append((self.with_dims(tile, counts), (starts, counts)))
                remaining -= prod(counts)
        return boxes if not remaining else []

    @staticmethod
    def with_dims(tile: Tile, counts: Sequence[int]) -> Tile:
        """Return a tile with further dims of one element, so that its extents are ``counts``."""
        access = tile.access
        steps = iter([dim for dim in access.dims[1:] if dim[1] > 1])
        dims = tuple(next(steps) if n > 1 else (1, 1) for n in counts[1:])
        return replace(tile, access=replace(access, dims=(access.dims[0], *dims)))

    def stored(self, elements: Elements, tile: Tile) -> None:
        """Record that a tile has been stored to elements. Forget the tiles of overlapping elements."""
        self.invalidate(elements)
        self.retain(elements, tile)

    def retain(self, elements: Elements, tile: Tile, again: bool = True) -> None:
        """Keep a tile, or, if there is no room, those that are read earlier. Of tiles with the same next reader the
        oldest stay, because that operation reads them first. ``again``: the operation that is emitted may read it
        again."""
        if self.choices.readers and self.next_reader(elements, later=not again) == NEVER:
            return
        self.tiles[elements] = tile
        while self.tiles and sum(t.free_elements * t.dtype.itemsize
                                 for tiles in (self.tiles, self.images) for t in tiles.values()) > self.bytes:
            del self.tiles[max(reversed(self.tiles), key=self.next_reader) if self.choices.readers else next(
                iter(self.tiles))]

    def retain_image(self, elements: Elements, tile: Tile) -> None:
        """Keep an image for the convolution that reads it next."""
        self.images[elements] = tile


def in_memory(value: Value) -> bool:
    return not isinstance(value.type, ir.MemRefType) or (
        ir.MemRefType(value.type).memory_space == ir.StringAttr.get(HBM))
