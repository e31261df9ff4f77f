# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recognizes nests that are copies, folds or products, which executors run faster than loops."""

from typing import NamedTuple

from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, DType
from nki_mlir.waist.nest import AnyNest, Step


class Fold(NamedTuple):
    """An output that is ``old value (fn) value``: its number, the operator's step, and the number of the value.

    ``converts``: the operator's dtype is not the output's, so that each step rounds.
    """

    output: int
    step: Step
    fn: str
    value: int
    converts: bool = False

    @property
    def dtype(self) -> DType:
        """Return the dtype in which the operator computes."""
        return self.step.dtype

    @property
    def identity(self) -> int | float | None:
        """Return the identity of the operator, a value that changes no fold; None if it has none."""
        return ALU[self.fn].identity(self.dtype)


def unconverted(nest: AnyNest, value: int) -> int:
    """Return the value that a value converts, or the value itself."""
    step = nest.step(value)
    return step.operands[0] if step is not None and step.kind == "convert" else value


def fold_of(nest: AnyNest, output: int = 0) -> Fold | None:
    """Return an output as a fold, if nothing else uses the value that it holds before, or a partial result."""
    old, result = nest.first_output + output, unconverted(nest, nest.results[output])
    step = nest.step(result)
    if step is None or step.kind != "alu" or len(step.operands) != 2 or any(
            nest.uses(value) != 1 for value in (old, result, nest.results[output])):
        return None
    for before, value in (step.operands, step.operands[::-1])[:2 if ALU[step.name].commutative else 1]:
        if unconverted(nest, before) == old and (before == old or nest.uses(before) == 1):
            return Fold(output, step, step.name, value, before != old or result != nest.results[output])
    return None


class Product(NamedTuple):
    """A sum of products: the fold, the numbers of the two factors' values, and the numbers of the inputs that they
    convert.

    ``reads_inputs``: each factor is an input, converted at most once. ``rounds``: products are converted before they
    are added.
    """

    fold: Fold
    factors: tuple[int, int]
    inputs: tuple[int, int]
    reads_inputs: bool
    rounds: bool

    @property
    def in_float32(self) -> bool:
        """Return whether factors are converted once, multiplied and added in float32, as in matrix units."""
        return self.reads_inputs and not self.rounds and not self.fold.converts and self.fold.dtype is FLOAT32


def sum_of_products(nest: AnyNest) -> tuple[Fold, Step] | None:
    """Return the fold and the step that multiplies, if the nest adds up products of any two values."""
    fold = fold_of(nest) if nest.reduced and len(nest.outputs) == 1 else None
    if fold is None or fold.fn != "add" or nest.uses(fold.value) != 1:
        return None
    step = nest.step(source_of(nest, fold.value))
    return (fold, step) if step is not None and step.kind == "alu" and step.name == "multiply" else None


def product_of(nest: AnyNest) -> Product | None:
    """Return the product if the nest adds up products of elements of two inputs, perhaps converted first."""
    recognized = sum_of_products(nest)
    if recognized is None:
        return None
    fold, step = recognized
    left, right = inputs = [source_of(nest, v) for v in step.operands]
    if max(inputs) >= nest.first_output:
        return None
    reads_inputs = [unconverted(nest, v) for v in step.operands] == inputs
    rounds = nest.step(fold.value) != step
    return Product(fold, (step.operands[0], step.operands[1]), (left, right), reads_inputs, rounds)


def source_of(nest: AnyNest, value: int) -> int:
    """Return the value from which conversions, if any, compute a value."""
    while (inner := unconverted(nest, value)) != value:
        value = inner
    return value


def is_copy(nest: AnyNest) -> bool:
    """Return whether the output is the one input, element by element and unchanged."""
    return (len(nest.inputs) == len(nest.outputs) == 1 and nest.results == (0,) and not (nest.mask or nest.reduced)
            and nest.inputs[0].dtype is nest.outputs[0].dtype)


def of_integers(nest: AnyNest, value: int) -> bool:
    """Return whether a value is computed only from integers and constants."""
    visited, waiting = set[int](), [value]
    while waiting:
        number = waiting.pop()
        if number in visited or nest.dtype_of(number).is_integer:
            continue
        visited.add(number)
        step = nest.step(number)
        if step is None:
            return False
        waiting.extend(step.operands)
    return True


def integer_sums(nest: AnyNest) -> dict[int, int]:
    """Return the outputs that add up values computed only from integers, each with the number of the value.

    Compiled code keeps them in float64, so that they do not depend on the order: addends are float32 values, of which
    float64 holds sums of 2^21 integers of 32 bits exactly. The sum is rounded once.
    """
    sums = {}
    for output, operand in enumerate(nest.outputs):
        fold = fold_of(nest, output) if nest.reduced and not any(operand.strides[a] for a in nest.reduced) else None
        if fold is not None and not fold.converts and fold.fn == "add" and operand.dtype is FLOAT32 and of_integers(
                nest, fold.value):
            sums[output] = fold.value
    return sums
