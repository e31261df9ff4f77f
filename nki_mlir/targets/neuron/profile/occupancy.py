# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The occupancy of SBUF and PSUM over time: values, each from the instruction that begins to write it to its last use.

The module also finds the operands that read the result of an instruction, until another one overwrites it.

A value is the content of one region between two writes. An instruction that adds to a region, or that fills another
part of it before a read, continues the existing value.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from nki_mlir.dialects.access import PSUM, SBUF, Bounds, Tile
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.timing.machine import TimedCore, TimedMachine
from nki_mlir.waist.overlap import boxes_overlap

Where = tuple[int, int]         # agent and position in its stream
BUCKET = 2048                   # bytes of a bucket, whose values are searched together


class Footprint(NamedTuple):
    """Partitions ``p0`` up to ``p1`` and bytes ``b0`` up to ``b1`` of each."""

    space: str
    p0: int
    p1: int
    b0: int
    b1: int

    @property
    def bounds(self) -> Bounds:
        return self[1:]

    def contains(self, other: "Footprint") -> bool:
        return self.p0 <= other.p0 and other.p1 <= self.p1 and self.b0 <= other.b0 and other.b1 <= self.b1


@dataclass
class Occupant:
    """A value: its region, the ns from the launch at which it begins and ends, and the instruction that wrote it."""

    core: int
    region: Footprint
    begin: float
    end: float
    instruction: int
    read: bool = False

    @property
    def nbytes(self) -> int:
        return (self.region.p1 - self.region.p0) * (self.region.b1 - self.region.b0)


class OnChipAccess(NamedTuple):
    """The access of an instruction to an on-chip operand. A product that begins a sum does not read its result."""

    field: str
    region: Footprint
    reads: bool
    writes: bool
    op: Op
    tile: Tile

    @property
    def fills(self) -> bool:
        """Return whether the access writes every byte of the region."""
        low, high = self.tile.access.reach()
        return not self.op.mask and not self.op.limits and self.tile.free_elements == high + 1 - low


def accesses(run: TimedMachine) -> Iterator[tuple[int, Where, list[OnChipAccess]]]:
    """Yield the events that access on-chip memory, in the order of the run; operands that are only read come first."""
    record = run.record
    memo: dict[Where, list[OnChipAccess]] = {}
    for event in sorted(range(len(record)), key=record.start.__getitem__):
        where = record.agent[event], record.position[event]
        of_op = memo.get(where)
        if of_op is None:
            op = run.agents[where[0]].stream.instructions[where[1]].op
            of_op = memo[where] = _accesses(op) if isinstance(op, Op) else []
        if of_op:
            yield event, where, of_op


def _accesses(op: Op) -> list[OnChipAccess]:
    operands = [OnChipAccess(f.name, footprint_of(t), op.reads(f.name), f.writes, op, t)
                for f, t in op.operands() if t.on_chip]
    return sorted(operands, key=lambda access: access.writes)


def held_of(run: TimedMachine, instruction_of: list[int], launch: float) -> list[Occupant]:
    """Return all values of a run, by their beginning. ``instruction_of``: the instruction's number, by event."""
    record = run.record
    memories = [_Memory(k) for k in range(len(run.cores))]
    for event, (agent, _), operands in accesses(run):
        movement = record.movements.get(event)
        begin, end = (movement.begin, movement.end) if movement else (record.start[event], record.complete[event])
        memory = memories[run.cores.index(run.agents[agent].core)]
        for _, region, reads, writes, *_ in operands:
            if writes:
                memory.write(region, reads, launch + begin, launch + end, instruction_of[event])
            else:
                memory.read(region, launch + end)
    return sorted((h for m in memories for h in m.all), key=lambda h: h.begin)


def footprint_of(tile: Tile) -> Footprint:
    """Return the footprint of a tile: all bytes from its first to its last."""
    return Footprint(tile.space, *tile.bounds)


class _Memory:
    """The values of one core, in buckets of bytes."""

    def __init__(self, core: int) -> None:
        self.core = core
        self.all: list[Occupant] = []
        self.live: dict[tuple[str, int], list[int]] = {}       # by bucket: indices in ``all``

    def _overlapping(self, region: Footprint) -> list[int]:
        return list(dict.fromkeys(k for bucket in buckets_of(region) for k in self.live.get(bucket, ())
                                  if boxes_overlap(self.all[k].region.bounds, region.bounds)))

    def read(self, region: Footprint, end: float) -> None:
        for k in self._overlapping(region):
            self.all[k].read, self.all[k].end = True, max(self.all[k].end, end)

    def write(self, region: Footprint, reads: bool, begin: float, end: float, instruction: int) -> None:
        for k in self._overlapping(region):
            occupant, r = self.all[k], self.all[k].region
            if r.contains(region) and (reads or (not occupant.read and r != region)):
                occupant.end = max(occupant.end, end)
                return
            occupant.end = min(occupant.end, max(begin, occupant.begin))
            for bucket in buckets_of(r):
                self.live[bucket].remove(k)
        for bucket in buckets_of(region):
            self.live.setdefault(bucket, []).append(len(self.all))
        self.all.append(Occupant(self.core, region, begin, end, instruction))


def buckets_of(region: Footprint) -> list[tuple[str, int]]:
    """Return the buckets with the values that may share bytes with a region."""
    return [(region.space, k) for k in range(region.b0 // BUCKET, (region.b1 - 1) // BUCKET + 1)]


def levels(values: list[Occupant], core: int, space: str) -> tuple[list[float], list[int]]:
    """Return pairs (time, bytes in use from then on) of a memory of one core."""
    assert space in (SBUF, PSUM)
    changes = defaultdict(int, {0.0: 0})
    for occupant in values:
        if occupant.core == core and occupant.region.space == space:
            changes[occupant.begin] += occupant.nbytes
            changes[occupant.end] -= occupant.nbytes
    times = sorted(changes)
    return times, list(accumulate(changes[time] for time in times))


# -- who reads a value -------------------------------------------------------------------------------------------------
class Use(NamedTuple):
    """A read of a value by an operand of the instruction at ``where``."""

    where: Where
    field: str
    region: Footprint


class Value(NamedTuple):
    """A value on chip that may still be read."""

    where: Where
    region: Footprint


def readers_of(run: TimedMachine) -> dict[Where, set[Use]]:
    """Return the reads of each instruction's result."""
    readers: dict[Where, set[Use]] = defaultdict(set)
    memories: dict[TimedCore, dict[tuple[str, int], set[Value]]] = defaultdict(lambda: defaultdict(set))
    for _, where, operands in accesses(run):
        live = memories[run.agents[where[0]].core]
        for operand in operands:
            for bucket in buckets_of(operand.region) if operand.reads else ():
                for value in live[bucket]:
                    if boxes_overlap(value.region.bounds, operand.region.bounds):
                        readers[value.where].add(Use(where, operand.field, operand.region))
        for operand in operands:
            if operand.writes:
                produced, fills = Value(where, operand.region), operand.fills
                for bucket in buckets_of(operand.region):
                    if fills:
                        live[bucket] = {value for value in live[bucket] if not operand.region.contains(value.region)}
                    live[bucket].add(produced)
    return readers
