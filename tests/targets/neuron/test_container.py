# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The binary container: its layout, and that nothing but a clear error comes of a damaged one."""

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Access, Linear
from nki_mlir.dialects.isa.instruction import Instruction, Register
from nki_mlir.dialects.isa.program import DeviceLiveRange, Program, on_chip_tile
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.machine import Engine, machine_named
from nki_mlir.scalar.dtypes import UINT8
from nki_mlir.targets.neuron import assemble, disassemble
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.format.assembly import parse_program, print_program
from nki_mlir.targets.neuron.format.container import (
    CODE,
    MAGIC,
    PREAMBLE,
    SECTION,
    assembled,
    decode_program,
    encode_program,
    split,
)
from nki_mlir.targets.neuron.format.encoding import HEADER, SLOT, BadBinary, EncodingError
from nki_mlir.targets.neuron.validate import BadProgram

from .random_code import RandomCode
from .test_assembly import PROGRAM

DATA = assemble(PROGRAM)
LARGER = encode_program(emit_code(RandomCode(1, 20).code, Emission(unroll_limit=10)))


def test_layout__starts_with_magic_version_and_a_table_of_sections():
    magic, version, count, checksum = PREAMBLE.unpack_from(DATA)
    assert (magic, version, count) == (MAGIC, 1, 8 + len(CODE))
    table = DATA[PREAMBLE.size:PREAMBLE.size + SECTION.size * count]
    assert zlib.crc32(table) == checksum
    tags = [tag for tag, *_ in SECTION.iter_unpack(table)]
    assert tags == [b"HEAD", b"VARS", b"DATA", b"SEMA", b"QUEU", b"NOTE", b"Cpe_", b"Cact", b"Cdve", b"Cpoo", b"Csp_",
                    b"LOCS", b"STRS"]


def test_instruction__takes_whole_slots_and_starts_with_its_opcode():
    code = split(DATA)[b"Cdve"]
    assert len(code) % SLOT == 0
    opcodes, at = [], 0
    while at < len(code):
        opcode, _, engine, slots, *_ = HEADER.unpack_from(code, at)
        opcodes.append(opcode)
        assert engine == 2 and slots
        at += slots * SLOT
    assert opcodes == [0x03, 0x10, 0x11, 0x04, 0x05]


def with_section(data, tag, content):
    """The container with one section replaced, all checksums right."""
    return assembled({**split(data), tag: content})


@pytest.mark.parametrize("data,what", [
    (b"", "the file ends too early"),
    (b"hello world, this is not a program", "it does not start with the container's magic number"),
    (DATA[:4] + b"\x02" + DATA[5:], "it is of version 2; this reads version 1"),
    (DATA[:PREAMBLE.size + 5], "the file ends too early"),
    (DATA[:8] + b"\0\0\0\0" + DATA[12:], "the checksum of the section table differs"),
    (DATA[:-1], "section STRS ends beyond the end of the file"),
    (DATA[:-1] + bytes([DATA[-1] ^ 1]), "the checksum of section STRS differs"),
    (assembled({k: v for k, v in split(DATA).items() if k != b"QUEU"}), "section QUEU is missing"),
    (with_section(DATA, b"STRS", b"\x05\0\0\0ab"), "the string table ends too early"),
    (with_section(DATA, b"STRS", b"\x02\0\0\0\xff\xff"), "a string is not UTF-8"),
    (with_section(DATA, b"SEMA", b"\0"), "the semaphores end too early"),
    (with_section(DATA, b"SEMA", b"\xff\xff"), "there is no string 65535"),
    (with_section(DATA, b"Cdve", b"\xee" + split(DATA)[b"Cdve"][1:]), "the stream of dve has an unknown opcode 0xee"),
    (with_section(DATA, b"Cdve", split(DATA)[b"Cdve"][:-32]), "the stream of dve ends too early"),
    (with_section(DATA, b"Cpe_", split(DATA)[b"Cdve"]), "the stream of pe has a malformed header at byte 0"),
])
def test_error__damaged(data, what):
    with pytest.raises(BadBinary) as caught:
        disassemble(data)
    assert f"error: the binary is not valid: {what}" in str(caught.value)


@pytest.mark.fuzz
@given(st.data())
def test_damage__gives_an_error_or_another_program_but_never_a_crash(draw):
    """Bytes of a section changed, cut or added, with checksums that fit."""
    data = draw.draw(st.sampled_from([DATA, LARGER]))
    sections = split(data)
    tag = draw.draw(st.sampled_from(sorted(sections)))
    content = bytearray(sections[tag])
    for _ in range(draw.draw(st.integers(1, 3))):
        if content and draw.draw(st.booleans()):
            content[draw.draw(st.integers(0, len(content) - 1))] = draw.draw(st.integers(0, 255))
        elif draw.draw(st.booleans()):
            del content[draw.draw(st.integers(0, len(content))):]
        else:
            content += draw.draw(st.binary(max_size=70))
    try:
        text = disassemble(with_section(data, tag, bytes(content)))
    except NkiMlirError:
        return
    assert assemble(text)


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_noise__gives_an_error(data):
    with pytest.raises(NkiMlirError, match="the binary is not valid: "):
        disassemble(data)


@pytest.mark.fuzz
@given(st.integers(0, len(PROGRAM) - 1), st.integers(0, 8), st.text(max_size=6))
def test_damaged_text__gives_an_error_or_another_program_but_never_a_crash(at, length, inserted):
    try:
        data = assemble(PROGRAM[:at] + inserted + PROGRAM[at + length:])
    except NkiMlirError:
        return
    assert disassemble(data)


def test_error__step_that_does_not_fit_the_descriptor():
    machine = machine_named("trn2")
    access = Access(UINT8, Linear(), Linear(), ((1, 128), (40_000, 2)))
    program = Program("k", "trn2")
    program.streams[Engine.VECTOR].append(Instruction(MemsetOp(
        dst=on_chip_tile("sbuf", access, machine, "t"), value=0.0, engine="vector")))
    with pytest.raises(EncodingError, match=r"a step or extent of t\[128, 2\] uint8 in sbuf: 40000, 2 does not fit"):
        encode_program(program)


def test_strings__of_instructions_fit_however_many_live_ranges_there_are():
    """An instruction has 16 bits for the number of its string; a long kernel has more live ranges than that."""
    program = parse_program(PROGRAM)
    program.live = [DeviceLiveRange("t", "sbuf", 0, 128, 4, 4, ((Engine.VECTOR, k, k),)) for k in range(1 << 16)]
    decoded = decode_program(encode_program(program))
    assert decoded.live == program.live
    program.live, decoded.live = [], []
    assert print_program(decoded) == print_program(program)


def test_numbers__are_little_endian():
    head = split(DATA)[b"HEAD"]
    assert struct.unpack("<HHII", head)[2:] == (4096, 2048)


@pytest.mark.parametrize("number", [31, 32, 255])
def test_error__register_that_no_engine_has(number):
    """The text form has none of these; a binary has a byte for its number."""
    program = parse_program(PROGRAM)
    first = program.streams[Engine.VECTOR][0]
    program.streams[Engine.VECTOR][0] = replace(first, op=replace(first.op, dst=Register(number)))
    data = encode_program(program)
    if number == 31:
        assert "MOVE dst=r31 value=0" in disassemble(data)
        return
    with pytest.raises(BadProgram, match=f"dve 0000: there is no register r{number}"):
        disassemble(data)
