# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""hoist-tiles: compute the factors of products before a loop if each iteration computes the same ones.

before:  for i in 0..16: for j in 0..4: copy(keys + 2048 * j, tile); scores = queries.T @ tile
after:   for j in 0..4: copy(keys + 2048 * j, tiles + 131072 * j)
         for i in 0..16: for j in 0..4: scores = queries.T @ (tiles + 131072 * j)

The pass moves a computation that fills a tile from inputs that the kernel does not write, at addresses that do not
depend on the loop, if a product reads the tile many times, and if only operations after it in its block read the tile.
Loops inside of the loop on which the addresses depend are repeated around the computation, which fills a tile for each
of their iterations.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.forwarding import filled_tile
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.widen_factors import elements_of
from nki_mlir.targets.runtime import host
from nki_mlir.waist.overlap import ByteRegion


@dataclass(frozen=True)
class RepeatedTile:
    """A computation that fills a tile, and its block. ``loops`` are the loops between the repeating loop and the block
    on which the computation's addresses depend. ``size`` is the distance in bytes from the tile to the next one."""

    block: cpu.NativeBlock
    call: cpu.Compute
    tile: cpu.ScratchBuffer
    size: int
    loops: tuple[cpu.NativeLoop, ...]

    @property
    def count(self) -> int:
        """Return how many different tiles an iteration of the repeating loop computes."""
        return prod([len(loop.span or ()) for loop in self.loops])

    @property
    def steps(self) -> list[int]:
        """Return for each loop the distance in bytes between the tiles of successive iterations."""
        return [self.size * prod([len(inner.span or ()) for inner in self.loops[k + 1:]])
                for k in range(len(self.loops))]


