# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts about the blocks of a kernel function that decide how its buffers and tiles are printed.

Which buffers are filled before their first use, how many partitions operations use, which operations write a buffer,
and which tiles only a copy reads.
"""

import itertools
from collections import Counter

from nki_mlir.analysis.mask_boxes import resolved
from nki_mlir.bindings import Value
from nki_mlir.dialects.access import Tile, full_tile
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.mlir_ops import read_op
from nki_mlir.dialects.nisa.dynamic_access import GatherColumnsOp
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.random import DropoutOp, RandOp
from nki_mlir.dialects.nki.movement import Copying, CopyOp, Filling
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import UINT32
from nki_mlir.waist import function as waist


def generator_of(node: waist.BufferAllocation) -> str | None:
    """Return the engine whose generator has this buffer as its state, or None for any other buffer."""
    name = node.op.attributes["nki.name"].value if "nki.name" in node.op.attributes else ""
    if memref_parts(node.result.type) != ((1, 2), UINT32, "sbuf"):
        return None
    return {"random_state": "vector", "gpsimd_random_state": "gpsimd"}.get(name)


def decides_values(state: Value) -> bool:
    """Return whether the state of a generator decides a value: not if only dropout of no element or of all draws."""
    users = [read_op(use.owner.operation) for use in state.uses]
    return not all(isinstance(op, Filling) or (isinstance(op, DropoutOp) and op.is_certain) for op in users)


def filled_first(block: waist.FunctionBlock) -> set[Value]:
    """Return the buffers whose first operation writes every element and reads none."""
    filled: set[Value] = set()
    used_before: set[Value] = set()
    for node in block.nodes:
        for inner in waist.function_blocks(node):
            filled |= filled_first(inner)
        op = node.instruction if isinstance(node, waist.TileInstruction) else None
        if op is not None and not op.mask:
            read = {tile.handle for _, tile in op.sources()}
            filled |= {tile.handle for _, tile in op.targets() if tile.handle not in used_before | read
                       and tile.shape == tile.base_shape and tile.dtype is tile.base_dtype and is_plain(tile)}
        for part in waist.nodes_of(waist.FunctionBlock([node])):
            used_before |= set(part.op.operands)
    return filled


def used_rows(body: waist.FunctionBlock) -> dict[Value, int]:
    """Return the number of partitions of each on-chip buffer that operations use."""
    rows: dict[Value, int] = {}
    unbounded: set[Value] = set()
    for node in waist.nodes_of(body):
        if not isinstance(node, waist.TileInstruction):
            unbounded |= set() if isinstance(node, waist.BufferAllocation) else set(node.op.operands)
            continue
        op = in_its_box(node.instruction)
        if op is None:
            continue
        tables = [op.table.handle] if isinstance(op, DataAddressed) else []
        for _, tile in op.operands():
            partition, (step, count) = tile.access.partition, tile.access.dims[0]
            if not tile.on_chip or partition is None or step < 0 or tile.handle in tables:
                unbounded.add(tile.handle)
                continue
            _, last = partition.interval(op.ranges)
            rows[tile.handle] = max(rows.get(tile.handle, 1), last + (count - 1) * step + 1)
    return {handle: count for handle, count in rows.items() if handle not in unbounded}


def writers_of(block: waist.FunctionBlock) -> Counter[Value]:
    """Return for each buffer the number of operations that write it, in a block and the blocks inside."""
    return Counter(t.handle for node in waist.nodes_of(block) if isinstance(node, waist.TileInstruction)
                   for _, t in node.instruction.targets())


def unread_tiles(block: waist.FunctionBlock) -> set[Value]:
    """Return the tiles on chip that operations of a block write and nothing reads."""
    written, read = set[Value](), set[Value]()
    for node in waist.nodes_of(block):
        if isinstance(node, waist.TileInstruction):
            op = node.instruction
            written |= {tile.handle for _, tile in op.targets() if tile.on_chip}
            read |= {tile.handle for name, tile in op.sources() if not op.overwrites(name)}
        elif not isinstance(node, waist.BufferAllocation):
            read |= set(node.op.operands)
    return written - read


def has_dynamic_loop(node: waist.FunctionNode) -> bool:
    """Return whether a node is or contains a loop with a condition."""
    return isinstance(node, waist.WhileLoop) or any(
        isinstance(inner, waist.WhileLoop) for inner in waist.nodes_of(waist.FunctionBlock([node])))


def copied_tiles(block: waist.FunctionBlock) -> dict[Value, GatherColumnsOp | RandOp]:
    """Return the operations that draw numbers or pick columns into a tile that only the next operation reads, which
    copies it."""
    copied: dict[Value, GatherColumnsOp | RandOp] = {}
    operations = [node for node in block.nodes if not isinstance(node, waist.BufferAllocation)]
    for node in operations:
        for inner in waist.function_blocks(node):
            copied |= copied_tiles(inner)
    for node, after in itertools.pairwise(operations):
        if not isinstance(node, waist.TileInstruction) or not isinstance(after, waist.TileInstruction):
            continue
        op, copy = node.instruction, after.instruction
        if not isinstance(op, GatherColumnsOp | RandOp) or not isinstance(copy, Copying) or op.mask or copy.mask:
            continue
        is_simple = copy.dst.on_chip and all(t.handle == op.dst.handle and t.shape == t.base_shape and is_plain(t)
                                             for t in (op.dst, copy.src))
        fits = copy.dst.dtype is op.dst.dtype if isinstance(op, RandOp) else op.group == Machine.gpsimd_group
        is_addressed_alike = not op.symbols or op.symbols == copy.symbols
        if is_simple and fits and is_addressed_alike and len(list(op.dst.handle.uses)) == 2:
            copied[op.dst.handle] = op
    return copied


def is_plain(tile: Tile) -> bool:
    """Return whether a tile has the elements of its buffer in their order."""
    full = full_tile(tile.handle, tile.base_shape, tile.base_dtype, tile.space).access
    same_steps = all(count == 1 or step == full_step for (step, count),
                     (full_step, _) in zip(tile.access.dims, full.dims))
    return same_steps and tile.shape == full.shape and (tile.access.partition, tile.access.free) == (
        full.partition, full.free)


def keeps_elements(op: Op) -> bool:
    """Return whether an operation copies a tile to itself, for which the lowering emits no instruction."""
    return isinstance(op, CopyOp) and not op.mask and op.dst.handle == op.src.handle and (
        op.dst.access == op.src.access and op.dst.dtype is op.src.dtype)


def in_its_box(op: Op) -> Op | None:
    """Return the operation on the smallest box around the elements that its mask selects, None if it selects none."""
    if not op.mask and not op.limits:
        return op
    return resolved(op, lambda form: form.interval(op.ranges))
