# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""allocate-on-chip: choose an address for every SBUF and PSUM buffer.

before: %0 = memref.alloc() : memref<128x512xf32, "sbuf"> after: %0 = memref.alloc() {nki.address = [0, 4096],
nki.placed} ... (partition 0, byte 4096 of each partition)

Buffers with overlapping live ranges do not share a byte. The pass keeps an address that the kernel chose
(``nki.address`` without ``nki.placed``). A PSUM buffer lies in one bank, or starts at a bank if it is larger than one.
Addresses are multiples of 32 bytes if that costs nothing, else of the machine's alignment. If a memory is too small, an
error names the buffers that are live at once. With ``banks``, the pass assigns addresses only in PSUM, at starts of
banks, which the language can name; if there are too few banks, it assigns none.

No fast algorithm always finds a packing if one exists. The pass tries several algorithms, one after the other; each
suits other mixtures of sizes and live ranges.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.liveness import Lifetime, Liveness, peak
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, steps_in
from nki_mlir.waist.overlap import boxes_overlap

NAMED = 12                      # most buffers that an error names


class AllocateOnChip(RecordsPass, name="allocate-on-chip", reads=Level.NISA):
    banks: bool = False         # give PSUM buffers the start of a bank, and leave all others

    def rewritten(self, code: Code) -> None:
        if self.banks:
            allocate_in_banks(code)
        else:
            allocate(code)


class MemoryFull(NkiMlirError):
    code = "NKI-MEMORY-FULL"
    message = ("{memory} is full: {count} tiles that are live at once take {needed} bytes per partition; "
               "{machine} has {limit}")
    why = "live here: {live}"
    fix = "use smaller tiles, or store tiles to HBM and load them again where they are used"


class BankCrossed(NkiMlirError):
    code = "NKI-PSUM-BANK"
    message = ("the matmul result in {buffer} lies in bytes {first} to {last} of PSUM, in more than one bank of {bank} "
               "bytes")
    fix = "give each result its own PSUM tensor, or one whose rows fill banks"


class AddressConflict(NkiMlirError):
    code = "NKI-ADDRESS"
    message = "{a} and {b} have addresses that overlap in {memory}, and both are needed when {b} is first used"
    fix = "choose addresses that do not overlap, or use one only after the other's last use"


class BlocksNotSplit(NkiMlirError):
    code = "NKI-ADDRESS"
    message = "{buffer} has an address for each of its blocks, but is a single buffer"
    fix = "run split-blocks first"


class AddressOutside(NkiMlirError):
    code = "NKI-ADDRESS"
    message = ("{buffer} at partition {partition}, byte {byte} ends outside of {memory}, which has {partitions} "
               "partitions of {limit} bytes")
    fix = "choose another address"


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


def allocate(code: Code, thorough: bool = True) -> tuple[int, int]:
    """Give all buffers addresses. Return the bytes per partition of SBUF and of PSUM up to the last one used.

    ``thorough``: also try methods that take long with many buffers.
    """
    lifetimes, machine = Liveness(code), code.machine
    for buffer in lifetimes.of:
        if buffer.addresses:
            raise BlocksNotSplit(buffer=buffer.name).located(buffer.location)
    marks = []
    for space in (SBUF, PSUM):
        lives = [life for life in lifetimes.of.values() if life.buffer.space == space]
        fixed = [life for life in lives if life.buffer.fixed]
        free = sorted((life for life in lives if not life.buffer.fixed), key=lambda life: life.first)
        memory = OnChipSpace.of(space, machine)
        check_fixed(fixed, memory)
        addresses = packed(memory, free, fixed, thorough)
        if addresses is None:
            raise full(memory, lives, lifetimes, machine)
        for life, address in zip(free, addresses):
            life.buffer.address = 0, address
        marks.append(max((occupied(life)[1] for life in lives), default=0))
    check_banks(code)
    return marks[0], marks[1]


