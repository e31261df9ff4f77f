# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes quotients as operations that devices have: no device of the current generation divides.

x / 128.0 is x * 0.0078125, since a division by a power of two is exact, and 1 / x is a reciprocal. In graphs, and
elsewhere on request, ``multiply-reciprocals`` has replaced other quotients.
"""

from math import frexp

from nki_mlir.dialects.nisa.elementwise import ReciprocalOp, TensorScalarOp
from nki_mlir.dialects.op import Op, changed

LARGEST = 2.0**126          # beyond it, the inverse of a power of two is not a normal number


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


def _is_power_of_two(number: float) -> bool:
    return abs(frexp(number)[0]) == 0.5 and 1.0 / LARGEST <= abs(number) <= LARGEST
