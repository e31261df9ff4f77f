# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes the ranges of index values: loop variables, program ids, loaded numbers, and values computed from them."""

from collections.abc import Callable, Sequence

from nki_mlir.bindings import Operation, Type, Value, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Linear, Ranges
from nki_mlir.dialects.attributes import MalformedAttribute, read_linear, read_value
from nki_mlir.dialects.enclosing_conditions import Numbering, enclosing_facts, integer_constant, interval_given
from nki_mlir.dialects.verifier import Interval, OutOfBounds

Span = tuple[int, int]
CASTS = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui")
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b,
    "arith.maxsi": max, "arith.minsi": min}


class UnknownSymbol(NkiMlirError):
    code = "NKI-SYMBOL"
    message = ("a symbol operand of '{op}' is neither a loop variable with constant bounds nor a program id nor a "
               "loaded number")
    fix = "use the induction variable of an scf.for with constant bounds, or an argument with nki.program_id"


def symbol_range(value: Value, op: Operation | None = None) -> tuple[int, int]:
    """Return the least and the greatest value of a loop variable, a program id, a loaded number, or a value computed
    from these."""
    span = _range(value, {})
    if span is None:
        raise UnknownSymbol(op=op.name if op is not None else "?")
    return span


def _range(value: Value, memo: dict[Value, Span | None]) -> tuple[int, int] | None:
    """Return the range of a value. ``memo`` has the values whose visit has begun: a verifier sees IR with cyclic
    values."""
    if value not in memo:
        memo[value] = None
        memo[value] = _range_of_definition(value, memo)
    return memo[value]


def _range_of_definition(value: Value, memo: dict[Value, Span | None]) -> tuple[int, int] | None:
    owner = value.owner
    if isinstance(owner, ir.Block):
        holder = owner.owner.operation      # an OpView has other names
        position = ir.BlockArgument(value).arg_number
        if holder.name == "scf.for" and position == 0:
            values = loop_span(holder)
            return (values[0], values[-1]) if values else (0, 0) if values is not None else None
        if holder.name == "func.func" and owner == holder.regions[0].blocks[0]:
            return _program_range(holder, position)
        return None
    if (number := integer_constant(value)) is not None:
        return number, number
    operation = owner.operation
    if operation.name == "memref.load":
        return range_of_type(value.type)
    ranges = [span for v in operation.operands if (span := _range(v, memo)) is not None]
    if len(ranges) < len(operation.operands):
        return None
    if operation.name == "affine.apply" and "map" in operation.attributes:
        return affine_range(operation.attributes["map"].value, ranges)
    if operation.name == "arith.cmpi":
        return 0, 1
    if operation.name in CASTS and len(ranges) == 1:
        return _cast_range(operation, ranges[0])
    if operation.name in ARITHMETIC and len(ranges) == 2:
        corners = [ARITHMETIC[operation.name](a, b) for a in ranges[0] for b in ranges[1]]
        ends = min(corners), max(corners)
        return ends if _fits(ends, value.type) else None
    return None


def range_of_type(kind: Type) -> Span | None:
    """Return the range of an integer type (0 and 1 for ``i1``); None for another type."""
    if not isinstance(kind, ir.IntegerType):
        return None
    signed = not kind.is_unsigned and kind.width > 1
    return (-1 << kind.width - 1, (1 << kind.width - 1) - 1) if signed else (0, (1 << kind.width) - 1)


def _cast_range(operation: Operation, span: Span) -> Span | None:
    """Return the range of a cast that keeps the number; None if it narrows the type or reads the sign as a digit."""
    truth = range_of_type(operation.operands[0].type) == (0, 1)
    by_sign = operation.name in ("arith.index_cast", "arith.extsi")
    keeps = not truth if by_sign else span[0] >= 0
    return span if keeps and _fits(span, operation.results[0].type) else None


def _fits(span: Span, kind: Type) -> bool:
    limits = range_of_type(kind)
    return limits is None or (limits[0] <= span[0] and span[1] <= limits[1])


def affine_range(mapping: ir.AffineMap, ranges: Sequence[Span]) -> tuple[int, int] | None:
    """Return the interval of a one-result affine map of symbols or dims, with ``floordiv`` and ``mod`` by constants."""
    if len(mapping.results) != 1 or mapping.n_inputs != len(ranges):
        return None
    try:
        return _expression_range(mapping.results[0], ranges, mapping.n_dims)
    except MalformedAttribute:
        return None


def _expression_range(e: ir.AffineExpr, ranges: Sequence[Span], dims: int) -> tuple[int, int]:
    """Return the interval of an expression; raise ``MalformedAttribute`` for one that is not understood."""
    try:
        form = read_linear(e)
    except MalformedAttribute:
        return _curved_range(e, ranges, dims)
    symbols = tuple((position + dims, c) for position, c in form.symbols) + form.axes
    return Linear(form.const, symbols).interval(tuple(ranges))


def _curved_range(expression: ir.AffineExpr, ranges: Sequence[Span], dims: int) -> tuple[int, int]:
    """Return the interval of an expression that is not linear: with quotients and remainders in it."""
    if isinstance(expression, ir.AffineModExpr | ir.AffineFloorDivExpr):
        divisor = read_linear(expression.rhs)
        if divisor.symbols or divisor.axes or divisor.const <= 0:
            raise MalformedAttribute(f"'{expression}' does not divide by a positive constant")
        low, high = _expression_range(expression.lhs, ranges, dims)
        if isinstance(expression, ir.AffineFloorDivExpr):
            return low // divisor.const, high // divisor.const
        return (low, high) if 0 <= low and high < divisor.const else (0, divisor.const - 1)
    if not isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        raise MalformedAttribute(f"'{expression}' is not a sum, product, quotient or remainder")
    sides = [_expression_range(side, ranges, dims) for side in (expression.lhs, expression.rhs)]
    combine = ARITHMETIC["arith.addi" if isinstance(expression, ir.AffineAddExpr) else "arith.muli"]
    corners = [combine(a, b) for a in sides[0] for b in sides[1]]
    return min(corners), max(corners)


def loop_span(loop: Operation) -> range | None:
    """Return the iteration values of an ``scf.for`` with constant bounds; None if they are dynamic."""
    low, high, step = (integer_constant(value) for value in list(loop.operands)[:3])
    return range(low, high, step) if low is not None and high is not None and step is not None and step > 0 else None


def _program_range(function: Operation, position: int) -> tuple[int, int] | None:
    attributes = function.attributes
    if "arg_attrs" not in attributes or "nki.grid" not in attributes:
        return None
    marks = attributes["arg_attrs"][position]
    if "nki.program_id" not in marks:
        return None
    try:
        grid, axis = read_value(attributes["nki.grid"], tuple), read_value(marks["nki.program_id"], int)
    except MalformedAttribute:
        return None
    return (0, grid[axis] - 1) if 0 <= axis < len(grid) else None


def check_bounds(operation: Operation, symbols: Sequence[Value], ranges: Ranges, check: Callable[[Interval], None]
                 ) -> None:
    """Check bounds by the ranges of an operation's symbols and, if need be, by the conditions of
    enclosing ``scf.if``."""
    try:
        check(lambda form: form.interval(ranges))
    except OutOfBounds:
        numbering = Numbering(symbols)
        facts = enclosing_facts(operation, numbering)
        if not facts:
            raise
        spans = ranges_of(operation, numbering.values)
        check(lambda form: interval_given(form, facts, spans))


def ranges_of(operation: Operation, symbols: Sequence[Value]) -> Ranges:
    return tuple(symbol_range(s, operation) for s in symbols)
