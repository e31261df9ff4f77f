# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Advice: changes that would make a kernel faster, and by how much.

A rule selects the instructions of a run that would cost less if the kernel were written otherwise, and says how
much less; the timed machine runs the streams again with these costs. So a sentence promises the gain of the
complete kernel, not the time of the instructions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, NamedTuple

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM, PSUM, Tile, same_pattern
from nki_mlir.dialects.isa.instruction import ActTableLoad, Control, Instruction
from nki_mlir.dialects.isa.program import Program, descriptors
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp
from nki_mlir.dialects.nisa.matmul import EIGHT_BITS, NcMatmulDoubleRowOp, NcMatmulOp
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, Machine, Ramp, Work
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.profile.occupancy import Footprint, Use, Where, footprint_of, readers_of
from nki_mlir.targets.neuron.timing.machine import Loaded, TimedMachine
from nki_mlir.targets.neuron.timing.ramp import RampState
from nki_mlir.targets.neuron.timing.result import timing_of
from nki_mlir.targets.neuron.timing.streams import TRANSFER, WORK, Entry
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer
from nki_mlir.waist.overlap import spans_overlap


class Costed(NamedTuple):
    """An instruction of a stream: its operation, its cost, and the data that a transfer moves."""

    where: Where
    instruction: Instruction
    op: Op
    engine: Engine
    entry: Entry
    transfer: TimedTransfer | None

    @property
    def location(self) -> Location | None:
        return self.instruction.location


@dataclass
class Change:
    """Changed costs of instructions, and the reason. ``text`` is the sentence without the saving; ``lines`` are source
    lines, the first of which is the target of the link. ``end``: when the streams would end, if the change is
    another order."""

    text: str = ""
    lines: list[Location] = field(default_factory=list)
    entries: dict[Where, Entry] = field(default_factory=dict)
    transfers: dict[Where, TimedTransfer] = field(default_factory=dict)
    end: float | None = None

    def remove(self, where: Where) -> None:
        """Remove an instruction: it takes no time, and its result is visible when it starts."""
        self.entries[where] = (WORK, 0.0, 0.0, 0.0, 0)

    def busy(self, step: Costed, ns: float) -> None:
        """Shorten the time for which an instruction occupies its engine; never lengthen it."""
        self.entries[step.where] = (step.entry[0], min(ns, step.entry[1]), *step.entry[2:])


class Evidence:
    """A finished run, with what rules derive from it."""

    def __init__(self, run: TimedMachine, total: float, busy: dict[Engine, float]) -> None:
        self.run, self.total, self.busy = run, total, busy
        self.machine: Machine = run.machine
        self.steps: list[Costed] = []
        for agent in run.agents:
            for position, instruction in enumerate(agent.stream.instructions):
                if not isinstance(instruction.op, Control):
                    detail = agent.stream.details.get(position)
                    self.steps.append(Costed((agent.number, position), instruction, instruction.op, agent.stream.engine,
                                           agent.stream.entries[position],
                                           detail if isinstance(detail, TimedTransfer) else None))

    @property
    def transfers(self) -> Iterator[tuple[Costed, TimedTransfer]]:
        """Return the transfers that the DMA engines move, with their work; collectives are not among them."""
        return ((s, s.transfer) for s in self.steps
                if s.transfer is not None and s.entry[0] == TRANSFER and not s.transfer.under_way)

    @property
    def work(self) -> Iterator[Costed]:
        return (s for s in self.steps if s.transfer is None)


def lines_of(steps: Sequence[Costed]) -> list[Location]:
    """Return the source lines of instructions, those with most time first."""
    time_of_line: dict[tuple[str, int], tuple[float, Location]] = {}
    for step in steps:
        if step.location is not None:
            key = step.location.file, step.location.line
            took = step.entry[1] + (max(step.transfer.parts) if step.transfer else 0.0)
            time_of_line[key] = time_of_line.get(key, (0.0, step.location))[0] + took, step.location
    return [location for _, location in sorted(time_of_line.values(), key=lambda item: -item[0])]


def named(lines: Sequence[Location]) -> str:
    """Return the first three lines as text for a sentence."""
    texts = [f"{PurePath(at.file).name}:{at.line}" for at in lines[:3]]
    return ", ".join(texts) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")


WORTH = 0.03                     # least part of the time that advice must save
SHORT = 512                     # bytes of a run: transfers of shorter runs are slow (guide to DMA bandwidth)
TURNS = 4                       # least loads into one tile that count as a loop
LARGE = 1 << 18                 # bytes of a transfer that is large enough

