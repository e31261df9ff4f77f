# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups the operations of a captured kernel that are not MLIR yet, and writes only those that are lowered.

The capture shares a memo among operations that differ only in their buffers and starts, so that the form of most
operations is known without their attributes. Groups, and the copy without operations that repeat others, are those of
``repeated_operations``, which reads MLIR. Operations with masks, marks, symbols, or dtypes that MLIR lacks are left to
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_mlir.bindings import Attribute, Module, Operation, ir
from nki_mlir.conversion.movable_patterns import is_movable
from nki_mlir.conversion.operation_groups import (
    LOCAL,
    Groups,
    OperationForm,
    SourceBuffer,
    TileOperation,
)
from nki_mlir.conversion.repeated_operations import POSITION, LoweredOnce, ShortCopy, lowered_copy
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.late_operations import DelayedAllocation, DelayedOperation, LateOperations
from nki_mlir.dialects.op import NkiOp
from nki_mlir.dialects.source_locations import in_file
from nki_mlir.scalar.dtypes import BY_MLIR, DType

TOKEN = "form"                  # in the memo of an operation: an object that stands for the memo
Entry = DelayedAllocation | DelayedOperation


def lower_delayed(module: Module, kernel: KernelFunction, late: LateOperations) -> LoweredOnce | None:
    """Lower the operations of a module's only function to the nisa level, equal ones once. Return None if the complete
    module must be read: no operation is of the tile language or repeats another, or one must be MLIR."""
    with module.context, ir.Location.unknown():
        groups = DelayedGroups(kernel, late.entries)
        if groups.masked or not groups.firsts or not groups.above_nisa:
            return None
        return lowered_copy(DelayedCopy(module, groups, late), late.entries)


def is_known(dtype: DType) -> bool:
    """Return whether code reads the MLIR type of this dtype as this dtype: several dtypes may have one MLIR type."""
    return BY_MLIR.get(dtype.mlir) is dtype


Forms = dict[tuple[int, ...], OperationForm]                # by the movable starts


@dataclass(eq=False, slots=True)
class FormsOfMemo:
    """The forms of the operations that share a memo: by the other parts of their patterns that may differ, then by
    movable starts. ``moves``: whether the start of each tile is movable; ``moving``: the numbers of those tiles.
    ``last`` has the parts of the last operation, which mostly equal the next one's, and their forms."""

    moves: tuple[bool, ...]
    moving: tuple[int, ...]
    forms: dict[tuple[object, ...], Forms] = field(default_factory=dict)
    last: tuple[list[object], Forms] | None = None


class DelayedGroups(Groups):
    """Finds the groups of operations that are not MLIR yet. If one must be MLIR, they are ``masked`` and have no
    groups. ``above_nisa``: some are not instructions."""

    def __init__(self, kernel: KernelFunction, entries: Sequence[Entry]) -> None:
        self.above_nisa = False
        self.of_memo: dict[object, FormsOfMemo] = {}             # by token
        super().__init__(kernel, entries)

    def steps(self) -> list[TileOperation | SourceBuffer | None]:
        steps: list[TileOperation | SourceBuffer | None] = []
        buffers = self.buffers
        for position, entry in enumerate(self.operations):
            if type(entry) is DelayedAllocation:
                handle = entry.buffer.handle
                buffer = buffers[handle] = SourceBuffer(len(buffers), LOCAL, handle, entry, position)
                self.allocations[position] = buffer
                self.masked |= not is_known(entry.buffer.dtype)
                steps.append(buffer)
                continue
            form = self.form_of_entry(entry)
            if form is None or self.masked:
                self.masked = True
                return []
            used: list[SourceBuffer] = []
            for _, tile in entry.operands:
                handle = tile.handle
                source = buffers.get(handle)
                if source is None:              # an argument, by one of the objects that stand for its value
                    source = buffers[handle] = buffers[handle.value]
                source.users.append(position)
                used.append(source)
            steps.append(TileOperation(position, entry.at, form, used, ()))
        return steps

    def form_of_entry(self, entry: DelayedOperation) -> OperationForm | None:
        """Return the form of an operation; None if it must be MLIR."""
        op, operands, memo, marks, _ = entry
        if not memo or marks or op.symbols:
            return None
        of_memo = self.of_memo.get(memo.get(TOKEN))
        if of_memo is None:
            tiles = [tile for _, tile in operands]
            if not all(is_known(tile.dtype) and is_known(tile.base_dtype) for tile in tiles):
                return None
            self.above_nisa |= isinstance(op, NkiOp)
            can_move = tuple([is_movable(tile.access, tile.space, tile.base_shape, tile.base_dtype) for tile in tiles])
            of_memo = self.of_memo[memo.setdefault(TOKEN, object())] = FormsOfMemo(
                can_move, tuple([number for number, moves in enumerate(can_move) if moves]))
        parts: list[object] = []
        starts: list[int] = []
        for moves, (_, tile) in zip(of_memo.moves, operands):
            access = tile.access
            if moves:
                starts.append(access.free.const)
                parts.append(access.partition)
            else:
                parts.append(access)
        last = of_memo.last
        if last is None or last[0] != parts:
            last = of_memo.last = parts, of_memo.forms.setdefault(tuple(parts), {})
        forms, key = last[1], tuple(starts)
        form = forms.get(key)
        if form is None:
            form = next(iter(forms.values()), None) or self.form_of(op)
            at = tuple(zip(of_memo.moving, key))
            form = forms[key] = form if form.starts == at else form.starting(at)
        return form

    def location(self, at: Location) -> Location:
        return in_file(*at[:3], "")


class DelayedCopy(ShortCopy):
    """A copy of a kernel's module with the operations that are lowered. ``late`` writes them."""

    def __init__(self, source: Module, groups: DelayedGroups, late: LateOperations) -> None:
        self.late = late
        self.names: dict[str, Attribute] = {}
        super().__init__(source, groups)

    def function(self, function: Operation) -> None:
        super().function(function)
        ir.Operation.create("func.return", ip=self.end)

    def copy(self, operation: Entry, position: int | None) -> None:
        location = self.late.location(operation.at)
        if position is not None:
            location = ir.Location.name(f"{POSITION}{position}", location)
        if type(operation) is DelayedAllocation:
            op = self.late.write_allocation(operation, self.names, location, self.end)
            self.values[operation.buffer.handle] = op.result
        elif type(operation) is DelayedOperation:
            values = [self.values[self.groups.buffers[tile.handle].value] for _, tile in operation.operands]
            self.late.write_on(operation, values, location, self.end)
