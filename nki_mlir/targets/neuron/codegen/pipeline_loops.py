# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""pipeline-loops: overlap iterations of register loops by modulo scheduling.

before:  for i = 0 to 8: load A[i]; exp A[i]; store A[i]

after:   load A[0]
         for i = 0 to 7: exp A[i]; load A[i + 1]; store A[i]
         exp A[7]; store A[7]

List scheduling orders a few unrolled iterations, for all engines and memory. The times at which the
steps of one in the middle start, and the interval from one iteration to the next, give each step a stage and a time in
its round: round ``r`` has the steps of stage ``s`` of iteration ``r - s``. The rounds that have steps of all stages are
the new loop; the first and last ones, the prologue and the epilogue, are unrolled.

A buffer that several stages use has as many copies as iterations use it at once, and iterations take turns with them: a
body of the loop is as many rounds as there are copies. PSUM has too few banks for copies: all steps that use one of its
buffers are in one stage.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.isa.instruction import SourceIteration
from nki_mlir.dialects.op import on_engine
from nki_mlir.machine import Engine
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.iteration_waits import straight_loops
from nki_mlir.targets.neuron.codegen.list_scheduler import list_schedule
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import MEMORY, ListSchedule, Order
from nki_mlir.targets.neuron.codegen.unroll_loops import Unroller

WINDOW = 1_000                  # instructions that are scheduled to find the interval between iterations
LEAST, MOST = 4, 12             # iterations of the window
COPIES = 4                      # most copies of a buffer
# multiples of the interval to try: longer rounds have fewer stages, and need fewer copies
LONGER = 1, 1.5, 2, 3, 5
SWEEPS = 50                     # most passes over the steps, until each follows the steps that it depends on
EARLY = 0.5                     # a load starts this many intervals before its data are needed
LATER = 1e-6                   # ns to the next time in a round


class PipelineLoops(RecordsPass, name="pipeline-loops", reads=Level.NISA):
    memory: int = 100           # percent of on-chip memory that the iterations in flight may fill

    def rewritten(self, code: records.Code) -> None:
        pipeline_loops(code, EngineChoice(code.machine), self.memory)


Dependences = list[list[tuple[int, int]]]  # for each step, the steps that it depends on with the distance in iterations


class LoopWindow(NamedTuple):
    """A few unrolled iterations of a loop: their number, their dependences, and those of one iteration."""

    number: int
    graph: SchedulingGraph
    before: Dependences


Windows = dict[records.Loop, LoopWindow | None]     # windows by loop; None: the loop stays unchanged


def pipeline_loops(code: records.Code, choice: EngineChoice, memory: int = MEMORY, windows: Windows | None = None
                   ) -> int:
    """Pipeline the register loops whose bodies are straight-line code, in place. Return their number. ``windows`` are
    those of an earlier try with other ``memory``; the function adds those that it computes."""
    straight = straight_loops(code)
    order = Order(memory, share=3)
    windows = {} if windows is None else windows
    count = 0
    for block in list(records.blocks(code.body)):
        nodes = []
        for node in block.nodes:
            stages = None
            if node in straight:
                if node not in windows:
                    windows[node] = window_of(node, code, choice)
                stages = stages_of(node, windows[node], code, order)
            if stages is None:
                nodes.append(node)
            else:
                pipelined = PipelinedLoop(node, stages).block()
                nodes += pipelined.nodes
                block.buffers += pipelined.buffers
                count += 1
        block.nodes = nodes
    return count


