# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where in a memory each buffer lies, so that those that are needed at the same time share no byte.

There is no fast way that always finds room where there is some. Several are tried, one after the other; each suits
other mixtures of sizes and lifetimes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nki_mlir.dialects.access import SBUF
from nki_mlir.machine import Machine
from nki_mlir.targets.neuron.codegen.liveness import Lifetime, peak

GENEROUS = 32                   # bytes: rows that start so are read without partial sectors
LONG = 8                        # a buffer that is needed for this part of the code, or longer, is placed first
BEHIND, LOWEST, TIGHTEST, ENDS = "behind", "lowest", "tightest", "ends"     # which room is taken
Interval = tuple[int, int]      # first byte, byte after the last


@dataclass(frozen=True)
class OnChipSpace:
    """``limit`` bytes per partition; ``bank`` is 0 where there are no banks."""

    space: str
    limit: int
    partitions: int
    alignment: int
    bank: int

    @staticmethod
    def of(space: str, machine: Machine) -> "OnChipSpace":
        limit, bank = ((machine.sbuf_bytes_per_partition, 0) if space == SBUF else
                       (machine.psum_bytes_per_partition, machine.psum_bank_bytes))
        return OnChipSpace(space, limit, machine.partitions, machine.address_alignment, bank)


def packed(memory: OnChipSpace, lives: Sequence[Lifetime], fixed: Sequence[Lifetime],
           thorough: bool) -> list[int] | None:
    """Addresses of buffers that are sorted by first use, beside those that have theirs; None where none were found."""
    needed = peak(lives)[0]
    if needed > memory.limit:
        return None
    for found in attempts(memory, lives, fixed, needed, thorough):
        if found is not None:
            return found
    return None


def attempts(memory: OnChipSpace, lives: Sequence[Lifetime], fixed: Sequence[Lifetime], needed: int,
             thorough: bool) -> Iterator[list[int] | None]:
    """Ways to place buffers, roomy ones first."""
    if memory.bank:
        yield Packing(memory, memory.limit, memory.bank, BEHIND).in_order(lives, fixed)
    else:
        # Twice of what is needed at once leaves a freed buffer alone for a while: its last readers need not be waited
        # for.
        yield Packing(memory, min(memory.limit, 2 * needed + GENEROUS), GENEROUS, BEHIND).in_order(lives, fixed)
    lowest = Packing(memory, memory.limit, GENEROUS, LOWEST)
    yield lowest.in_order(lives, fixed)
    if not memory.bank:
        yield Packing(memory, memory.limit, GENEROUS, TIGHTEST).in_order(lives, fixed)
        yield Packing(memory, memory.limit, GENEROUS, ENDS).in_order(lives, fixed)
        yield lowest.long_first(lives, fixed)
    if thorough:
        yield Packing(memory, memory.limit, memory.alignment, LOWEST).by_size(lives, fixed)


