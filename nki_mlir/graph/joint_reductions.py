# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites reductions of several tensors, and of their windows, as operations on slices.

Engines reduce only one tensor. Where the body is elementwise, it combines slices:

before:  %r:2 = stablehlo.reduce(%x init: %a), (%y init: %b) { body }          (8 elements along the axis)
after:   %p:2 = body(%x[0::2], %y[0::2], %x[1::2], %y[1::2])                   (4 elements, then 2, then 1)
         ...
         %r:2 = body(%a, %b, %x3, %y3)

before:  %r:2 = stablehlo.reduce_window(%x, %y, %a, %b) { body }               (windows of 2, steps of 2)
after:   %p:2 = body(%a, %b, %x[0::2], %y[0::2])
         %r:2 = body(%p#0, %p#1, %x[1::2], %y[1::2])

Elements are combined in their order, as StableHLO defines it: the start comes first, the padding of a window has its
value.
"""

from collections.abc import Sequence
from itertools import product
from math import prod

from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import value_of
from nki_mlir.graph.element_bodies import is_elementwise, on_tensors
from nki_mlir.graph.tensor_values import joined, repeated, reshaped, sliced, transposed, with_shape
from nki_mlir.graph.upstream import exchange

REDUCTIONS = ("stablehlo.reduce", "stablehlo.reduce_window")
POSITIONS = 1024                    # most positions of a window, each of which becomes an operation


def rewrite_joint_reductions(module: Module) -> None:
    """Rewrite reductions of at least two tensors of static shapes whose body is elementwise."""
    for op in operations_of(module, lambda name: name in REDUCTIONS):
        shapes = [ir.RankedTensorType(v.type) for v in op.operands]
        if len(op.results) < 2 or not is_elementwise(op.regions[0].blocks[0]) or not all(
                shape.has_static_shape for shape in shapes):
            continue
        if op.name == "stablehlo.reduce_window" and prod(op.attributes["window_dimensions"]) > POSITIONS:
            continue
        with op.context, ir.InsertionPoint(op), op.location:
            exchange(op, reduced(op) if op.name == "stablehlo.reduce" else reduced_windows(op))


def reduced(op: Operation) -> list[Value]:
    """Emit a reduction and return its results."""
    count = len(op.results)
    rank, axes = ir.RankedTensorType(op.operands[0].type).rank, list(op.attributes["dimensions"])
    order = [d for d in range(rank) if d not in axes] + sorted(axes)
    shape = list(ir.RankedTensorType(op.results[0].type).shape)
    extent = prod(ir.RankedTensorType(op.operands[0].type).shape[d] for d in axes)
    values = [reshaped(transposed(v, order), [*shape, extent]) for v in list(op.operands)[:count]]
    while extent > 1:
        even = extent - extent % 2
        pairs = [sliced(v, [*[0] * len(shape), k], [*shape, even], [*[1] * len(shape), 2])
                 for k in (0, 1) for v in values]
        results, values = combined(op, pairs), values if extent % 2 else []
        last = [sliced(v, [*[0] * len(shape), even], [*shape, extent], [1] * (len(shape) + 1)) for v in values]
        extent = even // 2 + len(last[:1])
        values = [joined([a, b], with_shape(a, [*shape, extent])) for a, b in zip(results, last)] or results
    starts = [repeated(v, shape) for v in list(op.operands)[count:]]
    return combined(op, [*starts, *(reshaped(v, shape) for v in values)]) if extent else starts


def reduced_windows(op: Operation) -> list[Value]:
    """Emit a reduction of windows and return its results."""
    count, array = len(op.results), ir.DenseI64ArrayAttr.get
    rank, shape = ir.RankedTensorType(op.operands[0].type).rank, list(ir.RankedTensorType(op.results[0].type).shape)
    sizes, steps, dilations, interior = (
        list(op.attributes[name]) if name in op.attributes else [1] * rank
        for name in ("window_dimensions", "window_strides", "window_dilations", "base_dilations"))
    ends = list(ir.DenseIntElementsAttr(op.attributes["padding"])) if "padding" in op.attributes else [0] * 2 * rank
    low, high = ends[::2], ends[1::2]
    operands, starts = list(op.operands)[:count], list(op.operands)[count:]
    if any(ends) or any(step != 1 for step in interior):
        extents = [a + max(0, (n - 1) * step + 1) + b for a, n, step, b in zip(
            low, ir.RankedTensorType(operands[0].type).shape, interior, high)]
        operands = [value_of("stablehlo.pad", with_shape(v, extents), v, start, edge_padding_low=array(low),
                             edge_padding_high=array(high), interior_padding=array([step - 1 for step in interior]))
                    for v, start in zip(operands, starts)]
    results = [repeated(v, shape) for v in starts]
    if 0 in shape:
        return results
    for position in product(*map(range, sizes)):
        first = [p * distance for p, distance in zip(position, dilations)]
        limits = [at + (n - 1) * step + 1 for at, n, step in zip(first, shape, steps)]
        results = combined(op, [*results, *(sliced(v, first, limits, steps) for v in operands)])
    return results


def combined(op: Operation, values: Sequence[Value]) -> list[Value]:
    return on_tensors(op.regions[0].blocks[0], values, "a reduction of several tensors")
