# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An assignment: a TOML file with a reference and parts, each with cases, points and thresholds.

    name = "Scale rows"
    reference = "reference.py"                  # beside the file
    kernel = "scale"
    [limits]
    seconds = 60
    [[part]]
    name = "whole tiles"
    points = 60
    cases = [{rows = 256, columns = 64}]        # those of the reference where there are none
    hidden = [{rows = 200, columns = 32}]
    [[part]]
    name = "fast"
    points = 40
    microseconds = {full = 25.0, relaxed = 30.0}
    relaxed_share = 0.5                         # of the points, for the relaxed time
    hbm_ratio = 1.5                             # of the bytes that have to be moved; no points beyond
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import TEXT_BYTES

RELAXED_SHARE = 0.95
OF_PART = {"name", "points", "cases", "hidden", "microseconds", "relaxed_share", "hbm_ratio", "sbuf_bytes", "grid"}
OF_FILE = {"name", "reference", "kernel", "target", "limits", "part", "file"}


class BadAssignment(NkiMlirError):
    code = "NKI-GRADE-ASSIGNMENT"
    message = "{file}: {what}"
    fix = "docs/scoring.md describes the fields of an assignment"


class NoSubmission(NkiMlirError):
    code = "NKI-GRADE-SUBMISSION"
    message = "{name}: {what}"
    fix = "hand in one Python file with the kernel, or a directory that has it"


@dataclass(frozen=True)
class AssignmentPart:
    """A part of an assignment with its points. Times are in microseconds: ``full`` earns all points, ``relaxed`` the
    share ``share``."""

    name: str
    points: float
    full: float | None = None
    relaxed: float | None = None
    share: float = RELAXED_SHARE
    hbm_ratio: float | None = None
    sbuf_bytes: int | None = None
    request: dict[str, Any] = field(default_factory=dict)           # cases, hidden, grid: of the worker's request


@dataclass(frozen=True)
class Assignment:
    """The contents of an assignment's file. ``request`` is the part of a worker's request that all parts share."""

    name: str
    file: str                   # of a submission that is a directory
    parts: tuple[AssignmentPart, ...]
    request: dict[str, Any]


def load_assignment(path: str | Path) -> Assignment:
    """Read an assignment from a file. Raise ``BadAssignment``."""
    file = Path(path)
    try:
        data = parsed(TEXT_BYTES.read_text(file, "the assignment"))
    except OSError as error:
        raise BadAssignment(file=str(path), what=f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadAssignment(file=str(path), what=f"is not TOML: {error}") from None

    def check(condition: bool, complaint: str) -> None:
        if not condition:
            raise BadAssignment(file=str(path), what=complaint)
    check(not data.keys() - OF_FILE, f"has the unknown field {', '.join(sorted(data.keys() - OF_FILE))}")
    check(isinstance(data.get("reference"), str), "has no reference")
    reference = file.parent / data["reference"]
    check(os.path.isfile(reference), f"its reference {data['reference']} does not exist")
    listed = data.get("part")
    check(isinstance(listed, list) and bool(listed), "has no [[part]]")
    parts = []
    for number, entry in enumerate(listed or [], 1):
        unknown = ", ".join(sorted(entry.keys() - OF_PART))
        check(not unknown, f"part {number} has the unknown field {unknown}")
        check(type(entry.get("points")) in (int, float) and entry["points"] > 0, f"part {number} has no points")
        times = entry.get("microseconds", {})
        check(isinstance(times, dict) and not times.keys() - {"full", "relaxed"},
              f"microseconds of part {number} has full and relaxed")
        parts.append(AssignmentPart(
            str(entry.get("name", f"part {number}")), float(entry["points"]), times.get("full"), times.get("relaxed"),
            float(entry.get("relaxed_share", RELAXED_SHARE)), entry.get("hbm_ratio"), entry.get("sbuf_bytes"),
            {name: entry[name] for name in ("cases", "hidden", "grid") if name in entry}))
    limits = data.get("limits", {})
    check(not limits.keys() - {"seconds", "megabytes"}, "limits are seconds and megabytes")
    request = {"reference": str(reference), **limits, **{n: data[n] for n in ("kernel", "target") if n in data}}
    return Assignment(str(data.get("name", file.stem)), str(data.get("file", "")), tuple(parts), request)


def parsed(text: str) -> dict[str, Any]:
    """Parse TOML. Raise ``ValueError``."""
    if sys.version_info >= (3, 11):
        import tomllib as toml  # start-up: not in Python 3.10
    else:
        import tomli as toml  # start-up: where the standard library has none
    try:
        document: dict[str, Any] = toml.loads(text)
    except RecursionError:
        raise ValueError("its values nest too deeply") from None
    return document


def submission_file(submission: str | Path, assignment: Assignment) -> Path:
    """Return the Python file of a submission. Raise ``NoSubmission``."""
    path = Path(submission)
    if os.path.isfile(path):                # Path's methods raise errors for names that are too long
        return path
    if not os.path.isdir(path):
        raise NoSubmission(name=str(submission), what="does not exist")
    files = [path / assignment.file] if assignment.file else sorted(path.glob("*.py"))
    if len(files) != 1 or not os.path.isfile(files[0]):
        complaint = f"has no {assignment.file}" if assignment.file else f"has {len(files)} Python files"
        raise NoSubmission(name=str(submission), what=complaint)
    return files[0]
