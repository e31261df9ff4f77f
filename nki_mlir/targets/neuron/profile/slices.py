# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run of the timed machine as slices: the slices of each track with their times, and the waits between them.

Tracks are the engines of each core and its DMA queues; transfers of a queue that overlap lie in lanes. Times are ns
from the launch, which precedes all slices.
"""

from array import array
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.isa.instruction import Control, Instruction
from nki_mlir.dialects.isa.program import SPILLED
from nki_mlir.dialects.op import Op
from nki_mlir.machine import ENGINES
from nki_mlir.scalar.dtypes import TFLOAT32
from nki_mlir.targets.neuron.format.assembly_operation import operation_text
from nki_mlir.targets.neuron.profile.iterations import StreamIterations, iterations_of
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.record import SEMAPHORE
from nki_mlir.targets.neuron.timing.result import StallCauses
from nki_mlir.targets.neuron.timing.transfers import moved

ENGINE, QUEUE = "engine", "queue"
ROUNDING = 1e-6                 # ns: times that differ by less count as equal


@dataclass(frozen=True)
class Track:
    """A row of the timeline: an engine of a core, or a lane of one of its DMA queues."""

    core: int
    name: str
    kind: str


class Traffic(NamedTuple):
    """The bytes that one execution of an instruction moves, and the operations of a product or transpose.

    ``spill_saved`` and ``spill_reloaded`` are the part of HBM's bytes that spilled tiles cause.
    """

    hbm_read: int = 0
    hbm_written: int = 0
    sbuf_read: int = 0
    sbuf_written: int = 0
    psum_read: int = 0
    psum_written: int = 0
    spill_saved: int = 0
    spill_reloaded: int = 0
    product: int = 0
    transpose: int = 0


NO_TRAFFIC = Traffic()


def traffic_of(op: Op | Control) -> Traffic:
    """Return the traffic of an instruction, by the shapes of its tiles; for the tensor engine also its operations."""
    if isinstance(op, Control):
        return NO_TRAFFIC
    counts = dict.fromkeys(Traffic._fields, 0)
    tiles = {operand.name: tile for operand, tile in op.operands()}
    for (operand, tile), (_, elements) in zip(op.operands(), moved(op)):
        nbytes = elements * tile.dtype.itemsize
        if op.reads(operand.name):
            counts[f"{tile.space}_read"] += nbytes
        if operand.writes:
            counts[f"{tile.space}_written"] += nbytes
        if tile.space == HBM and SPILLED in tile.handle.name:
            counts["spill_saved" if operand.writes else "spill_reloaded"] += nbytes
    law = op.work().law
    if (operations := operations_of_product(op)) is not None:
        counts["product"] = operations
    elif law.startswith("transpose.") and "src" in tiles:
        rows, *columns = tiles["src"].shape
        counts["transpose"] = 2 * rows * rows * prod(columns)       # a product with the identity
    return Traffic(**counts)


def operations_of_product(op: Op) -> int | None:
    """Return the multiplications and additions of a matrix product; None for other operations."""
    tiles = {operand.name: tile for operand, tile in op.operands()}
    if not op.work().law.startswith("product") or not {"stationary", "moving"} <= tiles.keys():
        return None
    columns = tiles["moving"].shape[op.summed_axes:]                                         # type: ignore[attr-defined]
    return 2 * prod(tiles["stationary"].shape) * prod(columns)


def form_of(instruction: Instruction) -> tuple[object, ...]:
    """Return a key that is equal for instructions with the same traffic, operations and passes. Their tiles may start
    at different elements."""
    op = instruction.op
    if isinstance(op, Control):
        return (type(op),)
    tiles = [None if (tile := op.__dict__[f.name]) is None else
             (tile.layout.form, tile.handle.name) if tile.space == HBM else tile.layout.form for f in op.tiles]
    reads = tuple([op.reads(f.name) for f in op.tiles])
    return (type(op), instruction.queue is None, reads, instruction.work_of(op), *tiles)


def moved_by(instruction: Instruction) -> tuple[str, int]:
    """Return the first tensor in HBM that a transfer moves, and its on-chip partitions; nothing for other
    instructions."""
    op = instruction.op
    if instruction.queue is None or isinstance(op, Control):
        return "", 0
    tiles = [tile for _, tile in op.operands()]
    names = [tile.handle.name for tile in tiles if tile.space == HBM]
    return names[0] if names else "", max([tile.partitions for tile in tiles if tile.on_chip], default=0)


def law_of(instruction: Instruction) -> str:
    """Return the name of the law by which the engine's time follows from an instruction's work; "" without one."""
    op = instruction.op
    return "" if isinstance(op, Control) or instruction.queue is not None else instruction.work_of(op).law


OF_32_BITS, OF_8_BITS, MICROSCALED = 4.0, 0.5, 0.25


def passes_of(op: Op | Control, generation: int) -> float:
    """Return the number of bfloat16 operations that equal one operation of this product or transpose."""
    if isinstance(op, Control):
        return 1.0
    law = op.work().law
    if law == "product.mx":
        return MICROSCALED
    kinds = [tile.dtype for _, tile in op.sources()]
    if not law.startswith(("product", "transpose.")) or not kinds or kinds[-1] is TFLOAT32:
        return 1.0
    narrow = OF_8_BITS if generation >= 3 else 1.0
    return {4: OF_32_BITS, 1: narrow}.get(kinds[-1].itemsize, 1.0)


@dataclass(frozen=True)
class Executed:
    """An instruction of a stream; it may have run several times. ``variable``: the first tensor in HBM that a transfer
    moves; ``partitions``: its partitions on chip. ``passes``: the weight of an operation of the tensor engine in the
    vendor's figures, by its dtype; for bfloat16 it is 1. ``law``: the name of the law of its work on its engine."""

    core: int
    engine: str
    name: str
    text: str
    location: Location | None
    transfer_bytes: int = 0
    traffic: Traffic = NO_TRAFFIC
    variable: str = ""
    partitions: int = 0
    passes: float = 1.0
    law: str = ""

    @property
    def line(self) -> str:
        """Return FILE:LINE; empty if the instruction has no source line."""
        return f"{self.location.file}:{self.location.line}" if self.location is not None else ""


