# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes subscripts of tensors by index grids as slices, permuted slices or access patterns.

A subscript is a list of items, one for each dimension: an ``Index``, a ``Part`` (a slice or ``nl.ds``), the text of an
integer, or a tile of row numbers. Masks shorten the axes of indices, and slices of the same length.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from nki_mlir.migration import terms
from nki_mlir.migration.facts import SBUF, Axis, IndexFact, MaskBound, MaskFact, Shape, TensorFact
from nki_mlir.migration.view_parts import part_of


class NotAView(Exception):
    """A subscript that no view of the current generation can express; the text gives the reason."""


@dataclass(frozen=True)
class Part:
    """A slice of one dimension; ``size`` is empty where it is unknown, the text empty for the complete dimension."""

    text: str
    size: str = ""


@dataclass(frozen=True)
class Integer:
    """One position of a dimension."""

    text: str


@dataclass(frozen=True)
class RowNumbers:
    """A tile with a row number for each partition."""

    text: str
    shape: Shape = None


Item = IndexFact | Part | Integer | RowNumbers


@dataclass(frozen=True)
class SubscriptText:
    """A subscript of a tensor, in the order of dimensions of the beta generation."""

    text: str
    tensor: TensorFact
    items: tuple[Item, ...]
    counts: frozenset[str] = frozenset()            # names of counts that masks leave: a tile has no more elements


@dataclass(frozen=True)
class NamedView:
    """The view of a name, and the versions of all names that its text reads: None if the name is assigned several
    times."""

    view: SubscriptText
    versions: dict[str, int] | None


def span(start: str, size: str, step: str = "1", dimension: str = "") -> str:
    """Return the text of a subscript of ``size`` elements from ``start``."""
    if step != "1":
        step = terms.without_parentheses(step)
        return f"{start}:{_stop(start, size, step, dimension)}:{step}"
    if start == "0" and dimension and terms.is_same_number(size, dimension):
        return ":"
    if start == "0":
        return f"0:{size}"
    if terms.number(start) is not None and terms.number(size) is not None:
        return f"{start}:{terms.add(start, size)}"
    return f"nl.ds({start}, {size})"


def _stop(start: str, size: str, step: str, dimension: str) -> str:
    """Return the stop of a slice with a step: the element after the last or, if that is certainly within the dimension,
    the end of ``size`` steps."""
    first, step_number = terms.number(start), terms.number(step)
    if first is not None and step_number is not None and 0 <= first < step_number:
        if first == step_number - 1 or size == f"{dimension} // {step}":
            return terms.multiply(step, size)
        stop = f"{terms.multiply(step, size)} - {step_number - 1 - first}"
        return stop if size.isidentifier() else terms.simplified(stop)
    last = terms.add(start, terms.multiply(step, terms.subtract(size, "1")))
    stop = terms.add(last, "1")
    shorter = terms.simplified(stop)
    return shorter if len(shorter) <= len(stop) - (first is None) else stop


def bound_of(mask: MaskFact | None, axis: int) -> MaskBound | None:
    """Return the bound that a mask sets on an axis, which is counted from the last."""
    for bound in mask.bounds if mask else ():
        if bound.axis == axis:
            return bound
    return None


def clamped(index: IndexFact, mask: MaskFact | None) -> IndexFact:
    """Return the index with the extents that a mask leaves. One position steps forwards."""
    base, axes, rank = index.base, list(index.axes), len(index.axes)
    for k, axis in enumerate(axes):
        bound, extent = None if mask is None else bound_of(mask, k - rank), axis.extent
        if bound is not None and extent != "1":
            extent = bound.high
            if bound.low:
                base = terms.add(base, terms.multiply(axis.step, bound.low))
        is_backwards = extent == "1" and (terms.number(axis.step) or 0) < 0
        axes[k] = Axis(extent, terms.multiply("-1", axis.step) if is_backwards else axis.step)
    return replace(index, base=base, axes=tuple(axes))


