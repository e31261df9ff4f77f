# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Merges the modules of a launch's programs that differ only in the starts of their tiles and indices.

before:  "nki.load"(%t, %x) row 0           after:  "nki.load"(%t, %x, %program_id) row program_id
         "nki.load"(%t, %x) row 1, of program 1

The current generation runs a kernel's Python once for each program, so that each has its own module.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from nki_mlir.analysis.repeats import Item, Steps
from nki_mlir.bindings import Attribute, Module, Operation, Value, cloned, ir, operations_of
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.nisa.meeting import SendrecvOp
from nki_mlir.dialects.source_locations import is_mlir_text
from nki_mlir.printing.index_text import IndexText
from nki_mlir.printing.program_branches import Program, aligned, steps_of, write_branches
from nki_mlir.transforms.loop_over_programs import reduces_programs
from nki_mlir.transforms.roll_repeats import OperationItems, move_starts

RANKS = ("send_to", "receive_from")             # the cores that an exchange names
CONSTANT = "memref.global"                      # the definition of a constant
RANK_STEPS = "nki.rank_steps"                   # the distance by which each core of RANKS moves to the next program


def merged_programs(modules: Sequence[Module]) -> list[Module]:
    """Return one module for all programs of a launch with one axis, or the same modules if their programs differ
    otherwise. In the module of two programs, branches have what only one of them does."""
    if len(modules) < 2 or the_kernel(modules[0]).grid != (len(modules),) or (
            len(set(map(_text_around_function, modules))) > 1):
        return list(modules)
    copies = [cloned(module) for module in modules]
    merged = copies[0]
    with merged.context, ir.Location.unknown():
        _share_constants(copies)
        _move_ranks(copies)
        lines = all(map(is_mlir_text, copies))
        items_of = OperationItems(lines).of_block
        blocks = [the_kernel(module).op.regions[0].blocks[0] for module in copies]
        programs = list(map(items_of, blocks))
        steps = _steps(programs)
        if steps is not None:
            _move_programs(zip(programs[0], steps), _program_id(merged))
            return [merged]
        alignment = aligned(blocks[0], blocks[1], items_of) if len(blocks) == 2 and not any(
            map(reduces_programs, modules)) else None
        if alignment is None:
            return list(modules)
        program_id = _program_id(merged)
        write_branches(alignment, program_id)
        _move_programs(steps_of(alignment), program_id)
    return [merged]


def _move_ranks(modules: Sequence[Module]) -> None:
    """Give exchanges between programs the cores of the first program, and note how far these move to the next."""
    exchanges = [operations_of(module, lambda name: name == SendrecvOp.full_name()) for module in modules]
    if len({len(operations) for operations in exchanges}) > 1:
        return
    for operations in zip(*exchanges):
        moves = []
        for rank in RANKS:
            first, *other_ranks = [op.attributes[rank].value for op in operations]
            step = other_ranks[0] - first
            if other_ranks != [first + number * step for number in range(1, len(modules))]:
                return
            moves.append(step)
        for op in operations:
            for rank in RANKS:
                op.attributes[rank] = operations[0].attributes[rank]
            op.attributes[RANK_STEPS] = ir.DenseI64ArrayAttr.get(moves)


def rank_text(op: SendrecvOp, rank: str, program_id: str) -> str:
    """Return the text of a core that an exchange names, such as ``1 - program_id``."""
    first = getattr(op, rank)
    steps: Any = op.extra.get(RANK_STEPS, (0, 0))
    step = steps[RANKS.index(rank)]
    if step == -1:
        return f"{first} - {program_id}"
    return str(IndexText(first, ((program_id, step),) if step else ()))


def _share_constants(modules: Sequence[Module]) -> None:
    """Give equal constants of all modules one name, and add to the first module those that only others have."""
    shared: dict[tuple[Attribute, Attribute], str] = {}         # (type, values) -> name
    for module in modules:
        names: dict[str, str] = {}
        for definition in operations_of(module, lambda name: name == CONSTANT):
            attributes = definition.attributes
            contents = attributes["type"], attributes["initial_value"]
            is_new = contents not in shared
            name = shared.setdefault(contents, f"constant_{len(shared)}")
            names[attributes["sym_name"].value] = name
            attributes["sym_name"] = ir.StringAttr.get(name)
            if is_new and module is not modules[0]:
                definition.clone(ir.InsertionPoint.at_block_begin(modules[0].body))
        for use in operations_of(module, lambda name: name == "memref.get_global"):
            use.attributes["name"] = ir.FlatSymbolRefAttr.get(names[use.attributes["name"].value])


def _text_around_function(module: Module) -> str:
    """Return the text of a module without the function's body and constants."""
    function = the_kernel(module).op
    other_operations = [str(op) for op in module.body.operations
                        if op.operation != function and op.operation.name != CONSTANT]
    kinds = [str(function.attributes[name]) for name in ("function_type", "arg_attrs", "nki.results")
             if name in function.attributes]
    return "\n".join([*kinds, *other_operations])


def _steps(programs: Sequence[Program]) -> list[Steps] | None:
    """Return the distances by which each operation's starts move from one program to the next; None if programs differ
    otherwise."""
    first, *later_programs = programs
    steps: list[Steps] = []
    for number, program in enumerate(later_programs, 1):
        if len(program) != len(first) or list(map(_operands, program)) != list(map(_operands, first)):
            return None
        for at, (first_form, later_form) in enumerate(zip(first, program)):
            if number == 1:
                steps.append(tuple([b - a for a, b in zip(first_form.starts, later_form.starts)]))
            if first_form.form != later_form.form or later_form.starts != tuple(
                    [a + number * step for a, step in zip(first_form.starts, steps[at])]):
                return None
    return steps


def _operands(item: Item[Operation]) -> list[object]:
    """Return the operands of an operation as the numbers of the operations that define them, and of the function's
    arguments."""
    return [source.at if isinstance(source, Item) else -1 - ir.BlockArgument(source).arg_number     # type: ignore[arg-type]
            for source in item.sources]


def _program_id(module: Module) -> Value:
    """Add the program id to the function's arguments."""
    function = the_kernel(module).op
    index = ir.IndexType.get()
    program_id = function.regions[0].blocks[0].add_argument(index, function.location)
    kind = function.attributes["function_type"].value
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([*kind.inputs, index], kind.results))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([*function.attributes["arg_attrs"], ir.DictAttr.get({
        "nki.program_id": Attributes().value(0)})])
    return program_id


def _move_programs(moves: Iterable[tuple[Item[Operation], Steps]], program_id: Value) -> None:
    """Add the program id to the starts of the first program's operations."""
    make = Attributes()
    for item, steps in moves:
        if any(steps):
            assert item.operation is not None
            move_starts(item.operation, [(program_id, steps)], make)
