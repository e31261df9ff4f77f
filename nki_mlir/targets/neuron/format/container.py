# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The binary container: magic, version, a table of sections with checksums, the sections (layout: docs/isa.md)."""

import struct
import zlib
from collections.abc import Callable

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.isa.instruction import Instruction
from nki_mlir.dialects.isa.program import KINDS, DeviceLiveRange, Program, Queue, Semaphore, Variable
from nki_mlir.machine import ENGINES, Engine, machine_named
from nki_mlir.targets.neuron.format.encoding import DTYPES, BadBinary, Bytes, Decoder, Encoder, entry, pack
from nki_mlir.targets.neuron.validate import check_program

MAGIC = b"\x7fNKI"
VERSION = 1
PREAMBLE = struct.Struct("<4sHHI")          # magic, version, sections, checksum of the section table
SECTION = struct.Struct("<4sIII")           # tag, offset, size, checksum
HEAD = struct.Struct("<HHII")               # kernel, target, SBUF and PSUM high-water marks
VARIABLE = struct.Struct("<HBBHHQ")         # name, kind, dtype, index, dims, bytes of data
NUMBER = struct.Struct("<I")
EXTENT = struct.Struct("<Q")
NAME = struct.Struct("<H")
QUEUE = struct.Struct("<HBB")               # name, engine, semaphore
LOCATION = struct.Struct("<HI")                # file, line
CODE = {engine: f"C{engine.asm}".ljust(4, "_").encode()[:4] for engine in ENGINES}


def encode_program(program: Program) -> bytes:
    """Encode a program as a file."""
    encoder = Encoder(program.variables)
    string = encoder.strings.number
    head = pack(HEAD, "the header", string(program.kernel), string(program.target), program.sbuf_bytes,
                program.psum_bytes)
    variables = b"".join(
        pack(VARIABLE, f"variable {v.name}", string(v.name), KINDS.index(v.kind), DTYPES.index(v.dtype), v.index,
             len(v.shape), len(v.data)) + b"".join(EXTENT.pack(n) for n in v.shape) for v in program.variables)
    sections = {
        b"HEAD": head,
        b"VARS": variables,
        b"DATA": b"".join(bytes(v.data) for v in program.variables),
        b"SEMA": b"".join(NAME.pack(string(s.name)) for s in program.semaphores),
        b"QUEU": b"".join(pack(QUEUE, f"queue {q.name}", string(q.name), ENGINES.index(q.engine), q.semaphore)
                          for q in program.queues)}
    sections[b"NOTE"] = b"".join(NUMBER.pack(string(note)) for note in program.notes)
    for engine, stream in program.streams.items():
        sections[CODE[engine]] = encoded(encoder, stream, engine)
    sections[b"LOCS"] = b"".join(LOCATION.pack(*location) for location in encoder.locations.numbers)
    if program.live:                # added after the strings of instructions, whose numbers have 16 bits
        sections[b"LIVE"] = b"".join(NUMBER.pack(string(str(live))) for live in program.live)
    texts = [s.encode() for s in encoder.strings.numbers]
    sections[b"STRS"] = b"".join(NUMBER.pack(len(t)) + t for t in texts)
    return assembled(sections)


def encoded(encoder: Encoder, stream: list[Instruction], engine: Engine) -> bytes:
    """Encode a stream. An error gets the source line of its instruction."""
    parts: list[bytes] = []
    try:
        for instruction in stream:
            parts.append(encoder.instruction(instruction, engine))
    except NkiMlirError as error:
        raise error.located(stream[len(parts)].location) from None
    return b"".join(parts)


def assembled(sections: dict[bytes, bytes]) -> bytes:
    """Return the preamble, the table of sections and the sections."""
    offset = PREAMBLE.size + SECTION.size * len(sections)
    table = b""
    for tag, data in sections.items():
        table += SECTION.pack(tag, offset, len(data), zlib.crc32(data))
        offset += len(data)
    return PREAMBLE.pack(MAGIC, VERSION, len(sections), zlib.crc32(table)) + table + b"".join(sections.values())