def _selected(item: Item, mask: MaskFact | None) -> Item:
    """Return the row numbers that a mask leaves; slices and integers stay."""
    if not isinstance(item, RowNumbers):
        return item
    rows = None if mask is None else replace(mask, bounds=tuple(b for b in mask.bounds if b.axis == -b.rank))
    text, fact = masked(item.text, TensorFact(SBUF, item.shape), rows)
    return RowNumbers(text, fact.shape)


def render(view: SubscriptText, mask: MaskFact | None = None) -> tuple[str, TensorFact]:
    """Return the view's text in the current generation, and its fact."""
    items = [clamped(i, mask) if isinstance(i, IndexFact) else _selected(i, mask) for i in view.items]
    items = [Integer(i.base) if isinstance(i, IndexFact) and not i.axes and not i.moved else i for i in items]
    tensor = view.tensor
    if tensor.blocks:
        items += [Part(":")] * (tensor.blocks + 1 - len(items))
        items = [items[tensor.blocks], *items[:tensor.blocks], *items[tensor.blocks + 1:]]
    if any(isinstance(i, IndexFact) for i in items):
        if any(isinstance(i, Part) and i.text != ":" for i in items):
            raise NotAView("a subscript mixes slices with index vectors")
        shape = tensor.shape or ()
        items = [i if _is_cut(i, before) else _within(i, size, view.counts)
                 for i, before, size in zip(items, view.items, shape)] + items[len(shape):]
        return _of_indices(view.text, tensor, items)
    return _of_slices(view.text, tensor, items)


def _is_cut(item: Item, before: Item) -> bool:
    """Return whether a mask leaves fewer elements of an index."""
    return isinstance(item, IndexFact) and isinstance(before, IndexFact) and [a.extent for a in item.axes] != [
        a.extent for a in before.axes]


def _within(item: Item, size: str, counts: frozenset[str]) -> Item:
    """Return an index into a dimension that a mask has cut to fewer elements."""
    if size not in counts or not isinstance(item, IndexFact) or item.base != "0":
        return item
    varying = [k for k, a in enumerate(item.axes) if a.step != "0"]
    if len(varying) != 1 or item.axes[varying[0]].step != "1":
        return item
    axes = tuple(replace(a, extent=size) if k == varying[0] else a for k, a in enumerate(item.axes))
    return replace(item, base="0", axes=axes)


def extents_of(items: Sequence[Item]) -> list[str]:
    """Return the extent of each axis of the indices together."""
    rank = max(len(i.axes) for i in items if isinstance(i, IndexFact))
    extents = ["1"] * rank
    for item in items:
        if isinstance(item, IndexFact):
            for k, axis in enumerate(item.axes, rank - len(item.axes)):
                if axis.extent != "1":
                    extents[k] = axis.extent
    return extents


def steps_of(item: Item, extents: Sequence[str]) -> list[str]:
    """Return the step of an item along each axis of the indices, whose extents these are."""
    if not isinstance(item, IndexFact):
        return ["0"] * len(extents)
    spread = len(extents) - len(item.axes)
    return ["0"] * spread + ["0" if a.extent == "1" != extent else a.step
                             for a, extent in zip(item.axes, extents[spread:])]


def backward_axes(tensor: TensorFact, steps: Sequence[Sequence[str]], rank: int) -> set[int]:
    """Return the axes of the indices along which a subscript steps backwards. Along an axis that moves several
    dimensions, the first one decides: within its bounds the others move by less than one of its steps. Raise NotAView
    if the text does not show the direction."""
    backwards = set[int]()
    for axis in range(rank):
        along = [item_steps[axis] for item_steps in steps if item_steps[axis] != "0"]
        numbers = [terms.number(step) for step in along]
        if all((n or 0) >= 0 for n in numbers):
            continue
        is_mixed = len({n is not None and n < 0 for n in numbers}) > 1
        if is_mixed and (None in numbers or not tensor.base):
            raise NotAView("an index that steps backwards")
        if (numbers[0] or 0) < 0:
            backwards.add(axis)
    return backwards


