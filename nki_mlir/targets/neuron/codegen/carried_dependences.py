# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the steps of earlier iterations that the steps of a loop's body must come after.

An address that grows with the loop's variable is compared for each distance between iterations; an address that depends
on it in another way counts as any address. A step that touches the same bytes in each iteration depends on itself, so
that the shortest distance, one, suffices.

In a body of thousands of steps whose addresses registers compute, nearly every pair of steps may share bytes. Above a
limit of pairs the module returns no result, and the engines synchronize after each iteration: such steps overlap little
anyway.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nki_mlir.targets.neuron.codegen.dependences import Touched, limited_dependences, physical, touched
from nki_mlir.targets.neuron.codegen.records import InstructionStep, Loop, LoopVariable, variables_of
from nki_mlir.targets.neuron.codegen.segment_waits import streams_of
from nki_mlir.waist.overlap import Region

PAIRS = 250_000                 # most pairs of steps of two successive iterations, in bodies whose iterations overlap


def carried_dependences(steps: Sequence[InstructionStep], issuers: Sequence[tuple[int, int | None]], loop: Loop
                        ) -> list[list[int]] | None:
    """Return for each step the steps of the previous iteration that it comes after; None if that may be more than
    ``PAIRS`` pairs. ``issuers``: the engine of each, and its group of queues (None: it is not a transfer, and completes
    before the engine's next one starts)."""
    memories, regions, reads, writes = columns = touched([step.op for step in steps], physical, edges=False)
    number, distinct = len(steps), len(regions)
    reads_next, writes_next = ([[distinct + region for region in accesses] for accesses in side]
                               for side in (reads, writes))
    both = Touched(memories * 2, [*regions, *map(next_iteration, regions)], [*reads, *reads_next],
                   [*writes, *writes_next])
    edges = limited_dependences(both, streams_of([*issuers, *issuers]), True, PAIRS)
    if edges is None:
        return None
    later = LaterRegions(columns, loop)
    return [[other for other in earlier if other < number and later.depends(k, other)]
            for k, earlier in enumerate(edges.lists[number:])]


def next_iteration(region: Region) -> Region:
    """Return the region in the next iteration. It differs if registers are part of the address."""
    return region if region.symbolic is None else replace(region, symbolic=("next", region.symbolic))


class LaterRegions:
    """Which steps of a later iteration share bytes with earlier ones. Most regions of a loop differ only in their
    starts, so that results are memoized by the rest and by the distance of the starts."""

    def __init__(self, columns: Touched, loop: Loop) -> None:
        self.memories, self.regions, self.reads, self.writes = columns
        self.loop, self.overlap_memo = loop, dict[tuple[int, int, int], bool]()
        self.advances = [advance_of(region, loop.variable) for region in self.regions]
        numbers: dict[Hashable, int] = {}
        self.forms = [numbers.setdefault((region.nest, region.first, region.last, region.symbolic is None, advance),
                                         len(numbers)) for region, advance in zip(self.regions, self.advances)]

    def depends(self, later: int, earlier: int) -> bool:
        """Return whether a step of a later iteration depends on an earlier one: one of them writes bytes that the other
        touches."""
        memories, reads, writes = self.memories, self.reads, self.writes
        for earlier_regions, later_regions in ((writes[earlier], reads[later] + writes[later]),
                                               (reads[earlier], writes[later])):
            for n in earlier_regions:
                for m in later_regions:
                    if memories[n] == memories[m] and self.is_carried(n, m):
                        return True
        return False

    def is_carried(self, earlier: int, later: int) -> bool:
        """Return whether a region may share a byte with another one of the same memory in a later iteration."""
        region, other, advance = self.regions[earlier], self.regions[later], self.advances[earlier]
        key = self.forms[earlier], self.forms[later], other.start - region.start
        overlaps = self.overlap_memo.get(key)
        if overlaps is None:
            overlaps = is_carried(region, other, advance, self.advances[later], self.loop)
            if advance.is_constant and advance == self.advances[later] and (
                    region.symbolic is not None or other.symbolic is not None):
                self.overlap_memo[key] = overlaps
        return overlaps


class Advance(NamedTuple):
    """The bytes and partitions by which a region moves when the loop's variable grows by one, and the rest of its
    address. ``is_constant`` is False if it moves in another way."""

    byte: int
    partition: int
    others: Hashable
    is_constant: bool


def advance_of(region: Region, variable: LoopVariable) -> Advance:
    if region.symbolic is None:
        return Advance(0, 0, ((), ()), True)
    assert isinstance(region.symbolic, tuple)
    bytes_of, partitions_of = region.symbolic
    byte, partition = (sum(c for value, c in terms if value is variable) for terms in (bytes_of, partitions_of))
    other_terms = tuple(tuple((value, c) for value, c in terms if value is not variable)
                   for terms in (bytes_of, partitions_of))
    is_known = not any(variable in variables_of(value) for terms in other_terms for value, _ in terms)
    return Advance(byte, partition, other_terms, is_known)


def is_carried(earlier: Region, later: Region, advance: Advance, later_advance: Advance, loop: Loop) -> bool:
    """Return whether a loop may carry a dependence: a region may share a byte with another one of the same memory in a
    later iteration."""
    if earlier.symbolic is None and later.symbolic is None:
        return earlier is later or earlier.overlaps(later)        # the regions are the same in all iterations
    if not advance.is_constant or advance != later_advance:
        return earlier.bounds_overlap(later)
    byte, partition = advance.byte * loop.span.step, advance.partition * loop.span.step
    return earlier.overlaps_later(later, byte, partition, len(loop.span) - 1)
