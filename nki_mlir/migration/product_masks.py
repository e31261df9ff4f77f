# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resolves masks of matrix products. Their axes are K, then those of M and of N; a factor has K and one of the two.

    acc[...] += nl.matmul(x, y, transpose_x=True, mask=i_k < 10)
                        nisa.nc_matmul(dst=acc, stationary=x[0:10], moving=y[0:10])

A comparison of fewer dimensions is of the first axes if its extents are theirs, else of the last axes, as in the beta
generation.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce

import libcst as cst

from nki_mlir.migration import terms
from nki_mlir.migration.calls import Arguments, Calls
from nki_mlir.migration.diagonals import from_first_row
from nki_mlir.migration.engine_rows import integer
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import PSUM, SBUF, Axis, Comparison, IndexFact, MaskFact, TensorFact
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.views import Integer, Part

K, M, N = "K", "M", "N"
UNKNOWN_AXIS = "a mask of a product whose operands have sizes that the text does not show: it may select in K, M or N"
BY_NAME = ("the mask of the product has the size of the result's rows or columns and selects them; if K has the same "
           "size, the beta generation selects terms of the sums instead")
Axes = Mapping[str, tuple[int, ...]]        # axes of K, M and N, counted from the product's last, -1
Sizes = Mapping[int, set[str]]


def masked_factors(a: Arguments, factors: Mapping[str, tuple[str, str]]) -> list[tuple[str, TensorFact]]:
    """Return the factors of a product, by name with their axes, under its mask. The arguments have the mask of the
    result then."""
    mask, calls, axes = a.mask, a.calls, _axes(a, factors)
    of_result = (*axes[M], *axes[N])
    if mask is not None:
        mask = _of_product(calls, mask, axes, _sizes(a, factors, axes))
        a.selected, mask = _along(mask, of_result), from_first_row(mask, axes[M][0], not calls.assigned)
    views = []
    for name, (first, second) in factors.items():
        part = replace(a, mask=None if mask is None else replace(_along(mask, (*axes[first], *axes[second])),
                                                                 diagonals=()))
        text, fact = part.tensor(name)
        if fact.memory == PSUM:
            calls.report.changed(calls.line, f"{text} is copied to SBUF, because products read no factor in PSUM")
            copy = f"{calls.nl}.copy({text})"
            is_named = fact.shape is None or "?" in fact.shape      # the shape of the product names it, too
            text, fact = calls.named(copy, "factor") if is_named else copy, replace(fact, memory=SBUF)
        views.append((text, fact))
    a.mask = None if mask is None else _along(mask, of_result)
    return views


def _axes(a: Arguments, factors: Mapping[str, tuple[str, str]]) -> Axes:
    """Return the axes of a product; M and N are several axes if a factor has more than two dimensions."""
    free = {M: 1, N: 1}
    for name, kinds in factors.items():
        fact = a.fact(name)
        rank = fact.rank if isinstance(fact, TensorFact) else None
        free[M if M in kinds else N] = max((rank or 2) - 1, 1)
    m, n = free[M], free[N]
    return {K: (-n - m - 1,), M: tuple(range(-n - m, -n)), N: tuple(range(-n, 0))}


def selects_box(result: OperationText) -> bool:
    """Return whether the mask of a product selects a box: it may accumulate in PSUM then."""
    return result.mask is None or not result.mask.selects_no_box


