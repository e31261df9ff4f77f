# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A line of assembly text and a field of it: how far it has been read, and errors with its place."""

import re

from nki_mlir.diagnostics import Location, NkiMlirError

NAME = r"[A-Za-z_][\w.]*"
INTEGER = r"-?\d+"


class AssemblyError(NkiMlirError):
    code = "NKI-ASSEMBLY"
    message = "{what}"


class Line:
    """One line of the text and how far it has been read."""

    def __init__(self, text: str, file: str, number: int) -> None:
        self.text, self.file, self.number, self.at = text, file, number, 0
        self.start = 0                          # of the last thing that was read
        self.named = 0                          # where the mnemonic stands

    def fail(self, what: str, at: int | None = None) -> AssemblyError:
        column = self.start if at is None else at
        error = AssemblyError(what=what)
        error.located(Location(self.file, self.number, column))
        return error

    def skip(self) -> "Line":
        while self.text.startswith(" ", self.at):
            self.at += 1
        return self

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    def accept(self, pattern: str) -> re.Match[str] | None:
        """What matches here, after spaces; read on behind it."""
        self.skip()
        match = re.compile(pattern).match(self.text, self.at)
        if match:
            self.start, self.at = self.at, match.end()
        return match

    def expect(self, pattern: str, what: str) -> re.Match[str]:
        match = self.accept(pattern)
        if match is None:
            found = self.text[self.at:].split(" ")[0] or "the end of the line"
            raise self.fail(f"expected {what}, found '{found}'", self.at)
        return match

    def end(self) -> None:
        if not self.skip().ended:
            raise self.fail(f"unexpected '{self.text[self.at:]}'", self.at)


class Text:
    """The value of a field and where it stands."""

    def __init__(self, value: str, line: Line, column: int) -> None:
        self.value, self.line, self.column = value, line, column

    def fail(self, what: str) -> AssemblyError:
        return self.line.fail(f"{what}, found '{self.value}'", self.column)

    def match(self, pattern: str, what: str) -> re.Match[str]:
        match = re.fullmatch(pattern, self.value)
        if match is None:
            raise self.fail(f"expected {what}")
        return match

    def number(self) -> int:
        return int(self.match(INTEGER, "a number")[0])
