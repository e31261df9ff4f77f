# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""split-columns: load and compute a large tile some columns at a time, so that engines begin before all is loaded.

before:  t = load x[:, 0:8192]          after:  t[:, 0:4096] = load x[:, 0:4096]; u[:, 0:4096] = exp t[:, 0:4096]
         u = exp t                              t[:, 4096:8192] = load x[:, 4096:8192]; u[:, 4096:8192] = ...

An engine waits for the complete tile that an instruction reads. The pass splits loads, stores, and instructions that
compute each element by itself along their first free axis into ``pieces`` of equal size, each of at least ``LEAST``
elements in a partition. It splits code that loads such tiles, none of them twice: else loads wait until the tile is
free, in pieces or not. A piece comes before the second pieces of earlier instructions where it does not depend on them.
An instruction whose result overlaps an operand with another pattern stays, because a piece would read what an earlier
one has written. Each value is computed as before.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from math import prod

from nki_mlir.dialects.access import HBM, SBUF, Linear, Tile
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import Dependences, separate_memory, touched
from nki_mlir.targets.neuron.codegen.fuse_instructions import plain
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.schedule_instructions import NO_REORDER, runs_of

LEAST = 512                     # elements of a piece in each partition: below, the fixed time of instructions counts
FEW = 64                        # instructions of code that is split: in longer code, other tiles fill the time
ROUND = 64                      # elements: the widths of pieces are multiples
AXIS = 1                        # the first one after the partitions


class SplitColumns(RecordsPass, name="split-columns", reads=Level.NISA):
    pieces: int = 4             # into how many pieces tiles are split

    def rewritten(self, code: Code) -> None:
        split_columns(code, self.pieces)


def split_columns(code: Code, pieces: int) -> int:
    """Split instructions in place, and return how many."""
    split_count = 0
    for block in blocks(code.body):
        for run in list(runs_of(block.nodes)):
            if loads_large_tile(run, pieces):
                parts = [split(step, pieces) for step in run]
                begin = next(at for at, node in enumerate(block.nodes) if node is run[0])
                block.nodes[begin:begin + len(run)] = by_pieces(parts)
                split_count += sum(len(part) > 1 for part in parts)
    return split_count


def has_large_loads(code: Code, pieces: int) -> bool:
    """Return whether code loads a tile that may be split into pieces."""
    return any(loads_large_tile(run, pieces) for block in blocks(code.body) for run in runs_of(block.nodes))


def loads_large_tile(run: Sequence[InstructionStep], pieces: int) -> bool:
    """Return whether a short run may be split: it loads large tiles, each once."""
    if len(run) > FEW or any(NO_REORDER in step.op.extra for step in run):
        return False
    loaded = [step.op.dst.handle for step in run if type(step.op) is DmaCopyOp and step.op.src.space == HBM
              and len(split(step, pieces)) > 1]
    return 0 < len(loaded) == len(set(loaded))


def split(step: InstructionStep, pieces: int) -> list[InstructionStep]:
    """Return the steps that compute the pieces of a step's tiles; the step alone if it stays whole."""
    op = step.op
    if not has_columns(op):
        return [step]
    tiles = {field.name: tile for field, tile in op.operands()}
    shape = next(iter(tiles.values())).shape
    count = shape[AXIS]
    if count < pieces or prod(shape[AXIS:]) < LEAST * pieces:
        return [step]
    width = -(-count // pieces)
    if width >= ROUND:
        width = -(-width // ROUND) * ROUND
    return [step.with_op(changed(op, None, **{
        name: columns_of(tile, start, min(width, count - start)) for name, tile in tiles.items()}))
        for start in range(0, count, width)]


def has_columns(op: Op) -> bool:
    """Return whether an instruction computes columns of its result from the same columns of its operands."""
    if op.mask or op.limits or op.symbols or op.extra or op.has_linear_attributes or op.index_forms():
        return False
    if type(op) is DmaCopyOp:
        return moves_columns(op)
    operands = op.operands()
    if not plain(op) or not op.is_loop_nest or op.partition_group > 1 or any(tile.space == HBM for _, tile in operands):
        return False
    iteration = op.iteration()
    if len(iteration.extents) <= AXIS or AXIS not in op.axes_apart(iteration) or any(
            tile.handle is target.handle and tile.access != target.access
            for _, target in op.targets() for _, tile in operands):
        return False
    return all(iteration.axes[field.name][AXIS:AXIS + 1] == (AXIS,) and iteration.axes[field.name].count(AXIS) == 1
               and tile.shape[AXIS] == iteration.extents[AXIS] for field, tile in operands)


def moves_columns(op: DmaCopyOp) -> bool:
    """Return whether a copy moves a tile between HBM and SBUF, element by element in order."""
    return {op.src.space, op.dst.space} == {HBM, SBUF} and op.src.shape == op.dst.shape and len(op.src.shape) > AXIS


def columns_of(tile: Tile, start: int, count: int) -> Tile:
    """Return ``count`` columns of a tile, from ``start`` on."""
    access = tile.access
    by = access.dims[AXIS][0]
    return tile.patterned(free=access.free.plus(Linear(by * start)),
                          dims=(*access.dims[:AXIS], (by, count), *access.dims[AXIS + 1:]))


def by_pieces(parts: Sequence[Sequence[InstructionStep]]) -> list[InstructionStep]:
    """Return the pieces of all steps in an order that their dependences allow: first pieces first, each in the order
    of the steps."""
    steps = list(chain.from_iterable(parts))
    ranks = [(piece, k) for k, part in enumerate(parts) for piece in range(len(part))]
    dependences = Dependences(touched(steps, separate_memory), every=True)
    later: list[list[int]] = [[] for _ in steps]
    waits = [0] * len(steps)
    for k in range(len(steps)):
        earlier = dependences.add(k, k)
        waits[k] = len(earlier)
        for other in earlier:
            later[other].append(k)
    ready = [(ranks[k], k) for k in range(len(steps)) if not waits[k]]
    heapify(ready)
    order = list[InstructionStep]()
    while ready:
        _, k = heappop(ready)
        order.append(steps[k])
        for other in later[k]:
            waits[other] -= 1
            if not waits[other]:
                heappush(ready, (ranks[other], other))
    return order
