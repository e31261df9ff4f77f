# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Walk over steps in order and list the earlier steps that each comes after, in columns of numbers.

Steps read and write numbered regions. Columns say for each region which others share bytes with it. The walk records
the latest steps that read and wrote a region, and forgets those that a later write covers.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.targets.runtime.compiled_class import CompiledClass, longer, new_array, unset_array, with_lists

DIRECT = 2                      # most steps that a step comes after: if there are more, implied ones are dropped
PAYS_OFF = 3_000                # steps over which Python walks in the time in which the method compiles


class PartnerColumns(NamedTuple):
    """The regions that share bytes with another one, as linked lists. By region: ``heads``, its first link (-1: none),
    and ``covers_itself``, whether a write surely writes all of it. By link: ``partners``, the other region;
    ``covered``, whether the first contains it; ``links``, the next link."""

    heads: Any
    covers_itself: Any
    partners: Any
    covered: Any
    links: Any


class DependenceScan:
    """``at``: the next of ``count`` steps. The regions that a step reads and writes are ranges of ``reads`` and
    ``writes``. Steps of one of the ``streams`` complete in order, unless each is ``alone`` in its stream.

    By region: the first notes of its ``readers`` and ``writers``; by note: ``note_step`` and ``note_next``. ``listed``:
    by step, the last step that lists it. ``starts`` and ``steps``: the result, which has room for ``capacity``, and
    ends where it has more than ``most``.
    """

    count: int
    at: int
    reads_start: list[int]
    reads: list[int]
    writes_start: list[int]
    writes: list[int]
    alone: bool
    streams: list[int]
    heads: list[int]
    covers_itself: list[int]
    partners: list[int]
    covered: list[int]
    links: list[int]
    readers: list[int]
    writers: list[int]
    note_step: list[int]
    note_next: list[int]
    notes: int
    listed: list[int]
    starts: list[int]
    steps: list[int]
    capacity: int
    most: int

    def __init__(self, reads: tuple[Any, Any], writes: tuple[Any, Any], related: PartnerColumns, streams: Any,
                 most: int) -> None:
        (self.reads_start, self.reads), (self.writes_start, self.writes) = reads, writes
        self.count, self.at, self.notes = len(self.reads_start) - 1, 0, 0
        self.alone = streams is None
        self.streams = new_array(0) if streams is None else streams
        self.heads, self.covers_itself, self.partners, self.covered, self.links = related
        self.readers, self.writers = new_array(len(self.heads), -1), new_array(len(self.heads), -1)
        accesses = len(self.reads) + len(self.writes)
        self.note_step, self.note_next = unset_array(accesses), unset_array(accesses)
        self.listed, self.starts = new_array(self.count, -1), new_array(self.count + 1)
        self.capacity, self.most = 4 * self.count, most
        self.steps = unset_array(self.capacity)

    def advance(self) -> None:
        """Walk on while the result has room for all steps before the next one."""
        while self.at < self.count and self.starts[self.at] + self.at <= self.capacity and (
                self.starts[self.at] <= self.most):
            self.add(self.at)
            self.at += 1

    def add(self, k: int) -> None:
        """List the steps before step ``k`` that it comes after, and record its accesses."""
        end = self.starts[k]
        for at in range(self.reads_start[k], self.reads_start[k + 1]):
            region = self.reads[at]
            end = self.list_notes(self.writers[region], k, end)
            link = self.heads[region]
            while link >= 0:
                end = self.list_notes(self.writers[self.partners[link]], k, end)
                link = self.links[link]
        for at in range(self.writes_start[k], self.writes_start[k + 1]):
            region = self.writes[at]
            end = self.list_notes(self.writers[region], k, end)
            end = self.list_notes(self.readers[region], k, end)
            if self.covers_itself[region] != 0:
                self.writers[region] = self.readers[region] = -1
            link = self.heads[region]
            while link >= 0:
                partner = self.partners[link]
                end = self.list_notes(self.writers[partner], k, end)
                end = self.list_notes(self.readers[partner], k, end)
                if self.covered[link] != 0:
                    self.writers[partner] = self.readers[partner] = -1
                link = self.links[link]
            self.writers[region] = self.noted(self.writers[region], k)
        for at in range(self.reads_start[k], self.reads_start[k + 1]):
            region = self.reads[at]
            self.readers[region] = self.noted(self.readers[region], k)
        self.sort(self.starts[k], end)
        self.starts[k + 1] = end

    def list_notes(self, note: int, k: int, end: int) -> int:
        """Append the steps of some notes to those that step ``k`` comes after; return the new end of the result."""
        while note >= 0:
            step = self.note_step[note]
            if step != k and self.listed[step] != k:
                self.listed[step] = k
                self.steps[end] = step
                end += 1
            note = self.note_next[note]
        return end

    def noted(self, first: int, k: int) -> int:
        """Add step ``k`` to notes, and return the first of them. It replaces an earlier step of its stream."""
        if not self.alone:
            note = first
            while note >= 0:
                if self.streams[self.note_step[note]] == self.streams[k]:
                    self.note_step[note] = k
                    return first
                note = self.note_next[note]
        note = self.notes
        self.note_step[note], self.note_next[note] = k, first
        self.notes += 1
        return note

    def sort(self, begin: int, end: int) -> None:
        """Sort a part of the result, with ever smaller gaps between the steps that are compared."""
        steps, gap = self.steps, (end - begin) // 2
        while gap > 0:
            for at in range(begin + gap, end):
                step, k = steps[at], at
                while k >= begin + gap and steps[k - gap] > step:
                    steps[k] = steps[k - gap]
                    k -= gap
                steps[k] = step
            gap = gap // 2