class Stages:
    """``stage`` of each step of a loop's body, their ``order`` in a round, and their ``engines``.

    ``starts`` are the times of the steps of one iteration, ``interval`` the time from an iteration to the next.
    ``possible``: each step can follow the steps that it depends on (``before``). ``users`` has the steps that use each
    buffer of the body.
    """

    def __init__(self, loop: records.Loop, starts: Sequence[float], interval: float, engines: Sequence[Engine],
                 before: Dependences) -> None:
        self.engines, self.before = engines, before
        self.users: dict[records.DeviceBuffer, list[int]] = {buffer: [] for buffer in loop.body.buffers}
        for k, step in enumerate(loop.body.nodes):
            for buffer in {tile.handle for tile in records.tiles_of(step)} & self.users.keys():
                self.users[buffer].append(k)
        begin = self.begin(starts, interval)
        # the number of the round, and the time in the round
        self.times = [divmod(start - begin, interval) for start in starts]
        self.possible = self.schedule_steps()
        first_round = min(rounds for rounds, _ in self.times)
        self.stage = [int(rounds - first_round) for rounds, _ in self.times]
        self.count = max(self.stage) + 1
        self.order = sorted(range(len(starts)), key=lambda k: (self.times[k][1], -self.stage[k], k))

    def begin(self, starts: Sequence[float], interval: float) -> float:
        """Return the time at which a round begins: with the fewest bytes of PSUM in use, then of SBUF."""
        lives = [(min([starts[k] for k in users]), max([starts[k] for k in users]), buffer)
                 for buffer, users in self.users.items() if users]
        times = np.unique([start % interval for start in starts])
        begins, ends = (np.array([life[k] for life in lives], np.float64) for k in (0, 1))
        rounds = (ends - times[:, None]) // interval - (begins - times[:, None]) // interval
        in_use = [rounds @ np.array([buffer.bytes_per_partition if buffer.space == space else 0
                                     for _, _, buffer in lives], np.float64) for space in (SBUF, PSUM)]
        return float(times[np.lexsort((times, *in_use))[0]])

    def schedule_steps(self) -> bool:
        """Move steps back until each follows all steps that it depends on, and the users of a PSUM buffer have one
        stage. Return False if that does not end."""
        times = self.times
        for _ in range(SWEEPS):
            all_stay = True
            for k, before in enumerate(self.before):
                for other, distance in before:
                    rounds, time = times[other][0] - distance, times[other][1]
                    if (rounds, time) > times[k] or (distance and (rounds, time) == times[k]):
                        times[k] = rounds, time + (LATER if distance else 0.0)
                        all_stay = False
            for buffer, users in self.users.items():
                if buffer.space == PSUM:
                    last_round = max((times[k][0] for k in users), default=0.0)
                    for k in users:
                        if times[k][0] < last_round:
                            times[k] = last_round, 0.0
                            all_stay = False
            if all_stay:
                return True
        return False

    def copies(self) -> int:
        """Return how many copies of a buffer the pipelined loop needs: the number of iterations that use a buffer at
        the same time."""
        return 1 + max((max(self.stage[k] for k in users) - min(self.stage[k] for k in users)
                        for users in self.users.values() if users), default=0)

    def copied_bytes(self) -> int:
        """Return the bytes per partition of all copies, which the new loop keeps from its first round to its last."""
        return self.copies() * sum([buffer.bytes_per_partition for buffer, users in self.users.items()
                                    if len({self.stage[k] for k in users}) > 1])


