# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads structured operations on views of buffers back as loop nests over the buffers themselves, bodies as trees.

A view that the waist wrote has its pattern. Of those of ``memref`` a subview has an offset for each dim; of a
``reinterpret_cast``, which has one for all, strides and offset must show what is partition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Attribute, Operation, Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Access, Constraint, Linear, Tile, full_tile
from nki_mlir.dialects.attributes import applied
from nki_mlir.dialects.buffer_types import element_dtype, memref_parts
from nki_mlir.dialects.creation import terminator
from nki_mlir.dialects.facts import Numbering, linear_of
from nki_mlir.dialects.mlir_ops import ranges_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.dialects.view import read_view
from nki_mlir.waist.reader import DYNAMIC, extents_of, layout_of, loops_of, mask_of
from nki_mlir.waist.tile_nest import (
    Activation,
    Constant,
    Input,
    Node,
    Output,
    Position,
    TileNest,
    TileOperand,
    alu,
    converted,
    inputs_of,
    rebuilt,
    walked,
)


class BodyReader:
    """Reads one body. ``outside`` reads index values that are made before the operation.

    Inputs have the numbers of operands. A number among the operands is part of the expression.
    """

    def __init__(self, op: Operation, outside: Callable[[Value], Linear]) -> None:
        self.block, self.operands, self.outside = op.regions[0].blocks[0], list(op.operands), outside
        self.inputs = op.attributes["operandSegmentSizes"][0]
        self.known: dict[ir.Value, Node] = {}

    def expression(self) -> Node:
        return self.value(terminator(self.block).operands[0])

    def value(self, value: Value) -> Node:
        if value not in self.known:
            op = defining(value)
            self.known[value] = self.argument(value) if op is None else self.read(value, op)
        return self.known[value]

    def argument(self, value: Value) -> Node:
        if value.owner != self.block:
            raise Unsupported(feature="a number that is an argument in a structured operation",
                              instead="write it as a constant")
        number, dtype = ir.BlockArgument(value).arg_number, element_dtype(value.type)
        if number >= self.inputs:
            return Output(dtype)
        operand = self.operands[number]
        return Input(dtype, number) if isinstance(operand.type, ir.MemRefType) else self.value(operand)

    def read(self, value: Value, op: Operation) -> Node:
        dtype = element_dtype(value.type)
        match op.name:
            case "arith.constant":
                number = op.attributes["value"].value
                return Constant(dtype, number if dtype.is_float else int(number))
            case "scalar.convert":
                return converted(self.value(op.operands[0]), dtype)
            case "scalar.alu":
                return alu(op.attributes["fn"].value, *(self.value(v) for v in op.operands))
            case "scalar.activation":
                return Activation(dtype, op.attributes["fn"].value, self.value(op.operands[0]))
            case "arith.index_cast":
                return converted(Position(self.index(op.operands[0])), dtype)
        if op.block != self.block and dtype.is_integer:
            return converted(Position(self.outside(value)), dtype)
        raise Unsupported(feature=f"'{op.name}' in the body of a structured operation",
                          instead="use scalar.convert, scalar.alu and scalar.activation").located(location_of(op))

    def index(self, value: Value) -> Linear:
        """An index in the body as a form of its axes and of what is outside."""
        if isinstance(value.owner, ir.Block):
            own = value.owner == self.block
            return self.outside(self.operands[ir.BlockArgument(value).arg_number] if own else value)
        op = value.owner.operation
        match op.name:
            case _ if op.block != self.block:
                return self.outside(value)
            case "linalg.index":
                return Linear(0, (), ((op.attributes["dim"].value, 1),))
            case "arith.constant":
                return Linear(op.attributes["value"].value)
            case "affine.apply":
                if (form := applied(op.attributes["map"].value, [self.index(v) for v in op.operands])) is not None:
                    return form
            case "arith.addi" | "arith.subi":
                left, right = (self.index(v) for v in op.operands)
                return left.plus(right, 1 if op.name == "arith.addi" else -1)
        raise Unsupported(feature=f"an index that is made by '{op.name}'", instead="use affine.apply of a linear map")


