# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The live range of each on-chip buffer: its first and last instruction in the order of the code.

Steps are numbered in order, loop bodies once. A buffer that a register loop uses but does not allocate is needed from
the loop's first to its last step; a buffer that its body allocates is new in each iteration.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.targets.neuron.codegen import records


@dataclass(eq=False, slots=True)
class Lifetime:
    """First and last step that need a buffer, both inclusive."""

    buffer: records.DeviceBuffer
    first: int
    last: int

    def interferes(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last


class Liveness:
    """``of`` has the live range of every buffer in these memories that is used; ``steps`` the steps by number."""

    def __init__(self, code: records.Code, spaces: Sequence[str] = (SBUF, PSUM)) -> None:
        self.spaces = spaces
        self.of: dict[records.DeviceBuffer, Lifetime] = {}
        self.steps: list[records.InstructionStep] = []
        self._depth: dict[records.DeviceBuffer, int] = {}
        # (first step, buffers from outside), outermost first
        self._loops: list[tuple[int, set[records.DeviceBuffer]]] = []
        self._block(code.body)

    def _block(self, block: records.Block) -> None:
        for buffer in block.buffers:
            self._depth[buffer] = len(self._loops)
        for node in block.nodes:
            if type(node) is records.InstructionStep:
                at = len(self.steps)
                for tile in type(node.op).tiles_in(node.op.__dict__):
                    if tile is not None and tile.space in self.spaces:
                        life = self.of.get(tile.handle)
                        if life is None or self._loops:
                            self._use(tile.handle, at)
                        else:
                            life.last = at
                self.steps.append(node)
            elif isinstance(node, records.Load) and node.tile.space in self.spaces:
                self._use(node.tile.handle, max(0, len(self.steps) - 1))        # until the next step starts
            elif isinstance(node, records.Loop | records.While):
                self._loops.append((len(self.steps), set()))
                for inner in records.sub_blocks(node):
                    self._block(inner)
                _, outside = self._loops.pop()
                for buffer in outside:
                    self.of[buffer].last = max(self.of[buffer].last, len(self.steps) - 1)
            else:
                for inner in records.sub_blocks(node):
                    self._block(inner)

    def _use(self, buffer: records.DeviceBuffer, step: int) -> None:
        depth = self._depth[buffer]
        life = self.of.get(buffer)
        if life is None:
            life = self.of[buffer] = Lifetime(buffer, step, step)
        if step > life.last:
            life.last = step
        if depth < len(self._loops):
            loop_start, outside = self._loops[depth]
            life.first = min(life.first, loop_start)
            outside.add(buffer)


def peak(lives: Sequence[Lifetime],
         room: Callable[[records.DeviceBuffer], int] = lambda buffer: buffer.bytes_per_partition) -> tuple[int, int]:
    """Return (the most bytes per partition that are live at once, the step where they are)."""
    changes = defaultdict[int, int](int)
    for life in lives:
        size = room(life.buffer)
        changes[life.first] += size
        changes[life.last + 1] -= size
    steps = sorted(changes)
    return max(zip(accumulate(changes[step] for step in steps), steps), key=lambda level: level[0], default=(0, 0))
