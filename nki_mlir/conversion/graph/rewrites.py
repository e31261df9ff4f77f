# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of a graph for which the upstream lowering is slow code, as slices of tensors.

A concatenation would become a chain of branches at every element; here each operand is put into its slice of the
result.
"""

from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.conversion.graph.upstream import operations_of


def rewrite_concatenations(module: Any) -> None:
    """``stablehlo.concatenate`` to ``tensor.insert_slice``."""
    for op in operations_of(module, lambda name: name == "stablehlo.concatenate"):
        kind = ir.RankedTensorType(op.results[0].type)
        if not kind.has_static_shape:
            continue
        axis, start = op.attributes["dimension"].value, 0
        array = ir.DenseI64ArrayAttr.get
        with op.context, ir.InsertionPoint(op), op.location:
            value = ir.Operation.create("tensor.empty", results=[kind]).results[0]
            for operand in op.operands:
                shape = list(ir.RankedTensorType(operand.type).shape)
                offsets = [start if d == axis else 0 for d in range(len(shape))]
                value = ir.Operation.create("tensor.insert_slice", results=[kind], operands=[operand, value],
                                            attributes={
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0]), "static_offsets": array(offsets),
                    "static_sizes": array(shape), "static_strides": array([1] * len(shape))}).results[0]
                start += shape[axis]
        op.results[0].replace_all_uses_with(value)
        op.erase()