def allocate_in_banks(code: Code) -> None:
    """Let each PSUM buffer whose address the kernel did not choose start at a bank, or have no address if not all
    can."""
    lives = [life for life in Liveness(code).of.values() if life.buffer.space == PSUM]
    free = sorted((life for life in lives if not life.buffer.fixed), key=lambda life: life.first)
    memory = OnChipSpace.of(PSUM, code.machine)
    fixed = [(life, *occupied(life)) for life in lives if life.buffer.fixed]
    addresses = Packing(memory, memory.limit, memory.bank, NEXT).in_order(free, fixed)
    for number, life in enumerate(free):
        life.buffer.address = None if addresses is None else (0, addresses[number])


# -- checks ------------------------------------------------------------------------------------------------------------
def check_fixed(fixed: Sequence[Lifetime], memory: OnChipSpace) -> None:
    """Raise an error if an address that the kernel chose is outside of the memory, or if two live buffers overlap."""
    for k, life in enumerate(fixed):
        buffer = life.buffer
        partition, byte = buffer.address or (0, 0)
        if partition < 0 or partition + buffer.partitions > memory.partitions or byte < 0 or (
                byte + buffer.bytes_per_partition > memory.limit):
            raise AddressOutside(buffer=buffer.name, partition=partition, byte=byte, memory=memory.space.upper(),
                                 partitions=memory.partitions, limit=memory.limit).located(buffer.location)
        for other in fixed[:k]:
            if life.interferes(other) and share(life, other):
                first, second = sorted((life, other), key=lambda lifetime: lifetime.first)
                raise AddressConflict(a=first.buffer.name, b=second.buffer.name,
                                      memory=memory.space.upper()).located(buffer.location)


def share(a: Lifetime, b: Lifetime) -> bool:
    """Return whether two buffers with addresses have a byte in common."""
    box, other = ((partition, partition + life.buffer.partitions, *occupied(life))
                  for life in (a, b) for partition, _ in [life.buffer.address or (0, 0)])
    return boxes_overlap(box, other)


def check_banks(code: Code) -> None:
    """Check that every matmul result lies in one bank."""
    bank = code.machine.psum_bank_bytes
    for step in steps_in(code.body):
        if Engine.TENSOR not in step.op.engines or step.op.runs_on is not Engine.TENSOR:
            continue
        for _, tile in step.op.targets():
            access = tile.access
            if tile.space != PSUM or access.free.symbols:
                continue
            start = tile.handle.address[1]
            if start % bank + tile.handle.bytes_per_partition <= bank:      # all of the buffer does
                continue
            first_byte, last_byte = (start + end for end in (tile.bounds[2], tile.bounds[3] - 1))
            if first_byte // bank != last_byte // bank:
                raise BankCrossed(buffer=tile.handle.name, first=first_byte, last=last_byte,
                                  bank=bank).located(step.location)


def full(memory: OnChipSpace, lives: Sequence[Lifetime], lifetimes: Liveness, machine: Machine) -> MemoryFull:
    """Return the error for a full memory, at the step that needs most."""
    needed, where = peak(lives)
    live = sorted((life.buffer for life in lives if life.first <= where <= life.last),
                  key=lambda b: (-b.bytes_per_partition, b.name))
    names = [f"{b.name} {b.bytes_per_partition}" + (f" (line {b.location.line})" if b.location else "")
             for b in live[:NAMED]]
    if len(live) > NAMED:
        names.append(f"{len(live) - NAMED} more")
    error = MemoryFull(memory=memory.space.upper(), count=len(live), needed=needed, machine=machine.name,
                       limit=memory.limit, live=", ".join(names))
    error.located(lifetimes.steps[where].location)
    return error


# -- packing -----------------------------------------------------------------------------------------------------------
GENEROUS = 32                   # bytes: rows that start at a multiple are read without partial sectors
LONG = 8                        # a buffer that is live in this part of the code, or longer, gets an address first
NEXT, LOWEST, TIGHTEST, ENDS = "next", "lowest", "tightest", "ends"     # how a gap is chosen
Interval = tuple[int, int]      # first byte, byte after the last
AllocatedBuffer = tuple[Lifetime, int, int]      # a buffer with its interval


def packed(memory: OnChipSpace, lives: Sequence[Lifetime], fixed: Sequence[Lifetime],
           thorough: bool) -> list[int] | None:
    """Return addresses for buffers that are sorted by first use, around buffers that have intervals; None if no method
    finds any."""
    if peak(lives)[0] > memory.limit:
        return None
    needed = peak([*lives, *fixed])[0]
    fixed_intervals = [(life, *occupied(life)) for life in fixed]
    for addresses in attempts(memory, lives, fixed_intervals, needed, thorough):
        if addresses is not None:
            return addresses
    return None


