# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the fastest of several programs: unrolled code in different orders, program order, loops of the device.

The best amount of overlap depends on dependences and on memory, so that no single heuristic is best. Each heuristic
estimates the time of its order; among those with good estimates the timed machine decides, on real streams. Program
order is a candidate, too, so the result is never slower.

Code of more than ``STRAIGHT`` instructions stays a loop of the device, with bodies of several sizes as candidates: the
time to compile then does not grow with trip counts. The search then times program order on windows of few iterations
and of twice as many; the difference is the time of the steady state. It unrolls program order if that is faster.

Unless the code is short, the first candidate has short bodies: if these are at the bound, the search tries nothing
else. If short bodies or pipelined loops are merely close to the bound, it also times bodies of ``BODY`` instructions.
It times the best order of each candidate with loops twice: with engines that meet after each iteration, and with
iterations that overlap, which takes more signals. For code that stays a loop, the search tries pipelined loops before
longer bodies, unless short bodies load data repeatedly.

A candidate's first order tells roughly how long it takes. If a variant of the candidate needs less memory and may
therefore take much less time, the search times the variant first, and the candidate needs no program.
"""

from collections.abc import Callable
from math import inf
from operator import itemgetter
from typing import NamedTuple

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull
from nki_mlir.targets.neuron.codegen.candidate_code import SharedCode
from nki_mlir.targets.neuron.codegen.candidate_programs import (
    CLOSE,
    CLOSEST,
    FEW,
    FREE_BANKS,
    HOPELESS,
    NEAR,
    NEARLY,
    SHORT,
    Prepared,
)
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.iteration_waits import straight_loops
from nki_mlir.targets.neuron.codegen.merge_instructions import ENGINES as MERGED_ENGINES
from nki_mlir.targets.neuron.codegen.program_order import (
    SPILLED,
    end_of,
    faster_in_program_order,
    in_program_order_where_it_fits,
    instructions_of,
    spilling,
)
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.codegen.schedule_instructions import Arrangement
from nki_mlir.targets.neuron.codegen.scheduling_graph import TRIGGERS
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.codegen.search_options import Candidate, SearchOptions
from nki_mlir.targets.neuron.codegen.split_columns import loading_ns
from nki_mlir.targets.neuron.codegen.transpose_tiles import has_transposes
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY, UNROLL_LIMIT, loops_to_keep, written_out

STRAIGHT = {1: 12_000, 3: UNROLL_LIMIT}         # most instructions of unrolled code, by level
THRASHES = 1.5          # code takes this multiple of the bound without spills if tiles spill repeatedly
ROUNDS = 1.08           # no longer bodies are tried if pipelined loops are within this factor of their bound
WAITS = 1.1             # code beyond this multiple of its bound may wait for banks, or be faster in other loops
BODIES = BODY, 4 * BODY         # instructions of the loop bodies that are candidates
MERGED = 1.02           # merged instructions are timed if balanced engines are busy for less time by this factor
COMPUTING = Engine.TENSOR, *MERGED_ENGINES, TRIGGERS    # they may wait for loads, and transpose tiles or copy these
PIECES = 2, 4, 8                # numbers of pieces into which large tiles are split by columns
LOADED = 0.25                   # part of the time beyond the bound that loads must take to be split in long code
SHARES = range(0, 101, 5)       # percentages of the transposes that the DMA engines may get
PIPELINED = 500                 # most instructions of an iteration of a pipelined loop
IN_FLIGHT = 100, 70             # percentages of SBUF that the iterations in flight of a pipelined loop may fill
LONGER = Candidate(BODY, BODY)  # timed if short bodies or rounds take more than ``CLOSEST`` times their bound
IN_ROUNDS = Order(share=0, passed=1, issue=False), Order(passed=2)      # orders that are nearly the order of the rounds


class Fastest(NamedTuple):
    candidate: Candidate
    arrangement: Arrangement
    program: Program
    ns: float


class TimedCandidates:
    """The timed programs, each with its time."""

    def __init__(self, code: Code, choice: EngineChoice, options: SearchOptions) -> None:
        self.code, self.choice, self.options = code, choice, options
        self.timed: list[tuple[float, Fastest]] = []
        self.shared = SharedCode(code, choice.dependences)
        self.least_in_order = 0.0                              # the least ns of program order
        self.crowded: dict[Candidate, float] = {}       # candidates whose products may wait for banks, with their bound
        self.postponed: dict[Candidate, Prepared] = {}  # code of candidates that are timed later
        self.unpipelined: dict[Candidate, Prepared] = {}  # code of candidates of which no loop could be pipelined
        self.variants: dict[Candidate, Candidate] = {}  # by a variant, the candidate that it is timed before
        self.tried: set[Candidate] = set()
        self.unmerged: dict[Candidate, float] = {}      # by a variant with merged instructions, the bound without these
        self.untransposed: dict[Candidate, float] = {}  # the bounds of candidates without transposes by the DMA engines
        self.longer: Candidate | None = None    # a candidate to time although others end the search above their bound
        self.serial: set[Candidate] = set()     # their program order takes as long as its chains of dependences
        self.unspilled = inf                            # the least bound of code whose tiles do not fit

    def least_time(self) -> float:
        return min((ns for ns, _ in self.timed), default=inf)

    def least_time_of(self, candidate: Candidate) -> float:
        return min((ns for ns, result in self.timed if result.candidate == candidate), default=inf)

    def candidates(self) -> set[Candidate]:
        return {result.candidate._replace(loads=True) for _, result in self.timed}

    def best(self) -> tuple[float, Fastest]:
        """Return the fastest program with its time; of several, one with the fewest instructions."""
        return min(self.timed, key=lambda entry: (
            entry[0], instructions_of(entry[1].program), entry[1].candidate in self.variants))

    def prepared(self, candidate: Candidate) -> Prepared:
        """Return the code of a candidate; candidates that unroll the same loops share it."""
        if candidate in self.postponed:
            return self.postponed.pop(candidate)
        if candidate.pipelined and (unchanged := self.unpipelined.pop(candidate._replace(pipelined=0), None)):
            unchanged.pipeline(candidate.pipelined)
            return unchanged
        return Prepared(self.shared.instructions(candidate), candidate, self.choice)

    def is_near(self, candidate: Candidate) -> bool:
        """Return whether the first order of a candidate takes about as long as its bound."""
        try:
            prepared = self.prepared(candidate)
        except NkiMlirError:
            return True
        return prepared.first(self.options.level) <= prepared.schedules.bound() * WAITS

    def least_time_again(self, candidate: Candidate) -> float:
        """Return the least ns of a candidate's loops if they load data repeatedly, else 0. Keep its code."""
        try:
            prepared = self.prepared(candidate)
        except NkiMlirError:
            return 0.0
        self.postponed[candidate] = prepared
        return prepared.schedules.bound() if prepared.loads_again() else 0.0

    def is_serial(self, candidate: Candidate, prepared: Prepared) -> bool:
        """Return whether program order takes hardly longer than the critical path, so that no order is much faster."""
        if not self.options.serial:
            return False
        if candidate not in self.serial and (program := prepared.serial_program(self.options.level)) is not None:
            ns = self.time_and_record(candidate, prepared.schedules.as_written(), program)
            if ns <= prepared.schedules.critical_path() * CLOSEST:
                self.serial.add(candidate)
        return candidate in self.serial

    def before(self, candidate: Candidate, prepared: Prepared) -> list[Candidate]:
        """Return the variants to time before a candidate, if its first order takes long, and keep its code. A
        variant keeps all loads of the kernel if these take less time; fewer results in PSUM if products may wait for
        banks; results written over operands, or computed one after the other, if SBUF has no room for two iterations;
        more tiles on chip if spills take long; merged instructions or loads; or transposes by the DMA engines, or in
        groups."""
        if candidate.memory == SPILLED[0] and candidate not in self.variants.values() and (
                prepared.schedules.bound() > self.unspilled * THRASHES):
            fuller = [candidate._replace(memory=memory) for memory in SPILLED[1:]]
            self.variants |= dict.fromkeys(fuller, candidate)
            self.postponed[candidate] = prepared
            return fuller
        if candidate.pipelined or candidate.memory:
            return []
        if merging := self.merging(candidate, prepared):
            return merging
        if self.variant_is_faster(candidate):
            return []
        if transposing := self.transposing(candidate, prepared):
            return transposing
        variants, level = list[Candidate](), self.options.level
        ns = prepared.first(level)
        least_time = self.least_time()
        hopeless = ns > least_time * HOPELESS
        if candidate.results == 100 and prepared.schedules.bound() < min(ns / WAITS, least_time):
            if self.options.evict and prepared.fills_banks:
                variants.append(candidate._replace(results=FREE_BANKS))      # the first order does not show this
            elif self.options.overwrite and not candidate.overwrite and prepared.schedules.half_full and not hopeless:
                variants += self.surely_faster(candidate._replace(overwrite=True), ns, lambda other: other.overwrites)
        if self.options.by_results and not candidate.by_results and prepared.is_straight and (
                ns > prepared.schedules.bound() * WAITS and prepared.schedules.half_full and not hopeless):
            variants += self.surely_faster(candidate._replace(by_results=True), ns, lambda other: other.orders_results)
        if self.options.merge_loads and not candidate.merge_loads and not hopeless and (
                ns > prepared.schedules.bound() * WAITS and prepared.schedules.busiest() in COMPUTING) and (
                self.shared.loads_merge(candidate)):
            variants += self.surely_faster(candidate._replace(merge_loads=True), ns)
        if self.options.group_transposes and not candidate.grouped and not candidate.transposes and (
                ns > prepared.schedules.bound() * WAITS and prepared.schedules.busiest() is Engine.TENSOR) and (
                self.shared.transposes_move(candidate)):
            variants += self.surely_faster(candidate._replace(grouped=True), ns)
        times_bound = NEAR[level] / NEARLY
        if prepared.dropped and not hopeless and ns > prepared.schedules.bound() * times_bound and (
                ns > prepared.bound_with_loads * times_bound):
            variant = candidate._replace(loads=False)
            if variant not in self.variants:
                self.postponed[variant] = other = self.prepared(variant)
                if other.first(level, ns) < ns:
                    variants.append(variant)
        variants = [variant for variant in variants if variant not in self.variants]
        if variants:
            self.variants |= dict.fromkeys(variants, candidate)
            self.postponed[candidate] = prepared
        return variants

    def surely_faster(self, variant: Candidate, ns: float, applies: Callable[[Prepared], bool] = lambda _: True
                       ) -> list[Candidate]:
        """Return the variant and keep its code if it ``applies``, and its first order surely takes less than ``ns``;
        else return no variant."""
        other = self.prepared(variant)
        if not applies(other) or other.first(self.options.level, ns / NEARLY) * NEARLY >= ns:
            return []
        self.postponed[variant] = other
        return [variant]

    def merging(self, candidate: Candidate, prepared: Prepared) -> list[Candidate]:
        """Return the variant of a candidate with merged instructions, if the engines that run these are busy longest,
        and for less time then. Merging lengthens chains of dependences: there is none if straight code has chains that
        take longer than any engine, or if its first order takes much longer than the candidate's. Keep the code of
        both."""
        variant, schedules = candidate._replace(merge=True), prepared.schedules
        if not self.options.merge or candidate.merge or variant in self.unmerged or (
                schedules.busiest() not in (*MERGED_ENGINES, TRIGGERS)):
            return []
        bound = schedules.bound(balanced=True)
        if prepared.is_straight and schedules.critical_path() >= bound:
            return []
        self.unmerged[variant] = bound
        if variant in self.tried:                   # also as a variant of another merged candidate
            self.variants.setdefault(variant, candidate)
            return []
        if not self.shared.instructions(variant).changes["merge"]:
            return []
        other = self.prepared(variant)
        if other.schedules.bound(balanced=True) * MERGED > bound:
            return []
        level, most, far = self.options.level, inf, 1 / HOPELESS
        if other.schedules.critical_path() * far > bound:           # so that both first orders are compared in any case
            most = prepared.first(level) * HOPELESS
        ns = other.first(level, most)
        if ns * far > bound and prepared.first(level) < ns * far:
            return []
        self.variants[variant] = candidate
        self.postponed |= {candidate: prepared, variant: other}
        return [variant]

    def transposing(self, candidate: Candidate, prepared: Prepared) -> list[Candidate]:
        """Return the variant of a candidate whose DMA engines transpose tiles on chip, as many as balance these engines
        with the others, if the engine that is busy longest is busy for less time then. Keep the code of both."""
        if not self.options.transpose_tiles or candidate.transposes or candidate.grouped or candidate.results < 100 or (
                any(candidate._replace(merge=merge) in self.untransposed for merge in (False, True))):
            return []
        if prepared.schedules.busiest() not in COMPUTING or not any(map(has_transposes, prepared.schedules.runs)):
            return []
        all_transposed = candidate._replace(transposes=100)
        if not self.shared.instructions(all_transposed).changes["transposes"]:
            return []
        before = prepared.schedules.busy(balanced=True)
        after = self.prepared(all_transposed).schedules.busy(balanced=True)
        bound, percent = min((max(before.get(part, 0.0) * (100 - p) + after.get(part, 0.0) * p
                                  for part in {**before, **after}) / 100, p) for p in SHARES)
        self.untransposed[candidate] = max(before.values())
        if bound * MERGED > self.untransposed[candidate]:
            return []
        variant = candidate._replace(transposes=percent)
        self.variants[variant] = candidate
        self.postponed[candidate] = prepared
        return [variant]

    def splitting(self, candidate: Candidate, prepared: Prepared) -> list[Candidate]:
        """Return the variant of a timed candidate with the fewest pieces of large tiles whose first order is nearly the
        fastest, and keep its code; nothing if a program is near the bound, or much faster than the candidate's. Longer
        code is only split if its large loads take long for what the programs take beyond the bound."""
        ns, bound = self.least_time(), prepared.bound()
        if not self.options.split_columns or candidate.columns or candidate.pipelined or candidate.memory or (
                ns <= bound * WAITS or self.least_time_of(candidate) > ns * HOPELESS):
            return []
        loads = loading_ns(prepared.code, PIECES[0])
        if not loads or (prepared.steps > FEW and loads < (ns - bound) * LOADED):
            return []
        best: Candidate | None = None
        for pieces in PIECES:
            variant = candidate._replace(columns=pieces)
            other = self.prepared(variant)
            if other.split and (least := other.first(self.options.level, ns / NEARLY)) * NEARLY < ns:
                ns, best = least, variant
                self.postponed[variant] = other
        if best is not None:
            self.variants[best] = candidate
        return [best] if best else []

    def variant_is_faster(self, candidate: Candidate) -> bool:
        """Return whether a program is faster than a candidate can be whose variant with merged instructions, or with
        transposes by the DMA engines, was timed: its engines are busy for longer if they share their work evenly."""
        bound, variant = self.untransposed.get(candidate, -inf), candidate._replace(merge=True)
        if not candidate.merge and variant in self.variants:
            bound = max(bound, self.unmerged.get(variant, -inf))        # a merged variant also has variants
        return self.least_time() <= bound

    def time(self, candidate: Candidate, prepared: Prepared) -> None:
        """Time the programs of a candidate that may be the fastest."""
        self.tried.add(candidate)
        if candidate.pipelined:
            if prepared.pipelined:
                self.time_rounds(candidate, prepared)
            else:
                self.unpipelined[candidate._replace(pipelined=0)] = prepared
            return
        if candidate in self.serial or self.variant_is_faster(candidate):
            return
        if candidate.results == 100 and not candidate.memory:
            self.least_in_order = max(self.least_in_order, prepared.schedules.bound(first_engine=True))
        if self.options.evict and candidate.results == 100 and prepared.fills_banks:
            self.crowded[candidate] = prepared.schedules.bound()
        best: tuple[float, Arrangement] | None = None

        def known() -> float:                       # the others would exclude this candidate
            return self.least_time() if candidate != self.longer else inf if best is None else best[0]
        for arrangement, program in prepared.programs(self.options.level, known):
            ns = self.time_and_record(candidate, arrangement, program)
            prepared.record(arrangement, ns)
            if best is None or ns < best[0]:
                best = ns, arrangement
        if self.options.overlap and best is not None and straight_loops(prepared.code) and (
                overlapping := prepared.overlapped(best[1])) is not None:
            self.time_and_record(candidate._replace(overlap=True), best[1], overlapping)

    def time_rounds(self, candidate: Candidate, prepared: Prepared) -> None:
        """Time pipelined loops, in orders that hardly differ from the order of their rounds. Time the first order both
        with engines that meet after each iteration and with iterations that overlap, the others in the faster way."""
        overlaps = (True, False) if self.options.overlap else (False,)
        forms = [candidate._replace(overlap=overlap) for overlap in overlaps]
        for order in IN_ROUNDS:
            arrangement = prepared.schedules.arrangement_within(order, self.least_time() * HOPELESS)
            if arrangement is None or arrangement.ns > self.least_time() * HOPELESS:
                return
            times: list[tuple[float, Candidate]] = []
            try:
                for form in forms:
                    program = prepared.overlapped(arrangement) if form.overlap else prepared.program(arrangement)
                    if program is not None:
                        times.append((self.time_and_record(form, arrangement, program), form))
                    elif len(forms) == 1:
                        times.append((self.time_and_record(form, arrangement, prepared.program(arrangement)), form))
            except MemoryFull:
                continue
            forms = [min(times, key=itemgetter(0))[1]]

    def time_and_record(self, candidate: Candidate, arrangement: Arrangement, program: Program) -> float:
        """Time a program, record it, and return its time."""
        end = end_of(program)
        ns = end if end < inf else arrangement.ns
        self.timed.append((ns, Fastest(candidate, arrangement, program, ns)))
        return ns

    def needs_no_more(self, memory: int) -> bool:
        """Return whether the last timed program stays the same if its iterations may fill only this percentage of
        SBUF."""
        limit = self.code.machine.sbuf_bytes_per_partition * memory
        return bool(self.timed) and self.timed[-1][1].program.sbuf_bytes * 100 <= limit

    def with_free_banks(self) -> list[Candidate]:
        """Return the next good candidate with fewer results in PSUM, if its engines may wait for banks."""
        crowded = {candidate: self.least_time_of(candidate) for candidate in self.crowded}
        longest = min((ns for ns, result in self.timed if result.candidate.results == 100), default=inf) * HOPELESS
        for candidate in sorted(crowded, key=crowded.__getitem__):
            variant = candidate._replace(results=FREE_BANKS)
            if self.least_time() > self.crowded.pop(candidate) * WAITS and crowded[candidate] <= longest and (
                    crowded[candidate] < inf and variant not in self.variants):
                return [variant]
        return []


