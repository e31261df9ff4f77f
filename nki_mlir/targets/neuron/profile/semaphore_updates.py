# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The semaphores of a run: which of them each instruction waits for and updates, and their values over time."""

from typing import Any, NamedTuple

from nki_mlir.dialects.isa.instruction import RangeClear
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.streams import WORK

CLEARED = 0                     # the amount of an update that sets a semaphore to 0


class SemaphoreUpdates(NamedTuple):
    """Columns, by core and time: when a semaphore changes, its number, by how much (``CLEARED``), the value that it
    then has, and the slice of the instruction or transfer that changes it."""

    core: list[int]
    time: list[float]
    semaphore: list[int]
    amount: list[int]
    value: list[int]
    slice: list[int]


def streams_of_run(run: TimedMachine) -> list[dict[str, Any]]:
    """Return for each engine the waits and the updates of its instructions, by position: the numbers of semaphores,
    each with the awaited value or the amount."""
    return [{"core": run.cores.index(agent.core), "engine": agent.stream.engine.value,
             "waits": [[[*wait] for wait in i.waits] for i in agent.stream.instructions],
             "update": [[*i.update] if i.update is not None else None for i in agent.stream.instructions]}
            for agent in run.agents]


def updates_of(run: TimedMachine, slice_of: list[int], transfer_slice: dict[int, int]) -> SemaphoreUpdates:
    """Return the updates of a finished run, by the slices of its events and of its transfers."""
    record, launch = run.record, float(run.machine.costs.control.launch_ns)
    changes: list[tuple[int, float, int, int, int, int]] = []       # core, time, event, semaphore, amount, slice
    cores = [run.cores.index(agent.core) for agent in run.agents]
    for event, (agent, position) in enumerate(zip(record.agent, record.position)):
        stream, core = run.agents[agent].stream, cores[agent]
        instruction = stream.instructions[position]
        if isinstance(instruction.op, RangeClear):
            changes += [(core, record.start[event], event, number, CLEARED, slice_of[event])
                        for number in range(instruction.op.first, instruction.op.last + 1)]
        if (update := instruction.update) is None:
            continue
        number, amount = update
        if event in record.movements:
            moved = transfer_slice[event]
            for time, engines in record.movements[event].signals:
                changes.append((core, time, event, number, engines, moved))
        else:
            time = record.complete[event] if amount > 0 or stream.entries[position][0] == WORK else record.end[event]
            changes.append((core, time, event, number, amount, slice_of[event]))
    rows = list[tuple[int, float, int, int, int, int]]()
    values = [[0] * len(core.program.semaphores) for core in run.cores]
    for core, time, _, number, amount, of_slice in sorted(changes):
        value = values[core][number] = values[core][number] + amount if amount != CLEARED else 0
        rows.append((core, launch + time, number, amount, value, of_slice))
    columns = zip(*rows) if rows else [()] * len(SemaphoreUpdates._fields)
    return SemaphoreUpdates(*map(list, columns))
