# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites ``stablehlo.sort`` as Batcher's odd-even merge sort, whose exchanges do not depend on the data.

Engines compute it without loops over elements. In each step, elements at a fixed distance are compared and exchanged:

before:  %r = stablehlo.sort(%x) { less }                                (8 elements)
after:   %a, %b = %x[0:7], %x[1:8]                                       (distance 1)
         %swap = less(%b, %a) and mask                                   (mask: the positions that the step compares)
         %low, %high = select(%swap, %b, %a), select(%swap, %a, %b)
         ...                                                             (steps of distance 2, 1, 4, 2, 1)

The network moves equal elements past each other. So a sort that must keep their order compares their first positions,
too: an operand that counts along the axis, or one more operand, which is sorted together with the others. Every step
exchanges all operands: to sort keys and positions alone and to gather the other operands by these moves half the bytes,
but takes 1.5 to 2 times as long (3 and 5 operands of 128 x 64 float32 on trn2).

The comparison of floats in total order, ``-NaN < -inf < -0.0 < 0.0 < inf < NaN``, is one of integers with the same
order, unless the program compares numbers without signs of zero and NaN, as ``jax.numpy.sort`` does.
"""

from collections.abc import Iterator, Sequence

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Type, Value, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.creation import terminator, value_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.sort_and_scatter import sort_axis
from nki_mlir.graph.tensor_values import compared, of_element, splat
from nki_mlir.graph.upstream import exchange

BITS = {"f32": 32, "bf16": 16, "f16": 16}               # floats that have the order of integers of that many bits
ELEMENTWISE = ("compare", "select", "and", "or", "xor", "not", "add", "subtract", "multiply", "negate", "abs",
               "maximum", "minimum", "convert", "sign")


def rewrite_sorts(module: Module) -> None:
    """Rewrite all sorts; raise ``Unsupported`` for one whose comparison is not elementwise."""
    for op in operations_of(module, lambda name: name == "stablehlo.sort"):
        with op.context, ir.InsertionPoint(op), op.location:
            exchange(op, sorted_values(op))


def steps(extent: int) -> Iterator[tuple[int, list[bool]]]:
    """Yield the distance of each step of the network, and which position is compared with the one at that distance."""
    run = 1
    while run < extent:
        distance = run
        while distance >= 1:
            yield distance, [(i & distance != 0 and i % (2 * run) < 2 * run - distance) if distance < run
                             else i & run == 0 for i in range(extent - distance)]
            distance //= 2
        run *= 2


def sorted_values(op: Operation) -> list[Value]:
    """Emit a sort and return its results."""
    axis, last = sort_axis(op), ir.RankedTensorType(op.operands[0].type).rank - 1
    order = [d for d in range(last + 1) if d != axis] + [axis]
    operands = [transposed(v, order) for v in op.operands]
    count = len(operands)
    number = next((k for k, v in enumerate(op.operands) if counts_along(v, axis)), count)
    if number == count and "is_stable" in op.attributes and op.attributes["is_stable"].value:
        kind = of_element(operands[0].type, ir.IntegerType.get_signless(32))
        operands.append(value_of("stablehlo.iota", kind, iota_dimension=ir.IntegerAttr.get(
            ir.IntegerType.get_signless(64), last)))
    order_of_elements = ElementOrder(op, count, number if number < len(operands) else None)
    for distance, is_compared in steps(ir.RankedTensorType(operands[0].type).shape[last]):
        operands = exchanged(operands, distance, is_compared, order_of_elements)
    back = [order.index(d) for d in range(last + 1)]
    return [transposed(v, back) for v in operands[:count]]


def exchanged(operands: Sequence[Value], distance: int, is_compared: Sequence[bool],
              order: "ElementOrder") -> list[Value]:
    """Emit one step: exchange the elements that are out of order, of those that it compares."""
    extent = len(is_compared) + distance
    low, high = ([part(v, start, start + len(is_compared)) for v in operands] for start in (0, distance))
    out_of_order = order.is_before(high, low)
    mask = None if all(is_compared) else constant_along_last(low[0].type, is_compared)
    if mask is not None:
        out_of_order = value_of("stablehlo.and", mask.type, out_of_order, mask)
    results = []
    for a, b, old in zip(low, high, operands):
        lower, upper = (value_of("stablehlo.select", v.type, out_of_order, v, w) for v, w in ((b, a), (a, b)))
        with_lower = joined([lower, part(old, extent - distance, extent)], old.type)
        if mask is not None:
            upper = value_of("stablehlo.select", upper.type, mask, upper, part(with_lower, distance, extent))
        results.append(joined([part(with_lower, 0, distance), upper], old.type))
    return results


class ElementOrder:
    """The comparison of a sort, on tensors. ``number``: the operand that decides between equal elements."""

    def __init__(self, op: Operation, count: int, number: int | None) -> None:
        self.block, self.count, self.number = op.regions[0].blocks[0], count, number

    def is_before(self, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """Emit whether elements of ``first`` come before those of ``second``."""
        before = self.region(first, second)
        if self.number is None:
            return before
        after, kind = self.region(second, first), before.type
        earlier = compared(first[self.number], "LT", second[self.number], "SIGNED")
        unequal_or_earlier = value_of("stablehlo.and", kind, earlier, value_of("stablehlo.not", kind, after))
        return value_of("stablehlo.or", kind, before, unequal_or_earlier)

    def region(self, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """Emit the operations of the region on tensors."""
        values: dict[Value, Value] = dict(zip(self.block.arguments, (v for pair in zip(first, second) for v in pair)))
        shape = first[0].type

        def value(scalar: Value) -> Value:
            if scalar not in values:            # a constant
                kind = of_element(shape, ir.RankedTensorType(scalar.type).element_type)
                values[scalar] = value_of("stablehlo.broadcast_in_dim", kind, scalar,
                                          broadcast_dimensions=ir.DenseI64ArrayAttr.get([]))
            return values[scalar]
        end = terminator(self.block)
        for inner in [entry.operation for entry in self.block.operations][:-1]:
            name = inner.name.removeprefix("stablehlo.")
            if name == "constant":
                values[inner.results[0]] = value(inner.clone().operation.results[0])
                continue
            if name not in ELEMENTWISE:
                raise Unsupported(feature=f"'{inner.name}' in the comparison of a sort as engine instructions",
                                  instead="compare with operations on elements").located(location_of(inner))
            operands = [value(v) for v in inner.operands]
            if "compare_type" in inner.attributes and "TOTALORDER" in str(inner.attributes["compare_type"]):
                values[inner.results[0]] = in_total_order(inner, operands)
                continue
            kind = of_element(shape, ir.RankedTensorType(inner.results[0].type).element_type)
            attributes = {a.name: a.attr for a in (inner.attributes[k] for k in range(len(inner.attributes)))}
            values[inner.results[0]] = value_of(inner.name, kind, *operands, **attributes)
        return value(end.operands[0])


def in_total_order(op: Operation, operands: Sequence[Value]) -> Value:
    """Emit a comparison of floats in total order."""
    direction = next(d for d in ("EQ", "NE", "GE", "GT", "LE", "LT") if d in str(op.attributes["comparison_direction"]))
    if all(map(is_without_signs, op.operands)) and direction in ("LT", "GT"):
        a, b = operands if direction == "LT" else operands[::-1]
        less, ordered = compared(a, "LT", b, "FLOAT"), compared(a, "EQ", a, "FLOAT")
        before_nan = value_of("stablehlo.and", less.type, ordered, compared(b, "NE", b, "FLOAT"))
        return value_of("stablehlo.or", less.type, less, before_nan)
    a, b = (integers_in_order(v, op) for v in operands)
    return compared(a, direction, b, "SIGNED")


def is_without_signs(value: Value) -> bool:
    """Return whether a value of a comparison is one of two choices: NaN instead of each NaN, and 0 instead of each
    zero."""
    number, choices = value, []
    while (op := defining(number)) is not None and op.name == "stablehlo.select":
        condition = defining(op.operands[0])
        if condition is None or condition.name != "stablehlo.compare":
            return False
        choices.append((str(condition.attributes["comparison_direction"]), *condition.operands))
        number = op.operands[2]
    tests = [(next(d for d in ("EQ", "NE") if d in direction), b) for direction, a, b in choices
             if a == number and ("EQ" in direction or "NE" in direction)]
    return ("NE", number) in tests and any(test == "EQ" and is_zero(b) for test, b in tests)


def is_zero(value: Value) -> bool:
    """Return whether a value is the constant 0."""
    op = defining(value)
    attribute = op.attributes["value"] if op is not None and op.name == "stablehlo.constant" else None
    if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
        return False
    number = attribute.get_splat_value()
    return isinstance(number, ir.FloatAttr) and number.value == 0.0


def integers_in_order(value: Value, op: Operation) -> Value:
    """Emit integers with the total order of floats."""
    element = str(ir.RankedTensorType(value.type).element_type)
    if element not in BITS:
        raise Unsupported(feature=f"a sort of {element} as engine instructions",
                          instead="convert it to float32").located(location_of(op))
    kind = of_element(value.type, ir.IntegerType.get_signless(BITS[element]))
    return with_inverted_negatives(value_of("stablehlo.bitcast_convert", kind, value))


def with_inverted_negatives(bits: Value) -> Value:
    """Emit integers of which negative ones have all bits but the sign inverted; twice, these are the integers."""
    kind = bits.type
    width = ir.RankedTensorType(kind).element_type.width
    sign = value_of("stablehlo.shift_right_arithmetic", kind, bits, splat(kind, width - 1))
    inverted = value_of("stablehlo.and", kind, sign, splat(kind, (1 << width - 1) - 1))
    return value_of("stablehlo.xor", kind, bits, inverted)


# -- operations on tensors ---------------------------------------------------------------------------------------------
def constant_along_last(kind: Type, values: Sequence[bool]) -> Value:
    """Emit truth values along the last axis of a shape."""
    shape, element = ir.RankedTensorType(kind).shape, ir.IntegerType.get_signless(1)
    line = ir.RankedTensorType.get([len(values)], element)
    data = ir.DenseElementsAttr.get([ir.BoolAttr.get(v) for v in values], line)
    return value_of("stablehlo.broadcast_in_dim", of_element(kind, element),
                    value_of("stablehlo.constant", line, value=data),
                    broadcast_dimensions=ir.DenseI64ArrayAttr.get([len(shape) - 1]))


def part(value: Value, start: int, stop: int) -> Value:
    """Emit the elements from start to stop along the last axis."""
    kind, array = ir.RankedTensorType(value.type), ir.DenseI64ArrayAttr.get
    outer = list(kind.shape)[:-1]
    return value_of("stablehlo.slice", ir.RankedTensorType.get([*outer, stop - start], kind.element_type), value,
                    start_indices=array([0] * len(outer) + [start]), limit_indices=array([*outer, stop]),
                    strides=array([1] * kind.rank))


def joined(values: Sequence[Value], kind: Type) -> Value:
    """Emit the concatenation along the last axis."""
    last = ir.RankedTensorType(kind).rank - 1
    return value_of("stablehlo.concatenate", kind, *values,
                    dimension=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), last))


def transposed(value: Value, order: Sequence[int]) -> Value:
    kind = ir.RankedTensorType(value.type)
    if list(order) == list(range(kind.rank)):
        return value
    return value_of("stablehlo.transpose", ir.RankedTensorType.get([kind.shape[d] for d in order], kind.element_type),
                    value, permutation=ir.DenseI64ArrayAttr.get(list(order)))


def counts_along(value: Value, axis: int) -> bool:
    """Return whether a value counts the positions along an axis."""
    op = defining(value)
    return op is not None and op.name == "stablehlo.iota" and op.attributes["iota_dimension"].value == axis and (
        str(ir.RankedTensorType(value.type).element_type) == "i32")
