# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fuse-graph: fuse a graph's elementwise operations into the loops of the kernels that they feed or follow.

before:  scf.for { ... linalg.generic ins(%tile) outs(%part of %t) }
         linalg.generic ins(%a, %t) outs(%r) { in * in }
after:   scf.for { ... linalg.generic ins(%part of %a, %tile) outs(%part of %r) { in * in } }

An operation before a kernel moves to the kernel's loads, one after it to the kernel's stores, if the kernel loads
each element at most once and stores it exactly once. The pass counts the accesses.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from nki_mlir.analysis.effects import defining, effects_of, memory_of, users_through_views
from nki_mlir.analysis.enclosing_control import control_around
from nki_mlir.analysis.view_starts import start_in_buffer
from nki_mlir.bindings import Module, Operation, Type, Value, enclosing, ir
from nki_mlir.dialects.access import HBM, Linear
from nki_mlir.dialects.enclosing_conditions import Numbering, linear_of
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.graph.views import complete_buffer, viewed_as
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.transforms.fuse_tiles import share_views
from nki_mlir.waist.fusion import Fusion, fusible
from nki_mlir.waist.generic import GenericOperation


class FuseGraph(Pass, name="fuse-graph"):
    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            share_views(module)
            function = the_kernel(module).op
            while _Graph(function).fuse():
                pass
            share_views(module)


class _Graph:
    """The operations of a function's entry block, and the buffers that each reads and writes."""

    def __init__(self, function: Operation) -> None:
        self.hbm = ir.StringAttr.get(HBM)
        self.operations = [op.operation for op in function.regions[0].blocks[0].operations]
        self.effects = [effects_of(op) for op in self.operations]

    def fuse(self) -> bool:
        """Fuse one operation, and return whether there was one."""
        for number, op in enumerate(self.operations):
            nest = fusible(op)
            if nest is not None and nest.pointwise and all(
                    complete_buffer(v) is not None and ir.MemRefType(v.type).memory_space == self.hbm
                    for v in (*nest.inputs, nest.output) if isinstance(v.type, ir.MemRefType)):
                if self.into_loads(number, nest) or self.into_stores(number, nest):
                    return True
        return False

    def touching(self, buffer: Value) -> list[int]:
        return [k for k, effects in enumerate(self.effects) if effects.touches(buffer)]

    def holder(self, op: Operation) -> int:
        """Return the index of the entry block's operation that contains an operation, or is the operation itself."""
        return next(self.operations.index(ancestor) for ancestor in (op, *enclosing(op)) if ancestor in self.operations)

    def is_written_between(self, buffers: Sequence[Value], low: int, high: int) -> bool:
        """Return whether operations ``low`` up to ``high``, inclusive, write one of the buffers."""
        return any(b in self.effects[k].writes for k in range(low, high + 1) for b in buffers)

    # -- operations before a kernel ------------------------------------------------------------------------------------
    def into_loads(self, number: int, producer: GenericOperation) -> bool:
        """Move a graph's operation to the loads of a kernel that reads its result."""
        buffer = memory_of(producer.output)
        sources = [memory_of(v) for v in producer.inputs if isinstance(v.type, ir.MemRefType)]
        last_use = self.last_reader(number, buffer)
        if last_use is None or buffer in sources or self.is_written_between(sources, number + 1, last_use):
            return False
        readers = [op for op in users_through_views(buffer) if number < self.holder(op) <= last_use]
        uses = [(op, v) for op in readers for v in op.operands if isinstance(v.type, ir.MemRefType)
                and memory_of(v) == buffer]
        consumers = [fusible(op) for op in readers]
        if not uses or any(element_type(v) != element_type(producer.output) for _, v in uses):
            return False
        fusions: list[tuple[Fusion, Value]] = []
        for consumer in consumers:
            if consumer is None:
                return False
            for operand, view in enumerate(consumer.inputs):
                if isinstance(view.type, ir.MemRefType) and memory_of(view) == buffer:
                    mapping = consumer.maps[operand]
                    fusion = Fusion(producer, consumer, operand, tuple(
                        [(v, mapping if isinstance(v.type, ir.MemRefType) else ir.AffineMap.get(mapping.n_dims, 0, []))
                         for v in producer.inputs]))
                    if consumer.points != prod(ir.MemRefType(view.type).shape) or not fusion.has_extents():
                        return False
                    fusions.append((fusion, view))
        counts = access_counts(buffer, uses)
        if counts is None or counts.max() > 1 or len(fusions) != len(uses):
            return False
        for fusion, view in fusions:
            op = fusion.consumer.op
            with ir.InsertionPoint(op), op.location:
                replace(fusion, sources=tuple([(part_of(v, view), m) for v, m in fusion.sources])).write()
            op.erase()
        producer.op.erase()
        return True

    def last_reader(self, number: int, buffer: Value) -> int | None:
        """Return the last operation that reads the result of operation ``number``; None if operations also use it in
        other ways."""
        after = [k for k in self.touching(buffer) if k > number]
        for k in after:
            if buffer in self.effects[k].writes:
                writer = fusible(self.operations[k])
                if writer is None or not writer.pointwise or buffer in self.effects[k].reads or complete_buffer(
                        writer.output) is None:
                    return None
                after = [n for n in after if n < k]
                break
        else:
            if isinstance(buffer.owner, ir.Block):
                return None                     # a result of the graph
        return after[-1] if after else None

    # -- operations after a kernel -------------------------------------------------------------------------------------
    def into_stores(self, number: int, consumer: GenericOperation) -> bool:
        """Move a graph's operation to the stores of a kernel whose result it reads."""
        for operand, value in enumerate(consumer.inputs):
            if isinstance(value.type, ir.MemRefType) and self.into_stores_of(number, consumer, operand):
                return True
        return False

    def into_stores_of(self, number: int, consumer: GenericOperation, operand: int) -> bool:
        buffer = memory_of(consumer.inputs[operand])
        origin = defining(buffer)
        if origin is None or origin.name != "memref.alloc":
            return False
        writers = [op for op in users_through_views(buffer) if op != consumer.op]
        stores = [fusible(op) for op in writers]
        if not stores or any(s is None or not s.parallel or not s.writes_only or memory_of(s.output) != buffer
                             or buffer in [memory_of(v) for v in s.inputs if isinstance(v.type, ir.MemRefType)]
                             or not s.writes_each_element_once
                             or element_type(s.output) != element_type(consumer.inputs[operand])
                             for s in stores):
            return False
        numbers = [self.holder(op) for op in writers]
        first_number, result = min(numbers), memory_of(consumer.output)
        other_buffers = [memory_of(v) for k, v in enumerate(consumer.inputs)
                         if k != operand and isinstance(v.type, ir.MemRefType)]
        between = range(first_number, number)
        if max(numbers) > number or self.is_written_between(other_buffers, first_number,
                                                            number - 1) or buffer in other_buffers or any(
                self.effects[k].touches(result) for k in between):
            return False
        if not all(self.is_known(b, first_number) for b in (*other_buffers, result)):
            return False
        counts = access_counts(buffer, [(s.op, s.output) for s in stores if s is not None])
        if counts is None or not (counts == 1).all():
            return False
        for store in stores:
            assert store is not None
            with ir.InsertionPoint(store.op), store.op.location:
                self.write_fused(store, consumer, operand)
            store.op.erase()
        consumer.op.erase()
        return True

    def is_known(self, buffer: Value, number: int) -> bool:
        """Return whether a buffer is allocated before an operation, or around the block; a later allocation is moved
        there."""
        origin = defining(buffer)
        if origin is None or origin.block != self.operations[0].block or origin in self.operations[:number]:
            return True
        if origin.name != "memref.alloc":
            return False
        origin.move_before(self.operations[0])
        return True

    @staticmethod
    def write_fused(store: GenericOperation, consumer: GenericOperation, operand: int) -> None:
        """Compute the consumer, in one nest, on the part of its source that a store writes, with the store's axes."""
        mapping = store.maps[-1]
        *inputs, output = [part_of(v, store.output) for v in consumer.operands]
        on_part = GenericOperation(consumer.op, tuple(inputs), (output,), tuple(
            mapping if isinstance(v.type, ir.MemRefType) else ir.AffineMap.get(mapping.n_dims, 0, [])
            for v in consumer.operands))
        nest = Fusion(store, on_part, operand, store.accesses).write()
        nest.attributes["iterator_types"] = store.op.attributes["iterator_types"]


