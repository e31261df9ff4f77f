# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a graph's operations on HBM buffers as loop nests, with bodies that engines can compute."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, Linear, dense, full_tile
from nki_mlir.graph.bodies import GATHERED, GraphBody
from nki_mlir.graph.functions import allocated
from nki_mlir.waist.tile_nest import Node, TileNest, TileOperand, forms_of, inputs_of, walked
from nki_mlir.waist.tile_reader import NestReader


class GraphNestReader(NestReader):
    """Reads one operation."""

    body_reader = GraphBody
    gathers: Sequence["Gather"] = ()

    def read_before(self, reader: GraphBody, found: dict[int, TileOperand], extents: tuple[int, ...]) -> list[Node]:
        """Rows that are gathered."""
        for number, (buffer, forms) in enumerate(reader.loads, 1):
            found[-number] = self.operand(self.view(buffer), forms, extents)
        self.gathers = [self.gathered(buffer, row, forms, found, extents) for buffer, row, forms in reader.gathers]
        found |= {GATHERED - number: one.result for number, one in enumerate(self.gathers, 1)}
        return [one.row for one in self.gathers]

    def gathered(self, buffer: Value, row: Node, forms: list[Linear], found: dict[int, TileOperand],
                 extents: tuple[int, ...]) -> "Gather":
        """A gather into a new buffer: its rows by the axes that choose them, then what a row has."""
        view = self.view(buffer)
        positions = {a for form in forms_of(row) for a, _ in form.axes}
        axes = [a for a in range(len(extents)) if a in positions or any(found[k].moves(a) for k in inputs_of(row))]
        inner = [form.axes[0][0] if form == Linear(0, (), ((form.axes[0][0], 1),)) else -1
                 for form in forms if form.axes]
        if len(inner) != len(forms) or set(inner) & {-1, *axes} or [extents[a] for a in inner] != view.sizes[1:]:
            raise Unsupported(feature="a gather of parts of rows as engine instructions",
                              instead="gather whole rows, or run this program on the CPU")
        shape = [extents[a] for a in (*axes, *inner)]
        kind = ir.MemRefType.get(shape, ir.MemRefType(buffer.type).element_type, None, ir.StringAttr.get(HBM))
        with ir.InsertionPoint(self.operation), self.operation.location:
            scratch = allocated(kind)
        steps = dict(zip((*axes, *inner), dense(shape)))
        result = walked(full_tile(scratch, shape, view.tile.dtype, HBM), (steps.get(a, 0) for a in range(len(extents))))
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


def read_nest(op: Operation) -> tuple[TileNest, list[Gather]]:
    """An operation as a nest, and the gathers that must come before it."""
    reader = GraphNestReader(op)
    nest = reader.read()
    return nest, [replace(g, row=row, inputs=nest.inputs) for g, row in zip(reader.gathers, reader.before)]


def in_hbm(op: ir.Operation) -> bool:
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
