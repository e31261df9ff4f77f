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
import re
import sys
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.files import name_source
from nki_mlir.input_limits import PROGRAMS, TEXT_BYTES

RELAXED_SHARE = 0.95
PARTS = 1_000                   # most parts of an assignment: each is judged separately
KEY_PARTS = 100                 # most dots in the keys of a line: a reader's time grows with the square of their number
KEY_DOT = re.compile(r"""[\w"'-][ \t]*\.(?=[ \t]*[\w"'-])""")
OF_PART = {"name", "points", "cases", "hidden", "microseconds", "relaxed_share", "hbm_ratio", "sbuf_bytes", "grid"}
OF_FILE = {"name", "reference", "kernel", "target", "limits", "part", "file"}


class BadAssignment(NkiMlirError):
    code = "NKI-GRADE-ASSIGNMENT"
    message = "the assignment {what}"
    fix = "write the fields that docs/scoring.md describes"


class NoSubmission(NkiMlirError):
    code = "NKI-GRADE-SUBMISSION"
    message = "the submission {what}"
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
    # the fields cases, hidden and grid of the worker's request
    request: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Assignment:
    """The contents of an assignment's file. ``request`` is the part of a worker's request that all parts share."""

    name: str
    file: str                   # the Python file in a submission that is a directory
    parts: tuple[AssignmentPart, ...]
    request: dict[str, Any]


