# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the records of operations that repeat others, from templates.

``conversion/repeated_operations.py`` lowers the first of equal operations. ``Templates`` records the buffers and the
instructions of its lowered operations, as functions of their buffers, and writes those of a repeated group: each
instruction is a copy of one record, with other buffers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from nki_mlir.bindings import Operation
from nki_mlir.conversion import operation_groups
from nki_mlir.conversion.movable_patterns import PatternCluster, reach_of, started
from nki_mlir.conversion.repeated_operations import position_of
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.mlir_ops import recognize
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.operation_kind import KIND
from nki_mlir.targets.neuron.codegen.records import Block, DeviceBuffer, InstructionStep, nodes_in, tiles_of


class NoTemplate(Exception):
    """The lowering of an operation has more than instructions on its buffers and on new ones."""


class NewBuffer(NamedTuple):
    """A buffer that each group allocates; ``operation``: the number of the operation that it belongs to."""

    like: DeviceBuffer
    operation: int


class StampedInstruction(NamedTuple):
    """An instruction whose symbols have values. It has for each tile the source of its buffer, and the number of the
    cluster of patterns with which it moves (-1: none). ``operation``: the number of the operation that it belongs
    to. ``numbers``: the attributes that have the number of the operation."""

    op: Op
    tiles: tuple[tuple[str, Tile, int, int], ...]
    operation: int
    numbers: tuple[str, ...]


@dataclass(eq=False)
class GroupTemplate:
    """The records of a group. Numbers stand for the buffers of the ``first`` group and, after them, for new ones. A
    part that is a number stands for the allocation of that buffer. ``new``: the new buffers of the first group.
    ``last``: for the group that was written last, the location of each operation, also as a record."""

    first: operation_groups.OperationGroup
    new: list[DeviceBuffer] = field(default_factory=list)
    parts: list[NewBuffer | StampedInstruction | int] = field(default_factory=list)
    last: list[tuple[object, Location | None]] = field(default_factory=list)
    tiles: dict[tuple[Tile, DeviceBuffer, int], Tile] = field(default_factory=dict)     # tiles that start elsewhere

    @cached_property
    def clusters(self) -> list[PatternCluster]:
        return self.first.clusters

    @cached_property
    def has_number(self) -> bool:
        """Whether an instruction has the number that the outline of the group leaves out."""
        return any(type(part) is StampedInstruction and part.numbers for part in self.parts)

    @cached_property
    def unread(self) -> tuple[int, ...]:
        """The numbers of the group's buffers that no instruction uses."""
        used = {slot for part in self.parts if type(part) is StampedInstruction for _, _, slot, _ in part.tiles}
        return tuple(slot for slot in range(len(self.first.buffers)) if slot not in used)

    def locations(self, operations: Sequence[operation_groups.TileOperation],
                  read: Callable[[Any], Location | None]) -> list[Location | None]:
        """Return the locations of the operations of a group, which mostly equal the previous group's."""
        last = self.last
        for number, operation in enumerate(operations):
            at = operation.at
            if number == len(last):
                last.append((at, read(at)))
            elif at != last[number][0]:
                last[number] = at, read(at)
        return [location for _, location in last]


