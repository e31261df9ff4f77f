# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts operations in their custom form to text that MLIR's parser reads; other text stays unchanged.

``{ |%in: f32| scalar.activation exp %in }`` is a body of one operation, whose value is yielded. An argument ``%x`` of a
function that is a buffer in HBM has the name ``x``. ``diagonal<128xf32, 1.0>`` is a constant. A ``SourceMap`` leads
from the characters of the result to those of the text, for errors and locations.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass

from nki_mlir.bindings import Module, ir, operations_of
from nki_mlir.custom_form.diagonals import FORM, diagonals_in
from nki_mlir.custom_form.lexing import VALUE, Cursor, MalformedForm, closing, end_of_item
from nki_mlir.custom_form.operation_reader import FormReader, GenericText, Piece, UnclearType, read_attributes
from nki_mlir.custom_form.stream_reader import StreamReader
from nki_mlir.custom_form.value_names import argument_name, is_hbm_buffer
from nki_mlir.custom_form.value_types import ARGUMENT, LONGEST, TOKEN, ValueTypes

# The first letter precedes the look-behind: patterns that begin with letters are searched for ten times as fast.
CUSTOM = re.compile(r"[nsi](?<![\w.#!@$\"-][nsi])(?:(?<=n)ki|(?<=n)isa|(?<=s)calar|(?<=i)sa)"
                    r"\.[A-Za-z_]\w*\b(?!\s*[=,}\])])")
COMMENT_BRACE = re.compile(r"\{\s*\|")
ATTRIBUTE_FOLLOWS = re.compile(r"\s*[=,}\])]")
ENDS = ("isa.end", "isa.next")  # a brace may follow these operations
ERRORS = 100                    # after this number of errors reading stops


class MalformedText(Exception):
    """The first errors of a text, in order."""

    def __init__(self, text: str, errors: list[MalformedForm]) -> None:
        super().__init__("; ".join(error.message for error in errors))
        self.text, self.errors = text, errors

    def messages(self) -> list[tuple[tuple[int, int], str]]:
        """Return line and column of each error, counted from 1, and its message."""
        lines = line_starts(self.text)
        return [(line_and_column(lines, error.at), error.message) for error in self.errors]


@dataclass
class Edit:
    """Characters of the text to replace."""

    start: int
    end: int
    pieces: list[Piece]


class SourceMap:
    """Maps positions in the text that MLIR parses to positions in the text that was read."""

    def __init__(self, text: str, edits: list[Edit]) -> None:
        self.source = text
        self.starts: list[int] = []             # start of each piece in the result
        self.origins: list[tuple[int, bool]] = []   # source position; characters correspond one by one
        parts: list[str] = []
        length = at = 0

        def add(piece: str, origin: int, is_copy: bool) -> None:
            nonlocal length
            if piece:
                self.starts.append(length)
                self.origins.append((origin, is_copy))
                parts.append(piece)
                length += len(piece)
        for edit in edits:
            add(text[at:edit.start], at, True)
            for piece, origin in edit.pieces:
                add(piece, edit.start if origin is None else origin, origin is not None)
            at = edit.end
        add(text[at:], at, True)
        self.text = "".join(parts)
        self._lines = line_starts(self.text)
        self._source_lines = line_starts(text)

    def source_of(self, line: int, column: int) -> tuple[int, int]:
        """Return the line and column in the source, both counted from 1."""
        if not 0 < line <= len(self._lines):
            return line, column
        at = self._lines[line - 1] + column - 1
        piece = bisect_right(self.starts, at) - 1
        if piece < 0:
            return line, column
        origin, is_copy = self.origins[piece]
        return line_and_column(self._source_lines, origin + (at - self.starts[piece] if is_copy else 0))

    def relocate(self, module: Module, file: str) -> None:
        """Move the parser's locations to their positions in the source."""
        with module.context:
            for op in operations_of(module, lambda name: True):
                op.location = self._relocated(op.location, file)
                for region in op.regions:
                    for argument in (a for block in region.blocks for a in block.arguments):
                        argument.set_location(self._relocated(argument.location, file))

    def _relocated(self, location: ir.Location, file: str) -> ir.Location:
        if not isinstance(location, ir.FileLineColLoc) or location.filename != "-":
            return location
        return ir.Location.file(file, *self.source_of(location.start_line, location.start_col))


def line_starts(text: str) -> list[int]:
    """Return where each line begins."""
    return [0, *(m.end() for m in re.finditer("\n", text))]


def line_and_column(lines: list[int], at: int) -> tuple[int, int]:
    """Return line and column of a character, counted from 1."""
    line = bisect_right(lines, at)
    return line, at - lines[line - 1] + 1


def has_custom_form(text: str) -> bool:
    """Return whether a text may contain operations in their custom form. The check is cheap; if it returns False, the
    text has none."""
    return FORM in text or CUSTOM.search(text) is not None or COMMENT_BRACE.search(text) is not None


def expanded(text: str) -> SourceMap:
    """Return the text for MLIR's parser; raise ``MalformedText``."""
    reader = TextReader(text)
    reader.run()                        # the edit after a region is known before those in it
    if reader.errors:
        raise MalformedText(text, reader.errors)
    return SourceMap(text, sorted(reader.edits, key=lambda edit: edit.start))


