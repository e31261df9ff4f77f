# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time instruction streams on a model of the machine, and attribute the time; compute no values."""

from collections.abc import Sequence

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.result import Timing, timing_of

__all__ = ["Timing", "time_programs"]


def time_programs(programs: Sequence[Program], mode: str = "optimized") -> Timing:
    """Return the time of programs that run together, each on a separate core. Raise ``Deadlock`` if engines wait for
    each other for ever.

    An engine does not take a branch on a number from memory the first time, takes it the second time, and so on.
    """
    run = TimedMachine(programs, None, mode)
    run.run()
    return timing_of(run)
