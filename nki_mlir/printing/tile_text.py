# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes tiles as Python text: a subscript where the pattern is a box of its tensor, else a pattern (``.ap``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from nki_mlir.dialects.access import Linear, Ranges, Tile, dense, is_row_major, joined_dims
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.index_text import IndexText
from nki_mlir.scalar.dtypes import BOOL, DType

Form = Callable[[Linear], IndexText]
Dims = tuple[tuple[int, int], ...]


def dtype_text(dtype: DType) -> str:
    """Return the text of a dtype, such as ``nl.float32``."""
    return "nl.bool_" if dtype is BOOL else f"nl.{dtype.name}"


def shape_text(shape: Sequence[int]) -> str:
    """Return the text of a shape, as a tuple."""
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


@dataclass(frozen=True)
class AxisSlice:
    """The part of one axis that a subscript takes."""

    start: Linear
    count: int
    step: int
    extent: int

    def text(self, form: Form) -> str:
        start = form(self.start)
        span = (self.count - 1) * self.step + 1
        step_text = f":{self.step}" if self.step > 1 else ""
        if start.number is None:
            if self.step == 1:
                return f"nl.ds({start}, {self.count})"
            return f"{start} : {start.plus(IndexText(span))} : {self.step}"
        if start.number == 0 and self.count == self.extent:
            return ":"
        is_last = self.step > 1 and self.count == -(-(self.extent - start.number) // self.step)
        bounds = f"{start.number or ''}:" if is_last else f"{start.number}:{start.number + span}"
        return bounds + step_text


def subscript_text(parts: Sequence[str], picked: Sequence[int] = ()) -> str:
    """Return the subscript of an axis each, of which the ``picked`` ones are numbers. What follows the numbers of all
    first axes is left out where it is complete: ``out[i]``, not ``out[i, :, :]``."""
    first = next((k for k in range(len(parts)) if k not in picked), len(parts))
    return ", ".join(parts[:first] if first and all(part == ":" for part in parts[first:]) else parts)


def tile_text(tile: Tile, name: str, shape: Sequence[int], form: Form, ranges: Ranges, exact: bool,
              paired: bool = False, integers: bool = True, broadcasts: bool = True) -> str:
    """Return the text of a tile of the tensor ``name``, which has this shape. With ``exact``, the view has the dims of
    the tile, else the same elements in the same order. With ``paired``, the text does not depend on how the elements
    divide into dims. With ``integers``, axes that the tile does not have are integers in the subscript. With
    ``broadcasts``, a method repeats elements."""
    base, source = [*shape], name
    if tile.dtype is not tile.base_dtype:
        source = f"{name}.view({dtype_text(tile.dtype)})"
        base[-1] = base[-1] * tile.base_dtype.itemsize // tile.dtype.itemsize
    paired = paired and integers
    if paired:
        tile = _with_joined_dims(tile)
    dims, repeats = _without_repeats(tile.access.dims)
    slices = _slices(tile, dims, base, ranges)
    if slices is not None:
        counts = tuple(s.count for s in slices)
        is_full = all(s.count == s.extent for s in slices)
        single = _single(slices, tile.on_chip) if paired else ()
        subscript = [str(form(s.start)) if k in single else s.text(form) for k, s in enumerate(slices)]
        text = source if is_full else f"{source}[{subscript_text(subscript, single)}]"
        if repeats:
            if broadcasts and tuple(n for k, n in enumerate(counts) if k not in single) == tuple(n for _, n in dims):
                return text + "".join(f".broadcast({axis}, {n})" for axis, n in repeats)
        else:
            reshaped = is_full and (not tile.on_chip or counts[0] == tile.shape[0]) and _is_dense(tile)
            regrouped = reshaped and not tile.on_chip and not _splits(counts, tile.shape)
            if single and not regrouped:
                return text
            if integers and not reshaped and not paired and (picked := _picked(slices, tile)):
                subscript = [str(form(s.start)) if k in picked else s.text(form) for k, s in enumerate(slices)]
                return f"{source}[{subscript_text(subscript, picked)}]"
            # Two dims of a tile are dims of the view, too: a reduction counts them.
            longer = (*tile.shape, 1) if not integers or len(tile.shape) == 1 else tile.shape
            if counts in (tile.shape, longer) or not (exact or regrouped):
                return text
            if reshaped:
                return f"{text}.reshape({shape_text(tile.shape)})"
    return f"{source}.ap({pattern_text(tile)}{offset_text(form(tile.offset))})"


def offset_text(offset: object) -> str:
    """Return the argument of ``.ap`` for an offset, which is left out where it is 0."""
    return "" if str(offset) == "0" else f", offset={offset}"


def pattern_text(tile: Tile) -> str:
    """Return the pattern of a tile as ``.ap`` takes it: ``[[stride, count], ...]``. An axis of one element gets stride
    1, because its stride has no meaning; the partition axis keeps its stride."""
    return str([[step if count > 1 or (tile.on_chip and k == 0) else 1, count]
                for k, (step, count) in enumerate(zip(tile.strides, tile.shape))])


def _with_joined_dims(tile: Tile) -> Tile:
    """Return the tile with as few dims as have its elements in their order, at least two: those of one element, which
    the operation may have in any number, are left out behind the first."""
    (step, count), *inner = tile.access.dims
    first = (step if count > 1 or tile.on_chip else 0, count)
    return tile.patterned(dims=(first, *(joined_dims(inner) or ((1, 1),))))


def _single(slices: Sequence[AxisSlice], on_chip: bool) -> tuple[int, ...]:
    """Return the leading axes of which a view has one element of several. Partitions stay, and two axes at least."""
    single = [k for k, s in enumerate(slices) if s.count == 1 < s.extent and k >= on_chip]
    return tuple(single[:max(0, len(slices) - 2)])


def _picked(slices: Sequence[AxisSlice], tile: Tile) -> tuple[int, ...]:
    """Return the axes of one element that a tensor has and the tile has not; none if other axes differ, too."""
    first = int(tile.on_chip)                   # partitions stay
    single = sorted((k for k, s in enumerate(slices) if k >= first and s.count == 1),
                    key=lambda k: slices[k].extent == 1)
    for chosen in combinations(single, max(0, len(slices) - len(tile.shape))):
        if tuple(s.count for k, s in enumerate(slices) if k not in chosen) == tile.shape:
            return chosen
    return ()


def _splits(counts: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether each axis of one of two shapes is an axis of the other or a group of its axes, as ``(4, 6)`` of
    ``(4, 2, 3)``."""
    coarse, fine = sorted(([n for n in extents if n > 1] for extents in (counts, shape)), key=len)
    for extent in coarse:
        product = 1
        while product < extent and fine:
            product *= fine.pop(0)
        if product != extent:
            return False
    return not fine


def _is_dense(tile: Tile) -> bool:
    first = int(tile.on_chip)
    return is_row_major(tile.shape[first:], tile.strides[first:])


def _without_repeats(dims: Dims) -> tuple[Dims, list[tuple[int, int]]]:
    """Return the dims with a count of 1 where elements repeat, and the axes and counts of the repeats."""
    repeats = [(k, n) for k, (step, n) in enumerate(dims) if step == 0 and n > 1 and k]
    return tuple((step, 1 if step == 0 and k else n) for k, (step, n) in enumerate(dims)), repeats


def _slices(tile: Tile, dims: Dims, base: Sequence[int], ranges: Ranges) -> list[AxisSlice] | None:
    """Return the slice of each axis of the tensor, or None if the pattern is not a box of it."""
    access = tile.access
    if access.partition is None:
        return _boxed(dims, base, access.free, ranges)
    (step, rows), *free_dims = dims
    if step != 1 and rows > 1:
        return None
    first = AxisSlice(access.partition, rows, 1, base[0])
    free_slices = _boxed(tuple(free_dims), base[1:], access.free, ranges)
    return None if free_slices is None or not _inside(first, ranges) else [first, *free_slices]


def _inside(part: AxisSlice, ranges: Ranges) -> bool:
    low, high = part.start.interval(ranges)
    return low >= 0 and high + (part.count - 1) * part.step < part.extent


def _boxed(dims: Dims, extents: Sequence[int], start: Linear, ranges: Ranges) -> list[AxisSlice] | None:
    pending = list(joined_dims(dims))
    parts: list[tuple[int, int]] = []
    strides = dense(extents)
    for stride, extent in zip(strides, extents):
        count, step = 1, 1
        if pending:
            s, n = pending[0]
            if s > 0 and s % stride == 0 and (n - 1) * (s // stride) < extent:
                count, step = n, s // stride
                pending.pop(0)
            elif s > 0 and stride % s == 0 and n % (stride // s) == 0 and 1 < n // (stride // s) <= extent:
                count = n // (stride // s)
                pending[0] = s, stride // s
        parts.append((count, step))
    if pending:
        return None
    for origins in (_origins(start, strides, nearest) for nearest in (False, True)):
        slices = [AxisSlice(origin, count, step, extent)
                  for origin, (count, step), extent in zip(origins, parts, extents)]
        if all(_inside(s, ranges) for s in slices):
            return slices
    return None


def _origins(start: Linear, strides: Sequence[int], nearest: bool) -> list[Linear]:
    """Return where the slice of each axis begins: each term goes to the outermost axes whose strides divide it. What
    remains for the inner axes has the sign of the term or, with ``nearest``, is the smallest: 78 is 2 * 40 - 2."""
    consts, terms = [], [[] for _ in strides]         # type: ignore[var-annotated]
    remainder = start.const
    for stride in strides:
        quotient, remainder = divmod(remainder, stride)
        consts.append(quotient)
    for position, c in start.symbols:
        for k, stride in enumerate(strides):
            quotient = (c + stride // 2) // stride if nearest else int(c / stride)
            c -= quotient * stride
            if quotient:
                terms[k].append((position, quotient))
    return [Linear(const, tuple(of)) for const, of in zip(consts, terms)]


def column(tile: Tile) -> Tile:
    """Return a tile with one value for each partition as [P, 1]; it may be repeated along the free axes."""
    rows, *free = tile.access.dims
    if any(step and n > 1 for step, n in free):
        raise Unprintable(what=f"a scalar operand of shape {list(tile.shape)}", fix="give it one value a partition")
    return tile.patterned(dims=(rows, *((step, 1) for step, _ in free)))
