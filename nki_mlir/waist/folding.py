# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an expression folds into its output, and how; whether that is a product."""

from dataclasses import dataclass

from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import DType
from nki_mlir.waist.expressions import Alu, Convert, Input, Node, Output, below


@dataclass(frozen=True)
class Fold:
    """``output = output (fn) element``, computed in ``dtype``."""

    fn: str
    element: Node
    dtype: DType

    @property
    def identity(self) -> float | int | None:
        """The value that changes nothing when it is folded in; None where there is none."""
        return ALU[self.fn].identity(self.dtype)


def fold_of(body: Node) -> Fold | None:
    """An expression as a fold, whose step may be in another dtype than its output."""
    step = without_conversion(body)
    if not isinstance(step, Alu) or len(step.args) != 2 or ALU[step.fn].reduce is None:
        return None
    for old, element in (step.args, step.args[::-1])[:2 if ALU[step.fn].commutative else 1]:
        if isinstance(without_conversion(old), Output) and not reads_output(element):
            return Fold(step.fn, element, step.dtype)
    return None


def factors_of(element: Node) -> tuple[int, int] | None:
    """The numbers of the two inputs that are multiplied, converted or not; None for anything else."""
    if isinstance(element, Alu) and element.fn == "multiply":
        match [without_conversion(v) for v in element.args]:
            case [Input(index=first), Input(index=second)]:
                return first, second
    return None


def without_conversion(node: Node) -> Node:
    return node.value if isinstance(node, Convert) else node


def reads_output(node: Node) -> bool:
    return any(isinstance(one, Output) for one in below(node))
