# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes scalar expressions as IR: what an op class's ``body`` gets in place of arrays."""

from collections.abc import Callable, Mapping, Sequence

from nki_mlir.bindings import Attribute, Operation, Type, Value, ir
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import Attributes, expression
from nki_mlir.dialects.op import constant_value
from nki_mlir.scalar.dtypes import INT32, INT64, DType, Encoding

Create = Callable[..., Operation]           # (name, operands, result types, attributes) -> operation


class ScalarBody:
    """Emits ``scalar.*`` operations through ``create``. Constants are of the dtype ``compute``."""

    def __init__(self, create: Create, make: Attributes, compute: DType,
                 symbols: Mapping[int, Value] | None = None) -> None:
        self.create, self.make, self.compute, self.symbols = create, make, compute, symbols or {}

    def _value(self, name: str, operands: Sequence[Value], kind: Type, attributes: dict[str, Attribute] | None = None
               ) -> Value:
        return self.create(name, operands, [kind], attributes).results[0]

    def constant(self, value: float) -> Value:
        """``value`` as the compute dtype holds it."""
        dtype, number = self.compute, constant_value(value, self.compute)
        if dtype.kind is not Encoding.UNSIGNED:
            kind = self.make.type(dtype)
            attribute = ir.FloatAttr.get(kind, number) if dtype.is_float else ir.IntegerAttr.get(kind, int(number))
            return self._value("arith.constant", [], kind, {"value": attribute})
        # arith has constants of signless integers only, which here are the signed ones.
        if number >= 1 << 63:
            return self.alu("invert", self.constant((1 << 64) - 1 - int(number)))
        wide = self.make.type(INT64)
        held = self._value("arith.constant", [], wide, {"value": ir.IntegerAttr.get(wide, int(number))})
        return self.convert(held, INT64, dtype)

    def alu(self, name: str, *values: Value) -> Value:
        return self._value("scalar.alu", values, values[-1].type, {"fn": self.make.value(name)})

    def activation(self, name: str, value: Value) -> Value:
        return self._value("scalar.activation", [value], value.type, {"fn": self.make.value(name)})

    def convert(self, value: Value, frm: DType, to: DType) -> Value:
        return value if frm is to else self._value("scalar.convert", [value], self.make.type(to))

    def position(self, form: Linear) -> Value:
        """The value of a form at the current iteration, in the compute dtype."""
        axes = [axis for axis, _ in form.axes]
        used = [position for position, _ in form.symbols]
        index = self.make.index
        operands = [self._value("linalg.index", [], index, {"dim": self.make.value(axis)}) for axis in axes]
        operands += [self.symbols[position] for position in used]
        own = Linear(form.const, tuple((k, c) for k, (_, c) in enumerate(form.symbols)),
                     tuple((k, c) for k, (_, c) in enumerate(form.axes)))
        mapping = ir.AffineMapAttr.get(ir.AffineMap.get(len(axes), len(used), [expression(own)]))
        value = self._value("affine.apply", operands, index, {"map": mapping})
        return self.convert(self._value("arith.index_cast", [value], self.make.type(INT32)), INT32, self.compute)
