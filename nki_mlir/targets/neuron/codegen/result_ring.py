# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PSUM as a ring buffer, which allocates results in program order, even if instructions run in another order.

The vendor's compiler evidently allocates PSUM before it schedules: on a device a transpose does not start while the
products before it in the program, whose results fill PSUM, wait for their operands (variants V051 to V056), but a
transpose starts if the products' results leave room (published attention). A result that is live longer keeps its
memory: the ring continues after it.
"""

from collections import deque
from collections.abc import Sequence

from nki_mlir.dialects.access import PSUM
from nki_mlir.targets.neuron.codegen.scheduling_graph import SPACES, SchedulingGraph


class ResultRing:
    """The buffers of PSUM by their first use in program order: each takes the bytes after the previous buffer, modulo
    the size of the ring, and skips bytes that are live there in program order. ``limit``: the bytes of a partition.
    ``owners``: by buffer, the buffers that had its bytes before."""

    def __init__(self, graph: SchedulingGraph, limit: int) -> None:
        psum = SPACES.index(PSUM)
        self.owners: dict[int, list[int]] = {}
        self.released: set[int] = set()
        ring = deque([(-1, limit)])             # the owner of each piece and its bytes, from the next one on
        for buffer in sorted([b for b, space in enumerate(graph.space) if space == psum], key=graph.first.__getitem__):
            self.owners[buffer] = take(ring, buffer, graph)

    def release(self, buffer: int) -> None:
        """Note that no further step uses a buffer."""
        self.released.add(buffer)

    def has_room(self, buffers: Sequence[int]) -> bool:
        """Return whether the buffers that occupied these buffers' bytes before have been released."""
        return all(owner in self.released for buffer in buffers for owner in self.owners.get(buffer, ()))


def take(ring: deque[tuple[int, int]], buffer: int, graph: SchedulingGraph) -> list[int]:
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
