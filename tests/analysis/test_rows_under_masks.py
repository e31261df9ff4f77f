# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bounds of forms over boxes, the smallest box of a mask, and rows with the same active elements, by enumeration."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.analysis.mask_boxes import RowGroup, box_of, extremes, row_groups, verdict
from nki_mlir.dialects.access import Constraint, Linear

RANGES = ((-1, 2), (3, 3))


def interval(form):
    return form.interval(RANGES)


def value(form, indices, symbols):
    return form.const + sum(c * symbols[k] for k, c in form.symbols) + sum(c * indices[k] for k, c in form.axes)


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("low, high", [(low, high) for low in range(-2, 3) for high in range(low, 3)])
def test_verdict__is_that_of_all_values(equal, low, high):
    holds = {v == 0 if equal else v >= 0 for v in range(low, high + 1)}
    assert verdict(equal, low, high) is (None if len(holds) == 2 else holds.pop())


@pytest.mark.parametrize("form", [
    Linear(5), Linear(-2, (), ((0, 3),)), Linear(1, ((0, -2),), ((0, 3), (1, -4))), Linear(0, ((0, 1), (1, 2)), ((1, 1),)),
    Linear(7, ((1, -1),), ((0, -1), (1, -2)))])
@pytest.mark.parametrize("counts", [(1, 1), (2, 3), (4, 1)])
def test_extremes__are_those_of_all_values(form, counts):
    values = [value(form, indices, symbols) for indices in product(*map(range, counts))
              for symbols in product(*(range(low, high + 1) for low, high in RANGES))]
    assert extremes(form, counts, interval) == (min(values), max(values))


MASKS = {
    "nothing": [], "a first row": [Linear(-2, (), ((0, 1),))], "a last row": [Linear(3, (), ((0, -1),))],
    "steps": [Linear(-3, (), ((0, 2),)), Linear(7, (), ((1, -3),))],
    "none": [Linear(-9, (), ((0, 1),))], "none of two": [Linear(-4, (), ((0, 1),)), Linear(2, (), ((0, -1),))],
    "both axes": [Linear(-6, (), ((0, 1), (1, 1)))], "a band": [Linear(0, (), ((0, 1), (1, -1))), Linear(1, (), ((0, -1),))],
    "always": [Linear(0, (), ((0, 1), (1, 1)))], "always, then a row": [Linear(1), Linear(-2, (), ((0, 1),))], "a symbol": [Linear(-2, ((0, 1),), ((0, 1),))],
    "a known symbol": [Linear(0, ((1, -1),), ((1, 1),))]}


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_box__has_every_active_element_and_its_mask_selects_them(name, equal):
    mask, extents = tuple(Constraint(form, equal) for form in MASKS[name]), (5, 4)
    box = box_of(mask, extents, interval)
    for symbols in product(*(range(low, high + 1) for low, high in RANGES)):
        def holds(constraints, indices, symbols=symbols):
            values = [(c.equal, value(c.form, indices, symbols)) for c in constraints]
            return all(v == 0 if same else v >= 0 for same, v in values)
        active = {indices for indices in product(*map(range, extents)) if holds(mask, indices)}
        if box is None:
            assert not active
        else:
            inside = {tuple(map(sum, zip(box.starts, moved))) for moved in product(*map(range, box.counts))
                      if holds(box.mask, moved)}
            assert inside == active


@pytest.mark.parametrize("name, starts, counts, remaining", [
    ("nothing", (0, 0), (5, 4), 0), ("a first row", (2, 0), (3, 4), 0), ("a last row", (0, 0), (4, 4), 0),
    ("steps", (2, 0), (3, 3), 0), ("both axes", (3, 2), (2, 2), 1), ("a band", (0, 0), (2, 2), 1),
    ("always", (0, 0), (5, 4), 0), ("always, then a row", (2, 0), (3, 4), 0), ("a symbol", (0, 0), (5, 4), 1), ("a known symbol", (0, 3), (5, 1), 0)])
def test_box__is_the_smallest(name, starts, counts, remaining):
    box = box_of(tuple(Constraint(form) for form in MASKS[name]), (5, 4), interval)
    assert (box.starts, box.counts, len(box.mask)) == (starts, counts, remaining)


