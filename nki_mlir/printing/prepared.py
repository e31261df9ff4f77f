# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepares modules for the printer: lowers them to the ``nki`` or ``nisa`` level, with masks that become smaller tiles.

Graphs and modules at the waist become instructions. So do operations under masks that are not boxes and that no
predicate expresses: a fold of the elements that a mask selects, a product of such rows. Stores under such masks become
a transfer for each box of active elements.
"""

from nki_mlir.analysis.index_values import SymbolValues
from nki_mlir.analysis.mask_boxes import box_of, resolved
from nki_mlir.bindings import Module, Operation, cloned, ir, operations_of
from nki_mlir.conversion.linalg_to_nisa import LinalgToNisa
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, write_op
from nki_mlir.dialects.nisa.dynamic_access import PatternAddressed
from nki_mlir.dialects.nisa.require_written import RequireWrittenOp
from nki_mlir.dialects.nki.movement import Copying
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.source_locations import is_mlir_text
from nki_mlir.machine import machine_named
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.passes.pipelines import is_graph, level_of, passes_to
from nki_mlir.printing.addressed_blocks import split_addressed_blocks
from nki_mlir.printing.block_facts import keeps_elements
from nki_mlir.printing.branch_conditions import set_in_branches
from nki_mlir.printing.copied_results import move_copied_results
from nki_mlir.printing.divided_shifts import divide_shifts
from nki_mlir.printing.divided_transposes import divide_transposes
from nki_mlir.printing.implicit_sums import imply_sums
from nki_mlir.printing.loops_in_branches import move_loops_into_branches
from nki_mlir.printing.masked import can_select
from nki_mlir.printing.partial_fills import unroll_partly_dead
from nki_mlir.printing.rotated_loops import rotate_loops
from nki_mlir.printing.rounding_functions import round_by_functions
from nki_mlir.printing.run_time_addresses import read_numbers_from_tiles
from nki_mlir.printing.run_time_branches import run_branches_once
from nki_mlir.printing.source_loops import follow_source
from nki_mlir.printing.staged_reversals import stage_reversals
from nki_mlir.printing.tile_arrays import merge_tiles
from nki_mlir.printing.tile_groups import group_by_result
from nki_mlir.printing.unread_tiles import erase_unread
from nki_mlir.transforms.loop_over_programs import LoopOverPrograms, copy_reductions_of_one, reduces_programs
from nki_mlir.transforms.program_loops import add_program_loops
from nki_mlir.transforms.split_masked_loops import is_accepted
from nki_mlir.waist.builder import StructuredBuilder


def prepared(module: Module, loops: bool = True, in_python: bool = False) -> Module:
    """Return a copy of the module in the form that the printer reads.

    With ``loops``, loops take the place of the grid's programs; raise ``ProgramsApart`` if no loops can. Without them,
    programs that reduce over each other are printed one by one, with numbers for the program ids in masks. With
    ``in_python``, Python runs the loops of the text: products that print without ``accumulate`` are marked, and loops
    are split where their variables decide branches.
    """
    with module.context, ir.Location.unknown():
        copy = cloned(module)
        is_by_operation = is_graph(copy)
        if is_by_operation or level_of(copy) is Level.WAIST:
            run_passes(copy, passes_to("nisa", copy))
        _write_in_the_language(copy, is_by_operation)
        _resolve_masks(copy, moves_rows=in_python)
        for function in operations_of(copy, lambda name: name == "func.func"):
            if in_python:
                split_addressed_blocks(function, machine_named(the_kernel(copy).target))
            erase_unread(function)
            if is_by_operation:
                group_by_result(function)
                merge_tiles(function)
        if in_python:
            imply_sums(copy)
        copy_reductions_of_one(copy)
        if loops and reduces_programs(copy):
            run_passes(copy, [LoopOverPrograms()])
        elif loops:
            add_program_loops(copy)
        if not reduces_programs(copy):
            _begin_at_first_element(copy)
            lines = str(not is_by_operation and is_mlir_text(copy)).lower()
            roll = pass_named("roll-repeats", f"least=1 pairs=true lines={lines} starts={str(in_python).lower()}")
            split = pass_named("split-masked-loops", f"branches={str(in_python).lower()}")
            run_passes(copy, [roll, split])
            _resolve_masks(copy, moves_rows=in_python)      # masks that split loops decide
            for function in operations_of(copy, lambda name: name == "func.func"):
                erase_unread(function)              # memsets for elements that only other iterations read
                if in_python and unroll_partly_dead(function):
                    run_passes(copy, [split])               # gives accesses the numbers of the iterations
                    erase_unread(function)
                    run_passes(copy, [roll])
            if in_python:
                move_loops_into_branches(copy)
            follow_source(copy)
        set_in_branches(copy)
        if _lower_masked(copy) and in_python:
            run_passes(copy, [pass_named("split-masked-loops", "branches=true")])
        for function in operations_of(copy, lambda name: name == "func.func"):
            erase_unread(function)              # memsets for elements that lowered masks do not read
        if in_python:
            move_copied_results(copy)
            imply_sums(copy)                    # split loops and lowered masks show more sums
        return copy


def _write_in_the_language(module: Module, is_by_operation: bool) -> None:
    """Rewrite what instructions have and the language has not. ``is_by_operation``: the module was a graph."""
    if is_by_operation:
        stage_reversals(module)
        read_numbers_from_tiles(module)
        run_branches_once(module)
        rotate_loops(module)
    _erase_checks(module)
    divide_transposes(module)
    divide_shifts(module)
    round_by_functions(module)


def _erase_checks(module: Module) -> None:
    """Erase the checks that outputs are written, which each capture adds, and the operations that set their flags."""
    for check in operations_of(module, lambda name: name == RequireWrittenOp.full_name()):
        flag = check.operands[0]
        definition = flag.owner
        for operation in dict.fromkeys(use.owner for use in flag.uses):
            operation.erase()
        assert not isinstance(definition, ir.Block)
        definition.erase()


def _resolve_masks(module: Module, moves_rows: bool) -> None:
    """Replace operations under masks that select the same box for all values of the symbols by operations on that box,
    so that what follows sees which elements they read and write. Erase copies of tiles to themselves.

    Without ``moves_rows``, instructions stay under a mask if no engine can start at the box's first partition.
    """
    make, machine = Attributes(), machine_named(the_kernel(module).target)

    def accepts(op: Op) -> bool:
        return moves_rows or is_accepted(op, machine)
    for operation in operations_of(module, lambda name: name.startswith(("nki.", "nisa."))):
        if not is_tile_op(operation) or not ((op := read_op(operation)).mask or op.limits or keeps_elements(op)):
            continue
        on_box = resolved(op, SymbolValues(operation, op.symbols).interval, accepts=accepts)
        if on_box is None or keeps_elements(on_box):
            operation.erase()
        elif not (on_box.mask or on_box.limits):
            write_op(on_box, make, operation.location, ir.InsertionPoint(operation))
            operation.erase()


def _begin_at_first_element(module: Module) -> None:
    """Let a table that run-time indices address begin at the first element that they reach, not at its tensor's first.
    Then it moves from one iteration to the next, and a loop can take the place of iterations that Python has run."""
    make = Attributes()
    for operation in operations_of(module, lambda name: name.startswith("nisa.")):
        op = read_op(operation) if is_tile_op(operation) else None
        if not isinstance(op, PatternAddressed) or (table := op.reachable()) == op.table:
            continue
        start = op.start - (table.access.free.const - op.table.access.free.const)
        moved = changed(op, lambda tile: tile, **{op.addressed_by_data: table}, start=start)
        write_op(moved, make, operation.location, ir.InsertionPoint(operation))
        operation.erase()


def _lower_masked(module: Module) -> bool:
    """Lower operations to instructions if their masks are not boxes whatever numbers their symbols have. Return whether
    there were any: their instructions may stand in branches that loop variables decide."""
    open_operations = [op for op in operations_of(module, lambda name: name.startswith(("nki.", "nisa.")))
                       if _is_open(op)]
    builder = StructuredBuilder()
    for operation in open_operations:
        if operation.name.startswith("nki."):
            builder.convert(operation)
    if open_operations:
        LinalgToNisa().run(module)
    return bool(open_operations)


def _is_open(operation: Operation) -> bool:
    if not is_tile_op(operation) or not (op := read_op(operation)).mask:
        return False
    box = box_of(op.mask, op.iteration().extents, SymbolValues(operation, op.symbols).interval)
    if box is None or not box.mask:
        return False
    # A selection would also move the elements that the mask leaves out, which another program may write meanwhile.
    is_transfer = isinstance(op, Copying) and HBM in (op.dst.space, op.src.space)
    return is_transfer or (any(len(c.form.axes) > 1 for c in box.mask) and not can_select(op))
