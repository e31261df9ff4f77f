# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time instruction streams on a model of the machine, and attribute the time; compute no values."""

from collections.abc import Sequence

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.timing.machine import Loaded, TimedMachine
from nki_mlir.targets.neuron.timing.result import Timing, timing_of

__all__ = ["Timing", "time_programs"]


def time_programs(programs: Sequence[Program], loaded: Loaded | None = None, mode: str = "optimized") -> Timing:
    """Return the time of programs that run together, each on its own core.

    ``loaded``: the numbers that engines load into registers, by core and engine, in order; without them an engine
    does not take a branch on such a number the first time, takes it the second time, and so on. Raise ``Deadlock``
    if engines wait for each other for ever.
    """
    run = TimedMachine(programs, loaded, mode)
    run.run()
    return timing_of(run)
