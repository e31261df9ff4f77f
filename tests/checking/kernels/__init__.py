# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the kinds that people write, each right or with one of its flaws, which the argument ``flaw`` chooses.

A line that ends with ``# KIND: FLAW`` is where ``nki_mlir.check`` reports a finding of that kind if the kernel has the flaw.
Without a flaw the kernel is right, for all of its arguments.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

MARK = re.compile(r"# (?=[a-z-]+: )([a-z-]+: .*)$")


class Flaw(NamedTuple):
    kind: str
    line: int


class FlawedKernel(NamedTuple):
    """A kernel, its arguments by variant, and its flaws by name."""

    kernel: Any
    variants: dict[str, tuple[Any, ...]]
    flaws: dict[str, Flaw]


KERNELS: dict[str, FlawedKernel] = {}


def register(kernel: Any, **variants: Callable[[], tuple[Any, ...]]) -> None:
    """Register a kernel with a function for the arguments of each variant. Flaws run with the first one."""
    lines, first = inspect.getsourcelines(kernel.func)
    flaws = {}
    for number, line in enumerate(lines, first):
        if mark := MARK.search(line):
            for part in mark[1].split("; "):
                kind, _, names = part.partition(": ")
                flaws.update({name: Flaw(kind, number) for name in names.split(", ")})
    KERNELS[f"{kernel.func.__module__.rpartition('.')[2]}.{kernel.func.__name__}"] = FlawedKernel(
        kernel, {name: make() for name, make in variants.items()}, flaws)


def numbers(*shape: int, low: float = -1.0, high: float = 1.0, dtype: Any = np.float32) -> np.ndarray:
    """Return an array of random numbers that depend only on its shape."""
    rng = np.random.default_rng(sum(shape))
    return rng.uniform(low, high, shape).astype(dtype)
