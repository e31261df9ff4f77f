# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The record of a run: one entry for each executed instruction, numbered in the order in which the machine timed them.

The critical path leads from the last completion back to the start: it divides the time into pieces and attributes each
one. Pieces follow each other without a gap, so they add up to the total.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Reasons why an instruction did not start earlier.
BEGIN, ORDER, SEMAPHORE, OWN_RESULT, PORT, MEETING = range(6)


class Movement(NamedTuple):
    """A transfer's times, in ns: its first byte could move; its first byte moved; its last byte had moved;

    other engines know that. Two events (-1: none): the preceding transfer at the DMA engine, and the transfer of
    another core that it waited for. ``signals``: when its semaphore changes, and by how much.
    """

    first: float
    begin: float
    end: float
    seen: float
    preceding: int
    met: int
    signals: Sequence[tuple[float, int]]


class Record:
    """Columns by event: the agent (an engine of a core) and the position in its stream; when the engine was occupied,
    and when the result was visible; why it did not start earlier, and by which event (-1: none).

    ``later_events``: by event, the event of the same engine whose result was seen first; ``movements``: by event, the
    movement of a transfer.
    """

    def __init__(self) -> None:
        self.agent = array("i")
        self.position = array("i")
        self.start = array("d")
        self.end = array("d")
        self.complete = array("d")
        self.why = array("b")
        self.cause = array("i")
        self.movements: dict[int, Movement] = {}
        self.later_events: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.agent)

    def finish(self) -> None:
        """Set the completion of transfers to the time at which other engines know it, at the end of the run."""
        for event, movement in self.movements.items():
            self.complete[event] = movement.seen


# -- the critical path -------------------------------------------------------------------------------------------------
RUNS, RESULT, ISSUE, TRIGGER, MOVES, NOTIFIES = "runs", "result", "issue", "trigger", "moves", "notifies"


class Piece(NamedTuple):
    """The ns from ``begin`` to ``end`` that an event took: to run, until its result was seen, or for a part of a
    transfer."""

    event: int
    phase: str
    begin: float
    end: float


def critical_path(record: Record) -> list[Piece]:
    """Return the pieces of the critical path in order of time; none if nothing ran."""
    return [Piece(*piece) for piece in pieces_of(record)]


def pieces_of(record: Record) -> list[tuple[int, str, float, float]]:
    """Return the pieces of the critical path as plain tuples, which are faster to create."""
    if not len(record):
        return []
    last_event = record.complete.index(max(record.complete))
    return [piece for piece in _back(record, last_event) if piece[3] > piece[2]][::-1]


def _back(record: Record, event: int) -> Iterator[tuple[int, str, float, float]]:
    """Yield the pieces from the completion of an event back to time 0."""
    time = record.complete[event]
    awaited = True                                     # whether the next instruction waited for its result
    while True:
        while awaited and event in record.later_events:        # the result of another transfer was later
            event = record.later_events[event]
        movement = record.movements.get(event) if awaited else None
        if movement is not None:
            arrived = min(movement.end, time)
            yield (event, NOTIFIES, arrived, time)
            time = arrived
            while movement.preceding >= 0:          # its DMA engine moved another transfer's part before
                begin = min(movement.begin, time)
                yield (event, MOVES, begin, time)
                event, time = movement.preceding, begin
                movement = record.movements[event]
            first_time = min(movement.first, time)
            yield (event, MOVES, first_time, time)
            if movement.met >= 0:
                event = movement.met
            start = record.start[event]
            yield (event, TRIGGER, start, first_time)
            time = start
        else:
            end = min(record.end[event], time)
            if awaited:
                yield (event, RESULT, end, time)
                time = end
            start = record.start[event]
            yield (event, ISSUE if event in record.movements else RUNS, start, time)
            time = start
        reason, cause = record.why[event], record.cause[event]
        while reason == MEETING and cause >= 0:        # the engine that arrived last began when the synchronization did
            event = cause
            reason, cause = record.why[event], record.cause[event]
        if reason == BEGIN or cause < 0:
            return
        event = cause
        awaited = reason in (SEMAPHORE, OWN_RESULT)
        if reason == OWN_RESULT:
            yield (event, RESULT, min(record.end[event], time), time)
            time, awaited = min(record.end[event], time), False
