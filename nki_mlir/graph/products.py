# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes sums of products as matrix products of tiles that accumulate in PSUM.

The tensor engine sums along the partitions. So a factor whose rows go along another axis is transposed on chip. A load
of short runs brings all elements of these rows that the product needs (its ``hull``), and where complete rows are short
a partition takes several neighbouring ones: the summed elements of a tile are then several rows apart. Rows that a
second summed axis shifts, as a position in the window of a convolution does, are loaded and transposed once for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from nki_mlir.dialects.access import PSUM, Linear, Tile, dense
from nki_mlir.graph.choices import TileChoices
from nki_mlir.graph.tile_cache import elements_of
from nki_mlir.graph.tiles import Tiles
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist import expression as trees
from nki_mlir.waist.recognize import product_of
from nki_mlir.waist.tile_operand import TileNest, TileOperand

MOST_KEPT = 64          # tiles of the left factor that stay on chip for all columns of the right one
SHORT = 512             # bytes of a run that HBM moves slowly
HELD = 2                # a factor of up to 1 / HELD of what stays on chip is loaded in longer runs than a tile has
LONGEST = 8192          # bytes of a partition that a load may bring for later tiles


@dataclass(frozen=True)
class TiledProduct:
    """A nest as a product of two inputs, ``left`` and ``right``. Axis 0 of the nest has extent 1 and stands for an
    axis that the product does not have."""

    nest: TileNest
    left: int
    right: int
    inner: int
    rows: int
    columns: int

    @property
    def axes(self) -> tuple[int, int, int]:
        return self.inner, self.rows, self.columns

    def divided(self, spacing: int) -> "TiledProduct":
        """Return the product whose summed axis has every ``spacing``-th element in a tile."""
        rows, columns = (a + (a > self.inner) for a in (self.rows, self.columns))
        return replace(self, nest=self.nest.divided(self.inner, spacing), rows=rows, columns=columns)


def tiled_product(nest: TileNest, choices: TileChoices) -> TiledProduct | None:
    """Return the nest as a product of two operands if the tensor engine can compute it, else None; with ``vectors``
    also None for a row of each times a row, which are not matrices."""
    product = product_of(nest)
    if product is None or product.fold.dtype is not FLOAT32 or nest.output.dtype.is_integer or (
            not product.reads_inputs or len({*product.inputs}) < 2):
        return None
    merged = nest.arranged(None)
    left, right = (merged.inputs[k] for k in product.inputs)
    axes = [x for x, n in enumerate(merged.extents) if n > 1]
    summed = [x for x in axes if x in merged.reduced]
    parallel = [x for x in axes if x not in merged.reduced]
    rows = [x for x in parallel if left.moves(x) and not right.moves(x)]
    columns = [x for x in parallel if right.moves(x) and not left.moves(x)]
    batch_axes = [x for x in parallel if left.moves(x) and right.moves(x)]
    repeats = [x for x in parallel if not left.moves(x) and not right.moves(x)]   # the results do not vary along these
    proper = all(left.moves(x) and right.moves(x) for x in summed) and all(merged.output.moves(x) for x in parallel)
    if choices.vectors and batch_axes and not rows and not columns:
        return None
    if not summed or not proper or left.dtype.is_integer or right.dtype.is_integer:
        return None
    if repeats and not (rows and columns and all(merged.output.strides[x] != 1 for x in repeats)):
        return None                             # a store would have runs of one element

    def largest(group: list[int]) -> int:
        return max(group, key=lambda x: (merged.extents[x], -merged.output.strides[x] * choices.neighbours), default=0)
    return TiledProduct(merged, *product.inputs, largest(summed), largest(rows), largest(columns))


def with_output_rows(product: TiledProduct, choices: TileChoices) -> TiledProduct:
    """Return the product with the factors exchanged if the result's rows would have single elements, or if there is one
    row, so that each partition gets a column: the tensor engine loads the larger factor instead of moving it. A factor
    that is transposed stays: several of its short rows go to a partition only for all columns together."""
    nest, exchanged = product.nest, replace(product, left=product.right, right=product.left, rows=product.columns,
                                            columns=product.rows)
    strides, extents = nest.output.strides, nest.extents
    if choices.exchange and strides[product.rows] == 1 and strides[product.columns] not in (0, 1):
        return exchanged
    is_row = extents[product.rows] == 1 and extents[product.columns] > 1
    is_across = lies_across(nest.inputs[product.right], product.inner, product.columns)
    return exchanged if choices.columns and is_row and not is_across else product


