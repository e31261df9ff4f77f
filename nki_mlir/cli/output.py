# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing results: to standard output, or to a file."""

import sys

from nki_mlir.cli.source import SourceError
from nki_mlir.files import write_file


def write_output(file: str, data: str | bytes) -> None:
    """``-`` is standard output."""
    sys.stdout.flush()                                  # before what is written to it by another name
    if file == "-":
        sys.stdout.buffer.write(data.encode() if isinstance(data, str) else data)
        sys.stdout.buffer.flush()
        return
    try:
        write_file(file, data)
    except OSError as error:
        raise SourceError(f"cannot write {file}: {error.strerror}") from None