STRUCTURAL = ("indexing_maps", "iterator_types", "operandSegmentSizes", "nki.mask", "nki.limits")


@dataclass(frozen=True)
class BufferView:
    """What a memref is: a tile, some of whose dims it has."""

    tile: Tile
    dims: tuple[int, ...]

    @property
    def sizes(self) -> list[int]:
        return [self.tile.shape[d] for d in self.dims]


class NestReader:
    """Reads one operation; its symbols are numbered as they are met, after those of ``numbering``."""

    body_reader: type[BodyReader] = BodyReader

    def __init__(self, operation: Operation, numbering: Numbering | None = None) -> None:
        self.operation = operation
        self.numbering = numbering or Numbering(())

    def read(self) -> TileNest:
        nest, symbols = self.nest(), tuple(self.numbering.values)
        return replace(nest, symbols=symbols, ranges=ranges_of(self.operation, symbols))

    def extra(self) -> dict[str, Attribute]:
        """Attributes that are not the operation's own, which every pass keeps."""
        attributes = self.operation.attributes
        named = (attributes[k] for k in range(len(attributes)))
        return {a.name: a.attr for a in named if a.name not in STRUCTURAL}

    def nest(self) -> TileNest:
        op, operands, attributes = self.operation, list(self.operation.operands), self.operation.attributes
        inputs, outputs = attributes["operandSegmentSizes"]
        if outputs != 1:
            raise Unsupported(feature=f"a structured operation with {outputs} results", instead="write one for each")
        views = {k: self.view(v) for k, v in enumerate(operands) if isinstance(v.type, ir.MemRefType)}
        subscripts, rank, reduced = loops_of(op)
        extents = extents_of(op, [(subscripts[k], view.sizes) for k, view in views.items()], rank)
        found = {k: self.operand(view, subscripts[k], extents) for k, view in views.items()}
        reader = self.body_reader(op, self.form)
        expressions = [reader.expression(), *self.read_before(reader, found, extents)]
        used = sorted({k for e in expressions for k in inputs_of(e)})
        body, *self.before = [rebuilt(e, lambda node: Input(node.dtype, used.index(node.index)) if isinstance(
            node, Input) else None) for e in expressions]
        given = [self.form(v) for v in operands[:inputs] if isinstance(v.type, ir.IndexType)]
        mask, limits = ([Constraint(_with_symbols(c.form, given), c.equal) for c in mask_of(attributes[name])]
                        if name in attributes else () for name in ("nki.mask", "nki.limits"))
        sources = tuple(found[k] for k in used)
        return TileNest(extents, reduced, sources, found[inputs], body, tuple(mask), tuple(limits))

    def read_before(self, reader: Any, found: dict[int, TileOperand], extents: tuple[int, ...]) -> list[Node]:
        """Expressions of the same inputs that have to be known before; operands that are no operation's are added."""
        return []

    # -- forms ---------------------------------------------------------------------------------------------------------
    def form(self, value: Value) -> Linear:
        """An index value as a form of symbols: loop variables, program ids and what is not linear in them."""
        return linear_of(value, self.numbering)

    # -- views ---------------------------------------------------------------------------------------------------------
    def view(self, value: Value) -> BufferView:
        op = defining(value)
        match op:
            case Operation(name="nki.view"):
                tile, dims = read_view(op)
                given = [self.form(v) for v in list(op.operands)[1:]]
                access = tile.access.over(lambda form: _with_symbols(form, given))
                return BufferView(replace(whole_buffer(tile.handle), access=access), dims)
            case Operation(name="memref.reinterpret_cast"):
                return self.reinterpreted(op)
            case Operation(name="memref.subview"):
                return self.subview(op, self.view(op.operands[0]))
            case Operation(name="memref.cast"):
                return self.view(op.operands[0])
        tile = whole_buffer(value)
        return BufferView(tile, tuple(range(len(tile.shape))))

    def subview(self, op: Operation, base: BufferView) -> BufferView:
        kind = ir.MemRefType(op.results[0].type)
        sizes, steps, starts = (list(op.attributes[f"static_{n}"]) for n in ("sizes", "strides", "offsets"))
        if DYNAMIC in sizes or DYNAMIC in steps or len(kind.shape) != len(sizes):
            raise Unsupported(feature=f"the view {kind}", instead="use static sizes and strides, and keep the rank")
        given = iter(list(op.operands)[1:])
        access, dims = base.tile.access, list(base.tile.access.dims)
        for d, start, step, size in zip(base.dims, starts, steps, sizes):
            access = access.moved(d, self.form(next(given)) if start == DYNAMIC else Linear(start))
            dims[d] = dims[d][0] * step, size
        return BufferView(replace(base.tile, access=replace(access, dims=tuple(dims))), base.dims)

    def reinterpreted(self, op: Operation) -> BufferView:
        """A view by one flat offset: the first dim steps through the partitions if its stride is that of a row."""
        layout, buffer = layout_of(op.results[0].type), self.view(op.operands[0]).tile
        offset = self.form(op.operands[1]) if layout.offset == DYNAMIC else Linear(layout.offset)
        dims, row = list(zip(layout.strides, layout.sizes)), buffer.row
        if not buffer.on_chip:
            access = Access(layout.dtype, None, offset, tuple(dims))
            return BufferView(replace(buffer, access=access), tuple(range(len(dims))))
        by_lanes = bool(dims) and (dims[0][1] == 1 or dims[0][0] in (0, row))
        lanes = (0, dims[0][1]) if by_lanes and dims[0][0] == 0 else (1, dims[0][1] if by_lanes else 1)
        free = tuple(dims[by_lanes:])
        whole_rows = Linear(0, tuple((s, n) for s, c in offset.symbols if (n := int(c / row))))
        rest = offset.plus(whole_rows, -row)
        access = Access(layout.dtype, whole_rows, rest, (lanes, *free))
        low, high = rest.interval(ranges_of(op, self.numbering.values))
        first = (low + access.reach()[0]) // row
        if first != (high + access.reach()[1]) // row:
            raise Unsupported(feature=f"the view {op.results[0].type} of rows in several partitions by one offset",
                              instead="say what is partition and what is free: nki.view").located(location_of(op))
        access = replace(access, partition=whole_rows.plus(Linear(first)), free=rest.plus(Linear(-first * row)))
        return BufferView(replace(buffer, access=access), tuple(range(not by_lanes, 1 + len(free))))

    def operand(self, view: BufferView, subscripts: Sequence[Linear], extents: Sequence[int]) -> TileOperand:
        """The view as it is walked by the axes of the nest."""
        tile, access = view.tile, view.tile.access
        steps, lanes = [0] * len(extents), None
        for d, form in zip(view.dims, subscripts):
            step, size = tile.access.dims[d]
            access = access.moved(d, Linear(form.const))
            if d > 0 or not tile.on_chip:
                for axis, c in form.axes:
                    steps[axis] += c * step
            elif step or size == 1:             # else one partition for all lanes
                if len(form.axes) > 1 or any(c != 1 for _, c in form.axes) or (step != 1 and size > 1):
                    raise Unsupported(feature="a step through partitions", instead="use contiguous partitions")
                lanes = form.axes[0][0] if form.axes else None
        return walked(replace(tile, access=access), steps, lanes)


def whole_buffer(value: Value) -> Tile:
    """All of a buffer, by its elements as the value has them."""
    shape, dtype, space = memref_parts(value.type)
    tile, owner = full_tile(value, shape, dtype, space), value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "nki.reinterpret":
        return tile
    base = whole_buffer(owner.operation.operands[0])
    return Tile(base.handle, space, base.base_shape, base.base_dtype, tile.access)


def _with_symbols(form: Linear, given: Sequence[Linear]) -> Linear:
    total = Linear(form.const, (), form.axes)
    for position, c in form.symbols:
        total = total.plus(given[position], c)
    return total
