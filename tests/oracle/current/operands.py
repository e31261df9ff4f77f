# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How instructions read their operands and write their destinations (instructions, sections 1.1, 1.3, 1.4, 1.7).

Operands are paired in the order of their elements: all are read as (partitions, elements of a partition).
"""

from typing import Any

import numpy as np

from .. import arithmetic
from ..arithmetic import operator
from ..program import current
from .registers import require
from .tensor import NkiTensor


class Instruction:
    """The result of each call (section 3). ``depends_on`` has no effect, as the oracle runs in program order."""

    def depends_on(self, *producers: "Instruction") -> "Instruction":
        return self


def flat(values: np.ndarray) -> np.ndarray:
    count = values.shape[0] if values.ndim else 1
    return values.reshape(count, values.size // count if count else 0)


def rows(tile: NkiTensor, unwritten: bool = False, group: int = 16) -> np.ndarray:
    """Return the elements unconverted. ``unwritten``: the view is a destination, whose old values may be unwritten."""
    if unwritten:
        return flat(np.array(tile.resolved(group).storage.elements(tile.dtype)[np.maximum(tile.places(group), 0)]))
    return flat(tile.read(group=group))


def floats(tile: NkiTensor, group: int = 16) -> np.ndarray:
    """Return the elements as float32, in which engines compute (1.4)."""
    return rows(tile, group=group).astype(np.float32)


def operand(x: Any) -> np.ndarray:
    """Return a number, or a tile of one element for each partition (1.1)."""
    if isinstance(x, NkiTensor):
        values = floats(x)
        require(values.shape[1] == 1, "a tile in the place of a number has one element a partition")
        return values
    return np.asarray(x, np.float32)


def numbers(x: Any, dtype: np.dtype) -> np.ndarray:
    """Return an operand of an operation on integers."""
    if isinstance(x, NkiTensor):
        return rows(x).astype(dtype)
    wide = np.asarray(0 if x is None else int(x), np.int64)
    return wide.astype(dtype)


def put(dst: NkiTensor, values: np.ndarray, where: np.ndarray | None = None, wrap: bool = False) -> Instruction:
    """Write values to the elements of the destination, in their order and dtype (1.4).

    ``where``: the others keep what they have. ``wrap``: integers modulo the size of the type (open 14).
    """
    array = np.asarray(values)
    if dst.size == 0:
        return Instruction()
    require(array.ndim == 0 or array.size == dst.size, f"{array.size} elements are written to {dst.size}")
    if wrap:
        bits = np.dtype(f"u{dst.dtype.itemsize}")
        array = array.astype(np.int64).astype(bits).view(dst.dtype.numpy)
    array = np.broadcast_to(array, (dst.shape[0], dst.size // dst.shape[0])) if array.ndim == 0 else array
    dst.write(array.reshape(dst.shape), None if where is None else where.reshape(dst.shape))
    return Instruction()


def moved(dst: NkiTensor, src: NkiTensor, values: np.ndarray | None = None, where: np.ndarray | None = None) -> Instruction:
    """Return bits if the dtypes are equal, else values converted through float32 (4.3)."""
    return put(dst, on_the_way(rows(src) if values is None else values, src, dst), where)


def on_the_way(values: np.ndarray, src: NkiTensor, dst: NkiTensor) -> np.ndarray:
    """Return the values that a copy moves: elements of the same dtype, float32, or integers that become integers
    (decisions)."""
    integers = {src.dtype.kind, dst.dtype.kind} == {"int"}
    return values if integers or src.dtype == dst.dtype else values.astype(np.float32)


# -- 1.5: operators ----------------------------------------------------------------------------------------------------
def abs_max(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the operand of larger magnitude, with its sign; the second if both are equal."""
    return np.where(np.isnan(a) | (np.abs(a) > np.abs(b)), a, b)


def abs_min(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(a) | (np.abs(a) < np.abs(b)), a, b)


BINARY = {**arithmetic.BINARY, "abs_max": abs_max, "abs_min": abs_min}
UNARY = {"abs": np.abs, "square": lambda a: a * a, "relu": lambda a: np.maximum(a, np.float32(0)) + np.float32(0),
         "rsqrt": lambda a: activate("rsqrt", a), "logical_not": lambda a: (a == 0).astype(np.float32)}