@dataclass
class Slices:
    """Columns by slice: track, ns, instruction, and of an engine's slice what it waited for before (an index into
    ``causes``, 0: nothing) and for how long; the position of the instruction, or of a transfer's trigger, in its
    engine's stream, and its iteration (-1: none). ``edges`` are (slice that signaled, slice that waited)."""

    tracks: list[Track] = field(default_factory=list)
    instructions: list[Executed] = field(default_factory=list)
    causes: list[str] = field(default_factory=lambda: [""])
    track: "array[int]" = field(default_factory=lambda: array("i"))
    begin: "array[float]" = field(default_factory=lambda: array("d"))
    end: "array[float]" = field(default_factory=lambda: array("d"))
    instruction: "array[int]" = field(default_factory=lambda: array("i"))
    cause: "array[int]" = field(default_factory=lambda: array("b"))
    stalled: "array[float]" = field(default_factory=lambda: array("d"))
    position: "array[int]" = field(default_factory=lambda: array("i"))
    iteration: "array[int]" = field(default_factory=lambda: array("i"))
    iterations: StreamIterations = field(default_factory=lambda: StreamIterations([], [], [], []))
    edges: list[tuple[int, int]] = field(default_factory=list)
    of_event: "array[int]" = field(default_factory=lambda: array("i"))     # the slice of an event on its engine
    of_transfer: dict[int, int] = field(default_factory=dict)           # the slice of an event on its queue

    def __len__(self) -> int:
        return len(self.track)

    def add(self, track: int, begin: float, end: float, instruction: int, position: int, iteration: int,
            cause: int = 0, stalled: float = 0.0) -> int:
        self.track.append(track)
        self.begin.append(begin)
        self.end.append(end)
        self.instruction.append(instruction)
        self.position.append(position)
        self.iteration.append(iteration)
        self.cause.append(cause)
        self.stalled.append(stalled)
        return len(self.track) - 1


