# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads operations of the ``isa`` level in their custom form and writes them in the generic form.

``isa.instruction DMA sbuf[0:128, 0:192] as f32 = x[0:128, 0:192] {queue = qSyncIO0} wait Vector >= 1 signal qSyncIO0
+= 16``: the mnemonic, then the form of the class that it names. Tiles are subscripts of a memory, whose elements are
bytes, or of a variable; registers are ``%r0``. Semaphores and queues are written by their labels or numbers.
"""

import re
from collections.abc import Sequence

from nki_mlir.custom_form import linear_text
from nki_mlir.custom_form.attribute_values import generic_value, quoted
from nki_mlir.custom_form.lexing import NAME, NUMBER, STRING, VALUE, Cursor, MalformedForm
from nki_mlir.custom_form.operation_fields import PlainForm, TileForm, form_of, operation_names
from nki_mlir.custom_form.operation_reader import Clauses, FormReader, GenericText, TextOperand, read_attributes
from nki_mlir.custom_form.value_types import ValueTypes
from nki_mlir.dialects.access import SPACES, Linear, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import PARTITION_STRIDE
from nki_mlir.similar_names import nearest

LABEL = re.compile(NAME.pattern + "|" + STRING)
NUMBER_OR_LABEL = re.compile(NUMBER.pattern + "|" + NAME.pattern)
REGISTER = re.compile(r"%r(\d+)")
BLOCK = re.compile(r"\^[\w$.-]+")
ATTRIBUTES = re.compile(r"\{\s*(?:\}|[A-Za-z_][\w$.]*\s*[=,}])")
NUMBERED = {"semaphore": "isa.semaphore", "queue": "isa.queue"}      # attribute -> the operation that it numbers
LEFT_OUT = {"data": '""', "notes": "[]"}        # attributes that the text leaves out
MEMORIES = {space: f'memref<128x{PARTITION_STRIDE}xui8, "{space}">' for space in SPACES}
NO_QUEUE = "-1"


class Labels:
    """The semaphores and queues of a program, in their order."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {name: [] for name in NUMBERED.values()}

    def number(self, operation: str, text: str, at: int) -> str:
        """Return the number of a semaphore or queue, from its label or number."""
        labels = self.of[operation]
        if NAME.fullmatch(text) is None:
            return text
        if text not in labels:
            similar = nearest(text, labels)
            raise MalformedForm(at, f"names no {operation.removeprefix('isa.')} of the program: '{text}'"
                                + (f"; did you mean '{similar}'?" if similar else ""))
        return str(labels.index(text))

    def text(self, operation: str, number: int) -> str:
        """Return the label of a semaphore or queue; its number if no label names only it."""
        labels = self.of[operation]
        if 0 <= number < len(labels) and labels.count(labels[number]) == 1 and NAME.fullmatch(labels[number]):
            return labels[number]
        return str(number)


