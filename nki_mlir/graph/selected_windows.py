# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites ``stablehlo.select_and_scatter``, the gradient of a pool, as selections between slices.

Engines and vector units compute these without loops over elements. Upstream's conversion would select the last one of
equal elements, and does not know padding and windows that overlap.

before:  %r = stablehlo.select_and_scatter(%x, %source, %init) { compare GE }, { add }       (windows of 2, steps of 2)
after:   %best = %x[0::2], %number = 0
         %x1 = %x[1::2], %is_best = compare GE %best, %x1
         %best = select(%is_best, %best, %x1), %number = select(%is_best, %number, 1)
         %r = %init + pad(select(%number == 0, %source, -0.0)) + pad(select(%number == 1, %source, -0.0))

The elements at one position of all windows are a slice of the operand. A later position replaces the selected one where
the comparison says so; elements of the padding are never selected. The comparison ``KEEPS_NAN``, that of PyTorch's
pools, selects the last NaN, else the first of the greatest elements.
"""

from collections.abc import Sequence
from itertools import product

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects.creation import terminator
from nki_mlir.graph.comparisons import tensor
from nki_mlir.graph.upstream import define, exchange_for_call

DIRECTIONS = ("GE", "GT", "LE", "LT")
KEEPS_NAN = "keeps NaN"             # a later element replaces the selected one if it is greater or NaN


def rewrite_selected_windows(module: Module) -> None:
    """Rewrite each ``stablehlo.select_and_scatter`` that selects floats by one comparison and adds them."""
    for number, op in enumerate(operations_of(module, lambda name: name == "stablehlo.select_and_scatter")):
        kind = ir.RankedTensorType(op.operands[0].type)
        direction = compared(op)
        if not direction or not kind.has_static_shape or not isinstance(kind.element_type, ir.FloatType):
            continue
        name = f"selected.{number}"
        define(module, SelectedWindows(op, direction).function(name), op)
        exchange_for_call(op, name)


def compared(op: Operation) -> str:
    """Return the comparison that selects, a direction or ``KEEPS_NAN``; empty if other code selects, or something else
    than a sum combines."""
    select, scatter = (region.blocks[0] for region in op.regions)
    total = scatter.operations[0].operation
    if len(scatter.operations) != 2 or total.name != "stablehlo.add" or {*total.operands} != {*scatter.arguments}:
        return ""
    selected, new = select.arguments
    value = terminator(select).operands[0]
    match [inner.operation.name for inner in select.operations]:
        case ["stablehlo.compare", _] if is_comparison(value, DIRECTIONS, selected, new):
            return next(d for d in DIRECTIONS if is_comparison(value, (d,), selected, new))
        case ["stablehlo.compare", "stablehlo.compare", "stablehlo.or", "stablehlo.not", _]:
            operations = [inner.operation for inner in select.operations]
            greater, is_nan, either, stays = (op.results[0] for op in operations[:4])
            if value == stays and [*operations[3].operands] == [either] and [*operations[2].operands] == [
                    greater, is_nan] and is_comparison(greater, ("GT",), new, selected) and is_comparison(
                    is_nan, ("NE",), new, new):
                return KEEPS_NAN
    return ""


def is_comparison(value: Value, directions: Sequence[str], a: Value, b: Value) -> bool:
    """Return whether a value is the comparison of ``a`` with ``b`` in one of the directions."""
    op = defining(value)
    return op is not None and op.name == "stablehlo.compare" and [*op.operands] == [a, b] and any(
        d in str(op.attributes["comparison_direction"]) for d in directions)


class SelectedWindows:
    """The text of a function that computes a ``select_and_scatter``. ``%v`` numbers its values."""

    def __init__(self, op: Operation, direction: str) -> None:
        self.direction, self.lines = direction, list[str]()
        operand, source = (ir.RankedTensorType(op.operands[k].type) for k in (0, 1))
        self.shape, self.windows, self.element = list(operand.shape), list(source.shape), str(operand.element_type)
        self.sums = "f64" if self.element == "f64" else "f32"
        rank = operand.rank
        self.sizes, self.steps = (list(op.attributes[name]) if name in op.attributes else [1] * rank
                                  for name in ("window_dimensions", "window_strides"))
        ends = list(ir.DenseIntElementsAttr(op.attributes["padding"])) if "padding" in op.attributes else [0] * 2 * rank
        self.low, self.high = ends[::2], ends[1::2]
        self.is_padded = any(ends)

    def add(self, text: str) -> str:
        """Add an operation; return the name of its result."""
        self.lines.append(f"%v{len(self.lines)} = stablehlo.{text}")
        return f"%v{len(self.lines) - 1}"

    def constant(self, value: str, element: str, shape: Sequence[int] = ()) -> str:
        return self.add(f"constant dense<{value}> : {tensor(shape, element)}")

    def padded(self, value: str, padding: str, element: str) -> str:
        """Pad a value of the operand's shape."""
        zero, interior = self.constant(padding, element), [0] * len(self.low)
        return self.add(f"pad {value}, {zero}, low = {self.low}, high = {self.high}, interior = {interior} : "
                        f"({tensor(self.shape, element)}, tensor<{element}>) -> {tensor(self.extents, element)}")

    @property
    def extents(self) -> list[int]:
        """The shape of the operand with its padding."""
        return [a + n + b for a, n, b in zip(self.low, self.shape, self.high)]

    def slice(self, value: str, position: Sequence[int], element: str) -> str:
        """Return the elements at a position of each window, of a value with the operand's padding."""
        parts = ", ".join(f"{p}:{p + (n - 1) * step + 1}:{step}"
                          for p, n, step in zip(position, self.windows, self.steps))
        kinds = tensor(self.extents, element), tensor(self.windows, element)
        return self.add(f"slice {value} [{parts}] : ({kinds[0]}) -> {kinds[1]}")

    def select(self, condition: str, on_true: str, on_false: str, element: str) -> str:
        return self.add(f"select {condition}, {on_true}, {on_false} : {tensor(self.windows, 'i1')}, "
                        f"{tensor(self.windows, element)}")

    def combined(self, fn: str, *values: str) -> str:
        """Return a logical function of truth values, one for each window."""
        return self.add(f"{fn} {', '.join(values)} : {tensor(self.windows, 'i1')}")

    def stays(self, best: str, value: str) -> str:
        """Return the truth values that say where the selected element stays selected before a later one."""
        kind = tensor(self.windows, self.element)

        def compare(direction: str, left: str, right: str) -> str:
            return self.add(f"compare {direction}, {left}, {right}, FLOAT : ({kind}, {kind}) -> "
                            f"{tensor(self.windows, 'i1')}")
        if self.direction != KEEPS_NAN:
            return compare(self.direction, best, value)
        return self.combined("not", self.combined("or", compare("GT", value, best), compare("NE", value, value)))

    def selected(self) -> str:
        """Return the number of the selected position of each window."""
        operand, within = "%x", ""
        if self.is_padded:
            operand = self.padded("%x", "0.0", self.element)
            within = self.padded(self.constant("true", "i1", self.shape), "false", "i1")
        best = selected = is_any = ""
        for number, position in enumerate(product(*map(range, self.sizes))):
            value = self.slice(operand, position, self.element)
            inside = self.slice(within, position, "i1") if within else ""
            index = self.constant(str(number), "i32", self.windows)
            if not best:
                best, selected, is_any = value, index, inside
                continue
            stays = self.stays(best, value)
            if within:
                stays = self.combined("or", self.combined("and", stays, is_any), self.combined("not", inside))
                is_any = self.combined("or", is_any, inside)
            best = self.select(stays, best, value, self.element)
            selected = self.select(stays, selected, index, "i32")
        return selected

    def function(self, name: str) -> str:
        """Return the function. Sums of narrow floats are rounded once."""
        selected, kind, numbers = self.selected(), tensor(self.shape, self.sums), tensor(self.windows, "i32")
        source, init = (self.widened(value, shape) for value, shape in (("%s", self.windows), ("%init", [])))
        sums_type, scalar = tensor(self.extents, self.sums), tensor([], self.sums)
        total = self.add(f"broadcast_in_dim {init}, dims = [] : ({scalar}) -> {sums_type}")
        negative_zero, none = self.constant("-0.0", self.sums), self.constant("-0.0", self.sums, self.windows)
        for number, position in enumerate(product(*map(range, self.sizes))):
            index = self.constant(str(number), "i32", self.windows)
            hits = self.add(f"compare EQ, {selected}, {index}, SIGNED : ({numbers}, {numbers}) -> "
                            f"{tensor(self.windows, 'i1')}")
            part = self.select(hits, source, none, self.sums)
            high = [extent - p - (n - 1) * step - 1
                    for extent, p, n, step in zip(self.extents, position, self.windows, self.steps)]
            low, interior = list(position), [step - 1 for step in self.steps]
            part = self.add(f"pad {part}, {negative_zero}, low = {low}, high = {high}, interior = {interior} : "
                            f"({tensor(self.windows, self.sums)}, {scalar}) -> {sums_type}")
            total = self.add(f"add {total}, {part} : {sums_type}")
        if self.is_padded:
            parts = ", ".join(f"{a}:{a + n}" for a, n in zip(self.low, self.shape))
            total = self.add(f"slice {total} [{parts}] : ({sums_type}) -> {kind}")
        result = tensor(self.shape, self.element)
        if self.element != self.sums:
            total = self.add(f"convert {total} : ({kind}) -> {result}")
        return "\n".join([f'func.func private @"{name}"(%x: {result}, %s: {tensor(self.windows, self.element)}, %init: '
                          f"tensor<{self.element}>) -> {result} {{", *self.lines, f"return {total} : {result}", "}"])

    def widened(self, value: str, shape: Sequence[int]) -> str:
        """Return a value in the type of the sums."""
        return value if self.element == self.sums else self.add(
            f"convert {value} : ({tensor(shape, self.element)}) -> {tensor(shape, self.sums)}")
