# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""allocate-on-chip: give every SBUF and PSUM buffer an address.

before:  %0 = memref.alloc() : memref<128x512xf32, "sbuf">
after:   %0 = memref.alloc() {nki.address = [0, 4096], nki.placed} ...      (partition 0, byte 4096 of each partition)

Buffers that are needed at the same time do not share a byte. An address that the kernel chose (``nki.address`` without
``nki.placed``) is kept. A PSUM buffer lies in one bank, or starts at a bank where it is larger than one. Addresses are
multiples of 32 bytes where that costs nothing, else of the machine's alignment. A memory that is too small is an error
which names the buffers that are needed at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.liveness import Lifetime, Liveness, peak
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.codegen.write_records import RecordsPass

GENEROUS = 32                   # bytes: rows that start so are read without partial sectors
NAMED = 12                      # buffers that an error names


class AllocateOnChip(RecordsPass, name="allocate-on-chip", reads=Level.NISA):
    def rewritten(self, code: Code) -> Code:
        allocate(code)
        return code


class MemoryFull(NkiMlirError):
    code = "NKI-MEMORY-FULL"
    message = ("{memory} is full: {count} tiles that are needed at once take {needed} bytes per partition, "
               "{machine} has {limit}")
    why = "needed here are {live}"
    fix = "use smaller tiles, or store what is needed only later"


class BankCrossed(NkiMlirError):
    code = "NKI-PSUM-BANK"
    message = "the matmul result in {buffer} lies in bytes {first} to {last} of PSUM, across a bank of {bank} bytes"
    fix = "give each result a PSUM tensor of its own, or one whose rows fill banks"


class AddressConflict(NkiMlirError):
    code = "NKI-ADDRESS"
    message = "{a} and {b} have addresses that overlap in {memory}, and both are needed when {b} is first used"
    fix = "choose addresses that do not overlap, or use one only after the other's last use"


class BlocksWhole(NkiMlirError):
    code = "NKI-ADDRESS"
    message = "{buffer} has an address for each of its blocks and is one buffer"
    fix = "run split-blocks first"


class AddressOutside(NkiMlirError):
    code = "NKI-ADDRESS"
    message = ("{buffer} at partition {partition}, byte {byte} ends outside of {memory}, which has {partitions} "
               "partitions of {limit} bytes")
    fix = "choose another address"


def allocate(code: Code) -> tuple[int, int]:
    """Give all buffers addresses; the bytes per partition of SBUF and PSUM up to the last one used."""
    lifetimes, machine = Liveness(code), code.machine
    for buffer in lifetimes.of:
        if buffer.addresses:
            raise BlocksWhole(buffer=buffer.name).located(buffer.location)
    marks = []
    for space in (SBUF, PSUM):
        lives = [life for life in lifetimes.of.values() if life.buffer.space == space]
        fixed = [life for life in lives if life.buffer.fixed]
        free = sorted((life for life in lives if not life.buffer.fixed), key=lambda life: life.first)
        memory = OnChipSpace.of(space, machine)
        check_fixed(fixed, memory)
        for attempt in memory.attempts(lives):
            addresses = attempt(free, fixed)
            if addresses is not None:
                break
        else:
            raise full(memory, lives, lifetimes, machine)
        for life, address in zip(free, addresses):
            life.buffer.address = 0, address
        marks.append(max((life.buffer.address[1] + life.buffer.bytes_per_partition     # type: ignore[index]
                          for life in lives), default=0))
    check_banks(lifetimes, machine)
    return marks[0], marks[1]


# -- one memory --------------------------------------------------------------------------------------------------------
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
        if space == SBUF:
            return OnChipSpace(space, machine.sbuf_bytes_per_partition, machine.partitions, machine.address_alignment,
                               0)
        return OnChipSpace(space, machine.psum_bytes_per_partition, machine.partitions, machine.address_alignment,
                           machine.psum_bank_bytes)

    def attempts(self, lives: Sequence[Lifetime]) -> Iterator[Callable[..., Any]]:
        """Ways to place buffers, roomy ones first."""
        if self.bank:
            yield Packing(self, self.limit, self.bank, rotate=True).in_order
        else:
            # Twice of what is needed at once leaves a freed buffer alone for a while: its last readers need not be
            # waited for.
            yield Packing(self, min(self.limit, 2 * peak(lives)[0] + GENEROUS), GENEROUS, rotate=True).in_order
        yield Packing(self, self.limit, GENEROUS, rotate=False).in_order
        yield Packing(self, self.limit, self.alignment, rotate=False).by_size


