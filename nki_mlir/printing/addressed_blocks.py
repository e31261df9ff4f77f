# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits tensors whose blocks have addresses, which the beta generation can choose, into a tensor for each block.

before:  t = alloc [128, 2, 512], addresses [0, 0], [0, 4096]      after:  t_0 = alloc [128, 512], address [0, 0]
         scf.for %i = 0 to 2                                               t_1 = alloc [128, 512], address [0, 4096]
             load t[:, i], rows 128 i                                      load t_0, rows 0
                                                                           load t_1, rows 128

An allocation of the current generation has one address. Loops whose variables choose the block are unrolled.
"""

from collections.abc import Sequence
from math import prod

from nki_mlir.analysis.index_values import constant_of, roots
from nki_mlir.bindings import Operation, Value, enclosing, ir, operations_of
from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.attributes import Attributes
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op, write_op
from nki_mlir.dialects.op import REGISTERS, Op, changed, with_forms
from nki_mlir.machine import Machine
from nki_mlir.printing.partial_fills import unroll
from nki_mlir.targets.neuron.codegen.code_writer import ADDRESS, ADDRESSES
from nki_mlir.targets.neuron.codegen.mlir_records import block_address

MOST = 8                        # blocks of a tensor that becomes several, so that the text stays short


def split_addressed_blocks(function: Operation, machine: Machine) -> None:
    """Split the tensors of a function whose blocks have addresses, if each operation uses one block in each iteration.
    """
    while alloc := next((op for op in _addressed(function) if _is_split(op, machine)), None):
        for loop in _choosing_loops(alloc):         # which may have the allocations of others
            unroll(loop)
        _split(alloc, _addresses(alloc, machine))
    for alloc in _addressed(function):
        if len(addresses := _addresses(alloc, machine)) == 1:
            alloc.attributes[ADDRESS] = Attributes().value(addresses[0])
            del alloc.attributes[ADDRESSES]


def _addressed(function: Operation) -> list[Operation]:
    return [op for op in operations_of(function, lambda name: name == "memref.alloc") if ADDRESSES in op.attributes]


def _addresses(alloc: Operation, machine: Machine) -> list[tuple[int, int]]:
    return [block_address([n.value for n in a], machine) for a in alloc.attributes[ADDRESSES]]


def _is_split(alloc: Operation, machine: Machine) -> bool:
    count = len(_addresses(alloc, machine))
    return 1 < count <= MOST and _uses_blocks(alloc, count)


def _users(buffer: Value) -> list[Operation]:
    return list(dict.fromkeys(use.owner.operation for use in buffer.uses))


def _block_elements(alloc: Operation, count: int) -> int:
    shape, _, _ = memref_parts(alloc.results[0].type)
    return prod(shape[1:]) // count


def _uses_blocks(alloc: Operation, count: int) -> bool:
    """Return whether every use is of one block, of a number or of one that unrolled loops give a number."""
    buffer, size = alloc.results[0], _block_elements(alloc, count)
    shape, dtype, _ = memref_parts(buffer.type)
    if all(prod(shape[1:1 + k]) != count for k in range(1, len(shape) - 1)):
        return False
    around = list(enclosing(alloc))
    for user in _users(buffer):
        if not is_tile_op(user):
            return False
        op = read_op(user)
        loops = {loop.regions[0].blocks[0].arguments[0] for loop in _loops_inside(user, around)}
        for field, tile in op.operands():
            if tile.handle != buffer:
                continue
            symbols = [op.symbols[position] for position, _ in tile.access.free.symbols]
            if tile.dtype is not dtype or field.name in REGISTERS or not loops.issuperset(
                    root for symbol in symbols for root in roots(symbol)):
                return False
            _, _, first, after = tile.bounds
            item = dtype.itemsize
            if any(c % size for _, c in tile.access.free.symbols) or first // (size * item) != (after - 1) // (
                    size * item):
                return False
    return True


def _loops_inside(operation: Operation, around: Sequence[Operation]) -> list[Operation]:
    """Return the loops with numbers as bounds around an operation, the inner first, that are not ``around``, too."""
    return [op for op in enclosing(operation)
            if op not in around and op.name == "scf.for" and loop_span(op) is not None and not op.results]


def _choosing_loops(alloc: Operation) -> list[Operation]:
    """Return the outermost loops inside the allocation's block around operations whose block depends on a variable."""
    around, buffer, loops = list(enclosing(alloc)), alloc.results[0], dict[Operation, None]()
    for user in _users(buffer):
        inside = _loops_inside(user, around)            # none where the symbols are constants
        if inside and any(tile.handle == buffer and tile.access.free.symbols for _, tile in read_op(user).operands()):
            loops[inside[-1]] = None
    return list(loops)


def _split(alloc: Operation, addresses: Sequence[tuple[int, int]]) -> None:
    make, buffer = Attributes(), alloc.results[0]
    shape, dtype, space = memref_parts(buffer.type)
    size = _block_elements(alloc, len(addresses))
    axes = next(k for k in range(1, len(shape) - 1) if prod(shape[1:1 + k]) == len(addresses))
    block = (shape[0], *shape[1 + axes:])
    attributes = {name: alloc.attributes[name] for name in alloc.attributes if name != ADDRESSES}
    named = attributes["nki.name"].value if "nki.name" in attributes else ""
    parts = [ir.Operation.create(
        "memref.alloc", results=[make.memref(block, dtype, space)],
        attributes=attributes | {ADDRESS: make.value(address)} | (
            {"nki.name": make.value(f"{named}_{k}")} if named else {}),
        loc=alloc.location, ip=ir.InsertionPoint(alloc)).results[0] for k, address in enumerate(addresses)]

    def part(tile: Tile) -> Tile:
        if tile.handle != buffer:
            return tile
        number = tile.access.free.const // size
        moved = Tile(parts[number], tile.space, block, tile.base_dtype, tile.access, tile.label)
        return moved.patterned(free=tile.access.free.plus(Linear(-number * size)))
    for operation in _users(buffer):
        write_op(changed(_numbered(read_op(operation)), part), make, operation.location, ir.InsertionPoint(operation))
        operation.erase()
    alloc.erase()


def _numbered(op: Op) -> Op:
    """Return the operation with numbers for the symbols that are constants."""
    numbers = {position: number for position, symbol in enumerate(op.symbols)
               if (number := constant_of(symbol)) is not None}

    def change(form: Linear) -> Linear:
        for position, number in numbers.items():
            form = form.substitute(position, number)
        return form
    return with_forms(op, change)
