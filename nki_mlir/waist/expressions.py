# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar expression that a ``linalg.generic`` yields, as a tree of plain values.

Equal subtrees are equal objects for dictionaries, which is how an instruction's result is used again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import MalformedAttribute, read_linear
from nki_mlir.dialects.memoize import memoized
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import BY_MLIR, INT32, DType
from nki_mlir.waist.nest import Nest, Step


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


def inputs_of(node: Node) -> set[int]:
    """The places of the inputs that an expression reads."""
    return {node.index} if isinstance(node, Input) else set().union(*map(inputs_of, children(node)))


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


@lru_cache(1 << 10)
def expression_of(nest: Nest) -> Node:
    """What the one output of a nest becomes. Forms of positions count the nest's symbols."""
    known: dict[int, Node] = {}

    def node(value: int) -> Node:
        if value not in known:
            step = nest.step(value)
            known[value] = computed(step) if step is not None else operand(value)
        return known[value]

    def operand(value: int) -> Node:
        dtype = nest.dtype_of(value)
        assert dtype is not None
        return Input(dtype, value) if value < len(nest.inputs) else Output(dtype)

    def computed(step: Step) -> Node:
        assert step.dtype is not None
        match step.kind:
            case "constant":
                return Constant(step.dtype, float(step.number) if step.dtype.is_float else step.number)
            case "convert":
                return converted(node(step.operands[0]), step.dtype)
            case "alu":
                return alu(step.name, *map(node, step.operands))
            case "activation":
                return Activation(step.dtype, step.name, node(step.operands[0]))
            case "cast":
                return converted(Position(form(step.operands[0])), step.dtype)
        raise Unsupported(feature=f"'{step.name or step.kind}' in the body of a structured operation",
                          instead="use scalar.convert, scalar.alu and scalar.activation")

    def form(value: int) -> Linear:
        step = nest.step(value)
        if step is None:
            return Linear(0, ((value - len(nest.inputs), 1),))
        if step.kind == "index":
            return Linear(0, (), ((step.number, 1),))
        total = Linear(step.number.const)
        for place, c in step.number.axes:
            total = total.plus(form(step.operands[place]), c)
        return total
    return node(nest.results[0])


class BodyReader:
    """Reads the tree behind the yielded value of a structured operation's block."""

    def __init__(self, block: Any, inputs: int, symbols: Sequence[int] = ()) -> None:
        """The first ``inputs`` arguments are inputs; those at ``symbols`` are index values, in this order."""
        self.block, self.inputs, self.symbols = block, inputs, list(symbols)
        self.known: dict[Any, Any] = {}

    def yielded(self, output: int = 0) -> Node:
        terminator = self.block.operations[len(self.block.operations) - 1].operation
        return self.value(terminator.operands[output])

    def value(self, value: Any) -> Node:
        if value not in self.known:
            self.known[value] = self._read(value)
        return self.known[value]

    def _read(self, value: Any) -> Node:
        if isinstance(value.owner, ir.Block):
            if value.owner != self.block:
                raise Unsupported(feature="a number that is an argument in a structured operation",
                                  instead="write it as a constant")
            place, dtype = ir.BlockArgument(value).arg_number, _dtype(value)
            return Input(dtype, place) if place < self.inputs else Output(dtype)
        op = value.owner.operation
        match op.name:
            case "arith.constant":
                return Constant(_dtype(value), op.attributes["value"].value)
            case "scalar.convert":
                return converted(self.value(op.operands[0]), _dtype(value))
            case "scalar.alu":
                return alu(op.attributes["fn"].value, *(self.value(v) for v in op.operands))
            case "scalar.activation":
                return Activation(_dtype(value), op.attributes["fn"].value, self.value(op.operands[0]))
            case "arith.index_cast":
                return Position(self.form(op.operands[0]))
        raise Unsupported(feature=f"'{op.name}' in the body of a structured operation",
                          instead="use scalar.convert, scalar.alu and scalar.activation")

    def form(self, value: Any) -> Linear:
        """An index in the body as a form of the axes and of the symbols among the inputs."""
        if isinstance(value.owner, ir.Block):
            return Linear(0, ((self.symbols.index(ir.BlockArgument(value).arg_number), 1),))
        op = value.owner.operation
        match op.name:
            case "linalg.index":
                return Linear(0, (), ((op.attributes["dim"].value, 1),))
            case "arith.constant":
                return Linear(op.attributes["value"].value)
            case "affine.apply":
                return applied(op.attributes["map"].value, [self.form(v) for v in op.operands])
        raise Unsupported(feature=f"an index that is made by '{op.name}'", instead="use affine.apply")


def applied(mapping: Any, operands: list[Linear]) -> Linear:
    """The value of a linear affine map of forms; raises ``Unsupported`` for one that is not linear."""
    try:
        (result,) = mapping.results
        form = read_linear(result)
    except (MalformedAttribute, ValueError):
        raise Unsupported(feature=f"the map {mapping} in an index", instead="use a linear map") from None
    total = Linear(form.const)
    for position, c in form.axes:
        total = total.plus(operands[position], c)
    for position, c in form.symbols:
        total = total.plus(operands[mapping.n_dims + position], c)
    return total


def _dtype(value: Any) -> DType:
    return _scalar_dtype(value.type)


@memoized
def _scalar_dtype(kind: Any) -> DType:
    text = str(kind)
    if text not in BY_MLIR:
        raise Unsupported(feature=f"a scalar of type {text}", instead="use an element type of the language")
    return BY_MLIR[text]
