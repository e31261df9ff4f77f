# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as modules of the ``isa`` dialect, and back."""

from collections.abc import Sequence
from typing import Any

from nki_mlir.bindings import Attribute, Block, Module, Operation, Region, ir
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM, Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.isa.instruction import CompareBranch, Control, Instruction, Label, Register
from nki_mlir.dialects.isa.instruction_reader import (
    NotAProgram,
    engine_named,
    read_instruction,
    read_side,
    read_signals,
    variables_of,
)
from nki_mlir.dialects.isa.ops import load_isa
from nki_mlir.dialects.isa.program import Program, Queue, Semaphore, Variable
from nki_mlir.dialects.source_locations import location_of, with_origin


def program_text(program: Program) -> str:
    """The program as IR text."""
    context = ir.Context()
    load_isa(context)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        write_program(module, program)
        return str(module)


def write_program(module: Module, program: Program) -> None:
    """Put the program into the module, in place of what it contains."""
    load_isa(module.context)
    for operation in reversed(list(module.body.operations)):
        operation.operation.erase()
    _ProgramWriter(module, program)


class _ProgramWriter:
    def __init__(self, module: Module, program: Program) -> None:
        self.program, self.make = program, Attributes()
        self.unknown = ir.Location.unknown()
        value = self.make.value
        whole = self.operation("isa.program", module.body, {
            "kernel": value(program.kernel), "target": value(program.target), "sbuf_bytes": value(program.sbuf_bytes),
            "psum_bytes": value(program.psum_bytes),
            "notes": value(tuple(program.notes))}, regions=1)
        body = whole.regions[0].blocks.append()
        for v in program.variables:
            self.operation("isa.variable", body, {
                "label": value(v.name), "kind": value(v.kind), "index": value(v.index),
                "type": ir.TypeAttr.get(self.make.memref(v.shape, v.dtype, HBM)), "data": value(v.data.hex())})
        for semaphore in program.semaphores:
            self.operation("isa.semaphore", body, {"label": value(semaphore.name)})
        for queue in program.queues:
            self.operation("isa.queue", body, {"label": value(queue.name), "engine": value(queue.engine.asm),
                                               "semaphore": value(queue.semaphore)})
        for engine, stream in program.streams.items():
            if stream:
                op = self.operation("isa.stream", body, {"engine": value(engine.asm)}, regions=1)
                self.stream(op.regions[0], stream)

    def operation(self, name: str, block: Block, attributes: dict[str, Attribute], regions: int = 0,
                  successors: Sequence[Block] = (),
                  location: Location | None = None) -> Operation:
        where = ir.Location.file(location.file, location.line, location.column + 1) if location else self.unknown
        if location and location.origin:
            where = with_origin(location.origin, where)
        return ir.Operation.create(name, attributes=attributes, regions=regions, successors=list(successors), loc=where,
                                   ip=ir.InsertionPoint(block))

    def stream(self, region: Region, stream: Sequence[Instruction]) -> None:
        """Blocks start at branch targets and behind branches; the first has no predecessors."""
        targets = {int(i.op.target) for i in stream if isinstance(i.op, CompareBranch)}
        starts = sorted({0, *targets, *(k + 1 for k, i in enumerate(stream) if isinstance(i.op, CompareBranch))})
        entry = region.blocks.append() if 0 in targets else None
        blocks = {start: region.blocks.append() for start in starts}
        if entry is not None:
            self.operation("isa.next", entry, {}, successors=[blocks[0]])
        for k, instruction in enumerate(stream):
            if k in blocks:
                block = blocks[k]
            op = instruction.op
            if isinstance(op, CompareBranch):
                sides = self.make.value((scalar(op.lhs), scalar(op.rhs)))
                self.operation("isa.branch", block, {"op": self.make.value(op.op), "sides": sides, **self.signals(
                    instruction)}, successors=[blocks[int(op.target)], blocks[k + 1]], location=instruction.location)
                continue
            self.operation("isa.instruction", block, self.instruction(instruction), location=instruction.location)
            if k + 1 in blocks and k + 1 < len(stream):
                self.operation("isa.next", block, {}, successors=[blocks[k + 1]])
        last = blocks.get(len(stream), block)
        if last is not block and not isinstance(stream[-1].op, CompareBranch):
            self.operation("isa.next", block, {}, successors=[last])
        self.operation("isa.end", last, {})

    def signals(self, instruction: Instruction) -> dict[str, Attribute]:
        update = instruction.update
        return {"waits": self.make.value(tuple((w.semaphore, w.value) for w in instruction.waits)),
                "update": self.make.value((update.semaphore, update.amount) if update else ())}

    def instruction(self, instruction: Instruction) -> dict[str, Attribute]:
        op, make = instruction.op, self.make
        tiles: dict[str, Attribute] = {}
        fields: dict[str, Attribute] = {}
        registers: tuple[int, ...] = ()
        if isinstance(op, Control):
            for name, value in op.values().items():
                fields[name] = self.tile(value, 0) if isinstance(value, Tile) else make.value(scalar(value))
        else:
            registers = tuple(s.number for s in op.symbols)
            for field, tile in op.operands():
                tiles[field.name] = self.tile(tile, len(registers))
            axes = len(op.iteration().extents) if Linear in op.attributes.values() else 0
            for name, kind in op.attributes.items():
                value = getattr(op, name)
                if name != "engine":
                    linear = kind is Linear
                    fields[name] = make.linear(value, axes, len(registers)) if linear else make.value(kind(value))
        return {"mnemonic": make.value(op.mnemonic), "tiles": ir.DictAttr.get(tiles), "fields": ir.DictAttr.get(fields),
                "registers": make.value(registers), "queue": make.value(-1 if instruction.queue is None
                                                                        else instruction.queue),
                **self.signals(instruction)}

    def tile(self, tile: Tile, registers: int) -> Attribute:
        """[memory or variable, access]."""
        where = tile.handle.name if tile.space == HBM else tile.space
        return ir.ArrayAttr.get([self.make.value(where), self.make.access(tile.access, registers)])


