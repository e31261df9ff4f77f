# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides arithmetic shifts, which engines have and the language has not, into a logical one and the bits of the sign.

before:  nisa.tensor_scalar %r = %x {arith_shift_right 3}
after:   nisa.tensor_scalar %sign = %x {right_shift 31}; nisa.tensor_scalar %high = %sign {multiply -2^29}
         nisa.tensor_scalar %low = %x {right_shift 3}; nisa.tensor_tensor bitwise_or %r = %low, %high
"""

from functools import partial

from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import read_op, write_op
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.op import changed
from nki_mlir.printing.new_tiles import new_tile
from nki_mlir.scalar.dtypes import INT32

SHIFT, BITS = "arith_shift_right", INT32.bits


def divide_shifts(module: Module) -> None:
    """Divide the shifts of int32 by a constant, in place. Others stay."""
    make = Attributes()
    for operation in operations_of(module, lambda name: name == TensorScalarOp.full_name()):
        op = read_op(operation)
        assert isinstance(op, TensorScalarOp)
        is_constant = op.op0 == SHIFT and op.operand0 is None and not op.reverse0 and 0 < op.imm0 < BITS
        if is_constant and op.src.dtype is INT32 and op.op1 != SHIFT and not (op.mask or op.limits):
            _divide(op, operation, make)
            operation.erase()


def _divide(op: TensorScalarOp, operation: Operation, make: Attributes) -> None:
    count, at = int(op.imm0), ir.InsertionPoint(operation)
    temporary = partial(new_tile, make, operation, op.dst.shape, INT32)

    def scalar(dst: Tile, src: Tile, function: str, number: float) -> None:
        write_op(TensorScalarOp(dst=dst, src=src, operand0=None, operand1=None, op0=function, imm0=number,
                                engine=op.engine, symbols=op.symbols, ranges=op.ranges), make, operation.location, at)
    is_last, is_sign = op.op1 == "bypass" and op.dst.dtype is INT32, count == BITS - 1
    sign, shifted = temporary(), op.dst if is_last else temporary()
    scalar(sign, op.src, "right_shift", BITS - 1.0)
    if is_sign:
        scalar(shifted, sign, "multiply", -1.0)
    else:
        high, low = temporary(), temporary()
        scalar(high, sign, "multiply", -2.0 ** (BITS - count))
        scalar(low, op.src, "right_shift", count)
        write_op(TensorTensorOp(dst=shifted, lhs=low, rhs=high, op="bitwise_or", symbols=op.symbols, ranges=op.ranges),
                 make, operation.location, at)
    if not is_last and op.op1 == "bypass":
        write_op(TensorCopyOp(dst=op.dst, src=shifted, symbols=op.symbols, ranges=op.ranges), make, operation.location,
                 at)
    elif not is_last:
        write_op(changed(op, None, src=shifted, operand0=op.operand1, op0=op.op1, imm0=op.imm1, reverse0=op.reverse1,
                         operand1=None, op1="bypass", imm1=0.0, reverse1=False), make, operation.location, at)
