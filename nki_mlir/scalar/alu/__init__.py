# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ALU operators, each defined once: ``ALU`` maps a name to its ``AluOperator``."""

from nki_mlir.scalar.alu import arithmetic, comparison
from nki_mlir.scalar.alu.op import ALU, ALU_BY_ASM, AluOperator

__all__ = ["ALU", "ALU_BY_ASM", "AluOperator", "arithmetic", "comparison"]
