# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of bounds fail for exactly those values of slots for which an active element is outside of its buffer."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Constraint, Linear, active_elements
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32
from nki_mlir.targets.cpu.function import Ranges
from nki_mlir.targets.cpu.proofs import RuntimeCheck, open_checks
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion

SLOTS = (5, 6)


@st.composite
def accesses(draw, masks: bool) -> tuple[SimpleNamespace, Nest, list[ByteRegion], list[Linear]]:
    """Draw a nest whose operands begin at forms of two slots, with facts about the slots; its symbols are forms of
    them."""
    extents = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    ranges = Ranges({slot: (low, low + draw(st.integers(0, 3))) for slot in SLOTS for low in [draw(st.integers(-2, 2))]})
    factor = st.integers(-2, 2)

    def form(low: int, high: int) -> Linear:
        return Linear(draw(st.integers(low, high)), tuple((slot, c) for slot in SLOTS if (c := draw(factor))))
    symbols = [form(-1, 1), form(-1, 1)]
    facts = [form(-1, 3)] if draw(st.booleans()) else []
    operands, views = [], []
    for dtype in (FLOAT32, BFLOAT16):
        operands.append(Operand(dtype, tuple(draw(st.integers(-2, 3)) for _ in extents)))
        offset, item = form(-1, 6) if draw(st.booleans()) else Linear(draw(st.integers(-1, 6))), dtype.itemsize
        views.append(ByteRegion("x", Linear(), draw(st.integers(1, 16 * item)), Linear().plus(offset, item)))
    mask = tuple(Constraint(Linear(draw(st.integers(-1, 2)), ((0, draw(factor)), (1, draw(factor))),
                                   tuple((a, draw(factor)) for a in range(len(extents)))), draw(st.integers(0, 3)) == 0)
                 for _ in range(draw(st.integers(1, 2)) if masks else 0))
    nest = Nest(extents, frozenset(), (operands[0],), 2, (operands[1],), (), (0,), mask)
    return SimpleNamespace(ranges=ranges, facts=facts), nest, views, symbols


def failed(check: RuntimeCheck, at: dict[int, int]) -> bool:
    if check.routine is None:
        assert check.value is not None
        return check.value.at(at) < 0
    arguments = [form.at(at) for form in check.arguments]
    assert len(arguments) == check.routine.symbols
    active = active_elements(check.routine.mask, check.routine.extents, arguments)
    holds = active_elements(check.routine.limits, check.routine.extents, arguments)
    return bool(np.any(active & ~holds))


@given(st.booleans().flatmap(accesses))
def test_checks__fail_where_an_active_element_is_outside(access) -> None:
    compare(*access)


@pytest.mark.parametrize("size", [14, 15, 16, 20])
@pytest.mark.parametrize("factor", [1, -1])
def test_checks_of_masked_rows__fail_where_an_active_element_is_outside(size: int, factor: int) -> None:
    """No proof covers elements 1 and 2 from a slot less one on; the other operand is never outside."""
    mask = (Constraint(Linear(-1, (), ((0, 1),))), Constraint(Linear(1, ((0, 1),), ((0, -1),))))
    operand = Operand(FLOAT32, (1,))
    nest = Nest((3,), frozenset(), (operand,), 1, (operand,), (), (0,), mask)
    views = [ByteRegion("y", Linear(), 12, Linear()), ByteRegion("x", Linear(), size, Linear(4, ((5, 4 * factor),)))]
    compare(SimpleNamespace(ranges=Ranges({5: (-3, 4), 6: (0, 0)}), facts=[]), nest, views, [Linear(0, ((5, 1),))])


