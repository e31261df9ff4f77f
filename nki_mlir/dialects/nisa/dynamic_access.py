# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies whose addresses have a run-time part: an access pattern whose start is read from a tile, columns by offsets.

The table is a whole buffer ([1, N] in HBM, [P, N] on chip); a pattern gives the places of the other tile's elements in
a row of it, and the index tile moves them: by one value, or by one value for each row.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.nisa.indirect import MODES, IndirectOutOfBounds
from nki_mlir.dialects.op import In, InOut, Integers, Iteration, LoweringBuilder, NisaOp, Out
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT32, DType

GROUPS = (Machine.gpsimd_group, Machine.quadrant)


class PatternAddressed(NisaOp):
    """Base of the two directions; ``table`` and ``moved`` are the names of their fields.

    ``place = start + sum(steps[k] * position[k]) + scale * index``, where the index is below ``extent``.
    """

    is_loop_nest = False

    table, moved = "src", "dst"
    addressed_by_data = "src"
    start: int
    steps: Integers
    scale: int
    extent: int
    mode: str = "error"

    @property
    def compute(self) -> DType | None:
        return None

    def iteration(self) -> Iteration:
        tiles = dict((f.name, t) for f, t in self.operands())
        own = tiles[self.moved].shape
        extents, axes = list(own), {self.moved: tuple(range(len(own)))}
        for name in (self.table, "index"):
            axes[name] = tuple(range(len(extents), len(extents) + len(tiles[name].shape)))
            extents += tiles[name].shape
        return Iteration(tuple(extents), axes, frozenset(range(len(own), len(extents))))

    def verify(self, check: Check) -> None:
        check.one_of("mode", MODES)
        check.dtype("index", INT32, UINT32)
        check.spaces("index", "sbuf")
        table, moved, index = (getattr(self, name) for name in (self.table, self.moved, "index"))
        check.rule(len(self.steps) == len(moved.shape), "has one step for each dimension")
        check.rule(prod(index.shape) in (1, moved.shape[0]), "takes one index, or one for each row")
        check.rule(table.shape[0] in (1, moved.shape[0]), "the table has one row, or one for each partition")

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
        made = np.zeros(tiles[self.table].shape, np.bool_)
        flat = made.reshape(len(made), -1)
        rows, places, good = self.addresses(flat, tiles[self.moved].shape, tiles["index"])
        flat[rows[good], places[good]] = True
        return made

    def lower(self, b: LoweringBuilder) -> None:
        b.keep(self)

    def work(self) -> Work:
        return Work("dynamic_copy", getattr(self, self.moved).free_elements)


class DynamicReadOp(PatternAddressed, name="dynamic_read", engines=(Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR),
                    mnemonic="DYNAMIC_READ", opcode=0x70):
    """dst[i...] = src.flat[start + steps * i + scale * index]; ``mode`` skip leaves what has no address untouched."""

    dst: InOut
    src: In
    index: In

    def sources(self) -> list[tuple[str, Tile]]:
        return [(f.name, t) for f, t in self.operands() if self.mode == "skip" or f.name != "dst"]

    def reference(self, *sources: np.ndarray) -> np.ndarray:
        *before, src, index = sources
        table = src.reshape(src.shape[0], -1)
        rows, places, good = self.addresses(table, self.dst.shape, index)
        if not before:
            return convert(table[rows, places], self.dst.dtype, self.src.dtype)
        made = before[0].copy()
        made[good] = convert(table[rows[good], places[good]], self.dst.dtype, self.src.dtype)
        return made


class DynamicWriteOp(PatternAddressed, name="dynamic_write", engines=(Engine.GPSIMD, Engine.VECTOR, Engine.SCALAR),
                     mnemonic="DYNAMIC_WRITE", opcode=0x71):
    """dst.flat[start + steps * i + scale * index] = src[i...], or added to it with ``rmw`` add."""

    dst: InOut
    src: In
    index: In
    rmw: str = "bypass"
    table, moved = "dst", "src"
    addressed_by_data = "dst"

    def verify(self, check: Check) -> None:
        super().verify(check)
        check.one_of("rmw", ("bypass", "add"))

    def reference(self, dst: np.ndarray, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        made = dst.reshape(dst.shape[0], -1).copy()
        rows, places, good = self.addresses(made, src.shape, index)
        rows, places = rows[good], places[good]
        if self.rmw == "bypass":
            made[rows, places] = convert(src, self.dst.dtype, self.src.dtype)[good]
        else:
            total = made.astype(np.float32)         # rounded once
            np.add.at(total, (rows, places), convert(src, FLOAT32, self.src.dtype)[good])
            made[rows, places] = convert(total[rows, places], self.dst.dtype)
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


class ColumnsAddressed(NisaOp):
    """Base of gathering and scattering columns of a tile by offsets that ``group`` partitions share."""

    is_loop_nest = False
    addressed_by_data = "src"
    group: int

    @property
    def compute(self) -> DType | None:
        return None

    def iteration(self) -> Iteration:
        extents: list[int] = [self.operands()[0][1].shape[0]]
        axes = {}
        for field, tile in self.operands():
            axes[field.name] = (0, *range(len(extents), len(extents) + len(tile.shape) - 1))
            extents += tile.shape[1:]
        return Iteration(tuple(extents), axes, frozenset(range(1, len(extents))))

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check.one_of("group", GROUPS)
        check.spaces("index", "sbuf")
        check.integers("index")

    def verify_target(self, check: TargetCheck) -> None:
        check.need(4, "an operand with .indirect()", "gather with nisa.local_gather")

    def meant(self, tiles: dict[str, np.ndarray], forms: Sequence[np.ndarray]) -> np.ndarray:
        made = np.zeros(tiles[self.addressed_by_data].shape, np.bool_)
        moved = tiles["src" if self.addressed_by_data == "dst" else "dst"]
        places = shared_offsets(tiles["index"], self.group, moved[0].size)
        np.put_along_axis(made.reshape(len(made), -1), places, True, 1)
        return made

    def lower(self, b: LoweringBuilder) -> None:
        b.keep(self)

    def work(self) -> Work:
        return Work("gather", self.operands()[0][1].free_elements)


class GatherColumnsOp(ColumnsAddressed, name="gather_columns", engines=(Engine.VECTOR,), mnemonic="GATHER_COLUMNS",
                      opcode=0x72):
    """dst[p, j] = src.flat[p, offset(p, j)]."""

    dst: Out
    src: In
    index: In
    group: int = Machine.gpsimd_group

    def reference(self, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        flat = src.reshape(src.shape[0], -1)
        places = shared_offsets(index, self.group, self.dst.free_elements)
        check_columns(places, flat.shape[1])
        return np.take_along_axis(flat, places, 1).reshape(self.dst.shape)


class ScatterColumnsOp(ColumnsAddressed, name="scatter_columns", engines=(Engine.VECTOR,), mnemonic="SCATTER_COLUMNS",
                       opcode=0x73):
    """dst.flat[p, offset(p, j)] = src[p, j]; other elements of dst stay."""

    dst: InOut
    src: In
    index: In
    group: int = Machine.gpsimd_group
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
