# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the body of a kernel function as statements: loops, branches, allocations and operations in order.

Masks become smaller tiles: ``split-masked-loops`` has split loops so that they are boxes. A mask that becomes a box
only for a number of the loop variable unrolls the loop around it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

import numpy as np

from nki_mlir.analysis.dead_code import reads_unwritten
from nki_mlir.bindings import Value, enclosing, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.buffer_types import global_array, memref_parts
from nki_mlir.dialects.instruction_order import NO_REORDER
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.dynamic_access import GatherColumnsOp
from nki_mlir.dialects.nisa.elementwise import TensorCopyPredicatedOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.nisa.random import RandOp
from nki_mlir.dialects.nki.movement import Copying, Filling
from nki_mlir.dialects.op import FRESH, REGISTERS, Op, changed, with_forms
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.printing.block_facts import (
    copied_tiles,
    decides_values,
    filled_first,
    generator_of,
    has_dynamic_loop,
    in_its_box,
    unread_tiles,
    used_rows,
    writers_of,
)
from nki_mlir.printing.equal_branches import join_equal_branches
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.index_text import PROGRAMS, IndexText
from nki_mlir.printing.kernel_text import AUTOMATIC, REGIONS, KernelText, NamedTensor
from nki_mlir.printing.loop_names import loop_names
from nki_mlir.printing.masked import can_select, write_selected
from nki_mlir.printing.orders import instruction_orders
from nki_mlir.printing.placement import can_be_named
from nki_mlir.printing.programs import program_phases, program_texts, reduction_over_programs, write_reduction
from nki_mlir.printing.registers import Registers
from nki_mlir.printing.releases import has_loop_functions, has_regions_in_order
from nki_mlir.printing.run_time_loops import allocate_register, beta_condition, write_register, write_while
from nki_mlir.printing.tile_names import name_of_result
from nki_mlir.printing.tile_operations import is_row, write_statement
from nki_mlir.printing.tile_text import shape_text
from nki_mlir.targets.neuron.codegen.code_writer import ADDRESS
from nki_mlir.waist import function as waist
from nki_mlir.waist.reader import Executor, read_function

PRINTER = Executor("is printed as NKI Python", "print the module of the nki level, as captured")
CONSTANT_ELEMENTS = 4096        # most elements of a constant that is printed
UNNAMED = ""                    # the name of a buffer that the source does not name
ON_CHIP = REGIONS["sbuf"], REGIONS["psum"]


class OpenMask(Unprintable):
    """A mask that is not a box until its symbols have numbers: the printer unrolls the loop around it."""


def constant_text(array: np.ndarray) -> str:
    """Return an array as an expression of NumPy."""
    kind = f"np.{array.dtype.name}"
    printable = array.dtype.kind in "iufb" and np.isfinite(array).all()
    bits, first = array.tobytes(), array.flat[0] if array.size else array.dtype.type(0)
    if printable and array.size and bits == first.tobytes() * array.size:
        return f"np.full({shape_text(array.shape)}, {first.item()}, dtype={kind})"
    if printable and array.ndim == 2 and bits == (np.eye(*array.shape, dtype=array.dtype) * first).tobytes():
        extents = ", ".join(map(str, dict.fromkeys(array.shape)))
        scale = "" if first == 1 else f" * {kind}({first.item()})"      # the bits of 1 in a dtype that NumPy lacks
        return f"np.eye({extents}, dtype={kind}){scale}"
    if array.size > CONSTANT_ELEMENTS:
        raise Unprintable(what=f"a constant of {array.size} elements", fix="make it an argument of the kernel")
    if not printable:
        raise Unprintable(what=f"a constant of {array.dtype}", fix="make it an argument of the kernel")
    return f"np.array({array.tolist()}, dtype={kind})"


