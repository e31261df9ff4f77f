# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies whose addresses have a run-time part: an access pattern whose start is read from a tile, columns by offsets.

The table is a whole buffer ([1, N] in HBM, [P, N] on chip); a pattern gives the places of the other tile's elements in
a row of it, and the index tile moves them: by one value, or by one value for each row.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from nki_mlir.dialects.nisa.indirect import MODES, DataAddressed, IndirectOutOfBounds
from nki_mlir.dialects.op import In, Integers, Iteration, Out, with_own_axes
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.dtypes import INT32, UINT32, convert

GROUPS = (Machine.gpsimd_group, Machine.quadrant)


class PatternAddressed(DataAddressed):
    """Base of the two directions.

    ``place = start + sum(steps[k] * position[k]) + scale * index``, where the index is below ``extent``.
    """

    index: In
    start: int
    steps: Integers
    scale: int
    extent: int
    mode: str = "error"
    law, walked = "dynamic_copy", "piece"

    def verify(self, check: Check) -> None:
        check.one_of("mode", MODES)
        check.dtype("index", INT32, UINT32)
        check.spaces("index", "sbuf")
        rows = self.piece.shape[0]
        check.rule(len(self.steps) == len(self.piece.shape), "has one step for each dimension",
                   f"give {len(self.piece.shape)} steps")
        check.rule(prod(self.index.shape) in (1, rows), "takes one index, or one for each row",
                   f"give the index the shape [1, 1] or [{rows}, 1]")
        check.rule(self.table.shape[0] in (1, rows), "the table has one row, or one for each partition",
                   f"give the table 1 or {rows} rows")

    def addresses(self, table: np.ndarray, moved: tuple[int, ...], index: np.ndarray
                  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows, places, where they are in bounds), each of the moved tile's shape; an index outside may be an
        error."""
        rank = len(moved)
        along = [np.arange(n).reshape(-1, *(1,) * (rank - 1 - k)) for k, n in enumerate(moved)]
        values = index.reshape(-1).astype(np.int64)
        inside = (values >= 0) & (values < self.extent)
        if self.mode == "error" and not inside.all():
            bad = int(values[~inside][0])
            raise IndirectOutOfBounds(index=self.start + bad * self.scale, size=table.size, row=bad, rows=self.extent)
        shape = (-1, *(1,) * (rank - 1))
        places = self.start + sum(a * s for a, s in zip(along, self.steps)) + values.reshape(shape) * self.scale
        places = np.broadcast_to(places, moved)
        good = (places >= 0) & (places < table.shape[1]) & inside.reshape(shape)
        if self.mode == "error" and not good.all():
            bad = int(places[~good][0])
            raise IndirectOutOfBounds(index=bad, size=table.shape[1], row=bad, rows=table.shape[1])
        rows = np.broadcast_to(along[0] if table.shape[0] > 1 else 0, moved)
        return rows, places, good

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        made = np.zeros(self.table.shape, np.bool_)
        flat = made.reshape(len(made), -1)
        rows, places, good = self.addresses(flat, self.piece.shape, tiles["index"])
        flat[rows[good], places[good]] = True
        return made


class DynamicReadOp(PatternAddressed, name="dynamic_read", engines=(Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR),
                    mnemonic="DYNAMIC_READ", opcode=0x70):
    """dst[i...] = src.flat[start + steps * i + scale * index]; ``mode`` skip leaves what has no address untouched."""

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, index = sources
        table = src.reshape(src.shape[0], -1)
        rows, places, good = self.addresses(table, self.dst.shape, index)
        return self.read(before, table, (rows, places), good)


class DynamicWriteOp(PatternAddressed, name="dynamic_write", engines=(Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR),
                     mnemonic="DYNAMIC_WRITE", opcode=0x71):
    """dst.flat[start + steps * i + scale * index] = src[i...], or added to it with ``rmw`` add."""

    rmw: str = "bypass"
    addressed_by_data = "dst"

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.one_of("rmw", ("bypass", "add"))

    def reference(self, dst: np.ndarray, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        made = dst.reshape(dst.shape[0], -1).copy()
        rows, places, good = self.addresses(made, src.shape, index)
        self.write(made, (rows, places), src, good)
        return made.reshape(dst.shape)


def shared_offsets(index: np.ndarray, group: int, count: int) -> np.ndarray:
    """[P, count]: the offsets of each partition. A group of partitions shares those of its rows, partition by
    partition."""
    p = index.shape[0]
    columns = index.reshape(p, -1).astype(np.int64)
    made = np.empty((p, count), np.int64)
    for start in range(0, p, group):
        rows = columns[start:start + group]
        made[start:start + group] = rows.flatten(order="F")[:count]
    return made


class ColumnsAddressed(DataAddressed):
    """Base of gathering and scattering columns of a tile by offsets that ``group`` partitions share."""

    index: In
    group: int = Machine.gpsimd_group

    def iteration(self) -> Iteration:
        operands = self.operands()
        return with_own_axes(operands[0][1].shape[:1], operands, lambda name, tile: 1)

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.one_of("group", GROUPS)
        check.spaces("index", "sbuf")
        check.integers("index")

    def verify_target(self, check: TargetCheck) -> None:
        check.need(4, "an operand with .indirect()", "gather with nisa.local_gather")

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        made = np.zeros(self.table.shape, np.bool_)
        places = shared_offsets(tiles["index"], self.group, self.piece.free_elements)
        np.put_along_axis(made.reshape(len(made), -1), places, True, 1)
        return made

    def work(self) -> Work:
        return Work("gather", self.operands()[0][1].free_elements)


class GatherColumnsOp(ColumnsAddressed, name="gather_columns", engines=(Engine.VECTOR,), mnemonic="GATHER_COLUMNS",
                      opcode=0x72):
    """dst[p, j] = src.flat[p, offset(p, j)]."""

    dst: Out

    def reference(self, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        flat = src.reshape(src.shape[0], -1)
        places = shared_offsets(index, self.group, self.dst.free_elements)
        check_columns(places, flat.shape[1])
        return np.take_along_axis(flat, places, 1).reshape(self.dst.shape)


class ScatterColumnsOp(ColumnsAddressed, name="scatter_columns", engines=(Engine.VECTOR,), mnemonic="SCATTER_COLUMNS",
                       opcode=0x73):
    """dst.flat[p, offset(p, j)] = src[p, j]; other elements of dst stay."""

    addressed_by_data = "dst"

    def reference(self, dst: np.ndarray, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        made = dst.reshape(dst.shape[0], -1).copy()
        places = shared_offsets(index, self.group, self.src.free_elements)
        check_columns(places, made.shape[1])
        values = convert(src, self.dst.dtype, self.src.dtype).reshape(src.shape[0], -1)
        np.put_along_axis(made, places, values, 1)
        return made.reshape(dst.shape)


def check_columns(places: np.ndarray, length: int) -> None:
    if places.size and (places.min() < 0 or places.max() >= length):
        bad = int(places.min() if places.min() < 0 else places.max())
        raise IndirectOutOfBounds(index=bad, size=length, row=bad, rows=length)
