# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bases of instructions that are not loop nests: on complete tensors, or on each partition separately.

They stay instructions on every path, and their meaning is the class's reference.
"""

from typing import ClassVar

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Iteration, LoweringBuilder, NisaOp, with_separate_axes


class Opaque(NisaOp):
    """Base of instructions on complete tensors: no two tiles share an axis, and there is no mask."""

    keeps_bits = True

    def iteration(self) -> Iteration:
        operands = self.operands()
        field, first_tile = operands[0]
        return with_separate_axes(first_tile.shape, operands, lambda name, tile: len(first_tile.shape)
                             if name == field.name else 0)

    def lower(self, b: LoweringBuilder) -> None:
        b.keep(self)


class PartitionWise(NisaOp):
    """Base of instructions on each partition separately: axis 0 of every tile is one iteration axis; the first
    source's other dims are axes, too, so that masks apply."""

    is_loop_nest = False
    main: ClassVar[str] = ""            # the tile whose free dims masks are over; "": the first source
    table: ClassVar[str] = ""           # a tile that is read at computed indices, which masks do not restrict
    statistic: ClassVar[str] = ""       # a tile of a fixed number of values a partition, without masks

    def iteration(self) -> Iteration:
        operands = self.operands()
        first_source = next((t for f, t in operands if f.reads and not f.writes), operands[0][1])
        main: Tile = getattr(self, self.main) if self.main else first_source

        def shared(name: str, tile: Tile) -> int:
            if tile.shape == main.shape and name not in (self.table, self.statistic):
                return len(main.shape)
            return int(tile.shape[0] == main.shape[0])
        return with_separate_axes(main.shape, operands, shared)
