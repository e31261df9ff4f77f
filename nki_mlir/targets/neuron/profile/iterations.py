# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds for each instruction of a run the loops around it, and their iterations.

A loop of a stream is the code that a backward branch repeats. Its variable is the register that the branch compares, if
the loop itself advances it. Instructions of unrolled loops know their iterations; in a loop of the device these are
relative to its variable.
"""

from typing import NamedTuple

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.targets.neuron.control import control_step
from nki_mlir.targets.neuron.timing.machine import TimedMachine, computed_if_known


class StreamIterations(NamedTuple):
    """Columns: the value of the loop's variable in an iteration (None: not known), the iteration of the loop around it
    (-1: none), and the loop, an index into ``loops``."""

    value: list[int | None]
    parent: list[int]
    loop: list[int]
    loops: list["SourceLoopHead"]

    def add(self, value: int | None, parent: int, head: "SourceLoopHead") -> int:
        """Append an iteration; return its number."""
        if head not in self.loops:
            self.loops.append(head)
        self.value.append(value)
        self.parent.append(parent)
        self.loop.append(self.loops.index(head))
        return len(self.value) - 1


class SourceLoopHead(NamedTuple):
    """Where a loop of the kernel begins, if that is known, and the name of a variable that no source line defines."""

    location: Location | None
    name: str = ""


class StreamLoop(NamedTuple):
    """The positions of the first and the last instruction of a loop, the number of its variable's register, or None,
    and where it begins in the source, if that is known."""

    first: int
    last: int
    register: int | None
    location: Location | None = None


def loops_of_stream(instructions: list[isa.Instruction]) -> list[StreamLoop]:
    """Return the loops, outer ones before inner ones."""
    loops = []
    for last, instruction in enumerate(instructions):
        op = instruction.op
        if isinstance(op, isa.CompareBranch) and op.target <= last:
            body = [i.op for i in instructions[op.target:last]]
            advanced = any(isinstance(step, isa.RegisterAlu) and step.dst == step.lhs == op.lhs for step in body)
            loops.append(StreamLoop(int(op.target), last, op.lhs.number if advanced and isinstance(op.lhs, isa.Register)
                                    else None, instruction.location))
    return sorted(loops, key=lambda loop: (loop.first, -loop.last))


def iterations_of(run: TimedMachine) -> tuple[StreamIterations, list[int]]:
    """Return the iterations of a finished run, and for each event the innermost one, -1 outside of loops."""
    iterations = StreamIterations([], [], [], [])
    innermost = [-1] * len(run.record)
    loops = [loops_of_stream(agent.stream.instructions) for agent in run.agents]
    if any(loops):
        followers = [_Follower(agent.stream.instructions, of_stream, iterations)
                     for agent, of_stream in zip(run.agents, loops)]
        for event, (agent, position) in enumerate(zip(run.record.agent, run.record.position)):
            innermost[event] = followers[agent].step(position)
    unrolled = _Unrolled(iterations)
    streams = [[instruction.iteration for instruction in agent.stream.instructions] for agent in run.agents]
    for event, (agent, position) in enumerate(zip(run.record.agent, run.record.position)):
        iteration = streams[agent][position]
        if iteration is not None:
            innermost[event] = unrolled.number(iteration, innermost[event])
    return iterations, innermost


class _Unrolled:
    """The iterations of the kernel's loops, by those of the device's loops that unrolled code is in."""

    def __init__(self, iterations: StreamIterations) -> None:
        self.iterations = iterations
        self.numbers: dict[tuple[isa.SourceIteration, int], int] = {}
        self.of_values: dict[tuple[SourceLoopHead, int | None, int], int] = {}

    def number(self, iteration: isa.SourceIteration, of_device: int) -> int:
        """Return the number of an iteration; ``of_device``: that of the device's innermost loop, or -1."""
        number = self.numbers.get((iteration, of_device))
        if number is None:
            parent = self.number(iteration.parent, of_device) if iteration.parent is not None else -1
            head = SourceLoopHead(iteration.location, "" if iteration.location else iteration.name)
            value = self.value(iteration, of_device) if iteration.in_loop else iteration.value
            number = self.of_values.get((head, value, parent), -1)
            if number < 0:
                number = self.of_values[head, value, parent] = self.iterations.add(value, parent, head)
            self.numbers[iteration, of_device] = number
        return number

    def value(self, iteration: isa.SourceIteration, of_device: int) -> int | None:
        """Return the value of the variable of a loop that stays one of the device; None if it is not known."""
        while of_device >= 0:
            if self.iterations.loops[self.iterations.loop[of_device]].location == iteration.location:
                base = self.iterations.value[of_device]
                return base + iteration.value if base is not None else None
            of_device = self.iterations.parent[of_device]
        return None


class _Follower:
    """Follow an engine through its stream, with the values of its registers and the iterations that it is in."""

    def __init__(self, instructions: list[isa.Instruction], loops: list[StreamLoop], iterations: StreamIterations
                 ) -> None:
        self.instructions, self.loops, self.iterations = instructions, loops, iterations
        self.registers: list[int | None] = [0] * isa.REGISTERS
        self.open: list[tuple[StreamLoop, int]] = []            # loops, and their iterations, outer ones first
        self.previous = -1

    def stays(self, loop: StreamLoop, position: int) -> bool:
        """Return whether the engine stays in the iteration of a loop if it goes on at a position."""
        return loop.first <= position <= loop.last and (position, self.previous) != (loop.first, loop.last)

    def step(self, position: int) -> int:
        """Execute the instruction at a position, which is the next one. Return the innermost iteration, or -1."""
        while self.open and not self.stays(self.open[-1][0], position):
            self.open.pop()
        open_loops = [loop for loop, _ in self.open]
        for loop in self.loops:
            if loop.first == position and loop not in open_loops:
                value = self.registers[loop.register] if loop.register is not None else None
                number = self.iterations.add(value, self.open[-1][1] if self.open else -1,
                                             SourceLoopHead(loop.location))
                self.open.append((loop, number))
        self.previous, op = position, self.instructions[position].op
        if isinstance(op, isa.Control):
            control_step(op, self.registers, computed_if_known, lambda _: None, lambda _: False, lambda *_: None)
        return self.open[-1][1] if self.open else -1
