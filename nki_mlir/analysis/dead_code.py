# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is left over when code was cut: constants that fold, values and buffers nobody reads, empty loops."""

from collections.abc import Callable, Iterable

from nki_mlir.analysis.index_values import constant_of
from nki_mlir.bindings import Block, Operation, Value, enclosing, ir, load, operations_of
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op

MEMSET = "nki.memset"


def fold_constants(operations: Iterable[Operation], constant: Callable[[int], Value]) -> None:
    """Let the users of index computations that have a constant value use ``constant(value)``; the computations stay."""
    for op in operations:
        if op.name.startswith(("arith.", "affine.apply")) and op.name != "arith.constant" and isinstance(
                op.results[0].type, ir.IndexType):
            value = constant_of(op.results[0])
            if value is not None:
                op.results[0].replace_all_uses_with(constant(value))


def erase_dead_code(function: Operation) -> None:
    """Erase what has no effect any more in a function: what upstream knows, and buffers that are only set."""
    manager = load("passmanager").PassManager.parse("func.func(trivial-dce)")
    manager.enable_verifier(False)
    manager.run(function)
    if _erase_memsets(function):
        erase_dead_code(function)


def _erase_memsets(function: Operation) -> bool:
    """Erase those that nobody reads; whether there were any."""
    memsets = operations_of(function, lambda name: name == MEMSET)
    overwritten = [op for op in memsets if _overwritten(op) or _only_set(op.operands[0])]
    for op in overwritten:
        op.erase()
    return bool(overwritten)


def _only_set(buffer: Value) -> bool:
    """Whether nothing but memsets uses a buffer of the function."""
    return not isinstance(buffer.owner, ir.Block) and buffer.owner.name == "memref.alloc" and all(
        use.owner.name == MEMSET for use in buffer.uses)


def _overwritten(memset: Operation) -> bool:
    """Whether the next operation on the buffer writes, without reading it, all that is ever read of it."""
    buffer, block = memset.operands[0], memset.block
    if isinstance(buffer.owner, ir.Block) or buffer.owner.operation.block != block:
        return False
    users = {op for use in buffer.uses if (op := use.owner.operation) != memset}
    first: Operation | None = None
    for user in users:
        outermost = ancestor_in(block, user)
        if outermost is None or not memset.is_before_in_block(outermost) or not is_tile_op(user):
            return False
        if first is None or outermost.is_before_in_block(first):
            first = outermost
    if first is None or first not in users:
        return False
    writer = read_op(first)
    written = [t for _, t in writer.targets() if t.handle == buffer]
    if not written or writer.mask or writer.limits or any(t.handle == buffer for _, t in writer.sources()):
        return False
    return all(covers(written[0], t) for user in users for _, t in read_op(user).sources() if t.handle == buffer)


def covers(written: Tile, read: Tile) -> bool:
    """Whether a tile that is written contains one that is read; False where that is not plain to see."""
    a, b = written.access, read.access
    if a.symbols_used() or b.symbols_used() or a.dtype is not b.dtype or a.partition is None or b.partition is None:
        return False
    if a.partition.const > b.partition.const or (b.partition.const + (read.partitions - 1) * b.dims[0][0]
                                                 >= a.partition.const + written.partitions):
        return False
    (low, high), (least, greatest) = ([end + x.free.const for end in x.reach()] for x in (a, b))
    dense = written.free_elements == high - low + 1
    return (a.free == b.free and a.free_dims == b.free_dims) or (dense and low <= least and greatest <= high)


def ancestor_in(block: Block, op: Operation) -> Operation | None:
    """The operation of ``block`` that is or contains ``op``; None where there is none."""
    return next((one for one in (op, *enclosing(op)) if one.block == block), None)

