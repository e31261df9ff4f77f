# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Large matrix products: operands are copied into panels, which lie in the order in which register tiles read them.

``out[m, n] = sum over k of a[k, m] * b[k, n]``. First ``a`` is packed, then each block of columns is independent:

for each block of k:  pack the columns of b
    for each panel of a, which stays in the first cache:  for each panel of b:  out's tile += panel of a * panel of b

A block of ``b`` fits the second cache. Sums that an epilogue reads are finished in blocks of rows, with the last block
of ``k``. Rows and columns that fill no panel form a narrower one, and the last block of ``k`` may be shorter. If ``k``
is odd, its last position is a pair with 0.

With two threads, each half of the rows is a part with separate blocks, for which each thread packs the columns itself.
Each thread begins with another half. Otherwise each would read rows that the other thread has packed from that thread's
cache, which takes long if the two have no common cache. A thread that ends early takes blocks of the other half, since
other processes may delay one of the threads.

The order in which numbers are added does not depend on the number of threads.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT32,
    INT32,
    UINT16,
    UINT32,
    DType,
)
from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.addressed_nest import AddressedNest
from nki_mlir.targets.cpu.contraction import ROWS, VECTORS, RegisterTile, TileProduct, product_of_panels
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.loop_products import LoopNest
from nki_mlir.targets.cpu.loops import MemoryUse
from nki_mlir.targets.cpu.native_nodes import MEMORY, slot_value
from nki_mlir.targets.cpu.product_blocks import ProductBlocks, chosen
from nki_mlir.targets.cpu.tile_registers import PANEL, SIDE, TileRegisterProduct
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step

LEAST_DEPTH = 32
LEAST_HALVED = 512                 # least rows with which each of two threads may pack all columns itself
PIECE = 16                         # positions of k that are packed at a time: each is a stream of reads
UNITS = ("float32", "pairs", "amx")                               # the instructions that can multiply
PAIRED = (BFLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2)        # bfloat16, and floats that it represents exactly

JOIN = (Step("wrap", UINT32, (0,)), Step("wrap", UINT32, (1,)), Step("constant", INT32, (), "", 16),
        Step("wrap", UINT32, (5,)), Step("alu", UINT32, (4, 6), "left_shift"),
        Step("alu", UINT32, (3, 7), "bitwise_or"))
NARROWED_JOIN = (Step("convert", BFLOAT16, (0,)), Step("convert", BFLOAT16, (1,)), Step("bitcast", UINT16, (3,)),
                 Step("bitcast", UINT16, (4,)), Step("wrap", UINT32, (5,)), Step("wrap", UINT32, (6,)),
                 Step("constant", INT32, (), "", 16), Step("wrap", UINT32, (9,)),
                 Step("alu", UINT32, (8, 10), "left_shift"), Step("alu", UINT32, (7, 11), "bitwise_or"))
WIDEN = (Step("wrap", UINT32, (0,)),)
NARROWED_WIDEN = (Step("convert", BFLOAT16, (0,)), Step("bitcast", UINT16, (2,)), Step("wrap", UINT32, (3,)))


