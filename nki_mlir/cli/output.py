# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing results: to standard output, or to a file that appears whole or not at all."""

import os
import sys
import tempfile
from pathlib import Path

from nki_mlir.cli.source import SourceError


def write_output(file: str, data: str | bytes) -> None:
    """``-`` is standard output."""
    raw = data.encode() if isinstance(data, str) else data
    if file == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as out:
            out.write(raw)
        os.replace(temporary, path)
    except OSError as error:
        raise SourceError(f"cannot write {file}: {error.strerror}") from None
