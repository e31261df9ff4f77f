# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The on-chip memory of a run while the list scheduler starts its steps: the free bytes, the addresses of buffers, the
bytes that the remaining steps need, and which engines wait for memory.

The scheduler tries an engine whose ready steps find no room again only when the answer may differ. If all of these
steps lack free bytes, that is when the memory has as many as the least of them needs. If the remaining steps would lack
memory, or the free ranges are too small, it is at the next change of ``version``.
"""

from typing import Any

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.targets.neuron.codegen.address_map import FreeRanges
from nki_mlir.targets.neuron.codegen.graph_columns import columns_of
from nki_mlir.targets.neuron.codegen.result_ring import ResultRing, owners_in_ring
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.codegen.step_table import SPACES
from nki_mlir.targets.runtime.compiled_class import int_array, new_array

LOOKS = 32                      # one of this many computations of the need covers all steps, the others only some
ANY = 1 << 60                   # more bytes than any memory has
COLUMNS = ("space", "size", "first", "last", "long", "buffer_users_start", "buffer_users", "buffers_start", "buffers")


class ScheduledMemory:
    """The memory of the steps of a graph. ``base``: where free memory begins, by memory; None: assign no addresses.
    Arrays by memory have the index in ``SPACES``; lists of lists are one array, with the ``..._start`` of each list.

    By buffer: ``space``, ``size``, ``first`` and ``last`` as the graph has them; ``uses``: the steps that still use
    it; ``long``: whether its live range is long; ``addresses``. By step: ``masks``, the engines that may run it, as
    bits; ``absent``: those of its buffers that no step uses yet, ``absent_count`` of them; ``no_room``: twice the
    version in which a transfer had no room, plus one without events; ``lacking``: free bytes of SBUF without which a
    step that found no room still finds none.

    By memory: ``changes``: by how much the bytes that are needed change at each step, if the rest is in program order;
    ``most``: at least all bytes that are needed from now on; ``near_step`` and ``near_bytes``: a step, and at least
    all bytes needed before it; ``past_step`` and ``past_bytes``: a step, and the bytes needed before it; ``computed``:
    how often they were; ``limit`` and ``free``: bytes that there are, and that are free. ``results``: bytes of SBUF
    that loads leave; ``spare``: the least that loads have left.

    ``version`` changes whenever memory is released or the oldest step starts. ``oldest``: the first step in program
    order that was not started. ``changed``: the engines, as bits, that may find a step to start that they did not find
    before. By memory, ``sleepers`` are the engines all of whose ready steps lack free bytes there, and ``wakes`` the
    free bytes that the least of these needs; ``light_sleepers`` are those to look at when ``version`` changes.
    ``lacks``: the memory whose free bytes did not suffice last (-1: another reason), ``least``: what would have.
    """

    space: list[int]
    size: list[int]
    first: list[int]
    last: list[int]
    buffer_users_start: list[int]
    buffer_users: list[int]
    buffers_start: list[int]
    buffers: list[int]
    uses: list[int]
    long: list[int]
    addresses: list[int]
    masks: list[int]
    absent: list[int]
    absent_count: list[int]
    no_room: list[int]
    lacking: list[int]
    row: int
    changes: list[int]
    most: list[int]
    near_step: list[int]
    near_bytes: list[int]
    past_step: list[int]
    past_bytes: list[int]
    computed: list[int]
    limit: list[int]
    free: list[int]
    results: int
    spare: int
    has_addresses: bool
    sbuf: FreeRanges
    psum: FreeRanges
    has_ring: bool
    ring: ResultRing
    version: int
    oldest: int
    changed: int
    light_sleepers: int
    sleepers: list[int]
    wakes: list[int]
    lacks: int
    least: int

    def __init__(self, graph: SchedulingGraph, order: Order, base: dict[str, int] | None, rotates: bool) -> None:
        machine, columns, buffers = graph.machine, columns_of(graph), len(graph.size)
        for name in COLUMNS:
            setattr(self, name, columns[name])
        limits = machine.sbuf_bytes_per_partition, machine.psum_bytes_per_partition
        self.changes, self.row = columns["changes"].copy(), len(graph) + 1
        most: Any = columns["most"]
        self.most = most.copy()
        self.limit = int_array([max(limit * order.memory // 100, min(int(need), limit))
                                for limit, need in zip(limits, most)])
        self.free = self.limit - int_array([graph.outside[s] for s in SPACES])
        self.near_step, self.near_bytes, self.computed = (new_array(2) for _ in range(3))
        self.past_step, self.past_bytes = (new_array(2) for _ in range(2))
        self.spare = int(self.limit[0])
        self.results = self.spare * (100 - order.loads) // 100
        self.has_addresses = base is not None
        starts = base or dict.fromkeys(SPACES, 0)
        self.sbuf = FreeRanges(starts[SBUF], limits[0], 0, rotates, buffers)
        self.psum = FreeRanges(starts[PSUM], limits[1], machine.psum_bank_bytes, rotates, buffers)
        self.addresses = new_array(buffers)
        self.has_ring, self.ring = graph.ring, ResultRing(owners_in_ring(graph, limits[1]) if graph.ring else [])
        self.uses, self.absent = columns["uses"].copy(), columns["buffers"].copy()
        self.absent_count = columns["absent_count"].copy()
        self.no_room, self.lacking = new_array(len(graph), -1), new_array(len(graph), -ANY)
        self.version = self.oldest = self.changed = self.light_sleepers = self.least = 0
        self.sleepers, self.wakes = new_array(2), new_array(2, ANY)
        self.lacks = -1

    def next_version(self) -> None:
        """Record that steps which found no room may find some."""
        self.version += 1
        self.changed |= self.light_sleepers
        self.light_sleepers = 0

    def sleep(self, engines: int, lacks: int, least: int) -> None:
        """Record what engines (bits) wait for: ``least`` free bytes of the memory ``lacks`` or, if it is -1, any
        change."""
        if lacks < 0:
            self.light_sleepers |= engines
        else:
            self.sleepers[lacks] |= engines
            self.wakes[lacks] = min(self.wakes[lacks], least)

    def give_back(self, buffer: int) -> None:
        space, size, last_use = self.space[buffer], self.size[buffer], self.last[buffer]
        self.free[space] += size
        if self.free[space] >= self.wakes[space]:
            self.changed |= self.sleepers[space]
            self.sleepers[space], self.wakes[space] = 0, ANY
        if self.has_ring:
            self.ring.release(buffer)
        if last_use >= self.oldest:
            self.changes[space * self.row + self.oldest] -= size
            self.changes[space * self.row + last_use + 1] += size
        if self.has_addresses:
            ranges = self.psum if space > 0 else self.sbuf
            ranges.release(self.addresses[buffer], size)
        self.next_version()

    def allows(self, k: int, transfer: bool, busy: bool) -> bool:
        """Return whether memory has room for the buffers that a step uses first, and assign their addresses if it has.
        If it has none, it has none until a step releases memory or the oldest step starts. ``busy``: other steps are
        under way."""
        start = self.buffers_start[k]
        end = start + self.absent_count[k]
        self.lacks = -1
        if self.has_ring and busy:
            for at in range(start, end):
                if not self.ring.has_room(self.absent[at]):
                    return False
        for space in range(2):
            size, last_step = 0, -1
            for at in range(start, end):
                buffer = self.absent[at]
                if self.space[buffer] == space:
                    size, last_step = size + self.size[buffer], max(last_step, self.first[buffer])
            if last_step >= 0 and not self.has_bytes(k, space, size, last_step, transfer, busy):
                return False
        return not self.has_addresses or self.give_addresses(start, end)

    def has_bytes(self, k: int, space: int, size: int, last_step: int, transfer: bool, busy: bool) -> bool:
        """Return whether a memory has bytes for the new buffers of a step, the last of which program order first uses
        at ``last_step``."""
        free = self.free[space]
        if transfer and space == 0 and busy:
            if size > free - self.results:
                self.lacks, self.least, self.lacking[k] = space, size + self.results, size + self.results
                return False
            self.spare = min(self.spare, free - size)
        elif size > free:
            # No step will free memory any more, or sums that are live throughout take more than there is.
            if k == self.oldest and not busy and not self.has_addresses:
                return True
            self.lacks, self.least = space, size
            if space == 0:
                self.lacking[k] = size
            return False
        most = self.limit[space] - size
        return not (self.most[space] > most and last_step > self.oldest and (
            self.near_bytes[space] > most or last_step > self.near_step[space]
        ) and self.needed_until(space, last_step) > most)

    def needed_until(self, space: int, last_step: int) -> int:
        """Return the most bytes that the steps before ``last_step`` need if the remaining steps run in program
        order. Compute the need of all steps only once in ``LOOKS`` computations: long code has many steps."""
        changes, row, oldest, count = self.changes, space * self.row, self.oldest, self.computed[space]
        past = self.past_bytes[space]
        for k in range(row + self.past_step[space], row + oldest):
            past += changes[k]
        self.past_step[space], self.past_bytes[space], self.computed[space] = oldest, past, count + 1
        total, most = past, -ANY
        for k in range(row + oldest, row + last_step):
            total += changes[k]
            most = max(most, total)
        if count % LOOKS == 0:
            most_of_all = most
            for k in range(row + last_step, row + self.row):
                total += changes[k]
                most_of_all = max(most_of_all, total)
            self.most[space] = most_of_all
        self.near_step[space], self.near_bytes[space] = last_step, most
        return most

    def give_addresses(self, start: int, end: int) -> bool:
        """Assign addresses to all buffers ``start`` to ``end`` of ``absent``, or to none if one of them has no room.
        Return whether it did."""
        for at in range(start, end):
            buffer = self.absent[at]
            ranges = self.psum if self.space[buffer] > 0 else self.sbuf
            address = ranges.allocate(self.size[buffer], self.long[buffer] != 0)
            if address < 0:
                for assigned in range(start, at):
                    buffer = self.absent[assigned]
                    ranges = self.psum if self.space[buffer] > 0 else self.sbuf
                    ranges.release(self.addresses[buffer], self.size[buffer])
                return False
            self.addresses[buffer] = address
        return True

    def occupy(self, k: int) -> None:
        """Record that the new buffers of a step are in use. Other steps that need them may have room now."""
        oldest, start = self.oldest, self.buffers_start[k]
        for at in range(start, start + self.absent_count[k]):
            buffer = self.absent[at]
            space, size, first_use = self.space[buffer], self.size[buffer], self.first[buffer]
            self.free[space] -= size
            if first_use > oldest:
                self.changes[space * self.row + oldest] += size
                self.changes[space * self.row + first_use] -= size
                self.most[space] += size
                self.near_bytes[space] += size
            for position in range(self.buffer_users_start[buffer], self.buffer_users_start[buffer + 1]):
                user = self.buffer_users[position]
                if user != k:
                    self.arrive(user, buffer)
        self.absent_count[k] = 0

    def arrive(self, user: int, buffer: int) -> None:
        """Record that a buffer which a step uses has an address."""
        at, end = self.buffers_start[user], self.buffers_start[user] + self.absent_count[user] - 1
        while self.absent[at] != buffer:
            at += 1
        for k in range(at, end):
            self.absent[k] = self.absent[k + 1]
        self.absent_count[user] -= 1
        self.lacking[user], self.no_room[user] = -ANY, -1
        self.changed |= self.masks[user]
