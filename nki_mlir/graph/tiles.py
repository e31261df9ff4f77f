# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits nests on tiles: buffers in SBUF and PSUM, copies between them and HBM, and expressions.

A cache maps elements of HBM buffers to the tiles that contain them, so that later operations of the graph do not
load them again. A write invalidates overlapping tiles, and a kernel empties the cache, because it needs the memory.
The cache keeps at most ``bytes`` of each partition, in least-recently-used order.

Integers in HBM that decide branches or addresses are loaded to registers through a tile:

before:  %n = memref.load %x[] : memref<i32, "hbm">
after:   %t = memref.alloc() : memref<1x1xi32, "sbuf">; linalg.generic ins(%x) outs(%t); %n = memref.load %t[%c0, %c0]
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nki_mlir.analysis.effects import VIEWS, effects_of, memory_of, own_effects, users_through_views
from nki_mlir.bindings import Block, Operation, Value, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.op import NisaOp
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.nests import chosen, compared, numbers, unsigned, with_exact_extremes
from nki_mlir.scalar.dtypes import BOOL, INT32, DType
from nki_mlir.waist import expression as trees
from nki_mlir.waist.buffer_views import TileReader
from nki_mlir.waist.overlap import ANYWHERE, Region, region_of
from nki_mlir.waist.tile_operand import TileOperand
from nki_mlir.waist.writer import IterationSpace, OperandView, ScalarBody, Writer

HARMLESS = (*VIEWS, "memref.get_global", "arith.", "affine.apply", "memref.load")


@dataclass(frozen=True)
class Elements:
    """Elements of an HBM buffer in order. ``terms``, values with factors, are added to the start of ``access``."""

    buffer: ir.Value
    access: Access
    terms: frozenset[tuple[Value, int]]

    @cached_property
    def region(self) -> Region:
        """The bytes of the elements. With terms, they count as anywhere in the buffer; only elements with equal terms
        are compared exactly."""
        region = region_of(self.access, self.buffer)
        return replace(region, low=-ANYWHERE, high=ANYWHERE, symbolic=self.terms) if self.terms else region

    def part_in(self, other: "Elements") -> tuple[list[int], list[int]] | None:
        """Return the box of ``other`` that has exactly these elements, as starts and counts by dim of ``other``; None
        if there is no such box. The rows must be the first rows of ``other``. A dim that these elements lack has count
        1."""
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


def elements_of(tile: Tile, symbols: tuple[Value, ...]) -> Elements:
    free = tile.access.free
    terms = frozenset((symbols[position], c) for position, c in free.symbols)
    return Elements(memory_of(tile.handle), replace(tile.access, free=Linear(free.const)), terms)


class TileCache:
    """Knows which tiles contain which elements of HBM, while operations of the graph are emitted in order."""

    def __init__(self, bytes: int) -> None:
        self.bytes = bytes
        self.tiles: dict[Elements, Tile] = {}               # the least recently used first
        self.block: Block | None = None
        self.following: list[Operation] = []

    def begin(self, op: Operation) -> None:
        """Advance to an operation: forget the elements that the operations in between change."""
        if self.block is None or op.block != self.block or op not in self.following:
            self.tiles, self.block = {}, op.block
            self.following = [entry.operation for entry in op.block.operations]
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
        self.tiles = {elements: tile for elements, tile in self.tiles.items() if elements.buffer != memory}

    def find(self, wanted: Elements) -> Tile | None:
        """Return the tile that contains the elements, or the part of a larger tile; None if there is none."""
        tile = self.tiles.pop(wanted, None)
        if tile is not None:
            self.tiles[wanted] = tile
            return tile
        for elements, tile_of_others in self.tiles.items():
            part = wanted.part_in(elements)
            if part is not None:
                self.tiles[elements] = self.tiles.pop(elements)
                return self.part_of(tile_of_others, wanted, *part)
        return None

    @staticmethod
    def part_of(tile: Tile, wanted: Elements, starts: Sequence[int], counts: Sequence[int]) -> Tile:
        """Return a box of a tile with the dims of ``wanted``."""
        access = tile.access.box(starts, counts)
        steps = iter([dim for dim in access.dims[1:] if dim[1] > 1])
        dims = tuple(next(steps) if n > 1 else (1, 1) for _, n in wanted.access.dims[1:])
        return replace(tile, access=replace(access, dims=(access.dims[0], *dims)))

    def stored(self, elements: Elements, tile: Tile) -> None:
        """Record that a tile has been stored to elements. Forget the tiles of overlapping elements."""
        self.tiles = {cached: cached_tile for cached, cached_tile in self.tiles.items()
                      if not cached.region.overlaps(elements.region)}
        self.keep(elements, tile)

    def keep(self, elements: Elements, tile: Tile) -> None:
        self.tiles[elements] = tile
        while sum(t.free_elements * t.dtype.itemsize for t in self.tiles.values()) > self.bytes:
            del self.tiles[next(iter(self.tiles))]


