# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""In which iteration of which device loops each instruction of a run was executed.

A loop of a stream is what a backward branch repeats. Its variable is the register that the branch compares, if the loop
itself advances it.
"""

from typing import NamedTuple

from nki_mlir.dialects.isa.instruction import REGISTERS, CompareBranch, Control, Instruction, Register, RegisterAlu
from nki_mlir.targets.neuron.control import control_step
from nki_mlir.targets.neuron.timing.machine import TimedMachine, computed_if_known


class StreamIterations(NamedTuple):
    """Columns: the value of the loop's variable in an iteration (None: not known), and the iteration of the loop
    around it (-1: none)."""

    value: list[int | None]
    parent: list[int]


class StreamLoop(NamedTuple):
    """The positions of the first and the last instruction of a loop, and the number of its variable's register, or
    None."""

    first: int
    last: int
    register: int | None


def loops_of_stream(instructions: list[Instruction]) -> list[StreamLoop]:
    """Return the loops, outer ones before inner ones."""
    loops = []
    for last, instruction in enumerate(instructions):
        op = instruction.op
        if isinstance(op, CompareBranch) and op.target <= last:
            body = [i.op for i in instructions[op.target:last]]
            advanced = any(isinstance(step, RegisterAlu) and step.dst == step.lhs == op.lhs for step in body)
            loops.append(StreamLoop(int(op.target), last, op.lhs.number if advanced and isinstance(op.lhs, Register)
                                    else None))
    return sorted(loops, key=lambda loop: (loop.first, -loop.last))


def iterations_of(run: TimedMachine) -> tuple[StreamIterations, list[int]]:
    """Return the iterations of a finished run, and for each event the innermost one, -1 outside of loops."""
    iterations = StreamIterations([], [])
    innermost = [-1] * len(run.record)
    loops = [loops_of_stream(agent.stream.instructions) for agent in run.agents]
    if any(loops):
        followers = [_Follower(agent.stream.instructions, of_stream, iterations)
                     for agent, of_stream in zip(run.agents, loops)]
        for event, (agent, position) in enumerate(zip(run.record.agent, run.record.position)):
            innermost[event] = followers[agent].step(position)
    return iterations, innermost


class _Follower:
    """Follow an engine through its stream, with the values of its registers and the iterations that it is in."""

    def __init__(self, instructions: list[Instruction], loops: list[StreamLoop], iterations: StreamIterations) -> None:
        self.instructions, self.loops, self.iterations = instructions, loops, iterations
        self.registers: list[int | None] = [0] * REGISTERS
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
                self.iterations.value.append(value)
                self.iterations.parent.append(self.open[-1][1] if self.open else -1)
                self.open.append((loop, len(self.iterations.value) - 1))
        self.previous, op = position, self.instructions[position].op
        if isinstance(op, Control):
            control_step(op, self.registers, computed_if_known, lambda _: None, lambda _: False, lambda *_: None)
        return self.open[-1][1] if self.open else -1
