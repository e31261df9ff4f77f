# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The speed of an engine whose current must not rise at once: full only while the engine is used enough.

The engine counts its use in successive windows from the start of the run, as a hardware counter does. The
count of a device varies about that of the model, so an engine whose use is near the threshold changes its speed sooner
or later. The model keeps the probability of full speed, and work takes its expected time.
"""

from math import erf, fmod, inf, sqrt

from nki_mlir.dialects.op import Op
from nki_mlir.machine import Machine, Ramp


def share_of_rows(op: Op, machine: Machine) -> float:
    """Return the share of the engine's rows that an instruction needs: the partitions that it reads."""
    return max([tile.partitions for _, tile in op.sources()], default=0) / machine.partitions


class RampSpeed:
    """The use of an engine in the current window, and the probability of its full speed.

    ``full``: that probability; ``used``: ns of the current window in which the engine works, times the share of rows.
    """

    rate: float
    window: float
    threshold: float
    spread: float
    full: float
    used: float
    end_of_window: float

    def __init__(self, ramp: Ramp | None) -> None:
        """If ``ramp`` is None, the engine always has full speed."""
        self.rate, self.window, self.threshold, self.spread = 1.0, inf, 0.0, 1.0
        if ramp is not None:
            self.rate, self.window = float(ramp.rate), float(ramp.window_ns)
            self.threshold, self.spread = float(ramp.threshold), float(ramp.spread) * sqrt(2)
        self.full = self.used = 0.0
        self.end_of_window = self.window

    def end(self, start: float, busy: float, share: float) -> float:
        """Return when work ends that takes ``busy`` at full speed and needs that share of the engine's rows."""
        end = start + self.duration(start, busy)
        self.use(start, end, share)
        return end

    def duration(self, start: float, busy: float) -> float:
        """Return the expected time of work that takes ``busy`` at full speed."""
        if start >= self.end_of_window:
            self.close_windows(start)
        return busy * (self.full + (1.0 - self.full) / self.rate)

    def use(self, start: float, end: float, share: float) -> None:
        """Count work that needs that share of the engine's rows."""
        while end > self.end_of_window:
            self.used += (self.end_of_window - start) * share
            start = self.end_of_window
            self.close_windows(start)
        self.used += (end - start) * share

    def close_windows(self, time: float) -> None:
        """Update the probability at the end of each window up to ``time``. An engine at full speed counts the share of
        the rows that its work needs; an engine at a lower speed counts proportionally less."""
        use = self.used / self.window
        at_full_speed, at_lower_speed = self.threshold_probability(use), self.threshold_probability(use * self.rate)
        self.full = self.full * at_full_speed + (1.0 - self.full) * at_lower_speed
        self.used = 0.0
        self.end_of_window += self.window
        if time >= self.end_of_window:           # the engine did not work in the windows in between
            self.full *= self.threshold_probability(0.0)
            between = time - self.end_of_window
            self.end_of_window += between - fmod(between, self.window) + self.window

    def threshold_probability(self, use: float) -> float:
        """Return the probability that a device counts at least the threshold if the model counts ``use``."""
        return 0.5 + 0.5 * erf((use - self.threshold) / self.spread)


class RampState(RampSpeed):
    """The speed of an engine, with what profiles show.

    ``limited`` are the times in which less than full speed was more probable, from the start of the first
    instruction to the end of the last one; ``lost_ns`` is the time that full speed would have saved.
    """

    def __init__(self, ramp: Ramp) -> None:
        super().__init__(ramp)
        self.limited: list[list[float]] = []
        self.slow = False               # the last work more probably had less than full speed
        self.lost_ns = 0.0

    def begin_at_full_speed(self, start: float) -> None:
        """Start the first window with the first work, at ``start``, and at full speed."""
        self.full, self.end_of_window = 1.0, start + self.window

    def end(self, start: float, busy: float, share: float) -> float:
        duration = self.duration(start, busy)
        end = start + duration
        if self.full < 0.5:
            if self.slow:
                self.limited[-1][1] = end
            else:
                self.limited.append([start, end])
                self.slow = True
        else:
            self.slow = False
        self.lost_ns += duration - busy
        self.use(start, end, share)
        return end
