# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""form-products: replace loops that compute a large matrix product by one product on packed operands.

before:  for i, j:  total = 0;  for s:  total += a[s, i].T @ b[s, j];  out[i, j] = total
after:   panels of a;  for blocks of columns:  panels of b;  out += panels of a @ panels of b

The pass records in the function the blocks of a product, and the bytes that they move beyond each cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.loop_products import as_one_product, can_be_flat
from nki_mlir.targets.cpu.packed_products import PackedProduct, PackingOptions, can_pack, gains_alone


class FormProducts(FunctionPass, name="form-products"):
    worth: int = 16_777_216     # multiplications of a product: with fewer, packing costs more than it saves
    parts: int = 16             # most computations and blocks of a function: with more, not all sequences are tried
    pieces: int = 4_096         # most computations and blocks of a function: with more, the pass forms no products
    tile_rows: int = 0          # rows of a register tile; here and below, the host decides where an option is 0
    tile_vectors: int = 0       # vectors in a row of a register tile
    depth: int = 0              # most positions of the summed axis in a block
    rows: int = 0               # most rows of a block
    columns: int = 0            # most columns of a block
    packed: int = 67_108_864    # most bytes of a factor that are packed at a time
    pairs: int = -1             # 1: multiply bfloat16 in pairs where the host can, -1: where that is fastest
    amx: int = -1               # the same for AMX, the host's tile registers
    apart: int = 1_048_576      # bytes of a factor, above which a product without loops around it is packed
    high: int = 256             # least rows of a product of float32 without loops around it

    @property
    def packing(self) -> PackingOptions:
        return PackingOptions(self.tile_rows, self.tile_vectors, self.depth, self.rows, self.columns, self.packed,
                              self.pairs, self.amx, self.apart, self.high)

    def rewrite(self, function: NativeFunction) -> None:
        nodes = function.body.nodes
        parts = [k for k, node in enumerate(nodes) if is_part(node)]
        first_product = next((n for n, part in enumerate(parts) if multiplies([nodes[part]])), len(parts))
        accesses = [Accesses.of(nodes[part]) for part in parts] if first_product < len(parts) <= self.pieces else []
        end = len(accesses)
        while end > first_product:
            end = self.packed_up_to(function, parts[:end], accesses)

    def packed_up_to(self, function: NativeFunction, parts: list[int], accesses: Sequence["Accesses | None"]
                     ) -> int:
        """Pack the product that the last parts form, if they form one. Return the number of parts before it, which are
        searched next."""
        nodes = function.body.nodes
        first = first_of(accesses[:len(parts)])
        starts = range(len(parts) - 1, -1, -1) if len(parts) <= self.parts else (first,)
        if not multiplies(nodes[parts[first]:parts[-1] + 1]) or not can_be_flat(nodes[parts[-1]]):
            return len(parts) - 1
        for start in starts:
            together = nodes[parts[start]:parts[-1] + 1]
            product = as_one_product(together)
            if product is not None and can_pack(product, self.worth, self.packing) and (
                    {*product.reads} <= function.only_read) and (
                    not is_alone(together) or gains_alone(product, self.packing)):
                calls = [call for call in cpu.calls_in(*together) if isinstance(call, cpu.Compute)]
                buffers = {region.root for call in calls for region in call.regions
                           if isinstance(region.root, cpu.ScratchBuffer)}
                if any(user not in calls for buffer, users in function.users().items() if buffer in buffers
                       for user in users):
                    break                       # a tile is read later on
                block = cpu.NativeBlock([node for node in together
                                         if isinstance(node, cpu.Allocate) and node.buffer not in buffers])
                with function.inside(block):
                    PackedProduct(function, product, self.packing).write()
                nodes[:] = [n for n in [*nodes[:parts[start]], *block.nodes, *nodes[parts[-1] + 1:]]
                            if not isinstance(n, cpu.Allocate) or n.buffer not in buffers]
                return start
        return len(parts) - 1 if len(parts) <= self.parts else first


def is_part(node: cpu.Node) -> bool:
    """Return whether a node may be a part of a product: a computation, or a block of them."""
    return isinstance(node, cpu.Compute) or not isinstance(
        node, cpu.RoutineCall | cpu.Allocate | cpu.NativeLoad | cpu.TileCall)


class Accesses(NamedTuple):
    """The tiles that a part reads, and all memory that it writes."""

    reads: frozenset[object]
    writes: frozenset[object]

    @classmethod
    def of(cls, part: cpu.Node) -> "Accesses | None":
        """Return the accesses of a part; None if it has other operations than computations."""
        reads, writes = set[object](), set[object]()
        for call in cpu.calls_in(part):
            if not isinstance(call, cpu.Compute):
                return None
            roots = [region.root for region in call.regions]
            reads.update(root for root in roots[:len(call.nest.inputs)] if isinstance(root, cpu.ScratchBuffer))
            writes.update(roots[len(call.nest.inputs):])
        return cls(frozenset(reads), frozenset(writes))


def first_of(parts: Sequence[Accesses | None]) -> int:
    """Return the number of the first part that contributes to the result of the last part: each from it on writes tiles
    that a later part reads, or memory that a later part writes."""
    needed: set[object] = set()
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        if part is None:
            return min(number + 1, len(parts) - 1)
        if needed and not all([root in needed or root in part.reads for root in part.writes]):
            return number + 1
        needed |= part.writes
        needed |= part.reads
    return 0


def multiplies(nodes: Sequence[cpu.Node]) -> bool:
    """Return whether nodes have a computation that may be a product."""
    return any(map(may_multiply, cpu.calls_in(*nodes)))


def may_multiply(node: cpu.Node) -> bool:
    return isinstance(node, cpu.Compute) and bool(node.nest.reduced) and len(node.nest.inputs) == 2


def is_alone(nodes: Sequence[cpu.Node]) -> bool:
    """Return whether a product is one computation without loops around it."""
    return sum(map(may_multiply, cpu.calls_in(*nodes))) == 1 and any(map(may_multiply, nodes))
