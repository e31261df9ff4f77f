# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m nki_mlir.targets.cpu FILE.mlir``: the programs of a module and, in vector code, their routines.

``nki-opt --lower-to-llvm`` prints the same one step later.
"""

import sys
from pathlib import Path

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.targets.cpu.listing import listing


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    text = sys.stdin.read() if arguments[0] == "-" else Path(arguments[0]).read_text()
    try:
        with shared_context(), ir.Location.unknown():
            print(listing(ir.Module.parse(text), vectors=True))
    except (NkiMlirError, ir.MLIRError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
