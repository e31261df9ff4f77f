# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes dead code after a rewrite: constants that fold, values and buffers that nothing reads, empty loops."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from math import prod

import numpy as np

from nki_mlir.analysis.index_values import constant_of
from nki_mlir.bindings import Block, Operation, Value, enclosing, ir, load, operations_of
from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op
from nki_mlir.dialects.op import Op, with_forms

MOST_ITERATIONS = 256       # the largest number of iterations of nested loops that are followed
MEMSETS = ("nki.memset", "nisa.memset")


def fold_constants(operations: Iterable[Operation], constant: Callable[[int], Value]) -> None:
    """Let the users of index computations that have a constant value use ``constant(value)``; the computations stay."""
    for op in operations:
        if op.name.startswith(("arith.", "affine.apply")) and op.name != "arith.constant" and isinstance(
                op.results[0].type, ir.IndexType):
            value = constant_of(op.results[0])
            if value is not None:
                op.results[0].replace_all_uses_with(constant(value))


def erase_dead_code(function: Operation, printed: bool = False) -> None:
    """Erase dead code of a function: what upstream's dead-code elimination finds, and memsets of the language that
    nothing reads.

    For a function that is ``printed``, also erase memsets of instructions, and follow loops of few iterations: a memset
    is dead if they overwrite it.
    """
    manager = load("passmanager").PassManager.parse("func.func(trivial-dce)")
    manager.enable_verifier(False)
    manager.run(function)
    if _erase_memsets(function, MEMSETS if printed else MEMSETS[:1], MOST_ITERATIONS if printed else 0):
        erase_dead_code(function, printed)


def _erase_memsets(function: Operation, names: tuple[str, ...], most: int) -> bool:
    """Erase memsets of these names that nothing reads; return whether there were any. Follow loops of at most ``most``
    iterations."""
    memsets = operations_of(function, names.__contains__)
    overwritten = [op for op in memsets if _overwritten(op, most) or _only_set(op.operands[0])]
    for op in overwritten:
        op.erase()
    return bool(overwritten)


def _only_set(buffer: Value) -> bool:
    """Return whether the function allocates a buffer and only memsets use it."""
    return not isinstance(buffer.owner, ir.Block) and buffer.owner.name == "memref.alloc" and all(
        use.owner.name in MEMSETS for use in buffer.uses)


def _overwritten(memset: Operation, most: int) -> bool:
    """Return whether other operations write each element of a buffer before any of them reads it."""
    buffer, block = memset.operands[0], memset.block
    if isinstance(buffer.owner, ir.Block) or buffer.owner.operation.block != block:
        return False
    users = {op for use in buffer.uses if (op := use.owner.operation) != memset}
    around = [ancestor_in(block, user) for user in users]
    if not users or not all(is_tile_op(op) for op in users) or any(
            op is None or not memset.is_before_in_block(op) for op in around):
        return False
    tile = read_op(memset).targets()[0][1]
    unwritten = np.ones((tile.base_shape[0], prod(tile.base_shape[1:])), bool)
    return _UnwrittenElements(tile, users).after(block, unwritten, {}, most) is not None


def reads_unwritten(buffer: Value) -> bool:
    """Return whether an operation reads, or may read, an element of an on-chip buffer that nothing wrote since its
    allocation."""
    users = {use.owner.operation for use in buffer.uses}
    block = buffer.owner.operation.block            # type: ignore[union-attr]
    if not users or not all(is_tile_op(op) and ancestor_in(block, op) is not None for op in users):
        return True
    tile = next(t for _, t in read_op(next(iter(users))).operands() if t.handle == buffer)
    unwritten = np.ones((tile.base_shape[0], prod(tile.base_shape[1:])), bool)
    return _UnwrittenElements(tile, users).after(block, unwritten, {}, MOST_ITERATIONS) is None


