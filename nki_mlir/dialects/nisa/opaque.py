# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of instructions that work on whole tensors and are no loop nest: their meaning is the class's reference."""


from nki_mlir.dialects.op import Iteration, LoweringBuilder, NisaOp, with_own_axes


class Opaque(NisaOp):
    """Every tile has axes of its own. They stay instructions on every path, and have no mask."""

    keeps_bits = True

    def iteration(self) -> Iteration:
        operands = self.operands()
        field, first = operands[0]
        return with_own_axes(first.shape, operands, lambda name, tile: len(first.shape) if name == field.name else 0)

    def lower(self, b: LoweringBuilder) -> None:
        b.keep(self)
