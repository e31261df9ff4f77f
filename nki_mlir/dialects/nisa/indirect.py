# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indirect movement: rows of a table gathered or scattered by index tiles."""

import math
from collections.abc import Sequence

import numpy as np

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import In, InOut, Iteration, NisaOp, with_separate_axes
from nki_mlir.dialects.verifier import Check, OutOfBounds
from nki_mlir.machine import Engine
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32, convert

MODES = ("error", "skip")


class IndirectOutOfBounds(OutOfBounds):
    message = "index {index} is out of bounds for axis 0 with size {size}"
    why = "a run-time index is {row}, and must be at least 0 and below {rows}"
    fix = "correct the indices; a DMA with oob_mode.skip leaves out those that are out of bounds"

    def counted_from(self, start: int) -> "IndirectOutOfBounds":
        """Return the same error for a table that starts inside of its tensor."""
        self.values["index"] += start
        return self


def rows_of(table: Tile) -> tuple[int, int, int]:
    """Return the distance in elements between rows of a table, the number of its elements, and the number of
    its rows."""
    if table.on_chip:
        return math.prod(table.shape[1:]), math.prod(table.shape), table.shape[0]
    return table.access.dims[0][0], table.row, table.shape[0]


def no_row(row: int, step: int, size: int, rows: int) -> IndirectOutOfBounds:
    """Return the error for a number that is not a row of a table; ``rows_of`` returns the other arguments."""
    return IndirectOutOfBounds(index=row * step, size=size, row=row, rows=rows)


