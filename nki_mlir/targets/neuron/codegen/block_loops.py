# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""block-loops: keep data on chip that two nested loops load repeatedly, for a block of iterations of one loop.

before:  for i in 0 to 32:                       after:  for i in 0 to 32 by 8:
           for j in 0 to 16:                               for k in 0 to 8: load a[k] = A[i + k]
             load a = A[i]; load b = B[j]                  for j in 0 to 16:
             C[i, j] = a.T @ b                               load b = B[j]
                                                             for k in 0 to 8: C[i + k, j] = a[k].T @ b

The tiles whose loads depend on one loop alone stay on chip for a block of its iterations, and the other loop loads its
data once for the block. Data that depend on neither loop are loaded once, and the first blocks run meanwhile. The order
of the iterations changes, so the pass applies to loops around nothing but each other and instructions whose iterations
share no results: each writes parts of HBM that no other iteration touches, and buffers that are allocated in it. Of
both loops and all numbers of iterations that divide a loop's, the pass takes those of the fastest code by the machine's
costs, among those with blocks of at most ``BLOCK_STEPS`` instructions if there are any: the scheduler orders the
instructions of a block together, and few other instructions run during the loads of the blocked tiles. The pass does
not change code of at most ``least`` instructions, which the scheduler may order completely, or code that repeats few
loads.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from nki_mlir.dialects.access import HBM, SBUF, Linear, Tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import Op, changed, with_forms
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    Loop,
    LoopVariable,
    sub_blocks,
)
from nki_mlir.targets.neuron.codegen.reuse_loads import is_load
from nki_mlir.targets.neuron.codegen.schedule_instructions import Schedules
from nki_mlir.targets.neuron.codegen.unroll_loops import Unroller, moved_to, written_out
from nki_mlir.targets.neuron.timing.transfers import Transfers
from nki_mlir.waist.overlap import elements_apart

LEAST = 12_000                  # least instructions of unrolled code: the scheduler may order less code completely
BLOCK_STEPS = 4_000             # most instructions of a block, which the scheduler orders together
INNER = 512                     # most instructions of an innermost loop that is unrolled, so that two loops remain
AGAIN = 1.5                     # least ratio of the time of the loads without blocks to the time with blocks
ROOM = 60                       # percent of SBUF that a block may fill,
COPIES = 3                      # with that many copies of what its iterations do not keep
BETWEEN = 10_000.0              # ns from a block to the next, in which the engines synchronize


class BlockLoops(RecordsPass, name="block-loops", reads=Level.NISA):
    least: int = LEAST          # least instructions of loops after unrolling
    steps: int = BLOCK_STEPS    # most instructions of a block, if such blocks are possible

    def rewritten(self, code: Code) -> None:
        block_loops(code, self.least, self.steps)


def block_loops(code: Code, least: int = LEAST, most_steps: int = BLOCK_STEPS) -> int:
    """Keep data on chip for blocks of iterations, in place. Return the number of changed nests of loops."""
    def within(block: Block) -> int:
        count = 0
        for at, node in reversed([*enumerate(block.nodes)]):
            if type(node) is InstructionStep:
                continue
            nest = nest_of(node) if type(node) is Loop and written_out(Block([node])) > least else None
            best = best_blocking(nest, code, most_steps) if nest is not None else None
            if best is None:
                count += sum(map(within, sub_blocks(node)))
                continue
            blocked = best.code()
            block.nodes[at:at + 1] = blocked.nodes
            block.buffers += blocked.buffers
            count += 1
        return count
    return within(code.body)


# -- which loops -------------------------------------------------------------------------------------------------------
class NestedLoops(NamedTuple):
    """Two loops around ``steps``, which may run in any order of their iterations. ``loads``: the loads of data that no
    iteration changes, of which the first ``early`` are only in the outer loop; ``buffers``: those that each iteration
    allocates."""

    loops: tuple[Loop, Loop]
    steps: Sequence[InstructionStep]
    buffers: Sequence[DeviceBuffer]
    loads: Sequence[InstructionStep]
    early: int

    def loads_of(self, *loops: Loop) -> list[InstructionStep]:
        """Return the loads that depend on exactly these of the two loops."""
        variables = {loop.variable for loop in loops}
        both = {loop.variable for loop in self.loops}
        return [step for step in self.loads if both & set(step.op.symbols) == variables]

    def repeated(self) -> list[InstructionStep]:
        """Return the steps that run in each iteration: all but the loads that depend on at most one loop."""
        hoisted = set(self.loads).difference(self.loads_of(*self.loops))
        return [step for step in self.steps if step not in hoisted]

    def in_buffers(self, buffers: dict[DeviceBuffer, DeviceBuffer], dropped: Container[InstructionStep] = ()
                   ) -> "NestedLoops":
        """Return the nest with other buffers in place of some, and without the dropped steps."""
        steps = {step: step.with_op(changed(step.op, lambda tile: moved_to(tile, buffers))) for step in self.steps
                 if step not in dropped}
        return NestedLoops(self.loops, [*steps.values()], [*dict.fromkeys([buffers.get(b, b) for b in self.buffers])],
                    [steps[step] for step in self.loads if step not in dropped],
                    sum([step not in dropped for step in self.loads[:self.early]]))


