# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads what a call reports: faults are raised, the rest becomes Python warnings at lines of C++ sources."""

import shutil
import subprocess
import warnings
from pathlib import Path

from nki_mlir.customop import abi
from nki_mlir.customop.findings import Fault, Found, FoundError, KernelWarning
from nki_mlir.customop.toolchain import HERE

_shown: dict[str | tuple[str, type[Warning], int], int] = {}      # the warnings shown, as Python keeps it for a module


def findings(report: abi.Report, library: Path, base: int, function: int | None, cores: int) -> list[FoundError]:
    """The findings of a report, in the order in which the cores met them.

    Those that concern the operator's function as a whole are at its first line; ``function`` is its address.
    """
    made = []
    for k in range(report.count):
        raw = report.findings[k]
        after = raw.pc or (function and function + 1)
        at = _position(raw.at) or (place_of_code(library, after - base) if after else None)
        made.append(FoundError.of(Found(raw.kind.decode(), at, _position(raw.other), tuple(raw.values),
                                        (raw.text or b"").decode(errors="replace"), raw.count, raw.cores, cores)))
    return made


def tell(found: list[FoundError]) -> None:
    """Raise the first fault with all other findings; without one, warn of each."""
    faults = [f for f in found if isinstance(f, Fault)]
    if faults:
        faults[0].others = tuple(f for f in found if f is not faults[0])
        raise faults[0]
    for warning in found:
        file, line = (warning.at.file, warning.at.line) if warning.at else ("<custom operator>", 0)
        try:
            warnings.warn_explicit(warning, type(warning), file, line, registry=_shown)     # type: ignore[call-overload]
        except KernelWarning as error:              # filters make it an error
            error.raised = True
            raise


def _position(place: abi.SourceRecord) -> tuple[str, int] | None:
    return (place.file.decode(), place.line) if place.file else None


def place_of_code(library: Path, after: int) -> tuple[str, int] | None:
    """The user's line of the instruction before an offset in a library; None without binutils."""
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    done = subprocess.run([tool, "-i", "-e", str(library), hex(after - 1)], capture_output=True, text=True, check=False)
    for text in done.stdout.split("\n"):            # what was inlined comes first
        file, _, line = text.partition(" ")[0].rpartition(":")
        if file.startswith("/") and line.isdecimal() and not Path(file).is_relative_to(HERE) \
                and not file.startswith("/usr/"):
            return file, int(line)
    return None
