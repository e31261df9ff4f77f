# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes sums of products as matrix products of tiles that accumulate in PSUM.

before:  out[i, j] += a[k, i] * b[k, j]             for 512 k, 256 i, 1024 j
after:   for each 128 x 512 tile of out:            total = 0 in PSUM
             for each 128 of the k:                 total += (128 x 128 tile of a)' * (128 x 512 tile of b)
             out tile = total

The tensor engine sums along the partitions, so that partition k of both factors' tiles has element k of the sum. A
factor that lies in HBM with k along its rows is loaded in its rows, and transposed on chip.

Transfers of short runs are slow, which three rules avoid:

- If a tile has only parts of a factor's rows, one load brings the complete runs, for this tile and later ones
  (``complete_runs``).
- If the complete rows are short, each partition takes several neighboring rows. The summed elements of one tile are
  then as many rows apart (``rows_together``).
- A second summed axis may shift the rows of a factor, as a position in the window of a convolution does. The rows of
  all shifts are loaded and transposed once (``load_shifted``).
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
HELD = 2                # a factor is loaded in complete runs if it fills at most 1 / HELD of the cache of tiles
LONGEST = 8192          # most bytes of a complete run


@dataclass(frozen=True)
class TiledProduct:
    """A nest that sums the products of two of its inputs, ``left`` and ``right`` (indices of inputs).

    ``inner``, ``rows`` and ``columns`` are the axes of the nest that a tile has: the sum goes along ``inner``, only the
    left input moves along ``rows``, and only the right one along ``columns``. Axis 0, of extent 1, stands for one that
    is missing, such as the rows of a vector.
    """

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
        """Return the product with its summed axis divided: a tile has every ``spacing``-th element of it."""
        rows, columns = (a + (a > self.inner) for a in (self.rows, self.columns))
        return replace(self, nest=self.nest.divided(self.inner, spacing), rows=rows, columns=columns)


def tiled_product(nest: TileNest, choices: TileChoices) -> TiledProduct | None:
    """Return the nest as a product of two operands, or None if the tensor engine cannot compute it. With the choice
    ``vectors``, return None also for batches of products of two vectors, which the vector engine computes."""
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
        return max(group, key=lambda x: (merged.extents[x], -merged.output.strides[x] * choices.neighbors), default=0)
    return TiledProduct(merged, *product.inputs, largest(summed), largest(rows), largest(columns))


def with_output_rows(product: TiledProduct, choices: TileChoices) -> TiledProduct:
    """Return the product with exchanged factors where that is better, else the product.

    It is better if neighboring elements of the result are in different rows, since each store would have runs of one
    element. It is also better if the result is one row: each partition then gets a column, and the tensor engine loads
    the larger factor instead of moving it. A single row stays if the right factor has to be transposed, because
    partitions take several short rows only of the factor whose rows go along all columns.
    """
    nest, exchanged = product.nest, replace(product, left=product.right, right=product.left, rows=product.columns,
                                            columns=product.rows)
    strides, extents = nest.output.strides, nest.extents
    if choices.exchange and strides[product.rows] == 1 and strides[product.columns] not in (0, 1):
        return exchanged
    is_row = extents[product.rows] == 1 and extents[product.columns] > 1
    is_across = lies_across(nest.inputs[product.right], product.inner, product.columns)
    return exchanged if choices.columns and is_row and not is_across else product


def packed_steps(product: TiledProduct, number: int) -> dict[int, int] | None:
    """Return the steps by axes of a copy of a factor whose rows have the summed elements, one beside the other.

    Return None if the factor overlaps itself, so that a copy would repeat elements, or if it is a matrix already: if
    neither its rows nor its summed elements have more than one axis.
    """
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
    """Return how many neighboring rows of an operand, along an axis, each partition takes in one transfer.

    The number is greater than 1 if the rows are adjacent in HBM and shorter than ``SHORT``, fill the partitions, and
    are not yet on chip.
    """
    if not tiles.choices.short_rows:
        return 1
    row = 1
    for step, n in steps_beside(operand, extents, axis):
        row = step * n if step == row else row
    count, nbytes = extents[axis], row * operand.dtype.itemsize
    if operand.strides[axis] != row or nbytes >= SHORT or count % machine.partitions:
        return 1
    first = operand.tile((machine.partitions, row)).patterned(dims=((row, machine.partitions), (1, row)))
    if tiles.cache.contains(elements_of(first, tiles.symbols)):
        return 1
    tiles_of_rows = count // machine.partitions
    return max(m for m in range(1, tiles_of_rows + 1) if tiles_of_rows % m == 0 and (m - 1) * nbytes < SHORT)


def steps_beside(operand: TileOperand, extents: Sequence[int], axis: int) -> list[tuple[int, int]]:
    """Return (step, extent) of an operand for each axis along which it moves, except ``axis``; the smallest step first.
    """
    return sorted((step, n) for a, (step, n) in enumerate(zip(operand.strides, extents))
                  if a != axis and step > 0 and n > 1)


