# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule of a nest: what holds for the loops of every nest, and the limits at which another one is chosen."""

from itertools import product
from math import prod

import numpy as np
import pytest

from nki_mlir.dialects.access import Linear, Mask
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT8, INT16, DType
from nki_mlir.targets.cpu import schedule as schedules
from nki_mlir.targets.cpu.contraction import MULTIPLY_ADD
from nki_mlir.targets.cpu.lanes import MOST_SHUFFLED
from nki_mlir.targets.cpu.schedule import LIGHT, UNROLLED, WITH_32_REGISTERS, schedule
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step

FAR = MOST_SHUFFLED + 1
ADD = Step("alu", FLOAT32, (0, 0), "add")
MASK: Mask = (Linear(0, (), ((0, 1),)),)


@pytest.fixture(autouse=True)
def lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "lanes", lambda: WITH_32_REGISTERS)


def chain(count: int) -> tuple[Step, ...]:
    """Return steps that each double the value before."""
    return tuple(Step("alu", FLOAT32, (k + 1 if k else 0,) * 2, "add") for k in range(count))


def of_rows(extents: tuple[int, ...], strides: tuple[int, ...], to: tuple[int, ...], steps: tuple[Step, ...],
            dtype: DType = FLOAT32, mask: Mask = ()) -> Nest:
    return Nest(extents, frozenset(), (Operand(dtype, strides),), 0, (Operand(dtype, to),), steps,
                (len(steps) + 1 if steps else 0,), mask)


def folded(extents: tuple[int, ...], reduced: frozenset[int], name: str = "add") -> Nest:
    """Return a nest that folds a dense array over some axes."""
    strides = tuple(prod(extents[a + 1:]) for a in range(len(extents)))
    kept = [a for a in range(len(extents)) if a not in reduced]
    to = tuple(prod(extents[b] for b in kept if b > a) if a in kept else 0 for a in range(len(extents)))
    return Nest(extents, reduced, (Operand(FLOAT32, strides),), 0, (Operand(FLOAT32, to),),
                (Step("alu", FLOAT32, (1, 0), name),), (2,))


@pytest.mark.parametrize("extents", [(1,), (40,), (3, 100), (64, 2), (3, 4, 5), (2, 30, 3, 7)])
def test_order__has_each_axis_once_and_reduced_ones_last(extents: tuple[int, ...]) -> None:
    for flags in product((False, True), repeat=len(extents)):
        reduced = frozenset(a for a, flag in enumerate(flags) if flag)
        for name in ("add", "maximum", "subtract"):
            plan = schedule(folded(extents, reduced, name))
            assert sorted(plan.order) == [*range(len(extents))]
            assert [a in reduced for a in plan.order] == sorted(flags)
            assert plan.carried == ((0,) if reduced else ())
            if plan.vector in reduced:
                assert plan.order[-1] == plan.vector and len(plan.folds) == 1 and name != "subtract"
            else:
                assert not plan.folds and plan.unroll == 1
            assert plan.vector is not None or (name == "subtract" and len(reduced) == len(extents))


@pytest.mark.parametrize("name, most", [("add", UNROLLED), ("maximum", 2 * UNROLLED)])
def test_folds__have_partial_results_from_two_rounds_of_them_on(name: str, most: int) -> None:
    for extent, unroll in ((2 * most * 16, most), (2 * most * 16 - 1, 1), (2 * most * 16 + 5, most)):
        plan = schedule(folded((3, extent), frozenset({1}), name))
        assert (plan.lanes, plan.unroll) == (16, unroll), extent


