# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which engines have which ALU operators."""

from nki_mlir.machine.engine import Engine

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD
VECTOR_HAS_NOT = frozenset(("power", "rsqrt"))
GPSIMD_HAS = frozenset(("add", "subtract", "multiply", "power", "rsqrt", "bypass"))
BITS = frozenset(("invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"))
DOCUMENTED = BITS | frozenset((
    "add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal", "greater", "greater_equal", "less",
    "less_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "power", "rsqrt", "reciprocal", "abs",
    "abs_max", "abs_min", "square", "relu", "average", "bypass"))
SINCE = dict.fromkeys(("abs_max", "abs_min", "square", "relu"), 4)      # generation of operators that came later


def engines_of(operator: str) -> tuple[Engine, ...]:
    """The engines whose two-operand instructions have the operator."""
    return tuple(engine for engine, has in ((VECTOR, operator not in VECTOR_HAS_NOT),
                                            (GPSIMD, operator in GPSIMD_HAS)) if has)
