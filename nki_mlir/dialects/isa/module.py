# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``isa`` dialect: a program as IR, with a region of blocks for each engine; it writes and reads programs.

``isa.program`` contains the variables, semaphores and queues, then one ``isa.stream`` an engine, then the live ranges
of buffers on chip, if they are known. A block ends with ``isa.branch`` (taken, else), ``isa.next`` or ``isa.end``.
Every other operation is ``isa.instruction``, whose mnemonic names the class with its tiles, fields and rules.
"""

from collections.abc import Callable, Sequence
from typing import Any

from nki_mlir.bindings import Attribute, Block, Context, Module, Operation, Region, ext, ir
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import HBM, SPACES, Access, Linear, Tile
from nki_mlir.dialects.attributes import Attributes, MalformedAttribute, Nki, read_access, read_value, reported
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import DeviceLiveRange, Program, Queue, Semaphore, Variable, hbm_tile, on_chip_tile
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of, with_origin
from nki_mlir.dialects.verification import verify, verify_mask
from nki_mlir.machine import DEFAULT_TARGET, Engine, Machine, machine_named
from nki_mlir.scalar.dtypes import BY_MLIR


class Isa(ext.Dialect, name="isa"):
    """Instruction streams."""


class ProgramOp(Isa.Operation, name="program", traits=[ir.NoTerminatorTrait]):
    """A kernel on one core. Sizes are bytes per partition up to the last used one; notes say how it was compiled."""

    kernel: ir.StringAttr
    target: ir.StringAttr
    sbuf_bytes: ir.IntegerAttr
    psum_bytes: ir.IntegerAttr
    notes: ir.ArrayAttr
    body: ext.Region


class VariableOp(Isa.Operation, name="variable"):
    """A tensor in HBM: ``kind`` is input, output, internal or constant; ``data`` a constant's bytes in hexadecimal."""

    label: ir.StringAttr
    kind: ir.StringAttr
    index: ir.IntegerAttr
    type: ir.TypeAttr
    data: ir.StringAttr


class SemaphoreOp(Isa.Operation, name="semaphore"):
    """A semaphore. Its number is its index among the program's."""

    label: ir.StringAttr


class QueueOp(Isa.Operation, name="queue"):
    """A DMA queue of an engine, with the semaphore that counts its transfers."""

    label: ir.StringAttr
    engine: ir.StringAttr
    semaphore: ir.IntegerAttr


class StreamOp(Isa.Operation, name="stream", traits=[ir.NoTerminatorTrait]):
    """The instructions of one engine."""

    engine: ir.StringAttr
    code: ext.Region


class LiveRangeOp(Isa.Operation, name="live_range"):
    """The live range of a buffer on chip, which checks of a program need.

    The buffer has ``size`` bytes in each of ``partitions``, from ``address`` in ``memory`` on. ``uses`` maps engines to
    the first and last index in their stream of the instructions that access it.
    """

    label: ir.StringAttr
    memory: ir.StringAttr
    address: ir.IntegerAttr
    partitions: ir.IntegerAttr
    size: ir.IntegerAttr
    uses: ir.DictAttr

    def verify_invariants(self) -> bool:
        if any(name not in self.attributes for name in ("label", "memory", "address", "partitions", "size", "uses")):
            return True                         # the presence check, which runs after this one, reports it
        return reported(self, "isa.live_range", self.check)

    def check(self) -> None:
        read_live_range(self.operation)


class _Signaling(Isa.Operation):
    """The attributes of all instructions: ``waits`` are [semaphore, value], ``update`` is [semaphore, amount]
    or empty."""

    waits: ir.ArrayAttr
    update: ir.ArrayAttr


class InstructionOp(_Signaling, name="instruction"):
    """One instruction. A tile is ``[memory or variable, #nki.access<...>]`` with its physical partition and offset.

    The symbols of patterns are ``registers``. ``fields`` are the class's attributes, or a control operation's fields.
    ``queue`` is -1 unless the instruction is a transfer.
    """

    mnemonic: ir.StringAttr
    tiles: ir.DictAttr
    fields: ir.DictAttr
    registers: ir.ArrayAttr
    queue: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        if any(name not in self.attributes for name in ("mnemonic", "tiles", "fields", "registers", "queue", "waits",
                                                        "update")):
            return True                         # the presence check, which runs after this one, reports it
        return reported(self, "isa.instruction", lambda: _verify(read_instruction(self.operation).op))


def _verify(op: Op | isa.Control) -> None:
    if isinstance(op, Op):
        verify(op)
        verify_mask(op)


