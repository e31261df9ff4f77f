# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of products as matrix products of tiles that add up in PSUM."""

from dataclasses import dataclass

from nki_mlir.dialects.access import PSUM, Tile
from nki_mlir.graph.tiles import Tiles
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.tile_nest import (
    Constant,
    Convert,
    Fold,
    Input,
    Node,
    Output,
    TileNest,
    TileOperand,
    alu,
    converted,
    factors_of,
    fold_of,
    walked,
)

MOST_KEPT = 64          # tiles of the left factor that stay on chip while the columns go by


@dataclass(frozen=True)
class Product:
    """A nest whose axis 0 has extent 1, its factors, and its axes (0 where there is none)."""

    nest: TileNest
    left: int
    right: int
    inner: int
    rows: int
    columns: int

    @property
    def axes(self) -> tuple[int, int, int]:
        return self.inner, self.rows, self.columns


def product_of(nest: TileNest) -> Product | None:
    """The nest as a product of two operands, if it is one that the Tensor engine computes."""
    fold = fold_of(nest.body)
    factors = _factors(fold) if fold is not None else None
    if factors is None or nest.output.dtype.is_integer or len(set(factors)) < 2:
        return None
    merged = nest.arranged(None)
    a, b = (merged.inputs[k] for k in factors)
    axes = [x for x, n in enumerate(merged.extents) if n > 1]
    summed = [x for x in axes if x in merged.reduced]
    kept = [x for x in axes if x not in merged.reduced]
    rows = [x for x in kept if a.moves(x) and not b.moves(x)]
    columns = [x for x in kept if b.moves(x) and not a.moves(x)]
    both = [x for x in kept if a.moves(x) and b.moves(x)]
    proper = all(a.moves(x) and b.moves(x) for x in summed) and all(merged.output.moves(x) for x in kept)
    if not summed or not proper or len(rows) + len(columns) + len(both) != len(kept) or (
            a.dtype.is_integer or b.dtype.is_integer):
        return None

    def largest(group: list[int]) -> int:
        return max(group, key=lambda x: merged.extents[x], default=0)
    return Product(merged, *factors, largest(summed), largest(rows), largest(columns))


def _factors(fold: Fold) -> tuple[int, int] | None:
    """The inputs whose products are added, in whatever dtype they are multiplied."""
    element = fold.element
    while isinstance(element, Convert):
        element = element.value
    return factors_of(element) if fold.fn == "add" and fold.dtype is FLOAT32 else None


def write_product(tiles: Tiles, machine: Machine, product: Product, start: float | int | None) -> None:
    """One product of matrices."""
    width = machine.psum_free_max if not lies_across(product.nest.inputs[product.right], product.inner,
                                                     product.columns) else machine.partitions
    for strip in product.nest.windows(product.rows, machine.partitions):
        kept: dict[int, Tile] = {}
        for part in strip.windows(product.columns, min(width, machine.moving_free_max)):
            total = tiles.buffer((part.extents[product.rows], part.extents[product.columns]), FLOAT32, PSUM)
            for k, piece in enumerate(pieces(part, product.inner, machine.partitions)):
                if k not in kept:
                    left = factor(tiles, piece, product.left, product.inner, product.rows)
                    kept |= {k: left} if k < MOST_KEPT else {}
                right = factor(tiles, piece, product.right, product.inner, product.columns)
                if k == 0:
                    tiles.fill(total, 0, (1, 2))
                multiply(tiles, total, kept.get(k, left), right)
            finish(tiles, part, product, total, start)


def pieces(nest: TileNest, inner: int, size: int) -> list[TileNest]:
    """The summed axes in boxes: one axis in pieces, the others one by one."""
    return nest.boxes([*((a, 1) for a in nest.reduced if a != inner and nest.extents[a] > 1), (inner, size)])


def lies_across(operand: TileOperand, inner: int, other: int) -> bool:
    """Whether an operand lies row by row along the other axis, not along the one that is summed."""
    return operand.steps[inner] == 1 and operand.steps[other] not in (0, 1)


def factor(tiles: Tiles, nest: TileNest, place: int, inner: int, other: int) -> Tile:
    """A factor with the summed axis along the partitions; one that lies the other way round is transposed."""
    operand, counts = nest.inputs[place], (nest.extents[inner], nest.extents[other])
    tile = tiles.buffer(counts, operand.dtype)
    if lies_across(operand, inner, other) and min(counts) > 1:
        natural = tiles.buffer(counts[::-1], operand.dtype)
        tiles.copy(natural, operand.tile(counts[::-1], (other, inner)))
        tiles.copy(tile, natural, (1, 0))
    else:
        tiles.copy(tile, operand.tile(counts, (inner, other)))
    return tile


def multiply(tiles: Tiles, total: Tile, left: Tile, right: Tile) -> None:
    """total += left' right."""
    extents = (left.shape[0], left.shape[1], right.shape[1])
    a, b = (converted(Input(t.dtype, k), FLOAT32) for k, t in enumerate((left, right)))
    body = alu("add", Output(FLOAT32), alu("multiply", a, b))
    nest = TileNest(extents, frozenset({0}), (), walked(total, (0, 0, 1), 1), body)
    tiles.compute(nest, [(left, (0, 1)), (right, (0, 2))], total, (1, 2), body)


def finish(tiles: Tiles, nest: TileNest, product: Product, total: Tile, start: float | int | None) -> None:
    """Store a tile of the result: the sum, and what it starts with."""
    axes = product.rows, product.columns
    counts = tuple(nest.extents[a] for a in axes)
    result = tiles.buffer(counts, nest.output.dtype)
    if start == 0:
        tiles.copy(result, total)
    else:
        inputs = [(total, (0, 1))]
        before: Node = Constant(FLOAT32, float(start or 0))
        if start is None:
            held = tiles.buffer(counts, nest.output.dtype)
            tiles.copy(held, nest.output.tile(counts, axes))
            inputs.append((held, (0, 1)))
            before = converted(Input(nest.output.dtype, 1), FLOAT32)
        body = converted(alu("add", before, Input(FLOAT32, 0)), nest.output.dtype)
        tiles.compute(TileNest(counts, frozenset(), (), nest.output, body), inputs, result, (0, 1), body)
    tiles.store(nest.output, result, axes)
