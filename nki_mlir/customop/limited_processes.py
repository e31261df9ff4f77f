# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run a C++ compiler within limits of time, memory and the size of each file that it writes.

A source of one line can include a device or a pipe without an end, or instantiate a template forever. A shell sets the
limits, which all processes that the compiler starts inherit.
"""

import os
import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import InputLimit

SECONDS = InputLimit("NKI_MLIR_COMPILER_SECONDS", "seconds", 120)
BYTES = InputLimit("NKI_MLIR_COMPILER_BYTES", "bytes", 1 << 31)
SHOWN_BYTES = 1 << 20                       # of a compiler's messages
BLOCK = 512                                 # bytes; the unit of ``ulimit -f``
LIMITED = 'ulimit -v "$1"; ulimit -f "$2"; shift 2; exec "$@"'
# The texts of compilers, linkers and assemblers that lack memory, or whose file has become too large
LACKS_BYTES = re.compile("out of memory|memory exhausted|cannot allocate memory|bad_alloc|file size limit|"
                         "file too large", re.IGNORECASE)


class CompilationTime(NkiMlirError, TimeoutError):
    code = "NKI-CUSTOMOP-TIME"
    message = "{what}: the compiler took more than {limit:,} seconds"
    why = "a pipe or device that a source includes may have no end, and neither may a template"
    fix = "correct the source, or set {variable} to a larger number of seconds"


class CompilationMemory(NkiMlirError, MemoryError):
    code = "NKI-CUSTOMOP-MEMORY"
    message = "{what}: the compiler needs more than {limit:,} bytes of memory, or for a file that it writes"
    why = "a device that a source includes may have no end; the compiler says: {output}"
    fix = "correct the source, or set {variable} to a larger number of bytes"


class Ended(NamedTuple):
    """How a process ended, and what it wrote to standard error."""

    returncode: int
    output: str


@dataclass
class LimitedProcesses:
    """The processes of a build, which all have the same limits."""

    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, command: Sequence[str], purpose: str) -> Ended:
        """Run a command to its end. Raise ``FileNotFoundError``, ``CompilationTime`` or ``CompilationMemory``."""
        seconds, size = SECONDS.value(), BYTES.value()
        memory, file_size = lowered(size, resource.RLIMIT_AS), lowered(size, resource.RLIMIT_FSIZE)
        limits = [str(max(memory // 1024, 1)), str(max(file_size // BLOCK, 1))]
        with tempfile.TemporaryFile() as messages:
            process = subprocess.Popen(["/bin/sh", "-c", LIMITED, "sh", *limits, *command], stdin=subprocess.DEVNULL,
                                       stdout=messages, stderr=messages, start_new_session=True)
            self.running.append(process)
            try:
                returncode = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise CompilationTime(what=purpose, limit=seconds, variable=SECONDS.variable) from None
            finally:
                end(process)
                self.running.remove(process)
            messages.seek(0)
            output = messages.read(SHOWN_BYTES).decode(errors="replace")
        if returncode and (lacking := LACKS_BYTES.search(output)):
            line = output[output.rfind("\n", 0, lacking.start()) + 1:].splitlines()[0]
            raise CompilationMemory(what=purpose, limit=size, variable=BYTES.variable, output=line)
        return Ended(returncode, output)

    def end(self) -> None:
        """End all processes that still run."""
        for process in [*self.running]:
            end(process)


def lowered(limit: int, name: int) -> int:
    """Return a limit, or that of this process if it is lower."""
    return min([limit, *(bound for bound in resource.getrlimit(name) if bound != resource.RLIM_INFINITY)])


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started, which all belong to its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
