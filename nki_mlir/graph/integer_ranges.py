# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The (least, greatest) values of integer tensors of a StableHLO graph, and of floats that are bounded by constants.

A range describes the exact result of an operation. If that leaves the type, the operation wraps, and the range is the
type's. Values of loops, branches and folds have the ranges of their initial values only if the body keeps these.
"""

from collections.abc import Callable, Sequence
from math import inf, isfinite, isnan, prod

import numpy as np

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Block, Module, Operation, Type, Value, ir
from nki_mlir.dialects.creation import terminator
from nki_mlir.graph.upstream import public_function

Span = tuple[int, int]
Range = tuple[float, float] | Span
REGISTER = 32                       # bits of the integers that engines compute
ATTEMPTS = 4                        # most attempts to find ranges that the body of a loop keeps
DEPTH = 6                           # operations between a condition's operand and a selected value
FLOATS = {"f64": (53, 2.0 ** 1023), "f32": (24, 2.0 ** 127), "bf16": (8, 2.0 ** 127), "f16": (11, 2.0 ** 15)}
# bits of the fraction, and a number that no rounding makes infinite
MOVED = frozenset({"reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "gather", "dynamic_slice",
                   "dynamic_broadcast_in_dim", "dynamic_reshape", "real_dynamic_slice"})    # the first operand, moved
JOINED = frozenset({"concatenate", "pad", "dynamic_update_slice"})
FOLDS = frozenset({"reduce", "reduce_window", "scatter"})
OPPOSITE = {"LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE", "EQ": "NE", "NE": "EQ"}
MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


# -- types -------------------------------------------------------------------------------------------------------------
def integer_type(value: Value) -> ir.IntegerType | None:
    """Return the type of a tensor's elements if these are integers."""
    kind = value.type
    element = ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else None
    return element if isinstance(element, ir.IntegerType) else None


def is_wide(value: Value) -> bool:
    """Return whether a value is a tensor of 64-bit integers."""
    kind = integer_type(value)
    return kind is not None and kind.width == 64


def limits_of(kind: ir.IntegerType, bits: int = 0) -> Span:
    """Return the (least, greatest) number of an integer type, or of one of the same kind with other ``bits``."""
    bits = bits or kind.width
    if bits == 1:
        return 0, 1
    return (0, (1 << bits) - 1) if kind.is_unsigned else (-1 << bits - 1, (1 << bits - 1) - 1)


def argument_range(kind: ir.IntegerType) -> Span:
    """Return the range that callers check 64-bit arguments for: numbers whose negatives, and whose sums and differences
    of two, fit 32 bits."""
    least, most = limits_of(kind, REGISTER - 1)
    return max(least, -most), most


def joined(*spans: Range) -> Range:
    return min(s[0] for s in spans), max(s[1] for s in spans)


def clamped(low: Range, value: Range, high: Range) -> Range:
    """Return the range of clamped numbers; the upper limit applies last, if it is below the lower one."""
    return min(max(value[0], low[0]), high[0]), min(max(value[1], low[1]), high[1])


def within(span: Range | None, limits: Range | None) -> bool:
    return limits is None or (span is not None and limits[0] <= span[0] and span[1] <= limits[1])


def widened(span: Range | None, end: Range | None, kind: ir.IntegerType | None) -> Range | None:
    """Return a range whose ends that an iteration moved are those of the type."""
    if span is None or end is None or kind is None:
        return None
    least, most = limits_of(kind)
    return span[0] if span[0] <= end[0] else least, span[1] if end[1] <= span[1] else most


def restricted(span: Range | None, direction: str, limit: Range | None) -> Span | None:
    """Return the range of an integer that compares with another one in this way; None if that restricts nothing."""
    if span is None or limit is None:
        return None
    low, high = span
    match direction:
        case "LT" | "LE":
            high = min(high, limit[1] - (direction == "LT"))
        case "GT" | "GE":
            low = max(low, limit[0] + (direction == "GT"))
        case "EQ":
            low, high = max(low, limit[0]), min(high, limit[1])
    return (int(low), int(high)) if low <= high and (low, high) != span else None


