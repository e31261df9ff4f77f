# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes convolutions of images whose channels are neighbors in memory, on images that stay on chip (``images.py``).

A tile of the result has one pixel of each piece of a line, for as many lines as fit: one product for each position in
the window and block of channels, all added up in PSUM. The image is the stationary factor, and the weights move.

    partition (line, piece) of the result, pixel j of the piece, column c:
        sum over window positions (v, u) and rows k of   image[k, j + u, (line + v, piece)] * weights[v, u, k, c]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

from nki_mlir.dialects.access import HBM, PSUM, Access, Linear, Tile, joined_dims
from nki_mlir.graph.images import Image, ImageSource, load_image, padded_source, source_of
from nki_mlir.graph.layouts import INSTRUCTION_NS
from nki_mlir.graph.nests import in_hbm, read_nest
from nki_mlir.graph.products import TiledProduct, multiply, tiled_product
from nki_mlir.graph.tiles import Tiles
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.tile_operand import TileNest, TileOperand

LEAST_ROWS = 32         # least number of summed elements for which the tensor engine is worth its time
HELD = 2                # an image stays on chip if it fills at most 1 / HELD of the memory for cached tiles


@dataclass(frozen=True)
class Convolution:
    """A product of two inputs as a convolution. Axes of the nest: ``x`` and ``y`` of the result's pixels and lines (0,
    which has one element, if there is none), ``columns``, and ``inner``, the summed neighbors in memory. ``taps`` are
    the other summed axes, ``others`` the other lines of the result, as those of several images."""

    nest: TileNest
    image: TileOperand
    weights: TileOperand
    form: Image
    x: int
    y: int
    columns: int
    inner: int
    taps: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The first summed element and the number of elements of each block of the innermost summed axis."""
        step, n = self.form.depth, self.nest.extents[self.inner]
        return [(first, min(step, n - first)) for first in range(0, n, step)]

    def images(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the first element of each image in its buffer, with the positions of ``others``."""
        for position in combinations(*(range(self.nest.extents[a]) for a in self.others)):
            yield self.image.free.const + sum(
                self.image.strides[a] * k for a, k in zip(self.others, position)), position


def convolution_of(product: TiledProduct, machine: Machine) -> Convolution | None:
    """Return a product as a convolution, None if it is none: some pixels are in several windows, the channels of a
    pixel are neighbors, and so are the columns of the weights and of the result."""
    nest = product.nest
    for image, weights in ((nest.inputs[product.left], nest.inputs[product.right]),
                           (nest.inputs[product.right], nest.inputs[product.left])):
        shape, axes = image.base_shape, [a for a, n in enumerate(nest.extents) if n > 1]
        if len(shape) < 3 or image.dtype is not weights.dtype or image.dtype is not image.base_dtype or (
                image.dtype.bits not in (16, 32) or image.free.symbols or nest.output.free.symbols):
            continue
        channels, line = shape[-1], shape[-1] * shape[-2]
        columns = [a for a in axes if a not in nest.reduced and not image.moves(a)]
        rows = [a for a in axes if a not in nest.reduced and image.moves(a)]
        inner = [a for a in axes if a in nest.reduced and image.strides[a] == 1]
        taps = tuple(a for a in axes if a in nest.reduced and image.strides[a] != 1)
        if len(columns) != 1 or len(inner) != 1 or image.free.const % channels or any(
                weights.moves(a) for a in rows) or any(
                image.strides[a] <= 0 or image.strides[a] % channels for a in (*rows, *taps)):
            continue
        (column,), (summed,) = columns, inner
        in_line = [a for a in rows if image.strides[a] % line]
        lines = sorted((a for a in rows if a not in in_line), key=lambda a: nest.extents[a])
        if len(in_line) > 1 or weights.strides[column] != 1 or nest.output.strides[column] != 1 or (
                nest.extents[column] > machine.moving_free_max):
            continue
        x, y = in_line[0] if in_line else 0, lines.pop() if lines else 0
        form = image_form(nest, image, x, y, summed, taps, machine)
        if form is not None:
            return Convolution(nest, image, weights, form, x, y, column, summed, taps, tuple(lines))
    return None


