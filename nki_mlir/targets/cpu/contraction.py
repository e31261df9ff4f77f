# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products: a tile of the result stays in registers through the loops over the summed axes.

``out[m, n] += a[k, m] * b[k, n]``: ``n`` is the axis along which the result and one factor are contiguous, ``m`` one
along which only the result and the other factor move. A register tile is some rows of ``m`` by some vectors of ``n``;
each step loads each vector of ``b`` once, and one element of ``a`` for each row. Which register tile of a product of
panels is fastest depends on the processor: ``host_measurements`` measures ``TILES``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from nki_mlir.scalar.conversion_expansion import expand_convert
from nki_mlir.scalar.dtypes import FLOAT32, DType
from nki_mlir.scalar.emit import arith
from nki_mlir.targets.cpu.lanes import FunctionEmitter, Value
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.recognize import integer_sums, product_of

VECTORS = 2                         # vectors and rows of the register tile, which fills 32 registers, or 16
ROWS = {16: 8, 8: 6, 4: 6}
MOST_LINES = 32                     # most cache lines of the next panel that a tile prefetches
PAIR_LANES = 16                     # words of two bfloat16 in the register of the instruction that multiplies pairs
UNROLLED = 4                        # positions of the summed axis in an iteration
LEAST_UNROLLED = 32                 # least positions of a sum whose code is unrolled: it takes longer to compile
MOST_UNROLLED = 8                   # most positions in an iteration that prefetches the next factor
MULTIPLY_ADD = (Step("alu", FLOAT32, (0, 1), "multiply"), Step("alu", FLOAT32, (2, 3), "add"))


class RegisterTile(NamedTuple):
    """A tile of sums in registers: its rows, and the vectors of a row."""

    rows: int
    vectors: int

    @property
    def width(self) -> int:
        """Return the columns."""
        return self.vectors * host.lanes()

    @property
    def panel(self) -> int:
        """Return the rows of a panel: one or two tiles of rows. With two, each vector of the other factor is read twice
        in a row."""
        return self.rows if self.rows > ROWS[host.lanes()] else 2 * self.rows


def tiles() -> tuple[RegisterTile, ...]:
    """List the register tiles that this host has registers for; the first one has the fewest columns."""
    usual = RegisterTile(ROWS[host.lanes()], VECTORS)
    return (usual, RegisterTile(6, 4), RegisterTile(12, 2)) if host.lanes() == 16 else (usual,)


def tile_of(columns: int) -> RegisterTile:
    """Return the tile for a product whose factors are not packed: of the tiles whose width divides its columns, the one
    with the fewest loads; if there is none, the first one."""
    return min((tile for tile in tiles() if columns % tile.width == 0), default=tiles()[0],
               key=lambda tile: (tile.rows + tile.vectors) / (tile.rows * tile.vectors))


class NestContraction(NamedTuple):
    """A nest that is a matrix product: its axes, and which input is read along ``n``."""

    row: int | None
    column: int
    broadcast: int                      # input that has one element a row
    vector: int                         # input that has a vector a column block


def contraction_of(nest: Nest) -> NestContraction | None:
    """Return the nest as a matrix product that register tiles compute: ``old + convert(a) * convert(b)`` in float32.
    Return None for other nests, also for sums of integers, which loops accumulate in float64.
    """
    return contraction_with_rows(nest, ROWS[host.lanes()]) if nest.reduced and len(nest.inputs) == 2 else None


@lru_cache(1 << 14)
def contraction_with_rows(nest: Nest, most: int) -> NestContraction | None:
    """Return the same for register tiles with at most this many rows. Passes of the CPU ask it of each nest again and
    again."""
    product = product_of(nest) if not nest.mask else None
    if product is None or not product.in_float32 or sorted(product.inputs) != [0, 1] or integer_sums(nest):
        return None
    out = nest.outputs[0]
    parallel = [a for a in range(len(nest.extents)) if a not in nest.reduced]
    for vector, broadcast in ((1, 0), (0, 1)):
        a, b = nest.inputs[broadcast], nest.inputs[vector]
        columns = [x for x in parallel if out.strides[x] == 1 and b.strides[x] == 1 and a.strides[x] == 0]
        if columns:
            rows = [x for x in parallel if b.strides[x] == 0 and a.strides[x] and x != columns[0]]
            # Choose a size that fills the register tile; of several, the one with the smallest step.
            sizes = {x: (min(nest.extents[x], most), -abs(a.strides[x])) for x in rows}
            return NestContraction(max(sizes, key=sizes.__getitem__, default=None), columns[0], broadcast, vector)
    return None


