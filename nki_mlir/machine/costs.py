# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time that work costs: laws of instructions, and the costs of transfers, semaphores and control.

The numbers of a target are in its own file. Each number is ``Cited``: it has its source, its fit and its residual.
"""

from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from nki_mlir.diagnostics import InternalError
from nki_mlir.machine.cited import NONE, Cited, combined
from nki_mlir.machine.engine import Engine


class Work(NamedTuple):
    """The work of an instruction, independent of any machine. ``law`` names the kind of work, with a variant after a
    dot.

    ``elements`` is the number of elements in a partition that the engine processes. ``factor`` is that by which
    each takes longer because elements are apart in memory.
    """

    law: str
    elements: float = 0.0
    factor: float = 1.0


ISSUE = Work("issue")                   # the work of triggering a transfer
CORE_SIGNAL = Work("core_signal")       # a signal to other cores and back
NOTHING = Work("nothing")


class Cost(NamedTuple):
    """Times in ns. The engine is occupied for ``busy``. Other engines see the result ``result`` after that, and the
    engine's next instruction may read it ``result_in_engine`` after that."""

    busy: float
    result: float
    result_in_engine: float


class Law(NamedTuple):
    """The cycles of one kind of work: passes over the elements, cycles of each element, and fixed cycles of each pass.

    ``least``: the least cycles of a pass, if they differ from the engine's. The result is visible ``result_ns``
    later than is usual on the engine (sooner if it is negative), plus ``result_per_element`` cycles for each element
    and pass.
    """

    per_element: Cited
    passes: int = 1
    fixed: Cited = NONE
    least: Cited | None = None
    result_ns: Cited = NONE
    result_per_element: Cited = NONE


class Ramp(NamedTuple):
    """An engine whose current may not rise at once: it works at ``rate`` of its speed, unless its use in the last
    ``window_ns`` was ``threshold`` of its work at full speed.

    The use of work is its time at full speed, times the share of the engine's rows that it needs. The use that a device
    counts deviates from this by the standard deviation ``spread``.
    """

    rate: Cited
    threshold: Cited
    window_ns: Cited
    spread: Cited


class EngineCosts(NamedTuple):
    """The costs of one engine. ``least_cycles``: a pass takes at least these; ``overhead_cycles``: each instruction
    takes these in addition.

    ``other`` is the law of all work that ``laws`` does not name; None: there is no such work. ``ramp``: for an engine
    that does not always have its full speed; costs are for full speed.
    """

    least_cycles: Cited
    overhead_cycles: Cited
    result_ns: Cited
    result_in_engine_ns: Cited
    laws: Mapping[str, Law] = MappingProxyType({})
    other: Law | None = None
    ramp: Ramp | None = None

    def law(self, name: str) -> Law:
        """Return the law of a name. A variant without a law has the law of the name without its last part."""
        law = self.laws.get(name)
        while law is None and "." in name:
            name = name.rpartition(".")[0]
            law = self.laws.get(name)
        law = law or self.other
        if law is None:
            raise InternalError(f"no law for the work '{name}'")
        return law

    def cycles(self, work: Work) -> float:
        """Return the cycles for which work occupies the engine."""
        law = self.law(work.law)
        least = self.least_cycles if law.least is None else law.least
        cycles = law.per_element * work.elements * work.factor
        return float(law.passes * (max(least, cycles) + law.fixed) + self.overhead_cycles)

    def residual(self, work: Work, of_latency: bool) -> float:
        """Return the relative residual of the time for which work occupies the engine; with ``of_latency``, of the
        latency after it until the result is visible."""
        law = self.law(work.law)
        if of_latency:
            parts = [(float(number), number.residual) for number in (self.result_ns, law.result_ns)]
            grows = law.result_per_element
            return combined(*parts, (grows * law.passes * work.elements, grows.residual))
        least = self.least_cycles if law.least is None else law.least
        elements = law.per_element * work.elements * work.factor, law.per_element.residual
        parts = [(float(law.passes * law.fixed), law.fixed.residual),
                 (float(self.overhead_cycles), self.overhead_cycles.residual)]
        value, residual = max(elements, (float(least), least.residual))
        return combined(*parts, (law.passes * value, residual))

    def cost(self, work: Work, clock_ghz: float) -> Cost:
        law = self.law(work.law)
        later = law.result_ns + law.result_per_element * law.passes * work.elements / clock_ghz
        return Cost(self.cycles(work) / clock_ghz, self.result_ns + later, self.result_in_engine_ns + law.result_ns)


