# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients as operations that devices have, where these give the same values: no device of the current generation
divides.

x / 128.0 is x * 0.0078125, since a division by a power of two is exact, and 1 / x is a reciprocal. Quotients of tiles
in a graph are products with a reciprocal, whose last bit may differ: the backends of a graph do not agree on it either.
"""

from math import frexp

from nki_mlir.dialects.access import SBUF, Tile
from nki_mlir.dialects.nisa.elementwise import ReciprocalOp, ScalarTensorTensorOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.tile_text import column
from nki_mlir.scalar.dtypes import FLOAT32

LARGEST = 2.0**126          # beyond it, the inverse of a power of two is no normal number


def without_quotients(op: TensorScalarOp) -> Op:
    """Return an operation without quotients that has the same values; the operation itself if there is none."""
    if op.exact or not op.src.dtype.is_float:
        return op
    inverted: dict[str, object] = {}
    for number in "01":
        imm = getattr(op, f"imm{number}")
        if getattr(op, f"op{number}") == "divide" and getattr(op, f"operand{number}") is None and not getattr(
                op, f"reverse{number}") and _is_power_of_two(imm):
            inverted |= {f"op{number}": "multiply", f"imm{number}": 1.0 / imm}
    if (op.op0, op.op1, op.reverse0, op.imm0, op.operand0) == ("divide", "bypass", True, 1.0, None) and (
            op.engine in ("unknown", "vector")) and not op.mask and not op.limits:
        return ReciprocalOp(dst=op.dst, src=op.src, symbols=op.symbols, ranges=op.ranges)
    return changed(op, lambda tile: tile, **inverted) if inverted else op


def with_reciprocal(text: KernelText, op: Op) -> Op:
    """Write the reciprocals of a quotient's divisors, and return the product; the operation itself if it is no quotient
    of tiles."""
    if isinstance(op, (TensorScalarOp, ScalarTensorTensorOp)) and op.op0 == "divide" and (
            op.operand0 is not None and not op.reverse0):
        return changed(op, lambda tile: tile, op0="multiply",
                       operand0=_reciprocal(text, op, column(op.operand0)))
    if isinstance(op, TensorScalarOp) and op.op0 == "divide" and not op.reverse0 and op.imm0:
        return changed(op, lambda tile: tile, op0="multiply", imm0=1.0 / op.imm0)
    if isinstance(op, ScalarTensorTensorOp) and op.op0 == "divide" and op.operand0 is None and op.reverse0 and (
            op.imm0 == 1.0):                                        # whose values stay the same
        inverse = _reciprocal(text, op, op.src)
        return TensorTensorOp(dst=op.dst, lhs=op.rhs if op.reverse1 else inverse,
                              rhs=inverse if op.reverse1 else op.rhs, op=op.op1, engine="vector", mask=op.mask,
                              limits=op.limits, symbols=op.symbols, ranges=op.ranges)
    if isinstance(op, TensorTensorOp) and op.op == "divide" and op.rhs.dtype.is_float:
        return TensorTensorOp(dst=op.dst, lhs=op.lhs, rhs=_reciprocal(text, op, op.rhs), op="multiply",
                              engine=op.engine, mask=op.mask, limits=op.limits, symbols=op.symbols, ranges=op.ranges)
    return op


def _reciprocal(text: KernelText, op: Op, divisor: Tile) -> Tile:
    shown = text.tile(op, divisor)
    inverse = text.temporary(divisor.shape, FLOAT32, SBUF, name="inverse")
    text.write(f"nisa.reciprocal(dst={text.tile(op, inverse)}, data={shown})")
    return inverse


def _is_power_of_two(number: float) -> bool:
    return abs(frexp(number)[0]) == 0.5 and 1.0 / LARGEST <= abs(number) <= LARGEST
