# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extrema without repairs: bodies at random, and folds, give the bits of code with repairs."""

from itertools import product

import numpy as np
import pytest

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from nki_mlir.targets.cpu.code_forms import can_have
from nki_mlir.targets.cpu.extrema import unrepaired
from nki_mlir.waist.nest import Nest, Operand, Step

from ...property_counts import FUZZ
from .nest_reference import Memory, bits, run

EDGES = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-40, -1e-40, 2.0 ** -133, -2.0 ** -133, 1.0, -1.0,
                  3e38, -3e38], np.float32)
BINARY = ("maximum", "minimum", "add", "subtract", "multiply", "divide", "less")
UNARY = ("relu", "abs", "negative", "square", "reciprocal")
INPUTS, COLUMNS = 4, 256
NESTS = 120 if FUZZ else 30


def elementwise(dtype: DType, steps: list[Step], results: tuple[int, ...]) -> Nest:
    row = Operand(dtype, (COLUMNS, 1))
    return Nest((3, COLUMNS), frozenset(), (row,) * INPUTS, 0, (row,) * len(results), tuple(steps), results)


def random_nest(dtype: DType, rng: np.random.Generator) -> Nest:
    """Return a nest of extrema and arithmetic on four inputs and constants, which rounds to the dtype after each step
    and has one or two results."""
    count = int(rng.integers(1, 3))
    steps, first = list[Step](), INPUTS + count
    values = list(range(INPUTS))

    def added(step: Step) -> int:
        steps.append(step)
        return first + len(steps) - 1

    def rounded(value: int) -> int:
        return value if dtype is FLOAT32 else added(Step("convert", FLOAT32, (added(Step("convert", dtype, (value,))),)))
    values = [k if dtype is FLOAT32 else added(Step("convert", FLOAT32, (k,))) for k in range(INPUTS)]
    values += [added(Step("constant", FLOAT32, (), "", number)) for number in ("0.0", "1.0", "-0.0", "-2.0", "nan")]
    for _ in range(int(rng.integers(3, 14))):
        if rng.random() < 0.2:
            step = Step("alu", FLOAT32, (int(rng.choice(values)),), str(rng.choice(UNARY)))
        else:
            name = str(rng.choice(BINARY, p=(0.3, 0.3, 0.1, 0.1, 0.08, 0.08, 0.04)))
            step = Step("alu", FLOAT32, tuple(int(v) for v in rng.choice(values, 2)), name)
        values.append(rounded(added(step)))
    results = tuple(int(v) if dtype is FLOAT32 else added(Step("convert", dtype, (int(v),)))
                    for v in rng.choice(values[-3:], count))
    return elementwise(dtype, steps, results)


def folded(dtype: DType, fn: str, axis: int, columns: int) -> Nest:
    """Return a nest that folds rows or columns of one input to extrema in float32."""
    steps = [] if dtype is FLOAT32 else [Step("convert", FLOAT32, (0,))]
    value = 0 if dtype is FLOAT32 else 2
    steps.append(Step("alu", FLOAT32, (1, value), fn))
    return Nest((8, columns), frozenset({axis}), (Operand(dtype, (columns, 1)),), 0,
                (Operand(FLOAT32, (0, 1) if axis == 0 else (1, 0)),), tuple(steps), (1 + len(steps),))


def values_of(memory: Memory, nest: Nest, rng: np.random.Generator) -> np.ndarray:
    """Return small integers and edges; the elements of a fold are zeros of both signs and one other edge."""
    if nest.reduced and memory.array.size == np.prod(nest.extents):
        edges = rng.choice(EDGES, [1 if axis in nest.reduced else extent for axis, extent in enumerate(nest.extents)])
        return np.where(rng.random(nest.extents) < 0.5, edges, rng.choice(EDGES[:2], nest.extents)).ravel()
    usual = rng.random(memory.array.size) < 0.4
    return np.where(usual, rng.integers(-3, 4, memory.array.size), rng.choice(EDGES, memory.array.size))


def results_of(nest: Nest, forms: tuple[str, ...], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    memories = [Memory(nest, operand, rng) for operand in nest.operands]
    with np.errstate(over="ignore"):
        for memory in memories:
            memory.array[:] = values_of(memory, nest, rng).astype(memory.array.dtype)
    run(nest, memories, forms=forms)
    return [memory.array for memory in memories[len(nest.inputs):]]


def assert_equal_bits(first: np.ndarray, second: np.ndarray) -> None:
    """Compare bits; NaN equals NaN of any bits."""
    nan = np.isnan(first.astype(np.float32))
    assert np.array_equal(nan, np.isnan(second.astype(np.float32)))
    assert np.array_equal(bits(first)[~nan], bits(second)[~nan])


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", (FLOAT32, BFLOAT16, FLOAT16), ids=str)
def test_extrema_without_repairs__keep_bits_of_bodies_at_random(dtype: DType) -> None:
    rng = np.random.default_rng(25)
    simpler = [nest for nest in (random_nest(dtype, rng) for _ in range(NESTS)) if can_have(nest, "extrema")]
    assert len(simpler) > NESTS // 3
    assert sum(bool(unrepaired(nest).nans) for nest in simpler) > NESTS // 12
    assert sum(bool(unrepaired(nest).zeros) for nest in simpler) > NESTS // 12
    for seed, nest in enumerate(simpler):
        for with_repairs, without in zip(results_of(nest, (), seed), results_of(nest, ("extrema",), seed)):
            assert_equal_bits(with_repairs, without)


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", (FLOAT32, BFLOAT16, FLOAT16), ids=str)
def test_folds_that_repair_zeros_at_their_end__keep_bits(dtype: DType) -> None:
    zeros = 0
    for seed, ((fn, columns), axis) in enumerate(product((("maximum", 512), ("minimum", 280)), (0, 1))):
        nest = folded(dtype, fn, axis, columns)
        assert can_have(nest, "extrema") and not any(unrepaired(nest))
        for with_repairs, without in zip(results_of(nest, (), seed), results_of(nest, ("extrema",), seed)):
            assert_equal_bits(with_repairs, without)
            zeros += np.count_nonzero(without == 0)
    assert zeros > 100
