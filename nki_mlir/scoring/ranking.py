# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of candidates by time, and where it cannot be told."""

from collections.abc import Sequence
from typing import NamedTuple

from nki_mlir.scoring.verdict import CandidateVerdict


class Ranked(NamedTuple):
    """A candidate with its rank: those that cannot be told apart share one. Without a rank it is not right.

    ``probability`` is how sure it is that the one before is faster; None for the first.
    """

    rank: int | None
    verdict: CandidateVerdict
    probability: float | None


def ranked(verdicts: Sequence[CandidateVerdict]) -> list[Ranked]:
    """The right ones by time, then the others as they came."""
    from nki_mlir.targets.neuron.timing.uncertainty import SURE, verdict  # start-up: loads MLIR
    right = sorted((v for v in verdicts if v.right), key=lambda v: float(v["total_time"]))
    found: list[Ranked] = []
    for k, one in enumerate(right):
        sure = verdict(right[k - 1]["laws"], one["laws"]).probability if k else None
        rank = 1 if sure is None else (found[-1].rank or 0) + (sure >= SURE)
        found.append(Ranked(rank, one, sure))
    return found + [Ranked(None, v, None) for v in verdicts if not v.right]


def lines_of(found: Sequence[Ranked]) -> list[str]:
    """A line for each."""
    lines = []
    for rank, one, sure in found:
        name = one["candidate"]
        if rank is None:
            lines.append(f"-  {name}: {one['verdict']}: {one['reason']['message']} [{one['reason']['code']}]")
            continue
        low, high = (1e6 * t for t in one["interval"])
        text = f"{rank}  {name}: {1e6 * one['total_time']:.1f} us on the model ({low:.1f}-{high:.1f})"
        if sure is not None:
            known = found[[id(f.verdict) for f in found].index(id(one)) - 1]
            percent = f"{min(sure, 0.999):.0%}" if sure < 0.99 else f"{min(sure, 0.999):.1%}"
            text += f", {percent} sure that it is slower than the one before" if known.rank != rank else \
                f"; cannot be told apart from the one before ({percent} sure of the order)"
        lines.append(text)
    return lines
