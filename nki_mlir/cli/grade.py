# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-grade ASSIGNMENT.toml SUBMISSION``: grade a submission, without a device and without network."""

import argparse
import json
import math
import sys
from collections.abc import Sequence

from nki_mlir.cli.command import CommandParser, add_common, command_line, exit_status


def parser() -> argparse.ArgumentParser:
    p = CommandParser(prog="nki-grade", description="Grade a submission of an assignment. Times come from a model of "
                      "the machine.")
    p.add_argument("assignment", metavar="ASSIGNMENT.toml",
                   help="read the assignment from this file: reference, parts, points and thresholds")
    p.add_argument("submission", metavar="SUBMISSION",
                   help="grade the kernel of this Python file, or of this directory")
    p.add_argument("--json", action="store_true", help="print the grade as one JSON object")
    p.add_argument("--autograder", metavar="FILE.json",
                   help="also write the results to this file in the form of Gradescope")
    p.add_argument("--at-least", type=float, default=0.0, metavar="POINTS",
                   help="exit with status 1 if the grade is lower (0)")
    add_common(p)
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    p = parser()
    options = p.parse_args(command_line(arguments))
    if not math.isfinite(options.at_least):
        p.error(f"--at-least is a number of points, got {options.at_least}")
    return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Grade the submission and print the result. The status is 1 if it has fewer points than ``--at-least``."""
    from nki_mlir.cli.source import write_output  # start-up: not for --help
    from nki_mlir.grading.assignment import load_assignment, submission_file  # start-up: not for --help
    from nki_mlir.grading.grades import grade
    from nki_mlir.scoring.client import Scorer
    assignment = load_assignment(options.assignment)
    file = submission_file(options.submission, assignment)
    with Scorer() as scorer:
        result = grade(assignment, file, scorer)
    if options.autograder:
        write_output(options.autograder, json.dumps(result.autograder(), indent=1))
    print(json.dumps(result.document()) if options.json else result)
    return int(result.points < options.at_least)


if __name__ == "__main__":
    sys.exit(main())
