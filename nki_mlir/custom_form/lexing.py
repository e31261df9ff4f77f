# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text of IR as tokens: a cursor that reads forms of operations, and functions that skip brackets and strings."""

import re
from collections.abc import Iterator

STRING = r'"(?:[^"\\\n]|\\.)*"'
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
NAME = re.compile(r"[A-Za-z_][\w$]*")
NUMBER = re.compile(r"-?\d+")
SPACE = re.compile(r"(?:\s|//[^\n]*)*")
# Characters that change the depth of brackets in a text. Comparisons and arrows also contain brackets.
STRUCTURE = re.compile(STRING + r"|//[^\n]*|->|[<>=]=|[()\[\]{}<>:,=|\n]")
DEPTH = {**dict.fromkeys("([{<", 1), **dict.fromkeys(")]}>", -1)}


class MalformedForm(Exception):
    """An error in a text, with the character at which it is."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at, self.message = at, message


def structure(text: str, start: int) -> Iterator[tuple[str, int]]:
    """Yield the characters outside of all brackets that open after ``start``, with their positions."""
    depth = 0
    for token in STRUCTURE.finditer(text, start):
        step = DEPTH.get(token[0], 0)
        if depth == 0 and step != 1:
            yield token[0], token.start()
        depth += step
        if depth < 0:
            return


def end_of_item(text: str, start: int) -> int:
    """Return where an item of a list ends: at a comma, or at the bracket that closes the list."""
    for token, at in structure(text, start):
        if token in (",", "|") or DEPTH.get(token) == -1:
            return at
    return len(text)


def closing(text: str, start: int) -> int:
    """Return the position of the bracket that closes the one before ``start``, or the end of the text if there is
    none."""
    return next((at for token, at in structure(text, start) if DEPTH.get(token) == -1), len(text))


def items(text: str, start: int, end: int) -> list[str]:
    """Return the items of a list between two brackets, without the space around them."""
    result = []
    while start < end:
        stop = min(end_of_item(text, start), end)
        result.append(text[start:stop].strip())
        start = stop + 1
    return result


class Cursor:
    """A position in a text."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text, self.at = text, at

    def skip(self) -> int:
        """Pass space and comments; return where the next token is."""
        space = SPACE.match(self.text, self.at)
        assert space is not None
        self.at = space.end()
        return self.at

    def next_is(self, literal: str) -> bool:
        return self.text.startswith(literal, self.skip())

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Pass the next token if it matches the pattern, and return it; else return None."""
        match = pattern.match(self.text, self.skip())
        if match is None:
            return None
        self.at = match.end()
        return match[0]

    def accept(self, literal: str) -> bool:
        """Pass the next token if it is ``literal``, and return whether it was."""
        if not self.next_is(literal):
            return False
        self.at += len(literal)
        return True

    def word(self, *words: str) -> str | None:
        """Pass the next token if it is one of these words, and return it; else return None."""
        match = NAME.match(self.text, self.skip())
        if match is None or match[0] not in words:
            return None
        self.at = match.end()
        return match[0]

    def expect(self, literal: str, context: str) -> None:
        if not self.accept(literal):
            raise self.unexpected(f"'{literal}' {context}")

    def unexpected(self, expected: str) -> MalformedForm:
        """Return the error for a token that does not belong at the cursor."""
        at = self.skip()
        match = re.compile(r"[\w%$.#!@^-]+|\S").match(self.text, at)
        return MalformedForm(at, f"expected {expected}, found {repr(match[0]) if match else 'the end of the text'}")

    def raw(self) -> str:
        """Pass the text up to the end of an item of a list, and return it."""
        start = self.skip()
        self.at = end_of_item(self.text, start)
        return self.text[start:self.at].strip()

    def raw_line(self) -> str:
        """Pass the text up to the end of the line on which all brackets are closed, and return it."""
        start = self.skip()
        self.at = next((at for token, at in structure(self.text, start) if token == "\n"), len(self.text))
        return self.text[start:self.at].strip()

    def type(self) -> str:
        """Pass a type and return it: a name with its angle brackets, or a function type's results in parentheses."""
        start = self.skip()
        if self.next_is("("):
            self.at = closing(self.text, self.at + 1) + 1
            return self.text[start:self.at]
        if self.match(re.compile(r"!?[A-Za-z_][\w$.]*")) is None:
            raise self.unexpected("a type")
        if self.text.startswith("<", self.at):
            self.at = closing(self.text, self.at + 1) + 1
        return self.text[start:self.at]
