# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies between a tile and a tensor of which one or two dimensions are indexed at run time.

Element e of the piece is at place ``position(e) + sum(scales[k] * offset[k])`` of the table, which is counted row by
row: on chip in each partition by itself, by a DMA transfer over the whole table. Index k of the element, ``first(e)``
or ``second(e)`` plus ``offset[k]``, is below ``extents[k]``: bounds are those of the dimension.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.nisa.indirect import MODES, DataAddressed, IndirectOutOfBounds
from nki_mlir.dialects.op import In, Integers, Out
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import INT32, UINT32, convert

MOST_INDICES = 2


class RunTimeIndexed(DataAddressed):
    """Base of both directions, by an engine and by DMA.

    ``offset`` is [1, k], for k indices; for a transfer also [N, k], one row of indices for each of the piece.
    """

    table_apart = False         # the table's rows are not those of the piece
    offset: In
    position: Linear
    first: Linear
    second: Linear = Linear()
    scales: Integers = (1,)
    extents: Integers

    def index_forms(self) -> tuple[Linear, ...]:
        return (self.position, self.first, self.second)

    def verify(self, check: Check) -> None:
        check.spaces("offset", "sbuf")
        check.dtype("offset", INT32, UINT32)
        count = len(self.scales)
        check.rule(1 <= count <= MOST_INDICES and len(self.extents) == count,
                   f"one or two dimensions are indexed at run time, each with its scale and extent, got {count}",
                   "let the other dimensions have fixed indices")
        check.rule(self.offset.free_elements == count and self.offset.shape[0] in (1, self.piece.shape[0]),
                   f"the offset tile is [1, {count}], or has a row for each of the piece", "give it such a shape")

    def goes_with_piece(self, field: str) -> bool:
        return self.offset.shape[0] != 1 if field == "offset" else not self.table_apart

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
        table = self.table
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

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        made = np.zeros(self.table.shape, np.bool_)
        flat: np.ndarray = made.reshape(1, -1) if self.table_apart else made.reshape(len(made), -1)
        piece, (position, first, second) = self.piece.shape, forms
        places, good = self.flat_offsets(piece, flat.shape[1], tiles["offset"], position, first, second)
        rows = np.zeros(piece, np.int64) if self.table_apart else np.indices(piece, sparse=True)[0]
        flat[np.broadcast_to(rows, piece)[good], places[good]] = True
        return made


class OnChip(RunTimeIndexed):
    """By an engine: each partition reads and writes its own row, at one place for all."""

    law, walked = "dynamic_copy", "piece"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.rule(self.dst.shape[0] == self.src.shape[0], "dst and src have one number of partitions",
                   "give both the same number of partitions")
        super().verify(check)
        check.rule(self.offset.shape[0] == 1, "one value counts for all partitions", "give the offset one partition")


class TensorCopyDynamicSrcOp(OnChip, name="tensor_copy_dynamic_src", mnemonic="COPY_DYNAMIC_SRC", opcode=0x62,
                             engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)):
    """dst[p, f...] = src[p].flat[position(p, f...) + scales * offset]."""

    dst: Out

    def reference(self, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        rows = src.reshape(src.shape[0], -1)
        places, _ = self.flat_offsets(self.dst.shape, rows.shape[1], offset, *forms)
        return np.take_along_axis(rows, places.reshape(len(rows), -1), 1).reshape(self.dst.shape)


class TensorCopyDynamicDstOp(OnChip, name="tensor_copy_dynamic_dst", mnemonic="COPY_DYNAMIC_DST", opcode=0x63,
                             engines=(Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)):
    """dst[p].flat[position(p, f...) + scales * offset] = src[p, f...]."""

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
        check.all_in(("sbuf", "hbm"), "dst", "src")
        super().verify(check)


class DmaDynamicReadOp(IndirectTransfer, name="dma_dynamic_read", engines=(Engine.GPSIMD,), mnemonic="DMA_DYNAMIC_READ",
                       opcode=0x64):
    """dst[e...] = src.flat[position(e...) + scales * offset]."""

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, offset, position, first, second = sources
        places, good = self.flat_offsets(self.dst.shape, src.size, offset, position, first, second)
        return self.read(before, src.reshape(-1), (places,), good)


class DmaDynamicWriteOp(IndirectTransfer, name="dma_dynamic_write", engines=(Engine.GPSIMD,),
                        mnemonic="DMA_DYNAMIC_WRITE", opcode=0x65):
    """dst.flat[position(e...) + scales * offset] = src[e...], or that added with ``rmw``; equal places accumulate."""

    rmw: str = "bypass"
    addressed_by_data = "dst"

    def verify(self, check: Check) -> None:
        check.one_of("rmw", ("bypass", "add"))
        super().verify(check)

    def reference(self, dst: np.ndarray, src: np.ndarray, offset: np.ndarray, *forms: np.ndarray) -> np.ndarray:
        made = dst.reshape(-1).copy()
        places, good = self.flat_offsets(src.shape, dst.size, offset, *forms)
        self.write(made, (places,), src, good)
        return made.reshape(dst.shape)


