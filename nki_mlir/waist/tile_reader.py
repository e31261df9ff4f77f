# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads structured operations on views of buffers back as loop nests over the buffers themselves.

A view's flat offset is split into partition and free offset: coefficients by the length of a row, the constant so that
the free offset stays within its row.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from nki_mlir.analysis.mask_boxes import active_elements, values_of
from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, ZERO, Constraint, Linear, Mask, Ranges
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.facts import Numbering
from nki_mlir.dialects.mlir_ops import ranges_of
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.expressions import Input, Node, Position, applied, expression_of, inputs_of, rebuilt
from nki_mlir.waist.reader import DYNAMIC, Reader, layout_of
from nki_mlir.waist.tile_nest import TileNest, TileOperand

STRUCTURAL = ("indexing_maps", "iterator_types", "operandSegmentSizes", "nki.mask", "nki.limits")
CASES = 1 << 20            # elements under a mask, times values of symbols, that are looked at one by one


@dataclass(frozen=True)
class BufferView:
    """A strided view: base buffer, element type, and offset, sizes and strides in elements of that type."""

    base: Any
    dtype: DType
    offset: Linear
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class NestReader:
    """Reads one operation; its symbols are numbered as they are met, after those of ``numbering``."""

    def __init__(self, operation: Any, numbering: Numbering | None = None, reader: Reader | None = None) -> None:
        self.operation = operation
        self.numbering = numbering or Numbering(())
        self.reader = reader or Reader()

    def read(self) -> TileNest:
        nest, symbols = self.nest(), tuple(self.numbering.values)
        return replace(nest, symbols=symbols, ranges=ranges_of(self.operation, symbols))

    def extra(self) -> dict[str, Any]:
        """Attributes that are not the operation's own, which every pass keeps."""
        attributes = self.operation.attributes
        named = (attributes[k] for k in range(len(attributes)))
        return {a.name: a.attr for a in named if a.name not in STRUCTURAL}

    def nest(self) -> TileNest:
        read = self.reader.read(self.operation)
        nest, extents = read.nest, read.nest.extents
        if len(nest.outputs) != 1:
            raise Unsupported(feature=f"a structured operation with {len(nest.outputs)} results",
                              instead="write one for each")
        body = expression_of(nest)
        used = sorted(inputs_of(body))
        if not all(isinstance(read.values[k].type, ir.MemRefType) for k in used):
            raise Unsupported(feature="a number that is an argument in a structured operation",
                              instead="write it as a constant")
        views = [self.view(v) if isinstance(v.type, ir.MemRefType) else None for v in read.values]
        given = [self.form(v) for v in read.symbols]
        mask, limits = (tuple(Constraint(_with_symbols(c.form, given), c.equal) for c in m)
                        for m in (nest.mask, read.limits))
        operands: list[Any] = [self.operand(view, forms, extents, mask) if view is not None else None
                               for view, forms in zip(views, read.subscripts)]

        def known(node: Node) -> Node | None:
            """Inputs by their place among those that are read."""
            if isinstance(node, Input):
                return Input(node.dtype, used.index(node.index))
            return Position(_with_symbols(node.form, given), node.dtype) if isinstance(node, Position) else None
        if given or len(used) < len(nest.inputs):
            body = rebuilt(body, known)
        return TileNest(extents, nest.reduced, tuple(operands[k] for k in used), operands[-1], body, mask, limits)

    # -- forms ---------------------------------------------------------------------------------------------------------
    def form(self, value: Any) -> Linear:
        """An index value as a form of symbols: loop variables, program ids and what is not linear in them."""
        if not isinstance(value.owner, ir.Block):
            op = value.owner.operation
            if op.name == "arith.constant":
                return Linear(op.attributes["value"].value)
            if op.name == "affine.apply":
                try:
                    return applied(op.attributes["map"].value, [self.form(v) for v in op.operands])
                except Unsupported:
                    pass                        # a quotient or a remainder is a symbol of its own
        return Linear(0, ((self.numbering.position(value), 1),))

    # -- views ---------------------------------------------------------------------------------------------------------
    def view(self, value: Any) -> BufferView:
        op: Any = None if isinstance(value.owner, ir.Block) else value.owner.operation
        match op.name if op is not None else "":
            case "memref.reinterpret_cast":
                base = self.view(op.operands[0])
                layout = layout_of(value.type)
                start = self.form(op.operands[1]) if layout.offset == DYNAMIC else Linear(layout.offset)
                return BufferView(base.base, base.dtype, start, layout.sizes, layout.strides)
            case "memref.subview":
                return self.subview(op, self.view(op.operands[0]))
            case "memref.cast":
                return self.view(op.operands[0])
            case "nki.reinterpret":
                shape, dtype, _ = memref_parts(value.type)
                return BufferView(op.operands[0], dtype, ZERO, shape, _dense(shape))
        shape, dtype, _ = memref_parts(value.type)
        return BufferView(value, dtype, ZERO, shape, _dense(shape))

    def subview(self, op: Any, base: BufferView) -> BufferView:
        kind = ir.MemRefType(op.results[0].type)
        sizes, steps, starts = (list(op.attributes[f"static_{n}"]) for n in ("sizes", "strides", "offsets"))
        if DYNAMIC in sizes or DYNAMIC in steps or len(kind.shape) != len(sizes):
            raise Unsupported(feature=f"the view {kind}", instead="use static sizes and strides, and keep the rank")
        given = iter(list(op.operands)[1:])
        offset = base.offset
        for start, stride in zip(starts, base.strides):
            offset = offset.plus(self.form(next(given)) if start == DYNAMIC else Linear(start), stride)
        strides = tuple(a * b for a, b in zip(steps, base.strides))
        return BufferView(base.base, base.dtype, offset, tuple(sizes), strides)

    def operand(self, view: BufferView, subscripts: Sequence[Linear], extents: Sequence[int], mask: Mask = ()
                ) -> TileOperand:
        """The view as it is walked by the axes of the nest."""
        shape, base_dtype, space = memref_parts(view.base.type)
        steps, offset, lanes = [0] * len(extents), view.offset, None
        row = _row(shape, base_dtype, view.dtype)
        for d, (form, stride, size) in enumerate(zip(subscripts, view.strides, view.sizes)):
            if form.const:
                offset = offset.plus(Linear(form.const * stride))
            if space != HBM and d == 0 and (size == 1 or stride in (0, row)):
                if stride == 0 and size > 1:
                    continue                    # one partition for all lanes
                if len(form.axes) > 1 or any(c != 1 for _, c in form.axes):
                    raise Unsupported(feature="a step through partitions", instead="use contiguous partitions")
                lanes = form.axes[0][0] if form.axes else None
                continue
            for axis, c in form.axes:
                steps[axis] += c * stride
        partition = None
        if space != HBM:
            walked = Linear(0, (), tuple((axis, step) for axis, step in enumerate(steps) if step))
            partition, offset = self.split(offset, row, walked, extents, mask)
        return TileOperand(view.base, space, shape, base_dtype, view.dtype, partition, offset, tuple(steps), lanes)

    def split(self, offset: Linear, row: int, walked: Linear, extents: Sequence[int], mask: Mask
              ) -> tuple[Linear, Linear]:
        """Partition and free offset of a flat one, from which a view is ``walked`` by the axes."""
        signed = [(s, abs(c), 1 if c > 0 else -1) for s, c in offset.symbols]
        partition = Linear(0, tuple((s, sign * (c // row)) for s, c, sign in signed if c >= row))
        free = Linear(offset.const, tuple((s, sign * (c % row)) for s, c, sign in signed if c % row))
        form, ranges = free.plus(walked), ranges_of(self.operation, self.numbering.values)
        low, high = form.interval(ranges, tuple(extents))
        if mask and low // row < high // row:               # only the mask keeps it in one row
            low = least(form, ranges, extents, mask, low)
        whole = low // row
        return partition.plus(Linear(whole)), free.plus(Linear(-whole * row))


def least(form: Linear, ranges: Ranges, extents: Sequence[int], mask: Mask, low: int) -> int:
    """The least value of a form at active elements; ``low`` where there are none, or too many cases to look at."""
    used = sorted({s for f in (form, *(c.form for c in mask)) for s, _ in f.symbols})
    masked = {axis for c in mask for axis, _ in c.form.axes}
    others = sum(min(0, c * (extents[axis] - 1)) for axis, c in form.axes if axis not in masked)
    extents = [n if axis in masked else 1 for axis, n in enumerate(extents)]
    if prod(last - first + 1 for first, last in (ranges[s] for s in used)) * prod(extents) > CASES:
        return low
    found = []
    for values in itertools.product(*(range(first, last + 1) for first, last in (ranges[s] for s in used))):
        known = dict(zip(used, values))
        active = active_elements(tuple(replace(c, form=known_at(c.form, known)) for c in mask), extents)
        found += [int(values_of(known_at(form, known), extents)[active].min())] if active.any() else []
    return min(found) + others if found else low


def known_at(form: Linear, values: dict[int, int]) -> Linear:
    """A form with the values of its symbols put in."""
    return Linear(form.at(values), (), form.axes)


def _with_symbols(form: Linear, given: Sequence[Linear]) -> Linear:
    total = Linear(form.const, (), form.axes)
    for position, c in form.symbols:
        total = total.plus(given[position], c)
    return total


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1:]) for d in range(len(shape)))


def _row(shape: tuple[int, ...], base: DType, dtype: DType) -> int:
    return prod(shape[1:]) * base.itemsize // dtype.itemsize
