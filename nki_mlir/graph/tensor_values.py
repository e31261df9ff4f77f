# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types, constants, comparisons and parts of StableHLO tensors that several passes emit."""

from collections.abc import Sequence

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Type, Value, ir
from nki_mlir.dialects.creation import value_of


def of_element(kind: Type, element: Type) -> Type:
    """Return the type of a tensor of the same shape with other elements."""
    return ir.RankedTensorType.get(ir.RankedTensorType(kind).shape, element)


def with_shape(value: Value, shape: Sequence[int]) -> Type:
    """Return the type of a tensor of another shape with the same elements."""
    return ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)


def splat(kind: Type, number: float) -> Value:
    """Emit a tensor whose elements are all one number."""
    element = ir.RankedTensorType(kind).element_type
    attribute = ir.IntegerAttr.get(element, int(number)) if isinstance(element, ir.IntegerType) else (
        ir.FloatAttr.get(element, number))
    return value_of("stablehlo.constant", kind, value=ir.DenseElementsAttr.get_splat(kind, attribute))


def constant_splat(value: Value) -> ir.DenseElementsAttr | None:
    """Return the attribute of a constant whose elements are all one number; None for another value."""
    op = defining(value)
    attribute = op.attributes["value"] if op is not None and op.name == "stablehlo.constant" else None
    return attribute if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat else None


def compared(a: Value, direction: str, b: Value, order: str = "") -> Value:
    """Emit a comparison of the elements: ``LT``, for example, in an order such as ``SIGNED``, or that of the type."""
    orders = {"compare_type": ir.Attribute.parse(f"#stablehlo<comparison_type {order}>")} if order else {}
    return value_of("stablehlo.compare", of_element(a.type, ir.IntegerType.get_signless(1)), a, b,
                    comparison_direction=ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>"), **orders)


# -- moving elements ---------------------------------------------------------------------------------------------------
def reshaped(value: Value, shape: Sequence[int]) -> Value:
    kind = with_shape(value, shape)
    return value if kind == value.type else value_of("stablehlo.reshape", kind, value)


def transposed(value: Value, order: Sequence[int]) -> Value:
    shape = ir.RankedTensorType(value.type).shape
    if list(order) == list(range(len(shape))):
        return value
    return value_of("stablehlo.transpose", with_shape(value, [shape[d] for d in order]), value,
                    permutation=ir.DenseI64ArrayAttr.get(list(order)))


def repeated(value: Value, shape: Sequence[int]) -> Value:
    """Emit a tensor whose elements are all one number, a tensor without dimensions."""
    return value_of("stablehlo.broadcast_in_dim", with_shape(value, shape), value,
                    broadcast_dimensions=ir.DenseI64ArrayAttr.get([]))


def sliced(value: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int] = ()) -> Value:
    """Emit the elements from ``starts`` up to ``limits``, adjacent or ``steps`` apart."""
    array, steps = ir.DenseI64ArrayAttr.get, steps or [1] * len(starts)
    shape = [max(0, -(-(limit - start) // step)) for start, limit, step in zip(starts, limits, steps)]
    return value_of("stablehlo.slice", with_shape(value, shape), value, start_indices=array(list(starts)),
                    limit_indices=array(list(limits)), strides=array(list(steps)))


def joined(values: Sequence[Value], kind: Type, axis: int | None = None) -> Value:
    """Emit the concatenation along an axis, which is the last one by default."""
    last = ir.RankedTensorType(kind).rank - 1
    return value_of("stablehlo.concatenate", kind, *values, dimension=ir.IntegerAttr.get(
        ir.IntegerType.get_signless(64), last if axis is None else axis))
