# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar dialect: pure scalar functions inside ``linalg.generic`` bodies, by the names of the scalar library.

``arith`` truncates and wraps where the machine rounds and saturates, so conversions and arithmetic are operations of
our own; their meaning is defined once in ``nki_mlir.scalar``. Integers keep their sign in the type (``ui8``).
"""

from collections.abc import Sequence

from nki_mlir.bindings import Operand, Result, ext, ir
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.scalar.mathematics import MATH


class Scalar(ext.Dialect, name="scalar"):
    """Scalar functions with the rounding, saturation and special values of the machine."""


class ConvertOp(Scalar.Operation, name="convert", traits=[ext.Pure]):
    """The value in the result's type: floats round to nearest even, integers saturate, NaN becomes 0."""

    value: Operand
    result_: Result

    def verify_invariants(self) -> bool:
        for kind in (self.operands[0].type, self.results[0].type):
            if str(kind) not in BY_MLIR and str(kind) != "index":
                self.location.emit_error(f"'scalar.convert' converts between element types, not {kind}")
                return False
        return True


class WrapOp(Scalar.Operation, name="wrap", traits=[ext.Pure]):
    """An integer modulo the range of the result's integer type: its low bits, or as many more as keep its value."""

    value: Operand
    result_: Result


class BitcastOp(Scalar.Operation, name="bitcast", traits=[ext.Pure]):
    """The bits of the value as another type that has as many."""

    value: Operand
    result_: Result


class AluOp(Scalar.Operation, name="alu", traits=[ext.Pure]):
    """An ALU operation ``fn`` on operands of one type."""

    values: Sequence[Operand]
    result_: Result
    fn: ir.StringAttr

    def verify_invariants(self) -> bool:
        if "fn" not in self.attributes:
            return True
        name = self.attributes["fn"].value
        if name not in ALU:
            self.location.emit_error(f"'scalar.alu' has no function '{name}'")
            return False
        if len(self.operands) != ALU[name].arity:
            self.location.emit_error(f"'scalar.alu' function '{name}' takes {ALU[name].arity} operands")
            return False
        return True


class ActivationOp(Scalar.Operation, name="activation", traits=[ext.Pure]):
    """An activation function ``fn`` of a float32."""

    value: Operand
    result_: Result
    fn: ir.StringAttr

    def verify_invariants(self) -> bool:
        if "fn" in self.attributes and self.attributes["fn"].value not in ACTIVATIONS:
            self.location.emit_error(f"'scalar.activation' has no function '{self.attributes['fn'].value}'")
            return False
        return True


class MathOp(Scalar.Operation, name="math", traits=[ext.Pure]):
    """A function ``fn`` of graphs that no instruction has, on operands of one type."""

    values: Sequence[Operand]
    result_: Result
    fn: ir.StringAttr

    def verify_invariants(self) -> bool:
        if "fn" not in self.attributes:
            return True
        name = self.attributes["fn"].value
        if name not in MATH or len(self.operands) != MATH[name].arity:
            self.location.emit_error(f"'scalar.math' has no function '{name}' of {len(self.operands)} operands")
            return False
        return True