Rule = Callable[[Evidence], Change | None]      # the change, or None without advice
RULES: dict[str, Rule] = {}                     # by their names in the JSON form


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a function as a rule of advice."""
    def register(change: Rule) -> Rule:
        RULES[name] = change
        return change
    return register


def advice_of(run: TimedMachine) -> list[dict[str, Any]]:
    """Return the advice that would save at least ``WORTH`` of the time of a finished run, the largest first."""
    programs, timing = [core.program for core in run.cores], timing_of(run)
    total, busy = timing.total_ns, timing.slowest.busy_ns
    evidence, advice = Evidence(run, total, busy), []
    for name, rule_of in RULES.items():
        change = rule_of(evidence)
        if change is None or not change.lines:
            continue
        saved = run.end - end_with(programs, change, run.loaded)
        if round(saved / total, 2) >= WORTH:                # as it is printed
            where = change.lines[0]
            advice.append({"rule": name, "file": where.file, "line": where.line, "saves_ns": saved,
                           "ratio": total / (total - saved),
                           "text": f"{change.text}: {total / (total - saved):.2f}x ({saved / total:.0%} of the time)"})
    return sorted(advice, key=lambda entry: -float(entry["saves_ns"]))


def end_with(programs: Sequence[Program], change: Change, loaded: Loaded | None) -> float:
    """Return when the programs would end with a change."""
    if change.end is not None:
        return change.end
    again = TimedMachine(programs, loaded)
    for (agent, position), entry in change.entries.items():
        again.agents[agent].stream.entries[position] = entry
    for (agent, position), transfer in change.transfers.items():
        again.agents[agent].stream.details[position] = transfer
    again.run()
    return again.end


def hbm_source(step: Costed) -> Tile | None:
    """Return the tile in HBM that a transfer to the chip reads; None if it is not a load of one tile."""
    sources = [t for _, t in step.op.sources()]
    loads = any(t.on_chip for _, t in step.op.targets())
    return sources[0] if loads and len(sources) == 1 and sources[0].space == HBM else None


# -- transfers ---------------------------------------------------------------------------------------------------------
@rule("repeated-loads")
def repeated_loads(evidence: Evidence) -> Change | None:
    """Find loads of bytes that an earlier load of the kernel read: keep them in SBUF."""
    change, again, nbytes = Change(), [], 0
    counts, names = Counter[object](), set[str]()
    for step, transfer in evidence.transfers:
        source = hbm_source(step)
        if source is None or source.access.free.symbols:
            continue
        key = source.handle, source.access.dims, source.access.free.const, source.dtype
        counts[key] += 1
        if counts[key] > 1:
            change.remove(step.where)
            again.append(step)
            names.add(f"`{source.handle.name}`")
            nbytes += transfer.hbm_bytes
    if not again:
        return None
    change.lines = lines_of(again)
    *earlier, last = sorted(names)
    tensors = f"{', '.join(earlier)} and {last}" if earlier else last
    change.text = (f"{tensors}: {nbytes / 1e6:.2f} MB are loaded again, up to "
                   f"{max(counts.values())} times ({named(change.lines)}); load once, outside of the loop, and keep "
                   f"the tiles in SBUF")
    return change


@rule("short-runs")
def short_runs(evidence: Evidence) -> Change:
    """Find descriptors of few bytes, for which the DMA engines spend most of their time on overhead."""
    change, short, least = Change(), [], SHORT
    descriptor_ns = evidence.machine.costs.dma.descriptor(SHORT) / evidence.machine.dma_engines
    for step, transfer in evidence.transfers:
        count, nbytes = descriptors(step.op) or (0, SHORT)
        moved = count * nbytes / SHORT * descriptor_ns
        if nbytes < SHORT and moved * 2 <= max(transfer.parts):
            short.append(step)
            least = min(least, nbytes)
            change.transfers[step.where] = replace(transfer, parts=(moved,) * len(transfer.parts))
    change.lines = lines_of(short)
    change.text = (f"{len(short)} transfers ({named(change.lines)}) move runs of {least} bytes; make the last axis of "
                   f"the transfer contiguous in HBM, in runs of {SHORT} bytes or more")
    return change


@rule("one-issuer")
def one_issuer(evidence: Evidence) -> Change | None:
    """Find an engine that triggers many small transfers, which takes longer than moving their data."""
    by_line: dict[object, list[tuple[Costed, int]]] = defaultdict(list)
    for step, transfer in evidence.transfers:
        if step.location is not None and transfer.hbm_bytes < LARGE:
            by_line[step.where[0], step.location.file, step.location.line].append((step, transfer.hbm_bytes))
    change, triggers = Change(), []
    for steps in by_line.values():
        together = LARGE + 1                    # bytes that one transfer would move
        for step, nbytes in steps:
            together += nbytes
            if together > LARGE:
                together = nbytes
                continue
            triggers.append(step)
            change.busy(step, 0.0)
    if not triggers:
        return None
    change.lines = lines_of(triggers)
    engine = max(dict.fromkeys(s.engine for s in triggers), key=lambda e: evidence.busy.get(e, 0.0))
    share = evidence.busy.get(engine, 0.0) / evidence.total
    issue = float(evidence.machine.costs.dma.issue_ns)
    change.text = (f"the {engine.value} engine is busy {share:.0%}, {issue:.0f} ns for each transfer that it triggers "
                   f"({named(change.lines)}); move several of these tiles with one load or store, of up to "
                   f"{LARGE >> 10} KiB")
    return change


@rule("no-overlap")
def no_overlap(evidence: Evidence) -> Change | None:
    """Find loads that wait until their tiles are free, so that compute and transfers alternate."""
    by_line: dict[object, list[Costed]] = defaultdict(list)
    for step, _ in evidence.transfers:
        if hbm_source(step) is not None and step.location is not None:
            by_line[step.location.file, step.location.line].append(step)
    in_turn = [transfers for transfers in by_line.values()
               if len(transfers) >= TURNS and len({footprint_of(t.op.targets()[0][1]) for t in transfers}) == 1]
    steps = [step for transfers in in_turn for step in transfers]
    if not steps:
        return None
    dma = evidence.machine.costs.dma
    # The busiest resource is busy all the time, except during the latency of the first load and of the last store.
    way = 2 * float(dma.trigger_ns + dma.notify_ns) + 2 * max(max(s.transfer.parts) for s in steps if s.transfer)
    lines = lines_of(steps)
    busy = max([*evidence.busy.values(), *(core.dma_ns for core in evidence.run.cores)])
    return Change(f"{len(steps)} loads ({named(lines)}) write the same tile, and each waits until the last use of the "
                  "previous values: engines and transfers take turns, and the busiest of them is busy "
                  f"{busy / evidence.total:.0%}; allocate a tile in each iteration", lines, end=busy + way)


# -- engines -----------------------------------------------------------------------------------------------------------
BOTH = Engine.VECTOR, Engine.SCALAR     # engines that can do each other's elementwise work


def evicts(step: Costed) -> bool:
    """Return whether an instruction only moves a result out of PSUM."""
    sources, targets = step.op.sources(), step.op.targets()
    return step.engine in BOTH and len(sources) == 1 and sources[0][1].space == PSUM and targets[0][1].space != PSUM


def shared_out(evidence: Evidence, evictions: bool, text: str) -> Change | None:
    """Move work of one kind from the busier of two engines to the other, until both are busy for as long."""
    loaded = max(BOTH, key=lambda e: evidence.busy.get(e, 0.0))
    other = BOTH[1 - BOTH.index(loaded)]
    busy, idle = (evidence.busy.get(engine, 0.0) for engine in (loaded, other))
    costs = evidence.machine.costs.engines[other]
    steps = [s for s in evidence.work if s.engine is loaded and other in type(s.op).engines and evicts(s) is evictions
             and (costs.other is not None or s.instruction.work_of(s.op).law in costs.laws)]
    loaded_ns = sum(s.entry[1] for s in steps)
    both_ns = loaded_ns + sum(evidence.machine.cost(other, s.instruction.work_of(s.op)).busy for s in steps)
    gap = min(loaded_ns, busy - idle)              # work of other kinds may be at other times
    if gap <= 0.0:
        return None
    share, change = min(1.0, gap / both_ns), Change(lines=lines_of(steps))
    for step in steps:
        change.busy(step, step.entry[1] * (1 - share))
    change.text = text.format(loaded=loaded.value, other=other.value, busy=busy / evidence.total,
                              idle=idle / evidence.total,
                              share=share, count=len(steps), lines=named(change.lines))
    return change


@rule("imbalance")
def imbalance(evidence: Evidence) -> Change | None:
    """Advise to move elementwise work to an idle engine that can do it. Another rule covers copies from PSUM."""
    return shared_out(evidence, False, "the {loaded} engine is busy {busy:.0%}, the {other} engine {idle:.0%}; let the "
                                   "{other} engine do {share:.0%} of what both can do ({lines}), with engine=")


@rule("psum-eviction")
def psum_eviction(evidence: Evidence) -> Change | None:
    """Find results that wait in PSUM because one engine copies all of them."""
    return shared_out(evidence, True, "the {loaded} engine empties PSUM in {count} copies ({lines}), for which "
                                      "products "
                                  "wait, and is busy {busy:.0%}, the {other} engine {idle:.0%}; let the {other} engine "
                                  "do {share:.0%} of them, with engine=")


@rule("weight-loads")
def weight_loads(evidence: Evidence) -> Change:
    """Find products with a narrow moving side, which load their weights as long as they use them."""
    widest = evidence.machine.moving_free_max
    change, narrow, columns = Change(), [], widest
    for step in evidence.work:
        work = step.instruction.work_of(step.op)
        if work.law.startswith("product") and work.elements * 2 <= widest:
            narrow.append(step)
            columns = min(columns, int(work.elements))
            full = evidence.machine.cost(step.engine, Work(work.law, widest)).busy
            change.busy(step, full * work.elements / widest)
    change.lines = lines_of(narrow)
    change.text = (f"{len(narrow)} products ({named(change.lines)}) move {columns} columns for each load of weights; "
                   f"let the moving side have {widest} columns")
    return change


@rule("ramp")
def ramp(evidence: Evidence) -> Change | None:
    """Find products that run at part of the tensor engine's speed because the engine is not used enough."""
    lost = Counter[Where]()
    costs = evidence.machine.costs.engines[Engine.TENSOR].ramp
    states = evidence.run.ramp_states()
    # a core has only one engine with a ramp
    if costs is None or all(state.lost_ns < costs.window_ns for state in states.values()):
        return None
    record = evidence.run.record
    entries = {agent.number: agent.stream.entries for agent in evidence.run.agents}
    for agent, position, start, end in zip(record.agent, record.position, record.start, record.end):
        if agent in states:
            lost[agent, position] += round(end - start - entries[agent][position][1])
    slow = sorted((step for step in evidence.work if lost[step.where] > 0), key=lambda step: -lost[step.where])
    again = TimedMachine([core.program for core in evidence.run.cores], ramps=False)
    again.run()
    remains = max(lost_without_waits(evidence, agent, costs) for agent in states)
    limited = sum(end - begin for state in states.values() for begin, end in state.limited) / len(states)
    lines = list(dict.fromkeys(step.location for step in slow if step.location is not None))
    text = (f"the tensor engine has {costs.rate:.0%} of its speed for {limited / evidence.total:.0%} of the time "
            f"({named(lines)}), because it is used less than {costs.threshold:.0%} of {costs.window_ns / 1e3:.0f} us; "
            "let products follow each other without waits, on all rows, or after transposes that do")
    return Change(text, lines, end=again.end + remains)


