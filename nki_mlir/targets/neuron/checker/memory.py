# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check the memory accesses of a trace: conflicting accesses without an order, reads of bytes that nothing wrote."""

from bisect import bisect_left
from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from nki_mlir.dialects.access import HBM, PSUM, SBUF, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import DeviceLiveRange, Program, Variable
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.meeting import CoreBarrierOp
from nki_mlir.dialects.op import FRESH, Op
from nki_mlir.dialects.verification import in_buffer
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.targets.neuron.checker.conflicts import Conflict, Conflicts
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint, Memory, runs_of
from nki_mlir.targets.neuron.checker.live_ranges import LiveBuffers
from nki_mlir.targets.neuron.checker.trace import Event, Site, StreamTrace


class OperandTouch(NamedTuple):
    """The access of an operand. ``must_be_written``: each byte that it reads must have been written; ``by_data``: data
    choose elements of a tensor that cores share."""

    footprint: ByteFootprint
    reads: bool
    writes: bool
    must_be_written: bool
    by_data: bool = False


class UnwrittenByte(NamedTuple):
    """A read of a byte that nothing has written."""

    event: Event
    memory: Memory
    partition: int
    byte: int


class AccessOutsideLiveBuffers(NamedTuple):
    """An access of on-chip memory outside of all live buffers."""

    event: Event
    footprint: ByteFootprint


class OutsideBuffer(NamedTuple):
    """An access that leaves its buffer."""

    event: Event
    error: OutOfBounds


