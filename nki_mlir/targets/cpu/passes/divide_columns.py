# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""divide-columns: store a large tile in panels as wide as a register tile, if products read its columns.

before:  memory of 128 rows of 2048 floats; a product reads 64 floats of each row, 8192 bytes apart
after:   32 panels of 128 rows of 64 floats; a product reads one panel from its begin to its end

The processor prefetches a panel, since its lines are adjacent. Parts of long rows lie on separate pages, across which
the processor does not prefetch. The pass changes a tile if its products have many rows, and if each computation that
uses it, once its axes are divided, steps by rows, by panels or within the row of a panel. The pass does not divide axes
along which a computation adds, so that sums keep their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.contraction import NestContraction, contraction_of, tile_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, RoutineCall, ScratchBuffer
from nki_mlir.targets.cpu.passes.forward_copies import divided_by_rows
from nki_mlir.targets.cpu.tile_layout import Moves, change_layouts
from nki_mlir.waist.nest import Nest


@dataclass(frozen=True)
class ColumnPanels:
    """The layout of a tile in panels: the bytes of its rows, the bytes of a panel's rows, the number of rows."""

    row: int
    width: int
    rows: int

    def moved(self, distance: int) -> int:
        """Return the distance in bytes from the begin of the panels to the element that was ``distance`` bytes from the
        tile's begin."""
        row, column = divmod(distance, self.row)
        panel, byte = divmod(column, self.width)
        return (panel * self.rows + row) * self.width + byte

    def step(self, step: int) -> int:
        """Return the step in the panels of a step in the tile, in bytes: by rows, by panels or within the row of a
        panel."""
        if step % self.row == 0:
            return step // self.row * self.width
        return step * self.rows if step % self.width == 0 else step

    def size(self, size: int) -> int:
        return size

    def divided(self, nest: Nest, number: int, product: NestContraction | None) -> Nest | None:
        size = nest.operands[number].dtype.itemsize
        divided = divided_by_rows(nest, nest.operands[number].strides, self.row // size)
        divided = divided_by_rows(divided, divided.operands[number].strides, self.width // size)
        return divided if divided is nest or can_be_divided(nest, divided) else None

    def contains(self, size: int, offset: Linear, moves: Moves) -> bool:
        """Return whether elements of ``size`` bytes have constant steps in the panels: moves by panels stay within a
        row of the tile, and smaller moves within a row of a panel."""
        column, byte = [offset.const % self.row // self.width * self.width] * 2, [offset.const % self.width] * 2
        for step, (least, most) in moves:
            if step % self.row:
                ends = column if step % self.width == 0 else byte
                ends[0] += min(step * least, step * most)
                ends[1] += max(step * least, step * most)
        return min(*column, *byte) >= 0 and column[1] < self.row and byte[1] + size <= self.width

    def preserves_speed(self, before: NestContraction, after: NestContraction | None) -> bool:
        """Return whether vectors of the product still lie along the same axis, that of the factor's columns."""
        return after is not None and after.vector == before.vector


class DivideColumns(FunctionPass, name="divide-columns"):
    least: int = 131_072        # bytes of a tile: smaller ones stay in the caches
    width: int = 0              # columns of a panel; 0: as many as a register tile has
    rows: int = 16              # rows of a product: with fewer, it reads the tile once or twice, and gains little

    def rewrite(self, function: NativeFunction) -> None:
        change_layouts(function, self.panels_of)

    def panels_of(self, buffer: ScratchBuffer, calls: Sequence[RoutineCall]) -> ColumnPanels | None:
        """Return the panels of a tile that products read as the factor with their columns; None if it stays unchanged.
        """
        if buffer.size < self.least:
            return None
        layouts = set()
        for call in calls:
            product = contraction_of(call.nest) if isinstance(call, Compute) else None
            if product is None or not isinstance(call, Compute) or call.regions[product.vector].root is not buffer:
                continue
            if product.row is None or call.nest.extents[product.row] < self.rows:
                return None
            factor = call.nest.inputs[product.vector]
            steps = [factor.strides[a] for a in sorted(call.nest.reduced)]
            width = self.width or tile_of(call.nest.extents[product.column]).width
            if len(steps) != 1 or steps[0] <= width or steps[0] % width or call.nest.extents[product.column] % width:
                return None
            layouts.add((steps[0] * factor.dtype.itemsize, width * factor.dtype.itemsize))
        if len(layouts) != 1:
            return None
        row, width = layouts.pop()
        return ColumnPanels(row, width, buffer.size // row) if buffer.size % row == 0 else None


def can_be_divided(nest: Nest, divided: Nest) -> bool:
    """Return whether a nest computes the same with divided axes, with sums in the same order."""
    if nest.forms or len(nest.reduced) != len(divided.reduced):
        return False
    return not nest.reduced or contraction_of(nest) is not None
