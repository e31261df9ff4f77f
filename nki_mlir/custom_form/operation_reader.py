# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads an operation in its custom form and writes it in the generic form, which MLIR's parser takes."""

import ast
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nki_mlir.custom_form import linear_text
from nki_mlir.custom_form.attribute_values import generic_value, plain_value, quoted
from nki_mlir.custom_form.lexing import NAME, STRING, VALUE, Cursor, MalformedForm, end_of_item
from nki_mlir.custom_form.operation_fields import (
    BUFFER,
    DENSE,
    VIEW,
    PlainForm,
    TileForm,
    form_of,
    operation_names,
)
from nki_mlir.custom_form.subscripts import BufferType, SubscriptPattern, all_of, buffer_of, read_subscripts
from nki_mlir.custom_form.value_types import ValueTypes
from nki_mlir.dialects.access import Access, Linear, Tile
from nki_mlir.dialects.op import Op, TileField
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.similar_names import nearest

LABEL = re.compile(r"([A-Za-z_]\w*)\s*:")
ATTRIBUTE = re.compile(r"[A-Za-z_][\w$.]*|" + STRING)
RAW_ACCESS = re.compile(r"#nki\.access<(\w+),.*,\s*(\[\s*\[.*\]\s*\])\s*>", re.DOTALL)
NUMBERED = re.compile(r"_\d+$")
Piece = tuple[str, int | None]          # generic text, and the part of the custom text that it replaces


@dataclass
class GenericText:
    """The generic form of an operation, and the type of its result if it has one. ``end`` is the text after the region
    of an operation whose region follows."""

    pieces: list[Piece]
    result: str | None = None
    end: str | None = None

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


class UnclearType(MalformedForm):
    """The type of a value is unknown, because the operation that defines it has an error. That error is reported, not
    this one."""


@dataclass
class TextOperand:
    """A value and the text after it: subscripts, an access pattern, or nothing."""

    name: str
    at: int
    kind: str
    pattern: SubscriptPattern | str | None = None

    def buffer(self) -> BufferType:
        buffer = buffer_of(self.kind)
        if buffer is None:
            raise MalformedForm(self.at, f"{self.name} is a {self.kind}: only complete buffers of static shape "
                                         'in "hbm", "sbuf" or "psum" have subscripts')
        return buffer

    def access(self, symbols: Sequence[str], types: ValueTypes) -> Access:
        """Return the access pattern. If it is the text of an attribute, return only its dtype and dims."""
        if isinstance(self.pattern, SubscriptPattern):
            return self.pattern.access(self.buffer(), symbols)
        if self.pattern is None:
            return all_of(self.buffer())
        match = RAW_ACCESS.fullmatch(types.attribute(self.pattern))
        try:
            dims = ast.literal_eval(match[2]) if match else None
        except (ValueError, SyntaxError):
            dims = None
        if match is None or dims is None or match[1] not in BY_MLIR:
            raise MalformedForm(self.at, f"{self.pattern} is not an access pattern '#nki.access<...>'")
        return Access(BY_MLIR[match[1]], Linear() if self.buffer().on_chip else None, Linear(), tuple(map(tuple, dims)))

    def access_text(self, symbols: Sequence[str], types: ValueTypes) -> str:
        """Return the access pattern as an attribute."""
        if isinstance(self.pattern, str):
            return self.pattern
        access = self.access(symbols, types)
        starts = [access.free] if access.partition is None else [access.partition, access.free]
        dims = ", ".join(f"[{step}, {count}]" for step, count in access.dims)
        return f"#nki.access<{access.dtype.mlir}, {linear_text.affine_map(starts, 0, len(symbols))}, [{dims}]>"


@dataclass
class Clauses:
    """The clauses after the operands."""

    mask: list[linear_text.NamedConstraint] = field(default_factory=list)
    limits: list[linear_text.NamedConstraint] = field(default_factory=list)
    symbols: list[tuple[str, int]] | None = None
    attributes: dict[str, tuple[str, int]] = field(default_factory=dict)    # name -> text, position


