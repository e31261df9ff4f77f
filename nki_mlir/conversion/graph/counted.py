# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stablehlo.while`` that counts from one number to another as ``scf.for``, whose number of iterations is known."""

from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.conversion.graph.upstream import operations_of
from nki_mlir.conversion.graph.views import defining


def rewrite_counted_loops(module: Any) -> None:
    for op in reversed(operations_of(module, lambda name: name == "stablehlo.while")):
        found = _counter(op)
        if found is not None:
            with op.context, ir.InsertionPoint(op), op.location:
                _as_for(op, *found)


def _number(value: Any) -> int | None:
    """The value of a scalar integer constant."""
    op = defining(value)
    if op is None or op.name != "stablehlo.constant" or ir.RankedTensorType(value.type).rank != 0:
        return None
    attribute = op.attributes["value"]
    return int(attribute[0]) if isinstance(attribute, ir.DenseIntElementsAttr) else None


def _counter(op: Any) -> tuple[int, int, int] | None:
    """The place of what is counted, its first value and its end, if the loop goes on while it is less."""
    condition, body = (region.blocks[0] for region in op.regions)
    returned = condition.operations[len(condition.operations) - 1].operation.operands[0]
    compare = defining(returned)
    if compare is None or compare.name != "stablehlo.compare" or " LT" not in str(
            compare.attributes["comparison_direction"]).replace("<", " ").replace(">", ""):
        return None
    counted, limit = compare.operands
    if not isinstance(counted.owner, ir.Block) or counted.owner != condition:
        return None
    place = ir.BlockArgument(counted).arg_number
    first, last = _number(op.operands[place]), _number(limit)
    step = defining(body.operations[len(body.operations) - 1].operation.operands[place])
    if first is None or last is None or step is None or step.name != "stablehlo.add":
        return None
    a, b = step.operands
    if a != body.arguments[place]:
        a, b = b, a
    return (place, first, last) if a == body.arguments[place] and _number(b) == 1 and first < last else None


def _as_for(op: Any, place: int, first: int, last: int) -> None:
    index = ir.IndexType.get()
    bounds = [ir.Operation.create("arith.constant", results=[index], attributes={
        "value": ir.IntegerAttr.get(index, n)}).results[0] for n in (first, last, 1)]
    others = [k for k in range(len(op.operands)) if k != place]
    inits = [op.operands[k] for k in others]
    made = ir.Operation.create("scf.for", results=[v.type for v in inits], operands=[*bounds, *inits], regions=1)
    block, kinds = op.regions[1].blocks[0], [index, *(v.type for v in inits)]
    new = made.regions[0].blocks.append(*kinds, arg_locs=[op.location] * len(kinds))
    counter = op.operands[place].type
    with ir.InsertionPoint(new):
        number = ir.Operation.create("arith.index_cast", operands=[new.arguments[0]],
                                     results=[ir.RankedTensorType(counter).element_type]).results[0]
        held = ir.Operation.create("tensor.from_elements", operands=[number], results=[counter]).results[0]
        inner = [one.operation for one in block.operations]
        end = ir.Operation.create("scf.yield", operands=[inner[-1].operands[k] for k in others])
    for one in inner[:-1]:
        one.move_before(end)
    block.arguments[place].replace_all_uses_with(held)
    for k, argument in zip(others, list(new.arguments)[1:]):
        block.arguments[k].replace_all_uses_with(argument)
    count = ir.Operation.create("stablehlo.constant", results=[counter], attributes={
        "value": ir.DenseElementsAttr.get_splat(counter, ir.IntegerAttr.get(
            ir.RankedTensorType(counter).element_type, last))}).results[0]
    op.results[place].replace_all_uses_with(count)
    for k, result in zip(others, made.results):
        op.results[k].replace_all_uses_with(result)
    op.erase()
