# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a graph's operations on HBM buffers as loop nests, with bodies that engines can compute."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, ZERO, Linear
from nki_mlir.graph.bodies import GATHERED, GraphBody
from nki_mlir.graph.views import defining
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.waist.expressions import (
    Input,
    Node,
    Position,
    children,
    converted,
    inputs_of,
    rebuilt,
)
from nki_mlir.waist.reader import extents_of, iterators_of, subscripts_of
from nki_mlir.waist.tile_nest import TileNest, TileOperand
from nki_mlir.waist.tile_reader import NestReader


class GraphNestReader(NestReader):
    """Reads one operation."""

    def __init__(self, operation: Any) -> None:
        super().__init__(operation)
        self.gathers: list[Gather] = []

    def nest(self) -> TileNest:
        op = self.operation
        if op.name == "linalg.fill":
            return super().nest()
        operands = list(op.operands)
        inputs, outputs = op.attributes["operandSegmentSizes"]
        if outputs != 1:
            raise Unsupported(feature=f"an operation of a graph with {outputs} results as engine instructions",
                              instead="compute each result by itself, or run this program on the CPU")
        memory = [k for k, v in enumerate(operands) if isinstance(v.type, ir.MemRefType)]
        maps = subscripts_of(op.attributes["indexing_maps"])
        views = {k: self.view(operands[k]) for k in memory}
        subscripts = {k: maps[k] for k in memory}
        rank, reduced = iterators_of(op.attributes["iterator_types"])
        extents = extents_of(op, [(subscripts[k], views[k].sizes) for k in memory], rank)
        reader = GraphBody(op.regions[0].blocks[0], inputs)
        body = reader.yielded()
        found = {k: self.operand(views[k], subscripts[k], extents) for k in memory}
        for number, (buffer, forms) in enumerate(reader.loads, 1):
            found[-number] = self.operand(self.view(buffer), forms, extents)
        pending = [self.gathered(buffer, row, forms, found, extents) for buffer, row, forms in reader.gathers]
        found |= {GATHERED - number: one.result for number, one in enumerate(pending, 1)}
        used = sorted(k for k in inputs_of(body).union(*(inputs_of(g.row) for g in pending)) if k in found)

        def known(node: Node) -> Node | None:
            if not isinstance(node, Input):
                return None
            return Input(node.dtype, used.index(node.index)) if node.index in found else self.scalar(
                operands[node.index], reader)
        inputs_used = tuple(found[k] for k in used)
        self.gathers = [replace(g, row=rebuilt(g.row, known), inputs=inputs_used) for g in pending]
        return TileNest(extents, reduced, inputs_used, found[len(operands) - 1], rebuilt(body, known))

    def scalar(self, value: Any, reader: GraphBody) -> Node:
        """An operand that is no memory: a constant, or an index value as a number."""
        op = defining(value)
        if op is not None and op.name == "arith.index_cast":
            return converted(Position(self.form(op.operands[0])), BY_MLIR[str(value.type)])
        return reader.value(value)

    def gathered(self, buffer: Any, row: Node, forms: list[Linear], found: dict[int, TileOperand],
                 extents: tuple[int, ...]) -> "Gather":
        """A gather into a new buffer: its rows by the axes that choose them, then what a row has."""
        view = self.view(buffer)
        axes = [a for a in range(len(extents)) if any(
            found[k].moves(a) for k in inputs_of(row) if k in found) or _positions(row, a)]
        inner = [form.axes[0][0] if form == Linear(0, (), ((form.axes[0][0], 1),)) else -1
                 for form in forms if form.axes]
        if len(inner) != len(forms) or set(inner) & {-1, *axes} or [extents[a] for a in inner] != view.sizes[1:]:
            raise Unsupported(feature="a gather of parts of rows as engine instructions",
                              instead="gather whole rows, or run this program on the CPU")
        shape = [extents[a] for a in (*axes, *inner)]
        kind = ir.MemRefType.get(shape, ir.MemRefType(buffer.type).element_type, None, ir.StringAttr.get(HBM))
        with ir.InsertionPoint(self.operation), self.operation.location:
            scratch = ir.Operation.create("memref.alloc", results=[kind], attributes={
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}).results[0]
        steps = [0] * len(extents)
        for k, a in enumerate((*axes, *inner)):
            steps[a] = prod(shape[k + 1:])
        dtype = view.tile.dtype
        result = TileOperand(scratch, HBM, tuple(shape), dtype, dtype, None, ZERO, tuple(steps), None)
        table = self.operand(view, [Linear(0, (), ((d, 1),)) for d in range(len(view.sizes))], view.sizes)
        return Gather(table, tuple(view.sizes), row, tuple(axes), extents, result)


@dataclass(frozen=True)
class Gather:
    """Rows of a table, brought into a buffer of their own (``result``) before the operation that reads them."""

    table: TileOperand
    sizes: tuple[int, ...]              # of the table
    row: Node                           # which row, over the axes of the operation
    axes: tuple[int, ...]               # those that it depends on
    extents: tuple[int, ...]            # of the operation
    result: TileOperand
    inputs: tuple[TileOperand, ...] = ()


def read_nest(op: Any) -> tuple[TileNest, list[Gather]]:
    """An operation as a nest, and the gathers that must come before it."""
    reader = GraphNestReader(op)
    nest = reader.read()
    return nest, reader.gathers


def _positions(node: Node, axis: int) -> bool:
    """Whether an expression depends on the position along an axis."""
    if isinstance(node, Position):
        return any(a == axis for a, _ in node.form.axes)
    return any(_positions(child, axis) for child in children(node))


def in_hbm(op: Any) -> bool:
    """Whether all that an operation works on is in HBM."""
    kinds = [ir.MemRefType(v.type) for v in op.operands if isinstance(v.type, ir.MemRefType)]
    return all(k.memory_space == ir.StringAttr.get(HBM, op.context) for k in kinds)


# -- changes of nests --------------------------------------------------------------------------------------------------
def split(nest: TileNest, axis: int, inner: int) -> TileNest:
    """An axis as two: the outer one in its place, then one of extent ``inner``, which divides its extent."""
    def axes(form: Linear) -> Linear:
        moved: dict[int, int] = {}
        for a, c in form.axes:
            if a == axis:
                moved |= {a: c * inner, a + 1: c}
            else:
                moved[a + (a > axis)] = c
        return Linear(form.const, form.symbols, tuple(sorted(moved.items())))

    def operand(o: TileOperand) -> TileOperand:
        steps = (*o.steps[:axis], o.steps[axis] * inner, *o.steps[axis:])
        return replace(o, steps=steps)
    made = nest.with_forms(axes)
    extents = (*nest.extents[:axis], nest.extents[axis] // inner, inner, *nest.extents[axis + 1:])
    reduced = frozenset(b for a in nest.reduced for b in ((a, a + 1) if a == axis else (a + (a > axis),)))
    return replace(made, extents=extents, reduced=reduced, inputs=tuple(map(operand, nest.inputs)),
                   output=operand(nest.output))


def only_input(buffer: Any, base: TileOperand, steps: tuple[int, ...], shape: tuple[int, ...]) -> TileOperand:
    """An operand that walks a new HBM buffer."""
    return TileOperand(buffer, HBM, shape, base.dtype, base.dtype, None, ZERO, steps, None)