class BodyPrinter:
    """Prints the body of one function; ``tensors`` are the names of its arguments in HBM."""

    def __init__(self, kernel: KernelFunction, out: KernelText, tensors: Sequence[NamedTensor]) -> None:
        self.kernel, self.out = kernel, out
        self.body = read_function(kernel.op, PRINTER)
        arguments = kernel.op.regions[0].blocks[0].arguments
        self.ids: list[Value | None] = [None] * len(kernel.grid)
        names = iter(tensors)
        for value, spec in zip(arguments, kernel.arguments):
            if spec.kind == "program_id":
                self.ids[spec.index] = value
                continue
            tensor = next(names)
            if spec.kind == "input" or tensor in out.defined:
                out.tensors[value] = tensor
            else:
                out.allocate(value, tensor)
        self.results = [arguments[n] for n in kernel.results]
        self.registers = Registers(self.body, loads_conditions=not self.out.beta)
        self.rows: dict[Value, int] = {}        # buffer -> number of used rows
        self.loop_names = loop_names(self.body)
        self.orders = None if out.placement is not None else instruction_orders(
            self.body, out.release, out.beta, out.unique)
        self.note_buffers()

    def note_buffers(self) -> None:
        """Record the registers of engines, and the buffers with elements that operations read but nothing writes."""
        for node in waist.nodes_of(self.body):
            if isinstance(node, waist.BufferAllocation) and "nki.name" in node.op.attributes:
                self.out.source_names.add(node.op.attributes["nki.name"].value)
            if isinstance(node, waist.BufferAllocation) and (engine := generator_of(node)) is not None:
                self.out.generators[node.result] = engine
                if not decides_values(node.result):
                    self.out.unseeded.add(node.result)
            if isinstance(node, waist.TileInstruction):
                op = node.instruction
                self.out.registers.update(t.handle for f, t in op.operands() if f.name in REGISTERS)
                if self.out.placement is None:
                    self.out.zeroed.update(_kept_by_mask(op))
                if FRESH in op.extra:
                    self.out.zeroed.update(t.handle for _, t in op.operands() if t.on_chip)
        filled = filled_first(self.body)
        self.out.zeroed = {h for h in self.out.zeroed
                           if h not in filled and (isinstance(h, NamedTensor) or reads_unwritten(h))}
        self.copied = copied_tiles(self.body)
        copies = [n.instruction for n in waist.nodes_of(self.body) if isinstance(n, waist.TileInstruction)
                  and isinstance(n.instruction, Copying)]
        self.begins = {op.src.handle for op in copies if op.dst.handle in self.out.registers}
        if self.out.placement is None:
            self.rows = used_rows(self.body)
        self.writers = writers_of(self.body)
        self.out.unread |= unread_tiles(self.body)
        self.written_once = {handle for handle, count in self.writers.items() if count == 1}

    def bind(self, value: Value | None, text: IndexText) -> None:
        if value is not None:
            self.out.indices.texts[value] = text

    def loop(self, variable: Value | None, name_hint: str, span: range, body: Callable[[], None]) -> None:
        """Write a loop, or its iterations one after another if a mask needs the number of each."""
        before, orders = self.out.saved(), self.orders
        self.orders = orders and orders.saved()
        name = self.out.unique(name_hint, "i")
        bounds = (span.start, span.stop, span.step)
        shown = bounds[1:2] if span.start == 0 and span.step == 1 else bounds[:2] if span.step == 1 else bounds
        try:
            self.bind(variable, IndexText(0, ((name, 1),)))
            self.name_waiting()
            with self.out.block(f"for {name} in range({', '.join(map(str, shown))}):"):
                body()
            self.out.names.discard(name)
        except OpenMask:
            if variable is None:
                raise
            self.out.restore(before)
            for number in span:
                self.orders = orders and orders.saved()
                self.bind(variable, IndexText(number))
                self.out.flush()
                body()
                self.out.waiting.clear()

    def one_program(self, name: str, number: int | None) -> None:
        """Write the body of a program that runs on its own core. ``name`` is the variable of its id, and ``number``
        the id if it is known. A module that was emitted for one program has no ids."""
        self.out.on_core, self.out.program_id = True, name
        for value in self.ids[:1]:
            self.bind(value, IndexText(0, ((name, 1),)) if number is None else IndexText(number))
        self.out.indices.program_id = name if number is None else ""
        self.block(self.body)

    def clears_for_state(self, node: waist.FunctionNode, after: waist.FunctionNode | None) -> bool:
        """Return whether a node fills the tile to which the next node copies a generator's state: one instruction does
        both."""
        if not (isinstance(node, waist.TileInstruction) and isinstance(after, waist.TileInstruction)):
            return False
        fill, copy = node.instruction, after.instruction
        if not (isinstance(fill, Filling) and isinstance(copy, Copying) and copy.src.handle in self.out.generators
                and copy.dst.handle == fill.dst.handle and not fill.value and not fill.mask):
            return False
        self.out.cleared[fill.dst.handle] = fill.dst.shape[0]
        return True

    def is_copied(self, node: waist.FunctionNode) -> bool:
        """Return whether a node writes a tile that only the next node copies: one call does both."""
        if not (isinstance(node, waist.TileInstruction)
                and isinstance(op := node.instruction, GatherColumnsOp | RandOp)):
            return False
        if op.dst.handle not in self.copied:
            return False
        self.out.copied[op.dst.handle] = op
        return True

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def block(self, block: waist.FunctionBlock) -> None:
        """Write the nodes of a block in order."""
        unwritten = {node.result: self.writers[node.result] for node in block.nodes
                     if isinstance(node, waist.BufferAllocation)}
        with ExitStack() as region:
            nodes, at = list(block.nodes), -1
            while (at := at + 1) < len(nodes):
                if isinstance(nodes[at], waist.IfBranch):
                    join_equal_branches(nodes, at, self.out.indices)
                node, after = nodes[at], nodes[at + 1] if at + 1 < len(nodes) else None
                if self.clears_for_state(node, after) or self.is_copied(node):
                    continue
                self.keep_order(node, region)
                try:
                    self.node(node)
                except NkiMlirError as error:
                    raise error.located(location_of(node.op)) from None
                for handle, count in writers_of(waist.FunctionBlock([node])).items():
                    unwritten[handle] = unwritten.get(handle, 0) - count
                    if not unwritten[handle]:
                        self.out.last_writes[handle] = len(self.out.lines)

    def keep_order(self, node: waist.FunctionNode, region: ExitStack) -> None:
        """Let a region in which nothing moves begin or end before a node. In a placed module the region contains
        all but loops of the run time, else the operations whose order the kernel fixes."""
        if isinstance(node, waist.BufferAllocation | waist.ScalarValue):
            return
        is_fixed = isinstance(node, waist.TileInstruction) and NO_REORDER in node.op.attributes
        if is_fixed and (self.out.beta or not has_regions_in_order(self.out.release)):
            is_fixed, self.out.unordered = False, self.out.unordered + 1
        if has_dynamic_loop(node) if self.out.placement is not None else not is_fixed:
            region.close()
        elif not self.out.in_order:
            region.enter_context(self.out.ordered())

    def node(self, node: waist.FunctionNode) -> None:
        out = self.out
        match node:
            case waist.BufferAllocation():
                self.allocate_if_used(node)
            case waist.ConstantBuffer():
                shape, dtype, _ = memref_parts(node.result.type)
                text = constant_text(global_array(node.op))
                out.allocate(node.result, NamedTensor("constant", shape, dtype, "", f"nl.shared_constant({text})"))
            case waist.ScalarValue():
                out.indices.define(node)
            case waist.TileInstruction():
                if node not in self.registers.begins:
                    self.in_its_order(node)
            case waist.ForLoop():
                self.for_loop(node)
            case waist.IfBranch():
                self.name_waiting()
                self.branch(node)
            case waist.WhileLoop():
                self.name_waiting()
                later = self.waiting_behind(node) if out.placement is not None else {}
                write_while(out, node, self.registers, lambda: self.while_body(node))
                out.waiting |= later
            case _:
                raise Unprintable(what=f"'{node.op.name}'", fix="print the module of the nki level, as captured")

    def allocate_if_used(self, node: waist.BufferAllocation) -> None:
        """Write the allocation of a register or a buffer that something uses."""
        out, buffer = self.out, node.result
        if out.placement is not None and buffer in self.registers.values | self.registers.of_loops:
            out.placement.addresses += ADDRESS in node.op.attributes
        if buffer in self.registers.values:
            allocate_register(out, buffer, self.registers)
        elif buffer in out.generators or buffer in self.copied or buffer in self.registers.numbers:
            pass
        elif buffer not in out.registers | self.registers.of_loops and list(buffer.uses):
            self.allocate(node)

    def for_loop(self, node: waist.ForLoop) -> None:
        if node.span is None:
            raise Unprintable(what="a loop with bounds of the run time", fix="give the bounds as numbers")
        free = next((letter for letter in "ijkm" if letter not in self.out.names), "i")
        self.loop(node.variable, self.loop_names.get(node, free), node.span, lambda: self.block(node.body))

    def branch(self, node: waist.IfBranch) -> None:
        """Write an if statement, or the block that runs if the condition is a number."""
        out, condition = self.out, self.out.indices.of(node.condition)
        then, otherwise = node.then, node.otherwise or waist.FunctionBlock()
        if condition.number is not None:
            for inner in (then if condition.number else otherwise).nodes:
                self.node(inner)
            return
        if not then.nodes and condition.opposite is not None:
            condition, then, otherwise = condition.opposite, otherwise, then
        condition = out.indices.decided(condition)
        program = next((n for n in range(PROGRAMS) if condition.text == f"{out.program_id} == {n}"), None)
        if program and otherwise.nodes:             # the first program first
            condition, program = IndexText(text=f"{out.program_id} == 0"), 0
            then, otherwise = otherwise, then
        with out.block(f"if {condition}:"), self.in_program(program):
            self.block(then)
        if otherwise.nodes:
            with out.block("else:"), self.in_program(None if program is None else 1 - program):
                self.block(otherwise)

    @contextmanager
    def in_program(self, number: int | None) -> Iterator[None]:
        """Write the lines of a branch that only one of two programs runs; those of both if the number is None."""
        indices = self.out.indices
        around = indices.program
        indices.program = around if number is None else number
        yield
        indices.program = around

    def waiting_behind(self, loop: waist.WhileLoop) -> dict[Value | NamedTensor, NamedTensor]:
        """Return the waiting allocations that a loop does not use, which are then not written before it. A placed
        module has all allocations in front."""
        later: dict[Value | NamedTensor, NamedTensor] = {
            value: tensor for value, tensor in self.out.waiting.items() if isinstance(value, Value) and not any(
                loop.op in enclosing(use.owner.operation) for use in value.uses)}
        for value in later:
            del self.out.waiting[value]
        return later

    def while_body(self, loop: waist.WhileLoop) -> None:
        """Write the body of a loop, without the operations at its end that the loop statement performs itself."""
        register, nodes = self.registers.loops.get(loop), loop.body.nodes
        if register is not None and register.step:
            self.block(waist.FunctionBlock([node for node in nodes if node is not register.adds]))
            return
        by_loop = register is not None and register.outer is not None and not has_loop_functions(self.out.release)
        by_loop = by_loop or (self.out.beta and beta_condition(loop, self.registers.tests.get(loop)) is not None)
        self.block(waist.FunctionBlock(nodes[:-1] if by_loop else nodes))

    def allocate(self, node: waist.BufferAllocation) -> None:
        shape, dtype, space = memref_parts(node.result.type)
        shape = (self.rows.get(node.result, shape[0]), *shape[1:]) if shape else (1,)       # a scalar of a graph
        if len(shape) == 1 and space in (SBUF, PSUM):       # instructions read a column as (n, 1)
            shape = (*shape, 1)
        name_hint = node.op.attributes["nki.name"].value if "nki.name" in node.op.attributes else UNNAMED
        if name_hint == UNNAMED and (space or "hbm") == "hbm":
            name_hint = "scratch"
        address = None if self.out.beta else self.address(node, space)
        self.out.allocate(node.result, NamedTensor(name_hint, shape, dtype, REGIONS[space or "hbm"], address=address))

    def address(self, node: waist.BufferAllocation, space: str) -> tuple[int, int] | None:
        """Return the partition and the byte where a buffer begins, or None if the language cannot express them."""
        placement, attributes = self.out.placement, node.op.attributes
        if ADDRESS not in attributes:
            if placement is not None and space == PSUM:
                placement.addresses += 1
            return None
        partition, byte = (n.value for n in attributes[ADDRESS])
        if node.result not in self.begins and can_be_named(space, (partition, byte), self.out.machine):
            return partition, byte
        if placement is not None:
            placement.addresses += 1
        return None

    def in_its_order(self, node: waist.TileInstruction) -> None:
        """Write an operation, after those that the kernel orders before it."""
        if self.orders is None:
            self.statement(node)
            return
        self.out.orders, before = self.orders, self.orders.lost
        self.orders.begin(node.instruction)
        self.statement(node)
        following = self.orders.end()
        self.out.orders, self.out.unordered = None, self.out.unordered + self.orders.lost - before
        for line in following:
            self.out.write(line)

    def statement(self, node: waist.TileInstruction) -> None:
        """Write an operation on the elements that its mask selects."""
        op = in_its_box(self.numbered(node.instruction))
        if op is None:
            return
        if any(tile.handle in self.out.begins.values() for _, tile in op.targets()):
            raise Unprintable(what="a sum that begins with the earlier contents of a tile",
                              fix="write the tile after the instruction that accumulates")
        if op.mask and can_select(op):
            self.out.comment(node.op)
            self.name_results(op)
            write_selected(self.out, op, write_statement)
            return
        if op.mask:
            symbols = any(c.form.symbols for c in op.mask)
            raise (OpenMask if symbols else Unprintable)(
                what="an operation under a mask that does not select a box of elements",
                fix="select with nl.where, or split the loop")
        self.out.comment(node.op)
        self.name_results(op)
        if not write_register(self.out, op, self.registers):
            write_statement(self.out, changed(op, lambda tile: tile, limits=()))

    def name_results(self, op: Op) -> None:
        """Name the tiles that an operation writes first, and those that it reads and a memset fills, if the source does
        not."""
        for _, tile in op.targets():
            tensor = self.out.waiting.get(tile.handle)
            if tensor is not None and not _is_named(tensor) and tensor.region in ON_CHIP:
                read = getattr(op, "src", None)
                source = self.out.tensors.get(read.handle) if isinstance(read, Tile) else None
                if isinstance(read, Tile) and source is not None and _is_named(source) and is_row(read):
                    tensor.name = f"{source.name}_rows"
                    continue
                is_parameter = source is not None and source.region not in ON_CHIP and _is_named(source)
                name = name_of_result(op, source.name if source is not None and is_parameter else "",
                                      prod(tile.shape) < prod(tensor.shape))
                tensor.name = name_behind(tile, name) if isinstance(op, Filling) else name
        for _, tile in op.sources():
            tensor = self.out.waiting.get(tile.handle)
            if tensor is not None and tile.handle in self.out.zeroed and not _is_named(tensor):
                tensor.name = name_behind(tile, "filled")       # the memset fills it

    def name_waiting(self) -> None:
        """Name the tiles that are allocated before a loop or a branch by the operations that write them, within
        it or after it."""
        for value in list(self.out.waiting):
            for use in value.uses if isinstance(value, Value) else ():
                if is_tile_op(use.owner.operation):
                    self.name_results(read_op(use.owner.operation))

    def numbered(self, op: Op) -> Op:
        """Return the operation with numbers for the symbols whose values are known."""
        indices = self.out.indices
        values = [indices.in_program(indices.texts[s]) if s in indices.texts else None for s in op.symbols]
        numbers = {k: v.number for k, v in enumerate(values) if v is not None and v.number is not None}

        def change(form: Linear) -> Linear:
            for position, number in numbers.items():
                form = form.substitute(position, number)
            return form
        return with_forms(op, change) if numbers else op


