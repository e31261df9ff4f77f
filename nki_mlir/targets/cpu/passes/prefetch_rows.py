# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""prefetch-rows: prefetch the next rows in nests on tiles of short rows.

before:  add(a, b, y)  on a tile of 128 rows of 1 KiB, 8 KiB apart
after:   the same, which prefetches the lines of a and b two rows ahead while it reads a row

The processor prefetches the lines that follow in memory, up to the end of a page: with rows on separate pages, each row
would begin with a wait. ``short`` is the length in bytes of the longest rows that are prefetched, and the distance of
the prefetches from the computation. The last rows may prefetch memory after the tile, or after the array, where a
prefetch does nothing. Nests that already prefetch, such as those of chunks, stay unchanged.
"""

from dataclasses import replace

from nki_mlir.targets.cpu.addressed_nest import with_memory
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Compute, calls_in
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand

LEAST_ROWS = 8                      # fewest rows of a tile: its first rows are not prefetched


class PrefetchRows(FunctionPass, name="prefetch-rows"):
    short: int = 1_024          # bytes of the longest rows that are prefetched, and the distance of prefetches

    def rewrite(self, function: NativeFunction) -> None:
        for call in calls_in(*function.body.nodes):
            if not isinstance(call, Compute) or contraction_of(call.nest) is not None:
                continue
            routine = with_memory(call.function)                                              # type: ignore[arg-type]
            ahead = {k: self.prefetch_distance(routine.nest, operand) for k, operand in enumerate(routine.nest.inputs)
                     if call.regions[k].root in function.inputs}
            if not routine.use.ahead and any(ahead.values()):
                call.function = replace(routine, use=replace(routine.use, ahead=tuple(
                    [(k, step) for k, step in ahead.items() if step])))

    def prefetch_distance(self, nest: Nest, operand: Operand) -> int:
        """Return the distance in bytes of an input's prefetch; 0 if its rows are long or few, or no innermost loop
        walks them."""
        order, size = schedule(nest).order, operand.dtype.itemsize
        if len(order) < 2 or order[-1] != schedule(nest).vector or operand.strides[order[-1]] != 1:
            return 0
        row, step = nest.extents[order[-1]] * size, operand.strides[order[-2]] * size
        if not host.LINE <= row <= self.short or abs(step) < host.PAGE or nest.extents[order[-2]] < LEAST_ROWS:
            return 0
        return 2 * self.short // row * step
