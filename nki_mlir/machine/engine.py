# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines of a NeuronCore, their ALU operators, and the function tables of the scalar engine.

The scalar engine holds one set of function tables at a time and loads another set before its first function. Published
profiles show the sets and the time of a load (``ControlCosts.table_load_ns``), not which functions share one. It is an
assumption that functions which only copy, compare or multiply need none, and that every other function has its own
set.
"""

from enum import Enum


class Engine(Enum):
    """The engines of a core, one instruction stream each. ``value`` is the name in IR, ``asm`` the name in assembly."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    UNKNOWN = "unknown"         # left to the compiler, which chooses an engine before emission

    __hash__ = object.__hash__          # hash of the object: Enum would hash its name, in Python

    @property
    def asm(self) -> str:
        return _ASM[self]


NAME_OF = {engine: engine.value for engine in Engine}       # looked up faster than ``value``
ENGINE_NAMED = {name: engine for engine, name in NAME_OF.items()}
_ASM = {Engine.TENSOR: "pe", Engine.VECTOR: "dve", Engine.SCALAR: "act", Engine.GPSIMD: "pool", Engine.SYNC: "sp",
        Engine.UNKNOWN: "any"}
SHARING = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)     # engines with instructions in common
ENGINES = (Engine.TENSOR, Engine.SCALAR, Engine.VECTOR, Engine.GPSIMD, Engine.SYNC)


# -- which engines have which operators and functions ------------------------------------------------------------------
VECTOR_HAS_NOT = frozenset(("power", "rsqrt"))
GPSIMD_HAS = frozenset(("add", "subtract", "multiply", "power", "rsqrt", "bypass"))
BITS = frozenset(("invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"))
DOCUMENTED = BITS | frozenset((
    "add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal", "greater", "greater_equal", "less",
    "less_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "power", "rsqrt", "reciprocal", "abs",
    "abs_max", "abs_min", "square", "relu", "bypass"))
# the generation of the core that introduced an operator, if it is not the first one
SINCE = dict.fromkeys(("abs_max", "abs_min", "square", "relu"), 4)


def engines_of(operator: str) -> tuple[Engine, ...]:
    """Return the engines whose two-operand instructions have the operator."""
    has = {Engine.VECTOR: operator not in VECTOR_HAS_NOT, Engine.GPSIMD: operator in GPSIMD_HAS}
    return tuple(engine for engine in has if has[engine])


ROUNDING = "floor", "ceil", "trunc"     # no engine has these: the language composes them of copies and comparisons
NO_TABLE = frozenset(("copy", "identity", "sign", "abs", "negative", "square", "relu", "prelu", *ROUNDING))


def table_of(function: str) -> str:
    """Return the name of the table set that a function needs; "" if it needs none."""
    return "" if function in NO_TABLE else function
