# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""synchronize-engines: split the sequence of instructions into a stream for each engine, and insert semaphores.

before:  nisa.dma_copy %a, %x; nisa.activation %b, %a       after:  sp:  DMA ... S[5]+=16@complete
                                                                    act: S[5]>=16 ACTIVATE ...

Code without branches is a segment. In a segment each engine and each DMA queue has a semaphore that only counts up: an
instruction waits for a value, a finished transfer adds 16, and any other instruction for which some instruction waits
adds 1. Between segments, that is after register loops and branches, all engines synchronize: each waits for the queues
it fills, all semaphores are cleared, and values start from 0 again. Iterations of a register loop whose body is one
segment overlap (``iteration_waits.py``); otherwise the engines synchronize after each. docs/isa.md has the rules.
"""

from collections.abc import Iterator, Sequence

from nki_mlir.bindings import Module, ir
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.module import write_program
from nki_mlir.dialects.isa.program import Program, Queue, Semaphore
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.machine import ENGINES, Engine
from nki_mlir.passes.levels import Level
from nki_mlir.passes.pass_manager import Pass
from nki_mlir.progress import phase
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.carried_dependences import carried_dependences
from nki_mlir.targets.neuron.codegen.dependence_scan import StepEdges
from nki_mlir.targets.neuron.codegen.hbm_variables import plain, variables_of
from nki_mlir.targets.neuron.codegen.iteration_waits import (
    IterationEvent,
    IterationWaits,
    SignaledIteration,
    straight_loops,
)
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.codegen.physical_tiles import PhysicalTiles
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Branch,
    Code,
    Computed,
    DeviceBuffer,
    InstructionStep,
    Load,
    Loop,
    LoopVariable,
    Value,
    While,
    blocks,
    steps_in,
    used_buffers,
)
from nki_mlir.targets.neuron.codegen.registers import RegisterFile, numbers_used
from nki_mlir.targets.neuron.codegen.schedule_instructions import OrderedRun
from nki_mlir.targets.neuron.codegen.segment_waits import QUEUES, SegmentWaits, dependences_of, group_of
from nki_mlir.targets.neuron.codegen.unroll_loops import with_grid

OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
WAITS = 1                       # most waits of an instruction; further ones become instructions before it


class SynchronizeEngines(Pass, name="synchronize-engines", reads=Level.NISA, writes=Level.ISA):
    overlap: bool = True        # overlap iterations of register loops; else synchronize the engines after each

    def run(self, module: Module) -> None:
        with module.context, ir.Location.unknown():
            program = synchronized(with_grid(read_code(the_kernel(module))), overlap=self.overlap)
            write_program(module, program)


class NoAddress(NkiMlirError):
    code = "NKI-NO-ADDRESS"
    message = "the buffer {name} has no address"
    fix = "run allocate-on-chip first"


class TooManySemaphores(NkiMlirError):
    code = "NKI-SEMAPHORES"
    message = "the program needs {needed} semaphores, but {machine} has {limit}"
    fix = "use fewer engines for DMA"


@phase("streams")
def synchronized(code: Code, ordered: Sequence[OrderedRun] = (), overlap: bool = False) -> Program:
    """Return the program of a kernel whose buffers have addresses. The dependences of the ``ordered`` runs are known.
    With ``overlap``, iterations of register loops overlap where that is possible."""
    return _Emitter(code, ordered, overlap).emitted()


@phase("streams")
def overlapped(code: Code, ordered: Sequence[OrderedRun] = ()) -> Program | None:
    """Return the same program with iterations that overlap; None if iterations of no loop can overlap."""
    emitter = _Emitter(code, ordered, overlap=True)
    return emitter.emitted() if emitter.iterations else None


class _Emitter:
    def __init__(self, code: Code, ordered: Sequence[OrderedRun], overlap: bool) -> None:
        self.code, self.machine = code, code.machine
        self.ordered = {run.steps[0]: run.before for run in ordered}        # by the first step
        steps = list(steps_in(code.body))
        buffers = used_buffers(steps)
        check(steps, buffers)
        self.variables = variables_of(code, buffers)
        self.program = Program(plain(code.name), code.machine.name, [*self.variables.values()], notes=[*code.notes],
                               static_descriptors=code.machine.static_descriptors)
        engine_of = [step.op.runs_on for step in steps]
        used_engines = set(engine_of)
        self.engines = [engine for engine in ENGINES if engine in used_engines]
        self.names = [engine.value for engine in self.engines]
        self.streams = [self.program.streams[engine] for engine in self.engines]
        group_by_step = [group_of(step) if step.op.queued else None for step in steps]
        self.groups = sorted({group for group in group_by_step if group}, key=lambda g: (g[0].value, g[1]))
        numbers = {engine: number for number, engine in enumerate(self.engines)}
        group_numbers = {None: None} | {group: number for number, group in enumerate(self.groups)}
        # For each step the engine that issues it, and the group of queues that a transfer is put into.
        self.issued = {step: (numbers[engine], group_numbers[group])
                       for step, engine, group in zip(steps, engine_of, group_by_step)}
        self.iterations = {loop.body: waits for loop in (straight_loops(code) if overlap else ())
                           if (waits := self.overlapping(loop)) is not None}

    def emitted(self) -> Program:
        """Return the program."""
        self.parts = {block: list(self.segments(block)) for block in blocks(self.code.body)
                      if block not in self.iterations}
        self.program.semaphores = [Semaphore(isa.ENGINE_NAMES[e]) for e in self.engines]
        self.queue_of: dict[int, int] = {}              # by lane: the queue's number
        self.name_queues()
        self.signaled = {block: SignaledIteration(waits) for block, waits in self.iterations.items()}
        self.pairs: dict[tuple[int, int], int] = {}     # the semaphore by which an engine signals to another one
        for lane, engine in sorted({pair for signaled in self.signaled.values() for pair in signaled.events}):
            self.pairs[lane, engine] = len(self.program.semaphores)
            names = [isa.ENGINE_NAMES[self.engines[k]] for k in (lane, engine)]
            self.program.semaphores.append(Semaphore("For".join(names)))
        self.data_semaphores = len(self.program.semaphores)
        self.registers = {e: RegisterFile() for e in self.engines}
        self.tiles = PhysicalTiles(self.machine, self.variables)
        self.exchanges_data = False
        self.table = ""                                 # the table that the scalar engine has loaded, if it is known
        self.block(self.code.body, ends_program=True)
        self.finish()
        return self.program

    def name_queues(self) -> None:
        """Create semaphores for the queues that some segment uses; those of an engine are numbered, loads first."""
        segments = [part for parts in self.parts.values() for part in parts if isinstance(part, SegmentWaits)]
        plans: list[SegmentWaits | IterationWaits] = [*segments, *self.iterations.values()]
        numbers: dict[Engine, int] = {}
        for number, (engine, _) in enumerate(self.groups):
            for n in range(max(plan.used[number] for plan in plans)):
                self.queue_of[len(self.engines) + QUEUES * number + n] = len(self.program.queues)
                name = f"q{isa.ENGINE_NAMES[engine]}IO{numbers.get(engine, 0)}"
                numbers[engine] = numbers.get(engine, 0) + 1
                self.program.queues.append(Queue(name, engine, len(self.program.semaphores)))
                self.program.semaphores.append(Semaphore(name))

    def semaphore(self, lane: int) -> int:
        """Return the semaphore that counts the completed instructions of a lane."""
        return lane if lane < len(self.engines) else self.program.queues[self.queue_of[lane]].semaphore

    # -- structure -----------------------------------------------------------------------------------------------------
    def block(self, block: Block, ends_program: bool = False, condition: Value = 0) -> None:
        """Emit a block. ``ends_program``: the program ends after it. Numbers that the ``condition`` needs stay
        loaded."""
        segments = self.parts[block]
        loaded = {part.variable for part in segments if isinstance(part, Load)} - set(records.variables_of(condition))
        parts = enumerate(segments if loaded else ())
        last_uses = {v: k for k, part in parts for v in numbers_used(part) if v in loaded}
        for k, part in enumerate(segments):
            end = ends_program and k == len(segments) - 1
            match part:
                case SegmentWaits():
                    self.segment(part)
                    if not end:
                        self.barrier()
                case Loop():
                    self.loop(part)
                case While():
                    self.while_loop(part)
                case Branch():
                    self.branch(part)
                case Load():
                    self.load(part)
                    if not isinstance(segments[k + 1] if k + 1 < len(segments) else None, Load):
                        self.barrier()              # no engine overwrites a number that another one has not read yet
            self.release([v for v, at in last_uses.items() if at == k])

    def segments(self, block: Block) -> Iterator[object]:
        """Yield the waits of runs of steps, cut where a semaphore would overflow, and the nodes between them."""
        run: list[InstructionStep] = []
        counts: dict[int, int] = {}                             # values of semaphores by engine, and by group of queues
        before: StepEdges | None = None                 # for each step of the run, the steps that it comes after
        start = 0                                               # the number in the run of the segment's first step
        for node in block.nodes:
            if not isinstance(node, InstructionStep):
                if run:
                    yield self.planned(run, before, start)
                yield node
                run, counts, before, start = [], {}, None, 0
                continue
            if not run and not start:
                before = self.ordered.get(node)
            engine, group = self.issued[node]
            lane = engine if group is None else len(self.engines) + group
            limit = isa.SEMAPHORE_MAX if group is None else isa.SEMAPHORE_MAX // isa.COMPLETIONS
            if counts.get(lane, 0) >= limit:
                yield self.planned(run, before, start)
                run, counts, start = [], {}, start + len(run)
            counts[lane] = counts.get(lane, 0) + 1
            run.append(node)
        if run:
            yield self.planned(run, before, start)

    def planned(self, steps: Sequence[InstructionStep], before: StepEdges | None, start: int) -> SegmentWaits:
        """Return the waits of straight-line code. Everything before the segment is complete when it begins."""
        if before is not None and (start or len(steps) < len(before)):
            before = before.part(start, start + len(steps))
        return SegmentWaits(steps, self.issuers(steps), len(self.engines), len(self.groups), before)

    def issuers(self, steps: Sequence[InstructionStep]) -> list[tuple[int, int | None]]:
        return [self.issued[step] for step in steps]

    def overlapping(self, loop: Loop) -> IterationWaits | None:
        """Return the waits of a loop without branches whose iterations overlap. Return None if a semaphore may overflow
        (an engine may be two iterations ahead, further if it waits for no other), or if nearly all pairs of steps may
        share bytes."""
        steps, issuers = loop.body.nodes, self.issuers(loop.body.nodes)
        most = max(len(steps), isa.COMPLETIONS * sum(group is not None for _, group in issuers))
        if len(self.engines) < 2 or most * 4 > isa.SEMAPHORE_MAX:
            return None
        carried, stores = carried_dependences(steps, issuers, loop), [bool(out) for _, out in self.groups]
        if carried is None:
            return None
        ordered = self.ordered.get(steps[0])
        before = dependences_of(steps, issuers) if ordered is None else ordered.lists
        waits = IterationWaits(steps, issuers, len(self.engines), stores, before, carried)
        if waits.plan is None or SignaledIteration(waits).may_overflow(len(loop.span)):
            return None
        return waits

    def loop(self, loop: Loop) -> None:
        tables = self.load_loop_tables(loop.body)
        overlapping = self.signaled.get(loop.body)
        if overlapping is not None:
            self.add(overlapping, 1)  # assume a complete iteration: everything before the loop is complete
        heads: dict[Engine, int] = {}
        registers: dict[Engine, isa.Register] = {}
        for engine in self.engines:
            self.registers[engine].invalidate_computed()
            registers[engine] = self.registers[engine].pin(loop.variable)
            self.control(engine, isa.Move(registers[engine], loop.span[0]))
            heads[engine] = len(self.stream(engine))
        if overlapping is not None:
            self.iteration(self.iterations[loop.body], overlapping)
        else:
            self.block(loop.body)
        for engine in self.engines:
            register = registers[engine]
            self.registers[engine].invalidate_computed()        # values computed from the variable's old value
            self.control(engine, isa.RegisterAlu("add", register, register, loop.span.step))
            branch = self.control(engine, isa.CompareBranch("le", register, loop.span[-1], isa.Label(heads[engine])))
            self.stream(engine)[branch].location = loop.location
            self.registers[engine].release(loop.variable)
        self.live_throughout(heads, loop.body)
        if overlapping is not None:
            self.end_iterations(overlapping)
        self.end_loop_tables(tables)

    def while_loop(self, loop: While) -> None:
        """Emit a loop: all engines load the operands of the condition and synchronize, then each branches on the
        condition."""
        tables = self.load_loop_tables(loop.test, loop.body)
        heads = {engine: len(self.stream(engine)) for engine in self.engines}
        for engine in self.engines:
            self.registers[engine].invalidate_computed()
        self.block(loop.test, condition=loop.condition)
        ends = {engine: self.branch_unless(engine, loop.condition) for engine in self.engines}
        needed = set(records.variables_of(loop.condition))
        self.release([n.variable for n in loop.test.nodes if isinstance(n, Load) and n.variable in needed])
        self.block(loop.body)
        for engine in self.engines:
            self.control(engine, isa.CompareBranch("eq", 0, 0, isa.Label(heads[engine])))
            self.registers[engine].invalidate_computed()
            self.set_branch_target(engine, ends[engine])
        self.live_throughout(heads, loop.test, loop.body)
        self.end_loop_tables(tables)

    def live_throughout(self, heads: dict[Engine, int], *repeated: Block) -> None:
        """Extend the live ranges of outer buffers that a loop uses to the complete loop, which ends here."""
        inner = {buffer for body in repeated for block in blocks(body) for buffer in block.buffers}
        used = dict.fromkeys(tile.handle for body in repeated for node in records.nodes_in(body)
                             for tile in records.tiles_of(node) if tile.space != HBM)
        for buffer in used:
            for number, span in self.tiles.buffers[buffer].spans.items() if buffer not in inner else ():
                head = heads[self.engines[number]]
                if span[1] >= head:
                    span[:] = min(span[0], head), len(self.streams[number]) - 1

    def branch_unless(self, engine: Engine, condition: Value) -> int:
        """Emit a branch that is taken if the condition does not hold, and return its index; ``aim`` sets its target
        later."""
        match condition:
            case Computed(op, lhs, rhs) if op in OPPOSITE:
                left, right = (n if isinstance(n, int) else self.register(engine, n, (lhs, rhs)) for n in (lhs, rhs))
                branch = isa.CompareBranch(OPPOSITE[op], left, right, isa.Label(0))
            case _:
                value = condition if isinstance(condition, int) else self.register(engine, condition)
                branch = isa.CompareBranch("eq", value, 0, isa.Label(0))
        self.registers[engine].invalidate_computed()
        return self.control(engine, branch)

    def load(self, load: Load) -> None:
        """Let every engine read the number into one of its registers. No transfer is under way."""
        for number, engine in enumerate(self.engines):
            register = self.registers[engine].pin(load.variable)
            self.control(engine, isa.TensorLoad(register, self.tiles.used(load.tile, number, len(self.stream(engine)))))

    def release(self, variables: Sequence[LoopVariable]) -> None:
        for registers in self.registers.values():
            for variable in variables:
                registers.release(variable)

    def branch(self, branch: Branch) -> None:
        """Emit ``then`` and ``otherwise`` one after the other; each engine takes one of them by its registers."""
        starts = {engine: self.branch_unless(engine, branch.condition) for engine in self.engines}
        before = self.table
        self.block(branch.then)
        after, self.table = self.table, before
        ends: dict[Engine, int] = {}
        for engine in self.engines:
            self.registers[engine].invalidate_computed()
            if branch.otherwise.nodes:
                ends[engine] = self.control(engine, isa.CompareBranch("eq", 0, 0, isa.Label(0)))
            self.set_branch_target(engine, starts[engine])
        self.block(branch.otherwise)
        self.table = after if self.table == after else ""
        for engine, at in ends.items():
            self.registers[engine].invalidate_computed()
            self.set_branch_target(engine, at)

    def set_branch_target(self, engine: Engine, at: int) -> None:
        """Set the target of the branch at ``at`` to the next instruction."""
        stream = self.stream(engine)
        branch = stream[at].op
        assert isinstance(branch, isa.CompareBranch)
        stream[at].op = isa.CompareBranch(branch.op, branch.lhs, branch.rhs, isa.Label(len(stream)))

    # -- tables of functions -------------------------------------------------------------------------------------------
    def load_loop_tables(self, *repeated: Block) -> set[str]:
        """Return the sets of functions that a loop needs. A single one is loaded when the loop begins."""
        tables = {step.op.function_set for block in repeated for step in steps_in(block)} - {""}
        if len(tables) == 1:
            self.load_table(min(tables))
        elif tables:
            self.table = ""                             # the previous iteration may have left another one loaded
        return tables

    def end_loop_tables(self, tables: set[str]) -> None:
        if len(tables) > 1:
            self.table = ""

    def load_table(self, table: str, location: Location | None = None) -> None:
        if table and table != self.table:
            self.stream(Engine.SCALAR).append(isa.Instruction(isa.ActTableLoad(table), location=location))
            self.table = table

    # -- segments ------------------------------------------------------------------------------------------------------
    def segment(self, waits: SegmentWaits) -> None:
        """Emit straight-line code, and at its end each engine's wait for the queues it fills."""
        engines = len(self.engines)
        amounts = {lane: 1 if lane < engines else isa.COMPLETIONS for lane in waits.signaled}
        semaphores = {lane: self.semaphore(lane) if total else 0 for lane, total in waits.totals.items()}
        updates = {lane: isa.Update(semaphores[lane], amount) for lane, amount in amounts.items()}
        distinct: dict[tuple[int, int], isa.Wait] = {}
        for step, engine, lane, signals, step_waits in zip(waits.steps, waits.engines, waits.lanes, waits.signals,
                                                           waits.waits):
            several_waits = [distinct.get(pair) or distinct.setdefault(
                pair, isa.Wait(semaphores[pair[0]], amounts[pair[0]] * pair[1])) for pair in step_waits]
            self.step(step, engine, lane, several_waits, updates[lane] if signals else None)
        for lane, number in self.queue_of.items():
            queue = self.program.queues[number]
            if waits.unknown(self.engines.index(queue.engine), lane):
                self.control(queue.engine, isa.EventSemaphore(),
                             isa.Wait(queue.semaphore, isa.COMPLETIONS * waits.signaled[lane]))

    def step(self, step: InstructionStep, number: int, lane: int, waits: list[isa.Wait], update: isa.Update | None
             ) -> None:
        """Append a step to the stream of engine ``number``."""
        op, stream, engine = step.op, self.streams[number], self.engines[number]
        if function_set := op.function_set:
            self.load_table(function_set, step.location)
        symbols = tuple([self.register(engine, s, keep=op.symbols) for s in op.symbols]) if op.symbols else ()
        if len(waits) > WAITS:
            for wait in waits[:-WAITS]:
                self.control(engine, isa.EventSemaphore(), wait)
            waits = waits[-WAITS:]
        physical = self.tiles.instruction(op, number, len(stream), symbols, self.names[number])
        stream.append(isa.Instruction(physical, tuple(waits), update, self.queue_of.get(lane), step.location,
                                      step.work, step.iteration))

    # -- iterations that overlap ---------------------------------------------------------------------------------------
    def signal_semaphore(self, lane: int, engine: int) -> int:
        """Return the semaphore by which a lane signals to an engine, in a loop whose iterations overlap."""
        return self.semaphore(lane) if lane >= len(self.engines) else self.pairs[lane, engine]

    def add(self, signaled: SignaledIteration, iterations: int) -> None:
        """Let each engine add to the semaphores that it waits for as much as ``iterations`` iterations add."""
        for (lane, engine), amount in signaled.amounts.items():
            self.control(self.engines[engine], isa.EventSemaphore(),
                         update=isa.Update(self.signal_semaphore(lane, engine), iterations * amount))

    def iteration(self, waits: IterationWaits, signaled: SignaledIteration) -> None:
        plan = signaled.plan
        relays: dict[int, list[int]] = {}
        for time, lane in plan.relays:
            relays.setdefault(time, []).append(lane)
        for k, step in enumerate(waits.steps):
            for lane in relays.get(2 * k, ()):
                for wait in self.iteration_waits(plan.relays[2 * k, lane], lane, signaled):
                    self.control(self.engines[lane], isa.EventSemaphore(), wait)
                self.signal(lane, signaled.signals.get((lane, 2 * k), ()))
            engine, lane = waits.issuers[k][0], waits.lanes[k]
            signals = signaled.signals.get((lane, 2 * k + 1), ())
            update = (isa.Update(self.semaphore(lane), isa.COMPLETIONS) if lane != engine else
                      isa.Update(self.pairs[lane, signals[0]], 1) if signals else None)
            self.step(step, engine, lane, self.iteration_waits(plan.waits[k], engine, signaled), update)
            self.signal(lane, signals[1:])
        self.add(signaled, -1)

    def iteration_waits(self, events: Sequence[IterationEvent], engine: int, signaled: SignaledIteration
                        ) -> list[isa.Wait]:
        return [isa.Wait(self.signal_semaphore(event.lane, engine), signaled.value(event, engine)) for event in events]

    def signal(self, lane: int, engines: Sequence[int]) -> None:
        """Signal to engines that all earlier instructions of ``lane`` are complete."""
        for engine in engines:
            self.control(self.engines[lane], isa.EventSemaphore(), update=isa.Update(self.pairs[lane, engine], 1))

    def end_iterations(self, signaled: SignaledIteration) -> None:
        """Wait for all transfers at the end of the loop, where the engines synchronize."""
        for (lane, engine), amount in signaled.amounts.items():
            if lane >= len(self.engines):
                self.control(self.engines[engine], isa.EventSemaphore(), isa.Wait(self.semaphore(lane), amount))
        self.barrier()

    def register(self, engine: Engine, value: Computed | LoopVariable, keep: Sequence[Value] = ()) -> isa.Register:
        """Return a register that holds the value; emit code that computes it where none does."""
        return self.registers[engine].get(value, keep, lambda op: self.control(engine, op))

    # -- meeting -------------------------------------------------------------------------------------------------------
    def barrier(self) -> None:
        """Synchronize all engines: the first clears all semaphores, and then lets the others continue.

        It takes further semaphores, after those of engines and queues: one counts the engines that have arrived; one
        for each engine but the first lets it continue, and the engine counts it down.
        """
        self.exchanges_data = len(self.engines) > 1
        first_engine, *other_engines = self.engines
        arrived, go = self.data_semaphores, {e: self.data_semaphores + 1 + k for k, e in enumerate(other_engines)}
        for engine in other_engines:
            self.control(engine, isa.EventSemaphore(), update=isa.Update(arrived, 1))
        if other_engines:
            self.control(first_engine, isa.EventSemaphore(), isa.Wait(arrived, len(other_engines)))
        self.control(first_engine, isa.RangeClear(0, arrived if other_engines else arrived - 1))
        for engine in other_engines:
            self.control(first_engine, isa.EventSemaphore(), update=isa.Update(go[engine], 1))
            self.control(engine, isa.EventSemaphore(), isa.Wait(go[engine], 1), isa.Update(go[engine], -1))

    def finish(self) -> None:
        program = self.program
        if self.exchanges_data:
            program.semaphores.append(Semaphore("Barrier"))
            program.semaphores += [Semaphore(f"Go{isa.ENGINE_NAMES[e]}") for e in self.engines[1:]]
        if len(program.semaphores) > self.machine.semaphores:
            needed, limit = len(program.semaphores), self.machine.semaphores
            raise TooManySemaphores(needed=needed, machine=self.machine.name, limit=limit)
        program.live = self.tiles.live_ranges(self.engines)
        program.sbuf_bytes, program.psum_bytes = (
            max([live.byte + live.size for live in program.live if live.space == space], default=0)
            for space in (SBUF, PSUM))

    def stream(self, engine: Engine) -> list[isa.Instruction]:
        return self.program.streams[engine]

    def control(self, engine: Engine, op: isa.Control, wait: isa.Wait | None = None, update: isa.Update | None = None
                ) -> int:
        """Append a control instruction; return its index."""
        self.stream(engine).append(isa.Instruction(op, (wait,) if wait else (), update))
        return len(self.stream(engine)) - 1


def check(steps: Sequence[InstructionStep], buffers: Sequence[DeviceBuffer]) -> None:
    """Raise an error unless each operation has an instruction, and its buffers have addresses."""
    for cls in dict.fromkeys([type(step.op) for step in steps]):
        isa.check_encodable(cls)
    for buffer in buffers:
        if buffer.space != HBM and buffer.address is None:
            raise NoAddress(name=buffer.name).located(buffer.location)
