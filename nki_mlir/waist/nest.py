# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A structured operation as a loop nest, plain data: extents, operands, a scalar body.

The operands describe the accesses to memory. For native code they are strides alone: a nest has no addresses, so all
operations of one shape, in any kernel, are one ``Nest``, whose text is its key. For instruction selection they are
tiles of buffers (``tile_operand.py``).

The body is a sequence of steps; ``body`` shows it as a tree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Constraint, Linear, Mask
from nki_mlir.scalar.dtypes import DType

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    from nki_mlir.waist import expression as trees
    AnyOperand = TypeVar("AnyOperand", bound="Operand", default="Operand")
else:
    from typing import TypeVar
    AnyOperand = TypeVar("AnyOperand")

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """A strided view, a stride in elements per axis of the iteration space."""

    dtype: DType
    strides: Strides

    def moves(self, axis: int) -> bool:
        """Return whether different positions on the axis are different elements."""
        return self.strides[axis] != 0

    def along(self, axes: Sequence[int]) -> "Self":
        """Return the operand over some of its axes, in this order."""
        return replace(self, strides=tuple([self.strides[a] for a in axes]))

    def divided(self, axis: int, inner: int) -> "Self":
        """Return the operand with an axis split in two, the inner one with ``inner`` positions."""
        return replace(self, strides=(*self.strides[:axis], self.strides[axis] * inner, *self.strides[axis:]))

    def at(self, starts: Sequence[int]) -> "Self":
        """Return the operand of a nest that begins at ``starts``. Strides do not depend on the start."""
        return self

    def step_as_one(self, outer: int, inner: int, extent: int) -> bool:
        """Return whether an outer and an inner axis (with this extent) can be one axis with the inner step."""
        return self.strides[outer] == self.strides[inner] * extent


@dataclass(frozen=True)
class Step:
    """One operation of a scalar body.

    ``kind`` is constant, position, convert, wrap, bitcast, alu, activation, math, gather or lookup; ``name`` the
    function; ``operands`` are numbers of values: the inputs, then the outputs' old values, then the steps' results, in
    order. A constant has its value as ``number`` (a float as text, which tells -0.0 from 0.0), a position its linear
    form over axes and symbols, and a gather the number of the table that it reads at the row that its operand selects.
    A lookup reads the element of its second operand, an input that is a table, at the bits of its first one, a float of
    16 bits.
    """

    kind: str
    dtype: DType
    operands: tuple[int, ...] = ()
    name: str = ""
    number: Any = None


