# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""share-factors: compute equal factors of products once, and let all products read the first one.

before:  words = pairs(x); gate += pairs(a) * words;  other = pairs(x); up += pairs(b) * other
after:   words = pairs(x); gate += pairs(a) * words;  up += pairs(b) * words

Kernels whose Python unrolls loops multiply by the same tile again and again, and each product joins or converts its
elements. `hoist-factors` does the same for loops. The pass changes tiles that nothing but one computation writes, from
memory that nothing writes before the other computation.
"""

from collections.abc import Hashable, Mapping, Sequence

from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.forwarding import filled_tile
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.hoist_tiles import multiplies_often

Users = Mapping[cpu.ScratchBuffer, Sequence[cpu.RoutineCall]]


class ShareFactors(FunctionPass, name="share-factors"):
    least: int = 8              # least times that a product must read each element of a factor
    most: int = 33_554_432      # most bytes of all factors that several products share

    def rewrite(self, function: NativeFunction) -> None:
        users, new_calls = function.users(), dict[cpu.RoutineCall, cpu.NestCall]()
        shared, shared_bytes = set[cpu.ScratchBuffer](), 0
        for block in cpu.blocks(function.body):
            unneeded = set[cpu.RoutineCall | cpu.ScratchBuffer]()
            for call, tile, first in self.repeated(function, block, users):
                more_bytes = 0 if first in shared else first.size
                if shared_bytes + more_bytes <= self.most:
                    shared.add(first)
                    shared_bytes += more_bytes
                    unneeded |= {call, tile}
                    readers = [user for user in users[tile] if isinstance(user, cpu.NestCall) and user is not call]
                    new_calls |= {user: cpu.on_buffer(new_calls.get(user, user), tile, first) for user in readers}
            if unneeded:
                block.nodes[:] = block.without(unneeded)
        function.replace_calls(new_calls)

    def repeated(self, function: NativeFunction, block: cpu.NativeBlock, users: Users
                 ) -> list[tuple[cpu.Compute, cpu.ScratchBuffer, cpu.ScratchBuffer]]:
        """List the computations of a block that fill a tile as an earlier one does, each with its tile and the earlier
        one's."""
        allocated = {node.buffer for node in block.nodes if isinstance(node, cpu.Allocate) and not node.buffer.zeroed}
        order = {call: k for k, call in enumerate(cpu.calls_in(*block.nodes))}
        filled: dict[Hashable, cpu.ScratchBuffer] = {}          # by the inputs and the function of the computation
        keys_of: dict[object, list[Hashable]] = {}              # by the memory that a computation reads
        repeated = []
        for node in block.nodes:
            tile = filled_tile(node) if isinstance(node, cpu.Compute) else None
            if isinstance(node, cpu.Compute) and tile in allocated and tile is not None and (
                    self.is_factor(node, tile, users[tile], order)):
                *sources, target = node.regions
                key: Hashable = (node.function, node.nest, node.symbols, target.offset,
                                 *[(region.root, region.offset) for region in sources])
                roots = {region.root for region in sources}
                if key in filled:
                    repeated.append((node, tile, filled[key]))
                elif all(isinstance(root, cpu.ScratchBuffer) or root in function.only_read for root in roots):
                    filled[key] = tile
                    for root in roots:
                        keys_of.setdefault(root, []).append(key)
            for root in function.written_by(node):
                for key in keys_of.pop(root, ()):
                    filled.pop(key, None)
        return repeated

    def is_factor(self, call: cpu.Compute, tile: cpu.ScratchBuffer, users: Sequence[cpu.RoutineCall],
                  order: Mapping[cpu.RoutineCall, int]) -> bool:
        """Return whether a computation fills a tile for products: all other operations on the tile come after the
        computation in its block and only read the tile, and one of them is a product that reads it often."""
        readers = [user for user in users if user is not call]
        return all(only_reads(reader, tile) and order.get(reader, -1) > order[call] for reader in readers) and any(
            multiplies_often(reader, tile, self.least) for reader in readers)


def only_reads(call: cpu.RoutineCall, tile: cpu.ScratchBuffer) -> bool:
    """Return whether a call is a computation that does not write a tile."""
    return isinstance(call, cpu.Compute) and all(
        region.root is not tile for region in call.regions[len(call.nest.inputs):])
