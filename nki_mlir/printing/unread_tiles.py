# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Erases operations that compute only what no result of the kernel needs, as the optimizer of streams does.

before:  load t; exp u, t; store out, t          after:  load t; store out, t

A reader would look for the use of such a tile. The passes of the printer leave some, too: a result that another
operation computes anew under its mask.
"""

from nki_mlir.analysis.dead_code import erase_dead_code
from nki_mlir.analysis.effects import defining, local_effects, memory_of
from nki_mlir.bindings import Operation, Value, operations_of
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.collectives import AllReduceOp
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.op import Op


def erase_unread(function: Operation) -> None:
    """Erase the operations of a function whose results nothing needs, and all other dead code.

    What stays: writes of the function's arguments, and of all tensors in HBM if programs exchange data; conditions of
    branches and loops; instructions whose order the kernel fixes, that print or exchange data, that check run-time
    indices, or that programs reach together.
    """
    erase_dead_code(function, printed=True)
    tile_operations = {operation: read_op(operation) for operation in operations_of(function, lambda name: True)
                       if is_tile_op(operation)}
    if dead := tile_operations.keys() - _needed(function, tile_operations):
        for operation in dead:
            operation.erase()
        erase_unread(function)


def _needed(function: Operation, tile_operations: dict[Operation, Op]) -> set[Operation]:
    """Return the operations that have an effect outside, and all that write what these read."""
    read = {buffer for operation in operations_of(function, lambda name: True) if operation not in tile_operations
            for buffer in local_effects(operation).reads}
    is_shared = any(op.acts_outside for op in tile_operations.values())     # another core may read what this one writes
    writers: dict[Value, list[Operation]] = {}
    for operation, op in tile_operations.items():
        for _, tile in op.targets():
            buffer = memory_of(tile.handle)
            writers.setdefault(buffer, []).append(operation)
            if is_shared and tile.space == HBM:
                read.add(buffer)
    needed = {operation for operation, op in tile_operations.items() if _has_effect(op)}
    waiting = [*needed]
    reached = set[Value]()
    while True:
        for operation in waiting:
            op = tile_operations[operation]
            read |= {memory_of(tile.handle) for name, tile in op.sources() if not op.overwrites(name)}
        new_buffers, reached = read - reached, reached | read
        waiting = [w for buffer in new_buffers for w in writers.get(buffer, ()) if w not in needed]
        if not waiting:
            return needed
        needed.update(waiting)


def _has_effect(op: Op) -> bool:
    targets = op.targets()
    return not targets or op.acts_outside or is_pinned(op) or isinstance(op, AllReduceOp) or (
        isinstance(op, DataAddressed) and op.mode == "error") or any(
            defining(memory_of(tile.handle)) is None for _, tile in targets)
