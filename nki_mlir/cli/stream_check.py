# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What commands do with streams from files before they run or assemble them: prove that they are sound."""

import sys
from collections.abc import Sequence

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets import neuron


def require_sound(programs: Sequence[Program]) -> None:
    """Raises the last error that the checker of streams finds, behind the others on standard error; what it could not
    look at is a note there."""
    report = neuron.checked(programs)
    for violation in report.violations[:-1]:
        print(violation, file=sys.stderr)
    if report.violations:
        raise report.violations[-1]
    for reason in report.not_analysed:
        print(f"note: the streams are not proved to be sound: {reason}", file=sys.stderr)