class StreamReader(FormReader):
    """Reads operations of the ``isa`` level."""

    def __init__(self, types: ValueTypes) -> None:
        super().__init__(types)
        self.labels = Labels()

    def read(self, cursor: Cursor, name: str, result: str | None) -> GenericText:
        """Read the operation whose name the cursor has passed."""
        start = cursor.at - len(name)
        form = form_of(name)
        if not isinstance(form, PlainForm):
            suggestion = nearest(name, operation_names())
            fix = f"; '{suggestion}' is one" if suggestion else ""
            raise MalformedForm(start, f"'{name}' is not an operation{fix}")
        try:
            match name:
                case "isa.instruction":
                    return _generic(name, start, self.instruction(cursor, start))
                case "isa.branch":
                    return self.branch(cursor, start)
                case "isa.next":
                    return _generic(name, start, {}, self.blocks(cursor, 1))
                case "isa.end":
                    return _generic(name, start, {})
            return self.declaration(cursor, form, start)
        except MalformedForm as error:
            raise MalformedForm(error.at, f"'{name}' op {error.message}") from None

    # -- programs and their declarations -------------------------------------------------------------------------------
    def declaration(self, cursor: Cursor, form: PlainForm, start: int) -> GenericText:
        """Read ``isa.stream act {`` or ``isa.variable x {kind = input, ...}``: the first attribute, then the others."""
        label = cursor.match(LABEL)
        if label is None:
            raise cursor.unexpected(f"attribute '{form.attributes[0]}', a name")
        texts = {name: text for name, text in LEFT_OUT.items() if name in form.attributes}
        texts[form.attributes[0]] = quoted(label)
        if cursor.next_is("{") and (not form.has_region or ATTRIBUTES.match(cursor.text, cursor.at)):
            for name, (text, at) in read_attributes(cursor).items():
                if name in NUMBERED:
                    text = self.labels.number(NUMBERED[name], text, at)
                texts[name] = quoted(text) if name in form.strings and NAME.fullmatch(text) else text
        missing = next((name for name in form.attributes if name not in texts), None)
        if missing is not None:
            raise MalformedForm(start, f"needs attribute '{missing}'")
        if form.name == "isa.program":
            self.labels = Labels()
        elif form.name in self.labels.of:
            self.labels.of[form.name].append(label)
        elif form.name == "isa.variable":
            self.types.define(f"@{label.strip(chr(34))}", texts["type"])
        if not form.has_region:
            return _generic(form.name, start, texts)
        cursor.expect("{", "before the region")
        return GenericText([(f'"{form.name}"() ({{', start)], end=f"}}) {dictionary(texts)} : () -> ()")

    # -- instructions --------------------------------------------------------------------------------------------------
    def instruction(self, cursor: Cursor, start: int) -> dict[str, str]:
        """Read the attributes of an instruction."""
        at, mnemonic = cursor.skip(), cursor.match(NAME) or ""
        cls = isa.by_mnemonic().get(mnemonic)
        if cls is None:
            suggestion = nearest(mnemonic, isa.by_mnemonic())
            raise MalformedForm(at, f"names no instruction: '{mnemonic}'"
                                + (f"; did you mean '{suggestion}'?" if suggestion else ""))
        if issubclass(cls, isa.Control):
            texts = self.control(cursor, cls, start)
        else:
            texts = self.operation(cursor, TileForm(cls), start)
        return {"mnemonic": quoted(mnemonic)} | texts | self.signals(cursor)

    def operation(self, cursor: Cursor, form: TileForm, start: int) -> dict[str, str]:
        """Read an instruction on tiles, in the form of its class."""
        function = self.function(cursor, form)
        operands = self.both_sides(cursor, form)
        clauses = self.clauses(cursor)
        queue = self.queue(clauses)
        if clauses.mask or clauses.limits:
            raise MalformedForm(start, "has no mask and no limits")
        unknown = next((name for name in clauses.attributes if name not in form.listed), None)
        if unknown is not None:
            raise MalformedForm(clauses.attributes[unknown][1], f"has no attribute '{unknown}'")
        linear = self.linear_attributes(cursor, form, clauses)
        present = {f.name: operands[f.name] for f in form.cls.tiles if f.name in operands}
        symbols = self.symbols(clauses, list(present.values()), linear)
        registers = [self.register(name, at) for name, at in symbols]
        names = [name for name, _ in symbols]
        values = self.values(form, {"engine": ("sync", start)} | function | clauses.attributes, linear, names, start)
        values.pop("engine", None)
        axes = self.axes(form.cls, operands, values, names, start) if Linear in form.cls.attributes.values() else 0
        linear_text.all_below(list(linear.values()), axes, start)
        fields = {name: linear_text.affine_map([value], axes, len(names)) if isinstance(value, Linear)
                  else generic_value(value, form.cls.attributes[name]) for name, value in values.items()}
        tiles = {name: self.tile_text(operand, names) for name, operand in present.items()}
        return {"tiles": dictionary(tiles), "fields": dictionary(fields), "queue": queue,
                "registers": f"[{', '.join(map(str, registers))}]"}

    def control(self, cursor: Cursor, cls: type[isa.Control], start: int) -> dict[str, str]:
        """Read ``add %r0 = %r1, 4``: the field ``op``, the register that it writes, the registers and numbers that it
        reads; then other fields.
        """
        form = ControlForm(cls)
        fields: dict[str, str] = {}
        if form.function:
            at, word = cursor.skip(), cursor.match(NAME)
            if word is None:
                raise cursor.unexpected(f"field '{form.function}', a name")
            fields[form.function] = quoted(word)
        for k, name in enumerate((*form.targets, *form.sources)):
            if k:
                mark = "=" if k == len(form.targets) else ","
                cursor.expect(mark, f"before '{name}'")
            fields[name] = (self.tile_text(self.tile(cursor), ()) if cls.kinds()[name] is Tile else self.side(cursor))
        clauses = self.clauses(cursor)
        queue = self.queue(clauses)
        for name, (text, at) in clauses.attributes.items():
            if name not in form.others:
                raise MalformedForm(at, f"has no field '{name}'")
            fields[name] = quoted(text) if NAME.fullmatch(text) else text
        missing = next((name for name in cls.kinds() if name not in fields), None)
        if missing is not None:
            raise MalformedForm(start, f"needs field '{missing}'")
        return {"tiles": "{}", "fields": dictionary(fields), "queue": queue, "registers": "[]"}

    def branch(self, cursor: Cursor, start: int) -> GenericText:
        """Read ``isa.branch le %r0, 0, ^bb3, ^bb2``."""
        word = cursor.match(NAME)
        if word is None:
            raise cursor.unexpected("attribute 'op', a name")
        lhs = self.side(cursor)
        cursor.expect(",", "and the number or register to compare with")
        rhs = self.side(cursor)
        cursor.expect(",", "and two blocks")
        blocks = self.blocks(cursor, 2)
        texts = {"op": quoted(word), "sides": f"[{lhs}, {rhs}]"} | self.signals(cursor)
        return _generic("isa.branch", start, texts, blocks)

    # -- parts ---------------------------------------------------------------------------------------------------------
    def starts_tile(self, cursor: Cursor) -> bool:
        at = cursor.skip()
        word = cursor.match(LABEL)
        cursor.at = at
        return word is not None and word not in ("symbols", "wait", "signal")

    def operand(self, cursor: Cursor) -> TextOperand:
        """Read the name of a memory or variable."""
        at, name = cursor.skip(), cursor.match(LABEL)
        if name is None:
            raise cursor.unexpected("a memory or a variable")
        kind = MEMORIES.get(name) or self.types.of(f"@{name.strip(chr(34))}")
        if kind is None:
            raise MalformedForm(at, f"the text above has no variable {name}")
        return TextOperand(name, at, kind)

    def tile_text(self, operand: TextOperand, symbols: Sequence[str]) -> str:
        return f"[{quoted(operand.name)}, {operand.access_text(symbols, self.types)}]"

    def side(self, cursor: Cursor) -> str:
        """Read a number or a register."""
        at = cursor.skip()
        name = cursor.match(VALUE)
        if name is not None:
            return f'"r{self.register(name, at)}"'
        number = cursor.match(NUMBER)
        if number is None:
            raise cursor.unexpected("a number or a register")
        return number

    @staticmethod
    def register(name: str, at: int) -> int:
        match = REGISTER.fullmatch(name)
        if match is None:
            raise MalformedForm(at, f"has no register {name}: registers are %r0 to %r{isa.REGISTERS - 1}")
        return int(match[1])

    def queue(self, clauses: Clauses) -> str:
        """Take the queue out of the attributes; return its number."""
        text, at = clauses.attributes.pop("queue", (NO_QUEUE, 0))
        return self.labels.number("isa.queue", text, at)

    def signals(self, cursor: Cursor) -> dict[str, str]:
        """Read ``wait A >= 16, B >= 1 signal C += 1``."""
        waits, update = [], "[]"
        if cursor.word("wait"):
            waits.append(self.signal(cursor, ">="))
            while cursor.accept(","):
                waits.append(self.signal(cursor, ">="))
        if cursor.word("signal"):
            update = self.signal(cursor, "+=")
        return {"waits": f"[{', '.join(waits)}]", "update": update}

    def signal(self, cursor: Cursor, relation: str) -> str:
        at, label = cursor.skip(), cursor.match(NUMBER_OR_LABEL)
        if label is None:
            raise cursor.unexpected("a semaphore")
        cursor.expect(relation, "after the semaphore")
        number = cursor.match(NUMBER)
        if number is None:
            raise cursor.unexpected("a number")
        return f"[{self.labels.number('isa.semaphore', label, at)}, {number}]"

    @staticmethod
    def blocks(cursor: Cursor, count: int) -> list[str]:
        blocks: list[str] = []
        for k in range(count):
            if k:
                cursor.expect(",", "and another block")
            block = cursor.match(BLOCK)
            if block is None:
                raise cursor.unexpected("a block")
            blocks.append(block)
        return blocks


class ControlForm:
    """The form of a control operation: its fields by their roles."""

    def __init__(self, cls: type[isa.Control]) -> None:
        kinds = cls.kinds()
        self.function = "op" if "op" in kinds else None
        self.targets = [name for name, kind in kinds.items() if kind is isa.Register]
        self.sources = [name for name, kind in kinds.items() if kind in (isa.Scalar, Tile)]
        self.others = [name for name in kinds if name not in (self.function, *self.targets, *self.sources)]


def dictionary(entries: dict[str, str]) -> str:
    """Return attributes as MLIR writes them."""
    return "{" + ", ".join(f"{name} = {text}" if text else name for name, text in entries.items()) + "}"


def _generic(name: str, start: int, attributes: dict[str, str], blocks: Sequence[str] = ()) -> GenericText:
    successors = f"[{', '.join(blocks)}]" if blocks else ""
    listed = f" {dictionary(attributes)}" if attributes else ""
    return GenericText([(f'"{name}"(){successors}{listed} : () -> ()', start)])
