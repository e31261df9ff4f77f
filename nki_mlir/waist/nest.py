# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A structured operation as a loop nest, plain data: extents, strides, a scalar body.

Addresses are not part of it, so all operations of one shape are one ``Nest``, whatever kernel they are in. Its text is
its key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from nki_mlir.dialects.access import Constraint, Linear, Mask
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, DType

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """A strided view, a stride in elements per axis of the iteration space."""

    dtype: DType
    strides: Strides


@dataclass(frozen=True)
class Step:
    """One operation of a scalar body.

    ``kind`` is constant, convert, wrap, bitcast, alu, activation, math, index, form or cast; ``name`` the function;
    ``operands`` are numbers of values: the inputs, then the symbols, then the outputs' old values, then the steps'
    results, in order. ``number`` is a constant's value (a float's as text, which tells -0.0 from 0.0), an index's axis,
    or the linear form of a ``form`` over its operands. ``dtype`` None: an index.
    """

    kind: str
    dtype: DType | None
    operands: tuple[int, ...] = ()
    name: str = ""
    number: Any = None


@dataclass(frozen=True)
class Nest:
    """Loops around a scalar body. ``reduced`` are axes that outputs do not have; ``results`` has a value an output."""

    extents: tuple[int, ...]
    reduced: frozenset[int]
    inputs: tuple[Operand, ...]
    symbols: int
    outputs: tuple[Operand, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    mask: Mask = ()

    def __hash__(self) -> int:
        return self._hash               # programs look routines up again and again

    @cached_property
    def _hash(self) -> int:
        return hash((self.extents, self.reduced, self.operands, self.symbols, self.steps, self.results, self.mask))

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def elements(self) -> int:
        return prod(self.extents)

    # -- values of the body --------------------------------------------------------------------------------------------
    @property
    def first_output(self) -> int:
        """The number of the value that the first output holds before."""
        return len(self.inputs) + self.symbols

    @property
    def first_step(self) -> int:
        return self.first_output + len(self.outputs)

    def step(self, value: int) -> Step | None:
        """The step that makes a value; None for inputs, symbols and old values."""
        return self.steps[value - self.first_step] if value >= self.first_step else None

    def dtype_of(self, value: int) -> DType | None:
        if (step := self.step(value)) is not None:
            return step.dtype
        if value < len(self.inputs):
            return self.inputs[value].dtype
        return self.outputs[value - self.first_output].dtype if value >= self.first_output else None

    def uses(self, value: int) -> int:
        """How often steps and results use a value."""
        return sum(s.operands.count(value) for s in self.steps) + self.results.count(value)

    @property
    def title(self) -> str:
        """A name for people: the last function of the body, types and extents."""
        functions = [s.name for s in self.steps if s.name]
        what = functions[-1] if functions else "copy" if self.inputs else "set"
        shape = "x".join(map(str, self.extents)) or "1"
        types = "_".join(dict.fromkeys(str(o.dtype) for o in (*self.outputs, *self.inputs)))
        return f"{what}_{shape}_{types}"

    # -- one form for equal computations -------------------------------------------------------------------------------
    @cached_property
    def simplified(self) -> "Nest":
        """The same computation without axes of one element, axes in the order of memory, and neighbours joined."""
        kept = [a for a, n in enumerate(self.extents) if n != 1]
        parallel = [a for a in kept if a not in self.reduced]
        parallel.sort(key=lambda a: [-abs(o.strides[a]) for o in (*self.outputs, *self.inputs)])
        asked = {s.number for s in self.steps if s.kind == "index"} | {a for c in self.mask for a, _ in c.form.axes}

        def as_one(outer: int, inner: int) -> bool:
            """Whether two axes step through memory as one, and nothing asks for their positions."""
            n = self.extents[inner]
            return (outer in self.reduced) == (inner in self.reduced) and not asked & {outer, inner} and all(
                o.strides[outer] == o.strides[inner] * n for o in self.operands)
        return self.grouped(joined([*parallel, *(a for a in kept if a in self.reduced)], as_one))

    def grouped(self, groups: Sequence[Sequence[int]]) -> "Nest":
        """The nest with each group of neighbouring axes as one axis; axes in no group have one element."""
        if [list(axes) for axes in groups] == [[a] for a in range(len(self.extents))]:
            return self
        last = [axes[-1] for axes in groups]            # a group steps as its innermost axis
        place = {axis: k for k, axis in enumerate(last)}

        def operand(o: Operand) -> Operand:
            return Operand(o.dtype, tuple([o.strides[a] for a in last]))

        def step(s: Step) -> Step:
            if s.kind != "index":
                return s
            return replace(s, number=place[s.number]) if s.number in place else Step("form", None, (), "", Linear())
        return replace(self, extents=tuple([prod([self.extents[a] for a in axes]) for axes in groups]),
                       reduced=frozenset(place[a] for a in self.reduced if a in place),
                       inputs=tuple(map(operand, self.inputs)), outputs=tuple(map(operand, self.outputs)),
                       steps=tuple(map(step, self.steps)), mask=renamed_mask(self.mask, place))

    def beside(self, other: "Nest") -> "Nest":
        """This nest and one of the same extents that reduces nothing as one, operands and steps of this one first.

        Neither has symbols or a mask.
        """
        own, further = len(self.inputs), len(other.inputs)
        ends = own + further, own + further + len(self.outputs)

        def moved(nest: Nest, value: int) -> int:
            """The number that a value of one of the two has in both."""
            first, step = nest.first_output, nest.first_step
            if nest is self:
                return value + further * (value >= first) + len(other.outputs) * (value >= step)
            return value + (own if value < first else ends[1] - first if value < step else
                            ends[1] + len(other.outputs) + len(self.steps) - step)
        steps = [replace(s, operands=tuple([moved(n, v) for v in s.operands])) for n in (self, other) for s in n.steps]
        return replace(self, inputs=(*self.inputs, *other.inputs), outputs=(*self.outputs, *other.outputs),
                       steps=tuple(steps), results=tuple([moved(n, v) for n in (self, other) for v in n.results]))

    def divided(self, axis: int, inner: int) -> "Nest":
        """The nest with an axis as two, of which the inner one has ``inner`` positions.

        Nothing may ask for positions.
        """
        def operand(o: Operand) -> Operand:
            return Operand(o.dtype, (*o.strides[:axis], o.strides[axis] * inner, *o.strides[axis:]))
        reduced = {a + (a > axis) for a in self.reduced} | ({axis + 1} if axis in self.reduced else set())
        extents = (*self.extents[:axis], self.extents[axis] // inner, inner, *self.extents[axis + 1:])
        return replace(self, extents=extents, reduced=frozenset(reduced), inputs=tuple(map(operand, self.inputs)),
                       outputs=tuple(map(operand, self.outputs)))


# -- axes --------------------------------------------------------------------------------------------------------------
# Axes of a nest put in another order, those that are walked as one joined: what normal forms are made of.

def joined(order: Iterable[int], as_one: Callable[[int, int], bool]) -> list[list[int]]:
    """The axes in this order, in groups of neighbours of which each is ``as_one`` (outer, inner) with the next."""
    groups: list[list[int]] = []
    for axis in order:
        if groups and as_one(groups[-1][-1], axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def renamed(form: Linear, place: Mapping[int, int]) -> Linear:
    """The form over axes at other places; axes that have none are at 0."""
    return replace(form, axes=tuple(sorted([(place[a], c) for a, c in form.axes if a in place])))


def renamed_mask(mask: Mask, place: Mapping[int, int]) -> Mask:
    return tuple([Constraint(renamed(c.form, place), c.equal) for c in mask])


# -- folds and products ------------------------------------------------------------------------------------------------
# What a nest does that is better done as a whole.

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
