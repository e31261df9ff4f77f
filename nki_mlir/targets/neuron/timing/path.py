# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The critical path: from the last completion back to the start, each piece of time with what it went to.

Pieces follow each other without a gap, so that they add up to the whole.
"""

from collections.abc import Iterator
from typing import NamedTuple

from nki_mlir.targets.neuron.timing.record import BEGIN, MEETING, OWN_RESULT, SEMAPHORE, Record

RUNS, RESULT, ISSUE, TRIGGER, MOVES, NOTIFIES = "runs", "result", "issue", "trigger", "moves", "notifies"


class Piece(NamedTuple):
    """ns from ``begin`` to ``end`` that an event took: running, until its result was seen, or a part of a transfer."""

    event: int
    what: str
    begin: float
    end: float


def critical_path(record: Record) -> list[Piece]:
    """The pieces in order of time; none where nothing ran."""
    return [Piece(*piece) for piece in pieces_of(record)]


def pieces_of(record: Record) -> list[tuple[int, str, float, float]]:
    """The same as plain tuples, which are faster to make."""
    if not len(record):
        return []
    last = record.complete.index(max(record.complete))
    return [piece for piece in _back(record, last) if piece[3] > piece[2]][::-1]


def _back(record: Record, event: int) -> Iterator[tuple[int, str, float, float]]:
    """Pieces from the completion of an event back to 0."""
    time = record.complete[event]
    seen = True                                     # whether its result is what was waited for
    while True:
        while seen and event in record.held:        # another one's result was later
            event = record.held[event]
        movement = record.movements.get(event) if seen else None
        if movement is not None:
            moved = min(movement.end, time)
            yield (event, NOTIFIES, moved, time)
            time = moved
            while movement.behind >= 0:             # its DMA engine had another one's part before
                begin = min(movement.begin, time)
                yield (event, MOVES, begin, time)
                event, time = movement.behind, begin
                movement = record.movements[event]
            first = min(movement.first, time)
            yield (event, MOVES, first, time)
            if movement.met >= 0:
                event = movement.met
            start = record.start[event]
            yield (event, TRIGGER, start, first)
            time = start
        else:
            end = min(record.end[event], time)
            if seen:
                yield (event, RESULT, end, time)
                time = end
            start = record.start[event]
            yield (event, ISSUE if event in record.movements else RUNS, start, time)
            time = start
        why, cause = record.why[event], record.cause[event]
        while why == MEETING and cause >= 0:        # the last to come began when the meeting did
            event = cause
            why, cause = record.why[event], record.cause[event]
        if why == BEGIN or cause < 0:
            return
        event = cause
        seen = why in (SEMAPHORE, OWN_RESULT)
        if why == OWN_RESULT:
            yield (event, RESULT, min(record.end[event], time), time)
            time, seen = min(record.end[event], time), False
