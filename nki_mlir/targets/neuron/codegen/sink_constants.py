# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""sink-constants: move the write of a constant before the next use of its buffer, or remove it.

before:  memset p_0 = 0; memset p_1 = 0            after:  p_0  = l.T @ m      (the first product of a sum overwrites)
         p_0 += l.T @ m; copy p_0                          copy p_0
         p_1 += l.T @ m; copy p_1                          p_1  = l.T @ m; copy p_1

The live range of a buffer then begins at its first use, so that buffers with one address may follow each other. The
pass removes a constant that nothing uses, and one that the next operations overwrite before any of them reads elements
that they have not written. Several operations may overwrite it together, such as its even and its odd elements.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.analysis.dead_code import covers
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.nisa.matmul import NcMatmulOp
from nki_mlir.dialects.nisa.movement import MemsetOp
from nki_mlir.dialects.op import changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Branch,
    Code,
    DeviceBuffer,
    InstructionStep,
    Loop,
    blocks,
    nodes_in,
    sub_blocks,
    tiles_of,
)
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER


class SinkConstants(RecordsPass, name="sink-constants", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        sink_constants(code)


def sink_constants(code: Code) -> None:
    """Move or drop constants, in place."""
    for block in blocks(code.body):
        block.nodes = list(sunk(block))


def sunk(block: Block) -> Iterator[object]:
    """Yield the block's nodes, each constant right before the next one that touches its buffer."""
    waiting: dict[DeviceBuffer, list[InstructionStep]] = {}
    local = set(block.buffers)
    for at, node in enumerate(block.nodes):
        constant = is_constant(node)
        for buffer in {tile.handle: None for tile in touched(node)} if waiting else ():
            if buffer in waiting and not constant:
                node, moved = first_use(node, waiting.pop(buffer))
                if moved and not overwritten(buffer, block.nodes[at:], buffer in local):
                    yield from moved
        if constant:
            waiting.setdefault(node.op.dst.handle, []).append(node)
        else:
            yield node
    for buffer, steps in waiting.items():
        if buffer not in local:               # code behind the block may use it
            yield from steps


class PartitionBytes(NamedTuple):
    """Ranges of partitions and of bytes in each: the first, and one past the last."""

    first: int
    behind: int
    low: int
    high: int


def box_of(tile: Tile, dense: bool) -> PartitionBytes | None:
    """Return the box that contains a tile; None if it is not known, or with ``dense`` if the tile does not fill it."""
    access, size = tile.access, tile.dtype.itemsize
    if access.symbols_used() or access.partition is None or access.dims[0][0] not in (0, 1):
        return None
    low, high = (end + access.free.const for end in access.reach())
    if dense and tile.free_elements != high - low + 1:
        return None
    first_partition = access.partition.const
    return PartitionBytes(first_partition, first_partition + (tile.partitions - 1) * access.dims[0][0] + 1,
                          low * size, (high + 1) * size)


def within(box: PartitionBytes, boxes: Sequence[PartitionBytes]) -> bool:
    """Return whether boxes together contain a box."""
    if box.first >= box.behind or box.low >= box.high:
        return True
    for k, other in enumerate(boxes):
        first_partition, behind = max(box.first, other.first), min(box.behind, other.behind)
        low, high = max(box.low, other.low), min(box.high, other.high)
        if first_partition < behind and low < high:
            parts = (box._replace(behind=first_partition), box._replace(first=behind),
                     PartitionBytes(first_partition, behind, box.low, low), PartitionBytes(first_partition, behind,
                                                                                           high, box.high))
            return all(within(part, boxes[k + 1:]) for part in parts)
    return False


def overwritten(buffer: DeviceBuffer, nodes: Sequence[InstructionStep | Loop], dies: bool) -> bool:
    """Return whether nodes read nothing of a buffer but what they have written themselves, until they have written all
    of it or, where it ``dies``, to the last of them."""
    written: list[PartitionBytes] = []
    combs: dict[tuple[int, int], np.ndarray] = {}       # bytes that interleaved writes to some partitions have written
    row = prod(buffer.shape[1:]) * buffer.dtype.itemsize
    full_box = PartitionBytes(0, buffer.shape[0], 0, row)
    for node in nodes:
        if all(tile.handle is not buffer for tile in touched(node)):
            continue
        if not isinstance(node, InstructionStep) or node.op.mask or node.op.limits:
            return False
        for _, tile in node.op.sources():
            if tile.handle is buffer:
                read = box_of(tile, dense=False)
                if read is None or not within(read, written):
                    return False
        targets = [tile for _, tile in node.op.targets() if tile.handle is buffer]
        for tile in targets:
            box = box_of(tile, dense=True)
            if box is not None:
                written.append(box)
            elif (around := box_of(tile, dense=False)) is not None:
                comb = combs.setdefault((around.first, around.behind), np.zeros(row, np.bool_))
                comb[bytes_of(tile)] = True
        for (first_partition, behind), comb in combs.items():
            for box in written:
                if box.first <= first_partition and behind <= box.behind:
                    comb[box.low:box.high] = True
            if comb.all():
                written.append(PartitionBytes(first_partition, behind, 0, row))
        if targets and within(full_box, written):
            return True
    return dies


def bytes_of(tile: Tile) -> np.ndarray:
    """Return the bytes of a partition that a tile without symbols accesses."""
    positions = np.full(1, tile.access.free.const)
    for step, count in tile.access.free_dims:
        positions = (positions[:, None] + step * np.arange(count)).reshape(-1)
    size = tile.dtype.itemsize
    return (positions[:, None] * size + np.arange(size)).reshape(-1)


def is_constant(node: Branch | InstructionStep | Loop) -> bool:
    return (isinstance(node, InstructionStep) and type(node.op) is MemsetOp
            and not (node.op.symbols or node.op.mask or node.op.limits or NO_REORDER in node.op.extra))


def touched(node: InstructionStep | Loop) -> Iterator[Tile]:
    """Yield the tiles that a node uses, those of its inner blocks included."""
    yield from tiles_of(node)
    for inner in sub_blocks(node):
        for part in nodes_in(inner):
            yield from tiles_of(part)


def first_use(node: object, constants: list[InstructionStep]) -> tuple[object, list[InstructionStep]]:
    """Return the node that uses the buffer next, with the constants that it still needs in front of it."""
    if not isinstance(node, InstructionStep) or node.op.mask or node.op.limits:
        return node, constants
    op: Any = node.op
    if isinstance(op, NcMatmulOp) and op.accumulate and len(constants) == 1:
        zeros: Any = constants[0].op
        if zeros.value == 0 and zeros.dst.handle is op.dst.handle and (
                covers(op.dst, zeros.dst) and covers(zeros.dst, op.dst)):
            return InstructionStep(changed(op, lambda tile: tile, accumulate=False), node.location), []
    read = {tile.handle for _, tile in op.sources()}
    written = [tile for _, tile in op.targets()]
    return node, [s for s in constants if s.op.dst.handle in read                       # type: ignore[attr-defined]
                  or not any(w.handle is s.op.dst.handle and covers(w, s.op.dst)        # type: ignore[attr-defined]
                             for w in written)]
