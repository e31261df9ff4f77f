# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trim-tiles: compute only the elements of a tile that operations read.

before:  set(t, 512 columns);  copy(b, t, 277 columns);  sums += a.T @ t, 512 columns;  copy(sums, out, 277 columns)
after:   copy(b, t, 277 columns);  sums += a.T @ t, 277 columns;  copy(sums, out, 277 columns)

Masked loads and stores at the edges of arrays create such tiles: without the elements beyond the edge, their products
become pieces of one product. The pass drops a nest whose results the next use of the tile overwrites, and a search
whose results nothing reads.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.forwarding import written_elements
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.schedule import dims_of
from nki_mlir.targets.cpu.searches import Search
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion

TABLES = frozenset({"gather", "lookup"})        # steps that may read any element of an operand
Sizes = tuple[int, int]                         # rows, and bytes of a row


class TrimTiles(FunctionPass, name="trim-tiles"):
    least: int = 4_096          # elements of a tile: with fewer, nests that all kernels share save more

    def rewrite(self, function: NativeFunction) -> None:
        changed = True
        while changed:
            changed = self.trim_once(function)

    def trim_once(self, function: NativeFunction) -> bool:
        """Trim the tiles, later ones first; return whether a computation changed, so that it may read less."""
        new_calls: dict[cpu.RoutineCall, cpu.Compute] = {}
        for tile, users in reversed(function.users().items()):
            calls = [new_calls.get(user, user) for user in users]
            if not all(is_plain(call) for call in calls):
                continue
            trimmed = self.trimmed(tile, calls)                                 # type: ignore[arg-type]
            new_calls |= {user: call for user, call in zip(users, trimmed) if call is not new_calls.get(user, user)}
        function.replace_calls(new_calls)
        return drop_unread(function) or drop_overwritten(function) or bool(new_calls)

    def trimmed(self, tile: cpu.ScratchBuffer, calls: Sequence[cpu.Compute]) -> list[cpu.Compute]:
        """Return the calls that use a tile, in which writers compute only the elements that other calls read."""
        accesses = [(call, k) for call in calls for k, region in enumerate(call.regions) if region.root is tile]
        reads = [(call, k) for call, k in accesses if k < len(call.nest.inputs)]
        writers = {call for call, k in accesses if k == len(call.nest.inputs)}
        line, items = row_of(accesses), [call.nest.operands[k].dtype.itemsize for call, k in accesses]
        if not reads or not line or any(call in writers for call, _ in reads) or tile.size < self.least * items[0]:
            return [*calls]
        sizes = [read_sizes(call.regions[k], dims_of(call.nest, k), items[0], line) for call, k in reads]
        bounded = [size for size in sizes if size is not None]
        if len(bounded) < len(sizes):
            return [*calls]
        rows, width = max(row for row, _ in bounded), max(column for _, column in bounded)
        return [trimmed_writer(call, line, (rows, width)) if call in writers else call for call in calls]


def is_plain(call: cpu.RoutineCall) -> bool:
    """Return whether a call computes a nest of one output whose operands determine all elements that it accesses."""
    return isinstance(call, cpu.Compute) and isinstance(call.function, Nest) and len(call.nest.outputs) == 1 and not (
        call.nest.mask or call.nest.limits or call.symbols or call.streams) and all(
        step.kind not in TABLES for step in call.nest.steps)


def row_of(accesses: Sequence[tuple[cpu.Compute, int]]) -> int:
    """Return the bytes from one row of a tile to the next: the least step that is not one element. Return 0 if other
    steps are not multiples of it, or elements have several sizes."""
    sizes = {call.nest.operands[k].dtype.itemsize for call, k in accesses}
    steps = {step for call, k in accesses for step, count in dims_of(call.nest, k) if step and count > 1}
    line = min(steps - sizes, default=0)
    return line if len(sizes) == 1 and line > 0 and all(step % line == 0 for step in steps - sizes) else 0


