# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the expression that a structured operation yields, as a tree."""

from collections.abc import Callable

from nki_mlir.analysis.buffer_effects import defining
from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import applied
from nki_mlir.dialects.buffer_types import element_dtype
from nki_mlir.dialects.creation import terminator
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.waist.expressions import Activation, Constant, Input, Node, Output, Position, alu, converted


class BodyReader:
    """Reads one body. ``outside`` reads index values that are made before the operation.

    Inputs have the numbers of operands. A number among the operands is part of the expression.
    """

    def __init__(self, op: Operation, outside: Callable[[Value], Linear]) -> None:
        self.block, self.operands, self.outside = op.regions[0].blocks[0], list(op.operands), outside
        self.inputs = op.attributes["operandSegmentSizes"][0]
        self.known: dict[ir.Value, Node] = {}

    def expression(self) -> Node:
        return self.value(terminator(self.block).operands[0])

    def value(self, value: Value) -> Node:
        if value not in self.known:
            op = defining(value)
            self.known[value] = self.argument(value) if op is None else self.read(value, op)
        return self.known[value]

    def argument(self, value: Value) -> Node:
        if value.owner != self.block:
            raise Unsupported(feature="a number that is an argument in a structured operation",
                              instead="write it as a constant")
        number, dtype = ir.BlockArgument(value).arg_number, element_dtype(value.type)
        if number >= self.inputs:
            return Output(dtype)
        operand = self.operands[number]
        return Input(dtype, number) if isinstance(operand.type, ir.MemRefType) else self.value(operand)

    def read(self, value: Value, op: Operation) -> Node:
        dtype = element_dtype(value.type)
        match op.name:
            case "arith.constant":
                number = op.attributes["value"].value
                return Constant(dtype, number if dtype.is_float else int(number))
            case "scalar.convert":
                return converted(self.value(op.operands[0]), dtype)
            case "scalar.alu":
                return alu(op.attributes["fn"].value, *(self.value(v) for v in op.operands))
            case "scalar.activation":
                return Activation(dtype, op.attributes["fn"].value, self.value(op.operands[0]))
            case "arith.index_cast":
                return converted(Position(self.index(op.operands[0])), dtype)
        if op.block != self.block and dtype.is_integer:
            return converted(Position(self.outside(value)), dtype)
        raise Unsupported(feature=f"'{op.name}' in the body of a structured operation",
                          instead="use scalar.convert, scalar.alu and scalar.activation").located(location_of(op))

    def index(self, value: Value) -> Linear:
        """An index in the body as a form of its axes and of what is outside."""
        if isinstance(value.owner, ir.Block):
            own = value.owner == self.block
            return self.outside(self.operands[ir.BlockArgument(value).arg_number] if own else value)
        op = value.owner.operation
        match op.name:
            case _ if op.block != self.block:
                return self.outside(value)
            case "linalg.index":
                return Linear(0, (), ((op.attributes["dim"].value, 1),))
            case "arith.constant":
                return Linear(op.attributes["value"].value)
            case "affine.apply":
                if (form := applied(op.attributes["map"].value, [self.index(v) for v in op.operands])) is not None:
                    return form
            case "arith.addi" | "arith.subi":
                left, right = (self.index(v) for v in op.operands)
                return left.plus(right, 1 if op.name == "arith.addi" else -1)
        raise Unsupported(feature=f"an index that is made by '{op.name}'", instead="use affine.apply of a linear map")