def slices_of(run: TimedMachine, texts: bool) -> Slices:
    """Return the slices of a finished run; without ``texts`` of instructions, those that differ in their
    addresses only are one."""
    slices = Slices()
    numbers = _instructions(run, slices, texts)
    engines = {agent.number: _track(slices, run.cores.index(agent.core), agent.stream.engine.value, ENGINE)
               for agent in run.agents}
    record, launch = run.record, float(run.machine.costs.control.launch_ns)
    slices.iterations, innermost = iterations_of(run)
    cause_numbers = {"": 0}
    ends = [0.0] * len(run.agents)
    cause_of = StallCauses(run).of
    for agent, position, start, end, why, event, iteration in zip(
            record.agent, record.position, record.start, record.end, record.why, record.cause, innermost):
        stalled, cause = start - ends[agent], 0
        if stalled > 0.0:
            cause = cause_numbers.setdefault(cause_of(why, event), len(cause_numbers))
        slices.of_event.append(slices.add(engines[agent], launch + start, launch + end, numbers[agent][position],
                                          position, iteration, cause, max(stalled, 0.0)))
        ends[agent] = end
    slices.causes = list(cause_numbers)
    _transfers(run, slices, numbers, launch)
    for event, (reason, cause) in enumerate(zip(record.why, record.cause)):
        if reason == SEMAPHORE and cause >= 0:
            slices.edges.append((slices.of_transfer.get(cause, slices.of_event[cause]), slices.of_event[event]))
    _put_in_order(run, slices)
    return slices


def _put_in_order(run: TimedMachine, slices: Slices) -> None:
    """Sort the tracks of a core: its engines, its queues in program order, the lanes of a queue."""
    engines = {engine.value: k for k, engine in enumerate(ENGINES)}
    queues = [{queue.name: k for k, queue in enumerate(core.program.queues)} for core in run.cores]

    def key(number: int) -> tuple[int, bool, int, int]:
        track = slices.tracks[number]
        if track.kind == ENGINE:
            return track.core, False, engines[track.name], 0
        return track.core, True, queues[track.core][track.name.partition(" (")[0]], number      # lanes come in order
    order = sorted(range(len(slices.tracks)), key=key)
    index = {old: new for new, old in enumerate(order)}
    slices.tracks = [slices.tracks[old] for old in order]
    slices.track = array("i", [index[old] for old in slices.track])


def _transfers(run: TimedMachine, slices: Slices, numbers: list[list[int]], launch: float) -> None:
    # by queue: the end of the last slice of each lane, and the lane's track
    lanes: dict[tuple[int, str], list[tuple[float, int]]] = {}
    for event, movement in sorted(run.record.movements.items(), key=lambda item: item[1].begin):
        agent = run.agents[run.record.agent[event]]
        core, position = run.cores.index(agent.core), run.record.position[event]
        queue = agent.stream.instructions[position].queue
        assert queue is not None
        name = agent.core.program.queues[queue].name
        queue_lanes = lanes.setdefault((core, name), [])
        begin, end = launch + movement.begin, launch + movement.end
        lane = next((k for k, (until, _) in enumerate(queue_lanes) if until <= begin + ROUNDING), len(queue_lanes))
        if lane == len(queue_lanes):
            queue_lanes.append((0.0, _track(slices, core, name if not lane else f"{name} ({lane + 1})", QUEUE)))
        queue_lanes[lane] = end, queue_lanes[lane][1]
        slices.of_transfer[event] = slices.add(queue_lanes[lane][1], begin, end, numbers[agent.number][position],
                                               position, slices.iteration[slices.of_event[event]])


def _track(slices: Slices, core: int, name: str, kind: str) -> int:
    slices.tracks.append(Track(core, name, kind))
    return len(slices.tracks) - 1


def _instructions(run: TimedMachine, slices: Slices, texts: bool) -> list[list[int]]:
    """Return the number of the instruction at each position of each agent; equal instructions share one."""
    number_of: dict[Executed, int] = {}
    number_by_key: dict[tuple[object, ...], int] = {}           # number of an instruction, by all that it depends on
    numbers = []
    for agent in run.agents:
        core, agent_numbers = run.cores.index(agent.core), list[int]()
        for position, instruction in enumerate(agent.stream.instructions):
            nbytes = getattr(agent.stream.details.get(position), "hbm_bytes", 0)
            # The text is as in assembly, without waits and signal.
            text = operation_text(instruction.op, instruction.queue) if texts else ""
            key = agent.number, text, instruction.location, nbytes, form_of(instruction)
            number = number_by_key.get(key)
            if number is None:
                executed = Executed(core, agent.stream.engine.value, instruction.op.mnemonic, text,
                                    instruction.location,
                                    nbytes, traffic_of(instruction.op), *moved_by(instruction),
                                    passes_of(instruction.op, run.machine.generation), law_of(instruction))
                number = number_by_key[key] = number_of.setdefault(executed, len(number_of))
            agent_numbers.append(number)
        numbers.append(agent_numbers)
    slices.instructions = list(number_of)
    return numbers
