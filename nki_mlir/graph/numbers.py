# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts integers of a graph that decide branches or addresses to index arithmetic on loop variables.

before:  %e = tensor.extract %t[]     (%t is computed by operations on 0-d tensors from loop variables)
after:   %e = arith.index_cast %n     (%n is computed by operations on index values)

Addresses and branches that depend on such integers are constants in unrolled loops. Values that depend on data do not
change.
"""

from dataclasses import dataclass

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Value, ir, operations_of
from nki_mlir.dialects import creation as emit
from nki_mlir.dialects.creation import applied, structured_operation, terminator, value_of
from nki_mlir.dialects.enclosing_conditions import integer_constant
from nki_mlir.dialects.symbol_ranges import ARITHMETIC, CASTS, Span, UnknownSymbol, range_of_type, symbol_range
from nki_mlir.scalar.predicates import COMPARISONS, INTEGER_PREDICATES
from nki_mlir.waist.generic import generic_of

OF_TRUTHS = {"arith.andi": "arith.minsi", "arith.ori": "arith.maxsi"}
QUOTIENTS = {"arith.divsi": "floordiv", "arith.remsi": "mod"}
PREDICATES = tuple(INTEGER_PREDICATES)
SIGNED = {name: comparison.holds for name, comparison in zip(PREDICATES, COMPARISONS)}
EQUALITIES = ("eq", "ne")
REGISTER = (-1 << 31, (1 << 31) - 1)


@dataclass(frozen=True)
class Number:
    """An integer that depends on loop variables alone: an index value with its (least, greatest), or None for
    ``value`` if it is constant."""

    value: Value | None
    span: Span


def constant(number: int) -> Number:
    return Number(None, (number, number))


def fits(span: Span, kind: ir.Type) -> bool:
    """Return whether all values of a span fit an integer type and a 32-bit register."""
    limits = range_of_type(kind)
    return limits is not None and max(limits[0], REGISTER[0]) <= span[0] and span[1] <= min(limits[1], REGISTER[1])


def count(module: Module) -> None:
    """Replace elements that are extracted from 0-d tensors by numbers, where that is possible."""
    counting = _Counting()
    for op in operations_of(module, lambda name: name == "tensor.extract"):
        kind = op.results[0].type
        if len(op.operands) == 1 and isinstance(kind, ir.IntegerType):
            number = counting.element(op.operands[0])
            if number is not None:
                with op.context, ir.InsertionPoint(op), op.location:
                    op.results[0].replace_all_uses_with(counting.integer(number, kind))
    for op in operations_of(module, lambda name: name == "tensor.from_elements"):
        if not ir.RankedTensorType(op.results[0].type).rank and not op.parent.name.startswith("linalg."):
            with op.context, ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(filled(op.operands[0], op.results[0].type))


def filled(scalar: Value, kind: ir.Type) -> Value:
    """Return a 0-d tensor written by a structured operation, which bufferization turns into a buffer."""
    op = structured_operation([scalar, value_of("tensor.empty", kind)], [ir.AffineMap.get(0, 0, [])] * 2,
                              ir.ArrayAttr.get([]), lambda values: values[0], [kind])
    return op.results[0]


class _Counting:
    """Computes numbers, each where the tensor that it replaces is defined."""

    def __init__(self) -> None:
        self.numbers: dict[ir.Value, Number | None] = {}           # by tensor

    # -- values that are numbers ---------------------------------------------------------------------------------------
    def element(self, tensor: Value) -> Number | None:
        """Return the element of a 0-d tensor, None if it is not a number. The result is memoized."""
        if tensor not in self.numbers:
            self.numbers[tensor] = self._element(defining(tensor))
        return self.numbers[tensor]

    def _element(self, op: Operation | None) -> Number | None:
        if op is None:
            return None
        match op.name:
            case "tensor.from_elements":
                with op.context, ir.InsertionPoint(op), op.location:
                    return self.scalar(op.operands[0], {})
            case "arith.constant" if isinstance(op.attributes["value"], ir.DenseIntElementsAttr):
                number = ir.IntegerAttr(op.attributes["value"].get_splat_value())
                return constant(number.value & 1 if number.type.width == 1 else number.value)
        nest = generic_of(op)
        if nest is None or len(op.results) != 1:
            return None
        with op.context, ir.InsertionPoint(op), op.location:
            return self.scalar(terminator(nest.block).operands[0], dict(zip(nest.block.arguments, nest.inputs)))

    def scalar(self, value: Value, arguments: dict[Value, Value]) -> Number | None:
        """Return a scalar as a number, None if it is none or may overflow. In a body, ``arguments`` maps
        block arguments to tensors."""
        if value in arguments:
            tensor = arguments[value]
            return self.element(tensor) if isinstance(tensor.type, ir.RankedTensorType) else self.scalar(tensor, {})
        if isinstance(value.type, ir.IndexType):
            try:
                low, high = symbol_range(value)
            except UnknownSymbol:
                return None
            return constant(low) if low == high else Number(value, (low, high))
        op = defining(value)
        if op is None or not isinstance(value.type, ir.IntegerType):
            return None
        if (number := integer_constant(value)) is not None:
            return constant(int(number) & 1 if value.type.width == 1 else int(number))
        operands = [self.scalar(v, arguments) for v in op.operands]
        if op.name == "arith.select":
            return self.chosen(*operands)
        if not operands or None in operands:
            return None
        counted = self.computed(op, *operands)                             # type: ignore[arg-type]
        return counted if counted is not None and fits(counted.span, value.type) else None

    # -- computing numbers ---------------------------------------------------------------------------------------------
    def computed(self, op: Operation, a: Number, b: Number | None = None) -> Number | None:
        """Return an operation on numbers as a number, None if index values have no such operation."""
        truths = isinstance(op.operands[0].type, ir.IntegerType) and op.operands[0].type.width == 1
        if op.name in (*CASTS, "arith.trunci"):
            by_sign = op.name in ("arith.extsi", "arith.index_cast")
            return a if a.span == (0, 0) or (not truths if by_sign else a.span[0] >= 0 or "trunci" in op.name) else None
        if b is None:
            return None
        if op.name == "arith.cmpi":
            predicate = PREDICATES[op.attributes["predicate"].value]
            return self.compared(predicate, a, b) if predicate in (EQUALITIES if truths else SIGNED) else None
        if truths:
            return self.compared("ne", a, b) if op.name == "arith.xori" else (
                self.combined(OF_TRUTHS[op.name], a, b) if op.name in OF_TRUTHS else None)
        if op.name in ARITHMETIC:
            return self.combined(op.name, a, b)
        if b.value is not None:
            return None
        by = b.span[0]
        if op.name in QUOTIENTS and by > 0 and a.span[0] >= 0:
            return self.divided(QUOTIENTS[op.name], a, by)
        if op.name == "arith.shrsi" and 0 <= by < 32:
            return self.divided("floordiv", a, 1 << by)
        if op.name == "arith.ori" and a.value is None:
            return constant(a.span[0] | by)
        return None

    def combined(self, name: str, a: Number, b: Number) -> Number:
        corners = [ARITHMETIC[name](x, y) for x in a.span for y in b.span]
        if min(corners) == max(corners):
            return constant(corners[0])
        return Number(self.operation(name, a, b), (min(corners), max(corners)))

    def divided(self, name: str, a: Number, by: int) -> Number:
        low, high = a.span[0] // by, a.span[1] // by
        if name == "mod":
            low, high = (a.span[0] % by, a.span[1] % by) if low == high else (0, by - 1)
        if low == high and (name == "floordiv" or a.value is None):
            return constant(low)
        divide = ir.AffineExpr.get_floor_div if name == "floordiv" else ir.AffineExpr.get_mod
        return Number(applied(divide(ir.AffineExpr.get_symbol(0), by), [self.index(a)]), (low, high))

    def compared(self, predicate: str, a: Number, b: Number) -> Number:
        """Return the result of a comparison as 0 or 1."""
        (low, high), (least, greatest) = a.span, b.span
        compare = SIGNED[predicate]
        disjoint = high < least or greatest < low
        if (a.value is None and b.value is None) or disjoint or (predicate not in EQUALITIES and compare(
                low, greatest) == compare(high, least) == compare(low, least) == compare(high, greatest)):
            return constant(int(compare(low, greatest)))
        holds = emit.compared(predicate, self.index(a), self.index(b))
        return Number(value_of("arith.index_castui", ir.IndexType.get(), holds), (0, 1))

    def chosen(self, condition: Number | None, a: Number | None, b: Number | None) -> Number | None:
        """Return ``a`` if the condition is 1, else ``b``, computed as b + condition * (a - b)."""
        if condition is not None and condition.value is None:
            return a if condition.span[0] else b
        if condition is None or a is None or b is None:
            return None
        difference = self.combined("arith.muli", condition, self.combined("arith.subi", a, b))
        total = self.combined("arith.addi", b, difference)
        return Number(total.value, (min(a.span[0], b.span[0]), max(a.span[1], b.span[1])))

    # -- values --------------------------------------------------------------------------------------------------------
    def index(self, number: Number) -> Value:
        return emit.constant(number.span[0]) if number.value is None else number.value

    def operation(self, name: str, a: Number, b: Number) -> Value:
        return value_of(name, ir.IndexType.get(), self.index(a), self.index(b))

    def integer(self, number: Number, kind: ir.Type) -> Value:
        """Emit the number as a scalar of an integer type at the insertion point."""
        if number.value is None:
            constant = number.span[0] if kind.width > 1 else int(number.span[0] != 0)
            return emit.constant(constant, kind)
        if kind.width > 1:
            return value_of("arith.index_cast", kind, number.value)
        return emit.compared("ne", number.value, emit.constant(0))
