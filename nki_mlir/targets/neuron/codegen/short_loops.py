# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emit loops if no order of the unrolled code can be much faster.

A kernel whose Python runs its loops is long code without loops. ``roll-instructions`` turns it into loops; if their
program takes hardly more than the busiest engine, the search looks at one body instead of all iterations. If the code
is longer than loops of a kernel that the search would unroll, or if ``fill-partitions`` or ``interleave-rows`` joins
iterations, the search tries the same candidates as for a kernel's loops. Else it orders the code without loops.
"""

from math import prod
from typing import NamedTuple

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import HBM
from nki_mlir.targets.neuron.codegen.block_loops import BLOCK_STEPS
from nki_mlir.targets.neuron.codegen.candidate_programs import AGAIN, CLOSE, FEW, NEAR, SHORT
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.fastest import LONGER, STRAIGHT, WAITS, Fastest, TimedCandidates, fastest
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, Loop, sub_blocks
from nki_mlir.targets.neuron.codegen.roll_instructions import LEAST, rolled_instructions
from nki_mlir.targets.neuron.codegen.search_options import Candidate, SearchOptions
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY, loops_to_keep, written_out

IN_BLOCKS = Candidate(BLOCK_STEPS, BLOCK_STEPS)
# least instructions and allocations that a loop must save if its iterations may be joined
LEAST_JOINED = 64
ENOUGH = 1.2                    # if code in blocks takes at most this multiple of its bound, unrolled code is not tried


class Improved(NamedTuple):
    """Code with fewer or cheaper instructions: how many of its loops have joined iterations, and how many nests of
    loops run in blocks."""

    code: Code
    joined: int = 0
    blocked: int = 0


def in_loops(code: Code) -> Code | None:
    """Return code with its instructions that repeat in loops; None if it is short, if its loops are loops already, or
    if nothing repeats."""
    length = written_out(code.body)
    if length <= LEAST_JOINED or loops_to_keep(code.body, SHORT)[0]:
        return None
    return rolled_instructions(code, LEAST if length > LEAST else LEAST_JOINED)


def loads_repeatedly(code: Code) -> bool:
    """Return whether transfers access much more than the bytes of their HBM buffers. Short bodies then load data again,
    which the unrolled code may keep on chip."""
    buffers: dict[DeviceBuffer, None] = {}

    def moved(block: Block) -> int:
        total = 0
        for node in block.nodes:
            if type(node) is not InstructionStep:
                total += sum(map(moved, sub_blocks(node))) * (len(node.span) if type(node) is Loop else 1)
                continue
            for _, tile in node.op.operands() if node.op.queued else ():
                if tile.space == HBM:
                    total += prod([count for by, count in tile.access.dims if by]) * tile.dtype.itemsize
                    buffers[tile.handle] = None
        return total
    return moved(code.body) > AGAIN * sum(buffer.bytes_per_partition for buffer in buffers)


def fastest_in_loops(looped: Improved, choice: EngineChoice, options: SearchOptions) -> tuple[Fastest | None, bool]:
    """Return the fastest program that was timed with loops, and whether the search may end with it: if it hardly takes
    longer than its bound, if unrolled code would be too long to order it well, or if only loops have joined iterations,
    which may be unrolled afterwards."""
    rolled, joined, blocked = looped
    search, level, length = TimedCandidates(rolled, choice, options), options.level, written_out(rolled.body)
    if blocked:
        return fastest_in_blocks(search)
    if not joined and (length <= FEW or loads_repeatedly(rolled)):
        return None, False
    times_bound, bound = NEAR[level], 0.0
    for candidate, enough in ((Candidate(SHORT, SHORT), min(CLOSE, times_bound)), (LONGER, times_bound)):
        candidate = candidate._replace(loads=options.loads)
        if candidate.body == BODY and (length <= STRAIGHT[level] or not loops_to_keep(rolled.body, BODY)[0]):
            break
        try:
            prepared = search.prepared(candidate)
            bound = prepared.bound()
            if not prepared.loads_again() and prepared.takes_at_most(bound * WAITS, level):
                search.time(candidate, prepared)
                if search.least_time() <= bound * enough:
                    return search.best()[1], True
            else:
                search.postponed[candidate] = prepared      # with its first orders, if the search tries much
        except NkiMlirError:
            continue
    if joined or length > STRAIGHT[level]:
        try:
            best = fastest(rolled, choice, options, search)
            return best, length <= STRAIGHT[level] or best.ns <= bound * WAITS
        except NkiMlirError:
            return None, False
    return (search.best()[1] if search.timed else None), False


def fastest_in_blocks(search: TimedCandidates) -> tuple[Fastest | None, bool]:
    """Return the fastest program whose blocks (``block-loops``) are bodies of the device's loops, and whether it takes
    about as long as its bound. Engines synchronize after each block, which takes little of its time."""
    try:
        prepared = search.prepared(IN_BLOCKS._replace(loads=search.options.loads))
        for arrangement, program in prepared.programs(search.options.level, search.least_time):
            search.time_and_record(prepared.candidate, arrangement, program)
    except NkiMlirError:
        return None, False
    return search.best()[1], search.least_time() <= prepared.bound() * ENOUGH
