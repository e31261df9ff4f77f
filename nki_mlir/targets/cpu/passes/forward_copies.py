# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""forward-copies: read the kernel's array instead of a tile that is only a copy of it.

before:  copy(x + 4096 * i, tile); maximum(tile, sums); exp(tile, sums, y)
after:   maximum(x + 4096 * i, sums); exp(x + 4096 * i, sums, y)

The pass forwards a tile if only one copy of an input writes the tile, and nothing writes the input before the tile's
last use. A product may read its factor with the columns from the input in two cases: if its rows fill no more than a
register tile, so that it reads each element once, or if rows of the factor are no longer than those of a register tile,
and are adjacent.
"""

from collections.abc import Mapping, Sequence

from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.contraction import contraction_of, tile_of
from nki_mlir.targets.cpu.forwarding import filled_tile, reading_source
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.lanes import MOST_SHUFFLED
from nki_mlir.targets.cpu.schedule import schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion
from nki_mlir.waist.recognize import is_copy

Readers = dict[cpu.Compute, cpu.Compute]            # each computation, and the one that reads the source instead


class ForwardCopies(FunctionPass, name="forward-copies"):
    least: int = 4_096          # elements of a tile: with fewer, routines that tiles of all arrays share save more

    def rewrite(self, function: NativeFunction) -> None:
        copies = [(block, node) for block in cpu.blocks(function.body) for node in block.nodes
                  if isinstance(node, cpu.Compute) and self.is_copied_input(function, node)]
        users = function.users() if copies else {}
        changed: Readers = {}
        dropped: set[object] = set()               # copies, and the buffers that they wrote
        for block, copy in copies:
            tile = copy.regions[1].root
            assert isinstance(tile, cpu.ScratchBuffer)
            readers = readers_on_source(copy, users[tile], changed)
            if readers and is_kept_for(function, block, copy, readers):
                changed |= readers
                dropped |= {copy, tile}
        for block in cpu.blocks(function.body) if dropped else ():
            block.nodes[:] = [changed.get(node, node) if isinstance(node, cpu.Compute) else node
                              for node in block.nodes if node not in dropped and not (
                                  isinstance(node, cpu.Allocate) and node.buffer in dropped)]

    def is_copied_input(self, function: NativeFunction, copy: cpu.Compute) -> bool:
        """Return whether a computation copies an input to all of a tile that is large enough."""
        return copy.nest.elements >= self.least and is_copy(copy.nest) and filled_tile(copy) is not None and (
            copy.regions[0].root in function.inputs)


def readers_on_source(copy: cpu.Compute, users: Sequence[cpu.RoutineCall], changed: Mapping[cpu.Compute, cpu.Compute]
                      ) -> Readers:
    """Return the computations that read a copied tile, each with the computation that reads the source instead. Return
    none if one of them cannot read the source."""
    first_user, *later_users = users
    if first_user is not copy:
        return {}
    readers: Readers = {}
    for user in later_users:
        reader = on_source(changed.get(user, user), copy) if isinstance(user, cpu.Compute) else None
        if reader is None:
            return {}
        readers[user] = reader                                              # type: ignore[index]
    return readers if len(readers) == 1 or _has_long_rows(copy.nest) else {}


def on_source(user: cpu.Compute, copy: cpu.Compute) -> cpu.Compute | None:
    """Return a computation that reads the source instead of the tile; None if that is impossible, or slower."""
    if contraction_of(user.nest) is not None and not reads_a_panel(user, copy) and not reads_once(user, copy):
        return None
    nest, regions, tile = user.nest, list(user.regions), copy.regions[1].root
    if any(region.root is tile for region in user.output_regions):
        return None
    changed = [k for k, region in enumerate(regions) if region.root is tile]
    for k in changed:
        forwarded = _at_source(copy, nest, k, regions[k])
        if forwarded is None:
            return None
        nest, regions[k] = forwarded
    nest = nest.simplified
    vector = schedule(nest).vector
    if vector is not None and any(abs(nest.inputs[k].strides[vector]) > MOST_SHUFFLED for k in changed):
        return None
    return cpu.compute(nest, regions, user.symbols, user.streams)


def reads_a_panel(product: cpu.Compute, copy: cpu.Compute) -> bool:
    """Return whether a product reads its columns from a copied tile whose rows are adjacent in the source, too, and no
    longer than those of a register tile."""
    contraction = contraction_of(product.nest)
    if contraction is None or not isinstance(product.function, Nest) or len(product.nest.reduced) != 1 or (
            len(copy.nest.extents) != 1):
        return False
    (summed,), columns = product.nest.reduced, product.nest.extents[contraction.column]
    tile = copy.regions[1].root
    return [region.root for region in product.regions].index(tile) == contraction.vector and (
        product.nest.inputs[contraction.vector].strides[summed] == columns <= tile_of(columns).width
        and copy.nest.inputs[0].strides == copy.nest.outputs[0].strides == (1,))


def reads_once(product: cpu.Compute, copy: cpu.Compute) -> bool:
    """Return whether a product reads its columns from a copied tile, each element once: it has no more rows than a
    register tile."""
    contraction = contraction_of(product.nest)
    if contraction is None or not isinstance(product.function, Nest) or len(product.nest.reduced) != 1:
        return False
    rows = 1 if contraction.row is None else product.nest.extents[contraction.row]
    columns = product.nest.extents[contraction.column]
    return [region.root for region in product.regions].index(copy.regions[1].root) == contraction.vector and (
        rows <= tile_of(columns).rows and copy.nest.inputs[0].strides == copy.nest.outputs[0].strides)


def is_kept_for(function: NativeFunction, block: cpu.NativeBlock, copy: cpu.Compute, readers: Readers) -> bool:
    """Return whether the readers are in the copy's block, and its source stays unchanged until the last of them
    ends."""
    at = block.nodes.index(copy)
    last_reader, inside = at, 0
    for k, node in enumerate(block.nodes[at + 1:], at + 1):
        count = sum(call in readers for call in cpu.calls_in(node))
        last_reader, inside = (k, inside + count) if count else (last_reader, inside)
        if inside == len(readers):
            break
    if inside < len(readers):
        return False
    overwritten = inputs_written(function, block.nodes[at + 1:last_reader + 1])
    return overwritten is not None and copy.regions[0].root not in overwritten


def inputs_written(function: NativeFunction, nodes: Sequence[cpu.Node]) -> set[object] | None:
    """Return the inputs that some nodes write; None where that is unknown."""
    roots: set[object] = set()
    if function.inputs <= function.only_read:
        return roots
    for call in cpu.calls_in(*nodes):
        if isinstance(call, cpu.Compute):
            roots |= {region.root for region in call.output_regions if region.root in function.inputs}
        elif call.function != "nki_check":
            return None
    return roots


def _has_long_rows(copy: Nest) -> bool:
    """Return whether the source is contiguous, or has contiguous pieces of a page or more: short pieces that are far
    apart leave the caches."""
    source, long = copy.inputs[0], host.PAGE // copy.inputs[0].dtype.itemsize
    return source.strides[-1:] == (1,) and (len(copy.extents) == 1 or copy.extents[-1] >= long)


def _at_source(copy: cpu.Compute, user: Nest, operand: int, region: ByteRegion
               ) -> tuple[Nest, ByteRegion] | None:
    """Return the user's nest with the strides that an operand has in the source of the copy, and its region there."""
    target, source = copy.regions[1], copy.regions[0]
    copied, source_strides = copy.nest.outputs[0].strides, copy.nest.inputs[0].strides
    if user.inputs[operand].dtype is not copy.nest.inputs[0].dtype:
        return None
    if copied == source_strides:                    # all of it has the same layout
        return user, source.moved(region.offset).moved(target.offset, -1)
    if not user.forms:
        user = divided_by_rows(user, user.inputs[operand].strides, copied[0])
    return reading_source(user, operand, region, copy)


def divided_by_rows(nest: Nest, strides: tuple[int, ...], row: int) -> Nest:
    """Return the nest with each axis that spans several rows of these strides split in two: over rows, and within a
    row."""
    for axis, (step, extent) in enumerate(zip(strides, nest.extents)):
        if 0 < step < row and row % step == 0 and extent > row // step and extent % (row // step) == 0:
            return divided_by_rows(nest.divided(axis, row // step), (*strides[:axis], row, *strides[axis:]), row)
    return nest
