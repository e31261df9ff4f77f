# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of the rules of the beta generation: functions of the tables, numbers, columns, result dtypes."""

from nki_mlir.language.beta import language as nl
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32

from ..beta import BetaWriter, kind
from ..writer import FLOATS, INTEGERS, Facts

BINARY = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and op.group not in ("bitwise", "shift"))
BITS = tuple(n for n, op in ALU.items() if op.arity == 2 and hasattr(nl, n) and op.group in ("bitwise", "shift"))
UNARY = tuple(n for n in (*ACTIVATIONS, *(n for n, op in ALU.items() if op.arity == 1)) if hasattr(nl, n)
              and n not in ("copy", "logical_not", "invert"))
FOLDS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "all": "logical_and"}
OPERATORS = {"+": "add", "-": "subtract", "*": "multiply", "<": "less", "<=": "less_equal", ">": "greater",
             ">=": "greater_equal"}
ULP = 2.0 ** -23
EXACT = tuple(n for n in BINARY if not ALU[n].ulp)


def usual(dtypes):
    return tuple(d for d in dtypes if d.name != "float8_e4m3fn")


def number(w: BetaWriter) -> tuple[str, Facts]:
    value = w.pick(0, 1, 2, 3, -1, 0.5, -2.5, 4)
    return str(value), Facts(abs(value), 0.5)


def result(w: BetaWriter, natural, one_in: int = 4):
    """Return the requested dtype and the keyword argument for it."""
    if w.maybe(one_in):
        chosen = w.pick(*usual((*FLOATS, *INTEGERS)))
        return chosen, f", dtype={kind(chosen)}"
    return natural, ""


def token(op: str) -> str:
    return f"np.{op}" if w_has_numpy(op) else f"nl.{op}"


def w_has_numpy(op: str) -> bool:
    return op in ("add", "subtract", "multiply", "maximum", "minimum", "greater", "less", "equal", "logical_and",
                  "bitwise_and", "bitwise_or", "bitwise_xor")


def column(w: BetaWriter, rows: int, dtypes=(FLOAT32,)) -> tuple[str, Facts]:
    """A scalar operand: a number, or a value of each partition."""
    if w.maybe():
        return number(w)
    tile = w.operand((rows, 1), dtypes)
    return tile.text, tile.facts
