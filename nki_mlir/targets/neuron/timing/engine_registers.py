# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The registers of the timed machine's engines: results of control instructions, and the branches that are taken."""

from collections.abc import Sequence

import numpy as np

from nki_mlir.dialects.isa.instruction import REGISTERS
from nki_mlir.targets.neuron.timing.stream_columns import (
    ADD,
    ALU,
    AND,
    BRANCH,
    EQ,
    FLOORDIV,
    GE,
    GT,
    LE,
    LOAD,
    LT,
    MAX,
    MIN,
    MOD,
    MULT,
    NE,
    OR,
    SUBTRACT,
    StreamColumns,
)
from nki_mlir.targets.neuron.timing.streams import Stream
from nki_mlir.targets.runtime.compiled_class import int_array, new_array

HALF, ALL_BITS = 1 << 31, (1 << 32) - 1
UNKNOWN = 1 << 40               # the content of a register after a load from memory whose value is unknown
DIVISION = -2                   # returned instead of a position if an instruction divides by 0


class EngineRegisters(StreamColumns):
    """By engine: its ``registers``; the numbers that it loads from memory (``loaded``, from ``next_loaded`` to
    ``loaded_end``; ``knows_loads`` 0: nobody knows them). By instruction: how often an undecided branch was
    ``visited``.
    """

    registers: list[int]
    knows_loads: list[int]
    loaded: list[int]
    next_loaded: list[int]
    loaded_end: list[int]
    visited: list[int]

    def __init__(self, streams: Sequence[Stream], semaphores: Sequence[int], loaded: Sequence[Sequence[int] | None]
                 ) -> None:
        """``loaded``: the numbers that the engine of each stream loads from memory, if they are known."""
        StreamColumns.__init__(self, streams, semaphores)
        self.registers = new_array(len(streams) * REGISTERS)
        self.knows_loads = int_array([numbers is not None for numbers in loaded])
        self.loaded = int_array([number for numbers in loaded for number in numbers or ()])
        ends = np.cumsum([0, *[len(numbers or ()) for numbers in loaded]])
        self.next_loaded, self.loaded_end = int_array(ends[:-1]), int_array(ends[1:])
        self.visited = new_array(len(self.kinds))

    def compute(self, agent: int, at: int) -> int:
        """Execute a control instruction on registers. Return the position after a branch that is taken, ``DIVISION``
        for a division by 0, else -1."""
        control, registers, lhs, rhs = self.controls[at], agent * REGISTERS, self.lhs[at], self.rhs[at]
        if self.lhs_register[at] >= 0:
            lhs = self.registers[registers + self.lhs_register[at]]
        if self.rhs_register[at] >= 0:
            rhs = self.registers[registers + self.rhs_register[at]]
        if control == LOAD:
            lhs = self.load(agent)
        elif control == ALU or control == BRANCH:
            if lhs == UNKNOWN or rhs == UNKNOWN:
                lhs = UNKNOWN
            elif (self.operators[at] == FLOORDIV or self.operators[at] == MOD) and rhs == 0:
                return DIVISION
            else:
                lhs = self.computed(self.operators[at], lhs, rhs)
        if control == BRANCH:
            # an undecided branch is not taken the first time, taken the second time, and so on
            if lhs == UNKNOWN:
                self.visited[at] += 1
                lhs = 1 - self.visited[at] % 2
            return self.targets[at] if lhs != 0 else -1
        self.registers[registers + self.targets[at]] = lhs
        return -1

    def load(self, agent: int) -> int:
        """Return the number that an engine loads from memory, if it is known."""
        k = self.next_loaded[agent]
        if self.knows_loads[agent] == 0 or k == self.loaded_end[agent]:
            return UNKNOWN
        self.next_loaded[agent] = k + 1
        return self.loaded[k]

    def computed(self, operator: int, lhs: int, rhs: int) -> int:
        """Return the result of an operator, in 32 bits."""
        value = 0
        if operator == ADD:
            value = lhs + rhs
        elif operator == SUBTRACT:
            value = lhs - rhs
        elif operator == MULT:
            value = lhs * rhs
        elif operator == MIN:
            value = min(lhs, rhs)
        elif operator == MAX:
            value = max(lhs, rhs)
        elif operator == FLOORDIV or operator == MOD:
            value = self.quotient(lhs, rhs) if rhs > 0 else self.quotient(-lhs, -rhs)
            if operator == MOD:
                value = lhs - value * rhs
        elif operator == AND:
            value = lhs & rhs
        elif operator == OR:
            value = lhs | rhs
        elif (operator == EQ and lhs == rhs) or (operator == NE and lhs != rhs) or (operator == LT and lhs < rhs) or (
                operator == LE and lhs <= rhs) or (operator == GT and lhs > rhs) or (operator == GE and lhs >= rhs):
            value = 1
        return ((value + HALF) & ALL_BITS) - HALF

    def quotient(self, lhs: int, rhs: int) -> int:
        """Return the quotient by a positive number, rounded down."""
        return lhs // rhs if lhs >= 0 else -((rhs - 1 - lhs) // rhs)
