# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules of the advice: each says what instructions would cost if the kernel were written otherwise."""

from collections import Counter, defaultdict
from dataclasses import replace

from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import HBM, PSUM, Tile
from nki_mlir.dialects.isa.instruction import ActTableLoad
from nki_mlir.dialects.isa.program import descriptors
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorScalarOp
from nki_mlir.dialects.op import Op
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.profile.advice import Change, Costed, Evidence, Rule, lines_of, named
from nki_mlir.targets.neuron.profile.occupancy import Footprint, Use, footprint_of, readers_of
from nki_mlir.targets.neuron.timing.columns import TRANSFER
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer

SHORT = 512                     # bytes of a run, under which transfers are slow (guide to DMA bandwidth)
TURNS = 4                       # loads into one tile that are a loop
LARGE = 1 << 18                 # bytes of a transfer that is large enough


def hbm_source(step: Costed) -> Tile | None:
    """What a transfer to the chip reads."""
    sources = [t for _, t in step.op.sources()]
    loads = any(t.on_chip for _, t in step.op.targets())
    return sources[0] if loads and len(sources) == 1 and sources[0].space == HBM else None


class RepeatedLoads(Rule):
    """The same bytes of HBM are loaded again: keep them in SBUF."""

    name = "repeated-loads"

    def change(self, seen: Evidence) -> Change | None:
        known: dict[object, int] = defaultdict(int)
        again = []
        nbytes = 0
        for step in seen.transfers:
            source = hbm_source(step)
            if source is None or source.access.free.symbols:
                continue
            key = id(source.handle), source.access.dims, source.access.free.const, source.dtype
            known[key] += 1
            if known[key] > 1:
                again.append(step)
                nbytes += step.transfer.hbm_bytes if step.transfer else 0
        if not again:
            return None
        names = sorted({f"`{t.handle.name}`" for s in again if (t := hbm_source(s)) is not None})
        lines = lines_of(again)
        made = Change(f"{' and '.join(names)}: {nbytes / 1e6:.2f} MB are loaded again, up to {max(known.values())} "
                      f"times ({named(lines)}); load once, outside of the loop, and keep the tiles in SBUF", lines)
        for step in again:
            made.gone(step.where)
        return made


class ShortRuns(Rule):
    """Descriptors of few bytes: the DMA engines spend their time on overhead."""

    name = "short-runs"

    def change(self, seen: Evidence) -> Change | None:
        dma, short, least = seen.machine.costs.dma, [], SHORT
        made = Change("", [])
        for step in seen.transfers:
            runs = descriptors(step.op)
            if runs is None or runs[1] >= SHORT or step.transfer is None:
                continue
            moved = runs[0] * runs[1] / SHORT * dma.descriptor(SHORT) / seen.machine.dma_engines
            if moved * 2 > max(step.transfer.parts):
                continue
            short.append(step)
            least = min(least, runs[1])
            parts = (moved,) * len(step.transfer.parts)
            made.transfers[step.where] = replace(step.transfer, parts=parts)
        made.lines = lines_of(short)
        made.text = (f"{len(short)} transfers ({named(made.lines)}) move runs of {least} bytes; make the last axis of "
                     f"what is moved contiguous in HBM, in runs of {SHORT} bytes or more")
        return made


class SmallTransfers(Rule):
    """One engine triggers many small transfers, which takes it longer than they move."""

    name = "one-issuer"

    def change(self, seen: Evidence) -> Change | None:
        by_line: dict[object, list[Costed]] = defaultdict(list)
        for step in seen.transfers:
            if step.location is not None and step.transfer is not None and step.transfer.hbm_bytes < LARGE:
                by_line[step.where[0], step.location.file, step.location.line].append(step)
        made, some = Change("", []), []
        for steps in by_line.values():
            kept = 0
            for step in steps:
                nbytes = step.transfer.hbm_bytes if step.transfer else 0
                kept += nbytes
                if kept > LARGE or step is steps[0]:
                    kept = nbytes
                    continue
                some.append(step)
                made.busy(step, 0.0)
        if not some:
            return None
        made.lines = lines_of(some)
        engine = max(dict.fromkeys(s.engine for s in some), key=lambda e: seen.busy.get(e, 0.0))
        share = seen.busy.get(engine, 0.0) / seen.total
        issue = float(seen.machine.costs.dma.issue_ns)
        made.text = (f"the {engine.value} engine is busy {share:.0%}, {issue:.0f} ns for each transfer that it "
                     f"triggers ({named(made.lines)}); move several of these tiles with one load or store, of up to "
                     f"{LARGE >> 10} KiB")
        return made


BOTH = Engine.VECTOR, Engine.SCALAR     # engines that can do each other's elementwise work


def evicts(step: Costed) -> bool:
    """Whether an instruction only moves a result from PSUM."""
    sources, targets = step.op.sources(), step.op.targets()
    return step.engine in BOTH and len(sources) == 1 and sources[0][1].space == PSUM and targets[0][1].space != PSUM


