# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits loops with short bodies where no order of the unrolled code can be much faster.

A kernel whose Python runs its loops is long code without loops. ``roll-instructions`` turns it into loops; if their
program takes hardly more than the busiest engine, the search looks at one body instead of all iterations. Else the code
is ordered as it is.
"""

from math import inf, prod

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM
from nki_mlir.targets.neuron.codegen.candidate_programs import AGAIN, CLOSE, FEW, NEAR, SHORT
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.fastest import WAITS, Fastest, TimedCandidates
from nki_mlir.targets.neuron.codegen.records import Code, DeviceBuffer, steps_in
from nki_mlir.targets.neuron.codegen.roll_instructions import rolled_instructions
from nki_mlir.targets.neuron.codegen.search_options import Candidate, SearchOptions
from nki_mlir.targets.neuron.codegen.unroll_loops import loops_to_keep, written_out


def in_loops(code: Code) -> Code | None:
    """Return long code with its instructions that repeat in loops; None if it is short, if its loops are loops already,
    if it loads data repeatedly, or if nothing repeats."""
    if written_out(code.body) <= FEW or loops_to_keep(code.body, SHORT)[0] or loads_repeatedly(code):
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


def nearly_bound(rolled: Code, choice: EngineChoice, options: SearchOptions) -> Fastest | None:
    """Return the fastest program whose loops have short bodies; None if another program may be faster."""
    search, candidate = TimedCandidates(rolled, choice, options), Candidate(SHORT, SHORT, options.loads)
    try:
        prepared = search.prepared(candidate)
        bound = prepared.bound()
        if prepared.loads_again() or next(prepared.arrangements(options.level, inf, inf)).ns > bound * WAITS:
            return None
        search.time(candidate, prepared)
    except NkiMlirError:
        return None
    if search.least_time() > bound * min(CLOSE, NEAR[options.level]):
        return None
    return search.best()[1]
