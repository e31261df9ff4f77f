# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that fold the elements they write into registers of an engine, one for each partition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nki_mlir.bindings import Value
from nki_mlir.dialects.access import Ranges, Tile, same_elements
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.rows import Rows, converted, count_along
from nki_mlir.waist.writer import IterationSpace, ScalarBody

RESETS, FOLDS = ("reset", "reset_reduce"), ("reduce", "reset_reduce")       # commands


class FoldsIntoRegisters(Protocol):
    """The interface of op classes that accumulate (``dialects/nisa/accumulating.py``)."""

    dst: Tile
    accumulator: Tile
    reduce_res: Tile | None
    reduce_cmd: str
    reduce_op: str
    counts: bool

    def body(self, s: object, *sources: Value) -> Any: ...

    def next(self, s: object, carry: Value, *sources: Value) -> Any: ...

    def after(self, s: object, registers: Value) -> Any: ...


@dataclass
class Accumulation:
    """An operation that accumulates. ``start`` is the value of the registers after a reset; the operation ``scans`` if
    each element depends on the one before it, which the registers hold."""

    op: FoldsIntoRegisters
    sources: Sequence[Tile]
    start: float
    scans: bool
    overlaps: bool              # whether it writes elements of its sources before it reads them

    def write(self, rows: Rows) -> None:
        op, writer = self.op, rows.writer
        if self.scans and op.reduce_cmd in RESETS:
            writer.fill(rows.row(op.accumulator), self.start)
        target = writer.temporary(op.dst, op.dst.dtype) if self.overlaps else op.dst
        if self.scans:
            self.elements(rows, target, op.accumulator)
        elif op.reduce_cmd in FOLDS:
            total = rows.constant(self.start)
            self.elements(rows, target, total)
            self.fold(rows, total)
        else:
            self.elements(rows, target, None)
            if op.reduce_cmd in RESETS:
                writer.fill(rows.row(op.accumulator), self.start)
        if target is not op.dst:
            writer.generic(IterationSpace(len(target.shape)), [rows.view(target)], [rows.view(op.dst)], target.dtype,
                           lambda s, ins, outs: [ins[0]])
        if op.reduce_res is not None:
            rows.assign(op.reduce_res, op.after, [op.accumulator])

    def elements(self, rows: Rows, target: Tile, carry: Tile | None) -> None:
        """Write the elements; ``carry`` is folded with them, or has the element before each."""
        op, rank = self.op, len(target.shape)
        inputs = [rows.view(tile) if tile.shape == target.shape else rows.row(tile) for tile in self.sources]
        free = frozenset(range(1, rank))

        def body(s: ScalarBody, ins: Sequence[Value], outs: Sequence[Value]) -> list[Value]:
            values = converted(s, ins, inputs)
            if op.counts:
                values.append(s.position(count_along(free, target.shape)))
            value = op.next(s, outs[1], *values) if self.scans else op.body(s, *values)
            element = s.convert(value, FLOAT32, target.dtype)
            if carry is None:
                return [element]
            return [element, value if self.scans else s.alu(op.reduce_op, outs[1], value)]
        outputs = [rows.view(target)] if carry is None else [rows.view(target), rows.row(carry)]
        rows.writer.generic(IterationSpace(rank, frozenset() if carry is None else free), inputs, outputs, FLOAT32,
                            body)

    def fold(self, rows: Rows, total: Tile) -> None:
        """Fold the total of the elements into the registers."""
        op, fn = self.op, self.op.reduce_op
        if op.reduce_cmd in RESETS:
            rows.assign(op.accumulator, lambda s, value: s.alu(fn, s.constant(self.start), value), [total])
        else:
            rows.assign(op.accumulator, lambda s, before, value: s.alu(fn, before, value), [op.accumulator, total])


def accumulation_of(op: Op, scans: bool, may_overlap: Callable[[Tile, Tile, Ranges], bool]) -> Accumulation | None:
    """Return the accumulation of an operation; None if it reads its registers as a source or writes them otherwise, or
    if its fold depends on the order of the elements."""
    accumulating: Any = op
    tiles = dict((field.name, tile) for field, tile in op.operands())
    registers, dst = tiles.pop("accumulator"), tiles["dst"]
    sources = [tile for name, tile in op.sources() if name != "accumulator"]
    start = accumulating.start if scans else ALU[accumulating.reduce_op].identity(FLOAT32)
    if start is None or any(may_overlap(registers, tile, op.ranges) for tile in tiles.values()):
        return None
    overlaps = any(may_overlap(dst, tile, op.ranges) for tile in sources
                   if not (same_elements(tile, dst) and tile.shape == dst.shape))
    return Accumulation(accumulating, sources, float(start), scans, overlaps)
