# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Marks products whose ``accumulate`` follows from the language, so that they print without it.

before:  nki.matmul %total = %a0, %b0                         after:  nki.matmul %total += %a0, %b0 {nki.implicit_sum}
         nki.matmul %total = %a1, %b1 {accumulate = true}             nki.matmul %total += %a1, %b1 {nki.implicit_sum}

In the current generation, a product without ``accumulate=`` overwrites elements that no instruction has written since
the tile's allocation, and adds to the others. The first product of a sum then has the text of the others, and all of
them roll into one loop. A memset to zero before a sum is erased unless elements are read that no product writes: a
device gives no defined result if a product adds to elements that another instruction wrote. (A sum whose terms are all
-0 is then -0.)

The marked module is for the printer alone: its products read a tile before anything writes it.
"""

from collections.abc import Iterator, Mapping
from functools import cmp_to_key
from itertools import islice
from math import prod

import numpy as np

from nki_mlir.analysis.dead_code import Index, ancestor_in, elements_of
from nki_mlir.analysis.enclosing_control import always_runs
from nki_mlir.analysis.index_values import Span, SymbolValues
from nki_mlir.bindings import Block, Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.access import PSUM, Linear, Tile
from nki_mlir.dialects.mlir_ops import is_tile_op, loop_span, read_op
from nki_mlir.dialects.nisa.microscaling import NcMatmulMxOp
from nki_mlir.dialects.nki.matmul import MatrixProduct
from nki_mlir.dialects.nki.movement import Filling
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.symbol_ranges import UnknownSymbol

IMPLICIT = "nki.implicit_sum"
ITERATIONS = 1024               # most operations on a tile that are examined in order


def imply_sums(module: Module) -> None:
    """Mark the products of each PSUM tile for which the sum that the language implies equals the module's."""
    with module.context:
        for allocation in operations_of(module, lambda name: name == "memref.alloc"):
            users = dict.fromkeys(use.owner.operation for use in allocation.results[0].uses)
            if users and all(map(is_tile_op, users)):
                uses = _Uses(allocation, {user: read_op(user) for user in users})
                if any(IMPLICIT in product.attributes for product in uses.products):
                    continue
                if uses.products and (uses.are_complete() or uses.agree_in_order()):
                    uses.mark()
                    uses.erase_fills()
                elif uses.products and uses.add_to_zeros():
                    uses.mark()


def accumulate_text(op: MatrixProduct | NcMatmulMxOp) -> str:
    """Return the argument ``accumulate`` of a product, with a comma in front; empty if the language implies it."""
    return "" if IMPLICIT in op.extra else f", accumulate={op.accumulate}"


