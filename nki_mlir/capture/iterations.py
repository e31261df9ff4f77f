# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the loops around the operation that a kernel executes, and the iteration of each."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nki_mlir.capture.affine import Symbol


@dataclass(eq=False)
class LoopRun:
    """One run of a loop. ``symbol`` is the variable of a rolled loop, whose one captured iteration stands for all.
    ``site`` is where the kernel has an unrolled loop, ``start`` the number of its first iteration."""

    parallel: bool
    name: str
    symbol: Symbol | None = None
    has_barrier: bool = False                 # a barrier or collective of programs is inside
    site: object = None
    start: int | None = None


@dataclass(eq=False)
class EnclosingIteration:
    """One iteration of a loop, by its number, or all iterations of a rolled loop (None). ``parallels`` counts the
    parallel loops around it.

    In an eager run a branch inside a loop is an iteration, too: of a loop that is not parallel.
    """

    loop: LoopRun
    number: int | None
    outside: "EnclosingIteration | None"
    parallels: int = field(init=False)
    has_ended: bool = False

    def __post_init__(self) -> None:
        self.parallels = self.loop.parallel + (self.outside.parallels if self.outside is not None else 0)


def enclosing_iterations(iteration: EnclosingIteration | None) -> Iterator[EnclosingIteration]:
    """Yield the iteration and the iterations around it, innermost first."""
    while iteration is not None:
        yield iteration
        iteration = iteration.outside