Interval = tuple[int, int]      # first byte, byte after the last


@dataclass(frozen=True)
class Packing:
    """One way to fill a memory: up to ``limit``, at multiples of ``alignment`` (for small buffers: less)."""

    memory: OnChipSpace
    limit: int
    alignment: int
    rotate: bool                # look for room behind the last buffer placed first

    def in_order(self, lives: Sequence[Lifetime], fixed: Sequence[Lifetime]) -> list[int] | None:
        """Addresses of buffers that are sorted by first use; None where one has no room."""
        active: list[tuple[Lifetime, Interval]] = []
        addresses, cursor = [], 0
        for life in lives:
            active = [entry for entry in active if entry[0].last >= life.first]
            taken = [interval for _, interval in active] + [occupied(f) for f in fixed if f.meets(life)]
            address = self.gap(life, sorted(taken), cursor)
            if address is None and cursor:
                address = self.gap(life, sorted(taken), 0)
            if address is None:
                return None
            size = life.buffer.bytes_per_partition
            active.append((life, (address, address + size)))
            addresses.append(address)
            cursor = address + size if self.rotate else 0
        return addresses

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
        size = life.buffer.bytes_per_partition
        at = self.fitted(start, life)
        for first, after in taken:
            if after <= at:
                continue
            if first >= at + size:
                break
            at = self.fitted(after, life)
        return at if at + size <= self.limit else None

    def fitted(self, address: int, life: Lifetime) -> int:
        """The next address that the buffer may have."""
        size, bank = life.buffer.bytes_per_partition, self.memory.bank
        least = max(self.memory.alignment, life.buffer.dtype.itemsize)
        step = max(least, min(self.alignment, 1 << (size - 1).bit_length()) if self.alignment <= GENEROUS
                   else self.alignment)
        address = -(-address // step) * step
        if bank and (size > bank or address % bank + size > bank):
            address = -(-address // bank) * bank
        return address


def occupied(life: Lifetime) -> Interval:
    address = life.buffer.address
    assert address is not None
    return address[1], address[1] + life.buffer.bytes_per_partition


# -- checks ------------------------------------------------------------------------------------------------------------
def check_fixed(fixed: Sequence[Lifetime], memory: OnChipSpace) -> None:
    """Addresses that the kernel chose are inside the memory and apart while both are needed."""
    for k, life in enumerate(fixed):
        buffer = life.buffer
        partition, byte = buffer.address or (0, 0)
        if partition < 0 or partition + buffer.partitions > memory.partitions or byte < 0 or (
                byte + buffer.bytes_per_partition > memory.limit):
            raise AddressOutside(buffer=buffer.name, partition=partition, byte=byte, memory=memory.space.upper(),
                                 partitions=memory.partitions, limit=memory.limit).located(buffer.location)
        for other in fixed[:k]:
            if life.meets(other) and share(life, other):
                first, second = sorted((life, other), key=lambda one: one.first)
                raise AddressConflict(a=first.buffer.name, b=second.buffer.name,
                                      memory=memory.space.upper()).located(buffer.location)


def share(a: Lifetime, b: Lifetime) -> bool:
    """Whether two buffers with addresses have a byte in common."""
    (first_a, after_a), (first_b, after_b) = occupied(a), occupied(b)
    (p, _), (q, _) = a.buffer.address or (0, 0), b.buffer.address or (0, 0)
    return (first_a < after_b and first_b < after_a
            and p < q + b.buffer.partitions and q < p + a.buffer.partitions)


def check_banks(lifetimes: Liveness, machine: Machine) -> None:
    """Every matmul result lies in one bank."""
    bank = machine.psum_bank_bytes
    for step in lifetimes.steps:
        if step.op.engine != Engine.TENSOR.value:
            continue
        for _, tile in step.op.targets():
            access = tile.access
            if tile.space != PSUM or access.free.symbols:
                continue
            low, high = access.reach()
            start = tile.handle.address[1] + access.free.const * access.dtype.itemsize
            first, last = start + low * access.dtype.itemsize, start + (high + 1) * access.dtype.itemsize - 1
            if first // bank != last // bank:
                raise BankCrossed(buffer=tile.handle.name, first=first, last=last, bank=bank).located(step.location)


def full(memory: OnChipSpace, lives: Sequence[Lifetime], lifetimes: Liveness, machine: Machine) -> MemoryFull:
    """The error, at the step where most is needed."""
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