# -- reading -----------------------------------------------------------------------------------------------------------
def decode_program(data: bytes) -> Program:
    """Decode the program of a file. Raise ``BadBinary``, or ``BadProgram`` if the fields are valid but contradict each
    other."""
    sections = split(data)
    strings = read_strings(sections[b"STRS"])

    def string(number: int) -> str:
        return str(entry(strings, number, "string"))

    kernel, target, sbuf, psum = Bytes(sections[b"HEAD"], "the header").unpack(HEAD)
    machine = machine_named(string(target))
    program = Program(string(kernel), string(target), sbuf_bytes=sbuf, psum_bytes=psum)
    program.variables = read_variables(sections, string)
    program.semaphores = [Semaphore(string(n)) for n, in records(sections[b"SEMA"], NAME, "the semaphores")]
    program.queues = [Queue(string(name), entry(ENGINES, engine, "engine"), semaphore)
                      for name, engine, semaphore in records(sections[b"QUEU"], QUEUE, "the queues")]
    program.notes = [string(n) for n, in records(sections[b"NOTE"], NUMBER, "the notes")]
    for number, in records(sections.get(b"LIVE", b""), NUMBER, "the live ranges"):
        live = DeviceLiveRange.read(string(number))
        if live is None:
            raise BadBinary(what=f"'{string(number)}' is not a live range")
        program.live.append(live)
    locations = [Location(string(file), line, 0)
                 for file, line in records(sections[b"LOCS"], LOCATION, "the locations")]
    decoder = Decoder(machine, program.variables, strings, locations)
    for engine, tag in CODE.items():
        code = Bytes(sections[tag], f"the stream of {engine.asm}")
        while code.at < len(code.data):
            program.streams[engine].append(decoder.instruction(code, engine))
    return check_program(program)


def split(data: bytes) -> dict[bytes, bytes]:
    """Return the sections by tag after comparing their checksums. Raise ``BadBinary``."""
    preamble = Bytes(data, "the file")
    magic, version, count, checksum = preamble.unpack(PREAMBLE)
    if magic != MAGIC:
        raise BadBinary(what="it does not start with the container's magic number")
    if version != VERSION:
        raise BadBinary(what=f"it is of version {version}; this reads version {VERSION}")
    start = preamble.at
    table = [preamble.unpack(SECTION) for _ in range(count)]
    if zlib.crc32(data[start:preamble.at]) != checksum:
        raise BadBinary(what="the checksum of the section table differs")
    sections = {}
    for tag, offset, size, crc in table:
        part = data[offset:offset + size]
        if len(part) != size:
            raise BadBinary(what=f"section {tag.decode('latin1')} ends beyond the end of the file")
        if zlib.crc32(part) != crc:
            raise BadBinary(what=f"the checksum of section {tag.decode('latin1')} differs")
        sections[tag] = part
    for tag in (b"HEAD", b"VARS", b"DATA", b"SEMA", b"QUEU", b"NOTE", b"LOCS", b"STRS", *CODE.values()):
        if tag not in sections:
            raise BadBinary(what=f"section {tag.decode()} is missing")
    return sections


def records(data: bytes, form: struct.Struct, table: str) -> list[tuple[int, ...]]:
    if len(data) % form.size:
        raise BadBinary(what=f"{table} end too early")
    return list(form.iter_unpack(data))


def read_strings(data: bytes) -> list[str]:
    source, strings = Bytes(data, "the string table"), []
    while source.at < len(data):
        try:
            strings.append(source.bytes(source.unpack(NUMBER)[0]).decode())
        except UnicodeDecodeError:
            raise BadBinary(what="a string is not UTF-8") from None
    return strings


def read_variables(sections: dict[bytes, bytes], string: Callable[[int], str]) -> list[Variable]:
    source, data, variables = Bytes(sections[b"VARS"], "the variables"), Bytes(sections[b"DATA"], "the constants"), []
    while source.at < len(source.data):
        name, kind, dtype, index, dims, size = source.unpack(VARIABLE)
        shape = tuple(source.unpack(EXTENT)[0] for _ in range(dims))
        variables.append(Variable(string(name), entry(KINDS, kind, "kind of variable"), index, shape,
                              entry(DTYPES, dtype, "element type"), bytearray(data.bytes(size))))
    return variables