class PackingOptions(NamedTuple):
    """The sizes of the blocks of products; 0: the host decides. ``form-products`` documents each of them."""

    tile_rows: int = 0
    tile_vectors: int = 0
    depth: int = 0
    rows: int = 0
    columns: int = 0
    packed: int = 1 << 26
    pairs: int = -1
    amx: int = -1
    apart: int = 1 << 20
    high: int = 256

    def tile(self, columns: int) -> RegisterTile | None:
        """Return the fastest register tile whose width divides a product's columns, else the fastest one that is not
        wider than they are; None if all are wider."""
        if self.tile_rows or self.tile_vectors:
            candidates = [RegisterTile(self.tile_rows or ROWS[host.lanes()], self.tile_vectors or VECTORS)]
        else:
            candidates = host_measurements.fastest_tiles()
        narrow_tiles = [tile for tile in candidates if tile.width <= columns]
        return next((tile for tile in narrow_tiles if columns % tile.width == 0), next(iter(narrow_tiles), None))

    def most_depth(self) -> int:
        """Return the most words of a block along the summed axis: panels of both factors take three
        quarters of the first cache. Half of it takes 1 to 5% longer: sums are read and written more often.

        The order of sums follows from it, so that it is the same for all tiles of vectors.
        """
        words = 2 * ROWS[host.lanes()] + VECTORS * host.lanes()
        return self.depth or host_measurements.caches().first * 3 // 4 // (4 * words)

    def most_depth_on_tiles(self) -> int:
        """Return the most words of a block along the summed axis on tile registers: a panel of rows takes two thirds of
        the first cache."""
        return self.depth or host_measurements.caches().first * 2 // 3 // (4 * PANEL)

    def unit(self, dtypes: Sequence[DType], extents: Sequence[int]) -> str:
        """Choose the one of ``UNITS`` that multiplies factors of these dtypes. ``extents`` are (rows, columns, depth).
        An option of 1 decides, else the fastest unit of those that are possible."""
        rows, columns, depth = extents
        if not all(dtype in PAIRED for dtype in dtypes):
            return "float32"
        options = {"pairs": self.pairs if host.multiplies_pairs() else 0, "amx": self.amx if (
            host.multiplies_tiles() and rows % PANEL == columns % PANEL == depth % (2 * SIDE) == 0) else 0}
        chosen = [unit for unit, option in options.items() if option == 1]
        measured = [unit for unit, option in options.items() if option == -1]
        if chosen or not measured:
            return chosen[-1] if chosen else "float32"
        return max("float32", *measured, key=host_measurements.rate_of_unit)


