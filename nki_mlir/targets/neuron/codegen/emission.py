# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From nisa-level modules to a program: the emission passes on records, without MLIR in between.

An observer sees its steps like passes, with the records written as modules. ``fastest`` times several candidates
and chooses order, engines and addresses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import NamedTuple, TypeVar

from nki_mlir.bindings import Module, cloned, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.passes.pass_manager import PassObserver
from nki_mlir.targets.neuron.codegen.allocate_on_chip import AddressConflict, MemoryFull
from nki_mlir.targets.neuron.codegen.block_loops import block_loops
from nki_mlir.targets.neuron.codegen.candidate_code import expanded, with_instructions
from nki_mlir.targets.neuron.codegen.candidate_programs import NEAR, Prepared, take_addresses
from nki_mlir.targets.neuron.codegen.coalesce_copies import coalesce_copies
from nki_mlir.targets.neuron.codegen.code_writer import write_code
from nki_mlir.targets.neuron.codegen.count_loops import count_loops
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.fastest import STRAIGHT, Fastest, TimedCandidates, fastest
from nki_mlir.targets.neuron.codegen.fill_partitions import fill_partitions
from nki_mlir.targets.neuron.codegen.fold_addresses import fold_addresses
from nki_mlir.targets.neuron.codegen.fold_conversions import fold_conversions
from nki_mlir.targets.neuron.codegen.forward_transfers import forward_transfers
from nki_mlir.targets.neuron.codegen.fuse_instructions import fuse_instructions
from nki_mlir.targets.neuron.codegen.interleave_rows import interleave_rows
from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.codegen.order_instructions import has_order, order_instructions
from nki_mlir.targets.neuron.codegen.program_order import in_program_order_where_it_fits
from nki_mlir.targets.neuron.codegen.records import Block, Code, Loop, LoopVariable, While, copied, nodes_in
from nki_mlir.targets.neuron.codegen.schedule_instructions import Arrangement
from nki_mlir.targets.neuron.codegen.search_options import Candidate, SearchOptions
from nki_mlir.targets.neuron.codegen.short_loops import Improved, fastest_in_loops, in_loops
from nki_mlir.targets.neuron.codegen.sink_constants import sink_constants
from nki_mlir.targets.neuron.codegen.static_indices import static_indices
from nki_mlir.targets.neuron.codegen.synchronize_engines import synchronized
from nki_mlir.targets.neuron.codegen.transpose_loads import transpose_loads
from nki_mlir.targets.neuron.codegen.unread_results import unread_results
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY, UNROLL_LIMIT, with_grid, written_out

Result = TypeVar("Result")


class Observation:
    """The observer of steps, and the module that the records were read from; both may be None."""

    def __init__(self, observer: PassObserver | None = None, module: Module | None = None) -> None:
        self.observer, self.module = observer, module

    def step(self, name: str, code: Code, run: Callable[[], Result]) -> Result:
        """Run a step, which returns new code or changes the code in place."""
        if self.observer is None:
            return run()
        self.observer.before(name, lambda: self.as_module(code))
        result = run()
        self.observer.after(name, lambda: self.as_module(result if isinstance(result, (Code, Program)) else code))
        return result

    def as_module(self, code: Code | Program) -> Module:
        """Return the records as a separate module."""
        from nki_mlir.dialects.isa.module import write_program  # start-up: only observers of passes need it
        assert self.module is not None
        with self.module.context, ir.Location.unknown():
            copy = cloned(self.module)
            if isinstance(code, Program):
                write_program(copy, code)
            else:
                write_code(the_kernel(copy), code)
            return copy