class TextReader:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.types = ValueTypes()
        self.operations = FormReader(self.types)
        self.streams = StreamReader(self.types)
        self.edits: list[Edit] = []
        self.errors: list[MalformedForm] = []
        self.bodies = 0
        self.unique = "%yielded"
        while self.unique in text:
            self.unique += "_"

    def run(self) -> None:
        at, end = 0, len(self.text)
        while (token := TOKEN.search(self.text, at)) is not None and token.start() < end and len(self.errors) < ERRORS:
            at = self.step(token)
        self.edits += [Edit(start, end, [(dense, None)]) for start, end, dense in diagonals_in(self.text)]

    def step(self, token: "re.Match[str]") -> int:
        """Pass a token; return where to continue."""
        try:
            match token.lastgroup:
                case "operation":
                    return self.operation(token, None)
                case "result":
                    following = TOKEN.match(self.text, token.end())
                    if following is not None and following.lastgroup == "operation":
                        return self.operation(following, token["result_name"])
                case "function":
                    return self.function(token)
                case "body":
                    return self.body(token)
            self.types.define_token(self.text, token)
        except MalformedForm as error:
            if not isinstance(error, UnclearType):
                self.errors.append(error)
            if token.lastgroup == "result":
                self.types.unclear.add(token["result_name"])
            stop = self.text.find("\n", max(error.at, token.start()))
            return stop if stop >= 0 else len(self.text)
        return token.end()

    def function(self, token: "re.Match[str]") -> int:
        """Read the arguments of a function: a buffer has the name of its value unless its attributes name it."""
        start = self.text.find("(", token.end(), token.end() + LONGEST)
        if start < 0:
            return token.end()
        end = self.types.arguments(self.text, start + 1)
        at = start + 1
        while (match := ARGUMENT.match(self.text, at)) is not None and at < end:
            cursor = Cursor(self.text, match.end())
            name = argument_name(match[1])
            if is_hbm_buffer(self.types.resolved(cursor.type())) and name is not None:
                attributes = read_attributes(cursor) if cursor.next_is("{") else None
                if attributes is None:
                    self.insert(cursor.at, f' {{nki.name = "{name}"}}')
                elif "nki.name" not in attributes:
                    self.insert(cursor.at - 1, f'{", " if attributes else ""}nki.name = "{name}"')
            at = end_of_item(self.text, cursor.at) + 1
        return end

    def insert(self, at: int, text: str) -> None:
        self.edits.append(Edit(at, at, [(text, None)]))

    def operation(self, token: "re.Match[str]", result: str | None) -> int:
        """Read an operation of our dialects, if the token is an operation's name and not an attribute's; return where
        it ends."""
        if ATTRIBUTE_FOLLOWS.match(self.text, token.end()) and result is None and token[0] not in ENDS:
            return token.end()
        cursor = Cursor(self.text, token.end())
        generic = self.read(cursor, token[0], result)
        self.edits.append(Edit(token.start(), cursor.at, generic.pieces))
        if generic.end is not None:
            end = closing(self.text, cursor.at)
            self.edits.append(Edit(end, end + 1, [(generic.end, end)]))
        return cursor.at

    def read(self, cursor: Cursor, name: str, result: str | None) -> GenericText:
        generic = (self.streams if name.startswith("isa.") else self.operations).read(cursor, name, result)
        while self.text[cursor.at - 1].isspace():       # the text after the operation keeps its line
            cursor.at -= 1
        if result is not None:
            self.types.define(result, generic.result)
            self.types.unclear.discard(result)
        return generic

    def body(self, token: "re.Match[str]") -> int:
        """Read ``{ |ARGUMENTS| VALUE or OPERATION }``."""
        bar = self.types.arguments(self.text, token.end())
        if not self.text.startswith("|", bar):
            raise MalformedForm(bar, "expected ',' or '|' after the arguments of a body")
        cursor = Cursor(self.text, bar + 1)
        start = cursor.skip()
        head: list[Piece] = [("^bb0(", None), (self.text[token.end():bar], token.end()), ("): ", None)]
        value = cursor.match(VALUE)
        if value is not None:
            values, kinds = [(value, start)], [self.kind_of(value, start)]
            while cursor.accept(","):
                at = cursor.skip()
                values.append((cursor.match(VALUE) or "", at))
                kinds.append(self.kind_of(*values[-1]))
            pieces: list[Piece] = [("linalg.yield ", None)]
            for k, (result, at) in enumerate(values):
                pieces += [(", ", None)] * (k > 0) + [(result, at)]
            pieces.append((f" : {', '.join(kinds)} ", None))
            self.edits.append(Edit(token.start(), cursor.at, [("{ ", None), *head, *pieces]))
        else:
            self.bodies += 1
            value = f"{self.unique}{self.bodies}"
            operation = TOKEN.match(self.text, start)
            if operation is not None and operation.lastgroup == "operation":
                cursor.at = operation.end()
                generic = self.read(cursor, operation[0], value)
                pieces, kind = generic.pieces, generic.result
            else:
                cursor.at = closing(self.text, start)
                while self.text[cursor.at - 1].isspace():
                    cursor.at -= 1
                pieces, kind = [(self.text[start:cursor.at], start)], self.types.result(self.text, start)
            if kind is None:
                raise MalformedForm(start, "cannot tell the type of what this body yields: write the body with its "
                                           "'^bb0(...)' and 'linalg.yield'")
            self.edits.append(Edit(token.start(), cursor.at, [
                ("{ ", None), *head, (f"{value} = ", None), *pieces, (f" linalg.yield {value} : {kind} ", None)]))
        if not cursor.next_is("}"):
            raise cursor.unexpected("'}' after the one operation of a body")
        return cursor.at

    def kind_of(self, value: str, at: int) -> str:
        """Return the type of a yielded value."""
        type_text = self.types.of(value)
        if type_text is None:
            raise MalformedForm(at, f"cannot tell the type of {value or 'the value'} from the text above")
        return type_text
