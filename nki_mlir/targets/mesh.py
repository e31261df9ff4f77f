# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs programs of one process that exchange values: the exchanges, and threads that wait for each other.

By default, programs take turns: each runs until it ends or has to wait for others, so that shared state needs no locks
and runs are repeatable. If no program waits, all of them run in the calling thread. With ``parallel``, programs run at
the same time.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.launch_members import MEMBERS, ONE_RANK, PROGRAMS, RANKS, FewerRanks

T = TypeVar("T")

NAMES = {"programs": "core", "ranks": "rank"}


class NoMeeting(NkiMlirError):
    code = "NKI-NO-MEETING"
    message = "{waiting}"
    why = "each waits for an exchange that no other member makes"
    fix = "let all members make the same exchanges, in the same order"


class Missing(NkiMlirError):
    """The error of a program that waits. ``exchange`` adds the source location of the instruction."""

    def __init__(self, exchange: "Exchange", operation: str, kind: str) -> None:
        super().__init__()
        self.exchange, self.operation, self.kind = exchange, operation, kind

    @property
    def headline(self) -> str:
        return waiting_text(self.exchange, self.operation, self.at, self.kind)


@dataclass(eq=False)
class Exchange:
    """One occurrence of an exchange: the values that members have sent, and the number of members that have read them
    all."""

    members: tuple[int, ...]
    values: dict[int, object] = field(default_factory=dict)
    readers: int = 0

    @property
    def complete(self) -> bool:
        return len(self.values) == len(self.members)


class Exchanges:
    """The exchanges between some programs that are under way."""

    def __init__(self) -> None:
        self.open: dict[Hashable, Exchange] = {}
        self.counts: dict[Hashable, int] = {}           # how many exchanges of a key a member has passed

    def contribute(self, member: int, members: tuple[int, ...], key: Hashable, value: object) -> Exchange:
        """Add the member's value to its next exchange, and return the exchange. A second value before the exchange
        ends has no effect."""
        exchange = self.open.setdefault(self._key(member, members, key), Exchange(members))
        exchange.values.setdefault(member, value)
        return exchange

    def collect(self, member: int, key: Hashable, exchange: Exchange) -> list[Any]:
        """Return the values of all members of a complete exchange."""
        full_key = self._key(member, exchange.members, key)
        counted = key, exchange.members, member
        self.counts[counted] = self.counts.get(counted, 0) + 1
        exchange.readers += 1
        if exchange.readers == len(exchange.members):
            del self.open[full_key]
        return [exchange.values[m] for m in exchange.members]

    def _key(self, member: int, members: tuple[int, ...], key: Hashable) -> Hashable:
        return key, members, self.counts.get((key, members, member), 0)


@dataclass(eq=False)
class MeshMember:
    """One program as a member of a mesh."""

    mesh: "Mesh"
    number: int

    def exchange(self, members: tuple[int, ...], key: Hashable, value: T, operation: str) -> list[T]:
        if self.mesh.closed and max(members) >= len(self.mesh.bodies):
            raise FewerRanks(operation, members, len(self.mesh.bodies))
        return self.mesh.exchange(self.number, members, key, value, operation)


