# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tracks certain writes of a captured kernel: to fresh on-chip memory before its first read, and to the outputs.

Fresh on-chip memory reads as zero, since kernels accumulate into tensors that were only declared. A memset is inserted
where the first operation on a buffer does not overwrite all of it; most buffers need none.

An output that no operation writes is an error. Where device loops, or conditions, decide whether any operation that
writes it runs, the kernel is captured again with a flag: every write sets it, and the kernel ends with a check of it.
"""

import weakref
from collections.abc import Sequence
from math import prod
from typing import NamedTuple, Protocol

from nki_mlir.analysis.effects import without_gap
from nki_mlir.bindings import Operation, ir
from nki_mlir.capture.index import Symbol
from nki_mlir.capture.operands import Operands, Views
from nki_mlir.capture.races.overlaps import are_satisfiable, masks_of
from nki_mlir.capture.scope import Scope
from nki_mlir.capture.tensor import Buffer, View, tile_of
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM, Access, Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.mlir_ops import write_op
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.require_written import RequireWrittenOp, idle
from nki_mlir.dialects.nki.movement import MemsetOp
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.scalar.dtypes import INT32, DType


class Covering(NamedTuple):
    """The first write to a buffer by iterations of a loop: together they write every element before
    ``scope`` closes."""

    scope: object
    access: Access
    symbols: tuple[object, ...] # over which ``access`` is linear


class FirstPart(NamedTuple):
    """The first writes to a buffer, of parts that no loop moves. They cover the bytes ``columns`` of the partitions
    ``rows``. Operations on the first part, and on covered bytes, read nothing that is unwritten."""

    access: Access
    rows: range
    columns: range

    def covers(self, tile: Tile) -> bool:
        """Return whether the writes cover a tile that another operation uses."""
        if tile.access.symbols_used():
            return False
        start, (step, count) = tile.access.partition, tile.access.dims[0]
        assert start is not None                        # on-chip memory has a start
        last_row = start.const + (count - 1) * step
        return outline(tile.access) == outline(self.access) or (
            start.const in self.rows and last_row in self.rows and has_bytes(self.columns, tile))

    def joined(self, tile: Tile) -> "FirstPart | None":
        """Return the part with a tile that is also written; None if they do not form one rectangle."""
        if tile.access.symbols_used():
            return None
        _, rows, columns = first_part(tile)
        if rows == self.rows and (span := union(columns, self.columns)):
            return self._replace(columns=span)
        if columns == self.columns and (span := union(rows, self.rows)):
            return self._replace(rows=span)
        return None


def has_bytes(columns: range, tile: Tile) -> bool:
    """Return whether bytes of a partition contain those of a tile."""
    _, _, low, high = tile.bounds
    return columns.start <= low and high <= columns.stop


def union(first: range, second: range) -> range | None:
    """Return the numbers of two ranges that touch or overlap; None if there are others in between, or if one is
    empty."""
    if not first or not second or first.start > second.stop or second.start > first.stop:
        return None
    return range(min(first.start, second.start), max(first.stop, second.stop))


class FirstUses:
    """Records the first operations on each on-chip buffer of one capture."""

    def __init__(self) -> None:
        self.open: dict[Buffer, Covering | FirstPart | None] = {}      # buffers that are unused, or partly written
        self.zeros: dict[Buffer, bool] = {}             # buffers that get a memset; True for state, which is zero
        self.states: set[Buffer] = set()                # buffers of engines and of checks
        self.allocations: dict[Buffer, Operation] = {}        # the operation that allocates each

    def allocated(self, buffer: Buffer, zeroed: bool = False) -> None:
        """Record a new buffer; one that is ``zeroed`` is state, which begins as zeros unless it is overwritten."""
        if zeroed:
            self.zeros[buffer] = True
            self.states.add(buffer)
        if buffer.space != HBM:
            self.open[buffer] = None

    def remove_buffer(self, buffer: Buffer) -> None:
        self.open.pop(buffer, None)
        self.zeros.pop(buffer, None)

    def record_operands(self, op: Op, operands: Operands, views: Sequence[View], scopes: list[Scope]) -> None:
        """Record an operation's operands; ``scopes`` are the open blocks around the operation, outermost first."""
        for (field, tile), view in zip(operands, views):
            if view.buffer in self.open:
                self.used_open(op, operands, field, tile, view.buffer, scopes)

    def used_open(self, op: Op, operands: Operands, field: TileField, tile: Tile, buffer: Buffer, scopes: list[Scope]
                  ) -> None:
        state = self.open[buffer]
        # An operation may read fewer operands than its class declares (``sources``).
        read = field.reads and op.reads(field.name)
        if any([operand.handle is tile.handle and other.reads and not other.writes for other, operand in operands]):
            read = True
        writes = field.writes and not read and not op.mask
        if isinstance(state, FirstPart):
            if state.covers(touched_part(op, field, tile)):
                return
            covers: bool | Covering = False
            if writes and buffer.scope is scopes[-1] and (part := state.joined(tile)) is not None:
                covers = len(part.rows) == tile.base_shape[0] and len(part.columns) == tile.row * tile.dtype.itemsize
                if not covers:
                    self.open[buffer] = part
                    return
        elif state is None:
            covers = writes and first_write(op, tile, buffer, scopes)
            if writes and not covers and not tile.access.symbols_used() and runs_with(buffer, scopes):
                self.open[buffer] = first_part(tile)
                self.zeros.pop(buffer, None)
                return
        elif state.scope not in scopes:
            covers = True
        else:           # another iteration may write this piece only later
            same = outline(tile.access) == outline(state.access) and op.symbols == state.symbols
            covers = state if not read or same else False
        is_state = buffer in self.states
        if isinstance(covers, Covering) and not is_state:
            self.open[buffer] = covers
            return
        del self.open[buffer]
        if covers is True:
            self.zeros.pop(buffer, None)
        else:
            self.zeros[buffer] = is_state

    def fill(self, make: Attributes, function: Operation) -> None:
        """Report reads of buffers before they are written, and insert the memsets.

        A buffer whose allocation was undone has no record.
        """
        fresh = {self.allocations[b].results[0]: b for b, is_zero in self.zeros.items() if not is_zero}
        if fresh:
            from nki_mlir.capture.unwritten_reads import report_unwritten  # start-up: few kernels need it
            report_unwritten(function, fresh)
        for buffer in self.zeros:
            shape, allocation = buffer.physical_shape, self.allocations[buffer]
            access = Access(buffer.dtype, Linear(), Linear(), ((1, shape[0]), (1, prod(shape[1:]))))
            tile = Tile(buffer.handle.value, buffer.space, shape, buffer.dtype, access)
            write_op(MemsetOp(dst=tile, value=0.0), make, allocation.location, ir.InsertionPoint.after(allocation))


