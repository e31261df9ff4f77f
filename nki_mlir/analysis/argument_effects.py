# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a captured kernel does to each of its arguments: reads it, writes it, writes every element of it.

A kernel without a reader of a parameter can have it as a plain result; an output that is provably written everywhere
needs no initial zeros. ``covered`` is an answer of a proof: False means not proved.
"""

from dataclasses import dataclass
from math import prod

from nki_mlir.bindings import Block, Operation, Value, enclosing, ir, operations_of
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op, symbol_range
from nki_mlir.dialects.op import REGISTRY, Op


@dataclass
class ArgumentEffects:
    """What the operations of a kernel do to one argument."""

    reads: bool = False
    writes: bool = False
    covered: bool = False


def argument_effects(kernel: KernelFunction) -> list[ArgumentEffects]:
    """Effects on each argument of the function, in order (program ids have none)."""
    block = kernel.op.regions[0].blocks[0]
    found = [ArgumentEffects() for _ in block.arguments]
    for operation in operations_of(kernel.op, lambda name: True)[1:]:
        if is_tile_op(operation):
            op = read_op(operation)
            for field, tile in op.operands():
                place = argument_number(tile.handle, block)
                if place is not None:
                    effects = found[place]
                    effects.reads |= field.reads
                    effects.writes |= field.writes
                    effects.covered |= field.writes and covers(operation, op, tile)
            continue
        for value in operation.operands:        # an operation that is no tile operation may do anything with a buffer
            place = argument_number(value, block)
            if place is not None and isinstance(value.type, ir.MemRefType):
                found[place].reads = found[place].writes = True
    return found


def argument_number(value: Value, block: Block) -> int | None:
    """The place of a value among a block's arguments."""
    if isinstance(value.owner, ir.Block) and value.owner == block:
        return ir.BlockArgument(value).arg_number
    return None


def covers(operation: Operation, op: Op, tile: Tile) -> bool:
    """Whether the operation, over all iterations and programs, writes every element of the tile's buffer.

    Strides and counts of the pattern's dims and of the symbols in its offset must tile the buffer like the digits of a
    mixed-radix number.
    """
    if op.mask or op.limits or tile.dtype is not tile.base_dtype or not always_runs(operation):
        return False
    steps, start = list(tile.access.free_dims), tile.access.free.const
    for position, coefficient in tile.access.free.symbols:
        values = symbol_values(op.symbols[position])
        if not values:
            return False
        steps.append((coefficient * values.step, len(values)))
        start += coefficient * values.start
    filled = 1
    for stride, count in sorted(s for s in steps if s[1] != 1):
        if stride != filled:
            return False
        filled *= count
    return start == 0 and filled == prod(tile.base_shape)


def always_runs(operation: Operation) -> bool:
    """Whether nothing but loops that have an iteration stand around the operation."""
    *around, _ = enclosing(operation)
    return all(op.name == "scf.for" and loop_span(op) for op in around)


def symbol_values(symbol: Value) -> range | None:
    """All values of a loop variable or program id; None for anything made from them."""
    if not isinstance(symbol.owner, ir.Block):
        return None
    holder = symbol.owner.owner.operation
    if holder.name == "scf.for":
        return loop_span(holder)
    low, high = symbol_range(symbol)
    return range(low, high + 1)


def multiply_accumulates(kernel: KernelFunction) -> int:
    """Multiply-accumulate operations of one launch, from its matrix products."""
    total = 0
    for operation in operations_of(kernel.op, lambda name: name in REGISTRY and name.endswith("matmul")):
        runs = prod(len(loop_span(op) or ()) for op in enclosing(operation) if op.name == "scf.for")
        total += runs * prod(read_op(operation).iteration().extents)
    return total * prod(kernel.grid)
