# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies whose addresses have a run-time part: an access pattern whose start is read from a tile, columns by offsets,
indices of one or two dimensions of a tensor.

For patterns and columns the table is a complete buffer ([1, N] in HBM, [P, N] on chip). A pattern gives the other
tile's elements their positions in a row of it; the index tile moves them by one value, or by one value for each row.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.nisa.indirect import DataAddressed, IndirectOutOfBounds
from nki_mlir.dialects.op import In, Integers, Iteration, Out, with_separate_axes
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.dtypes import INT32, UINT32, convert

GROUPS = (Machine.gpsimd_group, Machine.quadrant)


class PositionOutOfBounds(IndirectOutOfBounds):
    why = "an index tile has the value {row}, which moves an access to element {index} of {size}"


class PatternAddressed(DataAddressed):
    """Base of reads and writes by a pattern. Element ``i`` of the piece is at this position in a row of the table:

    ``start + sum(steps[k] * i[k]) + scale * index``, where the value of ``index`` is below ``extent``.
    """

    index: In
    start: int
    steps: Integers
    scale: int
    extent: int
    mode: str = "error"
    law, walked = "dynamic_copy", "piece"

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.dtype("index", INT32, UINT32)
        check.spaces("index", "sbuf")
        rows = self.piece.shape[0]
        check.rule(len(self.steps) == len(self.piece.shape),
                   f"must have {len(self.piece.shape)} steps, one for each dimension, got {len(self.steps)}",
                   f"give {len(self.piece.shape)} steps")
        check.rule(prod(self.index.shape) in (1, rows),
                   f"takes one index, or one for each row, got {list(self.index.shape)}",
                   f"give the index the shape [1, 1] or [{rows}, 1]")
        check.rule(self.table.shape[0] in (1, rows), f"the table must have 1 or {rows} rows, got {self.table.shape[0]}",
                   f"give the table 1 or {rows} rows")

    def addresses(self, table: np.ndarray, shape_of_tile: tuple[int, ...], index: np.ndarray
                  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row and the column of the table that each element of a tile addresses, and whether they are in
        bounds. In the mode ``error``, raise an error for the first that is not."""
        rank = len(shape_of_tile)
        along = [np.arange(n).reshape(-1, *(1,) * (rank - 1 - k)) for k, n in enumerate(shape_of_tile)]
        values = index.reshape(-1).astype(np.int64)
        inside = (values >= 0) & (values < self.extent)
        if self.mode == "error" and not inside.all():
            row = int(values[~inside][0])
            raise IndirectOutOfBounds(index=self.start + row * self.scale, size=table.size, row=row, rows=self.extent)
        shape = (-1, *(1,) * (rank - 1))
        columns = self.start + sum(a * s for a, s in zip(along, self.steps)) + values.reshape(shape) * self.scale
        columns = np.broadcast_to(columns, shape_of_tile)
        within_bounds = (columns >= 0) & (columns < table.shape[1]) & inside.reshape(shape)
        if self.mode == "error" and not within_bounds.all():
            position = tuple(np.argwhere(~within_bounds)[0])
            raise PositionOutOfBounds(index=int(columns[position]), size=table.shape[1], rows=self.extent,
                                      row=int(values[position[0] if values.size > 1 else 0]))
        rows = np.broadcast_to(along[0] if table.shape[0] > 1 else 0, shape_of_tile)
        return rows, columns, within_bounds

    def reachable(self) -> Tile:
        """Return the table from the first position of index 0 to the last one of the greatest index."""
        rows, *columns = self.table.shape
        if len(columns) != 1:
            return self.table
        ends = [step * (count - 1) for step, count in zip(self.steps, self.piece.shape)]
        ends.append(self.scale * (self.extent - 1))
        low = max(0, self.start + sum(min(0, end) for end in ends))
        high = min(columns[0], self.start + sum(max(0, end) for end in ends) + 1)
        if low >= high:
            return self.table
        return replace(self.table, access=self.table.access.box((0, low), (rows, high - low)))

    def selected(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        table = tiles[self.addressed_by_data]
        table = table.reshape(len(table), -1)
        rows, columns, within_bounds = self.addresses(table, self.piece.shape, tiles["index"])
        return np.where(within_bounds, rows * table.shape[1] + columns, -1)


class DynamicReadOp(PatternAddressed, name="dynamic_read", engines=(Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR),
                    mnemonic="DYNAMIC_READ", opcode=0x70):
    """dst[i...] = src.flat[start + steps * i + scale * index]; ``mode`` skip leaves elements out of
    bounds untouched."""

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, index = sources
        table = src.reshape(src.shape[0], -1)
        rows, columns, within_bounds = self.addresses(table, self.dst.shape, index)
        return self.read(before, table, (rows, columns), within_bounds)


class DynamicWriteOp(PatternAddressed, name="dynamic_write", engines=(Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR),
                     mnemonic="DYNAMIC_WRITE", opcode=0x71):
    """dst.flat[start + steps * i + scale * index] = src[i...], or added to it with ``rmw`` add."""

    rmw: str = "bypass"
    addressed_by_data = "dst"

    def reference(self, dst: np.ndarray, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        written = dst.reshape(dst.shape[0], -1).copy()
        rows, columns, within_bounds = self.addresses(written, src.shape, index)
        self.write(written, (rows, columns), src, within_bounds)
        return written.reshape(dst.shape)


def shared_offsets(index: np.ndarray, group: int, count: int) -> np.ndarray:
    """Return [P, count]: the offsets of each partition. A group of partitions shares the offsets of its rows, partition
    by partition."""
    p = index.shape[0]
    columns = index.reshape(p, -1).astype(np.int64)
    offsets = np.empty((p, count), np.int64)
    for start in range(0, p, group):
        rows = columns[start:start + group]
        offsets[start:start + group] = rows.flatten(order="F")[:count]
    return offsets


class ColumnsAddressed(DataAddressed):
    """Base of gathering and scattering columns of a tile by offsets that ``group`` partitions share."""

    index: In
    group: int = Machine.gpsimd_group

    def iteration(self) -> Iteration:
        operands = self.operands()
        return with_separate_axes(operands[0][1].shape[:1], operands, lambda name, tile: 1)

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.one_of("group", GROUPS)
        check.spaces("index", "sbuf")
        check.integers("index")
        check.same_partitions("dst", "src", "index")
        rows, count = self.index.shape[0], self.piece.free_elements
        offsets = self.index.free_elements * (rows % self.group or min(rows, self.group))
        check.rule(offsets >= count, "takes an offset for each element of a row from the partitions that share "
                   f"offsets, got {offsets} for {count}", "give the index more columns")

    def verify_target(self, check: TargetCheck) -> None:
        check.need(4, "an operand with .indirect()", "gather with nisa.local_gather")

    def selected(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        columns, length = shared_offsets(tiles["index"], self.group, self.piece.free_elements), self.table.free_elements
        check_columns(columns, length)
        return (np.arange(len(columns))[:, None] * length + columns).reshape(self.piece.shape)

    def work(self) -> Work:
        """The engine takes time for each element of a row of the piece: the law ``gather``."""
        return Work("gather", self.operands()[0][1].free_elements)


class GatherColumnsOp(ColumnsAddressed, name="gather_columns", engines=(Engine.VECTOR,), mnemonic="GATHER_COLUMNS",
                      opcode=0x72):
    """dst[p, j] = src.flat[p, offset(p, j)]."""

    dst: Out

    def reference(self, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        flat = src.reshape(src.shape[0], -1)
        columns = shared_offsets(index, self.group, self.dst.free_elements)
        check_columns(columns, flat.shape[1])
        return np.take_along_axis(flat, columns, 1).reshape(self.dst.shape)


class ScatterColumnsOp(ColumnsAddressed, name="scatter_columns", engines=(Engine.VECTOR,), mnemonic="SCATTER_COLUMNS",
                       opcode=0x73):
    """dst.flat[p, offset(p, j)] = src[p, j]; other elements of dst stay."""

    addressed_by_data = "dst"

    def reference(self, dst: np.ndarray, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        written = dst.reshape(dst.shape[0], -1).copy()
        columns = shared_offsets(index, self.group, self.src.free_elements)
        check_columns(columns, written.shape[1])
        values = convert(src, self.dst.dtype, self.src.dtype).reshape(src.shape[0], -1)
        np.put_along_axis(written, columns, values, 1)
        return written.reshape(dst.shape)


def check_columns(columns: np.ndarray, length: int) -> None:
    if columns.size and (columns.min() < 0 or columns.max() >= length):
        column = int(columns.min() if columns.min() < 0 else columns.max())
        raise IndirectOutOfBounds(index=column, size=length, row=column, rows=length)


# -- indices of one or two dimensions of a tensor ----------------------------------------------------------------------
# Element e of the piece is at index ``position(e) + sum(scales[k] * offset[k])`` of the table, which is counted row by
# row: on chip in each partition separately, in a DMA transfer over the complete table. Index k of the element,
# ``first(e)`` or ``second(e)`` plus ``offset[k]``, is below ``extents[k]``: the dimension bounds it.

MOST_INDICES = 2


class RunTimeIndexed(DataAddressed):
    """Base of reads and writes with indices of one or two dimensions, by an engine and by DMA.

    ``offset`` is [1, k], for k indices; for a transfer also [N, k], one row of indices for each row of the piece.
    """

    table_apart = False         # whether rows of the table are not those of the piece
    offset: In
    position: Linear
    first: Linear
    second: Linear = Linear()
    scales: Integers = (1,)
    extents: Integers

    def index_forms(self) -> tuple[Linear, ...]:
        return (self.position, self.first, self.second)

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.spaces("offset", "sbuf")
        check.dtype("offset", INT32, UINT32)
        count = len(self.scales)
        check.rule(1 <= count <= MOST_INDICES and len(self.extents) == count,
                   f"one or two dimensions can have run-time indices, each with a scale and an extent, got {count}",
                   "let the other dimensions have fixed indices")
        check.rule(self.offset.free_elements == count and self.offset.shape[0] in (1, self.piece.shape[0]),
                   f"the offset tile must be [1, {count}], or have a row for each row of the piece",
                   "give it such a shape")

    def goes_with_piece(self, field: str) -> bool:
        return self.offset.shape[0] != 1 if field == "offset" else not self.table_apart

    def flat_offsets(self, shape: tuple[int, ...], length: int, offset: np.ndarray, position: np.ndarray,
                     first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (offsets, whether all indices are in bounds) of a piece. An index outside is an error unless it is
        skipped."""
        of_piece = (slice(None),) * len(shape) + (0,) * (position.ndim - len(shape))
        columns = offset.reshape(offset.shape[0], -1).astype(np.int64)
        offsets, within_bounds, axis_indices = position[of_piece], np.ones(shape, np.bool_), []
        for column, (index, scale, extent) in enumerate(zip((first, second), self.scales, self.extents)):
            value = columns[:, column].reshape(-1, *(1,) * (len(shape) - 1))
            at = index[of_piece] + value
            within_bounds = within_bounds & (at >= 0) & (at < extent)
            offsets = offsets + scale * value
            axis_indices.append(np.broadcast_to(at, shape))
        within_bounds = within_bounds & (offsets >= 0) & (offsets < length)
        offsets = np.broadcast_to(offsets, shape)
        if self.mode == "error" and not within_bounds.all():
            out_of_bounds = np.unravel_index(np.flatnonzero(~within_bounds)[0], shape)
            indices = [int(at[out_of_bounds]) for at in axis_indices]
            flat, size = self.element(int(offsets[out_of_bounds]), indices, length)
            wrong = next((k for k, (i, n) in enumerate(zip(indices, self.extents)) if not 0 <= i < n), 0)
            raise IndirectOutOfBounds(index=flat, size=size, row=indices[wrong], rows=self.extents[wrong])
        return offsets, within_bounds

    def element(self, position: int, indices: Sequence[int], length: int) -> tuple[int, int]:
        """Return a position in the table as errors count it, from the table's start in its tensor, and the tensor's
        elements."""
        table = self.table
        remaining = position - sum(i * scale for i, scale in zip(indices, self.scales))     # of other dimensions
        if table.on_chip or not 0 <= remaining < length:
            return position, length
        within = [int(i) for i in np.unravel_index(remaining, table.shape)]
        for index, scale, extent in zip(indices, self.scales, self.extents):
            for dim, n in enumerate(table.shape):
                if n == extent and prod(table.shape[dim + 1:]) == scale:
                    within[dim] = index
                    break
        return sum(i * step for i, (step, _) in zip(within, table.access.dims)), table.row

    def selected(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        shape, (position, first, second) = self.table.shape, forms
        length = prod(shape) if self.table_apart else prod(shape[1:])
        piece = self.piece.shape
        columns, within_bounds = self.flat_offsets(piece, length, tiles["offset"], position, first, second)
        start = 0 if self.table_apart else np.indices(piece, sparse=True)[0] * length
        return np.where(within_bounds, start + columns, -1)


class OnChip(RunTimeIndexed):
    """By an engine: each partition reads and writes its own row, at one position for all."""

    law, walked = "dynamic_copy", "piece"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.rule(self.dst.shape[0] == self.src.shape[0],
                   f"dst and src must have the same number of partitions, got {self.dst.shape[0]} and "
                   f"{self.src.shape[0]}",
                   "give both the same number of partitions")
        super().verify(check)
        check.rule(self.offset.shape[0] == 1,
                   f"takes one offset for all partitions, got {self.offset.shape[0]} partitions of offsets",
                   "give the offset one partition")


class TensorCopyDynamicSrcOp(OnChip, name="tensor_copy_dynamic_src", mnemonic="COPY_DYNAMIC_SRC", opcode=0x62,
                             engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)):
    """dst[p, f...] = src[p].flat[position(p, f...) + scales * offset]."""

    dst: Out

    def reference(self, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        rows = src.reshape(src.shape[0], -1)
        columns, _ = self.flat_offsets(self.dst.shape, rows.shape[1], offset, *forms)
        return np.take_along_axis(rows, columns.reshape(len(rows), -1), 1).reshape(self.dst.shape)


class TensorCopyDynamicDstOp(OnChip, name="tensor_copy_dynamic_dst", mnemonic="COPY_DYNAMIC_DST", opcode=0x63,
                             engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)):
    """dst[p].flat[position(p, f...) + scales * offset] = src[p, f...]."""

    addressed_by_data = "dst"

    def reference(self, dst: np.ndarray, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        rows = dst.reshape(dst.shape[0], -1).copy()
        columns, _ = self.flat_offsets(src.shape, rows.shape[1], offset, *forms)
        values = convert(src, self.dst.dtype, self.src.dtype)
        np.put_along_axis(rows, columns.reshape(len(rows), -1), values.reshape(len(rows), -1), 1)
        return rows.reshape(dst.shape)


class IndirectTransfer(RunTimeIndexed):
    """By DMA: any element of a table in HBM, or in SBUF across its partitions; ``mode`` skip leaves out indices
    outside."""

    mode: str = "error"
    table_apart = True
    destinations = ("sbuf", "hbm")

    def verify(self, check: Check) -> None:
        check.all_in(("sbuf", "hbm"), "dst", "src")
        super().verify(check)


class DmaDynamicReadOp(IndirectTransfer, name="dma_dynamic_read", engines=(Engine.GPSIMD,), mnemonic="DMA_DYNAMIC_READ",
                       opcode=0x64):
    """dst[e...] = src.flat[position(e...) + scales * offset]."""

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, offset, position, first, second = sources
        columns, within_bounds = self.flat_offsets(self.dst.shape, src.size, offset, position, first, second)
        return self.read(before, src.reshape(-1), (columns,), within_bounds)


class DmaDynamicWriteOp(IndirectTransfer, name="dma_dynamic_write", engines=(Engine.GPSIMD,),
                        mnemonic="DMA_DYNAMIC_WRITE", opcode=0x65):
    """dst.flat[position(e...) + scales * offset] = src[e...], or that added with ``rmw``; equal
    positions accumulate."""

    rmw: str = "bypass"
    addressed_by_data = "dst"

    def reference(self, dst: np.ndarray, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        written = dst.reshape(-1).copy()
        columns, within_bounds = self.flat_offsets(src.shape, dst.size, offset, *forms)
        self.write(written, (columns,), src, within_bounds)
        return written.reshape(dst.shape)