def attempts(memory: OnChipSpace, lives: Sequence[Lifetime], fixed: Sequence[AllocatedBuffer], needed: int,
             thorough: bool) -> Iterator[list[int] | None]:
    """Yield the addresses that different methods find, or None; methods that leave gaps come first."""
    if memory.bank:
        yield Packing(memory, memory.limit, memory.bank, NEXT).in_order(lives, fixed)
    else:
        # With room for twice the live bytes, a freed buffer stays unused for a while: nothing waits for its last
        # readers.
        yield Packing(memory, min(memory.limit, 2 * needed + GENEROUS), GENEROUS, NEXT).in_order(lives, fixed)
    lowest = Packing(memory, memory.limit, GENEROUS, LOWEST)
    yield lowest.in_order(lives, fixed)
    if not memory.bank:
        yield Packing(memory, memory.limit, GENEROUS, TIGHTEST).in_order(lives, fixed)
        yield Packing(memory, memory.limit, GENEROUS, ENDS).in_order(lives, fixed)
        yield lowest.long_first(lives, fixed)
    if thorough:
        yield Packing(memory, memory.limit, memory.alignment, LOWEST).by_size(lives, fixed)


class Slot(NamedTuple):
    """Bytes from ``start`` to ``after``, and the steps for which buffers have exactly these: the first and the last
    step of each, in order."""

    start: int
    after: int
    number: int
    firsts: list[int]
    lasts: list[int]

    def is_occupied(self, first: int, last: int) -> bool:
        """Return whether a buffer occupies these bytes at one of the steps from ``first`` to ``last``."""
        at = bisect_right(self.firsts, last)
        return at > 0 and self.lasts[at - 1] >= first


