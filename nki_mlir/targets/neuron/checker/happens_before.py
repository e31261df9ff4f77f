# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derives which events are certainly complete when an instruction starts, in every order that the semaphores allow.

Lanes are engines, which complete their instructions in order, and queues, whose transfers complete as their sixteen DMA
engines report. A wait for S >= v implies an event e if S cannot reach v without e and without everything that happens
after e, or after the wait; all other updates of S count as done. Each DMA engine of a queue reports in order, but one
may lag far behind the fifteen others.

The implied updates depend on the happens-before relation, and the relation on the implied updates. The relation is
computed from a guess, in which each wait implies as much as it can; guesses that do not hold in the relation are
withdrawn until all hold. The result holds in every run: assume that a wait is the first to start without an update that
it implies. All events before it agreed with the relation, so the semaphore was too low for it to start.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.targets.neuron.checker.trace import CoreMeeting, Event, StreamTrace

TRIED = 500_000                 # most trials that leave out an update, which take a few seconds
Clock = tuple[int, ...]
WaitKey = tuple[int, int, int]              # lane, index, number of the wait


@dataclass(slots=True)
class Updates:
    """The updates that a lane makes to a semaphore: for each increment its index on the lane and the sum so far; the
    same for decrements. ``in_parts`` counts the increments so far that each DMA engine of a queue makes in part, by 1;
    other increments of a queue follow the completion of their transfer."""

    indices: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    in_parts: list[int] = field(default_factory=list)
    down_indices: list[int] = field(default_factory=list)
    down_sums: list[int] = field(default_factory=list)

    def add(self, index: int, amount: int) -> None:
        indices, sums = (self.indices, self.sums) if amount > 0 else (self.down_indices, self.down_sums)
        indices.append(index)
        sums.append((sums[-1] if sums else 0) + abs(amount))
        if amount > 0:
            self.in_parts.append((self.in_parts[-1] if self.in_parts else 0) + (amount == isa.COMPLETIONS))


@dataclass(slots=True, eq=False)
class Epoch:
    """A semaphore between two clears: its updates by lane, and the first and last event that waits for it by lane."""

    updates: dict[int, Updates] = field(default_factory=dict)
    waits: dict[int, tuple[Event, Event]] = field(default_factory=dict)
    began: Event | None = None
    ended: Event | None = None


class TooManyUpdates(Exception):
    """Several lanes count up semaphores, and it would take too long to derive what waits for these imply."""


