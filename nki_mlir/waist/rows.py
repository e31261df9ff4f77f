# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms along whole rows, a row being the elements of one partition: recurrences, and values computed of rows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nki_mlir.dialects.access import SBUF, Tile, may_overlap, same_place
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.scalar_body import ScalarBody
from nki_mlir.waist.writer import IterationSpace, OperandView, Writer

if TYPE_CHECKING:
    from nki_mlir.bindings import ir

Value = Callable[..., Any]              # (scalar builder, values...) -> value


def converted(s: ScalarBody, values: "Sequence[ir.Value]", views: Sequence[OperandView]) -> "list[ir.Value]":
    return [s.convert(v, view.dtype, FLOAT32) for v, view in zip(values, views)]


class Rows:
    """Writes what an operation computes of rows (``dialects.op.RowBuilder``)."""

    def __init__(self, writer: Writer, op: Op, partitions: int) -> None:
        self.writer, self.op, self.partitions = writer, op, partitions

    def view(self, tile: Tile) -> OperandView:
        """All elements of a tile [P, ...]."""
        return self.writer.view(tile, tuple(range(len(tile.shape))), self.op.symbols)

    def row(self, tile: Tile) -> OperandView:
        """A tile [P, 1 ...] as one element a partition."""
        axes = tuple(range(len(tile.shape)))
        return self.writer.view(tile, axes, self.op.symbols, frozenset(axes[1:]))

    def buffer(self) -> Tile:
        return self.writer.buffer((self.partitions, 1), FLOAT32, SBUF)

    def constant(self, value: float) -> Tile:
        made = self.buffer()
        self.writer.fill(self.row(made), value)
        return made

    def assign(self, dst: Tile, value: Value, rows: Sequence[Tile]) -> None:
        """dst [P, 1] = the value of each partition."""
        given, out = [self.row(t) for t in rows], self.row(dst)
        self.writer.generic(IterationSpace(1), given, [out], FLOAT32, lambda s, ins, outs: [
            s.convert(value(s, *converted(s, ins, given)), FLOAT32, dst.dtype)])

    def each(self, value: Value, *rows: Tile) -> Tile:
        made = self.buffer()
        self.assign(made, value, rows)
        return made

    def sum(self, value: Value, elements: Sequence[Tile], *rows: Tile) -> Tile:
        total, rank = self.constant(0.0), len(elements[0].shape)
        given = [*map(self.view, elements), *map(self.row, rows)]
        self.writer.generic(IterationSpace(rank, frozenset(range(1, rank))), given, [self.row(total)], FLOAT32,
                            lambda s, ins, outs: [s.alu("add", outs[0], value(s, *converted(s, ins, given)))])
        return total

    def write(self, dst: Tile, columns: Sequence[Tile]) -> None:
        for k, column in enumerate(columns):
            self.assign(column_of(dst, k), lambda s, x: x, [column])


def column_of(tile: Tile, k: int) -> Tile:
    """Column k of a tile [P, n]."""
    return Tile(tile.handle, tile.space, tile.base_shape, tile.base_dtype,
                tile.access.box((0, k), (tile.shape[0], 1)), tile.label)


class Recurrence(Protocol):
    """What an op class has that is a recurrence; the first element comes after ``initial``, or else ``imm``."""

    dst: Tile
    data0: Tile
    data1: Tile
    initial: Tile | None
    imm: float

    def next(self, s: object, carry: "ir.Value", first: "ir.Value", second: "ir.Value") -> Any: ...


def recurrence(rows: Rows, op: Recurrence, ranges: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Loops whose free axes go in order, around a value that each partition carries from element to element."""
    writer, dst = rows.writer, op.dst
    carry = rows.each(lambda s, x: x, op.initial) if op.initial is not None else rows.constant(op.imm)
    overlaps = any(may_overlap(dst, t, ranges) for t in (op.data0, op.data1) if not same_place(t, dst))
    target = writer.temporary(dst, dst.dtype) if overlaps else dst
    given, rank = [rows.view(op.data0), rows.view(op.data1)], len(dst.shape)
    in_order = IterationSpace(rank, frozenset(range(1, rank)))

    def body(s: ScalarBody, ins: "Sequence[ir.Value]", outs: "Sequence[ir.Value]") -> list[object]:
        made = op.next(s, outs[1], *converted(s, ins, given))
        return [s.convert(made, FLOAT32, dst.dtype), made]
    writer.generic(in_order, given, [rows.view(target), rows.row(carry)], FLOAT32, body)
    if target is not dst:
        writer.generic(IterationSpace(rank), [rows.view(target)], [rows.view(dst)], dst.dtype,
                       lambda s, ins, outs: [ins[0]])
