# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites functions of integers and truth values that the passes below do not compute as operations that they do.

before:  %r = stablehlo.maximum %a, %b : tensor<4xi1>
after:   %r = stablehlo.or %a, %b

before:  %r = stablehlo.popcnt %x : tensor<4xi8>
after:   %pairs = (%x & 0x55) + (%x >> 1 & 0x55);  %r = the same with 0x33 and 2, then with 0x0F and 4

before:  %r = stablehlo.reduce(%x init: %a) applies stablehlo.maximum : (tensor<8xui8>, tensor<ui8>) -> tensor<ui8>
after:   %r = convert(stablehlo.reduce(convert(%x) init: convert(%a)) applies stablehlo.maximum)         (as i32)

Sums and products of integers with 8 or 16 bits are rewritten so, too: the conversion of the result wraps.
"""

from nki_mlir.bindings import Module, Value, ir, operations_of
from nki_mlir.dialects.creation import value_of
from nki_mlir.graph.tensor_values import of_element, splat
from nki_mlir.graph.upstream import exchange
from nki_mlir.graph.wide_sums import FOLDS, PRODUCTS, attributes_of, combination, fold_with

OF_TRUTHS = {"stablehlo.maximum": "stablehlo.or", "stablehlo.minimum": "stablehlo.and"}
COUNTS = ("stablehlo.popcnt", "stablehlo.count_leading_zeros")
WIDEST = 32                         # bits of integers that engines compute
SIGN = -(1 << WIDEST - 1)


def rewrite_extremes_of_truths(module: Module) -> None:
    """Rewrite the maximum and minimum of truth values: upstream compares them as numbers with a sign, -1 and 0."""
    for op in operations_of(module, lambda name: name in OF_TRUTHS):
        kind = op.results[0].type
        if str(ir.RankedTensorType(kind).element_type) == "i1":
            with op.context, ir.InsertionPoint(op), op.location:
                exchange(op, [value_of(OF_TRUTHS[op.name], kind, *op.operands)])


def rewrite_counts_of_bits(module: Module) -> None:
    """Rewrite population counts and counts of leading zeros of integers that engines compute."""
    for op in operations_of(module, lambda name: name in COUNTS):
        if ir.RankedTensorType(op.results[0].type).element_type.width <= WIDEST:
            with op.context, ir.InsertionPoint(op), op.location:
                bits = op.operands[0] if op.name == COUNTS[0] else leading_zeros(op.operands[0])
                exchange(op, [ones(bits)])


def leading_zeros(value: Value) -> Value:
    """Emit integers with a 1 for each zero before the first 1 of a value."""
    kind, distance = value.type, 1
    while distance < ir.RankedTensorType(kind).element_type.width:
        shifted = value_of("stablehlo.shift_right_logical", kind, value, splat(kind, distance))
        value, distance = value_of("stablehlo.or", kind, value, shifted), 2 * distance
    return value_of("stablehlo.not", kind, value)


def ones(value: Value) -> Value:
    """Emit the number of ones of each integer: sums of neighboring bits, then of neighboring sums."""
    kind, distance = value.type, 1
    width = ir.RankedTensorType(kind).element_type.width
    while distance < width:
        mask = splat(kind, sum((1 << distance) - 1 << k for k in range(0, width, 2 * distance)))
        shifted = value_of("stablehlo.shift_right_logical", kind, value, splat(kind, distance))
        value = value_of("stablehlo.add", kind, *(value_of("stablehlo.and", kind, v, mask) for v in (value, shifted)))
        distance *= 2
    return value


def rewrite_unsigned_folds(module: Module) -> None:
    """Rewrite the greatest and least of unsigned integers as those of integers with a sign in the same order."""
    for op in operations_of(module, lambda name: name in FOLDS):
        if len(op.results) != 1 or (combine := combination(op, frozenset(OF_TRUTHS))) is None:
            continue
        element = ir.RankedTensorType(op.results[0].type).element_type
        if isinstance(element, ir.IntegerType) and element.is_unsigned and element.width <= WIDEST:
            with op.context, ir.InsertionPoint(op), op.location:
                exchange(op, [without_sign(fold_with(op, combine, [with_sign(v) for v in op.operands]), element)])


def rewrite_narrow_sums(module: Module) -> None:
    """Rewrite sums and products of integers with fewer bits than engines add as those of ``i32``."""
    for op in operations_of(module, lambda name: name in FOLDS | PRODUCTS):
        kind = op.results[0].type
        element = ir.RankedTensorType(kind).element_type
        if len(op.results) != 1 or not isinstance(element, ir.IntegerType) or not 1 < element.width < WIDEST:
            continue
        wide = ir.IntegerType.get_signless(WIDEST)
        with op.context, ir.InsertionPoint(op), op.location:
            if op.name in PRODUCTS:
                result = value_of(op.name, of_element(kind, wide), *op.operands, **attributes_of(op))
            elif (combine := combination(op)) is not None:
                result = fold_with(op, combine, [
                    value_of("stablehlo.convert", of_element(v.type, wide), v) for v in op.operands])
            else:
                continue
            exchange(op, [value_of("stablehlo.convert", kind, result)])


def with_sign(value: Value) -> Value:
    """Emit ``i32`` in the order of unsigned integers."""
    kind = of_element(value.type, ir.IntegerType.get_signless(WIDEST))
    if ir.RankedTensorType(value.type).element_type.width < WIDEST:
        return value_of("stablehlo.convert", kind, value)
    return value_of("stablehlo.xor", kind, value_of("stablehlo.bitcast_convert", kind, value), splat(kind, SIGN))


def without_sign(value: Value, element: ir.IntegerType) -> Value:
    """Emit the unsigned integers that ``with_sign`` converted."""
    kind = of_element(value.type, element)
    if element.width < WIDEST:
        return value_of("stablehlo.convert", kind, value)
    return value_of("stablehlo.bitcast_convert", kind,
                    value_of("stablehlo.xor", value.type, value, splat(value.type, SIGN)))
