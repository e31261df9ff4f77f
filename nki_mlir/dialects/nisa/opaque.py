# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of instructions that work on whole tensors and are no loop nest: their meaning is the class's reference."""


from nki_mlir.dialects.op import Iteration, LoweringBuilder, NisaOp


class Opaque(NisaOp):
    """Every tile has axes of its own. They stay instructions on every path, and have no mask."""

    keeps_bits = True

    def iteration(self) -> Iteration:
        extents: list[int] = []
        axes: dict[str, tuple[int, ...]] = {}
        operands = self.operands()
        for field, tile in operands:
            axes[field.name] = tuple(range(len(extents), len(extents) + len(tile.shape)))
            extents += tile.shape
        return Iteration(tuple(extents), axes, frozenset(range(len(operands[0][1].shape), len(extents))))

    def lower(self, b: LoweringBuilder) -> None:
        b.keep(self)