def scalar(value: Any) -> Any:
    return str(value) if isinstance(value, Register) else int(value) if isinstance(value, int) else value


# -- reading -----------------------------------------------------------------------------------------------------------
def read_program(module: Module) -> Program:
    """The program of a module; raises ``NotAProgram`` or ``MalformedAttribute``."""
    found = [op for op in module.body.operations if op.operation.name == "isa.program"]
    if len(found) != 1:
        raise NotAProgram(what=f"the module has {len(found)} programs")
    attributes = found[0].operation.attributes
    program = Program(attributes["kernel"].value, attributes["target"].value,
                      sbuf_bytes=attributes["sbuf_bytes"].value, psum_bytes=attributes["psum_bytes"].value,
                      notes=[n.value for n in attributes["notes"]])
    program.variables = list(variables_of(found[0].operation).values())
    for one in found[0].operation.regions[0].blocks[0].operations:
        op = one.operation
        marks = op.attributes
        match op.name:
            case "isa.semaphore":
                program.semaphores.append(Semaphore(marks["label"].value))
            case "isa.queue":
                program.queues.append(Queue(marks["label"].value, engine_named(marks["engine"].value),
                                            marks["semaphore"].value))
            case "isa.stream":
                program.streams[engine_named(marks["engine"].value)] = read_stream(
                    op, {v.name: v for v in program.variables})
    return program


def read_stream(stream: Operation, variables: dict[str, Variable]) -> list[Instruction]:
    """The instructions in the order of the blocks."""
    blocks = list(stream.regions[0].blocks)
    starts, total = [], 0
    for block in blocks:
        starts.append(total)
        total += sum(op.operation.name in ("isa.instruction", "isa.branch") for op in block.operations)
    found: list[Instruction] = []
    for block in blocks:
        for one in block.operations:
            op = one.operation
            if op.name == "isa.instruction":
                found.append(read_instruction(op, variables))
            elif op.name == "isa.branch":
                target = starts[blocks.index(op.successors[0])]
                lhs, rhs = (read_side(a) for a in op.attributes["sides"])
                branch = CompareBranch(op.attributes["op"].value, lhs, rhs, Label(target))
                found.append(Instruction(branch, *read_signals(op), None, location_of(op)))
    return found