def element_type(value: Value) -> Type:
    kind: Type = ir.MemRefType(value.type).element_type
    return kind


def part_of(value: Value, view: Value) -> ir.Value:
    """Return the view of ``value`` that selects the elements which ``view`` selects in a buffer of the same size.
    Numbers stay unchanged."""
    if not isinstance(value.type, ir.MemRefType):
        return value
    buffer = complete_buffer(value)
    assert buffer is not None                   # a graph's operation works on complete buffers
    return viewed_as(buffer, ir.MemRefType(view.type), start_in_buffer(view))


# The number of accesses of loops to each element of a buffer through views.

MOST_ELEMENTS, MOST_ITERATIONS = 1 << 24, 1 << 14


def access_counts(buffer: ir.Value, accesses: Sequence[tuple[ir.Operation, ir.Value]]) -> np.ndarray | None:
    """Count the accesses to each element by operations and the views that they access; None if they are unknown."""
    size = prod(ir.MemRefType(buffer.type).shape)
    if size > MOST_ELEMENTS:
        return None
    counts = np.zeros(size, np.uint8)
    for op, view in accesses:
        loops = enclosing_loops(op)
        offset = offset_of(view, [variable for variable, _ in loops or ()])
        if loops is None or offset is None or prod(len(span) for _, span in loops) > MOST_ITERATIONS:
            return None
        kind = ir.MemRefType(view.type)
        strides, _ = kind.get_strides_and_offset()
        reach = sum(s * (n - 1) for s, n in zip(strides, kind.shape))
        for point in itertools.product(*(span for _, span in loops)):
            start = offset.at(point)
            if start < 0 or start + reach >= size or any(s < 1 and n > 1 for s, n in zip(strides, kind.shape)):
                return None
            part = np.lib.stride_tricks.as_strided(counts[start:], tuple(kind.shape), tuple(strides))
            part += part < 255
    return counts


def enclosing_loops(op: ir.Operation) -> list[tuple[Value, range]] | None:
    """Return variables and values of the static loops around an operation; None if another operation encloses it."""
    control = control_around(op)
    static = [(variable, span) for variable, span in control.loops if span is not None]
    return None if control.branches or control.is_repeated or len(static) < len(control.loops) else static


def offset_of(view: Value, variables: Sequence[Value]) -> Linear | None:
    """Return the start of a view as a form of loop variables; None if it depends on anything else."""
    start, numbering = start_in_buffer(view), Numbering(variables)
    total = Linear(start.offset)
    for value, factor in start.terms:
        total = total.plus(linear_of(value, numbering), factor)
    return total if len(numbering.values) == len(variables) else None