class BranchOp(_Signaling, name="branch", traits=[ir.IsTerminatorTrait]):
    """Branch to the first successor if ``lhs op rhs``, else to the second. Sides are numbers or registers ("r1")."""

    op: ir.StringAttr
    sides: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        return reported(self, "isa.branch", self.check)

    def check(self) -> None:
        if "op" in self.attributes and self.attributes["op"].value not in isa.COMPARISONS:
            raise MalformedAttribute(f"has no comparison {self.attributes['op']}")
        if len(self.operation.successors) != 2:
            raise MalformedAttribute("needs two successors")


class NextOp(Isa.Operation, name="next", traits=[ir.IsTerminatorTrait]):
    """Continue with the successor, which comes next in the stream."""


class EndOp(Isa.Operation, name="end", traits=[ir.IsTerminatorTrait]):
    """The end of the stream."""


def load_isa(context: Context) -> None:
    """Load the dialect, and ``nki`` for access patterns, unless they are loaded already."""
    with context, ir.Location.unknown():
        for name, dialect in (("nki", Nki), ("isa", Isa)):
            if not context.is_dialect_loaded(name):
                dialect.load()


# -- writing -----------------------------------------------------------------------------------------------------------
def program_text(program: Program, text_of: Callable[[Module], str] = str) -> str:
    """Return the program as IR text; ``text_of`` prints its module."""
    context = ir.Context()
    load_isa(context)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        write_program(module, program)
        return text_of(module)


def write_program(module: Module, program: Program) -> None:
    """Write the program to the module, in place of its contents."""
    load_isa(module.context)
    for operation in reversed(list(module.body.operations)):
        operation.operation.erase()
    _ProgramWriter(module, program)


class _ProgramWriter:
    def __init__(self, module: Module, program: Program) -> None:
        self.program, self.make = program, Attributes()
        self.unknown = ir.Location.unknown()
        value = self.make.value
        program_op = self.operation("isa.program", module.body, {
            "kernel": value(program.kernel), "target": value(program.target), "sbuf_bytes": value(program.sbuf_bytes),
            "psum_bytes": value(program.psum_bytes),
            "notes": value(tuple(program.notes))}, regions=1)
        body = program_op.regions[0].blocks.append()
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
        for live in program.live:
            self.operation("isa.live_range", body, {
                "label": value(live.name), "memory": value(live.space), "address": value(live.address),
                "partitions": value(live.partitions), "size": value(live.size),
                "uses": ir.DictAttr.get({engine.asm: value((first, last)) for engine, first, last in live.spans})})

    def operation(self, name: str, block: Block, attributes: dict[str, Attribute], regions: int = 0,
                  successors: Sequence[Block] = (),
                  location: Location | None = None) -> Operation:
        op_location = ir.Location.file(location.file, location.line, location.column + 1) if location else self.unknown
        if location and location.origin:
            op_location = with_origin(location.origin, op_location)
        return ir.Operation.create(name, attributes=attributes, regions=regions, successors=list(successors),
                                   loc=op_location, ip=ir.InsertionPoint(block))

    def stream(self, region: Region, stream: Sequence[isa.Instruction]) -> None:
        """Write a stream as blocks, which start at branch targets and after branches; the first has
        no predecessors."""
        targets = {int(i.op.target) for i in stream if isinstance(i.op, isa.CompareBranch)}
        branches = [number for number, i in enumerate(stream) if isinstance(i.op, isa.CompareBranch)]
        starts = sorted({0, *targets, *(number + 1 for number in branches)})
        entry = region.blocks.append() if 0 in targets else None
        blocks = {start: region.blocks.append() for start in starts}
        if entry is not None:
            self.operation("isa.next", entry, {}, successors=[blocks[0]])
        for number, instruction in enumerate(stream):
            if number in blocks:
                block = blocks[number]
            op = instruction.op
            if isinstance(op, isa.CompareBranch):
                sides = self.make.value((scalar(op.lhs), scalar(op.rhs)))
                self.operation("isa.branch", block, {"op": self.make.value(op.op), "sides": sides, **self.signals(
                    instruction)}, successors=[blocks[int(op.target)], blocks[number + 1]],
                               location=instruction.location)
                continue
            self.operation("isa.instruction", block, self.instruction(instruction), location=instruction.location)
            if number + 1 in blocks and number + 1 < len(stream):
                self.operation("isa.next", block, {}, successors=[blocks[number + 1]])
        end_block = blocks.get(len(stream), block)
        if end_block is not block and not isinstance(stream[-1].op, isa.CompareBranch):
            self.operation("isa.next", block, {}, successors=[end_block])
        self.operation("isa.end", end_block, {})

    def signals(self, instruction: isa.Instruction) -> dict[str, Attribute]:
        update = instruction.update
        return {"waits": self.make.value(tuple((w.semaphore, w.value) for w in instruction.waits)),
                "update": self.make.value((update.semaphore, update.amount) if update else ())}

    def instruction(self, instruction: isa.Instruction) -> dict[str, Attribute]:
        op, make = instruction.op, self.make
        tiles: dict[str, Attribute] = {}
        fields: dict[str, Attribute] = {}
        registers: tuple[int, ...] = ()
        if isinstance(op, isa.Control):
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
        """Return [memory or variable, access]."""
        memory = tile.handle.name if tile.space == HBM else tile.space
        return ir.ArrayAttr.get([self.make.value(memory), self.make.access(tile.access, registers)])


