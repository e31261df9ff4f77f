# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which nests are copies, folds, products and sums of integers."""

import pytest

from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, DType
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.recognize import Fold, fold_of, integer_sums, is_copy, of_integers, product_of, source_of

TRIANGLE = (Constraint(Linear(0, (), ((0, 1), (1, -1)))),)


def copy(result: int = 0, dtype: DType = FLOAT32, inputs: int = 1, reduced: frozenset[int] = frozenset(),
         mask: tuple[Constraint, ...] = (), steps: tuple[Step, ...] = ()) -> Nest:
    return Nest((4, 8), reduced, (Operand(FLOAT32, (8, 1)),) * inputs, 0, (Operand(dtype, (8, 1)),), steps, (result,),
                mask)


@pytest.mark.parametrize(("nest", "copies"), [
    (copy(), True),
    (copy(result=1), False),                                                # the output stays as it is
    (copy(dtype=BFLOAT16), False),
    (copy(inputs=2), False),
    (copy(reduced=frozenset({1})), False),
    (copy(mask=TRIANGLE), False),
    (copy(result=2, steps=(Step("alu", FLOAT32, (0,), "negative"),)), False),
], ids=["copy", "old value", "other dtype", "two inputs", "reduced", "masked", "negated"])
def test_copy(nest: Nest, copies: bool) -> None:
    assert is_copy(nest) is copies


def fold(fn: str, operands: tuple[int, int], dtype: DType = FLOAT32, result: tuple[DType, ...] = ()) -> Nest:
    """The fold of input 0 into output 1, in ``dtype``; its result is converted to each of ``result``."""
    steps = [Step("alu", dtype, operands, fn)]
    for k, to in enumerate(result):
        steps.append(Step("convert", to, (2 + k,)))
    tile = Operand(dtype, (8, 1)), Operand(result[-1] if result else dtype, (1, 0))
    return Nest((4, 8), frozenset({1}), tile[:1], 0, tile[1:], tuple(steps), (1 + len(steps),))


@pytest.mark.parametrize("name", [op.name for op in ALU.values() if op.arity == 2])
def test_fold__begins_with_the_old_value_or_commutes(name: str) -> None:
    dtype = FLOAT32 if ALU[name].floats else INT32
    first = fold(name, (1, 0), dtype)
    assert fold_of(first) == Fold(0, first.steps[0], name, 0)
    second = fold(name, (0, 1), dtype)
    assert fold_of(second) == (Fold(0, second.steps[0], name, 0) if ALU[name].commutative else None)


def test_fold__converts_where_each_step_rounds() -> None:
    nest = fold("add", (1, 0), result=(BFLOAT16,))
    assert fold_of(nest) == Fold(0, nest.steps[0], "add", 0, converts=True)
    tile, rows = Operand(FLOAT32, (8, 1)), Operand(BFLOAT16, (1, 0))
    steps = (Step("convert", FLOAT32, (1,)), Step("alu", FLOAT32, (2, 0), "add"), Step("convert", BFLOAT16, (3,)))
    both = Nest((4, 8), frozenset({1}), (tile,), 0, (rows,), steps, (4,))
    assert fold_of(both) == Fold(0, steps[1], "add", 0, converts=True)


def test_no_fold__uses_the_old_value_twice() -> None:
    tile, rows = Operand(FLOAT32, (8, 1)), Operand(FLOAT32, (1, 0))
    once, again = Step("alu", FLOAT32, (1, 0), "add"), Step("alu", FLOAT32, (2, 1), "multiply")
    assert fold_of(Nest((4, 8), frozenset({1}), (tile,), 0, (rows,), (once, again), (3,))) is None
    assert fold_of(Nest((4, 8), frozenset({1}), (tile,), 0, (rows,), (once, again), (2,))) is None
    # the old value, converted, is read by another step, too
    steps = (Step("convert", FLOAT16, (1,)), Step("alu", FLOAT16, (2, 0), "add"), Step("alu", FLOAT16, (3, 2), "add"))
    assert fold_of(Nest((4, 8), frozenset({1}), (tile,), 0, (rows,), steps, (4,))) is None


def test_fold__of_the_second_output() -> None:
    tile, rows = Operand(FLOAT32, (8, 1)), Operand(FLOAT32, (1, 0))
    steps = (Step("alu", FLOAT32, (1, 0), "add"), Step("alu", FLOAT32, (0, 2), "maximum"))
    nest = Nest((4, 8), frozenset({1}), (tile,), 0, (rows, rows), steps, (3, 4))
    assert fold_of(nest) == Fold(0, steps[0], "add", 0)
    assert fold_of(nest, 1) == Fold(1, steps[1], "maximum", 0)


