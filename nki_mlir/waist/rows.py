# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms along the rows of a tile (a row has the elements of one partition): recurrences, and values of rows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from nki_mlir.bindings import Value
from nki_mlir.dialects.access import SBUF, Linear, Tile, same_elements
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.overlap import may_overlap
from nki_mlir.waist.writer import IterationSpace, OperandView, ScalarBody, Writer

Expression = Callable[..., Any]         # (scalar builder, values...) -> value


def converted(s: ScalarBody, values: Sequence[Value], views: Sequence[OperandView]) -> list[Value]:
    return [s.convert(v, view.dtype, FLOAT32) for v, view in zip(values, views)]


class Rows:
    """Writes the values that an operation computes for each row (``dialects.op.RowBuilder``)."""

    def __init__(self, writer: Writer, op: Op, partitions: int) -> None:
        self.writer, self.op, self.partitions = writer, op, partitions

    def view(self, tile: Tile) -> OperandView:
        """Return a view of all elements of a tile [P, ...]."""
        return self.writer.view(tile, tuple(range(len(tile.shape))), self.op.symbols)

    def row(self, tile: Tile) -> OperandView:
        """Return a view of a tile [P, 1 ...] with one element a partition."""
        axes = tuple(range(len(tile.shape)))
        return self.writer.view(tile, axes, self.op.symbols, frozenset(axes[1:]))

    def buffer(self) -> Tile:
        return self.writer.buffer((self.partitions, 1), FLOAT32, SBUF)

    def constant(self, value: float) -> Tile:
        row = self.buffer()
        self.writer.fill(self.row(row), value)
        return row

    def assign(self, dst: Tile, value: Expression, rows: Sequence[Tile]) -> None:
        """Write the value of each partition to ``dst`` [P, 1]."""
        inputs, out = [self.row(t) for t in rows], self.row(dst)
        self.writer.generic(IterationSpace(1), inputs, [out], FLOAT32, lambda s, ins, outs: [
            s.convert(value(s, *converted(s, ins, inputs)), FLOAT32, dst.dtype)])

    def each(self, value: Expression, *rows: Tile) -> Tile:
        row = self.buffer()
        self.assign(row, value, rows)
        return row

    def sum(self, value: Expression, elements: Sequence[Tile], *rows: Tile) -> Tile:
        total, rank = self.constant(0.0), len(elements[0].shape)
        inputs = [*map(self.view, elements), *map(self.row, rows)]
        self.writer.generic(IterationSpace(rank, frozenset(range(1, rank))), inputs, [self.row(total)], FLOAT32,
                            lambda s, ins, outs: [s.alu("add", outs[0], value(s, *converted(s, ins, inputs)))])
        return total

    def write(self, dst: Tile, columns: Sequence[Tile]) -> None:
        for k, column in enumerate(columns):
            self.assign(column_of(dst, k), lambda s, x: x, [column])


def count_along(axes: Iterable[int], extents: Sequence[int]) -> Linear:
    """Return a form that counts the elements along some axes in their order, from 0."""
    steps, step = [], 1
    for axis in sorted(axes, reverse=True):
        steps.append((axis, step))
        step *= extents[axis]
    return Linear(0, (), tuple(sorted(steps)))


def column_of(tile: Tile, k: int) -> Tile:
    """Return column k of a tile [P, n]."""
    return Tile(tile.handle, tile.space, tile.base_shape, tile.base_dtype,
                tile.access.box((0, k), (tile.shape[0], 1)), tile.label)


class Recurrence(Protocol):
    """The interface of op classes that are recurrences. The element before the first is ``initial`` or, without it,
    ``imm``."""

    dst: Tile
    data0: Tile
    data1: Tile
    initial: Tile | None
    imm: float

    def next(self, s: object, carry: Value, first: Value, second: Value) -> Any: ...


def recurrence(rows: Rows, op: Recurrence, ranges: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Write loops whose free axes go in order, around a value that each partition carries from element to element."""
    writer, dst = rows.writer, op.dst
    carry = rows.each(lambda s, x: x, op.initial) if op.initial is not None else rows.constant(op.imm)
    overlaps = any(may_overlap(dst, t, ranges) for t in (op.data0, op.data1) if not same_elements(t, dst))
    target = writer.temporary(dst, dst.dtype) if overlaps else dst
    inputs, rank = [rows.view(op.data0), rows.view(op.data1)], len(dst.shape)
    in_order = IterationSpace(rank, frozenset(range(1, rank)))

    def body(s: ScalarBody, ins: Sequence[Value], outs: Sequence[Value]) -> list[Value]:
        following = op.next(s, outs[1], *converted(s, ins, inputs))
        return [s.convert(following, FLOAT32, dst.dtype), following]
    writer.generic(in_order, inputs, [rows.view(target), rows.row(carry)], FLOAT32, body)
    if target is not dst:
        writer.generic(IterationSpace(rank), [rows.view(target)], [rows.view(dst)], dst.dtype,
                       lambda s, ins, outs: [ins[0]])