def lost_without_waits(evidence: Evidence, number: int, costs: Ramp) -> float:
    """Return the ns that the ramp costs an engine even if its work begins at full speed and never waits: work on part
    of the rows may lose full speed again."""
    state, end, stream = RampState(costs), 0.0, evidence.run.agents[number].stream
    state.begin_at_full_speed(end)
    for agent, position in zip(evidence.run.record.agent, evidence.run.record.position):
        if agent == number and stream.shares[position]:
            end = state.end(end, stream.entries[position][1], stream.shares[position])
    return state.lost_ns


@rule("dtype")
def slow_dtype(evidence: Evidence) -> Change | None:
    """Find products of float32, which take several passes."""
    change, steps, passes = Change(), [], 1
    operands: set[Footprint] = set()
    for step in evidence.work:
        work = step.instruction.work_of(step.op)
        if work.law in ("product.float32", "transpose.float32"):
            steps.append(step)
            law = work.law.partition(".")[0]
            change.busy(step, evidence.machine.cost(step.engine, Work(law, work.elements)).busy)
            passes = max(passes, evidence.machine.costs.engines[step.engine].law(work.law).passes)
            operands.update(footprint_of(t) for name, t in step.op.sources() if name != "dst")
    if not steps:
        return None
    for step, transfer in evidence.transfers:
        source = hbm_source(step)
        if source is not None and source.dtype is FLOAT32:
            target = footprint_of(step.op.targets()[0][1])
            if any(o.space == target.space and spans_overlap(o.b0, o.b1, target.b0, target.b1) for o in operands):
                change.transfers[step.where] = replace(transfer, parts=tuple(p / 2 for p in transfer.parts),
                                                       hbm_bytes=transfer.hbm_bytes // 2)
    change.lines = lines_of(steps)
    change.text = (f"{len(steps)} products ({named(change.lines)}) are of float32, in {passes} passes; with operands "
                   "of bfloat16 they take one, and loads move half the bytes (sums stay float32, operands have 8 bits)")
    return change


@rule("double-row")
def double_row(evidence: Evidence) -> Change | None:
    """Find products of 8-bit floats with one row a partition that follow each other in a sum: the engine multiplies
    two rows in the time of one."""
    change, steps, first = Change(), list[Costed](), None
    for step in evidence.work if evidence.machine.generation >= NcMatmulDoubleRowOp.since else ():
        op = step.op
        if type(op) is not NcMatmulOp or op.stationary.dtype not in EIGHT_BITS or op.moving.dtype not in EIGHT_BITS:
            continue
        if first is not None and op.accumulate and same_pattern(op.dst, first.op.dst) and (     # type: ignore[attr-defined]
                op.dst.handle is first.op.dst.handle):                                          # type: ignore[attr-defined]
            steps += first, step
            change.remove(step.where)
            first = None
        else:
            first = step
    change.lines = lines_of(steps)
    change.text = (f"{len(steps)} products ({named(change.lines)}) multiply one row of 8-bit floats in a partition; "
                   "perf_mode double_row multiplies two, of operands [K, 2, M] and [K, 2, N], in the same time")
    return change if steps else None


@rule("partitions")
def few_partitions(evidence: Evidence) -> Change:
    """Find tiles on part of the partitions, which leave lanes and DMA engines idle."""
    full = fewest = evidence.machine.partitions
    change, steps = Change(), []
    for step in evidence.steps:
        lanes = max((t.partitions for _, t in step.op.operands() if t.on_chip), default=full)
        if lanes * 2 > full or step.engine is Engine.TENSOR:
            continue
        steps.append(step)
        fewest = min(fewest, lanes)
        transfer = step.transfer
        if transfer is None or (step.entry[0] == TRANSFER and not transfer.under_way):
            change.busy(step, step.entry[1] * lanes / full)
            if transfer is not None:
                even = sum(transfer.parts) / len(transfer.parts)
                change.transfers[step.where] = replace(transfer, parts=(even,) * len(transfer.parts))
    change.lines = lines_of(steps)
    change.text = (f"{len(steps)} instructions ({named(change.lines)}) work on {fewest} of {full} partitions; put more "
                   "rows into the partition axis of a tile")
    return change


# the operations that an activation can do first
WITHIN = ("multiply", "bypass"), ("add", "bypass"), ("multiply", "add")


def takes(op: Op, before: TensorScalarOp, use: Use) -> bool:
    """Return whether an activation that reads the result ``use`` of a multiplication or addition can do that operation
    itself."""
    return (isinstance(op, ActivationOp) and use.field == "src" and footprint_of(before.dst) == use.region
            and op.scale is None and op.imm == 1.0 and (op.bias is None or "add" not in (before.op0, before.op1)))


@rule("fuse-activation")
def fuse_activation(evidence: Evidence) -> Change:
    """Find a scale or a bias in a separate instruction before an activation with a parameter for it."""
    scalings = [(s, s.op) for s in evidence.work if isinstance(s.op, TensorScalarOp) and (s.op.op0, s.op.op1) in WITHIN]
    readers = readers_of(evidence.run) if scalings and any(isinstance(s.op, ActivationOp)
                                                           for s in evidence.work) else {}
    ops = {s.where: s.op for s in evidence.steps}
    alone = [s for s, op in scalings if (uses := readers.get(s.where))
             and all([takes(ops[use.where], op, use) for use in uses])]
    lines = lines_of(alone)
    change = Change(f"{len(alone)} instructions ({named(lines)}) multiply or add before an activation; give it the "
                    "factor as scale=, the summand as bias=", lines)
    for step in alone:
        change.remove(step.where)
    return change


@rule("table-loads")
def table_loads(evidence: Evidence) -> Change:
    """Find functions of several table sets that alternate on the scalar engine, which holds one set."""
    change, tables, locations = Change(), Counter[str](), Counter[Location]()
    for agent in evidence.run.agents:
        for position, instruction in enumerate(agent.stream.instructions):
            op = instruction.op
            if not isinstance(op, ActTableLoad):
                continue
            tables[op.table] += 1
            if tables[op.table] > 1 and instruction.location is not None:
                change.remove((agent.number, position))
                locations[instruction.location] += 1
    change.lines = [location for location, _ in locations.most_common()]
    names = [f"`{name}`" for name, _ in tables.most_common()]
    change.text = (f"the scalar engine loads functions {tables.total()} times, which takes "
                   f"{evidence.machine.costs.control.table_load_ns:.0f} ns each: {' and '.join(names)} take turns "
                   f"({named(change.lines)}); apply one to all tiles before the next one")
    return change
