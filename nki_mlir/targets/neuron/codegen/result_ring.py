# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PSUM as a ring buffer, which allocates results in program order, even if instructions run in another order.

The vendor's compiler evidently allocates PSUM before it schedules: on a device, a transpose does not start while
earlier products whose results fill PSUM wait for their operands (variants V051 to V056), but it starts if their results
leave room (published attention). A result that is live longer keeps its memory: the ring continues after it.
"""

from collections import deque
from collections.abc import Sequence

from nki_mlir.dialects.access import PSUM
from nki_mlir.targets.neuron.codegen.dependence_scan import joined
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.step_table import SPACES
from nki_mlir.targets.runtime.compiled_class import new_array


class ResultRing:
    """The buffers of PSUM by their first use in program order: each takes the bytes after the previous buffer, modulo
    the size of the ring, and skips bytes that are live there in program order.

    By buffer: ``owners``, the buffers that had its bytes before, as one array, and where those of each begin;
    ``released``: whether no later step uses it."""

    owners_start: list[int]
    owners: list[int]
    released: list[int]

    def __init__(self, owners: Sequence[Sequence[int]]) -> None:
        self.owners_start, self.owners = joined(owners)
        self.released = new_array(len(owners))

    def release(self, buffer: int) -> None:
        """Record that no later step uses a buffer."""
        self.released[buffer] = 1

    def has_room(self, buffer: int) -> bool:
        """Return whether the buffers that occupied this buffer's bytes before have been released."""
        for at in range(self.owners_start[buffer], self.owners_start[buffer + 1]):
            if self.released[self.owners[at]] == 0:
                return False
        return True


def owners_in_ring(graph: SchedulingGraph, limit: int) -> list[list[int]]:
    """Return for each PSUM buffer the buffers that had its bytes before, if the ring of ``limit`` bytes in each
    partition serves the buffers in the order of their first uses."""
    psum = SPACES.index(PSUM)
    owners: list[list[int]] = [[] for _ in graph.space]
    ring = deque([(-1, limit)])                 # the owner of each piece and its bytes, from the next one on
    for buffer in sorted([b for b, space in enumerate(graph.space) if space == psum], key=graph.first.__getitem__):
        owners[buffer] = allocate(ring, buffer, graph)
    return owners


def allocate(ring: deque[tuple[int, int]], buffer: int, graph: SchedulingGraph) -> list[int]:
    """Give a buffer the next bytes of the ring that are not live, or all bytes if there are too few. Return their
    owners."""
    missing, owners = graph.size[buffer], []
    for _ in range(len(ring)):
        owner, size = ring.popleft()
        if owner >= 0 and graph.last[owner] >= graph.first[buffer]:
            ring.append((owner, size))
            continue
        nbytes = min(size, missing)
        missing -= nbytes
        ring.append((buffer, nbytes))
        if owner >= 0:
            owners.append(owner)
        if nbytes < size:
            ring.appendleft((owner, size - nbytes))
        if not missing:
            break
    return owners
