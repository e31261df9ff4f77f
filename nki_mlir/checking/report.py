# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Report the findings of a check as text for the terminal, and as a dict for JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from nki_mlir.diagnostics import Location

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
KINDS = ("failed", "out-of-bounds", "lifetime", "race", "unwritten-read", "device-rule", "streams", "not-finite",
         "range", "precision", "unwritten-output", "overwritten-input", "dma-shape", "dead-store", "python",
         "older-form", "warning")


@dataclass(frozen=True)
class CheckFinding:
    """A mistake, or a possible mistake, at a line of the kernel."""

    kind: str
    severity: str
    message: str
    location: Location | None = None
    fix: str = ""
    code: str = ""

    def __str__(self) -> str:
        position = f"{PurePath(self.location.file).name}:{self.location.line}: " if self.location else ""
        code = f" [{self.code}]" if self.code else ""
        return f"{position}{self.severity}: {self.message}{code}" + (f"\n  fix: {self.fix}" if self.fix else "")


@dataclass(frozen=True)
class StatementError:
    """The effect of rounding on a statement's results: the largest error relative to the largest result."""

    location: Location | None
    operation: str
    relative: float

    def __str__(self) -> str:
        position = f"{PurePath(self.location.file).name}:{self.location.line}" if self.location else "?"
        return f"{position} {self.operation}: {self.relative:.2g}"


@dataclass
class KernelReport:
    """All findings of a kernel for some arguments, and how much each statement rounds, largest first.

    Example:
        report = KernelReport("double", [], [])
        assert report.sound and "nothing" in str(report)
    """

    kernel: str
    findings: list[CheckFinding] = field(default_factory=list)
    precision: list[StatementError] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether no finding is an error."""
        return not any(f.severity == ERROR for f in self.findings)

    def of(self, kind: str) -> list[CheckFinding]:
        """Return the findings of a kind."""
        return [f for f in self.findings if f.kind == kind]

    def json(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        return {"kernel": self.kernel, "sound": self.sound, "findings": [as_map(f) for f in self.ordered()],
                "precision": [as_map(p) for p in self.precision]}

    def ordered(self) -> list[CheckFinding]:
        """Return the findings, errors first, then in the order of the kernel's lines."""
        return sorted(self.findings, key=lambda f: (SEVERITIES.index(f.severity), *(f.location or ("", 0, 0))[:3]))

    def __str__(self) -> str:
        lines = [str(f) for f in self.ordered()] or [f"{self.kernel}: no mistakes found"]
        if self.precision:
            lines.append("rounding, by statement: " + "; ".join(map(str, self.precision[:5])))
        return "\n".join(lines)


def as_map(entry: CheckFinding | StatementError) -> dict[str, Any]:
    """Return a finding's fields as a dict; its location has file, line and column, which count from 1 as in printed
    errors."""
    at = entry.location
    return asdict(entry) | {"location": at and {"file": at.file, "line": at.line, "column": at.column + 1}}
