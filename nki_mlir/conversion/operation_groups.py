# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of straight-line operations that are lowered together, and the keys that are equal for equal groups.

The instructions of an operation in the function's top block depend only on the parts of ``GroupKey`` and on the starts
of its patterns (all in HBM; in SBUF the patterns of parts of buffers). If these starts differ, the starts of the
instructions' patterns differ by the same distance. Two operations in a row may become one instruction if the first may
be a fold and nothing else uses its result: they are one group. An instruction is a group alone. Operations in loops and
branches, operations on views, and meetings of programs are lowered one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from nki_mlir.analysis.effects import VIEWS
from nki_mlir.bindings import Operation, Value, ir, operations_of
from nki_mlir.conversion.linalg_to_nisa import BETWEEN
from nki_mlir.conversion.movable_patterns import PatternCluster, clusters_of, outline_of, reach_of, without_starts
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.free_numbers import free_number
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.late_operations import DelayedAllocation
from nki_mlir.dialects.mlir_ops import OperationParts, parts_of, recognized
from nki_mlir.dialects.nisa.gpsimd_call import GpsimdCallOp
from nki_mlir.dialects.op import REGISTRY, Op, changed
from nki_mlir.dialects.source_locations import source_location
from nki_mlir.transforms.split_masked_loops import is_masked

LOCAL, ARGUMENT, ALIASED = range(3)     # where a buffer comes from; inputs that may alias others
NO_DISTANCES: tuple[tuple[int, int], ...] = ()


class GroupKey(NamedTuple):
    """The parts of a group of operations that determine its instructions.

    ``operations`` have the outline of each operation: its name, its attributes (access patterns, masks, limits,
    functions, engines, marks) and the types of its operands, without the starts that may differ (``is_movable``).
    ``slots`` says which operands are the same buffer. ``origins`` has the origin of each buffer; in a group of several
    operations also whether only they use a local buffer. ``symbols`` are the operands that are index values, by
    identity: their ranges count. ``allocated`` has the buffers that are allocated inside of the group, with the number
    of the next operation. ``distances`` has an entry for each start that may differ: the number of its cluster and the
    distance from the first start in it, or the start itself if another pattern of the buffer may not move. It is empty
    if each of these patterns is alone in its buffer. ``numbers``: in a group of several operations, those that outlines
    leave out.
    """

    operations: tuple[object, ...]
    slots: tuple[int, ...]
    origins: tuple[object, ...]
    symbols: tuple[Value, ...]
    allocated: tuple[tuple[int, int], ...]
    distances: tuple[tuple[int, int], ...]
    numbers: tuple[float, ...]


@dataclass(eq=False, slots=True)
class SourceBuffer:
    """A buffer of a function, by ``number``: an argument, or what ``allocation`` allocates at a position. ``origin`` is
    None for other values, and for buffers that have views. ``value`` stands for it in operations that are not copied
    yet. ``users``: the positions of operations that use it."""

    number: int
    origin: int | None = None
    value: object = None
    allocation: Operation | DelayedAllocation | None = None
    position: int = -1
    users: list[int] = field(default_factory=list)


class Outline:
    """The outline of an operation. Equal outlines are one object, so that keys compare fast."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass(eq=False, slots=True)
class OperationForm:
    """The common part of equal tile operations. ``outline`` does not depend on movable starts. ``starts`` has the
    movable starts by the number of the operand, ``reaches`` the distance that each of these patterns reaches from its
    start. ``numbers``: the free number of the operation, if it has one."""

    tiles: int
    outline: Outline
    starts: tuple[tuple[int, int], ...]
    reaches: tuple[tuple[int, int], ...]
    may_fold: bool
    stays: bool                 # is not grouped
    alone: bool                 # an instruction, which is grouped with no other operation
    numbers: tuple[float, ...] = ()

    def starting(self, starts: tuple[tuple[int, int], ...]) -> "OperationForm":
        """Return the form of an operation with other movable starts."""
        return OperationForm(self.tiles, self.outline, starts, self.reaches, self.may_fold, self.stays, self.alone,
                             self.numbers)


class TileOperation(NamedTuple):
    """A tile operation of the function's block, at a position. ``at``: its location, in the form of its level."""

    position: int
    at: ir.Location | Location
    form: OperationForm
    buffers: list[SourceBuffer]
    symbols: Sequence[Value]


