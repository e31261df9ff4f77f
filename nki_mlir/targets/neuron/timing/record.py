# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ran when: an entry for each instruction that was executed, numbered in the order in which they were timed."""

from array import array
from typing import NamedTuple

# Why an instruction did not start earlier.
BEGIN, ORDER, SEMAPHORE, OWN_RESULT, PORT, MEETING = range(6)


class Movement(NamedTuple):
    """A transfer's times, in ns: its first byte could move, moved; its last byte had.

    By event (-1: none) the transfer in front of it at the DMA engine, and the one of another core that it waited for.
    """

    first: float
    begin: float
    end: float
    behind: int
    met: int


class Record:
    """Columns by event: the agent (an engine of a core) and the position in its stream; from when to when the engine
    was taken, and when the result was seen; why it did not start earlier, and by which event (-1: none).

    ``held`` are events whose result was seen no earlier than another's of the same engine; ``movements`` are those of
    transfers.
    """

    def __init__(self) -> None:
        self.agent = array("i")
        self.position = array("i")
        self.start = array("d")
        self.end = array("d")
        self.complete = array("d")
        self.why = array("b")
        self.cause = array("i")
        self.previous = array("i")                  # event of the same agent
        self.movements: dict[int, Movement] = {}
        self.held: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.agent)

    def add(self, agent: int, place: int, start: float, end: float, complete: float, why: int, cause: int,
            previous: int) -> int:
        """Its number."""
        self.agent.append(agent)
        self.position.append(place)
        self.start.append(start)
        self.end.append(end)
        self.complete.append(complete)
        self.why.append(why)
        self.cause.append(cause)
        self.previous.append(previous)
        return len(self.agent) - 1