@dataclass(frozen=True)
class Packing:
    """One way to fill a memory: up to ``limit``, at multiples of ``alignment`` (for small buffers: less).

    ``room``: behind the last buffer placed first; the lowest; the smallest that is large enough; or the lowest for
    large buffers and the highest for small ones.
    """

    memory: OnChipSpace
    limit: int
    alignment: int
    room: str

    def in_order(self, lives: Sequence[Lifetime], fixed: Sequence[Lifetime]) -> list[int] | None:
        """Addresses of buffers that are sorted by first use; None where one has no room."""
        found = self.beside(lives, [(life, *occupied(life)) for life in fixed])
        return None if found is None else [first for _, first, _ in found]

    def long_first(self, lives: Sequence[Lifetime], fixed: Sequence[Lifetime]) -> list[int] | None:
        """The same with buffers first that are needed for long."""
        long = max((life.last for life in lives), default=0) // LONG
        kept = self.beside([life for life in lives if life.last - life.first > long],
                           [(life, *occupied(life)) for life in fixed])
        if kept is None:
            return None
        others = self.beside([life for life in lives if life.last - life.first <= long],
                             [*kept, *((life, *occupied(life)) for life in fixed)])
        if others is None:
            return None
        found = {life: first for life, first, _ in (*kept, *others)}
        return [found[life] for life in lives]

    def beside(self, lives: Sequence[Lifetime], placed: Sequence[tuple[Lifetime, int, int]],
               ) -> list[tuple[Lifetime, int, int]] | None:
        """Buffers in order of first use with their intervals, beside those that have theirs."""
        there = sorted(placed, key=lambda one: one[0].first)
        active: list[tuple[Lifetime, int, int]] = []
        found: list[tuple[Lifetime, int, int]] = []
        sizes = sorted({life.buffer.bytes_per_partition for life in lives})
        large = sizes[len(sizes) // 2] if sizes else 0
        cursor = 0
        for life in lives:
            active = [one for one in active if one[0].last >= life.first]
            there = [one for one in there if one[0].last >= life.first]
            taken = [(first, after) for _, first, after in active]
            for other, first, after in there:
                if other.first > life.last:
                    break
                taken.append((first, after))
            taken.sort()
            size = life.buffer.bytes_per_partition
            address = self.chosen(life, taken, cursor, size < large)
            if address is None:
                return None
            active.append((life, address, address + size))
            found.append(active[-1])
            cursor = address + size
        return found

    def chosen(self, life: Lifetime, taken: Sequence[Interval], cursor: int, small: bool) -> int | None:
        """The address of a buffer among sorted intervals; None where there is no room."""
        if self.room == BEHIND:
            address = self.gap(life, taken, cursor)
            return address if address is not None or not cursor else self.gap(life, taken, 0)
        if self.room == TIGHTEST or (self.room == ENDS and small):
            rooms = list(self.rooms(life, taken))
            if not rooms:
                return None
            if self.room == TIGHTEST:
                return min(rooms, key=lambda room: room[1] - room[0])[0]
            return self.last_fitted(*rooms[-1], life)
        return self.gap(life, taken, 0)

    def rooms(self, life: Lifetime, taken: Sequence[Interval], start: int = 0) -> Iterator[Interval]:
        """From the first address that the buffer may have, to the end, of each gap among sorted intervals that is large
        enough, from ``start`` on."""
        size, limit = life.buffer.bytes_per_partition, self.limit
        at = self.fitted(start, life)
        for first, after in (*taken, (limit, limit)):
            if at + size <= first and at + size <= limit:
                yield at, first
            if after > at:
                at = self.fitted(after, life)

    def last_fitted(self, first: int, end: int, life: Lifetime) -> int:
        """The last address of a room that the buffer may have."""
        at = end - life.buffer.bytes_per_partition
        step = self.step(life)
        return max(first, at // step * step)

    def by_size(self, lives: Sequence[Lifetime], fixed: Sequence[Lifetime]) -> list[int] | None:
        """The same with large buffers first, which leaves smaller gaps."""
        found: dict[Lifetime, Interval] = {life: occupied(life) for life in fixed}
        for life in sorted(lives, key=lambda life: -life.buffer.bytes_per_partition):
            taken = sorted(interval for other, interval in found.items() if other.meets(life))
            address = self.gap(life, taken, 0)
            if address is None:
                return None
            found[life] = address, address + life.buffer.bytes_per_partition
        return [found[life][0] for life in lives]

    def gap(self, life: Lifetime, taken: Sequence[Interval], start: int) -> int | None:
        """The first address from ``start`` on with room among sorted intervals."""
        return next((at for at, _ in self.rooms(life, taken, start)), None)

    def step(self, life: Lifetime) -> int:
        """What the buffer's address is a multiple of."""
        size = life.buffer.bytes_per_partition
        least = max(self.memory.alignment, life.buffer.dtype.itemsize)
        return max(least, min(self.alignment, 1 << (size - 1).bit_length()) if self.alignment <= GENEROUS
                   else self.alignment)

    def fitted(self, address: int, life: Lifetime) -> int:
        """The next address that the buffer may have."""
        size, bank, step = life.buffer.bytes_per_partition, self.memory.bank, self.step(life)
        address = -(-address // step) * step
        if bank and (size > bank or address % bank + size > bank):
            address = -(-address // bank) * bank
        return address


def occupied(life: Lifetime) -> Interval:
    address = life.buffer.address
    assert address is not None
    return address[1], address[1] + life.buffer.bytes_per_partition