@dataclass(eq=False, slots=True)
class OperationGroup:
    """Operations that are lowered together. ``buffers`` has the distinct buffers of their operands, ``slots`` the
    number of each operand's buffer, ``starts`` the start of each cluster of movable patterns."""

    operations: Sequence[TileOperation]
    buffers: list[SourceBuffer]
    slots: Sequence[int]
    starts: tuple[int, ...]
    allocated: tuple[int, ...]  # numbers of the buffers that are allocated inside of it
    number: int = 0             # of its key

    @property
    def clusters(self) -> list[PatternCluster]:
        return clusters_of(self.slots, *movable_patterns(self.operations))[0]

    @property
    def number_left_out(self) -> float | None:
        """The number of a single operation that its outline leaves out."""
        numbers = self.operations[0].form.numbers
        return numbers[0] if numbers and len(self.operations) == 1 else None


@dataclass(eq=False)
class Repeats:
    """The groups of a kernel that repeat others.

    ``firsts`` has the groups that stand for others, by number; ``members`` maps the position of each of their
    operations to the number of its group. ``omitted`` are the groups and the buffers that the lowered copy lacks, with
    their positions, in order; ``before`` has the operations of the copy that follow omitted ones, with the position up
    to which those precede it. ``arguments`` and ``allocations`` are the buffers of the function, in order and by
    position; ``buffers`` counts them all. ``source`` keeps the operations alive; ``location`` reads the location
    of one.
    """

    source: object
    location: Callable[[Any], Location | None]
    firsts: dict[int, OperationGroup]
    members: dict[int, int]
    omitted: list[tuple[int, OperationGroup | SourceBuffer]]
    before: dict[Operation, int]
    arguments: list[SourceBuffer]
    allocations: dict[int, SourceBuffer]
    buffers: int

    @property
    def repeated(self) -> list[OperationGroup]:
        return [item for _, item in self.omitted if isinstance(item, OperationGroup)]


