# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Execute programs on modeled memories: the effect of each instruction, in every order that the semaphores allow.

An engine executes the instructions of its stream in order. A DMA instruction appends a transfer to a queue and is
complete; the queue moves the data of its transfers at any later time and in any order. Each of the 16 DMA engines
reports its part separately, in the order of the queue: a semaphore of value 16 k does not prove that k transfers
are done. Only semaphores order engines and queues: a scheduler chooses which of those that are ready executes next,
so a missing semaphore shows as a wrong value under some seed. SBUF, PSUM and internal HBM start as 0xFF bytes,
which are NaN in every float type.
"""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np

from nki_mlir.alone import uncollected
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.progress import Advance, phase
from nki_mlir.targets.mesh import Exchanges, no_meeting
from nki_mlir.targets.neuron.deadlock import deadlock
from nki_mlir.targets.neuron.execution import Executors
from nki_mlir.targets.neuron.order import EngineStep, OrderDoesNotFit, Step, step_text
from nki_mlir.targets.neuron.simulated_core import Agent, Core
from nki_mlir.targets.small_products import on_one_thread


class StepLimit(NkiMlirError):
    code = "NKI-STEP-LIMIT"
    message = "the program has not ended after {steps} instructions"
    fix = "check the conditions of the branches, or give the simulator a larger limit"


# -- schedulers --------------------------------------------------------------------------------------------------------
def in_turn(cores: Sequence[Core], step_limit: int) -> None:
    """Run in plain order: in each round, every ready engine takes a step, then every queue moves its oldest
    transfer."""
    running = [core for core in cores if not core.ended]
    with phase("simulation", unit="instructions") as advance:
        take_turns(cores, running, step_limit, advance)


def take_turns(cores: Sequence[Core], running: list[Core], step_limit: int, advance: Advance) -> None:
    while running:
        before = sum(core.executed for core in running)
        # a list, so that every core takes its turn, although one has advanced
        if not any([core.execute_ready_steps() for core in running]):
            raise deadlock_error(cores)
        if any(core.executed > step_limit for core in running):
            raise StepLimit(steps=step_limit)
        advance(sum(core.executed for core in running) - before)
        running = [core for core in running if not core.ended]


@on_one_thread()
def replay(cores: Sequence[Core], order: Sequence[Step]) -> None:
    """Execute these steps. Raise ``OrderDoesNotFit`` at the first that is not possible."""
    triggered: Counter[tuple[int, int]] = Counter()
    for number, step in enumerate(order, 1):
        core = cores[step.core]
        if isinstance(step, EngineStep):
            reason = core.blocking_reason(step)
            if not reason:
                queue = core.streams[step.engine][step.number].queue
                core.step(step.engine)
                if queue is not None:
                    triggered[step.core, queue] += 1
        else:
            entries = core.queues[step.queue]
            index = step.number - (triggered[step.core, step.queue] - len(entries))
            reason = ""
            if step.reports and core.unreported(step.queue, step.number) is not None:
                core.report(step.queue, step.number)
            elif not step.reports and 0 <= index < len(entries) and not entries[index].moved:
                core.transfer_data(entries[index])
            else:
                reason = "no such transfer is under way"
        if reason:
            raise OrderDoesNotFit(number=number, step=step_text(step, len(cores)), reason=reason)


class Adversary:
    """A scheduler that lets some engines and queues run far ahead of others: random priorities that change
    occasionally."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.priorities: dict[Agent, float] = {}
        self.change = self.random.choice((0.0, 0.01, 0.1, 1.0))

    def choose(self, agents: list[Agent]) -> Agent:
        if self.random.random() < self.change:
            self.priorities.clear()
        for agent in agents:
            if agent not in self.priorities:
                self.priorities[agent] = self.random.random()
        return max(agents, key=self.priorities.__getitem__)

    def transfer(self, core: Core, queue: int) -> None:
        """Move the data of a random transfer, or let random DMA engines report their parts."""
        movable, reporting = core.movable(queue), core.reporting(queue)
        if movable and (not reporting or self.random.random() < 0.3):
            core.transfer_data(self.random.choice(movable))
            return
        for engine in self.random.sample(reporting, self.random.choice((1, len(reporting) - 1 or 1, len(reporting)))):
            core.report(queue, engine)


def simulate(program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], seed: int | None = None,
             step_limit: int = 100_000_000) -> Core:
    """Run a program to its end. Updated inputs and all outputs are written in place.

    With ``seed`` None, the order is plain; with a number, it is adversarial.
    """
    return simulate_cores([program], inputs, outputs, seed, step_limit)[0]


def simulate_cores(programs: Sequence[Program], inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray],
                   seed: int | None = None, step_limit: int = 100_000_000,
                   executors: Sequence[Executors | None] | None = None, order: Sequence[Step] = ()) -> list[Core]:
    """Run a program on each core. All cores share inputs and outputs, which are in HBM.

    ``executors`` has those of an earlier run of each program; ``order`` has the first steps, as in a witness.
    """
    exchanges = Exchanges() if len(programs) > 1 else None
    compiled = executors or [None] * len(programs)
    cores = [Core(p, inputs, outputs, number, exchanges, compiled[number]) for number, p in enumerate(programs)]
    if order:
        replay(cores, order)
    run(cores, seed, step_limit)
    return cores


@on_one_thread()
@uncollected()                      # objects of the programs stay alive, and steps create no cycles
def run(cores: Sequence[Core], seed: int | None = None, step_limit: int = 100_000_000) -> None:
    """Run all cores to their end."""
    if seed is None:
        in_turn(cores, step_limit)
    else:
        at_random(cores, Adversary(seed), step_limit)


def at_random(cores: Sequence[Core], scheduler: Adversary, step_limit: int) -> None:
    running = [core for core in cores if not core.ended]
    while running:
        agents = [agent for core in running for agent in core.agents()]
        if not agents:
            raise deadlock_error(cores)
        chosen = scheduler.choose(agents)
        core, agent = cores[chosen[0]], chosen[1]
        if isinstance(agent, int):
            scheduler.transfer(core, agent)
        else:
            core.step(agent)
        if core.executed > step_limit:
            raise StepLimit(steps=step_limit)
        if core.ended:
            running.remove(core)


def deadlock_error(cores: Sequence[Core]) -> NkiMlirError:
    """Return the error of cores of which none is ready."""
    absent = [waits for core in cores for waits in core.absent()]
    if not absent:
        return deadlock([w for core in cores for w in core.waiters()], [core.program for core in cores])
    return no_meeting(PROGRAMS, ["has ended" if core.ended else core.waiting() for core in cores], absent[0][1])