@dataclass(frozen=True)
class Nest(Generic[AnyOperand]):
    """Loops around a scalar body. ``reduced`` are axes that outputs do not have; ``results`` has a value an output.

    Elements outside of ``mask`` are not touched; at all other elements ``limits`` must hold. Both, and positions, are
    forms over the axes and over index values, whose number is ``symbols``.
    """

    extents: tuple[int, ...]
    reduced: frozenset[int]
    inputs: tuple[AnyOperand, ...]
    symbols: int
    outputs: tuple[AnyOperand, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    mask: Mask = ()
    limits: Mask = ()

    def __hash__(self) -> int:
        return self._hash               # programs look routines up again and again

    @cached_property
    def _hash(self) -> int:
        return hash((self.extents, self.reduced, self.operands, self.symbols, self.steps, self.results, self.mask))

    @property
    def operands(self) -> tuple[AnyOperand, ...]:
        return (*self.inputs, *self.outputs)

    def over_operands(self, change: Callable[[AnyOperand], AnyOperand], **fields: Any) -> "Nest[AnyOperand]":
        """Return the nest with every operand changed, and other values for some fields."""
        return replace(self, inputs=tuple(map(change, self.inputs)), outputs=tuple(map(change, self.outputs)), **fields)

    @property
    def output(self) -> AnyOperand:
        """Return the first output."""
        return self.outputs[0]

    @property
    def elements(self) -> int:
        return prod(self.extents)

    # -- values of the body --------------------------------------------------------------------------------------------
    @property
    def first_output(self) -> int:
        """Return the number of the value that is the first output's old value."""
        return len(self.inputs)

    @property
    def first_step(self) -> int:
        return self.first_output + len(self.outputs)

    def step(self, value: int) -> Step | None:
        """Return the step that computes a value; None for inputs and old values."""
        return self.steps[value - self.first_step] if value >= self.first_step else None

    def dtype_of(self, value: int) -> DType:
        step = self.step(value)
        return self.operands[value].dtype if step is None else step.dtype

    def uses(self, value: int) -> int:
        """Count the operands of steps, and the results, that use this value."""
        return sum(s.operands.count(value) for s in self.steps) + self.results.count(value)

    @property
    def title(self) -> str:
        """Return a readable name: the last function of the body, types and extents."""
        functions = [s.name for s in self.steps if s.name]
        function = functions[-1] if functions else "copy" if self.inputs else "set"
        shape = "x".join(map(str, self.extents)) or "1"
        types = "_".join(dict.fromkeys(str(o.dtype) for o in (*self.outputs, *self.inputs)))
        return f"{function}_{shape}_{types}"

    # -- the body as a tree --------------------------------------------------------------------------------------------
    @cached_property
    def body(self) -> "trees.Node":
        """Return the new value of the first output as a tree."""
        return self.expression(self.results[0])

    def expression(self, value: int) -> "trees.Node":
        """Return a value of the body as a tree."""
        return ExpressionReader(self).value(value)

    def with_body(self, body: "trees.Node") -> "Nest[AnyOperand]":
        """Return the nest with another expression for its output."""
        steps, result = _steps_of(body, self.first_output, self.first_step)
        return replace(self, steps=steps, results=(result,))

    @staticmethod
    def of(extents: Sequence[int], reduced: Iterable[int], inputs: Sequence[AnyOperand], output: AnyOperand,
           body: "trees.Node") -> "Nest[AnyOperand]":
        """Return a nest whose one output is an expression."""
        return Nest(tuple(extents), frozenset(reduced), tuple(inputs), 0, (output,), (), (0,)).with_body(body)

    @property
    def without_unused(self) -> "Nest[AnyOperand]":
        """Return the nest, which has one output, without unused inputs and steps."""
        from nki_mlir.waist import expression as trees  # start-up: only instruction selection reads trees
        body, used = trees.with_used_inputs(self.body)
        return replace(self, inputs=tuple([self.inputs[k] for k in used])).with_body(body)

    # -- forms ---------------------------------------------------------------------------------------------------------
    @cached_property
    def forms(self) -> tuple[Linear, ...]:
        """Return all forms over axes and symbols: of positions, the mask and the limits."""
        return (*(s.number for s in self.steps if s.kind == "position"), *(c.form for c in (*self.mask, *self.limits)))

    def with_forms(self, change: Callable[[Linear], Linear]) -> "Nest[AnyOperand]":
        """Return the nest with every form changed."""
        if not self.forms:
            return self
        steps = tuple([replace(s, number=change(s.number)) if s.kind == "position" else s for s in self.steps])
        mask, limits = (tuple([Constraint(change(c.form), c.equal) for c in m]) for m in (self.mask, self.limits))
        return replace(self, steps=steps, mask=mask, limits=limits)

    # -- one form for equal computations -------------------------------------------------------------------------------
    @cached_property
    def simplified(self) -> "Nest[AnyOperand]":
        """Return the same computation without axes of one element, axes in the order of memory, and neighbors joined.
        """
        return self.grouped(self._joined(a for a, n in enumerate(self.extents) if n != 1))

    def arranged(self, leading: int | None, keep: int | None = None) -> "Nest[AnyOperand]":
        """Return the simplified nest with an axis, the partition, before all others; for None it is a new axis of
        extent 1.

        The axis ``keep`` stays even if it has one element, and at least one axis follows the first.
        """
        nest = self if leading is not None else self._with_unit_axis()
        leading = leading if leading is not None else len(self.extents)
        groups = nest._joined(a for a, n in enumerate(self.extents)
                              if a != leading and (n != 1 or a == keep or self.limits))
        if not groups:
            groups, nest = [[len(nest.extents)]], nest._with_unit_axis()
        return nest.grouped([[leading], *groups])

    def _joined(self, axes: Iterable[int]) -> list[list[int]]:
        """Return groups of axes that step through memory as one: parallel ones in the order of memory, then reduced
        ones."""
        axes = list(axes)
        parallel = [a for a in axes if a not in self.reduced]
        parallel.sort(key=lambda a: [-abs(o.strides[a]) for o in (*self.outputs, *self.inputs)])
        groups: list[list[int]] = []
        for axis in [*parallel, *(a for a in axes if a in self.reduced)]:
            if groups and self._step_as_one(groups[-1][-1], axis):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        return groups

    def _step_as_one(self, outer: int, inner: int) -> bool:
        """Return whether one axis can stand for two. A limit names axes, so no axes are joined under limits."""
        extent = self.extents[inner]
        return (outer in self.reduced) == (inner in self.reduced) and not self.limits and all(
            [o.step_as_one(outer, inner, extent) for o in self.operands]) and all(
            [dict(f.axes).get(outer, 0) == dict(f.axes).get(inner, 0) * extent for f in self.forms])

    def _with_unit_axis(self) -> "Nest[AnyOperand]":
        """Return the nest with one more axis, of one element."""
        return self.over_operands(lambda o: replace(o, strides=(*o.strides, 0)), extents=(*self.extents, 1))

    def grouped(self, groups: Sequence[Sequence[int]]) -> "Nest[AnyOperand]":
        """Return the nest with each group of neighboring axes as one axis. Axes in no group have one element."""
        if [list(axes) for axes in groups] == [[a] for a in range(len(self.extents))]:
            return self
        innermost = [axes[-1] for axes in groups]            # a group steps as its innermost axis
        number = {axis: k for k, axis in enumerate(innermost)}

        def renumbered(form: Linear) -> Linear:
            return replace(form, axes=tuple(sorted([(number[a], c) for a, c in form.axes if a in number])))
        return self.with_forms(renumbered).over_operands(
            lambda operand: operand.along(innermost), reduced=frozenset(number[a] for a in self.reduced if a in number),
            extents=tuple([prod([self.extents[a] for a in axes]) for axes in groups]))

    # -- other nests ---------------------------------------------------------------------------------------------------
    def window(self, axis: int, start: int, count: int) -> "Nest[AnyOperand]":
        """Return ``count`` positions of the nest along an axis, from ``start`` on."""
        return self.part([start if a == axis else 0 for a in range(len(self.extents))],
                         tuple([count if a == axis else n for a, n in enumerate(self.extents)]))

    def part(self, starts: Sequence[int], extents: tuple[int, ...]) -> "Nest[AnyOperand]":
        """Return the nest over this many positions of each axis, from its start on."""
        if extents == self.extents:
            return self
        nest = self.with_forms(lambda form: form.counted_from(starts))
        inputs, outputs = (tuple([o.at(starts) for o in operands]) for operands in (self.inputs, self.outputs))
        return Nest(extents, nest.reduced, inputs, nest.symbols, outputs, nest.steps, nest.results, nest.mask,
                    nest.limits)

    def windows(self, axis: int, size: int) -> list["Nest[AnyOperand]"]:
        """Cut the nest into pieces of at most ``size`` along an axis."""
        return self.boxes([(axis, size)])

    def boxes(self, sizes: Iterable[tuple[int, int]]) -> list["Nest[AnyOperand]"]:
        """Cut the nest into boxes of at most these sizes along some axes, smaller ones at the ends, in row-major
        order."""
        return list(Boxes(self, sizes))

    def joined_with(self, other: "Nest[AnyOperand]") -> "Nest[AnyOperand]":
        """Return one nest that computes both this nest and ``other``, which has the same extents and reduces nothing.

        Operands and steps of this nest come first. Neither nest has forms.
        """
        count, further = len(self.inputs), len(other.inputs)
        ends = count + further, count + further + len(self.outputs)

        def moved(nest: "Nest[AnyOperand]", value: int) -> int:
            """Return the number of a value of one of the two nests in the joint nest."""
            first_output, step = nest.first_output, nest.first_step
            if nest is self:
                return value + further * (value >= first_output) + len(other.outputs) * (value >= step)
            return value + (count if value < first_output else ends[1] - first_output if value < step else
                            ends[1] + len(other.outputs) + len(self.steps) - step)
        steps = [replace(s, operands=tuple([moved(n, v) for v in s.operands])) for n in (self, other) for s in n.steps]
        return replace(self, inputs=(*self.inputs, *other.inputs), outputs=(*self.outputs, *other.outputs),
                       steps=tuple(steps), results=tuple([moved(n, v) for n in (self, other) for v in n.results]))

    def divided(self, axis: int, inner: int) -> "Nest[AnyOperand]":
        """Return the nest with an axis split in two: the outer one in its position, then one of extent ``inner``, a
        divisor."""
        def over_both(form: Linear) -> Linear:
            axes = [(a + (a > axis), c * inner if a == axis else c) for a, c in form.axes]
            return replace(form, axes=tuple(sorted([*axes, *((a + 1, c) for a, c in form.axes if a == axis)])))
        reduced = {a + (a > axis) for a in self.reduced} | ({axis + 1} if axis in self.reduced else set())
        extents = (*self.extents[:axis], self.extents[axis] // inner, inner, *self.extents[axis + 1:])
        return self.with_forms(over_both).over_operands(lambda operand: operand.divided(axis, inner), extents=extents,
                                                        reduced=frozenset(reduced))


AnyNest: TypeAlias = Nest[Any]


class Boxes(Generic[AnyOperand]):
    """The boxes of at most some sizes along some axes that a nest is cut into, smaller ones at the ends, in row-major
    order. Each is cut when it is read."""

    def __init__(self, nest: "Nest[AnyOperand]", sizes: Iterable[tuple[int, int]]) -> None:
        self.nest, self.sizes = nest, tuple(sizes)
        self.counts = [-(-nest.extents[axis] // size) for axis, size in self.sizes]

    def __len__(self) -> int:
        return prod(self.counts)

    def __iter__(self) -> "Iterator[Nest[AnyOperand]]":
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> "Nest[AnyOperand]":
        starts, extents = [0] * len(self.nest.extents), list(self.nest.extents)
        for (axis, size), count in zip(reversed(self.sizes), reversed(self.counts)):
            number, position = divmod(number, count)
            starts[axis] = position * size
            extents[axis] = min(size, extents[axis] - starts[axis])
        return self.nest.part(starts, tuple(extents))


# -- expressions -------------------------------------------------------------------------------------------------------
class ExpressionReader:
    """Shows the values of a nest as trees; each value is one object."""

    def __init__(self, nest: AnyNest) -> None:
        self.nest = nest
        self.nodes: list[trees.Node] = []

    def value(self, number: int) -> "trees.Node":
        from nki_mlir.waist import expression as trees  # start-up: only instruction selection reads trees
        for earlier in range(len(self.nodes), number + 1):      # a step follows the steps whose values it uses
            step, dtype = self.nest.step(earlier), self.nest.dtype_of(earlier)
            if step is not None:
                self.nodes.append(self.step(step))
            else:
                is_input = earlier < self.nest.first_output
                self.nodes.append(trees.Input(dtype, earlier) if is_input else trees.Output(dtype))
        return self.nodes[number]

    def step(self, step: Step) -> "trees.Node":
        from nki_mlir.waist import expression as trees  # start-up: only instruction selection reads trees
        operands = [self.nodes[number] for number in step.operands]
        match step.kind:
            case "constant":
                return trees.Constant(step.dtype, float(step.number) if step.dtype.is_float else step.number)
            case "position":
                return trees.converted(trees.Position(step.number), step.dtype)
            case "convert":
                return trees.converted(operands[0], step.dtype)
            case "bitcast":
                return trees.Bitcast(step.dtype, operands[0])
            case "alu":
                return trees.alu(step.name, *operands)
            case "activation":
                return trees.Activation(step.dtype, step.name, operands[0])
        raise Unsupported(feature=f"'scalar.{step.kind}' in the body of a structured operation",
                          instead="use scalar.convert, scalar.alu and scalar.activation")


def _steps_of(body: "trees.Node", first_output: int, first_step: int) -> tuple[tuple[Step, ...], int]:
    """Return the steps of a tree, equal subtrees once, and the number of its value."""
    from nki_mlir.waist import expression as trees  # start-up: only instruction selection reads trees
    number: dict[trees.Node, int] = {}
    steps: list[Step] = []

    def add(step: Step) -> int:
        steps.append(step)
        return first_step + len(steps) - 1

    def value(node: "trees.Node") -> int:
        match node:
            case trees.Input(index=index):
                return index
            case trees.Output():
                return first_output
            case trees.Constant(dtype=dtype, value=constant):
                return add(Step("constant", dtype, (), "", repr(float(constant)) if dtype.is_float else int(constant)))
            case trees.Position(form=form, dtype=dtype):
                return add(Step("position", dtype, (), "", form))
            case trees.Convert(dtype=dtype, value=inner):
                return add(Step("convert", dtype, (number[inner],)))
            case trees.Bitcast(dtype=dtype, value=inner):
                return add(Step("bitcast", dtype, (number[inner],)))
            case trees.Activation(dtype=dtype, fn=fn, value=inner):
                return add(Step("activation", dtype, (number[inner],), fn))
            case trees.Alu(dtype=dtype, fn=fn, args=args):
                return add(Step("alu", dtype, tuple([number[a] for a in args]), fn))
        raise TypeError(node)
    for node in trees.operands_first(body):
        number[node] = value(node)
    return tuple(steps), number[body]
