# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The minimum or maximum of 32-bit integers, by instructions that compute on bits.

The engines compare in float32, which does not tell all such integers apart. Whether a < b is the sign of
``d ^ ((a ^ b) & (d ^ a))`` for d = a - b, which wraps; for unsigned integers the sign of ``d ^ a`` is the opposite one.
"""

from dataclasses import replace

from nki_mlir.dialects.access import SBUF, Tile
from nki_mlir.dialects.nki.elementwise import BinaryOp, BinaryScalarOp, UnaryOp
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.tile_operations import write_statement
from nki_mlir.scalar.dtypes import INT32, UINT32

EXTREMES = ("minimum", "maximum")


def has_exact_steps(op: str, *tiles: Tile) -> bool:
    """Return whether ``write_extreme`` can compute a reduction's step of these tiles."""
    return op in EXTREMES and len({tile.dtype for tile in tiles}) == 1 and tiles[0].dtype in (INT32, UINT32)


def write_extreme(text: KernelText, op: str, dst: Tile, lhs: Tile, rhs: Tile) -> None:
    """Write dst = the smaller or the greater element of two tiles of one 32-bit integer type."""
    a, b, result = (_signed(tile) for tile in (lhs, rhs, dst))

    def temporary() -> Tile:
        return text.temporary(lhs.shape, INT32, SBUF)

    def binary(function: str, left: Tile, right: Tile) -> Tile:
        computed = temporary()
        write_statement(text, BinaryOp(dst=computed, lhs=left, rhs=right, op=function))
        return computed
    difference, differing = binary("subtract", a, b), binary("bitwise_xor", a, b)
    changed = binary("bitwise_xor", difference, a)
    if lhs.dtype is UINT32:
        write_statement(text, UnaryOp(dst=changed, src=changed, fn="invert"))
    less = binary("bitwise_xor", difference, binary("bitwise_and", differing, changed))
    write_statement(text, BinaryScalarOp(dst=less, src=less, op="right_shift", scalar=31.0, reverse=False))
    write_statement(text, BinaryScalarOp(dst=less, src=less, op="subtract", scalar=0.0, reverse=True))
    other = b if op == "minimum" else a             # where lhs is not less
    write_statement(text, BinaryOp(dst=result, lhs=other, rhs=binary("bitwise_and", differing, less), op="bitwise_xor"))


def _signed(tile: Tile) -> Tile:
    """Return the tile's bits as signed integers."""
    return replace(tile, access=replace(tile.access, dtype=INT32))
