# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits the body of an operation, which computes elements, on complete tensors.

before:  { compare GT, %a, %b }                          (tensor<f32>)
after:   %r = stablehlo.compare GT, %x, %y               (tensor<8x4xf32>)

The comparison of floats in total order, ``-NaN < -inf < -0.0 < 0.0 < inf < NaN``, is one of integers with the same
order, unless the program compares numbers without signs of zero and NaN, as ``jax.numpy.sort`` does.
"""

from collections.abc import Sequence

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Block, Operation, Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.creation import terminator, value_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.tensor_values import compared, constant_splat, of_element, splat

BITS = {"f32": 32, "bf16": 16, "f16": 16}               # floats that have the order of integers of that many bits
ELEMENTWISE = frozenset((
    "abs", "add", "and", "atan2", "bitcast_convert", "cbrt", "ceil", "clamp", "compare", "convert", "cosine", "divide",
    "exponential", "exponential_minus_one", "floor", "log", "log_plus_one", "logistic", "maximum", "minimum",
    "multiply", "negate", "not", "or", "power", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt",
    "select", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan",
    "tanh", "xor"))


def is_elementwise(block: Block) -> bool:
    """Return whether a body has only operations on elements and constants."""
    *inner, _ = [entry.operation.name.removeprefix("stablehlo.") for entry in block.operations]
    return all(name == "constant" or name in ELEMENTWISE for name in inner)


def on_tensors(block: Block, tensors: Sequence[Value], purpose: str) -> list[Value]:
    """Emit the operations of a body on tensors of one shape, one for each of its arguments; return its results.

    ``purpose``, such as "the comparison of a sort", is for the error about an operation that is not elementwise.
    """
    values, shape = dict[Value, Value](zip(block.arguments, tensors)), tensors[0].type

    def value(scalar: Value) -> Value:
        if scalar not in values:                # a constant
            kind = of_element(shape, ir.RankedTensorType(scalar.type).element_type)
            values[scalar] = value_of("stablehlo.broadcast_in_dim", kind, scalar,
                                      broadcast_dimensions=ir.DenseI64ArrayAttr.get([]))
        return values[scalar]
    for inner in [entry.operation for entry in block.operations][:-1]:
        name = inner.name.removeprefix("stablehlo.")
        if name == "constant":
            values[inner.results[0]] = value(inner.clone().operation.results[0])
            continue
        if name not in ELEMENTWISE:
            raise Unsupported(feature=f"'{inner.name}' in {purpose} as engine instructions",
                              instead="compute it by operations on elements").located(location_of(inner))
        operands = [value(v) for v in inner.operands]
        if "compare_type" in inner.attributes and "TOTALORDER" in str(inner.attributes["compare_type"]):
            values[inner.results[0]] = in_total_order(inner, operands)
            continue
        kind = of_element(shape, ir.RankedTensorType(inner.results[0].type).element_type)
        attributes = {a.name: a.attr for a in (inner.attributes[k] for k in range(len(inner.attributes)))}
        values[inner.results[0]] = value_of(inner.name, kind, *operands, **attributes)
    return [value(v) for v in terminator(block).operands]


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
    attribute = constant_splat(value)
    number = None if attribute is None else attribute.get_splat_value()
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
