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

Rows are sorted by themselves, so many rows are sorted in a loop over blocks, which takes as long as the network on all
rows: the program has the steps of one block, and compiles in a time that does not grow with the rows. A few smaller
blocks are lowered once, too, and the loop is then unrolled: 1,024 rows of 64 compile in 8 s instead of 13, and take
11% less time.
"""

from collections.abc import Iterator, Sequence
from math import prod

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Type, Value, ir, operations_of
from nki_mlir.dialects.creation import value_of
from nki_mlir.graph.element_bodies import on_tensors
from nki_mlir.graph.sort_and_scatter import sort_axis
from nki_mlir.graph.tensor_values import compared, joined, of_element, reshaped, sliced, splat, transposed, with_shape
from nki_mlir.graph.upstream import exchange

ROWS = 1_024            # more rows are sorted in a loop over blocks
BLOCK = 512             # rows of a block: the engines work on the tiles of several partitions at the same time
SMALL_BLOCK = 256       # rows of a block in a short loop, which is unrolled: the engines work on several blocks


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
    axis, kind = sort_axis(op), ir.RankedTensorType(op.operands[0].type)
    order = [d for d in range(kind.rank) if d != axis] + [axis]
    operands = [transposed(v, order) for v in op.operands]
    number = next((k for k, v in enumerate(op.operands) if counts_along(v, axis)), None)
    rows = prod(kind.shape) // max(1, kind.shape[axis])
    block = BLOCK if rows > ROWS else SMALL_BLOCK if rows % SMALL_BLOCK == 0 else rows
    results = network(op, operands, number) if rows <= block else in_blocks(op, operands, number, rows, block)
    return [transposed(v, [order.index(d) for d in range(kind.rank)]) for v in results]


def network(op: Operation, values: Sequence[Value], number: int | None) -> list[Value]:
    """Emit a sort of values along their last axis. ``number``: the value that counts along it."""
    operands, kind = list(values), ir.RankedTensorType(values[0].type)
    if number is None and "is_stable" in op.attributes and op.attributes["is_stable"].value:
        number = len(operands)
        operands.append(positions(of_element(kind, ir.IntegerType.get_signless(32))))
    order = ElementOrder(op, len(values), number)
    for distance, is_compared in steps(kind.shape[-1]):
        operands = exchanged(operands, distance, is_compared, order)
    return operands[:len(values)]


def in_blocks(op: Operation, operands: Sequence[Value], number: int | None, rows: int, size: int) -> list[Value]:
    """Emit a sort of many rows as a loop over blocks of ``size`` rows; a network behind it sorts the last rows."""
    def sorted_block(values: Sequence[Value]) -> list[Value]:
        block = [positions(v.type) if k == number else v for k, v in enumerate(values)]
        return network(op, block, number)

    extent = ir.RankedTensorType(operands[0].type).shape[-1]
    lines = [reshaped(v, [rows, extent]) for v in operands]
    complete = rows - rows % size
    index = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    first, step, end = (splat(index, n) for n in (0, size, complete))
    carried = [first, *(part_of_rows(v, 0, complete) for v in lines)]
    loop = ir.Operation.create("stablehlo.while", results=[v.type for v in carried], operands=carried, regions=2)
    condition, body = (region.blocks.append(*(v.type for v in carried), arg_locs=[op.location] * len(carried))
                       for region in loop.regions)
    with ir.InsertionPoint(condition):
        ir.Operation.create("stablehlo.return", operands=[compared(condition.arguments[0], "LT", end, "SIGNED")])
    with ir.InsertionPoint(body):
        start, *before = body.arguments
        shape = [size, extent]
        blocks = [value_of("stablehlo.dynamic_slice", with_shape(v, shape), v, start, first,
                           slice_sizes=ir.DenseI64ArrayAttr.get(shape)) for v in before]
        after = [value_of("stablehlo.dynamic_update_slice", line.type, line, block, start, first)
                 for line, block in zip(before, sorted_block(blocks))]
        ir.Operation.create("stablehlo.return", operands=[value_of("stablehlo.add", index, start, step), *after])
    results = list(loop.results)[1:]
    if complete < rows:
        last = sorted_block([part_of_rows(v, complete, rows) for v in lines])
        results = [joined([a, b], line.type, 0) for a, b, line in zip(results, last, lines)]
    return [reshaped(v, ir.RankedTensorType(old.type).shape) for v, old in zip(results, operands)]


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
        pairs = [v for pair in zip(first, second) for v in pair]
        return on_tensors(self.block, pairs, "the comparison of a sort")[0]


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
    outer = list(ir.RankedTensorType(value.type).shape)[:-1]
    return sliced(value, [0] * len(outer) + [start], [*outer, stop])


def part_of_rows(value: Value, start: int, stop: int) -> Value:
    """Emit the rows from start to stop of a value with two axes."""
    rows, extent = ir.RankedTensorType(value.type).shape
    return value if stop - start == rows else sliced(value, [start, 0], [stop, extent])


def positions(kind: Type) -> Value:
    """Emit values that count along the last axis."""
    return value_of("stablehlo.iota", kind, iota_dimension=ir.IntegerAttr.get(
        ir.IntegerType.get_signless(64), ir.RankedTensorType(kind).rank - 1))


def counts_along(value: Value, axis: int) -> bool:
    """Return whether a value counts the positions along an axis."""
    op = defining(value)
    return op is not None and op.name == "stablehlo.iota" and op.attributes["iota_dimension"].value == axis and (
        str(ir.RankedTensorType(value.type).element_type) == "i32")