class Templates:
    """The templates of a kernel, which fill while its first groups are read. ``allocate`` returns the record of an
    allocation."""

    def __init__(self, repeats: operation_groups.Repeats, arguments: Sequence[DeviceBuffer | None],
                 allocate: Callable[[Any], DeviceBuffer]) -> None:
        self.repeats, self.allocate = repeats, allocate
        self.templates = {number: GroupTemplate(first) for number, first in repeats.firsts.items()}
        self.slots = {first.buffers[slot]: (number, slot) for number, first in repeats.firsts.items()
                      for slot in first.allocated}
        self.buffers: list[DeviceBuffer | None] = [None] * repeats.buffers          # buffers by their numbers
        for source, argument in zip(repeats.arguments, arguments):
            self.buffers[source.number] = argument
        self.done = 0                   # how many of the omitted operations have been written

    # -- the first groups ----------------------------------------------------------------------------------------------
    def note_buffer(self, operation: Operation, buffer: DeviceBuffer) -> None:
        """Record a buffer that the kernel allocates, or a new buffer of the first group."""
        if (source := self.allocation(operation)) is not None:
            self.buffers[source.number] = buffer
            if source in self.slots:
                number, slot = self.slots[source]
                self.templates[number].parts.append(slot)
        elif (position := position_of(operation)) in self.repeats.members:
            template, number = self.member(position)
            template.new.append(buffer)
            template.parts.append(NewBuffer(buffer, number))

    def note_instruction(self, operation: Operation, op: Op) -> None:
        """Record an instruction, if it belongs to the first group of a template."""
        if (position := position_of(operation)) not in self.repeats.members:
            return
        template, number = self.member(position)
        buffers = [*(self.buffers[source.number] for source in template.first.buffers), *template.new]
        slots = {buffer: slot for slot, buffer in enumerate(buffers) if buffer is not None}
        recognized, _ = recognize(operation)
        op.kind()                                           # copies share the memo
        tiles = list[tuple[str, Tile, int, int]]()
        clusters = template.clusters
        for (tile_field, tile), (_, unread) in zip(op.operands(), recognized.op.operands()):
            slot = slots.get(tile.handle)
            if slot is None:
                raise NoTemplate
            tiles.append((tile_field.name, tile.on(None, unread.label), slot, cluster_of(tile, slot, clusters)))
        left_out = template.first.number_left_out
        template.parts.append(StampedInstruction(op, tuple(tiles), number, () if left_out is None else tuple(
            [name for name, kind in op.attributes.items() if kind is float and getattr(op, name) == left_out])))

    def note_other(self, operation: Operation) -> None:
        """Raise ``NoTemplate`` if the first of a group became more than buffers and instructions."""
        if position_of(operation) in self.repeats.members:
            raise NoTemplate

    def member(self, position: int | None) -> tuple[GroupTemplate, int]:
        """Return the template of the group of an operation, and its number in the group."""
        assert position is not None
        template = self.templates[self.repeats.members[position]]
        positions = [operation.position for operation in template.first.operations]
        return template, positions.index(position)

    def allocation(self, operation: Operation) -> operation_groups.SourceBuffer | None:
        """Return the buffer of an allocation of the kernel."""
        position = position_of(operation)
        return None if position is None else self.repeats.allocations.get(position)

    def repeated_allocation(self, operation: Operation) -> DeviceBuffer | None:
        """Return the record of an allocation, if a repeated group before it wrote it."""
        source = self.allocation(operation)
        return None if source is None else self.buffers[source.number]

    # -- repeated groups -----------------------------------------------------------------------------------------------
    def write_in_front(self, operation: Operation, target_block: Block) -> None:
        """Write the records of the operations that were omitted before an operation."""
        position = self.repeats.before.get(operation)
        if position is None and (source := self.allocation(operation)) is not None:
            position = source.position
        if position is not None:
            self.write_until(position, target_block)

    def write_rest(self, target_block: Block) -> None:
        """Write the records of the operations that were omitted at the end of the function, and drop buffers that
        nothing uses."""
        if self.repeats.omitted:
            self.write_until(self.repeats.omitted[-1][0] + 1, target_block)
        self.drop_unused(target_block)

    def write_until(self, position: int, target_block: Block) -> None:
        """Write the records of the operations that were omitted up to a position."""
        omitted, buffers = self.repeats.omitted, self.buffers
        while self.done < len(omitted) and omitted[self.done][0] < position:
            _, item = omitted[self.done]
            self.done += 1
            if type(item) is operation_groups.OperationGroup:
                self.stamp(item, target_block)
            elif type(item) is operation_groups.SourceBuffer and buffers[item.number] is None:
                target_block.buffers.append(self.allocated(item))

    def allocated(self, source: operation_groups.SourceBuffer) -> DeviceBuffer:
        assert source.allocation is not None
        buffer = self.buffers[source.number] = self.allocate(source.allocation)
        return buffer

    def stamp(self, group: operation_groups.OperationGroup, target_block: Block) -> None:
        """Write the records of a repeated group."""
        template = self.templates[group.number]
        handles = [self.buffers[source.number] for source in group.buffers]
        locations = template.locations(group.operations, self.repeats.location)
        first = template.first.starts
        distances = () if group.starts == first else [start - before for start, before in zip(group.starts, first)]
        left_out = group.number_left_out
        if left_out is not None and not template.has_number:
            raise NoTemplate
        for part in template.parts:
            if type(part) is StampedInstruction:
                target_block.nodes.append(InstructionStep(stamped(part, handles, distances, template.tiles, left_out),
                                                  locations[part.operation]))
                continue
            if isinstance(part, int):
                buffer = handles[part] = self.allocated(group.buffers[part])
            else:
                assert isinstance(part, NewBuffer)
                buffer = new_buffer(part.like, locations[part.operation])
                handles.append(buffer)
            target_block.buffers.append(buffer)

    def drop_unused(self, body: Block) -> None:
        """Drop the buffers of repeated groups that no record uses, as dead code is erased."""
        if not any(template.unread for template in self.templates.values()):
            return
        unused = {self.buffers[group.buffers[slot].number] for group in self.repeats.repeated
                  for slot in self.templates[group.number].unread}
        unused.difference_update(tile.handle for node in nodes_in(body) for tile in tiles_of(node))
        body.buffers = [buffer for buffer in body.buffers if buffer not in unused]


def cluster_of(tile: Tile, slot: int, clusters: Sequence[PatternCluster]) -> int:
    """Return the number of the cluster of patterns with which a tile moves; -1 if its start is fixed."""
    numbers = [number for number, cluster in enumerate(clusters) if cluster.slot == slot]
    if not numbers:
        return -1
    if tile.dtype is not tile.base_dtype:
        raise NoTemplate                                    # its starts count elements of another size
    if len(numbers) > 1:
        low, high = (tile.access.free.const + end for end in reach_of(tile.access))
        numbers = [number for number in numbers if clusters[number].low <= low and high <= clusters[number].high]
        if not numbers:
            raise NoTemplate
    return numbers[0]


def stamped(instruction: StampedInstruction, handles: Sequence[DeviceBuffer | None], distances: Sequence[int],
            tiles: dict[tuple[Tile, DeviceBuffer, int], Tile], number: float | None) -> Op:
    """Return the operation of an instruction on these buffers. Tiles start at the template's starts, moved by the
    distances of their clusters, if there are any. ``tiles`` memoizes moved tiles. ``number``: that of the operation."""
    op = instruction.op
    copy = object.__new__(type(op))
    values = copy.__dict__ = op.__dict__.copy()
    for name, tile, slot, cluster in instruction.tiles:
        buffer = handles[slot]
        assert buffer is not None
        if distances and cluster >= 0 and (distance := distances[cluster]):
            key = tile, buffer, distance
            moved = tiles.get(key)
            if moved is None:
                moved = tiles[key] = started(tile, distance, buffer, buffer.name or tile.label)
            values[name] = moved
        else:
            values[name] = tile.on(buffer, buffer.name or tile.label)
    for name in instruction.numbers:
        values[name] = number
        values.pop(KIND, None)
    return copy


def new_buffer(like: DeviceBuffer, location: Location | None) -> DeviceBuffer:
    """Return another buffer like the one that the lowering allocates, without name and address."""
    return DeviceBuffer(like.name, like.space, like.shape, like.dtype, location=location)
