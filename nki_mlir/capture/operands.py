# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operands of an operation as a builder gets them: broadcast to its destination, their forms, its mask."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from nki_mlir.capture.affine import A, IndexChange
from nki_mlir.capture.broadcasting import source_of
from nki_mlir.capture.errors import EmptySubscript, UnsupportedMask
from nki_mlir.capture.index import Mask
from nki_mlir.capture.strides import same_extents
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import Iteration, Op, TileField
from nki_mlir.dialects.operation_kind import same_value

Operands = Sequence[tuple[TileField, Tile]]
Views: TypeAlias = Mapping[str, View | None]         # operands of an operation by tile field, as the language has them


def broadcast_sources(cls: type[Op], views: dict[str, View]) -> list[TileField]:
    """Broadcast the sources of an elementwise operation to ``dst``. Return the fields of the class that have a view."""
    shape = views["dst"].shape if cls.broadcasts and "dst" in views else None
    present = [field for field in cls.tiles if field.name in views]
    for field in present:
        view = views[field.name]
        if shape is not None and not field.writes and not same_extents(view.shape, shape):
            views[field.name] = source_of(cls, field.name, view, shape)
    return present


def form_of(cls: type[Op], operands: Operands, attributes: dict[str, object]) -> tuple[object, ...]:
    """Return a key that is equal for operations that differ only in their buffers, in where their tiles start, and in
    masks and limits."""
    forms = {field.name: tile.form for field, tile in operands}
    return (cls, *[forms.get(field.name) for field in cls.tiles], *attributes, *map(same_value, attributes.values()))


def check_empty(fields: Sequence[TileField], views: dict[str, View]) -> None:
    """Refuse an operation with an empty operand, unless all its destinations are empty, too: it then does nothing."""
    if not all(0 in views[f.name].shape for f in fields if f.writes):
        view = next(v for v in views.values() if 0 in v.shape)
        raise EmptySubscript(name=view.buffer.name, shape=view.shape)


def plain_mask(mask: object) -> Mask | Literal[False] | None:
    """Return the mask of an operation as a ``Mask``; None if it is true everywhere, False if nowhere."""
    if mask is None or isinstance(mask, Mask):
        return mask
    if isinstance(mask, (bool, np.bool_)):
        return None if mask else False
    if isinstance(mask, View):
        raise UnsupportedMask(what="the mask is a tile, whose values only the device knows",
                              instead="select values with nl.where(condition, x, y); a mask is affine comparisons of "
                                      "indices joined by &")
    raise UnsupportedMask(what=f"the mask is of type {type(mask).__name__}")


def lift_to(iteration: Iteration, name: str) -> IndexChange:
    """Return the function that maps an index over the axes of an operand to the axes of the operation."""
    axes, extents = iteration.axes[name], iteration.extents

    def lift(index: A, /) -> A:
        coefficients = [0] * len(extents)
        for axis, c in zip(axes, index.axes):
            coefficients[axis] += c
        return index.with_axes(coefficients, extents)
    return lift