class ImpliedDependences:
    """Drops from the list of each step the dependences that other ones in the list imply.

    ``starts`` and ``steps`` are the lists, ``direct_start`` and ``direct`` the shorter ones: where each begins, and the
    concatenated lists. ``implied``: by step, the last step from whose list it was dropped.
    """

    count: int
    starts: list[int]
    steps: list[int]
    direct_start: list[int]
    direct: list[int]
    implied: list[int]

    def __init__(self, starts: Any, steps: Any) -> None:
        self.count, self.starts, self.steps = len(starts) - 1, starts, steps
        self.direct_start, self.direct = new_array(len(starts)), unset_array(len(steps))
        self.implied = new_array(self.count, -1)

    def drop(self) -> None:
        for k in range(self.count):
            begin, end, after = self.starts[k], self.starts[k + 1], self.direct_start[k]
            drops = end - begin > DIRECT
            if drops:
                for at in range(begin, end):
                    other = self.steps[at]
                    for before in range(self.direct_start[other], self.direct_start[other + 1]):
                        self.implied[self.direct[before]] = k
            for at in range(begin, end):
                other = self.steps[at]
                if not drops or self.implied[other] != k:
                    self.direct[after] = other
                    after += 1
            self.direct_start[k + 1] = after


def joined(lists: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Return where each list begins in one array of all, and the array."""
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=starts[1:])
    return starts, np.fromiter(chain.from_iterable(lists), np.int64, int(starts[-1]))


def selected(starts: Any, values: Any, counts: Any) -> tuple[Any, Any]:
    """Return lists without the elements that ``counts`` does not select, as the begin of each in an array, and the
    array.
    """
    before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(counts, out=before[1:])
    return before[starts], values[counts]


SCAN = CompiledClass(DependenceScan, ("advance",), PAYS_OFF)
IMPLIED = CompiledClass(ImpliedDependences, ("drop",), PAYS_OFF)


class StepEdges:
    """The steps that each step comes after, in order: those of step k are ``steps[starts[k]:starts[k + 1]]``."""

    def __init__(self, starts: Any, steps: Any) -> None:
        self.starts, self.steps = starts, steps

    @cached_property
    def lists(self) -> list[list[int]]:
        """A list for each step."""
        starts, steps = self.starts.tolist(), self.steps.tolist()
        return [steps[begin:end] for begin, end in pairwise(starts)]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def part(self, begin: int, end: int) -> "StepEdges":
        """Return the lists of some steps, without steps before the first of these, from which steps count then."""
        starts = self.starts[begin:end + 1]
        steps = self.steps[starts[0]:starts[-1]] - begin
        return StepEdges(*selected(starts - starts[0], steps, steps >= 0))

    def with_more(self, more: dict[int, set[int]]) -> "StepEdges":
        """Return the dependences together with those of ``more``, which maps a step to earlier steps that it also
        depends on."""
        count = len(self.starts) - 1
        pairs = np.fromiter([k * count + other for k, earlier in more.items() for other in earlier], np.int64)
        if not len(pairs):
            return self
        steps, before = self.by_user()
        return self.of_pairs(np.concatenate([steps * count + before, pairs]), count)

    @classmethod
    def of_pairs(cls, pairs: Any, count: int) -> "StepEdges":
        """Return the lists of ``count`` steps. A pair is a step times the count, plus a step that it comes after."""
        pairs = np.unique(pairs)
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(pairs // max(count, 1), minlength=count), out=starts[1:])
        return cls(starts, pairs % max(count, 1))

    def by_user(self) -> tuple[Any, Any]:
        """Return the dependences as two arrays of equal length: a step, and a step that it comes after."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts)), self.steps

    @cached_property
    def direct(self) -> "StepEdges":
        """The same lists, without implied steps in lists of more than ``DIRECT``."""
        state = ImpliedDependences(self.starts, self.steps)
        is_code = IMPLIED.is_ready(state.count)
        if not is_code:
            with_lists(state)
        IMPLIED.call("drop", state, is_code)
        starts = np.array(state.direct_start, np.int64)
        return StepEdges(starts, np.array(state.direct[:int(starts[-1])], np.int64))

    @cached_property
    def users(self) -> "StepEdges":
        """The steps that come after each step."""
        return self.users_of(len(self.starts) - 1)

    def users_of(self, count: int) -> "StepEdges":
        """Return for each number up to ``count`` the steps whose lists have it."""
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(self.steps, minlength=count), out=starts[1:])
        users = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return StepEdges(starts, users[np.argsort(self.steps, kind="stable")])


def scanned(reads: tuple[Any, Any], writes: tuple[Any, Any], related: PartnerColumns, streams: Any, most: int
            ) -> StepEdges | None:
    """Return what each step comes after; None if that is more than ``most`` pairs. ``reads`` and ``writes``: where the
    regions of each step begin in an array, and the array; ``streams``: the stream of each step; None: each step is a
    separate stream."""
    state = DependenceScan(reads, writes, related, streams, most)
    is_code = SCAN.is_ready(state.count)
    if not is_code:
        with_lists(state)
    while state.at < state.count:
        SCAN.call("advance", state, is_code)
        if state.starts[state.at] > most:
            return None
        if state.at < state.count:              # the result needs more room
            state.steps = longer(state.steps, new_array(state.capacity), is_code)
            state.capacity *= 2
    starts = np.array(state.starts, np.int64)
    return StepEdges(starts, np.array(state.steps[:int(starts[-1])], np.int64))
