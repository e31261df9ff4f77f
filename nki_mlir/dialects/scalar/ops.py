# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar dialect: pure scalar functions inside ``linalg.generic`` bodies, by the names of the scalar library.

``arith`` truncates and wraps where the machine rounds and saturates, so conversions and arithmetic are operations of
this dialect, which ``nki_mlir.scalar`` defines once. Integers have their sign in the type (``ui8``).
"""

from collections.abc import Sequence

from nki_mlir.bindings import Operand, Result, ext, ir
from nki_mlir.dialects.attributes import MalformedAttribute, reported
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.scalar.mathematics import MATH


class Scalar(ext.Dialect, name="scalar"):
    """Scalar functions with the rounding, saturation and special values of the machine."""


class Checked(Scalar.Operation):
    """Base of operations with additional rules: ``check`` raises the error if a rule is broken."""

    def verify_invariants(self) -> bool:
        return reported(self, self.OPERATION_NAME, self.check)


class OfFunction(Checked):
    """Base of operations that name a function of ``table``, ``fn``."""

    def check(self) -> None:
        if "fn" not in self.attributes:         # the presence check, which runs after this one, reports it
            return
        name = self.attributes["fn"].value
        if name not in self.table:
            raise MalformedAttribute(f"has no function '{name}'")
        if len(self.operands) != self.table[name].arity:
            raise MalformedAttribute(f"function '{name}' takes {self.table[name].arity} operands")


class ConvertOp(Checked, name="convert", traits=[ext.Pure]):
    """The value in the result's type: floats round to nearest even, integers saturate, NaN becomes 0."""

    value: Operand
    result_: Result

    def check(self) -> None:
        for kind in (self.operands[0].type, self.results[0].type):
            if str(kind) not in BY_MLIR and str(kind) != "index":
                raise MalformedAttribute(f"converts between element types, not {kind}")


class WrapOp(Scalar.Operation, name="wrap", traits=[ext.Pure]):
    """An integer converted modulo 2^bits of the result's type: a narrower type keeps the low bits, a wider one extends
    the value by the sign of the operand's type."""

    value: Operand
    result_: Result


class BitcastOp(Scalar.Operation, name="bitcast", traits=[ext.Pure]):
    """The bits of the value as another type of equal size."""

    value: Operand
    result_: Result


class AluOp(OfFunction, name="alu", traits=[ext.Pure]):
    """An ALU operation ``fn`` on operands of one type."""

    values: Sequence[Operand]
    result_: Result
    fn: ir.StringAttr
    table = ALU


class ActivationOp(OfFunction, name="activation", traits=[ext.Pure]):
    """An activation function ``fn`` of a float32."""

    value: Operand
    result_: Result
    fn: ir.StringAttr
    table = ACTIVATIONS


class MathOp(OfFunction, name="math", traits=[ext.Pure]):
    """A function ``fn`` of graphs that no instruction has, on operands of one type."""

    values: Sequence[Operand]
    result_: Result
    fn: ir.StringAttr
    table = MATH
