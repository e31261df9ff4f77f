# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines of a NeuronCore, which ALU operators they have, and which functions the scalar engine has at hand.

The scalar engine has some functions at hand together: a set of their tables is loaded before the first of them. That
there are such sets, and how long it takes to load one, profiles show (``ControlCosts.table_load_ns``). Which functions
share one is not published. It is an assumption that what only copies, compares or multiplies needs none, and that every
other function has its own set.
"""

from enum import Enum


class Engine(Enum):
    """Instruction streams of a core. ``value`` is the name in IR, ``asm`` the one in assembly."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    UNKNOWN = "unknown"         # left to the compiler; resolved before emission

    __hash__ = object.__hash__          # each is one object; Enum hashes names, in Python

    @property
    def asm(self) -> str:
        return _ASM[self]


_ASM = {Engine.TENSOR: "pe", Engine.VECTOR: "dve", Engine.SCALAR: "act", Engine.GPSIMD: "pool", Engine.SYNC: "sp",
        Engine.UNKNOWN: "any"}
SHARING = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)     # have instructions in common
ENGINES = (Engine.TENSOR, Engine.SCALAR, Engine.VECTOR, Engine.GPSIMD, Engine.SYNC)


# -- which engines have which operators and functions ------------------------------------------------------------------
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
    has = {Engine.VECTOR: operator not in VECTOR_HAS_NOT, Engine.GPSIMD: operator in GPSIMD_HAS}
    return tuple(engine for engine in has if has[engine])


NO_TABLE = frozenset(("copy", "identity", "sign", "abs", "negative", "square", "relu", "prelu"))


def table_of(function: str) -> str:
    """The set that a function needs, named after it; none: an empty name."""
    return "" if function in NO_TABLE else function