def _along(mask: MaskFact, axes: tuple[int, ...]) -> MaskFact:
    """Return the part of a mask along some of its axes, which become those of a tile."""
    def of(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
        return tuple(replace(c, index=replace(c.index, axes=tuple(c.index.axes[axis] for axis in axes)))
                     for c in comparisons if {*c.varying} <= {*axes})
    return replace(mask, comparisons=of(mask.comparisons), diagonals=of(mask.diagonals), bounds=tuple(
        replace(bound, axis=position - len(axes), rank=len(axes)) for bound in mask.bounds
        for position, axis in enumerate(axes) if bound.axis == axis))


def _of_product(calls: Calls, mask: MaskFact, of_product: Axes, sizes: Sizes) -> MaskFact:
    """Return a mask with the axes of a product."""
    if mask.alternatives:
        raise LeftForAPerson("a product under a mask that does not select a box of elements")
    lifted = {id(c): _lifted(calls, c, sizes) for c in mask.comparisons}
    diagonals = tuple(_lifted(calls, c, sizes) for c in mask.diagonals)
    axes: dict[tuple[int, int], set[int]] = {}
    for c in mask.comparisons:
        if len(c.varying) == 1:
            axes.setdefault((len(c.index.axes), c.varying[0]), set()).add(lifted[id(c)].varying[0])
    comparisons = tuple(lifted.values())
    if all(len(lifted_axes) == 1 for lifted_axes in axes.values()):
        bounds = tuple(replace(b, axis=next(iter(axes.get((b.rank, b.axis), {b.axis}))), rank=len(sizes))
                       for b in mask.bounds)
        mask = MaskFact(bounds, mask.conditions, comparisons, diagonals)
    else:                                   # comparisons of one dimension each, along several axes of the product
        parts = [calls.mask_of(c.operator, c.index) for c in comparisons]
        conditions = tuple(dict.fromkeys((*mask.conditions, *(text for part in parts for text in part.conditions))))
        mask = replace(reduce(calls.conjunction, parts, MaskFact(())), conditions=conditions)
    if any(axis in c.varying for c in mask.diagonals for axis in of_product[K]):
        raise LeftForAPerson("a product under a mask that does not select a box of the terms of its sums")
    return mask


def _sizes(a: Arguments, factors: Mapping[str, tuple[str, str]], axes: Axes) -> dict[int, set[str]]:
    """Return texts of the extents of a product's axes in the beta generation."""
    sizes: dict[int, set[str]] = {axis: set() for axes_of_factor in axes.values() for axis in axes_of_factor}
    for name, (first, second) in factors.items():
        of_factor = (*axes[first], *axes[second])
        for axis, texts in zip(of_factor, _extents(a.calls, a.nodes[name], len(of_factor))):
            sizes[axis] |= texts
    for axis, text in zip((*axes[M], *axes[N]), (a.calls.updated_tile and a.calls.updated_tile.shape) or ()):
        sizes[axis].add(text)
    return {axis: {text for text in texts if text != "?"} for axis, texts in sizes.items()}


def _extents(calls: Calls, node: cst.BaseExpression, rank: int) -> list[set[str]]:
    """Return texts of the extents of a tile of ``rank`` dimensions. An extent that a mask may have cut has no text."""
    texts: list[set[str]] = [set() for _ in range(rank)]
    fact, view, result = calls.fact(node), calls.views.get(id(node)), calls.result(node)
    if not isinstance(fact, TensorFact):
        return texts
    shape = list(fact.shape if fact.rank == rank and fact.shape is not None else ("?",) * rank)
    name = view.text if view is not None else calls.code(node)
    mask = result.mask if result is not None else calls.masked.masks.get(name)
    is_new = result is not None and not result.operands and result.name not in ("loaded",)
    cut = calls.uncut_sizes(shape, mask)
    items = [item for item in view.items if not isinstance(item, Integer)] if view is not None else []
    has_integers = view is not None and len(items) < len(view.items)
    for k in range(rank):
        item = items[k] if len(items) == rank else None
        if isinstance(item, IndexFact):
            for position, axis in enumerate(item.axes, rank - len(item.axes)):
                if axis.step != "0" and position >= 0:
                    texts[position].add(axis.extent)
        elif isinstance(item, Part) and item.text != ":":
            texts[k].add(shape[k])
        elif k in cut:
            texts[k].add(cut[k])
        elif not is_new and not calls.masked.cut_sources.get(name) and (mask is None or not has_integers):
            texts[k].add(shape[k])
    return texts


def _lifted(calls: Calls, comparison: Comparison, sizes: Sizes) -> Comparison:
    """Return a comparison with the axes of a product."""
    index = comparison.index
    axes, missing = index.axes, len(sizes) - len(index.axes)
    if not comparison.varying:
        return replace(comparison, index=replace(index, axes=(Axis("1", "0"),) * len(sizes)))
    if missing < 0:
        raise LeftForAPerson(f"a product of {len(sizes)} dimensions under a mask of {len(axes)}")
    fits = [_all(_is_one_of(calls, axis.extent, sizes[k - len(sizes) + offset]) for k, axis in enumerate(axes))
            for offset in (0, missing)]
    is_row = len(axes) == 2 and axes[0].extent == "1" and len(sizes) == 3       # refused if it fits M and N
    if not missing or fits[0] or (fits[1] is False and fits[0] is None):
        before = 0
    elif fits[0] is False or (is_row and fits[1]):
        before = missing
    elif fits[1] and _number(calls, axes[comparison.varying[0]].extent) is None:
        calls.report.changed(calls.line, BY_NAME)
        before = missing
    else:
        raise LeftForAPerson(UNKNOWN_AXIS)
    unit = (Axis("1", "0"),)
    return replace(comparison, index=replace(index, axes=(*unit * before, *axes, *unit * (missing - before))))


def _is_one_of(calls: Calls, size: str, texts: Iterable[str]) -> bool | None:
    """Return whether an extent of a mask is 1 or one of some equal extents; None if the text does not show it."""
    number = _number(calls, size)
    if number == 1 or any(terms.is_same_number(size, text) for text in texts):
        return True
    numbers = {n for text in texts if (n := _number(calls, text)) is not None}
    return number in numbers if number is not None and numbers else None


def _number(calls: Calls, text: str) -> int | None:
    return integer(ast.parse(text, mode="eval").body, calls.values)


def _all(values: Iterable[bool | None]) -> bool | None:
    """Return whether all values are true; None if it is unknown."""
    listed = list(values)
    return False if False in listed else None if None in listed else True
