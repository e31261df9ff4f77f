# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of functions that no file has: of ``exec``, of ``python -c``, of standard input.

It is looked for when a kernel is made: what ran the text is then a caller, and holds it. A text is the function's if
Python compiles it to the same code.
"""

import linecache
import os
import stat
import sys
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType

LONGEST = 1 << 20               # characters of a text that is looked at
FARTHEST = 50                   # callers that are asked
INHERITED = 0x1000000           # ``from __future__ import annotations`` of what runs the text

_found: dict[str, list[str]] = {}       # texts by the file name that their code has


def remember(function: FunctionType | None) -> None:
    """Look for the text of a function that has no file."""
    if function is None:
        return
    code = function.__code__
    if linecache.getlines(code.co_filename, function.__globals__) or text_of(code) is not None:
        return
    for candidate in _candidates(code):
        for text in _forms(candidate):
            if compiles_to(text, code):
                _found.setdefault(code.co_filename, []).append(text)
                return


def text_of(code: CodeType) -> str | None:
    """The text that was found for code, or for other code of the same text."""
    return next((text for text in reversed(_found.get(code.co_filename, ())) if compiles_to(text, code)), None)


def compiles_to(text: str, code: CodeType) -> bool:
    """Whether the code is a part of what Python makes of a text."""
    if code.co_name not in text:
        return False
    try:
        whole = compile(text, code.co_filename, "exec", flags=code.co_flags & INHERITED, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    pending = [whole]
    while pending:
        one = pending.pop()
        if one == code:
            return True
        pending += [c for c in one.co_consts if isinstance(c, CodeType)]
    return False


def _candidates(code: CodeType) -> Iterator[str]:
    if code.co_filename == "<stdin>" and (text := _standard_input()) is not None:
        yield text
    arguments = sys.orig_argv
    if code.co_filename == "<string>" and "-c" in arguments[:-1]:
        yield arguments[arguments.index("-c") + 1]
    frame, word = sys._getframe(1), f"def {code.co_name}"
    for _ in range(FARTHEST):
        for value in (*frame.f_locals.values(), *frame.f_code.co_consts):
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            if isinstance(text, str) and word in text and len(text) <= LONGEST:
                yield text
        if frame.f_back is None:
            return
        frame = frame.f_back


def _forms(text: str) -> Iterator[str]:
    """A text, and what is usually made of one before it is run."""
    yield text
    for other in (textwrap.dedent(text), text.strip(), textwrap.dedent(text).strip()):
        if other != text:
            yield other


def _standard_input() -> str | None:
    """All of it where it is a file, which Python has read by now."""
    try:
        status = os.fstat(0)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
            return None
        return os.pread(0, status.st_size, 0).decode(errors="replace")
    except OSError:
        return None