def touched_part(op: Op, field: TileField, tile: Tile) -> Tile:
    """Return the part of an operand that the operation may touch: of a table, what its indices can select."""
    return op.reachable() if isinstance(op, DataAddressed) and field.name == op.addressed_by_data else tile


def outline(access: Access) -> tuple[object, ...]:
    """Return a key that is equal for accesses to the same elements in the same order."""
    return access.dtype, access.partition, access.free, access.dims[0], [d for d in access.dims[1:] if d[1] > 1]


def runs_with(buffer: Buffer, scopes: list[Scope]) -> bool:
    """Return whether an operation runs whenever its buffer is allocated: only loops that have an iteration are in
    between."""
    return buffer.scope in scopes and all(
        scope.symbol is not None for scope in scopes[scopes.index(buffer.scope) + 1:])


def first_part(tile: Tile) -> FirstPart:
    """Return the part of a buffer that a tile without symbols has."""
    access = tile.access
    (step, count), *free = access.dims
    assert access.partition is not None
    start, covered = access.partition.const, without_gap([(abs(s), n) for s, n in free if n > 1])
    _, _, low, high = tile.bounds
    rows = range(start, start + count) if step == 1 or count == 1 else range(0)
    return FirstPart(access, rows, range(low, high) if covered * tile.dtype.itemsize == high - low else range(0))