def window_of(loop: records.Loop, code: records.Code, choice: EngineChoice) -> LoopWindow | None:
    """Return the window of a loop; None for a loop with too few iterations, or with steps and buffers that stay as they
    are."""
    body: list[records.InstructionStep] = loop.body.nodes
    size = len(body)
    number = min(max(WINDOW // size, LEAST), MOST, len(loop.span))
    if number < LEAST or any(is_pinned(step.op) for step in body) or any(
            buffer.fixed or buffer.addresses or buffer.space == HBM for buffer in loop.body.buffers):
        return None
    unroller, unrolled = Unroller({}), records.Block()
    for n in range(number):
        unroller.append(unrolled, loop.body, {loop.variable: records.compute("add", loop.variable, n * loop.span.step)},
                      {})
    if len(unrolled.nodes) != number * size:
        return None
    outside = {tile.handle for step in body for tile in records.tiles_of(step)} - set(loop.body.buffers)
    graph = SchedulingGraph(unrolled.nodes, code.machine, outside, choice)
    last_iteration = (number - 1) * size
    return LoopWindow(number, graph, [[(other % size, number - 1 - other // size)
                                   for other in graph.before[last_iteration + k]] for k in range(size)])


def stages_of(loop: records.Loop, window: LoopWindow | None, code: records.Code, order: Order) -> Stages | None:
    """Return the stages of a loop in an order of its window; None for a loop without window, or with one stage."""
    if window is None:
        return None
    (number, graph, before), size = window, len(loop.body.nodes)
    schedule = list_schedule(graph, order, None)
    middle = number // 2 * size
    interval = interval_of(schedule, middle, size, before)
    if not 0 < interval < inf:
        return None
    most_bytes = code.machine.sbuf_bytes_per_partition * order.memory // 100
    for longer in LONGER:
        stages = Stages(loop, starts_of(schedule, graph, middle, size, longer * interval), longer * interval,
                        schedule.engines[middle:middle + size], before)
        rounds = len(loop.span) - stages.count + 1
        if stages.possible and stages.count < number and rounds >= 2 * stages.copies() and (
                stages.copies() <= COPIES and stages.copied_bytes() <= most_bytes):
            return stages if stages.count > 1 else None
    return None


def interval_of(schedule: ListSchedule, middle: int, size: int, before: Dependences) -> float:
    """Return the time from an iteration of the window to the next, for steps that wait for others of their iteration; 0
    if it is not known."""
    from statistics import median  # start-up: few loops are pipelined
    return median([(schedule.starts[middle + size + k] - schedule.starts[middle - size + k]) / 2 for k in range(size)
                   if schedule.starts and not all(distance for _, distance in before[k])] or [0.0])


def starts_of(schedule: ListSchedule, graph: SchedulingGraph, middle: int, size: int, interval: float) -> list[float]:
    """Return when the steps of the window's middle iteration start. A step that waits for nothing in its iteration,
    such as a load, starts only shortly before its data are needed: otherwise its buffer would have many copies."""
    starts = schedule.starts[middle:middle + size]
    for k in reversed(range(size)):
        users = [starts[user - middle] for user in graph.users[middle + k] if user < middle + size]
        if users and all(other < middle for other in graph.before[middle + k]):
            starts[k] = max(starts[k], min(users) - graph.latency(middle + k) - EARLY * interval)
    return starts


class PipelinedLoop:
    """The code that replaces a loop: prologue, loop, and epilogue. ``number``: rounds of a body of the new loop."""

    def __init__(self, loop: records.Loop, stages: Stages) -> None:
        self.loop, self.stages = loop, stages
        self.number = stages.copies()
        buffer_stages = {buffer: {stages.stage[k] for k in users} for buffer, users in stages.users.items()}
        self.copies = [{buffer: replace(buffer) for buffer, of in buffer_stages.items() if len(of) > 1}
                       for _ in range(self.number)]
        self.local = [[buffer for buffer, of in buffer_stages.items() if of == {stage}]
                      for stage in range(stages.count)]
        self.steps = [step.with_op(on_engine(step.op, engine)) if step.op.runs_on is not engine else step
                      for step, engine in zip(loop.body.nodes, stages.engines)]
        self.unroller = Unroller({})
        self.iterations: dict[tuple[SourceIteration, records.Value], SourceIteration] = {}

    def block(self) -> records.Block:
        span, count, number = self.loop.span, self.stages.count, self.number
        bodies = (len(span) - count + 1) // number
        outer = records.Block(buffers=[buffer for copies in self.copies for buffer in copies.values()])
        for r in range(count - 1):
            self.append(outer, r, lambda n: span[n] if n >= 0 else None)
        firsts = span[:bodies * number:number]
        variable = replace(self.loop.variable, low=min(firsts), high=max(firsts))
        values = [records.compute("add", variable, n * span.step) for n in range(number + count - 1)]
        body = records.Block()
        for r in range(number):
            self.append(body, r + count - 1, values.__getitem__)
        outer.nodes.append(records.Loop(variable, firsts, body, self.loop.location, self.loop.attributes))
        for r in range(bodies * number + count - 1, len(span) + count - 1):
            self.append(outer, r, lambda n: span[n] if n < len(span) else None)
        return outer

    def append(self, block: records.Block, r: int, value_of: Callable[[int], records.Value | None]) -> None:
        """Append round ``r``. ``value_of`` returns the value of the loop's variable in an iteration, None if there is
        none."""
        values = [value_of(r - stage) for stage in range(self.stages.count)]
        buffers = []
        for stage, local in enumerate(self.local):
            fresh = {buffer: replace(buffer) for buffer in local} if values[stage] is not None else {}
            block.buffers += fresh.values()
            buffers.append(self.copies[(r - stage) % self.number] | fresh)
        for k in self.stages.order:
            stage = self.stages.stage[k]
            value = values[stage]
            if value is not None:
                steps = self.unroller.step(self.steps[k], {self.loop.variable: value}, buffers[stage])
                for step in steps:
                    step.iteration = step.iteration and self.iteration(step.iteration, value)
                block.nodes += steps

    def iteration(self, iteration: SourceIteration, value: records.Value) -> SourceIteration:
        """Return an iteration of the loop's body, or of a loop around it, where the loop's variable is the value."""
        moved = self.iterations.get((iteration, value))
        if moved is None:
            moved = copy(iteration)
            if iteration.in_loop and iteration.location == self.loop.location:
                moved.in_loop = not isinstance(value, int)
                number = value.rhs if isinstance(value, records.Computed) else value
                moved.value += number if isinstance(number, int) else 0
            elif iteration.parent is not None:
                moved.parent = self.iteration(iteration.parent, value)
            self.iterations[iteration, value] = moved
        return moved
