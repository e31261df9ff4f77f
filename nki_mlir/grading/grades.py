# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The points of a submission, part by part: as text, as JSON, and in the form that autograders of courses read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nki_mlir.grading.assignment import Assignment, AssignmentPart
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.scoring.client import Scorer
from nki_mlir.scoring.verdict import CandidateVerdict


@dataclass(frozen=True)
class PartGrade:
    """The points of a part, with the verdict behind them and a sentence that explains them."""

    part: AssignmentPart
    points: float
    text: str
    verdict: CandidateVerdict


@dataclass(frozen=True)
class Grade:
    """The grades of all parts of a submission."""

    assignment: Assignment
    submission: str
    parts: Sequence[PartGrade]

    @property
    def points(self) -> float:
        return sum(part.points for part in self.parts)

    @property
    def possible(self) -> float:
        return sum(part.part.points for part in self.parts)

    def __str__(self) -> str:
        lines = [f"{self.assignment.name}: {self.points:g} of {self.possible:g} points"]
        lines += [f"  {part_grade.points:g} of {part_grade.part.points:g}  {part_grade.part.name}: {part_grade.text}"
                  for part_grade in self.parts]
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"version": 1, "assignment": self.assignment.name, "submission": self.submission, "source": "model",
                "points": self.points, "possible": self.possible,
                "parts": [{"name": part_grade.part.name, "points": part_grade.points,
                           "possible": part_grade.part.points, "text": part_grade.text,
                           "verdict": part_grade.verdict} for part_grade in self.parts]}

    def autograder(self) -> dict[str, Any]:
        """Return the content of ``results.json`` for Gradescope and tools that read its form."""
        return {"score": self.points, "output": str(self).splitlines()[0], "output_format": "text",
                "visibility": "visible",
                "tests": [{"name": part_grade.part.name, "score": part_grade.points,
                           "max_score": part_grade.part.points,
                           "output": part_grade.text, "status": "passed"
                           if part_grade.points == part_grade.part.points else "failed"}
                          for part_grade in self.parts]}


def grade(assignment: Assignment, file: Path, scorer: Scorer) -> Grade:
    """Judge a submission's file and return its grade."""
    text = TEXT_BYTES.read_text(file, "the submission", errors="replace")
    grades = []
    for part in assignment.parts:
        verdict = scorer.score({**assignment.request, **part.request, "source": text, "name": file.name})
        grades.append(PartGrade(part, *points_of(part, verdict), verdict))
    return Grade(assignment, str(file), grades)


def points_of(part: AssignmentPart, verdict: CandidateVerdict) -> tuple[float, str]:
    """Return the points of a part and a sentence that explains them."""
    if not verdict.right:
        reason = verdict["reason"]
        where = f"{reason['location']}: " if reason["location"] else ""
        return 0.0, f"{where}{reason['message']} [{reason['code']}]"
    us, (low, high) = 1e6 * verdict["total_time"], (1e6 * seconds for seconds in verdict["interval"])
    time = f"{us:.1f} us on the model ({low:.1f}-{high:.1f})"
    over = over_limits(part, verdict)
    if over:
        return 0.0, over
    if part.full is None and part.relaxed is None:
        return part.points, f"right, {time}"
    if part.full is not None and us <= part.full:
        return part.points, f"right, {time}, the goal is at most {part.full:g}"
    if part.relaxed is not None and us <= part.relaxed:
        full = f", {part.full:g} get all points" if part.full is not None else ""
        return part.points * part.share, f"right, {time}, within {part.relaxed:g}{full}. {verdict.advice}"
    least = part.relaxed if part.relaxed is not None else part.full
    return 0.0, f"right, {time}, more than {least:g}. {verdict.advice}"


def over_limits(part: AssignmentPart, verdict: CandidateVerdict) -> str:
    """Return the limit that a right submission exceeds, for which it gets no points; "" if it exceeds none."""
    ratio, sbuf_peak = verdict["hbm_bytes_ratio"] or 0.0, verdict["sbuf_peak_bytes"]
    if part.hbm_ratio is not None and ratio > part.hbm_ratio:
        return f"right, but it moves {ratio:.2f} times the least bytes, more than {part.hbm_ratio:g}"
    if part.sbuf_bytes is not None and sbuf_peak > part.sbuf_bytes:
        return f"right, but it holds {sbuf_peak:,} bytes in SBUF, more than {part.sbuf_bytes:,}"
    return ""
