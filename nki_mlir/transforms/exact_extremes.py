# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exact minimum or maximum of 32-bit integers, which the engines compare in float32.

    rounded = float32(total) - float32(source)
    exact = source - total                          in 32 bits, which wraps
    chosen = exact * 2 ** -33 < rounded
    total = source where chosen

``rounded`` is 0 or at least 1 in magnitude, and the product at most 1/4: it decides only between integers that are
equal in float32, whose difference does not wrap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.nisa.elementwise import ScalarTensorTensorOp, TensorCopyPredicatedOp, TensorTensorOp
from nki_mlir.dialects.nki.elementwise import BinaryOp
from nki_mlir.dialects.op import Op
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT8, UINT32, DType

COMPARISONS = {"minimum": "less", "maximum": "greater"}


def has_exact_steps(op: str, *tiles: Tile) -> bool:
    """Return whether ``extreme_steps`` can compute a reduction's step of these tiles."""
    return op in COMPARISONS and len({tile.dtype for tile in tiles}) == 1 and tiles[0].dtype in (INT32, UINT32)


def extreme_steps(op: str, total: Tile, source: Tile, temporary: Callable[[Sequence[int], DType], Tile]
                  ) -> Iterator[Op]:
    """Yield the operations that compute total = the smaller or the greater of two tiles of one 32-bit integer type."""
    rounded, exact = (temporary(total.shape, dtype) for dtype in (FLOAT32, INT32))
    chosen = temporary(total.shape, UINT8)
    yield TensorTensorOp(dst=rounded, lhs=total, rhs=source, op="subtract", engine="vector")
    yield BinaryOp(dst=exact, lhs=_signed(source), rhs=_signed(total), op="subtract")
    yield ScalarTensorTensorOp(dst=chosen, src=exact, rhs=rounded, op0="multiply", imm0=2.0 ** -33,
                               op1=COMPARISONS[op])
    yield TensorCopyPredicatedOp(dst=total, src=source, predicate=chosen)


def _signed(tile: Tile) -> Tile:
    """Return the tile's bits as signed integers."""
    return replace(tile, access=replace(tile.access, dtype=INT32))