def _base(item: Item) -> str:
    if isinstance(item, IndexFact):
        return item.base
    return item.text if isinstance(item, Integer) else "0"


def _of_indices(text: str, tensor: TensorFact, items: list[Item]) -> tuple[str, TensorFact]:
    extents = extents_of(items)
    rank = len(extents)
    steps = [steps_of(item, extents) for item in items]
    rows = [k for k, item in enumerate(items) if isinstance(item, RowNumbers)]
    along = [[a for a in range(rank) if s[a] != "0"] for s in steps]
    used_axes = [a for axes in along for a in axes]
    backwards = [k for k, axes in enumerate(steps) if any((terms.number(s) or 0) < 0 for s in axes)]
    if backwards and (rows or (0 in backwards if tensor.on_chip else backward_axes(tensor, steps, rank))):
        raise NotAView("an index that steps backwards")
    moved = [k for k, item in enumerate(items) if isinstance(item, IndexFact) and item.moved]
    if moved:
        return _moved(text, tensor, items, moved, extents, steps)
    if rows:
        return _gathered(text, tensor, items, rows, extents, steps, along)
    if backwards:
        return _pattern(text, tensor, items, extents, steps)
    simple = all(len(axes) <= 1 for axes in along) and len(set(used_axes)) == len(used_axes)
    if simple and all(extents[a] == "1" or a in used_axes for a in range(rank)):
        sliced, fact, order = _sliced(text, tensor, items, extents, steps, along)
        if order == sorted(order):
            return _with_axes(sliced, fact, [a for a in range(rank) if a not in order])
        if len(order) == len(used_axes) and (not tensor.on_chip or used_axes[0] == 0):
            order = [sorted(used_axes).index(a) for a in used_axes]
            inverse = [order.index(k) for k in range(len(order))]
            shape = None if fact.shape is None else tuple(fact.shape[k] for k in inverse)
            return f"{sliced}.permute({tuple(inverse)})", fact.like(shape)
    return _pattern(text, tensor, items, extents, steps)


def _with_axes(text: str, tensor: TensorFact, axes: list[int]) -> tuple[str, TensorFact]:
    """Return a view with the axes of one element that the indices have, but no dimension of the tensor."""
    if tensor.shape is None:
        return text, tensor
    shape = list(tensor.shape)
    for axis in axes:
        text, shape[axis:axis] = f"{text}.expand_dim({axis})", ["1"]
    return text, tensor.like(tuple(shape))


def _sliced(text: str, tensor: TensorFact, items: Sequence[Item], extents: list[str], steps: list[list[str]],
            along: list[list[int]]) -> tuple[str, TensorFact, list[int]]:
    """Return the text of a view by slices, the fact about it, and for each dimension of the view the axis of the
    indices that it stands for."""
    shape: list[str] = []
    texts: list[str] = []
    order: list[int] = []
    varying = {axis for axes in along for axis in axes}
    spare = [axis for axis in range(len(extents)) if axis not in varying]      # axes of one element
    for k, (item, axes) in enumerate(zip(items, along)):
        extent = tensor.shape[k] if tensor.shape is not None and k < len(tensor.shape) else f"{text}.shape[{k}]"
        base = _base(item)
        if axes:
            texts.append(span(base, extents[axes[0]], steps[k][axes[0]], extent))
            shape.append(extents[axes[0]])
            order.append(axes[0])
        elif isinstance(item, Part):
            texts.append(item.text)
            shape.append(extent if item.text == ":" else item.size)
        elif spare and (k == 0 or k == len(items) - 1):
            order.append(spare.pop(0))
            texts.append(":" if base == "0" and extent == "1" else span(base, "1"))
            shape.append("1")
        else:
            texts.append(base)
    if tensor.on_chip and not along[0] and not isinstance(items[0], Part) and texts[0] == _base(items[0]):
        texts[0] = span(texts[0], "1")
        shape.insert(0, "1")
    if all(t == ":" for t in texts):
        return text, tensor, order
    return f"{text}[{', '.join(texts)}]", tensor.like(tuple(size or "?" for size in shape)), order