def fastest(rolled: Code, choice: EngineChoice, options: SearchOptions, tried: TimedCandidates | None = None
            ) -> Fastest:
    """Return the fastest program, with its candidate and its arrangement. ``tried`` is a search that has tried loops
    with short bodies, and perhaps with longer ones.

    Raise the error of program order if no candidate has a program.
    """
    search = tried or TimedCandidates(rolled, choice, options)
    ordered, least_pipelined = ordered_candidates(rolled, options, search, tried is not None)
    failed = time_candidates(search, ordered, least_pipelined)
    if not search.timed:
        assert failed is not None
        written = next(candidate for candidate in ordered if candidate.body >= BODY)
        in_program_order_where_it_fits(rolled, written, choice, options.spill)   # raise the error of program order
        raise failed
    ns, best = search.best()
    if options.unroll_limit is None and search.least_in_order * CLOSE < ns and (
            written_out(rolled.body) > STRAIGHT[options.level]):
        in_order = faster_in_program_order(rolled, choice, ns)
        return best if in_order is None else Fastest(*in_order)
    return best


def time_candidates(search: TimedCandidates, ordered: list[Candidate], least_pipelined: float) -> NkiMlirError | None:
    """Time candidates, and variants of them that may be faster, in an order in which a fast program ends the search
    early. Return the first error of a candidate without a program, or None.

    Skip pipelined candidates if a program takes at most ``least_pipelined`` ns.
    """
    options = search.options
    failed: NkiMlirError | None = None
    longer = LONGER._replace(loads=options.loads) if LONGER in ordered else None
    if ordered[0].body == SHORT and not search.is_near(ordered[0]):
        ordered.append(ordered.pop(0))          # a candidate that does not end the search is tried last
    waiting = [candidate._replace(loads=options.loads) for candidate in reversed(ordered)]
    full: list[Candidate] = []
    bounds: dict[Candidate, float] = {}
    while waiting or (full and not search.timed):
        if not waiting:                             # no order has room for all tiles
            waiting, full = spilling(full, options.unroll_limit), []
        candidate = waiting.pop()
        if candidate.pipelined and search.least_time() <= least_pipelined:
            continue
        try:
            prepared = search.prepared(candidate)
            if not search.is_serial(candidate, prepared) and (first := search.before(candidate, prepared)):
                waiting += [candidate, *first]
                continue
            bounds[candidate] = bound = prepared.bound()
            search.time(candidate, prepared)
            prune(waiting, search, candidate, prepared, bound, longer)
            if candidate.pipelined:
                continue
        except MemoryFull as error:
            failed = failed or error
            if options.spill and not candidate.memory and candidate not in search.variants:
                full.append(candidate)
                search.unspilled = min(search.unspilled, bounds.get(candidate, inf))
        except NkiMlirError as error:
            failed = failed or error
        if search.timed and (not waiting or candidate.limit == STRAIGHT[options.level]):
            waiting += search.with_free_banks()
    return failed


