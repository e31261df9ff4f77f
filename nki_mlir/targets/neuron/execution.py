# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile instructions to NumPy functions, once for each form: only the starts of tiles differ between runs.

The op class defines the meaning, which the interpreter's ``compile_op`` compiles. An instruction's registers are
its symbols.
"""

import mmap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import PSUM, SBUF, Tile
from nki_mlir.dialects.isa.program import Program, memory_shape
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.verification import in_buffer
from nki_mlir.machine import Machine, machine_named
from nki_mlir.result_memory import pages
from nki_mlir.targets.interpreter.execute import Pattern, floating, starts
from nki_mlir.targets.interpreter.unwritten_hbm import PreparedOperation

# Partitions that are a power of two apart share sets of the cache, which makes a product of two tiles several times
# slower.
PADDING = 64


def new_memory(space: str, machine: Machine, fill: int, used: int) -> np.ndarray:
    """Allocate an on-chip memory and set every byte to ``fill``. Its rows are ``PADDING`` bytes longer than a
    partition.

    ``used`` is the number of bytes of a partition that the program declares to use, or 0 if it declares none. If it
    is less than half of a partition, the other bytes keep no pages of the host.
    """
    partitions, size = memory_shape(space, machine)
    shape = partitions, size + PADDING
    if is_full(size, used):
        return np.full(shape, fill, np.uint8)
    memory = pages(shape[0] * shape[1])
    if hasattr(mmap, "MADV_NOHUGEPAGE"):            # a huge page would cover several partitions
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    array = np.frombuffer(memory, np.uint8).reshape(shape)
    array[:, :used] = fill
    return array


def is_full(size: int, used: int) -> bool:
    """Return whether memory gets pages for complete partitions of ``size`` bytes, of which a program uses ``used``."""
    return not 0 < used < size // 2


def memory_bytes(program: Program) -> int:
    """Return the bytes of the host that the on-chip memories of a core of this program take."""
    machine, total = machine_named(program.target), 0
    for space, used in ((SBUF, program.sbuf_bytes), (PSUM, program.psum_bytes)):
        partitions, size = memory_shape(space, machine)
        total += partitions * (size if is_full(size, used) else used)
    return total


class Executors:
    """The compiled instructions of a program, memoized by form, and its on-chip memories of finished runs, which later
    runs reuse because fresh pages are slow."""

    def __init__(self) -> None:
        self.spare: list[dict[object, np.ndarray]] = []
        self.forms: dict[tuple[object, ...], PreparedOperation] = {}
        self.of_op: dict[Op, PreparedOperation] = {}

    def memories(self, machine: Machine, fill: int, used: dict[str, int]) -> dict[object, np.ndarray]:
        """Return on-chip memories in which every used byte is ``fill``."""
        try:
            memories = self.spare.pop()            # another thread may run the same program
        except IndexError:
            return {space: new_memory(space, machine, fill, size) for space, size in used.items()}
        for space, size in used.items():
            memories[space][:, :size or None] = fill
        return memories

    def starts(self, op: Op, registers: Sequence[int]) -> list[int]:
        """Return (partition, free offset) of each tile for these register values, then the values. Raise an error if a
        tile leaves its buffer."""
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
    """Return the integer in a tile of one element at a fixed address."""
    return int(Pattern(replace(tile, base_shape=padded(tile))).at(array, ()).reshape(()))
