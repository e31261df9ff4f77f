# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constants, comparisons and types of StableHLO tensors that several passes emit."""

from nki_mlir.bindings import Type, Value, ir
from nki_mlir.dialects.creation import value_of


def of_element(kind: Type, element: Type) -> Type:
    """Return the type of a tensor of the same shape with other elements."""
    return ir.RankedTensorType.get(ir.RankedTensorType(kind).shape, element)


def splat(kind: Type, number: float) -> Value:
    """Emit a tensor whose elements are all one number."""
    element = ir.RankedTensorType(kind).element_type
    attribute = ir.IntegerAttr.get(element, int(number)) if isinstance(element, ir.IntegerType) else (
        ir.FloatAttr.get(element, number))
    return value_of("stablehlo.constant", kind, value=ir.DenseElementsAttr.get_splat(kind, attribute))


def compared(a: Value, direction: str, b: Value, order: str = "") -> Value:
    """Emit a comparison of the elements: ``LT``, for example, in an order such as ``SIGNED``, or that of the type."""
    orders = {"compare_type": ir.Attribute.parse(f"#stablehlo<comparison_type {order}>")} if order else {}
    return value_of("stablehlo.compare", of_element(a.type, ir.IntegerType.get_signless(1)), a, b,
                    comparison_direction=ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>"), **orders)
