# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order that code is emitted in: of several lists of instructions the fastest that finds addresses.

How much overlap pays depends on what waits for what, and on memory, so that no one way to order is best. Each way says
how long its order takes, but for waits until addresses are free. Of those that are good by that, the timed machine
decides.
"""

from math import inf

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull, allocate
from nki_mlir.targets.neuron.codegen.schedule_instructions import Order, Runs, Schedules
from nki_mlir.targets.neuron.codegen.synchronize_engines import synchronized
from nki_mlir.targets.neuron.timing.machine import EventLimit, TimedMachine

ORDERS = tuple(Order(memory, early, ahead) for memory, early, ahead in (
    (95, True, 0), (95, True, 100), (95, True, 200), (85, False, 0), (85, False, 100), (75, True, 0), (60, True, 0),
    (60, True, 100), (30, True, 0)))
GOOD = 1.10                     # an order may be worse than the best by so much to be timed
TIMED = 2, 6                    # orders: at least, at most; between these as many as have TIMED_STEPS in all
TIMED_STEPS, HUGE = 8_000, 30_000       # of more steps the first order that fits is taken
SMALL = 4_000                   # steps of code whose program order is timed, too; every way to pack it is tried
EXECUTED = 500_000              # instructions of a program that is timed to choose its order
FULL = "on-chip memory is nearly full: instructions stay in program order"


def fastest(schedules: Schedules) -> tuple[Runs, Program]:
    """The fastest order, and its program. Raises ``MemoryFull`` where not even program order finds addresses."""
    code, written = schedules.code, schedules.as_written()
    programs: list[tuple[Runs, Program]] = []
    tried: set[Runs] = set()
    best = 0.0
    steps = sum(map(len, written))
    most = 1 if steps > HUGE else min(max(TIMED_STEPS // max(steps, 1), TIMED[0]), TIMED[1])
    for runs, ns in sorted((schedules.found(order) for order in ORDERS), key=lambda found: found.ns):
        if programs and (ns > best * GOOD or len(programs) == most):
            break
        if runs not in tried and fits(schedules, runs, steps < SMALL):
            programs.append((runs, synchronized(code)))
            best = best or ns
        tried.add(runs)
    if not programs:
        schedules.arrange(written)
        allocate(code)
        code.notes.append(FULL)
        return written, synchronized(code)
    if steps < SMALL and written not in tried and fits(schedules, written, thorough=True):
        programs.append((written, synchronized(code)))
    return min(programs, key=lambda one: end_of(one[1])) if len(programs) > 1 else programs[0]


def fits(schedules: Schedules, runs: Runs, thorough: bool) -> bool:
    """Whether an order finds addresses, which the code then has; ``thorough``: in any way to pack it."""
    schedules.arrange(runs)
    try:
        allocate(schedules.code, thorough=thorough)
    except MemoryFull:
        return False
    return True


def end_of(program: Program) -> float:
    """When a program ends, for which meetings with other cores take no time. Of one that runs for very long this is not
    known."""
    run = TimedMachine([program], limit=EXECUTED)
    try:
        run.run()
    except EventLimit:
        return inf
    return run.end
