# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as assembly text. ``parser`` reads exactly this text back; docs/isa.md describes it.

An instruction is printed from its class: mnemonic, attributes that differ from their defaults, tiles by field name.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, Linear, Tile
from nki_mlir.dialects.isa.instruction import Control, Instruction, Label, Register, check_encodable, is_dma
from nki_mlir.dialects.isa.program import (
    PARTITION_STRIDE,
    PSUM_BASE,
    Program,
    Variable,
    descriptors,
    linear_address,
    scaled,
)
from nki_mlir.dialects.op import Op
from nki_mlir.machine import machine_named

VERSION = 1
DATA_LINE = 64                  # bytes of a constant on one line
WORD = re.compile(r"[\w.+-]+")


class NotEmittable(NkiMlirError):
    code = "NKI-EMIT"
    message = "'{op}' cannot be an instruction: {what}"
    fix = "run the passes that lower to the isa level"


def print_program(program: Program) -> str:
    """The whole text."""
    return "\n".join([*header(program), *streams(program)]) + "\n"


# -- header ------------------------------------------------------------------------------------------------------------
def header(program: Program) -> Iterator[str]:
    """The lines above the streams: sizes, notes, variables with their data, semaphores, queues."""
    machine = machine_named(program.target)
    yield f".nki_isa {VERSION}"
    yield f".kernel {program.kernel}"
    yield f".target {program.target}"
    yield f".sbuf {program.sbuf_bytes} of {machine.sbuf_bytes_per_partition}"
    yield f".psum {program.psum_bytes} of {machine.psum_bytes_per_partition}"
    yield from (f".note {note}" for note in program.notes)
    for variable in program.variables:
        extents = ",".join(map(str, variable.shape))
        yield f".{variable.kind} {variable.name} {variable.dtype.asm}[{extents}] {variable.index}"
        for at in range(0, len(variable.data), DATA_LINE):
            yield f".data {variable.data[at:at + DATA_LINE].hex()}"
    for number, semaphore in enumerate(program.semaphores):
        yield f".semaphore {number} {semaphore.name}"
    for number, queue in enumerate(program.queues):
        yield f".queue {number} {queue.name} {queue.engine.asm} {queue.semaphore}"


# -- streams -----------------------------------------------------------------------------------------------------------
def streams(program: Program) -> Iterator[str]:
    for engine, stream in program.streams.items():
        if stream:
            yield f".stream {engine.asm}"
        for pc, instruction in enumerate(stream):
            yield f"{engine.asm} {pc:04d}: {instruction_text(instruction, program)}"


def instruction_text(instruction: Instruction, program: Program) -> str:
    """Waits, operation, update, source line."""
    def semaphore(number: int) -> str:
        return f"S[{number}] ({program.semaphores[number].name})"

    parts = [f"{semaphore(w.semaphore)}>={w.value}" for w in instruction.waits]
    parts.append(operation_text(instruction.op, instruction.queue))
    if (update := instruction.update) is not None:
        parts.append(f"{semaphore(update.semaphore)}{amount_text(update.amount)}@complete")
    if (at := instruction.location) is not None:
        parts.append(f" // {at.file}:{at.line}")
    return " ".join(parts)


def amount_text(amount: int) -> str:
    if abs(amount) == 1:
        return "++" if amount == 1 else "--"
    return f"+={amount}" if amount > 0 else f"-={-amount}"


