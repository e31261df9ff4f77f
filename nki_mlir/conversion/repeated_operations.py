# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lower each distinct operation of straight-line code once, even if a kernel has many equal ones.

A kernel that was unrolled has the same few tile operations on thousands of buffers. ``lower_once`` walks the function
once, groups its operations (``operation_groups.py``), and lowers a copy without those that repeat others: the copy is
short, and so are the walks of the passes. The location of each operation in the copy names its position in the
function, and so do the locations of the operations that it is lowered to: the reader of records
(``targets/neuron/codegen/mlir_records.py``) keeps the records of the first of equal operations as a template, from
which it writes the records of the omitted ones at their positions. While the copy is lowered, a call replaces a
sequence of omitted operations: nothing is fused across it, and it uses the buffers that they share with operations of
the copy.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from nki_mlir.analysis.effects import END_OF_MEMORY
from nki_mlir.bindings import Module, Operation, Value, cloned, ir, operations_of
from nki_mlir.conversion.operation_groups import Groups, OperationGroup, Repeats
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.passes.pipelines import TO_NISA, passes_to
from nki_mlir.transforms.verify_target import VerifiedInstruction, VerifyTarget, verified

POSITION = "nki.position: "     # prefix of the location that names the position of an operation in its function
OMITTED = "omitted"             # the function in calls that replace omitted operations
TILE_OPERATIONS = "nki.", "nisa.", "memref."        # without regions


class LoweredOnce(NamedTuple):
    """A module at the nisa level, without the operations that repeat others, and its instructions as they were read
    when they were verified."""

    module: Module
    repeats: Repeats | None
    instructions: list[VerifiedInstruction]


def lower_once(module: Module) -> LoweredOnce:
    """Lower a copy of a module to the nisa level. The copy has only the first of equal operations. A module that is at
    this level is not copied."""
    with module.context, ir.Location.unknown():
        contents = ModuleContents(module)
        *passes, verification = passes_to("nisa", module, contents.names)
        assert isinstance(verification, VerifyTarget)
        if not passes:
            return LoweredOnce(module, None, verified(module))
        names = tuple(lowering_pass.name for lowering_pass in (*passes, verification))
        if names != TO_NISA or len(contents.functions) != 1 or not all(map(Level.NKI.allows, contents.names)):
            copy = cloned(module)
            run_passes(copy, passes)
            return LoweredOnce(copy, None, verified(copy))
        source, groups = module, Groups(kernel_functions(module)[0], contents.functions[0])
        if groups.masked:
            source = cloned(module)
            run_passes(source, passes[:1])
            groups = Groups(kernel_functions(source)[0], ModuleContents(source).functions[0], splits=False)
        if not groups.firsts:
            copy = cloned(source) if source is module else source
            run_passes(copy, passes[1:])
            return LoweredOnce(copy, None, verified(copy))
        return lowered_copy(ShortCopy(source, groups), source)


def lowered_copy(short: "ShortCopy", source: object) -> LoweredOnce:
    """Lower a copy with the first of equal operations. ``source`` keeps the other ones alive."""
    run_passes(short.module, [pass_named(name) for name in TO_NISA[1:-1]])
    instructions = verified(short.module)
    return LoweredOnce(short.module, short.groups.repeats(source, short.erase_calls()), instructions)


class ModuleContents:
    """The ``names`` of all operations of a module, and the operations of each function's own block with their names."""

    def __init__(self, module: Module) -> None:
        self.names = {"builtin.module"}
        self.functions: list[list[tuple[Operation, str]]] = []
        for op in module.body.operations:
            operation = op.operation
            if operation.name == "func.func" and len(operation.regions[0].blocks):
                self.functions.append(self.block(operation))
            else:
                operations_of(operation, self.names.add)

    def block(self, function: Operation) -> list[tuple[Operation, str]]:
        # A view of an operation may have a field called name.
        operations = [(op, op.name) for op in [view.operation for view in function.regions[0].blocks[0].operations]]
        self.names.update({function.name, *(name for _, name in operations)})
        for op, name in operations:
            if not name.startswith(TILE_OPERATIONS) and len(op.regions):
                operations_of(op, self.names.add)
        return operations


