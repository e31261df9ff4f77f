# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--verify-diagnostics``: the errors that come are those that ``expected-error`` comments announce, and no others.

``// expected-error@+1 {{text}}`` announces an error on the next line whose message contains the text; ``@-1``,
``@below`` and ``@above`` work as in mlir-opt; without an offset it is the comment's own line.
"""

import re
import sys
from collections.abc import Callable, Sequence

from nki_mlir.diagnostics import NkiMlirError

EXPECTED = re.compile(r"//\s*expected-error(?:\s*@\s*([+-]\d+|below|above|unknown))?\s*\{\{(.*?)\}\}")


def expected_errors(text: str) -> list[tuple[int | None, str]]:
    """(line, part of the message) of every announcement; the line is None for ``@unknown``."""
    found: list[tuple[int | None, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        for offset, message in EXPECTED.findall(line):
            shift = {"below": 1, "above": -1, "": 0}.get(offset)
            if offset == "unknown":
                found.append((None, message))
            else:
                found.append((number + (int(offset) if shift is None else shift), message))
    return found


def errors_of(error: NkiMlirError) -> list[tuple[int | None, str]]:
    diagnostics = getattr(error, "diagnostics", ())
    if diagnostics:
        return [(d.line, d.message) for d in diagnostics]
    return [(error.at.line if error.at else None, error.headline)]


def check_expected(parts: Sequence[str], name: str, process: Callable[[str], object]) -> int:
    """Process every part; 0 when announced and actual errors agree."""
    status = 0
    for part in parts:
        awaited = expected_errors(part)
        came: list[tuple[int | None, str]] = []
        try:
            process(part)
        except NkiMlirError as error:
            came = errors_of(error)
        for line, message in list(awaited):
            match = next((c for c in came if (line is None or c[0] == line) and message in c[1]), None)
            if match is None:
                print(f"{name}:{line or 1}:1: error: expected error \"{message}\" was not produced", file=sys.stderr)
                status = 1
            else:
                came.remove(match)
        for at, message in came:
            print(f"{name}:{at or 1}:1: error: unexpected error: {message}", file=sys.stderr)
            status = 1
    return status
