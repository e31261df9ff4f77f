# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ran when: an entry for each instruction that was executed, numbered in the order in which they were timed."""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

# Why an instruction did not start earlier.
BEGIN, ORDER, SEMAPHORE, OWN_RESULT, PORT, MEETING = range(6)
WIDTH = 7                       # columns


class Movement(NamedTuple):
    """A transfer's times, in ns: its first byte could move, moved; its last byte had; other engines know of that.

    By event (-1: none) the transfer in front of it at the DMA engine, and the one of another core that it waited for.
    """

    first: float
    begin: float
    end: float
    seen: float
    behind: int
    met: int


class Record:
    """Columns by event: the agent (an engine of a core) and the position in its stream; from when to when the engine
    was taken, and when the result was seen; why it did not start earlier, and by which event (-1: none).

    ``latest`` are the last events, a value for each column in turn, which the columns do not have yet (``settle``).
    ``held`` are events whose result was seen no earlier than another's of the same engine; ``movements`` are those of
    transfers.
    """

    def __init__(self) -> None:
        self.latest: list[int | float] = []
        self.agent = array("i")
        self.position = array("i")
        self.start = array("d")
        self.end = array("d")
        self.complete = array("d")
        self.why = array("b")
        self.cause = array("i")
        self.movements: dict[int, Movement] = {}
        self.held: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.agent) + len(self.latest) // WIDTH

    def settle(self) -> None:
        """Put the latest events into the columns, which take less memory."""
        columns: Sequence[array[Any]] = (self.agent, self.position, self.start, self.end, self.complete, self.why,
                                         self.cause)
        for k, column in enumerate(columns):
            column.fromlist(self.latest[k::WIDTH])
        self.latest.clear()

    def finish(self) -> None:
        """All has run."""
        self.settle()
        for event, movement in self.movements.items():
            self.complete[event] = movement.seen
