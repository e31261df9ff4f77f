# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Roundings of nests: what is said of values holds for all numbers of 16 bits, and what cases are recognized."""

import numpy as np
import pytest

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, TFLOAT32, DType
from nki_mlir.targets.cpu.passes.round_pairs import RoundPairs
from nki_mlir.targets.cpu.roundings import has_short_nans, is_representable, keeping_nans, roundings
from nki_mlir.waist.nest import Nest, Operand, Step

INPUTS = BFLOAT16, FLOAT16, FLOAT32, INT32
FIRST = len(INPUTS) + 1                     # the number of the first step's value; before it the output's old value
ALU = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
       "abs": np.abs, "negative": np.negative, "square": np.square}
CONSTANTS = "1.5", "0.3333333432674408", "nan", "1e-30", "65519.0"


def nest_of(*steps: Step) -> Nest:
    return Nest((8,), frozenset(), tuple(Operand(dtype, (1,)) for dtype in INPUTS), 0, (Operand(FLOAT32, (1,)),), steps,
                (FIRST + len(steps) - 1,))


def convert(operand: int, dtype: DType) -> Step:
    return Step("convert", dtype, (operand,))


def alu(name: str, *operands: int) -> Step:
    return Step("alu", FLOAT32, operands, name)


def constant(number: str) -> Step:
    return Step("constant", FLOAT32, number=number)


def values(nest: Nest) -> list[np.ndarray]:
    """Return all values of a nest whose inputs of 16 bits are all numbers."""
    short, long = np.arange(1 << 16, dtype=np.uint16), np.random.default_rng(0)
    bits = long.integers(0, 1 << 32, 1 << 16, np.uint32)
    numbers = [short.view(BFLOAT16.numpy), long.permutation(short).view(np.float16), bits.view(np.float32),
               bits.view(np.int32), np.zeros(1 << 16, np.float32)]
    for step in nest.steps:
        operands = [numbers[k] for k in step.operands]
        numbers.append(np.full(1 << 16, step.number, np.float32) if step.kind == "constant" else
                       operands[0].astype(step.dtype.numpy) if step.kind == "convert" else ALU[step.name](*operands))
    return numbers


def drawn(random: np.random.Generator) -> Nest:
    steps = [convert(k, FLOAT32) for k in random.permutation([0, 1, 3])]
    dtypes = {2: FLOAT32, **{FIRST + k: FLOAT32 for k in range(3)}}
    for _ in range(9):
        wide = [v for v, dtype in dtypes.items() if dtype is FLOAT32]
        name, kind = str(random.choice(list(ALU))), random.integers(6)
        if kind == 0:
            steps.append(constant(str(random.choice(CONSTANTS))))
        elif kind <= 3:
            narrow = [v for v in dtypes if v not in wide]
            source = int(random.choice(narrow if narrow and random.integers(2) else wide))
            steps.append(convert(source, FLOAT32 if source in narrow else (BFLOAT16, FLOAT16)[random.integers(2)]))
        else:
            steps.append(alu(name, *map(int, random.choice(wide, 1 if name in ("abs", "negative", "square") else 2))))
        dtypes[FIRST + len(steps) - 1] = steps[-1].dtype
    return nest_of(*steps)


@pytest.mark.parametrize("part", range(3))
def test_roundings_and_representable_values__hold_for_random_nests(part: int) -> None:
    rounded, representable, short = 0, 0, 0
    with np.errstate(all="ignore"):
        for seed in range(20 * part, 20 * part + 20):
            nest = drawn(np.random.default_rng(seed))
            numbers = values(nest)
            for value, (wide, dtype) in roundings(nest).items():
                np.testing.assert_array_equal(numbers[value], numbers[wide].astype(dtype.numpy).astype(np.float32))
                rounded += 1
            for value in range(FIRST, FIRST + len(nest.steps)):
                if numbers[value].dtype != np.float32:
                    continue
                for dtype in (BFLOAT16, FLOAT16):
                    if is_representable(nest, value, dtype):
                        np.testing.assert_array_equal(numbers[value].astype(dtype.numpy).astype(np.float32),
                                                      numbers[value])
                        representable += 1
                if has_short_nans(nest, value):
                    bits = numbers[value].view(np.uint32)[np.isnan(numbers[value])]
                    assert not (bits & 0xFFFF).any(), seed
                    short += 1
    assert min(rounded, representable, short) >= 5, (rounded, representable, short)