class DmaCosts(NamedTuple):
    """The costs of transfers: an engine triggers one, the DMA engines move their parts of it side by side.

    A descriptor is a run of bytes that is contiguous on both sides. One DMA engine moves it at ``bytes_per_ns``. A
    short run moves at ``short_bytes_per_ns``, but takes no longer than ``short_ns`` for that. Less than
    ``word_bytes`` takes ``word_ns``: the engine reads the word before it writes it.

    In addition, the read of a run waits ``wait_ns`` for HBM. A run of complete packets waits ``conflict_ns`` instead,
    because runs that begin and end with packets follow each other on the same channels. A write waits
    ``store_wait_ns``. A run of less than ``wait_bytes`` waits for its share of this time; a run of several pages
    (``page_bytes``) waits at each page. Complete packets of a multiple of ``round_bytes`` are on all channels equally:
    such a run waits only for its share of a page. Runs that are multiples of ``bank_bytes`` apart are in one bank of
    HBM. They do not conflict on channels, but if more than ``bank_engines`` DMA engines read the bank, each further
    ``bank_row_bytes`` of a run waits ``bank_row_ns``. A transpose from HBM to SBUF has ``transpose_rate`` of a copy's
    rate, a transpose from SBUF to SBUF ``sbuf_transpose_rate``; 0: the elements move one by one. A sum of two operands
    has ``sum_rate`` of a copy's rate. ``hbm_bytes_per_ns`` is a core's share of HBM while all cores run,
    ``hbm_stack_bytes_per_ns`` the bandwidth of the stack that it shares with others.
    """

    issue_ns: Cited                     # a transfer occupies the engine that triggers it
    static_issue_ns: Cited              # the same, if the compiler wrote the descriptors
    trigger_ns: Cited                   # from then until the first byte moves
    notify_ns: Cited                    # from the last byte until the semaphore is seen
    descriptor_ns: Cited                # a descriptor takes at least this
    word_bytes: Cited
    word_ns: Cited
    bytes_per_ns: Cited
    short_bytes_per_ns: Cited
    short_ns: Cited
    packet_bytes: Cited
    wait_bytes: Cited
    page_bytes: Cited
    round_bytes: Cited
    wait_ns: Cited
    conflict_ns: Cited
    store_wait_ns: Cited
    bank_bytes: Cited
    bank_engines: Cited
    bank_row_bytes: Cited
    bank_row_ns: Cited
    transpose_rate: Cited
    sbuf_transpose_rate: Cited
    sum_rate: Cited
    hbm_bytes_per_ns: Cited
    hbm_stack_bytes_per_ns: Cited

    def descriptor(self, nbytes: float, apart: int = 0, stores: bool = False, engines: int = 0) -> float:
        """Return the ns that one DMA engine takes for a descriptor of ``nbytes`` bytes.

        The next descriptor begins ``apart`` bytes after it. ``stores``: it writes HBM, and reads none. ``engines``:
        the number of DMA engines that move the transfer's descriptors.
        """
        if nbytes < self.word_bytes:
            return float(self.word_ns)
        transfer_ns = max(nbytes / self.bytes_per_ns, min(nbytes / self.short_bytes_per_ns, self.short_ns))
        one_bank = not stores and apart != 0 and apart % self.bank_bytes == 0
        waits = self.wait(nbytes, stores, one_bank)
        if one_bank and engines > self.bank_engines:
            waits += (ceil(nbytes / self.bank_row_bytes) - 1) * self.bank_row_ns
        ns = max(float(self.descriptor_ns), transfer_ns + waits)
        if not self.conflicts(nbytes, stores, one_bank) or nbytes % self.round_bytes == 0:
            return ns
        rounded = ceil(nbytes / self.round_bytes) * self.round_bytes
        return min(ns, self.descriptor(rounded, apart, stores, engines))      # a longer run never takes less

    def wait(self, nbytes: float, stores: bool = False, one_bank: bool = False) -> float:
        """Return the ns of a descriptor's time in which the DMA engine waits for HBM."""
        conflicts, waits = self.conflicts(nbytes, stores, one_bank), nbytes / self.page_bytes
        if not conflicts or nbytes % self.round_bytes:
            waits = max(min(1.0, nbytes / self.wait_bytes), waits)
        return (self.store_wait_ns if stores else self.conflict_ns if conflicts else self.wait_ns) * waits

    def conflicts(self, nbytes: float, stores: bool, one_bank: bool) -> bool:
        """Return whether a run begins and ends on the channels of other runs."""
        return not stores and not one_bank and nbytes % self.packet_bytes == 0

    def residual(self, part: str) -> float:
        """Return the relative residual of a part of a transfer: ``issue``, ``trigger``, ``moves`` or ``notifies``."""
        return {"issue": self.issue_ns, "trigger": self.trigger_ns, "moves": self.bytes_per_ns,
                "notifies": self.notify_ns}[part].residual