def strides(text: str, tensor: TensorFact) -> list[str]:
    """Return the text of the step of each dimension."""
    if tensor.base and tensor.shape is not None and "?" not in tensor.shape:
        return [terms.product(tensor.shape[k + 1:]) for k in range(len(tensor.shape))]
    if tensor.shape is None:
        raise NotAView("the rank of the tensor is unknown")
    return [f"{text}.strides[{k}]" for k in range(len(tensor.shape))]


def _lengths(text: str, tensor: TensorFact, items: Sequence[Item]) -> list[str]:
    """Return the text of the step of each dimension that ``items`` index; the rank may be unknown."""
    return strides(text, tensor) if tensor.shape is not None else [
        f"{text}.strides[{k}]" for k in range(len(items))]


def _total(counts: Iterable[str], lengths: Sequence[str]) -> str:
    """Return the text of the sum of counts times lengths."""
    total = "0"
    for count, length in zip(counts, lengths):
        total = terms.add(total, terms.multiply(count, length))
    return total


def _pattern(text: str, tensor: TensorFact, items: Sequence[Item], extents: list[str], steps: list[list[str]]
             ) -> tuple[str, TensorFact]:
    lengths = _lengths(text, tensor, items)
    if len(lengths) != len(items):
        raise NotAView("the subscript has fewer items than the tensor dimensions")
    offset = _total(map(_base, items), lengths)
    pattern = [f"[{_total([item_steps[axis] for item_steps in steps], lengths)}, {extent}]"
               for axis, extent in enumerate(extents)]
    if tensor.on_chip and steps[0][0] == "0":
        pattern[0] = f"[{lengths[0]}, {extents[0]}]"
    offset_argument = "" if offset == "0" else f", offset={offset}"
    return f"{text}.ap([{', '.join(pattern)}]{offset_argument})", tensor.like(tuple(extents))


def _moved(text: str, tensor: TensorFact, items: Sequence[Item], moved: list[int], extents: list[str],
           steps: list[list[str]]) -> tuple[str, TensorFact]:
    """Return a pattern that a tile of one element moves along a dimension."""
    dimension, *other_dimensions = moved
    item = items[dimension]
    if other_dimensions or any(isinstance(other_item, RowNumbers) for other_item in items) or (tensor.on_chip
                                                                                               and dimension == 0):
        raise NotAView("tiles move a pattern along several dimensions, or along the partitions")
    assert isinstance(item, IndexFact)
    pattern, fact = _pattern(text, tensor, items, extents, steps)
    return f"{pattern.removesuffix(')')}, scalar_offset={item.moved}, indirect_dim={dimension})", fact


def is_backwards(text: str) -> bool:
    """Return whether a text is a view with a negative step, which no transfer has."""
    return re.match(r"[\w\[\]]+\.ap\(\[.*\[-", text) is not None


