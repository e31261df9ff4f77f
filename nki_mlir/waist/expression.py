# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The body of a nest as a tree of plain values, which the instruction selection reads.

Equal subtrees are one object, so that an instruction computes them once. ``Nest.body`` has the tree of a
nest's steps, ``Nest.with_body`` the steps of a tree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from nki_mlir.dialects.access import Linear
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import INT32, DType, convert, promote


class Interned(type):
    """Returns one object for equal expressions. A value that a graph uses twice is a subtree twice, and so are its
    operands: comparing and walking trees by value would take time exponential in their depth."""

    objects: WeakValueDictionary[tuple[object, ...], object] = WeakValueDictionary()

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        node = super().__call__(*args, **keywords)
        values = node.__dict__
        key = (cls, *[values[name] for name in compared_fields(cls)])
        return Interned.objects.setdefault(key, node)


@cache
def compared_fields(cls: Any) -> list[str]:
    """Return the names of the fields by which expressions of a class differ."""
    return [field.name for field in fields(cls) if field.compare]


@dataclass(frozen=True, eq=False)
class Input(metaclass=Interned):
    """The current element of an input."""

    dtype: DType
    index: int


@dataclass(frozen=True, eq=False)
class Output(metaclass=Interned):
    """The output's element before the nest runs."""

    dtype: DType


@dataclass(frozen=True, eq=False)
class Constant(metaclass=Interned):
    """A number; 0.0 and -0.0 are two, and NaN is equal to itself."""

    dtype: DType
    value: float | int = field(compare=False)
    text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repr(self.value))


@dataclass(frozen=True, eq=False)
class Position(metaclass=Interned):
    """The value of an affine form at the current iteration."""

    form: Linear
    dtype: DType = INT32


@dataclass(frozen=True, eq=False)
class Convert(metaclass=Interned):
    dtype: DType
    value: "Node"


@dataclass(frozen=True, eq=False)
class Bitcast(metaclass=Interned):
    """The bits of a value as a number of another dtype of equal size."""

    dtype: DType
    value: "Node"


@dataclass(frozen=True, eq=False)
class Alu(metaclass=Interned):
    """An ALU operation; its operands and its result have the dtype."""

    dtype: DType
    fn: str
    args: tuple["Node", ...]


@dataclass(frozen=True, eq=False)
class Activation(metaclass=Interned):
    dtype: DType
    fn: str
    value: "Node"


Node: TypeAlias = Input | Output | Constant | Position | Convert | Bitcast | Alu | Activation


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Convert() | Bitcast() | Activation():
            return (node.value,)
        case Alu():
            return node.args
    return ()


def is_copy(body: Node) -> bool:
    """Return whether an expression is an element of the input, converted at most once."""
    return isinstance(body.value if isinstance(body, Convert) else body, Input)


def below(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes that it is computed from, each once."""
    visited, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        yield current
        for child in reversed(children(current)):
            if child not in visited:
                visited.add(child)
                waiting.append(child)


def operands_first(node: Node) -> list[Node]:
    """Return the nodes of ``below``, each after its operands."""
    order: dict[Node, None] = {}
    waiting = [node]
    while waiting:
        current = waiting[-1]
        missing = [child for child in children(current) if child not in order]
        if missing:
            waiting.extend(reversed(missing))
        else:
            order[waiting.pop()] = None
    return list(order)


def inputs_of(node: Node) -> set[int]:
    """Return the numbers of the inputs that an expression reads."""
    return {inner.index for inner in below(node) if isinstance(inner, Input)}


def with_used_inputs(node: Node) -> tuple[Node, list[int]]:
    """Return an expression that numbers only the inputs it reads, and their earlier numbers in order."""
    used = sorted(inputs_of(node))
    number = {old: new for new, old in enumerate(used)}
    return rebuilt(node, lambda n: Input(n.dtype, number[n.index]) if isinstance(n, Input) else None), used


def forms_of(node: Node) -> list[Linear]:
    """Return the forms whose values an expression uses."""
    return [inner.form for inner in below(node) if isinstance(inner, Position)]


def reads_output(node: Node) -> bool:
    return any(isinstance(inner, Output) for inner in below(node))


def rebuilt(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Return the tree in which a node that ``change`` returns replaces the old one. ``change`` is called once for each
    node, leaves first."""
    new_nodes: dict[Node, Node] = {}
    for old in operands_first(node):
        match old:
            case Convert() | Bitcast() | Activation() if new_nodes[old.value] is not old.value:
                copy: Node = replace(old, value=new_nodes[old.value])
            case Alu() if any([new_nodes[a] is not a for a in old.args]):
                copy = replace(old, args=tuple([new_nodes[a] for a in old.args]))
            case _:
                copy = old
        new_nodes[old] = replacement if (replacement := change(copy)) is not None else copy
    return new_nodes[node]


def converted(value: Node, dtype: DType) -> Node:
    """Return a value in another dtype, without a conversion to a wider integer type before."""
    if value.dtype is dtype:
        return value
    if isinstance(value, Convert) and value.dtype.is_integer and value.value.dtype.is_integer and (
            promote(value.dtype, value.value.dtype) is value.dtype):
        return converted(value.value, dtype)
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
