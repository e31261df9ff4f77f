# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""loop-over-programs: run programs that reduce over each other on one core, in loops between the reductions.

before:  grid [3]                                    after:  grid [1]
                                                            parts = alloc (128, 3, 512)
           part = load x, %program_id                        for %i = 0 to 3 { parts[:, i] = load x, %i }
           total = all_reduce part                           total = parts[:, 0]; total += parts[:, 1]; ...
           store out, total, %program_id                     for %i = 0 to 3 { store out, total, %i }

A buffer that several parts of a program use has a dim for each axis of the grid. A buffer that only reductions write
has none for the axes over which these reduce. Loops and branches around a reduction are the same for all programs.
Registers of an engine that several parts use must begin with new values in each sum, which then has separate registers.
"""

import itertools
from collections.abc import Sequence
from math import prod

from nki_mlir.analysis.dead_code import ancestor_in, erase_dead_code
from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import HBM, SBUF, Linear, Tile, full_tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.creation import constant
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, write_op
from nki_mlir.dialects.nisa.collectives import AllReduceOp, parsed
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.dialects.op import REGISTERS, Op, changed, with_forms
from nki_mlir.dialects.source_locations import errors_at
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.scalar.dtypes import DType
from nki_mlir.transforms.fold_over_programs import ProgramsApart, fold_steps
from nki_mlir.transforms.program_loops import add_loops

SCALARS = "arith.", "affine.apply"


def reductions_of(root: Operation | Module) -> list[tuple[Operation, AllReduceOp]]:
    """Return the reductions over programs, with their operations."""
    reductions = [(op, read_op(op)) for op in operations_of(root, lambda name: name == AllReduceOp.full_name())]
    return [(op, read) for op, read in reductions if isinstance(read, AllReduceOp) and read.over == PROGRAMS]


def reduces_programs(module: Module) -> bool:
    """Return whether programs of the module reduce over others."""
    return any(len(group) > 1 for _, op in reductions_of(module) for group in parsed(op.groups))


def copy_reductions_of_one(module: Module) -> None:
    """Replace reductions over one program by copies."""
    for operation, op in reductions_of(module):
        if all(len(group) == 1 for group in parsed(op.groups)):
            copy = CopyOp(dst=op.dst, src=op.src, symbols=op.symbols, ranges=op.ranges)
            write_op(copy, Attributes(), operation.location, ir.InsertionPoint(operation))
            operation.erase()


def divide_registers(root: Operation) -> None:
    """Give each operation separate registers where all begin with new values: no program needs those of before."""
    for alloc in operations_of(root, lambda name: name == "memref.alloc"):
        registers = alloc.results[0]
        users = [use.owner.operation for use in registers.uses]
        if not users or not all(is_tile_op(user) and _begins_sum(read_op(user), registers) for user in users):
            continue
        for user in users:
            separate = alloc.clone(ip=ir.InsertionPoint(user)).operation.results[0]
            for position, value in enumerate(user.operands):
                if value == registers:
                    user.operands[position] = separate
        alloc.erase()


def _begins_sum(op: Op, registers: Value) -> bool:
    """Return whether an operation uses a buffer as registers that it overwrites."""
    return all(field.name in REGISTERS and op.overwrites(field.name) for field, tile in op.operands()
               if tile.handle == registers)


class LoopOverPrograms(Pass, name="loop-over-programs", reads=Level.NKI):
    """Encloses the operations between reductions in loops over the programs, and replaces the reductions by folds of
    tiles. Other grids stay.

    Raises ``ProgramsApart`` if programs differ in whether or how often they reduce, as far as the module shows, or if a
    register or a tile in PSUM is used before and after a reduction.
    """

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            copy_reductions_of_one(module)
            for kernel in kernel_functions(module):
                if reductions_of(kernel.op):
                    divide_registers(kernel.op)
                    _ReducingPrograms(kernel).run()


class _ReducingPrograms:
    """The rewriter of a function whose programs reduce over each other."""

    def __init__(self, kernel: KernelFunction) -> None:
        self.kernel, self.make = kernel, Attributes()
        self.block: Block = kernel.op.regions[0].blocks[0]
        self.axes = [axis for axis, extent in enumerate(kernel.grid) if extent > 1]
        ids = {spec.index: a for a, spec in zip(self.block.arguments, kernel.arguments) if spec.kind == "program_id"}
        self.ids: dict[Value, int] = {value: axis for axis, value in ids.items()}
        self.points = list(itertools.product(*map(range, kernel.grid)))
        self.buffers: dict[Value, tuple[Value, list[int]]] = {}     # of all programs, and the axes that each has
        self.control: set[Value] = set()                            # buffers of the conditions of run-time loops

    def run(self) -> None:
        with self.kernel.op.location, ir.InsertionPoint.at_block_begin(self.block):
            self.zero = constant(0)
        self.note_control()
        self.split(self.block)
        for value in self.ids:                      # of axes with one program
            value.replace_all_uses_with(self.zero)
        erase_dead_code(self.kernel.op)
        self.kernel.op.attributes["nki.grid"] = self.make.value((1,) * len(self.kernel.grid))

    def note_control(self) -> None:
        """Note the buffers of the conditions of run-time loops around reductions, if no other operation uses them: the
        programs, which run such loops equally often, share them."""
        loops = [op for op in operations_of(self.kernel.op, lambda name: name == "scf.while") if reductions_of(op)]
        waiting = [op.operands[0] for loop in loops for op in operations_of(loop, lambda name: name == "memref.load")
                   if op.parent == loop and op.block == loop.regions[0].blocks[0]]
        control: set[Value] = set()
        while waiting:
            if (buffer := waiting.pop()) not in control:
                control.add(buffer)
                waiting += [value for use in buffer.uses if is_tile_op(use.owner.operation)
                            for value in use.owner.operation.operands if isinstance(value.type, ir.MemRefType)]
        users = {use.owner.operation for buffer in control for use in buffer.uses}
        if all(not isinstance(buffer.owner, ir.Block) for buffer in control) and all(
                self.is_uniform(value) or value in control for user in users for value in user.operands):
            self.control = control

    def is_uniform(self, value: Value) -> bool:
        """Return whether a value is equal in all programs: it follows from constants and variables of loops."""
        if value in self.ids:
            return self.kernel.grid[self.ids[value]] == 1
        if isinstance(value.owner, ir.Block):
            return True
        return value.owner.operation.name.startswith(SCALARS) and all(map(self.is_uniform, value.owner.operands))

    def split(self, block: Block) -> None:
        """Split a block that all programs run in step."""
        self.hoist(block)
        operations = [op.operation for op in block.operations][:-1]
        allocations = [op for op in operations if op.name == "memref.alloc" and op.results[0] not in self.control]
        runs: list[list[Operation]] = [[]]
        meetings: list[Operation] = []
        numbers: dict[Operation, int] = {}                 # of the run that an operation is in
        for op in operations:
            if reductions_of(op):
                meetings.append(op)
                runs.append([])
            elif op.name != "memref.alloc" and not self.is_shared(op):
                numbers[op] = len(runs) - 1
                runs[-1].append(op)
        for op in reversed(allocations):
            users = {numbers.get(ancestor) for use in op.results[0].uses
                     if (ancestor := ancestor_in(block, use.owner.operation)) is not None}
            if len(users) > 1 or None in users:
                with errors_at(op):
                    self.share(op, ir.InsertionPoint.at_block_begin(block))
            for number in users if len(users) == 1 else ():
                if number is not None:
                    runs[number].insert(0, op)
        for run, meeting in itertools.zip_longest(runs, meetings):
            if run:
                with errors_at(run[0]):
                    self.enclose(run)
            if meeting is not None:
                with errors_at(meeting):
                    self.split_at(meeting)

    def hoist(self, block: Block) -> None:
        """Move what all programs compute once to the front of a block, where it dominates the loops."""
        operations = [op.operation for op in block.operations]
        first: Operation | None = None
        for op in operations:
            if not self.is_shared(op) or self.is_control(op):
                first = first or op
            elif first is not None:
                op.move_before(first)

    def is_control(self, op: Operation) -> bool:
        return any(value in self.control for value in op.operands)

    def is_shared(self, op: Operation) -> bool:
        """Return whether all programs can use the result of an operation."""
        return op.name == "memref.get_global" or self.is_control(op) or (
            op.name.startswith(SCALARS) and all(map(self.is_uniform, op.results)))

    # -- buffers -------------------------------------------------------------------------------------------------------
    def share(self, alloc: Operation, ip: ir.InsertionPoint) -> None:
        """Allocate a buffer for all programs."""
        buffer = alloc.results[0]
        shape, dtype, space = memref_parts(buffer.type)
        users = [use.owner.operation for use in buffer.uses]
        if space not in (SBUF, HBM) or not all(map(is_tile_op, users)):
            raise ProgramsApart(what="a register or a tile in PSUM that programs use before and after they reduce",
                                fix="copy it to a tile in SBUF")
        reduced = list(self.axes)
        for user in users:
            op = read_op(user)
            if any(tile.handle == buffer for field, tile in op.operands() if field.name in REGISTERS):
                raise ProgramsApart(what="registers that programs use before and after they reduce",
                                  fix="end the sum before the reduction")
            if any(tile.handle == buffer for _, tile in op.targets()):
                reduced = [axis for axis in reduced if isinstance(op, AllReduceOp) and axis in self.reduced(op)]
        axes = [axis for axis in self.axes if axis not in reduced]
        extents = tuple(self.kernel.grid[axis] for axis in axes)
        larger = (*extents, *shape) if space == HBM else (shape[0], *extents, *shape[1:])
        attributes = {name: alloc.attributes[name] for name in alloc.attributes}
        shared = ir.Operation.create("memref.alloc", results=[self.make.memref(larger, dtype, space)],
                                     attributes=attributes, loc=alloc.location, ip=ip)
        self.buffers[buffer] = shared.results[0], axes

    def reduced(self, op: AllReduceOp) -> list[int]:
        """Return the axes of the grid along which a reduction's groups extend; none if groups are not such lines."""
        groups = parsed(op.groups)
        first = [self.points[member] for member in groups[0]]
        axes = [axis for axis in self.axes if len({point[axis] for point in first}) > 1]
        along = [tuple(n for axis, n in enumerate(point) if axis not in axes) for point in self.points]
        lines = {tuple(k for k, other in enumerate(along) if other == at) for at in along}
        return axes if lines == set(map(tuple, groups)) else []

    def of_program(self, tile: Tile, coordinates: Sequence[Linear]) -> Tile:
        """Return a program's part of a buffer that all have; the forms are the program's position along each axis."""
        if tile.handle not in self.buffers:
            return tile
        buffer, axes = self.buffers[tile.handle]
        bits = prod(tile.base_shape if tile.space == HBM else tile.base_shape[1:]) * tile.base_dtype.bits
        step, remainder = divmod(bits, tile.dtype.bits)
        if remainder:
            raise ProgramsApart(what="a tile that ends within an element of another dtype", fix="end it at an element")
        start = tile.access.free
        for axis in reversed(axes):
            start = start.plus(coordinates[axis], step)
            step *= self.kernel.grid[axis]
        base = memref_parts(buffer.type)[0]
        widened = Tile(buffer, tile.space, base, tile.base_dtype, tile.access, tile.label)
        return widened.patterned(free=start)

    # -- between reductions --------------------------------------------------------------------------------------------
    def enclose(self, run: Sequence[Operation]) -> None:
        """Enclose the operations of a run in loops over the programs."""
        if all(op.name.startswith((*SCALARS, "memref.alloc")) for op in run):
            return
        enclosed = [op for op in run if not op.name.startswith(SCALARS)]
        inside = {inner for op in enclosed for inner in operations_of(op, lambda name: True)}
        if any(use.owner.operation not in inside for op in enclosed for result in op.results for use in result.uses):
            raise ProgramsApart(what="a number that programs read before they reduce and use later",
                                fix="read it again")
        first = next(op for op in enclosed if op.name != "memref.alloc")
        if any(not isinstance(value.owner, ir.Block) and value.owner.operation not in inside
               and self.is_control(value.owner.operation) and value.owner.operation.block == first.block
               for op in inside for value in op.operands):
            raise ProgramsApart(what="the number of a run-time condition that programs use elsewhere",
                                fix="read it again")
        variables, end = add_loops(self.kernel, first, ir.InsertionPoint(first))
        for op in enclosed:
            op.move_before(end)
        local: dict[Value, Value] = {value: variables[axis] for value, axis in self.ids.items()}
        all_operations = [inner for outer in enclosed for inner in operations_of(outer, lambda name: True)]
        for op in all_operations:
            for position, value in enumerate(op.operands):
                op.operands[position] = self.localized(value, local, inside, enclosed[0])
        for op in all_operations:
            if is_tile_op(op) and any(value in self.buffers for value in op.operands):
                self.move_tiles(op, variables)

    def localized(self, value: Value, local: dict[Value, Value], inside: set[Operation], first: Operation) -> Value:
        """Return a value as one program computes it: clone the operations that compute it from program ids before
        ``first``, the first operation in the loops."""
        definition = value.owner
        if value in local or isinstance(definition, ir.Block) or definition.operation in inside or self.is_uniform(
                value) or not definition.operation.name.startswith(SCALARS):
            return local.get(value, value)
        operands = [self.localized(operand, local, inside, first) for operand in definition.operands]
        copy = definition.operation.clone(ip=ir.InsertionPoint(first)).operation
        for position, operand in enumerate(operands):
            copy.operands[position] = operand
        local[value] = copy.results[0]
        return local[value]

    def move_tiles(self, operation: Operation, variables: Sequence[Value]) -> None:
        """Replace the tiles of an operation by the parts of buffers that one program uses."""
        op = read_op(operation)
        added = {v: extent for v, extent in zip(variables, self.kernel.grid) if v not in op.symbols}
        symbols = (*op.symbols, *added)
        coordinates = [Linear(0, ((symbols.index(variable), 1),)) for variable in variables]
        of_one_program = changed(op, lambda tile: self.of_program(tile, coordinates), symbols=symbols,
                        ranges=(*op.ranges, *[(0, extent - 1) for extent in added.values()]))
        write_op(_without_unused(of_one_program), self.make, operation.location, ir.InsertionPoint(operation))
        operation.erase()

    # -- reductions ----------------------------------------------------------------------------------------------------
    def split_at(self, operation: Operation) -> None:
        """Write a reduction, or split the loop or branch around one."""
        if operation.name == AllReduceOp.full_name():
            with ir.InsertionPoint(operation), operation.location:
                self.reduce(read_op(operation))
            operation.erase()
            return
        conditions = [value for op in operations_of(operation, lambda name: name == "memref.load")
                      if op.block == operation.regions[0].blocks[0] for value in op.operands[:1]]
        uniform = operation.name in ("scf.for", "scf.if", "scf.while") and not len(operation.results) and all(
            map(self.is_uniform, operation.operands)) and all(value in self.control for value in conditions)
        if not uniform:
            raise ProgramsApart(what="a reduction over programs in a branch or in a run-time loop",
                                fix="reduce after it, over the tiles of all programs")
        for region in list(operation.regions)[operation.name == "scf.while":]:      # after the condition
            for block in region.blocks:
                self.split(block)

    def reduce(self, op: Op) -> None:
        assert isinstance(op, AllReduceOp)
        axes_of_ids = {k: self.ids[symbol] for k, symbol in enumerate(op.symbols) if symbol in self.ids}
        if not all(map(self.is_uniform, [s for s in op.symbols if s not in self.ids])):
            raise ProgramsApart(what="a reduction over programs of tiles whose starts differ by steps",
                                fix="copy the parts to tiles")
        op = changed(op, lambda tile: tile, symbols=tuple([self.zero if s in self.ids else s for s in op.symbols]))
        members = [self.of_member(op, point, axes_of_ids) for point in self.points]
        for group in parsed(op.groups):
            result = _spread([members[member].dst for member in group])
            for step in fold_steps(op, [members[member].src for member in group], result, self.temporary):
                complete = changed(step, lambda tile: tile, symbols=op.symbols, ranges=op.ranges)
                write_op(_without_unused(complete), self.make)

    def of_member(self, op: AllReduceOp, point: Sequence[int], axes_of_ids: dict[int, int]) -> AllReduceOp:
        """Return the reduction with the tiles of one program."""
        def change(form: Linear) -> Linear:
            for position, axis in axes_of_ids.items():
                form = form.substitute(position, point[axis])
            return form
        coordinates = [Linear(n) for n in point]
        return changed(with_forms(op, change), lambda tile: self.of_program(tile, coordinates))

    def temporary(self, shape: Sequence[int], dtype: DType) -> Tile:
        sizes = ir.DenseI32ArrayAttr.get([0, 0])
        kind = self.make.memref(tuple(shape), dtype, SBUF)
        alloc = ir.Operation.create("memref.alloc", results=[kind], attributes={
            "operandSegmentSizes": sizes, "nki.name": self.make.value("t0")})
        return full_tile(alloc.results[0], shape, dtype, SBUF)


