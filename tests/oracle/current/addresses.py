# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run-time additions to the start of a view (language, sections 3.5 to 3.7), and the steps of the language."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from ..program import current, running
from .registers import VirtualRegister


class Shape(tuple):
    """A shape, which also equals lists (3.3)."""

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (tuple, list)) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@dataclass(frozen=True)
class Address:
    """The offset that a run adds to a view: a number, a number for each row, or columns for each group of partitions
    (3.6, 3.7)."""

    kind: str                       # scalar, vector, columns
    source: Any                     # a register or a tile
    scale: int = 1                  # elements that one step is
    extent: int = 0                 # numbers below are in bounds
    table: Any = None               # for columns: the elements of each partition

    def numbers(self) -> np.ndarray:
        if isinstance(self.source, VirtualRegister):
            return np.array(int(self.source.value))
        return self.source.read().astype(np.int64)


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of the language, so that it marks its results as random if an operand is."""
    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        state = current().state if running() else {}
        around, state["random"] = state.get("random", False), False
        try:
            return function(*arguments, **keywords)
        finally:
            state["random"] = around or state["random"]
    return call


@dataclass(frozen=True)
class Window:
    """A slice of ``size`` elements whose start is in a register."""

    start: Any
    size: int