def nest_of(outer: Loop) -> NestedLoops | None:
    """Return a loop and the loop in it as a nest, or None if their iterations may not run in any order. A loop without
    an inner one becomes a nest whose inner loop has a single iteration."""
    *before, inner = outer.body.nodes or [None]
    if type(inner) is InstructionStep:
        before, inner = [], Loop(LoopVariable("k", 0, 0), range(1), outer.body)
    if type(inner) is not Loop or not all(
            type(node) is InstructionStep and is_load(node.op, (HBM,)) for node in before):
        return None
    body = unrolled_inside(inner)
    steps, buffers = [*before, *body.nodes], [*dict.fromkeys([*outer.body.buffers, *body.buffers])]
    if any(buffer.fixed or buffer.addresses or buffer.attributes or buffer.space == HBM for buffer in buffers):
        return None
    if not all(type(step) is InstructionStep and may_move(step.op) for step in steps):
        return None
    local = set(buffers)
    reads: set[DeviceBuffer] = set()
    writes: dict[DeviceBuffer, list[tuple[Tile, InstructionStep]]] = {}
    for step in steps:
        reads.update([tile.handle for _, tile in step.op.sources()])
        for _, tile in step.op.targets():
            writes.setdefault(tile.handle, []).append((tile, step))
    for buffer, written in writes.items():
        if buffer.space == HBM:
            if buffer in reads or not iterations_write_apart(written, (outer, inner)):
                return None
        elif buffer not in local:
            return None
    loads = [step for step in steps if is_load(step.op, (HBM,)) and is_kept(step, writes)]
    if not set(before) <= set(loads):
        return None
    loaded = {tile.handle for step in loads for _, tile in step.op.targets()}
    if any(buffer.space != HBM and buffer not in loaded and buffer not in body.buffers for buffer in writes):
        return None                             # iterations of the inner loop would share results of others
    return loaded_once(NestedLoops((outer, inner), steps, buffers, loads, len(before)))


def loaded_once(nest: NestedLoops) -> NestedLoops:
    """Return the nest without loads whose data another load loads in the same iteration."""
    first: dict[object, DeviceBuffer] = {}
    replacement: dict[DeviceBuffer, DeviceBuffer] = {}
    dropped: set[InstructionStep] = set()
    for step in nest.loads:
        (_, src), (_, dst) = *step.op.sources(), *step.op.targets()
        buffer = dst.handle
        form = step.op.kind(), step.op.symbols, src.handle, src.access, dst.access, buffer.shape, buffer.dtype
        if first.setdefault(form, buffer) is not buffer:
            replacement[buffer] = first[form]
            dropped.add(step)
    return nest.in_buffers(replacement, dropped) if dropped else nest


def unrolled_inside(loop: Loop) -> Block:
    """Return the body of a loop, without loops in it if these are small."""
    body = loop.body
    if any(type(node) is Loop for node in body.nodes) and written_out(body) <= INNER:
        return Unroller({}).block(body, {}, {}, fresh=False)
    return body


def may_move(op: Op) -> bool:
    """Return whether an instruction only computes its tiles, whose starts are sums of loops' variables."""
    return not (op.mask or op.limits or op.acts_outside or op.extra or op.has_linear_attributes or op.index_forms()
                or any(not isinstance(symbol, LoopVariable) for symbol in op.symbols)) and (
        type(op) is DmaCopyOp or all(tile.on_chip for _, tile in op.targets()))


def is_kept(load: InstructionStep, writes: Mapping[DeviceBuffer, Sequence[object]]) -> bool:
    """Return whether a load writes a tile that nothing else writes, at an address without registers, from data that
    nothing writes."""
    src, dst = (tile for side in (load.op.sources(), load.op.targets()) for _, tile in side)
    return src.handle not in writes and len(writes[dst.handle]) == 1 and not dst.access.symbols_used()


