# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fuse-tiles: an elementwise operation on a tile is computed where its result is used, so that a tile is walked once.

before:  linalg.generic ins(%part) outs(%tile) { in }
         linalg.generic ins(%tile) outs(%sums) { in * in + out }
after:   linalg.generic ins(%part) outs(%sums) { in * in + out }

That is so where one operation uses the result, as often as it is made, and what it is made of is still the same there.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import prod
from typing import Any

from nki_mlir.bindings import ir, load
from nki_mlir.conversion.graph.effects import memory_of, own_effects
from nki_mlir.conversion.graph.elementwise import (
    MOST_INPUTS,
    MOST_OPERATIONS,
    Structured,
    axes_of,
    fused,
    structured,
)
from nki_mlir.conversion.graph.views import defining, place_in_buffer
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.mlir_ops import loop_span
from nki_mlir.transforms.passes import Pass


class FuseTiles(Pass, name="fuse-tiles"):
    least: int = 0      # elements that the operations of all programs make; for a kernel with fewer it is not worth it

    def run(self, module: Any) -> None:
        with module.context, ir.Location.unknown():
            kernels = kernel_functions(module)
            if self.least and sum(prod(k.grid) * _Function(k.op).work for k in kernels) < self.least:
                return
            share_views(module)
            for kernel in kernels:
                _Function(kernel.op).fuse()
            share_views(module)


def share_views(module: Any) -> None:
    """Equal views become one value."""
    load("passmanager").PassManager.parse("builtin.module(cse)").run(module.operation)


class _Function:
    """The operations of a function by number, in their order, and which of them use and write each buffer.

    They come from a walk: operations that are reached in other ways get classes first, whose import takes 70 ms.
    """

    def __init__(self, function: Any) -> None:
        self.operations: list[Any] = []
        self.users: dict[Any, set[int]] = {}
        self.writes: dict[Any, list[int]] = {}
        self.work = 0
        self.times: dict[Any, int] = {}                 # how often the blocks run, if it is known
        self.in_body = False                            # of a structured operation

        def visit(op: Any) -> Any:
            if not self.in_body:
                self.add(op)
            self.in_body = (op.name.startswith("linalg.") and op.name != "linalg.yield") or (
                self.in_body and op.name != "linalg.yield")
            return ir.WalkResult.ADVANCE
        function.walk(visit, ir.WalkOrder.PRE_ORDER)

    def add(self, op: Any) -> None:
        number, times = len(self.operations), self.times.get(op.block, 1)
        self.operations.append(op)
        if op.name == "scf.for":
            self.times[op.regions[0].blocks[0]] = times * len(loop_span(op) or (0,))
        effects = own_effects(op)
        for buffer in effects.reads | effects.writes:
            self.users.setdefault(buffer, set()).add(number)
        for buffer in effects.writes:
            self.writes.setdefault(buffer, []).append(number)
        if op.name == "linalg.generic":
            self.work += times * prod(ir.MemRefType(op.operands[len(op.operands) - 1].type).shape)

    def fuse(self) -> None:
        """Go through the operations once: what is fused stands where the result was used, and is seen again there."""
        for number, op in enumerate(self.operations):
            last = self.only_user(number)
            user = self.operations[last]
            if not last or user.name != "linalg.generic" or user.block != op.block:
                continue
            producer, consumer = structured(op), structured(user)
            if producer is None or consumer is None or not can_fuse(producer, consumer):
                continue
            sources = {memory_of(v) for v in producer.inputs if isinstance(v.type, ir.MemRefType)}
            if any(self.written(buffer, number, last) for buffer in sources):
                continue
            for buffer in sources:
                self.users[buffer] = self.users[buffer] - {number} | {last}
            self.operations[last] = fuse(producer, consumer)

    def only_user(self, number: int) -> int:
        """The one operation that uses the tile that an operation makes, after it; 0 where there is none."""
        op = self.operations[number]
        if op.name != "linalg.generic":
            return 0
        buffer = memory_of(op.operands[len(op.operands) - 1])
        origin, users = defining(buffer), self.users[buffer]
        if origin is None or origin.name != "memref.alloc" or len(users) != 2 or min(users) != number:
            return 0
        return max(users)

    def written(self, buffer: Any, first: int, last: int) -> bool:
        """Whether a buffer is written between two operations."""
        at = self.writes.get(buffer, [])
        place = bisect_right(at, first)
        return place < len(at) and at[place] < last


def can_fuse(producer: Structured, consumer: Structured) -> bool:
    """Whether the consumer uses all that the producer makes, once, and may read what it is made of."""
    tile = producer.output
    if not producer.parallel or not producer.writes_only or not producer.one_place_a_value or any(
            -1 in axes_of(m) for m in producer.maps):
        return False
    if list(consumer.op.operands).count(tile) != 1 or consumer.output == tile or (
            len(producer.inputs) + len(consumer.inputs) > MOST_INPUTS
            or len(producer.body) + len(consumer.body) > MOST_OPERATIONS):
        return False
    buffer, read = memory_of(tile), [v for v in producer.inputs if isinstance(v.type, ir.MemRefType)]
    others = [v for v in (*consumer.inputs, consumer.output) if isinstance(v.type, ir.MemRefType) and v != tile]
    return (consumer.points == producer.points and all(memory_of(v) != buffer for v in others)
            and all(memory_of(v) != memory_of(consumer.output) and _is_counted(v) for v in read))


def _is_counted(view: Any) -> bool:
    """Whether a view begins where loop variables say. One that begins at a number from memory is checked when it runs,
    and the check has to name the operation that reads it."""
    def counted(value: Any) -> bool:
        if isinstance(value.owner, ir.Block):
            return True
        op = value.owner.operation
        return op.name == "arith.constant" or (op.name == "affine.apply" and all(map(counted, op.operands)))
    return all(counted(value) for value, _ in place_in_buffer(view).terms)


def fuse(producer: Structured, consumer: Structured) -> Any:
    place = list(consumer.op.operands).index(producer.output)
    order = axes_of(producer.maps[-1])
    results = consumer.maps[place].results
    axes = [results[order.index(axis)] for axis in range(len(order))]      # the producer's axes as the consumer's
    rank = consumer.maps[place].n_dims
    inputs = [(v, _through(m, axes, rank)) for v, m in zip(producer.inputs, producer.maps)]
    with ir.InsertionPoint(consumer.op), consumer.op.location:
        made = fused(producer, consumer, place, inputs, list(consumer.op.operands))
    consumer.op.erase()
    producer.op.erase()
    return made


def _through(mapping: Any, axes: Sequence[Any], rank: int) -> Any:
    return ir.AffineMap.get(rank, 0, [axes[axis] for axis in axes_of(mapping)])
