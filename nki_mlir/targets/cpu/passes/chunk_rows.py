# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""chunk-rows: run a sequence of operations on large tiles a few rows at a time.

before:  exp(x, t); add(t, sums); multiply(t, sums, y)
after:   for 16 chunks of 8 rows each: exp(x', t'); add(t', sums'); multiply(t', sums', y')

The next operation finds the results of the previous one in the cache. The pass requires that a chunk of an operation
reads no bytes that earlier operations write in other chunks. It compares chunks by the bytes that they touch: in
memory that an operation writes, no two chunks share a byte. A loop ends before operations that meet no memory of
those in it: chunks of both would save no traffic, and other passes divide them among threads. All chunks use the
first chunk's part of a buffer that nothing else uses; it stays in the cache.

If no loop around a long loop over chunks runs on the pool, its chunks do, and each thread has its own such buffers. So
a kernel's loop whose iterations must run in order, because each adds to the rows of the previous one, still uses all
threads.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.addressed_nest import addressed
from nki_mlir.targets.cpu.chunk_loop import Chunk, ChunkLoop, first_part
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.passes.parallelize import has_pool
from nki_mlir.targets.cpu.schedule import cost_of, dims_of, reach_of, schedule, weight_of
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest
from nki_mlir.waist.overlap import ByteRegion, Iterations, may_interleave

MOST_CHUNKS = 64
CHUNK = -(1 << 60)                  # the symbol of a chunk's number


@dataclass
class PoolLoop:
    """The enclosing loop on the pool: its variable's slot and its step, and the memory that an iteration has read so
    far."""

    slot: int = 0
    step: int = 0
    read: set[object] = field(default_factory=set)


class ChunkRows(FunctionPass, name="chunk-rows"):
    large: int = 524_288        # bytes that a run of nests must touch: fewer stay in the cache anyway
    chunk: int = 262_144        # bytes that a chunk should touch at most
    least: int = 1_024          # elements of a call on average: with fewer, calls cost more than they save
    shared: int = 65_536        # bytes that two calls must touch: with fewer, chunks save no traffic
    worth: int = 50_000         # nanoseconds of a loop, roughly, for which it is worth to wake threads
    nests: int = 512            # most operations of a loop: the pass compares all parts of memory that they touch

    def rewrite(self, function: NativeFunction) -> None:
        self.touched = Counter(root for call in cpu.calls_in(*function.body.nodes) if isinstance(call, cpu.NestCall)
                               for root in {region.root: None for region in call.regions})
        if any(isinstance(call, cpu.Compute) and call.nest.elements * call.nest.outputs[0].dtype.itemsize >= self.chunk
               for call in cpu.calls_in(*function.body.nodes)):
            self.block(function, function.body, PoolLoop(), function.users())

    def block(self, function: NativeFunction, block: cpu.NativeBlock, around: PoolLoop,
              users: cpu.Users) -> None:
        """Put loops over chunks around runs of computations of a block."""
        nodes, start = block.nodes, 0
        block.nodes = []
        with function.inside(block):
            while start < len(nodes):
                end = start
                while end < len(nodes) and isinstance(nodes[end], cpu.Compute | cpu.Allocate):
                    end += 1
                run = [node for node in nodes[start:end] if isinstance(node, cpu.Compute | cpu.Allocate)]
                if run:
                    Run(self, function, users, run, around).write()
                    around.read |= {region.root for call in run if isinstance(call, cpu.Compute)
                                    for region in call.regions[:len(call.nest.inputs)]}
                else:
                    node = nodes[start]
                    on_pool = isinstance(node, cpu.NativeLoop) and node.on_pool
                    inner = PoolLoop(node.slot, node.span.step if node.span else 0) if on_pool else around   # type: ignore
                    for inside in cpu.sub_blocks(node):
                        self.block(function, inside, inner, users)
                    if on_pool:
                        around.slot, around.step, around.read = 0, 0, set()
                    function.add(node)
                start = max(end, start + 1)


def accesses(call: cpu.Compute, part: Chunk) -> list[ByteRegion]:
    """Return the bytes that the chunks of a call access."""
    return [region.moved(cpu.slot_value(CHUNK), step).accessed(
                dims_of(part.nest, k), part.nest.operands[k].dtype.itemsize, k >= len(call.nest.inputs))
            for k, (region, step) in enumerate(zip(call.regions, part.steps))]


def chunk_of(nest: Nest, count: int) -> Chunk | None:
    """Return the first of ``count`` chunks; None if the nest has no such parts, or is a product, which is faster
    undivided."""
    return first_part(nest, count) if contraction_of(nest) is None else None


def all_rows(nest: Nest) -> Chunk:
    """Return all of a nest as its only chunk."""
    return Chunk(nest, (0,) * len(nest.operands))


class PartReader(NamedTuple):
    """A call that reads a chunk of an array: the weight of its nest, the numbers of the call and the operand, the
    bytes."""

    weight: int
    number: int
    operand: int
    region: ByteRegion


class TouchedMemory:
    """The bytes that chunks of calls access, by memory: iterations of a kernel's loop access many of them again."""

    def __init__(self, chunks: Iterations) -> None:
        self.chunks = chunks
        self.numbers: dict[object, dict[ByteRegion, list[int]]] = {}    # of the calls, by memory and region

    def add(self, number: int, regions: Sequence[ByteRegion]) -> None:
        for region in regions:
            self.numbers.setdefault(region.root, {}).setdefault(region, []).append(number)

    def remove(self, number: int) -> None:
        """Forget the regions of a call."""
        for numbers_by_region in self.numbers.values():
            for region, numbers in [*numbers_by_region.items()]:
                numbers_by_region[region] = [n for n in numbers if n != number]
                if not numbers_by_region[region]:
                    del numbers_by_region[region]

    def dependent_calls(self, regions: Sequence[ByteRegion]) -> list[int]:
        """Return the calls, in order, that depend on an access to these regions by another chunk: both access the same
        bytes, and at least one writes them."""
        return sorted({number for region in regions for other, numbers in self.numbers.get(region.root, {}).items()
                       if not self.chunks.apart(region, other) for number in numbers})


class Run:
    """Consecutive nodes: calls of nests, and allocations."""

    def __init__(self, options: ChunkRows, function: NativeFunction,
                 users: cpu.Users,
                 nodes: Sequence[cpu.Compute | cpu.Allocate], around: PoolLoop) -> None:
        self.options, self.function, self.users, self.nodes, self.around = options, function, users, nodes, around
        self.count = self.chunks_wanted()
        self.chunks = Iterations(CHUNK, range(self.count))

    def chunks_wanted(self) -> int:
        """Return a number of chunks that fit the cache and that divides most nests; 0 if there is none."""
        calls = [node for node in self.nodes if isinstance(node, cpu.Compute)]
        nests = [call.nest for call in calls]
        sizes: dict[object, int] = {}
        for call in calls:
            for k, region in enumerate(call.regions):
                sizes[region.root] = max(sizes.get(region.root, 0), bytes_of(call.nest, k))
        if len(nests) < 2 or sum(sizes.values()) < self.options.large:
            return 0
        least = min(max(-(-sum(sizes.values()) // self.options.chunk), 2), MOST_CHUNKS)
        if sum(nest.elements for nest in nests) < self.options.least * least * len(nests):
            return 0
        extents = [nest.extents[0] for nest in nests if nest.extents]
        # Rows that are lanes have to fill a vector: else the nest takes twice as long, or longer.
        most = min([nest.extents[0] // schedule(nest).lanes for nest in nests if len(nest.extents) > 1
                    and nest.elements >= self.options.least * least and schedule(nest).vector == 0],
                   default=MOST_CHUNKS)
        return max(range(min(least, max(most, 2)), most + 1),
                   key=lambda n: sum(extent % n == 0 for extent in extents), default=0)

    def call(self, number: int) -> cpu.Compute:
        call = self.nodes[number]
        assert isinstance(call, cpu.Compute)
        return call

    def write(self) -> None:
        """Append the nodes, with loops around groups of them."""
        begin = 0
        while begin < len(self.nodes):
            end, parts, front = self.connected(begin, *self.nearest_group(begin))
            if len(parts) > 1 and (sum(map(self.is_large, parts)) > 1 or self.is_read_elsewhere(parts)):
                self.loop(begin, end, parts, front)
            else:
                end = begin + 1
                self.function.add(self.nodes[begin])
            begin = end

    def nearest_group(self, begin: int) -> tuple[int, dict[int, Chunk], list[int]]:
        """Return what ``group`` returns for all nodes, or for those before one at which ``connected`` would end the
        group: no later node of the run touches memory of these."""
        stop = k = begin
        while k < len(self.nodes) and k <= stop and self.count:
            stop = max(stop, self.last_users[k])
            k += 1
        nearest = self.group(begin, k)
        # ``cut_before`` may end a group of more nests in its second half
        return self.group(begin, len(self.nodes)) if 2 * len(nearest[1]) > self.options.nests else nearest

    def group(self, begin: int, stop: int) -> tuple[int, dict[int, Chunk], list[int]]:
        """Return the end of the nodes from ``begin`` to ``stop`` that run chunk by chunk, the chunks of their nests by
        number, and the small nodes that must run before all chunks because later nodes need all of their rows."""
        parts: dict[int, Chunk] = {}
        touched = TouchedMemory(self.chunks)
        front: list[int] = []
        if not self.count or not isinstance(self.nodes[begin], cpu.Compute):
            return begin, parts, front
        for k in range(begin, stop):
            call = self.nodes[k]
            if not isinstance(call, cpu.Compute):
                continue
            part = chunk_of(call.nest, self.count)
            if part is None:
                return k, parts, front
            if len(parts) == self.options.nests:
                return self.first_nodes(self.cut_before(k, parts), parts, front)
            intervals = accesses(call, part)
            conflicting = touched.dependent_calls(intervals)
            if not all(self.chunks.apart(a, b) for a in intervals for b in intervals) or not all(
                    self.can_be_first(j, touched) for j in conflicting):
                return k, parts, front
            for j in conflicting:
                front.append(j)
                touched.remove(j)
                del parts[j]
            touched.add(k, intervals)
            parts[k] = part
        return stop, parts, front

    @cached_property
    def last_users(self) -> list[int]:
        """For each node the last node that touches bytes between those that it touches (``may_interleave``), or the
        node itself."""
        touched: dict[object, dict[object, list[tuple[int, int, int]]]] = {}    # by memory and symbols of addresses
        for k, node in enumerate(self.nodes):
            for region in accesses(node, all_rows(node.nest)) if isinstance(node, cpu.Compute) else ():
                address, (low, high) = region.address, region.reach
                touched.setdefault(region.root, {}).setdefault(address.symbols, []).append(
                    (k, address.const + low, address.const + high))
        last = [*range(len(self.nodes))]
        for by_symbols in touched.values():
            ends = [regions[-1][0] for regions in by_symbols.values()]
            for n, regions in enumerate(by_symbols.values()):
                # the distance from addresses with other symbols is not known
                apart = max([*ends[:n], *ends[n + 1:]], default=-1)
                numbers, lows, highs = np.array(regions, np.int64).T
                for k, low, high in regions:
                    last[k] = max(last[k], apart, int(numbers[(lows <= high) & (highs >= low)][-1]))
        return last

    def cut_before(self, end: int, parts: Mapping[int, Chunk]) -> int:
        """Return the node before which the loop should end: the one in the second half of the nests, or ``end``, that
        the fewest bytes of buffers cross, the last of equal ones. A buffer that is used on both sides keeps all its
        rows."""
        lives = {buffer: self.lives[buffer] for k in parts for buffer in map(self.buffer, self.call(k).buffers)}
        return min(reversed([*sorted(parts)[len(parts) // 2:], end]),
                   key=lambda k: sum(buffer.size for buffer, (first, last) in lives.items() if first < k <= last))

    @cached_property
    def lives(self) -> dict[cpu.ScratchBuffer, tuple[int, int]]:
        """The numbers of the first and of the last node that use each buffer."""
        lives: dict[cpu.ScratchBuffer, tuple[int, int]] = {}
        for n, node in enumerate(self.nodes):
            for buffer in map(self.buffer, node.buffers if isinstance(node, cpu.Compute) else ()):
                lives[buffer] = lives.get(buffer, (n, n))[0], n
        return lives

    def buffer(self, number: int) -> cpu.ScratchBuffer:
        return self.function.buffers[number]

    @staticmethod
    def first_nodes(end: int, parts: Mapping[int, Chunk], front: Sequence[int]
                    ) -> tuple[int, dict[int, Chunk], list[int]]:
        """Return what ``group`` returns for the nodes up to ``end``."""
        return end, {n: part for n, part in parts.items() if n < end}, [n for n in front if n < end]

    def connected(self, begin: int, end: int, parts: dict[int, Chunk], front: list[int]
                  ) -> tuple[int, dict[int, Chunk], list[int]]:
        """Return the first nodes of a group, up to a node after which no node touches memory of the earlier ones: one
        loop over both would save no traffic."""
        regions = {k: accesses(self.call(k), all_rows(self.call(k).nest)) for k in sorted([*parts, *front])}
        last: dict[object, dict[ByteRegion, int]] = {}          # the last node that touches a region, by its memory
        for k, regions_of_node in regions.items():
            for region in regions_of_node:
                last.setdefault(region.root, {})[region] = k
        stop = begin
        for k in range(begin, end):
            if k > stop:
                return self.first_nodes(k, parts, front)
            for region in regions.get(k, ()):
                for other, n in last[region.root].items():
                    if n > stop and may_interleave(region, other):
                        stop = n
        return end, parts, front

    def is_large(self, number: int) -> bool:
        """Return whether a call touches enough memory for chunks to save traffic."""
        nest = self.call(number).nest
        return any(bytes_of(nest, k) >= self.options.shared for k in range(len(nest.operands)))

    def is_read_elsewhere(self, parts: Mapping[int, Chunk]) -> bool:
        """Return whether other calls of the function also touch a large operand of these calls."""
        return any(bytes_of(self.call(number).nest, k) >= self.options.shared and self.options.touched[region.root] > 1
                   for number in parts for k, region in enumerate(self.call(number).regions))

    def can_be_first(self, number: int, touched: "TouchedMemory") -> bool:
        """Return whether a call can run before all chunks: it is small, and depends on no call before it."""
        call = self.call(number)
        return call.nest.elements < self.options.least * self.count and not any(
            k < number for k in touched.dependent_calls(accesses(call, all_rows(call.nest))))

    def loop(self, begin: int, end: int, parts: Mapping[int, Chunk], front: Sequence[int]) -> None:
        """Append a loop over chunks of the nodes, after the allocations of their buffers."""
        common = self.buffers_of_chunks(begin, end, parts, front)
        for node in self.nodes[begin:end]:
            if isinstance(node, cpu.Allocate):
                self.function.add(node)
        for k in sorted(front):
            self.function.add(self.nodes[k])
        ahead = self.prefetch_distances(parts)
        routines = [addressed(part.nest, self.call(k).streams, tuple(ahead.get(k, {}).items()))
                    for k, part in parts.items()]
        loop = ChunkLoop(self.function, self.count, [self.call(k) for k in parts], [*parts.values()], routines, common)
        if self.can_run_on_pool(parts):
            loop.write_on_pool()
        else:
            loop.write()

    def can_run_on_pool(self, parts: Mapping[int, Chunk]) -> bool:
        """Return whether threads may share chunks, and chunks take long enough for that."""
        return not self.around.slot and has_pool(self.function) and sum(
            cost_of(self.call(k).nest) for k in parts) >= self.options.worth

    def prefetch_distances(self, parts: Mapping[int, Chunk]) -> dict[int, dict[int, int]]:
        """Return the distance in bytes to the part of a kernel's array that this thread reads next, by the numbers of
        call and operand.

        The next part is the one that a later call of the chunk reads. After the last call, it is the first part of the
        next chunk or, if the iteration has read the array before, of a later iteration. Memory would be idle while a
        chunk is computed, so the heaviest nest that reads a part prefetches the next one.
        """
        readers: dict[tuple[object, int], list[PartReader]] = {}        # of parts that do not interleave
        for number, part in parts.items():
            for k, region in enumerate(self.call(number).regions[:len(part.nest.inputs)]):
                if region.root in self.function.inputs and part.steps[k]:
                    reader = PartReader(weight_of(part.nest), number, k, accesses(self.call(number), part)[k])
                    readers_of_memory = readers.setdefault((region.root, part.steps[k]), [])
                    n = next((n for n, other in enumerate(readers_of_memory)
                              if may_interleave(other.region, reader.region)), len(readers_of_memory))
                    readers_of_memory[n:n + 1] = [max([*readers_of_memory[n:n + 1], reader], key=lambda r: r.weight)]
        distances: dict[int, dict[int, int]] = {}
        for (root, step), readers_of_memory in readers.items():
            addresses = [self.call(reader.number).regions[reader.operand].address for reader in readers_of_memory]
            beyond = (self.later(addresses[0]) if root in self.around.read else 0) or step
            for reader, address, following in zip(readers_of_memory, addresses, [
                    *addresses[1:], addresses[0].plus(Linear(beyond))]):
                distance = following.plus(address, -1)          # known unless parts have different symbols
                distances.setdefault(reader.number, {})[reader.operand] = step if distance.symbols else distance.const
        return distances

    def later(self, start: Linear) -> int:
        """Return the distance in bytes from an operand that starts at ``start`` to the same operand in the iteration
        that this thread is likely to run next."""
        slot, step = self.around.slot, self.around.step
        return dict(start.symbols).get(slot, 0) * step * host.threads()

    def buffers_of_chunks(self, start: int, stop: int, parts: Mapping[int, Chunk], front: Sequence[int]
                          ) -> set[cpu.ScratchBuffer]:
        """Return the buffers whose content only one chunk needs: no other node uses them."""
        begin = start
        while begin and isinstance(self.nodes[begin - 1], cpu.Allocate):
            begin -= 1                  # include the allocations before the first operation
        nodes = self.nodes[begin:stop]
        private = {node.buffer for node in nodes if isinstance(node, cpu.Allocate) and not node.buffer.zeroed and all(
            user in nodes for user in self.users.get(node.buffer, ()))}
        private -= {region.root for k in front for region in self.call(k).regions}
        steps: dict[cpu.ScratchBuffer, set[int]] = {}
        sizes: dict[cpu.ScratchBuffer, int] = {}
        for number, part in parts.items():
            for k, (region, step) in enumerate(zip(self.call(number).regions, part.steps)):
                if isinstance(region.root, cpu.ScratchBuffer) and region.root in private:
                    end = region.offset.const + reach_of(part.nest, k)[1] + 1
                    steps.setdefault(region.root, set()).add(step)
                    sizes[region.root] = max(sizes.get(region.root, 0), region.size if region.offset.symbols else end)
        common = {buffer for buffer, strides in steps.items() if len(strides) == 1}
        for buffer in common:
            buffer.size = sizes[buffer]
        return common


def bytes_of(nest: Nest, operand: int) -> int:
    """Return the bytes that a nest touches of an operand. For a small part of a large tile they are few."""
    memory = nest.operands[operand]
    return memory.dtype.itemsize * prod(extent for extent, stride in zip(nest.extents, memory.strides) if stride)
