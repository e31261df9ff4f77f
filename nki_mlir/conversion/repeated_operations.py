# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lower each distinct operation of straight-line code once, however many equal ones a kernel has.

A kernel that was unrolled has the same few tile operations on thousands of buffers. ``lower_once`` lowers the first of
equal operations and leaves the others as they are. Its location names its group, and so do the locations of all that it
becomes: the reader of records (``targets/neuron/codegen/mlir_records.py``) notes these as a template, and writes the
records of the other operations from it.

What an operation of the function's own block becomes depends on the parts of ``GroupKey`` alone, apart from where its
patterns start in tensors in HBM: those of its instructions are moved by the same distance. Two operations in a row may
become one instruction where the first may be a fold and nothing else uses its result: these are one group. Operations
in loops and branches, operations on views, and those that programs meet at are lowered one by one.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nki_mlir.analysis.effects import VIEWS
from nki_mlir.bindings import Module, Operation, Value, cloned, ir
from nki_mlir.conversion.linalg_to_nisa import BETWEEN
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, Tile
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.dialects.mlir_ops import Known, recognize
from nki_mlir.dialects.op import REGISTRY, Op, changed
from nki_mlir.passes.levels import IllegalAtLevel, Level
from nki_mlir.passes.pass_manager import Pass, run_passes
from nki_mlir.passes.pipelines import TO_LINALG, TO_NISA, passes_to
from nki_mlir.progress import phase
from nki_mlir.waist.builder import lower_operations

NAME = "nki.group: "            # prefix of the location that names the group of an operation, and its number in it
LOCAL, ARGUMENT, ALIASED = range(3)     # where a buffer comes from; inputs that may alias others


class GroupKey(NamedTuple):
    """What decides what a group of operations becomes.

    ``operations`` have the name of each operation, its attributes (access patterns, masks, limits, functions, engines,
    marks) and the types of its operands, without where patterns start in HBM. ``slots`` says which operands are one
    buffer. ``origins`` has for each buffer where it comes from, and for a local one of several operations whether they
    alone use it. ``symbols`` are the index values that operands are, by identity: their ranges count. ``allocated`` has
    the buffers that are allocated inside of the group, with the number of the operation that comes next.
    """

    operations: tuple[object, ...]
    slots: tuple[int, ...]
    origins: tuple[object, ...]
    symbols: tuple[Value, ...]
    allocated: tuple[tuple[int, int], ...]


@dataclass(eq=False, slots=True)
class OperationGroup:
    """Operations that are lowered together. ``buffers`` has the distinct buffers of their operands, ``allocations`` the
    operations inside of the group that allocate some of them, by their number among these. ``starts``: where the
    patterns of those in HBM start.
    """

    operations: list[Operation]
    buffers: list[Value]
    allocations: dict[int, Operation]
    starts: dict[int, int]
    number: int = 0             # of its key


class FirstGroup(NamedTuple):
    """A group that was lowered for others: the numbers of its buffers, without those that nothing used any more and
    that are ``erased``, which of them it allocates, and where the patterns of those in HBM start."""

    numbers: dict[Value, int]
    erased: int
    allocations: dict[Value, int]
    starts: dict[int, int]


@dataclass(eq=False)
class Repeats:
    """The groups of a kernel. ``firsts`` has those that were lowered for others, by number; ``repeated`` those that
    equal one of them, by their first operation; ``inner`` all operations of these but the first."""

    firsts: dict[int, FirstGroup] = field(default_factory=dict)
    repeated: dict[Operation, OperationGroup] = field(default_factory=dict)
    inner: set[Operation] = field(default_factory=set)


class Outline(NamedTuple):
    """What of an operation does not depend on where its tiles start in HBM, and the starts of its tiles in HBM."""

    key: object
    starts: tuple[int | None, ...]


class LoweredOnce(NamedTuple):
    """A module at the nisa level, but for the operations that repeat others."""

    module: Module
    repeats: Repeats | None