def name_behind(filled: Tile, name: str) -> str:
    """Return the name of the results that are written to a filled tile if all have the same name, else ``name``."""
    uses = filled.handle.uses if isinstance(filled.handle, Value) else ()
    users = [read_op(use.owner.operation) for use in uses if is_tile_op(use.owner.operation)]
    names = {name_of_result(op, "") for op in users if not isinstance(op, Filling)
             for _, tile in op.targets() if tile.handle == filled.handle}
    return names.pop() if len(names) == 1 and "tile" not in names else name


def _kept_by_mask(op: Op) -> list[Value]:
    """Return the buffers in which an operation leaves elements as they are, perhaps never written: the destination of a
    predicated copy or of an operation under a mask, or the source of a transfer of rows that a lowered mask added for
    such a copy."""
    if isinstance(op, TensorCopyPredicatedOp):
        return [op.dst.handle]
    is_moved = isinstance(op, DmaCopyOp) and op.src.on_chip and op.dst.on_chip and (
        "nki.name" not in op.dst.handle.owner.attributes)
    moved = [op.src.handle] if is_moved else []         # type: ignore[attr-defined]
    return moved + [tile.handle for _, tile in op.targets() if op.mask and tile.on_chip]


def _is_named(tensor: NamedTensor) -> bool:
    """Return whether the source has a name for a tensor."""
    return tensor.name != UNNAMED and AUTOMATIC.fullmatch(tensor.name) is None


def write_programs(printers: Sequence[BodyPrinter], out: KernelText) -> None:
    """Write programs that differ, or that read each other's tiles, one after the other: all of them up to the first
    reduction over programs, then that reduction, and so on."""
    parts = [program_phases(printer.body) for printer in printers]
    if len({len(phases) for phases in parts}) > 1:
        raise Unprintable(what="a reduction over programs that some of them do not reach",
                          fix="let all programs reduce")
    programs = program_texts(printers[0].kernel.grid, [printer.ids for printer in printers], out)
    for phases in zip(*parts):
        for printer, program, phase in zip(printers, programs, phases):
            with program.of(out), printer.kernel.op.context, ir.Location.unknown():
                for part in phase.parts:
                    out.indices.texts.update(part.numbers)
                    printer.block(part.block)
                    reduction = reduction_over_programs(phase.reduction)
                    printer.name_waiting()
                    out.emit_allocations(*[v for v in out.waiting if reduction is None or v != reduction.dst.handle])
        if phases[0].reduction is not None:
            write_reduction(out, phases, programs, [printer.written_once for printer in printers])
