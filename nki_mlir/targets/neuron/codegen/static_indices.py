# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""static-indices: let transfers step through a table whose rows an iota counts, instead of reading the indices.

before:  i[p] = iota 13 - p;  t[p] = x[i[p]]            after:  t[p] = x[13 - p]

The pass needs an iota without symbols and without a mask that writes the complete tile of indices, before the
transfer in its block, and that nothing else writes. All indices must be rows of the table, and rows that are written
must differ. The pass drops an iota whose tile nothing reads any more.
"""

from dataclasses import replace
from math import prod

from nki_mlir.dialects.access import HBM, Linear, Tile, dense
from nki_mlir.dialects.nisa.dynamic_access import (
    DmaDynamicReadOp,
    DmaDynamicWriteOp,
    DynamicReadOp,
    DynamicWriteOp,
    PatternAddressed,
    RunTimeIndexed,
)
from nki_mlir.dialects.nisa.indirect import DataAddressed, DmaGatherOp, DmaScatterOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, IotaOp
from nki_mlir.passes.levels import Level
from nki_mlir.scalar.dtypes import INT32, UINT32
from nki_mlir.targets.neuron.codegen.fuse_instructions import Uses, uses_of
from nki_mlir.targets.neuron.codegen.mlir_records import RecordsPass
from nki_mlir.targets.neuron.codegen.records import Code, DeviceBuffer, InstructionStep, blocks

ADDRESSED = (DmaGatherOp, DmaScatterOp, DynamicReadOp, DynamicWriteOp, DmaDynamicReadOp, DmaDynamicWriteOp)


class StaticIndices(RecordsPass, name="static-indices", reads=Level.NISA):
    def rewritten(self, code: Code) -> None:
        static_indices(code)


def static_indices(code: Code) -> None:
    """Replace transfers in place."""
    uses: Uses | None = None
    for block in blocks(code.body):
        counted: dict[DeviceBuffer, InstructionStep] = {}           # transfers by their tiles of indices
        dropped: set[InstructionStep] = set()
        for node in block.nodes:
            if type(node) is not InstructionStep:
                continue
            if type(node.op) is IotaOp and _counts_all(node.op):
                counted[node.op.dst.handle] = node
            elif type(node.op) in ADDRESSED and isinstance(node.op, DataAddressed):
                index = index_of(node.op).handle
                if index not in counted:
                    continue
                uses = uses or uses_of(code)
                iota, index_uses = counted[index], uses[index]
                assert isinstance(iota.op, IotaOp)
                copy = as_copy(node.op, iota.op) if index_uses.free and [*index_uses.writers] == [iota] else None
                if copy is not None:
                    node.op, node.work = copy, None
                    del index_uses.readers[node]
                    if not index_uses.readers:
                        dropped.add(iota)
        if dropped:
            block.nodes = [node for node in block.nodes if node not in dropped]


def _counts_all(op: IotaOp) -> bool:
    """Return whether an iota writes each element of its buffer in order, from numbers known to the compiler."""
    dst, partition = op.dst, op.dst.access.partition
    return not (op.mask or op.limits or op.symbols) and dst.dtype in (INT32, UINT32) and (
        prod(dst.shape[1:]) == 1 and dst.shape[0] == dst.handle.shape[0] and dst.row == 1
        and partition is not None and not partition.const and dst.access.dims[0][0] == 1)


def index_of(op: DataAddressed) -> Tile:
    return op.offset if isinstance(op, RunTimeIndexed) else op.index        # type: ignore[attr-defined]


def as_copy(op: DataAddressed, iota: IotaOp) -> DmaCopyOp | None:
    """Return the transfer that steps through the table as the tile of indices counts; None if none does."""
    index: Tile = index_of(op)
    piece, table = op.piece, op.table
    is_write = op.addressed_by_data == "dst"
    if table.space != HBM or op.mask or op.limits or op.rmw != "bypass" or index.access.symbols_used():
        return None
    rows, moved = index.shape[0], index.access
    assert moved.partition is not None
    step = dict(iota.expression.axes).get(0, 0) * moved.dims[0][0]
    first = iota.expression.const + dict(iota.expression.axes).get(0, 0) * moved.partition.const
    last = first + step * (rows - 1)
    bounded = _bounded(op, piece.shape, first, last)
    if bounded is None or (is_write and not step and rows > 1):
        return None
    if isinstance(op, PatternAddressed | RunTimeIndexed):
        position, scale = bounded
        if (rows == 1) != (piece.shape[0] == 1):
            return None
        steps, start = [dict(position.axes).get(axis, 0) for axis in range(len(piece.shape))], position.const
        steps[0], start = steps[0] + scale * step, start + scale * first
        ends = [start + sum(min(0, s * (n - 1)) for s, n in zip(steps, piece.shape)),
                start + sum(max(0, s * (n - 1)) for s, n in zip(steps, piece.shape))]
        unit = table.access.dims[-1][0]
        if ends[0] < 0 or ends[1] >= prod(table.shape) or (is_write and not _has_distinct_elements(steps, piece.shape)
                                                           ) or not _is_contiguous(table):
            return None
        dims = tuple((unit * s, n) for s, n in zip(steps, piece.shape))
    else:
        (unit, _), *inner = table.access.dims
        dims, start = ((unit * step, rows), *inner), first
    walked = replace(table, access=replace(table.access, free=table.access.free.plus(Linear(unit * start)), dims=dims))
    dst, src = (walked, piece) if is_write else (piece, walked)
    return DmaCopyOp(dst=dst, src=src, symbols=op.symbols, ranges=op.ranges, extra=op.extra)


def _bounded(op: DataAddressed, counts: tuple[int, ...], first: int, last: int) -> tuple[Linear, int] | None:
    """Return the position to which a transfer adds an index times a scale, and that scale; None if an index between
    ``first`` and ``last`` may exceed the bounds of the table."""
    position, start, scale, extent = Linear(), Linear(), 1, op.table.shape[0]
    if isinstance(op, PatternAddressed):
        position = Linear(op.start, (), tuple(enumerate(op.steps)))
        scale, extent = op.scale, op.extent
    elif isinstance(op, RunTimeIndexed):
        if len(op.scales) != 1 or op.position.symbols or op.first.symbols:
            return None
        position, start, (scale,), (extent,) = op.position, op.first, op.scales, op.extents
    low, high = start.interval((), counts)
    return (position, scale) if 0 <= min(first, last) + low and max(first, last) + high < extent else None


def _is_contiguous(table: Tile) -> bool:
    """Return whether the elements of a table in HBM, row by row, are at one step."""
    unit = table.access.dims[-1][0]
    return all(n == 1 or step == unit * other for (step, n), other in zip(table.access.dims, dense(table.shape)))


def _has_distinct_elements(steps: list[int], counts: tuple[int, ...]) -> bool:
    """Return whether nested steps show that all elements of a pattern have different addresses."""
    reach = 0
    for step, count in sorted(((abs(s), n) for s, n in zip(steps, counts) if n > 1)):
        if step <= reach:
            return False
        reach += step * (count - 1)
    return True
