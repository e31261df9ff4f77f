# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an eager run sees of a kernel that capture may refuse: scopes that have ended, iterations that write one place.

Whether it does refuse depends on which loops stay rolled, which numbers cannot show: capture decides. Here is only
whether it has to be asked, so that everything it would refuse raises a doubt, and hardly any other kernel does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_mlir.dialects.op import Op
from nki_mlir.dialects.target_rules import TargetRule
from nki_mlir.frontend.builder import Operands
from nki_mlir.frontend.errors import OutOfScope, SharedHbmInside, UnexpectedOutputDependencies
from nki_mlir.frontend.races import IterationsMeet, ProgramsMeet, UnknownRaceLevel
from nki_mlir.frontend.tensor import View

REFUSALS = (OutOfScope, SharedHbmInside, UnexpectedOutputDependencies, TargetRule, IterationsMeet, ProgramsMeet,
            UnknownRaceLevel)


@dataclass(eq=False)
class WatchedLoop:
    """One run of a loop. ``writers`` are what its iterations have written, by the first one that has."""

    parallel: bool
    writers: dict[tuple[object, ...], object] = field(default_factory=dict)


@dataclass(eq=False)
class WatchedScope:
    """An iteration of a loop, or a branch inside one."""

    loop: WatchedLoop | None
    depth: int
    ended: bool = False


class EagerChecks:
    """Of one launch: all its programs."""

    def __init__(self) -> None:
        self.found = False
        self.programs = WatchedLoop(parallel=True)


class Scopes:
    """The open scopes of one program."""

    def __init__(self, checks: EagerChecks, program: object) -> None:
        self.checks, self.program = checks, program
        self.open: list[WatchedScope] = []

    def enter(self, loop: WatchedLoop | None) -> None:
        self.open.append(WatchedScope(loop, len(self.open)))

    def leave(self, depth: int) -> None:
        """End the scopes beyond the first ``depth``."""
        for scope in self.open[depth:]:
            scope.ended = True
        del self.open[depth:]

    def innermost(self) -> WatchedScope | None:
        return self.open[-1] if self.open else None

    def used(self, view: View) -> None:
        scope = view.buffer.scope
        if scope is not None and scope.ended:
            self.checks.found = True

    def performed(self, op: Op, operands: Operands, views: Sequence[View], independent: bool) -> None:
        """An operation that does not accumulate; ``independent`` says that programs must not write one place."""
        for (kind, tile), view in zip(operands, views):
            self.used(view)
            if not kind.writes or (kind.reads and kind.name in {name for name, _ in op.sources()}):
                continue
            if not self.open and not independent:
                continue
            place = id(tile.handle), tile.access
            outside = view.buffer.scope
            for scope in self.open[0 if outside is None else outside.depth + 1:]:
                if scope.loop is not None and scope.loop.parallel:
                    self.wrote(scope.loop, place, scope)
            if independent and view.buffer.role in ("input", "output"):
                self.wrote(self.checks.programs, place, self.program)

    def wrote(self, loop: WatchedLoop, place: tuple[object, ...], by: object) -> None:
        if loop.writers.setdefault(place, by) is not by:
            self.checks.found = True