def constant_range(attribute: ir.Attribute) -> Range | None:
    """Return the least and the greatest number of a constant; None for NaN and for constants that are not in the text.
    """
    if not isinstance(attribute, ir.DenseElementsAttr):
        return None
    if attribute.is_splat:
        splat = attribute.get_splat_value()
        if isinstance(splat, ir.FloatAttr):
            return None if isnan(splat.value) else (splat.value, splat.value)
        kind = ir.RankedTensorType(attribute.type).element_type
        if not isinstance(kind, ir.IntegerType):
            return None
        number = ir.IntegerAttr(splat).value
        number &= (1 << kind.width) - 1
        return (number, number) if kind.is_unsigned or kind.width == 1 or number < 1 << kind.width - 1 else (
            number - (1 << kind.width), number - (1 << kind.width))
    if not isinstance(attribute, ir.DenseIntElementsAttr):
        return None
    kind = ir.RankedTensorType(attribute.type).element_type
    numbers = np.array(attribute) if kind.width in (8, 16, 32, 64) else np.array([0, 1])
    return (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)


def direction_of(op: Operation) -> str:
    text = str(op.attributes["comparison_direction"])
    return next(d for d in OPPOSITE if d in text)


# -- operations on ranges ----------------------------------------------------------------------------------------------
def corners(fn: Callable[[int, int], int], a: Span, b: Span) -> Span:
    numbers = [fn(x, y) for x in a for y in b]
    return min(numbers), max(numbers)


def bitwise(name: str, a: Span, b: Span) -> Span:
    bits = max(abs(n + (n < 0)).bit_length() for n in (*a, *b))
    if name == "and" and max(a[0], b[0]) >= 0:
        return 0, min(s[1] for s in (a, b) if s[0] >= 0)
    return 0 if min(a[0], b[0]) >= 0 else -1 << bits, (1 << bits) - 1


def divided(a: Span, b: Span) -> Span:
    """Return the range of quotients, rounded towards 0; a division by zero gives -1, all bits of an integer."""
    if b[0] > 0 or b[1] < 0:
        return corners(lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), a, b)
    most = max(abs(a[0]), abs(a[1]), 1)
    return -most, most


def remaining(a: Span, b: Span) -> Span:
    """Return the range of remainders, which have the sign of ``a``; that of a division by zero is ``a``."""
    most = max(abs(a[0]), abs(a[1]))
    if not b[0] <= 0 <= b[1]:
        most = min(most, max(abs(b[0]), abs(b[1])) - 1)
    return max(-most, min(a[0], 0)), min(most, max(a[1], 0))


def remainder_by(op: Operation) -> Value | None:
    """Return ``b`` of a difference a - a / b * b, None for another one."""
    product = defining(op.operands[1])
    if product is None or product.name != "stablehlo.multiply":
        return None
    for quotient, b in (tuple(product.operands), tuple(product.operands)[::-1]):
        ratio = defining(quotient)
        if ratio is not None and ratio.name == "stablehlo.divide" and list(ratio.operands) == [op.operands[0], b]:
            return b
    return None


def shifted(name: str, a: Span, by: Span, bits: int, is_unsigned: bool = False) -> Span | None:
    """Return the range of shifted integers; None if it is unknown. An arithmetic shift repeats the highest bit of an
    unsigned integer as well."""
    if by[0] < 0 or (is_unsigned and name == "shift_right_arithmetic" and a[1] >> (bits - 1)):
        return None
    least, most = min(by[0], bits), min(by[1], bits)
    if name == "shift_left":
        return corners(lambda x, n: x << n, a, (least, most)) if most < bits else None
    if name == "shift_right_logical" and a[0] < 0:
        return None
    return corners(lambda x, n: x >> n, a, (least, most))


