# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operation of an instruction as assembly text: the mnemonic, and the fields that its class declares.

The text has the attributes that differ from their defaults, and the tiles by field name.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, Access, Linear, Tile
from nki_mlir.dialects.isa import program
from nki_mlir.dialects.isa.instruction import REGISTERS, Control, Label, Register, Scalar, check_encodable
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, Machine
from nki_mlir.scalar.dtypes import BY_ASM, DType
from nki_mlir.similar_names import nearest
from nki_mlir.targets.neuron.validate import RANK

NAME = r"[A-Za-z_][\w.]*"
INTEGER = r"-?\d+"
INTEGERS = rf"(?:{INTEGER}(?:,{INTEGER})*,?)?"     # each text matches in only one way, so that backtracking stays short
WORD = re.compile(r"[\w.+-]+")


class NotEmittable(NkiMlirError):
    code = "NKI-EMIT"
    message = "'{op}' cannot be an instruction: {what}"
    fix = "run the passes that lower to the isa level"


class AssemblyError(NkiMlirError):
    code = "NKI-ASSEMBLY"
    message = "{what}"
    fix = "{fix}"


# -- printing ----------------------------------------------------------------------------------------------------------
def operation_text(op: Op | Control, queue: int | None = None) -> str:
    """Return an operation's mnemonic and fields."""
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
        # Compared as text, because -0.0 is not 0.0.
        if name not in op.defaults or text != attribute_text(op.defaults[name], kind, ()):
            parts.append(f"{name}={text}")
    channels = next((t.partitions for _, t in op.operands() if t.on_chip), None)
    parts += [f"{f.name}={tile_text(t, op.symbols, channels)}" for f, t in op.operands()]
    if channels is not None:
        parts.append(f"channels={channels}")
    if op.queued and (runs := program.descriptors(op)) is not None:
        parts.append("descriptors={}*{}".format(*runs))
    return " ".join(parts)


def check_plain(op: Op) -> None:
    """Raise ``NotEmittable`` for operations that an instruction cannot represent: with masks, or with bounds checked
    at run time."""
    check_encodable(type(op))
    if op.mask or op.limits:
        raise NotEmittable(op=op.full_name(), what="it has a mask that does not select a box of elements")


def scalar_text(value: object) -> str:
    if isinstance(value, Tile):
        return tile_text(value, (), None)
    return f"{value:04d}" if isinstance(value, Label) else str(value)


def attribute_text(value: Any, kind: type, symbols: tuple[Register, ...]) -> str:
    """Return the text of an attribute. Strings other than plain words are quoted, as in JSON."""
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
    """Return a linear form as ``3+4*d0-2*r1``: axes are d, registers r."""
    axes = "".join(f"{c:+d}*d{axis}" for axis, c in form.axes)
    return f"{form.const}{axes}{register_terms(form, symbols)}"


def register_terms(form: Linear, symbols: tuple[Register, ...], unit: str = "") -> str:
    """Return the terms of registers as ``+64*r1``, in the order of the registers."""
    terms = sorted((symbols[k].number, c) for k, c in form.symbols)
    return "".join(f"{c:+d}*r{number}{unit}" for number, c in terms)


# -- tiles -------------------------------------------------------------------------------------------------------------
def tile_text(tile: Tile, symbols: tuple[Register, ...], channels: int | None) -> str:
    """Return a tile as ``fp32@0x28000[1,64][64,4]``: dtype, address, then steps and counts in elements, innermost
    first."""
    dims = tile.access.free_dims[::-1]
    steps, counts = (",".join(str(d[k]) for d in dims) for k in (0, 1))
    lanes = ""
    if tile.on_chip:
        broadcast = tile.access.dims[0][0] == 0
        if broadcast or tile.partitions != channels:
            lanes = f"*{tile.partitions}{'b' if broadcast else ''}"
    return f"{tile.dtype.asm}@{address_text(tile, symbols)}[{steps}][{counts}]{lanes}"