def iterations_write_apart(written: Sequence[tuple[Tile, InstructionStep]], loops: Sequence[Loop]) -> bool:
    """Return whether all iterations of these loops write different elements of an HBM tensor: by tiles of one form,
    equally far apart, each of whose steps is longer than the reach of the smaller ones."""
    def form(tile: Tile, op: Op) -> object:
        return tile.access.dims, tile.dtype, {op.symbols[position]: c for position, c in tile.access.free.symbols}
    (tile, step), *further = written
    if any(form(other, at.op) != form(tile, step.op) for other, at in further):
        return False
    starts = sorted([other.access.free.const for other, _ in written])
    distances = {b - a for a, b in pairwise(starts)} or {0}
    by_variable = {step.op.symbols[position]: c for position, c in tile.access.free.symbols}
    steps = [(abs(by_variable.get(loop.variable, 0) * loop.span.step), len(loop.span)) for loop in loops]
    steps += [(min(distances), len(starts)), *[(abs(by), count) for by, count in tile.access.dims]]
    return len(distances) == 1 and elements_apart(
        [by for by, count in steps if count > 1], [count for _, count in steps if count > 1])


# -- how many iterations -----------------------------------------------------------------------------------------------
def best_blocking(nest: NestedLoops, code: Code, most_steps: int) -> "Blocking | None":
    """Return the blocks of the fastest code; None if the loads take hardly less time than now."""
    transfers = Transfers(code.machine)

    def moving(steps: Sequence[InstructionStep]) -> float:
        return sum(max(transfers.of(step.op).parts) for step in steps if step.op.queued)
    outer, inner = nest.loops
    iterations = len(outer.span) * len(inner.span)
    remaining = nest.repeated()
    schedules = Schedules(replace(code, body=Block(remaining, list(nest.buffers))), EngineChoice(code.machine))
    computing, storing = (ns * iterations for ns in (schedules.bound(balanced=True), moving(remaining)))
    sbuf = code.machine.sbuf_bytes_per_partition * ROOM // 100
    always = nest.loads_of()
    unblocked = moving(nest.loads[:nest.early]) * len(outer.span) + moving(nest.loads[nest.early:]) * iterations
    options: list[tuple[bool, float, int, Blocking]] = []
    for blocked, other in ((outer, inner), (inner, outer)):
        keeps, loads = nest.loads_of(blocked), nest.loads_of(other)
        if not keeps:
            continue
        count, each_bytes = len(blocked.span), bytes_of(keeps)
        other_bytes = bytes_of(always) + COPIES * (sum([buffer.bytes_per_partition for buffer in nest.buffers
                                                 if buffer.space == SBUF]) - each_bytes - bytes_of(always))
        for number in range(1, count + 1):
            if number * each_bytes + other_bytes > sbuf:
                break
            times, short = count // number, count % number
            steps, of_short = (n and n * len(keeps) + len(other.span) * (len(loads) + n * len(remaining))
                               for n in (number, short))
            together = max(1, min(times, most_steps // steps))          # blocks that the scheduler orders together
            if number * each_bytes * min(together, 2) + other_bytes > sbuf:
                continue
            loading = moving(keeps) * count + moving(loads) * len(other.span) * (times + (short > 0))
            apart = -(-times // together) + (short > 0)
            ns = max(computing, loading + storing) + apart * (moving(keeps) * number + BETWEEN)
            if loading * AGAIN <= unblocked:
                early = -(-moving(always) * count // (computing * number)) if always else 0
                early = int(min(early, times - 1, COPIES, max(0, most_steps - len(always)) // steps))
                options.append((steps + of_short > most_steps, ns, number,
                                Blocking(nest, blocked, other, number, early)))
    return min(options, key=lambda option: option[:3])[-1] if options else None


def bytes_of(loads: Sequence[InstructionStep]) -> int:
    """Return the bytes per partition of the buffers that these loads fill."""
    return sum([tile.handle.bytes_per_partition for step in loads for _, tile in step.op.targets()])


# -- the code in blocks ------------------------------------------------------------------------------------------------
Terms = tuple[int, Sequence[tuple[LoopVariable, int]]]          # a sum: a number, and variables with their factors


class Blocking(NamedTuple):
    """Blocks of ``number`` iterations of the loop ``blocked``: its loads stay on chip while ``other`` runs. The first
    ``early`` blocks run during the loads that depend on neither loop."""

    nest: NestedLoops
    blocked: Loop
    other: Loop
    number: int
    early: int = 0

    def code(self) -> Block:
        """Return the code that replaces both loops. Iterations that do not make up a block come last."""
        hoisted, span, number = self.nest.loads_of(), self.blocked.span, self.number
        first, remainder = self.early * number, len(span) % number
        result = Block([*hoisted], self.buffers_of(hoisted))
        if first:
            self.append_early(result, span[:first])
        result.nodes.append(self.loop_of_blocks(self.nest, span[first:len(span) - remainder], number))
        if remainder:
            fresh = self.with_fresh_buffers(result.buffers)
            result.nodes.append(self.loop_of_blocks(fresh, span[len(span) - remainder:], remainder))
        return result

    def with_fresh_buffers(self, outside: Container[DeviceBuffer]) -> NestedLoops:
        return self.nest.in_buffers({buffer: replace(buffer) for buffer in self.nest.buffers if buffer not in outside})

    def append_early(self, result: Block, span: range) -> None:
        """Append the first blocks, each instruction for all of them: the blocks need data in the order in which it is
        loaded. Their loads come first."""
        blocks = self.loop_of_blocks(self.with_fresh_buffers(result.buffers), span, self.number)
        straight = Unroller({}).block(Block([blocks]), {}, {}, fresh=False)
        length = len(straight.nodes) // self.early
        nodes = [node for k in range(length) for node in straight.nodes[k::length]]
        loads = len(self.nest.loads_of(self.blocked)) * len(span)
        result.nodes = [*nodes[:loads], *result.nodes, *nodes[loads:]]
        result.buffers += straight.buffers

    def loop_of_blocks(self, nest: NestedLoops, span: range, number: int) -> Loop:
        """Return the loop over blocks of ``number`` iterations each."""
        blocked, name = self.blocked, self.blocked.variable.name
        block_variable = LoopVariable(name, 0, len(span) // number - 1)
        loading, running = LoopVariable(name, 0, number - 1), LoopVariable(name, 0, number - 1)
        keeps, loads = nest.loads_of(blocked), nest.loads_of(self.other)
        wide = {buffer: replace(buffer, shape=(buffer.shape[0], number, *buffer.shape[1:]))
                for buffer in self.buffers_of(keeps)}

        def within(variable: LoopVariable, steps: Sequence[InstructionStep]) -> list[InstructionStep]:
            terms = span.start, [(block_variable, span.step * number), (variable, span.step)]
            return [step.with_op(in_block(step.op, blocked.variable, terms, wide, variable)) for step in steps]

        def loop(variable: LoopVariable, count: int, body: Block) -> Loop:
            return Loop(variable, range(count), body, blocked.location, blocked.attributes)
        outside = {*wide, *self.buffers_of(loads), *self.buffers_of(nest.loads_of())}
        body = Block(within(running, nest.repeated()), [buffer for buffer in nest.buffers if buffer not in outside])
        body = Block([*loads, loop(running, number, body)], self.buffers_of(loads))
        body = Block([loop(loading, number, Block(within(loading, keeps))), replace(self.other, body=body)],
                     [*wide.values()])
        return loop(block_variable, len(span) // number, body)

    @staticmethod
    def buffers_of(loads: Sequence[InstructionStep]) -> list[DeviceBuffer]:
        return [tile.handle for step in loads for _, tile in step.op.targets()]


def in_block(op: Op, variable: LoopVariable, terms: Terms, wide: Mapping[DeviceBuffer, DeviceBuffer],
             iteration: LoopVariable) -> Op:
    """Return an operation with a sum of variables in place of one, on the parts of the ``wide`` buffers that belong to
    an iteration of the block."""
    const, added = terms
    uses_wide = any(tile.handle in wide for _, tile in op.operands())
    if variable not in op.symbols and not uses_wide:
        return op
    symbols = [symbol for symbol in op.symbols if symbol is not variable]
    symbols += [symbol for symbol, _ in added if variable in op.symbols or symbol is iteration]
    position = {symbol: k for k, symbol in enumerate(symbols)}

    def over(form: Linear) -> Linear:
        start, by = form.const, dict[int, int]()
        for k, c in form.symbols:
            if op.symbols[k] is variable:
                start += c * const
                by |= {position[symbol]: c * factor for symbol, factor in added}
            else:
                by[position[op.symbols[k]]] = c
        return Linear(start, tuple(sorted(by.items())), form.axes)

    def part(tile: Tile) -> Tile:
        buffer = wide.get(tile.handle)
        if buffer is None:
            return tile
        start = tile.access.free.plus(Linear(0, ((position[iteration], tile.row),)))
        return Tile(buffer, tile.space, buffer.shape, tile.base_dtype, replace(tile.access, free=start), tile.label)
    moved = with_forms(op, over, symbols=tuple(symbols), ranges=tuple([(s.low, s.high) for s in symbols]))
    return changed(moved, part) if uses_wide else moved