def _gathered(text: str, tensor: TensorFact, items: Sequence[Item], rows: list[int], extents: list[str],
              steps: list[list[str]], along: list[list[int]]) -> tuple[str, TensorFact]:
    """Return rows of a tensor in HBM by the numbers in a tile: an access pattern with a vector offset."""
    if len(rows) != 1 or tensor.on_chip:
        raise NotAView("a tile is the index of more than one dimension, or of a tensor on chip")
    dimension, = rows
    item = items[dimension]
    assert isinstance(item, RowNumbers)
    is_row_number = any(0 in axes for axes in along)    # each row of the result adds its number to one index
    if (dimension or tensor.part) and not is_row_number:
        return _selected_rows(text, tensor, items, dimension, extents, steps, along)
    lengths = _lengths(text, tensor, items)
    offset = _total(map(_base, items), lengths)
    if is_row_number:
        if tensor.part:
            raise NotAView("a tile of row numbers in a part of a tensor, beside an index that moves from row to row")
        if item.shape != ("1", "1"):
            raise NotAView("a tile of row numbers beside an index that moves from row to row")
        other_items = [Integer("0") if row_item is item else row_item for row_item in items]
        pattern_text, fact = _pattern(text, tensor, other_items, extents, steps)
        return f"{pattern_text.removesuffix(')')}, scalar_offset={item.text}, indirect_dim={dimension})", fact
    count = item.shape[0] if item.shape is not None and item.shape[0] != "?" else f"{item.text}.shape[0]"
    pattern, shape = [f"[{lengths[dimension]}, {count}]"], [count]
    for axis, extent in enumerate(extents):
        step = _total([item_steps[axis] for item_steps in steps], lengths)
        if axis or step != "0":
            pattern.append(f"[{step}, {extent}]")
            shape.append(extent)
    offset_argument = "" if offset == "0" else f", offset={offset}"
    rows_argument = f"vector_offset={item.text}, indirect_dim={dimension}"
    view_text = f"{text}.ap([{', '.join(pattern)}]{offset_argument}, {rows_argument})"
    return view_text, tensor.like(tuple(shape))


def _selected_rows(text: str, tensor: TensorFact, items: Sequence[Item], dimension: int, extents: list[str],
                   steps: list[list[str]], along: list[list[int]]) -> tuple[str, TensorFact]:
    """Return the rows whose numbers a tile has, within the element that the dimensions in front select: a pattern with
    a vector offset counts rows from the first of its tensor."""
    item = items[dimension]
    assert isinstance(item, RowNumbers)
    if any(along[:dimension]) or (tensor.shape is None and not terms.SIMPLE.match(text)):
        raise NotAView("a tile of row numbers after an index that varies along an axis")
    sizes = tensor.shape or tuple(f"{text}.shape[{k}]" for k in range(len(items)))
    first = ", ".join(_base(i) for i in items[:dimension])
    count = item.shape[0] if item.shape is not None and item.shape[0] != "?" else f"{item.text}.shape[0]"
    text = f"{text}{f'[{first}]' if first else ''}.vector_select(0, {item.text})"
    columns = list(zip(items, steps, along))[dimension + 1:]
    if any(len(axes) != 1 or axis_steps[axes[0]] != "1" for _, axis_steps, axes in columns):
        raise NotAView("a tile of row numbers beside an index that takes steps")
    spans = [span(_base(i), extents[axes[0]], "1", sizes[k])
             for k, (i, _, axes) in enumerate(columns, dimension + 1)]
    later_sizes = sizes[dimension + 1 + len(columns):]
    shape = (count, *(extents[axes[0]] for _, _, axes in columns), *later_sizes)
    return part_of(text, [":", *spans]), tensor.like(shape)


def _as_indices(text: str, tensor: TensorFact, items: Sequence[Item]) -> list[Item] | None:
    """Return the items of a subscript by one element of a tile, in which indices replace slices; None for others."""
    parts = [i for i in items if isinstance(i, Part)]
    rows = [i for i in items if isinstance(i, RowNumbers)]
    if not parts or [i.shape for i in rows] != [("1", "1")] or tensor.rank not in (None, len(items)):
        return None
    indices = list[Item]()
    for k, item in enumerate(items):
        if isinstance(item, Part):
            size = item.size or (tensor.shape[k] if tensor.shape is not None else f"{text}.shape[{k}]")
            first = re.match(r"(?:\w+\.)?ds\((.*), " + re.escape(size) + r"\)$|(\w*):", item.text)
            if first is None or (not item.size and item.text != ":") or size == "?":
                return None
            axes = [Axis(size, "1") if part is item else Axis("1", "0") for part in parts]
            item = IndexFact(first[1] or first[2] or "0", tuple(axes))
        indices.append(item)
    return indices