class HoistTiles(FunctionPass, name="hoist-tiles"):
    most: int = 4_194_304       # most bytes of all tiles
    cached: int = 1_048_576     # most bytes in float32 of tiles that stay in the second cache
    times: int = 8              # least iterations of a loop for larger tiles, which products read from the third cache
    least: int = 8              # least times that a product must read each element of a tile

    def rewrite(self, function: NativeFunction) -> None:
        self.bytes_left = self.most
        self.users = function.users()
        self.new_calls: dict[cpu.RoutineCall, cpu.Compute] = {}
        # By block, the number of the node that has a call: the order does not change.
        self.orders: dict[cpu.NativeBlock, dict[cpu.RoutineCall, int]] = {}
        fixed = range(cpu.FIRST_ID + function.axes + len(function.kernel.inputs) + len(function.kernel.shared))
        self.block(function, function.body, cpu.MEMORY, set(fixed))
        function.replace_calls(self.new_calls)

    def block(self, function: NativeFunction, block: cpu.NativeBlock, memory: int, fixed: Set[int]) -> None:
        """Move computations in front of each loop of a block. ``memory`` is the slot of the memory with the block's
        buffers, ``fixed`` are the slots that keep their values while the block runs."""
        nodes, block.nodes = block.nodes, []
        with function.inside(block):
            for node in nodes:
                inside = node.memory if isinstance(node, cpu.NativeLoop) and node.on_pool else memory
                if isinstance(node, cpu.NativeLoop) and node.span is not None and len(node.span) > 1:
                    for repeated in self.repeated_tiles(function, node, fixed):
                        self.hoist(function, node, repeated, memory)
                variables = {node.slot} if isinstance(node, cpu.NativeLoop) else set[int]()
                for inner in cpu.sub_blocks(node):
                    self.block(function, inner, inside, fixed | variables)
                function.add(node)

    def repeated_tiles(self, function: NativeFunction, loop: cpu.NativeLoop, fixed: Set[int]
                       ) -> Iterator[RepeatedTile]:
        """Yield the computations that each iteration of a loop repeats, as far as there is room for their tiles."""
        if any(call.function == "nki_check" for call in cpu.calls_in(loop)):        # an address may be out of bounds
            return
        private = {node.buffer for node in cpu.nodes_in(*loop.body.nodes) if isinstance(node, cpu.Allocate)}
        unchanged = self.unchanged(function, loop, private)
        for block, call, loops in list(calls_in_loops(loop.body)):
            tile = filled_tile(call)
            if tile not in private or tile is None or call.symbols or not self.is_read_by_products(block, call, tile):
                continue
            *sources, target = self.new_calls.get(call, call).regions
            slots = {slot for region in sources for slot, _ in region.offset.symbols}
            around = tuple([inner for inner in loops if inner.slot in slots])
            repeated = RepeatedTile(block, call, tile, -(-tile.size // host.LINE) * host.LINE, around)
            if all(region.root in unchanged for region in sources) and target.offset == Linear() and (
                    slots <= fixed | {inner.slot for inner in around}) and self.fits(repeated, loop) and all(
                    step % inner.span.step == 0 for step, inner in zip(repeated.steps, around) if inner.span):
                self.bytes_left -= repeated.count * repeated.size
                yield repeated

    def unchanged(self, function: NativeFunction, loop: cpu.NativeLoop, private: Set[cpu.ScratchBuffer]
                  ) -> Set[object]:
        """Return the roots of the memory that a loop reads and never writes, from which code may compute tiles before
        the loop. ``private`` are the loop's buffers."""
        return function.only_read

    def fits(self, repeated: RepeatedTile, loop: cpu.NativeLoop) -> bool:
        """Return whether there is room for the tiles of all iterations of the inner loops. Tiles narrower than float32
        must fit the cache as float32: otherwise, products convert parts of them."""
        size, item = repeated.count * repeated.size, repeated.call.nest.outputs[0].dtype.itemsize
        often = item == FLOAT32.itemsize and len(loop.span or ()) >= self.times
        return size <= self.bytes_left and (often or size // item * FLOAT32.itemsize <= self.cached)

    def is_read_by_products(self, block: cpu.NativeBlock, call: cpu.Compute, tile: cpu.ScratchBuffer) -> bool:
        """Return whether all other operations on a tile only read it, after the computation in its block, and one of
        them is a product that reads it often."""
        readers = [user for user in self.users[tile] if user is not call]
        if not any(multiplies_often(reader, tile, self.least) for reader in readers):
            return False
        if block not in self.orders:
            self.orders[block] = {inner: k for k, node in enumerate(block.nodes) for inner in cpu.calls_in(node)}
        order = self.orders[block]
        return not tile.zeroed and all(
            isinstance(reader, cpu.Compute) and order.get(reader, -1) > order[call]
            and all(region.root is not tile for region in reader.output_regions) for reader in readers)

    def hoist(self, function: NativeFunction, loop: cpu.NativeLoop, repeated: RepeatedTile, memory: int) -> None:
        """Emit a computation and its inner loops before ``loop``, and remove it and the allocation of its tile from the
        loop. Its readers then read the tile of their iteration."""
        tile, call = repeated.tile, self.new_calls.get(repeated.call, repeated.call)
        for inner_block in cpu.blocks(loop.body):
            inner_block.nodes[:] = inner_block.without({repeated.call, tile})
        tile.size, tile.memory = repeated.count * repeated.size, memory
        function.add(cpu.Allocate(tile))
        values: dict[int, Linear] = {}
        target, block = Linear(), function.block
        for inner, step in zip(repeated.loops, repeated.steps):
            assert inner.span is not None
            with function.inside(block):
                fill = function.add_loop(len(inner.span), loop.on_pool and not values)
            values[inner.slot] = Linear(inner.span.start).plus(cpu.slot_value(fill.slot), inner.span.step)
            target, block = target.plus(cpu.slot_value(fill.slot), step), fill.body
        with function.inside(block):
            *sources, filled = call.regions
            regions = [replace(region, offset=with_values(region.offset, values)) for region in sources]
            function.add(on_regions(call, [*regions, replace(filled, size=tile.size, offset=target)]))
        self.read_tiles(repeated)

    def read_tiles(self, repeated: RepeatedTile) -> None:
        """Replace all readers of a tile by computations that read the tile of their iteration."""
        moved = Linear()
        for inner, step in zip(repeated.loops, repeated.steps):
            assert inner.span is not None
            first = cpu.slot_value(inner.slot).plus(Linear(inner.span.start), -1)
            moved = moved.plus(first, step // inner.span.step)
        for user in self.users[repeated.tile]:
            if user is not repeated.call:
                reader = self.new_calls.get(user, user)
                assert isinstance(reader, cpu.Compute)
                regions = [replace(region, size=repeated.tile.size).moved(moved) if region.root is repeated.tile else
                           region for region in reader.regions]
                self.new_calls[user] = on_regions(reader, regions)


def multiplies_often(call: cpu.RoutineCall, tile: cpu.ScratchBuffer, times: int) -> bool:
    """Return whether a computation is a product that reads each element of a tile ``times`` times or more."""
    return isinstance(call, cpu.NestCall) and contraction_of(call.nest) is not None and any(
        region.root is tile and elements_of(call.nest, k) * times <= call.nest.elements
        for k, region in enumerate(call.regions[:len(call.nest.inputs)]))


def calls_in_loops(block: cpu.NativeBlock, loops: tuple[cpu.NativeLoop, ...] = ()
                   ) -> Iterator[tuple[cpu.NativeBlock, cpu.Compute, Sequence[cpu.NativeLoop]]]:
    """Yield each computation of a block that runs in all iterations of the loops around it, with its block and all
    loops around it: ``loops``, then those of the block."""
    for node in block.nodes:
        if isinstance(node, cpu.Compute):
            yield block, node, loops
        elif isinstance(node, cpu.NativeLoop) and node.span and not node.on_pool:
            yield from calls_in_loops(node.body, (*loops, node))


def on_regions(call: cpu.Compute, regions: Sequence[ByteRegion]) -> cpu.Compute:
    """Return a computation on other regions."""
    return cpu.Compute(call.function, (*(region.address for region in regions), *call.symbols), call.nest, regions)


def with_values(form: Linear, values: Mapping[int, Linear]) -> Linear:
    """Return a linear form in which forms replace some slots."""
    result = Linear(form.const)
    for slot, factor in form.symbols:
        result = result.plus(values.get(slot, cpu.slot_value(slot)), factor)
    return result