def prune(waiting: list[Candidate], search: TimedCandidates, candidate: Candidate, prepared: Prepared, bound: float,
           longer: Candidate | None) -> None:
    """Change the waiting candidates after one has been timed: remove those that cannot be much faster, and add variants
    of it that may be."""
    level, ns = search.options.level, search.least_time()
    times_bound = NEAR[level] if level > 1 else ROUNDS if candidate.pipelined else WAITS
    if candidate.pipelined and (prepared.loads_again() or search.needs_no_more(IN_FLIGHT[-1])):
        waiting[:] = [other for other in waiting if not other.pipelined]
    most = bound * (times_bound if candidate.pipelined or candidate.body >= BODY else min(CLOSE, NEAR[level]))
    if ns <= most and not prepared.loads_again():           # repeated loads determine the bound
        waiting[:] = [other for other in waiting if other in search.variants.values()]     # others have as many loads
        if candidate.body != BODY and longer is not None and ns > bound * CLOSEST and not search.longer:
            search.longer = longer
            waiting.insert(0, longer)
    waiting += search.splitting(candidate, prepared)
    # With all loads of the kernel, the candidate may be faster, since it needs less memory.
    loading = candidate._replace(loads=False)
    if not candidate.pipelined and prepared.dropped and loading not in search.variants and (
            ns > bound * NEAR[level] and ns > prepared.bound_with_loads):
        waiting.append(loading)


