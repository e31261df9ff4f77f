# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the buffers of a program lie: offsets into one block of memory, shared by buffers that never live together."""

from dataclasses import dataclass, field

LINE = 64                           # bytes every buffer starts at a multiple of
PAGE = 4096


@dataclass(eq=False)
class ScratchBuffer:
    """One allocation: its size, the block it was made in, and from where to where (in program order) it is used."""

    size: int
    depth: int
    first: int
    last: int = -1
    offset: int = -1


@dataclass
class BlockUses:
    """An open block of the program: buffers of enclosing blocks that are used in it stay until it ends."""

    outer: list[ScratchBuffer] = field(default_factory=list)


class ScratchMemory:
    """Collects the buffers of one block of memory while the program is read, then places them."""

    def __init__(self) -> None:
        self.buffers: list[ScratchBuffer] = []

    def allocate(self, size: int, depth: int, place: int) -> ScratchBuffer:
        self.buffers.append(ScratchBuffer(size, depth, place, place))
        return self.buffers[-1]

    def assign_offsets(self) -> int:
        """Give every buffer the lowest offset that is free while it lives; returns the size of the whole."""
        total = 0
        live: list[ScratchBuffer] = []                     # by offset
        for buffer in sorted(self.buffers, key=lambda b: b.first):
            live = [b for b in live if b.last >= buffer.first]
            offset = 0
            for other in live:
                if other.offset - offset >= room(buffer):
                    break
                offset = other.offset + room(other)
            buffer.offset = offset
            live.append(buffer)
            live.sort(key=lambda b: b.offset)
            total = max(total, offset + room(buffer))
        return total


def room(buffer: ScratchBuffer) -> int:
    """Bytes a buffer takes. One line more than a page's multiple: equal offsets in pages make loads wait for stores."""
    size = -(-buffer.size // LINE) * LINE
    return size + LINE if size >= PAGE else max(size, LINE)


class LiveBuffers:
    """The open blocks while a program is read in order: uses extend the lives of buffers."""

    def __init__(self) -> None:
        self.regions: list[BlockUses] = []

    @property
    def depth(self) -> int:
        return len(self.regions)

    def open(self) -> None:
        self.regions.append(BlockUses())

    def close(self, place: int) -> None:
        """The innermost block ends: what it used from outside has been used until here."""
        for buffer in self.regions.pop().outer:
            self.use(buffer, place)

    def use(self, buffer: ScratchBuffer, place: int) -> None:
        buffer.last = max(buffer.last, place)
        if self.depth > buffer.depth:
            self.regions[-1].outer.append(buffer)
