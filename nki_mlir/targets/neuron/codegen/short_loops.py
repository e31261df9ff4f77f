# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits loops where no order of the unrolled code can be much faster.

A kernel whose Python runs its loops is long code without loops. ``roll-instructions`` turns it into loops; if their
program takes hardly more than the busiest engine, the search looks at one body instead of all iterations. If the code
is too long to be unrolled if its loops were the kernel's, or if ``interleave-rows`` joins iterations, all that the
search tries for the kernel's loops is tried. Else the code is ordered as it is.
"""

from math import inf, prod

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM
from nki_mlir.targets.neuron.codegen.candidate_programs import AGAIN, CLOSE, FEW, NEAR, SHORT
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.fastest import LONGER, STRAIGHT, WAITS, Fastest, TimedCandidates, fastest
from nki_mlir.targets.neuron.codegen.records import Code, DeviceBuffer, steps_in
from nki_mlir.targets.neuron.codegen.roll_instructions import LEAST, rolled_instructions
from nki_mlir.targets.neuron.codegen.search_options import Candidate, SearchOptions
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY, loops_to_keep, written_out


def in_loops(code: Code) -> Code | None:
    """Return long code with its instructions that repeat in loops; None if it is short, if its loops are loops already,
    if it loads data repeatedly, or if nothing repeats."""
    if written_out(code.body) <= LEAST or loops_to_keep(code.body, SHORT)[0] or loads_repeatedly(code):
        return None
    return rolled_instructions(code)


def loads_repeatedly(code: Code) -> bool:
    """Return whether transfers access much more than the bytes of their HBM buffers. Short bodies then load data again,
    which the unrolled code may keep on chip."""
    moved, buffers = 0, dict[DeviceBuffer, None]()
    for step in steps_in(code.body):
        for _, tile in step.op.operands() if step.op.queued else ():
            if tile.space == HBM:
                moved += prod([count for by, count in tile.access.dims if by]) * tile.dtype.itemsize
                buffers[tile.handle] = None
    return moved > AGAIN * sum(buffer.bytes_per_partition for buffer in buffers)


def fastest_in_loops(rolled: Code, joined: int, choice: EngineChoice, options: SearchOptions
                     ) -> tuple[Fastest | None, bool]:
    """Return the fastest program that was timed with loops, and whether the search may end with it: if it hardly takes
    longer than its bound, if unrolled code would be too long to order it well, or if only loops have ``joined``
    iterations, which may be unrolled afterwards."""
    search, level, length = TimedCandidates(rolled, choice, options), options.level, written_out(rolled.body)
    if not joined and length <= FEW:
        return None, False
    near, bound = NEAR[level], 0.0
    for candidate, enough in ((Candidate(SHORT, SHORT), min(CLOSE, near)), (LONGER, near)):
        candidate = candidate._replace(loads=options.loads)
        if candidate.body == BODY and (length <= STRAIGHT[level] or not loops_to_keep(rolled.body, BODY)[0]):
            break
        try:
            prepared = search.prepared(candidate)
            bound = prepared.bound()
            if not prepared.loads_again() and next(prepared.arrangements(level, inf, inf)).ns <= bound * WAITS:
                search.time(candidate, prepared)
                if search.least_time() <= bound * enough:
                    return search.best()[1], True
            else:
                search.postponed[candidate] = prepared      # with its first order, if all is tried
        except NkiMlirError:
            continue
    if joined or length > STRAIGHT[level]:
        try:
            best = fastest(rolled, choice, options, search)
            return best, length <= STRAIGHT[level] or best.ns <= bound * WAITS
        except NkiMlirError:
            return None, False
    return (search.best()[1] if search.timed else None), False
