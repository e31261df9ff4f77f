# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers: boxes of 32-bit integers (language, section 2.7; instructions, section 4.6)."""

from typing import Any

import numpy as np


def require(condition: bool, message: str, error: type = AssertionError) -> None:
    """Raise the error of a rule of the language that does not hold."""
    if not condition:
        raise error(message)


class VirtualRegister:
    """A number that a run computes. The register of a loop variable is frozen."""

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        self.value, self.frozen = state, frozen

    def set(self, value: Any) -> None:
        require(not self.frozen, "the register of a loop cannot be written")
        self.value = int(np.asarray(int(value) & 0xFFFFFFFF, np.uint32).view(np.int32))

    def __int__(self) -> int:
        require(self.value is not None, "the register was read before anything was put in it")
        return int(self.value)

    def __bool__(self) -> bool:
        return int(self) != 0


def register_alloc(x: Any = None) -> VirtualRegister:
    """Return a new register, with a number or without one (4.6)."""
    register = VirtualRegister()
    if x is not None:
        register_move(register, x)
    return register


def register_move(dst: VirtualRegister, src: Any, name: str | None = None) -> None:
    """Set dst to a number or to the number of a register (4.6)."""
    dst.set(int(src))


def register_load(dst: VirtualRegister, src: Any, name: str | None = None) -> None:
    """Set dst to the only element, sign-extended (4.6, open 31)."""
    require(src.size == 1, "register_load takes one element")
    dst.set(int(src.read().reshape(-1)[0]))


def register_store(dst: Any, src: VirtualRegister, name: str | None = None) -> None:
    """Write the number of the register to the only element (4.6)."""
    require(dst.size == 1, "register_store writes one element")
    dst.write(np.full(dst.shape, int(src), np.int64))