class Mesh:
    """Programs 0, 1, ... with a function each. ``closed``: waiting for another program raises ``FewerRanks`` at
    once."""

    def __init__(self, bodies: Sequence[Callable[[], object]], kind: str = PROGRAMS, parallel: bool = False,
                 closed: bool = False) -> None:
        self.bodies, self.kind, self.parallel, self.closed = bodies, kind, parallel, closed
        self.changed = threading.Condition()
        self.exchanges = Exchanges()
        self.unstarted = list(range(len(bodies)))
        self.alive = set(self.unstarted)
        self.waiting: dict[int, Exchange] = {}
        self.running: int | None = None                 # the member whose turn it is, if they take turns
        self.failed = False
        self.results: dict[int, np.ndarray] = {}
        self.errors: dict[int, BaseException] = {}
        self.threads: list[threading.Thread] = []
        self.context: Context = copy_context()

    def run(self) -> list[object]:
        """Run all members, and return their results. The first failure is raised."""
        first_number = self.unstarted.pop(0)
        if self.parallel:
            later_numbers, self.unstarted = self.unstarted, []
            for number in later_numbers:
                self._spawn(number)
        try:
            self._work(first_number)
        finally:
            for thread in self.threads:                 # members may start further threads
                thread.join()
        if self.errors:
            raise self._failure()
        return [self.results[number] for number in range(len(self.bodies))]

    # -- members -------------------------------------------------------------------------------------------------------
    def _spawn(self, number: int) -> None:
        thread = threading.Thread(target=self._work, args=(number,), name=f"{NAMES[self.kind]} {number}")
        self.threads.append(thread)
        thread.start()

    def _work(self, number: int | None) -> None:
        """Run member ``number``, then others that no thread has started."""
        while number is not None:
            self.running = number
            try:
                self.results[number] = self.context.copy().run(self._run, number)
            except BaseException as error:              # raised in the caller's thread
                self.errors[number] = error
            with self.changed:
                self.failed |= number in self.errors
                self.alive.discard(number)
                number = self._next()

    def _run(self, number: int) -> Any:
        MEMBERS[self.kind].set(MeshMember(self, number))
        return self.bodies[number]()

    def _next(self) -> int | None:
        """Hand over the turn. Return the next member that no thread has started, or None after waking a member that
        waits."""
        if self.failed:
            self.unstarted.clear()
        if self.unstarted:
            return self.unstarted.pop(0)
        complete = [m for m, exchange in self.waiting.items() if exchange.complete]
        if self.waiting and not complete and set(self.waiting) >= self.alive:
            self.failed = True
        self.running = min(complete, default=None)
        self.changed.notify_all()
        return None

    # -- meeting -------------------------------------------------------------------------------------------------------
    def exchange(self, member: int, members: tuple[int, ...], key: Hashable, value: T, operation: str) -> list[T]:
        """Send a value, and wait for the values of all members."""
        with self.changed:
            exchange = self.exchanges.contribute(member, members, key, value)
            if not exchange.complete:
                self._wait(member, exchange, operation)
            elif self.parallel:
                self.changed.notify_all()
            return self.exchanges.collect(member, key, exchange)

    def _wait(self, member: int, exchange: Exchange, operation: str) -> None:
        self.waiting[member] = exchange
        following = self._next()
        if following is not None:
            self._spawn(following)
        while not (exchange.complete and (self.parallel or self.running == member)):
            if self.failed:
                raise Missing(exchange, operation, self.kind)
            self.changed.wait()
        del self.waiting[member]

    def _failure(self) -> BaseException:
        """Return the first error. If members wait in vain, return the error that lists who waits where."""
        missing: dict[int, Missing] = {}
        for number, error in sorted(self.errors.items()):
            if not isinstance(error, Missing):
                return error
            missing[number] = error
        lines = [missing[n].headline if n in missing else "has ended" for n in range(len(self.bodies))]
        return no_meeting(self.kind, lines, missing[min(missing)].at)


def waiting_text(exchange: Exchange, operation: str, at: Location | None, kind: str = PROGRAMS) -> str:
    """Return a text that says for which members a program waits, in which operation, and where."""
    missing = [str(m) for m in exchange.members if m not in exchange.values]
    position = f" ({at})" if at else ""
    return f"waits in {operation} for {NAMES[kind]} {' and '.join(missing)}{position}"


def no_meeting(kind: str, lines: Sequence[str], at: Location | None) -> NkiMlirError:
    """Return the error of members that do not meet; it lists what each of them does."""
    return NoMeeting(waiting="; ".join(f"{NAMES[kind]} {n} {line}" for n, line in enumerate(lines))).located(at)


def run_programs(body: Callable[[int], object], count: int, parallel: bool = False) -> list[Any]:
    """Run ``body(number)`` for each program of a launch. If there are other ranks, programs take turns: the ranks wait
    for each other one program at a time.
    """
    if count == 1:
        return [body(0)]
    parallel &= MEMBERS[RANKS].get() is ONE_RANK
    return Mesh([partial(body, number) for number in range(count)], parallel=parallel).run()
