# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of a candidate: its code, the orders of its instructions, and the orders that the search times."""

from bisect import insort
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any

from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull, allocate, check_banks
from nki_mlir.targets.neuron.codegen.candidate_code import Instructions, run_step
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.move_psum_results import move_psum_results
from nki_mlir.targets.neuron.codegen.order_by_results import order_by_results
from nki_mlir.targets.neuron.codegen.overwrite_operands import overwrite_operands
from nki_mlir.targets.neuron.codegen.pipeline_loops import Windows, pipeline_loops
from nki_mlir.targets.neuron.codegen.schedule_instructions import Arrangement, Schedules
from nki_mlir.targets.neuron.codegen.scheduling_order import (
    CHANGES,
    CHANGES_IF_CROWDED,
    LOADS,
    MORE_ORDERS,
    ORDERS,
    SECOND,
    Order,
    OrderSearch,
    crowded_orders,
)
from nki_mlir.targets.neuron.codegen.search_options import Candidate
from nki_mlir.targets.neuron.codegen.spill_tiles import spill_tiles
from nki_mlir.targets.neuron.codegen.split_columns import split_columns
from nki_mlir.targets.neuron.codegen.synchronize_engines import overlapped, synchronized

# How many orders a search computes and times. Each order has an estimate of its time; the timed machine may differ.
FEW = 1_000                     # most steps of short code, for which orders with one issuer are tried, too
ORDERED = 14_000                # most steps that level 1 orders, the sum over all orders, except for TWO orders
ORDERED_AS_WRITTEN = 12_000     # the same for programs as written: their times agree with published ones
TWO = 2
TIMED = {1: 4, 3: 6}            # by level, how many orders are timed in addition to program order; one of short bodies,
                                # whose orders differ only in whether iterations overlap
MISSED = 3                      # factor of ``TIMED`` if the first orders take ``HOPELESS`` times their estimates
# most steps of brief code, all of whose orders are timed in a few hundredths of a second
BRIEF = 300
SHORT = 64                      # most instructions of a short body, whose iterations overlap
# Factors between times.
GOOD = 1.03                     # an order is timed if its estimate exceeds the best one by at most this factor
NEARLY = 1.01                   # the usual error of an estimate
ALIKE = 1.003                   # the factor by which errors of estimates differ between orders of one code
HOPELESS = 1.1                  # once TWO orders, or a candidate, exceed a program by this factor, others are skipped
FAR = 1.3                       # the same after one order
NEAR = {1: 1.02, 3: 1.0}        # by level: the search ends at a program within this factor of the busiest engine's time
CLOSE, CLOSEST = 1.01, 1.003    # the same for short bodies, since longer ones are often faster, and for ``BRIEF`` code
# Memory.
FREE_BANKS = 50                 # percent of PSUM that results may fill if products wait for banks
ROOM = 20                       # percent of SBUF for early loads, in addition to what a candidate's tiles may fill
# code that moves more than this multiple of the bytes of HBM that it accesses loads data repeatedly
AGAIN = 1.5
FULL = "on-chip memory is nearly full: instructions stay in program order"


