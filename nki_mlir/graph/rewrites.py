# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of a graph for which the upstream lowering is slow code or has several results, in other words.

A concatenation would become a chain of branches at every element; here each operand is put into its slice of the
result. The place of an extreme, a reduction of values and places together, is the least of the places that have it.
"""


from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.creation import value_of
from nki_mlir.graph.upstream import exchange, exchange_for_call


def rewrite_concatenations(module: Module | Operation) -> None:
    """``stablehlo.concatenate`` to ``tensor.insert_slice``."""
    for op in operations_of(module, lambda name: name == "stablehlo.concatenate"):
        kind = ir.RankedTensorType(op.results[0].type)
        if not kind.has_static_shape:
            continue
        axis, start = op.attributes["dimension"].value, 0
        array = ir.DenseI64ArrayAttr.get
        with op.context, ir.InsertionPoint(op), op.location:
            value = value_of("tensor.empty", kind)
            for operand in op.operands:
                shape = list(ir.RankedTensorType(operand.type).shape)
                offsets = [start if d == axis else 0 for d in range(len(shape))]
                value = value_of("tensor.insert_slice", kind, operand, value, static_offsets=array(offsets),
                                 static_sizes=array(shape), static_strides=array([1] * len(shape)),
                                 operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0]))
                start += shape[axis]
        exchange(op, [value])


def rewrite_extremes(module: Module) -> None:
    """Reductions to the greatest or least value and its place."""
    for number, op in enumerate(operations_of(module, lambda name: name == "stablehlo.reduce")):
        direction = _extreme(op)
        if direction is None:
            continue
        x, i, m, p = (str(v.type) for v in (op.operands[0], op.operands[1], *op.results))
        rank, (axis,) = ir.RankedTensorType(op.operands[0].type).rank, list(op.attributes["dimensions"])
        element = ir.RankedTensorType(op.operands[0].type).element_type
        sign = "SIGNED" if not isinstance(element, ir.IntegerType) or element.is_signless else "UNSIGNED"
        kind = sign if isinstance(element, ir.IntegerType) else "FLOAT"
        bools, one = x.replace(f"{element}>", "i1>"), f"tensor<{element}>"
        fn = "maximum" if direction == "GT" else "minimum"
        text = f"""
func.func private @"place.{number}"(%x: {x}, %i: {i}, %start: {one}) -> ({m}, {p}) {{
  %m = stablehlo.reduce(%x init: %start) applies stablehlo.{fn} across dimensions = [{axis}] : ({x}, {one}) -> {m}
  %b = stablehlo.broadcast_in_dim %m, dims = [{", ".join(str(d) for d in range(rank) if d != axis)}] : ({m}) -> {x}
  %same = stablehlo.compare EQ, %x, %b, {kind} : ({x}, {x}) -> {bools}
  %nan = stablehlo.compare NE, %x, %x, {kind} : ({x}, {x}) -> {bools}
  %here = stablehlo.or %same, %nan : {bools}
  %far = stablehlo.constant dense<2147483647> : {i}
  %places = stablehlo.select %here, %i, %far : {bools}, {i}
  %last = stablehlo.constant dense<2147483647> : tensor<i32>
  %p = stablehlo.reduce(%places init: %last) applies stablehlo.minimum across dimensions = [{axis}]
    : ({i}, tensor<i32>) -> {p}
  return %m, %p : {m}, {p}
}}"""
        function = ir.Module.parse(text, module.context)
        with ir.InsertionPoint(module.body):
            function.body.operations[0].operation.clone()
        exchange_for_call(op, f"place.{number}", list(op.operands)[:3])


def _extreme(op: Operation) -> str | None:
    """GT or LT, if a reduction keeps the greater or lesser of two values and, of equal ones, the lower place."""
    if len(op.results) != 2 or len(list(op.attributes["dimensions"])) != 1 or str(
            ir.RankedTensorType(op.operands[1].type).element_type) != "i32":
        return None
    block = op.regions[0].blocks[0]
    directions = {}
    for inner in block.operations:
        operation = inner.operation
        if operation.name == "stablehlo.compare":
            places = tuple(ir.BlockArgument(v).arg_number if isinstance(v.owner, ir.Block) else -1
                           for v in operation.operands)
            text = str(operation.attributes["comparison_direction"])
            directions[places, next(d for d in ("EQ", "NE", "GE", "GT", "LE", "LT") if d in text)] = True
        elif operation.name not in ("stablehlo.select", "stablehlo.or", "stablehlo.and", "stablehlo.return"):
            return None
    if ((1, 3), "LT") not in directions or ((0, 2), "EQ") not in directions:
        return None
    return next((d for d in ("GT", "LT") if ((0, 2), d) in directions), None)