WRITTEN_OUT = 400_000           # most instructions; published profiles show that static loops are unrolled
LEVELS = 1, 3                   # levels of searches
# most instructions of a kernel that is also timed as written, by level: compiling it takes about as long as the search
LONGEST_WRITTEN = {1: 2_000, 3: STRAIGHT[3]}
FOR_VALUES = 1_000              # most instructions: running one takes a fraction of the time to compile one
OPTIMIZATIONS = ("roll", "unread", "fuse", "coalesce", "transposes", "indices", "addresses", "conversions", "forward",
                 "fill", "interleave", "block", "reorder", "engines", "issuers", "loads", "evict", "overlap",
                 "pipeline", "overwrite", "by_results", "merge", "merge_loads", "transpose_tiles", "group_transposes",
                 "split_columns")


@dataclass(frozen=True)
class Emission(SearchOptions):
    """Options of the emission: the search's options, and the following."""

    roll: bool = True           # turn long code without loops into loops if nothing can be much faster
    unread: bool = True         # drop instructions whose results nothing needs
    fuse: bool = True           # fuse two instructions into one where the values stay equal
    coalesce: bool = True       # copy tiles that lie side by side with one instruction
    transposes: bool = True     # let the DMA engines transpose loads if the target can
    indices: bool = True        # let transfers step through tables whose indices an iota counts
    addresses: bool = True      # fold additions to a run-time index into the address of a copy
    conversions: bool = True    # let transposes by DMA convert
    forward: bool = True        # let engines reverse tiles, instead of transfers that step backwards
    fill: bool = True           # let iterations of loops over rows take a row for each partition
    interleave: bool = True     # move neighboring rows of several iterations by one transfer, with longer runs
    block: bool = True          # keep on chip what nested loops load again, for blocks of iterations
    one_core: bool = True       # let one core run programs that reduce over each other, if the launch names no cores
    reorder: bool = True        # take the fastest of several orders; else program order
    engines: bool = True        # let instructions for which the kernel names no engine run on any that has them
    issuers: bool = True  # let any engine that can trigger transfers trigger those for which the kernel names none
    vendor: bool = False        # choose engines as the vendor's compiler evidently does
    static: bool = False        # write all descriptors of transfers statically, as the option --disable-dge says
    kernel_as_written: bool = True  # time the kernel as written, too, if its code is short
    observation: Observation = field(default_factory=Observation, repr=False, compare=False)

    def choice(self, code: Code) -> EngineChoice:
        """Return the choice of engines for a code."""
        return EngineChoice(code.machine, self.engines and self.level > 0, self.issuers and self.level > 0, self.vendor)

    def with_kernel_as_written(self) -> "Emission":
        """Return the options of ``as_written`` without the choices that these options turn off."""
        return replace(Emission.as_written(self.level, self.static), engines=self.engines, issuers=self.issuers,
                       spill=self.spill, serial=self.serial)

    @classmethod
    def as_written(cls, level: int = 1, static: bool = False) -> "Emission":
        """Return options by which a kernel is compiled as the vendor's compiler evidently does: its loads, engines and
        order of loops stay, and loops are unrolled."""
        return cls(unroll_limit=WRITTEN_OUT, roll=False, unread=False, fuse=False, coalesce=False, transposes=False,
                   indices=False, addresses=False, conversions=False, forward=False, fill=False, interleave=False,
                   block=False, loads=False, evict=False, overwrite=False, by_results=False, merge=False,
                   merge_loads=False, transpose_tiles=False, group_transposes=False, split_columns=False,
                   kernel_as_written=False,
                   vendor=True, static=static, level=level)

    @classmethod
    def in_program_order(cls) -> "Emission":
        """Return options for program order, unrolled, with each instruction on its first engine: the baseline of
        optimizations."""
        return cls(unroll_limit=UNROLL_LIMIT, roll=False, unread=False, fuse=False, coalesce=False, transposes=False,
                   indices=False, addresses=False, conversions=False, forward=False, fill=False, interleave=False,
                   block=False, reorder=False, engines=False, issuers=False, loads=False, evict=False, overlap=False,
                   pipeline=False, overwrite=False, by_results=False, merge=False, merge_loads=False,
                   transpose_tiles=False, group_transposes=False, split_columns=False,
                   kernel_as_written=False)

    @classmethod
    def of_loops(cls) -> "Emission":
        """Return options that keep loops as loops of the device."""
        return cls(unroll_limit=FOR_VALUES)

    @classmethod
    def for_values(cls) -> "Emission":
        """Return options for callers that need only values: the fewest instructions that loops allow, in program order,
        which needs the least memory."""
        return cls(unroll_limit=FOR_VALUES, fuse=False, coalesce=False, transposes=False, fill=False, interleave=False,
                   block=False, reorder=False, loads=False)