@dataclass
class _UnwrittenElements:
    """Follows which elements of a buffer ``tile`` its ``users`` have not written yet."""

    tile: Tile
    users: set[Operation]

    def after(self, block: Block, unwritten: np.ndarray, numbers: dict[Value, int], most: int) -> np.ndarray | None:
        """Return the elements of ``unwritten`` that the operations of a block do not write, None if one of them reads,
        or may read, such an element. ``numbers`` has the values of the loop variables around the block; loops in it may
        have ``most`` iterations together."""
        for op in self.in_order(block):
            if not unwritten.any():
                return unwritten
            if op.name == "scf.if":
                remaining = self.after_branch(op, unwritten, numbers, most)
            elif is_tile_op(op):
                remaining = unwritten if _use(_numbered(read_op(op), numbers), self.tile, unwritten) else None
            elif op.name == "scf.for" and (span := loop_span(op)) is not None and 0 < len(span) <= most:
                remaining = self.after_loop(op, span, unwritten, numbers, most // len(span))
            else:                                   # the loop may run no iteration
                remaining = unwritten if self.is_unread_in(op, block, unwritten) else None
            if remaining is None:
                return None
            unwritten = remaining
        return unwritten

    def in_order(self, block: Block) -> list[Operation]:
        """Return the operations of a block that are users or contain some, in the order of the block."""
        def order(operation: Operation, other: Operation) -> int:
            return -1 if operation.is_before_in_block(other) else 1
        inside = dict.fromkeys(op for user in self.users if (op := ancestor_in(block, user)) is not None)
        return sorted(inside, key=cmp_to_key(order))

    def after_branch(self, op: Operation, unwritten: np.ndarray, numbers: dict[Value, int], most: int
                     ) -> np.ndarray | None:
        sides = [self.after(side, unwritten.copy(), numbers, most) for region in op.regions for side in region.blocks]
        masks = [side for side in sides if side is not None]
        if len(masks) < len(sides):
            return None
        remaining: np.ndarray = np.logical_or.reduce([*masks, *([unwritten] if len(sides) == 1 else [])])
        return remaining

    def after_loop(self, op: Operation, span: range, unwritten: np.ndarray, numbers: dict[Value, int], most: int
                   ) -> np.ndarray | None:
        body = op.regions[0].blocks[0]
        for number in span:
            remaining = self.after(body, unwritten, numbers | {body.arguments[0]: number}, most)
            if remaining is None:
                return None
            unwritten = remaining
        return unwritten

    def is_unread_in(self, op: Operation, block: Block, unwritten: np.ndarray) -> bool:
        """Return whether no user in an operation of the block reads an unwritten element."""
        return all(_use(read_op(user), self.tile, unwritten.copy()) for user in self.users
                   if (around := ancestor_in(block, user)) is not None and around == op)


def _numbered(op: Op, numbers: dict[Value, int]) -> Op:
    """Return the operation with numbers for the symbols whose values are known."""
    by_position = {position: numbers[value] for position, value in enumerate(op.symbols) if value in numbers}

    def numbered(form: Linear) -> Linear:
        for position, number in by_position.items():
            form = form.substitute(position, number)
        return form
    return with_forms(op, numbered) if by_position else op


def _use(op: Op, tile: Tile, unwritten: np.ndarray) -> bool:
    """Mark the elements that an operation writes; return False if it reads, or may read, an unwritten element."""
    sources = [t for name, t in op.sources() if t.handle == tile.handle and not op.overwrites(name)]
    targets = [t for _, t in op.targets() if t.handle == tile.handle]

    def is_plain(t: Tile) -> bool:
        return not t.access.symbols_used() and t.access.partition is not None and t.dtype is tile.dtype
    if not all(is_plain(t) and not unwritten[elements_of(t)].any() for t in sources):
        return False
    for t in targets:
        if is_plain(t) and not op.mask and not op.limits:
            unwritten[elements_of(t)] = False
    return True


def elements_of(tile: Tile) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns of a tile without symbols in its on-chip buffer, as indices of an array."""
    access = tile.access
    assert access.partition is not None
    step, count = access.dims[0]
    columns = np.asarray(access.free.const)
    for stride, extent in access.free_dims:
        columns = columns[..., None] + stride * np.arange(extent)
    return (access.partition.const + step * np.arange(count))[:, None], columns.reshape(1, -1)


def covers(written: Tile, read: Tile) -> bool:
    """Return whether a written tile certainly contains a tile that is read."""
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
    """Return the operation of ``block`` that is or contains ``op``, None if there is none."""
    return next((ancestor for ancestor in (op, *enclosing(op)) if ancestor.block == block), None)