class Groups:
    """Finds the groups of a function's block that become equal instructions.

    ``operations`` are those of the block, with their names. ``splits``: masks are not split yet. If an operation then
    has a mask, the block is ``masked`` and has no groups.
    """

    def __init__(self, kernel: KernelFunction, operations: Sequence[Any], splits: bool = True) -> None:
        self.function, self.operations = kernel.op, operations
        self.forms: dict[object, OperationForm] = {}            # by types and attributes
        self.moved: dict[object, OperationForm] = {}            # by types and attributes without starts that may differ
        self.outlines: dict[object, Outline] = {}
        self.buffers: dict[object, SourceBuffer] = {}           # by value
        self.arguments = [
            self.buffer(value, None if spec.kind == "program_id" else
                        ALIASED if kernel.may_alias and spec.kind == "input" else ARGUMENT)
            for value, spec in zip(kernel.op.regions[0].blocks[0].arguments, kernel.arguments)]
        self.allocations: dict[int, SourceBuffer] = {}          # by position
        self.by_key: dict[GroupKey, OperationGroup] = {}
        self.by_outline: dict[tuple[object, ...], OperationGroup] = {}   # of one operation (see ``is_known``)
        self.firsts: dict[int, OperationGroup] = {}             # groups that others repeat
        self.repeated: dict[int, OperationGroup] = {}           # by the position of their first operation
        self.omitted: set[int] = set()                          # positions of all operations in ``repeated``
        self.open: list[TileOperation] = []                     # operations that may be a group
        self.inside: list[tuple[int, SourceBuffer]] = []  # allocations, with the number of open operations before
        self.splits, self.masked = splits, False
        steps = self.steps()
        if not self.masked:
            self.group(steps)

    def buffer(self, value: object, origin: int | None) -> SourceBuffer:
        buffer = self.buffers[value] = SourceBuffer(len(self.buffers), origin, value)
        return buffer

    def buffers_of(self, values: Sequence[Value], position: int) -> list[SourceBuffer]:
        """Return the buffers that an operation uses."""
        used: list[SourceBuffer] = []
        buffers = self.buffers
        for value in values:
            buffer = buffers.get(value)
            if buffer is None:
                buffer = self.buffer(value, None)
            buffer.users.append(position)
            used.append(buffer)
        return used

    def steps(self) -> list[TileOperation | SourceBuffer | None]:
        """Return the tile operations and allocations in order, with None where a group must end; note the users of all
        buffers."""
        steps: list[TileOperation | SourceBuffer | None] = []
        viewed: list[SourceBuffer] = []
        for position, (op, name) in enumerate(self.operations):
            if name == "memref.alloc":
                buffer = self.buffer(op.results[0], LOCAL)
                buffer.allocation, buffer.position = op, position
                self.allocations[position] = buffer
                steps.append(buffer)
            elif name.startswith(("nki.", "nisa.")) and name in REGISTRY:
                form, operands = self.form(op)
                if self.masked:
                    return []
                used = self.buffers_of(operands[:form.tiles], position)
                steps.append(TileOperation(position, op.location, form, used, operands[form.tiles:]))
            else:
                for inner in operations_of(op, lambda name: True) if name.startswith("scf.") else (op,):
                    if self.splits and inner.name in REGISTRY and is_masked(inner):
                        self.masked = True
                        return []
                    used = self.buffers_of(inner.operands, position)
                    if inner.name in VIEWS:
                        viewed.append(used[0])
                if not name.startswith(BETWEEN):
                    steps.append(None)
        for buffer in viewed:
            buffer.origin = None
        return steps

    def form(self, op: Operation) -> tuple[OperationForm, list[Value]]:
        """Return the form of a tile operation, and its operands."""
        parts = parts_of(op)
        key = (*parts.types, *parts.attributes)
        form = self.forms.get(key)
        if form is None:
            moved_key, starts = without_starts(parts)
            form = self.moved.get(moved_key)
            if form is None:
                form = self.moved[moved_key] = self.new_form(op, parts)
            elif form.starts != starts:
                form = form.starting(starts)
            self.forms[key] = form
        return form, parts.operands

    def new_form(self, op: Operation, parts: OperationParts) -> OperationForm:
        self.masked |= self.splits and is_masked(op)
        return self.form_of(recognized(op, parts).op)

    def form_of(self, op: Op) -> OperationForm:
        number = free_number(op) if op.dialect == "nki" else None
        key, starts = outline_of(op if number is None else changed(op, None, **{number.field: number.standin}))
        tiles = [tile for _, tile in op.operands()]
        moving = [tiles[number] for number, _ in starts]
        alone = op.dialect == "nisa"
        # Starts of a pattern of another dtype count other elements than the starts in its buffer.
        stays = op.acts_outside or isinstance(op, GpsimdCallOp) or (
            alone and any(tile.dtype is not tile.base_dtype for tile in moving))
        return OperationForm(len(tiles), self.outlines.setdefault(key, Outline(op.full_name())), starts,
                             tuple([reach_of(tile.access) for tile in moving]), may_fold(op), stays, alone,
                             () if number is None else (number.float32,))

    def group(self, steps: Sequence[TileOperation | SourceBuffer | None]) -> None:
        for step in steps:
            if type(step) is TileOperation:
                form = step.form
                ends = form.alone or not form.may_fold
                if self.open and (form.alone or not self.continues(step)):
                    self.close()
                if not (ends and not self.open and self.is_known(step)):
                    self.open.append(step)
                    if ends:
                        self.close()
            elif type(step) is SourceBuffer:
                if self.open:
                    self.inside.append((len(self.open), step))
            else:
                self.close()
        self.close()

    def continues(self, step: TileOperation) -> bool:
        """Return whether an operation reads a buffer that only it and the previous operation use."""
        last = self.open[-1]
        members = last.position, step.position
        return any(buffer.origin == LOCAL and buffer in last.buffers and all(user in members for user in buffer.users)
                   for buffer in step.buffers)

    def close(self) -> None:
        """End the group of the open operations; note whether it repeats one."""
        operations, inside = self.open, self.inside
        if not operations:
            return
        self.open, self.inside = [], []
        if len(operations) == 1 and self.is_known(operations[0]):
            return
        if any([operation.form.stays for operation in operations]):
            return
        used = [buffer for operation in operations for buffer in operation.buffers]
        symbols = tuple([symbol for operation in operations for symbol in operation.symbols])
        numbers = {buffer: number for number, buffer in enumerate(dict.fromkeys(used))}
        buffers = list(numbers)
        between = [(number, buffer) for number, buffer in inside if number < len(operations)]
        origins = origins_of(operations, buffers)
        if None in origins or any(buffer not in numbers for _, buffer in between):
            return
        allocated = tuple([(number, numbers[buffer]) for number, buffer in between])
        starts, reaches = movable_patterns(operations)
        cluster_starts, distances = tuple([start for _, start in starts]), NO_DISTANCES
        slots: Sequence[int] = range(len(used))
        if len(buffers) < len(used):                    # several operands are in one buffer
            slots = [numbers[buffer] for buffer in used]
            if starts:
                clusters, distances = clusters_of(slots, starts, reaches)
                cluster_starts = tuple([cluster.start for cluster in clusters])
        operations_with_numbers = operations if len(operations) > 1 else ()
        left_out = tuple([number for operation in operations_with_numbers for number in operation.form.numbers])
        group = OperationGroup(operations, buffers, slots, cluster_starts, tuple([number for _, number in allocated]))
        self.insert(group, GroupKey(tuple([operation.form.outline for operation in operations]), tuple(slots), origins,
                                   symbols, allocated, distances, left_out))

    def insert(self, group: OperationGroup, key: GroupKey) -> None:
        """Enter a group by its key, or note that it repeats another one."""
        first = self.by_key.setdefault(key, group)
        operation = group.operations[0]
        if len(group.operations) == 1 and len(group.buffers) == len(group.slots) and not operation.symbols:
            self.by_outline.setdefault((operation.form.outline, *[buffer.origin for buffer in group.buffers]), first)
        if first is group:
            group.number = len(self.by_key)
        else:
            self.repeat(group, first)

    def is_known(self, operation: TileOperation) -> bool:
        """Return whether a single operation repeats an earlier one, and note it. The operation must have no index
        values, and each operand in another buffer: its key then has only the outline and the origins."""
        _, _, form, used, symbols = operation
        first = self.by_outline.get((form.outline, *[buffer.origin for buffer in used]))
        if first is None or symbols or form.stays or len(set(used)) < len(used):
            return False
        self.repeat(OperationGroup((operation,), used, first.slots, tuple([start for _, start in form.starts]), ()),
                    first)
        return True

    def repeat(self, group: OperationGroup, first: OperationGroup) -> None:
        """Note that a group repeats ``first``, which has an equal key."""
        group.number = first.number
        self.firsts[first.number] = first
        self.repeated[group.operations[0].position] = group
        self.omitted.update([operation.position for operation in group.operations])

    def location(self, at: Any) -> Location | None:
        """Return the location of an operation from the form of its level."""
        return source_location(at)

    def is_omitted(self, buffer: SourceBuffer) -> bool:
        """Return whether operations use a buffer, and each of these operations repeats another one."""
        return bool(buffer.users) and self.omitted.issuperset(buffer.users)

    def repeats(self, source: object, before: dict[Operation, int]) -> Repeats:
        omitted: list[tuple[int, OperationGroup | SourceBuffer]] = list(self.repeated.items())
        omitted += [item for item in self.allocations.items() if self.is_omitted(item[1])]
        omitted.sort(key=itemgetter(0))
        members = {operation.position: number for number, group in self.firsts.items()
                   for operation in group.operations}
        return Repeats(source, self.location, self.firsts, members, omitted, before, self.arguments, self.allocations,
                       len(self.buffers))


