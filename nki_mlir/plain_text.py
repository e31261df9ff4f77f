# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces the parts of a text of MLIR whose brackets have no meaning, strings, comments and arrows, by blanks.

Hostile texts have 16 MB of comments or of escapes. So a text is not matched piece by piece: array operations find the
state of each character, in chunks that stay in the processor's cache, with the state at the end of one chunk carried
to the next.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

CHUNK = 1 << 17                 # characters
NEWLINE, RETURN, BLANK, QUOTE, BACKSLASH, SLASH = b'\n\r "\\/'
MINUS, LESS, EQUAL, GREATER = b"-<=>"

_TEXT_ONLY = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n\r]*|->|[<>=]=|=>')


def characters_of(text: str) -> np.ndarray:
    """Return one byte for each character, so that offsets count characters; those beyond Latin-1 become ``?``."""
    return np.frombuffer(text.encode("latin-1", "replace"), np.uint8)


def plain_text(text: str) -> str:
    """Return the text with blanks for strings, comments and arrows; its length stays."""
    pieces = []
    for piece in PlainChunks(characters_of(text)):
        if piece.stray >= 0:            # no valid text has such a character
            return _TEXT_ONLY.sub(lambda match: " " * (match.end() - match.start()), text)
        pieces.append(piece.characters.tobytes())
    return b"".join(pieces).decode("latin-1")


@dataclass(frozen=True)
class PlainChunk:
    """A part of a plain text: its characters, the offset of the first of them, and the offset of the first character
    that makes the state of those after it ambiguous, or -1."""

    characters: np.ndarray
    first: int
    stray: int


class PlainChunks:
    """The chunks of a plain text, and the state between them."""

    def __init__(self, characters: np.ndarray) -> None:
        self.characters = characters
        self.quoted = False             # inside of a string
        self.commented = False
        self.backslashes = 0            # parity of the number of backslashes up to here
        self.pairs = 0                  # parity of the number of possible arrows up to here
        self.second = False             # the next character is the second one of an arrow

    def __iter__(self) -> Iterator[PlainChunk]:
        for first in range(0, self.characters.size, CHUNK):
            chunk = self.characters[first:first + CHUNK]
            following = np.append(self.characters[first + 1:first + CHUNK + 1], np.uint8(NEWLINE))[:chunk.size]
            text = chunk.tobytes()
            blank = np.zeros(chunk.size, np.bool_)
            stray = -1
            slashes = chunk == SLASH if b"/" in text else None
            if self.quoted or self.commented or b'"' in text or (slashes is not None and (
                    slashes & (following == SLASH)).any()):
                blank, stray = self._strings(chunk, following)
            else:
                self.backslashes = 0 if chunk[-1] != BACKSLASH else self._run_parity(chunk == BACKSLASH)
            if self.second or self.pairs or b"=" in text or b">" in text or chunk[-1] in (MINUS, LESS):
                self._arrows(chunk, following, blank)
            yield PlainChunk(np.where(blank, np.uint8(BLANK), chunk) if blank.any() else chunk, first,
                             first + stray if stray >= 0 else -1)

    def _run_parity(self, marks: np.ndarray) -> int:
        """Return the parity of the run of backslashes that ends with the chunk."""
        unmarked = np.flatnonzero(~marks)
        return int(marks.size - 1 - unmarked[-1]) & 1 if unmarked.size else (self.backslashes + marks.size) & 1

    def _strings(self, chunk: np.ndarray, following: np.ndarray) -> tuple[np.ndarray, int]:
        """Return which characters are in strings or comments, and the index of the first stray character or -1."""
        index = np.arange(chunk.size, dtype=np.int32)
        ends = (chunk == NEWLINE) | (chunk == RETURN)
        marks = chunk == BACKSLASH
        quotes = chunk == QUOTE
        escaped = np.zeros(chunk.size, np.bool_)
        odd = escaped
        if marks.any() or self.backslashes:
            odd = _parities(marks, index, self.backslashes)
            escaped[0] = self.backslashes and quotes[0]
            escaped[1:] = odd[:-1] & quotes[1:]
        self.backslashes = int(odd[-1])
        limits = quotes & ~escaped
        after = np.logical_xor.accumulate(limits)           # whether the number of quotes up to here is odd
        at = np.flatnonzero(ends)
        lines = np.diff(at, prepend=-1, append=chunk.size - 1)          # characters of each line, with its end
        base = np.repeat(np.concatenate(([self.quoted], after[at])), lines)
        inside = after ^ limits ^ base                      # the state before each character
        comments = self._comments(chunk, following, index, inside, np.concatenate(([-1], at + 1)), lines)
        stray = escaped & ~inside
        if (returns := chunk == RETURN).any():
            stray |= returns & inside & (following != NEWLINE)
        stray &= ~comments
        blank = (inside | limits | comments) & ~ends
        if marks.any():                                     # a string ends before a backslash at the end of a line
            blank &= ~(odd & (following == NEWLINE) & ~comments)
        over = bool(ends[-1])
        self.quoted = not over and bool(after[-1] ^ base[-1])
        self.commented = not over and bool(comments[-1])
        return blank, int(np.argmax(stray)) if stray.any() else -1

    def _comments(self, chunk: np.ndarray, following: np.ndarray, index: np.ndarray, inside: np.ndarray,
                  starts: np.ndarray, lines: np.ndarray) -> np.ndarray:
        """Return which characters are in comments: those from the first ``//`` of a line outside of strings on."""
        begins: np.ndarray = (chunk == SLASH) & (following == SLASH) & ~inside
        if not self.commented and not begins.any():
            return begins
        last = np.where(begins, index, np.int32(-2))
        last[0] = max(last[0], -1 if self.commented else -2)
        comments: np.ndarray = np.maximum.accumulate(last) >= np.repeat(starts, lines)
        return comments

    def _arrows(self, chunk: np.ndarray, following: np.ndarray, blank: np.ndarray) -> None:
        """Mark arrows and comparisons of two characters. Characters pair from the left: ``==>`` is ``==`` and ``>``."""
        equal = following == EQUAL
        pairs = ((chunk == MINUS) | (chunk == EQUAL)) & (following == GREATER)
        pairs |= ((chunk == LESS) | (chunk == GREATER) | (chunk == EQUAL)) & equal
        pairs &= ~blank
        blank[0] |= self.second
        if not pairs.any():
            self.pairs, self.second = 0, False
            return
        odd = _parities(pairs, np.arange(chunk.size, dtype=np.int32), self.pairs)
        begin = pairs & odd
        blank |= begin
        blank[1:] |= begin[:-1]
        self.pairs, self.second = int(odd[-1]), bool(begin[-1])


def _parities(marks: np.ndarray, index: np.ndarray, before: int) -> np.ndarray:
    """Return for each character whether the run of marks that ends with it has an odd length. ``before``: the parity of
    a run that ends before the first character."""
    unmarked = np.where(marks, np.int32(-1 - before), index)
    return ((index - np.maximum.accumulate(unmarked)) & 1).astype(np.bool_)
