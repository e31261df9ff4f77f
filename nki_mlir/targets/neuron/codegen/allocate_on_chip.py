# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""allocate-on-chip: give every SBUF and PSUM buffer an address.

before:  %0 = memref.alloc() : memref<128x512xf32, "sbuf">
after:   %0 = memref.alloc() {nki.address = [0, 4096], nki.placed} ...      (partition 0, byte 4096 of each partition)

Buffers that are needed at the same time do not share a byte. An address that the kernel chose (``nki.address`` without
``nki.placed``) is kept. A PSUM buffer lies in one bank, or starts at a bank where it is larger than one. Addresses are
multiples of 32 bytes where that costs nothing, else of the machine's alignment. A memory that is too small is an error
which names the buffers that are needed at once.
"""

from collections.abc import Sequence

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.machine import Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.liveness import Lifetime, Liveness, peak
from nki_mlir.targets.neuron.codegen.packing import OnChipSpace, occupied, packed
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.codegen.write_records import RecordsPass

NAMED = 12                      # buffers that an error names


class AllocateOnChip(RecordsPass, name="allocate-on-chip", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        allocate(code)


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


def allocate(code: Code, thorough: bool = True) -> tuple[int, int]:
    """Give all buffers addresses; the bytes per partition of SBUF and PSUM up to the last one used.

    ``thorough``: try what takes long with many buffers, too.
    """
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
        addresses = packed(memory, free, fixed, thorough)
        if addresses is None:
            raise full(memory, lives, lifetimes, machine)
        for life, address in zip(free, addresses):
            life.buffer.address = 0, address
        marks.append(max((occupied(life)[1] for life in lives), default=0))
    check_banks(lifetimes, machine)
    return marks[0], marks[1]


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
        if step.op.runs_on is not Engine.TENSOR:
            continue
        for _, tile in step.op.targets():
            access = tile.access
            if tile.space != PSUM or access.free.symbols:
                continue
            first, last = (tile.handle.address[1] + end for end in (tile.bounds[2], tile.bounds[3] - 1))
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