def packed_steps(product: TiledProduct, number: int) -> dict[int, int] | None:
    """Return the steps of a factor by the axes of the product's nest if it is copied to rows of summed elements; None
    if some elements are in several rows, or if neither rows nor summed elements have more than one axis."""
    nest, operand = product.nest, product.nest.inputs[number]
    axes = [a for a, n in enumerate(nest.extents) if n > 1 and operand.moves(a)]
    summed = [a for a in axes if a in nest.reduced]
    span = 0
    for step, n in sorted((operand.strides[a], nest.extents[a]) for a in axes):
        if step <= span:
            return None
        span += step * (n - 1)
    rows = [a for a in axes if a not in nest.reduced]
    return dict(zip([*rows, *summed], dense([nest.extents[a] for a in (*rows, *summed)]))) if max(
        len(rows), len(summed)) > 1 else None


def cycles(product: TiledProduct, machine: Machine) -> int:
    """Return the cycles in which columns of the product move through the tensor engine."""
    extents, size = product.nest.extents, machine.partitions
    single = prod(n for a, n in enumerate(extents) if a not in product.axes)
    return single * -(-extents[product.inner] // size) * -(-extents[product.rows] // size) * extents[product.columns]


def write_product(tiles: Tiles, machine: Machine, product: TiledProduct, start: float | int | None) -> None:
    """Emit one product of matrices for each combination of the axes that are not in a tile."""
    product = with_output_rows(product, tiles.choices)
    first = next(iter(matrices(product)))
    together = rows_together(tiles, machine, first.inputs[product.right], first.extents, product.inner)
    if together > 1 and not lies_across(first.inputs[product.right], product.inner, product.columns):
        product = product.divided(together)
    for nest in matrices(product):
        Matrices(tiles, machine, product).write(nest, start)


def matrices(product: TiledProduct) -> list[TileNest]:
    """Return the parts of a product's nest that are products of two matrices."""
    nest = product.nest
    return nest.boxes((a, 1) for a in range(len(nest.extents)) if a not in product.axes and a not in nest.reduced)


def rows_together(tiles: Tiles, machine: Machine, operand: TileOperand, extents: Sequence[int], axis: int) -> int:
    """Return how many neighbouring rows of an operand, along an axis, a partition takes in one transfer: several, if
    rows lie beside each other in HBM and are short, and nothing has them on chip."""
    if not tiles.choices.short_rows:
        return 1
    row = 1
    for step, n in steps_beside(operand, extents, axis):
        row = step * n if step == row else row
    count, nbytes = extents[axis], row * operand.dtype.itemsize
    if operand.strides[axis] != row or nbytes >= SHORT or count % machine.partitions:
        return 1
    first = operand.tile((machine.partitions, row)).patterned(dims=((row, machine.partitions), (1, row)))
    if tiles.cache.has(elements_of(first, tiles.symbols)):
        return 1
    tiles_of_rows = count // machine.partitions
    return max(m for m in range(1, tiles_of_rows + 1) if tiles_of_rows % m == 0 and (m - 1) * nbytes < SHORT)


def steps_beside(operand: TileOperand, extents: Sequence[int], axis: int) -> list[tuple[int, int]]:
    """Return the steps of an operand along all axes but one, the smallest first, with the extents."""
    return sorted((step, n) for a, (step, n) in enumerate(zip(operand.strides, extents))
                  if a != axis and step > 0 and n > 1)


class Matrices:
    """Emits products of matrices, which are parts of one nest."""

    def __init__(self, tiles: Tiles, machine: Machine, product: TiledProduct) -> None:
        self.tiles, self.machine, self.product = tiles, machine, product

    def write(self, nest: TileNest, start: float | int | None) -> None:
        product, machine, tiles = self.product, self.machine, self.tiles
        for strip in nest.windows(product.rows, machine.partitions):
            lefts: dict[int, Tile] = {}
            for part in strip.windows(product.columns, min(machine.psum_free_max, machine.moving_free_max)):
                total = tiles.buffer((part.extents[product.rows], part.extents[product.columns]), FLOAT32, PSUM)
                for k, piece in enumerate(self.pieces(part)):
                    if k not in lefts:
                        left = self.factor(piece, product.left, product.rows)
                        lefts |= {k: left} if k < MOST_KEPT else {}
                    right = self.factor(piece, product.right, product.columns)
                    if k == 0:
                        tiles.fill(total, 0, (1, 2))
                    multiply(tiles, total, lefts.get(k, left), right)
                finish(tiles, part, product, total, start)

    def pieces(self, nest: TileNest) -> Iterator[TileNest]:
        """Yield the parts of a nest with one tile of each factor. Rows that shifts share are on chip before those of
        the first shift are needed."""
        product, size = self.product, self.machine.partitions
        shifts = shifting_axes(product, size) if self.tiles.choices.windows else {}
        axes = [a for each in shifts.values() for a in each]
        single = [(a, 1) for a in sorted(nest.reduced) if a != product.inner and nest.extents[a] > 1]
        for outer in nest.boxes(box for box in single if box[0] not in axes):
            for k, piece in enumerate(outer.windows(product.inner, size)):
                for number, shifted in shifts.items():
                    self.load_shifted(piece, number, shifted, (nest.extents[product.inner] - 1) // size - k)
                yield from piece.boxes(box for box in single if box[0] in axes)

    def load_shifted(self, nest: TileNest, number: int, shifts: Sequence[int], later: int) -> None:
        """Load and transpose the rows of a factor from the first one to the last one of all shifts, unless tiles of the
        separate shifts would be smaller together. Include the rows of this many ``later`` pieces of the summed axis, if
        they are rows of this piece that are further on."""
        product, cache = self.product, self.tiles.cache
        other, operand = product.rows if number == product.left else product.columns, nest.inputs[number]
        steps = [(operand.strides[a], nest.extents[a]) for a in (other, *shifts) if nest.extents[a] > 1]
        if not steps:
            return
        step = gcd(*(each for each, _ in steps))
        count = sum(each * (n - 1) for each, n in steps) // step + 1
        reach = later * self.machine.partitions * operand.strides[product.inner]
        if reach % step == 0 and self.is_inside(operand, nest.extents[product.inner], step * (count - 1) + reach):
            count += reach // step
        source = operand.tile((nest.extents[product.inner], nest.extents[other]), (product.inner, other))
        wide = source.patterned(dims=(source.access.dims[0], (step, count)))
        if count > (later + 1) * prod(n for _, n in steps) or count * source.dtype.itemsize * HELD > cache.bytes or (
                cache.has(elements_of(wide, self.tiles.symbols))):
            return
        lane, lanes = source.access.dims[0]
        parts = [(first, source.patterned(free=source.access.free.plus(Linear(first * step)),
                                          dims=((step, n), (lane, lanes))))
                 for first in range(0, count, self.machine.partitions)
                 if (n := min(self.machine.partitions, count - first))]
        self.tiles.load_transposed(wide, parts)

    def is_inside(self, operand: TileOperand, count: int, last: int) -> bool:
        """Return whether an operand's buffer has ``count`` summed elements from ``last`` elements further on."""
        step = operand.strides[self.product.inner]
        return not operand.free.symbols and operand.free.const + last + step * (count - 1) < prod(operand.base_shape)

    def factor(self, nest: TileNest, number: int, other: int) -> Tile:
        """Load a factor with the summed axis along the partitions; transpose one whose rows go along the other axis."""
        inner, machine = self.product.inner, self.machine
        operand, counts = nest.inputs[number], (nest.extents[inner], nest.extents[other])
        source = operand.tile(counts, (inner, other))
        if not lies_across(operand, inner, other) or min(counts) == 1:
            self.load_hull(source, number, inner)
            return self.tiles.loaded(source)
        together = rows_together(self.tiles, machine, operand, nest.extents, other)
        lanes = nest.divided(other, together).windows(other + 1, 1)       # row 0 of each partition, row 1, and so on
        along, parts = inner + (inner > other), []
        for first, lane in enumerate(lanes):
            for k, window in enumerate(lane.windows(other, machine.partitions)):
                part = window.inputs[number].tile((window.extents[other], counts[0]), (other, along))
                parts.append((first + k * together * machine.partitions, part))
        if not self.tiles.cache.has(elements_of(source, self.tiles.symbols)):
            for _, part in parts:
                self.load_hull(part, number, other, together)
        return self.tiles.load_transposed(source, parts, together)

    def load_hull(self, source: Tile, number: int, axis: int, together: int = 1) -> None:
        """If a tile with an axis along the partitions has short runs, load all elements between them that the product
        reads, for this tile and later ones."""
        operand, extents = self.product.nest.inputs[number], self.product.nest.extents
        cache, symbols = self.tiles.cache, self.tiles.symbols
        nbytes = prod(n for a, n in enumerate(extents) if operand.moves(a)) * operand.dtype.itemsize
        if not self.tiles.choices.short_runs or nbytes // self.machine.partitions * HELD > cache.bytes:
            return                          # a larger factor would be loaded again for each part
        free = next((a for a in self.product.axes if a != axis and operand.strides[a] == 1), None)
        most = self.machine.partitions if number == self.product.left or free == self.product.inner else (
            self.machine.moving_free_max)
        if free is not None and min(extents[free], most) * operand.dtype.itemsize >= SHORT:
            return                          # only the parts at the ends are short
        complete = hull(source, operand, extents, axis, together)
        if complete is not None and not cache.has(elements_of(source, symbols)) and not cache.has(
                elements_of(complete, symbols)):
            self.tiles.loaded(complete)


def hull(source: Tile, operand: TileOperand, extents: Sequence[int], axis: int, together: int) -> Tile | None:
    """Return the tile with the complete runs of bytes, of which a tile with an axis along the partitions has parts;
    None if these are not longer, or not short. ``together``: neighbouring positions of the axis in one partition."""
    steps = steps_beside(operand, extents, axis)
    if together > 1:
        steps = sorted([*steps, (operand.strides[axis], together)])
    run, pitch = 1, [source.access.dims[0][0]] if source.access.dims[0][1] > 1 else []
    for step, n in steps:
        if step <= run:
            run += step * (n - 1)
        else:
            pitch.append(step)
    free = [dim for dim in source.access.dims[1:] if dim[1] > 1]
    part, size = free[0][1] if len(free) == 1 and free[0][0] == 1 else 1, source.dtype.itemsize
    if part * size >= SHORT or run <= part or run * size > LONGEST or not pitch or run > min(pitch) or (
            len(free) > 1 or source.access.free.symbols != operand.free.symbols):
        return None
    start = (source.access.free.const - operand.free.const) % min(pitch)       # of the tile in its runs
    reach = sum(step * (n - 1) for step, n in free) + 1
    if start + reach > run:
        return None
    return source.patterned(free=source.access.free.plus(Linear(-start)), dims=(source.access.dims[0], (1, run)))


def shifting_axes(product: TiledProduct, size: int) -> dict[int, list[int]]:
    """Return the summed axes that shift the rows of a factor by whole rows, so that shifts share rows, by the factor.
    A factor without such axes, whose rows pieces of ``size`` summed elements share, has none. Only a factor that is
    transposed counts."""
    nest, axes, shared = product.nest, {}, set[int]()
    for number, other in ((product.left, product.rows), (product.right, product.columns)):
        operand, step = nest.inputs[number], nest.inputs[number].strides[other]
        if min(nest.extents[product.inner], nest.extents[other]) > 1 and lies_across(operand, product.inner, other):
            axes[number] = [a for a in sorted(nest.reduced) if a != product.inner and nest.extents[a] > 1
                            and operand.strides[a] > 0 and not (
                                operand.strides[a] % step and step % operand.strides[a])
                            and operand.strides[a] * (nest.extents[a] - 1) < step * nest.extents[other]]
            reach = size * operand.strides[product.inner]
            if nest.extents[product.inner] > size and reach % step == 0 and reach < step * nest.extents[other]:
                shared.add(number)
    return {number: shifts for number, shifts in axes.items() if shifts or number in shared}


def lies_across(operand: TileOperand, inner: int, other: int) -> bool:
    """Return whether an operand's elements are nearer along the summed axis, so that its rows go along the other axis.
    """
    return 0 < operand.strides[inner] < operand.strides[other]


def multiply(tiles: Tiles, total: Tile, left: Tile, right: Tile) -> None:
    """Emit ``total += left' right``."""
    extents = (left.shape[0], left.shape[1], right.shape[1])
    a, b = (trees.converted(trees.Input(t.dtype, k), FLOAT32) for k, t in enumerate((left, right)))
    body = trees.alu("add", trees.Output(FLOAT32), trees.alu("multiply", a, b))
    tiles.compute(extents, frozenset({0}), [(left, (0, 1)), (right, (0, 2))], total, (1, 2), body)


def finish(tiles: Tiles, nest: TileNest, product: TiledProduct, total: Tile, start: float | int | None) -> None:
    """Store a tile of the result: the sum plus ``start``, or plus the old value of the output if ``start`` is None."""
    axes = product.rows, product.columns
    counts = tuple(nest.extents[a] for a in axes)
    result = tiles.buffer(counts, nest.output.dtype)
    if start == 0:
        tiles.copy(result, total)
    else:
        inputs = [(total, (0, 1))]
        before: trees.Node = trees.Constant(FLOAT32, float(start or 0))
        if start is None:
            tile = tiles.buffer(counts, nest.output.dtype)
            tiles.copy(tile, nest.output.tile(counts, axes))
            inputs.append((tile, (0, 1)))
            before = trees.converted(trees.Input(nest.output.dtype, 1), FLOAT32)
        body = trees.converted(trees.alu("add", before, trees.Input(FLOAT32, 0)), nest.output.dtype)
        tiles.compute(counts, frozenset(), inputs, result, (0, 1), body)
    tiles.store(nest.output, result, axes)
