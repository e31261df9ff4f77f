# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""schedule-instructions: put independent instructions in the order in which engines that run side by side start them.

before:  load A0; exp A0; store A0; load A1; exp A1; store A1
after:   load A0; load A1; exp A0; store A0; exp A1; store A1

List scheduling: whenever an engine is free it takes, of the instructions whose operands are there, the first in program
order. Times are those of the timed machine: laws, results, DMA engines, the PSUM port. On-chip memory is a resource: an
instruction that needs a new buffer waits while ``memory`` percent are in use, unless it is the oldest that is left.
Only runs of instructions between loops and branches are ordered.
Instructions are neither merged nor dropped. Buffers are allocated afterwards: addresses that were chosen for the old
order are dropped.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby

from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.isa.instruction import is_dma
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Cost, Engine, Machine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import Dependences, memory_sizes, own_memory, touched
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    blocks,
    forget_addresses,
    reorder,
    tiles_of,
)
from nki_mlir.targets.neuron.codegen.write_records import RecordsPass
from nki_mlir.targets.neuron.timing.transfers import DmaEngines, TimedTransfer, Transfers

MEMORY = 90                     # percent
NO_REORDER = "nki.no_reorder"   # of an operation: nothing around it starts on its other side
ENGINE_FREE, SEEN_BY_ITSELF, COMPLETE = range(3)
PASSED_OVER = 8                 # ready instructions that may be passed over for lack of memory


class ScheduleInstructions(RecordsPass, name="schedule-instructions", reads=Level.NISA):
    memory: int = MEMORY        # percent of on-chip memory that buffers may fill
    early: bool = True          # memory is free again when its last use starts, else when that is complete

    def rewritten(self, code: Code) -> Code:
        schedule(code, self.memory, self.early)
        return code


def schedule(code: Code, memory: int = MEMORY, early: bool = True) -> None:
    """Order the runs of the code, in place. Addresses that were allocated for the old order go."""
    forget_addresses(code)
    outside = shared_buffers(code.body)
    reorder(code.body, lambda run: ordered(run, code.machine, memory, outside, early))


def shared_buffers(body: Block) -> set[DeviceBuffer]:
    """On-chip buffers that more than one run uses: they are in use throughout."""
    first: dict[DeviceBuffer, int] = {}
    shared: set[DeviceBuffer] = set()
    number = 0
    for block in blocks(body):
        number += 1
        for node in block.nodes:
            number += not isinstance(node, InstructionStep)
            for tile in tiles_of(node):
                if first.setdefault(tile.handle, number) != number:
                    shared.add(tile.handle)
    return shared


def ordered(steps: list[InstructionStep], machine: Machine, memory: int, outside: set[DeviceBuffer],
            early: bool = True) -> list[InstructionStep]:
    """The steps in the order of their start times; those marked ``nki.no_reorder`` stay where they are."""
    found: list[InstructionStep] = []
    for stays, part in groupby(steps, lambda step: NO_REORDER in step.op.extra):
        run = list(part)
        found += run if stays or len(run) < 2 else _Scheduler(run, machine, memory, outside, early).order()
    return found


@dataclass(slots=True)
class _Node:
    engine: Engine
    cost: Cost
    transfer: TimedTransfer | None
    port: bool                  # it takes PSUM for itself
    buffers: list[DeviceBuffer]         # on chip, of this run alone
    users: list[int]
    missing: int                # dependences that are not complete


