# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-calibrate``: print kernels to measure on a device, and fit the machine's numbers on the measured times.

It prints the kernels, reads the CSV that they print on a device, fits the laws and reports where the fitted numbers
differ from the machine's.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nki_mlir.cli.command import CommandParser, add_common, command_line, exit_status

if TYPE_CHECKING:
    from nki_mlir.calibration.fit import Fit

GENERATIONS = ("beta", "current")


def parser() -> argparse.ArgumentParser:
    p = CommandParser(prog="nki-calibrate", description="Fit the machine's numbers on what a device "
                                "measured: print small kernels, run them on the device, pass the CSV that they print.")
    source = p.add_mutually_exclusive_group(required=True)
    source.add_argument("csv", nargs="?", metavar="FILE.csv",
                        help="read the measurements of a device from this file; - is standard input")
    source.add_argument("--kernels", choices=GENERATIONS, help="print a program with the kernels, to run on the device")
    source.add_argument("--predict", choices=GENERATIONS, help="print the CSV that the model predicts for the kernels")
    p.add_argument("--target", default="trn2", help="fit the numbers of trn1, trn2 (default) or trn3")
    p.add_argument("--json", action="store_true", help="print the fitted numbers as one JSON object")
    add_common(p)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    p = parser()
    options = p.parse_args(command_line(arguments))
    if options.json and options.csv is None:
        p.error("--json prints a fit: give FILE.csv")
    return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Print the kernels, a prediction or a fit, as the options select."""
    from nki_mlir.calibration.fit import fit  # start-up: not for --help
    from nki_mlir.calibration.measurements import csv_lines, read_measurements, source_of
    from nki_mlir.machine import machine_named
    machine = machine_named(options.target)
    if options.kernels is not None:
        sys.stdout.write(source_of(options.kernels).read_text(encoding="utf-8"))
    elif options.predict is not None:
        from nki_mlir.calibration.prediction import predicted  # start-up: loads MLIR
        print("\n".join(csv_lines(predicted(options.predict, options.target))))
    else:
        from nki_mlir.cli.source import display_name, read_bytes  # start-up: imported on first use
        name = display_name(options.csv)
        text = read_bytes(options.csv).decode("utf-8-sig", errors="replace")       # a spreadsheet writes a mark
        result = fit(read_measurements(text.splitlines(), name), machine, name)
        print(json.dumps(figures(result, options.target), indent=1) if options.json else
              "\n".join(report(result, options.target)))
    return 0


def figures(result: "Fit", target: str) -> dict[str, object]:
    """Return the JSON form of a fit."""
    constants = [constant._asdict() | {"differs": constant.differs, "determined": constant.determined}
                 for constant in result.constants]
    return {"version": 1, "target": target, "constants": constants, "residuals": result.residuals,
            "issuers": result.issuers}


def report(result: "Fit", target: str) -> list[str]:
    """Return a line for each number: the machine's, the fitted one with its standard error, and their difference."""
    lines = [f"{'':34} {'unit':9} {target:>9} {'fitted':>20}  difference"]
    for constant in result.constants:
        change = f"{constant.fitted / constant.ours - 1:+.1%}" if constant.ours else f"{constant.fitted:+.3g}"
        note = ("" if constant.differs else "  (within the error)") + (
            "" if constant.determined else "  not determined: the noise hides it")
        lines.append(f"{constant.name:34} {constant.unit:9} {constant.ours:9.3f} {constant.fitted:10.3f} +- "
                     f"{constant.error:6.3f}  {change}{note}")
    if result.issuers > 1:
        lines.append(f"transfers_beside shows that {result.issuers} engines triggered transfers in turn: a trigger "
                     f"takes {result.issuers} times the measured time between two transfers")
    lines.append("residuals: " + ", ".join(f"{kernel} {residual:.1%}" for kernel, residual in result.residuals.items()))
    return lines


if __name__ == "__main__":
    sys.exit(main())
