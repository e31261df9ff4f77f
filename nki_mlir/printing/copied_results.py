# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets results that only a copy to other rows reads begin at partition 0.

before:  t = alloc [32, 1]                      after:  t = alloc [23, 1]
         nki.reduce t[9:32] = ...                       nki.reduce t = ...
         nki.copy out[9:32] = t[9:32]                   nki.copy out[9:32] = t

No engine can start at partition 9: the printer writes such a result to another tile and transfers it to its rows. The
copy is a transfer, too, which reads any rows. ``linalg-to-nisa`` computes both operations in one instruction.
"""

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.access import SBUF, Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, write_op
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.machine import Machine, machine_named
from nki_mlir.targets.neuron.codegen.code_writer import ADDRESS, ADDRESSES


def move_copied_results(module: Module) -> None:
    """Move the results of a module that an engine cannot write and only a copy reads, in place."""
    machine = machine_named(the_kernel(module).target)
    for copy in operations_of(module, lambda name: name in (CopyOp.full_name(), TensorCopyOp.full_name())):
        op = read_op(copy)
        assert isinstance(op, CopyOp | TensorCopyOp)
        writer = _writer(copy, op, machine)
        if writer is not None:
            _move(op.src.handle.owner, [writer, copy])


def _writer(copy: Operation, op: CopyOp | TensorCopyOp, machine: Machine) -> Operation | None:
    """Return the operation that writes what a copy alone reads, if the copy is a transfer and the result moves."""
    alloc = defining(op.src.handle)
    if alloc is None or alloc.name != "memref.alloc" or ADDRESS in alloc.attributes or ADDRESSES in alloc.attributes:
        return None
    users = list(dict.fromkeys(use.owner.operation for use in op.src.handle.uses))
    other_users = [user for user in users if user != copy]
    if len(other_users) != 1 or not is_tile_op(other_users[0]) or other_users[0].block != copy.block:
        return None
    result = read_op(other_users[0])
    tiles = [tile for _, tile in result.operands() if tile.handle == op.src.handle]
    is_moved = all(tile.space == SBUF and tile.access.dims[0][0] == 1 and not starts_legally(machine, tile)
                   for tile in (op.dst, op.src)) and not op.src.access.symbols_used()
    is_one = tiles == [tile for _, tile in result.targets()] and len(tiles) == 1 and tiles[0].access == op.src.access
    is_masked = any(map(_is_masked, (op, result)))
    return other_users[0] if is_moved and is_one and result.is_loop_nest and not is_masked else None


def _is_masked(op: Op) -> bool:
    return bool(op.mask or op.limits)


def _move(alloc: Operation, users: list[Operation]) -> None:
    """Replace a buffer by one of the rows that its users access."""
    make, buffer = Attributes(), alloc.results[0]
    shape, dtype, space = memref_parts(buffer.type)
    ops = [read_op(user) for user in users]
    rows = next(tile.partitions for op in ops for _, tile in op.operands() if tile.handle == buffer)
    smaller = (rows, *shape[1:])
    moved = ir.Operation.create("memref.alloc", results=[make.memref(smaller, dtype, space)],
                                attributes={name: alloc.attributes[name] for name in alloc.attributes},
                                loc=alloc.location, ip=ir.InsertionPoint(alloc)).results[0]

    def from_first_row(tile: Tile) -> Tile:
        if tile.handle != buffer:
            return tile
        return Tile(moved, space, smaller, dtype, tile.access, tile.label).patterned(partition=Linear(0))
    for op, user in zip(ops, users):
        write_op(changed(op, from_first_row), make, user.location, ir.InsertionPoint(user))
        user.erase()
    alloc.erase()