def image_form(nest: TileNest, image: TileOperand, x: int, y: int, inner: int, taps: tuple[int, ...], machine: Machine
               ) -> Image | None:
    """Return the form in which an image stays on chip; None if windows do not overlap, or if there are too few summed
    elements in a product."""
    channels, line = image.base_shape[-1], image.base_shape[-1] * image.base_shape[-2]
    summed = nest.extents[inner]
    if channels > machine.partitions:
        depth, pixels = machine.partitions, 1
        if channels % depth:
            return None
    else:
        pixels = max(1, min(machine.partitions // channels, -(-summed // channels)))
        pixels = pixels if channels % LEAST_ROWS == 0 else 1        # engines write rows from such partitions on
        depth = min(summed, pixels * channels)
    strides, extents, output = image.strides, nest.extents, nest.output
    shifts = [(channels, summed // channels), *((strides[a], extents[a]) for a in taps)]
    if depth < LEAST_ROWS or summed % channels or not any(
            windows_overlap(step, n, strides[a], extents[a]) for step, n in shifts for a in (x, y) if extents[a] > 1):
        return None
    step_x, step_y = max(1, strides[x] // channels), max(1, strides[y] // line)
    reach = [strides[a] * (extents[a] - 1) for a in taps]
    tap_x = sum(each % line for each in reach) // channels
    last_x = tap_x + (summed - 1) // depth * depth // channels
    first_pixel, last_pixel = image.free.const % line // channels, tap_x + (summed - 1) // channels
    if first_pixel + last_pixel + step_x * (extents[x] - 1) >= image.base_shape[-2]:
        return None                         # a window continues in the next line
    products = -(-summed // depth) * prod(extents[a] for a in taps)
    columns = prod(n for a, n in enumerate(extents) if a not in nest.reduced and not image.moves(a))
    work = Work("product." + str(image.dtype), columns)

    def cost(pieces: int) -> float:
        """Return the ns for the products of an image, and for the pixels that neighboring pieces share."""
        strips = -(-extents[y] // (machine.partitions // pieces))
        return (strips * extents[x] // pieces * products * machine.costs.engines[Engine.TENSOR].cycles(work)
                / machine.clocks[Engine.TENSOR] + pieces * pixels * (last_x + pixels) * INSTRUCTION_NS)
    is_joined = output.strides[y] == extents[x] * output.strides[x] or extents[y] == 1
    pieces = min((d for d in range(1, min(extents[x], machine.partitions) + 1)
                  if extents[x] % d == 0 and (is_joined or d == 1)), key=cost)
    width = extents[x] // pieces
    lines = step_y * (extents[y] - 1) + sum(each // line for each in reach) + 1
    return Image(image.dtype, channels, line, depth, pixels, step_x * (width - 1) + last_x + 1, step_y,
                 -(-lines // step_y), pieces, step_x * width)


def windows_overlap(shift: int, positions: int, step: int, count: int) -> bool:
    """Return whether windows of this many positions, ``shift`` elements apart, share some if they begin at multiples of
    a step."""
    return any(shift * k % step == 0 and shift * k // step < count for k in range(1, positions))


def keep_padded(tiles: Tiles, machine: Machine, nest: TileNest) -> None:
    """Lay an image out on chip for convolutions if a copy writes it into a buffer of padding that they read."""
    cache = tiles.cache
    padding = padded_source(cache, nest) if tiles.choices.images else None
    if padding is None:
        return
    value, reader = padding
    if reader.name != "linalg.generic" or not in_hbm(reader) or "nki.mask" in reader.attributes:
        return
    read, _, gathers = read_nest(reader)
    product = tiled_product(read, tiles.choices) if read.reduced and not gathers else None
    convolution = convolution_of(product, machine) if product is not None else None
    if convolution is None or convolution.image.handle != nest.output.handle:
        return
    source = source_of(nest, convolution.form, value)
    if source is None or not fits(tiles, convolution, source):
        return
    for start, _ in convolution.images():
        for elements, part in convolution.form.parts(convolution.image, start):
            tiles.cache.retain_image(elements, load_image(tiles, machine, convolution.form, start, part, source))


def fits(tiles: Tiles, convolution: Convolution, source: ImageSource) -> bool:
    """Return whether the images of a convolution, or the pixels that they are transposed from, can stay on chip beside
    other images."""
    form, images = convolution.form, tiles.cache.images.values()
    count = prod(convolution.nest.extents[a] for a in convolution.others) * len(form.starts)
    kept_bytes = sum(tile.free_elements * tile.dtype.itemsize for tile in images)
    return max(kept_bytes + form.bytes * count, source.row_bytes(form)) * HELD <= tiles.cache.bytes


def write_convolution(tiles: Tiles, machine: Machine, product: TiledProduct, start: float | int | None) -> bool:
    """Emit a product that is a convolution of an image on chip; return whether it is one."""
    convolution = convolution_of(product, machine) if tiles.choices.images and start == 0 else None
    if convolution is None:
        return False
    form, image, images = convolution.form, convolution.image, tiles.cache.images
    complete = ImageSource.complete(image, form)
    is_kept = all(elements in images for first, _ in convolution.images() for elements, _ in form.parts(image, first))
    if not is_kept and not fits(tiles, convolution, complete):
        return False
    weights = [weights_of(tiles, convolution, *block) for block in convolution.blocks]
    for first, position in convolution.images():
        parts = [images.get(elements) or load_image(tiles, machine, form, first, part, complete)
                 for elements, part in form.parts(image, first)]
        write_image(tiles, machine, convolution, parts, weights, position)
    return True


def weights_of(tiles: Tiles, convolution: Convolution, first: int, count: int) -> Tile:
    """Load the weights of a block of summed elements for all positions in the window."""
    nest, operand = convolution.nest, convolution.weights
    axes = (convolution.inner, *convolution.taps, convolution.columns)
    tile = operand.tile([count if a == convolution.inner else nest.extents[a] for a in axes], axes)
    return tiles.loaded(tile.patterned(free=tile.access.free.plus(Linear(first * operand.strides[convolution.inner]))))


def write_image(tiles: Tiles, machine: Machine, convolution: Convolution, parts: list[Tile], weights: list[Tile],
                position: tuple[int, ...]) -> None:
    """Emit the results of one image."""
    nest, form, output = convolution.nest, convolution.form, convolution.nest.output
    columns, width = nest.extents[convolution.columns], nest.extents[convolution.x] // form.pieces
    most, together = machine.partitions // form.pieces, max(1, machine.psum_free_max // columns)
    step_x = form.step // width
    begin = sum(output.strides[a] * k for a, k in zip(convolution.others, position))
    for line in range(0, nest.extents[convolution.y], most):
        rows = min(most, nest.extents[convolution.y] - line) * form.pieces
        result = tiles.buffer((rows, width * columns), output.dtype)
        for first in range(0, width, together):
            count = min(together, width - first)
            total = tiles.buffer((rows, count * columns), FLOAT32, PSUM)
            for k in range(count):
                target = total.patterned(free=Linear(k * columns), dims=((1, rows), (1, columns)))
                tiles.fill(target, 0, (1, 2))
                for left, right in factors(convolution, parts, weights, step_x * (first + k), line, rows):
                    multiply(tiles, target, left, right)
            tiles.copy(result.patterned(free=Linear(first * columns), dims=((1, rows), (1, count * columns))), total)
        row = width * output.strides[convolution.x] if form.pieces > 1 else output.strides[convolution.y]
        dims = joined_dims(((output.strides[convolution.x], width), (1, columns)))
        access = Access(output.dtype, None, output.free.plus(Linear(begin + line * output.strides[convolution.y])), (
            (row if rows > 1 else 1, rows), *dims))
        tiles.cache.pieces[output.handle] = width
        tiles.store_tile(Tile(output.handle, HBM, output.base_shape, output.base_dtype, access), result.patterned(
            dims=((1, rows), *split_like(dims))))


def split_like(dims: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return the dims of contiguous elements with the counts of some dims."""
    return [(prod(n for _, n in dims[k + 1:]), n) for k, (_, n) in enumerate(dims)]


def factors(convolution: Convolution, parts: list[Tile], weights: list[Tile], pixel: int, line: int, rows: int
            ) -> Iterator[tuple[Tile, Tile]]:
    """Yield the factors of all products of a tile: pixels of lines from ``line`` on, and weights."""
    nest, form, taps = convolution.nest, convolution.form, convolution.taps
    strides = convolution.image.strides
    for window in combinations(*(range(nest.extents[a]) for a in taps)):
        offset = sum(strides[a] * k for a, k in zip(taps, window))
        down, right = offset // form.line, offset % form.line // form.channels
        for (first, count), moving in zip(convolution.blocks, weights):
            left = parts[first % form.channels // form.depth if form.channels > form.depth else 0]
            slot = pixel + right + first // form.channels
            begin = slot * form.slot + form.column(down) + line * form.pieces
            at = sum(step * k for (step, _), k in zip(moving.access.dims[1:], window))
            yield (left.patterned(free=Linear(begin), dims=((1, count), (1, rows))),
                   moving.patterned(free=moving.access.free.plus(Linear(at)),
                                    dims=(moving.access.dims[0], moving.access.dims[-1])))