def is_bitwise(op: Any) -> bool:
    return operator(op) in arithmetic.BITS or operator(op) == "invert"


def combine(op: Any, a: np.ndarray, b: np.ndarray, reverse: bool = False) -> np.ndarray:
    """Return op(a, b) of float32, or of integers exactly; functions of one operand ignore the other."""
    name = operator(op)
    with np.errstate(all="ignore"):
        if name in UNARY:
            return UNARY[name](a)
        return BINARY[name](b, a) if reverse else BINARY[name](a, b)


def combine_bits(op: Any, a: np.ndarray, b: np.ndarray, reverse: bool = False) -> np.ndarray:
    """Return op of the bits of integers; a right shift brings in zeros."""
    name, bits, kind = operator(op), 8 * a.dtype.itemsize, a.dtype
    if name == "invert":
        return ~a
    x, y = np.broadcast_arrays(a.astype(np.int64), b.astype(np.int64))
    return arithmetic.on_bits(name, *((y, x) if reverse else (x, y)), bits).astype(kind)


def activate(op: Any, x: np.ndarray, alpha: Any = 0.0) -> np.ndarray:
    """Return the exact function, rounded to float32 (1.6)."""
    name = operator(op)
    if name == "prelu":
        return np.where(x >= 0, x, np.asarray(alpha, np.float32) * x).astype(np.float32)
    with np.errstate(all="ignore"):
        return arithmetic.UNARY[name](x.astype(np.float64)).astype(np.float32)


def fold(op: Any, values: np.ndarray) -> np.ndarray:
    """Combine the elements of the last axis with op, first to last (open 17); logical operations begin with a truth
    value.

    Sums of floats are added in float64 and rounded: their order is open (7).
    """
    name = operator(op)
    if name.startswith("logical"):
        values = (values != 0).astype(np.float32)
    if name == "add":
        return values.sum(-1, dtype=np.float64).astype(np.float32)
    function = combine_bits if is_bitwise(op) else combine
    keeps_zero = is_bitwise(op) or name == "multiply"       # an extreme that is zero is +0
    total = values[..., 0] if keeps_zero else values[..., 0] + np.float32(0)
    for i in range(1, values.shape[-1]):
        total = function(op, total, values[..., i])
    return total


# -- 1.7: registers that add up ----------------------------------------------------------------------------------------------
IDENTITY = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf, "abs_max": 0.0,
            "abs_min": np.inf}


def lanes(engine: str) -> np.ndarray:
    """Return an engine's 128 registers, which later instructions read."""
    return current().state.setdefault(f"accumulators of {engine}", np.zeros(128, np.float32))


def started(engine: str, command: Any, op: Any, partitions: int, initial: Any = None) -> np.ndarray:
    """Return the values of the registers before an instruction adds to them."""
    if command.name in ("reset", "reset_reduce"):
        return np.full(partitions, IDENTITY[operator(op)], np.float32)
    if command.name == "load_reduce":
        return np.broadcast_to(initial, (partitions, 1))[:, 0].astype(np.float32)
    return lanes(engine)[:partitions].copy()


def accumulated(engine: str, command: Any, op: Any, values: np.ndarray, initial: Any = None) -> np.ndarray:
    """Return the registers after an instruction as a column: op of their values and of the results before rounding
    (open 8)."""
    total = started(engine, command, op, len(values), initial)
    if command.name in ("reduce", "reset_reduce", "load_reduce"):
        total = combine(op, total, fold(op, values))
    lanes(engine)[:len(values)] = total
    return total[:, None]


# -- 4.1: matrix products ----------------------------------------------------------------------------------------------------
def accumulate_into(dst: NkiTensor, values: np.ndarray, accumulate: bool | None) -> Instruction:
    """Overwrite the destination, add to it, or add only where something was written (4.1, open 33)."""
    before = flat(dst.read(quietly=True)).astype(np.float32)
    total = values.astype(np.float32)
    if accumulate is True:
        total = before + total
    elif accumulate is None:
        total = np.where(flat(dst.resolved().written()), before + total, total)
    return put(dst, total)