class ControlCosts(NamedTuple):
    """The costs in ns of everything that is not work on data."""

    event_ns: Cited                     # an EVENT_SEMAPHORE
    register_ns: Cited                  # an instruction on registers
    load_ns: Cited                      # a register from memory
    signal_ns: Cited                    # from a control instruction's end until its semaphore is seen
    core_signal_ns: Cited               # from a signal to another core until its answer
    hop_ns: Cited                       # of a collective, from a rank to the next
    fetch_ns: Cited                     # between two instructions that are fetched one after the other
    refill_ns: Cited                    # from a branch that is taken to the first instruction after it
    table_load_ns: Cited                # a set of functions of the scalar engine
    launch_ns: Cited                    # of a kernel, outside of its first and last instruction


class Costs(NamedTuple):
    """All costs of one target. ``psum_port_shared``: the vector and the scalar engine exclude each other on PSUM;
    ``sbuf_port_shared``: the vector and the GpSimd engine on SBUF."""

    engines: Mapping[Engine, EngineCosts]
    dma: DmaCosts
    control: ControlCosts
    psum_port_shared: bool
    sbuf_port_shared: bool

    def of(self, engine: Engine, work: Work, clock_ghz: float) -> Cost:
        """Return the cost of work on an engine, in ns."""
        match work.law:
            case ISSUE.law:
                return Cost(float(self.dma.issue_ns), 0.0, 0.0)
            case CORE_SIGNAL.law:
                return Cost(float(self.control.core_signal_ns), float(self.control.signal_ns), 0.0)
            case "register":
                return Cost(float(self.control.register_ns), 0.0, 0.0)
            case NOTHING.law:
                return Cost(0.0, 0.0, 0.0)
        return self.engines[engine].cost(work, clock_ghz)

    def residual(self, engine: Engine, work: Work, part: str = "runs") -> float:
        """Return the relative residual of a part of the critical path: ``runs`` and ``result`` are parts of an engine's
        work, the others of a transfer (``DmaCosts.residual``)."""
        match work.law:
            case CORE_SIGNAL.law:
                return self.control.core_signal_ns.residual
            case "register":
                return self.control.register_ns.residual
            case NOTHING.law:
                return 0.0
        if part not in ("runs", "result"):
            return self.dma.residual(part)
        return self.engines[engine].residual(work, part == "result")
