# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A record of what the timed machine does, as rows of numbers: the methods that write them also run as machine code."""

from collections.abc import Iterator
from typing import Any

from nki_mlir.targets.neuron.timing.record import Movement, Record
from nki_mlir.targets.runtime.compiled_class import new_array, new_floats

EVENT = ("agent", "position", "why", "cause")           # columns of ``Record``, then the later event
EVENT_TIMES = ("start", "end", "complete")


class RunNotes:
    """The latest events, and the latest transfers that began to move: ``noted`` and ``moved`` say how many there are,
    ``room`` how many there may be. An event is 5 numbers in ``events`` and 3 in ``times``, a transfer 4 numbers in
    ``movements`` and 4 in ``movement_times``. The changes of their semaphores, ``signaled`` of them, are in
    ``signal_times`` and ``signal_amounts``, one transfer after the other.
    """

    noted: int
    moved: int
    signaled: int
    room: int
    events: list[int]
    times: list[float]
    movements: list[int]
    movement_times: list[float]
    signal_times: list[float]
    signal_amounts: list[int]

    def __init__(self, room: int, dma_engines: int) -> None:
        """With ``room`` 0, nothing is recorded."""
        self.noted = self.moved = self.signaled = 0
        self.room = room
        self.events, self.times = new_array(5 * room), new_floats(3 * room)
        self.movements, self.movement_times = new_array(4 * room), new_floats(4 * room)
        self.signal_times, self.signal_amounts = new_floats(room * dma_engines), new_array(room * dma_engines)

    def is_full(self) -> bool:
        """Return whether there is no room for another event."""
        return self.noted == self.room and self.room > 0

    def note(self, agent: int, position: int, start: float, end: float, complete: float, why: int, cause: int,
             later: int) -> None:
        """Record an event. ``later``: the event of the same engine whose result was seen after this one's; -1: none."""
        events, times, k, t = self.events, self.times, 5 * self.noted, 3 * self.noted
        events[k], events[k + 1], events[k + 2], events[k + 3], events[k + 4] = agent, position, why, cause, later
        times[t], times[t + 1], times[t + 2] = start, end, complete
        self.noted += 1

    def note_movement(self, event: int, earliest: float, begin: float, end: float, notified: float, preceding: int,
                      met: int) -> None:
        """Record a transfer; the arguments are those of ``Movement``."""
        movements, times, k = self.movements, self.movement_times, 4 * self.moved
        movements[k], movements[k + 1], movements[k + 2], movements[k + 3] = event, preceding, met, 0
        times[k], times[k + 1], times[k + 2], times[k + 3] = earliest, begin, end, notified
        self.moved += 1

    def note_signal(self, time: float, amount: int) -> None:
        """Record a change of the semaphore of the latest transfer."""
        self.signal_times[self.signaled], self.signal_amounts[self.signaled] = time, amount
        self.movements[4 * self.moved - 1] += 1
        self.signaled += 1

    def move_to(self, record: Record) -> None:
        """Append the rows to a record, and remove them."""
        first = len(record)
        *events, later = columns(self.events, self.noted, 5)
        for name, column in zip((*EVENT, *EVENT_TIMES), (*events, *columns(self.times, self.noted, 3))):
            getattr(record, name).fromlist(column)
        record.later_events.update({first + k: event for k, event in enumerate(later) if event >= 0})
        signals = list(zip(listed(self.signal_times, self.signaled), listed(self.signal_amounts, self.signaled)))
        at = 0
        for event, preceding, met, count, earliest, begin, end, notified in zip(
                *columns(self.movements, self.moved, 4), *columns(self.movement_times, self.moved, 4)):
            record.movements[event] = Movement(earliest, begin, end, notified, preceding, met, signals[at:at + count])
            at += count
        self.noted = self.moved = self.signaled = 0


def columns(rows: Any, count: int, width: int) -> Iterator[list[Any]]:
    """Yield the columns of the first rows of an array or a list."""
    numbers = listed(rows, count * width)
    return (numbers[k::width] for k in range(width))


def listed(column: Any, count: int) -> list[Any]:
    """Return the first elements of an array or a list."""
    return column[:count] if isinstance(column, list) else column[:count].tolist()