class _Scheduler:
    def __init__(self, steps: list[InstructionStep], machine: Machine, memory: int, outside: set[DeviceBuffer],
                 early: bool) -> None:
        self.steps, self.machine, self.early = steps, machine, early
        regions = [touched(step, own_memory) for step in steps]
        dependences = Dependences(memory_sizes(regions))
        self.transfers = Transfers(machine)
        self.nodes = [self.node(step.op, outside) for step in steps]
        for k, (reads, writes) in enumerate(regions):
            before = dependences.add(k, k, reads, writes)
            self.nodes[k].missing = len(before)
            for other in before:
                self.nodes[other].users.append(k)
        self.room = {SBUF: machine.sbuf_bytes_per_partition * memory // 100, PSUM: machine.psum_banks * memory // 100}
        self.uses: dict[DeviceBuffer, int] = {}
        used_outside = {t.handle for step in steps for _, t in step.op.operands() if t.handle in outside}
        for buffer in used_outside:
            if buffer.space != HBM:
                self.room[buffer.space] -= self.size(buffer)
        for node in self.nodes:
            for buffer in node.buffers:
                self.uses[buffer] = self.uses.get(buffer, 0) + 1
        self.sizes = {buffer: self.size(buffer) for buffer in self.uses}
        self.released = 0                       # how often memory was given back
        self.refused: dict[Engine, tuple[int, int, int, int, bool]] = {}        # the state in which none had room
        self.live: set[DeviceBuffer] = set()
        self.oldest = 0
        self.started = [False] * len(steps)
        self.ready: dict[Engine, list[int]] = {node.engine: [] for node in self.nodes}
        self.free = set(self.ready)
        self.events: list[tuple[float, int, int]] = []        # time, kind, node
        self.dma = DmaEngines(machine)
        self.port_free = True
        self.found: list[InstructionStep] = []

    def node(self, op: Op, outside: set[DeviceBuffer]) -> _Node:
        engine, machine = Engine(op.engine), self.machine
        transfer = self.transfers.of(op) if is_dma(type(op)) else None
        buffers = {t.handle: None for _, t in op.operands() if t.space != HBM and t.handle not in outside}
        port = machine.costs.psum_port_shared and engine in (Engine.VECTOR, Engine.SCALAR) and any(
            t.space == PSUM for _, t in op.operands())
        return _Node(engine, machine.cost(engine, op.work()), transfer, port, list(buffers), [], 0)

    def size(self, buffer: DeviceBuffer) -> int:
        """Bytes of SBUF, banks of PSUM."""
        size = buffer.bytes_per_partition
        return size if buffer.space == SBUF else -(-size // self.machine.psum_bank_bytes)

    def order(self) -> list[InstructionStep]:
        for k, node in enumerate(self.nodes):
            if not node.missing:
                heappush(self.ready[node.engine], k)
        self.start_all(0.0)
        while self.events:
            now, kind, k = heappop(self.events)
            node = self.nodes[k]
            if kind == ENGINE_FREE:
                self.free.add(node.engine)
                self.port_free |= node.port
            else:
                self.complete(k, kind)
            self.start_all(now)
        return self.found

    def complete(self, k: int, kind: int) -> None:
        """Release who waits: instructions of the same engine see a result before others do."""
        node = self.nodes[k]
        for user in node.users:
            other = self.nodes[user]
            same = node.transfer is None and other.engine is node.engine
            if same == (kind == SEEN_BY_ITSELF):
                other.missing -= 1
                if not other.missing:
                    heappush(self.ready[other.engine], user)
        if kind == COMPLETE and not self.early:
            self.release(node)

    def release(self, node: _Node) -> None:
        """Give back the memory that no other instruction needs."""
        for buffer in node.buffers:
            self.uses[buffer] -= 1
            if not self.uses[buffer]:
                self.room[buffer.space] += self.sizes[buffer]
                self.released += 1

    def start_all(self, now: float) -> None:
        """Start on every free engine; again when that has given memory back."""
        progress = True
        while progress:
            progress = False
            for engine, heap in self.ready.items():
                if engine in self.free and heap and (k := self.take(heap)) is not None:
                    self.start(k, now)
                    progress = True

    def take(self, heap: list[int]) -> int | None:
        """The first ready node that memory allows."""
        state = heap[0], len(heap), self.oldest, self.released, self.port_free
        engine = self.nodes[heap[0]].engine
        if self.refused.get(engine) == state:
            return None                         # nothing has changed since none was found
        passed: list[int] = []
        taken = None
        while heap and len(passed) < PASSED_OVER:
            k = heappop(heap)
            if (self.port_free or not self.nodes[k].port) and (k == self.oldest or self.has_room(self.nodes[k])):
                taken = k
                break
            passed.append(k)
        for k in passed:
            heappush(heap, k)
        if taken is None:
            self.refused[engine] = state
        return taken

    def has_room(self, node: _Node) -> bool:
        sbuf = psum = 0
        for buffer in node.buffers:
            if buffer not in self.live:
                if buffer.space == SBUF:
                    sbuf += self.sizes[buffer]
                else:
                    psum += self.sizes[buffer]
        return (not sbuf or sbuf <= self.room[SBUF]) and (not psum or psum <= self.room[PSUM])

    def start(self, k: int, now: float) -> None:
        node = self.nodes[k]
        self.found.append(self.steps[k])
        self.started[k] = True
        while self.oldest < len(self.started) and self.started[self.oldest]:
            self.oldest += 1
        for buffer in node.buffers:
            if buffer not in self.live:
                self.live.add(buffer)
                self.room[buffer.space] -= self.sizes[buffer]
        if self.early:
            self.release(node)
        self.free.discard(node.engine)
        self.port_free &= not node.port
        free = now + node.cost.busy
        heappush(self.events, (free, ENGINE_FREE, k))
        heappush(self.events, (free + node.cost.own_result, SEEN_BY_ITSELF, k))
        complete = free + node.cost.result
        if node.transfer is not None:
            dma = self.machine.costs.dma
            moved = now + dma.trigger_ns + node.transfer.under_way
            if not node.transfer.under_way:
                moved = self.dma.move(node.transfer, moved, k).end
            complete = moved + dma.notify_ns
        heappush(self.events, (complete, COMPLETE, k))

