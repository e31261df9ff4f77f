# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The index values and memrefs of a function while it is read: linear forms of slots, addresses, and facts about both.

Arithmetic that is linear becomes part of the instructions that use it; the rest is computed into slots.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from nki_mlir.bindings import Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import affine_value
from nki_mlir.dialects.buffer_types import global_array
from nki_mlir.scalar.predicates import INTEGER_PREDICATES
from nki_mlir.targets.cpu.function import ALIASES, UNKNOWN, NativeFunction
from nki_mlir.targets.cpu.native_nodes import FIRST_ID, slot_value
from nki_mlir.waist import function as waist
from nki_mlir.waist.nest_reader import layout_of
from nki_mlir.waist.overlap import ByteRegion

# Functions of the machine (``machine.py``) by those of index arithmetic.
FUNCTIONS = {"add": "addi", "subtract": "subi", "mult": "muli", "and": "andi", "or": "ori", "xor": "xori",
             "min": "minsi", "max": "maxsi",
             **dict(zip(waist.COMPARISONS, map("cmpi_{}".format, INTEGER_PREDICATES)))}


class Values:
    """The meanings of the SSA values of one function. It appends instructions for values that must be computed."""

    def __init__(self, function: NativeFunction, index_values: Sequence[Value]) -> None:
        """``index_values`` are the index values that symbols in offsets of regions denote, by number."""
        self.function, kernel, axes = function, function.kernel, function.axes
        self.index_values = index_values
        self.forms: dict[object, Linear] = {}          # forms of index and i1 values
        self.buffers: dict[object, ByteRegion] = {}
        self.ranges = function.ranges
        self.facts: list[Linear] = []               # forms that are >= 0 at the next operation
        self.conditions: dict[object, tuple[tuple[Linear, bool], ...]] = {}    # i1 values: forms >= 0, or == 0
        block = kernel.op.regions[0].blocks[0]
        for argument, spec in zip(block.arguments, kernel.arguments):
            if spec.kind == "program_id":
                self.forms[argument] = slot_value(FIRST_ID + spec.index)
                self.ranges[FIRST_ID + spec.index] = (0, kernel.grid[spec.index] - 1)
                continue
            position = spec.index + (len(kernel.inputs) if spec.kind == "shared" else 0)
            assert spec.dtype is not None
            root = ALIASES if kernel.may_alias and spec.kind == "input" else spec.name
            self.buffers[argument] = ByteRegion(root, slot_value(FIRST_ID + axes + position),
                                              prod(spec.shape) * spec.dtype.itemsize, Linear(), spec.name)

    # -- index values --------------------------------------------------------------------------------------------------
    def form(self, value: object) -> Linear:
        if value not in self.forms:
            raise Unsupported(feature="an index that is computed from other values on the CPU",
                              instead="compute it from loop variables and program ids")
        return self.forms[value]

    def interval(self, form: Linear) -> tuple[int, int]:
        return form.interval(self.ranges)           # type: ignore[arg-type]

    def variable(self, low: Linear, high: Linear, step: Linear) -> int:
        """Return a slot for the variable of a loop."""
        slot = self.function.loop_slot()
        least, most = self.interval(low)[0], self.interval(high)[1] - 1
        if not (low.symbols or high.symbols or step.symbols) and (span := range(low.const, high.const, step.const)):
            most = span[-1]
        if UNKNOWN[0] < least <= most < UNKNOWN[1]:
            self.ranges[slot] = least, most
        return slot

    def compute(self, name: str, *operands: Linear, bounds: tuple[int, int] | None = None) -> Linear:
        """Compute a value that is not linear into a slot."""
        value = self.function.computed(f"nki_{name}", *operands)
        if bounds is not None:
            self.ranges[value.symbols[0][0]] = bounds
        return value

    def takes(self, node: waist.ScalarValue) -> bool:
        """Return whether a value is a number of index arithmetic that the program can compute."""
        match node:
            case waist.IndexCast():
                return not node.narrows and node.operands[0] in self.forms
            case waist.IndexOperation():
                return node.function in FUNCTIONS and node.operands[0] in self.forms
        return isinstance(node, waist.ScalarConstant | waist.IndexMap)

    def define(self, node: waist.ScalarValue) -> None:
        """Define a value as a form; if it is not linear, compute it here. Float constants have no form."""
        match node:
            case waist.ScalarConstant(number=int(number)):
                self.forms[node.result] = Linear(int(number))
            case waist.IndexMap():
                self.forms[node.result] = self.mapped(node)
            case waist.IndexCast():
                self.forms[node.result] = self.cast(node)
            case waist.IndexOperation():
                self.forms[node.result] = self.arithmetic(node)

    def mapped(self, node: waist.IndexMap) -> Linear:
        """Return the result of an affine map, or the least or greatest of its results."""
        mapping, operands = node.mapping, [self.form(v) for v in node.operands]
        total, *later_values = [affine_value(e, operands, mapping.n_dims, Linear, self.combined)
                                for e in mapping.results]
        for value in later_values:
            total = self.extreme(node.choice, total, value)
        return total

    def combined(self, name: str, a: Linear, b: Linear) -> Linear:
        match name:
            case "add":
                return a.plus(b)
            case "mult":
                return self.product(a, b)
        if b.symbols:
            raise Unsupported(feature="an index divided by another one on the CPU", instead="divide by a number")
        low, high = (end // b.const for end in self.interval(a))
        return self.compute(name, a, b, bounds=(low, high) if name == "floordiv" else (0, b.const - 1))

    def product(self, a: Linear, b: Linear) -> Linear:
        if not b.symbols:
            return Linear().plus(a, b.const)
        return Linear().plus(b, a.const) if not a.symbols else self.compute("muli", a, b)

    def extreme(self, choice: str, a: Linear, b: Linear) -> Linear:
        """Return the least or greatest of two values."""
        choose = min if choice == "min" else max
        low, high = (choose(x, y) for x, y in zip(self.interval(a), self.interval(b)))
        return self.compute(FUNCTIONS[choice], a, b, bounds=(low, high))

    def arithmetic(self, node: waist.IndexOperation) -> Linear:
        a, b = (self.form(v) for v in node.operands)
        match node.function:
            case "add":
                return a.plus(b)
            case "subtract":
                return a.plus(b, -1)
            case "mult":
                return self.product(a, b)
            case "min" | "max":
                return self.extreme(node.function, a, b)
            case "and":
                facts = [self.conditions.get(v, ()) for v in node.operands]
                self.conditions[node.result] = (*facts[0], *facts[1])
            case name if name in waist.COMPARISONS:
                self.conditions[node.result] = _condition(name, a.plus(b, -1))
                return self.compute(FUNCTIONS[name], a, b, bounds=(0, 1))
        # A factor that is not negative bounds the bits.
        bits = [form.const for form in (a, b) if node.function == "and" and not form.symbols and form.const >= 0]
        return self.compute(FUNCTIONS[node.function], a, b, bounds=(0, min(bits)) if bits else None)

    def cast(self, node: waist.IndexCast) -> Linear:
        """Return a cast number: the same, or its bits if it may be negative and the type is unsigned. Truth values are
        0 and 1."""
        operand, = node.operands
        form, kind = self.form(operand), operand.type
        if not node.unsigned or self.interval(form)[0] >= 0 or not isinstance(kind, ir.IntegerType) or kind.width == 1:
            return form
        bits = (1 << kind.width) - 1
        return self.compute("andi", form, Linear(bits), bounds=(0, bits))

    def holding(self, condition: Value, negated: bool) -> list[Linear]:
        """Return the facts that a condition, or its opposite, implies, as forms that are >= 0."""
        facts = self.conditions.get(condition, ())
        if not negated:
            return [f for form, equal in facts for f in ((form, Linear().plus(form, -1)) if equal else (form,))]
        return [Linear(-1).plus(facts[0][0], -1)] if len(facts) == 1 and not facts[0][1] else []

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocated(self, value: Value, memory: int, zeroed: bool) -> None:
        dtype, shape, *_ = layout_of(value.type)
        buffer = self.function.allocate(prod(shape) * dtype.itemsize, memory)
        buffer.zeroed = zeroed
        self.buffers[value] = buffer.region

    def constant(self, node: waist.ConstantBuffer) -> None:
        array = np.ascontiguousarray(global_array(node.op))
        self.function.globals[len(self.function.constants)] = node.op.attributes["name"], node.result.type
        self.buffers[node.result] = ByteRegion("constants", self.function.constant(array), array.nbytes, Linear())

    def resolved(self, region: ByteRegion, start: int = 0) -> ByteRegion:
        """Return the memory of an operand from byte ``start`` on, as a region of buffers and slots."""
        if region.root not in self.buffers:
            raise Unsupported(feature="a number that is not a constant in a structured operation on the CPU",
                              instead="compute it in the body, or give it as a memref")
        forms = {number: self.form(self.index_values[number]) for number, _ in region.offset.symbols}
        return self.buffers[region.root].moved(region.offset.over(forms).plus(Linear(start)))

    def element(self, node: waist.ElementLoad) -> ByteRegion:
        """Return the region of the element that is loaded."""
        dtype, _, strides, _ = layout_of(node.memref.type)
        region = self.resolved(node.region)
        for value, step in zip(node.subscripts, strides):
            region = region.moved(self.form(value), step * dtype.itemsize)
        return region


def _condition(predicate: str, difference: Linear) -> tuple[tuple[Linear, bool], ...]:
    """Rewrite a comparison of two values, from their difference, as forms >= 0 or == 0."""
    match predicate:
        case "eq":
            return ((difference, True),)
        case "ge":
            return ((difference, False),)
        case "gt":
            return ((difference.plus(Linear(-1)), False),)
        case "le":
            return ((Linear().plus(difference, -1), False),)
        case "lt":
            return ((Linear(-1).plus(difference, -1), False),)
    return ()
