# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronx-cc``: a stand-in for the compiler, for programs that look for it or record its version.

Kernels compile without it. It cannot read graphs of frameworks, which are in the vendor's form of HLO: its
``compile`` fails as the vendor's does, with a status, a line on standard error and the log.
"""

import argparse
import sys
from collections.abc import Sequence

from nki_mlir.cli.command import CommandParser, command_line, exit_status
from nki_mlir.cli.standins.tool_files import ToolError
from nki_mlir.files import write_file
from nki_mlir.version import __version__

LOG = "log-neuron-cc.txt"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    p = CommandParser(prog="neuronx-cc", description="A stand-in of nki_mlir for the vendor's compiler, which programs "
                                                     "ask for its version.")
    p.add_argument("--version", action="version", version=f"neuronx-cc of nki_mlir {__version__}")
    compile_graph = p.add_subparsers(dest="command", required=True, metavar="COMMAND").add_parser(
        "compile", help="refuse: this stand-in cannot read graphs in the vendor's form")
    compile_graph.add_argument("words", nargs=argparse.REMAINDER, metavar="FILE ...",
                               help="accept the option without an effect")
    options, _ = p.parse_known_args(command_line(arguments))
    return exit_status(refuse) if options.command else 2


def refuse() -> int:
    """Write the log that programs show, and raise the error."""
    error = ToolError(what="neuronx-cc compile needs the vendor's compiler: nki_mlir does not read its form of HLO",
                      fix="compile kernels with nki.jit, graphs of StableHLO with nki_mlir.frameworks")
    try:
        write_file(LOG, f"{error}\n")
    except OSError:             # the error says it as well
        pass
    raise error


if __name__ == "__main__":
    sys.exit(main())