def multiplies_in_pairs(nest: Nest) -> bool:
    """Return whether this host can compute a nest as a product of words of two bfloat16 each."""
    product = contraction_of(nest)
    return (product is not None and host.multiplies_pairs() and all(o.dtype is FLOAT32 for o in nest.inputs)
            and nest.extents[product.column] >= PAIR_LANES == host.lanes())


def prefetched_positions(nest: Nest) -> int:
    """Return how many positions of the summed axis a product computes in an iteration that prefetches the next factor.

    In each iteration, a register tile prefetches one line, and all tiles of a column of tiles the lines that the
    iteration reads. Return 0 if the product cannot prefetch: its vectors do not lie in panels as wide as a register
    tile, or there are too few tiles.
    """
    product = contraction_of(nest)
    if product is None or product.row is None:
        return 0
    columns, axis = nest.extents[product.column], max(nest.reduced)
    tile, factor = tile_of(columns), nest.inputs[product.vector]
    lines, beyond = divmod(tile.width * factor.dtype.itemsize, host.LINE)
    if columns != tile.width or factor.strides[axis] != tile.width or beyond or lines & (lines - 1):
        return 0
    tiles_of_rows = nest.extents[product.row] // tile.rows
    return next((count for count in (MOST_UNROLLED, 4, 2, 1) if count * lines <= tiles_of_rows
                 and nest.extents[axis] % count == 0), 0)


@dataclass(frozen=True)
class TileProduct:
    """A product of register tiles. If it is ``fresh``, sums start from 0, and are stored without reading the old
    result. With ``pairs``, each 32-bit word of the factors has two bfloat16, of neighboring positions of the summed
    axis.

    With ``panels``, factors are packed in panels for that register tile, and sums start from 0; unless the product is
    fresh, they are then added to the old result. Tiles of such a result lie far apart: code prefetches each tile while
    it computes the sums.

    ``ahead`` has the bytes from the factor that is read along ``n`` to the next one, which code prefetches into the
    second cache while it computes the sums; 0 if it prefetches nothing. ``prefetched_positions`` must not be 0 then.
    """

    nest: Nest
    fresh: bool = False
    pairs: bool = False
    panels: RegisterTile | None = None
    ahead: int = 0

    @property
    def title(self) -> str:
        return self.nest.title + ("_panels" if self.panels else "_pairs" * self.pairs + "_fresh" * self.fresh) + (
            "_ahead" * bool(self.ahead))

    def can_compute(self, part: Nest) -> bool:
        """Return whether the code of this product can compute a part of it: a part of one row and column is a sum."""
        return contraction_of(part) is not None and (not self.pairs or multiplies_in_pairs(part)) and (
            not self.ahead or prefetched_positions(part) > 0)

    def emit(self, code: FunctionEmitter, words: Value) -> None:
        Contraction(code, self).emit([code.word(words, k, code.pointer) for k in range(len(self.nest.operands))])


