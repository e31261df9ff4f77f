# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fill-partitions: let the iterations of a loop over rows take as many rows as there are partitions.

before:  for i in 0 to 46:               after:  for i in 0 to 31:
           t[p] = x[89 i + p]  (89 rows)           t[p] = x[128 i + p]  (128 rows)
           u = exp t                               u = exp t
           y[89 i + p] = u                         y[128 i + p] = u
                                                 the last 126 rows in the same way

An instruction takes as long for all partitions as for some, and a tile of few partitions occupies few DMA engines. The
rows move to other iterations and partitions, so the pass applies to loops whose instructions compute each partition by
itself, equally in all partitions, and whose iterations store disjoint rows, each after those of the iteration before.
It changes a loop if at most 9 of 10 iterations remain, and at least ``least``, and if neither other iterations nor
other loops load the same tiles, which ``reuse-loads`` then keeps. Tiles that iterations share, such as a row of factors
for all partitions, get the other partitions, too.
"""

from dataclasses import replace
from functools import partial
from itertools import combinations

from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.interleave_rows import EqualPartitions, computes_partitions_apart, is_simple
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Code,
    DeviceBuffer,
    InstructionStep,
    Loop,
    LoopVariable,
    blocks,
    tiles_of,
)

LEAST = 4                       # least iterations that remain: the first and the last ones overlap with fewer others
GAIN = 0.9                      # at most this part of the iterations remains


class FillPartitions(RecordsPass, name="fill-partitions", reads=Level.NISA):
    least: int = LEAST          # least iterations of a loop that remain

    def rewritten(self, code: Code) -> None:
        fill_partitions(code, self.least)


def fill_partitions(code: Code, least: int = LEAST) -> int:
    """Give all partitions to iterations of loops over rows, in place. Return the number of changed loops."""
    if all([type(node) is InstructionStep for node in code.body.nodes]):
        return 0                                # without loops
    equal, most, changed_loops = EqualPartitions(code), code.machine.partitions, 0
    loading = loading_blocks(code)
    shared = set[DeviceBuffer]()
    for block in list(blocks(code.body)):
        for at, loop in reversed([*enumerate(block.nodes)]):
            if type(loop) is not Loop or (rows := rows_of_iteration(loop, most, equal)) is None or any(
                    len(loading[key]) > 1 for key in loaded_rows(loop.body)):
                continue
            full, last = divmod(len(loop.span) * rows, most)
            if least <= full + bool(last) <= len(loop.span) * GAIN:
                parts = (range(full), most), (range(full, full + bool(last)), last)
                block.nodes[at:at + 1] = [filled(loop, span, most, count) for span, count in parts if span]
                changed_loops += 1
                shared |= {tile.handle for step in loop.body.nodes for tile in tiles_of(step)
                           if tile.on_chip and tile.handle not in loop.body.buffers
                           and tile.access.dims[0][0] and tile.base_shape[0] < most}
    if shared:
        widen(code, with_sources(shared, most, equal), most)
    return changed_loops


# -- which loops -------------------------------------------------------------------------------------------------------
def loading_blocks(code: Code) -> dict[object, set[Block]]:
    """Return the blocks that load rows of a tensor in tiles of the same form as another block. One load may serve
    several of them."""
    loading: dict[object, set[Block]] = {}
    for block in blocks(code.body):
        for key in loaded_rows(block):
            loading.setdefault(key, set()).add(block)
    return loading


def loaded_rows(block: Block) -> list[tuple[DeviceBuffer, object]]:
    """Return the tensors whose rows the steps of a block load, each with the form of its tiles."""
    return [(tile.handle, tile.access.dims) for step in block.nodes if type(step) is InstructionStep
            for _, tile in step.op.sources() if tile.space == HBM and tile.access.dims[0][0]]


def rows_of_iteration(loop: Loop, most: int, equal: EqualPartitions) -> int | None:
    """Return how many rows an iteration takes, one in each partition, if other iterations may take them instead; else
    None."""
    locals_ = set(loop.body.buffers)
    if any(buffer.fixed or buffer.addresses or buffer.attributes or buffer.space == HBM for buffer in locals_):
        return None
    partitions = {buffer.shape[0] for buffer in locals_}
    if len(partitions) != 1 or not 1 < (rows := partitions.pop()) < most:
        return None
    stored, loads = list[DeviceBuffer](), list[Tile]()
    for step in loop.body.nodes:
        if type(step) is not InstructionStep or not is_simple(step.op):
            return None
        homes = [tile for tile in tiles_of(step) if tile.space == HBM]
        if homes:
            if type(step.op) is not DmaCopyOp or len(homes) > 1 or not moves_by_rows(homes[0], step, loop, rows):
                return None
            if step.op.dst.space == HBM:
                stored.append(homes[0].handle)
            else:
                loads.append(homes[0])
        elif step.op.queued or step.op.symbols or not computes_partitions_apart(step.op):
            return None
        written = {tile.handle for _, tile in step.op.targets()}
        if any(tile.space != HBM and not fits(tile, rows, most, locals_, tile.handle in written, equal)
               for tile in tiles_of(step)):
            return None
    if len(set(stored)) < len(stored) or any(tile.handle in stored for tile in loads):
        return None
    return None if any(loads_of_iterations_meet(*pair, rows) for pair in combinations(loads, 2)) else rows


def loads_of_iterations_meet(first: Tile, second: Tile, rows: int) -> bool:
    """Return whether an iteration loads data by one tile that another iteration loads by the other: one load is then
    enough."""
    between = first.access.free.const - second.access.free.const
    return first.handle is second.handle and first.access.dims == second.access.dims and between != 0 and (
        first.access.dims[0][0] != 0 and between % (rows * first.access.dims[0][0]) == 0)


def moves_by_rows(home: Tile, step: InstructionStep, loop: Loop, rows: int) -> bool:
    """Return whether a tile in HBM has the rows after those of the previous iteration or, if a load reads it, the same
    row for all partitions and iterations. Rows that a store writes are disjoint."""
    (by, count), *row = home.access.dims
    symbols, stores = step.op.symbols, any(tile.space == HBM for _, tile in step.op.targets())
    if count != rows or home.dtype is not home.base_dtype or not all(type(s) is LoopVariable for s in symbols):
        return False
    moves = [c for position, c in home.access.free.symbols if symbols[position] is loop.variable]
    if not moves:
        return by == 0 and not stores
    if len(moves) > 1 or by <= 0 or moves[0] * loop.span.step != rows * by:
        return False
    return not stores or (all(step >= 0 for step, _ in row) and sum([step * (n - 1) for step, n in row]) < by)


def fits(tile: Tile, rows: int, most: int, locals_: set[DeviceBuffer], written: bool, equal: EqualPartitions) -> bool:
    """Return whether a tile on chip has a partition for each row of an iteration, and may have one for ``most`` rows.
    """
    start = tile.access.partition
    if tile.space not in (SBUF, PSUM) or start is None or start.symbols or tile.access.free.symbols:
        return False
    if tile.handle in locals_:
        return start.const == 0 and tile.access.dims[0] == (1, rows)
    return not written and (tile.access.dims[0] == (0, rows) or has_equal_rows(tile, rows, most, equal))


def has_equal_rows(tile: Tile, rows: int, most: int, equal: EqualPartitions) -> bool:
    """Return whether a tile on chip has ``rows`` equal rows, in a buffer that has or could have ``most`` rows."""
    start = tile.access.partition
    if start is None or start.symbols or tile.access.dims[0] != (1, rows) or not equal.holds(tile.handle):
        return False
    buffer: DeviceBuffer = tile.handle
    if start.const + most <= buffer.shape[0]:
        return True
    return buffer.shape[0] == rows and not (buffer.fixed or buffer.addresses or buffer.attributes) and all(
        source.access.dims[0] == (0, rows) or (source.on_chip and has_equal_rows(source, rows, most, equal))
        for op in equal.writers[buffer] for _, source in op.sources())


# -- the new loops -----------------------------------------------------------------------------------------------------
def filled(loop: Loop, span: range, most: int, count: int) -> Loop:
    """Return a loop over the same rows, whose iterations begin ``most`` rows apart and have ``count`` rows."""
    variable = replace(loop.variable, low=span[0], high=span[-1])
    wider = {buffer: replace(buffer, shape=(count, *buffer.shape[1:])) for buffer in loop.body.buffers}
    body = Block(buffers=[*wider.values()])
    for step in loop.body.nodes:
        symbols = step.op.symbols

        def tile_in(tile: Tile, symbols: tuple[object, ...] = symbols) -> Tile:
            (by, _), *row = tile.access.dims
            free = tile.access.free
            if tile.space == HBM:
                moves = dict([(position, symbols[position] is loop.variable) for position, _ in free.symbols])
                start = free.const + sum([c * loop.span[0] for position, c in free.symbols if moves[position]])
                free = Linear(start, tuple([(position, by * most if moves[position] else c)
                                            for position, c in free.symbols]), free.axes)
            tile = tile.patterned(dims=((by, count), *row), free=free)
            buffer = wider.get(tile.handle)
            return tile if buffer is None else replace(tile, handle=buffer, base_shape=buffer.shape)
        new_symbols = tuple([variable if symbol is loop.variable else symbol for symbol in symbols])
        body.nodes.append(step.with_op(changed(step.op, tile_in, symbols=new_symbols,
                                               ranges=tuple([(s.low, s.high) for s in new_symbols]))))
    return Loop(variable, span, body, loop.location, loop.attributes)


# -- tiles that iterations share ---------------------------------------------------------------------------------------
def with_sources(shared: set[DeviceBuffer], most: int, equal: EqualPartitions) -> dict[DeviceBuffer, DeviceBuffer]:
    """Return buffers of ``most`` partitions in place of these and of those from which they are computed."""
    wider: dict[DeviceBuffer, DeviceBuffer] = {}
    remaining = list(shared)
    while remaining:
        buffer = remaining.pop()
        if buffer not in wider:
            wider[buffer] = replace(buffer, shape=(most, *buffer.shape[1:]))
            remaining += [tile.handle for op in equal.writers[buffer] for _, tile in op.sources()
                          if tile.on_chip and tile.access.dims[0][0] and tile.base_shape[0] < most]
    return wider


def widen(code: Code, wider: dict[DeviceBuffer, DeviceBuffer], most: int) -> None:
    """Replace buffers by wider ones. Instructions that write them write all partitions."""
    def tile_of(tile: Tile, writes: bool) -> Tile:
        if writes:
            (by, _), *row = tile.access.dims
            tile = tile.patterned(dims=((by, most), *row))
        buffer = wider.get(tile.handle)
        return tile if buffer is None else replace(tile, handle=buffer, base_shape=buffer.shape)
    for block in blocks(code.body):
        block.buffers = [wider.get(buffer, buffer) for buffer in block.buffers]
        for at, node in enumerate(block.nodes):
            if wider.keys().isdisjoint([tile.handle for tile in tiles_of(node)]):
                continue
            if type(node) is not InstructionStep:
                block.nodes[at] = replace(node, tile=tile_of(node.tile, False))
                continue
            writes = any(tile.handle in wider for _, tile in node.op.targets())
            block.nodes[at] = node.with_op(changed(node.op, partial(tile_of, writes=writes)))
