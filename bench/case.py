# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A workload of the benchmarks: a kernel, and the same mathematics as users of each library write it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np


@dataclass(frozen=True)
class Case:
    """``kernel`` and ``formula(xp, ...)`` take ``arrays``, and ``torch`` takes them as tensors.

    ``limit`` is what bounds it on any machine: ``copy`` or ``read`` with the bytes that must move, ``fma`` with the
    floating-point operations. ``answer`` computes the result in float64, and ``tolerance`` bounds the kernel's error.
    """

    arrays: tuple[np.ndarray, ...]
    kernel: Callable[..., Any]
    formula: Callable[..., Any]
    torch: Callable[..., Any]
    limit: str
    amount: float
    answer: Callable[[], Any]
    tolerance: float = 1e-4
    more: dict[str, Callable[[], Callable[[], Any]]] = field(default_factory=dict)       # further contestants


NOISE = 1.1


@dataclass(frozen=True)
class Goal:
    """The goal of a case: to be ``faster`` than the best peer by a factor, or to reach a ``share`` of its limit.

    ``note`` explains why a goal is missed: what the limit is, and the figures of changes that were tried.
    """

    faster: float | None = None
    share: float | None = None
    note: str = ""

    def missed(self, times: float | None, share: float | None) -> list[str]:
        """Return the shortfalls. ``times`` is our time divided by the best peer's, ``share`` the fraction of the limit;
        None is unknown."""
        shortfalls = []
        if self.faster and times is not None and times > NOISE / self.faster:
            shortfalls.append(f"{times:.2f}x the time of the best peer; the goal is at most {NOISE / self.faster:.2f}x")
        if self.share and share is not None and share < self.share:
            shortfalls.append(f"{share:.0%} of the limit; the goal is {self.share:.0%}")
        return shortfalls


CASES: dict[str, Callable[[], Case]] = {}
GOALS: dict[str, Goal] = {}
NARROW = "_bf16"                    # the suffix of cases in bfloat16
NARROW_TOLERANCE = 4e-2             # for results with eight significant bits, rounded several times


def case(name: str, goal: Goal | None = None, narrow_goal: Goal | None = None) -> Callable[[Any], Any]:
    """Register a function that creates a case; it allocates the arrays only in the process that runs the case.

    A function that takes a dtype defines two cases, in float32 and, with another goal, in bfloat16.
    """
    def register(make: Any) -> Any:
        CASES[name], GOALS[name] = make, goal or Goal()
        if "dtype" in signature(make).parameters:
            CASES[name + NARROW], GOALS[name + NARROW] = partial(make, dtype="bfloat16"), narrow_goal or Goal(1.3, 0.7)
        return make
    return register


def tolerance(dtype: str, wide: float = 1e-4) -> float:
    return wide if dtype == "float32" else NARROW_TOLERANCE


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def largest_error(result: Any, answer: Any) -> float:
    """Return the largest error, relative where numbers are larger than 1."""
    if isinstance(answer, tuple):
        return max(largest_error(r, a) for r, a in zip(result, answer, strict=True))
    expected = np.asarray(answer, np.float64)
    return float(np.max(np.abs(np.asarray(result).astype(np.float64) - expected) / np.maximum(1, np.abs(expected))))
