# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other forms of a nest access the same elements with the same positions, masks and limits, at each iteration."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.scalar.dtypes import FLOAT32, INT32
from nki_mlir.waist.nest import Nest, Operand, Step

SYMBOL = 7


def value(form: Linear, point: tuple[int, ...]) -> int:
    return form.const + sum(c * SYMBOL for _, c in form.symbols) + sum(c * point[a] for a, c in form.axes)


def iterations(nest: Nest) -> list[tuple]:
    """The element of each operand and the value of each form, by iteration, in row-major order."""
    return [(tuple(sum(k * s for k, s in zip(point, o.strides)) for o in nest.operands),
             tuple(value(f, point) for f in nest.forms))
            for point in itertools.product(*map(range, nest.extents))]


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """Two inputs, an output that some axes are reduced to, a position, a mask, and sometimes a limit."""
    extents = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=4)))
    axes = range(len(extents))
    reduced = draw(st.sets(st.sampled_from(axes))) if draw(st.booleans()) else set()

    def operand(kept: set[int]) -> Operand:
        strides, step = [0] * len(extents), 1
        for axis in reversed(axes) if draw(st.booleans()) else draw(st.permutations(axes)):
            if axis in kept:
                strides[axis] = step
                step *= extents[axis]
        return Operand(FLOAT32, tuple(strides))

    def form() -> Linear:
        coefficients = draw(st.lists(st.integers(-3, 3), min_size=len(extents), max_size=len(extents)))
        return Linear(draw(st.integers(-5, 5)), ((0, draw(st.integers(1, 3))),),
                      tuple((a, c) for a, c in enumerate(coefficients) if c))
    steps = [Step("alu", FLOAT32, (0, 1), "add")]
    if draw(st.booleans()):
        steps.append(Step("position", INT32, (), "", form()))
    mask = (Constraint(form()),) if draw(st.booleans()) else ()
    limits = (Constraint(form(), True),) if draw(st.integers(0, 3)) == 0 else ()
    every = set(axes)
    inputs = operand(every), operand(draw(st.sets(st.sampled_from(axes))))
    return Nest(extents, frozenset(reduced), inputs, 1, (operand(every - reduced),), tuple(steps), (3,), mask, limits)


