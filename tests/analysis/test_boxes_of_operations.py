# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Boxes that masks leave: against every point of the iteration space, one by one."""

from itertools import product

import numpy as np
import pytest

from nki_mlir.analysis.mask_boxes import shrink
from nki_mlir.dialects.access import Constraint, Linear, masked_box
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.scalar.dtypes import INT32

from ..conversion.test_structured import rows, symbolic


def holds(constraint, point, values):
    total = constraint.form.at(values) + sum(c * point[axis] for axis, c in constraint.form.axes)
    return total == 0 if constraint.equal else total >= 0


@pytest.mark.parametrize("seed", range(200))
def test_masked_box__and_the_rest_hold_where_the_mask_does(seed):
    rng = np.random.default_rng(seed)
    extents = tuple(int(n) for n in rng.integers(1, 6, 3))
    values = (int(rng.integers(0, 4)),)
    mask = []
    for _ in range(rng.integers(1, 4)):
        axes = tuple((int(a), int(rng.choice([-3, -2, -1, 1, 2, 3]))) for a in sorted(
            rng.permutation(3)[:rng.choice([0, 1, 1, 1, 2])]))
        symbols = ((0, int(rng.integers(-2, 3))),) if rng.random() < 0.5 else ()
        mask.append(Constraint(Linear(int(rng.integers(-4, 5)), symbols, axes), bool(rng.random() < 0.2)))
    starts, counts, rest = masked_box(tuple(mask), extents, values)
    assert all(len(c.form.axes) > 1 for c in rest)
    for point in product(*map(range, extents)):
        inside = all(s <= p < s + n for p, s, n in zip(point, starts, counts))
        assert all(holds(c, point, values) for c in mask) == (
            0 not in counts and inside and all(holds(c, point, values) for c in rest))


def test_shrink__moves_patterns_and_index_forms():
    op = symbolic("nki.iota", dst=rows(8, 6, INT32), expression=Linear(1, (), ((0, 10), (1, 1))))
    op.mask = (Constraint(Linear(-2, (), ((0, 1),))), Constraint(Linear(3, (), ((1, -1),))))
    small = shrink(op)
    assert small.dst.shape == (6, 4) and small.dst.access.partition == Linear(2)
    assert small.expression == Linear(21, (), ((0, 10), (1, 1))) and small.mask == ()
    assert op.dst.shape == (8, 6)                       # the operation it was made from stays


def test_shrink__drops_what_always_holds():
    op = symbolic("nki.copy", 4, dst=rows(8, 6), src=rows(8, 6))
    op.mask = (Constraint(Linear(10, ((0, -1),), ((0, -1),))),)             # at least 10 - 3 - 7
    op.limits = (Constraint(Linear(3, ((0, -1),))), Constraint(Linear(2, ((0, -1),))))
    small = shrink(op)
    assert small.mask == () and small.limits == op.limits[1:]


def test_shrink__keeps_the_one_element_of_a_reduced_axis():
    op = symbolic("nki.reduce", dst=rows(8, 1), src=rows(8, 6), op="add", axes=(1,))
    op.mask = (Constraint(Linear(-2, (), ((1, 1),))), Constraint(Linear(4, (), ((0, -1),))))
    small = shrink(op)
    assert small.dst.shape == (5, 1) and small.dst.access.free == Linear(0)
    assert small.src.shape == (5, 4) and small.src.access.free == Linear(2)


def test_shrink__without_a_mask_is_the_same_operation():
    op = symbolic("nki.copy", dst=rows(8, 6), src=rows(8, 6))
    assert shrink(op) is op and type(op) is REGISTRY["nki.copy"]
