# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The body of a nest as a tree of plain values: what instructions are chosen from.

Equal subtrees are equal objects for dictionaries, which is how an instruction's result is used again. ``Nest.body`` has
the tree of a nest's steps, ``Nest.with_body`` the steps of a tree.
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


def reads_output(node: Node) -> bool:
    return any(isinstance(one, Output) for one in below(node))


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
