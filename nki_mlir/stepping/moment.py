# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A point of a run at which it may stop: the operation, where it comes from, and the memory that it works on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nki_mlir.diagnostics import Location


@dataclass(frozen=True)
class ShownTile:
    """A named tile as a debugger shows it. ``values()`` reads it; ``address`` is (partition, byte), if known."""

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
    """What a machine has besides tiles: engines, semaphores, queues."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class MachineView:
    """What can be looked at on an executor beside its tiles; most have nothing."""

    def tables(self) -> list[Table]:
        """Engines with what they stand at, semaphores, queues."""
        return []

    def row(self, memory: str, partition: int, first: int, count: int) -> np.ndarray | None:
        """Bytes of one partition of an on-chip memory."""
        return None


@dataclass
class Moment:
    """One operation of a run, before it or after it.

    ``targets`` are what it writes, ``scope`` names with a value beside those of tiles.
    """

    executor: str
    number: int
    text: str
    at: Location | None
    targets: Sequence[ShownTile]
    machine: MachineView
    scope: dict[str, object] = field(default_factory=dict)
