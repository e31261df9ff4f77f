# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lays images out on chip as convolutions read them: channels along the partitions, pixels in the order of the
products.

The pixels of a buffer of (..., lines, pixels, channels) are loaded with long runs, lines along the partitions, and
transposed on the tensor engine. Partition k has channel k of a pixel or, where a partition row has several pixels, of
one of its neighbors:

    image[(g, channel), j, (r, line, piece)] = buffer[s * line + r, step * piece + j + g, channel]

``r`` counts lines up to ``s``, the step from a line of results to the next. Padding is written on chip.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import NamedTuple

from nki_mlir.analysis.effects import memory_of, users_through_views
from nki_mlir.bindings import Operation, enclosing
from nki_mlir.dialects.access import HBM, PSUM, Access, Linear, Tile, joined_dims
from nki_mlir.graph.nests import in_hbm, read_nest
from nki_mlir.graph.tile_cache import STRUCTURED, Elements, TileCache, elements_of
from nki_mlir.graph.tiles import Tiles
from nki_mlir.machine import Machine
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.expression import Constant
from nki_mlir.waist.tile_operand import TileNest, TileOperand


@dataclass(frozen=True)
class Image:
    """The layout of an image on chip. ``line``: elements of a line in its buffer; ``depth``: partitions, with
    ``channels`` of ``pixels`` neighbors; ``slots``: pixels of a piece, with those of the next piece that windows
    reach; ``step``: pixels from one of ``pieces`` to the next; ``residues`` and ``lines``: lines of results step over
    ``residues`` lines."""

    dtype: DType
    channels: int
    line: int
    depth: int
    pixels: int
    slots: int
    residues: int
    lines: int
    pieces: int
    step: int

    @property
    def slot(self) -> int:
        """Elements of a slot: one pixel of each piece of all lines."""
        return self.residues * self.lines * self.pieces

    @property
    def bytes(self) -> int:
        return self.slots * self.slot * self.dtype.itemsize

    @property
    def starts(self) -> range:
        """The first channels of the parts of a pixel with more channels than partitions."""
        return range(0, self.channels if self.channels > self.depth and self.pixels == 1 else 1, self.depth)

    def column(self, line: int) -> int:
        """Return the first element of a line in a slot."""
        return (line % self.residues * self.lines + line // self.residues) * self.pieces

    def parts(self, operand: TileOperand, start: int) -> Iterator[tuple[Elements, int]]:
        """Yield the elements of the tiles of an image that begins at an element of its buffer, with their first
        channels."""
        for part in self.starts:
            dims = ((1, self.depth), (self.channels, self.slots), (self.line, self.residues),
                    (self.line * self.residues, self.lines), (self.channels * self.step, self.pieces))
            access = Access(self.dtype, None, Linear(start + part), dims)
            yield elements_of(Tile(operand.handle, HBM, operand.base_shape, operand.base_dtype, access), ()), part


class Band(NamedTuple):
    """Neighboring lines of a buffer that a source has. ``start`` and ``pitch``: the first element and the elements
    from line to line in the source; ``pixel``: the first one in the buffer's lines."""

    line: int
    lines: int
    pixel: int
    width: int
    start: int
    pitch: int


@dataclass(frozen=True)
class ImageSource:
    """The elements of an image: bands of lines of a buffer; everything else has one value."""

    operand: TileOperand
    bands: tuple[Band, ...]
    value: float

    def row_bytes(self, form: Image) -> int:
        """Return the bytes of a partition that has a line of the image, or a piece of it."""
        return max(band.width // pieces_of(band, form) for band in self.bands) * form.channels * form.dtype.itemsize

    @staticmethod
    def complete(operand: TileOperand, form: Image) -> "ImageSource":
        """Return all lines of a buffer as the source of its images."""
        band = Band(0, prod(operand.base_shape[:-2]), 0, form.line // form.channels, 0, form.line)
        return ImageSource(operand, (band,), 0.0)


def pieces_of(band: Band, form: Image) -> int:
    """Return into how many pieces lines are divided, each of which is a row of a tile."""
    return form.pieces if band.width == form.pieces * form.step and band.pitch == band.width * form.channels else 1


def source_of(nest: TileNest, form: Image, value: float) -> ImageSource | None:
    """Return the source of a padded image, from the copy that writes the image into the padding; None if lines do not
    stay together."""
    merged = nest.arranged(None)
    source, target, extents = merged.inputs[0], merged.output, merged.extents
    axes = [a for a, n in enumerate(extents) if n > 1]
    inner = next((a for a in axes if source.strides[a] == 1 and target.strides[a] == 1), None)
    if inner is None or source.free.symbols or target.free.symbols:
        return None
    run, first = extents[inner], target.free.const
    if run % form.channels or first % form.channels:
        return None
    outer_axes = [a for a in axes if a != inner]
    down: int | None = None             # the axis of the lines
    if run > form.line:
        if run % form.line or first % form.line or any(target.strides[a] % form.line for a in outer_axes):
            return None
        count, width, pitch = run // form.line, form.line, form.line
    else:
        if first % form.line + run > form.line or any(target.strides[a] % form.line for a in outer_axes):
            return None
        down = next((a for a in outer_axes if target.strides[a] == form.line), None)
        count, width = extents[down] if down is not None else 1, run
        pitch = source.strides[down] if down is not None else run
    outer_axes = [a for a in outer_axes if a != down]
    bands = []
    for position in combinations(*(range(extents[a]) for a in outer_axes)):
        at = first + sum(target.strides[a] * k for a, k in zip(outer_axes, position))
        start = source.free.const + sum(source.strides[a] * k for a, k in zip(outer_axes, position))
        pixel = at % form.line // form.channels
        bands.append(Band(at // form.line, count, pixel, width // form.channels, start, pitch))
    return ImageSource(source, tuple(bands), value)


def padded_source(cache: TileCache, nest: TileNest) -> tuple[float, Operation] | None:
    """Return the value of the padding around the elements that a copy writes, the operation that is emitted, and the
    next operation that reads them; None if other operations write the buffer before."""
    operations, numbers, number = cache.operations, cache.numbers_of, cache.at
    op = operations[number]
    buffer = memory_of(op.operands[len(op.operands) - 1])
    users = sorted({numbers[other] for user in users_through_views(buffer) for other in (user, *enclosing(user))
                    if other in numbers})
    touching = [n for n in users if n != number and cache.effects_of(operations[n]).touches(buffer)]
    before = [operations[n] for n in touching if n < number]
    after = next((operations[n] for n in touching if n > number), None)
    if len(before) != 1 or before[0].name not in STRUCTURED or not in_hbm(before[0]) or (
            after is None or buffer not in cache.effects_of(after).reads):
        return None
    fill, _, gathers = read_nest(before[0])
    if gathers or fill.reduced or not isinstance(fill.body, Constant) or (
            fill.elements != prod(nest.output.base_shape)):
        return None
    return float(fill.body.value), after


class PixelMove(NamedTuple):
    """Pixels ``pixel`` on of a piece, which rows from ``group`` on of an image get: of one piece, or of all if None."""

    slot: int
    target: int | None
    piece: int
    group: int
    pixels: int         # beside each other
    pixel: int


def load_image(tiles: Tiles, machine: Machine, form: Image, start: int, part: int, source: ImageSource) -> Tile:
    """Return a tile of an image, channels from ``part`` on, that begins at an element of its buffer."""
    tile = tiles.buffer((form.depth, form.slots * form.slot), form.dtype)
    first, last = start // form.line, start // form.line + form.residues * form.lines
    offset = start % form.line // form.channels
    remaining = first
    for band in sorted(source.bands):
        begin, end = max(first, band.line), min(last, band.line + band.lines)
        if begin >= end:
            continue
        fill_lines(tiles, form, tile, range(remaining - first, begin - first), source.value)
        remaining = end
        pieces = pieces_of(band, form)
        most = machine.partitions // pieces
        for line in range(begin, end, most):
            count = min(most, end - line)
            row = band.width // pieces * form.channels
            access = Access(form.dtype, None, Linear(band.start + (line - band.line) * band.pitch), (
                (row if pieces > 1 else band.pitch, count * pieces), (form.channels, band.width // pieces),
                (1, form.channels)))
            pixels = loaded_pixels(tiles, source.operand, access)
            lines = range(line - first, line - first + count)
            written = ImageLines(tiles, machine, form, tile, pixels, lines, pieces, part)
            written.write(band.width, band.pixel - offset, source.value)
    fill_lines(tiles, form, tile, range(remaining - first, last - first), source.value)
    return tile


def loaded_pixels(tiles: Tiles, operand: TileOperand, access: Access) -> Tile:
    """Load pixels of a buffer into a tile, without gaps between the pixels of a partition."""
    tile = tiles.loaded(Tile(operand.handle, HBM, operand.base_shape, operand.base_dtype, access))
    if tile.access.dims[1:] == access.dims[1:]:
        return tile
    joined = tiles.buffer(tile.shape, tile.dtype)
    tiles.copy(joined, tile)
    return joined


def fill_lines(tiles: Tiles, form: Image, tile: Tile, lines: range, value: float) -> None:
    """Write padding to complete lines of an image."""
    for first, count, _ in in_residues(form, lines):
        tiles.fill(tile.patterned(free=Linear(first), dims=(
            (1, form.depth), (form.slot, form.slots), (1, count * form.pieces))), value, (0, 1, 2))


def in_residues(form: Image, lines: range) -> Iterator[tuple[int, int, int]]:
    """Yield for the lines of each residue: their first element in a slot, their number, the position of the first
    one."""
    for k in range(min(form.residues, len(lines))):
        yield form.column(lines[k]), len(range(k, len(lines), form.residues)), k


@dataclass(frozen=True)
class ImageLines:
    """Writes some lines of an image: ``pixels`` has them along the partitions, each in ``pieces``."""

    tiles: Tiles
    machine: Machine
    form: Image
    tile: Tile
    pixels: Tile
    lines: range
    pieces: int
    part: int

    def write(self, width: int, first: int, value: float) -> None:
        """Transpose the pixels of the lines, of which the image has ``width`` from pixel ``first`` of a line on."""
        moves = [move for slot in range(self.form.slots) for move in self.moves(slot, width, first)]
        runs = runs_of(moves)
        for run in runs:
            if run[0].pixel < 0:
                self.fill(run, value)
        for begin, count, pixels in self.batches(moves):
            transposes = self.transposed(begin, count, pixels)
            for run in runs:
                if part := [move for move in run if begin <= move.pixel < begin + count]:
                    self.copy(part, transposes, begin)

    def batches(self, moves: Sequence[PixelMove]) -> Iterator[tuple[int, int, int]]:
        """Yield the groups of pixels that one bank of PSUM receives transposed: the first pixel, the number of pixels,
        and the number of neighbors of each."""
        most = max(1, self.machine.psum_bank_bytes // (self.pixels.shape[0] * self.form.dtype.itemsize))
        counts: dict[int, int] = {}
        for move in moves:
            counts[move.pixel] = max(move.pixels, counts.get(move.pixel, 0))
        batch: list[int] = []
        for pixel in sorted(pixel for pixel in counts if pixel >= 0):
            if batch and (len(batch) == most or pixel != batch[-1] + 1 or counts[pixel] != counts[batch[0]]):
                yield batch[0], len(batch), counts[batch[0]]
                batch = []
            batch.append(pixel)
        if batch:
            yield batch[0], len(batch), counts[batch[0]]

    def moves(self, slot: int, width: int, first: int) -> list[PixelMove]:
        """Return the pixels of a slot; pixel -1 is padding."""
        each = [list(self.groups(slot, piece, width, first)) for piece in range(self.form.pieces)]
        same = {tuple((m.group, m.pixels, m.pixel, m.piece - k if m.pixel >= 0 else 0) for m in moves)
                for k, moves in enumerate(each)}
        if self.pieces == self.form.pieces and len(same) == 1 and all(
                m.piece == 0 or m.pixel < 0 for m in each[0]):
            return [m._replace(target=None) for m in each[0]]
        return [move for moves in each for move in moves]

    def groups(self, slot: int, piece: int, width: int, first: int) -> Iterator[PixelMove]:
        """Yield the pixels that the rows of a slot of one piece receive. Rows that do not begin at the first partition
        get one pixel at a time."""
        length, group = width // self.pieces, 0
        while group < self.form.pixels:
            x = piece * self.form.step + slot + group - first
            inside = 0 <= x < width
            count = 1
            while group == 0 and count < self.form.pixels and (0 <= x + count < width) == inside and (
                    not inside or x % length + count < length):
                count += 1
            yield PixelMove(slot, piece, x // length if inside else 0, group, count, x % length if inside else -1)
            group += count

    def rows(self, move: PixelMove) -> tuple[int, int]:
        """Return the first partition that a move writes, and the number of partitions."""
        begin = move.group * self.form.channels
        return begin, min(self.form.depth - begin, move.pixels * self.form.channels)

    def target(self, run: Sequence[PixelMove], first: int, count: int) -> Tile:
        """Return the part of the image that equal moves into neighboring slots write: in each slot ``count`` lines of
        one residue, from ``first`` on."""
        move, pieces = run[0], self.form.pieces
        begin, rows = self.rows(move)
        lines = (1, count * pieces) if move.target is None else (pieces, count)
        free = move.slot * self.form.slot + first + (move.target or 0)
        return self.tile.patterned(partition=Linear(begin), free=Linear(free),
                                   dims=((1, rows), (self.form.slot, len(run)), lines))

    def fill(self, run: Sequence[PixelMove], value: float) -> None:
        for first, count, _ in in_residues(self.form, self.lines):
            self.tiles.fill(self.target(run, first, count), value, (0, 1, 2))

    def transposed(self, begin: int, count: int, pixels: int) -> Tile:
        """Return a tile in PSUM with the channels of this many neighboring pixels along the partitions, for each of
        ``count`` pixels from one on."""
        lanes, rows = self.pixels.shape[0], min(self.form.depth, pixels * self.form.channels)
        transposes = self.tiles.buffer((rows, count * lanes), self.form.dtype, PSUM)
        for k in range(count):
            free = self.pixels.access.free.plus(Linear((begin + k) * self.form.channels + self.part))
            source = self.pixels.patterned(free=free, dims=(self.pixels.access.dims[0], (1, rows)))
            self.tiles.copy(transposes.patterned(free=Linear(k * lanes), dims=((1, rows), (1, lanes))), source, (1, 0))
        return transposes

    def copy(self, run: Sequence[PixelMove], transposes: Tile, begin: int) -> None:
        """Copy transposed pixels, of which the first is ``begin``, to the image."""
        move, lanes = run[0], self.pixels.shape[0]
        _, rows = self.rows(move)
        for first, count, k in in_residues(self.form, self.lines):
            target, step = self.target(run, first, count), self.pieces * self.form.residues
            dims: tuple[tuple[int, int], ...] = (step, count),
            if move.target is None:
                dims = joined_dims(((step, count), (1, self.pieces))) or ((1, 1),)
                if len(dims) > 1:
                    target = target.patterned(dims=(*target.access.dims[:2], (self.pieces, count), (1, self.pieces)))
            at = (move.pixel - begin) * lanes + k * self.pieces + (move.piece if move.target is not None else 0)
            self.tiles.copy(target, transposes.patterned(free=Linear(at), dims=((1, rows), (lanes, len(run)), *dims)))


def runs_of(moves: Sequence[PixelMove]) -> list[list[PixelMove]]:
    """Return moves of neighboring slots that differ in nothing else but their pixels, in the order of the slots."""
    runs: dict[tuple[int | None, int, int, int], list[list[PixelMove]]] = {}
    for move in moves:
        same = runs.setdefault((move.target, move.piece, move.group, move.pixels), [])
        last = same[-1][-1] if same else None
        if last is not None and last.slot + 1 == move.slot and (
                (move.pixel == last.pixel + 1 and last.pixel >= 0) or move.pixel == last.pixel == -1):
            same[-1].append(move)
        else:
            same.append([move])
    return sorted((run for same in runs.values() for run in same), key=lambda run: run[0].slot)
