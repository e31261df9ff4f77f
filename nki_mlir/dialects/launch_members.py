# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The other programs of a launch, or ranks, with which a program exchanges data.

An operation at which several of them meet looks up the current member here. The runner of several programs sets it for
each; without a setting a program is alone.
"""

from collections.abc import Hashable
from contextvars import ContextVar
from typing import Protocol, TypeVar

from nki_mlir.diagnostics import Unsupported

PROGRAMS, RANKS = "programs", "ranks"


T = TypeVar("T")


class Member(Protocol):
    """One of several programs or ranks that run together, by number."""

    number: int

    def exchange(self, members: tuple[int, ...], key: Hashable, value: T, operation: str) -> list[T]:
        """Return the values of all members, in their order. The n-th call of each member with ``key`` belongs to the
        n-th calls of the other members.

        The value must not change afterwards.
        """


class FewerRanks(Unsupported):
    """A rank meets other ranks, but some of them do not run; ``count``: the number of ranks that must run."""

    def __init__(self, operation: str, members: tuple[int, ...], running: int) -> None:
        super().__init__(feature=f"{operation} between {len(members)} ranks in a kernel that runs on {running} ranks",
                         instead="run the ranks together: in JAX call the kernel in jax.shard_map on as many devices, "
                                 "otherwise use nki_mlir.language.current.simulator.simulate_ranks")
        self.count = max(members) + 1


class OneProgram:
    """The only program of a launch."""

    number = 0

    def exchange(self, members: tuple[int, ...], key: Hashable, value: T, operation: str) -> list[T]:
        if members == (0,):
            return [value]
        raise Unsupported(feature=f"{operation} between {len(members)} programs in a kernel that runs as one program",
                          instead="launch the kernel on several cores: kernel[2](...)")


class OneRank:
    """The only rank that runs."""

    number = 0

    def exchange(self, members: tuple[int, ...], key: Hashable, value: T, operation: str) -> list[T]:
        if members == (0,):
            return [value]
        raise FewerRanks(operation, members, 1)


ONE_PROGRAM, ONE_RANK = OneProgram(), OneRank()
MEMBERS: dict[str, ContextVar[Member]] = {PROGRAMS: ContextVar(PROGRAMS, default=ONE_PROGRAM),
                                        RANKS: ContextVar(RANKS, default=ONE_RANK)}
