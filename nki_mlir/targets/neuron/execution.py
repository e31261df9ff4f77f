# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions as NumPy functions, compiled once for each distinct form: only where tiles start differs between runs.

The meaning is the op class's own, through the interpreter's ``compile_op``. An instruction's registers are its symbols.
"""

import mmap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.isa.program import memory_shape
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.verification import in_buffer
from nki_mlir.machine import Machine
from nki_mlir.recycled import pages
from nki_mlir.targets.interpreter.execute import Pattern, floating, starts
from nki_mlir.targets.interpreter.unwritten import PreparedOperation

# Partitions a power of two of bytes apart share cache sets, which makes a product of two tiles several times slower.
PADDING = 64


def new_memory(space: str, machine: Machine, fill: int, used: int = 0) -> np.ndarray:
    """An on-chip memory, every byte ``fill``; its rows are ``PADDING`` bytes longer than a partition.

    ``used``: the bytes of a partition that the program says it uses, 0 if it says nothing; the system provides no pages
    for the others where these are most.
    """
    partitions, size = memory_shape(space, machine)
    shape = partitions, size + PADDING
    if not 0 < used < size // 2:
        return np.full(shape, fill, np.uint8)
    memory = pages(shape[0] * shape[1])
    if hasattr(mmap, "MADV_NOHUGEPAGE"):            # a huge page has room for several partitions
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    made = np.frombuffer(memory, np.uint8).reshape(shape)
    made[:, :used] = fill
    return made


class Executors:
    """The compiled forms of one program, and on-chip memories of runs that have ended: pages are dear."""

    def __init__(self) -> None:
        self.spare: list[dict[object, np.ndarray]] = []
        self.forms: dict[tuple[object, ...], PreparedOperation] = {}
        self.of_op: dict[Op, PreparedOperation] = {}

    def memories(self, machine: Machine, fill: int, used: dict[str, int]) -> dict[object, np.ndarray]:
        """On-chip memories, every byte ``fill``."""
        try:
            found = self.spare.pop()            # another thread may run the same program
        except IndexError:
            return {space: new_memory(space, machine, fill, size) for space, size in used.items()}
        for space, size in used.items():
            found[space][:, :size or None] = fill
        return found

    def starts(self, op: Op, registers: Sequence[int]) -> list[int]:
        """(partition, free offset) of each tile for these register values, then the values."""
        if registers:
            for field, tile in op.operands():
                in_buffer(tile, lambda form: (form.at(registers),) * 2, field.name)
        return starts(op.operands(), registers)

    def run(self, op: Op, arrays: Sequence[np.ndarray], starts: Sequence[int], at: Location | None) -> None:
        if op not in self.of_op:
            key = op.form()
            if key not in self.forms:
                self.forms[key] = PreparedOperation(floating(on_padded_rows(op)))
            self.of_op[op] = self.forms[key]
        self.of_op[op].perform(op, arrays, starts, lambda: at)


def on_padded_rows(op: Op) -> Op:
    tiles = {field.name: replace(tile, base_shape=padded(tile), label=tile.label or field.name)
             for field, tile in op.operands()}
    return changed(op, lambda tile: tile, **tiles)


def padded(tile: Tile) -> tuple[int, ...]:
    return (tile.base_shape[0], tile.base_shape[1] + PADDING) if tile.on_chip else tile.base_shape


def element(tile: Tile, array: np.ndarray) -> int:
    """The integer that a tile of one element at a fixed place holds."""
    return int(Pattern(replace(tile, base_shape=padded(tile))).at(array, ()).reshape(()))