def address_text(tile: Tile, symbols: tuple[Register, ...]) -> str:
    """Return the start of a tile and the terms that registers add, in bytes, or in partitions if a term ends in p."""
    free = program.scaled(tile.access.free, tile.dtype.itemsize)
    terms = []
    if tile.space == HBM:
        assert isinstance(tile.handle, program.Variable)
        text = tile.handle.name
        if free.const:
            terms.append(byte_text(free.const))
    else:
        partition = tile.access.partition
        assert partition is not None
        inside = 0 <= partition.const < tile.base_shape[0] and 0 <= free.const < program.PARTITION_STRIDE
        text = hex(program.linear_address(tile.space, partition.const, free.const) if inside
                   else program.PSUM_BASE if tile.space == PSUM else 0)
        if not inside:
            terms += [f"{partition.const:+d}p", byte_text(free.const)]
        terms.append(register_terms(partition, symbols, "p"))
    return text + "".join(terms) + register_terms(free, symbols)


def byte_text(offset: int) -> str:
    return f"{'-' if offset < 0 else '+'}{abs(offset):#x}"


# -- reading -----------------------------------------------------------------------------------------------------------
SHOWN = 200                     # most characters of a text in an error
LISTED = 12                     # most names in one
TERMS = 2 * REGISTERS           # most terms of an address: each register adds bytes, and partitions
_SPACES = re.compile(" +").match
_pattern = cache(re.compile)         # memoize the few patterns: the memo of ``re`` is slower


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def similar(name: str, names: Iterable[str]) -> str:
    """Return the fix for an unknown name: the most similar one of the known names, or the first of them."""
    listed = [*names]
    one_of_listed = "one of " + ", ".join(listed[:LISTED]) + ", ..." * (len(listed) > LISTED)
    return f"write {nearest(name[:SHOWN], listed) or one_of_listed}"


class Line:
    """A line of the text and the position of the parser in it."""

    def __init__(self, text: str, file: str, number: int) -> None:
        self.text, self.file, self.number, self.at = text, file, number, 0
        self.start = 0                          # column of the last token
        self.named = 0                          # column of the mnemonic

    def fail(self, complaint: str, fix: str, at: int | None = None, why: str = "") -> AssemblyError:
        column = self.start if at is None else at
        error = AssemblyError(what=complaint, fix=fix, why=why)
        error.located(Location(self.file, self.number, column))
        return error

    def skip(self) -> "Line":
        if self.text.startswith(" ", self.at):
            self.at = _SPACES(self.text, self.at).end()         # type: ignore[union-attr]
        return self

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    def accept(self, pattern: str) -> re.Match[str] | None:
        """Skip spaces and match the pattern. Advance and return the match, or return None."""
        self.skip()
        match = _pattern(pattern).match(self.text, self.at)
        if match:
            self.start, self.at = self.at, match.end()
        return match

    def expect(self, pattern: str, expected: str) -> re.Match[str]:
        match = self.accept(pattern)
        if match is None:
            actual = self.text[self.at:].split(" ")[0] or "the end of the line"
            raise self.fail(f"expected {expected}, found '{shortened(actual)}'", f"write {expected}", self.at)
        return match

    def end(self) -> None:
        if not self.skip().ended:
            raise self.fail(f"unexpected '{shortened(self.text[self.at:])}'",
                            "remove it: the line is complete before it", self.at)


class Text:
    """The value of a field and its location."""

    def __init__(self, value: str, line: Line, column: int) -> None:
        self.value, self.line, self.column = value, line, column

    def fail(self, complaint: str, fix: str) -> AssemblyError:
        return self.line.fail(f"{complaint}, found '{shortened(self.value)}'", fix, self.column)

    def expected(self, form: str, fix: str = "") -> AssemblyError:
        return self.fail(f"expected {form}", fix or f"write {form}")

    def match(self, pattern: str, expected: str) -> re.Match[str]:
        match = re.fullmatch(pattern, self.value)
        if match is None:
            raise self.expected(expected)
        return match

    def number(self) -> int:
        return int(self.match(INTEGER, "a number")[0])


TERM = re.compile(r"([+-])(?:(0x[0-9a-f]+)|(\d+)p|(\d+)\*r(\d+)(p?))")
FORM_TERM = re.compile(r"([+-]\d+)\*([dr])(\d+)")

Fields = dict[str, Text]


def element_type(text: Text | Line, name: str) -> DType:
    if name not in BY_ASM:
        raise text.fail(f"there is no element type {name}", similar(name, BY_ASM))
    return BY_ASM[name]


