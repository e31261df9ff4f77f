# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check instruction streams, with code that shares only the instructions with the emission.

The checker follows one order of the streams without values (``trace``), derives which events are complete before
others in every order (``happens_before``), and checks each memory access (``memory``) and each instruction
(``rules``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_mlir.alone import alone
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.checker.happens_before import HappensBefore, TooManyUpdates
from nki_mlir.targets.neuron.checker.live_ranges import LiveBuffers
from nki_mlir.targets.neuron.checker.memory import MemoryCheck
from nki_mlir.targets.neuron.checker.rules import TargetRules, missing_tables
from nki_mlir.targets.neuron.checker.trace import Choices, Event, StreamTrace, TooLong
from nki_mlir.targets.neuron.checker.violations import Descriptions, in_source_order
from nki_mlir.targets.neuron.checker.witness import witness_of
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.order import Step

EXECUTED = 100_000              # most instructions that are followed on a path, and approximately on all paths
PATHS = 32                      # most paths through branches that data decide
VIOLATIONS = 20                 # most reported violations of a kind
LONGER_RUNS = ("values in tensors decide how often a loop runs: runs of up to two iterations are checked, longer runs "
               "are not")
UNEQUAL_DECISIONS = ("values in tensors decide branches of several cores: runs in which all cores decide equally are "
                     "checked, others are not")


@dataclass
class StreamReport:
    """The violations of streams, and what could not be analyzed."""

    violations: list[NkiMlirError] = field(default_factory=list)
    not_analyzed: list[str] = field(default_factory=list)
    # an order of the streams in which the later of two unordered accesses comes first
    witness: Sequence[Step] = ()
    witnessed: NkiMlirError | None = None           # the violation that ``witness`` shows

    @property
    def verdict(self) -> str:
        """Return ``violated``, ``not analyzed`` or ``proved``."""
        if self.violations:
            return "violated"
        return "not analyzed" if self.not_analyzed else "proved"


@alone
def check_streams(programs: Sequence[Program], executed: int = EXECUTED) -> StreamReport:
    """Check the programs of a launch, one for each core. At most ``executed`` instructions are followed; a program that
    executes more is not analyzed.
    """
    report, paths, left = StreamReport(), 0, executed
    scripts: list[list[bool]] = [[]]
    while scripts and not report.violations:
        if paths == PATHS or left <= 0:
            report.not_analyzed.append(
                f"values in tensors decide branches in more ways than the {paths} that are checked")
            break
        choices = Choices(scripts.pop())
        left -= check_path(programs, choices, executed, report)
        scripts += choices.alternatives(PATHS + 1)
        paths += 1
        if choices.cut and not report.not_analyzed:
            report.not_analyzed.append(LONGER_RUNS)
        elif choices.of_several_cores and not report.not_analyzed:
            report.not_analyzed.append(UNEQUAL_DECISIONS)
    report.not_analyzed = list(dict.fromkeys(report.not_analyzed))
    return report


def check_path(programs: Sequence[Program], choices: Choices, executed: int, report: StreamReport) -> int:
    """Check one path through the branches that data decide. Return how many instructions it executes."""
    try:
        trace = StreamTrace(programs, choices, executed)
    except TooLong:
        report.not_analyzed.append(f"they execute more than {executed:,} instructions, the most that are checked")
        return executed
    except Deadlock as error:
        if choices.differ(len(programs)):
            report.not_analyzed.append(
                "cores wait for each other in branches that values in the tensors of each core decide")
        else:
            report.violations.append(error)
        return 0
    except NkiMlirError as error:
        report.violations.append(error)
        return 0
    report.not_analyzed += [f"{mnemonic} waits for cores whose streams are not among those that were given"
                            for mnemonic in sorted(trace.alone)]
    try:
        relation = HappensBefore(trace)
    except TooManyUpdates:
        report.not_analyzed.append("they wait too often for semaphores that several engines and queues count up")
        return executed
    words = Descriptions(programs, relation)
    memory = MemoryCheck(trace, VIOLATIONS)
    check_conflicts(memory, trace, words, report)
    violations = report.violations
    violations += [words.rule(outside.error, outside.event) for outside in memory.outside]
    violations += [words.unwritten(read) for read in memory.unwritten]
    for access in memory.outside_live_buffers:
        buffers = LiveBuffers(programs[access.event.core])
        violations.append(words.outside(access, list(buffers.at(access.event, str(access.footprint.memory[0])))))
    violations += [words.clear(*clear) for clear in relation.unordered_clears()[:VIOLATIONS]]
    violations += [words.meetings(*pair) for pair in relation.unordered_meetings()[:VIOLATIONS]]
    violations += [words.count(*count) for count in relation.unordered_counts()[:VIOLATIONS]]
    violations += [words.below(*low) for low in relation.counts_below_zero()[:VIOLATIONS]]
    violations += [words.unawaited(event) for event in unawaited(trace, relation)[:VIOLATIONS]]
    check_instructions(programs, trace, words, report)
    violations += [words.mark(space, end, mark, event) for core, program in enumerate(programs)
                   for space, mark in ((SBUF, program.sbuf_bytes), (PSUM, program.psum_bytes))
                   for end, event in [memory.ends.get((space, core), (0, None))] if event is not None and end > mark]
    return trace.executed


def check_conflicts(memory: MemoryCheck, trace: StreamTrace, words: Descriptions, report: StreamReport) -> None:
    """Report unordered accesses: as violations, or as not analyzed if data decide whether they touch the same byte."""
    may_meet = set[frozenset[object]]()
    for conflict in memory.conflicts:
        if conflict.certain:
            report.violations.append(words.unordered(conflict))
            if not report.witness:
                report.witness = witness_of(trace, in_source_order(conflict))
                report.witnessed = report.violations[-1]
            continue
        lines = frozenset(event.instruction.location for event in (conflict.first, conflict.then))
        if lines not in may_meet:           # one report for all instructions of two lines
            may_meet.add(lines)
            report.not_analyzed.append(
                f"values in tensors decide whether two accesses meet: {words.unordered(conflict).headline}")


def unawaited(trace: StreamTrace, relation: HappensBefore) -> list[Event]:
    """Return the transfers that no engine has waited for at the end of the streams."""
    return [event for lane, events in enumerate(trace.lanes) if trace.is_queue[lane]
            for event in events[max((clock[lane] for clock in relation.final.values()), default=0):]]


def check_instructions(programs: Sequence[Program], trace: StreamTrace, words: Descriptions, report: StreamReport
                       ) -> None:
    """Check the rules of the target, and the sets of functions."""
    rules = [TargetRules(program) for program in programs]
    judged: set[Op] = set()
    for lane, events in enumerate(trace.lanes):
        if trace.is_queue[lane]:
            continue
        report.violations += [words.table(*missing) for missing in missing_tables(events)][:VIOLATIONS]
        for event in events:
            op = event.instruction.op
            if isinstance(op, Op) and (op.symbols or op not in judged):
                judged.add(op)
                error = rules[event.core].broken(event)
                if error is not None and len(report.violations) < VIOLATIONS:
                    report.violations.append(words.rule(error, event))