class _Uses:
    """The operations on a buffer: products that write it, other writers (``fills``), and operations that only read
    it."""

    def __init__(self, allocation: Operation, ops: dict[Operation, Op]) -> None:
        self.buffer, self.block = allocation.results[0], allocation.block
        self.ops = ops
        self.products = {user: op for user, op in ops.items() if _is_product(op) and _writes(op, self.buffer)}
        self.fills = [user for user, op in ops.items() if user not in self.products and _writes(op, self.buffer)]
        self.readers = [user for user in ops if user not in self.products and user not in self.fills]

    def agree_in_order(self) -> bool:
        """Return whether each product, in order, states the accumulation that the language would imply, no product adds
        to elements that were read, and products wrote all elements that are read. Loops with known bounds count
        iteration by iteration, because Python runs them.
        """
        if any(tile.dtype is not tile.base_dtype
               for op in self.ops.values() for _, tile in op.operands() if tile.handle == self.buffer):
            return False
        try:
            order = [*islice(self.in_order(self.block, {}), ITERATIONS + 1)]
        except UnknownSymbol:
            return False
        filled = [at for at, (user, _) in enumerate(order) if user in self.fills]
        if len(order) > ITERATIONS or filled not in ([], [0]) or not all(_is_zero(self.ops[f]) for f in self.fills):
            return False
        tile = next(iter(self.products.values())).dst                                   # type: ignore[attr-defined]
        written, read = (np.zeros((tile.base_shape[0], prod(tile.base_shape[1:])), bool) for _ in range(2))
        for user, pinned in order[len(filled):]:
            op, values = self.ops[user], SymbolValues(user, self.ops[user].symbols)
            if user in self.products:
                elements = _elements(op.dst, values, pinned)                            # type: ignore[attr-defined]
                states_sum = op.accumulate                                              # type: ignore[attr-defined]
                differs = not written[elements].all() and not self.fills if states_sum else written[elements].any()
                if differs or read[elements].any():
                    return False
                written[elements] = True
                continue
            for _, source in op.operands():
                if source.handle == self.buffer:
                    elements = _elements(source, values, pinned)
                    if not written[elements].all():
                        return False
                    read[elements] = True
        return True

    def in_order(self, block: Block, pinned: dict[Value, Span]) -> Iterator[tuple[Operation, dict[Value, Span]]]:
        """Yield the buffer's operations as they run, each with the values of the loop variables around it; raises
        ``UnknownSymbol`` at a branch, or at a loop whose bounds are known only at run time."""
        inner = dict.fromkeys(ancestor_in(block, user) for user in self.ops)
        for operation in sorted(filter(None, inner), key=cmp_to_key(_in_order)):
            if operation in self.ops:
                yield operation, pinned
                continue
            if operation.name != "scf.for" or (span := loop_span(operation)) is None:
                raise UnknownSymbol(op=operation.name)
            body = operation.regions[0].blocks[0]
            for value in span:
                yield from self.in_order(body, pinned | {body.arguments[0]: (value, value)})

    def are_complete(self) -> bool:
        """Return whether all products write the complete buffer, the first one, or a memset to zero, once for each
        allocation, and all others, maybe in loops, before anything reads it."""
        begins = [user for user, op in self.products.items() if not op.accumulate]      # type: ignore[attr-defined]
        if len(self.fills) + len(begins) != 1 or not all(
                _is_complete(op.dst) for op in self.products.values()):                 # type: ignore[attr-defined]
            return False
        first = (*self.fills, *begins)[0]
        if first.block != self.block or (self.fills and not (
                _is_zero(self.ops[first]) and any(map(always_runs, self.products)))):
            return False
        later = [ancestor_in(self.block, user) for user in self.products if user != first]
        readers = [ancestor_in(self.block, user) for user in self.readers]
        return all(op is not None and first.is_before_in_block(op) for op in (*later, *readers)) and all(
            op is not None and reader is not None and op != reader and op.is_before_in_block(reader)
            for op in dict.fromkeys(later) for reader in dict.fromkeys(readers))

    def add_to_zeros(self) -> bool:
        """Return whether all products add to elements that a memset to zero, or another product, has written."""
        if len(self.fills) != 1 or not _is_zero(self.ops[self.fills[0]]) or self.fills[0].block != self.block:
            return False
        around = [ancestor_in(self.block, user) for user in self.ops if user != self.fills[0]]
        return all(op is not None and self.fills[0].is_before_in_block(op) for op in around) and all(
            op.accumulate for op in self.products.values())                             # type: ignore[attr-defined]

    def mark(self) -> None:
        for product in self.products:
            product.attributes["accumulate"] = ir.BoolAttr.get(True)
            product.attributes[IMPLICIT] = ir.UnitAttr.get()

    def erase_fills(self) -> None:
        for fill in self.fills:
            fill.erase()


def _elements(tile: Tile, values: SymbolValues, pinned: Mapping[Value, Span]) -> tuple[Index, Index]:
    """Return the elements of a tile where loop variables have values; raises ``UnknownSymbol`` if others move it."""
    def number(form: Linear) -> Linear:
        low, high = values.interval(form, pinned)
        if low != high:
            raise UnknownSymbol(op="a loop around the allocation")
        return Linear(low)
    return elements_of(tile.starting(tile.handle, tile.access.over(number)))


def _in_order(first: Operation, second: Operation) -> int:
    return -1 if first.is_before_in_block(second) else 1


def _is_product(op: Op) -> bool:
    return isinstance(op, (MatrixProduct, NcMatmulMxOp)) and op.dst.space == PSUM and not op.mask and not op.limits


def _writes(op: Op, buffer: Value) -> bool:
    return any(tile.handle == buffer for _, tile in op.targets())


def _is_zero(op: Op) -> bool:
    return isinstance(op, Filling) and op.value == 0 and not op.mask and _is_complete(op.dst)


def _is_complete(tile: Tile) -> bool:
    """Return whether a tile has all elements of its buffer."""
    access = tile.access
    return not access.symbols_used() and tile.dtype is tile.base_dtype and access.free.const == 0 and (
        tile.partitions, tile.free_elements) == (tile.base_shape[0], prod(tile.base_shape[1:]))
