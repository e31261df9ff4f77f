# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites activations that round to integers as functions of ``nl``: ``nisa.activation`` does not take them.

before:  nisa.activation floor %t = %x {imm = 5.0}
after:   nisa.tensor_scalar %scaled = %x {multiply 5.0}; nki.unary floor %t = %scaled
"""

from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.mlir_ops import read_op, write_op
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp
from nki_mlir.dialects.nki.elementwise import UnaryOp
from nki_mlir.machine.engine import ROUNDING
from nki_mlir.printing.new_tiles import new_tile
from nki_mlir.scalar.dtypes import FLOAT32


def round_by_functions(module: Module) -> None:
    """Rewrite the activations, in place. Those with a scale or a bias under a mask stay."""
    make = Attributes()
    for operation in operations_of(module, lambda name: name == ActivationOp.full_name()):
        op = read_op(operation)
        assert isinstance(op, ActivationOp)
        is_plain = op.scale is op.bias is None and op.imm == 1.0
        if op.fn not in ROUNDING or (not is_plain and (op.mask or op.limits)):
            continue
        function = UnaryOp(dst=op.dst, src=op.src if is_plain else _scaled(op, operation, make), fn=op.fn, mask=op.mask,
                           limits=op.limits, symbols=op.symbols, ranges=op.ranges)
        write_op(function, make, operation.location, ir.InsertionPoint(operation))
        operation.erase()


def _scaled(op: ActivationOp, operation: Operation, make: Attributes) -> Tile:
    """Emit the argument of an activation's function, and return its tile."""
    scaled = new_tile(make, operation, op.dst.shape, FLOAT32)
    argument = TensorScalarOp(
        dst=scaled, src=op.src, operand0=op.scale, imm0=0.0 if op.scale is not None else op.imm, op0="multiply",
        operand1=op.bias, op1="bypass" if op.bias is None else "add", symbols=op.symbols, ranges=op.ranges)
    write_op(argument, make, operation.location, ir.InsertionPoint(operation))
    return scaled
