# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads instructions of the ``isa`` dialect: what the attributes of an operation stand for."""

from typing import Any

from nki_mlir.bindings import Operation, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import SPACES, Access, Tile
from nki_mlir.dialects.attributes import MalformedAttribute, read_access, read_value
from nki_mlir.dialects.isa.instruction import BY_ASM, Control, Instruction, Register, Scalar, Update, Wait, by_mnemonic
from nki_mlir.dialects.isa.program import Variable, hbm_tile, on_chip_tile
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.machine import Engine, Machine, machine_named
from nki_mlir.scalar.dtypes import BY_MLIR


class NotAProgram(NkiMlirError):
    code = "NKI-ISA"
    message = "{what}"
    fix = "a module at the isa level has one isa.program"


def engine_named(name: str) -> Engine:
    if name not in BY_ASM:
        raise NotAProgram(what=f"there is no engine '{name}'")
    return BY_ASM[name]


def variables_of(program: Operation) -> dict[str, Variable]:
    """The variables of an ``isa.program``."""
    made = {}
    for one in program.regions[0].blocks[0].operations:
        if one.operation.name == "isa.variable":
            marks = one.operation.attributes
            kind = ir.MemRefType(marks["type"].value)
            made[marks["label"].value] = Variable(
                marks["label"].value, marks["kind"].value, marks["index"].value, tuple(kind.shape),
                BY_MLIR[str(kind.element_type)], bytearray.fromhex(marks["data"].value))
    return made


def read_signals(op: Operation) -> tuple[tuple[Wait, ...], Update | None]:
    waits = tuple(Wait(*(n.value for n in w)) for w in op.attributes["waits"])
    update = [n.value for n in op.attributes["update"]]
    return waits, Update(*update) if update else None


def read_instruction(op: Operation, variables: dict[str, Variable] | None = None) -> Instruction:
    """One ``isa.instruction``. Without the program's variables they are looked up around it.

    Raises ``MalformedAttribute``, or the error of what an attribute names: the dialect declares the kind of each
    attribute, not what arrays and dictionaries hold.
    """
    try:
        return _instruction(op, variables)
    except (MalformedAttribute, NkiMlirError):
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise MalformedAttribute(f"has an attribute that is not of the documented form: {error}") from None


def _instruction(op: Operation, variables: dict[str, Variable] | None) -> Instruction:
    marks = op.attributes
    name = marks["mnemonic"].value
    cls = by_mnemonic().get(name)
    if cls is None:
        raise MalformedAttribute(f"names no instruction: '{name}'")
    stream = op.parent
    program = stream.operation.parent if stream is not None else None
    if variables is None:
        variables = variables_of(program.operation) if program is not None else {}
    target = program.operation.attributes["target"].value if program is not None else "trn2"
    machine = machine_named(target)
    made = read_control(cls, marks["fields"], variables, machine) if issubclass(cls, Control) else read_operation(
        cls, marks, variables, machine, stream.operation.attributes["engine"].value)
    queue = marks["queue"].value
    return Instruction(made, *read_signals(op), None if queue < 0 else queue, location_of(op))


def entry(found: ir.DictAttr, name: str, mnemonic: str) -> Any:
    """A named entry, or ``MalformedAttribute``."""
    if name not in found:
        raise MalformedAttribute(f"{mnemonic} lacks '{name}'")
    return found[name]


def read_scalar(attribute: ir.StringAttr | ir.IntegerAttr) -> Scalar | str:
    value = attribute.value
    if isinstance(value, str):
        return Register(int(value[1:])) if value[:1] == "r" and value[1:].isdigit() else value
    return value


def read_side(attribute: ir.StringAttr | ir.IntegerAttr) -> Scalar:
    """One of what a branch compares."""
    value = read_scalar(attribute)
    if isinstance(value, str):
        raise MalformedAttribute(f"a branch compares numbers and registers, not '{value}'")
    return value


def read_control(cls: type[Control], fields: ir.DictAttr, variables: dict[str, Variable], machine: Machine) -> Control:
    values: dict[str, object] = {}
    for name, kind in cls.kinds().items():
        if kind is Tile:
            where, pattern = entry(fields, name, cls.mnemonic)
            values[name] = read_tile(where.value, read_access(pattern), variables, machine, name)
            continue
        value = values[name] = read_scalar(entry(fields, name, cls.mnemonic))
        if not isinstance(value, str if kind is str else Register if kind is Register else Scalar):
            raise MalformedAttribute(f"field {name} of {cls.mnemonic} cannot be {fields[name]}")
    return cls(**values)


def read_operation(cls: type[Op], marks: ir.OpAttributeMap, variables: dict[str, Variable], machine: Machine,
                   engine: str) -> Op:
    values: dict[str, Any] = {"engine": engine_named(engine).value} if "engine" in cls.attributes else {}
    for field in cls.tiles:
        if field.name in marks["tiles"]:
            where, pattern = marks["tiles"][field.name]
            values[field.name] = read_tile(where.value, read_access(pattern), variables, machine, field.name)
        elif not field.optional:
            raise MalformedAttribute(f"{cls.mnemonic} lacks '{field.name}'")
    for name, kind in cls.attributes.items():
        if name != "engine":
            values[name] = read_value(entry(marks["fields"], name, cls.mnemonic), kind, name)
    return cls(symbols=tuple(Register(r.value) for r in marks["registers"]), **values)


def read_tile(where: str, access: Access, variables: dict[str, Variable], machine: Machine, label: str) -> Tile:
    if (access.partition is None) == (where in SPACES):
        raise MalformedAttribute(f"the access of '{label}' does not fit its memory '{where}'")
    if where in SPACES:
        return on_chip_tile(where, access, machine, label)
    if where not in variables:
        raise MalformedAttribute(f"there is no variable '{where}'")
    return hbm_tile(variables[where], access, label)