@dataclass(frozen=True)
class Packing:
    """One way to fill a memory: up to ``limit``, at multiples of ``alignment`` (for small buffers: less).

    ``room``: after the buffer that began last, first; the lowest; the smallest that is large enough; or the lowest for
    large buffers and the highest for small ones.
    """

    memory: OnChipSpace
    limit: int
    alignment: int
    room: str

    def in_order(self, lives: Sequence[Lifetime], fixed: Sequence[AllocatedBuffer]) -> list[int] | None:
        """Return addresses of buffers that are sorted by first use; None if there is no room for one."""
        allocated = self.pack_around(lives, fixed)
        return None if allocated is None else [start for _, start, _ in allocated]

    def long_first(self, lives: Sequence[Lifetime], fixed: Sequence[AllocatedBuffer]) -> list[int] | None:
        """Return the addresses if buffers with long live ranges get theirs first."""
        long = max((life.last for life in lives), default=0) // LONG
        long_lived = self.pack_around([life for life in lives if life.last - life.first > long], fixed)
        if long_lived is None:
            return None
        short_lives = [life for life in lives if life.last - life.first <= long]
        short_lived = self.pack_around(short_lives, [*long_lived, *fixed])
        if short_lived is None:
            return None
        address_of = {life: start for life, start, _ in (*long_lived, *short_lived)}
        return [address_of[life] for life in lives]

    def pack_around(self, lives: Sequence[Lifetime], allocated: Sequence[AllocatedBuffer]
                    ) -> list[AllocatedBuffer] | None:
        """Return ``lives`` in order of first use with intervals that leave room to the ``allocated`` buffers; None if
        there is no room for one."""
        allocated_by_step = sorted(allocated, key=lambda entry: entry[0].first)
        begins = deque(allocated_by_step)
        active: list[Interval] = []                     # intervals of live buffers, by address
        ends: list[tuple[int, Interval]] = []           # the last steps of live buffers, as a heap
        results: list[AllocatedBuffer] = []
        sizes = sorted({life.buffer.bytes_per_partition for life in lives})
        large = sizes[len(sizes) // 2] if sizes else 0
        cursor = 0
        for life in lives:
            while ends and ends[0][0] < life.first:
                del active[bisect_left(active, heappop(ends)[1])]
            occupied = active
            if allocated_by_step:
                allocated_by_step = [entry for entry in allocated_by_step if entry[0].last >= life.first]
                occupied = sorted([*active, *((start, after) for other, start, after in allocated_by_step
                                              if other.first <= life.last)])
            size = life.buffer.bytes_per_partition
            # so that the result does not depend on which are fixed
            while begins and begins[0][0].first <= life.first:
                cursor = begins.popleft()[2]
            address = self.chosen(life, occupied, cursor, size < large)
            if address is None:
                return None
            cursor = address + size
            insort(active, (address, cursor))
            heappush(ends, (life.last, (address, cursor)))
            results.append((life, address, cursor))
        return results

    def chosen(self, life: Lifetime, intervals: Sequence[Interval], cursor: int, small: bool) -> int | None:
        """Return the address of a buffer among sorted intervals; None where there is no room."""
        if self.room == NEXT:
            address = self.gap(life, intervals, cursor)
            return address if address is not None or not cursor else self.gap(life, intervals, 0)
        if self.room == TIGHTEST or (self.room == ENDS and small):
            rooms = list(self.rooms(life, intervals))
            if not rooms:
                return None
            if self.room == TIGHTEST:
                return min(rooms, key=lambda room: room[1] - room[0])[0]
            return self.last_fitted(*rooms[-1], life)
        return self.gap(life, intervals, 0)

    def rooms(self, life: Lifetime, intervals: Iterable[Interval], start: int = 0) -> Iterator[Interval]:
        """Yield (first possible address of the buffer, end) of each gap from ``start`` on that is large enough, among
        sorted intervals."""
        size, limit, bank, step = life.buffer.bytes_per_partition, self.limit, self.memory.bank, self.step(life)
        at = -1
        for begin, after in chain(((-1, start),), intervals, ((limit, limit),)):
            if 0 <= at and at + size <= begin and at + size <= limit:
                yield at, begin
            if after > at:
                at = -(-after // step) * step
                if bank and (size > bank or at % bank + size > bank):
                    at = -(-at // bank) * bank

    def last_fitted(self, start: int, end: int, life: Lifetime) -> int:
        """Return the last address in a gap that the buffer may have."""
        at = end - life.buffer.bytes_per_partition
        step = self.step(life)
        return max(start, at // step * step)

    def by_size(self, lives: Sequence[Lifetime], fixed: Sequence[AllocatedBuffer]) -> list[int] | None:
        """Return the addresses if large buffers get theirs first, which leaves smaller gaps."""
        slots: list[Slot] = []                          # by address; buffers of one slot are live at different times
        by_interval: dict[Interval, Slot] = {}
        for life, start, after in fixed:
            insort(slots, Slot(start, after, len(slots), [life.first], [life.last]))
        address_of: dict[Lifetime, int] = {}
        for life in sorted(lives, key=lambda life: -life.buffer.bytes_per_partition):
            first, last = life.first, life.last
            address = self.gap(life, ((slot.start, slot.after) for slot in slots if slot.is_occupied(first, last)), 0)
            if address is None:
                return None
            address_of[life] = address
            interval = address, address + life.buffer.bytes_per_partition
            slot = by_interval.get(interval)
            if slot is None:
                slot = by_interval[interval] = Slot(*interval, len(slots), [], [])
                insort(slots, slot)
            at = bisect_right(slot.firsts, first)
            slot.firsts.insert(at, first)
            slot.lasts.insert(at, last)
        return [address_of[life] for life in lives]

    def gap(self, life: Lifetime, intervals: Iterable[Interval], start: int) -> int | None:
        """Return the first address from ``start`` on with room among sorted intervals."""
        return next((at for at, _ in self.rooms(life, intervals, start)), None)

    def step(self, life: Lifetime) -> int:
        """Return the alignment of a buffer's address."""
        size = life.buffer.bytes_per_partition
        least = max(self.memory.alignment, life.buffer.dtype.itemsize)
        return max(least, min(self.alignment, 1 << (size - 1).bit_length()) if self.alignment <= GENEROUS
                   else self.alignment)


def occupied(life: Lifetime) -> Interval:
    address = life.buffer.address
    assert address is not None
    return address[1], address[1] + life.buffer.bytes_per_partition
