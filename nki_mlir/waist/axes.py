# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Axes of a nest put in another order, those that are walked as one joined: what normal forms are made of."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from nki_mlir.dialects.access import Constraint, Linear, Mask


def joined(order: Iterable[int], as_one: Callable[[int, int], bool]) -> list[list[int]]:
    """The axes in this order, in groups of neighbours of which each is ``as_one`` (outer, inner) with the next."""
    groups: list[list[int]] = []
    for axis in order:
        if groups and as_one(groups[-1][-1], axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def renamed(form: Linear, place: Mapping[int, int]) -> Linear:
    """The form over axes at other places; axes that have none are at 0."""
    return replace(form, axes=tuple(sorted([(place[a], c) for a, c in form.axes if a in place])))


def renamed_mask(mask: Mask, place: Mapping[int, int]) -> Mask:
    return tuple([Constraint(renamed(c.form, place), c.equal) for c in mask])
