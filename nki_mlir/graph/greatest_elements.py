# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites sorts of which a program reads only the first elements, such as ``chlo.top_k``, as a search for each.

before:  %v, %p = stablehlo.sort(%x, iota) { greater, in total order };  %v[0:2], %p[0:2]
after:   %high, %low = the upper and the lower 16 bits of integers in the order of %x, as float32
         %m0 = max(%high);  %m1 = max(select(%high == %m0, %low, -131072))
         %p0 = min(select(%high == %m0 and %low == %m1, iota, number of elements))
         %high = select(iota == %p0, -131072, %high), and the same for the second element

Engines reduce only float32, which has all integers of 16 bits. A search takes about as many instructions as a step of
a network of exchanges (``sorting_network.py``), so the rewriting searches for at most as many elements as that has
steps.
"""

from collections.abc import Sequence

from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import terminator, value_of
from nki_mlir.graph.element_bodies import BITS, integers_in_order, with_inverted_negatives
from nki_mlir.graph.sort_and_scatter import sort_axis
from nki_mlir.graph.sorting_network import counts_along, steps
from nki_mlir.graph.tensor_values import of_element
from nki_mlir.graph.upstream import define, exchange

BELOW = -(1 << 17)                  # less than all parts of integers, of which the least is -(1 << 16)
LEAST = -(1 << 31)
INTEGERS = {"i8": 8, "ui8": 8, "i16": 16, "ui16": 16, "i32": 32, "ui32": 32}


def rewrite_searches(module: Module) -> None:
    """Rewrite all sorts of pairs of elements and positions whose first elements alone are read."""
    for number, op in enumerate(operations_of(module, lambda name: name == "stablehlo.sort")):
        count, direction = read_elements(op), direction_of(op)
        extent = ir.RankedTensorType(op.operands[0].type).shape[-1]
        if not direction or not 0 < count <= min(extent, len(list(steps(extent)))):
            continue
        name, elements = f"greatest.{number}", ir.RankedTensorType(op.operands[0].type).element_type
        is_float = str(elements) in BITS
        with op.context, ir.InsertionPoint(op), op.location:
            operand = integers_in_order(op.operands[0], op) if is_float else op.operands[0]
            function = define(module, GreatestElements(operand, count, direction == "LT").function(name), op)
            call = ir.Operation.create("func.call", results=list(function.attributes["function_type"].value.results),
                                       operands=[operand], attributes={"callee": ir.FlatSymbolRefAttr.get(name)})
            values, positions = call.results
            if is_float:
                values = value_of("stablehlo.bitcast_convert", of_element(values.type, elements),
                                  with_inverted_negatives(values))
        exchange(op, [values, positions])


def read_elements(op: Operation) -> int:
    """Return how many of the first elements of a sort the program reads; 0 if it may read all."""
    most = 0
    for user in [use.owner.operation for result in op.results for use in result.uses]:
        if user.name != "stablehlo.slice":
            return 0
        most = max(most, list(user.attributes["limit_indices"])[-1])
    return most


def direction_of(op: Operation) -> str:
    """Return GT or LT if a sort puts the greatest or least elements first, with their positions; else nothing."""
    kind, block = ir.RankedTensorType(op.operands[0].type), op.regions[0].blocks[0]
    compare = block.operations[0].operation
    if len(op.operands) != 2 or sort_axis(op) != kind.rank - 1 or not counts_along(op.operands[1], kind.rank - 1) or (
            compare.name != "stablehlo.compare" or terminator(block).operands[0] != compare.results[0]
            or list(compare.operands) != list(block.arguments)[:2]):
        return ""
    element = str(kind.element_type)
    is_total = element in INTEGERS or (element in BITS and "compare_type" in compare.attributes
                                       and "TOTALORDER" in str(compare.attributes["compare_type"]))
    text = str(compare.attributes["comparison_direction"])
    return next((d for d in ("GT", "LT") if d in text), "") if is_total else ""


class GreatestElements:
    """The text of a function that returns the ``count`` greatest, or ``least``, integers and their positions."""

    def __init__(self, elements: Value, count: int, least: bool) -> None:
        kind = ir.RankedTensorType(elements.type)
        self.shape, self.element, self.count, self.least = list(kind.shape), str(kind.element_type), count, least
        self.axis, self.bits = kind.rank - 1, INTEGERS[self.element]
        self.lines: list[str] = []

    def function(self, name: str) -> str:
        """Return the text of a function ``name`` that returns the greatest elements and their positions: it finds and
        removes one after the other."""
        floats, parts = self.tensor("f32"), self.parts()
        self.emit("iota", f"iota dim = {self.axis} : {floats}")
        self.emit("below", f"constant dense<{BELOW}.0> : {floats}")
        self.emit("beyond", f"constant dense<{self.shape[-1]}.0> : {floats}")
        self.emit("lowest", "constant dense<0xFF800000> : tensor<f32>")
        self.emit("farthest", "constant dense<0x7F800000> : tensor<f32>")
        searches: list[list[str]] = []
        for _ in range(self.count):
            results: list[str] = []
            matches = ""
            for part in parts:
                if matches:
                    part = self.selected(matches, part, "%below")
                results.append(self.reduced(part, "%lowest", "maximum"))
                matches = self.equal(part, results[-1])
            results.append(self.reduced(self.selected(matches, "%iota", "%beyond"), "%farthest", "minimum"))
            parts[0] = self.selected(self.equal("%iota", results[-1]), "%below", parts[0])
            searches.append(results)
        *columns, positions = [self.integers(column) for column in zip(*searches)]
        values, kinds = self.elements(columns), (self.tensor(self.element, self.count), self.tensor("i32", self.count))
        return "\n".join([f'func.func private @"{name}"(%x: {self.tensor(self.element)}) -> ({", ".join(kinds)}) {{',
                          *self.lines, f"  return {values}, {positions} : {', '.join(kinds)}", "}"])

    def parts(self) -> list[str]:
        """Emit float32 numbers which decide, one after the other, whether an element is greater."""
        kind = self.tensor("i32")
        key = self.in_order("%x", kind)
        if self.least:
            key = self.emit("", f"not {key} : {kind}")
        if self.bits < 32:
            return [self.convert(key, "i32", "f32")]
        high = self.emit("", f"shift_right_arithmetic {key}, {self.number(16, 'i32')} : {kind}")
        low = self.emit("", f"and {key}, {self.number(0xFFFF, 'i32')} : {kind}")
        return [self.convert(high, "i32", "f32"), self.convert(low, "i32", "f32")]

    def elements(self, columns: Sequence[str]) -> str:
        """Emit the elements with these parts."""
        key, kind, count = columns[0], self.tensor("i32", self.count), self.count
        if self.bits == 32:
            high = self.emit("", f"shift_left {key}, {self.number(16, 'i32', count)} : {kind}")
            key = self.emit("", f"or {high}, {columns[1]} : {kind}")
        if self.least:
            key = self.emit("", f"not {key} : {kind}")
        if self.element != "ui32":
            return self.convert(key, "i32", self.element, count)
        bits = self.emit("", f"xor {key}, {self.number(LEAST, 'i32', count)} : {kind}")
        return self.bitcast(bits, "i32", "ui32", count)

    def in_order(self, value: str, kind: str) -> str:
        """Emit integers as int32 in the same order."""
        if self.element != "ui32":
            return self.convert(value, self.element, "i32")
        return self.emit("", f"xor {self.bitcast(value, 'ui32', 'i32')}, {self.number(LEAST, 'i32')} : {kind}")

    def integers(self, columns: Sequence[str]) -> str:
        """Emit float32 numbers of each search beside each other, as int32."""
        line, column = self.tensor("f32", 0), self.tensor("f32", 1)
        reshaped = [self.emit("", f"reshape {value} : ({line}) -> {column}") for value in columns]
        joined = self.emit("", f"concatenate {', '.join(reshaped)}, dim = {self.axis} : "
                              f"({', '.join([column] * self.count)}) -> {self.tensor('f32', self.count)}")
        return self.convert(joined, "f32", "i32", self.count)

    # -- lines ---------------------------------------------------------------------------------------------------------
    def tensor(self, element: str, extent: int | None = None) -> str:
        """Return the type of a tensor with ``extent`` elements along the axis; 0: without the axis."""
        last = [self.shape[-1] if extent is None else extent] if extent != 0 else []
        return f"tensor<{'x'.join(map(str, [*self.shape[:-1], *last, element]))}>"

    def emit(self, name: str, operation: str) -> str:
        name = name or f"v{len(self.lines)}"
        self.lines.append(f"  %{name} = stablehlo.{operation}")
        return f"%{name}"

    def number(self, value: int, element: str, extent: int | None = None) -> str:
        return self.emit("", f"constant dense<{value}> : {self.tensor(element, extent)}")

    def convert(self, value: str, frm: str, to: str, extent: int | None = None) -> str:
        return value if frm == to else self.emit(
            "", f"convert {value} : ({self.tensor(frm, extent)}) -> {self.tensor(to, extent)}")

    def bitcast(self, value: str, frm: str, to: str, extent: int | None = None) -> str:
        return self.emit("", f"bitcast_convert {value} : ({self.tensor(frm, extent)}) -> {self.tensor(to, extent)}")

    def selected(self, condition: str, a: str, b: str) -> str:
        return self.emit("", f"select {condition}, {a}, {b} : {self.tensor('i1')}, {self.tensor('f32')}")

    def reduced(self, value: str, start: str, fn: str) -> str:
        return self.emit("", f"reduce({value} init: {start}) applies stablehlo.{fn} across dimensions = [{self.axis}] "
                             f": ({self.tensor('f32')}, tensor<f32>) -> {self.tensor('f32', 0)}")

    def equal(self, value: str, line: str) -> str:
        """Emit where elements equal the number of their line."""
        floats, dims = self.tensor("f32"), ", ".join(map(str, range(self.axis)))
        everywhere = self.emit("", f"broadcast_in_dim {line}, dims = [{dims}] : ({self.tensor('f32', 0)}) -> {floats}")
        return self.emit("", f"compare EQ, {value}, {everywhere}, FLOAT : ({floats}, {floats}) -> {self.tensor('i1')}")
