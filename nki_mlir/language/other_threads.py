# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tells whether the user's other threads have run meanwhile, by the CPU time that each has used."""

import sys
import threading
import time
from types import FrameType

from nki_mlir.capture.locations import is_users


class OtherThreads:
    """The other threads that have code of the user's on their stack when this object is created."""

    def __init__(self) -> None:
        self._before = cpu_times()

    def ran(self) -> bool:
        """Return whether one of them, or one that was started since, has run since."""
        current = cpu_times()
        return any(used is None or self._before.get(thread) != used for thread, used in current.items()) or any(
            thread not in current for thread in self._before)


def cpu_times() -> dict[int, float | None]:
    """Return seconds by thread; None if the system does not tell."""
    current_thread = threading.get_ident()
    return {thread: cpu_time(thread) for thread, frame in sys._current_frames().items()
            if thread != current_thread and runs_users_code(frame)}


def cpu_time(thread: int) -> float | None:
    clock = getattr(time, "pthread_getcpuclockid", None)
    try:
        return None if clock is None else time.clock_gettime(clock(thread))
    except OSError:                                 # the thread has ended
        return None


def runs_users_code(frame: FrameType | None) -> bool:
    while frame is not None:
        if is_users(frame.f_code.co_filename, frame.f_globals):
            return True
        frame = frame.f_back
    return False