def shared_out(seen: Evidence, made: Change, evictions: bool) -> tuple[Engine, Engine, float]:
    """Let the less busy of two engines do as much of the other's work, of one sort, as makes both busy for as long.
    Returns the busy engine, the other one, and the share of the work that goes to it."""
    loaded = max(BOTH, key=lambda e: seen.busy.get(e, 0.0))
    other = BOTH[1 - BOTH.index(loaded)]
    costs = seen.machine.costs.engines[other]
    steps = [s for s in seen.work if s.engine is loaded and other in type(s.op).engines and evicts(s) is evictions
             and (costs.other is not None or s.op.work().law in costs.laws)]
    own_ns = sum(s.entry[1] for s in steps)
    both_ns = own_ns + sum(seen.machine.cost(other, s.op.work()).busy for s in steps)
    gap = min(own_ns, seen.busy.get(loaded, 0.0) - seen.busy.get(other, 0.0))   # other work may be at another time
    if both_ns <= 0.0 or gap <= 0.0:
        return loaded, other, 0.0
    share = min(1.0, gap / both_ns)
    for step in steps:
        made.busy(step, step.entry[1] * (1 - share))
    made.lines = lines_of(steps)
    return loaded, other, share


class Imbalance(Rule):
    """One engine has the elementwise work, another one could do it as well and is idle. Of copies from PSUM another
    rule speaks."""

    name = "imbalance"

    def change(self, seen: Evidence) -> Change | None:
        made = Change("", [])
        loaded, other, share = shared_out(seen, made, evictions=False)
        if not share:
            return None
        made.text = (f"the {loaded.value} engine is busy {seen.busy[loaded] / seen.total:.0%}, the {other.value} "
                     f"engine {seen.busy.get(other, 0.0) / seen.total:.0%}; let the {other.value} engine do "
                     f"{share:.0%} of what both can do ({named(made.lines)}), with engine=")
        return made


class ExposedWeights(Rule):
    """Products whose moving side is narrow: loading weights takes as long as using them."""

    name = "weight-loads"

    def change(self, seen: Evidence) -> Change | None:
        widest = seen.machine.moving_free_max
        made, narrow, columns = Change("", []), [], widest
        for step in seen.work:
            work = step.op.work()
            if not work.law.startswith("product") or work.elements * 2 > widest:
                continue
            whole = seen.machine.cost(step.engine, Work(work.law, widest)).busy
            narrow.append(step)
            columns = min(columns, int(work.elements))
            made.busy(step, whole * work.elements / widest)
        made.lines = lines_of(narrow)
        made.text = (f"{len(narrow)} products ({named(made.lines)}) move {columns} columns for each load of weights; "
                     f"let the moving side have {widest} columns")
        return made


class Eviction(Rule):
    """Results wait in PSUM for one engine to copy them."""

    name = "psum-eviction"

    def change(self, seen: Evidence) -> Change | None:
        made = Change("", [])
        loaded, other, share = shared_out(seen, made, evictions=True)
        if not share:
            return None
        made.text = (f"the {loaded.value} engine empties PSUM in {len(made.entries)} copies ({named(made.lines)}), for "
                     f"which products wait, and is busy {seen.busy[loaded] / seen.total:.0%}, the {other.value} engine "
                     f"{seen.busy.get(other, 0.0) / seen.total:.0%}; let the {other.value} engine do {share:.0%} of "
                     "them, with engine=")
        return made


class NoOverlap(Rule):
    """Loads wait until the tiles that they go to are free: compute and transfers take turns."""

    name = "no-overlap"

    def change(self, seen: Evidence) -> Change | None:
        by_line: dict[object, list[Costed]] = defaultdict(list)
        for step in seen.transfers:
            if hbm_source(step) is not None and step.location is not None:
                by_line[step.location.file, step.location.line].append(step)
        in_turn = [own for own in by_line.values()
                   if len(own) >= TURNS and len({footprint_of(t.op.targets()[0][1]) for t in own}) == 1]
        steps = [step for own in in_turn for step in own]
        if not steps:
            return None
        dma = seen.machine.costs.dma
        # What is busiest is busy all the time, but for the way of the first load in and of the last store out.
        way = 2 * float(dma.trigger_ns + dma.notify_ns) + 2 * max(max(s.transfer.parts) for s in steps if s.transfer)
        lines = lines_of(steps)
        busy = max([*seen.busy.values(), *(core.dma.busy for core in seen.run.cores)])
        return Change(f"{len(steps)} loads ({named(lines)}) go to one tile, each when it is no longer used: engines "
                      f"and transfers take turns, and the busiest of them is busy {busy / seen.total:.0%}; give each "
                      "iteration a tile of its own", lines, end=busy + way)