def origins_of(operations: Sequence[TileOperation], buffers: Sequence[SourceBuffer]) -> tuple[object, ...]:
    """Return the origins of a group's buffers; if it has several operations, also whether only they use a local buffer.
    """
    if len(operations) == 1:
        return tuple([buffer.origin for buffer in buffers])
    members = {operation.position for operation in operations}
    return tuple([(LOCAL, members.issuperset(buffer.users)) if buffer.origin == LOCAL else buffer.origin
                  for buffer in buffers])


def movable_patterns(operations: Sequence[TileOperation]
                     ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return the movable starts of operations, and the reaches of their patterns. Operands are numbered through all
    operations."""
    form = operations[0].form
    if len(operations) == 1:
        return form.starts, form.reaches
    starts: list[tuple[int, int]] = []
    reaches: list[tuple[int, int]] = []
    count = 0
    for operation in operations:
        starts += [(count + number, start) for number, start in operation.form.starts]
        reaches += operation.form.reaches
        count += len(operation.buffers)
    return tuple(starts), tuple(reaches)


def may_fold(op: Op) -> bool:
    """Return whether the last nest that an operation becomes may be a fold; such a fold may write the target of the
    copy that the next operation makes."""
    if not op.is_loop_nest or len(op.targets()) > 1:
        return True
    try:
        return bool(op.iteration().reduced)
    except NkiMlirError:
        return True