def first_write(op: Op, tile: Tile, buffer: Buffer, scopes: list[Scope]) -> bool | Covering:
    """Return whether the first operation, which writes a buffer, writes every element: True, False, or ``Covering`` if
    the iterations of a loop together do. The write is in bounds: with as many elements as a row it covers the row."""
    if buffer.scope is scopes[-1]:
        return tile.layout.form.covers_buffer
    inner = scopes[scopes.index(buffer.scope) + 1:] if buffer.scope in scopes else scopes
    loops = [scope.symbol for scope in inner if scope.symbol is not None]
    if len(loops) < len(inner) or tile.partitions != tile.base_shape[0]:
        return False                                # the write is under an ``if``, or covers some partitions only
    position_of = {id(handle): k for k, handle in enumerate(op.symbols)}
    steps = [(abs(step), count) for step, count in tile.access.free_dims if count > 1]
    coefficients = dict(tile.access.free.symbols)
    for symbol in loops:
        position = position_of.get(id(symbol.value))
        if position in coefficients:
            steps.append((coefficients[position], (symbol.last - symbol.first) // symbol.step + 1))
    return Covering(inner[0], tile.access, op.symbols) if without_gap(steps) == tile.row else False


class FunctionBuilder(Protocol):
    """The builder of a function, as far as ``OutputWrites`` uses it."""

    accumulating: bool
    first_writes: dict[Buffer, Location]
    grid: tuple[int, ...]
    make: Attributes
    outputs: list[Buffer]
    scopes: list[Scope]
    unknown: ir.Location

    def emit(self, cls: type[Op], views: Views, mask: object, attributes: dict[str, object]) -> Op | None: ...
    def state(self, key: str, shape: tuple[int, ...], dtype: DType) -> Buffer: ...


class OutputWrites:
    """The writes to the outputs in one capture; ``flagged`` are the numbers of the outputs that have a flag."""

    def __init__(self, builder: FunctionBuilder, flagged: set[int]) -> None:
        self.builder: FunctionBuilder = weakref.proxy(builder)      # a strong reference would be a cycle
        self.flagged = flagged
        self.certain: set[Buffer] = set()
        self.reasons: dict[Buffer, str] = {}        # why an output may stay unwritten, by its first write

    def wrote(self, op: Op, buffer: Buffer, symbols: Sequence[Symbol]) -> None:
        """Record that the operation at the insertion point writes an output, and set its flag."""
        scopes = self.builder.scopes
        runs = are_satisfiable([s.holds for s in scopes if s.holds is not None] + masks_of(op, symbols))
        loop = next((scope.op for scope in scopes if scope.may_skip), None)
        if runs and loop is None:
            self.certain.add(buffer)
            return
        at = location_of(loop) if loop is not None and runs is not False else None
        location = self.builder.first_writes[buffer]
        self.reasons.setdefault(buffer, idle(at) if at is not None else
                                f"the condition of the write at line {location.line} never holds")
        if runs is not False and buffer.shared in self.flagged:
            # all writes set the flag to 1, so they do not race
            outside, self.builder.accumulating = self.builder.accumulating, True
            self.builder.emit(MemsetOp, {"dst": self.flag(buffer)}, None, {"value": 1.0})
            self.builder.accumulating = outside

    def flag(self, buffer: Buffer) -> View:
        return View.full(self.builder.state(f"written.{buffer.shared}", (1, 1), INT32))

    def coverage(self, results: Sequence[Buffer]) -> tuple[frozenset[int], frozenset[int]]:
        """Return the numbers of the results that some run may leave unwritten, and of the outputs that every run
        writes."""
        certain = frozenset(b.shared for b in self.certain if b.shared is not None)
        written = {b.shared for b in results if b.shared is not None and b in self.builder.first_writes}
        return frozenset(written - certain), certain

    def check(self, results: Sequence[Buffer]) -> None:
        """Emit the checks of the flags at the end of the function. It suffices that one program of a launch writes an
        output."""
        grid, end = self.builder.grid, self.builder.scopes[0].end
        for buffer in dict.fromkeys(results):
            if buffer.role != "output" or buffer.shared not in self.flagged:
                continue
            flag = tile_of(self.flag(buffer), {})
            flag = flag.on(flag.handle.value)
            at = buffer.created_at
            location = ir.Location.file(at.file, at.line, at.column + 1) if at else self.builder.unknown
            if prod(grid) > 1:
                # start-up: few kernels have collectives
                from nki_mlir.dialects.nisa.collectives import AllReduceOp, text_of
                everyone = [list(range(prod(grid)))]
                write_op(AllReduceOp(dst=flag, src=flag, op="maximum", groups=text_of(everyone), over=PROGRAMS),
                         self.builder.make, location, end)
            reason = self.reasons.get(buffer, "its loops ran no iteration")      # in this program, or in another one
            write_op(RequireWrittenOp(flag=flag, output=buffer.name, reason=reason), self.builder.make, location, end)
