# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rank candidates by time, and tell which ones the model cannot tell apart."""

from collections.abc import Sequence
from typing import NamedTuple

from nki_mlir.scoring.verdict import CandidateVerdict


class Ranked(NamedTuple):
    """A candidate with its rank. Candidates that cannot be told apart share a rank; wrong ones have None.

    ``probability``: how likely it is that the previous candidate is faster; None for the first one.
    """

    rank: int | None
    verdict: CandidateVerdict
    probability: float | None


def ranked(verdicts: Sequence[CandidateVerdict]) -> list[Ranked]:
    """Return the right candidates by time, then the others in their order."""
    from nki_mlir.targets.neuron.timing.uncertainty import SURE, verdict  # start-up: loads MLIR
    right = sorted((v for v in verdicts if v.right), key=lambda v: float(v["total_time"]))
    ranking: list[Ranked] = []
    for k, verdict_of_candidate in enumerate(right):
        sure = verdict(right[k - 1]["laws"], verdict_of_candidate["laws"]).probability if k else None
        rank = 1 if sure is None else (ranking[-1].rank or 0) + (sure >= SURE)
        ranking.append(Ranked(rank, verdict_of_candidate, sure))
    return ranking + [Ranked(None, v, None) for v in verdicts if not v.right]


def lines_of(ranking: Sequence[Ranked]) -> list[str]:
    """Return a line for each candidate."""
    lines = []
    for rank, verdict, sure in ranking:
        name = verdict["candidate"]
        if rank is None:
            reason = verdict["reason"]
            lines.append(f"-  {name}: {verdict['verdict']}: {reason['message']} [{reason['code']}]")
            continue
        low, high = (1e6 * t for t in verdict["interval"])
        text = f"{rank}  {name}: {1e6 * verdict['total_time']:.1f} us on the model ({low:.1f}-{high:.1f})"
        if sure is not None:
            previous = ranking[[id(f.verdict) for f in ranking].index(id(verdict)) - 1]
            percent = f"{min(sure, 0.999):.0%}" if sure < 0.99 else f"{min(sure, 0.999):.1%}"
            text += f", {percent} sure that it is slower than the one before" if previous.rank != rank else \
                f"; cannot be told apart from the one before ({percent} sure of the order)"
        lines.append(text)
    return lines