def scalar(value: object) -> int | str:
    return int(value) if isinstance(value, int) else str(value)


# -- reading -----------------------------------------------------------------------------------------------------------
class NotAProgram(NkiMlirError):
    code = "NKI-ISA"
    message = "{what}"
    fix = "give a module at the isa level, with one isa.program"


def read_program(module: Module) -> Program:
    """Return the program of a module; raise ``NotAProgram`` or ``MalformedAttribute`` if it has none."""
    programs = [op for op in module.body.operations if op.operation.name == "isa.program"]
    if len(programs) != 1:
        raise NotAProgram(what=f"the module has {len(programs)} programs").located(location_of(
            programs[1].operation if programs else module.operation))
    attributes = programs[0].operation.attributes
    program = Program(attributes["kernel"].value, attributes["target"].value,
                      sbuf_bytes=attributes["sbuf_bytes"].value, psum_bytes=attributes["psum_bytes"].value,
                      notes=[n.value for n in attributes["notes"]])
    program.variables = list(variables_of(programs[0].operation).values())
    for nested in programs[0].operation.regions[0].blocks[0].operations:
        op = nested.operation
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
            case "isa.live_range":
                program.live.append(read_live_range(op))
    return program


def read_stream(stream: Operation, variables: dict[str, Variable]) -> list[isa.Instruction]:
    """Return the instructions in the order of the blocks."""
    blocks = list(stream.regions[0].blocks)
    starts, total = [], 0
    for block in blocks:
        starts.append(total)
        total += sum(op.operation.name in ("isa.instruction", "isa.branch") for op in block.operations)
    instructions: list[isa.Instruction] = []
    for block in blocks:
        for nested in block.operations:
            op = nested.operation
            if op.name == "isa.instruction":
                instructions.append(read_instruction(op, variables))
            elif op.name == "isa.branch":
                target = starts[blocks.index(op.successors[0])]
                lhs, rhs = (read_side(a) for a in op.attributes["sides"])
                branch = isa.CompareBranch(op.attributes["op"].value, lhs, rhs, isa.Label(target))
                instructions.append(isa.Instruction(branch, *read_signals(op), None, location_of(op)))
    return instructions


def engine_named(name: str) -> Engine:
    if name not in isa.BY_ASM:
        raise NotAProgram(what=f"there is no engine '{name}'")
    return isa.BY_ASM[name]


def variables_of(program: Operation) -> dict[str, Variable]:
    """Return the variables of an ``isa.program``."""
    variables = {}
    for nested in program.regions[0].blocks[0].operations:
        if nested.operation.name == "isa.variable":
            marks = nested.operation.attributes
            kind = ir.MemRefType(marks["type"].value)
            variables[marks["label"].value] = Variable(
                marks["label"].value, marks["kind"].value, marks["index"].value, tuple(kind.shape),
                BY_MLIR[str(kind.element_type)], bytearray.fromhex(marks["data"].value))
    return variables


def read_live_range(op: Operation) -> DeviceLiveRange:
    """Read one ``isa.live_range``; raise ``MalformedAttribute`` if it is none."""
    marks = op.attributes
    uses = {use.name: use.attr for use in marks["uses"]}
    if not all(isinstance(use, ir.ArrayAttr) and all(isinstance(n, ir.IntegerAttr) for n in use)
               for use in uses.values()):
        raise MalformedAttribute(f"'uses' must have the first and the last index for each engine, got {marks['uses']}")
    text = " ".join([marks["label"].value, marks["memory"].value, hex(marks["address"].value),
                     f"{marks['partitions'].value}*{marks['size'].value}",
                     *(f"{name}:{'-'.join(str(n.value) for n in use)}" for name, use in uses.items())])
    live = DeviceLiveRange.read(text)
    if live is None:
        raise MalformedAttribute(f"is not a live range: '{text}'")
    return live


