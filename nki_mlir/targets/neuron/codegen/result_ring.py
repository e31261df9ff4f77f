# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PSUM as a ring buffer, which allocates results in program order, whatever the order of the instructions.

The vendor's compiler evidently allocates PSUM before it schedules: on a device a transpose does not start while the
products before it in the program, whose results fill PSUM, wait for their operands (variants V051 to V056), but one
whose results leave room does (published attention).
"""

from collections.abc import Sequence
from itertools import accumulate

from nki_mlir.dialects.access import PSUM
from nki_mlir.targets.neuron.codegen.scheduling_graph import SPACES, SchedulingGraph


class ResultRing:
    """The buffers of PSUM by their first use in program order: each begins where the one before it ends, modulo the
    bytes of the ring. ``limit``: these bytes of a partition."""

    def __init__(self, graph: SchedulingGraph, limit: int) -> None:
        psum = SPACES.index(PSUM)
        self.limit = limit
        buffers = sorted([b for b, space in enumerate(graph.space) if space == psum], key=graph.first.__getitem__)
        self.ends = [*accumulate(graph.size[buffer] for buffer in buffers)]
        self.numbers = {buffer: number for number, buffer in enumerate(buffers)}
        self.released = [False] * len(buffers)
        self.oldest = 0                 # the number of the first buffer that is not released

    def release(self, buffer: int) -> None:
        """Note that no further step uses a buffer."""
        released = self.released
        released[self.numbers[buffer]] = True
        while self.oldest < len(released) and released[self.oldest]:
            self.oldest += 1

    def has_room(self, buffers: Sequence[int]) -> bool:
        """Return whether the bytes of these buffers are released by the buffers that had them before."""
        last = max([self.numbers[buffer] for buffer in buffers if buffer in self.numbers], default=-1)
        begin = self.ends[self.oldest - 1] if self.oldest else 0
        return last < 0 or self.ends[last] - begin <= self.limit
