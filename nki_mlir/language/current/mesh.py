# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several cores or ranks in one process: they take turns, and wait for each other where an instruction says so.

One runs at a time, until it waits or ends, so that what they share needs no locks and runs are repeatable.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from nki_mlir.language.current.errors import invalid


class Stopped(BaseException):
    """Another member failed."""


class Mesh:
    """The members, by number, and what they have posted for each other."""

    def __init__(self, members: Sequence[int]) -> None:
        self.members = list(members)
        self.turn = threading.Condition()
        self.waiting: dict[int, Callable[[], bool]] = {}
        self.alive = set(self.members)
        self.failed = False
        self.counts: dict[Any, int] = {}            # how often a member has passed a place
        self.posted: dict[Any, Any] = {}

    def run(self, bodies: dict[int, Callable[[], Any]]) -> dict[int, Any]:
        """Each member's result; the first failure is raised."""
        results: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}

        def member(number: int) -> None:
            with self.turn:
                try:
                    if not self.failed:
                        results[number] = bodies[number]()
                except BaseException as error:      # handed to the caller's thread
                    errors[number] = error
                    self.failed = True
                finally:
                    self.alive.discard(number)
                    self.turn.notify_all()
        threads = [threading.Thread(target=member, args=(n,)) for n in self.members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in self.members:
            if number in errors and not isinstance(errors[number], Stopped):
                raise errors[number]
        return results

    def wait(self, member: int, ready: Callable[[], bool], what: str) -> None:
        """Let the others run until ``ready``."""
        self.waiting[member] = ready
        self.turn.notify_all()
        while not ready():
            if self.failed:
                raise Stopped
            if set(self.waiting) >= self.alive and not any(r() for r in self.waiting.values()):
                self.failed = True
                self.turn.notify_all()
                invalid(f"{what} waits for something that no other core does")
            self.turn.wait()
        del self.waiting[member]

    def next_count(self, key: Any) -> int:
        self.counts[key] = self.counts.get(key, 0) + 1
        return self.counts[key]

    def barrier(self, member: int, members: Sequence[int], what: str) -> None:
        """Wait until all of them are here."""
        mine = self.next_count((what, "barrier", member))
        self.wait(member, lambda: all(self.counts.get((what, "barrier", m), 0) >= mine for m in members), what)

    def exchange(self, member: int, members: Sequence[int], key: Any, value: Any, what: str) -> list[Any]:
        """Post a value and get all members' values for the same occurrence, in their order."""
        mine = self.next_count((key, "exchange", member))
        self.posted[key, member, mine] = value
        self.wait(member, lambda: all((key, m, mine) in self.posted for m in members), what)
        return [self.posted[key, m, mine] for m in members]
