# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A workload of the benchmarks: a kernel, and the same mathematics as users of each library write it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """``kernel`` and ``formula(xp, ...)`` get ``arrays``; so does ``torch``, as tensors.

    ``limit`` is what bounds it on any machine: ``copy`` or ``read`` with the bytes that must move, ``fma`` with the
    floating-point operations. ``answer`` gives the result in float64, and ``tolerance`` is how far the kernel's may be.
    """

    arrays: tuple[np.ndarray, ...]
    kernel: Callable[..., Any]
    formula: Callable[..., Any]
    torch: Callable[..., Any]
    limit: str
    amount: float
    answer: Callable[[], Any]
    tolerance: float = 1e-4
    more: dict[str, Callable[[], Callable[[], Any]]] = field(default_factory=dict)       # contestants of its own


CASES: dict[str, Callable[[], Case]] = {}


def case(name: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """Register a function that makes a case: its arrays exist only where it runs."""
    def register(make: Callable[[], Case]) -> Callable[[], Case]:
        CASES[name] = make
        return make
    return register


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def largest_error(result: Any, answer: Any) -> float:
    """Relative where numbers are larger than 1."""
    if isinstance(answer, tuple):
        return max(largest_error(r, a) for r, a in zip(result, answer, strict=True))
    wanted = np.asarray(answer, np.float64)
    return float(np.max(np.abs(np.asarray(result).astype(np.float64) - wanted) / np.maximum(1, np.abs(wanted))))
