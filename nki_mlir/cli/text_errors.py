# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find all errors of a text of MLIR, not only the first.

MLIR's parser and verifier stop at the first error. This module then removes the operation with the error and parses
the rest again. It omits errors that follow from a removed operation or alias, such as uses of its values.
"""

import re

from nki_mlir.cli.lowering import split_input
from nki_mlir.cli.source import MalformedInput, read_module
from nki_mlir.custom_form.lexing import DEPTH, STRUCTURE, VALUE
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import limited_time
from nki_mlir.text_limits import TextTooDeep

MOST = 20                               # most parses of a part
CHARACTERS = 1 << 21                    # most characters of all later parses of a part, read in about a second
BEGINS = re.compile(r"\s*(?:%[\w$.:,% -]+=|[!#][\w$.-]+\s*=|\"\w|\^|[a-z]\w*\.\w*(?!\s*=)|return\b|module\b)")
FOLLOWS = re.compile(rf"\s*(?:{BEGINS.pattern}|[}}#!]|//|\Z)")
NAMED = re.compile(r"'(\w+\.\w+)' op .*, found ")
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
BYTE_ORDER_MARK = "\ufeff"
ALIAS = re.compile(r"\s*([!#][\w$.-]+)\s*=")
UNKNOWN_ALIAS = re.compile(r"undefined symbol alias id '([^']+)'")
RESULTS = re.compile(r"\s*(%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*)\s*=")

TextError = tuple[int, int, str]        # line and column, both from 0 on, and the text


def errors_of(text: str, name: str) -> list[TextError]:
    """Return the errors of a text, in order. Parts between ``// -----`` lines are parsed separately."""
    if text.startswith(BYTE_ORDER_MARK):
        return [(line, column + (line == 0), message) for line, column, message in errors_of(text[1:], name)]
    try:
        parts = split_input(text, name)
    except NkiMlirError as error:
        return [(0, 0, error.headline)]
    return [error for part in parts if part.strip() for error in sorted(_errors_of_part(part, name))]


def _errors_of_part(part: str, name: str) -> list[TextError]:
    all_errors: list[TextError] = []
    lines = part.split("\n")
    missing: set[str] = set()           # values of removed operations, and removed aliases
    for _ in range(min(MOST, 1 + CHARACTERS // len(part))):
        read, is_refused = _read("\n".join(lines), name)
        errors = [_at_operation(error, lines) for error in read]
        all_errors += [error for error in errors if not _follows(error, lines, missing)]
        if is_refused:
            break
        left_out = [_leave_out(lines, line, column, missing) for line, column, _ in errors]
        if not any(left_out):
            break
    return list(dict.fromkeys(all_errors))


def _read(text: str, name: str) -> tuple[list[TextError], bool]:
    """Parse the text once. Return its errors, and whether it exceeds a limit, so that no parser reads it."""
    try:
        if text.strip():
            with limited_time():
                read_module(text, name)
    except MalformedInput as error:
        return [(d.line - 1, d.column - 1, d.message) for d in error.diagnostics], False
    except NkiMlirError as error:
        at = (error.at.line - 1, error.at.column) if error.at is not None else (0, 0)
        return [(*at, error.headline)], isinstance(error, TextTooDeep)
    return [], False


def _at_operation(error: TextError, lines: list[str]) -> TextError:
    """Return the error at the end of the operation that it names, if the parser has read up to the next operation: an
    operation without its operands, for example."""
    line, column, message = error
    named = NAMED.match(message)
    if named is None or line >= len(lines) or lines[line][:column].strip() or named[1] in lines[line]:
        return error
    earlier = next((k for k in range(line - 1, -1, -1) if lines[k].strip()), line)
    return (earlier, len(lines[earlier].rstrip()), message) if named[1] in lines[earlier] else error


def _follows(error: TextError, lines: list[str], missing: set[str]) -> bool:
    """Return whether an error is a consequence of operations that were removed."""
    line, column, message = error
    if not missing:
        return False
    value = VALUE.match(lines[line], column) if line < len(lines) else None
    named = set(VALUE.findall(message)) | ({value[0]} if value is not None else set())
    named |= {sigil + name for name in UNKNOWN_ALIAS.findall(message) for sigil in "!#"}
    return bool(named & missing) or "terminator" in message or "empty block" in message


def _leave_out(lines: list[str], line: int, column: int, missing: set[str]) -> bool:
    """Blank the operation or alias at a line. Return False if there is none, if the text ends at the error, or if the
    brackets of an operation with a body do not match: then no parser can tell what belongs to the body."""
    if line >= len(lines) or not lines[line].strip() or not "".join([lines[line][column:], *lines[line + 1:]]).strip():
        return False
    first = next((k for k in range(line, -1, -1) if BEGINS.match(lines[k])), line)
    text = "\n".join(lines[first:])
    end, has_matched = _end_of_operation(text)
    if not has_matched and text[:end].rstrip().endswith("{"):
        return False
    results, alias = RESULTS.match(text), ALIAS.match(text)
    missing.update([alias[1]] if alias else VALUE.findall(results[1]) if results else ("",))
    last = first + text.count("\n", 0, end)
    for k in range(first, max(last, line) + 1):
        lines[k] = ""
    return True


def _end_of_operation(text: str) -> tuple[int, bool]:
    """Return where the first operation of a text ends, and whether its brackets match. The operation may continue on
    the next line, for example with its types. If its brackets do not match, it ends before the first line that begins
    another operation."""
    opened: list[str] = []
    for token in STRUCTURE.finditer(text):
        step = DEPTH.get(token[0], 0)
        if step == 1:
            opened.append(token[0])
        elif step == -1 and (not opened or PAIRS[opened.pop()] != token[0]):
            opened.append(token[0])
            break
        elif token[0] == "\n" and not opened and FOLLOWS.match(text, token.start()):
            return token.start(), True
    if not opened:
        return len(text), True
    return next((m.start() for m in re.finditer("\n", text) if FOLLOWS.match(text, m.start())), len(text)), False
