# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Removes dead code after a rewrite: constants that fold, values and buffers that nothing reads, empty loops."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, cmp_to_key
from math import prod
from typing import TypeAlias

import numpy as np

from nki_mlir.analysis.index_values import constant_of
from nki_mlir.analysis.mask_boxes import resolved
from nki_mlir.bindings import Block, Operation, Value, enclosing, ir, load, operations_of
from nki_mlir.dialects.access import Linear, Tile, joined_dims
from nki_mlir.dialects.kernel_function import target_of
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op
from nki_mlir.dialects.op import Op, with_forms
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.machine import Machine, machine_named

MOST_ITERATIONS = 256       # the largest number of iterations of nested loops that are followed
MEMSETS = ("nki.memset", "nisa.memset")
NO_FILL, ALLOCATED = -1, 0  # the fill of an element that another operation wrote, and of one that nothing wrote
Index: TypeAlias = slice | np.ndarray       # of rows or columns of an array


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
    by_buffer: dict[Value, list[Operation]] = {}
    for memset in operations_of(function, names.__contains__):
        by_buffer.setdefault(memset.operands[0], []).append(memset)
    dead = [memset for buffer, memsets in by_buffer.items() for memset in _unread(buffer, memsets, most)]
    for op in dead:
        op.erase()
    return bool(dead)


def _unread(buffer: Value, memsets: list[Operation], most: int) -> list[Operation]:
    """Return those memsets of a buffer whose elements other operations write before any operation reads them."""
    block, users = _block_and_users(buffer)
    if not users or not _are_tile_ops_in(block, users):
        return []
    numbers = {memset: number for number, memset in enumerate(memsets)}
    tile = read_op(memsets[0]).targets()[0][1]
    fills = _ReachingFills(tile, users, numbers)
    fills.fills_after(block, np.full(_shape_of(tile), NO_FILL, np.int32), {}, most)
    return [memset for memset in memsets if numbers[memset] not in fills.read]


def partly_dead_memsets(function: Operation) -> list[Operation]:
    """Return the memsets in loops of few iterations that nothing reads in some iterations, but not in all."""
    partly_dead = []
    for memset in operations_of(function, MEMSETS.__contains__):
        buffer = memset.operands[0]
        block, users = _block_and_users(buffer)
        if users and memset.block != block and _are_tile_ops_in(block, users):
            tile = read_op(memset).targets()[0][1]
            fills = _FillsByIteration(tile, users, {memset: 0})
            fills.fills_after(block, np.full(_shape_of(tile), NO_FILL, np.int32), {}, MOST_ITERATIONS)
            if 0 < len(fills.read) < len(fills.instances):
                partly_dead.append(memset)
    return partly_dead


def reads_unwritten(buffer: Value) -> bool:
    """Return whether an operation reads, or may read, an element of an on-chip buffer that nothing wrote since its
    allocation."""
    block, users = _block_and_users(buffer)
    if not users or not _are_tile_ops_in(block, users):
        return True
    tile = next(t for _, t in read_op(next(iter(users))).operands() if t.handle == buffer)
    fills = _ReachingFills(tile, users, {buffer.owner.operation: ALLOCATED})        # type: ignore[union-attr]
    fills.fills_after(block, np.full(_shape_of(tile), ALLOCATED, np.int32), {}, MOST_ITERATIONS)
    return bool(fills.read)


def _block_and_users(buffer: Value) -> tuple[Block, set[Operation]]:
    """Return the block in which a buffer is defined, and the operations that use it; none of a buffer that no
    ``memref.alloc`` allocates."""
    if isinstance(buffer.owner, ir.Block):
        return buffer.owner, set()
    if buffer.owner.operation.name != "memref.alloc":
        return buffer.owner.operation.block, set()
    return buffer.owner.operation.block, {use.owner.operation for use in buffer.uses}


def _are_tile_ops_in(block: Block, users: set[Operation]) -> bool:
    """Return whether all users are tile operations in a block, also in loops and branches of it."""
    return all(is_tile_op(op) and ancestor_in(block, op) is not None for op in users)


