# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--verify-diagnostics``: compare the diagnostics that comments expect with the actual ones.

``// expected-error@+1 {{text}}`` expects an error on the next line whose message contains the text; ``@-1``,
``@below`` and ``@above`` work as in mlir-opt; without an offset the error is on the comment's line. In
``expected-error-re {{a {{b.*}}}}`` the inner braces contain a regular expression.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nki_mlir.diagnostics import NkiMlirError

EXPECTED = re.compile(r"//\s*expected-(?P<kind>error|warning|remark)(?P<regex>-re)?"
                      r"(?:\s*@\s*(?P<offset>[+-]\d+|below|above|unknown))?\s*\{\{(?P<text>(?:\{\{.*?\}\}|.)*?)\}\}")
PART = re.compile(r"\{\{(.*?)\}\}")


class ExpectedDiagnostic(NamedTuple):
    """An expected diagnostic, from a comment; the line is None for ``@unknown``."""

    kind: str
    line: int | None
    text: str
    is_regex: bool = False

    def matches(self, actual: "ActualDiagnostic") -> bool:
        if self.kind != actual.kind or self.line not in (None, actual.line):
            return False
        return re.search(self.pattern(), actual.text) is not None if self.is_regex else self.text in actual.text

    def pattern(self) -> str:
        """Return the regular expression: text outside of inner braces matches itself."""
        parts = PART.split(self.text)
        return "".join(f"(?:{part})" if k % 2 else re.escape(part) for k, part in enumerate(parts))


class ActualDiagnostic(NamedTuple):
    """An actual diagnostic."""

    kind: str
    line: int | None
    text: str


def expected_in(text: str) -> list[ExpectedDiagnostic]:
    """Return the diagnostics that comments of a text expect."""
    result = []
    for number, line in enumerate(text.split("\n"), 1):
        for match in EXPECTED.finditer(line):
            offset = match["offset"]
            shift = {"below": 1, "above": -1, None: 0, "unknown": 0}.get(offset)
            at = number + (int(offset) if shift is None else shift)
            result.append(ExpectedDiagnostic(match["kind"], None if offset == "unknown" else at, match["text"],
                                    bool(match["regex"])))
    return result


def errors_of(error: NkiMlirError) -> list[ActualDiagnostic]:
    """Return the diagnostics that an exception carries."""
    diagnostics = getattr(error, "diagnostics", ())
    if diagnostics:
        return [ActualDiagnostic("error", d.line, d.message) for d in diagnostics]
    return [ActualDiagnostic("error", error.at.line if error.at else None, error.headline)]


def check_expected(parts: Sequence[str], name: str,
                   process: Callable[[str, Callable[[str, int, str], None]], object]) -> int:
    """Process every part and print each difference between expected and actual diagnostics. Return 0 if they agree,
    else 1.

    ``process`` gets the part and a function to call with each warning and remark: its kind, line and text.
    """
    status = 0
    for part in parts:
        actual: list[ActualDiagnostic] = []
        try:
            process(part, lambda kind, line, text, actual=actual: actual.append(ActualDiagnostic(kind, line, text)))   # type: ignore[misc]
        except NkiMlirError as error:
            actual += errors_of(error)
        problems = []
        for expectation in expected_in(part):
            try:
                match = next((c for c in actual if expectation.matches(c)), None)
            except re.error as wrong:
                problems.append((expectation.line, f'"{expectation.text}" is not a regular expression: {wrong}'))
                continue
            if match is None:
                problems.append((expectation.line, f'expected {expectation.kind} "{expectation.text}" was not '
                                                   'produced'))
            else:
                actual.remove(match)
        problems += [(c.line, f"unexpected {c.kind}: {c.text}") for c in actual]
        for line, text in problems:
            print(f"{name}:{line or 1}:1: error: {text}", file=sys.stderr)
            status = 1
    return status
