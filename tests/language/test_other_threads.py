# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of the other threads count, and whether they have run meanwhile."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nki_mlir.language.other_threads import OtherThreads, cpu_times, runs_users_code


@contextmanager
def running(target: Callable[[], object], end: threading.Event) -> Iterator[int]:
    """Run a thread until the end of the ``with`` block, which gets its number."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    while thread.ident not in sys._current_frames():
        time.sleep(0.001)
    try:
        yield thread.ident
    finally:
        end.set()
        thread.join()


def wait_in_users_code(end: threading.Event) -> Callable[[], object]:
    """A function of this file that waits, and has reached its wait when ``running`` sees it or soon after."""
    def wait() -> None:
        end.wait()
    return wait


def seen(number: int) -> None:
    """Wait until a thread counts."""
    while number not in cpu_times():
        time.sleep(0.001)


def test_thread__counts_while_a_function_of_the_user_is_on_its_stack() -> None:
    end = threading.Event()
    with running(wait_in_users_code(end), end) as number:
        seen(number)
        assert runs_users_code(sys._current_frames()[number])
    assert number not in cpu_times()


def test_thread_of_a_library__does_not_count() -> None:
    end = threading.Event()
    with running(end.wait, end) as number:
        assert not runs_users_code(sys._current_frames()[number])
        assert number not in cpu_times()
        others = OtherThreads()
        assert number not in others._before
    assert not runs_users_code(None)


def test_this_thread__does_not_count() -> None:
    assert runs_users_code(sys._getframe())
    assert threading.get_ident() not in cpu_times()


def test_threads__have_run_if_one_used_time_or_began_or_ended() -> None:
    end, turn, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        turn.wait()
        start = time.thread_time()
        while time.thread_time() < start + 0.01:
            pass
        done.set()
        end.wait()
    with running(work, end) as number:
        seen(number)
        others = OtherThreads()
        assert number in others._before
        turn.set()
        done.wait()
        assert others.ran()
        before_another, other_end = OtherThreads(), threading.Event()
        with running(wait_in_users_code(other_end), other_end) as another:
            seen(another)
            assert before_another.ran()
        at_the_end = OtherThreads()
    assert at_the_end.ran()
