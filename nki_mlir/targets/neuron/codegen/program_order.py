# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in program order, which every kernel has if its tiles fit or can spill, and the time of programs."""

from collections.abc import Sequence
from math import inf

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.instruction import Control
from nki_mlir.dialects.isa.program import Program
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull
from nki_mlir.targets.neuron.codegen.candidate_code import expanded, with_instructions
from nki_mlir.targets.neuron.codegen.candidate_programs import Prepared
from nki_mlir.targets.neuron.codegen.cut_short import cut_short
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import Code
from nki_mlir.targets.neuron.codegen.schedule_instructions import Arrangement
from nki_mlir.targets.neuron.codegen.search_options import Candidate
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY, UNROLL_LIMIT, written_out
from nki_mlir.targets.neuron.timing.machine import EventLimit, TimedMachine

SPILLED = 60, 75, 95            # percentages of SBUF that tiles may fill if not all fit, from the least to the most
WINDOW = 1_500                  # instructions of the window on which program order is timed
EXECUTED = 1_000_000            # most instructions of a program that is timed to its end


def prepared_alone(rolled: Code, candidate: Candidate, choice: EngineChoice) -> Prepared:
    """Return the code of a candidate, which shares it with no other candidate."""
    return Prepared(with_instructions(expanded(rolled, candidate), candidate), candidate, choice)


def in_program_order_where_it_fits(rolled: Code, candidate: Candidate, choice: EngineChoice, spill: bool
                                   ) -> tuple[Candidate, Program]:
    """Return the program in program order. Spill tiles if SBUF is too small otherwise, and if ``spill`` allows it."""
    failed: MemoryFull | None = None
    for memory in (0, *reversed(SPILLED)) if spill else (0,):
        variant = candidate._replace(memory=memory, loads=candidate.loads and not memory)
        try:
            return variant, prepared_alone(rolled, variant, choice).in_program_order()
        except MemoryFull as error:
            failed = failed or error
    assert failed is not None
    raise failed


def spilling(full: Sequence[Candidate], limit: int | None) -> list[Candidate]:
    """Return the candidates for code that does not fit, so that tiles spill. Loops are unrolled up to ``UNROLL_LIMIT``
    instructions, since tiles that runs share spill at each end of a run."""
    if limit is None:
        full = [candidate._replace(limit=UNROLL_LIMIT) for candidate in full]
    return list(dict.fromkeys(candidate._replace(body=BODY, loads=False, memory=SPILLED[0]) for candidate in full))


def end_of(program: Program) -> float:
    """Return when a program ends if synchronization with other cores takes no time; infinity if it runs for very
    long."""
    run = TimedMachine([program], limit=EXECUTED, records=False)
    try:
        run.run()
    except EventLimit:
        return inf
    return run.end


def instructions_of(program: Program) -> int:
    """Return the number of instructions that are not control."""
    return sum(not isinstance(instruction.op, Control) for stream in program.streams.values() for instruction in stream)


def in_program_order(rolled: Code, choice: EngineChoice) -> float:
    """Estimate the time of unrolled program order by a window of it and its steady state; infinite for code that has no
    loop to cut short, or that does not fit."""
    parts = [cut_short(rolled, instructions) for instructions in (WINDOW, 2 * WINDOW)]
    size, short, long = (written_out(code.body) for code in (rolled, *parts))
    if long <= short or long > 4 * WINDOW:
        return inf
    straight = Candidate(UNROLL_LIMIT, BODY)
    try:
        early, late = (end_of(prepared_alone(part, straight, choice).in_program_order())
                       for part in parts)
    except NkiMlirError:
        return inf
    return late + (size - long) * (late - early) / (long - short)


def faster_in_program_order(rolled: Code, choice: EngineChoice, ns: float
                            ) -> tuple[Candidate, Arrangement, Program, float] | None:
    """Return the program of the code with its loops unrolled, in program order, and its time, if it takes less than
    ``ns``."""
    if in_program_order(rolled, choice) >= ns:
        return None
    straight = Candidate(UNROLL_LIMIT, BODY)
    prepared = prepared_alone(rolled, straight, choice)
    program = prepared.in_program_order()
    end = end_of(program)
    return (straight, prepared.schedules.as_written(), program, end) if end < ns else None
