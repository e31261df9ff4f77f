# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Limits how far loads are ahead of the steps that read them.

A load that starts as soon as SBUF has room occupies the memory of results, and delays the stores that release memory.
With a limit on loaded tiles that no instruction reads yet, loads and stores take turns, however long it takes to
trigger them.
"""

from nki_mlir.targets.neuron.codegen.graph_columns import columns_of
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.runtime.compiled_class import new_array


class UnreadLoads:
    """The bytes of a partition of SBUF that loads fill before a step reads them. ``most``: how many tiles of the size
    of the largest load they may take; 0: any number.

    By step: ``sizes``, the bytes that it loads, -1 if it is no load; ``unread``, whether it has loaded data that no
    step has read; ``before``, the steps that it depends on, as one array. ``total``: the bytes of the unread loads.
    """

    sizes: list[int]
    unread: list[int]
    before_start: list[int]
    before: list[int]
    limit: int
    smallest: int
    total: int

    def __init__(self, graph: SchedulingGraph, most: int) -> None:
        columns = columns_of(graph)
        self.sizes, self.before_start, self.before = (columns[name] for name in ("loaded", "before_start", "before"))
        sizes = columns["loaded"][columns["loaded"] >= 0]
        self.limit = most * int(sizes.max(initial=0))
        self.smallest = int(sizes.min()) if len(sizes) else 0
        self.unread, self.total = new_array(len(graph) if most else 0), 0

    def has_room(self, k: int) -> bool:
        """Return whether a step may start: it is not a load, or the unread loads leave room."""
        return self.total == 0 or self.total + max(self.sizes[k], 0) <= self.limit

    def is_stopped(self, k: int) -> bool:
        """Return whether a step is a load, and no load has room until a step reads loaded tiles."""
        return self.sizes[k] >= 0 and self.total > 0 and self.total + self.smallest > self.limit

    def start(self, k: int) -> bool:
        """Record that a step starts. Return whether it reads loaded data that no step has read before."""
        if self.sizes[k] >= 0:
            self.unread[k] = 1
            self.total += self.sizes[k]
            return False
        reads = False
        for at in range(self.before_start[k], self.before_start[k + 1]):
            load = self.before[at]
            if self.unread[load] != 0:
                self.unread[load] = 0
                self.total -= self.sizes[load]
                reads = True
        return reads
