# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the records of operations that repeat others, from templates.

``conversion/repeated_operations.py`` lowers the first of equal operations. ``Templates`` notes the buffers and the
instructions that its operations became, as functions of their buffers, and writes those of a repeated group: each
instruction is a copy of one record, with other buffers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from nki_mlir.bindings import Operation, Value
from nki_mlir.conversion.repeated_operations import OperationGroup, Repeats, group_named, started
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.mlir_ops import recognize
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.targets.neuron.codegen.records import Block, DeviceBuffer, InstructionStep, nodes_in, tiles_of


class NoTemplate(Exception):
    """An operation became something else than instructions on its buffers and on new ones."""


class NewBuffer(NamedTuple):
    """A buffer that each group allocates; ``operation``: the number of the operation that it belongs to."""

    like: DeviceBuffer
    operation: int


class StampedInstruction(NamedTuple):
    """An instruction whose symbols have their values, with where the buffer of each of its tiles is found."""

    op: Op
    tiles: tuple[tuple[str, Tile, int], ...]
    operation: int


@dataclass(eq=False)
class GroupTemplate:
    """What a group becomes. Numbers stand for the buffers of the group and, behind them, for new ones: ``count`` in
    all. A part that is a number is a buffer of the group that is allocated there. ``starts``: where the patterns of the
    first group's buffers in HBM start, which those of others are moved from."""

    numbers: dict[Value, int]
    count: int
    starts: dict[int, int]
    parts: list[NewBuffer | StampedInstruction | int] = field(default_factory=list)

    @cached_property
    def used(self) -> frozenset[int]:
        """The numbers of the group's buffers that an instruction uses."""
        return frozenset(slot for part in self.parts if type(part) is StampedInstruction for _, _, slot in part.tiles)


class Templates:
    """The templates of a kernel, which fill while its first groups are read."""

    def __init__(self, repeats: Repeats) -> None:
        self.repeated = repeats.repeated
        self.inner = repeats.inner
        self.templates = {number: GroupTemplate(dict(first.numbers), len(first.numbers) + first.erased, first.starts)
                          for number, first in repeats.firsts.items()}
        self.allocated = {value: (number, slot) for number, first in repeats.firsts.items()
                          for value, slot in first.allocations.items()}
        self.allocated_early: set[Operation] = set()        # allocations inside of groups that have their records

    # -- the first groups ----------------------------------------------------------------------------------------------
    def note_buffer(self, op: Operation, buffer: DeviceBuffer) -> None:
        """Note a buffer that belongs to the first of a group: a new one, or one that the kernel allocates."""
        result = op.results[0]
        if result in self.allocated:
            number, slot = self.allocated[result]
            self.templates[number].parts.append(slot)
        elif (named := group_named(op.location)) is not None:
            number, operation = named
            template = self.templates[number]
            template.numbers[result] = template.count
            template.count += 1
            template.parts.append(NewBuffer(buffer, operation))

    def note_instruction(self, operation: Operation, op: Op) -> None:
        """Note an instruction, if it belongs to the first of a group."""
        if (named := group_named(operation.location)) is None:
            return
        number, position = named
        template = self.templates[number]
        recognized, operands = recognize(operation)
        tiles = list[tuple[str, Tile, int]]()
        for (tile_field, tile), (_, unread), value in zip(op.operands(), recognized.op.operands(), operands):
            if value not in template.numbers:
                raise NoTemplate
            if template.numbers[value] in template.starts and tile.dtype is not tile.base_dtype:
                raise NoTemplate                            # its starts count other elements
            tiles.append((tile_field.name, tile.on(None, unread.label), template.numbers[value]))
        template.parts.append(StampedInstruction(op, tuple(tiles), position))

    # -- repeated groups -----------------------------------------------------------------------------------------------
    def stamp(self, group: OperationGroup, buffers: Mapping[object, DeviceBuffer],
              allocate: Callable[[Operation], DeviceBuffer], into: Block) -> None:
        """Write the records of a repeated group."""
        handles: list[DeviceBuffer | None] = [buffers.get(value) for value in group.buffers]
        locations = [location_of(op) for op in group.operations]
        template = self.templates[group.number]
        distances = {slot: distance for slot, start in group.starts.items()
                     if (distance := start - template.starts[slot])}
        for part in template.parts:
            if type(part) is StampedInstruction:
                into.nodes.append(InstructionStep(stamped(part, handles, distances), locations[part.operation]))
                continue
            if isinstance(part, int):
                self.allocated_early.add(group.allocations[part])
                buffer = handles[part] = allocate(group.allocations[part])
            else:
                assert isinstance(part, NewBuffer)
                buffer = new_buffer(part.like, locations[part.operation])
                handles.append(buffer)
            into.buffers.append(buffer)

    def drop_unused(self, body: Block, buffers: Mapping[object, DeviceBuffer]) -> None:
        """Drop the buffers of repeated groups that no record uses, as dead code is erased."""
        unused = set[DeviceBuffer]()
        for group in self.repeated.values():
            read = self.templates[group.number].used
            if not read.issuperset(range(len(group.buffers))):
                unused.update(buffers[value] for slot, value in enumerate(group.buffers)
                              if slot not in read and value in buffers)
        if unused:
            unused.difference_update(tile.handle for node in nodes_in(body) for tile in tiles_of(node))
            body.buffers = [buffer for buffer in body.buffers if buffer not in unused]


def stamped(instruction: StampedInstruction, handles: Sequence[DeviceBuffer | None], distances: Mapping[int, int]
            ) -> Op:
    """Return the operation of an instruction on these buffers, in which tiles start behind those of the template by
    these distances."""
    op = instruction.op
    copy = object.__new__(type(op))
    values = copy.__dict__
    values.update(op.__dict__)
    for name, tile, slot in instruction.tiles:
        buffer = handles[slot]
        assert buffer is not None
        if slot in distances:
            tile = started(tile, distances[slot])
        values[name] = tile.on(buffer, buffer.name or tile.label)
    copy.extra = dict(op.extra)
    return copy


def new_buffer(like: DeviceBuffer, location: Location | None) -> DeviceBuffer:
    """Return another buffer as the lowering allocates it: it has no name and no address."""
    return DeviceBuffer(like.name, like.space, like.shape, like.dtype, location=location)