class AssignmentText:
    """The text of an assignment's file with the tables that it contains. ``number`` is 0 for the fields of the file,
    and from 1 on for those of a part."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.lines = file, text.split("\n")
        try:
            self.document = parsed(text)
        except ValueError as error:
            line, column = re.search(r" \(at line (\d+), column (\d+)\)$", str(error)), len(self.lines[-1])
            at = (int(line[1]), int(line[2]) - 1) if line is not None else (len(self.lines), column)
            reason = error if line is None else str(error)[:line.start()]
            raise BadAssignment(what=f"is not TOML: {reason}").located(Location(file, *at)) from None

    def check(self, condition: bool, complaint: str, name: str = "", number: int = 0) -> None:
        """Raise ``BadAssignment`` at a field unless the condition holds."""
        if not condition:
            raise BadAssignment(what=complaint).located(self.location(name, number))

    def location(self, name: str, number: int) -> Location:
        """Return the line of a field; if the table has none, the line of its header, or the first of the file."""
        parts, part, header = 0, 0, Location(self.file, 1, 0)
        field_line = re.compile(rf"\s*\[?\s*(?=[\"']?{re.escape(name)}[\"']?\s*[=.\]])") if name else None
        for line, text in enumerate(self.lines, 1):
            if re.match(r"\s*\[\[\s*part\s*\]\]", text):
                part = parts = parts + 1
                if part == number:
                    header = Location(self.file, line, len(text) - len(text.lstrip()))
                continue
            if re.match(r"\s*\[\s*[^\[]", text) and not re.match(r"\s*\[\s*part\s*\.", text):
                part = 0                                # a table at the top of the file
            if part == number and field_line is not None and (at := field_line.match(text)):
                return Location(self.file, line, at.end())
        return header

    def number(self, table: dict[str, Any], name: str, default: float | None, number: int = 0, most: float = inf,
               integer: bool = False) -> Any:
        """Return a positive number of a table, or its default if the table has none."""
        value = table.get(name, default)
        kinds = (int,) if integer else (int, float)
        fits = value is None or (type(value) in kinds and 0 < value <= most and value <= sys.float_info.max)
        kind, limit = "an integer" if integer else "a number", f" of at most {most:g}" if most < inf else ""
        where = f" of part {number}" if number else ""
        self.check(fits, f"needs {kind} above 0{limit} as {name}{where}", name, number)
        return value


def load_assignment(path: str | Path) -> Assignment:
    """Read an assignment from a file. Raise ``BadAssignment``."""
    file = Path(path)
    try:
        text = TEXT_BYTES.read_text(file, "the assignment")
        name_source(file)               # after the check of its size
        read = AssignmentText(str(path), text)
    except OSError as error:
        raise BadAssignment(what=f"cannot be read: {error.strerror}").located(Location(str(path), 0, 0)) from None
    except UnicodeDecodeError as error:
        before = error.object[:error.start]
        at = Location(str(path), before.count(b"\n") + 1, len(before) - before.rfind(b"\n") - 1)
        raise BadAssignment(what="is not TOML: it is not UTF-8").located(at) from None
    data, check = read.document, read.check
    for name in sorted(data.keys() - OF_FILE):
        check(False, f"has the unknown field {name}", name)
    check(isinstance(data.get("reference"), str), "has no reference", "reference")
    reference = file.parent / data["reference"]
    check(os.path.isfile(reference), f"names the reference {data['reference']}, which does not exist", "reference")
    for name in ("kernel", "target", "file"):
        check(isinstance(data.get(name, ""), str), f"needs a string as {name}", name)
    listed = data.get("part")
    check(isinstance(listed, list) and bool(listed) and all(isinstance(part, dict) for part in listed or []),
          "has no [[part]]", "part")
    check(len(listed or []) <= PARTS, f"has more than {PARTS:,} parts", "part")
    parts = tuple(part_of(read, entry, number) for number, entry in enumerate(listed or [], 1))
    limits = data.get("limits", {})
    check(isinstance(limits, dict) and not limits.keys() - {"seconds", "megabytes"},
          "has limits other than seconds and megabytes", "limits")
    for name in limits:
        read.number(limits, name, None)
    request = {"reference": str(reference), **limits, **{n: data[n] for n in ("kernel", "target") if n in data}}
    return Assignment(str(data.get("name", file.stem)), data.get("file", ""), parts, request)


def part_of(read: AssignmentText, entry: dict[str, Any], number: int) -> AssignmentPart:
    """Return a part of the assignment from its table. Raise ``BadAssignment``."""
    for name in sorted(entry.keys() - OF_PART):
        read.check(False, f"has the unknown field {name} in part {number}", name, number)
    read.check("points" in entry, f"has no points in part {number}", number=number)
    times = entry.get("microseconds", {})
    read.check(isinstance(times, dict) and not times.keys() - {"full", "relaxed"},
               f"needs full and relaxed as microseconds of part {number}", "microseconds", number)
    for name in ("cases", "hidden"):
        value = entry.get(name, [])
        read.check(isinstance(value, list) and all(isinstance(case, dict) for case in value),
                   f"needs a list of tables as {name} of part {number}", name, number)
    grid = entry.get("grid", [])
    extents = grid if isinstance(grid, list) else [grid]
    read.check(all(type(extent) is int and 0 < extent <= PROGRAMS for extent in extents),
               f"needs numbers of programs, each from 1 to {PROGRAMS:,}, as grid of part {number}", "grid", number)
    full, relaxed = (read.number({"microseconds": times.get(name)}, "microseconds", None, number)
                     for name in ("full", "relaxed"))
    return AssignmentPart(
        str(entry.get("name", f"part {number}")), float(read.number(entry, "points", None, number)), full, relaxed,
        float(read.number(entry, "relaxed_share", RELAXED_SHARE, number, most=1.0)),
        read.number(entry, "hbm_ratio", None, number), read.number(entry, "sbuf_bytes", None, number, integer=True),
        {name: entry[name] for name in ("cases", "hidden", "grid") if name in entry})


def parsed(text: str) -> dict[str, Any]:
    """Parse TOML. Raise ``ValueError``."""
    if sys.version_info >= (3, 11):
        import tomllib as toml  # start-up: not in Python 3.10
    else:
        import tomli as toml  # start-up: only if the standard library has none
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > KEY_PARTS and len(KEY_DOT.findall(line)) > KEY_PARTS:
            raise ValueError(f"the line has more than {KEY_PARTS} dots in keys (at line {number}, column 1)")
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
        raise NoSubmission(what="does not exist").located(Location(str(submission), 0, 0))
    files = [path / assignment.file] if assignment.file else sorted(path.glob("*.py"))
    if len(files) != 1 or not os.path.isfile(files[0]):
        complaint = f"has no {assignment.file}" if assignment.file else f"has {len(files)} Python files"
        raise NoSubmission(what=complaint).located(Location(str(submission), 0, 0))
    return files[0]
