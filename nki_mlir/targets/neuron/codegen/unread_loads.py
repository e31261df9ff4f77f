# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Limits how far loads are ahead of the steps that read them.

A load that starts as soon as SBUF has room occupies the memory of results, and delays the stores that release memory.
With a limit on loaded tiles that no instruction reads yet, loads and stores take turns, however long it takes to
trigger them.
"""

from collections.abc import Container

from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph


class UnreadLoads:
    """The bytes of a partition of SBUF that loads fill before a step reads them. ``most``: how many tiles of the size
    of the largest load they may take."""

    def __init__(self, graph: SchedulingGraph, most: int) -> None:
        self.before = graph.before
        self.size = {k: graph.size[graph.buffers[k][0]] for k, transfer in enumerate(graph.transfers)
                     if transfer is not None and transfer.loads and len(graph.buffers[k]) == 1}     # else from SBUF
        self.limit = most * max(self.size.values(), default=0)
        self.least = min(self.size.values(), default=0)
        self.unread: dict[int, int] = {}        # by load, its bytes
        self.total = 0

    def has_room(self, k: int) -> bool:
        """Return whether a step may start: it is not a load, or the unread loads leave room."""
        return not self.total or self.total + self.size.get(k, 0) <= self.limit

    def stopped(self) -> Container[int]:
        """Return loads that have no room until a step reads loaded tiles: all or none."""
        return self.size if self.total and self.total + self.least > self.limit else ()

    def start(self, k: int) -> bool:
        """Note that a step starts. Return whether it reads loads that nothing has read before."""
        if k in self.size:
            self.unread[k] = self.size[k]
            self.total += self.size[k]
            return False
        read = [load for load in self.before[k] if load in self.unread]
        for load in read:
            self.total -= self.unread.pop(load)
        return bool(read)
