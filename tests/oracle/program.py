# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program of the grid that runs now: its ids, its loops, the programs that it meets, and its findings.

Programs take turns: one runs until it ends or waits for others at a barrier or exchange.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

SOURCES: set[str] = set()               # the file names of kernels' sources


@dataclass(frozen=True)
class Finding:
    """Something that a kernel must not do, at a line of it. ``kind``: unwritten, collision, outside, missing."""

    kind: str
    tensor: str
    index: tuple[int, ...]
    line: int
    text: str


class OutOfBounds(IndexError):
    """An access touches an element outside of its tensor."""


def line() -> int:
    """Return the line of the kernel's source that runs."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename not in SOURCES:
        frame = frame.f_back
    return frame.f_lineno if frame else 0


@dataclass(frozen=True)
class Step:
    """An iteration of one execution of a loop. Of parallel ones, the order must not matter."""

    loop: int
    iteration: int
    parallel: bool


@dataclass(frozen=True)
class Access:
    """Who touches an element: the program, where it is in its loops, at which line."""

    program: int                        # -1: the one that launches them
    path: tuple[Step, ...]
    line: int
    accumulates: bool = False

    def meets(self, other: "Access", declared: tuple[Step, ...]) -> str:
        """Return why the order of two accesses is undefined, or "". ``declared``: the tensor's iterations."""
        if self.program != other.program:
            return "" if min(self.program, other.program) < 0 else f"programs {other.program} and {self.program}"
        for depth, (a, b) in enumerate(zip(other.path, self.path)):
            if a == b:
                continue
            if a.loop == b.loop and a.parallel and len(declared) <= depth:
                return f"iterations {a.iteration} and {b.iteration}"
            return ""
        return ""


@dataclass
class Run:
    """All programs of a launch."""

    grid: tuple[int, ...]
    generation: Any
    shuffle: int | None = None
    findings: list[Finding] = field(default_factory=list)
    printed: list[tuple[str, Any]] = field(default_factory=list)
    shared: dict[Any, Any] = field(default_factory=dict)
    luck: int = 0                       # which of a generator's values: the least, the largest, or mixed ones
    fill: int = 0                       # the byte that memory holds before something writes it
    random: bool = False                # whether a generator was asked
    meetings: dict[Any, dict[int, Any]] = field(default_factory=dict)
    turn: threading.Condition = field(default_factory=threading.Condition)
    running: int = 0
    waiting: dict[int, Callable[[], bool]] = field(default_factory=dict)
    failed: list[BaseException] = field(default_factory=list)
    loops: Iterator[int] = field(default_factory=itertools.count)

    def find(self, kind: str, tensor: str, index: Sequence[int], text: str) -> None:
        at = line()
        if not any((f.kind, f.tensor, f.line) == (kind, tensor, at) for f in self.findings):
            self.findings.append(Finding(kind, tensor, tuple(map(int, index)), at, text))


@dataclass
class Program:
    """One program of a run."""

    run: Run
    ids: tuple[int, ...]
    number: int
    path: tuple[Step, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)         # registers, generators of random numbers
    counts: dict[Any, int] = field(default_factory=dict)
    actions: int = 0                    # accesses to memory so far

    def count(self, what: Any) -> int:
        """Count an event of this program, and return how often it happened before."""
        self.counts[what] = self.counts.get(what, -1) + 1
        return self.counts[what]

    def access(self, accumulates: bool = False) -> Access:
        return Access(self.number, self.path, line(), accumulates)

    def loop(self, numbers: Sequence[int], parallel: bool) -> Iterator[int]:
        """Run the iterations of a loop; those of a parallel loop in any order."""
        around, loop = self.path, next(self.run.loops)
        order = list(numbers)
        if parallel and self.run.shuffle is not None:
            import random
            random.Random(self.run.shuffle + loop).shuffle(order)
        try:
            for number in order:
                self.path = (*around, Step(loop, number, parallel))
                yield number
        finally:
            self.path = around

    def meet(self, kind: Any, members: Sequence[int], value: Any) -> dict[int, Any]:
        """Return the values of all members at their n-th meeting of a kind, after all have reached it."""
        key = (kind, tuple(members), self.count(("meeting", kind, tuple(members))))
        brought = self.run.meetings.setdefault(key, {})
        brought[self.number] = value
        self.wait(lambda: len(brought) == len(members))
        return brought

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let other programs run until this one is ready."""
        run = self.run
        with run.turn:
            run.waiting[self.number] = ready
            while not ready():
                others = [n for n, r in run.waiting.items() if r()]
                if not others:
                    error = RuntimeError(f"programs {sorted(run.waiting)} wait for others that do not come")
                    run.failed.append(error)
                    raise error
                run.running = others[0]
                run.turn.notify_all()
                run.turn.wait_for(lambda: run.running == self.number or bool(run.failed))
                if run.failed:
                    raise RuntimeError("another program failed")
            del run.waiting[self.number]


_local = threading.local()


def current() -> Program:
    """The program that runs."""
    program = getattr(_local, "program", None)
    if program is None:
        raise RuntimeError("no kernel runs: a function of the language was called outside of one")
    return program


def running() -> bool:
    return getattr(_local, "program", None) is not None


def execute(program: Program, body: Callable[[], Any]) -> Any:
    """Run a program in this thread."""
    _local.program = program
    try:
        return body()
    finally:
        _local.program = None


def execute_all(run: Run, programs: list[Program], body: Callable[[Program], Any]) -> list[Any]:
    """What each program returns. Each has a thread, for where it waits; one at a time runs."""
    if len(programs) == 1:
        return [execute(programs[0], lambda: body(programs[0]))]
    results: list[Any] = [None] * len(programs)

    def work(program: Program) -> None:
        with run.turn:
            run.turn.wait_for(lambda: run.running == program.number or bool(run.failed))
            if run.failed:
                return
            del run.waiting[program.number]
        try:
            results[program.number] = execute(program, lambda: body(program))
        except BaseException as error:
            with run.turn:
                run.failed.append(error)
                run.turn.notify_all()
            return
        with run.turn:
            ready = [n for n in sorted(run.waiting) if run.waiting[n]()]
            if ready:
                run.running = ready[0]
            elif run.waiting:
                run.failed.append(RuntimeError(f"programs {sorted(run.waiting)} wait for others that have ended"))
            run.turn.notify_all()

    run.waiting = {p.number: (lambda: True) for p in programs}
    run.running = 0
    threads = [threading.Thread(target=work, args=(p,)) for p in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if run.failed:
        raise run.failed[0]
    return results
