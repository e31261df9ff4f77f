# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find loads of registers that load equal numbers: of one integer in memory, without a write to it between them."""

from collections.abc import Hashable

from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.checker.footprint import ByteFootprint
from nki_mlir.targets.neuron.checker.register_numbers import Number

Key = tuple[Hashable, ...]


class LoadedNumbers:
    """The integers that a core loads into registers, and how often each has been written so far (``writes``).

    A write at an address that data decide counts for all integers that it may reach.
    """

    def __init__(self, core: int, program: Program) -> None:
        self.core = core
        self.integers: dict[Key, ByteFootprint] = {}
        for stream in program.streams.values():
            for instruction in stream:
                if isinstance(op := instruction.op, isa.TensorLoad):
                    integer = op.src.space, op.src.access
                    if integer not in self.integers:
                        self.integers[integer] = ByteFootprint((op.src.space, core), op.src.access, ())
        self.writes = dict.fromkeys(self.integers, 0)
        # memo by instruction, of those without registers
        self.written_by: dict[tuple[Engine, int], list[Key]] = {}

    def key(self, op: isa.TensorLoad) -> Key:
        """Return a key that is equal for two loads that load equal numbers."""
        integer = op.src.space, op.src.access
        return "load", *integer, self.writes[integer]

    def note_writes(self, op: Op, values: tuple[Number, ...], site: tuple[Engine, int]) -> None:
        """Record that an instruction writes its targets; ``values`` are those of its registers."""
        reached = self.written_by.get(site)
        if reached is None:
            footprints = [ByteFootprint((tile.space, self.core), tile.access, values) for _, tile in op.targets()
                          if tile.space != HBM]
            reached = [integer for integer, at in self.integers.items()
                       if any(of.memory == at.memory and of.shared(at) is not None for of in footprints)]
            if not values:
                self.written_by[site] = reached
        for integer in reached:
            self.writes[integer] += 1
