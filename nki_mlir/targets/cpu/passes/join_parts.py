# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""join-parts: run the same part of several divided computations as one job of the pool.

before:  pack(w, t) on the pool;  sums += x * t on the pool;  pack(w + 262144, t) on the pool;  ...
after:   for 2 parts on the pool:  pack(w', t');  sums' += x * t';  pack(w' + 262144, t');  ...

Threads wait for each other at the end of a divided computation. They need not wait between two computations if no part
of one touches bytes that another part of the other writes. A part's results then also stay in the cache of the thread
that uses them. The pass divides a computation along another axis if that makes its parts independent of the following
ones: each thread packs the columns that it multiplies. Each thread has its own buffers for values that only one job
uses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.addressed_nest import addressed, does_stream
from nki_mlir.targets.cpu.chunk_loop import Chunk, first_part
from nki_mlir.targets.cpu.contraction import TileProduct
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import (
    Allocate,
    Compute,
    NativeBlock,
    Spread,
    Users,
    blocks,
    calls_in,
    slot_value,
)
from nki_mlir.targets.cpu.schedule import dims_of
from nki_mlir.waist.overlap import ANYWHERE, ByteRegion, are_apart, spans_overlap

LINE = 64                           # bytes of a cache line, which two threads should not both write


class JoinParts(FunctionPass, name="join-parts"):
    nests: int = 512            # most computations of a job: the pass compares the bytes that all of them touch

    def rewrite(self, function: NativeFunction) -> None:
        if any(isinstance(call, Spread) for call in calls_in(*function.body.nodes)):
            users = function.users()
            for block in [*blocks(function.body)]:
                self.block(function, block, users)

    def block(self, function: NativeFunction, block: NativeBlock, users: Users) -> None:
        nodes, block.nodes = block.nodes, []
        with function.inside(block):
            for is_divided, run in groupby(nodes, lambda node: isinstance(node, Spread | Allocate)):
                if is_divided:
                    for job in self.jobs([node for node in run if isinstance(node, Spread | Allocate)]):
                        job.write(function, users)
                else:
                    block.nodes += run

    def jobs(self, run: Sequence[Spread | Allocate]) -> list["Job"]:
        """Divide consecutive nodes into jobs. Add the last computations first: each earlier one is divided along an
        axis that fits those after it. A computation whose parts may touch each other's bytes, as far as the addresses
        tell, is alone."""
        jobs = [Job()]
        for node in reversed(run):
            if isinstance(node, Allocate):
                jobs[-1].nodes.insert(0, node)
            elif len(jobs[-1].parts) == self.nests or not jobs[-1].prepend(node):
                jobs.append(Job())
                if not jobs[-1].prepend(node):
                    jobs[-1].nodes.append(node)
                    jobs.append(Job())
        return jobs[::-1]


@dataclass(eq=False)
class Job:
    """Consecutive computations in ``count`` parts, and allocations. ``parts`` maps each computation to its first part,
    ``touched`` each memory, with the symbols of addresses in it, to the accesses of parts."""

    count: int = 0
    nodes: list[Spread | Allocate] = field(default_factory=list)
    parts: dict[Spread, Chunk] = field(default_factory=dict)
    touched: dict[object, dict[object, "TouchedSpans"]] = field(default_factory=dict)

    def prepend(self, call: Spread) -> bool:
        """Put a computation in front of the others, if no part of it touches bytes that other parts write."""
        count = self.count or call.count
        for part in divisions(call, count):
            accesses = [*accesses_of(call, part)]
            if all(access.is_independent_of(other, count) for access in accesses for other in (
                    *self.near(access, count), *accesses)):
                self.count = count
                self.nodes.insert(0, call)
                self.parts[call] = part
                for access in accesses:
                    by_symbols = self.touched.setdefault(access.region.root, {})
                    by_symbols.setdefault(access.region.address.symbols, TouchedSpans()).add(access, count)
                return True
        return False

    def near(self, access: "PartAccess", count: int) -> Iterator["PartAccess"]:
        """Yield the accesses of the job to the memory of an access, without those that are certainly apart from it."""
        symbols = access.region.address.symbols
        for other_symbols, touched in self.touched.get(access.region.root, {}).items():
            if other_symbols != symbols or touched.may_overlap(access, count):
                yield from touched.accesses

    def write(self, function: NativeFunction, users: Users) -> None:
        """Append the job, or its only computation as before."""
        if len(self.parts) < 2:
            function.block.nodes += self.nodes
            return
        private = {node.buffer for node in self.nodes if isinstance(node, Allocate) and not node.buffer.zeroed and all(
            user in self.parts for user in users.get(node.buffer, ()))}
        for node in self.nodes:
            if isinstance(node, Allocate) and node.buffer not in private:
                function.add(node)
        loop = function.add_loop(self.count, on_pool=True)
        with function.inside(loop.body):
            for node in self.nodes:
                if isinstance(node, Spread):
                    function.add(call_of(node, self.parts[node], slot_value(loop.slot)))
                elif node.buffer in private:
                    node.buffer.memory = loop.memory
                    function.add(node)