# -- the copy that is lowered ------------------------------------------------------------------------------------------
class ShortCopy:
    """A copy of a module without the operations that repeat others, and the buffers that only they use."""

    def __init__(self, source: Module, groups: Groups) -> None:
        self.groups = groups
        self.members = {operation.position for group in groups.firsts.values() for operation in group.operations}
        self.module = ir.Module.create(source.operation.location)
        for name, attribute in source.operation.attributes.items():
            self.module.operation.attributes[name] = attribute
        self.calls: dict[Operation, int] = {}           # by the position of the operation that follows
        self.values: dict[object, Value] = {}           # the values of the copy, by those of the operations
        self.end = ir.InsertionPoint(self.module.body)
        for op in source.body.operations:
            if op.operation == groups.function:
                self.function(groups.function)
            else:
                op.operation.clone(ip=self.end)

    def function(self, function: Operation) -> None:
        groups, block = self.groups, function.regions[0].blocks[0]
        copy = ir.Operation.create("func.func", attributes=dict(function.attributes.items()), regions=1,
                                   loc=function.location, ip=self.end)
        types, locations = [a.type for a in block.arguments], [a.location for a in block.arguments]
        self.values.update(zip(block.arguments, copy.regions[0].blocks.append(*types, arg_locs=locations).arguments))
        self.end = ir.InsertionPoint(copy.regions[0].blocks[0])
        omitted: list[OperationGroup] = []          # since the last operation that is copied
        for position, operation in enumerate(groups.operations):
            if position in groups.omitted:
                if (group := groups.repeated.get(position)) is not None:
                    omitted.append(group)
            elif (buffer := groups.allocations.get(position)) is None:
                if omitted:
                    self.calls[self.call(omitted)] = position
                    omitted = []
                self.copy(operation, position if position in self.members else None)
            elif not groups.is_omitted(buffer):
                self.copy(operation, position)

    def copy(self, operation: Any, position: int | None) -> None:
        """Copy an operation of the groups. The location of the copy names a position."""
        op, _ = operation
        copy = op.clone(ip=self.end).operation
        if position is not None:
            copy.location = ir.Location.name(f"{POSITION}{position}", op.location)
        for inner in operations_of(copy, lambda name: True):
            operands = inner.operands
            for number, value in enumerate(operands):
                if (copied := self.values.get(value)) is not None:
                    operands[number] = copied
        self.values.update(zip(op.results, copy.results))

    def call(self, omitted: Sequence[OperationGroup]) -> Operation:
        """Write a call in place of the omitted operations."""
        used = {buffer.value: None for group in omitted for buffer in group.buffers if buffer.allocation is not None}
        operands = [self.values[value] for value in used if value in self.values]
        callee = ir.FlatSymbolRefAttr.get(OMITTED)
        return ir.Operation.create("func.call", operands=operands, attributes={"callee": callee}, ip=self.end)

    def erase_calls(self) -> dict[Operation, int]:
        """Erase the calls. Return the operations after them, each with the position up to which operations before
        it are omitted."""
        before: dict[Operation, int] = {}
        position: int | None = None
        for op, _ in ModuleContents(self.module).functions[0]:
            if op in self.calls:
                position = self.calls[op]
            elif position is not None and op.name != END_OF_MEMORY:
                before[op], position = position, None
        for call in self.calls:
            call.erase()
        return before


def position_of(operation: Operation) -> int | None:
    """Return the position in the function that the location of an operation names."""
    location = operation.location
    if isinstance(location, ir.NameLoc) and location.name_str.startswith(POSITION):
        return int(location.name_str.removeprefix(POSITION))
    return None
