# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prove from a program alone that its waits order all conflicting accesses; it uses no part of the emitter.

It handles straight-line programs of 4-byte elements. These happen in order: an engine's instructions; an instruction
and the transfers that it triggers; a queue's reports, each after its transfer; the update with which a semaphore
reaches a value, and the instruction that waits for it.
"""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np

from nki_mlir.dialects.access import HBM, Access
from nki_mlir.dialects.isa.instruction import CompareBranch, RangeClear
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.op import Op

Bytes = dict                        # memory -> places touched, as a boolean array


def places(tile) -> tuple:
    """(memory, flat element places) of a tile."""
    return (tile.handle if tile.space == HBM else tile.space), flat_places(tile.access, tile.on_chip)


@cache
def flat_places(access: Access, on_chip: bool) -> np.ndarray:
    row = (1 << 20) if on_chip else 0
    start = access.free.const + (access.partition.const * row if on_chip else 0)
    flat = np.array([start])
    for k, (step, count) in enumerate(access.dims):
        step = step * row if on_chip and k == 0 else step
        flat = (flat[:, None] + np.arange(count) * step).reshape(-1)
    return np.unique_counts(flat).values


class Ordering:
    """The happens-before relation of a program, as sets of predecessors in the bits of integers."""

    def __init__(self, program: Program) -> None:
        self.accesses: list[tuple] = []         # (number, memory, places, writes, name)
        self.before: list[int] = []
        pending = {e: list(s) for e, s in program.streams.items() if s}
        last: dict = {}
        reports: dict = {}
        updates: dict[int, list[tuple[int, int]]] = {}      # semaphore -> (value reached, event)
        while any(pending.values()):
            progress = False
            for engine, stream in pending.items():
                while stream:
                    instruction = stream[0]
                    assert not isinstance(instruction.op, (RangeClear, CompareBranch)), "straight-line code only"
                    awaited = [self.reaching(updates, w) for w in instruction.waits]
                    if None in awaited:
                        break
                    stream.pop(0)
                    progress = True
                    event = self.event(*awaited, *([last[engine]] if engine in last else []))
                    last[engine] = event
                    name = f"{engine.asm} {instruction.op.mnemonic} {instruction.location}"
                    if instruction.queue is not None:
                        moved = self.event(event)
                        self.touch(moved, instruction.op, name)
                        queue = instruction.queue
                        event = reports[queue] = self.event(moved, *([reports[queue]] if queue in reports else []))
                    elif isinstance(instruction.op, Op):
                        self.touch(event, instruction.op, name)
                    if (update := instruction.update) is not None:
                        totals = updates.setdefault(update.semaphore, [])
                        totals.append(((totals[-1][0] if totals else 0) + update.amount, event))
            assert progress, "deadlock"

    @staticmethod
    def reaching(updates, wait):
        return next((event for value, event in updates.get(wait.semaphore, ()) if value >= wait.value), None)

    def event(self, *before: int) -> int:
        self.before.append(0)
        for other in before:
            self.before[-1] |= self.before[other] | 1 << other
        return len(self.before) - 1

    def touch(self, event: int, op: Op, name: str) -> None:
        reads, writes = dict(op.sources()), dict(op.targets())
        for field, tile in op.operands():
            if field.name in reads or field.name in writes:
                self.accesses.append((event, *places(tile), field.name in writes, name))

    def races(self) -> list[str]:
        """Conflicting accesses that nothing orders."""
        conflicts = []
        for a, b in itertools.combinations(self.accesses, 2):
            if a[0] == b[0] or a[1] != b[1] or not (a[3] or b[3]):
                continue
            if self.before[a[0]] >> b[0] & 1 or self.before[b[0]] >> a[0] & 1:
                continue
            if np.intersect1d(a[2], b[2], assume_unique=True).size:
                conflicts.append(f"{a[4]} and {b[4]}")
        return conflicts


def waits_of(program: Program) -> list[tuple]:
    """(engine, place, number) of every wait but those for queues at the end, behind which an engine does nothing."""
    waits = []
    for engine, stream in program.streams.items():
        active = max((k for k, i in enumerate(stream) if isinstance(i.op, Op)), default=-1)
        waits += [(engine, k, n) for k, i in enumerate(stream[:active + 1]) for n in range(len(i.waits))]
    return waits


def without_wait(program: Program, engine, index: int, number: int) -> Program:
    """The program without one wait."""
    stream = list(program.streams[engine])
    waits = list(stream[index].waits)
    del waits[number]
    stream[index] = replace(stream[index], waits=tuple(waits))
    return replace(program, streams={**program.streams, engine: stream})