def lower_once(module: Module) -> LoweredOnce:
    """Lower a copy of a module to the nisa level; only the first of equal operations."""
    with module.context, ir.Location.unknown():
        copy = cloned(module)
        passes = passes_to("nisa", copy)
        if tuple(one.name for one in passes) != TO_NISA:
            run_passes(copy, passes)
            return LoweredOnce(copy, None)
        run_passes(copy, passes[:1])
        kernels = kernel_functions(copy)
        if len(kernels) != 1:
            run_passes(copy, passes[1:])
            return LoweredOnce(copy, None)
        groups = Groups(kernels[0])
        repeats = groups.repeats
        waiting = {*repeats.repeated, *repeats.inner}
        with phase(f"pass {TO_LINALG[-1]}"):
            lower_operations(copy, "nki", waiting)
        for one in passes[len(TO_LINALG):]:
            with phase(f"pass {one.name}"):
                one.run(copy)
        check_lowered(copy, waiting, passes[-1])
        groups.note_firsts()
        return LoweredOnce(copy, repeats)


def check_lowered(module: Module, waiting: Container[Operation], last: Pass) -> None:
    """Check that all operations are at the nisa level but for those that repeat others."""
    for op in top_level(module.operation, lambda name: not Level.NISA.allows(name), nested=True):
        if op not in waiting:
            raise IllegalAtLevel(op=op.name, level=Level.NISA.title, when=f"after {last.name}")


def top_level(root: Operation, accepts: Callable[[str], object], nested: bool = False) -> list[Operation]:
    """Return the operations of a function's block for whose names ``accepts`` returns true; ``nested``: of all."""
    operations: list[Operation] = []
    into = ("builtin.module", "func.func")

    def visit(view: Operation) -> ir.WalkResult:
        op = view.operation
        name = op.name
        if accepts(name):
            operations.append(op)
        return ir.WalkResult.ADVANCE if nested or name in into or not name.startswith("scf.") else ir.WalkResult.SKIP
    root.walk(visit, ir.WalkOrder.PRE_ORDER)
    return operations


