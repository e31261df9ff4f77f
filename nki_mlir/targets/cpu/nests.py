# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A computation on tiles as plain data: extents, strides, a scalar body. What makes two operations share code.

Addresses are not part of it, so all operations of one shape are one ``Nest``, whatever kernel they are in. Its text is
its key.
"""

from dataclasses import dataclass, replace
from typing import Any

from nki_mlir.dialects.access import Constraint, Linear, Mask
from nki_mlir.scalar.dtypes import DType

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """A strided view, a stride in elements per axis of the iteration space."""

    dtype: DType
    strides: Strides


@dataclass(frozen=True)
class Step:
    """One operation of a scalar body.

    ``kind`` is constant, convert, alu, activation, index, form, cast or native; ``name`` the function; ``operands`` are
    numbers of values: the inputs, then the symbols, then the outputs' old values, then the steps' results, in order.
    ``number`` is a constant's value (a float's as text, which tells -0.0 from 0.0), an index's axis, the linear form of
    a ``form`` over its operands, or a native comparison's predicate. ``dtype`` None: an index.
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

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def first_output(self) -> int:
        """The number of the value that the first output holds before."""
        return len(self.inputs) + self.symbols

    @property
    def first_step(self) -> int:
        return self.first_output + len(self.outputs)

    @property
    def elements(self) -> int:
        total = 1
        for extent in self.extents:
            total *= extent
        return total

    @property
    def cost(self) -> float:
        """Nanoseconds, roughly: to decide what is worth a second thread."""
        product = self.reduced and len(self.inputs) == 2 and [s.name for s in self.steps[-2:]] == ["multiply", "add"]
        return 20 + self.elements * (0.02 if product else 0.05 + 0.03 * len(self.steps))

    def parts(self, least: int, most: int) -> tuple["Nest", int, int] | None:
        """The nest as equal parts along its first axis: one part, how many there are, and the extent of a part.

        None where no number of parts between the two fits, or a part would have to know which one it is.
        """
        if self.mask or not self.extents or 0 in self.reduced or any(
                s.kind == "index" and s.number == 0 for s in self.steps):
            return None
        for count in range(least, most + 1):
            if self.extents[0] % count == 0:
                extent = self.extents[0] // count
                return simplified(replace(self, extents=(extent, *self.extents[1:]))), count, extent
        return None

    def reach(self, operand: int) -> tuple[int, int]:
        """The first and last byte of an operand, from the address of its first element on."""
        given = self.operands[operand]
        ends = [step * (extent - 1) for step, extent in zip(given.strides, self.extents)]
        size = given.dtype.itemsize
        return size * sum(min(0, e) for e in ends), size * (sum(max(0, e) for e in ends) + 1) - 1

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
        functions = [s.name.split(".")[-1] for s in self.steps if s.name]
        what = functions[-1] if functions else "copy" if self.inputs else "set"
        shape = "x".join(map(str, self.extents)) or "1"
        types = "_".join(dict.fromkeys(str(o.dtype) for o in (*self.outputs, *self.inputs)))
        return f"{what}_{shape}_{types}"


# -- one form for equal computations -----------------------------------------------------------------------------------
def simplified(nest: Nest) -> Nest:
    """The same computation without axes of one element, axes in the order of memory, and neighbours joined."""
    nest = _without_unit_axes(nest)
    parallel = [a for a in range(len(nest.extents)) if a not in nest.reduced]
    parallel.sort(key=lambda a: [-abs(o.strides[a]) for o in (*nest.outputs, *nest.inputs)])
    nest = _with_axes(nest, [*parallel, *sorted(nest.reduced)])
    axis = len(nest.extents) - 2
    while axis >= 0:
        if _joins(nest, axis):
            nest = _joined(nest, axis)
        axis -= 1
    return nest


def _without_unit_axes(nest: Nest) -> Nest:
    kept = [axis for axis, extent in enumerate(nest.extents) if extent != 1]
    return nest if len(kept) == len(nest.extents) else _with_axes(nest, kept)


def _with_axes(nest: Nest, order: list[int]) -> Nest:
    """The nest with only these axes, in this order; the others have one element."""
    if order == list(range(len(nest.extents))):
        return nest
    place = {axis: k for k, axis in enumerate(order)}

    def operand(o: Operand) -> Operand:
        return Operand(o.dtype, tuple(o.strides[a] for a in order))

    def step(s: Step) -> Step:
        if s.kind != "index":
            return s
        return replace(s, number=place[s.number]) if s.number in place else Step("form", None, (), "", Linear())
    mask = tuple(_on_axes(c, tuple((place[a], k) for a, k in c.form.axes if a in place)) for c in nest.mask)
    return replace(nest, extents=tuple(nest.extents[a] for a in order),
                   reduced=frozenset(place[a] for a in nest.reduced if a in place), mask=mask,
                   inputs=tuple(map(operand, nest.inputs)), outputs=tuple(map(operand, nest.outputs)),
                   steps=tuple(map(step, nest.steps)))


def _on_axes(constraint: Constraint, axes: tuple[tuple[int, int], ...]) -> Constraint:
    return Constraint(replace(constraint.form, axes=axes), constraint.equal)


def _joins(nest: Nest, axis: int) -> bool:
    """Whether an axis and the next step through memory as one, and nothing asks for their positions."""
    if (axis in nest.reduced) != (axis + 1 in nest.reduced):
        return False
    asked = {s.number for s in nest.steps if s.kind == "index"} | {a for c in nest.mask for a, _ in c.form.axes}
    inner = nest.extents[axis + 1]
    return not asked & {axis, axis + 1} and all(
        o.strides[axis] == o.strides[axis + 1] * inner for o in nest.operands)


def _joined(nest: Nest, axis: int) -> Nest:
    extents = (*nest.extents[:axis], nest.extents[axis] * nest.extents[axis + 1], *nest.extents[axis + 2:])

    def after(a: int) -> int:
        return a - 1 if a > axis else a

    def operand(o: Operand) -> Operand:
        return Operand(o.dtype, (*o.strides[:axis], *o.strides[axis + 1:]))
    mask = tuple(_on_axes(c, tuple((after(a), k) for a, k in c.form.axes)) for c in nest.mask)
    steps = tuple(replace(s, number=after(s.number)) if s.kind == "index" else s for s in nest.steps)
    return replace(nest, extents=extents, reduced=frozenset(after(a) for a in nest.reduced), mask=mask, steps=steps,
                   inputs=tuple(map(operand, nest.inputs)), outputs=tuple(map(operand, nest.outputs)))
