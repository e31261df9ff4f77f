# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a graph's operations on HBM buffers as loop nests, with bodies that engines can compute."""

from dataclasses import replace
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.conversion.graph.bodies import GraphBody
from nki_mlir.conversion.selection.expressions import Constant, Input, Node, inputs_of, rebuilt
from nki_mlir.conversion.selection.nest import Nest, Operand
from nki_mlir.conversion.selection.reader import NestReader
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, ZERO, Linear


class GraphNestReader(NestReader):
    """Reads one operation."""

    def generic(self) -> Nest:
        op = self.operation
        operands = list(op.operands)
        inputs, outputs = op.attributes["operandSegmentSizes"]
        if outputs != 1:
            raise Unsupported(feature=f"an operation of a graph with {outputs} results as engine instructions",
                              instead="compute each result by itself, or run this program on the CPU")
        memory = [k for k, v in enumerate(operands) if isinstance(v.type, ir.MemRefType)]
        maps = [m.value for m in op.attributes["indexing_maps"]]
        views = {k: self.view(operands[k]) for k in memory}
        subscripts = {k: [self.subscript(e) for e in maps[k].results] for k in memory}
        extents = self.extents(maps[0].n_dims, list(views.values()), list(subscripts.values()))
        reader = GraphBody(op.regions[0].blocks[0], inputs)
        body = reader.yielded()
        found = {k: self.operand(views[k], subscripts[k], extents) for k in memory}
        for number, (buffer, forms) in enumerate(reader.loads, 1):
            found[-number] = self.operand(self.view(buffer), forms, extents)
        used = sorted(k for k in inputs_of(body) if k in found)

        def known(node: Node) -> Node | None:
            if not isinstance(node, Input):
                return None
            return Input(node.dtype, used.index(node.place)) if node.place in found else reader.value(
                operands[node.place])
        kinds = [str(kind) for kind in op.attributes["iterator_types"]]
        reduced = frozenset(axis for axis, kind in enumerate(kinds) if "reduction" in kind)
        return Nest(extents, reduced, tuple(found[k] for k in used), found[len(operands) - 1], rebuilt(body, known))


def read_nest(op: Any) -> Nest:
    nest = GraphNestReader(op).read()
    return replace(nest, inputs=tuple(map(_plain, nest.inputs)), output=_plain(nest.output))


def _plain(operand: Operand) -> Operand:
    """HBM has no partitions."""
    return replace(operand, partition=None, lanes=None)


def in_hbm(op: Any) -> bool:
    """Whether all that an operation works on is in HBM."""
    kinds = [ir.MemRefType(v.type) for v in op.operands if isinstance(v.type, ir.MemRefType)]
    return all(k.memory_space == ir.StringAttr.get(HBM, op.context) for k in kinds)


def start_value(nest: Nest) -> float | int | None:
    """The number that an operation fills its output with."""
    return nest.body.value if isinstance(nest.body, Constant) and not nest.reduced else None


# -- changes of nests --------------------------------------------------------------------------------------------------
def split(nest: Nest, axis: int, inner: int) -> Nest:
    """An axis as two: the outer one in its place, then one of extent ``inner``, which divides its extent."""
    def axes(form: Linear) -> Linear:
        moved: dict[int, int] = {}
        for a, c in form.axes:
            if a == axis:
                moved |= {a: c * inner, a + 1: c}
            else:
                moved[a + (a > axis)] = c
        return Linear(form.const, form.symbols, tuple(sorted(moved.items())))

    def operand(o: Operand) -> Operand:
        steps = (*o.steps[:axis], o.steps[axis] * inner, *o.steps[axis:])
        return replace(o, steps=steps)
    made = nest.with_forms(axes)
    extents = (*nest.extents[:axis], nest.extents[axis] // inner, inner, *nest.extents[axis + 1:])
    reduced = frozenset(b for a in nest.reduced for b in ((a, a + 1) if a == axis else (a + (a > axis),)))
    return replace(made, extents=extents, reduced=reduced, inputs=tuple(map(operand, nest.inputs)),
                   output=operand(nest.output))


def only_input(buffer: Any, base: Operand, steps: tuple[int, ...], shape: tuple[int, ...]) -> Operand:
    """An operand that walks a new HBM buffer."""
    return Operand(buffer, HBM, shape, base.dtype, base.dtype, None, ZERO, steps, None)
