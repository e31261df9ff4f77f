# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The streams of all cores as columns of numbers, which the run of the engines reads (``engine_run.py``)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_mlir.dialects.access import HBM, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.timing.streams import Detail, Stream
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer
from nki_mlir.targets.runtime.compiled_class import float_array, int_array, new_array
from nki_mlir.waist.overlap import BoxColumns

NONE, ALU, BRANCH, MOVE, CLEAR, LOAD = range(6)         # control
OPERATORS = ("add", "subtract", "mult", "min", "max", "floordiv", "mod", "and", "or", "eq", "ne", "lt", "le", "gt",
             "ge")
ADD, SUBTRACT, MULT, MIN, MAX, FLOORDIV, MOD, AND, OR, EQ, NE, LT, LE, GT, GE = range(len(OPERATORS))


class StreamColumns:
    """The instructions of a launch in columns. The instructions of each engine are adjacent, from ``first`` on.

    An instruction has a kind, times (``busy``, ``result``, ``in_engine``, ``shares``) and ``ports``. It waits for
    ``wait_semaphores`` to reach ``wait_values``, from ``waits_start`` on, and changes a semaphore (``updates``; -1:
    none) by an amount. A transfer has a number, and ``is_shared`` if several cores move it. A control instruction has
    ``controls`` and operands: the number of a register (-1: none) and a value. The tiles on chip that an instruction
    reads and writes are numbers of ``boxes``.

    Semaphores have numbers of the launch, from the first one of each core on.
    """

    engines: int
    first: list[int]
    kinds: list[int]
    busy: list[float]
    result: list[float]
    in_engine: list[float]
    ports: list[int]
    shares: list[float]
    waits_start: list[int]
    wait_semaphores: list[int]
    wait_values: list[int]
    updates: list[int]
    amounts: list[int]
    transfers: list[int]
    is_shared: list[int]
    controls: list[int]
    operators: list[int]
    targets: list[int]
    lhs_register: list[int]
    lhs: list[int]
    rhs_register: list[int]
    rhs: list[int]
    reads_start: list[int]
    reads: list[int]
    writes_start: list[int]
    writes: list[int]
    boxes: BoxColumns

    def __init__(self, streams: Sequence[Stream], semaphores: Sequence[int]) -> None:
        """``semaphores``: the first semaphore of each stream's core."""
        self.engines = len(streams)
        self.note_instructions(streams, semaphores)
        self.note_tiles(streams)
        self.note_details(streams, semaphores)

    def note_instructions(self, streams: Sequence[Stream], semaphores: Sequence[int]) -> None:
        entries = [entry for stream in streams for entry in stream.entries]
        instructions = [instruction for stream in streams for instruction in stream.instructions]
        lengths = [len(stream.entries) for stream in streams]
        self.first = int_array(np.cumsum([0, *lengths]))
        numbers: dict[Any, int] = {}
        at: Any = int_array([numbers.setdefault(entry, len(numbers)) for entry in entries])
        kinds, busy, result, in_engine, ports = zip(*numbers) if numbers else [()] * 5
        self.kinds, self.ports = int_array(kinds)[at], int_array(ports)[at]
        self.busy, self.result, self.in_engine = (float_array(ns)[at] for ns in (busy, result, in_engine))
        self.shares = float_array([share for stream in streams
                                   for share in stream.shares or [0.0] * len(stream.entries)])
        offsets = np.repeat(int_array(semaphores), lengths)
        waits = [wait for instruction in instructions for wait in instruction.waits]
        counts = [len(instruction.waits) for instruction in instructions]
        self.waits_start = int_array(np.cumsum([0, *counts]))
        self.wait_semaphores = int_array([w[0] for w in waits]) + np.repeat(offsets, counts)
        self.wait_values = int_array([w[1] for w in waits])
        updates = [instruction.update or (-1, 0) for instruction in instructions]
        changed: Any = int_array([update[0] for update in updates])
        self.updates = int_array(np.where(changed < 0, -1, changed + offsets))
        self.amounts = int_array([u[1] for u in updates])

    def note_tiles(self, streams: Sequence[Stream]) -> None:
        """Store the tiles on chip of instructions of engines that wait for their own results."""
        numbers: dict[Tile, int] = {}
        reads_start, writes_start, reads, writes = [0], [0], list[int](), list[int]()
        for stream in streams:
            for instruction in stream.instructions:
                op = instruction.op
                if stream.waits_for_itself and instruction.queue is None and isinstance(op, Op):
                    values = op.__dict__
                    for tile in type(op).tiles_read(values):
                        if tile is not None and tile.space != HBM:
                            reads.append(numbers.setdefault(tile, len(numbers)))
                    for tile in type(op).tiles_written(values):
                        if tile is not None and tile.space != HBM:
                            writes.append(numbers.setdefault(tile, len(numbers)))
                reads_start.append(len(reads))
                writes_start.append(len(writes))
        self.reads_start, self.writes_start = int_array(reads_start), int_array(writes_start)
        self.reads, self.writes = int_array(reads), int_array(writes)
        self.boxes = BoxColumns([(tile.space, tile.bounds) for tile in numbers])

    def note_details(self, streams: Sequence[Stream], semaphores: Sequence[int]) -> None:
        """Store transfers, which get numbers in ``timed_transfers``, and control instructions."""
        numbers: dict[TimedTransfer, int] = {}
        count = int(self.first[-1])
        self.transfers, self.is_shared = new_array(count, -1), new_array(count)
        self.controls, self.operators, self.targets = new_array(count), new_array(count), new_array(count)
        self.lhs_register, self.lhs = new_array(count, -1), new_array(count)
        self.rhs_register, self.rhs = new_array(count, -1), new_array(count)
        for stream, first, semaphore in zip(streams, self.first, semaphores):
            for position, detail in stream.details.items():
                if isinstance(detail, TimedTransfer):
                    self.transfers[first + position] = numbers.setdefault(detail, len(numbers))
                else:
                    self.note_control(first + position, first, semaphore, detail)
            for position in stream.meetings:
                self.is_shared[first + position] = 1
        self.timed_transfers = list(numbers)

    def note_control(self, at: int, first: int, semaphore: int, op: Detail) -> None:
        match op:
            case isa.Move(dst=dst, value=value):
                self.controls[at], self.targets[at] = MOVE, dst.number
                self.lhs_register[at], self.lhs[at] = operand(value)
            case isa.RegisterAlu(op=name, dst=dst, lhs=lhs, rhs=rhs):
                self.controls[at], self.targets[at], self.operators[at] = ALU, dst.number, OPERATORS.index(name)
                (self.lhs_register[at], self.lhs[at]), (self.rhs_register[at], self.rhs[at]) = map(operand, (lhs, rhs))
            case isa.CompareBranch(op=name, lhs=lhs, rhs=rhs, target=target):
                self.controls[at], self.targets[at], self.operators[at] = BRANCH, first + target, OPERATORS.index(name)
                (self.lhs_register[at], self.lhs[at]), (self.rhs_register[at], self.rhs[at]) = map(operand, (lhs, rhs))
            case isa.RangeClear(first=lowest, last=highest):
                self.controls[at], self.lhs[at], self.rhs[at] = CLEAR, semaphore + lowest, semaphore + highest
            case isa.TensorLoad(dst=dst):
                self.controls[at], self.targets[at] = LOAD, dst.number


def operand(scalar: isa.Scalar) -> tuple[int, int]:
    """Return an operand as the number of a register (-1: none) and a value."""
    return (scalar.number, 0) if isinstance(scalar, isa.Register) else (-1, int(scalar))
