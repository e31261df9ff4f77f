# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""merge-programs: merge programs of a launch grid whose tiles are adjacent parts of the same rows.

before:  program (i, j):  add(a + 512 KiB * i + 2 KiB * j, ...)      on tiles of 128 x 512 elements
after:   program i:       add(a + 512 KiB * i, ...)                  on tiles of 128 x 1024 elements

A core then reads complete rows in the order of memory, and the processor prefetches no unused lines between the tiles.
The pass merges all programs along the last axis of the grid. Programs of a launch run in any order, so merged programs
may be interleaved; the pass requires that they only compute on the kernel's arrays, and read no element that they
write.
"""

from dataclasses import replace
from math import prod

from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.runtime import host
from nki_mlir.waist.overlap import ByteRegion


class MergePrograms(FunctionPass, name="merge-programs"):
    items: int = 2              # least programs that a thread must have: with fewer, threads may wait for the last one

    def rewrite(self, function: NativeFunction) -> None:
        grid = function.kernel.grid
        if function.has_variants or function.kernel.may_alias or len(grid) != function.axes or len(grid) < 2:
            return
        count, nodes = grid[-1], [node for node in function.body.nodes if not isinstance(node, cpu.Allocate)]
        if count == 1 or prod(grid[:-1]) < self.items * host.threads():
            return
        merged = [merged_call(function, node, count) if isinstance(node, cpu.Compute) else None for node in nodes]
        if nodes and None not in merged:                # merged computations use no allocated buffer
            function.body.nodes[:] = [call for call in merged if call is not None]
            function.merged = count
            function.notes.append(f"merge-programs: {count} programs along axis {len(grid) - 1} of the grid run as one")


def merged_call(function: NativeFunction, call: cpu.Compute, count: int) -> cpu.Compute | None:
    """Join the computations of several programs to one on longer rows; None if their operands are not parts of rows."""
    nest, slot = call.nest, cpu.FIRST_ID + function.axes - 1
    outputs = call.output_regions
    if nest.mask or nest.forms or call.symbols or contraction_of(nest) is not None or not all(
            region.root in function.only_written for region in outputs) or any(
            isinstance(region.root, cpu.ScratchBuffer) for region in call.regions):
        return None
    steps = [dict(region.offset.symbols).get(slot, 0) for region in call.regions]
    for axis, extent in enumerate(nest.extents):
        if axis not in nest.reduced and all(operand.strides[axis] == 1 for operand in nest.outputs) and all(
                step == operand.strides[axis] * operand.dtype.itemsize * extent
                for step, operand in zip(steps, nest.operands)):
            extents = (*nest.extents[:axis], count * extent, *nest.extents[axis + 1:])
            regions = [of_first_program(region, slot, step) for region, step in zip(call.regions, steps)]
            rows = replace(nest, extents=extents).simplified
            return cpu.compute(rows, regions, (), call.streams)
    return None


def of_first_program(region: ByteRegion, slot: int, step: int) -> ByteRegion:
    """Return the region of the program whose id in the slot is 0."""
    symbols = tuple((symbol, factor) for symbol, factor in region.offset.symbols if symbol != slot)
    return replace(region, offset=replace(region.offset, symbols=symbols)) if step else region