@pytest.mark.parametrize("dtype", (FLOAT32, BFLOAT16, INT8), ids=str)
def test_lanes__are_the_power_of_two_around_a_short_axis(dtype: DType) -> None:
    for extent in range(1, 80):
        full = next(1 << k for k in range(8) if 1 << k >= extent)
        copies, sums = (of_rows((extent,), (1,), (1,), steps, dtype) for steps in ((), (ADD,)))
        assert schedules.lanes_for(copies, 0) == min(64 // dtype.itemsize, full)
        assert schedules.lanes_for(sums, 0) == min(16, full)
    assert schedules.lanes_for(of_rows((80,), (2,), (1,), (), dtype), 0) == 16


@pytest.mark.parametrize("far_operand", (0, 1))
def test_blocks__are_read_as_rows_where_lanes_are_far_apart(far_operand: int) -> None:
    """The lanes of the input or of the output are far apart, and the body of the nest has few steps."""
    for steps, step, mask, expected in ((0, FAR, False, True), (2 * LIGHT, FAR, False, True), (3, FAR - 1, False, False),
                                        (2 * LIGHT + 1, FAR, False, False), (1, FAR, True, False), (1, -FAR, False, True)):
        across, along = (step, 1), (1, 64)
        plan = schedules.Schedule((0, 1), 0, 16)
        nest = of_rows((64, 64), *((along, across) if far_operand else (across, along)), chain(steps),
                       mask=MASK if mask else ())
        assert schedules.transposed_operands(nest, plan) == ((far_operand,) if expected else ()), (steps, step, mask)
        assert schedules.transposed_operands(nest, schedules.Schedule((1, 0), 0, 16)) == ()
        assert schedules.transposed_operands(nest, schedules.Schedule((0, 1), None, 1)) == ()


def test_blocks__of_an_output_that_is_read_are_not_transposed() -> None:
    sums = Nest((64, 64), frozenset(), (Operand(FLOAT32, (1, 64)),), 0, (Operand(FLOAT32, (FAR, 1)),),
                (Step("alu", FLOAT32, (0, 1), "add"),), (2,))
    plan = schedules.Schedule((0, 1), 0, 16)
    assert schedules.transposed_operands(sums, plan) == ()
    assert schedules.transposed_operands(of_rows((64, 64), (1, 64), (FAR, 1), (ADD,)), plan) == (1,)


def test_reach__is_that_of_all_elements() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        extents = tuple(map(int, rng.integers(1, 6, 3)))
        strides = tuple(map(int, rng.integers(-9, 10, 3)))
        for dtype in (FLOAT32, BFLOAT16, INT8):
            nest = of_rows(extents, strides, (0, 0, 1), (ADD,), dtype)
            starts = [dtype.itemsize * sum(i * s for i, s in zip(index, strides)) for index in np.ndindex(extents)]
            assert schedules.reach_of(nest, 0) == (min(starts), max(starts) + dtype.itemsize - 1)
            assert schedules.dims_of(nest, 0) == tuple((s * dtype.itemsize, n) for s, n in zip(strides, extents))


def test_parts__are_equal_and_divide_the_first_axis() -> None:
    for rows in range(1, 30):
        nest = of_rows((rows, 8), (8, 1), (8, 1), (ADD,))
        parts = schedules.parts_of(nest, 2, 8)
        fitting = [count for count in range(2, 9) if rows % count == 0]
        assert (parts is None) is (not fitting)
        if parts is not None:
            part, count, extent = parts
            assert count == fitting[0] and count * extent == rows and part.elements * count == nest.elements
    for reduced in (frozenset({0}), frozenset({1})):
        parts = schedules.parts_of(folded((8, 6), reduced), 2, 8)
        assert (parts is None) is (0 in reduced)
    masked = of_rows((8, 8), (8, 1), (8, 1), (ADD,), mask=MASK)
    assert schedules.parts_of(masked, 2, 8) is None and schedules.parts_of(of_rows((), (), (), (ADD,)), 2, 8) is None


def test_cost__grows_with_elements_and_steps_and_is_least_for_products() -> None:
    costs = [schedules.cost_of(of_rows((4, n), (n, 1), (n, 1), chain(steps))) for n in (8, 80) for steps in (0, 1, 9)]
    assert costs == sorted(set(costs)) and costs[0] > 20
    multiplied = Nest((16, 16, 16), frozenset({2}), (Operand(FLOAT32, (16, 0, 1)), Operand(FLOAT32, (0, 1, 16))), 0,
                      (Operand(FLOAT32, (16, 1, 0)),), MULTIPLY_ADD, (4,))
    assert schedules.cost_of(multiplied) < schedules.cost_of(folded((16, 16, 16), frozenset({2})))


def narrow_rows(columns: int, steps: tuple[Step, ...], dtype: DType = BFLOAT16, step: int = 1, to: DType | None = None,
                mask: Mask = ()) -> Nest:
    """Return a nest on rows of 16 bits, which it converts, uses in further steps, and rounds."""
    to = to or dtype
    converted = (Step("convert", FLOAT32, (0,)), *steps)
    rounded = (*converted, *([Step("convert", to, (len(converted) + 1,))] if to is not FLOAT32 else []))
    return Nest((3, columns), frozenset(), (Operand(dtype, (step * columns, step)),), 0,
                (Operand(to, (columns, 1)),), rounded, (len(rounded) + 1,), mask)


def narrow_sum(columns: int, steps: tuple[Step, ...] = (), dtype: DType = BFLOAT16) -> Nest:
    """Return a nest that converts rows of 16 bits, uses them in further steps, and sums them."""
    body = (Step("convert", FLOAT32, (0,)), *steps)
    last = len(body) + 1
    return Nest((3, columns), frozenset({1}), (Operand(dtype, (columns, 1)),), 0, (Operand(FLOAT32, (1, 0)),),
                (*body, Step("alu", FLOAT32, (1, last), "add")), (last + 1,))


def doubled(count: int) -> tuple[Step, ...]:
    return tuple(Step("alu", FLOAT32, (k + 2, k + 2), "add") for k in range(count))


EXP = (Step("activation", FLOAT32, (2,), "exp"),)


@pytest.mark.parametrize("columns, steps, lanes, unroll", [
    (128, (), 32, 2), (192, (), 32, 2), (160, (), 16, 4), (129, (), 16, 4), (127, (), 16, 1), (64, (), 16, 1),
    (128, EXP, 64, 1), (256, EXP, 64, 1), (130, EXP, 16, 4),
    (128, doubled(LIGHT - 1), 32, 2), (128, doubled(LIGHT), 16, 1), (130, doubled(LIGHT - 1), 16, 4)])
def test_sums__of_16_bits_add_whole_registers(columns: int, steps: tuple[Step, ...], lanes: int, unroll: int,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums use two registers of float32, or four for functions, if the row consists of such registers; they keep their
    order."""
    monkeypatch.setattr(host, "lanes", lambda: 16)
    plan = schedule(narrow_sum(columns, steps))
    assert (plan.order, plan.vector, plan.lanes, plan.unroll) == ((0, 1), 1, lanes, unroll)
    assert [fold.fn for fold in plan.folds] == ["add"] and plan.carried == (0,)
    assert schedule(narrow_sum(columns, steps, INT16)).lanes == 16
    monkeypatch.setattr(host, "lanes", lambda: 8)
    assert schedule(narrow_sum(columns, steps)).lanes == 8


@pytest.mark.parametrize("nest, lanes", [
    (narrow_rows(64, EXP), 64), (narrow_rows(128, EXP), 64), (narrow_rows(96, EXP), 32), (narrow_rows(32, EXP), 32),
    (narrow_rows(31, EXP), 16), (narrow_rows(64, ()), 32), (narrow_rows(64, doubled(1)), 32),
    (narrow_rows(64, doubled(1), to=FLOAT32), 16), (narrow_rows(64, EXP, to=FLOAT32), 64),
    (narrow_rows(64, EXP, FLOAT32), 32), (narrow_rows(64, EXP, FLOAT32, step=2), 16), (narrow_rows(64, EXP, step=2), 64),
    (narrow_rows(64, EXP, step=FAR), 16), (narrow_rows(64, EXP, INT16, to=BFLOAT16), 16),
    (narrow_rows(64, EXP, to=INT16), 16), (narrow_rows(64, EXP, mask=MASK), 16)])
def test_steps_that_wait_for_each_other__run_on_several_registers(nest: Nest, lanes: int, monkeypatch: pytest.MonkeyPatch
                                                                  ) -> None:
    """The nests compute functions of registers of floats, and convert them to narrow floats."""
    monkeypatch.setattr(host, "lanes", lambda: 16)
    plan = schedule(nest)
    assert (plan.order, plan.vector, plan.lanes, plan.unroll, plan.folds) == ((0, 1), 1, lanes, 1, ())


@pytest.mark.parametrize("dtype, steps, extents, lanes", [
    (FLOAT32, (), (64, 64), 16), (BFLOAT16, (), (64, 64), 32), (INT8, (), (64, 64), 32), (BFLOAT16, (), (32, 32), 32),
    (BFLOAT16, (), (31, 64), 16), (BFLOAT16, (), (64, 31), 16), (FLOAT32, (ADD,), (64, 64), 16)])
def test_transposes__read_along_rows_and_write_lanes(dtype: DType, steps: tuple[Step, ...], extents: tuple[int, int],
                                                     lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "lanes", lambda: 16)
    rows, columns = extents
    plan = schedule(of_rows((3, rows, columns), (rows * columns, 1, rows), (rows * columns, columns, 1), steps, dtype))
    assert (plan.order, plan.vector, plan.lanes) == ((0, 2, 1), 2, lanes)


def test_outputs__with_a_summed_axis_are_not_carried() -> None:
    """An output that has a summed axis is stored at each of its positions."""
    row, one, each = Operand(FLOAT32, (32, 1)), Operand(FLOAT32, (1, 0)), Operand(FLOAT32, (32, 1))
    nest = Nest((3, 32), frozenset({1}), (row,), 0, (one, each), (Step("alu", FLOAT32, (1, 0), "add"),), (3, 0))
    assert schedule(nest).carried == (0,)
    scalar = folded((3,), frozenset({0}), "subtract")
    assert (schedule(scalar).vector, schedule(scalar).lanes) == (None, 1)


def fields(steps: tuple[int, ...], dtypes: tuple[DType, ...], mask: Mask = ()) -> Nest:
    """Return a nest that sums inputs whose elements have these distances."""
    inputs = tuple(Operand(dtype, (step,)) for dtype, step in zip(dtypes, steps))
    sums = tuple(Step("alu", FLOAT32, (0, k), "add") for k in range(1, len(steps)))
    return Nest((64,), frozenset(), inputs, 0, (Operand(FLOAT32, (1,)),), sums, (len(steps) + len(sums),), mask)


@pytest.mark.parametrize("dtype", (FLOAT32, BFLOAT16), ids=str)
@pytest.mark.parametrize("step", (2, 4, MOST_SHUFFLED))
def test_fields__of_the_same_records_are_loaded_together(dtype: DType, step: int) -> None:
    """Each input has the first input of its group in memory, and the number of elements between the two."""
    size = dtype.itemsize
    record = step * size

    def beside(*starts: int, steps: tuple[int, ...] = (), mask: Mask = (), symbols: tuple[int, ...] = ()
               ) -> tuple[tuple[int, int, int], ...]:
        steps, symbols = steps or (step,) * len(starts), symbols or (0,) * len(starts)
        return schedules.adjacent_fields(fields(steps, (dtype,) * len(starts), mask), [
            Linear(start, ((symbol, 1),)) for start, symbol in zip(starts, symbols)])
    assert beside(0, size) == ((0, 0, 0), (1, 0, 1)) and beside(record + size, record) == ((1, 1, 0), (0, 1, 1))
    assert beside(5 * record, 5 * record + (step - 1) * size) == ((0, 0, 0), (1, 0, step - 1))
    assert beside(0, record) == beside(0, size, symbols=(0, 1)) == beside(0, size, mask=MASK) == ()
    assert beside(0, size, steps=(step, 1)) == beside(0, size, steps=(step, 2 * step)) == ()
    assert beside(0, 9 * record, size, 9 * record + size) == ((0, 0, 0), (2, 0, 1), (1, 1, 0), (3, 1, 1))
    assert beside(0, size, steps=(3, 3)) == beside(0, size, steps=(2 * MOST_SHUFFLED,) * 2) == ()
    nest = fields((step, step), (dtype, dtype))
    assert schedules.adjacent_fields(nest, [Linear(0), object()]) == ()


def test_copies__between_dtypes_have_lanes_of_the_wider_one() -> None:
    nest = Nest((80,), frozenset(), (Operand(INT8, (1,)),), 0, (Operand(FLOAT32, (1,)),), (), (0,))
    assert schedules.lanes_for(nest, 0) == 16


def test_parts__do_not_know_their_number() -> None:
    """A body that uses the position along the first axis would need it."""
    for axis, expected in ((0, False), (1, True)):
        position = Step("position", FLOAT32, (), "", Linear(0, (), ((axis, 1),)))
        nest = Nest((8, 6), frozenset(), (), 0, (Operand(FLOAT32, (6, 1)),), (position,), (1,))
        assert (schedules.parts_of(nest, 2, 8) is not None) is expected
    assert schedules.parts_of(of_rows((8, 6), (6, 1), (6, 1), (ADD,)), 8, 8)[1] == 8