class SlowDtype(Rule):
    """Products of float32 take several passes."""

    name = "dtype"

    def change(self, seen: Evidence) -> Change | None:
        made, steps = Change("", []), []
        passes = 1
        operands: set[Footprint] = set()
        for step in seen.work:
            work = step.op.work()
            if work.law in ("product.float32", "transpose.float32"):
                law = work.law.partition(".")[0]
                steps.append(step)
                made.busy(step, seen.machine.cost(step.engine, Work(law, work.elements)).busy)
                passes = max(passes, seen.machine.costs.engines[step.engine].law(work.law).passes)
                operands.update(footprint_of(t) for name, t in step.op.sources() if name != "dst")
        if not steps:
            return None
        for step in seen.transfers:
            source = hbm_source(step)
            if source is not None and source.dtype is FLOAT32 and step.transfer is not None:
                target = footprint_of(step.op.targets()[0][1])
                if any(o.space == target.space and o.b0 < target.b1 and target.b0 < o.b1 for o in operands):
                    made.transfers[step.where] = scaled(step.transfer, 0.5)
        made.lines = lines_of(steps)
        made.text = (f"{len(steps)} products ({named(made.lines)}) are of float32, in {passes} passes; with operands "
                     "of bfloat16 they take one, and loads half of the bytes (sums stay float32, operands have 8 bits)")
        return made


def scaled(transfer: TimedTransfer, factor: float) -> TimedTransfer:
    return replace(transfer, parts=tuple(p * factor for p in transfer.parts),
                             hbm_bytes=int(transfer.hbm_bytes * factor))


class FewPartitions(Rule):
    """Tiles that fill part of the partitions: lanes and DMA engines are idle."""

    name = "partitions"

    def change(self, seen: Evidence) -> Change | None:
        full, made, steps, fewest = seen.machine.partitions, Change("", []), [], seen.machine.partitions
        for step in seen.steps:
            lanes = max((t.partitions for _, t in step.op.operands() if t.on_chip), default=full)
            if lanes * 2 > full or step.engine is Engine.TENSOR:
                continue
            if step.transfer is not None:
                if step.entry[0] == TRANSFER and not step.transfer.under_way:
                    even = sum(step.transfer.parts) / len(step.transfer.parts)
                    made.transfers[step.where] = replace(step.transfer, parts=(even,) * len(step.transfer.parts))
                    made.busy(step, step.entry[1] * lanes / full)
            else:
                made.busy(step, step.entry[1] * lanes / full)
            steps.append(step)
            fewest = min(fewest, lanes)
        made.lines = lines_of(steps)
        made.text = (f"{len(steps)} instructions ({named(made.lines)}) work on {fewest} of {full} partitions; put more "
                     "rows into the partition axis of a tile")
        return made


WITHIN = ("multiply", "bypass"), ("add", "bypass"), ("multiply", "add")     # what an activation does first


def takes(op: Op, before: TensorScalarOp, use: Use) -> bool:
    """Whether an activation that reads what an instruction of ``WITHIN`` wrote has room for what this does."""
    return (isinstance(op, ActivationOp) and use.field == "src" and footprint_of(before.dst) == use.region
            and op.scale is None and op.imm == 1.0 and (op.bias is None or "add" not in (before.op0, before.op1)))


class Fusable(Rule):
    """A scale or a bias by itself, before an activation that has a place for it."""

    name = "fuse-activation"

    def change(self, seen: Evidence) -> Change | None:
        some = [(s, s.op) for s in seen.work if isinstance(s.op, TensorScalarOp) and (s.op.op0, s.op.op1) in WITHIN]
        readers = readers_of(seen.run) if some else {}
        ops = {s.where: s.op for s in seen.steps}
        alone = [s for s, op in some if (uses := readers.get(s.where))
                 and all([takes(ops[use.where], op, use) for use in uses])]
        lines = lines_of(alone)
        made = Change(f"{len(alone)} instructions ({named(lines)}) multiply or add before an activation; give it the "
                      "factor as scale=, the summand as bias=", lines)
        for step in alone:
            made.gone(step.where)
        return made


class TableLoads(Rule):
    """Functions of several sets take turns on the scalar engine, which has one set at hand."""

    name = "table-loads"

    def change(self, seen: Evidence) -> Change | None:
        made, tables, needed = Change("", []), Counter[str](), Counter[Location]()
        for agent in seen.run.agents:
            for place, instruction in enumerate(agent.stream.instructions):
                op = instruction.op
                if not isinstance(op, ActTableLoad):
                    continue
                tables[op.table] += 1
                if tables[op.table] > 1 and instruction.location is not None:
                    made.gone((agent.number, place))
                    needed[instruction.location] += 1
        made.lines = [location for location, _ in needed.most_common()]
        names = [f"`{name}`" for name, _ in tables.most_common()]
        made.text = (f"the scalar engine loads functions {tables.total()} times, which takes "
                     f"{seen.machine.costs.control.table_load_ns:.0f} ns each: {' and '.join(names)} "
                     f"take turns ({named(made.lines)}); apply one to all tiles before the next one")
        return made