def converted(span: Range | None, source: Type, result: Type) -> Range | None:
    """Return the range of converted or rounded numbers; None if it is unknown. A conversion of floats to integers
    rounds towards 0, and NaN becomes 0."""
    element = ir.RankedTensorType(result).element_type
    if span is None or not all(isfinite(n) for n in span):
        return None
    if isinstance(element, ir.IntegerType):
        ends = (0, 1) if element.width == 1 else (int(span[0]), int(span[1]))
        return joined((0, 0), ends) if isinstance(ir.RankedTensorType(source).element_type, ir.FloatType) else ends
    if str(element) not in FLOATS:
        return None
    bits, most = FLOATS[str(element)]
    low, high = (1 + abs(n) * 2.0 ** (1 - bits) for n in span)
    return (span[0] - low, span[1] + high) if max(-span[0] + low, span[1] + high) < most else None


BINARY: dict[str, Callable[[Span, Span], Span]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": lambda a, b: corners(lambda x, y: x * y, a, b),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "divide": divided,
    "remainder": remaining,
}
UNARY: dict[str, Callable[[Span], Span]] = {
    "negate": lambda a: (-a[1], -a[0]),
    "not": lambda a: (~a[1], ~a[0]),
    "sign": lambda a: (max(-1, min(a[0], 1)), max(-1, min(a[1], 1))),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))),
}
ON_FLOATS = ("minimum", "maximum", "clamp", "floor", "ceil", "round_nearest_even", "round_nearest_afz", "select",
             "constant", "convert")


