# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order that code is emitted in: of several lists of instructions the fastest that finds addresses.

How much overlap pays depends on what waits for what, and on memory, so that no one way to order is best. Each way says
how long its order takes, but for waits until addresses are free. Of those that are good by that, the timed machine
decides.
"""

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull, allocate
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.codegen.schedule_instructions import Order, Runs, Schedules
from nki_mlir.targets.neuron.codegen.synchronize_engines import synchronized
from nki_mlir.targets.neuron.timing.machine import TimedMachine

ORDERS = tuple(Order(memory, early, ahead) for memory, early, ahead in (
    (95, True, 0.0), (95, True, 1.0), (95, True, 2.0), (85, False, 0.0), (85, False, 1.0), (75, True, 0.0),
    (60, True, 0.0), (60, True, 1.0), (30, True, 0.0)))
GOOD = 1.10                     # an order may be worse than the best by so much to be timed
TIMED = 2, 6                    # orders: at least, at most
TIMED_STEPS = 8_000             # between these as many as have so many steps in all
SMALL = 4_000                   # steps of code whose program order is timed, too; every way to pack it is tried
FULL = "on-chip memory is nearly full: instructions stay in program order"


def fastest(code: Code) -> Program:
    """The program of the fastest order. Raises ``MemoryFull`` where not even program order finds addresses."""
    schedules = Schedules(code)
    written = schedules.as_written()
    programs: list[Program] = []
    tried: set[Runs] = set()
    best = 0.0
    steps = sum(map(len, written))
    most = min(max(TIMED_STEPS // max(steps, 1), TIMED[0]), TIMED[1])
    for runs, ns in sorted((schedules.found(order) for order in ORDERS), key=lambda found: found.ns):
        if programs and (ns > best * GOOD or len(programs) == most):
            break
        if runs not in tried and fits(schedules, runs):
            programs.append(synchronized(code))
            best = best or ns
        tried.add(runs)
    if not programs:
        schedules.arrange(written)
        allocate(code)
        code.notes.append(FULL)
        return synchronized(code)
    if steps < SMALL and written not in tried and fits(schedules, written):
        programs.append(synchronized(code))
    return min(programs, key=end_of) if len(programs) > 1 else programs[0]


def fits(schedules: Schedules, runs: Runs) -> bool:
    """Whether an order finds addresses, which the code then has."""
    schedules.arrange(runs)
    try:
        allocate(schedules.code, thorough=sum(map(len, runs)) < SMALL)
    except MemoryFull:
        return False
    return True


def end_of(program: Program) -> float:
    """When a program ends, for which meetings with other cores take no time."""
    run = TimedMachine([program])
    run.run()
    return run.end
