# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a nest does that is better done as a whole: folds, products, sums of integers."""

from dataclasses import dataclass

from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.waist.nest import Nest, Step


@dataclass(frozen=True)
class FoldedOutput:
    """An output that is ``old value (fn) value``: its number, the operator's step, and the number of the value."""

    output: int
    step: Step
    fn: str
    value: int

    @property
    def identity(self) -> float | None:
        """The value that changes nothing when it is folded in; None where there is none."""
        return ALU[self.fn].identity(self.step.dtype) if self.step.dtype is not None else None


def function_of(step: Step | None) -> str:
    """The ALU operation that a step is; "" for any other."""
    return step.name if step is not None and step.kind == "alu" else ""


def fold_of(nest: Nest, output: int) -> FoldedOutput | None:
    """An output as a fold, if nothing else uses the value that it holds before."""
    old, step = nest.first_output + output, nest.step(nest.results[output])
    fn = function_of(step)
    if step is None or not fn or len(step.operands) != 2 or step.operands.count(old) != 1 or nest.uses(old) != 1:
        return None
    left, right = step.operands
    if left != old and not ALU[fn].commutative:
        return None
    return FoldedOutput(output, step, fn, right if left == old else left)


def factors_of(nest: Nest, value: int) -> tuple[int, ...]:
    """The two values that a value is the product of; none for any other."""
    step = nest.step(value)
    return step.operands if step is not None and function_of(step) == "multiply" else ()


def source_of(nest: Nest, value: int) -> int | None:
    """The input that a value is, converted or not."""
    while (step := nest.step(value)) is not None and step.kind == "convert":
        value = step.operands[0]
    return value if value < len(nest.inputs) else None


def of_integers(nest: Nest, value: int) -> bool:
    """Whether all that a value is computed from is integers and constants."""
    dtype = nest.dtype_of(value)
    if dtype is None or dtype.is_integer:
        return True
    step = nest.step(value)
    return step is not None and all(of_integers(nest, v) for v in step.operands)


def integer_sums(nest: Nest) -> dict[int, int]:
    """Outputs that add up values made of integers alone, each with the number of the value.

    Compiled code keeps them in float64, so that they do not depend on the order: addends are float32 values, of which
    float64 holds sums of 2^21 integers of 32 bits exactly. The sum is rounded once.
    """
    found = {}
    for output, operand in enumerate(nest.outputs):
        fold = fold_of(nest, output) if nest.reduced and not any(operand.strides[a] for a in nest.reduced) else None
        if fold is not None and fold.fn == "add" and operand.dtype is FLOAT32 and of_integers(nest, fold.value):
            found[output] = fold.value
    return found
