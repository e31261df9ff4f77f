# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of the ``isa`` level in their custom form, which ``stream_reader`` reads.

The printer reads each text again and compares the attributes; an operation that would differ stays in the generic form.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from nki_mlir.bindings import Attribute, Operation, ir
from nki_mlir.custom_form.lexing import NAME, Cursor, MalformedForm
from nki_mlir.custom_form.operation_fields import PlainForm, TileForm, form_of
from nki_mlir.custom_form.operation_printer import (
    attribute_dictionary,
    is_default,
    symbols_clause,
    unquoted,
    value_text,
)
from nki_mlir.custom_form.stream_reader import LEFT_OUT, MEMORIES, NUMBERED, ControlForm, StreamReader
from nki_mlir.custom_form.subscripts import buffer_of, subscripts
from nki_mlir.custom_form.value_types import ValueTypes
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.attributes import MalformedAttribute, read_access, read_value
from nki_mlir.dialects.isa import instruction as isa

SUCCESSORS = re.compile(r"\(\)\[([^\]]*)\]")
Attributes = dict[str, Any]


class StreamPrinter:
    """Prints operations in their order, as a reader meets them."""

    def __init__(self, types: ValueTypes) -> None:
        self.reader = StreamReader(types)

    def text(self, op: Operation, line: str) -> str | None:
        """Return the custom form, with the brace that opens a region; None if the operation stays in the generic form.
        ``line`` is its text in that form, which has the names of blocks."""
        form = form_of(op.name)
        attributes = dict(op.attributes.items())
        match = SUCCESSORS.search(line)
        blocks = match[1] if match else ""
        try:
            text = self.form_text(op.name, form, attributes, blocks) if isinstance(form, PlainForm) else None
            return text if text is not None and self.reads_back(op, text, attributes, blocks) else None
        except (MalformedForm, MalformedAttribute, ir.MLIRError, AttributeError, KeyError, TypeError, ValueError):
            return None                         # attributes that no instruction has

    def reads_back(self, op: Operation, text: str, attributes: Attributes, blocks: str) -> bool:
        """Return whether the text has the same attributes."""
        cursor = Cursor(text, len(op.name))
        generic = self.reader.read(cursor, op.name, None)
        expanded = generic.end if generic.end is not None else generic.text
        if cursor.skip() != len(text) or (blocks and f"[{blocks}]" not in expanded):
            return False
        start, end = expanded.find("{"), expanded.rfind("}")
        reread = ir.DictAttr(Attribute.parse(expanded[start:end + 1] if start >= 0 else "{}", op.context))
        return {entry.name: entry.attr for entry in reread} == attributes

    def form_text(self, name: str, form: PlainForm, attributes: Attributes, blocks: str) -> str:
        match name:
            case "isa.instruction":
                return " ".join([name, *self.instruction(attributes), *self.signals(attributes)])
            case "isa.branch":
                sides = [_side(side) for side in attributes["sides"]]
                return " ".join([name, attributes["op"].value, ", ".join([*sides, blocks]), *self.signals(attributes)])
            case "isa.next":
                return f"{name} {blocks}"
            case "isa.end":
                return name
        return " ".join([name, *self.declaration(form, attributes), *["{"] * form.has_region])

    def declaration(self, form: PlainForm, attributes: Attributes) -> list[str]:
        first = form.attributes[0]
        listed = {n: attributes[n] for n in (*form.attributes[1:], *attributes) if n in attributes and n != first}
        texts = {n: self.attribute_text(n, a) for n, a in listed.items() if str(a) != LEFT_OUT.get(n)}
        return [unquoted(str(attributes[first])), *attribute_dictionary(texts)]

    def attribute_text(self, name: str, attribute: Attribute) -> str:
        if name in NUMBERED:
            return self.reader.labels.text(NUMBERED[name], attribute.value)
        return str(attribute.value) if isinstance(attribute, ir.IntegerAttr) else unquoted(str(attribute))

    # -- instructions --------------------------------------------------------------------------------------------------
    def instruction(self, attributes: Attributes) -> Iterator[str]:
        """Yield the words of an instruction up to its signals."""
        cls = isa.by_mnemonic()[attributes["mnemonic"].value]
        yield attributes["mnemonic"].value
        queue = attributes["queue"].value
        if issubclass(cls, isa.Control):
            words, listed = self.control(cls, attributes["fields"])
        else:
            words, listed = self.operation(TileForm(cls), attributes)
        if queue != -1:
            listed["queue"] = self.reader.labels.text("isa.queue", queue)
        yield from (*words, *attribute_dictionary(listed))

    def operation(self, form: TileForm, attributes: Attributes) -> tuple[list[str], dict[str, str]]:
        """Return the words of an instruction on tiles, and its attributes."""
        cls, fields, tiles = form.cls, attributes["fields"], attributes["tiles"]
        registers = [f"%r{register.value}" for register in attributes["registers"]]
        words = [] if form.function is None else [unquoted(str(fields[form.function]))]
        sides = [", ".join((f"{f.name}: " if f.optional else "") + self.tile(tiles[f.name], registers)
                           for f in side if f.name in tiles) for side in (form.targets, form.sources)]
        words += [" = ".join(side for side in sides if side)] * any(sides)
        listed: dict[str, str] = {}
        for name, kind in form.listed.items():
            if name == "engine":
                continue
            value = read_value(fields[name], kind, name)
            if not is_default(cls.defaults, name, value):
                listed[name] = value_text(value, str(fields[name]), registers)
        return [*words, *symbols_clause(" ".join([*words, *listed.values()]), registers)], listed

    def control(self, cls: type[isa.Control], fields: Attributes) -> tuple[list[str], dict[str, str]]:
        """Return the words of a control operation, and its other fields."""
        form = ControlForm(cls)
        sides = [", ".join(self.tile(fields[n], ()) if cls.kinds()[n] is Tile else _side(fields[n]) for n in names)
                 for names in (form.targets, form.sources)]
        words = [fields[form.function].value] if form.function else []
        words += [" = ".join(side for side in sides if side)] * any(sides)
        return words, {name: self.attribute_text(name, fields[name]) for name in form.others}

    def tile(self, attribute: ir.ArrayAttr, registers: Sequence[str]) -> str:
        """Return the subscripts of a memory or variable; if there are none, the access pattern."""
        memory, pattern = attribute
        name = memory.value
        kind = MEMORIES.get(name) or self.reader.types.of(f"@{name}")
        buffer = None if kind is None else buffer_of(kind)
        subscript = None if buffer is None else subscripts(read_access(pattern), buffer, registers)
        return (name if NAME.fullmatch(name) else str(memory)) + (f"[{pattern}]" if subscript is None else subscript)

    def signals(self, attributes: Attributes) -> Iterator[str]:
        """Yield the waits and the signal."""
        label = self.reader.labels.text
        waits = [f"{label('isa.semaphore', wait[0].value)} >= {wait[1].value}" for wait in attributes["waits"]]
        if waits:
            yield f"wait {', '.join(waits)}"
        if len(attributes["update"]):
            semaphore, amount = attributes["update"]
            yield f"signal {label('isa.semaphore', semaphore.value)} += {amount.value}"


def _side(attribute: Attribute) -> str:
    """Return a number or register, whose attribute is a string."""
    value = attribute.value
    return f"%{value}" if isinstance(value, str) else str(value)


def in_order(op: Operation) -> Iterator[Operation]:
    """Yield the operations of the ``isa`` level in an operation, in the order of their text."""
    for region in op.regions:
        for block in region.blocks:
            for nested in block.operations:
                if nested.operation.name.startswith("isa."):
                    yield nested.operation
                yield from in_order(nested.operation)
