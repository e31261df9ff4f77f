# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites loads and stores whose index steps backwards: a DMA moves elements forwards only, and a copy reverses them.

    tile = nl.load(x[p, 31 - f])        loaded = nl.load(x[:, 0:32])
                                        tile = nl.copy(loaded.ap([[32, 128], [-1, 32]], offset=31))
"""

from collections.abc import Collection
from dataclasses import replace

from nki_mlir.migration import terms
from nki_mlir.migration.facts import Axis, IndexFact, MaskFact, TensorFact
from nki_mlir.migration.views import (
    Item,
    NotAView,
    Part,
    RowNumbers,
    SubscriptText,
    backward_axes,
    clamped,
    extents_of,
    render,
    steps_of,
)


def forwards(view: SubscriptText | None, mask: MaskFact | None) -> tuple[SubscriptText, frozenset[int]] | None:
    """Return a view of HBM with forward steps, and the axes that step backwards. None if no axis does, or the first
    one: no copy reverses partitions."""
    items, backwards = _directions(view, mask)
    if view is None or not backwards or 0 in backwards:
        return None
    extents = extents_of(items)
    return replace(view, items=tuple(_flipped(item, extents, backwards) for item in items)), frozenset(backwards)


def reverses_rows(view: SubscriptText | None, mask: MaskFact | None) -> bool:
    """Return whether the first axis of a view of HBM steps backwards, and a mask leaves more than one row."""
    return 0 in _directions(view, mask)[1]


def only_rows_backwards(view: SubscriptText, mask: MaskFact | None) -> tuple[SubscriptText, frozenset[int]]:
    """Return the view of the elements that a mask leaves, of which at most the first axis steps backwards, and the
    other axes that stepped backwards."""
    items, backwards = _directions(view, mask)
    extents, columns = extents_of(items), frozenset(backwards - {0})
    return replace(view, items=tuple(_flipped(item, extents, columns) for item in items)), columns


def _directions(view: SubscriptText | None, mask: MaskFact | None) -> tuple[list[Item], set[int]]:
    """Return the items of a view of HBM under a mask, and the axes that step backwards; none for other views."""
    if view is None or view.tensor.on_chip or not any(isinstance(i, IndexFact) and i.axes for i in view.items):
        return [], set()
    items = [clamped(i, mask) if isinstance(i, IndexFact) else i for i in view.items]
    if any(isinstance(i, RowNumbers | Part) or (isinstance(i, IndexFact) and i.moved) for i in items):
        return [], set()
    extents = extents_of(items)
    try:
        return items, backward_axes(view.tensor, [steps_of(item, extents) for item in items], len(extents))
    except NotAView:
        return [], set()


def _flipped(item: Item, extents: list[str], backwards: Collection[int]) -> Item:
    if not isinstance(item, IndexFact):
        return item
    base, axes = item.base, list(item.axes)
    for k, extent in enumerate(extents):
        position = k - (len(extents) - len(axes))
        if k not in backwards or position < 0 or axes[position].step == "0":
            continue
        step = terms.multiply("-1", axes[position].step)
        last = terms.multiply(step, terms.subtract(extent, "1"))
        base = terms.difference(base, last) or terms.simplified(terms.subtract(base, last))
        axes[position] = Axis(axes[position].extent, terms.simplified(step))
    return replace(item, base=base, axes=tuple(axes))


def reversed_tile(text: str, tile: TensorFact, backwards: Collection[int]) -> str:
    """Return the view of a tile whose axes ``backwards`` begin with the last element."""
    assert tile.shape is not None
    rank = len(tile.shape)
    items = tuple(IndexFact(
        terms.simplified(terms.subtract(extent, "1")) if k in backwards else "0",
        tuple(Axis(tile.shape[a] if a == k else "1", ("-1" if k in backwards else "1") if a == k else "0")
              for a in range(rank))) for k, extent in enumerate(tile.shape))
    return render(SubscriptText(text, tile, items))[0]
