# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pad-rows: insert a cache line after each row of a tile if a product would find its rows in few sets of the cache.

before:  memory of 128 rows of 8192 bytes; product reads 256 bytes of each row
after:   memory of 128 rows of 8256 bytes; the same

The sets of a cache follow from addresses. Parts of rows that are a power of two apart go to the same few sets, whose
lines evict each other before a product reads them again. With a line after each row, they are spread over all sets. The
pass changes a tile if all computations that use it step by rows, or stay within one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.contraction import NestContraction, contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.forward_copies import divided_by_rows
from nki_mlir.targets.cpu.tile_layout import Moves, change_layouts
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest


@dataclass(frozen=True)
class PaddedRows:
    """The layout of a tile with a cache line after each row of ``row`` bytes."""

    row: int

    def moved(self, distance: int) -> int:
        return in_padded(distance, self.row)

    def step(self, step: int) -> int:
        """Return the step in padded rows of a step by rows or within a row, in bytes."""
        return in_padded(step, self.row) if step % self.row == 0 else step

    def size(self, size: int) -> int:
        return size // self.row * (self.row + host.LINE)

    def divided(self, nest: Nest, number: int, product: NestContraction | None) -> Nest:
        if nest.forms or product is not None:
            return nest
        operand = nest.operands[number]
        return divided_by_rows(nest, operand.strides, self.row // operand.dtype.itemsize)

    def contains(self, size: int, offset: Linear, moves: Moves) -> bool:
        """Return whether elements of ``size`` bytes lie in rows, if the moves step by rows and within rows."""
        low = high = offset.const % self.row
        for step, (least, most) in moves:
            if step % self.row:
                low += min(step * least, step * most)
                high += max(step * least, step * most)
        return low >= 0 and high + size <= self.row

    def preserves_speed(self, before: NestContraction, after: NestContraction | None) -> bool:
        return after == before


class PadRows(FunctionPass, name="pad-rows"):
    multiple: int = 512         # rows share sets of the cache if their length is a multiple of these bytes
    rows: int = 16              # fewest rows that a product reads or writes: fewer rows fit one set

    def rewrite(self, function: NativeFunction) -> None:
        change_layouts(function, self.layout_of)

    def layout_of(self, buffer: cpu.ScratchBuffer, calls: Sequence[cpu.RoutineCall]) -> PaddedRows | None:
        """Return the padded rows of a tile that products read or write in columns; None if its rows stay unchanged.
        """
        products = [call for call in calls if isinstance(call, cpu.Compute) and contraction_of(call.nest) is not None]
        steps = [step * operand.dtype.itemsize for call in products
                 for operand, region in zip(call.nest.operands, call.regions) if region.root is buffer
                 for step, extent in zip(operand.strides, call.nest.extents) if extent >= self.rows and step > 1]
        row = min((step for step in steps if step % self.multiple == 0), default=0)
        return PaddedRows(row) if row and buffer.size % row == 0 else None


def in_padded(distance: int, row: int) -> int:
    """Return what a distance in bytes becomes once a cache line follows each row of ``row`` bytes."""
    return distance + distance // row * host.LINE