def read_signals(op: Operation) -> tuple[tuple[isa.Wait, ...], isa.Update | None]:
    waits = tuple(isa.Wait(*(n.value for n in w)) for w in op.attributes["waits"])
    update = [n.value for n in op.attributes["update"]]
    return waits, isa.Update(*update) if update else None


def read_instruction(op: Operation, variables: dict[str, Variable] | None = None) -> isa.Instruction:
    """Read one ``isa.instruction``. Without ``variables`` the program's are looked up around it.

    Raise ``MalformedAttribute``, or the error of the object that an attribute names: the dialect declares the kind
    of each attribute, not the contents of arrays and dictionaries.
    """
    try:
        return _instruction(op, variables)
    except (MalformedAttribute, NkiMlirError):
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise MalformedAttribute(f"has an attribute that is not of the documented form: {error}") from None


def _instruction(op: Operation, variables: dict[str, Variable] | None) -> isa.Instruction:
    marks = op.attributes
    name = marks["mnemonic"].value
    cls = isa.by_mnemonic().get(name)
    if cls is None:
        raise MalformedAttribute(f"names no instruction: '{name}'")
    stream = op.parent
    program = stream.operation.parent if stream is not None else None
    if variables is None:
        variables = variables_of(program.operation) if program is not None else {}
    target = program.operation.attributes["target"].value if program is not None else DEFAULT_TARGET
    machine = machine_named(target)
    decoded = (read_control(cls, marks["fields"], variables, machine) if issubclass(cls, isa.Control) else
               read_operation(cls, marks, variables, machine, stream.operation.attributes["engine"].value))
    queue = marks["queue"].value
    return isa.Instruction(decoded, *read_signals(op), None if queue < 0 else queue, location_of(op))


def entry(entries: ir.DictAttr, name: str, mnemonic: str) -> Any:
    """Return a named entry, or raise ``MalformedAttribute``."""
    if name not in entries:
        raise MalformedAttribute(f"{mnemonic} lacks '{name}'")
    return entries[name]


def read_scalar(attribute: ir.StringAttr | ir.IntegerAttr) -> isa.Scalar | str:
    value = attribute.value
    if isinstance(value, str):
        return isa.Register(int(value[1:])) if value[:1] == "r" and value[1:].isdigit() else value
    return value


def read_side(attribute: ir.StringAttr | ir.IntegerAttr) -> isa.Scalar:
    """Read one side of a branch's comparison."""
    value = read_scalar(attribute)
    if isinstance(value, str):
        raise MalformedAttribute(f"a branch compares numbers and registers, not '{value}'")
    return value


def read_control(cls: type[isa.Control], fields: ir.DictAttr, variables: dict[str, Variable], machine: Machine
                 ) -> isa.Control:
    values: dict[str, object] = {}
    for name, kind in cls.kinds().items():
        if kind is Tile:
            memory, pattern = entry(fields, name, cls.mnemonic)
            values[name] = read_tile(memory.value, read_access(pattern), variables, machine, name)
            continue
        value = values[name] = read_scalar(entry(fields, name, cls.mnemonic))
        if not isinstance(value, str if kind is str else isa.Register if kind is isa.Register else isa.Scalar):
            raise MalformedAttribute(f"field {name} of {cls.mnemonic} cannot be {fields[name]}")
    return cls(**values)


def read_operation(cls: type[Op], marks: ir.OpAttributeMap, variables: dict[str, Variable], machine: Machine,
                   engine: str) -> Op:
    values: dict[str, Any] = {"engine": engine_named(engine).value} if "engine" in cls.attributes else {}
    for field in cls.tiles:
        if field.name in marks["tiles"]:
            memory, pattern = marks["tiles"][field.name]
            values[field.name] = read_tile(memory.value, read_access(pattern), variables, machine, field.name)
        elif not field.optional:
            raise MalformedAttribute(f"{cls.mnemonic} lacks '{field.name}'")
    for name, kind in cls.attributes.items():
        if name != "engine":
            values[name] = read_value(entry(marks["fields"], name, cls.mnemonic), kind, name)
    return cls(symbols=tuple(isa.Register(r.value) for r in marks["registers"]), **values)


def read_tile(memory: str, access: Access, variables: dict[str, Variable], machine: Machine, label: str) -> Tile:
    if (access.partition is None) == (memory in SPACES):
        raise MalformedAttribute(f"the access of '{label}' does not fit its memory '{memory}'")
    if memory in SPACES:
        return on_chip_tile(memory, access, machine, label)
    if memory not in variables:
        raise MalformedAttribute(f"there is no variable '{memory}'")
    return hbm_tile(variables[memory], access, label)