# -- products ----------------------------------------------------------------------------------------------------------
def product(*before: Step, factors: tuple[int, int], after: tuple[Step, ...] = (), fold: str = "add",
            fn: str = "multiply", dtypes: tuple[DType, DType] = (FLOAT32, FLOAT32)) -> Nest:
    """The product of values 0 and 1, which ``before`` converts; ``after`` converts each product, the last step adds
    it to the output, value 2."""
    number = 3 + len(before)
    steps = (*before, Step("alu", FLOAT32, factors, fn), *after,
             Step("alu", FLOAT32, (2, number + len(after)), fold))
    inputs = Operand(dtypes[0], (0, 4, 1)), Operand(dtypes[1], (8, 0, 1))
    return Nest((3, 2, 4), frozenset({2}), inputs, 0, (Operand(FLOAT32, (2, 1, 0)),), steps, (2 + len(steps),))


def test_product__of_inputs() -> None:
    matched = product_of(product(factors=(0, 1)))
    assert matched is not None
    assert (matched.factors, matched.inputs, matched.reads_inputs, matched.rounds, matched.in_float32) == (
        (0, 1), (0, 1), True, False, True)


def test_product__of_converted_inputs() -> None:
    wide = product_of(product(Step("convert", FLOAT32, (0,)), factors=(1, 3), dtypes=(BFLOAT16, FLOAT32)))
    assert wide is not None
    assert (wide.factors, wide.inputs, wide.reads_inputs, wide.in_float32) == ((1, 3), (1, 0), True, True)
    twice = product_of(product(Step("convert", BFLOAT16, (0,)), Step("convert", FLOAT32, (3,)), factors=(4, 1)))
    assert twice is not None
    assert (twice.factors, twice.inputs, twice.reads_inputs, twice.in_float32) == ((4, 1), (0, 1), False, False)


def test_product__that_is_rounded_before_it_is_added() -> None:
    matched = product_of(product(factors=(0, 1), after=(Step("convert", BFLOAT16, (3,)),)))
    assert matched is not None and matched.rounds and not matched.in_float32


@pytest.mark.parametrize("nest", [
    product(factors=(0, 1), fold="maximum"), product(factors=(0, 1), fn="subtract"),
    product(Step("constant", FLOAT32, (), "", 2.0), factors=(0, 3)),
    product(Step("alu", FLOAT32, (0,), "negative"), factors=(3, 1))],
    ids=["maximum", "difference", "constant", "negated"])
def test_no_product(nest: Nest) -> None:
    assert product_of(nest) is None


def test_source__is_found_behind_conversions() -> None:
    nest = product(Step("convert", BFLOAT16, (1,)), Step("convert", FLOAT32, (3,)), factors=(0, 4))
    assert [source_of(nest, v) for v in range(6)] == [0, 1, 2, 1, 1, 5]


# -- sums of integers --------------------------------------------------------------------------------------------------
def sums(dtype: DType, steps: tuple[Step, ...], result: int, reduced: bool = True, output: DType = FLOAT32) -> Nest:
    return Nest((4, 8), frozenset({1} if reduced else ()), (Operand(dtype, (8, 1)),), 0,
                (Operand(output, (1, 0 if reduced else 1)),), steps, (result,))


CONVERTED = Step("convert", FLOAT32, (0,)), Step("alu", FLOAT32, (1, 2), "add")


@pytest.mark.parametrize(("nest", "expected"), [
    (sums(INT8, CONVERTED, 3), {0: 2}),
    (sums(INT32, CONVERTED, 3), {0: 2}),
    (sums(BFLOAT16, CONVERTED, 3), {}),
    (sums(INT8, CONVERTED, 3, reduced=False), {}),
    (sums(INT8, (CONVERTED[0], Step("alu", FLOAT32, (1, 2), "maximum")), 3), {}),
    (sums(INT8, (CONVERTED[0], Step("constant", FLOAT32, (), "", 0.5), Step("alu", FLOAT32, (2, 3), "multiply"),
                 Step("alu", FLOAT32, (1, 4), "add")), 5), {0: 4}),
    (sums(INT8, (*CONVERTED, Step("convert", BFLOAT16, (3,))), 4, output=BFLOAT16), {}),
], ids=["int8", "int32", "bfloat16", "kept", "maximum", "scaled", "rounded"])
def test_sums_of_integers(nest: Nest, expected: dict[int, int]) -> None:
    assert integer_sums(nest) == expected


def test_value_of_integers__has_no_float_among_its_inputs() -> None:
    tiles = Operand(INT8, (1,)), Operand(FLOAT32, (1,))
    steps = (Step("convert", FLOAT32, (0,)), Step("alu", FLOAT32, (3, 3), "add"), Step("alu", FLOAT32, (4, 1), "add"),
             Step("convert", INT32, (5,)), Step("alu", FLOAT32, (4, 6), "multiply"))
    nest = Nest((8,), frozenset(), tiles, 0, (Operand(FLOAT32, (1,)),), steps, (7,))
    assert [of_integers(nest, v) for v in range(8)] == [True, False, False, True, True, False, True, True]