def in_memory(value: Value) -> bool:
    return not isinstance(value.type, ir.MemRefType) or (
        ir.MemRefType(value.type).memory_space == ir.StringAttr.get(HBM))


def drop_unread(function: Operation) -> None:
    """Erase the writes to HBM buffers that no operation reads."""
    for alloc in reversed(operations_of(function, lambda name: name == "memref.alloc")):
        if not in_memory(alloc.results[0]):
            continue
        buffer, users = alloc.results[0], users_through_views(alloc.results[0])
        if all(op.name in ("linalg.generic", "linalg.fill") and buffer not in own_effects(op).reads for op in users):
            for op in users:
                op.erase()


class Tiles:
    """Emits tiles and operations on them before the current operation of the graph."""

    def __init__(self, cache: TileCache) -> None:
        self.writer, self.cache = Writer(), cache

    def at(self, operation: Operation, symbols: tuple[Value, ...]) -> None:
        self.writer.at(operation)
        self.symbols = symbols

    def buffer(self, shape: Sequence[int], dtype: DType, space: str = SBUF) -> Tile:
        """Allocate a buffer and return all of it as a tile."""
        return self.writer.buffer(tuple(shape), dtype, space)

    def view(self, tile: Tile, axes: tuple[int, ...]) -> OperandView:
        return self.writer.view(tile, axes, self.symbols)

    def copy(self, dst: Tile, src: Tile, order: tuple[int, ...] = ()) -> None:
        """Emit ``dst = src`` with conversion; dim k of src goes along dim ``order[k]`` of dst."""
        self.apply(dst, src, trees.converted(trees.Input(src.dtype, 0), dst.dtype), order)

    def apply(self, dst: Tile, src: Tile, body: trees.Node, order: tuple[int, ...] = ()) -> None:
        """Emit ``dst = body`` for each element of src, whose dim k goes along dim ``order[k]`` of dst."""
        axes = tuple(range(len(dst.shape)))
        self.writer.generic(IterationSpace(len(axes)), [self.view(src, order or axes)], [self.view(dst, axes)],
                            body.dtype, lambda s, ins, outs: [expression(body, s, ins, outs)])

    def fill(self, dst: Tile, value: float, axes: tuple[int, ...]) -> None:
        """Emit the initial value of a fold, whose result goes along ``axes`` as in the view of the fold itself."""
        self.writer.fill(self.view(dst, axes), value)

    def load(self, operand: TileOperand, extents: Sequence[int], partition_axis: int = 0) -> tuple[Tile,
                                                                                                   tuple[int, ...]]:
        """Return a tile with the elements of an HBM operand, and its axes: ``partition_axis`` along the partitions,
        then the axes along which the operand moves. An operand that is constant along ``partition_axis`` is repeated
        in every partition."""
        axes = loaded_axes(operand, extents, partition_axis)
        return self.loaded(operand.tile([extents[a] for a in axes], axes)), axes

    def loaded(self, source: Tile) -> Tile:
        """Return an on-chip tile with the elements of an HBM tile, from the cache or by a load."""
        elements = elements_of(source, self.symbols)
        tile = self.cache.find(elements)
        if tile is None:
            tile = self.buffer(source.shape, source.dtype)
            self.copy(tile, source)
            self.cache.keep(elements, tile)
        return tile

    def has(self, operand: TileOperand, extents: Sequence[int]) -> bool:
        """Return whether an on-chip tile has the elements that ``load`` would load."""
        axes = loaded_axes(operand, extents, 0)
        source = operand.tile([extents[a] for a in axes], axes)
        return self.cache.find(elements_of(source, self.symbols)) is not None

    def load_transposed(self, source: Tile, parts: Sequence[Tile]) -> Tile:
        """Return an on-chip tile with the elements of an HBM tile, loaded in transposed parts and transposed on chip.
        """
        elements = elements_of(source, self.symbols)
        tile = self.cache.find(elements)
        if tile is None:
            tile, start = self.buffer(source.shape, source.dtype), 0
            for part in parts:
                counts = part.shape[::-1]
                self.copy(replace(tile, access=tile.access.box((0, start), counts)), self.loaded(part), (1, 0))
                start += counts[1]
            self.cache.keep(elements, tile)
        return tile

    def write(self, op: NisaOp) -> None:
        """Emit an instruction."""
        write_op(op, self.writer.make, self.writer.location, self.writer.insertion_point)

    def store(self, output: TileOperand, tile: Tile, axes: tuple[int, ...]) -> None:
        target = output.tile(tile.shape, axes)
        self.copy(target, tile)
        self.cache.stored(elements_of(target, self.symbols), tile)

    def compute(self, extents: Sequence[int], reduced: frozenset[int],
                inputs: Sequence[tuple[Tile, tuple[int, ...]]], output: Tile, axes: tuple[int, ...], body: trees.Node
                ) -> None:
        """Emit ``output = body`` over axes of these extents; a body that reads the output folds into it."""
        body = with_exact_extremes(body)
        loops = IterationSpace(len(extents), reduced, (), (), self.symbols)
        views = [self.view(tile, axes_of) for tile, axes_of in inputs]
        parallel = tuple(a for a in axes if a not in reduced)
        target = self.writer.view(output, axes, self.symbols, reduced) if reduced else self.view(output, parallel)
        self.writer.generic(loops, views, [target], body.dtype,
                            lambda s, ins, outs: [expression(body, s, ins, outs)], trees.forms_of(body))


