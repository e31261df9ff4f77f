# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The values of registers in the checker: integers, and unknowns that data decide."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import BOOL, DType
from nki_mlir.targets.neuron import control

REGISTER_LOW, REGISTER_HIGH = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True)
class DataDependent:
    """A number that data decide. Numbers with equal ``key`` are equal in every run."""

    key: object
    low: int
    high: int


Number = int | DataDependent
UNSET = DataDependent("unset", REGISTER_LOW, REGISTER_HIGH)      # the value of a register before an instruction sets it


def registers_read(op: Op | isa.Control) -> Sequence[isa.Register]:
    """Return the registers whose values an instruction uses."""
    match op:
        case isa.RegisterAlu() | isa.CompareBranch():
            values: tuple[isa.Scalar, ...] = op.lhs, op.rhs
        case isa.Move():
            values = op.value,
        case isa.Control():
            return ()
        case _:
            return op.symbols
    return [value for value in values if isinstance(value, isa.Register)]


def limits_of(dtype: DType) -> tuple[int, int]:
    """Return the least and the largest number that a register can hold after a load of this dtype."""
    if dtype is BOOL:
        return 0, 1
    limits = np.iinfo(dtype.numpy)
    return max(int(limits.min), REGISTER_LOW), min(int(limits.max), REGISTER_HIGH)


def computed(name: str, lhs: Number, rhs: Number) -> Number:
    """Compute an ALU operator on register values."""
    if isinstance(lhs, int) and isinstance(rhs, int):
        return control.computed(name, lhs, rhs)
    (a, b), (c, d) = bounds(lhs), bounds(rhs)
    if name in isa.COMPARISONS:
        corners = {isa.COMPARISONS[name](x, y) for x in (a, b) for y in (c, d)}
        if len(corners) == 1 and (name not in ("eq", "ne") or b < c or d < a):
            return int(corners.pop())
        low, high = 0, 1
    elif name in ("add", "subtract", "mult", "min", "max"):
        ends = [isa.ARITHMETIC[name](x, y) for x in (a, b) for y in (c, d)]
        low, high = min(ends), max(ends)
        if low < REGISTER_LOW or high > REGISTER_HIGH:
            low, high = REGISTER_LOW, REGISTER_HIGH
    elif name == "mod" and c == d and c > 0:
        low, high = 0, c - 1
    elif name == "floordiv" and c == d and c > 0:
        low, high = a // c, b // c
    else:
        low, high = REGISTER_LOW, REGISTER_HIGH
    return DataDependent((name, key_of(lhs), key_of(rhs)), low, high)


def bounds(number: Number) -> tuple[int, int]:
    return (number.low, number.high) if isinstance(number, DataDependent) else (number, number)


def key_of(number: Number) -> object:
    return number.key if isinstance(number, DataDependent) else number