class Contraction:
    """Emits a matrix product."""

    def __init__(self, code: FunctionEmitter, routine: TileProduct) -> None:
        nest, product = routine.nest, contraction_of(routine.nest)
        assert product is not None
        self.code, self.nest, self.product = code, nest, product
        self.fresh, self.panels, self.ahead = routine.fresh, routine.panels, routine.ahead
        self.multiply_add = code.pairs_added if routine.pairs else code.fma
        extent = nest.extents[product.column]
        self.lanes = host.lanes() if self.panels else min(host.lanes(), 1 << (extent - 1).bit_length())
        tile = routine.panels or tile_of(extent)
        self.rows, self.vectors = tile.rows, tile.vectors
        product_axes = {product.row, product.column}
        self.outer = [a for a in range(len(nest.extents)) if a not in nest.reduced and a not in product_axes]
        self.summed = sorted(nest.reduced)
        self.positions: dict[int, Value] = {}       # positions of the outer loops, by axis
        is_long = self.panels is not None or nest.extents[self.summed[-1]] >= LEAST_UNROLLED
        self.unrolled = prefetched_positions(nest) if self.ahead else UNROLLED if is_long else 1
        self.next_line: Value | None = None         # bytes to the line that a tile prefetches in an iteration

    def emit(self, pointers: Sequence[Value]) -> None:
        self.over(self.outer, list(pointers), self.tiles)

    def over(self, axes: Sequence[int], pointers: list[Value], body: Callable[[list[Value]], None]) -> None:
        """Emit a plain loop for each axis."""
        if not axes:
            return body(pointers)
        def inside(position: Value, _: list[Value]) -> None:
            self.positions[axes[0]] = position
            self.over(axes[1:], self.moved(pointers, axes[0], position), body)
        self.code.loop(range(self.nest.extents[axes[0]]), [], inside)
        return None

    def tiles(self, pointers: list[Value]) -> None:
        """Emit loops over column blocks, then rows, so that a block of ``b`` stays in the first cache for all rows."""
        column, row = self.product.column, self.product.row
        width = self.lanes * self.vectors
        height = self.nest.extents[row] if row is not None else 1

        def columns(position: Value | int, count: int) -> None:
            moved = self.moved(pointers, column, position)
            if row is None:
                return self.tile(moved, 1, count)

            def tile(r: Value | int, rows: int) -> None:
                self.next_line = self.line_of(r) if self.ahead else None
                self.tile(self.moved(moved, row, r), rows, count)
            self.blocks(height, self.rows, tile)
            return None
        self.blocks(self.nest.extents[column], width, columns)

    def blocks(self, extent: int, size: int, body: Callable[[Value | int, int], None]) -> None:
        """Emit ``body(start, count)`` for each block, then for the remainder."""
        full_extent = extent // size * size
        if full_extent == size:
            body(0, size)
        elif full_extent:
            self.code.loop(range(0, full_extent, size), [], lambda i, _: body(i, size))
        if extent > full_extent:
            body(full_extent, extent - full_extent)

    def tile(self, pointers: list[Value], rows: int, columns: int) -> None:
        """Emit the loops over all summed axes for ``rows`` x ``columns`` elements of the result."""
        code, nest, product = self.code, self.nest, self.product
        out, vectors = nest.outputs[0], -(-columns // self.lanes)
        remainder = columns % self.lanes
        active = [code.first_lanes(self.lanes, remainder) if remainder and v == vectors - 1 else None
                  for v in range(vectors)]
        targets = []
        for r in range(rows):
            line = self.shifted(pointers[2], out.dtype, r * out.strides[product.row] if product.row is not None else 0)
            targets += [self.shifted(line, out.dtype, v * self.lanes) for v in range(vectors)]

        def old() -> list[Value]:
            return [code.fetch(p, 1, out.dtype, self.lanes, active[k % vectors]) for k, p in enumerate(targets)]
        if self.panels is not None:
            for target in targets:
                code.prefetch(target)
            self.prefetch_next_panel(pointers[product.broadcast])
        zero = code.constant(code.shaped(code.element(out.dtype), self.lanes), 0.0)
        if self.panels is None:
            sums = self.sum(self.summed, pointers, [zero] * len(targets) if self.fresh else old(), rows, active)
        else:
            sums = self.sum(self.summed, pointers, [zero] * len(targets), rows, active)
            sums = sums if self.fresh else [code.add(a, b) for a, b in zip(old(), sums)]
        for k, (p, value) in enumerate(zip(targets, sums)):
            code.put(value, p, 1, out.dtype, self.lanes, active[k % vectors])

    def prefetch_next_panel(self, panel: Value) -> None:
        """Prefetch a part of the next panel of rows into the second cache; all tiles of a panel together prefetch the
        complete next panel. Behind the last panel a prefetch does nothing."""
        code, (_, across, height, _, depth) = self.code, self.nest.extents
        size = height * depth * self.nest.inputs[self.product.broadcast].dtype.itemsize
        lines = min(-(-size // (host.LINE * across)), MOST_LINES)
        start = code.linear(size, [(self.positions[1], lines * host.LINE)])
        for line in range(lines):
            code.prefetch(panel, code.linear(line * host.LINE, [(start, 1)]))

    def line_of(self, row: Value | int) -> Value:
        """Return the distance in bytes to the line of the next factor that a tile prefetches in each iteration of its
        innermost loop. ``row`` is the tile's first row. All tiles of a column of tiles together prefetch the lines that
        an iteration reads."""
        code, b = self.code, self.nest.inputs[self.product.vector]
        lines = self.unrolled * b.strides[self.summed[-1]] * b.dtype.itemsize // host.LINE
        number = arith.divui(code.i64(row) if isinstance(row, int) else row, code.i64(self.rows))
        return code.linear(self.ahead, [(code.and_(number, lines - 1), host.LINE)])

    def sum(self, axes: Sequence[int], pointers: list[Value], sums: list[Value], rows: int,
            active: list[Value | None]) -> list[Value]:
        if not axes:
            return self.step(pointers, sums, rows, active)
        code, extent = self.code, self.nest.extents[axes[0]]
        times = min(extent, self.unrolled) if self.panels is not None or len(axes) == 1 else 1
        end = extent // times * times

        def positions(position: Value | int, sums: list[Value], count: int = times) -> list[Value]:
            start = self.moved(pointers, axes[0], position)
            if self.next_line is not None and len(axes) == 1:
                code.prefetch(start[self.product.vector], self.next_line)
            for k in range(count):
                sums = self.sum(axes[1:], self.moved(start, axes[0], k), sums, rows, active)
            return sums
        sums = code.loop(range(0, end, times), sums, positions)
        return positions(end, sums, extent - end) if end < extent else sums

    def step(self, pointers: list[Value], sums: list[Value], rows: int, active: list[Value | None]) -> list[Value]:
        """Add the outer product at one position of the summed axes to the sums."""
        code, product = self.code, self.product
        a, b = self.nest.inputs[product.broadcast], self.nest.inputs[product.vector]
        sources = [self.shifted(pointers[product.vector], b.dtype, v * self.lanes) for v in range(len(active))]
        loaded = [code.fetch(source, 1, b.dtype, self.lanes, mask) for source, mask in zip(sources, active)]
        moving = [expand_convert(code, value, b.dtype, FLOAT32) for value in loaded]
        result = []
        for r in range(rows):
            offset = r * a.strides[product.row] if product.row is not None else 0
            element = code.fetch(self.shifted(pointers[product.broadcast], a.dtype, offset), 0, a.dtype, 1, None)
            factor = code.spread(expand_convert(code, element, a.dtype, FLOAT32), self.lanes)
            result += [self.multiply_add(factor, m, sums[r * len(moving) + v]) for v, m in enumerate(moving)]
        return result

    def moved(self, pointers: Sequence[Value], axis: int, position: Value | int) -> list[Value]:
        return self.code.moved(self.nest.operands, pointers, axis, position)

    def shifted(self, pointer: Value, dtype: DType, elements: int) -> Value:
        return self.code.at(pointer, elements, self.code.element(dtype))


def product_of_panels(panels: Sequence[int], sizes: Sequence[int], depth: int, line: int) -> Nest:
    """Return a nest that multiplies panels of rows by panels of columns: ``panels`` are their numbers, ``sizes`` their
    rows and columns. The result's rows are ``line`` elements apart."""
    rows, columns = sizes
    return Nest((*panels, rows, columns, depth), frozenset({4}), (
        Operand(FLOAT32, (depth * rows, 0, 1, 0, rows)), Operand(FLOAT32, (0, depth * columns, 0, 1, columns))), 0,
        (Operand(FLOAT32, (rows * line, columns, line, 1, 0)),), MULTIPLY_ADD, (4,))
