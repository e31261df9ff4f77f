# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies between a tile and a tensor of which one or two dimensions are indexed at run time.

Element e of the piece is at place ``position(e) + sum(scales[k] * offset[k])`` of the table, which is counted row by
row: on chip in each partition by itself, by a DMA transfer over the whole table. Index k of the element, ``first(e)``
or ``second(e)`` plus ``offset[k]``, is below ``extents[k]``: bounds are those of the dimension.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.nisa.indirect import MODES, IndirectOutOfBounds
from nki_mlir.dialects.op import In, InOut, Integers, Iteration, LoweringBuilder, NisaOp, Out
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Work
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32, DType

MOST_INDICES = 2


class RunTimeIndexed(NisaOp):
    """Base of both directions, by an engine and by DMA; ``piece`` and ``table`` are the names of their fields.

    ``offset`` is [1, k], for k indices; for a transfer also [N, k], one row of indices for each of the piece.
    """

    is_loop_nest = False

    piece, table = "dst", "src"
    addressed_by_data = "src"
    position: Linear
    first: Linear
    second: Linear = Linear()
    scales: Integers = (1,)
    extents: Integers

    @property
    def compute(self) -> DType | None:
        return None

    def index_forms(self) -> tuple[Linear, ...]:
        return (self.position, self.first, self.second)

    def verify(self, check: Check) -> None:
        check.spaces("offset", "sbuf")
        check.dtype("offset", INT32, UINT32)
        count = len(self.scales)
        check.rule(1 <= count <= MOST_INDICES and len(self.extents) == count,
                   f"one or two dimensions are indexed at run time, each with its scale and extent, got {count}")
        rows, piece = self.offset.shape[0], getattr(self, self.piece)               # type: ignore[attr-defined]
        check.rule(self.offset.free_elements == count and rows in (1, piece.shape[0]),      # type: ignore[attr-defined]
                   f"the offset tile is [1, {count}], or has a row for each of the piece")

    def iteration(self) -> Iteration:
        """The piece's axes; those of the table and of the offsets but for the rows that go with the piece's."""
        extents = list(getattr(self, self.piece).shape)
        axes = {self.piece: tuple(range(len(extents)))}
        for name, apart in ((self.table, self.table_apart), ("offset", self.offset.shape[0] == 1)): # type: ignore[attr-defined]
            shape, together = getattr(self, name).shape, () if apart else (0,)
            start = len(extents)
            axes[name] = (*together, *range(start, start + len(shape) - len(together)))
            extents += shape[len(together):]
        return Iteration(tuple(extents), axes, frozenset(range(len(axes[self.piece]), len(extents))))

    table_apart = False

    def flat_offsets(self, shape: tuple[int, ...], length: int, offset: np.ndarray, position: np.ndarray,
                     first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, where all indices are in bounds) of a piece; what is not is an error unless it is skipped."""
        of_piece = (slice(None),) * len(shape) + (0,) * (position.ndim - len(shape))
        columns = offset.reshape(offset.shape[0], -1).astype(np.int64)
        places, good, moved = position[of_piece], np.ones(shape, np.bool_), []
        for column, (index, scale, extent) in enumerate(zip((first, second), self.scales, self.extents)):
            value = columns[:, column].reshape(-1, *(1,) * (len(shape) - 1))
            at = index[of_piece] + value
            good = good & (at >= 0) & (at < extent)
            places = places + scale * value
            moved.append(np.broadcast_to(at, shape))
        good = good & (places >= 0) & (places < length)
        places = np.broadcast_to(places, shape)
        if getattr(self, "mode", "error") == "error" and not good.all():
            bad = np.unravel_index(np.flatnonzero(~good)[0], shape)
            indices = [int(at[bad]) for at in moved]
            flat, size = self.element(int(places[bad]), indices, length)
            raise IndirectOutOfBounds(index=flat, size=size, row=indices[0], rows=self.extents[0])
        return places, good

    def element(self, place: int, indices: Sequence[int], length: int) -> tuple[int, int]:
        """A place of the table as errors count it: in its tensor, from the table's start; and the tensor's elements."""
        table: Tile = getattr(self, self.table)
        rest = place - sum(i * scale for i, scale in zip(indices, self.scales))     # of the other dimensions
        if table.on_chip or not 0 <= rest < length:
            return place, length
        within = [int(i) for i in np.unravel_index(rest, table.shape)]
        for index, scale, extent in zip(indices, self.scales, self.extents):
            for dim, n in enumerate(table.shape):
                if n == extent and prod(table.shape[dim + 1:]) == scale:
                    within[dim] = index
                    break
        return sum(i * step for i, (step, _) in zip(within, table.access.dims)), table.row

    def table_start(self, values: Sequence[int]) -> int:
        """Where the table starts in its tensor, for these values of the symbols."""
        table: Tile = getattr(self, self.table)
        return 0 if table.on_chip else table.access.free.at(values)

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        made = np.zeros(tiles[self.table].shape, np.bool_)
        flat: np.ndarray = made.reshape(1, -1) if self.table_apart else made.reshape(len(made), -1)
        piece: tuple[int, ...] = tiles[self.piece].shape
        position, first, second = forms
        places, good = self.flat_offsets(piece, flat.shape[1], tiles["offset"], position, first, second)
        rows = np.zeros(piece, np.int64) if self.table_apart else np.indices(piece, sparse=True)[0]
        flat[np.broadcast_to(rows, piece)[good], places[good]] = True
        return made

    def lower(self, b: LoweringBuilder) -> None:
        b.keep(self)


class OnChip(RunTimeIndexed):
    """By an engine: each partition reads and writes its own row, at one place for all."""

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.rule(self.dst.shape[0] == self.src.shape[0],                          # type: ignore[attr-defined]
                   "dst and src have one number of partitions")
        super().verify(check)
        check.rule(self.offset.shape[0] == 1, "one value counts for all partitions")        # type: ignore[attr-defined]

    def work(self) -> Work:
        return Work("dynamic_copy", getattr(self, self.piece).free_elements)


class TensorCopyDynamicSrcOp(OnChip, name="tensor_copy_dynamic_src", mnemonic="COPY_DYNAMIC_SRC", opcode=0x62,
                             engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)):
    """dst[p, f...] = src[p].flat[position(p, f...) + scales * offset]."""

    dst: Out
    src: In
    offset: In

    def reference(self, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        rows = src.reshape(src.shape[0], -1)
        places, _ = self.flat_offsets(self.dst.shape, rows.shape[1], offset, *forms)
        return np.take_along_axis(rows, places.reshape(len(rows), -1), 1).reshape(self.dst.shape)


class TensorCopyDynamicDstOp(OnChip, name="tensor_copy_dynamic_dst", mnemonic="COPY_DYNAMIC_DST", opcode=0x63,
                             engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)):
    """dst[p].flat[position(p, f...) + scales * offset] = src[p, f...]."""

    dst: InOut
    src: In
    offset: In
    piece, table = "src", "dst"
    addressed_by_data = "dst"

    def reference(self, dst: np.ndarray, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        rows = dst.reshape(dst.shape[0], -1).copy()
        places, _ = self.flat_offsets(src.shape, rows.shape[1], offset, *forms)
        values = convert(src, self.dst.dtype, self.src.dtype)
        np.put_along_axis(rows, places.reshape(len(rows), -1), values.reshape(len(rows), -1), 1)
        return rows.reshape(dst.shape)


class IndirectTransfer(RunTimeIndexed):
    """By DMA: any place of a table in HBM, or in SBUF across its partitions; ``mode`` skip leaves what is outside."""

    mode: str = "error"
    table_apart = True
    destinations = ("sbuf", "hbm")

    def verify(self, check: Check) -> None:
        check.one_of("mode", MODES)
        check.spaces("dst", "sbuf", "hbm")
        check.spaces("src", "sbuf", "hbm")
        super().verify(check)


class DmaDynamicReadOp(IndirectTransfer, name="dma_dynamic_read", engines=(Engine.GPSIMD,), mnemonic="DMA_DYNAMIC_READ",
                       opcode=0x64):
    """dst[e...] = src.flat[position(e...) + scales * offset]."""

    dst: InOut
    src: In
    offset: In

    def sources(self) -> list[tuple[str, Tile]]:
        """What was in dst stays only where elements are skipped."""
        return [(f.name, t) for f, t in self.operands() if self.mode == "skip" or f.name != "dst"]

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, offset, position, first, second = sources
        places, good = self.flat_offsets(self.dst.shape, src.size, offset, position, first, second)
        if not before:
            return convert(src.reshape(-1)[places], self.dst.dtype, self.src.dtype)
        made = before[0].copy()
        made[good] = convert(src.reshape(-1)[places[good]], self.dst.dtype, self.src.dtype)
        return made


class DmaDynamicWriteOp(IndirectTransfer, name="dma_dynamic_write", engines=(Engine.GPSIMD,),
                        mnemonic="DMA_DYNAMIC_WRITE", opcode=0x65):
    """dst.flat[position(e...) + scales * offset] = src[e...], or that added with ``rmw``; equal places accumulate."""

    dst: InOut
    src: In
    offset: In
    rmw: str = "bypass"
    piece, table = "src", "dst"
    addressed_by_data = "dst"

    def verify(self, check: Check) -> None:
        check.one_of("rmw", ("bypass", "add"))
        super().verify(check)

    def reference(self, dst: np.ndarray, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        made = dst.reshape(-1).copy()
        places, good = self.flat_offsets(src.shape, dst.size, offset, *forms)
        places = places[good]
        if self.rmw == "bypass":
            made[places] = convert(src, self.dst.dtype, self.src.dtype)[good]
        else:
            total = made.astype(np.float32)         # rounded once
            np.add.at(total, places, convert(src, FLOAT32, self.src.dtype)[good])
            made[places] = convert(total[places], self.dst.dtype)
        return made.reshape(dst.shape)