def emit_for_values(emit: Callable[[Emission], Result]) -> Result:
    """Emit with the options for values. A loop of the device holds memory that code without loops releases: if the loop
    does not fit, the code is emitted without loops. If that does not fit into memory either, it is optimized, since
    fewer loads and other orders may need less; any error is the error of the code without loops."""
    try:
        return emit(Emission.for_values())
    except NkiMlirError:
        pass
    try:
        return emit(Emission(fuse=False, coalesce=False, transposes=False, fill=False, interleave=False, block=False,
                             reorder=False, loads=False))
    except MemoryFull as error:
        failed = error
    try:
        return emit(Emission())
    except NkiMlirError:
        raise failed from None


def emit_module(module: Module, options: Emission = Emission()) -> Program:
    """Return the program of a nisa-level module."""
    return emit_code(with_grid(read_code(the_kernel(module))), options)


def emit_each(module: Module, options: Emission) -> list[Program]:
    """Return the program of a module; if the module stands for programs that exchange data, return all of these."""
    return emit_lowered(LoweredKernel(module, is_lowered=True), options)


def emit_lowered(lowered: LoweredKernel, options: Emission = Emission()) -> list[Program]:
    """Return the program of a kernel; if the kernel stands for programs that exchange data, return all of these."""
    if any(a.kind == "program_id" for a in lowered.kernel.arguments):
        return emit_cores({(): lowered}, lowered.kernel.grid, options)
    return [emit_code(with_grid(lowered.code()), options)]


def emit_code(code: Code, options: Emission) -> Program:
    """Return the program of a kernel's records."""
    if options.static:
        code = replace(code, machine=code.machine.with_static_descriptors)
    if any(isinstance(node, While) for node in nodes_in(code.body)):
        code = replace(code, body=copied(code.body))
        options.observation.step("count-loops", code, lambda: count_loops(code))
    if has_order(code):
        code = replace(code, body=copied(code.body))
        options.observation.step("order-instructions", code, lambda: order_instructions(code))
    reorder = options.reorder and options.level > 0
    observation = options.observation
    if reorder:
        try:
            looped, best, chosen = searched(code, replace(options, observation=Observation()))
        except AddressConflict:     # only the kernel's order has the addresses that it chose
            reorder = False
    if reorder:
        if observation.observer is None:
            return best.program
        if looped is not None:
            observation.step("roll-instructions", code, lambda: looped)
        improved_code = improved(looped or code, replace(chosen, observation=observation)).code
        return observed(improved_code, best.candidate, best.arrangement, chosen.choice(code), observation)
    code = improved(code, options).code
    candidate = Candidate(options.unroll_limit or UNROLL_LIMIT, BODY, options.loads and options.level > 0)
    candidate, program = in_program_order_where_it_fits(code, candidate, options.choice(code), options.spill)
    return program if observation.observer is None else observed(
        code, candidate, None, options.choice(code), observation)


class Searched(NamedTuple):
    """The fastest program of a search, the code in loops before it, if the program has its instructions that repeat in
    loops, and the options by which it is compiled."""

    looped: Code | None
    best: Fastest
    options: Emission


