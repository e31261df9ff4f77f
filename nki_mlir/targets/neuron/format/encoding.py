# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encode and decode instructions by the fields of their classes. docs/isa.md has the tables.

An instruction takes one or more 64-byte slots: a header of 32 bytes, the descriptors of its tiles in the order of
the class's fields, then its attributes. All numbers are little-endian. Offsets in descriptors are bytes.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.isa.instruction import Control, Instruction, Label, Register, Scalar, Update, Wait, by_opcode
from nki_mlir.dialects.isa.program import Variable, hbm_tile, on_chip_tile
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.operation_kind import KIND, OperationKind
from nki_mlir.machine import ENGINES, Engine, Machine
from nki_mlir.scalar.dtypes import ALL, MICROSCALING
from nki_mlir.targets.neuron.format.assembly_operation import check_plain

SLOT = 64
HEADER = struct.Struct("<BBBBBBHI")         # opcode, flags, engine, slots, waits, queue, present tiles, location
WAIT = struct.Struct("<BBH")                # semaphore, comparison (0: greater or equal), value
ONLY_WAIT = struct.Struct("<BBH8x")         # the waits of an instruction that has one
UPDATE = struct.Struct("<BBHI")             # semaphore, operation, value, reserved
DESCRIPTOR = struct.Struct("<BBBBhHq")      # space, dtype, dims, terms, partition or variable, lanes, offset
ENGINE_DIM, MEMORY_DIM = struct.Struct("<hH"), struct.Struct("<iI")    # step, count; innermost first
TERM = struct.Struct("<BBHi")               # register, unit (0 bytes, 1 partitions), reserved, scale

SPACES = {SBUF: 1, PSUM: 2, HBM: 3}
HAS_UPDATE, HAS_QUEUE, HAS_LOCATION = 1, 2, 4
INC, DEC, ADD, SUB = 1, 2, 3, 4             # operations on a semaphore
BROADCAST = 0x8000                          # in the field of lanes: all lanes read one partition
WAITS = 3
NO_WAITS = bytes(WAIT.size * WAITS)
FIXED = HEADER.size + len(NO_WAITS) + UPDATE.size       # bytes before the descriptors
DTYPES = (*ALL, *MICROSCALING)             # by number
NUMBER_OF_DTYPE = {dtype.name: number for number, dtype in enumerate(DTYPES)}
NUMBER_OF_ENGINE = {engine: number for number, engine in enumerate(ENGINES)}


class EncodingError(NkiMlirError):
    code = "NKI-ENCODING"
    message = "{what} does not fit the instruction's field"
    fix = "split the operation into smaller ones"


class NoStreams(NkiMlirError, TypeError):
    code = "NKI-STREAMS-TYPE"
    message = "{function} takes {expected}, got a value of type {found}"
    fix = "pass the {expected} of a kernel's streams"


def check_type(function: str, value: object, *kinds: type) -> None:
    """Raise ``NoStreams`` if a value has none of the types."""
    if not isinstance(value, kinds):
        raise NoStreams(function=function, expected="text" if str in kinds else "bytes", found=type(value).__name__)


class BadBinary(NkiMlirError):
    code = "NKI-BINARY"
    message = "the binary is not valid: {what}"
    fix = "assemble or emit it again"


def pack(form: struct.Struct, field: str | Callable[[], str], *values: int) -> bytes:
    """Return the bytes of some values. Raise ``EncodingError``, which names the ``field``, if a value does not fit."""
    try:
        return form.pack(*values)
    except struct.error:
        name = field if isinstance(field, str) else field()
        raise EncodingError(what=f"{name} {', '.join(map(str, values))}") from None


T = TypeVar("T")


class Pool(Generic[T]):
    """Distinct entries, numbered in the order in which they occur."""

    def __init__(self) -> None:
        self.numbers: dict[T, int] = {}

    def number(self, entry: T) -> int:
        return self.numbers.setdefault(entry, len(self.numbers))


def dim_of(cls: type[Op | Control], space: str) -> struct.Struct:
    """Return the layout of a dimension: short fields for an engine's pattern on chip, long ones for HBM and transfers.
    """
    return MEMORY_DIM if space == HBM or (issubclass(cls, Op) and cls.queued) else ENGINE_DIM