@dataclass(frozen=True)
class PackedFactor:
    """A factor in memory: its address, its strides along its rows or columns and along the summed axis, the width of
    its panels.

    With ``pairs`` the summed axis goes in steps of two: a panel has words of two neighbors. Panels have a row for
    each step, or with ``by_columns`` a row of ``PIECE`` steps for each element.
    """

    start: Linear
    memory: Operand
    width: int
    pairs: bool
    by_columns: bool = False

    def at(self, along: Linear, summed: Linear) -> Linear:
        """Return the address of an element."""
        stride, depth = (s * self.memory.dtype.itemsize for s in self.memory.strides)
        return self.start.plus(along, stride).plus(summed, depth * (1 + self.pairs))

    @property
    def has_words(self) -> bool:
        """Whether pairs are words in memory: their elements are adjacent along the summed axis."""
        return self.pairs and self.memory.dtype is BFLOAT16 and self.memory.strides[1] == 1

    @property
    def is_aligned(self) -> bool:
        """Whether elements are at even distances, so that pairs are words at multiples of their size."""
        # 1: the array's alignment
        numbers = self.start.const, *[factor for _, factor in self.start.symbols if factor != 1]
        return self.memory.strides[0] % 2 == 0 and not any(number % UINT32.itemsize for number in numbers)

    def pack(self, code: NativeFunction, count: int, depth: int, start: Linear, panels: Linear, odd: bool = False,
             memory: int = MEMORY) -> None:
        """Copy ``count`` elements by ``depth`` steps into panels: as float32, or as pairs. If it is ``odd``, the last
        pair has only its first element. Pairs that are words in memory are copied as words: those that are not aligned
        after ``pack_aligned`` has copied them to ``memory``.

        Rows along the summed axis are read from end to end, and registers transpose them. Other rows of the factor lie
        apart, so that the processor does not predict them: code prefetches each row ``PIECE`` steps ahead.
        """
        across, summed = self.memory.strides
        steps_packed = depth - odd
        step, width = summed * (1 + self.pairs), min(self.width, count)
        piece = max(steps_packed, 1) if summed == 1 and not self.by_columns else divisor(steps_packed, PIECE)
        extents = steps_packed // piece, count // width, piece, width
        strides = piece * step, width * across, step, across
        written = (piece * width, depth * width, *((1, piece) if self.by_columns else (width, 1)))
        if odd:
            self.pack_last(code, count, depth, start, panels)
        if self.has_words and steps_packed and not self.is_aligned:
            self.pack_aligned(code, count, depth, steps_packed, start, panels, memory)
        elif self.has_words and steps_packed:
            source = Operand(UINT32, tuple([stride // 2 for stride in strides]))
            nest = Nest(extents, frozenset(), (source,), 0, (Operand(UINT32, written),), (), (0,))
            code.emit(nest, start, panels)
        elif self.pairs and steps_packed:
            is_paired = self.memory.dtype is BFLOAT16
            source, target = Operand(UINT16 if is_paired else self.memory.dtype, strides), Operand(UINT32, written)
            join = JOIN if is_paired else NARROWED_JOIN
            nest = Nest(extents, frozenset(), (source, source), 0, (target,), join, (2 + len(join),))
            code.emit(self.with_prefetches(nest, piece * step), start,
                      start.plus(Linear(summed * self.memory.dtype.itemsize)), panels)
        if self.pairs:
            return
        steps = () if self.memory.dtype is FLOAT32 else (Step("convert", FLOAT32, (0,)),)
        nest = Nest(extents, frozenset(), (Operand(self.memory.dtype, strides),), 0, (Operand(FLOAT32, written),),
                    steps, (2,) if steps else (0,))
        code.emit(self.with_prefetches(nest, piece * step), start, panels)

    def pack_aligned(self, code: NativeFunction, count: int, depth: int, steps: int, start: Linear, panels: Linear,
                     memory: int) -> None:
        """For each panel, copy its elements to rows of an even number of elements in ``memory``, and pack these.

        Vectors that are loaded from one row then have pairs, and registers transpose them. The copy stays in the first
        cache.
        """
        width, row = min(self.width, count), 2 * steps
        across, summed = self.memory.strides
        copied = code.allocate(2 * width * row, memory).base
        rows = replace(self, start=copied, memory=Operand(BFLOAT16, (row, 1)))
        source, target = Operand(UINT16, (across, summed)), Operand(UINT16, (row, 1))
        copy = Nest((width, row), frozenset(), (source,), 0, (target,), (), (0,))
        with code.repeated(count // width) as panel:
            code.emit(copy, start.plus(panel, 2 * width * across), copied)
            rows.pack(code, width, steps, copied, panels.plus(panel, 4 * width * depth))

    def pack_last(self, code: NativeFunction, count: int, depth: int, start: Linear, panels: Linear) -> None:
        """Copy the elements of the last step as pairs with 0."""
        (across, summed), width = self.memory.strides, min(self.width, count)
        is_paired, last = self.memory.dtype is BFLOAT16, depth - 1
        source = Operand(UINT16 if is_paired else self.memory.dtype, (width * across, across))
        steps = WIDEN if is_paired else NARROWED_WIDEN
        nest = Nest((count // width, width), frozenset(), (source,), 0, (Operand(UINT32, (depth * width, 1)),), steps,
                    (1 + len(steps),))
        code.emit(nest, start.plus(Linear(2 * last * summed * self.memory.dtype.itemsize)),
                  panels.plus(Linear(4 * last * width)))

    def with_prefetches(self, nest: Nest, distance: int) -> Nest | AddressedNest:
        """Return the nest with prefetches of its inputs ``distance`` elements ahead, if their rows lie apart."""
        if self.memory.strides[0] != 1:
            return nest
        ahead = distance * self.memory.dtype.itemsize
        return AddressedNest(nest, MemoryUse(ahead=tuple([(k, ahead) for k in range(len(nest.inputs))])))


class PackedProduct:
    """Writes a product into a program. Its nest has three axes: rows, columns, and the summed one."""

    def __init__(self, code: NativeFunction, product: LoopNest, options: PackingOptions) -> None:
        self.code, self.nest, self.finish = code, product.nest, product.finish
        starts = [region.address for region in product.regions]
        # a is the factor with the rows, b the one with the columns
        a, b = (0, 1) if product.nest.inputs[0].strides[0] else (1, 0)
        inputs, (self.rows, self.columns, depth) = product.nest.inputs, product.nest.extents
        tile = options.tile(self.columns)
        assert tile is not None                                 # can_pack has checked that there is one
        self.options, self.tile = options, tile
        self.unit = options.unit([o.dtype for o in inputs], product.nest.extents)
        pairs, on_tiles = self.unit != "float32", self.unit == "amx"
        self.depth = -(-depth // (1 + pairs))
        self.odd = pairs and depth % 2 == 1
        panel, width = (PANEL, PANEL) if on_tiles else (tile.panel, tile.width)
        self.a = PackedFactor(starts[a], Operand(inputs[a].dtype, inputs[a].strides[::2]), panel, pairs, on_tiles)
        self.b = PackedFactor(starts[b], Operand(inputs[b].dtype, inputs[b].strides[1:]), width, pairs)
        self.out, self.result = starts[2], product.nest.outputs[0]
        self.most = options.packed // (4 * self.depth)          # rows or columns that are packed at a time
        panels, remainder = divmod(self.rows, panel)
        self.m = self.rows if remainder else panel * divisor(panels, self.most // panel)
        equal = self.rows % 2 == 0 if remainder else panels % 2 == 0
        halves = equal and self.m == self.rows >= LEAST_HALVED and host.threads() == 2
        self.parts = 1 + halves
        self.m //= self.parts                                   # rows of a part
        self.blocks = self.chosen_blocks()
        self.k, self.n, self.block = self.blocks.depth, self.blocks.columns, self.blocks.rows
        self.shorter = self.depth % self.k                      # depth of the last block, if it differs

    def chosen_blocks(self) -> ProductBlocks:
        """Return the blocks that the options name; without options, those that cost least of the blocks that fit the
        product."""
        options, panel, tile = self.options, self.a.width, self.b.width
        caches = host_measurements.caches()
        shared = self.columns // (2 * host.threads() if host.threads() > 1 else 1)
        step = PIECE if self.unit == "amx" else 1               # positions of the summed axis in a register
        most_depth = options.most_depth_on_tiles() if self.unit == "amx" else options.most_depth()
        depth = step * depth_of_blocks(self.depth // step, most_depth // step)
        rates = host_measurements.rates()._replace(multiply_adds=host_measurements.words_of_unit(self.unit))
        most = min(options.columns or caches.third // 4 // (4 * most_depth), shared, self.most)
        columns = [n * tile for n in divisors(self.columns // tile, most // tile)]
        most = options.rows or (self.m if self.finish is None else max(caches.second // 4 // (4 * columns[0]), panel))
        rows = [n * panel for n in divisors(self.m // panel, most // panel)]
        # An option is a bound: take the largest block within it. Without options, compare blocks.
        return chosen([ProductBlocks(self.rows, self.columns, self.depth, panel, row, column, depth)
                       for column in (columns[:1] if options.columns else columns)
                       for row in (rows[:1] if options.rows else rows)], caches, rates)

    def write(self) -> None:
        self.code.notes.append(f"form-products: {self.blocks}, {self.unit}: "
                               f"{self.blocks.traffic(host_measurements.caches())}")
        rows = self.parts * self.m
        self.packed = self.code.allocate(4 * rows * self.depth).base
        with self.code.repeated(self.rows // rows) as number:
            self.write_rows(Linear().plus(number, rows))

    def write_rows(self, rows: Linear) -> None:
        """Write the work of all parts of the rows from ``rows`` on. Threads share it."""
        even_blocks = self.depth // self.k - (self.odd and not self.shorter)
        if even_blocks:
            # A loop over each part, not one over the blocks of both: zero-unwritten proves that it packs all rows.
            shared, in_order = (even_blocks, 1) if self.parts == 1 else (1, even_blocks)
            with self.on_pool(shared) as (part, block, memory), self.code.repeated(in_order) as k:
                self.pack_rows(rows, part, block.plus(k), self.k, memory)
        if even_blocks * self.k < self.depth:
            with self.on_pool() as (part, _, memory):
                self.pack_rows(rows, part, Linear(even_blocks), self.shorter or self.k, memory, self.odd)
        full_columns = self.columns // self.b.width * self.b.width
        with self.on_pool(full_columns // self.n) as (part, j, memory):
            self.write_columns(rows, part, Linear().plus(j, self.n), self.n, memory)
        if full_columns < self.columns:
            with self.on_pool() as (part, _, memory):
                self.write_columns(rows, part, Linear(full_columns), self.columns - full_columns, memory)

    def pack_rows(self, rows: Linear, part: Linear, k: Linear, depth: int, memory: int, odd: bool = False) -> None:
        """Pack the rows of a part for the block of ``depth`` positions of the summed axis from ``k`` on."""
        for row, count in self.pieces:
            start = self.a.at(rows.plus(part, self.m).plus(Linear(row)), Linear().plus(k, self.k))
            self.a.pack(self.code, count, depth, start, self.panel(part, Linear(row), k, depth), odd, memory)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Return the rows in whole panels, and the remaining rows, each as (first row, number of rows)."""
        full_rows = self.m // self.a.width * self.a.width
        return [piece for piece in ((0, full_rows), (full_rows, self.m - full_rows)) if piece[1]]

    def panel(self, part: Linear, row: Linear, k: Linear, depth: int) -> Linear:
        """Return the address of a part's packed rows from ``row`` on, in the block of ``depth`` positions from ``k``
        on."""
        return self.packed.plus(part, 4 * self.m * self.depth).plus(row, 4 * depth).plus(k, 4 * self.k * self.m)

    def write_columns(self, rows: Linear, part: Linear, columns: Linear, width: int, memory: int) -> None:
        """Write the work of one iteration: all rows of a part by ``width`` columns from ``columns`` on.

        A block of ``b`` stays in the second cache while all rows are multiplied by it.
        """
        packed = self.code.allocate(4 * width * self.k, memory).base
        last, sums = -(-self.depth // self.k) - 1, None
        if self.finish is not None:
            sums = self.code.allocate(4 * width * (self.m if last else self.block), memory).base

        def multiply(k: Linear, number: int) -> None:
            """Write the product of a block of the summed axis. ``number`` is the block's number; -1 if the variable of
            a loop has it."""
            depth = self.shorter or self.k if number == last else self.k
            self.b.pack(self.code, width, depth, self.b.at(columns, Linear().plus(k, self.k)), packed,
                        self.odd and number == last, memory)
            for first_row, count in self.pieces:
                block = min(self.block, count)
                with self.code.repeated(count // block) as blocks:
                    row = Linear(first_row).plus(blocks, block)
                    to = self.address(rows.plus(part, self.m).plus(row), columns)
                    destination, line = to, self.result.strides[0]
                    if sums is not None:
                        destination, line = sums.plus(row, 4 * width) if last else sums, width
                    product = self.product(block, width, depth, line)
                    self.code.emit(replace(product, fresh=number == 0), self.panel(part, row, k, depth), packed,
                                   destination)
                    if self.finish is not None and number == last:
                        self.code.emit(replace(self.finish, extents=(block, width), outputs=(self.result,),
                                               inputs=(Operand(FLOAT32, (width, 1)),)), destination, to)

        multiply(Linear(), 0)
        adding_blocks = last - (self.finish is not None or self.shorter > 0 or self.odd)
        if adding_blocks > 0:
            with self.code.repeated(adding_blocks) as number:
                multiply(number.plus(Linear(1)), -1)
        if last > max(adding_blocks, 0):
            multiply(Linear(last), last)

    def address(self, row: Linear, column: Linear) -> Linear:
        """Return the address of an element of the result."""
        line, step = (stride * self.result.dtype.itemsize for stride in self.result.strides[:2])
        return self.out.plus(row, line).plus(column, step)

    def product(self, rows: int, columns: int, depth: int, line: int) -> TileProduct | TileRegisterProduct:
        """Multiply panels of rows by panels of columns; rows of the result, from 0 on, are ``line`` elements apart."""
        width, tile = min(self.a.width, rows), min(self.b.width, columns)
        if self.unit == "amx":
            return TileRegisterProduct(rows // width, columns // tile, depth, line, True)
        nest = product_of_panels((rows // width, columns // tile), (width, tile), depth, line)
        return TileProduct(nest, True, self.unit == "pairs", self.tile)

    @contextmanager
    def on_pool(self, count: int = 1) -> Iterator[tuple[Linear, Linear, int]]:
        """Append a loop over ``count`` blocks of each part of the rows, whose iterations run on the pool.

        Yield the number of the part, that of the block, and the slot of an iteration's memory. Blocks of one part have
        successive numbers: two threads, which begin at both ends, each stay with one part unless one of them is slower.
        """
        code = self.code
        if self.parts * count == 1:
            yield Linear(), Linear(), MEMORY
            return
        loop = code.add_loop(self.parts * count, on_pool=True)
        with code.inside(loop.body):
            number = slot_value(loop.slot)
            if 1 in (self.parts, count):
                part, block = (Linear(), number) if self.parts == 1 else (number, Linear())
            else:
                part, block = (code.computed(f"nki_{name}", number, Linear(count)) for name in ("floordiv", "mod"))
            yield part, block, loop.memory


def can_pack(product: LoopNest, worth: int, options: PackingOptions) -> bool:
    """Return whether a product has rows, columns and one summed axis, is large, and fills tiles."""
    nest, out = product.nest, product.nest.outputs[0]
    if len(nest.extents) != 3 or nest.reduced != {2} or nest.elements < worth or out.strides[1] != 1:
        return False
    moves = sorted(tuple(s != 0 for s in o.strides) for o in nest.inputs)
    rows, columns, depth = nest.extents
    tile = options.tile(columns)
    return (moves == [(False, True, True), (True, False, True)] and tile is not None and rows >= tile.panel
            and min(depth, options.most_depth()) >= LEAST_DEPTH)


def gains_alone(product: LoopNest, options: PackingOptions) -> bool:
    """Return whether packing pays off for a product without loops around it. It does not if its factors stay in the
    second cache and other routines multiply them as fast, nor if few rows read the packed factor. Only packed factors
    use tile registers."""
    rows, columns, depth = product.nest.extents
    unit = options.unit([operand.dtype for operand in product.nest.inputs], product.nest.extents)
    if unit == "float32":
        return rows >= options.high and 4 * max(rows, columns) * depth > options.apart
    return unit == "amx" or 2 * max(rows, columns) * depth > options.apart or depth % 2 == 1


def depth_of_blocks(depth: int, most: int) -> int:
    """Return the depth of the blocks of a summed axis of ``depth`` positions: the largest divisor up to ``most``. If
    that is less than half of what fits, the last block is shorter, and the others are multiples of ``PIECE`` if
    possible."""
    even = divisor(depth, most)
    if 2 * even >= min(most, depth):
        return even
    size = -(-depth // -(-depth // most))
    return min(-(-size // PIECE) * PIECE, most)


def divisor(number: int, most: int) -> int:
    """Return the largest divisor that is at most ``most``."""
    return divisors(number, most)[0]


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number that are at most ``most``, the largest first."""
    return [d for d in range(min(number, max(most, 1)), 0, -1) if number % d == 0] or [1]