class IntegerRanges:
    """The ranges of the values of a module whose one function has no calls.

    ``narrow`` says whether callers pass 64-bit arguments of the function as 32-bit ones (``argument_range``).
    """

    def __init__(self, module: Module, narrow: bool) -> None:
        self.ranges: dict[Value, Range] = {}
        block = public_function(module).regions[0].blocks[0]
        for argument in block.arguments:
            kind = integer_type(argument)
            if kind is not None:
                self.ranges[argument] = argument_range(kind) if narrow and kind.width == 64 else limits_of(kind)
        self.block(block)

    def block(self, block: Block) -> None:
        for entry in block.operations:
            self.operation(entry.operation)

    def range(self, value: Value) -> Range | None:
        """Return the range of a value; None for floats without bounds."""
        kind = integer_type(value)
        return self.ranges.get(value, limits_of(kind) if kind is not None else None)

    def fits(self, value: Value, bits: int = REGISTER) -> bool:
        """Return whether all integers of a value fit a type of the same kind with ``bits``."""
        kind, span = integer_type(value), self.range(value)
        if kind is None or span is None:
            return False
        least, most = limits_of(kind, bits)
        return least <= span[0] and span[1] <= most

    def put(self, value: Value, span: Range | None) -> None:
        kind = integer_type(value)
        if span is None:
            self.ranges.pop(value, None)
        elif kind is None:
            self.ranges[value] = span
        else:
            least, most = limits_of(kind)
            self.ranges[value] = span if least <= span[0] and span[1] <= most else (least, most)

    # -- operations ----------------------------------------------------------------------------------------------------
    def operation(self, op: Operation) -> None:
        name = op.name.removeprefix("arith." if op.name == "arith.constant" else "stablehlo.")
        if name == "while":
            return self.loop(op)
        if name in ("if", "case"):
            return self.branches(op)
        if name in FOLDS:
            return self.fold(op)
        if len(op.regions):                                         # sort, map, select_and_scatter
            for region in op.regions:
                for k, argument in enumerate(region.blocks[0].arguments):
                    self.put(argument, self.range(op.operands[k // 2]) if name == "sort" else None)
                self.block(region.blocks[0])
            if name == "sort":
                for operand, result in zip(op.operands, op.results):
                    self.put(result, self.range(operand))
            return None
        if len(op.results) == 1 and isinstance(op.results[0].type, ir.RankedTensorType):
            self.put(op.results[0], self.result(op, name, self.range))
        return None

    def result(self, op: Operation, name: str, range_of: Callable[[Value], Range | None]) -> Range | None:
        """Return the range of an operation's result from those of its operands; None if it is unknown."""
        kind = integer_type(op.results[0])
        if kind is None and name not in (*ON_FLOATS, *MOVED, *JOINED):
            return None
        if name == "constant":
            return constant_range(op.attributes["value"])
        if name in ("iota", "dynamic_iota"):
            shape = ir.RankedTensorType(op.results[0].type).shape
            return 0, max(0, shape[op.attributes["iota_dimension"].value] - 1)
        spans = [range_of(v) for v in op.operands]
        if name in MOVED:
            return spans[0]
        if name in ("convert", "floor", "ceil", "round_nearest_even", "round_nearest_afz"):
            return converted(spans[0], op.operands[0].type, op.results[0].type)
        if name == "compare":
            return 0, 1
        if name == "select":
            return self.selected(op, spans)
        if None in spans:
            return self.bounded(name, spans)
        ranges: list[Span] = spans                                                   # type: ignore[assignment]
        if name in JOINED:
            return joined(*(ranges[:2] if name == "dynamic_update_slice" else ranges))
        if name == "clamp":
            return clamped(*ranges)
        if kind is None:
            return BINARY[name](*ranges) if name in ("minimum", "maximum") else None
        if name in ("and", "or", "xor"):
            return bitwise(name, *ranges)
        if name.startswith("shift_"):
            return shifted(name, ranges[0], ranges[1], kind.width, kind.is_unsigned)
        if name == "not" and kind.is_unsigned:
            most = limits_of(kind)[1]
            return most - ranges[0][1], most - ranges[0][0]
        if name == "subtract" and (divisor := remainder_by(op)) is not None and (by := range_of(divisor)) is not None:
            return remaining(ranges[0], (int(by[0]), int(by[1])))
        if name in BINARY:
            return BINARY[name](*ranges)
        return UNARY[name](*ranges) if name in UNARY else None

    @staticmethod
    def bounded(name: str, spans: Sequence[Range | None]) -> Range | None:
        """Return the range of floats of which constants bound those without a range."""
        if name not in ("minimum", "maximum", "clamp"):
            return None
        a, b, *c = (span or (-inf, inf) for span in spans)
        if name == "clamp":
            return clamped(a, b, *c)
        choose = min if name == "minimum" else max
        return choose(a[0], b[0]), choose(a[1], b[1])

    # -- choices -------------------------------------------------------------------------------------------------------
    def selected(self, op: Operation, spans: Sequence[Range | None]) -> Range | None:
        """Return the range of a selection. Where the condition compares an integer with others, it bounds that integer
        in both values."""
        if spans[1] is None or spans[2] is None:
            return None
        ends = [spans[1], spans[2]]
        compare = defining(op.operands[0])
        if compare is not None and compare.name == "stablehlo.compare" and integer_type(compare.operands[0]):
            direction = direction_of(compare)
            for number, holds in enumerate((direction, OPPOSITE[direction])):
                for (x, limit), way in ((tuple(compare.operands), holds),
                                        (tuple(compare.operands)[::-1], MIRRORED[holds])):
                    bounds = restricted(self.range(x), way, self.range(limit))
                    span = self.range_where(op.operands[1 + number], x, bounds, DEPTH) if bounds is not None else None
                    if span is not None:
                        ends[number] = max(span[0], ends[number][0]), min(span[1], ends[number][1])
        return joined(*ends)

    def range_where(self, value: Value, compared: Value, span: Span, depth: int) -> Range | None:
        """Return the range of a value at the elements where ``compared``, a value of the same shape, is in ``span``."""
        if value == compared:
            return span
        op = defining(value)
        name = op.name.removeprefix("stablehlo.") if op is not None else ""
        kind = integer_type(value)
        if op is None or kind is None or depth == 0 or name not in (*BINARY, *UNARY, "convert", "and", "or", "xor"):
            return self.range(value)
        narrowed = self.result(op, name, lambda v: self.range_where(v, compared, span, depth - 1))
        return narrowed if within(narrowed, limits_of(kind)) else self.range(value)

    # -- regions -------------------------------------------------------------------------------------------------------
    def branches(self, op: Operation) -> None:
        ends = []
        for region in op.regions:
            self.block(region.blocks[0])
            ends.append([self.range(v) for v in terminator(region.blocks[0]).operands])
        for result, spans in zip(op.results, zip(*ends)):
            self.put(result, None if None in spans else joined(*spans))

    def loop(self, op: Operation) -> None:
        """Find ranges of carried values that the body keeps. An end that the body moves is that of the type, unless
        the loop's condition limits it."""
        starts = [self.range(v) for v in op.operands]
        spans = list(starts)
        for _ in range(ATTEMPTS):
            ends = self.iteration(op, spans)
            stable = [within(end, span) for end, span in zip(ends, spans)]
            if all(stable):
                break
            spans = [span if is_stable else widened(span, end, integer_type(value))
                     for span, end, is_stable, value in zip(spans, ends, stable, op.operands)]
        else:
            ends = self.iteration(op, [None] * len(starts))
        after = [None if a is None or b is None else joined(a, b) for a, b in zip(starts, ends)]
        ends = self.iteration(op, after)
        for result, a, b in zip(op.results, starts, ends):
            self.put(result, None if a is None or b is None else joined(a, b))

    def iteration(self, op: Operation, spans: Sequence[Range | None]) -> list[Range | None]:
        """Find the ranges of an iteration whose carried values have ``spans``; return those after it."""
        condition, body = (region.blocks[0] for region in op.regions)
        for block in (condition, body):
            for argument, span in zip(block.arguments, spans):
                self.put(argument, span)
        self.block(condition)
        compare = defining(terminator(condition).operands[0])
        if compare is not None and compare.name == "stablehlo.compare":
            counted, limit = compare.operands
            if isinstance(counted.owner, ir.Block) and counted.owner == condition and integer_type(counted):
                bounds = restricted(self.range(counted), direction_of(compare), self.range(limit))
                if bounds is not None:
                    self.put(body.arguments[ir.BlockArgument(counted).arg_number], bounds)
        self.block(body)
        return [self.range(v) for v in terminator(body).operands]

    def fold(self, op: Operation) -> None:
        """Find the ranges of a fold's results: a sum has all of its terms, other bodies keep ranges or do not."""
        block, count = op.regions[0].blocks[0], len(op.results)
        inner = [entry.operation for entry in block.operations]
        terms = self.terms(op)
        starts = [self.range(v) for v in op.operands]
        news = starts[count + 1:] if op.name == "stablehlo.scatter" else starts[count:]
        is_sum = inner[0].name == "stablehlo.add" and len(inner) == 2 and {*inner[0].operands} == {*block.arguments}
        if is_sum and starts[0] is not None and news[0] is not None:
            first, each = (starts[0], news[0]) if op.name == "stablehlo.scatter" else (news[0], starts[0])
            sums = first[0] + terms * min(each[0], 0), first[1] + terms * max(each[1], 0)
            self.put(block.arguments[0], sums)
            self.put(block.arguments[1], sums)
            self.block(block)
            return self.put(op.results[0], sums)
        spans = [None if a is None or b is None else joined(a, b) for a, b in zip(starts, news)]
        for attempt in (spans, [None] * count):
            for number, span in enumerate(attempt):
                self.put(block.arguments[number], span)
                self.put(block.arguments[count + number], span)
            self.block(block)
            ends = [self.range(v) for v in terminator(block).operands]
            if all(within(end, span) for end, span in zip(ends, attempt)):
                for result, span in zip(op.results, attempt):
                    self.put(result, span)
                return None
        return None

    @staticmethod
    def terms(op: Operation) -> int:
        """Return how many elements a fold combines at most for one element of its result."""
        shape = list(ir.RankedTensorType(op.operands[0].type).shape)
        if op.name == "stablehlo.reduce":
            return prod(shape[d] for d in op.attributes["dimensions"])
        if op.name == "stablehlo.scatter":
            return prod(ir.RankedTensorType(op.operands[len(op.operands) - 1].type).shape)
        return prod(op.attributes["window_dimensions"])