# -- groups ------------------------------------------------------------------------------------------------------------
class Groups:
    """Finds the groups of operations of a function's block that become the same, and names the locations of the first
    ones."""

    def __init__(self, kernel: KernelFunction) -> None:
        self.function = kernel.op
        block = kernel.op.regions[0].blocks[0]
        self.origins: dict[Value, int] = {
            value: ALIASED if kernel.may_alias and spec.kind == "input" else ARGUMENT
            for value, spec in zip(block.arguments, kernel.arguments) if spec.kind != "program_id"}
        self.viewed: set[Value] = {op.operands[0] for op in top_level(kernel.op, lambda name: name in VIEWS, True)}
        self.folds: dict[Known, bool] = {}
        self.outlines: dict[Known, Outline] = {}
        self.repeats = Repeats()
        self.by_key: dict[GroupKey, OperationGroup] = {}
        self.firsts: dict[int, OperationGroup] = {}          # that others repeat
        self.open: list[tuple[Operation, Known, list[Value]]] = []      # operations that may be a group
        self.allocations: list[tuple[int, Operation]] = []              # behind so many of these
        for op in top_level(kernel.op, lambda name: True)[1:]:
            self.add(op)
        self.close()

    def add(self, op: Operation) -> None:
        name = op.name
        if name == "memref.alloc":
            self.origins[op.results[0]] = LOCAL
            if self.open:
                self.allocations.append((len(self.open), op))
        elif name.startswith("nki.") and name in REGISTRY:
            recognized, operands = recognize(op)
            if self.open and not self.continues(op, operands):
                self.close()
            self.open.append((op, recognized, operands))
            if not self.may_fold(recognized):
                self.close()
        elif not name.startswith(BETWEEN):
            self.close()

    def may_fold(self, recognized: Known) -> bool:
        """Whether the last that an operation becomes may be a fold."""
        if recognized not in self.folds:
            self.folds[recognized] = may_fold(recognized.op)
        return self.folds[recognized]

    def continues(self, op: Operation, operands: Sequence[Value]) -> bool:
        """Whether an operation reads what only it and the one before it use."""
        last, _, written = self.open[-1]
        return any(value in written and self.origins.get(value) == LOCAL and used_by(value, (last, op))
                   for value in operands)

    def close(self) -> None:
        """End the group of the open operations; note whether it repeats one."""
        if not self.open:
            return
        operations = [op for op, _, _ in self.open]
        buffers: dict[Value, int] = {}
        slots, symbols, starts = list[int](), list[Value](), list[int | None]()
        keys: list[object] = []
        stays = False
        for _, recognized, operands in self.open:
            tiles = len(recognized.op.operands())
            slots += [buffers.setdefault(value, len(buffers)) for value in operands[:tiles]]
            symbols += operands[tiles:]
            stays |= recognized.op.acts_outside
            outline = self.outlines.get(recognized)
            if outline is None:
                outline = self.outlines[recognized] = outline_of(recognized.op)
            keys.append(outline.key)
            starts += outline.starts
        origins: list[object] = [self.origins.get(value) for value in buffers]
        stays |= None in origins or any(value in self.viewed for value in buffers)
        allocated = [(number, op) for number, op in self.allocations if number < len(operations)]
        if len(operations) > 1:
            for value, number in buffers.items():
                if origins[number] == LOCAL:
                    origins[number] = LOCAL, used_by(value, operations)
            stays |= any(op.results[0] not in buffers for _, op in allocated)
        in_hbm = {slot: start for slot, start in zip(slots, starts) if start is not None}
        stays |= any(slots.count(slot) > 1 for slot in in_hbm)          # its patterns may overlap
        self.open.clear()
        self.allocations.clear()
        if stays:
            return
        positions = [(number, buffers[op.results[0]]) for number, op in allocated]
        group = OperationGroup(operations, list(buffers),
                               {slot: op for (_, slot), (_, op) in zip(positions, allocated)},
                               in_hbm)
        key = GroupKey(tuple(keys), tuple(slots), tuple(origins), tuple(symbols), tuple(positions))
        first = self.by_key.setdefault(key, group)
        if first is group:
            group.number = len(self.by_key)
            return
        group.number = first.number
        if first.number not in self.firsts:
            self.firsts[first.number] = first
            name_group(first)
        self.repeats.repeated[operations[0]] = group
        self.repeats.inner.update(operations[1:])

    def note_firsts(self) -> None:
        """Note the buffers of the first groups when these are lowered. What was erased is compared, not looked at."""
        values = {*self.function.regions[0].blocks[0].arguments,
                  *(op.results[0] for op in top_level(self.function, lambda name: name == "memref.alloc", nested=True))}
        for number, group in self.firsts.items():
            numbers = {value: k for k, value in enumerate(group.buffers) if value in values}
            inside = {group.buffers[slot]: slot for slot in group.allocations}
            self.repeats.firsts[number] = FirstGroup(numbers, len(group.buffers) - len(numbers),
                                                     {value: inside[value] for value in numbers if value in inside},
                                                     group.starts)
        self.firsts, self.by_key = {}, {}


def outline_of(op: Op) -> Outline:
    """Return the outline of an operation."""
    starts = tuple([tile.access.free.const if tile.space == HBM else None for _, tile in op.operands()])
    if any(starts):
        op = changed(op, lambda tile: started(tile, -tile.access.free.const) if tile.space == HBM else tile)
    return Outline((op.outline(), op.mask, op.limits, tuple(op.extra.items())), starts)


def started(tile: Tile, distance: int, handle: object = None) -> Tile:
    """Return a tile in HBM, or one of another tensor, that starts behind it by so many elements."""
    access = tile.access
    return tile.starting(handle, replace(access, free=replace(access.free, const=access.free.const + distance)))


def name_group(group: OperationGroup) -> None:
    """Let the locations of the operations name the group, and their number in it."""
    for number, op in enumerate(group.operations):
        op.location = ir.Location.name(f"{NAME}{group.number} {number}", op.location)


def group_named(location: ir.Location) -> tuple[int, int] | None:
    """Return the number of the group that a location names, and that of the operation in it."""
    if isinstance(location, ir.NameLoc) and location.name_str.startswith(NAME):
        group, number = location.name_str.removeprefix(NAME).split()
        return int(group), int(number)
    return None


def may_fold(op: Op) -> bool:
    """Whether the last nest that an operation becomes may be a fold, which may write what the next operation copies."""
    if not op.is_loop_nest or len(op.targets()) > 1:
        return True
    try:
        return bool(op.iteration().reduced)
    except NkiMlirError:
        return True


def used_by(buffer: Value, operations: Sequence[Operation]) -> bool:
    """Whether only these operations use a buffer."""
    return all(use.owner.operation in operations for use in buffer.uses)