WIDENED = convert(0, FLOAT32), convert(1, FLOAT32), convert(3, FLOAT32)     # bfloat16, float16, int32
A, B, C, D = range(FIRST, FIRST + 4)        # their values, and that of a fourth step
EXP, TANH = (Step("activation", FLOAT32, (A,), name) for name in ("exp", "tanh"))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("step, of_bfloat16, of_float16, short", [
    (alu("maximum", A, A), True, False, True), (alu("minimum", A, B), False, False, False),
    (alu("maximum", B, B), False, True, False), (alu("add", A, A), False, False, True),
    (alu("add", A, C), False, False, True), (alu("add", A, B), False, False, False),
    (alu("maximum", A, 2), False, False, False), (alu("negative", 2), False, False, False),
    (constant("1.5"), True, True, True), (constant("0.3333333432674408"), False, False, True),
    (constant("1e-30"), False, False, True), (constant("65536.0"), True, False, True), (EXP, False, False, True),
    (TANH, False, False, False), (alu("abs", A), True, False, True), (alu("negative", B), False, True, False),
    (alu("multiply", A, A), False, False, True),
    (alu("is_gt", A, B), False, False, False)])
def test_values_that_are_recognized(step: Step, of_bfloat16: bool, of_float16: bool, short: bool) -> None:
    nest = nest_of(*WIDENED, step)
    assert [is_representable(nest, D, dtype) for dtype in (BFLOAT16, FLOAT16)] == [of_bfloat16, of_float16]
    assert has_short_nans(nest, D) is short
    assert [(is_representable(nest, v, BFLOAT16), is_representable(nest, v, FLOAT16), has_short_nans(nest, v))
            for v in (A, B, C, 2)] == [(True, False, True), (False, True, False), (False, False, True), (False,) * 3]
    rounded = nest_of(*WIDENED, step, convert(D, BFLOAT16), convert(D + 1, FLOAT32))
    assert has_short_nans(rounded, D + 2) is short          # code leaves NaN as it is


@pytest.mark.parametrize("steps, expected", [
    ((alu("add", A, A), convert(D, BFLOAT16), convert(D + 1, FLOAT32)), {D + 2: (D, BFLOAT16)}),
    ((alu("add", A, A), convert(D, FLOAT16), convert(D + 1, FLOAT32)), {D + 2: (D, FLOAT16)}),
    ((alu("add", A, A), convert(D, INT32), convert(D + 1, FLOAT32)), {}),
    ((alu("add", A, A), convert(D, TFLOAT32), convert(D + 1, FLOAT32)), {}),        # as wide as float32
    ((alu("add", A, A), convert(D, FLOAT32)), {}),
    ((alu("add", A, A), convert(D, BFLOAT16), convert(D + 1, FLOAT16)), {}),
    ((convert(3, BFLOAT16), convert(D, FLOAT32)), {}), ((convert(2, BFLOAT16), convert(D, FLOAT32)), {D + 1: (2, BFLOAT16)})])
def test_roundings_that_are_recognized(steps: tuple[Step, ...], expected: dict[int, tuple[int, DType]]) -> None:
    assert roundings(nest_of(*WIDENED, *steps)) == expected


@pytest.mark.parametrize("first, narrow, keeps", [
    (alu("add", A, A), BFLOAT16, True), (alu("add", A, B), BFLOAT16, False), (TANH, BFLOAT16, False),
    (alu("add", A, A), FLOAT16, False)])
def test_indices_of_tables_need_no_repair_of_short_nans(first: Step, narrow: DType, keeps: bool) -> None:
    looked_up = Step("lookup", narrow, (D + 1, 0), "tabulated_gelu")
    assert keeping_nans(nest_of(*WIDENED, first, convert(D, narrow), looked_up)) == frozenset({D} if keeps else ())
    bits = Step("bitcast", FLOAT16, (D + 1,))                 # shows which NaN the index is
    assert keeping_nans(nest_of(*WIDENED, first, convert(D, narrow), bits, looked_up)) == frozenset()


@pytest.mark.parametrize("first, narrow, keeps, pairs", [
    (alu("add", A, A), BFLOAT16, True, False), (alu("add", A, B), BFLOAT16, False, True),
    (EXP, BFLOAT16, True, False), (TANH, BFLOAT16, False, True),
    (TANH, FLOAT16, False, False), (alu("add", A, A), FLOAT16, False, False)])
def test_pairs_are_rounded_where_nan_needs_a_repair(first: Step, narrow: DType, keeps: bool, pairs: bool) -> None:
    """Only bfloat16 has an instruction for pairs."""
    nest = nest_of(*WIDENED, first, convert(D, narrow), convert(D + 1, FLOAT32))
    assert keeping_nans(nest) == (frozenset({D}) if keeps else frozenset())
    choice = RoundPairs()
    assert choice.is_worth_it(nest) is pairs
    choice.always = 1
    assert choice.is_worth_it(nest)
