# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The effects of instructions on registers and semaphores, for all executors of a stream.

The simulator has numbers in its registers. The timed machine runs without memory, so a register's value is unknown
after a load. The checker covers all values of memory, so that value is a symbol. Therefore each executor passes a
function that computes with its values.
"""

from collections.abc import Callable
from typing import TypeVar

from nki_mlir.dialects.isa import instruction as isa

Number = TypeVar("Number")


def control_step(op: isa.Control, registers: list[Number], compute: Callable[[str, Number, Number], Number],
                 load: Callable[[isa.TensorLoad], Number], is_taken: Callable[[Number], bool],
                 clear: Callable[[int, int], None]) -> int | None:
    """Change registers, or clear semaphores by ``clear``, as the instruction says.

    For a branch that is taken, which ``is_taken`` decides by its comparison, return the number of the next instruction.
    """
    match op:
        case isa.RegisterAlu():
            registers[op.dst.number] = compute(op.op, value(op.lhs, registers), value(op.rhs, registers))
        case isa.CompareBranch():
            if is_taken(compute(op.op, value(op.lhs, registers), value(op.rhs, registers))):
                return int(op.target)
        case isa.Move():
            registers[op.dst.number] = value(op.value, registers)
        case isa.TensorLoad():
            registers[op.dst.number] = load(op)
        case isa.RangeClear():
            clear(op.first, op.last)
    return None


def value(scalar: isa.Scalar, registers: list[Number]) -> Number:
    """Return the value of an operand: a register's, or a number."""
    return registers[scalar.number] if isinstance(scalar, isa.Register) else scalar     # type: ignore[return-value]


def computed(name: str, lhs: int, rhs: int) -> int:
    """Return the result of an arithmetic operator or comparison on the numbers of registers."""
    return isa.signed(int(isa.ARITHMETIC[name](lhs, rhs)))
