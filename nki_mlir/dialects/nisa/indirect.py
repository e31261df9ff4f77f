# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indirect movement: rows of a table gathered or scattered by index tiles."""

import math
from collections.abc import Sequence

import numpy as np

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import In, InOut, Iteration, NisaOp, with_own_axes
from nki_mlir.dialects.verifier import Check, OutOfBounds
from nki_mlir.machine import Engine
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32, convert

MODES = ("error", "skip")


class IndirectOutOfBounds(OutOfBounds):
    message = "index {index} is out of bounds for axis 0 with size {size}"
    why = "an index tile has a row {row} of a table of {rows} rows"
    fix = "correct the indices, or pass oob_mode.skip to leave such rows untouched"

    def counted_from(self, start: int) -> "IndirectOutOfBounds":
        """The same error of a table that starts inside of its tensor."""
        self.values["index"] += start
        return self


def rows_of(table: Tile) -> tuple[int, int, int]:
    """How many elements it is from a row of a table to the next, how many there are, and how many rows."""
    if table.on_chip:
        return math.prod(table.shape[1:]), math.prod(table.shape), table.shape[0]
    return table.access.dims[0][0], table.row, table.shape[0]


def no_row(row: int, step: int, size: int, rows: int) -> IndirectOutOfBounds:
    """The error of a number that is no row of a table, of which ``rows_of`` has the rest."""
    return IndirectOutOfBounds(index=row * step, size=size, row=row, rows=rows)


def checked_rows(index: np.ndarray, table: Tile, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the table, and which of them are in bounds; an index outside is an error unless skipped.

    The error counts elements of the table's tensor, from the table's start.
    """
    rows = index.reshape(-1).astype(np.int64)
    inside = (rows >= 0) & (rows < table.shape[0])
    if mode == "error" and not inside.all():
        raise no_row(int(rows[~inside][0]), *rows_of(table))
    return rows, inside


class DataAddressed(NisaOp):
    """Base of copies of which data choose the elements of one tile, the table; the other one is the piece.

    ``addressed_by_data`` is the table: ``src`` of what reads, ``dst`` of what writes.
    """

    is_loop_nest = False
    addressed_by_data = "src"
    dst: InOut
    src: In
    keeps_bits = True
    # What is done with an index outside, and with an element that is written already; attributes where it may be said.
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
        """What was in dst of a read stays only where elements are skipped."""
        stays = self.addressed_by_data == "dst" or self.mode == "skip"
        return [(name, tile) for name, tile in super().sources() if stays or name != "dst"]

    def reachable(self) -> Tile:
        """The part of the table in which all elements lie that an index in bounds chooses."""
        return self.table

    def table_start(self, values: Sequence[int]) -> int:
        """Where the table starts in its tensor, for these values of the symbols."""
        return 0 if self.table.on_chip else self.table.access.free.at(values)

    def goes_with_piece(self, field: str) -> bool:
        """Whether a tile has a row for each row of the piece."""
        return False

    def iteration(self) -> Iteration:
        """The piece's axes; those of the other tiles but for rows that go with the piece's."""
        rank, piece = len(self.piece.shape), self.piece_field
        return with_own_axes(self.piece.shape, self.operands(),
                             lambda name, tile: rank if name == piece else int(self.goes_with_piece(name)))

    def read(self, before: Sequence[np.ndarray], flat: np.ndarray, at: tuple[np.ndarray, ...], good: np.ndarray
             ) -> np.ndarray:
        """The table's elements ``at`` places; where there is none, what was in dst before."""
        if not before:
            return convert(flat[at], self.dst.dtype, self.src.dtype)
        values = before[0].copy()
        values[good] = convert(flat[tuple([a[good] for a in at])], self.dst.dtype, self.src.dtype)
        return values

    def write(self, flat: np.ndarray, at: tuple[np.ndarray, ...], src: np.ndarray, good: np.ndarray) -> None:
        """Put the good elements of src ``at`` their places of the table, or add them with ``rmw``."""
        at = tuple([a[good] for a in at])
        if self.rmw == "bypass":
            flat[at] = convert(src, self.dst.dtype, self.src.dtype)[good]
            return
        total = flat.astype(np.float32)             # rounded once
        np.add.at(total, at, convert(src, FLOAT32, self.src.dtype)[good])
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
        check.rule(self.index.free_elements == 1, "the index tile is [N, 1]",
                   "reshape the indices to one for each partition")
        table, piece = list(self.table.shape), list(self.piece.shape)
        check.rule(piece == [self.index.shape[0], *table[1:]],
                   f"moves rows of {table} by {self.index.shape[0]} indices, got {piece}",
                   "give the tile a row for each index, as long as those of the table")

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        named = np.zeros(self.table.shape, np.bool_)
        rows, inside = checked_rows(tiles["index"], self.table, self.mode)
        named[rows[inside]] = True
        return named


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
