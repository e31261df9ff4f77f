# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Semaphores over time: what has been counted so far, what is on its way, and who waits."""

from collections import deque

Change = tuple[float, int, int]                 # when, by how much, by which event


class TimedSemaphore:
    """``value`` is what it shows at the time up to which it was settled; ``coming`` are later changes, in order."""

    __slots__ = ("coming", "sleepers", "value")

    def __init__(self) -> None:
        self.value = 0
        self.coming: deque[Change] = deque()
        self.sleepers: dict[int, int] = {}      # who waits -> for which value

    def settle(self, now: float) -> int:
        """What it shows now. Times of calls never go back."""
        coming = self.coming
        while coming and coming[0][0] <= now:
            self.value += coming.popleft()[1]
        return self.value

    def change(self, when: float, amount: int, event: int) -> None:
        """A change at a later time."""
        coming = self.coming
        coming.append((when, amount, event))
        if len(coming) > 1 and coming[-2][0] > when:
            self.coming = deque(sorted(coming, key=lambda change: change[0]))

    def reached(self, value: int) -> Change | None:
        """The first change after which it shows at least the value, as far as changes are known."""
        shown = self.value
        for change in self.coming:
            shown += change[1]
            if shown >= value:
                return change
        return None

    def clear(self) -> None:
        """Back to 0 now; what is still to come counts from there."""
        self.value = 0