def ordered_candidates(rolled: Code, options: SearchOptions, search: TimedCandidates, resumes: bool
                       ) -> tuple[list[Candidate], float]:
    """Return the candidates in the order in which the search tries them, and the time that those with pipelined loops
    have to beat. The search ``resumes`` one that has tried some."""
    limit, level = options.unroll_limit, options.level
    ordered = candidates(rolled, limit, level, options.overlap and not resumes)
    pipelined = pipelined_candidates(rolled, level, options.evict) if options.pipeline and limit is None else []
    least_pipelined = search.least_time_again(Candidate(BODY, BODY, options.loads)) if pipelined else 0.0
    at = int(ordered[0].body == SHORT)
    ordered[at:] = [*ordered[at:][::-1], *pipelined] if least_pipelined else [*pipelined, *ordered[at:]]
    if search.timed:
        ordered = [candidate for candidate in ordered if candidate not in search.candidates()] or ordered
    return ordered, least_pipelined


def candidates(rolled: Code, limit: int | None, level: int, overlap: bool = True) -> list[Candidate]:
    """Return candidates for the loops to unroll that have different code, first the one that compiles fastest."""
    straight = Candidate(STRAIGHT[level], BODY)
    if limit is not None:
        return [straight._replace(limit=limit)]
    size = written_out(rolled.body)
    loops = [Candidate(body, body) for body in BODIES if size > 2 * body and loops_to_keep(rolled.body, body)[0]]
    short = [Candidate(SHORT, SHORT)] if overlap and size > FEW and loops_to_keep(rolled.body, SHORT)[0] else []
    return [*short, straight, *loops[:1]] if size <= STRAIGHT[level] else [*short, *loops] if loops else [straight]


def pipelined_candidates(rolled: Code, level: int, evict: bool) -> list[Candidate]:
    """Return candidates with pipelined loops: for code that stays a loop and, at levels that try much, for any code."""
    if (level == 1 and written_out(rolled.body) <= STRAIGHT[level]) or not loops_to_keep(rolled.body, BODY)[0]:
        return []
    return [Candidate(BODY, PIPELINED, results=FREE_BANKS if evict else 100, pipelined=memory) for memory in IN_FLIGHT]