def operation_text(op: Op | Control, queue: int | None = None) -> str:
    """Mnemonic and fields."""
    if isinstance(op, Control):
        fields = [f"{name}={scalar_text(value)}" for name, value in op.values().items()]
        return " ".join([op.mnemonic, *fields])
    check_plain(op)
    parts = [op.mnemonic] if queue is None else [op.mnemonic, f"queue={queue}"]
    for name, kind in op.attributes.items():
        value = getattr(op, name)
        if name == "engine":
            continue
        text = attribute_text(value, kind, op.symbols)
        # As text, because -0.0 is not 0.0.
        if name not in op.defaults or text != attribute_text(op.defaults[name], kind, ()):
            parts.append(f"{name}={text}")
    channels = next((t.partitions for _, t in op.operands() if t.on_chip), None)
    parts += [f"{f.name}={tile_text(t, op.symbols, channels)}" for f, t in op.operands()]
    if channels is not None:
        parts.append(f"channels={channels}")
    if is_dma(type(op)) and (runs := descriptors(op)) is not None:
        parts.append("descriptors={}*{}".format(*runs))
    return " ".join(parts)


def check_plain(op: Op) -> None:
    """What an instruction cannot carry: masks, and bounds left to run time."""
    check_encodable(type(op))
    if op.mask or op.limits:
        raise NotEmittable(op=op.full_name(), what="it has a mask that is no box")


def scalar_text(value: object) -> str:
    if isinstance(value, Tile):
        return tile_text(value, (), None)
    return f"{value:04d}" if isinstance(value, Label) else str(value)


def attribute_text(value: Any, kind: type, symbols: tuple[Register, ...]) -> str:
    """One attribute. Text that is no plain word stands in quotation marks, as in JSON."""
    if kind is Linear:
        return linear_text(value, symbols)
    if kind is tuple:
        return f"({','.join(map(str, value))})"
    if kind is float:
        return repr(float(value))
    if kind is str:
        return value if WORD.fullmatch(value) else json.dumps(value)
    return str(int(value)) if kind is bool else str(value)


def linear_text(form: Linear, symbols: tuple[Register, ...]) -> str:
    """``3+4*d0-2*r1``: axes are d, registers r."""
    axes = "".join(f"{c:+d}*d{axis}" for axis, c in form.axes)
    return f"{form.const}{axes}{register_terms(form, symbols)}"


def register_terms(form: Linear, symbols: tuple[Register, ...], unit: str = "") -> str:
    """``+64*r1``, in the order of the registers."""
    terms = sorted((symbols[k].number, c) for k, c in form.symbols)
    return "".join(f"{c:+d}*r{number}{unit}" for number, c in terms)


# -- tiles -------------------------------------------------------------------------------------------------------------
def tile_text(tile: Tile, symbols: tuple[Register, ...], channels: int | None) -> str:
    """``fp32@0x28000[1,64][64,4]``: dtype, address, steps and counts innermost first, in elements."""
    dims = tile.access.free_dims[::-1]
    steps, counts = (",".join(str(d[k]) for d in dims) for k in (0, 1))
    lanes = ""
    if tile.on_chip:
        broadcast = tile.access.dims[0][0] == 0
        if broadcast or tile.partitions != channels:
            lanes = f"*{tile.partitions}{'b' if broadcast else ''}"
    return f"{tile.dtype.asm}@{address_text(tile, symbols)}[{steps}][{counts}]{lanes}"


def address_text(tile: Tile, symbols: tuple[Register, ...]) -> str:
    """The start, then what registers add: bytes, or partitions where a term ends in p."""
    free = scaled(tile.access.free, tile.dtype.itemsize)
    terms = []
    if tile.space == HBM:
        assert isinstance(tile.handle, Variable)
        text = tile.handle.name
        if free.const:
            terms.append(byte_text(free.const))
    else:
        partition = tile.access.partition
        assert partition is not None
        inside = 0 <= partition.const < tile.base_shape[0] and 0 <= free.const < PARTITION_STRIDE
        text = hex(linear_address(tile.space, partition.const, free.const) if inside
                   else PSUM_BASE if tile.space == PSUM else 0)
        if not inside:
            terms += [f"{partition.const:+d}p", byte_text(free.const)]
        terms.append(register_terms(partition, symbols, "p"))
    return text + "".join(terms) + register_terms(free, symbols)


def byte_text(offset: int) -> str:
    return f"{'-' if offset < 0 else '+'}{abs(offset):#x}"
