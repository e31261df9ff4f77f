# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks streams from files before commands run or assemble them."""

import sys
from collections.abc import Sequence

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.order import order_text


def require_sound(programs: Sequence[Program], witness: str | None = None) -> None:
    """Check streams. Print their violations on standard error and raise the last one; print notes about streams that
    the checker could not analyze.

    ``witness`` is a file for an order in which the first unordered accesses go wrong.
    """
    report = neuron.checked(programs)
    for violation in report.violations[:-1]:
        print(violation, file=sys.stderr)
    if report.witness and witness is None:
        print("note: --witness=FILE writes an order of the streams that leads to a wrong value; --order=FILE "
              "replays it", file=sys.stderr)
    elif report.witness and witness is not None:
        from nki_mlir.cli.source import write_output  # start-up: imported on first use
        write_output(witness, "".join(f"// {line}\n" for line in str(report.witnessed).split("\n"))
                     + order_text(report.witness, len(programs)))
    elif witness is not None:
        print("note: no witness is written: waits order all accesses of the streams", file=sys.stderr)
    if report.violations:
        raise report.violations[-1]
    for reason in report.not_analyzed:
        print(f"note: the streams are not proved to be sound: {reason}", file=sys.stderr)
