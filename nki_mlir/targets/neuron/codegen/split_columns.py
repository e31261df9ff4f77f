# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""split-columns: load and compute a large tile some columns at a time, so that engines begin earlier.

before:  t = load x[:, 0:8192]          after:  t[:, 0:4096] = load x[:, 0:4096]; u[:, 0:4096] = exp t[:, 0:4096]
         u = exp t                              t[:, 4096:8192] = load x[:, 4096:8192]; u[:, 4096:8192] = ...

An engine waits for the complete tile that an instruction reads. The pass splits loads, stores, and instructions that
compute each element by itself along their first free axis into ``pieces`` of equal size, each of at least ``LEAST``
elements in a partition. Others, such as products, begin when the pieces that they read are loaded. The pass splits only
code that loads no such tile twice: a second load waits until the tile is free, in pieces or not. A piece comes before
the second pieces of earlier instructions where it does not depend on them. An instruction whose result overlaps an
operand with another pattern stays, because a piece would read what an earlier one has written. A maximum or minimum of
the rows of a tile in pieces is that of the pieces' maxima or minima, and the eight greatest values (``nisa.max8``) are
among the eight greatest of each piece: one more instruction computes them. Each value is computed as before.
"""

from collections.abc import Sequence
from itertools import chain
from math import prod

from nki_mlir.dialects.access import HBM, SBUF, Access, Linear, Tile
from nki_mlir.dialects.instruction_order import is_pinned
from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.dialects.nisa.search import Max8Op
from nki_mlir.dialects.op import Op, changed
from nki_mlir.passes.levels import Level
from nki_mlir.targets.neuron.codegen.dependences import dependences_between, separate_memory, touched
from nki_mlir.targets.neuron.codegen.fuse_instructions import plain
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.ranked_order import ranked_order
from nki_mlir.targets.neuron.codegen.records import Block, Code, DeviceBuffer, InstructionStep, blocks
from nki_mlir.targets.neuron.codegen.schedule_instructions import runs_of
from nki_mlir.targets.neuron.timing.transfers import Transfers

# least elements of a piece in each partition: below, the fixed time of instructions counts
LEAST = 512
ROUND = 64                      # widths of pieces are multiples of this number of elements
AXIS = 1                        # the first one after the partitions
EXTREMA = Max8Op, TensorReduceOp


class SplitColumns(RecordsPass, name="split-columns", reads=Level.NISA):
    pieces: int = 4             # into how many pieces tiles are split

    def rewritten(self, code: Code) -> None:
        split_columns(code, self.pieces)


def split_columns(code: Code, pieces: int) -> int:
    """Split instructions in place, and return how many."""
    split_count = 0
    for block in blocks(code.body):
        for run in list(runs_of(block.nodes)):
            if large_loads(run, pieces):
                parts = parts_of(run, pieces, block)
                begin = next(at for at, node in enumerate(block.nodes) if node is run[0])
                block.nodes[begin:begin + len(run)] = by_pieces(parts)
                split_count += sum(len(part) > 1 for part in parts)
    return split_count


def loading_ns(code: Code, pieces: int) -> float:
    """Return ns that the loads of tiles which may be split into pieces take, one after the other."""
    transfers = Transfers(code.machine)
    return sum([max(transfers.of(op).parts) for block in blocks(code.body) for run in runs_of(block.nodes)
                for op in large_loads(run, pieces)])


def large_loads(run: Sequence[InstructionStep], pieces: int) -> list[DmaCopyOp]:
    """Return the loads of large tiles in a run, each of another buffer; none if the run may not be split."""
    if any(is_pinned(step.op) for step in run):
        return []
    loads = [step.op for step in run if type(step.op) is DmaCopyOp and step.op.src.space == HBM
             and len(split(step, pieces)) > 1]
    return loads if len({op.dst.handle for op in loads}) == len(loads) else []


def parts_of(run: Sequence[InstructionStep], pieces: int, block: Block) -> list[list[InstructionStep]]:
    """Return the steps that replace each step of a run. The block gets the buffers that they need."""
    in_pieces: set[DeviceBuffer] = set()        # buffers whose columns are written one piece after the other
    parts = []
    for step in run:
        part = split(step, pieces)
        if len(part) > 1:
            in_pieces.update(tile.handle for _, tile in step.op.targets())
        elif isinstance(step.op, EXTREMA) and step.op.src.handle in in_pieces:
            part = split_extremum(step, pieces, block)
        parts.append(part)
    return parts


def split(step: InstructionStep, pieces: int) -> list[InstructionStep]:
    """Return the steps that compute the pieces of a step's tiles; only the step if it is not divided."""
    op = step.op
    if not has_columns(op):
        return [step]
    tiles = {field.name: tile for field, tile in op.operands()}
    return [step.with_op(changed(op, None, **{name: columns_of(tile, *span) for name, tile in tiles.items()}))
            for span in spans_of(next(iter(tiles.values())).shape, pieces)] or [step]


def spans_of(shape: Sequence[int], pieces: int) -> list[tuple[int, int]]:
    """Return the first column of each piece of a tile and their number; none if the tile is not divided."""
    count = shape[AXIS]
    if count < pieces or prod(shape[AXIS:]) < LEAST * pieces:
        return []
    width = -(-count // pieces)
    if width >= ROUND:
        width = -(-width // ROUND) * ROUND
    return [(start, min(width, count - start)) for start in range(0, count, width)]


def split_extremum(step: InstructionStep, pieces: int, block: Block) -> list[InstructionStep]:
    """Return the steps that compute the extrema of each piece of a tile's rows, and those of all rows from these; the
    step if it is not divided."""
    op = step.op
    assert isinstance(op, EXTREMA)
    src, count = op.src, op.dst.shape[-1]       # ``count``: extrema of a row
    if op.mask or op.limits or op.symbols or op.extra or len(src.shape) > AXIS + 1 or not src.dtype.is_float or (
            isinstance(op, TensorReduceOp) and (op.op not in ("maximum", "minimum") or op.axes != (AXIS,))):
        return [step]
    spans = spans_of(src.shape, pieces)
    if not spans or spans[-1][1] < count:
        return [step]
    rows, dtype = src.shape[0], src.dtype       # an extremum is a value of ``src``, or zero
    buffer = DeviceBuffer("extrema", SBUF, (rows, count * len(spans)), dtype, location=step.location)
    block.buffers.append(buffer)
    access = Access(dtype, Linear(), Linear(), ((1, rows), (1, buffer.shape[1])))
    values = Tile(buffer, SBUF, buffer.shape, dtype, access, buffer.name)
    of_piece: dict[str, object] = {"negate": False} if isinstance(op, TensorReduceOp) else {}
    return [*(step.with_op(changed(op, None, dst=columns_of(values, count * k, count), src=columns_of(src, *span),
                                   **of_piece)) for k, span in enumerate(spans)),
            step.with_op(changed(op, None, src=values))]


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
    before = dependences_between(touched([step.op for step in steps], separate_memory), with_implied=True)
    return [steps[k] for k in ranked_order(before, ranks)]
