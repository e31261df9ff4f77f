# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets products, convolutions and sums of floats with 16 or 8 bits accumulate in float32.

before:  %r = stablehlo.dot_general %a, %b : (tensor<8x64xbf16>, tensor<64x4xbf16>) -> tensor<8x4xbf16>
after:   %s = stablehlo.dot_general %a, %b : (tensor<8x64xbf16>, tensor<64x4xbf16>) -> tensor<8x4xf32>
         %r = stablehlo.convert %s

Upstream would round each product, and each sum after each addition. A matrix product of depth 512 then has errors of
5% of the largest element, and no matrix unit computes it. The way to instruction streams leaves this step out:
``tile-and-place`` accumulates in float32 on chip, and stores narrow results.
"""

from collections.abc import Sequence

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Type, Value, ir, operations_of
from nki_mlir.dialects.creation import value_of
from nki_mlir.graph.tensor_values import of_element
from nki_mlir.graph.upstream import exchange

PRODUCTS = frozenset({"stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution"})
FOLDS = frozenset({"stablehlo.reduce", "stablehlo.reduce_window"})
COMBINED = frozenset({"stablehlo.add", "stablehlo.multiply"})
ALGORITHM = "algorithm"             # an attribute of products that names the type of the sums


def widen_sums(module: Module | Operation) -> None:
    """Rewrite products and folds with narrow results as operations with float32 results, which are rounded once."""
    for op in operations_of(module, lambda name: name in PRODUCTS | FOLDS):
        if len(op.results) == 1 and is_narrow(op.results[0].type) and ALGORITHM not in op.attributes:
            with op.context, ir.InsertionPoint(op), op.location:
                if op.name in PRODUCTS:
                    wide = value_of(op.name, wide_type(op.results[0].type), *op.operands, **attributes_of(op))
                elif (combine := combination(op)) is not None:
                    wide = fold_with(op, combine, [in_float32(value) for value in op.operands])
                else:
                    continue
                exchange(op, [value_of("stablehlo.convert", op.results[0].type, wide)])


def fold_with(op: Operation, combine: str, operands: Sequence[Value]) -> Value:
    """Emit a fold of other operands, whose elements ``combine`` combines, with the dimensions of a fold."""
    scalar = operands[1].type
    kind = of_element(op.results[0].type, ir.RankedTensorType(scalar).element_type)
    fold = ir.Operation.create(op.name, results=[kind], operands=list(operands), attributes=attributes_of(op),
                               regions=1)
    block = fold.regions[0].blocks.append(scalar, scalar, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(block):
        ir.Operation.create("stablehlo.return", operands=[value_of(combine, scalar, *block.arguments)])
    return fold.results[0]


def combination(op: Operation, names: frozenset[str] = COMBINED) -> str | None:
    """Return the operation of ``names`` that a fold applies to the old value and each element; else None."""
    block = op.regions[0].blocks[0]
    first, *following = [inner.operation for inner in block.operations]
    is_one = first.name in names and {*first.operands} == {*block.arguments} and len(following) == 1
    return first.name if is_one and following[0].operands[0] == first.results[0] else None


def attributes_of(op: Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def is_narrow(kind: Type) -> bool:
    element = ir.RankedTensorType(kind).element_type
    return isinstance(element, ir.FloatType) and element.width < 32


def in_float32(value: Value) -> Value:
    """Emit the conversion of a value to float32; a constant for a constant, since linalg would load the number."""
    op, kind = defining(value), wide_type(value.type)
    if op is not None and op.name == "stablehlo.constant" and ir.RankedTensorType(kind).rank == 0:
        number = ir.FloatAttr.get(ir.F32Type.get(), op.attributes["value"].get_splat_value().value)
        return value_of("stablehlo.constant", kind, value=ir.DenseElementsAttr.get_splat(kind, number))
    return value_of("stablehlo.convert", kind, value)


def wide_type(kind: Type) -> Type:
    return of_element(kind, ir.F32Type.get())