DIAGONAL, BELOW = Linear(0, (), ((0, 1), (1, -1))), Linear(1, (), ((0, 1), (1, -1)))


@pytest.mark.parametrize("mask, kept", [
    ([Constraint(BELOW), Constraint(DIAGONAL, equal=True)], [1]),
    ([Constraint(DIAGONAL, equal=True), Constraint(BELOW)], [0]),
    ([Constraint(DIAGONAL, equal=True), Constraint(Linear(1, ((0, 1),), ((0, -1), (1, 1))))], [0]),  # 1 + symbol >= 0
    ([Constraint(DIAGONAL, equal=True), Constraint(Linear(0, ((0, 1),), ((0, -1), (1, 1))))], [0, 1]),
    ([Constraint(BELOW), Constraint(DIAGONAL), Constraint(BELOW)], [1]),
    ([Constraint(DIAGONAL, equal=True), Constraint(DIAGONAL, equal=True)], [1])])
def test_box__has_no_constraint_that_another_implies(mask, kept):
    box = box_of(tuple(mask), (4, 4), interval)
    assert (box.counts, box.mask) == ((4, 4), tuple(mask[k] for k in kept))


def test_box__selects_the_elements_of_masks_with_implied_constraints():
    numbers = np.random.default_rng(3)
    for _ in range(300):
        mask = tuple(Constraint(Linear(int(numbers.integers(-2, 3)), ((0, int(numbers.integers(-1, 2))),),
                                       ((0, int(numbers.choice([-1, 1, 2]))), (1, int(numbers.choice([-1, 1]))))),
                                bool(numbers.integers(0, 2))) for _ in range(3))
        box = box_of(mask, (4, 3), interval)
        for symbols in product(*(range(low, high + 1) for low, high in RANGES)):
            def selected(constraints, starts, counts, symbols=symbols):
                return {indices for indices in product(*(range(s, s + n) for s, n in zip(starts, counts))) if all(
                    (v := value(c.form, [i - s for i, s in zip(indices, starts)], symbols)) == 0 or (
                        v > 0 and not c.equal) for c in constraints)}
            active = selected(mask, (0, 0), (4, 3))
            assert (set() if box is None else selected(box.mask, box.starts, box.counts)) == active


GROUP = RowGroup(np.array([1, 4, 5]), np.array([[0, 0, 2], [1, 2, 0]]), (1, 3))


@pytest.mark.parametrize("axes, shape, dims", [
    ((0, 1, 2, 3), (8, 3, 2, 4), (3, 3, 2)), ((0, 2), (8, 2), (3, 2)), ((0, 1, 3), (8, 3, 4), (3, 3)),
    ((2, 0, 1, 3), (2, 8, 3, 4), (2, 3, 3))])
def test_group__gathers_active_elements_of_its_rows(axes, shape, dims):
    tile = SimpleNamespace(shape=shape)
    assert GROUP.shape(axes, tile) == dims
    kept = [axis for axis in axes if axis != 3]
    expected = []
    for indices in product(*map(range, dims)):
        of = dict(zip(kept, indices))
        element = {0: GROUP.rows[of[0]], 2: of.get(2)}
        if 1 in of:
            element |= {1: GROUP.offsets[0][of[1]], 3: GROUP.offsets[1][of[1]]}
        expected.append([int(element[axis]) for axis in axes])
    assert GROUP.positions(axes, tile).T.tolist() == expected


def test_group__is_written_in_runs_of_rows_and_elements():
    assert list(GROUP.runs()) == [(1, 0, 1, (0, 0, 1), 2), (1, 0, 1, (2, 2, 0), 1), (4, 1, 2, (0, 0, 1), 2),
                                  (4, 1, 2, (2, 2, 0), 1)]


def test_rows_with_the_same_active_elements__are_one_group():
    op = SimpleNamespace(iteration=lambda: SimpleNamespace(extents=(5, 3, 2), reduced=(2,)))
    active = np.zeros((5, 3, 2), bool)
    active[[0, 3], 1:], active[1, 0], active[2, 0] = True, True, True
    groups = row_groups(op, active)
    assert [(g.rows.tolist(), g.offsets.tolist(), g.free) for g in groups] == [
        ([0, 3], [[1, 2]], (1,)), ([1, 2], [[0]], (1,))]
