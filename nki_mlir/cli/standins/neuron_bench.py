# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuron-bench exec``: write the modeled latency of a NEFF in the form of the vendor's tool."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from nki_mlir.alone import alone
from nki_mlir.cli.command import CommandParser, command_line, exit_status
from nki_mlir.cli.standins.tool_files import ToolError, read_compiled
from nki_mlir.files import write_file
from nki_mlir.targets.neuron.format.artifacts import unpack_kernel
from nki_mlir.targets.neuron.profile.vendor_summary import SOURCE
from nki_mlir.targets.neuron.timing import time_programs
from nki_mlir.version import __version__

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)


@alone
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    p = CommandParser(prog="neuron-bench", description="Time a compiled kernel on the "
                                "model of the machine. A stand-in of nki_mlir for the vendor's tool.")
    p.add_argument("--version", action="version", version=f"neuron-bench of nki_mlir {__version__}")
    execute = p.add_subparsers(dest="command", required=True, metavar="COMMAND").add_parser(
        "exec", help="time a NEFF")
    execute.add_argument("-o", "--output-directory", default=".", metavar="DIR",
                         help="write info.json to this directory (.)")
    for flags in (["-w", "--warmup"], ["-n", "--work"], ["--fixed-nc-count"]):
        execute.add_argument(*flags, metavar="N",
                             help="accept the option without an effect: modeled times do not vary")
    execute.add_argument("--enable-only-latency", action="store_true", help="accept the option without an effect")
    execute.add_argument("neff", metavar="NEFF", help="time this compiled kernel")
    options = p.parse_args(command_line(arguments))
    return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Write the latencies; all percentiles are equal."""
    kernel = unpack_kernel(read_compiled(options.neff, "NEFF"), options.neff)
    timing = time_programs(kernel.programs, mode=kernel.mode)
    microseconds = timing.total_ns / 1e3
    latency = {str(p): microseconds for p in PERCENTILES}
    info = {"source": SOURCE, "cores": len(timing.cores), "interval": [ns / 1e3 for ns in timing.interval_ns],
            "nc_latency": latency, "latency": latency, "throughput": 1e6 / microseconds}
    try:
        Path(options.output_directory).mkdir(parents=True, exist_ok=True)
        write_file(Path(options.output_directory) / "info.json", json.dumps(info))
    except OSError as error:
        raise ToolError(what=f"cannot write into {options.output_directory}: {error.strerror}",
                        fix="name another --output-directory") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
