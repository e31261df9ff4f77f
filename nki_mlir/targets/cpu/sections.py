# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds sections of a sequence of nodes that do not depend on each other.

No section writes bytes that another one accesses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heapreplace
from itertools import pairwise

import numpy as np

from nki_mlir.targets.cpu.native_nodes import Allocate, Compute, NativeBlock, TileCall
from nki_mlir.targets.cpu.passes.parallelize import accesses_of, running_cost
from nki_mlir.waist.overlap import ByteRegion, are_apart
from nki_mlir.waist.recognize import product_of

PAIRS_COMPARED = 100_000            # most pairs of bytes of a memory; beyond it all of them count as the same
Range = tuple[int, int]             # of nodes: the number of the first, and the number after the last


@dataclass(eq=False)
class TouchedBytes:
    """Bytes of a memory, and the nodes that access them: the number of each, and whether it writes."""

    region: ByteRegion
    accesses: list[tuple[int, bool]] = field(default_factory=list)

    @property
    def is_written(self) -> bool:
        return any(writes for _, writes in self.accesses)

    @cached_property
    def bounds(self) -> Range:
        """The offsets of the first and of the last byte."""
        low, high = self.region.reach
        return self.region.address.const + low, self.region.address.const + high


class Sections:
    """The dependences between nodes of a sequence: between the nodes ``first[k]`` and ``last[k]`` no section ends."""

    def __init__(self, nodes: Sequence[Compute | TileCall | Allocate]) -> None:
        self.nodes = nodes
        ends = [(first, last) for first, last in dependences(nodes) if first < last]
        self.first, self.last = (np.array([pair[k] for pair in ends], np.int64) for k in range(2))
        costs = [running_cost(NativeBlock([node])) for node in nodes]
        is_product = [isinstance(node, Compute) and product_of(node.nest) is not None for node in nodes]
        self.cost_before = np.cumsum([0.0, *costs])
        self.product_cost_before = np.cumsum([0.0, *np.where(is_product, costs, 0.0)])

    def cost(self, start: int, end: int) -> float:
        """Return the estimated nanoseconds of nodes."""
        return float(self.cost_before[end] - self.cost_before[start])

    def product_share(self, start: int, end: int) -> float:
        """Return the part of the time that products take."""
        return float(self.product_cost_before[end] - self.product_cost_before[start]) / max(self.cost(start, end), 1.0)

    def divide(self, start: int, end: int) -> list[Range]:
        """Divide some of the nodes into as many sections as there are."""
        return [*pairwise(self.bounds(start, end).tolist())]

    def longest(self, start: int, end: int) -> float:
        """Return the nanoseconds of the longest section of some nodes."""
        return float(np.diff(self.cost_before[self.bounds(start, end)]).max())

    def bounds(self, start: int, end: int) -> np.ndarray:
        """Return the starts of the sections of some nodes, and the end of the last one."""
        inside = (self.first >= start) & (self.last < end)
        crossing = np.zeros(end - start + 1, np.int64)          # dependences across the start of a node
        np.add.at(crossing, self.first[inside] - start + 1, 1)
        np.add.at(crossing, self.last[inside] - start + 1, -1)
        cuts = np.flatnonzero(np.cumsum(crossing)[1:end - start] == 0) + start + 1
        return np.array([start, *cuts, end])

    def jobs(self, start: int, end: int, least: float) -> list[Range]:
        """Join sections that follow each other to jobs of at least so many nanoseconds; the last may be shorter."""
        jobs: list[Range] = []
        for section in self.divide(start, end):
            if jobs and self.cost(*jobs[-1]) < least:
                jobs[-1] = jobs[-1][0], section[1]
            else:
                jobs.append(section)
        return jobs


def longest_first(costs: Sequence[float], threads: int) -> float:
    """Return the nanoseconds that threads take for jobs of which each thread takes the longest one that is left."""
    ends = [0.0] * threads
    heapify(ends)
    for cost in sorted(costs, reverse=True):
        heapreplace(ends, ends[0] + cost)
    return max(ends)


def dependences(nodes: Sequence[Compute | TileCall | Allocate]) -> Iterator[Range]:
    """Yield the numbers of nodes of which one writes bytes that the other one accesses.

    Not all such pairs are among them. But a pair that is not is linked by others between its nodes.
    """
    touched: dict[object, dict[object, TouchedBytes]] = {}
    for number, node in enumerate(nodes):
        for region in accesses_of(node):
            key = region.address, region.dims, region.run
            bytes_ = touched.setdefault(region.root, {}).setdefault(key, TouchedBytes(region))
            bytes_.accesses.append((number, region.writes))
    for by_key in touched.values():
        yield from dependences_in_memory([*by_key.values()])


def dependences_in_memory(touched: list[TouchedBytes]) -> Iterator[Range]:
    """Yield the dependences through one memory."""
    written = {bytes_ for bytes_ in touched if bytes_.is_written}
    if not written:
        return
    if len({bytes_.region.address.symbols for bytes_ in touched}) > 1:          # their distances are not known
        yield from all_links(touched)
        return
    pairs = 0
    open_: list[TouchedBytes] = []                      # those that may reach the next ones
    for bytes_ in sorted(touched, key=lambda bytes_: bytes_.bounds):
        open_ = [other for other in open_ if other.bounds[1] >= bytes_.bounds[0]]
        pairs += len(open_)
        if pairs > PAIRS_COMPARED:
            yield from all_links(touched)
            return
        if bytes_ in written:
            yield from links(bytes_.accesses)
        for other in open_:
            if (bytes_ in written or other in written) and not are_apart(bytes_.region, other.region):
                yield from links([*bytes_.accesses, *other.accesses])
        open_.append(bytes_)


def all_links(touched: Sequence[TouchedBytes]) -> Iterator[Range]:
    """Yield the dependences through one memory as if all accesses were to the same bytes."""
    return links([access for bytes_ in touched for access in bytes_.accesses])


def links(accesses: Sequence[tuple[int, bool]]) -> Iterator[Range]:
    """Yield each access with the last write before it, and with the first write after it."""
    last_write, since = -1, list[int]()                 # since the last write: other accesses
    for number, writes in sorted(accesses):
        if last_write >= 0:
            yield last_write, number
        if writes:
            yield from ((earlier, number) for earlier in since)
            last_write, since = number, []
        else:
            since.append(number)
