# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The speed of an engine whose current may not rise at once: full only while the engine is used enough."""

from collections import deque

from nki_mlir.dialects.op import Op
from nki_mlir.machine import Machine, Ramp


def share_of_rows(op: Op, machine: Machine) -> float:
    """Of the engine's rows those that an instruction needs: they are the partitions of what it reads."""
    return max([tile.partitions for _, tile in op.sources()], default=0) / machine.partitions


class RampState:
    """How much an engine was used in the last window. ``limited`` are the times in which it had less than its full
    speed, from the first instruction's start to the last one's end; ``lost_ns`` is how much less these would take at
    full speed."""

    __slots__ = ("limited", "lost_ns", "needed", "rate", "recent", "slow", "used", "window")

    def __init__(self, ramp: Ramp) -> None:
        self.rate, self.window = float(ramp.rate), float(ramp.window_ns)
        self.needed = float(ramp.threshold) * self.window
        self.recent: deque[list[float]] = deque()           # [from when, until when, use of each ns]
        self.used = 0.0                                     # of all of them
        self.limited: list[list[float]] = []
        self.slow = False                                   # of the last work
        self.lost_ns = 0.0

    def end(self, start: float, busy: float, share: float) -> float:
        """When work ends that takes ``busy`` at full speed and needs that share of the engine's rows."""
        recent, since = self.recent, start - self.window
        while recent and recent[0][1] <= since:
            begin, end, use = recent.popleft()
            self.used -= (end - begin) * use
        used = self.used
        if recent and recent[0][0] < since:
            used -= (since - recent[0][0]) * recent[0][2]
        if used >= self.needed:
            end, use, self.slow = start + busy, share, False
        else:
            end, use = start + busy / self.rate, share * self.rate
            self.lost_ns += end - start - busy
            if self.slow:
                self.limited[-1][1] = end
            else:
                self.limited.append([start, end])
            self.slow = True
        self.used += busy * share
        if recent and recent[-1][1] == start and recent[-1][2] == use:
            recent[-1][1] = end
        else:
            recent.append([start, end, use])
        return end
