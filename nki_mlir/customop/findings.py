# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convert the findings of the emulated engine to exceptions and warnings with the line of the user's source.

A ``Fault`` is raised, because the device's behavior is undefined. A ``KernelWarning`` is a Python warning at the
C++ line: the device continues with a result that the author did not intend; ``warnings.simplefilter("error",
KernelWarning)`` makes it an error. ``faults`` has a class for each kind.
"""

import linecache
import shutil
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nki_mlir.customop.abi import CORES, DTYPES, Report, SourceRecord
from nki_mlir.customop.build import HERE
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.files import shown


@dataclass(frozen=True)
class Found:
    """A finding of the engine: its kind, two source lines (file, line), the values of its kind, and how often and on
    which cores it occurred."""

    kind: str
    at: tuple[str, int] | None
    other: tuple[str, int] | None
    values: tuple[int, ...]
    text: str
    count: int
    cores: int              # a bit for each core
    of: int                 # number of cores that ran


class FoundError(NkiMlirError):
    """The base class of the findings. ``fields`` names the values; ``{other}`` in a text is the second source line,
    ``{text}`` a text of the engine."""

    kind: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ()
    classes: ClassVar[dict[str, type["FoundError"]]] = {}

    def __init_subclass__(cls) -> None:
        if cls.kind:
            FoundError.classes[cls.kind] = cls

    @property
    def headline(self) -> str:
        finding: Found = self.values["found"]
        times = f"{finding.count:,} times" if finding.count > 1 else ""
        details = ", ".join(part for part in (times, cores_text(finding.cores, finding.of)) if part)
        return super().headline + (f" ({details})" if details else "")

    def full_text(self) -> str:
        """Return the text with its source location."""
        return NkiMlirError.__str__(self)

    @classmethod
    def of(cls, finding: Found) -> "FoundError":
        """Return the exception of a finding."""
        error_class = cls.classes[finding.kind]
        values = {name: error_class.shown(name, value) for name, value in zip(error_class.fields, finding.values)}
        line = line_of(*finding.other) if finding.other else None
        other = f"{line.file}:{line.line}" if line else "an unknown line"
        error = error_class(**values, other=other, text=finding.text, found=finding)
        return error.located(line_of(*finding.at) if finding.at else None)      # type: ignore[return-value]

    @classmethod
    def shown(cls, name: str, value: int) -> object:
        match name.partition("_")[0]:
            case "dtype":
                return DTYPES[value].name
            case "way":
                return ("read", "write")[value]         # a transfer into tightly coupled memory writes there
            case "what":
                return ("an element accessor", "a read stream", "a write stream")[value]
            case "does":
                return ("reads", "writes")[value]
            case "distance":
                return value
        return f"{value:,}" if abs(value) >= 10_000 else value


def line_of(file: str, line: int) -> Location:
    """Return the location of a complete source line, where the column is not known."""
    name = shown(file)
    linecache.checkcache(name)
    text = linecache.getline(name, line).rstrip("\n")
    return Location(name, line, len(text) - len(text.lstrip()), len(text) or None)


def cores_text(mask: int, count: int) -> str:
    """Return "cores 0 to 3 and 7" for a mask of cores, and "" if only one core ran or none is known."""
    ids = [k for k in range(CORES) if mask >> k & 1]
    if count == 1 or not ids:
        return ""
    if len(ids) == count:
        return f"all {count} cores"
    runs: list[list[int]] = []
    for k in ids:
        if runs and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    parts = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"core{'s' * (len(ids) > 1)} {listed}"


class Fault(FoundError, RuntimeError):
    """Undefined behavior of a kernel. ``others`` are further findings of the same call.

    Example:
        elements = load("relu", ["relu.cpp"], ["relu_shape.cpp"]).relu_elements     # its accessor has two dimensions
        try:
            elements(np.ones(8, np.float32))
        except Fault as fault:
            assert isinstance(fault, faults.AccessorRank) and "relu.cpp" in str(fault)
    """

    others: tuple[FoundError, ...] = ()

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(other.full_text() for other in self.others)])


class KernelWarning(FoundError, UserWarning):
    """A mistake of a kernel that the device does not report.

    Example:
        relu = load("relu", ["relu.cpp"], ["relu_shape.cpp"]).relu_forward
        with warnings.catch_warnings():
            warnings.simplefilter("error", KernelWarning)           # a finding is an error, and there is none
            relu(np.ones((1, 8), np.float32))
    """

    raised = False

    def __str__(self) -> str:
        """Return the text without the location, which Python writes before a warning. A raised warning includes
        it."""
        if self.raised or self.at is None:
            return self.full_text()
        at, self.at = self.at, None
        try:
            return super().__str__().removeprefix("error: ")
        finally:
            self.at = at

    def full_text(self) -> str:
        return super().full_text().replace("error: ", "warning: ", 1)


# -- reports -----------------------------------------------------------------------------------------------------------
# The report of a call: faults are raised, other findings become Python warnings at lines of C++ sources.

_shown: dict[str | tuple[str, type[Warning], int], int] = {}      # shown warnings: the registry of a module


def findings(report: Report, library: Path, base: int, function: int | None, cores: int) -> list[FoundError]:
    """Return the findings of a report, in the order in which the cores found them.

    A finding about the complete operator is at the first line of its function, whose address is ``function``.
    """
    errors = []
    for k in range(report.count):
        raw = report.findings[k]
        after = raw.pc or (function and function + 1)
        at = _source_line(raw.at) or (line_of_code(library, after - base) if after else None)
        errors.append(FoundError.of(Found(raw.kind.decode(), at, _source_line(raw.other), tuple(raw.values),
                                        (raw.text or b"").decode(errors="replace"), raw.count, raw.cores, cores)))
    return errors


def raise_or_warn(findings: list[FoundError]) -> None:
    """Raise the first fault with all other findings. Without a fault, warn of each finding."""
    faults = [f for f in findings if isinstance(f, Fault)]
    if faults:
        faults[0].others = tuple(f for f in findings if f is not faults[0])
        raise faults[0]
    for warning in findings:
        file, line = (warning.at.file, warning.at.line) if warning.at else ("<custom operator>", 0)
        try:
            warnings.warn_explicit(warning, type(warning), file, line, registry=_shown)     # type: ignore[call-overload]
        except KernelWarning as error:              # a filter turned it into an error
            error.raised = True
            raise


def _source_line(source_line: SourceRecord) -> tuple[str, int] | None:
    return (source_line.file.decode(), source_line.line) if source_line.file else None


def line_of_code(library: Path, after: int) -> tuple[str, int] | None:
    """Return the user's line of the instruction before an offset in a library, or None without binutils."""
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    process = subprocess.run([tool, "-i", "-e", str(library), hex(after - 1)], capture_output=True, encoding="utf-8",
                             check=False)
    for text in process.stdout.split("\n"):            # the innermost inlined function comes first
        file, _, line = text.partition(" ")[0].rpartition(":")
        if file.startswith("/") and line.isdecimal() and not Path(file).is_relative_to(HERE) \
                and not file.startswith("/usr/"):
            return file, int(line)
    return None
