# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of the rules of the current generation: functions of the tables, numbers, columns, small values."""

from math import prod

from nki_mlir.language.current import language as nl
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, INT8, INT16, INT32, UINT8, UINT16, UINT32

from ..current import CurrentWriter
from ..writer import FLOATS, INTEGERS, WIDE, Facts, Tile

ULP = 2.0 ** -23
EXACT = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and not op.ulp
              and op.group not in ("bitwise", "shift") and n != "average")
BITS = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and op.group in ("bitwise", "shift"))
UNARY = tuple(n for n in ACTIVATIONS if hasattr(nl, n) and callable(getattr(nl, n)))
PLAIN = tuple(d for d in (*FLOATS, *INTEGERS) if d.name != "tfloat32")
WORDS = (INT32, UINT32, INT16, UINT16, INT8, UINT8)
BITWISE = (INT32, UINT32, UINT16, UINT8)
ANY_BITS = Facts(2.0 ** 32, 1)


def number(w: CurrentWriter) -> tuple[str, Facts]:
    value = w.pick(0, 1, 2, 3, -1, 0.5, -2.5, 4)
    return str(value), Facts(abs(value), 0.5)


def column(w: CurrentWriter, rows: int) -> tuple[str, Facts]:
    if w.maybe():
        return number(w)
    tile = w.operand((rows, 1), (FLOAT32,))
    return tile.text, tile.facts


def small(w: CurrentWriter, shape=None, dtypes=WIDE, count: int | None = None) -> Tile | None:
    """Return an operand whose sums are exact."""
    def fits(t: Tile) -> bool:
        return t.facts.bound <= 64 and t.facts.sums_exactly(4 * (count or prod(t.shape)))
    tile = w.operand(shape, dtypes, fits, "small")
    return tile if fits(tile) else None
