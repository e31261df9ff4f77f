# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The streams of a core as columns of numbers, which the machine without a record reads (``unrecorded_run.py``)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_mlir.dialects.access import HBM, PSUM, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.machine import Machine
from nki_mlir.targets.neuron.timing.streams import Detail, Stream
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer
from nki_mlir.targets.runtime.compiled_class import float_array, int_array, new_array

NONE, ALU, BRANCH, MOVE, CLEAR = range(5)               # control
OPERATORS = ("add", "subtract", "mult", "min", "max", "floordiv", "mod", "and", "or", "eq", "ne", "lt", "le", "gt",
             "ge")
ADD, SUBTRACT, MULT, MIN, MAX, FLOORDIV, MOD, AND, OR, EQ, NE, LT, LE, GT, GE = range(len(OPERATORS))


class StreamColumns:
    """By instruction, those of an engine one after the other from ``first`` on: its kind, its times (``busy``,
    ``result``, ``in_engine``, ``shares``), its ``ports``; what it waits for (``wait_semaphores`` and ``wait_values``
    from ``waits_start`` on) and the semaphore that it changes (``updates``; -1: none) by an amount; the number of its
    transfer, or its ``controls`` with its operands, each the number of a register (-1: none) and a value; the tiles on
    chip that it reads and writes. By tile: its space, partitions and bytes. By transfer: ``parts``, ns of each DMA
    engine; ``hbm``, ns of HBM; ``under_way``.
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
    space: list[int]
    partition: list[int]
    partition_end: list[int]
    byte: list[int]
    byte_end: list[int]
    dma_engines: int
    parts: list[float]
    hbm: list[float]
    under_way: list[float]

    def __init__(self, streams: Sequence[Stream], machine: Machine) -> None:
        self.engines, self.dma_engines = len(streams), machine.dma_engines
        self.note_instructions(streams)
        self.note_tiles(streams)
        self.note_transfers(streams, machine)

    def note_instructions(self, streams: Sequence[Stream]) -> None:
        entries = [entry for stream in streams for entry in stream.entries]
        instructions = [instruction for stream in streams for instruction in stream.instructions]
        self.first = int_array(np.cumsum([0, *[len(stream.entries) for stream in streams]]))
        numbers: dict[Any, int] = {}
        at: Any = int_array([numbers.setdefault(entry, len(numbers)) for entry in entries])
        kinds, busy, result, in_engine, ports = zip(*numbers)
        self.kinds, self.ports = int_array(kinds)[at], int_array(ports)[at]
        self.busy, self.result, self.in_engine = (float_array(ns)[at] for ns in (busy, result, in_engine))
        self.shares = float_array([share for stream in streams
                                   for share in stream.shares or [0.0] * len(stream.entries)])
        waits = [wait for instruction in instructions for wait in instruction.waits]
        self.waits_start = int_array(np.cumsum([0, *[len(instruction.waits) for instruction in instructions]]))
        self.wait_semaphores, self.wait_values = int_array([w[0] for w in waits]), int_array([w[1] for w in waits])
        updates = [instruction.update or (-1, 0) for instruction in instructions]
        self.updates, self.amounts = int_array([update[0] for update in updates]), int_array([u[1] for u in updates])

    def note_tiles(self, streams: Sequence[Stream]) -> None:
        """Note the tiles on chip of instructions that an engine executes which waits for its own results."""
        numbers: dict[Tile, int] = {}
        starts: tuple[list[int], list[int]] = [0], [0]
        tiles: tuple[list[int], list[int]] = [], []
        for stream in streams:
            for instruction in stream.instructions:
                if stream.waits_for_itself and instruction.queue is None:
                    operands = instruction.op.__dict__
                    for names, side in zip((instruction.op.inputs, instruction.op.outputs), tiles):
                        for name in names:
                            tile = operands[name]
                            if tile is not None and tile.space != HBM:
                                side.append(numbers.setdefault(tile, len(numbers)))
                for side, start in zip(tiles, starts):
                    start.append(len(side))
        self.reads_start, self.writes_start = map(int_array, starts)
        self.reads, self.writes = map(int_array, tiles)
        self.space = int_array([tile.space == PSUM for tile in numbers])
        bounds = int_array([tile.bounds for tile in numbers]).reshape(-1, 4)
        self.partition, self.partition_end, self.byte, self.byte_end = (column.copy() for column in bounds.T)

    def note_transfers(self, streams: Sequence[Stream], machine: Machine) -> None:
        numbers: dict[TimedTransfer, int] = {}
        count = int(self.first[-1])
        self.transfers = new_array(count, -1)
        self.controls, self.operators, self.targets = new_array(count), new_array(count), new_array(count)
        self.lhs_register, self.lhs = new_array(count, -1), new_array(count)
        self.rhs_register, self.rhs = new_array(count, -1), new_array(count)
        for stream, first in zip(streams, self.first):
            for position, detail in stream.details.items():
                if isinstance(detail, TimedTransfer):
                    self.transfers[first + position] = numbers.setdefault(detail, len(numbers))
                else:
                    self.note_control(first + position, first, detail)
        rate = machine.hbm_bytes_per_ns(1)
        self.parts = float_array([transfer.parts for transfer in numbers]).reshape(-1)
        self.hbm = float_array([transfer.hbm_bytes / rate for transfer in numbers])
        self.under_way = float_array([transfer.under_way for transfer in numbers])

    def note_control(self, at: int, first: int, op: Detail) -> None:
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
                self.controls[at], self.lhs[at], self.rhs[at] = CLEAR, lowest, highest


def operand(scalar: isa.Scalar) -> tuple[int, int]:
    """Return an operand as the number of a register (-1: none) and a value."""
    return (scalar.number, 0) if isinstance(scalar, isa.Register) else (-1, int(scalar))


def is_plain(streams: Sequence[Stream], machine: Machine) -> bool:
    """Return whether the streams load no numbers, and one engine at most has a ramp."""
    return sum(machine.costs.engines[stream.engine].ramp is not None for stream in streams) <= 1 and all(
        isinstance(detail, TimedTransfer | isa.Move | isa.RegisterAlu | isa.CompareBranch | isa.RangeClear)
        for stream in streams for detail in stream.details.values())
