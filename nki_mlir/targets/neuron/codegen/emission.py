# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From nisa-level modules to a program: the emission passes on records, without MLIR in between.

Its steps are observed as passes are: their records are written as modules where one looks.

How much overlap pays depends on what waits for what, and on memory, so that no one way to order is best. Each way says
how long its order takes, but for waits until addresses are free. Of those that are good by that, the timed machine
decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf, prod
from typing import TypeVar

from nki_mlir.bindings import Module, cloned, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.module import write_program
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import meetings_of
from nki_mlir.machine import Machine
from nki_mlir.passes.pass_manager import PassObserver
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull, allocate
from nki_mlir.targets.neuron.codegen.assign_engines import assign_engines
from nki_mlir.targets.neuron.codegen.assign_issuers import assign_issuers
from nki_mlir.targets.neuron.codegen.mlir_records import read_code, write_code
from nki_mlir.targets.neuron.codegen.move_psum_results import move_psum_results
from nki_mlir.targets.neuron.codegen.records import Block, Code, Loop, LoopVariable
from nki_mlir.targets.neuron.codegen.schedule_instructions import Order, Runs, Schedules
from nki_mlir.targets.neuron.codegen.sink_constants import sink_constants
from nki_mlir.targets.neuron.codegen.split_blocks import split_blocks
from nki_mlir.targets.neuron.codegen.synchronize_engines import synchronized
from nki_mlir.targets.neuron.codegen.unroll_loops import UNROLL_LIMIT, unrolled, with_grid
from nki_mlir.targets.neuron.timing.machine import EventLimit, TimedMachine

Result = TypeVar("Result")


class Observation:
    """Who is told of steps, and the module that the records were read from; nobody without them."""

    def __init__(self, observer: PassObserver | None = None, module: Module | None = None) -> None:
        self.observer, self.module = observer, module

    def step(self, name: str, code: Code, run: Callable[[], Result]) -> Result:
        """Run a step; what it does not return it has done in place."""
        if self.observer is None:
            return run()
        self.observer.before(name, lambda: self.as_module(code))
        result = run()
        self.observer.after(name, lambda: self.as_module(result if isinstance(result, (Code, Program)) else code))
        return result

    def as_module(self, code: Code | Program) -> Module:
        """Records as a module of their own."""
        assert self.module is not None
        with self.module.context, ir.Location.unknown():
            copy = cloned(self.module)
            if isinstance(code, Program):
                write_program(copy, code)
            else:
                write_code(the_kernel(copy), code)
            return copy


WRITTEN_OUT = 400_000           # instructions: published profiles show static loops written out
FOR_VALUES = 1_000              # instructions: to run one takes a fraction of the time that it takes to make one


@dataclass(frozen=True)
class Emission:
    """Options of the emission."""

    unroll_limit: int = UNROLL_LIMIT
    reorder: bool = True        # take the fastest of several orders; else program order
    issuers: bool = True        # several engines trigger the transfers for which the kernel names none
    observation: Observation = field(default_factory=Observation, repr=False, compare=False)

    @classmethod
    def as_written(cls) -> "Emission":
        """As the vendor's compiler evidently treats a kernel: its own loads, engines and order of loops stay, and loops
        are written out."""
        return cls(unroll_limit=WRITTEN_OUT, issuers=False)

    @classmethod
    def for_values(cls) -> "Emission":
        """Of who asks for values alone: as few instructions as loops allow, in program order, which needs the least
        memory."""
        return cls(unroll_limit=FOR_VALUES, reorder=False)


def emit_for_values(emit: Callable[[Emission], Result]) -> Result:
    """What ``emit`` makes of options for values. Loops of the device hold memory that code without loops gives back:
    where they are an error, that decides what the user hears of it."""
    try:
        return emit(Emission.for_values())
    except NkiMlirError:
        return emit(Emission(reorder=False))


def emit_module(module: Module, options: Emission = Emission()) -> Program:
    """The program of a nisa-level module."""
    return emit_code(with_grid(read_code(the_kernel(module))), options)


def emit_each(module: Module, options: Emission = Emission()) -> list[Program]:
    """The program of a module; where it stands for programs that meet, those of all of them."""
    kernel = the_kernel(module)
    if any(a.kind == "program_id" for a in kernel.arguments):
        return emit_cores({(): module}, kernel.grid, options)
    return [emit_module(module, options)]


def emit_code(code: Code, options: Emission) -> Program:
    step, whole = options.observation.step, code
    code = step("unroll-loops", whole, lambda: unrolled(whole, options.unroll_limit))
    step("split-blocks", code, lambda: split_blocks(code))
    step("sink-constants", code, lambda: sink_constants(code))
    step("move-psum-results", code, lambda: move_psum_results(code))
    if options.reorder:
        schedules = Schedules(code)
        step("assign-engines", code, lambda: assign_engines(schedules))
        if options.issuers:
            step("assign-issuers", code, lambda: assign_issuers(schedules))
        order, program = fastest(schedules)
        if options.observation.observer is None:
            return program
        schedules.arrange(schedules.as_written())
        step("schedule-instructions", code, lambda: schedules.arrange(order))
    step("allocate-on-chip", code, lambda: allocate(code))
    return step("synchronize-engines", code, lambda: synchronized(code))