def none_left(cls: "type[Op | Control]", fields: Fields, names: Iterable[str]) -> None:
    for name, text in fields.items():
        raise text.fail(f"{cls.mnemonic} has no field {name}", f"{similar(name, names)}, or remove it")


def register(text: Text, number: str) -> Register:
    if int(number) >= REGISTERS:
        raise text.fail(f"there are registers r0 to r{REGISTERS - 1}", "use a register with a lower number")
    return Register(int(number))


def needs(line: Line, cls: "type[Op | Control]", name: str) -> AssemblyError:
    return line.fail(f"{cls.mnemonic} needs {name}=", f"write {name}= and its value after {cls.mnemonic}", line.named)


class OperationReader:
    """Parses the operation of an instruction by the fields of its class. It numbers registers as they occur."""

    def __init__(self, line: Line, fields: Fields, machine: Machine, variables: Mapping[str, program.Variable]) -> None:
        self.line, self.fields, self.machine, self.variables = line, fields, machine, variables
        self.registers: dict[Register, int] = {}

    def symbol(self, text: Text, number: str) -> int:
        return self.registers.setdefault(register(text, number), len(self.registers))

    def tile(self, text: Text, channels: int | None) -> Tile:
        match = text.match(rf"(\w+)@([^\[]+)\[({INTEGERS})\]\[({INTEGERS})\](?:\*(\d+)(b?))?",
                           "dtype@address[steps][counts]")
        dtype = element_type(text, match[1])
        steps, counts = ([int(n) for n in part.split(",") if n] for part in match.group(3, 4))
        if len(steps) != len(counts) or min(counts, default=1) < 1:
            raise text.expected("a step for each count, and positive counts",
                                "write as many steps as counts: fp32@0x0[1,64][64,2]")
        if len(steps) >= RANK:
            raise text.expected(f"at most {RANK - 1} steps", "join dimensions whose elements follow each other, or use "
                                "several instructions")
        dims = tuple(zip(steps, counts))[::-1]
        space, variable, partition, free = self.address(text, match[2], dtype)
        if space == HBM:
            assert variable is not None
            return program.hbm_tile(variable, Access(dtype, None, free, dims))
        lanes = int(match[5]) if match[5] else channels
        if not lanes:
            raise text.expected("channels= in the instruction, or *partitions at the tile",
                                "write for example channels=128 after the operands")
        if lanes < 0:
            raise text.fail(f"channels={lanes} is not a number of partitions: expected 1 or more", "write the number "
                            "of partitions of the tiles on chip, for example channels=128")
        dims = ((0 if match[6] else 1, lanes), *dims)
        return program.on_chip_tile(space, Access(dtype, partition, free, dims), self.machine)

    def address(self, text: Text, start: str, dtype: DType) -> tuple[str, program.Variable | None, Linear, Linear]:
        """Parse an address to (memory, variable, partition, free offset in elements)."""
        match = re.match(rf"(0x[0-9a-f]+)|({NAME})", start)
        if match is None:
            raise text.expected("an address or a variable", "write an address such as 0x28000, or a declared name")
        space, variable, partition, byte = HBM, None, 0, 0
        if match[1]:
            space, partition, byte = program.split_address(int(match[1], 16))
        else:
            if match[2] not in self.variables:
                raise text.fail(f"there is no variable {match[2]}", "declare it before the streams, for example "
                                f".internal {match[2]} fp32[128,512] 0")
            variable = self.variables[match[2]]
        lanes: list[tuple[int, int]] = []
        terms: list[tuple[int, int]] = []
        at = match.end()
        while at < len(start):
            term = TERM.match(start, at)
            if term is None:
                raise text.expected("terms such as +0x40, +2p or +64*r1", "add bytes as +0x40, partitions as +2p, "
                                    "registers times bytes as +64*r1, and times partitions as +2*r1p")
            sign, at = (-1 if term[1] == "-" else 1), term.end()
            if term[2]:
                byte += sign * int(term[2], 16)
            elif term[3]:
                partition += sign * int(term[3])
            else:
                (lanes if term[6] else terms).append((self.symbol(text, term[5]), sign * int(term[4])))
            if len(lanes) + len(terms) > TERMS:
                raise text.expected(f"at most {TERMS} registers", "add the terms of a register to one term")
        size = dtype.itemsize
        if byte % size or any(c % size for _, c in terms):
            raise text.expected(f"offsets that are multiples of the {size} bytes of an element",
                                f"begin at a multiple of {size} bytes, and multiply registers by one")
        return (space, variable, Linear(partition, tuple(sorted(lanes))),
                Linear(byte // size, tuple(sorted((k, c // size) for k, c in terms))))


    # -- operations ----------------------------------------------------------------------------------------------------
    def control(self, cls: type[Control]) -> Control:
        line, fields, values = self.line, self.fields, dict[str, Any]()
        for name, kind in cls.kinds().items():
            if name not in fields:
                raise needs(line, cls, name)
            text = fields.pop(name)
            if kind is str:
                values[name] = text.value
            elif kind is Tile:
                values[name] = self.tile(text, None)
                if self.registers:
                    raise text.expected("a fixed address", "leave out the terms of registers")
            elif kind in (Register, Scalar) and text.value.startswith("r"):
                values[name] = register(text, text.match(r"r(\d+)", "a register")[1])
            elif kind is Register:
                raise text.expected("a register", "write a register such as r1")
            else:
                values[name] = Label(text.number()) if kind is Label else text.number()
        none_left(cls, fields, cls.kinds())
        return cls(**values)

    def operation(self, cls: type[Op], engine: Engine) -> Op:
        line, fields = self.line, self.fields
        channels = fields.pop("channels").number() if "channels" in fields else None
        runs = fields.pop("descriptors", None)
        values: dict[str, Any] = {"engine": engine.value} if "engine" in cls.attributes else {}
        for name, kind in cls.attributes.items():
            if name in fields:
                values[name] = self.attribute(fields.pop(name), kind)
            elif name not in cls.defaults:
                raise needs(line, cls, name)
        for field in cls.tiles:
            if field.name in fields:
                values[field.name] = self.tile(fields.pop(field.name), channels)
            elif not field.optional:
                raise needs(line, cls, field.name)
        none_left(cls, fields, [*cls.attributes, *(field.name for field in cls.tiles), "channels", "descriptors"])
        op = cls(symbols=tuple(self.registers), **values)
        if runs is not None:
            self.check_descriptors(runs, op)
        return op

    @staticmethod
    def check_descriptors(text: Text, op: Op) -> None:
        """Check the declared descriptors of a transfer, which follow from its tiles."""
        try:
            counts = program.descriptors(op) if op.queued else None
        except (LookupError, AttributeError):
            counts = None
        expected = "{}*{}".format(*counts) if counts else "none"
        if text.value != expected:
            raise text.expected(f"descriptors={expected}", f"write descriptors={expected}, or leave it out")

    def attribute(self, text: Text, kind: type) -> object:
        if kind is tuple:
            items = text.match(r"\(((?:-?\d+(?:,-?\d+)*)?)\)", "numbers in parentheses")[1]
            return tuple(int(n) for n in items.split(",") if n)
        if kind is Linear:
            return self.linear(text)
        if kind is str:
            return self.string(text)
        read: Callable[..., object] = float if kind is float else int
        try:
            value = read(text.value)
        except ValueError:
            raise text.expected(f"a {kind.__name__}", f"write a number such as {kind(1)}") from None
        if kind is bool and value not in (0, 1):
            raise text.expected("0 or 1")
        return kind(value)

    @staticmethod
    def string(text: Text) -> str:
        if not text.value.startswith('"'):
            return text.value
        try:
            return str(json.loads(text.value))
        except ValueError:
            raise text.expected("text in quotation marks", "escape characters as in JSON") from None

    def linear(self, text: Text) -> Linear:
        match = text.match(rf"({INTEGER})((?:{FORM_TERM.pattern})*)", "a form such as 3+4*d0")
        axes, symbols = [], []
        for c, kind, number in FORM_TERM.findall(match[2]):
            if kind == "d":
                axes.append((int(number), int(c)))
            else:
                symbols.append((self.symbol(text, number), int(c)))
        return Linear(int(match[1]), tuple(symbols), tuple(axes))
