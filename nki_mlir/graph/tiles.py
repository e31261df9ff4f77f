# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits nests on tiles: buffers in SBUF and PSUM, copies between them and HBM, and expressions.

A cache (``tile_cache.py``) maps elements of HBM buffers to the tiles that contain them, so that later operations of the
graph do not load them again.

Integers in HBM that decide branches or addresses are loaded to registers through a tile:

before:  %n = memref.load %x[] : memref<i32, "hbm">
after:   %t = memref.alloc() : memref<1x1xi32, "sbuf">; linalg.generic ins(%x) outs(%t); %n = memref.load %t[%c0, %c0]
"""

from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.analysis.dead_code import erase_dead_code
from nki_mlir.analysis.effects import effects_of, has_uses, users_through_views
from nki_mlir.bindings import Operation, Value, ir, operations_of
from nki_mlir.diagnostics import InternalError, Unsupported
from nki_mlir.dialects.access import HBM, SBUF, Linear, Tile
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.op import NisaOp
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.choices import TileChoices
from nki_mlir.graph.nests import chosen, compared, numbers, unsigned, with_exact_extremes
from nki_mlir.graph.tile_cache import STRUCTURED, TileCache, elements_in, elements_of, in_memory, read_by
from nki_mlir.scalar.dtypes import BOOL, INT32, DType
from nki_mlir.waist import expression as trees
from nki_mlir.waist.buffer_views import TileReader
from nki_mlir.waist.tile_operand import TileOperand
from nki_mlir.waist.writer import IterationSpace, OperandView, ScalarBody, Writer


def drop_unread(function: Operation) -> None:
    """Erase the writes to HBM buffers whose elements no operation reads, and what only computed views of these."""
    for alloc in reversed(operations_of(function, lambda name: name == "memref.alloc")):
        if not in_memory(alloc.results[0]):
            continue
        buffer, users = alloc.results[0], users_through_views(alloc.results[0])
        if any(op.name not in STRUCTURED for op in users):
            continue
        read = [elements.region for op in users for elements in read_by(op, effects_of(op))
                if elements.buffer == buffer]
        for op in users:
            written = elements_in(op.operands[len(op.operands) - 1])
            if written.buffer == buffer and not any(written.region.overlaps(region) for region in read):
                op.erase()
    for view in reversed(operations_of(function, lambda name: name == "nki.view")):
        if not has_uses(view.results[0]):
            view.erase()
    erase_dead_code(function)


class Tiles:
    """Emits tiles and operations on them before the current operation of the graph."""

    def __init__(self, cache: TileCache, partitions: int, choices: TileChoices) -> None:
        self.writer, self.cache, self.partitions, self.choices = Writer(), cache, partitions, choices

    def at(self, operation: Operation, symbols: tuple[Value, ...]) -> None:
        self.writer.at(operation)
        self.symbols = symbols

    def buffer(self, shape: Sequence[int], dtype: DType, space: str = SBUF) -> Tile:
        """Allocate a buffer and return all of it as a tile. The operation that is being emitted reads a buffer in
        HBM."""
        if space != HBM and shape[0] > self.partitions:
            raise InternalError(f"a tile of {shape[0]} partitions")
        tile = self.writer.buffer(tuple(shape), dtype, space)
        if space == HBM:
            self.cache.read_now(tile.handle)
        return tile

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

    def loaded(self, source: Tile, again: bool = True) -> Tile:
        """Return an on-chip tile with the elements of an HBM tile: from the cache, by copies of its tiles, or by
        a load. ``again``: the operation that is emitted may read it again."""
        elements = elements_of(source, self.symbols)
        tile = self.cache.find(elements) or self.composed(source) or self.transposed(source) or (
            self.from_later_rows(source))
        if tile is None:
            tile = self.buffer(source.shape, source.dtype)
            self.copy(tile, source)
            self.cache.retain(elements, tile, again)
        return tile

    def composed(self, source: Tile) -> Tile | None:
        """Return a tile that is copied from several tiles of the cache; None if these lack an element."""
        elements = elements_of(source, self.symbols)
        boxes = self.cache.cover(elements)
        if not boxes:
            return None
        tile = self.buffer(source.shape, source.dtype)
        for part, (starts, counts) in boxes:
            self.copy(replace(tile, access=tile.access.box(starts, counts)), part)
        self.cache.retain(elements, tile)
        return tile

    def from_later_rows(self, source: Tile) -> Tile | None:
        """Return a tile that is copied from later partitions of a tile of the cache to the first ones; None if no tile
        has these elements there."""
        elements = elements_of(source, self.symbols)
        part = self.cache.find_in_later_rows(elements)
        if part is None:
            return None
        tile = self.buffer(source.shape, source.dtype)
        self.copy(tile, part)
        self.cache.retain(elements, tile)
        return tile

    def transposed(self, source: Tile) -> Tile | None:
        """Return a tile that is transposed on chip from tiles of the cache; None if these lack an element."""
        windows = self.rows_on_chip(source)
        parts = [(k * self.partitions, window) for k, window in enumerate(windows)]
        return self.load_transposed(source, parts) if parts else None

    def rows_on_chip(self, source: Tile) -> list[Tile]:
        """Return the tiles of the cache whose transposes are the parts of a tile; an empty list if the cache lacks one.
        """
        windows = rows_across(source, self.partitions) if self.choices.transpose else []
        has_all = all(self.cache.contains(elements_of(window, self.symbols)) for window in windows)
        return windows if has_all else []

    def has(self, operand: TileOperand, extents: Sequence[int]) -> bool:
        """Return whether an on-chip tile has the elements that ``load`` would load."""
        axes = loaded_axes(operand, extents, 0)
        source = operand.tile([extents[a] for a in axes], axes)
        return self.cache.contains(elements_of(source, self.symbols))

    def load_transposed(self, source: Tile, parts: Sequence[tuple[int, Tile]], step: int = 1) -> Tile:
        """Return an on-chip tile with the elements of an HBM tile, whose ``parts`` are loaded and transposed on chip.

        The rows of part (first, tile in HBM) become the columns ``first``, ``first + step``, ... of the result.
        """
        elements = elements_of(source, self.symbols)
        tile = self.cache.find(elements) or self.composed(source)
        if tile is None:
            tile = self.buffer(source.shape, source.dtype)
            for start, part in parts:
                rows, columns = part.shape[::-1]
                target = tile.patterned(free=tile.access.free.plus(Linear(start)), dims=((1, rows), (step, columns)))
                self.copy(target, self.loaded(part), (1, 0))
            self.cache.retain(elements, tile)
        return tile

    def write(self, op: NisaOp) -> None:
        """Emit an instruction."""
        write_op(op, self.writer.make, self.writer.location, self.writer.insertion_point)

    def store(self, output: TileOperand, tile: Tile, axes: tuple[int, ...]) -> None:
        self.store_tile(output.tile(tile.shape, axes), tile)

    def store_tile(self, target: Tile, tile: Tile) -> None:
        """Store a tile to a tile in HBM."""
        self.copy(target, tile)
        self.cache.stored(elements_of(target, self.symbols), tile)

    def compute(self, extents: Sequence[int], reduced: frozenset[int],
                inputs: Sequence[tuple[Tile, tuple[int, ...]]], output: Tile, axes: tuple[int, ...], body: trees.Node
                ) -> None:
        """Emit ``output = body`` over axes of these extents; a body that reads the output folds into it."""
        body, inputs = self.without_bitcasts(extents, inputs, with_exact_extremes(body))
        loops = IterationSpace(len(extents), reduced, (), (), self.symbols)
        views = [self.view(tile, axes_of) for tile, axes_of in inputs]
        parallel = tuple(a for a in axes if a not in reduced)
        target = self.writer.view(output, axes, self.symbols, reduced) if reduced else self.view(output, parallel)
        self.writer.generic(loops, views, [target], body.dtype,
                            lambda s, ins, outs: [expression(body, s, ins, outs)], trees.forms_of(body))

    def without_bitcasts(self, extents: Sequence[int], inputs: Sequence[tuple[Tile, tuple[int, ...]]], body: trees.Node
                         ) -> tuple[trees.Node, Sequence[tuple[Tile, tuple[int, ...]]]]:
        """Return a body that reads values whose bits it reinterprets as inputs, their tiles with another dtype, and the
        inputs that it reads."""
        before = body
        while node := next((n for n in trees.operands_first(body) if isinstance(n, trees.Bitcast)), None):
            if isinstance(node.value, trees.Input):
                tile, axes = inputs[node.value.index]
            else:
                tile, axes = self.buffer(extents, node.value.dtype), tuple(range(len(extents)))
                self.compute(extents, frozenset(), inputs, tile, axes, node.value)
            bits: dict[trees.Node, trees.Node] = {node: trees.Input(node.dtype, len(inputs))}
            tile = replace(tile, access=replace(tile.access, dtype=node.dtype))
            body, inputs = trees.rebuilt(body, bits.get), [*inputs, (tile, axes)]
        if body is before:
            return body, inputs
        body, used = trees.with_used_inputs(body)
        return body, [inputs[k] for k in used]


def loaded_axes(operand: TileOperand, extents: Sequence[int], partition_axis: int) -> tuple[int, ...]:
    """Return the axes of a loaded tile: the axis along the partitions, then the axes along which the operand moves."""
    return (partition_axis, *(a for a, n in enumerate(extents) if a != partition_axis and operand.moves(a)))


def rows_across(source: Tile, most: int) -> list[Tile]:
    """Return the parts of a tile, of at most ``most`` columns each, with the columns along the partitions. There are
    none if the tile has more than two axes, or a dtype that the tensor engine does not transpose."""
    free = [dim for dim in source.access.dims[1:] if dim[1] > 1] or [(1, 1)]
    if len(free) > 1 or not source.dtype.is_float or source.dtype.bits not in (16, 32):
        return []
    (step, count), rows = free[0], source.access.dims[0]
    starts = range(0, count, most)
    return [source.patterned(free=source.access.free.plus(Linear(start * step)),
                             dims=((step if n > 1 else 1, n), rows))
            for start in starts if (n := min(most, count - start))]


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
    """Rewrite a ``memref.load`` of an integer in HBM as a load from a tile. Raise ``Unsupported`` for other types, and
    for integers of more than 32 bits."""
    kind = load.results[0].type
    if not isinstance(kind, ir.IntegerType) or kind.width > 32:
        raise Unsupported(feature=f"a choice or an index of type {kind} in a graph as engine instructions",
                          instead="use an int32").located(location_of(load))
    reader = TileReader(load)
    view = reader.view(load.operands[0])
    access = view.tile.access
    for d, subscript in zip(view.dims, list(load.operands)[1:]):
        access = access.shifted(d, reader.form(subscript))
    tiles.at(load, tuple(reader.numbering.values))
    tile = tiles.buffer((1, 1), access.dtype)
    tiles.copy(tile, replace(view.tile, access=replace(access, dims=((1, 1), (1, 1)))))
    casts = [use.owner.operation for use in load.results[0].uses if use.owner.operation.name in UNSIGNED]
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
