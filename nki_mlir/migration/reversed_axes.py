# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads and stores whose index steps backwards. No DMA does so: it moves elements forwards, and a copy reverses them.

    tile = nl.load(x[p, 31 - f])        loaded = nl.load(x[:, 0:32])
                                        tile = nl.copy(loaded.ap([[32, 128], [-1, 32]], offset=31))
"""

from collections.abc import Collection
from dataclasses import replace

from nki_mlir.migration import terms
from nki_mlir.migration.facts import Axis, IndexFact, MaskFact, TensorFact
from nki_mlir.migration.views import (
    Integer,
    Item,
    Part,
    RowNumbers,
    SubscriptText,
    clamped,
    extents_of,
    render,
    steps_of,
)


def forwards(view: SubscriptText | None, mask: MaskFact | None) -> tuple[SubscriptText, frozenset[int]] | None:
    """Return a view of HBM with forward steps, and the axes that step backwards. None if no axis does, or the first
    one: no copy reverses partitions."""
    if view is None or view.tensor.on_chip or not any(isinstance(i, IndexFact) for i in view.items):
        return None
    items = [clamped(i, mask) if isinstance(i, IndexFact) else i for i in view.items]
    if any(isinstance(i, RowNumbers | Part) or (isinstance(i, IndexFact) and i.moved) for i in items):
        return None
    extents = extents_of(items)
    steps = [steps_of(item, len(extents)) for item in items]
    backwards = {k for axes in steps for k, step in enumerate(axes) if (terms.number(step) or 0) < 0}
    if not backwards or 0 in backwards or any(
            (terms.number(axes[k]) or 0) > 0 for axes in steps for k in backwards):
        return None
    return replace(view, items=tuple(_flipped(item, extents, backwards) for item in items)), frozenset(backwards)


def reverses_rows(view: SubscriptText | None, mask: MaskFact | None) -> bool:
    """Return whether only the first axis of a view of HBM steps backwards, which one index of the view does alone, and
    a mask leaves more than one row."""
    if view is None or view.tensor.on_chip or not all(isinstance(i, IndexFact | Integer) for i in view.items):
        return False
    items = [clamped(i, mask) for i in view.items if isinstance(i, IndexFact)]
    if not items or any(i.moved for i in items):
        return False
    steps = [steps_of(item, len(extents_of(items))) for item in items]
    first = [axes for axes in steps if axes[0] != "0"]
    return len(first) == 1 and (terms.number(first[0][0]) or 0) < 0 and {*first[0][1:]} <= {"0"} and not any(
        (terms.number(step) or 0) < 0 for axes in steps for step in axes[1:])


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
