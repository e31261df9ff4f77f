# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Merges tiles that equal instructions write, and that are used later, into one tensor with an axis for the tiles.

before:  w0 = alloc [128, 512]          after:  w = alloc [128, 4, 512]
         load w0, rows 0                        load w[:, 0], rows 0
         w1 = alloc [128, 512]                  load w[:, 1], rows 128
         load w1, rows 128                      ...
         ...                                    multiply w[:, 0]; multiply w[:, 1]; ...
         multiply w0; multiply w1; ...

Instructions that repeat for each tile then differ only in their starts, so that ``roll-repeats`` turns them into a
loop. Tiles are only merged if each is written before the last use of all others: merged or not, they need the same
memory.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import prod

from nki_mlir.analysis.effects import defining, local_effects
from nki_mlir.bindings import Block, Operation, Value, ir
from nki_mlir.dialects.access import HBM, SBUF, Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, write_op
from nki_mlir.dialects.op import REGISTERS, changed
from nki_mlir.transforms.roll_repeats import OperationItems


def merge_tiles(function: Operation) -> None:
    """Merge the tiles in SBUF that equal instructions of a function's body write from the same tensors."""
    block, = function.regions[0].blocks
    operations = [op.operation for op in block.operations]
    position = {op: k for k, op in enumerate(operations)}
    items, families = OperationItems(), defaultdict[object, list[tuple[Operation, int, int]]](list)
    for alloc in (op for op in operations if op.name == "memref.alloc"):
        buffer = alloc.results[0]
        users = sorted({use.owner.operation for use in buffer.uses}, key=lambda op: position.get(op, -1))
        if memref_parts(buffer.type)[2] != SBUF or not users or not all(
                user in position and is_tile_op(user) and not _is_register(user, buffer) for user in users):
            continue
        form, _, operands = items.described(users[0])
        sources = tuple(value for value in operands if value != buffer)
        if any(tile.handle == buffer for _, tile in read_op(users[0]).targets()) and len(sources) < len(operands):
            families[form, buffer.type, sources].append((alloc, position[users[0]], position[users[-1]]))
    arrays = [family for family in families.values() if len(family) > 1 and max(k for _, k, _ in family) < min(
        k for _, _, k in family)]
    for family in arrays:
        _gather([operations[start] for _, start, _ in family], operations[family[0][1]:family[-1][1]])
    for family in arrays:
        _merge([alloc for alloc, _, _ in family])
    _move_allocations(block)


def _move_allocations(block: Block) -> None:
    """Allocate each tile before the instruction that writes it, so that an iteration of a loop allocates what it
    alone uses, and tensors in HBM first. Tiles that several instructions write stay before all of them."""
    operations, used = [op.operation for op in block.operations], set[Value]()
    writers = Counter(buffer for op in operations for buffer in local_effects(op).writes)
    for op in operations:
        for value in op.operands:
            definition = defining(value)
            if value not in used and definition is not None and definition.name == "memref.alloc":
                is_in_hbm = memref_parts(value.type)[2] == HBM
                if is_in_hbm or writers[value] == 1:
                    definition.move_before(operations[0] if is_in_hbm else op)
            used.add(value)


def _gather(writers: Sequence[Operation], between: Sequence[Operation]) -> None:
    """Move the instructions that write the tiles after the first of them, if none in between writes what they read."""
    sources = local_effects(writers[0]).reads
    if not any(buffer in local_effects(op).writes for op in between for buffer in sources):
        for before, writer in pairwise(writers):
            writer.move_after(before)


def _is_register(operation: Operation, buffer: Value) -> bool:
    return any(tile.handle == buffer and field.name in REGISTERS for field, tile in read_op(operation).operands())


def _merge(family: Sequence[Operation]) -> None:
    """Replace buffers of one type by parts of one buffer."""
    make, first = Attributes(), family[0]
    shape, dtype, space = memref_parts(first.results[0].type)
    larger = (shape[0], len(family), *shape[1:])
    merged = ir.Operation.create("memref.alloc", results=[make.memref(larger, dtype, space)],
                                 attributes={name: first.attributes[name] for name in first.attributes},
                                 loc=first.location, ip=ir.InsertionPoint(first)).results[0]
    numbers = {alloc.results[0]: k for k, alloc in enumerate(family)}

    def part(tile: Tile) -> Tile:
        if tile.handle not in numbers:
            return tile
        start = numbers[tile.handle] * prod(shape[1:]) * dtype.bits // tile.dtype.bits
        moved = Tile(merged, tile.space, larger, tile.base_dtype, tile.access, tile.label)
        return moved.patterned(free=tile.access.free.plus(Linear(start)))
    for operation in {use.owner.operation: None for alloc in family for use in alloc.results[0].uses}:
        write_op(changed(read_op(operation), part), make, operation.location, ir.InsertionPoint(operation))
        operation.erase()
    for alloc in family:
        alloc.erase()
