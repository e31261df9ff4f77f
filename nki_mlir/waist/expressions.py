# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar expression that a ``linalg.generic`` yields, as a tree of plain values.

Equal subtrees are equal objects for dictionaries, which is how an instruction's result is used again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import INT32, DType, convert


@dataclass(frozen=True)
class Input:
    """The element of an input."""

    dtype: DType
    index: int


@dataclass(frozen=True)
class Output:
    """The element that the output holds before."""

    dtype: DType


@dataclass(frozen=True)
class Constant:
    """A number; 0.0 and -0.0 are two, and NaN is equal to itself."""

    dtype: DType
    value: float | int = field(compare=False)
    text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repr(self.value))


@dataclass(frozen=True)
class Position:
    """The value of an affine form at the current iteration."""

    form: Linear
    dtype: DType = INT32


@dataclass(frozen=True)
class Convert:
    dtype: DType
    value: "Node"


@dataclass(frozen=True)
class Alu:
    """An ALU operation; its operands and its result have the dtype."""

    dtype: DType
    fn: str
    args: tuple["Node", ...]


@dataclass(frozen=True)
class Activation:
    dtype: DType
    fn: str
    value: "Node"


Node: TypeAlias = Input | Output | Constant | Position | Convert | Alu | Activation


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Convert() | Activation():
            return (node.value,)
        case Alu():
            return node.args
    return ()


def is_copy(body: Node) -> bool:
    """Whether an expression is an element of the input, converted at most once."""
    return isinstance(body.value if isinstance(body, Convert) else body, Input)


def below(node: Node) -> Iterator[Node]:
    """A node and all that it is computed from."""
    yield node
    for child in children(node):
        yield from below(child)


def inputs_of(node: Node) -> set[int]:
    """The numbers of the inputs that an expression reads."""
    return {one.index for one in below(node) if isinstance(one, Input)}


def forms_of(node: Node) -> list[Linear]:
    """The forms whose values an expression has."""
    return [one.form for one in below(node) if isinstance(one, Position)]


def rebuilt(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """The tree with the subtrees exchanged for which ``change`` gives another."""
    if (other := change(node)) is not None:
        return other
    match node:
        case Convert() | Activation():
            return replace(node, value=rebuilt(node.value, change))
        case Alu():
            return replace(node, args=tuple(rebuilt(a, change) for a in node.args))
    return node


def converted(value: Node, dtype: DType) -> Node:
    if value.dtype is dtype:
        return value
    if isinstance(value, Constant):
        array = convert(np.asarray(value.value, value.dtype.numpy), dtype, value.dtype)
        return Constant(dtype, float(array) if dtype.is_float else int(array))
    return Convert(dtype, value)


def alu(fn: str, *args: Node) -> Node:
    dtype = args[-1].dtype
    if all(isinstance(a, Constant) for a in args):
        arrays = [np.asarray(a.value, dtype.numpy) for a in args if isinstance(a, Constant)]
        value = np.asarray(ALU[fn].numpy(*arrays))
        return Constant(dtype, float(value) if dtype.is_float else int(value))
    return Alu(dtype, fn, args)


# -- folds -------------------------------------------------------------------------------------------------------------
# What an expression folds into its output, and how; whether that is a product.

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
