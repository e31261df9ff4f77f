# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Print the share of similar test cases that keeps a run within 20 minutes on this host: 1, or 3 on a slow one.

Hosts differ by a factor of two: all tests take 15 minutes on one, and 27 on one whose two processors are threads of one
core. ``tests/conftest.py`` reads the number from ``NKI_MLIR_TEST_SHARE``.
"""

import statistics
import time
from concurrent.futures import ProcessPoolExecutor

JOBS = 2                            # processes that run tests side by side
SLOW_SECONDS = 0.068                # of the loop; where all tests take 15 minutes it takes about 0.05, where 27, 0.09
SHARE = 3


def seconds(_: int = 0) -> float:
    """Return the median time of a loop of Python, which most tests consist of."""
    times = []
    for _ in range(9):
        started, texts = time.perf_counter(), {}
        for number in range(400_000):
            texts[number & 1023] = str(number)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    with ProcessPoolExecutor(JOBS) as processes:
        print(SHARE if max(processes.map(seconds, range(JOBS))) > SLOW_SECONDS else 1)
