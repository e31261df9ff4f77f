# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise operations of the tile language: one result element from the elements at the same index."""

from functools import reduce

import numpy as np

from nki_mlir.dialects.op import In, NkiOp, Out
from nki_mlir.dialects.scalar_body import Elementwise, ScalarFunctions, V
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine.engine import SINCE
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT64, UINT32, DType, Encoding, operand_dtype, promote

EXACT_INTEGER = ("add", "subtract", "multiply")     # 32-bit integers do not survive float32


def holding_integer(*dtypes: DType) -> DType | None:
    """Return the integer type that represents the values of all operands. Return None if there is none, or if no
    operand has 32 bits: float32 then represents them."""
    if not all(d.is_integer for d in dtypes) or all(d.bits < 32 for d in dtypes):
        return None
    kind = reduce(promote, dtypes)
    return kind if kind.is_integer else None


def exact_integer(op: str, dst: DType, *dtypes: DType) -> bool:
    """Return whether the result is computed in integers: all operands have the same 32-bit type, and the destination
    has 32 bits, too."""
    if op not in EXACT_INTEGER or not dst.is_integer:       # most operations are on floats
        return False
    wide = all(d.is_integer and d.bits >= 32 for d in (dst, *dtypes))
    return wide and all(d is dtypes[0] for d in dtypes)


def alu_compute(op: str, dst: DType, *dtypes: DType) -> DType:
    """Return the dtype an ALU operation computes in: float32, but integer for bit operations and for
    32-bit arithmetic."""
    if ALU[op].on_bits:
        kind = reduce(promote, dtypes)
        return kind if kind.is_integer else max(dtypes, key=lambda d: d.bits)
    return dtypes[0] if exact_integer(op, dst, *dtypes) else FLOAT32


def number_with_tile(op: str, number: float, tile_dtype: DType, reverse: bool) -> float:
    """Return the number an operation computes with: for bit operations, the number of the tile's type with the same low
    bits."""
    amount = ALU[op].group == "shift" and not reverse and number > 0    # the type's largest moves all bits out, too
    if not ALU[op].on_bits or amount or tile_dtype is BOOL:
        return number
    low = int(number) & ((1 << tile_dtype.bits) - 1)
    return float(low - (1 << tile_dtype.bits) if low > np.iinfo(tile_dtype.numpy).max else low)


def number_dtype(number: float, tile_dtype: DType) -> DType:
    """Return the dtype of an integer that is combined with a tile: the tile's dtype if it is wide enough."""
    if tile_dtype.is_integer and tile_dtype.bits >= 32:
        limits = np.iinfo(tile_dtype.numpy)
        if limits.min <= number <= limits.max:
            return tile_dtype
    return operand_dtype(int(number))


def select_compute(condition: DType, *values: DType) -> DType:
    """Return the dtype in which a selection passes values: float32, but an integer type if float32 would
    change them."""
    kind = holding_integer(*values) if condition.is_integer else None
    if kind is UINT32 and condition.kind is Encoding.SIGNED:
        return INT64                            # a negative condition holds, too
    return kind or FLOAT32


def verify_magnitude(op: "BinaryOp | BinaryScalarOp", check: TargetCheck) -> None:
    """Check that the target has abs_max and abs_min: no older engine does, and no other instructions replace them."""
    if op.op in ("abs_max", "abs_min"):
        check.need(SINCE[op.op], f"nl.{op.op}", "compute it with other operators")


class TwoTiles(Elementwise):
    """Family: dst = lhs (op) rhs, computed in float32; bit operations and 32-bit integer arithmetic in the integer
    type."""

    dst: Out
    lhs: In
    rhs: In
    op: str

    def verify(self, check: Check) -> None:
        check.alu("op", 2)
        check.on_chip_of_one_shape("dst", "lhs", "rhs")
        check.bits(["op"], "lhs", "rhs")

    @property
    def compute(self) -> DType:
        return alu_compute(self.op, self.dst.dtype, self.lhs.dtype, self.rhs.dtype)

    def body(self, s: ScalarFunctions[V], lhs: V, rhs: V) -> V:
        return s.alu(self.op, lhs, rhs)


class BinaryOp(NkiOp, TwoTiles, name="binary"):
    """dst = lhs (op) rhs, computed in float32 (bit operations and 32-bit integer arithmetic: in the integer type)."""

    verify_target = verify_magnitude


class BinaryScalarOp(NkiOp, Elementwise, name="binary_scalar"):
    """dst = src (op) scalar, or scalar (op) src with ``reverse``."""

    dst: Out
    src: In
    op: str
    scalar: float
    reverse: bool
    free_number = "scalar", "op", ""

    def verify(self, check: Check) -> None:
        check.alu("op", 2)
        check.on_chip_of_one_shape("dst", "src")
        check.bits(["op"], "src")

    verify_target = verify_magnitude

    @property
    def compute(self) -> DType:
        if ALU[self.op].on_bits:
            return self.src.dtype
        if not self.dst.dtype.is_integer:
            return FLOAT32
        exact = self.op in EXACT_INTEGER and float(self.scalar).is_integer()
        number = number_dtype(self.scalar, self.src.dtype) if exact else FLOAT32
        return alu_compute(self.op, self.dst.dtype, self.src.dtype, number)

    def body(self, s: ScalarFunctions[V], src: V) -> V:
        scalar = s.constant(number_with_tile(self.op, self.scalar, self.src.dtype, self.reverse))
        return s.alu(self.op, scalar, src) if self.reverse else s.alu(self.op, src, scalar)


class UnaryOp(NkiOp, Elementwise, name="unary"):
    """dst = fn(src), an activation function or a one-operand ALU operation, in float32."""

    dst: Out
    src: In
    fn: str

    def verify(self, check: Check) -> None:
        check.one_of("fn", [*ACTIVATIONS, *(n for n, op in ALU.items() if op.arity == 1)])
        check.on_chip_of_one_shape("dst", "src")
        if self.fn == "invert":
            check.integers("src")

    @property
    def compute(self) -> DType:
        return self.src.dtype if self.fn == "invert" else FLOAT32

    def body(self, s: ScalarFunctions[V], src: V) -> V:
        return s.activation(self.fn, src) if self.fn in ACTIVATIONS else s.alu(self.fn, src)


class SelectOp(NkiOp, Elementwise, name="select"):
    """dst = on_true where condition is not 0, else on_false."""

    dst: Out
    condition: In
    on_true: In
    on_false: In
    chooses = True

    def verify(self, check: Check) -> None:
        check.on_chip_of_one_shape("dst", "condition", "on_true", "on_false")

    @property
    def compute(self) -> DType:
        return select_compute(self.condition.dtype, self.on_true.dtype, self.on_false.dtype)

    def body(self, s: ScalarFunctions[V], condition: V, on_true: V, on_false: V) -> V:
        return s.alu("select", condition, on_true, on_false)
