# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The uncertainty of a time, from the residuals of the laws on its critical path.

Errors are those of the logarithm. All uses of one law are wrong in the same direction, different laws independently;
the structure of a kernel's streams (order, overlap, effects that the model leaves out) adds one more error. In the
ratio of two times the common part of both paths cancels.
"""

from collections.abc import Mapping, Sequence
from math import erf, exp, log, sqrt
from typing import NamedTuple, TypedDict

LEVEL = 0.8                     # the share of devices' times that an interval contains
# standard deviations of a normal distribution to either side of its mean that contain this share
DEVIATIONS = 1.2816
SURE = 0.9                      # least probability for which one of two kernels is called the faster one
# Standard deviation of the logarithm of model / published that complete kernels have in addition to their laws'
# residuals: with it the intervals hold four of five published latencies (bench/calibration).
STRUCTURE = 0.12
LAUNCH_LAW = "launch"


class LawShare(TypedDict):
    """The part of the critical path whose time one law of the timed machine predicts: the engine and the law (for a
    transfer, its part), nanoseconds, and the relative residual of the law."""

    law: str
    ns: float
    residual: float


class FasterOfTwo(NamedTuple):
    """Which of two predicted times is shorter, as the index 0 or 1, and the probability that it is the shorter one on a
    device."""

    faster: int
    probability: float

    @property
    def is_certain(self) -> bool:
        return self.probability >= SURE


def relative_error(laws: Sequence[LawShare], total_ns: float) -> float:
    """Return the standard deviation of a time's logarithm."""
    if not total_ns:
        return 0.0
    within = sum(share["ns"] for share in laws if share["law"] != LAUNCH_LAW) / total_ns
    return sqrt(sum((share["ns"] * share["residual"] / total_ns) ** 2 for share in laws) + (STRUCTURE * within) ** 2)


def interval(total_ns: float, error: float) -> tuple[float, float]:
    """Return the interval that contains the times of ``LEVEL`` of all devices."""
    return total_ns * exp(-DEVIATIONS * error), total_ns * exp(DEVIATIONS * error)


def verdict(first: Sequence[LawShare], second: Sequence[LawShare]) -> FasterOfTwo:
    """Compare the times of two kernels on the same target. The error of a law cancels as far as both critical
    paths use the law."""
    a, b = _by_law(first), _by_law(second)
    totals = sum(ns for ns, _ in a.values()), sum(ns for ns, _ in b.values())
    ratio = log(totals[1] / totals[0]) if all(totals) else 0.0
    squares = unlike = 0.0
    for law in {**a, **b}:
        (x, residual), (y, other_residual) = a.get(law, (0.0, 0.0)), b.get(law, (0.0, 0.0))
        difference = y / totals[1] - x / totals[0] if all(totals) else 0.0
        squares += (difference * max(residual, other_residual)) ** 2
        unlike += abs(y - x) / max(totals) if law != LAUNCH_LAW and max(totals) else 0.0
    error = sqrt(squares + 2 * (STRUCTURE * min(1.0, unlike)) ** 2)
    sure = 0.5 * (1 + erf(abs(ratio) / error / sqrt(2))) if error else 0.5 if not ratio else 1.0
    return FasterOfTwo(int(ratio < 0), sure)


def _by_law(laws: Sequence[LawShare]) -> Mapping[str, tuple[float, float]]:
    return {share["law"]: (share["ns"], share["residual"]) for share in laws}
