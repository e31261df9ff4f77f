# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Read the files that options of the executables name, and report errors about them."""

from collections.abc import Callable
from pathlib import Path

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.targets.neuron.format.artifacts import read_archive


class ToolError(NkiMlirError):
    code = "NKI-TOOL"
    message = "{what}"
    fix = "{fix}"


def read(file: str | Path | None, option: str, reader: Callable[[str | Path], bytes] = TEXT_BYTES.read) -> bytes:
    """Read the file that an option names. Raise ``ToolError`` if it is missing or unreadable."""
    if not file:
        raise ToolError(what=f"{option} is missing", fix=f"name the file with {option}")
    try:
        return reader(file)
    except OSError as error:
        use = f"with {option}" if option.startswith("-") else f"for input {option}"
        raise ToolError(what=f"cannot read {file}: {error.strerror}", fix=f"name a file that exists {use}") from None


def read_compiled(file: str | Path | None, option: str) -> bytes:
    """Read a compiled kernel or a trace. Raise ``ToolError``, also for pipes and devices."""
    return read(file, option, read_archive)
