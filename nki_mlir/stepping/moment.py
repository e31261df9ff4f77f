# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Describe a point of a run at which it may stop: the operation, its source, and the memory that it uses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nki_mlir.diagnostics import Location


@dataclass(frozen=True)
class ShownTile:
    """A named tile as the debugger shows it. ``values()`` reads its elements; ``address`` is (partition, byte), if
    known."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    memory: str
    values: Callable[[], np.ndarray]
    address: tuple[int, int] | None = None

    def __str__(self) -> str:
        where = f", partition {self.address[0]}, byte {self.address[1]}" if self.address is not None else ""
        return f"{self.name}{list(self.shape)} {self.dtype} in {self.memory}{where}"


@dataclass(frozen=True)
class Table:
    """A table of the machine's state: engines, semaphores or queues."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class MachineView:
    """The state of an executor other than its tiles; most executors have none."""

    def tables(self) -> list[Table]:
        """Return the engines with their next instruction, the semaphores and the queues."""
        return []

    def row(self, memory: str, partition: int, start: int, count: int) -> np.ndarray | None:
        """Return bytes of one partition of an on-chip memory."""
        return None


@dataclass
class Moment:
    """One operation of a run, before or after it.

    ``targets`` are the tiles that it writes, ``scope`` further names with their values.
    """

    executor: str
    number: int
    text: str
    at: Location | None
    targets: Sequence[ShownTile]
    machine: MachineView
    scope: dict[str, object] = field(default_factory=dict)
