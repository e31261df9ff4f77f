# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts that an editor has open, with its positions: lines from 0 on, and columns in UTF-16 units."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any


class Document:
    """A text with the indices at which its lines start."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def index_of(self, position: dict[str, int]) -> int:
        """Return the index of the character at a position; beyond a line or the text, the index of its end."""
        line, column = position["line"], position["character"]
        if line >= len(self.starts):
            return len(self.text)
        start = self.starts[line]
        end = self.starts[line + 1] - 1 if line + 1 < len(self.starts) else len(self.text)
        units = self.text[start:end].encode("utf-16-le", "surrogatepass")
        return start + len(units[:2 * column].decode("utf-16-le", "ignore"))

    def position_of(self, index: int) -> dict[str, int]:
        """Return the position of a character."""
        line = bisect_right(self.starts, index) - 1
        before = self.text[self.starts[line]:index]
        return {"line": line, "character": len(before.encode("utf-16-le", "surrogatepass")) // 2}

    def range_of(self, start: int, end: int) -> dict[str, dict[str, int]]:
        """Return the range from one character up to another."""
        return {"start": self.position_of(start), "end": self.position_of(end)}

    def range_of_word(self, line: int, column: int) -> dict[str, dict[str, int]]:
        """Return the range of the word that starts at a line and column of Python, or of one character."""
        line = min(max(line, 0), len(self.starts) - 1)
        end = self.starts[line + 1] - 1 if line + 1 < len(self.starts) else len(self.text)
        at = min(self.starts[line] + max(column, 0), end)
        word = re.compile(r"[\w%.\"@#$-]+").match(self.text, at, end)
        return self.range_of(at, word.end() if word else min(at + 1, len(self.text)))

    def changed(self, changes: Sequence[dict[str, Any]]) -> "Document":
        """Return the document after changes, in order: each replaces a range of the text before it, or, without a
        range, the complete text."""
        document = self
        for change in changes:
            text = change["text"]
            if change.get("range") is not None:
                start, end = (document.index_of(change["range"][bound]) for bound in ("start", "end"))
                text = document.text[:start] + text + document.text[max(start, end):]
            document = Document(text)
        return document
