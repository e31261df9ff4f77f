# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The on-chip memory of a run while the list scheduler starts its steps: the free bytes, the addresses of buffers, the
bytes that the remaining steps need, and which engines wait for memory.

An engine whose ready steps find no room is looked at again only when the answer may differ. If all of them lack free
bytes, that is when the memory has as many as the least of them needs; if the remaining steps would lack memory, or the
free ranges are too small, it is at the next change of ``version``.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from math import inf

import numpy as np

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.targets.neuron.codegen.address_map import FreeRanges
from nki_mlir.targets.neuron.codegen.result_ring import ResultRing
from nki_mlir.targets.neuron.codegen.scheduling_graph import SPACES, SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import Order

LONG = 8                        # a buffer that is needed for this part of the steps, or longer, is allocated apart
LOOKS = 32                      # computations of the need of some steps for each one of all
BRIEF = 48                      # steps whose need takes less time to compute one by one than as an array


class ScheduledMemory:
    """The memory of the steps of a graph. ``base``: where free memory begins, by memory; None: assign no addresses.
    ``engine_masks``: by step, the engines that may run it, as bits.

    ``version`` changes whenever memory is released or the oldest step starts. ``oldest``: the first step in program
    order that was not started. ``changed``: the engines, as bits, that may find a step to start that they did not find
    before. By memory, ``sleepers`` are the engines all of whose ready steps lack free bytes there, and ``wakes`` the
    free bytes that the least of these needs; ``light_sleepers`` are those to look at when ``version`` changes.
    """

    def __init__(self, graph: SchedulingGraph, order: Order, base: dict[str, int] | None, rotates: bool,
                 engine_masks: Sequence[int]) -> None:
        machine, count = graph.machine, len(graph)
        limits = {SBUF: machine.sbuf_bytes_per_partition, PSUM: machine.psum_bytes_per_partition}
        self.graph, self.engine_masks = graph, engine_masks
        # By how much the bytes that are needed change at each step, if the rest is in program order.
        self.changes = [array("q", graph.changes[s]) for s in SPACES]
        self.change_arrays = [np.frombuffer(changes, np.int64) for changes in self.changes]     # the same memory
        self.most = [max(accumulate(changes)) for changes in self.changes]     # at least all that is needed from now on
        self.near, self.nearby = [0 for _ in SPACES], [0 for _ in SPACES]   # a step, and at least all needed before it
        self.past = [(0, 0, 1) for _ in SPACES]  # a step, the bytes needed before it, how often they were computed
        self.limit = [max(limits[s] * order.memory // 100, min(most, limits[s])) for s, most in zip(SPACES, self.most)]
        self.room = [limit - graph.outside[s] for limit, s in zip(self.limit, SPACES)]
        self.results = self.limit[0] * (100 - order.loads) // 100       # bytes of SBUF that loads leave
        self.spare = self.limit[0]              # the least that loads have left
        self.space, self.size, self.buffer_users = graph.space, graph.size, graph.buffer_users
        self.free_ranges = [FreeRanges(base[s], limits[s], machine.psum_bank_bytes if s == PSUM else 0, rotates)
                            for s in SPACES] if base is not None else []
        self.addresses = [0] * len(graph.buffer_by_number)
        longest = max(count // LONG, 64)
        self.long = [last_step - first_step > longest for first_step, last_step in zip(graph.first, graph.last)]
        self.ring = ResultRing(graph, limits[PSUM]) if graph.ring else None
        self.uses = list(graph.uses)
        self.version = self.oldest = 0
        self.no_room = [-1] * count     # twice the version in which a transfer had no room; plus one: without events
        self.lacking = [-inf] * count   # free bytes of SBUF without which a step that found no room still finds none
        self.absent = [[*numbers] for numbers in graph.buffers]  # by step, those of its buffers that no step uses yet
        self.demands: list[list[tuple[int, int, int]] | None] = [None] * count      # of ``absent``, where known
        self.changed = self.light_sleepers = 0
        self.sleepers, self.wakes = [0 for _ in SPACES], [inf for _ in SPACES]
        self.lacks = -1                         # the memory whose free bytes did not suffice last; -1: another reason
        self.least = 0                          # the free bytes that would have sufficed

    def least_loads(self) -> int:
        """Return the least percent of SBUF such that no load started beyond it."""
        return next(loads for loads in range(101) if self.limit[0] * (100 - loads) // 100 <= max(self.spare, 0))

    def next_version(self) -> None:
        """Note that steps which found no room may find some."""
        self.version += 1
        self.changed |= self.light_sleepers
        self.light_sleepers = 0

    def sleep(self, engines: int, lacks: int, least: float) -> None:
        """Note what engines, as bits, wait for: ``least`` free bytes of the memory ``lacks``; -1: anything."""
        if lacks < 0:
            self.light_sleepers |= engines
            return
        self.sleepers[lacks] |= engines
        if least < self.wakes[lacks]:
            self.wakes[lacks] = least

    def give_back(self, buffer: int) -> None:
        space, size, last_use = self.space[buffer], self.size[buffer], self.graph.last[buffer]
        self.room[space] = free = self.room[space] + size
        if free >= self.wakes[space]:
            self.changed |= self.sleepers[space]
            self.sleepers[space], self.wakes[space] = 0, inf
        if self.ring is not None and SPACES[space] == PSUM:
            self.ring.release(buffer)
        if last_use >= self.oldest:
            self.changes[space][self.oldest] -= size
            self.changes[space][last_use + 1] += size
        if self.free_ranges:
            self.free_ranges[space].give(self.addresses[buffer], size)
        self.next_version()

    def allows(self, k: int, new: list[int], transfer: bool, busy: bool) -> bool:
        """Return whether a step's new buffers have room; they then have addresses. If they have none, this holds until
        memory is released or the oldest step starts. ``busy``: other steps are under way."""
        demand = self.demands[k]
        if demand is None:
            demand = self.demands[k] = self.graph.demand(new)
        self.lacks = -1
        if self.ring is not None and busy and not self.ring.has_room(new):
            return False
        for space, size, last_step in demand:
            room = self.room[space]
            if transfer and not space and busy:
                if size > room - self.results:
                    self.lacks, self.least = space, size + self.results
                    self.lacking[k] = self.least
                    return False
                if room - size < self.spare:
                    self.spare = room - size
            elif size > room:
                # Nothing frees memory any more, or sums that are live throughout take more than there is.
                if not (k == self.oldest and not busy and not self.free_ranges):
                    self.lacks, self.least = space, size
                    if not space:
                        self.lacking[k] = size
                    return False
                continue
            most = self.limit[space] - size
            if self.most[space] > most and last_step > self.oldest and (
                    self.nearby[space] > most or last_step > self.near[space]) and (
                    self.needed_until(space, last_step) > most):
                return False
        return not self.free_ranges or self.give_addresses(new)

    def needed_until(self, space: int, last_step: int) -> int:
        """Return the most bytes that the steps before ``last_step`` need if the remaining steps run in program
        order. Compute the need of all steps only once in ``LOOKS`` computations: long code has many steps."""
        changes, oldest = self.changes[space], self.oldest
        after, past, count = self.past[space]
        if after < oldest:
            past += sum(changes[after:oldest])
        self.past[space] = oldest, past, count + 1
        if count % LOOKS and last_step - oldest < BRIEF:
            most = past + max(accumulate(changes[oldest:last_step]))
        else:
            needed = np.add.accumulate(self.change_arrays[space][oldest:last_step if count % LOOKS else None])
            if not count % LOOKS:
                self.most[space] = past + int(np.maximum.reduce(needed))
            most = past + int(np.maximum.reduce(needed[:last_step - oldest]))
        self.near[space], self.nearby[space] = last_step, most
        return most

    def give_addresses(self, new: list[int]) -> bool:
        """Assign addresses to all of the buffers or to none. Return whether it did."""
        assigned: list[int] = []
        for buffer in new:
            ranges, size = self.free_ranges[self.space[buffer]], self.size[buffer]
            address = ranges.take(size, self.long[buffer])
            if address is None:
                for other in assigned:
                    self.free_ranges[self.space[other]].give(self.addresses[other], self.size[other])
                return False
            self.addresses[buffer] = address
            assigned.append(buffer)
        return True

    def occupy(self, k: int) -> None:
        """Note that the new buffers of a step are in use. Other steps that need them may have room now."""
        graph, oldest, absent, masks = self.graph, self.oldest, self.absent, self.engine_masks
        for buffer in absent[k]:
            space, size, first_use = self.space[buffer], self.size[buffer], graph.first[buffer]
            self.room[space] -= size
            if first_use > oldest:
                self.changes[space][oldest] += size
                self.changes[space][first_use] -= size
                self.most[space] += size
                self.nearby[space] += size
            for user in self.buffer_users[buffer]:
                if user != k:
                    absent[user].remove(buffer)
                    self.demands[user] = None
                    self.lacking[user] = -inf
                    self.no_room[user] = -1
                    self.changed |= masks[user]
        absent[k] = []