def searched(code: Code, options: Emission) -> Searched:
    """Return the fastest program of the searches of all levels up to that of the options: a longer search judges orders
    by other estimates, and may miss the program of a shorter one. The kernel as written is a candidate, too.

    Raise ``AddressConflict`` if no order but the kernel's has its addresses.
    """
    looped = in_loops(code) if options.roll and options.unroll_limit is None else None
    results = [result for level in LEVELS if level <= options.level
               for result in searched_at_level(code, looped, replace(options, level=level))]
    result = min(results, key=lambda result: result.best.ns)
    return searched_as_written(code, options, result.best) or result


def searched_at_level(code: Code, looped: Code | None, options: Emission) -> list[Searched]:
    """Return the same for one level: the fastest program with loops, if there is one, and that of the other code,
    unless the search ends with the first."""
    results: list[Searched] = []
    if looped is not None:
        with_loops, ends = fastest_in_loops(improved(looped, options), options.choice(code), options)
        if with_loops is not None:
            results.append(Searched(looped, with_loops, options))
            if ends:
                return results
    return [Searched(None, fastest(improved(code, options).code, options.choice(code), options), options), *results]


def searched_as_written(code: Code, options: Emission, best: Fastest) -> Searched | None:
    """Return the fastest program of the kernel as written if it takes less time than the best one; None also if its
    bound or its chains of dependences exclude that, or if the code is too long for a search of several codes."""
    # the vendor's compiler transposes some loads, too
    if not (options.kernel_as_written and options.transposes) or options.unroll_limit is not None or (
            written_out(code.body) > LONGEST_WRITTEN[options.level]):
        return None
    written = options.with_kernel_as_written()
    rolled, choice = improved(code, written).code, written.choice(code)
    search, candidate = TimedCandidates(rolled, choice, written), Candidate(WRITTEN_OUT, BODY)
    search.timed.append((best.ns, best))        # orders that take longer are neither completed nor timed
    try:
        prepared = search.postponed[candidate] = search.prepared(candidate)
        schedules = prepared.schedules
        if any(least() * NEAR[options.level] >= best.ns for least in (schedules.bound, schedules.critical_path)):
            return None             # the bound, which takes less time to compute, usually decides
        fastest_written = fastest(rolled, choice, written, search)
    except NkiMlirError:
        return None
    return Searched(None, fastest_written, written) if fastest_written.ns < best.ns else None


def improved(code: Code, options: Emission) -> Improved:
    """Return the code with fewer or cheaper instructions, with the number of loops with joined iterations and of nests
    in blocks."""
    joined = blocked = 0
    if options.level > 0 and any((options.unread, options.indices, options.addresses, options.conversions,
                                  options.forward, options.fuse, options.coalesce, options.transposes, options.fill,
                                  options.interleave, options.block, options.vendor)):
        code = replace(code, body=copied(code.body))
        if options.unread:
            options.observation.step("unread-results", code, lambda: unread_results(code))
        if options.indices:
            options.observation.step("static-indices", code, lambda: static_indices(code))
        if options.addresses:
            options.observation.step("fold-addresses", code, lambda: fold_addresses(code))
        if options.conversions:
            options.observation.step("fold-conversions", code, lambda: fold_conversions(code))
        if options.forward:
            options.observation.step("forward-transfers", code, lambda: forward_transfers(code))
        if options.coalesce:        # an overwritten constant would prevent merging its tile
            options.observation.step("sink-constants", code, lambda: sink_constants(code, move=False))
        if options.fuse:
            options.observation.step("fuse-instructions", code, lambda: fuse_instructions(code))
        if options.coalesce:
            options.observation.step("coalesce-copies", code, lambda: coalesce_copies(code))
            code.coalesced = True
        if options.transposes or options.vendor:
            options.observation.step("transpose-loads", code,
                                     lambda: transpose_loads(code, stated=not options.transposes))
        if options.fill:
            joined = options.observation.step("fill-partitions", code, lambda: fill_partitions(code))
        if options.interleave:
            joined += options.observation.step("interleave-rows", code, lambda: interleave_rows(code))
        if options.block:
            blocked = options.observation.step("block-loops", code, lambda: block_loops(code))
    return Improved(code, joined, blocked)


