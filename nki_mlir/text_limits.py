# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What MLIR's parser may be given: a text from a file, a config or an editor whose depth and integers are bounded.

The parser recurses once for each level of nesting and each operator of an affine expression, so a text of 20,000 levels
overflows the stack and ends the process. It converts a decimal integer in quadratic time, and a layout of StableHLO
allocates as many dimensions as the largest number that it names. Neither can be caught afterwards: ``check_text``
refuses such a text in one linear scan before the parser sees it.
"""

import re

import numpy as np

from nki_mlir.diagnostics import Location, NkiMlirError

DEPTH = 250                     # levels of brackets; the deepest module of ours has about 40
OPERATORS = 2_000               # operators between two separators: terms of one affine expression
DIGITS = 1_000                  # of one integer: the widest type that is printed in decimal has 128 bits, 39 digits
DIMENSIONS = 1_000              # of a tensor, which layouts of convolutions number

# What holds no structure becomes blanks of the same length, so that offsets stay those of the text.
_TEXT_ONLY = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|->|[<>=]=|=>')
_LONG_INTEGER = re.compile(rf"[0-9]{{{DIGITS + 1},}}")
_LAYOUT = re.compile(r"(?:\bdim_numbers|\bconv\s*<)[^{}:]*")
_NUMBER = re.compile(r"[0-9]+")
_OPERATOR = re.compile(r"\b(?:floordiv|ceildiv|mod|and)\b|[-+*]")
_SEPARATOR = re.compile(r"[][(){}<>,:;]")
_OPENS, _CLOSES = b"([{<", b")]}>"


class TextTooDeep(NkiMlirError):
    code = "NKI-TEXT-LIMIT"
    message = "{what} exceeds the limit of {limit}"
    why = "MLIR's parser recurses or allocates by this number, and a text that is data must not end the process"
    fix = "{fix}"


def check_text(text: str, name: str = "<text>") -> None:
    """Raises ``TextTooDeep`` where MLIR's parser must not see ``text``; ``name`` is the file that the error names."""
    plain = _TEXT_ONLY.sub(_blanks, text)
    _check_depth(plain, text, name)
    if (integer := _LONG_INTEGER.search(plain)) is not None:
        raise _error(text, name, integer.start(), f"an integer of {len(integer[0])} digits", DIGITS,
                     "write the value as a hexadecimal string or with fewer digits")
    for layout in _LAYOUT.finditer(plain):
        for number in _NUMBER.finditer(layout[0]):
            if int(number[0]) > DIMENSIONS:
                raise _error(text, name, layout.start() + number.start(), f"dimension number {number[0]}", DIMENSIONS,
                             "number the dimensions of the tensors from 0")
    _check_operators(plain, text, name)


def _blanks(match: re.Match[str]) -> str:
    return " " * (match.end() - match.start())


def _check_depth(plain: str, text: str, name: str) -> None:
    characters = np.frombuffer(plain.encode("utf-32-le"), np.uint32)
    steps = (np.isin(characters, np.frombuffer(_OPENS, np.uint8)).astype(np.int32)
             - np.isin(characters, np.frombuffer(_CLOSES, np.uint8)))
    level = np.cumsum(steps)
    if not level.size or level.max() - min(int(level.min()), 0) <= DEPTH:
        return
    depth = level - np.minimum.accumulate(np.minimum(level, 0))
    too_deep = np.flatnonzero(depth > DEPTH)
    if too_deep.size:
        raise _error(text, name, int(too_deep[0]), f"nesting of {int(depth.max()):,} levels", DEPTH,
                     "nest regions, attributes, types and expressions less deeply")


def _check_operators(plain: str, text: str, name: str) -> None:
    operators = np.array([match.start() for match in _OPERATOR.finditer(plain)])
    if operators.size <= OPERATORS:
        return
    separators = np.array([match.start() for match in _SEPARATOR.finditer(plain)])
    expressions, counts = np.unique(np.searchsorted(separators, operators), return_counts=True)
    if counts.max() > OPERATORS:
        first = operators[np.searchsorted(separators, operators) == expressions[np.argmax(counts)]][0]
        raise _error(text, name, int(first), f"an expression of {int(counts.max()):,} operators", OPERATORS,
                     "divide the expression")


def _error(text: str, name: str, offset: int, what: str, limit: int, fix: str) -> NkiMlirError:
    start = text.rfind("\n", 0, offset) + 1
    at = Location(name, text.count("\n", 0, offset) + 1, offset - start)
    return TextTooDeep(what=what, limit=limit, fix=fix).located(at)