def read_sizes(region: ByteRegion, dims: Sequence[tuple[int, int]], item: int, line: int) -> Sizes | None:
    """Return how many rows from the tile's start on, and how many bytes of each, contain all bytes of an access; None
    if that is unknown."""
    if region.offset.symbols or region.offset.axes or region.offset.const < 0:
        return None
    row, column = divmod(region.offset.const, line)
    end = column + item
    for step, count in dims:
        if step % line == 0:
            row += step // line * (count - 1)
        elif step == item and end == column + item and not column and count * item > line:
            if count * item % line:
                return None
            row, end = row + count * item // line - 1, line             # complete rows
        else:
            end += step * (count - 1)
    return (row + 1, end) if end <= line else None


def trimmed_writer(call: cpu.Compute, line: int, sizes: Sizes) -> cpu.Compute:
    """Return a computation of only the output elements within the first rows and the first bytes of each, as ``sizes``
    says; the computation itself if it computes no others."""
    nest, output = call.nest, len(call.nest.inputs)
    item = nest.outputs[0].dtype.itemsize
    if call.regions[output].offset != Linear() or any(step < 0 for step, _ in dims_of(nest, output)):
        return call
    for axis, extent in enumerate(nest.extents):
        if nest.outputs[0].strides[axis] == 1 and extent * item > line:
            if extent * item % line:
                return call
            nest = nest.divided(axis, line // item)
            break
    steps = [step * item for step in nest.outputs[0].strides]
    if steps.count(line) > 1 or steps.count(item) > 1 or not set(steps) <= {0, item, line}:
        return call
    most = {line: sizes[0], item: sizes[1] // item}
    extents = tuple([min(extent, most.get(step, extent)) for step, extent in zip(steps, nest.extents)])
    if extents == nest.extents:
        return call
    return cpu.compute(replace(nest, extents=extents).simplified, call.regions)


def drop_unread(function: NativeFunction) -> bool:
    """Drop searches if no other call uses the tiles that they write."""
    searches = [call for call in cpu.calls_in(*function.body.nodes)
                if isinstance(call, cpu.TileCall) and isinstance(call.function, Search)]
    users = function.users() if searches else {}

    def is_unread(call: cpu.TileCall) -> bool:
        results = [region.root for (field, _), region in zip(call.op.operands(), call.regions) if field.writes]
        return all(isinstance(root, cpu.ScratchBuffer) and users[root] == [call] for root in results)
    dropped = {call for call in searches if is_unread(call)}
    for block in cpu.blocks(function.body) if dropped else ():
        block.nodes[:] = block.without(dropped)
    return bool(dropped)


def drop_overwritten(function: NativeFunction) -> bool:
    """Drop computations of a tile if the next use, in the same block, writes the same elements without reading them."""
    block_of = {node: number for number, block in enumerate(cpu.blocks(function.body)) for node in block.nodes}
    dropped = {first for tile, calls in function.users().items() for first, second in pairwise(calls)
               if block_of[first] == block_of[second] and is_plain(first) and is_plain(second)
               and overwrites(second, first, tile)}                                 # type: ignore[arg-type]
    for block in cpu.blocks(function.body) if dropped else ():
        block.nodes[:] = [node for node in block.nodes if node not in dropped]
    return bool(dropped)


def overwrites(second: cpu.Compute, first: cpu.Compute, tile: cpu.ScratchBuffer) -> bool:
    """Return whether a computation writes all elements of a tile that another one writes, and reads none of the
    tile."""
    before, after = first.regions[-1], second.regions[-1]
    nest = second.nest
    return (before.root is after.root is tile and before.offset == after.offset and not nest.uses(nest.first_output)
            and not nest.reduced and all(region.root is not tile for region in second.regions[:-1])
            and first.nest.outputs[0].dtype is nest.outputs[0].dtype
            and written_elements(first.nest) == written_elements(nest))