def compare(values: SimpleNamespace, nest: Nest, views: list[ByteRegion], symbols: list[Linear]) -> None:
    checks = open_checks(values, nest, views, symbols)
    for check in checks:
        assert check.itemsize == nest.operands[[view is check.view for view in views].index(True)].dtype.itemsize
    for view in views:                              # those of the first element are told from those of the last
        of_view = [check for check in checks if check.view is view]
        assert [check.upper for check in of_view] in ([], [False], [False, True])
        assert all((check.routine is None) == (len(of_view) == 2) for check in of_view)
    for numbers in product(*(range(low, high + 1) for low, high in (values.ranges[slot] for slot in SLOTS))):
        at = dict(zip(SLOTS, numbers))
        if any(fact.at(at) < 0 for fact in values.facts):
            continue
        active = active_elements(nest.mask, nest.extents, [form.at(at) for form in symbols])
        for operand, view in zip(nest.operands, views):
            first = sum(np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(nest.extents))]) * step
                        for axis, (n, step) in enumerate(zip(nest.extents, operand.strides)))
            byte = (view.offset.at(at) + np.broadcast_to(first, nest.extents) * operand.dtype.itemsize)[active]
            outside = bool(np.any((byte < 0) | (byte + operand.dtype.itemsize > view.size)))
            assert any(failed(check, at) for check in checks if check.view is view) == outside


@given(accesses(False))
def test_accesses_that_stay_inside__need_no_checks(access) -> None:
    values, nest, views, symbols = access
    checks = open_checks(values, nest, views, symbols)
    for operand, view in zip(nest.operands, views):
        low, high = view.offset.interval(values.ranges)
        reach = [step * (n - 1) * operand.dtype.itemsize for step, n in zip(operand.strides, nest.extents)]
        inside = low + sum(min(0, r) for r in reach) >= 0 and (
            high + sum(max(0, r) for r in reach) + operand.dtype.itemsize <= view.size)
        assert not inside or not any(check.view is view for check in checks)


def one_row(size: int, mask: tuple[Constraint, ...], offset: Linear = Linear(), facts: tuple[Linear, ...] = ()) -> int:
    """Return how many checks four elements from an offset on need, the first slot being 0 to 3, the second anything."""
    operand = Operand(FLOAT32, (1,))
    nest = Nest((4,), frozenset(), (), 1, (operand,), (), (0,), mask)
    values = SimpleNamespace(ranges=Ranges({5: (0, 3)}), facts=list(facts))
    return len(open_checks(values, nest, [ByteRegion("x", Linear(), 4 * size, offset)], [Linear(0, ((5, 1),))]))


def test_masks_and_branches__prove_accesses() -> None:
    first_three = (Constraint(Linear(2, (), ((0, -1),))),)                  # 2 - a >= 0
    assert [one_row(size, first_three) for size in (2, 3)] == [1, 0]
    up_to_slot = (Constraint(Linear(0, ((0, 1),), ((0, -1),))),)            # slot - a >= 0
    assert one_row(4, up_to_slot, Linear(0, ((5, 4),))) == 1
    assert one_row(4, (Constraint(Linear(3, ((0, -1),), ((0, -1),))),), Linear(0, ((5, 4),))) == 0  # 3 - slot - a >= 0
    at_slot = (Constraint(Linear(0, ((0, 1),), ((0, -1),)), True),)         # slot == a
    assert [one_row(size, at_slot, Linear(12, ((5, -4),))) for size in (3, 4)] == [1, 0]
    assert one_row(4, (Constraint(Linear(0, ((0, -1),), ((0, 1),)), True),), Linear(12, ((5, -4),))) == 0
    below_two = (Linear(2, ((5, -1),)),)                                    # in a branch in which 2 - slot >= 0
    assert [one_row(size, (), Linear(0, ((5, 4),)), below_two) for size in (5, 6)] == [2, 0]
    unknown = Linear(0, ((6, 4),))
    assert one_row(4, (), unknown) == 2
    assert one_row(4, (), unknown, (Linear(0, ((6, 1),)), Linear(0, ((6, -1),)))) == 0


@pytest.mark.parametrize("size,checks", [(4, 0), (3, 1)])
@pytest.mark.parametrize("axis", [0, 1])
def test_masks_on_one_of_two_axes__prove_accesses(axis: int, size: int, checks: int) -> None:
    """Two of four positions on one axis are active, and both on the other."""
    extents, strides = ((4, 2), (2, 1)) if axis == 0 else ((2, 4), (1, 2))
    operand = Operand(FLOAT32, strides)
    nest = Nest(extents, frozenset(), (), 0, (operand,), (), (0,), (Constraint(Linear(1, (), ((axis, -1),))),))
    values = SimpleNamespace(ranges=Ranges(), facts=[])
    assert len(open_checks(values, nest, [ByteRegion("x", Linear(), 4 * size, Linear())], [])) == checks