def loaded_axes(operand: TileOperand, extents: Sequence[int], partition_axis: int) -> tuple[int, ...]:
    """Return the axes of a loaded tile: the axis along the partitions, then the axes along which the operand moves."""
    return (partition_axis, *(a for a, n in enumerate(extents) if a != partition_axis and operand.moves(a)))


def expression(body: trees.Node, s: ScalarBody, ins: Sequence[Value], outs: Sequence[Value]) -> Value:
    """Emit an expression as scalar operations; equal subtrees are emitted once."""
    values: dict[trees.Node, Value] = {}
    for node in trees.operands_first(body):
        match node:
            case trees.Input(index=k):
                value = ins[k]
            case trees.Output():
                value = outs[0]
            case trees.Constant(dtype=dtype, value=number):
                value = ScalarBody(s.create, s.make, dtype, s.symbols).constant(number)
            case trees.Position(form=form, dtype=dtype):
                value = ScalarBody(s.create, s.make, dtype, s.symbols).position(form)
            case trees.Convert(dtype=dtype, value=inner):
                value = s.convert(values[inner], inner.dtype, dtype)
            case trees.Activation(fn=fn, value=inner):
                value = s.activation(fn, values[inner])
            case trees.Alu(fn=fn, args=args):
                value = s.alu(fn, *(values[a] for a in args))
        values[node] = value
    return values[body]


# -- registers ---------------------------------------------------------------------------------------------------------
GREATEST = (1 << 31) - 1
UNSIGNED = ("arith.index_castui", "arith.extui")


def load_on_chip(load: Operation, tiles: Tiles) -> None:
    """Rewrite a ``memref.load`` of an integer in HBM as a load from a tile; raises ``Unsupported`` for wider types."""
    kind = load.results[0].type
    if not isinstance(kind, ir.IntegerType) or kind.width > 32:
        raise Unsupported(feature=f"a choice or an index of type {kind} in a graph as engine instructions",
                          instead="use an int32").located(location_of(load))
    reader = TileReader(load)
    view = reader.view(load.operands[0])
    access = view.tile.access
    for d, subscript in zip(view.dims, list(load.operands)[1:]):
        access = access.moved(d, reader.form(subscript))
    tiles.at(load, tuple(reader.numbering.values))
    tile = tiles.buffer((1, 1), access.dtype)
    tiles.copy(tile, replace(view.tile, access=replace(access, dims=((1, 1), (1, 1)))))
    casts = [use.owner.operation for use in load.results[0].uses if use.owner.name in UNSIGNED]
    if casts and tile.dtype is not BOOL:
        number = without_sign(tile, tiles)
        for cast in casts:
            cast.results[0].replace_all_uses_with(tiles.writer.create(
                "arith.index_cast", [number], [cast.results[0].type]).results[0])
    load.results[0].replace_all_uses_with(loaded(tile, tiles))
    load.erase()


def without_sign(tile: Tile, tiles: Tiles) -> Value:
    """Return an unsigned number as an int32, saturated to the greatest int32, which lies beyond all offsets."""
    number = tiles.buffer((1, 1), INT32)
    value, zero = unsigned(trees.Input(tile.dtype, 0), tile.dtype.bits), numbers(0, INT32)
    tiles.apply(number, tile, chosen(compared("less", value, zero), numbers(GREATEST, INT32), value))
    return loaded(number, tiles)


def loaded(tile: Tile, tiles: Tiles) -> Value:
    """Load the number in a tile of one element."""
    write = tiles.writer
    zero = write.create("arith.constant", [], [write.make.index], {
        "value": ir.IntegerAttr.get(write.make.index, 0)}).results[0]
    kind = ir.MemRefType(tile.handle.type).element_type
    return write.create("memref.load", [tile.handle, zero, zero], [kind]).results[0]