class HappensBefore:
    """The happens-before relation of a trace; it sets the ``clock`` of each event. Raises ``TooManyUpdates``."""

    def __init__(self, trace: StreamTrace) -> None:
        self.trace = trace
        self.tried = 0                              # trials that left out an update to see whether a wait can start
        self.implied: dict[WaitKey, dict[int, int]] = {}
        self.epoch_of: dict[WaitKey, Epoch] = {}
        self.final: dict[int, Clock] = {}           # the clock of an engine at its end, by lane
        self.propagate()
        while self.withdraw():
            self.propagate()

    # -- queries -------------------------------------------------------------------------------------------------------
    @staticmethod
    def is_complete(event: Event, lane: int, index: int) -> bool:
        """Return whether event ``index`` of a lane is complete when another event starts."""
        return event.index > index if event.lane == lane else event.clock[lane] >= index

    def ordered(self, earlier: Event, later: Event) -> bool:
        """Return whether ``earlier`` is complete before ``later`` starts."""
        if earlier.queue_lane >= 0:
            return later.clock[earlier.queue_lane] >= earlier.queue_index
        return self.is_complete(later, earlier.lane, earlier.index)

    # -- the relation --------------------------------------------------------------------------------------------------
    def propagate(self) -> None:
        trace = self.trace
        nothing = (0,) * len(trace.lanes)
        self.clocks: list[Clock] = [nothing] * len(trace.lanes)
        self.current = [[Epoch() for _ in state.semaphores] for state in trace.cores]
        self.epochs: list[tuple[int, int, Epoch]] = [
            (core, number, epoch) for core, epochs in enumerate(self.current) for number, epoch in enumerate(epochs)]
        for step in trace.steps:
            if isinstance(step, CoreMeeting):
                self.gather(step)
                continue
            instruction = step.instruction
            if instruction.waits:
                self.wait(step)
            step.clock = self.clocks[step.lane]
            if instruction.update is not None and not step.later:
                self.update(step, instruction.update)
            if isinstance(instruction.op, isa.RangeClear):
                self.clear(step, instruction.op)
        self.final = {lane: self.clocks[lane] for lane, queue in enumerate(trace.is_queue) if not queue}

    def wait(self, event: Event) -> None:
        clock = self.clocks[event.lane]
        for number, wait in enumerate(event.instruction.waits):
            key = event.lane, event.index, number
            epoch = self.current[event.core][wait.semaphore]
            self.epoch_of[key] = epoch
            first_wait, _ = epoch.waits.get(event.lane, (event, event))
            epoch.waits[event.lane] = first_wait, event
            implied = self.implied.get(key)
            if implied is None:
                implied = self.implied[key] = self.possible_events(event, wait.value, epoch)
            for lane, index in implied.items():
                if clock[lane] < index and lane != event.lane:
                    clock = self.joined(clock, lane, index)
        self.clocks[event.lane] = clock

    def joined(self, clock: Clock, lane: int, index: int) -> Clock:
        """Merge a clock with the clock of a lane's event ``index``, at its completion, and of all events before it."""
        events = self.trace.lanes[lane]
        if not self.trace.is_queue[lane]:
            last_event = events[index - 1]
            merged = later_of(clock, last_event.done if last_event.met else last_event.clock)
            merged[lane] = index
            return tuple(merged)
        merged = list(clock)
        for event in events[clock[lane]:index]:
            merged = later_of(merged, event.done if event.met else event.clock)
            merged[event.lane] = max(merged[event.lane], event.index)
        merged[lane] = index
        return tuple(merged)

    def gather(self, gathering: CoreMeeting) -> None:
        """Merge the clocks of all members of a meeting."""
        for event in gathering.events:
            if event.queue_lane < 0:
                if event.instruction.waits:
                    self.wait(event)
                event.clock = self.clocks[event.lane]
        merged = [0] * len(self.clocks)
        for event in gathering.events:
            merged = later_of(merged, event.clock)
            merged[event.lane] = max(merged[event.lane], event.index if event.queue_lane >= 0 else event.index - 1)
        clock = tuple(merged)
        for event in gathering.events:
            event.done = clock
            if event.queue_lane < 0:
                self.clocks[event.lane] = clock
        for event in gathering.completed:
            if event.instruction.update is not None:
                self.update(event, event.instruction.update)

    def update(self, event: Event, update: isa.Update) -> None:
        epoch = self.current[event.core][update.semaphore]
        lane, index = (event.queue_lane, event.queue_index) if event.queue_lane >= 0 else (event.lane, event.index)
        epoch.updates.setdefault(lane, Updates()).add(index, update.amount)

    def clear(self, event: Event, op: isa.RangeClear) -> None:
        epochs = self.current[event.core]
        for number in range(op.first, op.last + 1):
            if (epoch := epochs[number]).updates or epoch.waits:
                epoch.ended = event
                epoch = epochs[number] = Epoch()
                self.epochs.append((event.core, number, epoch))
            epoch.began = event

    # -- implications of a wait ----------------------------------------------------------------------------------------
    def possible_events(self, wait: Event, value: int, epoch: Epoch) -> dict[int, int]:
        """Return the last event of each lane that may have happened when a wait ends. An event that the trace does not
        have yet counts as later than the wait."""
        if value <= 0:
            return {}
        if len(epoch.updates) == 1:
            (lane, updates), = epoch.updates.items()
            if not updates.down_indices:
                count = bisect_left(updates.sums, value) + 1
                if self.is_equally_in_parts(lane, updates):
                    if value < isa.COMPLETIONS:
                        return self.before_transfer(lane, updates.indices[0])
                    count = value // isa.COMPLETIONS
                return {lane: updates.indices[min(count, len(updates.indices)) - 1]}
        return self.implied_events(wait, value, epoch, self.known_by_updates(wait, epoch),
                                   lambda lane, u: len(u.down_indices))

    def before_transfer(self, lane: int, index: int) -> dict[int, int]:
        """Return the last event before a transfer of a queue on the engine that triggers it."""
        trigger = self.trace.lanes[lane][index - 1]
        return {trigger.lane: trigger.index - 1} if trigger.index > 1 else {}

    def known_by_updates(self, wait: Event, epoch: Epoch) -> dict[int, int]:
        """Return by lane the last event that is an update of an epoch, or complete before one starts, unless it is
        known to be complete when the wait starts.
        """
        last, clock = [0] * len(self.clocks), self.clocks[wait.lane]
        for lane, updates in epoch.updates.items():
            if updates.indices:
                event = self.trace.lanes[lane][updates.indices[-1] - 1]
                last = later_of(last, event.done if event.met else event.clock)
                last[event.lane] = max(last[event.lane], event.index - 1)
                last[lane] = max(last[lane], updates.indices[-1])
        return {lane: index for lane, index in enumerate(last) if lane != wait.lane and index > clock[lane]}

    def is_equally_in_parts(self, lane: int, updates: Updates) -> bool:
        """Return whether the lane is a queue whose DMA engines each add 1 for their part of each transfer."""
        return self.trace.is_queue[lane] and updates.in_parts[-1] == len(updates.in_parts)

    def withdraw(self) -> bool:
        """Withdraw the guesses that the relation does not confirm. Return whether there were any."""
        changed = False
        for key, implied in self.implied.items():
            if not implied:
                continue
            lane, index, number = key
            event, epoch = self.trace.lanes[lane][index - 1], self.epoch_of[key]
            only = next(iter(epoch.updates)) if len(epoch.updates) == 1 else None
            if only is not None and not self.trace.is_queue[only] and not epoch.updates[only].down_indices:
                continue                    # a single engine counts up, so that the count is exact
            value = event.instruction.waits[number].value
            confirmed = self.implied_events(event, value, epoch, implied, self.certain(event))
            if confirmed != implied:
                changed = True
                if only in implied and not confirmed:       # no transfer is complete, but one has been triggered
                    confirmed = self.before_transfer(only, epoch.updates[only].indices[0])
                self.implied[key] = confirmed
        return changed

    @staticmethod
    def certain(wait: Event) -> Callable[[int, Updates], int]:
        """Return the function that counts the decrements of a lane that are done before a wait."""
        def certain(lane: int, updates: Updates) -> int:
            last_ordered = wait.index - 1 if lane == wait.lane else wait.clock[lane]
            return bisect_left(updates.down_indices, last_ordered + 1)
        return certain

    def implied_events(self, wait: Event, value: int, epoch: Epoch, guessed: dict[int, int],
                       certain: Callable[[int, Updates], int]) -> dict[int, int]:
        """Return the guessed events without which a wait cannot start, as the index of the last one of each lane.
        ``certain`` is the number of decrements that are done before the wait."""
        down = sum(sums_at(u.down_sums, certain(lane, u)) for lane, u in epoch.updates.items() if u.down_indices)
        needed_events: dict[int, int] = {}
        for lane, most in guessed.items():
            def reachable_without(k: int, lane: int = lane) -> bool:
                self.tried += 1
                if self.tried > TRIED:
                    raise TooManyUpdates
                return sum(self.reached(wait, other, updates, lane, k + 1) for other, updates in epoch.updates.items()
                           ) - down >= value
            # Most guesses hold: then one test is enough.
            count = first_true(most, reachable_without) if reachable_without(most - 1) else most
            if count:
                needed_events[lane] = count
        return needed_events

    def reached(self, wait: Event, lane: int, updates: Updates, missing_lane: int, missing: int) -> int:
        """Return the most that the updates of a lane add while an event (``missing_lane``, ``missing``) is not
        complete, before the wait starts."""
        indices, events = updates.indices, self.trace.lanes[lane]

        def excluded(k: int) -> bool:
            event = events[indices[k] - 1]
            after_wait = event is wait or (event.index > wait.index if event.lane == wait.lane
                                           else event.clock[wait.lane] >= wait.index)
            return after_wait or self.is_complete(event, missing_lane, missing)
        before = bisect_left(indices, missing)
        if lane != missing_lane:
            return sums_at(updates.sums, first_true(len(indices), excluded))
        if not self.trace.is_queue[lane]:
            return sums_at(updates.sums, before)
        # One DMA engine lags; the others may have reported their parts of the missing transfer and of later ones.
        ahead = max(bisect_right(indices, missing), first_true(len(indices), excluded))
        in_parts = sums_at(updates.in_parts, ahead) - sums_at(updates.in_parts, before)
        return sums_at(updates.sums, before) + (isa.COMPLETIONS - 1) * in_parts

    # -- semaphores that are cleared -----------------------------------------------------------------------------------
    def unordered_clears(self) -> list[tuple[int, int, Event, Event]]:
        """Return (core, semaphore, clear, event) of updates and waits that are not ordered with a clear."""
        unordered = []
        for core, number, epoch in self.epochs:
            events = [self.trace.lanes[lane] for lane in epoch.updates]
            for updates, lane in zip(epoch.updates.values(), events):
                indices = sorted((*updates.indices, *updates.down_indices))
                first_event, last_event = lane[indices[0] - 1], lane[indices[-1] - 1]
                if epoch.ended is not None and not self.ordered(last_event, epoch.ended):
                    unordered.append((core, number, epoch.ended, last_event))
                if epoch.began is not None and not self.ordered(epoch.began, first_event):
                    unordered.append((core, number, epoch.began, first_event))
            for first_event, last_event in epoch.waits.values():
                if epoch.ended is not None and not self.is_complete(epoch.ended, last_event.lane, last_event.index):
                    unordered.append((core, number, epoch.ended, last_event))
                if epoch.began is not None and not self.ordered(epoch.began, first_event):
                    unordered.append((core, number, epoch.began, first_event))
        return unordered

    def unordered_counts(self) -> list[tuple[int, int, Event, Event]]:
        """Return (core, semaphore, decrement, wait) of decrements that are not ordered with a wait."""
        unordered = []
        for (lane, index, number), epoch in self.epoch_of.items():
            for other, updates in epoch.updates.items():
                if other == lane or not updates.down_indices:
                    continue
                wait, events = self.trace.lanes[lane][index - 1], self.trace.lanes[other]
                before = bisect_left(updates.down_indices, wait.clock[other] + 1)
                if before < len(updates.down_indices) and not self.is_complete(
                        down := events[updates.down_indices[before] - 1], lane, index):
                    unordered.append((wait.core, wait.instruction.waits[number].semaphore, down, wait))
        return unordered

    def counts_below_zero(self) -> list[tuple[int, int, Event, int]]:
        """Return (core, semaphore, decrement, least sum after it) of decrements that may come before the increments
        which they need."""
        waits = defaultdict[tuple[Epoch, int], list[tuple[int, int]]](list)
        for (lane, index, number), epoch in self.epoch_of.items():
            value = self.trace.lanes[lane][index - 1].instruction.waits[number].value
            waits[epoch, lane].append((index, value))
        below = []
        for core, number, epoch in self.epochs:
            for lane, updates in epoch.updates.items():
                if not self.trace.is_queue[lane]:
                    events = [self.trace.lanes[lane][index - 1] for index in updates.down_indices]
                    sums = [(self.least_sum(event, epoch, waits[epoch, lane]), event) for event in events]
                    below += [(core, number, event, least) for least, event in sums if least < 0]
        return below

    def least_sum(self, down: Event, epoch: Epoch, waits: Sequence[tuple[int, int]]) -> int:
        """Return the least value of an epoch's semaphore after a decrement: the increments that are certainly done
        before it, or the value for which its engine has waited last if that proves more, less the decrements that may
        be done."""
        lowered = {lane: self.lowered(down, lane, updates) for lane, updates in epoch.updates.items()}
        counted = 0
        for lane, updates in epoch.updates.items():
            done = down.index - 1 if lane == down.lane else down.clock[lane]
            counted += sums_at(updates.sums, bisect_right(updates.indices, done))
        least = counted - sum(lowered.values())
        last_wait = bisect_right(waits, (down.index, isa.SEMAPHORE_MAX)) - 1
        if last_wait < 0:
            return least
        index, value = waits[last_wait]
        before_wait = self.certain(self.trace.lanes[down.lane][index - 1])
        return max(least, value - sum(lowered[lane] - sums_at(updates.down_sums, before_wait(lane, updates))
                                      for lane, updates in epoch.updates.items()))

    def lowered(self, down: Event, lane: int, updates: Updates) -> int:
        """Return the most that the decrements of a lane can subtract until the decrement ``down`` is done, including
        ``down``.
        """
        events, indices = self.trace.lanes[lane], updates.down_indices

        def is_later(k: int) -> bool:
            return self.ordered(down, events[indices[k] - 1])
        return sums_at(updates.down_sums, first_true(len(indices), is_later))

    # -- meetings ------------------------------------------------------------------------------------------------------
    def unordered_meetings(self) -> list[tuple[Event, Event]]:
        """Return pairs of unordered events of a core that synchronize with the same cores by the same key: cores match
        such events in the order in which they arrive, so another core may match the later one first."""
        unordered, last = [], dict[tuple[int, object], Event]()
        for (meeting, _), events in self.trace.gatherings.items():
            for event in events:
                before = last.get((event.core, meeting))
                last[event.core, meeting] = event
                if before is not None and not self.is_complete(event, before.lane, before.index):
                    unordered.append((before, event))
        return unordered

    def signal_of(self, event: Event) -> tuple[int, int] | None:
        """Return the (semaphore, value) that signals the completion of an event, or None."""
        lane, index = (event.queue_lane, event.queue_index) if event.queue_lane >= 0 else (event.lane, event.index)
        for core, number, epoch in self.epochs:
            updates = epoch.updates.get(lane)
            if core == event.core and updates is not None and updates.indices and updates.indices[-1] >= index and (
                    epoch.began is None or not self.ordered(event, epoch.began)):
                return number, updates.sums[bisect_left(updates.indices, index)]
        return None


def later_of(clock: Sequence[int], other_clock: Sequence[int]) -> list[int]:
    """Return the larger number of each lane; a comprehension takes half the time of ``map(max, ...)``."""
    return [a if a > b else b for a, b in zip(clock, other_clock)]


def sums_at(sums: Sequence[int], count: int) -> int:
    return sums[min(count, len(sums)) - 1] if count > 0 and sums else 0


def first_true(size: int, holds: Callable[[int], bool]) -> int:
    """Return the first number below ``size`` for which a monotonic condition holds."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
