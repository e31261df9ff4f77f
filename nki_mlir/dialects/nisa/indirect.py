# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indirect movement: rows of a table gathered or scattered by index tiles."""

import math
from collections.abc import Sequence

import numpy as np

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import In, InOut, Iteration, LoweringBuilder, NisaOp
from nki_mlir.dialects.verifier import Check, OutOfBounds
from nki_mlir.machine import Engine
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32, DType

MODES = ("error", "skip")


class IndirectOutOfBounds(OutOfBounds):
    message = "index {index} is out of bounds for axis 0 with size {size}"
    why = "an index tile has a row {row} of a table of {rows} rows"
    fix = "correct the indices, or pass oob_mode.skip to leave such rows untouched"

    def counted_from(self, start: int) -> "IndirectOutOfBounds":
        """The same error of a table that starts inside of its tensor."""
        self.values["index"] += start
        return self


def checked_rows(index: np.ndarray, table: Tile, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """(places in the index, rows of the table) that are in bounds; an index outside is an error unless skipped.

    The error counts elements of the table's tensor, from the table's start.
    """
    rows = index.reshape(-1).astype(np.int64)
    inside = (rows >= 0) & (rows < table.shape[0])
    if mode == "error" and not inside.all():
        row = int(rows[~inside][0])
        step = math.prod(table.shape[1:]) if table.on_chip else table.access.dims[0][0]
        size = math.prod(table.shape) if table.on_chip else table.row
        raise IndirectOutOfBounds(index=row * step, size=size, row=row, rows=table.shape[0])
    places = np.flatnonzero(inside)
    return places, rows[places]


class RowAddressed(NisaOp):
    """Base of gather and scatter: axis 0 counts the index tile's rows, the table has a row axis of its own."""

    is_loop_nest = False
    rows_apart = True

    table_field = "src"
    addressed_by_data = "src"
    mode: str

    @property
    def compute(self) -> DType | None:
        return None

    def table_start(self, values: Sequence[int]) -> int:
        """Where the table starts in its tensor, for these values of the symbols."""
        table = getattr(self, self.table_field)
        return 0 if table.on_chip else table.access.free.at(values)

    def iteration(self) -> Iteration:
        rows = self.index.shape[0]                                              # type: ignore[attr-defined]
        operands = dict((f.name, t) for f, t in self.operands())
        free = operands["src" if self.table_field == "dst" else "dst"].shape[1:]
        extents = (rows, *free, operands[self.table_field].shape[0])
        axes = {name: (0, *range(1, len(free) + 1)) for name in operands}
        axes["index"] = (0, *(len(free) + 1 for _ in operands["index"].shape[1:]))
        axes[self.table_field] = (len(free) + 1, *range(1, len(free) + 1))
        return Iteration(extents, axes, frozenset({len(free) + 1}))

    def verify_rows(self, check: Check, data: str) -> None:
        check.dtype("index", INT32, UINT32)
        check.spaces("index", "sbuf")
        table, moved = getattr(self, self.table_field), getattr(self, data)
        check.rule(self.index.free_elements == 1, "the index tile is [N, 1]")               # type: ignore[attr-defined]
        check.rule(moved.shape[0] == self.index.shape[0] and moved.shape[1:] == table.shape[1:],    # type: ignore[attr-defined]
                   f"moves rows of {list(table.shape)} by {self.index.shape[0]} indices, got {list(moved.shape)}")  # type: ignore[attr-defined]

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        made = np.zeros(tiles[self.table_field].shape, np.bool_)
        made[checked_rows(tiles["index"], getattr(self, self.table_field), self.mode)[1]] = True
        return made

    def lower(self, b: LoweringBuilder) -> None:
        b.keep(self)


class DmaGatherOp(RowAddressed, name="dma_gather", engines=(Engine.GPSIMD,), mnemonic="DMA_GATHER", opcode=0x60):
    """dst[p] = src[index[p]]: rows of a table in HBM or SBUF; ``mode`` skip leaves rows with bad indices untouched."""

    dst: InOut
    src: In
    index: In
    mode: str = "error"
    destinations = ("sbuf", "hbm")

    def verify(self, check: Check) -> None:
        check.one_of("mode", MODES)
        check.spaces("dst", "sbuf", "hbm")
        check.spaces("src", "sbuf", "hbm")
        self.verify_rows(check, "dst")

    def sources(self) -> list[tuple[str, Tile]]:
        """What was in dst stays only where rows are skipped."""
        return [(f.name, t) for f, t in self.operands() if self.mode == "skip" or f.name != "dst"]

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, index = sources
        places, rows = checked_rows(index, self.src, self.mode)
        values = convert(src[rows], self.dst.dtype, self.src.dtype)
        if not before:
            return values
        made = before[0].copy()
        made[places] = values
        return made


class DmaScatterOp(RowAddressed, name="dma_scatter", engines=(Engine.GPSIMD,), mnemonic="DMA_SCATTER", opcode=0x61):
    """dst[index[p]] = src[p], or with ``rmw`` dst[index[p]] = rmw(dst[index[p]], src[p]); equal indices accumulate."""

    dst: InOut
    src: In
    index: In
    mode: str = "error"
    rmw: str = "bypass"
    table_field = addressed_by_data = "dst"

    def verify(self, check: Check) -> None:
        check.one_of("mode", MODES)
        check.one_of("rmw", ("bypass", "add"))
        check.spaces("dst", "sbuf", "hbm")
        check.spaces("src", "sbuf", "hbm")
        self.verify_rows(check, "src")

    def reference(self, dst: np.ndarray, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        places, rows = checked_rows(index, self.dst, self.mode)
        made = dst.copy()
        values = convert(src, self.dst.dtype if self.rmw == "bypass" else FLOAT32, self.src.dtype)
        for place, row in zip(places, rows):        # a sum is rounded once
            made[row] = values[place] if self.rmw == "bypass" else convert(
                ALU[self.rmw].numpy(made[row].astype(np.float32), values[place]), self.dst.dtype)
        return made
