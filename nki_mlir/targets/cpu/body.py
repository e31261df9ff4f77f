# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits the scalar body of a nest: the scalar library expands each step, as early as its operands are known."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access import Linear, Mask
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU, expand_extremum
from nki_mlir.scalar.conversion_expansion import expand_convert, rounded_above, rounded_to
from nki_mlir.scalar.dtypes import BOOL, DType, Encoding, storage_type
from nki_mlir.scalar.mathematics import MATH
from nki_mlir.targets.cpu.extrema import Unrepaired
from nki_mlir.targets.cpu.lanes import FITTED_TO_ZERO, FunctionEmitter, Value
from nki_mlir.targets.cpu.roundings import before_rounding, values_read
from nki_mlir.waist.nest import Nest, Step


@dataclass(frozen=True)
class Point:
    """A point of the iteration space while code is emitted: the operands' addresses there, and the positions on the
    axes whose loops are open.

    ``values`` has the body's values that code has computed; a scalar is the value of all lanes. ``lanes`` and
    ``active`` belong to the vector axis once its loop is open.
    """

    pointers: tuple[Value, ...]
    positions: dict[int, Value | int]
    values: dict[int, Value] = field(default_factory=dict)
    lanes: int = 1
    active: Value | None = None

    def with_values(self, values: dict[int, Value]) -> "Point":
        return replace(self, values={**self.values, **values})


class NestEvaluator:
    """Emits the steps of a nest at a point. ``vector`` is the axis whose elements are the lanes. ``in_words`` are
    roundings to bfloat16 whose vector results stay in the upper halves of i32.
    """

    def __init__(self, code: FunctionEmitter, nest: Nest, symbols: Sequence[Value], vector: int | None,
                 keeping_nans: Collection[int], unrepaired: Unrepaired, in_words: Collection[Step]) -> None:
        self.code, self.nest, self.vector, self.keeping_nans = code, nest, vector, keeping_nans
        self.unrepaired, self.in_words = unrepaired, in_words
        self.symbols = list(symbols)
        self.needed = self._needed_values()

    # -- steps ---------------------------------------------------------------------------------------------------------
    def advance(self, point: Point, left_out: Collection[int] = ()) -> Point:
        """Compute every needed step whose operands are known at the point, except the values ``left_out``. Return the
        point with the new values."""
        values = dict(point.values)
        for k, step in enumerate(self.nest.steps):
            number = self.nest.first_step + k
            is_open = number in self.needed and number not in values and number not in left_out
            if is_open and self._ready(step, values, point):
                values[number] = self.step(step, values, point, number not in self.unrepaired.nans,
                                           number not in self.unrepaired.zeros)
        return replace(point, values=values)

    def _needed_values(self) -> set[int]:
        """Return the values from which the results are computed.

        A rounding that is only read in float32 is not among them: code rounds in float32.
        """
        needed: set[int] = set()
        pending = list(self.nest.results)
        while pending:
            value = pending.pop()
            step = self.nest.step(value)
            if value not in needed and step is not None:
                pending += values_read(self.nest, step)
            needed.add(value)
        return needed

    def _ready(self, step: Step, known_values: dict[int, Value], point: Point) -> bool:
        if step.kind == "position":
            return all(axis in point.positions for axis, _ in step.number.axes)
        return all(v in known_values for v in values_read(self.nest, step))

    def step(self, step: Step, known_values: dict[int, Value], point: Point, repairs_nans: bool = True,
             repairs_zeros: bool = True) -> Value:
        """Compute a step; an extremum without repairs is the host's instruction (``extrema.py``)."""
        code = self.code
        values = [known_values[v] for v in values_read(self.nest, step)]
        if step.kind == "lookup":
            index, table = values
            if isinstance(table, tuple):
                pointer, rows = table
                return code.fitted(index, pointer, rows, step.name.startswith(FITTED_TO_ZERO))
            return code.looked_up(index, table, step.dtype)
        if any(isinstance(v.type, ir.VectorType) for v in values):
            values = [code.spread(v, point.lanes) for v in values]
        match step.kind:
            case "constant":
                return self.constant(step)
            case "convert":
                source = self.nest.dtype_of(step.operands[0])
                wide = before_rounding(self.nest, step)
                if wide is not None:
                    return rounded_to(code, values[0], source, wide in self.keeping_nans)
                keeps_nans = step.operands[0] in self.keeping_nans
                if step in self.in_words and point.active is None and isinstance(values[0].type, ir.VectorType):
                    return rounded_above(code, values[0], keeps_nans)
                return expand_convert(code, values[0], source, step.dtype, keeps_nans)
            case "alu" if not (repairs_nans and repairs_zeros):
                return expand_extremum(code, step.name, *values, repairs_nans=repairs_nans,
                                       repairs_zeros=repairs_zeros)
            case "alu":
                return ALU[step.name].expand(code, self.nest.dtype_of(step.operands[-1]), *values)
            case "activation":
                return ACTIVATIONS[step.name].expand(code, values[0])
            case "position":
                value = self.form(step.number, point)
                return value if step.dtype.bits == 64 else code.trunci(value, f"i{step.dtype.bits}")
            case "wrap":
                source = self.nest.dtype_of(step.operands[0])
                return wrapped(code, values[0], source, step.dtype)
            case "bitcast":
                return code.bitcast(values[0], storage_type(step.dtype))
            case "math":
                return MATH[step.name].expand(code, self.nest.dtype_of(step.operands[-1]), *values)
        raise InternalError(f"unknown step {step}")

    def constant(self, step: Step) -> Value:
        number = float(step.number) if step.dtype.is_float else step.number
        element = self.code.element(step.dtype)
        if step.dtype.is_float and isinstance(element, ir.IntegerType):        # its bits
            number = int(np.array(number).astype(step.dtype.numpy).view(f"u{step.dtype.itemsize}"))
        return self.code.constant(element, number)

    def form(self, form: Linear, point: Point) -> Value:
        """Emit the value of a form. If it changes along the vector axis, emit one value for each lane."""
        code = self.code
        terms = [(self.symbols[p], c) for p, c in form.symbols]
        terms += [(self._base(axis, point), c) for axis, c in form.axes]
        value = code.linear(form.const, terms)
        along = dict(form.axes).get(self.vector, 0) if self.vector is not None else 0
        if point.lanes > 1 and along:
            value = code.add(code.spread(value, point.lanes), code.counted(point.lanes, along))
        return value

    # -- masks ---------------------------------------------------------------------------------------------------------
    def holds(self, mask: Mask, point: Point) -> Value:
        """Emit whether the constraints hold, as an i1, or one for each lane."""
        code, active = self.code, point.active
        for constraint in mask:
            value = self.form(constraint.form, point)
            if point.lanes > 1:
                value = code.spread(value, point.lanes)
            bit = code.cmp("eq" if constraint.equal else "sge", value, 0)
            active = bit if active is None else code.and_(active, bit)
        return active

    def _base(self, axis: int, point: Point) -> Value:
        base = point.positions[axis]
        return self.code.i64(base) if isinstance(base, int) else base


def wrapped(code: FunctionEmitter, value: Value, frm: DType, to: DType) -> Value:
    """Return the low bits of an integer, or extend it. A bool is the lowest bit of a byte."""
    if to is BOOL:
        value = code.and_(value, 1)
    if frm.bits == to.bits:
        return value
    if to.bits < frm.bits:
        return code.trunci(value, storage_type(to))
    return (code.extsi if frm.kind is Encoding.SIGNED else code.extui)(value, storage_type(to))