# -- several modules of one kernel -------------------------------------------------------------------------------------
Variants = dict[tuple[tuple[int, int], ...], "Module"]        # nisa-level module by the (axis, id) pairs that it is for


def emit_variants(variants: Variants, grid: tuple[int, ...], options: Emission = Emission(),
                  points: Sequence[tuple[int, ...]] | None = None) -> Program:
    """The program of a kernel that was captured once for each combination of some program ids.

    It runs the programs of all ``points`` of the grid, of the whole grid without them, in row-major order.
    """
    module, *others = {id(module): module for module in variants.values()}.values()
    first = read_code(the_kernel(module))
    codes = {id(module): first, **{id(other): read_code(the_kernel(other), like=first) for other in others}}
    if not others and points is None:
        return emit_code(with_grid(first), options)
    programs = []
    for point in product(*(range(n) for n in grid)) if points is None else points:
        code = codes[id(module_at(variants, point))]
        programs += body_at(code, point).nodes
    return emit_code(Code(first.name, first.machine, first.globals, Block(programs)), options)


def emit_cores(variants: Variants, grid: tuple[int, ...], options: Emission = Emission(),
               cores: Sequence[int] = ()) -> list[Program]:
    """A program for each core: one, which runs the whole grid, but as many as there are where these meet, and those
    that the launch names. ``cores`` has the core of each program of the grid."""
    points = list(product(*(range(n) for n in grid)))
    if prod(grid) == 1 or not any(meetings_of(the_kernel(m).op) for m in variants.values()):
        named = sorted(set(cores))
        if not 1 < len(named) <= the_machine(variants).launch_cores:
            return [emit_variants(variants, grid, options)]
        return [emit_variants(variants, grid, options, [point for point, core in zip(points, cores) if core == number])
                for number in named]
    made = []
    for point in points:
        code = read_code(the_kernel(module_at(variants, point)))
        body = body_at(code, point)
        made.append(emit_code(Code(code.name, code.machine, code.globals, body), options))
    return made


def the_machine(variants: Variants) -> Machine:
    return read_code(the_kernel(next(iter(variants.values())))).machine


def module_at(variants: Variants, point: tuple[int, ...]) -> Module:
    return next(m for fixed, m in variants.items() if all(point[axis] == n for axis, n in fixed))


def body_at(code: Code, point: tuple[int, ...]) -> Block:
    """A program's body with its ids."""
    body = Block([Loop(LoopVariable("program", 0, 0), range(1), code.body)])
    for variable in code.programs:
        assert variable.axis is not None
        body = Block([Loop(variable, range(point[variable.axis], point[variable.axis] + 1), body)])
    return body


# -- the fastest of several orders -------------------------------------------------------------------------------------
ORDERS = tuple(Order(memory, early, ahead) for memory, early, ahead in (
    (95, True, 0), (95, True, 100), (95, True, 200), (85, False, 0), (85, False, 100), (75, True, 0), (60, True, 0),
    (60, True, 100), (30, True, 0)))
GOOD = 1.10                     # an order may be worse than the best by so much to be timed
TIMED = 2, 6                    # orders: at least, at most; between these as many as have TIMED_STEPS in all
TIMED_STEPS, HUGE = 8_000, 30_000       # of more steps the first order that fits is taken
SMALL = 4_000                   # steps of code whose program order is timed, too; every way to pack it is tried
EXECUTED = 500_000              # instructions of a program that is timed to choose its order
FULL = "on-chip memory is nearly full: instructions stay in program order"


def fastest(schedules: Schedules) -> tuple[Runs, Program]:
    """The fastest order, and its program. Raises ``MemoryFull`` where not even program order finds addresses."""
    code, written = schedules.code, schedules.as_written()
    programs: list[tuple[Runs, Program]] = []
    tried: set[Runs] = set()
    best = 0.0
    steps = sum(map(len, written))
    most = 1 if steps > HUGE else min(max(TIMED_STEPS // max(steps, 1), TIMED[0]), TIMED[1])
    for runs, ns in sorted((schedules.found(order) for order in ORDERS), key=lambda found: found.ns):
        if programs and (ns > best * GOOD or len(programs) == most):
            break
        if runs not in tried and fits(schedules, runs, steps < SMALL):
            programs.append((runs, synchronized(code)))
            best = best or ns
        tried.add(runs)
    if not programs:
        schedules.arrange(written)
        allocate(code)
        code.notes.append(FULL)
        return written, synchronized(code)
    if steps < SMALL and written not in tried and fits(schedules, written, thorough=True):
        programs.append((written, synchronized(code)))
    return min(programs, key=lambda one: end_of(one[1])) if len(programs) > 1 else programs[0]


def fits(schedules: Schedules, runs: Runs, thorough: bool) -> bool:
    """Whether an order finds addresses, which the code then has; ``thorough``: in any way to pack it."""
    schedules.arrange(runs)
    try:
        allocate(schedules.code, thorough=thorough)
    except MemoryFull:
        return False
    return True


def end_of(program: Program) -> float:
    """When a program ends, for which meetings with other cores take no time. Of one that runs for very long this is not
    known."""
    run = TimedMachine([program], limit=EXECUTED)
    try:
        run.run()
    except EventLimit:
        return inf
    return run.end