class Operands:
    """The footprints of operations. Equal footprints are one object."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.variables: dict[tuple[int, Variable], Memory] = {}
        self.shared: set[Memory] = set()        # memories that several cores access
        for core, program in enumerate(programs):
            for v in program.variables:
                shared = v.kind in ("input", "output")
                self.variables[core, v] = (v.kind, v.index) if shared else (v.kind, core, v.name)
                if shared and len(programs) > 1:
                    self.shared.add(self.variables[core, v])
        self.footprints: dict[tuple[object, ...], ByteFootprint] = {}
        self.of_op: dict[tuple[int, Op], list[OperandTouch]] = {}
        self.outside: dict[Site, OutsideBuffer] = {}

    def memory(self, core: int, tile: Tile) -> Memory:
        return self.variables[core, tile.handle] if tile.space == HBM else (tile.space, core)

    def footprint(self, core: int, tile: Tile, event: Event) -> ByteFootprint:
        """Return the footprint of a tile. Raise ``OutOfBounds`` if register values move it out of its buffer."""
        memory, access, values = self.memory(core, tile), tile.access, event.values
        free, partition = access.free, access.partition
        name = tile.handle.name if tile.space == HBM else tile.space
        moves = values and (free.symbols or (partition is not None and partition.symbols))
        if moves and not all(isinstance(v, int) for v in values):
            # Data decide the start: the tile lies in its buffer for one start at least.
            in_buffer(tile, lambda form: (0, 0) if form is partition else (-access.reach()[0],) * 2, name)
            return ByteFootprint(memory, access, values, tile.row * access.dtype.itemsize)
        if moves:
            start, lane = free.at(values), None if partition is None else partition.at(values)    # type: ignore[arg-type]
        else:
            start, lane = free.const, None if partition is None else partition.const
        key = memory, access.dtype, lane, start, access.dims
        footprint = self.footprints.get(key)
        if footprint is None:
            if moves:
                in_buffer(tile, lambda form: (form.at(values),) * 2, name)       # type: ignore[arg-type]
            footprint = self.footprints[key] = ByteFootprint(memory, access, values)
        return footprint

    def touches(self, event: Event) -> list[OperandTouch]:
        """Return the accesses of an event."""
        op, core = event.instruction.op, event.core
        if isinstance(op, isa.Control):
            if not isinstance(op, isa.TensorLoad):
                return []
            return self.touch(event, op.src, True, False, True)
        if isinstance(op, CoreBarrierOp):       # it orders accesses of other instructions, and has none itself
            return []
        cached = self.of_op.get((core, op))
        if cached is not None:
            return cached
        reads, writes = {name for name, _ in op.sources()}, {name for name, _ in op.targets()}
        table = op.addressed_by_data
        touches = []
        for field, tile in op.operands():
            name = field.name
            read, written = name in reads, name in writes
            # Run-time data choose which elements of a table are read. Elements that a mask has left out are zeros.
            must_be_written = (read and name != table and not (table and written) and FRESH not in op.extra
                               and not op.overwrites(name))
            reached = op.reachable() if name == table and isinstance(op, DataAddressed) else tile
            touches += self.touch(event, reached, read, written, must_be_written, name == table)
        if not event.values:
            self.of_op[core, op] = touches
        return touches

    def touch(self, event: Event, tile: Tile, read: bool, written: bool, must_be_written: bool, by_data: bool = False
              ) -> list[OperandTouch]:
        """Return an event's access to a tile. If the tile leaves its buffer, record the error and return an empty
        list."""
        try:
            footprint = self.footprint(event.core, tile, event)
        except OutOfBounds as error:
            self.outside.setdefault(event.site, OutsideBuffer(event, error))
            return []
        return [OperandTouch(footprint, read, written, must_be_written, by_data and footprint.memory in self.shared)]


class WrittenBytes:
    """Records which bytes of a memory have been written. One row stands for partitions that all footprints treat
    alike."""

    def __init__(self, footprints: Sequence[ByteFootprint]) -> None:
        ends = sorted({p for f in footprints for p in (f.first, f.last + 1)})
        self.row_of = {partition: k for k, partition in enumerate(ends)}
        self.partitions = ends
        unit = 0
        for f in footprints:
            unit = gcd(unit, f.start, f.size, *(abs(step) for step, count in f.dims if count > 1))
        self.unit = max(1, unit)
        size = max(f.high for f in footprints)
        self.flags = np.zeros((max(1, len(ends) - 1), -(-size // self.unit)), np.bool_)

    def begin(self, live: DeviceLiveRange) -> None:
        """Mark all bytes of a buffer whose live range begins as unwritten."""
        start, end = (bisect_left(self.partitions, p) for p in (live.partition, live.partition + live.partitions))
        self.flags[start:end, -(-live.byte // self.unit):(live.byte + live.size) // self.unit] = False

    def view(self, footprint: ByteFootprint) -> np.ndarray:
        """Return the flags of a footprint's bytes."""
        rows = self.flags[self.row_of[footprint.first]:self.row_of[footprint.last + 1]]
        if footprint.symbolic is not None:
            return rows[:, footprint.low // self.unit:footprint.high // self.unit]
        runs = runs_of(footprint.dims, footprint.size)
        start = footprint.start // self.unit
        if runs.unbroken:
            return rows[:, start:start + runs.extent // self.unit]
        dims = [(abs(step) // self.unit, count) for step, count in footprint.dims if step and count > 1]
        dims.append((1, footprint.size // self.unit))
        byte_stride = rows.strides[1]
        return np.lib.stride_tricks.as_strided(
            rows[:, start:], (len(rows), *(count for _, count in dims)),
            (rows.strides[0], *(step * byte_stride for step, _ in dims)))

    def first_unwritten(self, footprint: ByteFootprint) -> tuple[int, int] | None:
        """Return (partition, byte) of the first unwritten byte."""
        flags = self.view(footprint)
        if flags.all():
            return None
        row, *_ = (int(k) for k in np.argwhere(~flags)[0])
        low, high = footprint.low // self.unit, footprint.high // self.unit
        line = self.flags[self.row_of[footprint.first] + row]
        touched = np.zeros(len(line), np.bool_)
        rows = self.flags
        self.flags = touched[None].repeat(len(rows), 0)
        try:
            self.view(footprint)[...] = True
            touched = self.flags[self.row_of[footprint.first] + row]
        finally:
            self.flags = rows
        byte = int(np.flatnonzero(touched[low:high] & ~line[low:high])[0] + low) * self.unit
        return self.partitions[self.row_of[footprint.first] + row], byte


class MemoryCheck:
    """Checks all accesses of a trace whose events have clocks."""

    def __init__(self, trace: StreamTrace, limit: int) -> None:
        self.limit = limit
        self.conflicts: list[Conflict] = []
        self.unwritten: list[UnwrittenByte] = []
        self.outside_live_buffers: list[AccessOutsideLiveBuffers] = []
        # the highest byte of each on-chip memory that is accessed, and an event that accesses it
        self.ends: dict[Memory, tuple[int, Event]] = {}
        # instructions that are already in ``unwritten``, and in ``outside_live_buffers``
        self.seen: set[Site] = set()
        self.reported_outside: set[Site] = set()
        operands = Operands(trace.programs)
        events = [event for step in trace.steps for event in (
            [step] if isinstance(step, Event) else [e for e in step.events if e.queue_lane < 0])]
        touches = [(event, operands.touches(event)) for event in events]
        self.outside = list(operands.outside.values())[:limit]
        self.measure(touches)
        self.order(touches)
        self.initialize(touches, [LiveBuffers(program) for program in trace.programs])

    def measure(self, touches: Sequence[tuple[Event, list[OperandTouch]]]) -> None:
        sizes: dict[Memory, int] = {}
        written: dict[Memory, None] = {}
        self.footprints: dict[Memory, dict[ByteFootprint, None]] = {}
        for event, operands in touches:
            for footprint, _, writes, _, _ in operands:
                memory = footprint.memory
                size = sizes.get(memory, 0)
                if footprint.high > size:
                    sizes[memory] = footprint.high
                    if memory[0] in ("sbuf", "psum"):
                        self.ends[memory] = footprint.high, event
                if writes:
                    written[memory] = None
                self.footprints.setdefault(memory, {})[footprint] = None
        self.changed = written

    def order(self, touches: Sequence[tuple[Event, list[OperandTouch]]]) -> None:
        conflicts = Conflicts({memory: list(self.footprints[memory]) for memory in self.changed})
        pairs: set[tuple[Site, Site]] = set()
        for event, operands in touches:
            for footprint, reads, writes, _, by_data in operands:
                for writing in ([False] if reads else []) + ([True] if writes else []):
                    for conflict in conflicts.add(event, footprint, writing, by_data):
                        pair = conflict.first.site, conflict.then.site
                        if pair not in pairs and len(self.conflicts) < self.limit:
                            pairs.add(pair)
                            self.conflicts.append(conflict)

    def initialize(self, touches: Sequence[tuple[Event, list[OperandTouch]]], buffers: Sequence[LiveBuffers]) -> None:
        """Find reads of unwritten bytes. Inputs and constants are written from the start. If a program declares its
        live buffers, each begins unwritten, and all accesses must be inside them."""
        written = {memory: WrittenBytes(list(footprints)) for memory, footprints in self.footprints.items()
                   if memory[0] not in ("input", "constant")}
        for event, operands in touches:
            live = buffers[event.core]
            if live.has_ranges:
                live.follow(event)
                for footprint, *_ in operands:
                    if footprint.memory[0] in (SBUF, PSUM):
                        self.look_at_buffer(event, footprint, live, written[footprint.memory])
            targets = []
            for footprint, _, writes, must_be_written, _ in operands:
                begun = live.count_begun(footprint)
                if footprint.initialized >= begun or (flags := written.get(footprint.memory)) is None:
                    continue
                if writes:              # an operation reads its operands before it writes
                    targets.append((flags, footprint, begun))
                if must_be_written and footprint.symbolic is None:
                    at = flags.first_unwritten(footprint)
                    if at is None:
                        footprint.initialized = begun
                    elif event.site not in self.seen and len(self.unwritten) < self.limit:
                        self.seen.add(event.site)
                        self.unwritten.append(UnwrittenByte(event, footprint.memory, *at))
            for flags, footprint, begun in targets:
                flags.view(footprint)[...] = True
                if footprint.symbolic is None:
                    footprint.initialized = begun

    def look_at_buffer(self, event: Event, footprint: ByteFootprint, live: LiveBuffers, written: WrittenBytes) -> None:
        """Check that an access of on-chip memory is inside a live buffer. If the buffer begins with it, mark the buffer
        as unwritten."""
        around = live.containing_buffer(event, footprint, str(footprint.memory[0]))
        if around is None:
            if event.site not in self.reported_outside and len(self.outside_live_buffers) < self.limit:
                self.reported_outside.add(event.site)
                self.outside_live_buffers.append(AccessOutsideLiveBuffers(event, footprint))
        elif live.begins(*around, event):
            written.begin(around[1])