def observed(code: Code, candidate: Candidate, arrangement: Arrangement | None, choice: EngineChoice,
             observation: Observation) -> Program:
    """Emit the same program once more, step by step for the observer."""
    step = observation.step
    instructions = with_instructions(expanded(code, candidate, step), candidate, step)
    prepared = Prepared(instructions, candidate, choice, step)
    code, schedules = prepared.code, prepared.schedules
    chosen = arrangement or schedules.as_written()
    schedules.arrange(schedules.as_written())
    if arrangement is not None:
        step("schedule-instructions", code, lambda: schedules.arrange(arrangement._replace(addresses=None)))
    step("allocate-on-chip", code, lambda: take_addresses(schedules, chosen))
    return step("synchronize-engines", code,
                lambda: synchronized(code, schedules.dependences(chosen), candidate.overlap))


# -- several modules of one kernel -------------------------------------------------------------------------------------
Variants = dict[tuple[tuple[int, int], ...], LoweredKernel]     # variants by the (axis, id) pairs that they are for


def emit_variants(variants: Variants, grid: tuple[int, ...], options: Emission = Emission(),
                  points: Sequence[tuple[int, ...]] | None = None) -> Program:
    """Return the program of a kernel that was captured once for each combination of some program ids.

    It runs the programs of all ``points`` (by default the complete grid) in row-major order.
    """
    lowered, *other_modules = dict.fromkeys(variants.values())
    first_code = lowered.code()
    codes = {lowered: first_code, **{other: other.code(like=first_code) for other in other_modules}}
    if not other_modules and points is None:
        return emit_code(with_grid(first_code), options)
    programs = []
    for point in product(*(range(n) for n in grid)) if points is None else points:
        code = codes[variant_at(variants, point)]
        programs += body_at(code, point).nodes
    return emit_code(Code(first_code.name, first_code.machine, first_code.globals, Block(programs)), options)


def emit_cores(variants: Variants, grid: tuple[int, ...], options: Emission = Emission(),
               cores: Sequence[int] = ()) -> list[Program]:
    """Return a program for each core: usually one, which runs the complete grid; one for each core that the launch
    names; one for each point if programs exchange data and ``loop-over-programs`` cannot let one core run them.
    ``cores`` has the core of each program of the grid."""
    points = list(product(*(range(n) for n in grid)))
    if prod(grid) == 1 or not any(variant.exchanges_data for variant in variants.values()):
        named = sorted(set(cores))
        if not 1 < len(named) <= next(iter(variants.values())).machine.launch_cores:
            return [emit_variants(variants, grid, options)]
        return [emit_variants(variants, grid, options, [point for point, core in zip(points, cores) if core == number])
                for number in named]
    if options.one_core and len(variants) == 1 and not cores:
        lowered, = variants.values()
        observer = options.observation.observer
        if (looped := lowered.on_one_core(observer)) is not None:
            return emit_lowered(looped, replace(options, observation=Observation(observer, looped.module)))
    return [emit_program(variant_at(variants, point), point, options) for point in points]


def emit_program(lowered: LoweredKernel, point: tuple[int, ...], options: Emission) -> Program:
    """Return the program at a point of the grid, which runs alone on a core."""
    code = lowered.code()
    return emit_code(Code(code.name, code.machine, code.globals, body_at(code, point)), options)


def variant_at(variants: Variants, point: tuple[int, ...]) -> LoweredKernel:
    return next(m for fixed, m in variants.items() if all(point[axis] == n for axis, n in fixed))


def body_at(code: Code, point: tuple[int, ...]) -> Block:
    """Return a program's body with its ids."""
    body = Block([Loop(LoopVariable("program", 0, 0), range(1), code.body)])
    for variable in code.programs:
        assert variable.axis is not None
        body = Block([Loop(variable, range(point[variable.axis], point[variable.axis] + 1), body)])
    return body
