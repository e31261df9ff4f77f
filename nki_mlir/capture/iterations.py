# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which iterations of which loops a kernel is in."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nki_mlir.capture.affine import Symbol


@dataclass(eq=False)
class LoopRun:
    """One run of a loop. ``symbol`` stands for all its iterations at once, where it stays rolled."""

    parallel: bool
    name: str
    symbol: Symbol | None = None
    meets: bool = False                 # programs meet inside of it


@dataclass(eq=False)
class Turn:
    """One iteration of a loop, by its number, or all of a rolled one; ``parallels`` counts the parallel loops.

    A branch in a loop that runs is one, too, of that loop.
    """

    loop: LoopRun
    number: int | None
    outside: "Turn | None"
    parallels: int = field(init=False)
    has_ended: bool = False

    def __post_init__(self) -> None:
        self.parallels = self.loop.parallel + (self.outside.parallels if self.outside is not None else 0)


def outward(turn: Turn | None) -> Iterator[Turn]:
    """The iteration and those that it is in, the innermost first."""
    while turn is not None:
        yield turn
        turn = turn.outside
