# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines of a NeuronCore."""

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
