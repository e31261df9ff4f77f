# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A time before which the steps that a list scheduler starts cannot all end, as known while it starts them.

Behind each step that has started, its longest chain of dependences has to run, and each engine has to run the steps
that no other engine may run. Both hold whatever the scheduler starts next.
"""

from collections.abc import Sequence


class LeastEnd:
    """``rests``: by step, ns from its start to the end of its longest chain at least. ``of_chains``: the latest end of
    these chains; a step that starts raises it."""

    def __init__(self, rests: Sequence[float]) -> None:
        self.rests = rests
        self.of_chains = max(rests, default=0.0)

    def at(self, time: float, free_at: Sequence[float], missing_ns: Sequence[float]) -> float:
        """Return the earliest end. By engine, ``free_at`` is when it is free, and ``missing_ns`` the ns of the steps to
        start that only it may run."""
        return max([max(free, time) + missing for free, missing in zip(free_at, missing_ns)] + [self.of_chains])