class FormReader:
    """Reads operations at a cursor; ``types`` knows the values before them."""

    def __init__(self, types: ValueTypes) -> None:
        self.types = types

    def read(self, cursor: Cursor, name: str, result: str | None) -> GenericText:
        """Read the operation whose name the cursor has passed."""
        start = cursor.at - len(name)
        if name == BUFFER:
            return self.buffer(cursor, result, start)
        form = form_of(name)
        if form is None:
            similar = difflib.get_close_matches(name, operation_names(), 1)
            fix = f"; '{similar[0]}' is one" if similar else ""
            raise MalformedForm(start, f"'{name}' is not an operation{fix}")
        try:
            if isinstance(form, TileForm):
                return self.tile_operation(cursor, name, form, start)
            return self.view(cursor, start) if name == VIEW else self.read_plain_form(cursor, form, start)
        except UnclearType:
            raise
        except MalformedForm as error:
            raise MalformedForm(error.at, f"'{name}' op {error.message}") from None

    # -- operands ------------------------------------------------------------------------------------------------------
    def operand(self, cursor: Cursor) -> TextOperand:
        """Read ``%x`` or ``(%x : type)``, with the brackets after it."""
        cursor.skip()
        with_type = cursor.accept("(")
        at = cursor.skip()
        name = cursor.match(VALUE)
        if name is None:
            raise cursor.unexpected("a value")
        if with_type:
            cursor.expect(":", "and the type of the value")
            kind: str | None = self.types.resolved(cursor.type())
            cursor.expect(")", "after the type")
        else:
            kind = self.types.of(name)
        if name in self.types.unclear:
            raise UnclearType(at, f"the type of {name} is not known")
        if kind is None:
            raise MalformedForm(at, self.without_type(cursor.text[:at], name))
        return TextOperand(name, at, kind)

    def without_type(self, text_above: str, name: str) -> str:
        """Return the message about a value whose type the text above it does not state."""
        if re.search(rf"{re.escape(name)}(?:(?::\d+)?\s*,\s*{VALUE.pattern})*(?::\d+)?\s*[=:]", text_above):
            return f"cannot tell the type of {name} from the text above: write ({name} : type)"
        similar = nearest(name, self.types.types)
        return f"the text above does not define {name}" + (f"; did you mean {similar}?" if similar else "")

    def tile(self, cursor: Cursor) -> TextOperand:
        """Read an operand with its access pattern."""
        operand = self.operand(cursor)
        line = cursor.at
        if cursor.next_is("[") and "\n" not in cursor.text[line:cursor.at]:
            mark = cursor.at
            cursor.accept("[")
            if cursor.next_is("#"):
                operand.pattern = cursor.raw()
                cursor.expect("]", "after an access pattern")
            else:
                cursor.at = mark
                operand.pattern = read_subscripts(cursor)
        return operand

    def starts_tile(self, cursor: Cursor) -> bool:
        """Return whether an operand follows."""
        return cursor.next_is("%") or cursor.next_is("(")

    def tiles(self, cursor: Cursor, fields: Sequence[TileField]) -> dict[str, TextOperand]:
        """Read the operands of these fields: required ones in order, optional ones by name."""
        operands: dict[str, TextOperand] = {}
        waiting = [f.name for f in fields if not f.optional]
        by_name = [f.name for f in fields if f.optional]
        while True:
            at = cursor.skip()
            label = LABEL.match(cursor.text, at)
            if label is not None:
                if label[1] not in by_name:
                    raise MalformedForm(at, f"has no optional operand '{label[1]}' here; optional are: "
                                            f"{', '.join(by_name) or 'none'}")
                by_name.remove(label[1])
                cursor.at = label.end()
                operands[label[1]] = self.tile(cursor)
            elif self.starts_tile(cursor):
                if not waiting:
                    raise MalformedForm(at, "has too many operands: " + (", ".join(f.name for f in fields) or "none"))
                operands[waiting.pop(0)] = self.tile(cursor)
            elif waiting or operands:
                raise cursor.unexpected(f"operand '{waiting[0]}'" if waiting else "an operand after ','")
            else:
                return operands
            if not cursor.accept(","):
                break
        if waiting:
            raise cursor.unexpected(f"',' and operand '{waiting[0]}'")
        return operands

    def clauses(self, cursor: Cursor) -> Clauses:
        clauses = Clauses()
        if cursor.word("where"):
            clauses.mask = linear_text.read_constraints(cursor)
        if cursor.word("limits"):
            clauses.limits = linear_text.read_constraints(cursor)
        if cursor.word("symbols"):
            cursor.expect("(", "after symbols")
            clauses.symbols = []
            while not cursor.accept(")"):
                if clauses.symbols:
                    cursor.expect(",", "or ')'")
                at = cursor.skip()
                value = cursor.match(VALUE)
                if value is None:
                    raise cursor.unexpected("a value")
                clauses.symbols.append((value, at))
        if cursor.next_is("{") and not cursor.text[cursor.at + 1:].lstrip().startswith("|"):
            clauses.attributes = read_attributes(cursor)
        return clauses

    # -- operations ----------------------------------------------------------------------------------------------------
    def tile_operation(self, cursor: Cursor, name: str, form: TileForm, start: int) -> GenericText:
        fields = self.function(cursor, form)
        operands = self.both_sides(cursor, form)
        clauses = self.clauses(cursor)
        present = [(f, operands[f.name]) for f in form.cls.tiles if f.name in operands]
        linear = self.linear_attributes(cursor, form, clauses)
        symbols = self.symbols(clauses, [o for _, o in present], linear)
        names = [symbol for symbol, _ in symbols]
        values = self.values(form, fields | clauses.attributes, linear, names, start)
        masks = {"mask": clauses.mask, "nki.limits": clauses.limits}
        axes = 0
        if clauses.mask or clauses.limits or any(isinstance(value, Linear) for value in values.values()):
            axes = self.axes(form.cls, operands, values, names, start)
            forms = [c.form for c in (*clauses.mask, *clauses.limits)]
            linear_text.all_below([*forms, *linear.values()], axes, start)
        texts = {"access": "[" + ", ".join(o.access_text(names, self.types) for _, o in present) + "]"}
        for label, constraints in masks.items():
            if constraints or label == "mask":
                texts[label] = linear_text.affine_set(constraints, axes, names)
        if any(f.optional for f in form.cls.tiles):
            sizes = ", ".join(str(int(f.name in operands)) for f in form.cls.tiles)
            texts["operandSegmentSizes"] = f"array<i32: {sizes}, {len(names)}>"
        for attribute, kind in form.cls.attributes.items():
            value = values[attribute]
            texts[attribute] = (linear_text.affine_map([value], axes, len(names)) if isinstance(value, Linear)
                                else generic_value(value, kind))
        texts |= {n: text for n, (text, _) in clauses.attributes.items() if n not in form.listed}
        return assembled(name, [(o.name, o.at, o.kind) for _, o in present] + [(s, at, "index") for s, at in symbols],
                         texts, None)

    @staticmethod
    def function(cursor: Cursor, form: TileForm | PlainForm) -> dict[str, tuple[str, int]]:
        """Read the attribute after the operation's name, if the form has one."""
        if form.function is None:
            return {}
        at, word = cursor.skip(), cursor.match(NAME) or cursor.match(re.compile(STRING))
        if word is None:
            raise cursor.unexpected(f"attribute '{form.function}', a name")
        return {form.function: (word, at)}

    def both_sides(self, cursor: Cursor, form: TileForm) -> dict[str, TextOperand]:
        """Read the tiles that the operation writes, ``=``, and those that it reads."""
        operands = self.tiles(cursor, form.targets or form.sources)
        if form.targets and form.sources:
            if cursor.accept("="):
                operands |= self.tiles(cursor, form.sources)
            elif any(not f.optional for f in form.sources):
                raise cursor.unexpected("'=' after the destinations")
        return operands

    @staticmethod
    def linear_attributes(cursor: Cursor, form: TileForm, clauses: Clauses) -> dict[str, linear_text.NamedForm]:
        """Return the attributes that are linear forms of symbols and axes."""
        return {n: linear_text.read_form(Cursor(*in_text(cursor.text, v))) for n, v in clauses.attributes.items()
                if form.listed.get(n) is Linear and not v[0].startswith(("affine_map", "#"))}

    def symbols(self, clauses: Clauses, operands: Sequence[TextOperand], linear: dict[str, linear_text.NamedForm]
                ) -> list[tuple[str, int]]:
        """Return the listed symbols, or the symbols in the order in which they occur."""
        forms = [form for o in operands if isinstance(o.pattern, SubscriptPattern) for form in o.pattern.forms()]
        forms += [c.form for c in (*clauses.mask, *clauses.limits)] + list(linear.values())
        positions: dict[str, int] = {}
        for form in forms:
            positions = form.found_at | positions
        ordered = dict.fromkeys(name for form in forms for name in form.values)
        if clauses.symbols is None:
            return [(name, positions[name]) for name in ordered]
        listed = [name for name, _ in clauses.symbols]
        for name in ordered:
            if name not in listed:
                raise MalformedForm(positions[name], f"{name} is not among symbols({', '.join(listed)})")
        return clauses.symbols

    def values(self, form: TileForm, listed: dict[str, tuple[str, int]], linear: dict[str, linear_text.NamedForm],
               symbols: Sequence[str], start: int) -> dict[str, object]:
        """Return the attributes: plain values, or text that is not a plain value."""
        values: dict[str, object] = {}
        for name, kind in form.cls.attributes.items():
            if name in linear:
                values[name] = linear[name].linear(symbols)
            elif name in listed:
                values[name] = plain_value(listed[name][0], kind)
            elif name in form.defaults:
                values[name] = form.defaults[name]
            else:
                raise MalformedForm(start, f"needs attribute '{name}'")
        return values

    def axes(self, cls: type[Op], operands: dict[str, TextOperand], values: dict[str, object], symbols: Sequence[str],
             start: int) -> int:
        """Return the number of axes of the operation."""
        fields: dict[str, Any] = dict(values)
        for label, operand in operands.items():
            buffer, access = operand.buffer(), operand.access(symbols, self.types)
            fields[label] = Tile(None, buffer.space, buffer.shape, buffer.dtype, access, label)
        try:
            return len(cls(**fields).iteration().extents)
        except MalformedForm:
            raise
        except Exception as error:              # whatever a class does with operands that it does not allow
            raise MalformedForm(start, f"has no axes for a mask with these operands and attributes: {error}") from None

    def view(self, cursor: Cursor, start: int) -> GenericText:
        """Read ``nki.view %x[0:128, 0:512] {masked} -> type``. If the text has no type, it follows from the pattern."""
        operand = self.tile(cursor)
        clauses = self.clauses(cursor)
        symbols = self.symbols(clauses, [operand], {})
        names = [name for name, _ in symbols]
        texts = {"access": operand.access_text(names, self.types)} | {n: t for n, (t, _) in clauses.attributes.items()}
        if (listed := re.fullmatch(r"\[([\d,\s]*)\]", texts.get("dims", ""))) is not None:
            texts["dims"] = f"array<i64: {listed[1]}>" if listed[1].strip() else "array<i64>"
        if cursor.accept("->"):
            kind = cursor.type()
        else:
            kind = self.view_type(operand, names, texts.get("dims"))
        operands = [(operand.name, operand.at, operand.kind), *((name, at, "index") for name, at in symbols)]
        return assembled(VIEW, operands, texts, kind)

    def view_type(self, operand: TextOperand, symbols: Sequence[str], dims: str | None) -> str:
        """Return the memref type of a view with this pattern."""
        if isinstance(operand.pattern, str):
            raise MalformedForm(operand.at, "needs the type of the view after '->'")
        buffer, access = operand.buffer(), operand.access(symbols, self.types)
        tile = Tile(None, buffer.space, buffer.shape, buffer.dtype, access)
        chosen = list(range(len(tile.shape)))
        if dims is not None:
            listed = DENSE.fullmatch(dims)
            chosen = [int(d) for d in ((listed[1] if listed else None) or "").split(",") if d.strip()]
            if listed is None or any(d >= len(tile.shape) for d in chosen):
                raise MalformedForm(operand.at, f"has dims {dims}, which must be a list of "
                                                f"{len(tile.shape)} dims at most, such as [0, 1]")
        offset = tile.offset
        is_static = not offset.symbols and offset.const >= 0
        start = f", offset: {offset.const if is_static else '?'}" if offset.const or not is_static else ""
        extents = "".join(f"{tile.shape[d]}x" for d in chosen)
        strides = ", ".join(str(tile.strides[d]) for d in chosen)
        return f'memref<{extents}{access.dtype.mlir}, strided<[{strides}]{start}>, "{buffer.space}">'

    def read_plain_form(self, cursor: Cursor, form: PlainForm, start: int) -> GenericText:
        """Read ``scalar.alu add %a, %b -> f32``. If the text has no type, the result has the type of the first
        operand."""
        if form.has_region:
            raise MalformedForm(start, "has a generic form only")
        texts = {name: quoted(word) for name, (word, _) in self.function(cursor, form).items()}
        operands = []
        if cursor.next_is("%") or cursor.next_is("("):
            operands.append(self.operand(cursor))
            while cursor.accept(","):
                operands.append(self.operand(cursor))
        if cursor.next_is("{"):
            texts |= {name: text for name, (text, _) in read_attributes(cursor).items()}
        kind = None
        if form.results:
            if cursor.accept("->"):
                kind = cursor.type()
            elif operands:
                kind = operands[0].kind
            else:
                raise cursor.unexpected("'->' and the type of the result")
        return assembled(form.name, [(o.name, o.at, o.kind) for o in operands], texts, kind)

    def buffer(self, cursor: Cursor, result: str | None, start: int) -> GenericText:
        """Read ``%tile = nki.buffer {ATTRIBUTES} : type``, an allocation that has the name of its value."""
        if result is None:
            raise MalformedForm(start, f"'{BUFFER}' needs a name for its buffer: %tile = {BUFFER} : memref<...>")
        texts = {name: text for name, (text, _) in read_attributes(cursor).items()} if cursor.next_is("{") else {}
        cursor.expect(":", "and the type of the buffer")
        kind = cursor.type()
        texts["nki.name"] = f'"{source_name(result)}"'
        attributes = ", ".join(f"{name} = {text}" if text else name for name, text in texts.items())
        return GenericText([(f"memref.alloc() {{{attributes}}} : {kind}", start)], kind)


