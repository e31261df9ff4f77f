# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find the steps that each step of an order comes after.

These are the steps that it depends on, and the previous users of the memory of its new buffers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_mlir.targets.neuron.codegen.address_map import LastOwners
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.step_table import SPACES
from nki_mlir.targets.runtime.compiled_class import (
    CompiledClass,
    int_array,
    longer,
    new_array,
    unset_array,
    with_lists,
)

PAYS_OFF = 6_000                # steps that Python orders in the time in which the method compiles


class MemoryOrder:
    """The uses of buffers by the steps of an order. By buffer, in the order of first uses: ``numbers``, its number. By
    number: ``addresses``, ``ends``, ``spaces`` (as indices in ``SPACES``), and its users in the order (``users_start``,
    ``users``). By step: its position, what it depends on and what depends on it (``before``, ``after``).

    ``at``: the next buffer; ``is_taken``: its memory was given to it, of whose last owners the users that complete last
    are ``tails``; ``heads``: the first users of the buffer, which come after these. ``pairs``: the result, the position
    of each step times ``count``, plus the position of a step that it comes after; it has room for ``capacity``.
    """

    count: int
    buffers: int
    numbers: list[int]
    addresses: list[int]
    ends: list[int]
    spaces: list[int]
    users_start: list[int]
    users: list[int]
    positions: list[int]
    before_start: list[int]
    before: list[int]
    after_start: list[int]
    after: list[int]
    sbuf: LastOwners
    psum: LastOwners
    marks: list[int]
    mark: int
    at: int
    is_taken: bool
    tails: list[int]
    tail_count: int
    heads: list[int]
    head_count: int
    pairs: list[int]
    pair_count: int
    capacity: int

    def __init__(self, graph: SchedulingGraph, order: Any) -> None:
        self.count = len(graph)
        buffers = [*graph.buffer_by_number, *graph.outside_users]
        self.addresses = int_array([buffer.address[1] for buffer in buffers])
        self.ends = self.addresses + int_array([buffer.bytes_per_partition for buffer in buffers])
        self.spaces = int_array([SPACES.index(buffer.space) for buffer in buffers])
        positions = unset_array(self.count)
        positions[order] = np.arange(self.count)
        used, steps = graph.buffer_users.by_user()
        outside = list(enumerate(graph.outside_users.values(), len(graph.buffer_by_number)))
        used = np.concatenate([used, int_array([number for number, users in outside for _ in users])])
        steps = np.concatenate([steps, int_array([k for _, users in outside for k in users])])
        by_position: Any = np.lexsort((positions[steps], used))
        users, starts = steps[by_position], int_array(np.searchsorted(used[by_position], range(len(buffers) + 1)))
        self.users, self.users_start, self.positions = users, starts, positions
        self.numbers = int_array(np.argsort(positions[users[starts[:-1]]], kind="stable"))
        self.buffers = len(buffers)
        self.before_start, self.before = graph.edges.starts, graph.edges.steps
        self.after_start, self.after = graph.edges.users.starts, graph.edges.users.steps
        self.sbuf, self.psum = LastOwners(self.buffers), LastOwners(self.buffers)
        self.marks, self.mark = new_array(self.count), 0
        self.at, self.is_taken = 0, False
        self.tails, self.tail_count = unset_array(len(steps)), 0
        self.heads, self.head_count = unset_array(len(steps)), 0
        self.pair_count, self.capacity = 0, 2 * self.count + 64
        self.pairs = unset_array(self.capacity)

    def advance(self) -> None:
        """Make each buffer the owner of its memory, while the result has room."""
        while self.at < self.buffers:
            if not self.is_taken:
                self.set_owner(self.numbers[self.at])
            if self.pair_count + self.head_count * self.tail_count > self.capacity:
                return
            for head in range(self.head_count):
                first = self.positions[self.heads[head]] * self.count
                for tail in range(self.tail_count):
                    self.pairs[self.pair_count] = first + self.positions[self.tails[tail]]
                    self.pair_count += 1
            self.is_taken = False
            self.at += 1

    def set_owner(self, number: int) -> None:
        """Make a buffer the owner of its memory. List its first steps, and the last steps of the earlier owners of the
        memory, which come before them."""
        owners = self.psum if self.spaces[number] > 0 else self.sbuf
        earlier = owners.set_owner(self.addresses[number], self.ends[number], number)
        self.is_taken, self.tail_count, self.head_count = True, 0, 0
        if earlier == 0:
            return
        for k in range(earlier):
            owner = owners.earlier[k]
            self.mark_users(owner)
            for at in range(self.users_start[owner], self.users_start[owner + 1]):
                step = self.users[at]
                if self.is_apart(self.after, self.after_start[step], self.after_start[step + 1]):
                    self.tails[self.tail_count] = step
                    self.tail_count += 1
        self.mark_users(number)
        for at in range(self.users_start[number], self.users_start[number + 1]):
            step = self.users[at]
            if self.is_apart(self.before, self.before_start[step], self.before_start[step + 1]):
                self.heads[self.head_count] = step
                self.head_count += 1

    def mark_users(self, number: int) -> None:
        self.mark += 1
        for at in range(self.users_start[number], self.users_start[number + 1]):
            self.marks[self.users[at]] = self.mark

    def is_apart(self, steps: list[int], begin: int, end: int) -> bool:
        """Return whether none of the steps is marked."""
        for at in range(begin, end):
            if self.marks[steps[at]] == self.mark:
                return False
        return True


CODE = CompiledClass(MemoryOrder, ("advance",), PAYS_OFF)


def ordered_dependences(graph: SchedulingGraph, order: Sequence[int]) -> StepEdges:
    """Return, by position in an order, the positions of the steps that each comes after: the steps that it depends on,
    and the previous users of the memory of its new buffers."""
    state = MemoryOrder(graph, int_array(order))
    count = state.count
    positions: Any = state.positions
    is_code = CODE.is_ready(count)
    if not is_code:
        with_lists(state)
    while state.at < state.buffers:
        CODE.call("advance", state, is_code)
        if state.at < state.buffers:            # the result needs more room
            more = new_array(state.capacity + state.head_count * state.tail_count)
            state.pairs = longer(state.pairs, more, is_code)
            state.capacity += len(more)
    steps, earlier = graph.edges.by_user()
    depends = positions[steps] * count + positions[earlier]
    return StepEdges.of_pairs(np.concatenate([depends, int_array(state.pairs[:state.pair_count])]), count)
