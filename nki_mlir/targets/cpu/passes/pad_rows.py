# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pad-rows: put a cache line after each row of tiles whose rows share few sets of the cache in products.

before:  memory of 128 rows of 8192 bytes; product reads 256 bytes of each row
after:   memory of 128 rows of 8256 bytes; the same

The sets of a cache follow from addresses. Parts of rows that are a power of two apart go to the same few sets, whose
lines evict each other before a product reads them again. With the line after each row they lie in all sets. The pass
changes a tile if all computations that use it step by rows, or stay within one.
"""

from collections.abc import Sequence
from dataclasses import replace

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import function as cpu
from nki_mlir.targets.cpu.addressed_nest import can_stream
from nki_mlir.targets.cpu.contraction import TileProduct, contraction_of
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.forward_copies import divided_by_rows
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion

SlotRanges = dict[int, tuple[int, int]]         # the least and greatest value of each slot


class PadRows(FunctionPass, name="pad-rows"):
    multiple: int = 512         # rows share sets of the cache if their length is a multiple of these bytes
    rows: int = 16              # fewest rows that a product reads or writes: fewer rows fit one set

    def rewrite(self, function: cpu.NativeFunction) -> None:
        new_calls: dict[cpu.RoutineCall, cpu.Compute] = {}
        for buffer, users in function.users().items():
            calls = [new_calls.get(user, user) for user in users]
            row = self.row_of(buffer, calls)
            padded = [on_padded(call, buffer, row, function.ranges) for call in calls] if row else []
            if all(padded):
                new_calls |= {user: call for user, call in zip(users, padded) if call is not None}
                if padded:
                    buffer.size = buffer.size // row * (row + host.LINE)
        function.replace_calls(new_calls)

    def row_of(self, buffer: cpu.ScratchBuffer, calls: Sequence[cpu.RoutineCall]) -> int:
        """Return the bytes of a row of a tile that products read or write in columns; 0 if its rows stay as they
        are."""
        products = [call for call in calls if isinstance(call, cpu.Compute) and contraction_of(call.nest) is not None]
        steps = [step * operand.dtype.itemsize for call in products
                 for operand, region in zip(call.nest.operands, call.regions) if region.root is buffer
                 for step, extent in zip(operand.strides, call.nest.extents) if extent >= self.rows and step > 1]
        row = min((step for step in steps if step % self.multiple == 0), default=0)
        return row if row and buffer.size % row == 0 else 0


def on_padded(call: cpu.RoutineCall, buffer: cpu.ScratchBuffer, row: int, ranges: SlotRanges) -> cpu.Compute | None:
    """Return a computation on a buffer with a cache line after each row of ``row`` bytes. Return None if it steps
    neither by rows nor within one."""
    if not isinstance(call, cpu.Compute):
        return None
    nest, regions, product = call.nest, list(call.regions), contraction_of(call.nest)
    for k, region in enumerate(regions):
        if region.root is not buffer:
            continue
        size = nest.operands[k].dtype.itemsize
        if not nest.forms and product is None:
            nest = divided_by_rows(nest, nest.operands[k].strides, row // size)
        steps = [step * size for step in nest.operands[k].strides]
        reach = within_row(region.offset, steps, nest.extents, row, ranges)
        if reach[0] < 0 or reach[1] + size > row:
            return None
        moved = Operand(nest.operands[k].dtype, tuple([step_in_padded(step, row) // size for step in steps]))
        nest = with_operand(nest, k, moved)
        offset = Linear(in_padded(region.offset.const, row), tuple(
            [(slot, step_in_padded(step, row)) for slot, step in region.offset.symbols]))
        regions[k] = replace(region, size=region.size // row * (row + host.LINE), offset=offset)
    if product is not None and contraction_of(nest) != product:
        return None
    return in_layout(call, nest, regions)


def in_layout(call: cpu.Compute, nest: Nest, regions: Sequence[ByteRegion]) -> cpu.Compute:
    """Return a computation on tiles in a new layout, with the nest and the regions that address it."""
    if isinstance(call.function, TileProduct):
        addresses = tuple([region.address for region in regions])
        return cpu.Compute(replace(call.function, nest=nest), addresses, nest, regions)
    return cpu.compute(nest, regions, call.symbols, call.streams and can_stream(nest))


def in_padded(distance: int, row: int) -> int:
    """Return a distance in bytes in a buffer with a cache line after each row of ``row`` bytes."""
    return distance + distance // row * host.LINE


def step_in_padded(step: int, row: int) -> int:
    """Return a step in bytes, by rows or within one, where each row has a cache line after it."""
    return in_padded(step, row) if step % row == 0 else step


def within_row(offset: Linear, steps: Sequence[int], extents: Sequence[int], row: int, ranges: SlotRanges
               ) -> tuple[int, int]:
    """Return the first and the last byte of a row at which elements of an operand begin, if it steps by rows and within
    rows."""
    low = high = offset.const % row
    moves = [(step, (0, extent - 1)) for step, extent in zip(steps, extents)]
    moves += [(step, ranges[slot]) for slot, step in offset.symbols]
    for step, (least, most) in moves:
        if step % row:
            low += min(step * least, step * most)
            high += max(step * least, step * most)
    return low, high


def with_operand(nest: Nest, number: int, operand: Operand) -> Nest:
    operands = [operand if k == number else other for k, other in enumerate(nest.operands)]
    return replace(nest, inputs=tuple(operands[:len(nest.inputs)]), outputs=tuple(operands[len(nest.inputs):]))
