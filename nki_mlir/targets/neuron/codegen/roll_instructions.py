# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""roll-instructions: turn instructions that repeat into a loop, so that the search orders each only once.

before:  load t0 = x[0]; exp t0; store y[0] = t0;        after:  for i in 0 to 1000:
         load t1 = x[128]; exp t1; store y[128] = t1;                load t = x[128 i]; exp t; store y[128 i] = t
         ...

A kernel whose Python runs its loops is one long run of instructions. Instructions of one source location form a loop,
inner loops first, as ``analysis.repeats`` finds them. Each iteration allocates the buffers that only it uses. Tiles
move through HBM and along the free dimensions of SBUF; in PSUM, and across partitions, they stay where they are.

In code whose instructions mostly use the results of their predecessors, few instructions can end an iteration. If no
sequence of instructions as long as those that a loop must save occurs twice (``may_repeat``), or if an upper bound of
the instructions that loops can save (``most_saved``) is too small, the pass does not search for loops.
"""

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from nki_mlir.analysis.repeats import Item, Repetition, Steps, with_loops
from nki_mlir.dialects.access import PSUM, Linear, Tile
from nki_mlir.dialects.op import changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen import records
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass

LEAST = 512                     # instructions and allocations that a loop must save
# an element of an item: an instruction, an allocation, another node
Element = records.InstructionStep | records.DeviceBuffer | object
# For each loop around an item, outermost first: its variable, and the steps of the item's tiles.
Moves = Sequence[tuple[records.LoopVariable, Steps]]


class RollInstructions(RecordsPass, name="roll-instructions", reads=Level.NISA):
    least: int = LEAST          # least instructions and allocations that a loop must save
    lines: bool = False         # let instructions repeat whose source locations differ, as in MLIR text

    def rewritten(self, code: records.Code) -> records.Code:
        return rolled_instructions(code, self.least, self.lines) or code


def rolled_instructions(code: records.Code, least: int = LEAST, lines: bool = False) -> records.Code | None:
    """Return the code with loops for the instructions of its outermost block that repeat; None if there are none."""
    if not may_repeat(code.body, least) or most_saved(code.body) < least:
        return None
    items = with_loops(items_of(code.body, lines), least, pairs=False)
    if all(item.loop is None for item in items):
        return None
    body = records.Block()
    for item in items:
        append(body, item, ())
    return replace(code, body=body)


def most_saved(block: records.Block) -> int:
    """Return at least as many instructions and allocations of a block as a loop around none of its loops can save.

    No instruction after an iteration uses the buffers that the iteration allocates. So buffers that are in use where an
    iteration ends are older than its begin, which bounds its length. The sum takes each possible end of an iteration;
    it is small for code whose instructions each use the result of the one before.
    """
    local, used = set(block.buffers), dict[records.DeviceBuffer, list[int]]()       # the first and the last node
    for k, node in enumerate(block.nodes):
        if type(node) is records.InstructionStep:
            tiles = type(node.op).tiles_in(node.op.__dict__)
        else:
            tiles = [tile for inner in records.nodes_in(records.Block([node])) for tile in records.tiles_of(inner)]
        for tile in tiles:
            if tile is not None and (buffer := tile.handle) in local:
                if buffer in used:
                    used[buffer][1] = k
                else:
                    used[buffer] = [k, k]
    spans, allocated = list(used.values()), 0                   # in the order of the first nodes
    live: list[list[int]] = []                                  # spans of buffers in use, the newest buffer last
    # the number of elements before each node; possible ends of iterations with their greatest lengths
    sizes, ends = [0], list[tuple[int, int]]()
    for end in range(1, len(block.nodes) + 1):
        while allocated < len(spans) and spans[allocated][0] < end:
            live.append(spans[allocated])
            allocated += 1
        while live and live[-1][1] < end:
            live.pop()
        sizes.append(end + allocated)
        longest = end - 1 - (live[-1][0] if live else -1)
        if longest:
            ends.append((end, longest))
    unused = len(local) - len(used)
    return unused + sum([sizes[min(end + longest, len(block.nodes))] - sizes[end] for end, longest in ends])


def may_repeat(block: records.Block, least: int) -> bool:
    """Return whether a loop of a block may save ``least`` instructions and allocations. Later iterations then have a
    sequence of as many that equals the one an iteration earlier, up to buffers and starts; an instruction comes with
    at most as many allocations as it has tiles. The kinds of the sequence, which take less time, mostly show that there
    is none.
    """
    if not all([type(node) is records.InstructionStep for node in block.nodes]):
        return True
    ops = [node.op for node in block.nodes]
    most_tiles = max([len(cls.tile_names) for cls in {type(op) for op in ops}], default=0)
    width = max(least // (1 + most_tiles), 1)
    return (has_equal_parts(numbered([op.kind() for op in ops]), width)
            and has_equal_parts(numbered([op.form() for op in ops]), width))


def numbered(keys: Sequence[Hashable]) -> "array[int]":
    """Return a number for each key, one for equal keys."""
    numbers: dict[Hashable, int] = {}
    return array("i", [numbers.setdefault(key, len(numbers)) for key in keys])


def has_equal_parts(numbers: "array[int]", width: int) -> bool:
    """Return whether a sequence of ``width`` numbers occurs twice."""
    data, size = numbers.tobytes(), numbers.itemsize
    parts = set[bytes]()
    for start in range(0, len(data) - width * size + 1, size):
        part = data[start:start + width * size]
        if part in parts:
            return True
        parts.add(part)
    return False


# -- the sequence ------------------------------------------------------------------------------------------------------
def items_of(block: records.Block, lines: bool = False) -> list[Item[Element]]:
    """Return the nodes of a block, each after the buffers that it is the first to use."""
    items: list[Item[Element]] = []
    unused = dict.fromkeys(block.buffers)
    definitions: dict[records.DeviceBuffer, Item[Element]] = {}

    def define(buffer: records.DeviceBuffer, user: object) -> None:
        del unused[buffer]
        item = definitions[buffer] = Item(form_of_buffer(buffer, user), (), [], buffer)
        items.append(item)

    for node in block.nodes:
        if type(node) is not records.InstructionStep:
            handles = [tile.handle for inner in records.nodes_in(records.Block([node]))
                       for tile in records.tiles_of(inner)]
            for handle in handles:
                if handle in unused:
                    define(handle, None)
            items.append(Item(object(), (), [], node, [definitions.get(handle) for handle in handles]))
            continue
        op = node.op
        values = op.__dict__
        starts: list[int] = []
        handles = []
        still: list[object] = []
        forms: list[object] = []
        for name in op.tile_names:
            tile: Tile | None = values[name]
            if tile is None:
                forms.append(None)
                continue
            forms.append(tile._form or tile.form)
            access, handle = tile.access, tile.handle
            handles.append(handle)
            if access.partition is not None:
                still.append(access.partition.const)
            (still if tile.space == PSUM else starts).append(access.free.const)
            if handle not in definitions and handle not in unused:
                still.append(handle)
        form = object() if op.symbols or op.acts_outside else (
            op.kind(), *forms, None if lines else node.location, op.mask, op.limits, *op.extra.items(), *still)
        for handle in handles:
            if handle in unused:
                define(handle, form)
        items.append(Item(form, tuple(starts), [definitions.get(handle, handle) for handle in handles], node))
    for buffer in list(unused):
        define(buffer, None)
    return items


def form_of_buffer(buffer: records.DeviceBuffer, user: object) -> object:
    """Return the properties that equal buffers of iterations share, if an instruction of the form ``user`` is the first
    to use them. Buffers at addresses that the kernel chose are never equal."""
    if buffer.fixed or buffer.addresses or buffer.attributes:
        return object()
    return buffer.space, buffer.shape, buffer.dtype, user


# -- the loops ---------------------------------------------------------------------------------------------------------
def append(block: records.Block, item: Item[Element], moves: Moves) -> None:
    """Append an item, which is in the loops of ``moves``, to a block."""
    element = item.operation
    if item.loop is not None:
        block.nodes.append(loop_of(item.loop, moves))
    elif type(element) is records.DeviceBuffer:
        block.buffers.append(element)
    elif type(element) is records.InstructionStep:
        block.nodes.append(moved(element, [(variable, steps) for variable, steps in moves if any(steps)]))
    else:
        block.nodes.append(element)


def loop_of(repetition: Repetition[Element], moves: Moves) -> records.Loop:
    variable, body = records.LoopVariable("i", 0, repetition.count - 1), records.Block()
    ranges = pairwise(accumulate([len(item.starts) for item in repetition.body], initial=0))
    for item, steps, (start, stop) in zip(repetition.body, repetition.steps, ranges):
        append(body, item, [*[(outer, of_loop[start:stop]) for outer, of_loop in moves], (variable, steps)])
    location = next((node.location for node in records.nodes_in(body) if node.location is not None), None)
    return records.Loop(variable, range(repetition.count), body, location)


def moved(step: records.InstructionStep, moves: Moves) -> records.InstructionStep:
    """Return an instruction whose tiles move in each iteration of these loops."""
    if not moves:
        return step
    distances = zip(*[steps for _, steps in moves])

    def moved_tile(tile: Tile) -> Tile:
        if tile.space == PSUM:
            return tile
        start = Linear(tile.access.free.const, tuple([(k, by) for k, by in enumerate(next(distances)) if by]))
        return tile.starting(tile.handle, replace(tile.access, free=start))
    return step.with_op(changed(step.op, moved_tile, symbols=tuple([variable for variable, _ in moves]),
                                ranges=tuple([(variable.low, variable.high) for variable, _ in moves])))