class Matrices:
    """Emits the matrix products that are parts of one nest."""

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
        """Yield the parts of a nest that multiply one tile of each factor. Before the first part that needs them, emit
        the load of the rows that several shifts share."""
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
        """Load and transpose all rows of a factor that some shift reads, as one tile, unless the tiles of the separate
        shifts would be smaller together.

        ``later``: number of pieces of the summed axis after this one. Their rows are part of the tile, too, if they
        continue the rows of this piece.
        """
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
                cache.contains(elements_of(wide, self.tiles.symbols))):
            return
        lane, lanes = source.access.dims[0]
        parts = [(first, source.patterned(free=source.access.free.plus(Linear(first * step)),
                                          dims=((step, n), (lane, lanes))))
                 for first in range(0, count, self.machine.partitions)
                 if (n := min(self.machine.partitions, count - first))]
        self.tiles.load_transposed(wide, parts)

    def is_inside(self, operand: TileOperand, count: int, last: int) -> bool:
        """Return whether the buffer of an operand has ``count`` summed elements that begin ``last`` elements after its
        first one."""
        step = operand.strides[self.product.inner]
        return not operand.free.symbols and operand.free.const + last + step * (count - 1) < prod(operand.base_shape)

    def factor(self, nest: TileNest, number: int, other: int) -> Tile:
        """Return a tile of a factor with the summed axis along its partitions. It is loaded so, or loaded in rows along
        the ``other`` axis and transposed on chip."""
        inner, machine = self.product.inner, self.machine
        operand, counts = nest.inputs[number], (nest.extents[inner], nest.extents[other])
        source = operand.tile(counts, (inner, other))
        if not lies_across(operand, inner, other) or min(counts) == 1:
            self.load_complete_runs(source, number, inner)
            return self.tiles.loaded(source)
        together = rows_together(self.tiles, machine, operand, nest.extents, other)
        lanes = nest.divided(other, together).windows(other + 1, 1)       # row 0 of each partition, row 1, and so on
        along, parts = inner + (inner > other), []
        for first, lane in enumerate(lanes):
            for k, window in enumerate(lane.windows(other, machine.partitions)):
                part = window.inputs[number].tile((window.extents[other], counts[0]), (other, along))
                parts.append((first + k * together * machine.partitions, part))
        if not self.tiles.cache.contains(elements_of(source, self.tiles.symbols)):
            for _, part in parts:
                self.load_complete_runs(part, number, other, together)
        return self.tiles.load_transposed(source, parts, together)

    def load_complete_runs(self, source: Tile, number: int, axis: int, together: int = 1) -> None:
        """Load the complete runs of which ``source``, with ``axis`` along its partitions, has short parts. This tile
        and later ones are then parts of the loaded one."""
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
        complete = complete_runs(source, operand, extents, axis, together)
        if complete is not None and not cache.contains(elements_of(source, symbols)) and not cache.contains(
                elements_of(complete, symbols)):
            self.tiles.loaded(complete)


def complete_runs(source: Tile, operand: TileOperand, extents: Sequence[int], axis: int, together: int) -> Tile | None:
    """Return a tile of complete runs: in each partition of ``source`` all neighboring elements that the product reads.

    For example, the product reads 128 rows of 64 floats, 64 floats apart, and ``source`` has the first 16 of each row:
    the complete runs have 64. ``axis`` goes along the partitions, and each partition has ``together`` neighboring
    positions of it. Return None if ``source`` has runs of ``SHORT`` bytes or more, if the complete ones are not longer
    or are longer than ``LONGEST``, and if they overlap or the tile lies in two of them.
    """
    steps = steps_beside(operand, extents, axis)
    if together > 1:
        steps = sorted([*steps, (operand.strides[axis], together)])
    run, distances = 1, [source.access.dims[0][0]] if source.access.dims[0][1] > 1 else []     # from run to run
    for step, n in steps:
        if step <= run:
            run += step * (n - 1)
        else:
            distances.append(step)
    free = [dim for dim in source.access.dims[1:] if dim[1] > 1]
    part, size = free[0][1] if len(free) == 1 and free[0][0] == 1 else 1, source.dtype.itemsize
    if part * size >= SHORT or run <= part or run * size > LONGEST or not distances or run > min(distances) or (
            len(free) > 1 or source.access.free.symbols != operand.free.symbols):
        return None
    start_in_run = (source.access.free.const - operand.free.const) % min(distances)
    length = sum(step * (n - 1) for step, n in free) + 1
    if start_in_run + length > run:
        return None
    return source.patterned(free=source.access.free.plus(Linear(-start_in_run)), dims=(source.access.dims[0], (1, run)))


def shifting_axes(product: TiledProduct, size: int) -> dict[int, list[int]]:
    """Return, for each factor that is transposed, the summed axes that shift its rows by complete rows.

    The keys are ``product.left`` and ``product.right``. Tiles of different shifts share rows. A factor has an empty
    list if no axis shifts it, but pieces of ``size`` summed elements share rows.
    """
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
    """Return whether an operand's neighboring elements go along the summed axis, so that its rows, which a load brings
    to the partitions, go along the ``other`` axis."""
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