@given(nests(), st.data())
def test_divided_axis__has_the_same_iterations_in_the_same_order(nest: Nest, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(nest.extents) - 1))
    inner = data.draw(st.sampled_from([n for n in range(1, 7) if nest.extents[axis] % n == 0]))
    divided = nest.divided(axis, inner)
    assert divided.extents == (*nest.extents[:axis], nest.extents[axis] // inner, inner, *nest.extents[axis + 1:])
    assert iterations(divided) == iterations(nest)
    original = [*range(axis + 1), *range(axis, len(nest.extents))]      # the axis that each new one is part of
    assert divided.reduced == {a for a, old in enumerate(original) if old in nest.reduced}


@given(nests())
def test_simplified_nest__has_the_same_iterations(nest: Nest) -> None:
    simplified = nest.simplified
    assert Counter(iterations(simplified)) == Counter(iterations(nest))
    assert 1 not in simplified.extents and len(simplified.extents) <= len(nest.extents)
    assert simplified.simplified == simplified
    count = [int(np.prod([n for a, n in enumerate(one.extents) if a in one.reduced])) for one in (nest, simplified)]
    assert count[0] == count[1]
    assert not any(o.strides[a] for o in simplified.outputs for a in simplified.reduced)


@given(nests(), st.data())
def test_arranged_nest__begins_with_its_axis_and_has_another_one(nest: Nest, data: st.DataObject) -> None:
    axes = range(len(nest.extents))
    leading = data.draw(st.none() | st.sampled_from(axes))
    keep = data.draw(st.none() | st.sampled_from(axes))
    arranged = nest.arranged(leading, keep)
    assert Counter(iterations(arranged)) == Counter(iterations(nest))
    assert len(arranged.extents) >= 2
    assert arranged.extents[0] == (1 if leading is None else nest.extents[leading])
    assert (0 in arranged.reduced) == (leading in nest.reduced)
    ones = [n for n in arranged.extents[1:] if n == 1]
    if not nest.limits:
        kept = keep is not None and keep != leading and nest.extents[keep] == 1
        assert len(ones) == (1 if kept or (len(arranged.extents) == 2 and arranged.elements == arranged.extents[0]) else 0)


@given(nests(), st.data())
def test_boxes__have_the_iterations_of_the_nest_together(nest: Nest, data: st.DataObject) -> None:
    """The strides of a nest on memory do not depend on where a box begins, but its forms do."""
    axes = data.draw(st.permutations(range(len(nest.extents))))[:2]
    sizes = [(a, data.draw(st.integers(1, 5))) for a in axes]
    parts = nest.boxes(sizes)
    assert [max(part.extents[a] for part in parts) for a, _ in sizes] == [min(n, nest.extents[a]) for a, n in sizes]
    starts = itertools.product(*(range(0, nest.extents[a], n) for a, n in sizes))
    pieces = []
    for part, start in zip(parts, starts, strict=True):
        offsets = [sum(k * o.strides[a] for k, (a, _) in zip(start, sizes)) for o in nest.operands]
        pieces += [(tuple(e + k for e, k in zip(elements, offsets)), forms) for elements, forms in iterations(part)]
        assert [k for k in range(len(nest.extents)) if part.extents[k] != nest.extents[k]] == sorted(
            a for k, (a, n) in zip(start, sizes) if min(n, nest.extents[a] - k) != nest.extents[a])
    assert Counter(pieces) == Counter(iterations(nest))


def test_inputs_and_steps_without_use__are_dropped() -> None:
    operands = [Operand(FLOAT32, (s,)) for s in (1, 2, 3)]
    steps = (Step("alu", FLOAT32, (0, 1), "multiply"), Step("alu", FLOAT32, (2, 0), "subtract"),
             Step("alu", FLOAT32, (5, 3), "maximum"))
    nest = Nest((8,), frozenset(), tuple(operands), 0, (Operand(FLOAT32, (1,)),), steps, (6,))
    used = nest.without_unused
    assert used.inputs == (operands[0], operands[2])
    assert used.steps == (Step("alu", FLOAT32, (1, 0), "subtract"), Step("alu", FLOAT32, (3, 2), "maximum"))
    assert used.results == (4,) and used.outputs == nest.outputs


@pytest.mark.parametrize(("steps", "inputs", "title"), [
    ((), 1, "copy_2x3_float32"), ((Step("constant", FLOAT32, (), "", 0.0),), 0, "set_2x3_float32"),
    ((Step("alu", FLOAT32, (0, 0), "add"), Step("convert", FLOAT32, (2,))), 1, "add_2x3_float32")])
def test_title__names_the_last_function(steps: tuple[Step, ...], inputs: int, title: str) -> None:
    dense = Operand(FLOAT32, (3, 1))
    result = inputs + len(steps) if steps else 0
    assert Nest((2, 3), frozenset(), (dense,) * inputs, 0, (dense,), steps, (result,)).title == title


def expression(nest: Nest, number: int, names: tuple[str, ...]) -> tuple:
    """A value of a nest as a tree, with names in place of its inputs and outputs."""
    if number < nest.first_step:
        return (names[number],)
    step = nest.steps[number - nest.first_step]
    return step.kind, step.name, step.dtype, *(expression(nest, operand, names) for operand in step.operands)


@st.composite
def bodies(draw: st.DrawFn) -> Nest:
    """Up to three inputs and outputs, and steps on any of the values before them."""
    inputs, outputs = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    steps = []
    for number in range(inputs + outputs, inputs + outputs + draw(st.integers(0, 4))):
        operands = tuple(draw(st.integers(0, number - 1)) for _ in range(2))
        steps.append(Step("alu", FLOAT32, operands, draw(st.sampled_from(("add", "multiply")))))
    results = tuple(draw(st.integers(0, inputs + outputs + len(steps) - 1)) for _ in range(outputs))
    return Nest((2,), frozenset(), (Operand(FLOAT32, (1,)),) * inputs, 0, (Operand(FLOAT32, (1,)),) * outputs,
                tuple(steps), results)


@given(bodies(), bodies())
def test_joined_nest__computes_what_both_compute(first: Nest, second: Nest) -> None:
    joined = first.joined_with(second)
    assert len(joined.inputs) == len(first.inputs) + len(second.inputs)
    named = [([f"{label} in {k}" for k in range(len(nest.inputs))], [f"{label} out {k}" for k in range(len(nest.outputs))])
             for label, nest in (("a", first), ("b", second))]
    (inputs_a, outputs_a), (inputs_b, outputs_b) = named
    expected = [expression(nest, result, (*inputs, *outputs))
                for nest, (inputs, outputs) in zip((first, second), named) for result in nest.results]
    both = (*inputs_a, *inputs_b, *outputs_a, *outputs_b)
    assert [expression(joined, r, both) for r in joined.results] == expected