def _of_slices(text: str, tensor: TensorFact, items: list[Item]) -> tuple[str, TensorFact]:
    """Return a view by slices and integers; on chip the partition and at least one more dimension stay."""
    if any(isinstance(i, RowNumbers) for i in items):
        if (len(items) == 1 and tensor.rank == 2) or (len(items) == 2 and isinstance(items[1], Part)):
            part = items[1] if len(items) == 2 else Part(":")
            assert isinstance(part, Part)
            width = part.size or (tensor.shape[1] if tensor.shape and tensor.shape[1] != "?" else f"{text}.shape[1]")
            column = IndexFact("0", (Axis("1", "0"), Axis(width, "1")))
            return _gathered(text, tensor, [items[0], column], [0], ["1", width], [["0", "0"], ["0", "1"]], [[], [1]])
        if (indices := _as_indices(text, tensor, items)) is not None:
            return _of_indices(text, tensor, indices)
        raise NotAView(f"a tile as an index beside {len(items) - 1} others")
    shape: list[str] = []
    texts: list[str] = []
    known_shape = tensor.shape
    if known_shape is None and not tensor.on_chip and all(isinstance(i, Integer) for i in items):
        numbers = ", ".join(i.text for i in items if isinstance(i, Integer))
        return f"{text}[{numbers}]", replace(tensor.like(None), part=True)
    total = len(known_shape) if known_shape is not None else len(items)
    dimensions = sum(isinstance(i, Part) for i in items) + total - len(items)
    for k, item in enumerate(items):
        size = known_shape[k] if known_shape is not None and k < len(known_shape) else (
            f"{text}.shape[{k}]" if known_shape is None and terms.SIMPLE.match(text) else "")
        if isinstance(item, Integer):
            if (tensor.on_chip and k == 0) or (dimensions < 2 and k == len(items) - 1 and total >= 2):
                texts.append(":" if item.text == "0" and size == "1" else span(item.text, "1"))
                shape.append("1")
                dimensions += 1
            else:
                texts.append(item.text)
            continue
        assert isinstance(item, Part)
        is_complete = item.text == ":" or (size and item.text in (f"0:{size}", f":{size}"))
        texts.append(":" if is_complete else item.text)
        shape.append(size if is_complete else item.size)
    if known_shape is not None:
        shape += known_shape[len(items):]
    result: Shape = tuple(size or "?" for size in shape) if known_shape is not None or len(items) >= 2 else None
    if all(t == ":" for t in texts):
        return text, tensor
    return f"{text}[{', '.join(texts)}]", replace(tensor.like(result), part=not tensor.on_chip)


def masked(text: str, tensor: TensorFact, mask: MaskFact | None, integers: Collection[str] = ()
           ) -> tuple[str, TensorFact]:
    """Return the part of a tile that a mask selects, or the tile if the mask selects all of it. ``integers``: variables
    that are not slices."""
    if mask is None or not mask.bounds or tensor.memory not in (SBUF, "psum", "hbm"):
        return text, tensor
    rank = tensor.rank or 2
    texts, shape, restricted = [], [], False
    for k in range(rank):
        bound = next((b for b in mask.bounds if (b.axis == -b.rank if k == 0 else -b.rank != b.axis == k - rank)), None)
        size = tensor.shape[k] if tensor.shape is not None else ""
        if bound is None or size == "1" or (size in ("", "?") and k) or (size == bound.high and not bound.low):
            texts.append(":")
            shape.append(size)
            continue
        restricted = True
        low, high, cut = terms.number(bound.low or "0"), terms.number(bound.high), terms.number(size) or 0
        if low is not None and high is not None and low < cut < low + high:
            high = cut - low                    # an earlier mask has cut the tile
        texts.append(span(bound.low or "0", bound.high if high is None else str(high)))
        shape.append(bound.high if high is None else str(high))
    if not restricted:
        return text, tensor
    return part_of(text, texts, integers), tensor.like(tuple(shape) if all(shape) else None)