class Encoder:
    """Encodes the instructions of a program. Strings and source locations go to pools."""

    def __init__(self, variables: list[Variable]) -> None:
        self.variables = {v: k for k, v in enumerate(variables)}
        self.strings, self.locations = Pool[str](), Pool[tuple[int, int]]()
        # By the layout of dimensions and by the tile, which is equal only to itself.
        self.tiles: dict[struct.Struct, dict[Tile, bytes]] = {ENGINE_DIM: {}, MEMORY_DIM: {}}
        self.headers: dict[tuple[int, ...], bytes] = {}         # by their fields
        self.dims: dict[tuple[tuple[tuple[int, int], ...], struct.Struct], bytes] = {}
        self.kinds: dict[OperationKind, bytes] = {}             # encoded attributes without registers
        self.location_numbers: dict[Location, int] = {}
        self.signals: dict[Update | None, bytes] = {None: bytes(UPDATE.size)}
        self.encodable: set[type[Op]] = set()

    def instruction(self, instruction: Instruction, engine: Engine) -> bytes:
        op, update = instruction.op, instruction.update
        present, body = 0, b""
        if isinstance(op, Control):
            body = self.control(op)
        else:
            cls, symbols, values = type(op), op.symbols, op.__dict__
            if cls not in self.encodable or op.mask or op.limits:
                check_plain(op)
                self.encodable.add(cls)
            in_hbm = self.tiles[MEMORY_DIM]
            on_chip = in_hbm if cls.queued else self.tiles[ENGINE_DIM]
            bit = 1
            for tile in cls.tiles_in(values):
                if tile is not None:
                    present |= bit
                    data = None if symbols else (in_hbm if tile.space == HBM else on_chip).get(tile)
                    body += data or self.tile(cls, tile, symbols)
                bit <<= 1
            kind = values.get(KIND) or op.kind()
            body += self.kinds.get(kind) or self.attributes(op)
        flags, queue, location = 0, 0, 0
        if instruction.queue is not None:
            flags, queue = HAS_QUEUE, instruction.queue
        if (at := instruction.location) is not None:
            flags |= HAS_LOCATION
            location = self.location_numbers.get(at, -1)
            if location < 0:
                location = self.location(at)
        several_waits, waits = instruction.waits, NO_WAITS
        if len(several_waits) == 1:
            semaphore, value = several_waits[0]
            waits = pack(ONLY_WAIT, "the wait", semaphore, 0, value)
        elif several_waits:
            waits = b"".join([self.wait(wait) for wait in several_waits]).ljust(len(NO_WAITS), b"\0")
        if update is not None:
            flags |= HAS_UPDATE
        signal = self.signals.get(update)
        if signal is None:
            assert update is not None
            signal = self.signals[update] = signal_of(update)
        slots = -(-(FIXED + len(body)) // SLOT)
        fields = op.opcode, flags, NUMBER_OF_ENGINE[engine], slots, len(several_waits), queue, present, location
        head = self.headers.get(fields)
        if head is None:
            head = self.headers[fields] = pack(HEADER, f"the header of {op.mnemonic}", *fields)
        return (head + waits + signal + body).ljust(slots * SLOT, b"\0")

    def wait(self, wait: Wait) -> bytes:
        return pack(WAIT, "the wait", wait.semaphore, 0, wait.value)

    def location(self, at: Location) -> int:
        """Return the number of a source location, and note it."""
        number = self.location_numbers[at] = self.locations.number((self.strings.number(at.file), at.line))
        return number

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def tile(self, cls: type[Op | Control], tile: Tile, symbols: tuple[Register, ...]) -> bytes:
        """Return the descriptor of a tile, and note it if no register is part of it."""
        dim = dim_of(cls, tile.space)
        data = self.descriptor(tile, dim, symbols)
        if not symbols:
            self.tiles[dim][tile] = data
        return data

    def descriptor(self, tile: Tile, dim: struct.Struct, symbols: tuple[Register, ...]) -> bytes:
        access = tile.access
        pairs, size = access.dims, access.dtype.itemsize
        terms = [(symbols[k].number, 0, c * size) for k, c in access.free.symbols] if access.free.symbols else []
        if access.partition is None:
            base, lanes = self.variables[tile.handle], 0
        else:
            (step, count), *_ = pairs
            base, lanes, pairs = access.partition.const, count if step else count | BROADCAST, pairs[1:]
            if access.partition.symbols:
                terms += [(symbols[k].number, 1, c) for k, c in access.partition.symbols]
        dims = self.dims.get((pairs, dim))
        if dims is None:
            dims = self.dims[pairs, dim] = b"".join([
                pack(dim, f"a step or extent of {tile.describe()}:", step, count) for step, count in reversed(pairs)])
        start = pack(DESCRIPTOR, tile.describe, SPACES[tile.space], NUMBER_OF_DTYPE[access.dtype.name], len(pairs),
                     len(terms), base, lanes, access.free.const * size)
        return start + dims if not terms else b"".join([start, dims, *[
            pack(TERM, f"an offset of {tile.describe()}:", register, unit, 0, c)
            for register, unit, c in sorted(terms, key=lambda t: (t[1], t[0]))]])

    # -- attributes ----------------------------------------------------------------------------------------------------
    def attributes(self, op: Op) -> bytes:
        kind = op.kind()
        data = self.kinds.get(kind)
        if data is None:
            data = b"".join([self.attribute(name, getattr(op, name), form, op.symbols)
                             for name, form in op.attributes.items() if name != "engine"])
            if not op.has_linear_attributes:
                self.kinds[kind] = data
        return data

    def attribute(self, name: str, value: Any, kind: object, symbols: tuple[object, ...]) -> bytes:
        if kind is str:
            return pack(_STRING, name, self.strings.number(value))
        if kind is tuple:
            return pack(_COUNT, name, len(value)) + b"".join(pack(_INT, name, n) for n in value)
        if kind is Linear:
            registers = sorted((symbols[k].number, c) for k, c in value.symbols)
            pairs = [*registers, *value.axes]
            return pack(_FORM, name, value.const, len(registers), len(value.axes)) + b"".join(
                pack(_FORM_TERM, name, k, c) for k, c in pairs)
        return pack(_FLOAT if kind is float else _BOOL if kind is bool else _INT, name, value)

    def control(self, op: Control) -> bytes:
        parts = []
        for name, kind in op.kinds().items():
            value = getattr(op, name)
            if kind is str:
                parts.append(pack(_BOOL, name, op.choices[name].index(value)))
            elif kind is Register:
                parts.append(pack(_BOOL, name, value.number))
            elif kind is Tile:
                parts.append(self.tile(type(op), value, ()))
            elif kind == Scalar:
                is_register = isinstance(value, Register)
                parts.append(pack(_SCALAR, name, is_register, value.number if is_register else value))
            else:
                parts.append(pack(_WORD, name, value))
        return b"".join(parts)


def signal_of(update: Update) -> bytes:
    by_one = abs(update.amount) == 1
    kind = (INC if by_one else ADD) if update.amount > 0 else (DEC if by_one else SUB)
    return pack(UPDATE, "the update", update.semaphore, kind, abs(update.amount), 0)


_STRING, _COUNT, _INT = struct.Struct("<H"), struct.Struct("<B"), struct.Struct("<q")
_FLOAT, _BOOL, _WORD = struct.Struct("<d"), struct.Struct("<B"), struct.Struct("<i")
_SCALAR = struct.Struct("<Bi")              # 1 for a register, then its number or the value
_FORM = struct.Struct("<qBB")               # constant, register terms, axis terms
_FORM_TERM = struct.Struct("<Bq")           # register or axis, factor


# -- reading -----------------------------------------------------------------------------------------------------------
class Bytes:
    """A reader of consecutive fields. It raises ``BadBinary`` at the end of the data."""

    def __init__(self, data: bytes, section: str) -> None:
        self.data, self.section, self.at = data, section, 0

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        if self.at + form.size > len(self.data):
            raise BadBinary(what=f"{self.section} ends too early")
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values

    def bytes(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise BadBinary(what=f"{self.section} ends too early")
        self.at += count
        return self.data[self.at - count:self.at]


def entry(table: Sequence[T], number: int, kind: str) -> T:
    """Return an entry of a table by number. Raise ``BadBinary`` if there is none."""
    if not 0 <= number < len(table):
        raise BadBinary(what=f"there is no {kind} {number}")
    return table[number]


class Decoder:
    """Decodes the instructions of a program."""

    def __init__(self, machine: Machine, variables: list[Variable], strings: list[str],
                 locations: Sequence[Location]) -> None:
        self.machine, self.variables, self.strings, self.locations = machine, variables, strings, locations

    def instruction(self, code: Bytes, engine: Engine) -> Instruction:
        start = code.at
        opcode, flags, number, slots, waits, queue, present, location = code.unpack(HEADER)
        cls = by_opcode().get(opcode)
        if cls is None:
            raise BadBinary(what=f"{code.section} has an unknown opcode {opcode:#x} at byte {start}")
        if entry(ENGINES, number, "engine") is not engine or not slots or waits > WAITS:
            raise BadBinary(what=f"{code.section} has a malformed header at byte {start}")
        conditions = [code.unpack(WAIT) for _ in range(WAITS)][:waits]
        if any(comparison for _, comparison, _ in conditions):
            raise BadBinary(what=f"{code.section} has an unknown comparison at byte {start}")
        signal = code.unpack(UPDATE)
        reader = _OperationReader(self, cls, code)
        op = reader.control(cls) if issubclass(cls, Control) else reader.operation(cls, present, engine)
        if not code.at <= start + slots * SLOT <= len(code.data):
            raise BadBinary(what=f"{code.section} has an instruction of a wrong length at byte {start}")
        code.at = start + slots * SLOT
        return Instruction(op, tuple(Wait(s, v) for s, _, v in conditions),
                           self.update(signal) if flags & HAS_UPDATE else None,
                           queue if flags & HAS_QUEUE else None,
                           entry(self.locations, location, "location") if flags & HAS_LOCATION else None)

    def update(self, fields: tuple[int, int, int, int]) -> Update:
        semaphore, kind, value, _ = fields
        if kind not in (INC, DEC, ADD, SUB):
            raise BadBinary(what=f"there is no semaphore operation {kind}")
        return Update(semaphore, -value if kind in (DEC, SUB) else value)


class _OperationReader:
    """Decodes the operation of an instruction. It numbers registers as they occur."""

    def __init__(self, decoder: Decoder, cls: type[Op | Control], code: Bytes) -> None:
        self.decoder, self.cls, self.code = decoder, cls, code
        self.registers: dict[Register, int] = {}

    def symbol(self, number: int) -> int:
        return self.registers.setdefault(Register(number), len(self.registers))

    def tile(self, label: str) -> Tile:
        code = self.code
        space, kind, dims, terms, base, lanes, offset = code.unpack(DESCRIPTOR)
        dtype = entry(DTYPES, kind, "element type")
        memory = next((name for name, number in SPACES.items() if number == space), None)
        if memory is None:
            raise BadBinary(what=f"there is no memory {space}")
        pairs = tuple(code.unpack(dim_of(self.cls, memory)) for _ in range(dims))[::-1]
        added = [code.unpack(TERM) for _ in range(terms)]
        if any(count == 0 for _, count in pairs) or any(offset % dtype.itemsize or c % dtype.itemsize
                                                        for _, unit, _, c in added if not unit):
            raise BadBinary(what=f"a descriptor of {code.section} is malformed")
        free = Linear(offset // dtype.itemsize, tuple(sorted((self.symbol(r), c // dtype.itemsize)
                                                             for r, unit, _, c in added if not unit)))
        if memory == HBM:
            return hbm_tile(entry(self.decoder.variables, base, "variable"), Access(dtype, None, free, pairs), label)
        partition = Linear(base, tuple(sorted((self.symbol(r), c) for r, unit, _, c in added if unit)))
        count = lanes & ~BROADCAST
        if not count:
            raise BadBinary(what=f"a descriptor of {code.section} has no partitions")
        lane = (0 if lanes & BROADCAST else 1, count)
        return on_chip_tile(memory, Access(dtype, partition, free, (lane, *pairs)), self.decoder.machine, label)

    def control(self, cls: type[Control]) -> Control:
        code, values = self.code, dict[str, object]()
        for name, kind in cls.kinds().items():
            if kind is str:
                values[name] = entry(cls.choices[name], code.unpack(_BOOL)[0], name)
            elif kind is Register:
                values[name] = Register(code.unpack(_BOOL)[0])
            elif kind is Tile:
                values[name] = self.tile(name)
                if self.registers:
                    raise BadBinary(what=f"a descriptor of {code.section} is malformed")
            elif kind == Scalar:
                is_register, number = code.unpack(_SCALAR)
                values[name] = Register(number) if is_register else number
            else:
                values[name] = (Label if kind is Label else int)(code.unpack(_WORD)[0])
        return cls(**values)

    def operation(self, cls: type[Op], present: int, engine: Engine) -> Op:
        values: dict[str, Any] = {"engine": engine.value} if "engine" in cls.attributes else {}
        for k, field in enumerate(cls.tiles):
            if present >> k & 1:
                values[field.name] = self.tile(field.name)
            elif not field.optional:
                raise BadBinary(what=f"{cls.mnemonic} lacks its tile {field.name}")
        for name, kind in cls.attributes.items():
            if name != "engine":
                values[name] = self.attribute(kind)
        return cls(symbols=tuple(self.registers), **values)

    def attribute(self, kind: type) -> object:
        code = self.code
        if kind is str:
            return entry(self.decoder.strings, code.unpack(_STRING)[0], "string")
        if kind is tuple:
            return tuple(code.unpack(_INT)[0] for _ in range(code.unpack(_COUNT)[0]))
        if kind is Linear:
            const, registers, axes = code.unpack(_FORM)
            terms = [code.unpack(_FORM_TERM) for _ in range(registers + axes)]
            return Linear(const, tuple((self.symbol(k), c) for k, c in terms[:registers]), tuple(terms[registers:]))
        return kind(code.unpack(_FLOAT if kind is float else _BOOL if kind is bool else _INT)[0])
