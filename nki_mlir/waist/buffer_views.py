# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads structured operations on views as loop nests over the buffers of the views, with bodies as trees.

A view that the waist wrote has its access pattern. A ``memref.subview`` has an offset for each dim. A
``memref.reinterpret_cast`` has one offset for all, so its strides and offset must show which dim is the partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Attribute, Operation, Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Access, Linear, Ranges, Tile, full_tile
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.enclosing_conditions import Numbering, linear_of
from nki_mlir.dialects.mlir_ops import ranges_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.view import read_view
from nki_mlir.waist import generic
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.nest_reader import DYNAMIC, Structured, Subscripts, layout_of, structured
from nki_mlir.waist.tile_operand import TileNest, TileOperand, walked

STRUCTURAL = (*generic.STRUCTURAL, "nki.mask", "nki.limits")


@dataclass(frozen=True)
class BufferView:
    """A memref as a tile. The memref may omit some of the tile's dims."""

    tile: Tile
    dims: tuple[int, ...]

    @property
    def sizes(self) -> list[int]:
        return [self.tile.shape[d] for d in self.dims]


class TileReader:
    """Reads one operation. Symbols get numbers in the order in which the reader finds them, after those of
    ``numbering``."""

    def __init__(self, operation: Operation, numbering: Numbering | None = None) -> None:
        self.operation = operation
        self.numbering = numbering or Numbering(())

    def read(self) -> TileNest:
        """Return the operation as a nest of one output, whose operands are tiles."""
        read = self.structured()
        return self.on_tiles(read, self.tiles(read)).without_unused

    def structured(self) -> Structured:
        read = structured(self.operation)
        if len(read.nest.outputs) != 1:
            raise Unsupported(feature=f"a structured operation with {len(read.nest.outputs)} results",
                              instead="write one for each")
        return read

    def on_tiles(self, read: Structured, tiles: Sequence[TileOperand]) -> TileNest:
        """Return the nest on tiles, with its forms over the symbols of this reader."""
        symbols = [self.form(value) for value in read.symbols]
        nest = read.nest.with_forms(lambda form: form.over(symbols))
        return Nest(nest.extents, nest.reduced, tuple(tiles[:-1]), len(self.numbering.values), tuple(tiles[-1:]),
                    nest.steps, nest.results, nest.mask, nest.limits)

    def tiles(self, read: Structured) -> list[TileOperand]:
        return [self.operand(self.view(value), subscripts, read.nest.extents)
                for value, subscripts in zip(read.values, read.subscripts)]

    @property
    def symbols(self) -> tuple[Value, ...]:
        """Return the values of the symbols so far."""
        return tuple(self.numbering.values)

    def ranges_of(self, symbols: tuple[Value, ...]) -> Ranges:
        """Return the least and the greatest value that each symbol has at the operation."""
        return ranges_of(self.operation, symbols)

    def extra(self) -> dict[str, Attribute]:
        """Return the attributes that do not belong to the operation's structure; every pass keeps them."""
        attributes = self.operation.attributes
        named = (attributes[k] for k in range(len(attributes)))
        return {a.name: a.attr for a in named if a.name not in STRUCTURAL}

    # -- forms ---------------------------------------------------------------------------------------------------------
    def form(self, value: Value) -> Linear:
        """Return an index value as a form of symbols: loop variables, program ids, and values that are not linear in
        them."""
        return linear_of(value, self.numbering)

    # -- views ---------------------------------------------------------------------------------------------------------
    def view(self, value: Value) -> BufferView:
        if not isinstance(value.type, ir.MemRefType):
            raise Unsupported(feature="a number that is an argument in a structured operation",
                              instead="write it as a constant")
        op = defining(value)
        match op:
            case Operation(name="nki.view"):
                tile, dims = read_view(op)
                symbols = [self.form(v) for v in list(op.operands)[1:]]
                access = tile.access.over(lambda form: form.over(symbols))
                return BufferView(replace(buffer_tile(tile.handle), access=access), dims)
            case Operation(name="memref.reinterpret_cast"):
                return self.reinterpreted(op)
            case Operation(name="memref.subview"):
                return self.subview(op, self.view(op.operands[0]))
            case Operation(name="memref.cast"):
                return self.view(op.operands[0])
        tile = buffer_tile(value)
        return BufferView(tile, tuple(range(len(tile.shape))))

    def subview(self, op: Operation, base: BufferView) -> BufferView:
        kind = ir.MemRefType(op.results[0].type)
        sizes, steps, starts = (list(op.attributes[f"static_{n}"]) for n in ("sizes", "strides", "offsets"))
        if DYNAMIC in sizes or DYNAMIC in steps or len(kind.shape) != len(sizes):
            raise Unsupported(feature=f"the view {kind}", instead="use static sizes and strides, and keep the rank")
        offsets = iter(list(op.operands)[1:])
        access, dims = base.tile.access, list(base.tile.access.dims)
        for d, start, step, size in zip(base.dims, starts, steps, sizes):
            access = access.shifted(d, self.form(next(offsets)) if start == DYNAMIC else Linear(start))
            dims[d] = dims[d][0] * step, size
        return BufferView(replace(base.tile, access=replace(access, dims=tuple(dims))), base.dims)

    def reinterpreted(self, op: Operation) -> BufferView:
        """Read a view by one flat offset: the first dim steps through the partitions if its stride is that of a row."""
        layout, buffer = layout_of(op.results[0].type), self.view(op.operands[0]).tile
        offset = self.form(op.operands[1]) if layout.offset == DYNAMIC else Linear(layout.offset)
        dims, row = list(zip(layout.strides, layout.sizes)), buffer.row
        if not buffer.on_chip:
            access = Access(layout.dtype, None, offset, tuple(dims))
            return BufferView(replace(buffer, access=access), tuple(range(len(dims))))
        by_lanes = bool(dims) and (dims[0][1] == 1 or dims[0][0] in (0, row))
        lanes = (0, dims[0][1]) if by_lanes and dims[0][0] == 0 else (1, dims[0][1] if by_lanes else 1)
        free = tuple(dims[by_lanes:])
        row_offset = Linear(0, tuple((s, n) for s, c in offset.symbols if (n := int(c / row))))
        free_offset = offset.plus(row_offset, -row)
        access = Access(layout.dtype, row_offset, free_offset, (lanes, *free))
        low, high = free_offset.interval(ranges_of(op, self.numbering.values))
        first_row = (low + access.reach()[0]) // row
        if first_row != (high + access.reach()[1]) // row:
            raise Unsupported(feature=f"the view {op.results[0].type} of rows in several partitions by one offset",
                              instead="use nki.view, which names the partition dim").located(location_of(op))
        access = replace(access, partition=row_offset.plus(Linear(first_row)),
                         free=free_offset.plus(Linear(-first_row * row)))
        return BufferView(replace(buffer, access=access), tuple(range(not by_lanes, 1 + len(free))))

    def operand(self, view: BufferView, subscripts: Subscripts, extents: Sequence[int]) -> TileOperand:
        """Return the view as an operand: a start, and a step for each axis of the nest."""
        tile, access = view.tile, view.tile.access
        steps, lanes = [0] * len(extents), None
        for d, form in zip(view.dims, subscripts):
            step, size = tile.access.dims[d]
            access = access.shifted(d, Linear(form.const))
            if d > 0 or not tile.on_chip:
                for axis, c in form.axes:
                    steps[axis] += c * step
            elif step:                          # else one partition for all lanes
                if len(form.axes) > 1 or any(c != 1 for _, c in form.axes) or (step != 1 and size > 1):
                    raise Unsupported(feature="a step through partitions", instead="use contiguous partitions")
                lanes = form.axes[0][0] if form.axes else None
        return walked(replace(tile, access=access), steps, lanes)


def buffer_tile(value: Value) -> Tile:
    """Return a tile of all elements of a buffer, in the dtype of the value."""
    shape, dtype, space = memref_parts(value.type)
    tile, owner = full_tile(value, shape, dtype, space), value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "nki.reinterpret":
        return tile
    base = buffer_tile(owner.operation.operands[0])
    return Tile(base.handle, space, base.base_shape, base.base_dtype, tile.access)
