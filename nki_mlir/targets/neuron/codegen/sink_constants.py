# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""sink-constants: move the write of a constant before the next use of its buffer, or remove it.

before:  memset p_0 = 0; memset p_1 = 0            after:  p_0  = l.T @ m      (the first product of a sum overwrites)
         p_0 += l.T @ m; copy p_0                          copy p_0
         p_1 += l.T @ m; copy p_1                          p_1  = l.T @ m; copy p_1

The live range of a buffer then begins at its first use, so that buffers with one address may follow each other. The
pass removes a constant that nothing uses, and one that the next operations overwrite before any of them reads elements
that they have not written. Several operations may overwrite it together, such as its even and its odd elements. With
``move=false`` it removes these constants only, so that the others do not come between instructions to be fused.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from nki_mlir.analysis.dead_code import covers
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.matmul import NcMatmulOp
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.dialects.op import changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass


class SinkConstants(RecordsPass, name="sink-constants", reads=Level.NISA):
    move: bool = True           # also move constants

    def rewritten(self, code: records.Code) -> None:
        sink_constants(code, self.move)


def sink_constants(code: records.Code, move: bool = True) -> None:
    """Move or drop constants, in place."""
    for block in records.blocks(code.body):
        if not any(map(is_constant, block.nodes)):
            continue
        after = list(sink(block))
        block.nodes = after if move else in_their_order(block.nodes, after)


def in_their_order(before: list[Any], after: list[Any]) -> list[Any]:
    """Return the remaining nodes of a block, with each constant where it was."""
    constants = {node for node in after if is_constant(node)}
    instructions = iter([node for node in after if node not in constants])
    return [node if node in constants else next(instructions) for node in before
            if node in constants or not is_constant(node)]


def sink(block: records.Block) -> Iterator[object]:
    """Yield the block's nodes, each constant right before the next one that touches its buffer."""
    nodes, local = block.nodes, set(block.buffers)
    uses: dict[records.DeviceBuffer, list[int]] = {}            # positions of nodes that use buffers with constants
    waiting: dict[records.DeviceBuffer, list[records.InstructionStep]] = {}
    constants = {node.op.dst.handle for node in nodes if is_constant(node)}
    for at, node in enumerate(nodes) if constants else ():
        for buffer in constants.intersection([tile.handle for tile in touched(node)]):
            uses.setdefault(buffer, []).append(at)
    for at, node in enumerate(nodes):
        if is_constant(node):
            waiting.setdefault(node.op.dst.handle, []).append(node)
            continue
        for buffer in dict.fromkeys([tile.handle for tile in touched(node)]) if waiting else ():
            if buffer in waiting:
                node, moved = first_use(node, waiting.pop(buffer))
                positions = uses[buffer]
                users = (nodes[positions[k]] for k in range(bisect_left(positions, at), len(positions)))
                if moved and not overwritten(buffer, users, buffer in local):
                    yield from moved
        yield node
    for buffer, steps in waiting.items():
        if buffer not in local:               # code after the block may use it
            yield from steps


def box_of(tile: Tile) -> tuple[slice, slice] | None:
    """Return the bounding box of a tile, its partitions and the bytes in each; None if they are not known."""
    access, size = tile.access, tile.dtype.itemsize
    if access.symbols_used() or access.partition is None or access.dims[0][0] not in (0, 1):
        return None
    low, high = (end + access.free.const for end in access.reach())
    first_partition = access.partition.const
    return (slice(first_partition, first_partition + (tile.partitions - 1) * access.dims[0][0] + 1),
            slice(low * size, (high + 1) * size))


def overwritten(buffer: records.DeviceBuffer, users: Iterable[records.InstructionStep | records.Loop], dies: bool
                ) -> bool:
    """Return whether the users of a buffer read only elements that they have written themselves, until they have
    written all of it or, if it ``dies``, up to the last user."""
    row = prod(buffer.shape[1:]) * buffer.dtype.itemsize
    # one row stands for all partitions, while it can
    written, missing = np.zeros((1, row), np.bool_), buffer.shape[0] * row
    for node in users:
        if not isinstance(node, records.InstructionStep) or node.op.mask or node.op.limits:
            return False
        for _, tile in node.op.sources():
            if tile.handle is buffer:
                if (box := box_of(tile)) is None:
                    return False
                written, partitions = with_rows(written, box[0], buffer.shape[0])
                if not written[partitions, box[1]].all():
                    return False
        for _, tile in node.op.targets():
            if tile.handle is buffer and (box := box_of(tile)) is not None:
                written, partitions = with_rows(written, box[0], buffer.shape[0])
                part = partitions, box[1] if is_dense(tile, box[1]) else np.unique(bytes_of(tile))
                missing -= int(np.count_nonzero(~written[part])) * (buffer.shape[0] // len(written))
                written[part] = True
        if not missing:
            return True
    return dies


def with_rows(written: np.ndarray, partitions: slice, count: int) -> tuple[np.ndarray, slice]:
    """Return the array with a row for each of ``count`` partitions, unless its one row can stand for all, and the rows
    of these partitions."""
    if len(written) == count:
        return written, partitions
    if partitions == slice(0, count):
        return written, slice(0, 1)
    return written.repeat(count, axis=0), partitions


def is_dense(tile: Tile, columns: slice) -> bool:
    """Return whether a tile without symbols has all bytes between its first and its last in a partition."""
    return bool(tile.free_elements * tile.dtype.itemsize == columns.stop - columns.start)


def bytes_of(tile: Tile) -> np.ndarray:
    """Return the bytes of a partition that a tile without symbols accesses."""
    positions = np.full(1, tile.access.free.const)
    for step, count in tile.access.free_dims:
        positions = (positions[:, None] + step * np.arange(count)).reshape(-1)
    size = tile.dtype.itemsize
    return (positions[:, None] * size + np.arange(size)).reshape(-1)


def is_constant(node: records.Branch | records.InstructionStep | records.Loop) -> bool:
    return (type(node) is records.InstructionStep and type(node.op) is MemsetOp
            and not (node.op.symbols or node.op.mask or node.op.limits or is_pinned(node.op)))


def touched(node: records.InstructionStep | records.Loop) -> Sequence[Tile]:
    """Return the tiles that a node uses, including the tiles of its inner blocks."""
    if type(node) is records.InstructionStep:
        return records.tiles_of(node)
    return [tile for part in (node, *chain.from_iterable(map(records.nodes_in, records.sub_blocks(node))))
            for tile in records.tiles_of(part)]


def first_use(node: object, constants: list[records.InstructionStep]) -> tuple[object, list[records.InstructionStep]]:
    """Return the node that uses the buffer next, with the constants that it still needs before it."""
    if not isinstance(node, records.InstructionStep) or node.op.mask or node.op.limits:
        return node, constants
    op: Any = node.op
    if isinstance(op, NcMatmulOp) and op.accumulate and len(constants) == 1:
        zeros: Any = constants[0].op
        if zeros.value == 0 and zeros.dst.handle is op.dst.handle and (
                covers(op.dst, zeros.dst) and covers(zeros.dst, op.dst)):
            return node.with_op(changed(op, lambda tile: tile, accumulate=False)), []
    read = {tile.handle for _, tile in op.sources()}
    written = [tile for _, tile in op.targets()]
    return node, [s for s in constants if s.op.dst.handle in read                       # type: ignore[attr-defined]
                  or not any(w.handle is s.op.dst.handle and covers(w, s.op.dst)        # type: ignore[attr-defined]
                             for w in written)]