class Prepared:
    """Unrolled code with the instructions and results of a candidate, and its possible orders."""

    def __init__(self, instructions: Instructions, candidate: Candidate, choice: EngineChoice,
                 step: Callable[..., Any] = run_step) -> None:
        code, self.dropped, _ = instructions
        self.code, self.candidate = code, candidate
        self.split: int = step("split-columns", code, lambda: split_columns(
            code, candidate.columns)) if candidate.columns else 0
        self.orders_results: bool = candidate.by_results and step(
            "order-by-results", code, lambda: order_by_results(code, choice.dependences))
        evicts: bool = step("move-psum-results", code, lambda: move_psum_results(code, candidate.results))
        self.overwrites: bool = candidate.overwrite and step("overwrite-operands", code,
                                                             lambda: overwrite_operands(code))
        if candidate.memory:
            step("spill-tiles", code, lambda: spill_tiles(code, candidate.memory))
        self.pipelined = 0                              # how many loops are pipelined
        self.choice, self.evicts, self.windows = choice, evicts, Windows()
        if candidate.pipelined:
            self.balanced = self.schedules.bound(balanced=True)
            self.pipeline(candidate.pipelined, step)
        self.knows_ramps = choice.ramps                 # otherwise estimates assume full speed
        self.limits_unread = not choice.as_written      # published times agree better without this limit
        self.late: list[tuple[float, Order]] = []
        self.tried: set[object] = set()                 # the arrangements that were timed
        self.estimates: list[float] = []                # estimates of the arrangements that have a program
        self.missed: list[float] = []                   # the ratio of their times to their estimates
        self.in_order = False                           # whether program order has been timed
        # Times the fastest program: orders with longer estimates are not timed. Short bodies may be faster where their
        # iterations overlap.
        self.patience = HOPELESS if candidate.body == SHORT else NEARLY
        self.memory: int = min(candidate.memory + ROOM, 100) if candidate.memory else 100

    @cached_property
    def schedules(self) -> Schedules:
        return Schedules(self.code, self.choice, self.evicts)

    @property
    def fills_banks(self) -> bool:
        """Whether the tiles fill ``FREE_BANKS`` percent of PSUM at once, so that products may wait for its banks."""
        return self.schedules.most_results * 100 >= self.code.machine.psum_bytes_per_partition * FREE_BANKS

    @property
    def is_straight(self) -> bool:
        """Whether the code is one run, without loops, whose steps may all move."""
        return len(self.schedules.runs) == 1 and len(self.schedules.parts[0]) == 1

    def pipeline(self, memory: int, step: Callable[..., Any] = run_step) -> None:
        """Pipeline the loops, whose iterations in flight may fill this percentage of SBUF."""
        self.pipelined = step("pipeline-loops", self.code,
                              lambda: pipeline_loops(self.code, self.choice, memory, self.windows))
        if self.pipelined:
            self.schedules = Schedules(self.code, self.choice, self.evicts)

    def bound(self) -> float:
        """Return the least ns that any order takes; for pipelined loops, with balanced engines."""
        return min(self.balanced, self.schedules.bound()) if self.candidate.pipelined else self.schedules.bound()

    @cached_property
    def bound_with_loads(self) -> float:
        """Least ns of any order of the code with the loads that were dropped."""
        return self.schedules.bound(loads=self.dropped)

    def loads_again(self) -> bool:
        """Return whether loops that stay rolled load data repeatedly, which longer bodies may keep in SBUF."""
        if max(self.schedules.times, default=1) <= 1:
            return False
        moved, size = self.schedules.traffic()
        return moved > size * AGAIN

    def first(self, level: int, most: float = inf) -> float:
        """Return the estimate of the first order; ``inf`` if it certainly takes more than ``most`` ns."""
        arrangement = self.schedules.arrangement_within(orders_of(level)[0]._replace(memory=self.memory), most)
        return inf if arrangement is None else arrangement.ns

    def takes_at_most(self, ns: float, level: int) -> bool:
        """Return whether one of the first ``TWO`` orders takes at most ``ns`` by its estimate."""
        arrangements = self.arrangements(level, ns, inf, self.search(level))
        return any(arrangement.ns <= ns for arrangement in islice(arrangements, TWO))

    def in_program_order(self) -> Program:
        return self.program(self.schedules.as_written())

    def serial_program(self, level: int) -> Program | None:
        """Return the program in program order if the code is long and straight, and its estimate is hardly longer than
        the chains of dependences; else, and at levels that try much, None."""
        candidate, schedules = self.candidate, self.schedules
        if level > 1 or self.in_order or candidate.memory or candidate.pipelined or self.choice.as_written:
            return None
        if not self.is_straight or len(schedules.runs[0]) <= FEW or not schedules.is_serial(CLOSEST):
            return None
        try:
            program = self.in_program_order()
        except MemoryFull:
            return None
        self.in_order = True
        return program

    def program(self, arrangement: Arrangement) -> Program:
        """Return the program of an order. Raise ``MemoryFull`` if the order finds no addresses."""
        take_addresses(self.schedules, arrangement)
        return synchronized(self.code, self.schedules.dependences(arrangement))

    def overlapped(self, arrangement: Arrangement) -> Program | None:
        """Return the program of an order with iterations that overlap; None if iterations of no loop can overlap. Raise
        ``MemoryFull`` if the order finds no addresses."""
        take_addresses(self.schedules, arrangement)
        return overlapped(self.code, self.schedules.dependences(arrangement))

    def programs(self, level: int, best_known_ns: Callable[[], float]) -> Iterator[tuple[Arrangement, Program]]:
        """Yield programs of the orders with the best estimates, and of program order. ``best_known_ns`` returns the
        time of the fastest program so far; orders that cannot be faster are skipped."""
        most_times_bound = min(CLOSEST, NEAR[level]) if self.is_brief else NEAR[level]
        enough, written = self.schedules.bound() * most_times_bound, self.schedules.as_written()
        if best_known_ns() <= enough:
            return
        self.tried, self.estimates, is_full, search = {written[:2]}, [], False, self.search(level)
        for until in (enough, 0.0):                 # if an order takes longer than its estimate, compute the others
            for arrangement in self.by_estimate(level, until, best_known_ns, search):
                try:
                    yield arrangement, self.program(arrangement)
                except MemoryFull:
                    is_full = True
                    continue
                self.estimates.append(arrangement.ns)
                if best_known_ns() <= enough:
                    break
            if best_known_ns() <= enough or not (self.estimates and 0.0 < self.estimates[0] <= enough):
                break
        if is_full and not self.estimates:
            self.code.notes.append(FULL)
        if not self.in_order and best_known_ns() > self.schedules.bound(first_engine=True) and (
                best_known_ns() > self.schedules.in_program_order()):
            try:
                yield written, self.program(written)
            except MemoryFull:
                if not self.estimates:
                    raise

    @property
    def is_brief(self) -> bool:
        return self.steps <= BRIEF

    def by_estimate(self, level: int, until: float, best_known_ns: Callable[[], float], search: OrderSearch
                    ) -> Iterator[Arrangement]:
        """Yield arrangements that have not been timed, the least estimate first, while their programs may be the
        fastest. Compute the ``late`` orders when they are next."""
        self.late = []
        arrangements = list(self.arrangements(level, until, best_known_ns(), search))
        arrangements.sort(key=lambda arrangement: arrangement.ns)
        while arrangements or self.late:
            is_late = bool(self.late) and (not arrangements or arrangements[0].ns > self.late[0][0])
            if self.ends_at(self.late[0][0] if is_late else arrangements[0].ns, level, best_known_ns()):
                break
            if is_late:
                limit = best_known_ns() * self.patience
                arrangements += [arrangement for _, order in self.late if (
                    arrangement := self.schedules.arrangement_within(order, limit)) is not None]
                arrangements.sort(key=lambda arrangement: arrangement.ns)
                self.late = []
            elif (arrangement := arrangements.pop(0))[:2] not in self.tried:
                self.tried.add(arrangement[:2])
                yield arrangement

    def ends_at(self, estimate: float, level: int, best_known_ns: float) -> bool:
        """Return whether no order from this estimate on is worth timing: enough orders have programs, unless the best
        estimates miss full speed, or the fastest program takes less time."""
        count, most = len(self.estimates), self.timed_at(level)
        if count and (estimate > self.estimates[0] * GOOD or count >= most) and (
                not self.knows_ramps or count >= MISSED * most or best_known_ns <= self.estimates[0] * HOPELESS):
            return True
        return estimate > best_known_ns * self.patience or (
            level == 1 and not self.is_brief and self.is_longer(estimate, best_known_ns))

    def record(self, arrangement: Arrangement, ns: float) -> None:
        """Record the time of a program."""
        if 0.0 < arrangement.ns < inf:
            self.missed.append(ns / arrangement.ns)

    def is_longer(self, estimate: float, ns: float) -> bool:
        """Return whether an order certainly takes longer than ``ns`` by its estimate, if the timed orders nearly took
        theirs: estimates of the orders of one code are wrong by about the same factor."""
        return bool(self.missed) and max(self.missed) <= GOOD and estimate * min(self.missed) > ns * ALIKE

    def arrangements(self, level: int, enough: float, known_ns: float, search: OrderSearch) -> Iterator[Arrangement]:
        """Yield the arrangements of the next orders of a search. Stop at one whose estimate is at most ``enough``, or
        if the first ones take much longer than the fastest program. Record in ``late`` orders that take much longer
        than the best, or longer than as many orders as are timed, each with its least ns: these are not computed to
        their end. Nor are those that would not be timed beside the fastest program."""
        best, room = inf, False
        estimates: dict[object, float] = {}
        crowded = self.schedules.crowded            # an order without addresses may have no room
        most = self.computed_at(level, search)
        if search.count >= most:
            return
        while (order := search.next()) is not None:
            count, order = search.count, order._replace(memory=self.memory)
            limit = inf if not room else best / NEARLY if order.unread else best * GOOD
            hopeful = room and best <= known_ns * HOPELESS and (not crowded or best <= enough * HOPELESS)
            # The other orders are tried in any case; a better one than the best decides which is next.
            worst = max(known_ns * self.patience, search.best[0] if search.best else inf) if hopeful else inf
            if room and not order.unread and len(estimates) >= self.timed_at(level):
                limit = min(limit, sorted(estimates.values())[self.timed_at(level) - 1])
            skips = not order.unread and worst < limit
            if count >= TWO and best > known_ns * HOPELESS and known_ns * HOPELESS < limit:     # the last order
                worst, skips = known_ns * HOPELESS, True
            arrangement = self.schedules.arrangement_within(order, worst if skips else limit)
            if arrangement is not None:
                if not order.unread or not room or arrangement.ns * NEARLY < best:      # otherwise no engine waits
                    yield arrangement
                best, room = min(best, arrangement.ns), room or arrangement.addresses is not None
                if not crowded or arrangement.addresses is not None:
                    search.record(order, arrangement.ns)
                if arrangement[:2] not in self.tried:
                    estimates[arrangement[:2]] = arrangement.ns
            elif not skips and not order.unread:
                insort(self.late, (limit, order))
            if (best <= enough and (room or not crowded)) or (count >= TWO and best > known_ns * HOPELESS) or (
                    best > known_ns * FAR and not crowded):
                break
            if count >= most and (count >= most + len(LOADS) * crowded or (room and best <= enough * HOPELESS)):
                break

    def timed_at(self, level: int) -> int:
        """Return how many orders are timed if they take as long as their estimates."""
        return 1 if self.candidate.body == SHORT and level == 1 else TIMED[level]

    def search(self, level: int) -> OrderSearch:
        """Return the orders to compute. If not all tiles fit, and the first orders find no addresses or take long, the
        next orders leave more room to results. In ``--as-written`` and at levels that try much, no order depends on the
        times of others."""
        orders, crowded, searches = orders_of(level), self.schedules.crowded, level == 1 and not self.choice.as_written
        orders = self.choice.different((orders[0], SECOND, *orders[1:]) if searches else orders)
        if crowded:
            orders = crowded_orders(orders, TWO, self.limits_unread)
        if level == 1 and self.steps <= FEW:
            orders = self.choice.different((*orders, *(order._replace(issue=False) for order in orders)))
        changes = CHANGES_IF_CROWDED if crowded else CHANGES
        return OrderSearch(orders, TWO + crowded, changes if searches else [], self.choice.canonical)

    def computed_at(self, level: int, search: OrderSearch) -> int:
        """Return the number of orders to compute: computing all takes long for long code."""
        if level > 1 or self.steps <= FEW:
            return len(search.orders) + len(search.changes)
        ordered = ORDERED_AS_WRITTEN if self.choice.as_written else ORDERED
        return max(TWO, (ordered * 3 // 2 if self.schedules.crowded else ordered) // self.steps)

    @cached_property
    def steps(self) -> int:
        return sum(map(len, self.schedules.runs))


def orders_of(level: int) -> tuple[Order, ...]:
    return MORE_ORDERS if level > 1 else ORDERS


def take_addresses(schedules: Schedules, arrangement: Arrangement) -> None:
    """Put the code in the order of an arrangement, at its addresses or at addresses from ``allocate-on-chip``."""
    schedules.arrange(arrangement)
    if arrangement.addresses is None:
        allocate(schedules.code)
    else:
        check_banks(schedules.code)
