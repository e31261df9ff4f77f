# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time: how long instruction streams take on a machine, and where it goes, without computing values."""

from collections.abc import Sequence

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.timing.machine import Loaded, TimedMachine
from nki_mlir.targets.neuron.timing.result import Timing, timing_of

__all__ = ["Timing", "time_programs"]


def time_programs(programs: Sequence[Program], loaded: Loaded | None = None, mode: str = "optimized") -> Timing:
    """The time of programs that run together, each on its own core.

    ``loaded``: the numbers that engines load into registers, by core and engine, in order; without them a branch on
    such a number is not taken and taken in turn. Raises ``Deadlock`` where engines wait for each other for ever.
    """
    run = TimedMachine(programs, loaded, mode)
    run.run()
    return timing_of(run)
