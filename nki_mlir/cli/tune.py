# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-tune``: search the constants, grids and options of a kernel's file for the fastest correct choice."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from nki_mlir.cli.command import CommandParser, add_common, command_line, exit_status
from nki_mlir.cli.score import add_judging, failed_file, refuse_judging, settings_of, workers_of

if TYPE_CHECKING:
    from nki_mlir.tuning.search import TuningResult


def parser() -> argparse.ArgumentParser:
    p = CommandParser(prog="nki-tune", description="Search constants, grids and options of a kernel for the fastest "
                      "correct choice. Times come from a model of the machine.")
    p.add_argument("kernel_file", metavar="KERNEL.py", help="tune the kernel of this Python file")
    p.add_argument("-r", "--reference", required=True, metavar="REF.py",
                   help="read inputs, reference and tolerance from this file, as nki-score does")
    p.add_argument("--space", action="append", required=True, metavar="NAME=VALUES",
                   help="search a constant of the module or a default of a function over these values: 128,256 or "
                        "1..8; grid is the launch grid, O the level of nki-run -O; may be repeated")
    p.add_argument("--trials", type=int, default=64, metavar="N", help="try at most this many choices (64)")
    p.add_argument("--seed", type=int, default=0, metavar="N", help="set the seed of the search (0)")
    p.add_argument("-o", "--output", metavar="FILE.py", help="write the kernel with the best choice")
    p.add_argument("--json", action="store_true", help="print the best and all attempts as one JSON object")
    p.add_argument("--kernel", metavar="NAME", help="tune the kernel of this name (default: ENTRY of the reference)")
    add_judging(p)
    add_common(p)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    p = parser()
    options = p.parse_args(command_line(arguments))
    refuse_judging(p, options)
    if options.trials < 1:
        p.error(f"--trials must be at least 1, got {options.trials}")
    return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Search, and print the best choice."""
    from nki_mlir.cli.source import write_output  # start-up: not for --help
    from nki_mlir.scoring.live_table import LiveTable
    from nki_mlir.scoring.page import write_page
    from nki_mlir.scoring.store import Store
    from nki_mlir.tuning.files import tune_file
    from nki_mlir.tuning.source import read_kernel, with_parameters
    from nki_mlir.tuning.space import space_from_texts
    space = space_from_texts(options.space)
    store = Store(options.store) if options.store else None
    settings = {**settings_of(options), "profile": bool(options.page)}
    try:
        with workers_of(options) as workers, LiveTable() as table:
            result = tune_file(options.kernel_file, space, settings, workers, options.trials, options.seed, store,
                               table)
        if options.page and store is not None:
            write_page(store, options.page)
        if options.output:
            text = read_kernel(options.kernel_file)
            write_output(options.output, with_parameters(text, result.best, options.kernel_file))
    except OSError as error:
        if error.filename is None:
            raise
        raise failed_file(error.filename, error.strerror) from None
    print(json.dumps(document(result)) if options.json else result)
    print(table.summary(), file=sys.stderr)
    return 0


def document(result: "TuningResult") -> dict[str, object]:
    """Return the JSON form. A wrong kernel has no time."""
    unknown = math.inf, (math.inf, math.inf)
    attempts = [{name: None if value in unknown else value for name, value in asdict(a).items()}
                for a in result.attempts]
    return {"version": 1, "source": "model", "best": result.best, "seconds": result.seconds,
            "interval": result.fastest.interval, "speedup": result.speedup, "attempts": attempts}


if __name__ == "__main__":
    sys.exit(main())