def _shape_of(tile: Tile) -> tuple[int, int]:
    """Return the rows and the elements of each row of a tile's buffer."""
    return tile.base_shape[0], prod(tile.base_shape[1:])


@dataclass
class _ReachingFills:
    """Follows which fill each element of a buffer has, and which of them operations read.

    A fill is a memset, or the allocation, with its number. ``users`` are all operations that use the buffer of
    ``tile``. An element that another operation wrote has the number ``NO_FILL``.
    """

    tile: Tile
    users: set[Operation]
    fills: dict[Operation, int]
    read: set[int] = field(default_factory=set)     # fills of which an operation reads, or may read, an element

    def fills_after(self, block: Block, reaching: np.ndarray, numbers: dict[Value, int], most: int) -> np.ndarray:
        """Return the fills of the elements after the operations of a block. ``numbers`` has the values of the loop
        variables around the block; loops in it may have ``most`` iterations together."""
        operations = self.in_order(block)
        filling = {ancestor for fill in self.fills if (ancestor := ancestor_in(block, fill)) is not None}
        last_fill = max((at for at, op in enumerate(operations) if op in filling), default=-1)
        for at, op in enumerate(operations):
            if self.all_read() or (at > last_fill and (reaching == NO_FILL).all()):
                return reaching
            if op.name == "scf.if":
                reaching = self.after_branch(op, reaching, numbers, most)
            elif is_tile_op(op):
                self.record_reads(op, reaching, numbers)
            elif op.name == "scf.for" and (span := loop_span(op)) is not None and 0 < len(span) <= most:
                for number in span:
                    variable = op.regions[0].blocks[0].arguments[0]
                    of_iteration = numbers | {variable: number}
                    reaching = self.fills_after(variable.owner, reaching, of_iteration, most // len(span))
            else:
                self.use_repeatedly(op, block, reaching)
        return reaching

    def all_read(self) -> bool:
        """Return whether the search may end, because all fills are read."""
        return len(self.read) == len(self.fills)

    def number(self, user: Operation, numbers: dict[Value, int]) -> int:
        """Return the number of the fill that an operation is where loop variables have ``numbers``."""
        return self.fills.get(user, NO_FILL)

    def in_order(self, block: Block) -> list[Operation]:
        """Return the operations of a block that are users or contain some, in the order of the block."""
        def order(operation: Operation, other: Operation) -> int:
            return -1 if operation.is_before_in_block(other) else 1
        inside = dict.fromkeys(op for user in self.users if (op := ancestor_in(block, user)) is not None)
        return sorted(inside, key=cmp_to_key(order))

    def after_branch(self, op: Operation, reaching: np.ndarray, numbers: dict[Value, int], most: int) -> np.ndarray:
        sides = [self.fills_after(side, reaching.copy(), numbers, most)
                 for region in op.regions for side in region.blocks]
        first, second = sides if len(sides) == 2 else (sides[0], reaching)
        return self.united(first, second)

    def united(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the fills of elements that have those of one array or of the other. An element has one number here, so
        an element with two different fills counts as read."""
        differ = (first != second) & (first != NO_FILL) & (second != NO_FILL)
        self.read.update(first[differ].tolist(), second[differ].tolist())
        fills: np.ndarray = np.maximum(first, second)
        return fills

    def record_reads(self, user: Operation, reaching: np.ndarray, numbers: dict[Value, int]) -> None:
        """Note the fills that an operation reads, and change those of the elements that it writes."""
        op = _numbered(read_op(user), numbers)
        self.read_elements(op, reaching)
        number = self.number(user, numbers)
        for t in (t for name, t in op.targets() if t.handle == self.tile.handle and not _keeps(op, name)):
            elements = self.elements(t)
            if elements is not None and not op.mask and not op.limits:
                reaching[elements] = number
            elif number != NO_FILL:
                reaching[...] = self.united(reaching, np.full_like(reaching, number))

    def use_repeatedly(self, around: Operation, block: Block, reaching: np.ndarray) -> None:
        """Note the fills that a loop reads whose number of iterations is unknown: those before it and those in it."""
        inside = [user for user in self.users
                  if (ancestor := ancestor_in(block, user)) is not None and ancestor == around]
        for user in inside:
            if user in self.fills:
                reaching[...] = self.united(reaching, np.full_like(reaching, self.fills[user]))
        for user in inside:
            self.read_elements(read_op(user), reaching)

    def read_elements(self, op: Op, reaching: np.ndarray) -> None:
        read = [t for name, t in op.sources() if not op.overwrites(name) and not _keeps(op, name)]
        for t in (t for t in (*read, *self.moved(op)) if t.handle == self.tile.handle):
            elements = self.elements(t)
            fills = reaching if elements is None else reaching[elements]
            self.read.update(fills[fills != NO_FILL].tolist())

    def moved(self, op: Op) -> list[Tile]:
        """Return the tiles of which an operation leaves elements as they are, on rows where no engine can start:
        transfers move all elements of these rows to another tile and back."""
        targets = [name for name, tile in op.targets() if tile.handle == self.tile.handle and tile.on_chip]
        if op.mask and targets:
            in_box = resolved(op, lambda form: form.interval(op.ranges))
            if in_box is None:
                return []
            op = in_box
        tiles = [getattr(op, name) for name in targets if op.mask or _keeps(op, name)]
        return [tile for tile in tiles if not starts_legally(self.machine, tile)]

    @cached_property
    def machine(self) -> Machine:
        operation = self.tile.handle.owner.operation
        return machine_named(target_of([operation, *enclosing(operation)][-1]))

    def elements(self, tile: Tile) -> tuple[Index, Index] | None:
        """Return the rows and columns of a tile as indices of an array; None if they depend on the run."""
        is_plain = not tile.access.symbols_used() and tile.access.partition is not None and (
            tile.dtype.itemsize == self.tile.dtype.itemsize)
        return elements_of(tile) if is_plain else None


@dataclass
class _FillsByIteration(_ReachingFills):
    """Follows a memset, with a number for each iteration of the loops around it."""

    instances: dict[tuple[int, ...], int] = field(default_factory=dict)     # by the values of the loop variables

    def all_read(self) -> bool:
        return False

    def number(self, user: Operation, numbers: dict[Value, int]) -> int:
        return self.instances.setdefault((*numbers.values(),), len(self.instances)) if user in self.fills else NO_FILL


def _keeps(op: Op, name: str) -> bool:
    """Return whether an operation writes the elements of a tile that data choose, and leaves the others: a predicated
    copy, which does not read those that it leaves."""
    return op.chooses and name == op.addressed_by_data


def _numbered(op: Op, numbers: dict[Value, int]) -> Op:
    """Return the operation with numbers for the symbols whose values are known."""
    by_position = {position: numbers[value] for position, value in enumerate(op.symbols) if value in numbers}

    def numbered(form: Linear) -> Linear:
        for position, number in by_position.items():
            form = form.substitute(position, number)
        return form
    return with_forms(op, numbered) if by_position else op


def elements_of(tile: Tile) -> tuple[Index, Index]:
    """Return the rows and columns of a tile without symbols in its on-chip buffer, as indices of an array."""
    access = tile.access
    assert access.partition is not None
    rows, columns = indices(access.partition.const, access.dims[:1]), indices(access.free.const, access.free_dims)
    return rows[:, None] if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray) else rows, columns


def indices(start: int, dims: Sequence[tuple[int, int]]) -> Index:
    """Return the numbers from a start in steps of some dims: a slice, which takes least time, if it has them."""
    joined = joined_dims(dims)
    if len(joined) <= 1 and all(step > 0 for step, _ in joined):
        step, count = joined[0] if joined else (1, 1)
        return slice(start, start + step * count, step)
    numbers = np.asarray(start)
    for step, count in joined:
        numbers = numbers[..., None] + step * np.arange(count)
    return numbers.reshape(-1)


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