def _spread(results: Sequence[Tile]) -> Tile:
    """Return one tile for the results of a group: the tile that all share, or a tile with a dim for the programs."""
    first = results[0]
    starts = [tile.access.free.const for tile in results]
    step = starts[1] - starts[0] if len(starts) > 1 else 0
    relative_starts = [tile.access.free.plus(Linear(-start)) for tile, start in zip(results, starts)]
    if starts != [starts[0] + n * step for n in range(len(starts))] or len({
            (tile.access.partition, form) for tile, form in zip(results, relative_starts)}) > 1:
        raise ProgramsApart(what="results of a reduction over programs that are not equal steps apart",
                            fix="copy the result to a tile")
    if step == 0:
        return first
    rows, *free = first.access.dims
    return first.patterned(dims=(rows, (step, len(starts)), *free))


def _without_unused(op: Op) -> Op:
    """Return the operation without symbols that its forms do not use."""
    used: set[int] = set()

    def note(form: Linear) -> Linear:
        used.update(position for position, _ in form.symbols)
        return form
    with_forms(op, note)
    order = sorted(used)

    def renumber(form: Linear) -> Linear:
        return Linear(form.const, tuple([(order.index(k), c) for k, c in form.symbols]), form.axes)
    return with_forms(op, renumber, symbols=tuple([op.symbols[k] for k in order]),
                      ranges=tuple([op.ranges[k] for k in order]))
