# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Events in the order of their time, then of their number, as a heap."""

from nki_mlir.targets.runtime.compiled_class import new_array, new_floats


class EventQueue:
    """A queue of ``events`` events. The first one has the time ``times[0]`` and the number ``numbers[0]``."""

    events: int
    times: list[float]
    numbers: list[int]

    def __init__(self, most: int) -> None:
        self.events, self.times, self.numbers = 0, new_floats(most), new_array(most)

    def push(self, time: float, number: int) -> None:
        times, numbers, k = self.times, self.numbers, self.events
        self.events = k + 1
        while k > 0:
            parent = k - 1 >> 1
            if times[parent] < time or (times[parent] == time and numbers[parent] < number):
                break
            times[k], numbers[k] = times[parent], numbers[parent]
            k = parent
        times[k], numbers[k] = time, number

    def pop(self) -> None:
        """Remove the first event."""
        times, numbers, count, k = self.times, self.numbers, self.events - 1, 0
        self.events = count
        time, number = times[count], numbers[count]
        while 2 * k + 1 < count:
            child = 2 * k + 1
            if child + 1 < count and (times[child + 1] < times[child] or (
                    times[child + 1] == times[child] and numbers[child + 1] < numbers[child])):
                child += 1
            if time < times[child] or (time == times[child] and number < numbers[child]):
                break
            times[k], numbers[k] = times[child], numbers[child]
            k = child
        times[k], numbers[k] = time, number