def checked_rows(index: np.ndarray, table: Tile, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the table, and which of them are in bounds; an index outside is an error unless skipped.

    The error counts elements of the table's tensor, from the table's start.
    """
    rows = index.reshape(-1).astype(np.int64)
    inside = (rows >= 0) & (rows < table.shape[0])
    if mode == "error" and not inside.all():
        raise no_row(int(rows[~inside][0]), *rows_of(table))
    return rows, inside


class DataAddressed(NisaOp):
    """Base of copies in which data select the elements of one tile, the table; the other tile is the piece.

    ``addressed_by_data`` is the table: ``src`` of a read, ``dst`` of a write.
    """

    is_loop_nest = False
    addressed_by_data = "src"
    dst: InOut
    src: In
    keeps_bits = True
    # The treatment of indices out of bounds, and of elements written before; some classes have them as attributes.
    mode = "error"
    rmw = "bypass"

    def verify(self, check: Check) -> None:
        for name, allowed in (("mode", MODES), ("rmw", ("bypass", "add"))):
            if name in self.attributes:
                check.one_of(name, allowed)

    @property
    def table(self) -> Tile:
        return self.src if self.addressed_by_data == "src" else self.dst

    @property
    def piece_field(self) -> str:
        return "dst" if self.addressed_by_data == "src" else "src"

    @property
    def piece(self) -> Tile:
        return self.dst if self.addressed_by_data == "src" else self.src

    def sources(self) -> list[tuple[str, Tile]]:
        """Return the tiles that ``reference`` gets: dst of a read is among them only if elements may be skipped."""
        stays = self.addressed_by_data == "dst" or self.mode == "skip"
        return [(name, tile) for name, tile in super().sources() if stays or name != "dst"]

    def reachable(self) -> Tile:
        """Return the part of the table that contains all elements that an index in bounds selects."""
        return self.table

    def table_start(self, values: Sequence[int]) -> int:
        """Return the start of the table in its tensor, for these values of the symbols."""
        return 0 if self.table.on_chip else self.table.access.free.at(values)

    def selected(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        """Return the flat position in the table of each element of the piece; -1 where an index out of bounds is
        skipped."""
        raise InternalError(f"{self.full_name()} does not say which elements it selects")

    def accessed_elements(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        named, positions = np.zeros(self.table.shape, np.bool_), self.selected(tiles, forms)
        named.reshape(-1)[positions[positions >= 0]] = True
        return named

    def goes_with_piece(self, field: str) -> bool:
        """Return whether a tile has a row for each row of the piece."""
        return False

    def iteration(self) -> Iteration:
        """Return the axes of the piece, and the axes of the other tiles, except rows that correspond to the piece's
        rows."""
        rank, piece = len(self.piece.shape), self.piece_field
        return with_separate_axes(self.piece.shape, self.operands(),
                             lambda name, tile: rank if name == piece else int(self.goes_with_piece(name)))

    def read(self, before: Sequence[np.ndarray], flat: np.ndarray, at: tuple[np.ndarray, ...],
             within_bounds: np.ndarray) -> np.ndarray:
        """Return the table's elements at indices ``at``, and dst's earlier elements where an index is out of bounds."""
        if not before:
            return convert(flat[at], self.dst.dtype, self.src.dtype)
        values = before[0].copy()
        values[within_bounds] = convert(flat[tuple([a[within_bounds] for a in at])], self.dst.dtype, self.src.dtype)
        return values

    def write(self, flat: np.ndarray, at: tuple[np.ndarray, ...], src: np.ndarray, within_bounds: np.ndarray) -> None:
        """Write the elements of src to indices ``at`` of the table, or add them with ``rmw``. Skip indices that are out
        of bounds."""
        at = tuple([a[within_bounds] for a in at])
        if self.rmw == "bypass":
            flat[at] = convert(src, self.dst.dtype, self.src.dtype)[within_bounds]
            return
        total = flat.astype(np.float32)             # rounded once
        np.add.at(total, at, convert(src, FLOAT32, self.src.dtype)[within_bounds])
        flat[at] = convert(total[at], self.dst.dtype)


class RowAddressed(DataAddressed):
    """Base of gather and scatter: axis 0 counts the index tile's rows, the table has its own row axis."""

    rows_apart = True
    index: In
    mode: str = "error"

    def iteration(self) -> Iteration:
        free = self.piece.shape[1:]
        extents = (self.index.shape[0], *free, self.table.shape[0])
        inner = range(1, len(free) + 1)
        axes = {self.piece_field: (0, *inner), self.addressed_by_data: (len(free) + 1, *inner),
                "index": (0, *(len(free) + 1 for _ in self.index.shape[1:]))}
        return Iteration(extents, axes, frozenset({len(free) + 1}))

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.all_in(("sbuf", "hbm"), "dst", "src")
        check.dtype("index", INT32, UINT32)
        check.spaces("index", "sbuf")
        check.rule(self.index.free_elements == 1,
                   f"the index tile must be [N, 1], got {list(self.index.shape)}",
                   "reshape the indices to one for each partition")
        table, piece = list(self.table.shape), list(self.piece.shape)
        check.rule(piece == [self.index.shape[0], *table[1:]],
                   f"moves rows of {table} by {self.index.shape[0]} indices, got {piece}",
                   "give the tile a row for each index, as long as the table's rows")

    def selected(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        rows, inside = checked_rows(tiles["index"], self.table, self.mode)
        length = math.prod(self.table.shape[1:])
        return np.where(inside[:, None], rows[:, None] * length + np.arange(length), -1).reshape(self.piece.shape)


class DmaGatherOp(RowAddressed, name="dma_gather", engines=(Engine.GPSIMD,), mnemonic="DMA_GATHER", opcode=0x60):
    """dst[p] = src[index[p]]: rows of a table in HBM or SBUF; ``mode`` skip leaves rows with bad indices untouched."""

    destinations = ("sbuf", "hbm")

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, index = sources
        rows, inside = checked_rows(index, self.src, self.mode)
        return self.read(before, src, (rows,), inside)


class DmaScatterOp(RowAddressed, name="dma_scatter", engines=(Engine.GPSIMD,), mnemonic="DMA_SCATTER", opcode=0x61):
    """dst[index[p]] = src[p], or with ``rmw`` dst[index[p]] = rmw(dst[index[p]], src[p]); equal indices accumulate."""

    rmw: str = "bypass"
    addressed_by_data = "dst"

    def reference(self, dst: np.ndarray, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        rows, inside = checked_rows(index, self.dst, self.mode)
        written = dst.copy()
        values = convert(src, self.dst.dtype if self.rmw == "bypass" else FLOAT32, self.src.dtype)
        for source_row, row in zip(np.flatnonzero(inside), rows[inside]):        # a sum is rounded once
            written[row] = values[source_row] if self.rmw == "bypass" else convert(
                ALU[self.rmw].numpy(written[row].astype(np.float32), values[source_row]), self.dst.dtype)
        return written