def divisions(call: Spread, count: int) -> Iterator[Chunk]:
    """Yield the first of ``count`` parts of a computation for each axis that can be divided so, in the order of the
    axes. Along axes other than the first one, parts of results must lie in different cache lines."""
    for axis in range(len(call.nest.extents)) if not isinstance(call.part, TileProduct) else range(call.count == count):
        part = first_part(call.nest, count, axis)
        if part is not None and (not axis or all(step % LINE == 0 for step in part.steps[len(call.nest.inputs):])):
            yield part


class PartAccess(NamedTuple):
    """The bytes of an operand that the first part of a computation touches, and the distance from part to part."""

    region: ByteRegion
    step: int

    def is_independent_of(self, other: "PartAccess", count: int) -> bool:
        """Return whether no part of either operand touches bytes that another part of the other operand writes. If the
        distances from part to part differ, return True only if all parts are apart."""
        region, other_region = self.region, other.region
        if region.root != other_region.root or not (region.writes or other_region.writes):
            return True
        distance = other_region.address.plus(region.address, -1)
        (low, high), (other_low, other_high) = self.reach_of_all(count), other.reach_of_all(count)
        if not distance.symbols and not spans_overlap(
                low, high + 1, distance.const + other_low, distance.const + other_high + 1):
            return True
        return self.step == other.step and all(are_apart(region, other_region, number * self.step)
                                               for number in range(1 - count, count) if number)

    def bounds(self, count: int) -> tuple[int, int]:
        """Return the first byte that any part accesses and the byte after the last, without symbols of the address."""
        start, (low, high) = self.region.address.const, self.reach_of_all(count)
        return start + low, start + high + 1

    def reach_of_all(self, count: int) -> tuple[int, int]:
        """Return the first and the last byte that any part accesses, relative to the address of the first part."""
        (low, high), end = self.region.reach, self.step * (count - 1)
        return low + min(end, 0), high + max(end, 0)


@dataclass(eq=False)
class TouchedSpans:
    """Accesses of parts to one memory, whose addresses have the same symbols; ``start`` and ``end`` enclose the bytes
    that all parts touch, ``written_start`` and ``written_end`` those that they write."""

    accesses: set[PartAccess] = field(default_factory=set)
    start: int = ANYWHERE
    end: int = -ANYWHERE
    written_start: int = ANYWHERE
    written_end: int = -ANYWHERE

    def add(self, access: PartAccess, count: int) -> None:
        start, end = access.bounds(count)
        self.accesses.add(access)
        self.start, self.end = min(self.start, start), max(self.end, end)
        if access.region.writes:
            self.written_start, self.written_end = min(self.written_start, start), max(self.written_end, end)

    def may_overlap(self, access: PartAccess, count: int) -> bool:
        """Return whether an access may write bytes that these accesses touch, or touch bytes that they write."""
        start, end = access.bounds(count)
        if access.region.writes:
            return spans_overlap(start, end, self.start, self.end)
        return spans_overlap(start, end, self.written_start, self.written_end)


def accesses_of(call: Spread, part: Chunk) -> Iterator[PartAccess]:
    for k, (region, step, operand) in enumerate(zip(call.regions, part.steps, part.nest.operands)):
        writes = k >= len(part.nest.inputs)
        yield PartAccess(region.accessed(dims_of(part.nest, k), operand.dtype.itemsize, writes), step)


def call_of(call: Spread, part: Chunk, number: Linear) -> Compute:
    """Return the part of a computation with a number."""
    routine = replace(call.part, nest=part.nest) if isinstance(call.part, TileProduct) else (
        addressed(part.nest, does_stream(call.part)))
    regions = [region.moved(number, step) for region, step in zip(call.regions, part.steps)]
    symbols = call.arguments[3 + 2 * len(regions)::2]
    return Compute(routine, (*(region.address for region in regions), *symbols), part.nest, regions)