def source_name(value: str) -> str:
    """Return the name of a value in the source: the text may append a number to it."""
    return NUMBERED.sub("", value[1:])


def in_text(text: str, value: tuple[str, int]) -> tuple[str, int]:
    """Return the results of a reader for an attribute's text, which must end where the reader ends."""
    return text[:value[1] + len(value[0])], value[1]


def read_attributes(cursor: Cursor) -> dict[str, tuple[str, int]]:
    """Read ``{a = 1, b}``: return the text and the position of each attribute. A name alone is a unit attribute."""
    attributes: dict[str, tuple[str, int]] = {}
    cursor.expect("{", "before attributes")
    while not cursor.accept("}"):
        if attributes:
            cursor.expect(",", "or '}' after an attribute")
        at = cursor.skip()
        name = cursor.match(ATTRIBUTE)
        if name is None:
            raise cursor.unexpected("the name of an attribute")
        if name in attributes:
            raise MalformedForm(at, f"has attribute '{name}' twice")
        at = cursor.skip()
        if cursor.accept("="):
            at = cursor.skip()
            end = end_of_item(cursor.text, at)
            attributes[name] = cursor.text[at:end].strip(), at
            cursor.at = end
        else:
            attributes[name] = "", at
    return attributes


def assembled(name: str, operands: Sequence[tuple[str, int, str]], attributes: dict[str, str], result: str | None
              ) -> GenericText:
    """Return the generic form."""
    pieces: list[Piece] = [(f'"{name}"(', None)]
    for k, (value, at, _) in enumerate(operands):
        pieces += [(", ", None)] * (k > 0) + [(value, at)]
    listed = ", ".join(f"{key} = {text}" if text else key for key, text in attributes.items())
    kinds = ", ".join(kind for _, _, kind in operands)
    pieces.append((f"){f' {{{listed}}}' if listed else ''} : ({kinds}) -> {result or '()'}", None))
    return GenericText(pieces, result)
