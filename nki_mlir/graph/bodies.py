# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bodies of a graph's operations, in ``arith`` and ``math``, as expressions of the functions that engines have.

Floats narrower than 32 bits are computed in float32 and rounded after every operation, integers in int32 and wrapped.
A truth value is a bool; as an operand it is the number 0 or 1.
"""

from collections.abc import Callable
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.places import place_of
from nki_mlir.scalar.dtypes import BOOL, BY_MLIR, FLOAT32, INT32, DType
from nki_mlir.waist.expressions import (
    Activation,
    Alu,
    BodyReader,
    Constant,
    Convert,
    Input,
    Node,
    Position,
    alu,
    converted,
    rebuilt,
)

ALU_OF = {"addf": "add", "subf": "subtract", "mulf": "multiply", "divf": "divide", "negf": "negative",
          "remf": "fmod", "maximumf": "maximum", "minimumf": "minimum", "maxnumf": "maximum", "minnumf": "minimum",
          "absf": "abs", "powf": "power", "addi": "add", "subi": "subtract", "muli": "multiply", "andi": "bitwise_and",
          "ori": "bitwise_or", "xori": "bitwise_xor", "absi": "abs",
          "shli": "left_shift", "shrui": "right_shift", "shrsi": "arith_shift_right"}
ACTIVATION_OF = {"atan": "arctan", "sin": "sin_reduced", **{name: name for name in (
    "exp", "log", "cos", "tan", "tanh", "erf", "sqrt", "rsqrt", "floor", "ceil", "trunc")}}
FLOAT_PREDICATES = {1: "equal", 2: "greater", 3: "greater_equal", 4: "less", 5: "less_equal", 13: "not_equal"}
NEGATED_PREDICATES = {9: "less_equal", 10: "less", 11: "greater_equal", 12: "greater"}
ORDERED_UNEQUAL, ORDERED, UNORDERED_EQUAL, UNORDERED = 6, 7, 8, 14
INTEGER_PREDICATES = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
EXTREMES = {"maxsi": "greater", "minsi": "less", "maxui": "greater", "minui": "less"}
LOGIC = {"andi": "minimum", "ori": "maximum", "xori": "not_equal"}          # of truth values, as numbers
HALFWAY = 12582912.0            # 1.5 * 2^23: adding it rounds a float32 to an integer
LEAST = -(1 << 31)
GATHERED = -1000                # inputs from here down are gathered elements


def numbers(value: float, dtype: DType) -> Constant:
    return Constant(dtype, float(value) if dtype.is_float else int(value))


def not_zero(value: Node) -> Node:
    """A number as a truth value."""
    return converted(alu("not_equal", value, numbers(0, value.dtype)), BOOL)


def chosen(condition: Node, on_true: Node, on_false: Node) -> Node:
    return alu("select", converted(condition, on_true.dtype), on_true, on_false)


def unsigned(value: Node, bits: int) -> Node:
    """The int32 that holds an integer's bits as a number without sign; of 32 bits, as the bits are."""
    wide = converted(value, INT32)
    return wide if bits >= 32 or value.dtype is BOOL else alu("bitwise_and", wide, numbers((1 << bits) - 1, INT32))


def wrapped(value: Node, dtype: DType) -> Node:
    """An int32 as an integer of fewer bits: the low ones."""
    if dtype is INT32:
        return value
    if dtype is BOOL:
        return not_zero(alu("bitwise_and", value, numbers(1, INT32)))
    sign = numbers(1 << (dtype.bits - 1), INT32)
    low = alu("bitwise_and", value, numbers((1 << dtype.bits) - 1, INT32))
    return converted(alu("subtract", alu("bitwise_xor", low, sign), sign), dtype)


class GraphBody(BodyReader):
    """Reads a body. ``loads`` are elements of buffers that it reads itself: the buffer and linear subscripts."""

    def __init__(self, block: Any, inputs: int) -> None:
        super().__init__(block, inputs)
        self.loads: list[tuple[Any, list[Linear]]] = []
        self.gathers: list[tuple[Any, Node, list[Linear]]] = []     # the buffer, its row, the other subscripts

    def _read(self, value: Any) -> Node:
        if isinstance(value.owner, ir.Block):
            return super()._read(value)
        op = value.owner.operation
        dialect, _, name = op.name.partition(".")
        if op.name == "memref.load":
            return self.loaded(op)
        if dialect not in ("arith", "math") or name in ("constant", "index_cast"):
            if name == "constant" and str(value.type) == "i1":
                return Constant(BOOL, int(op.attributes["value"].value))
            return super()._read(value)
        for kind in (value.type, *(v.type for v in op.operands)):
            if str(kind) not in BY_MLIR or BY_MLIR[str(kind)].bits > 32:
                raise refused(op, f"'{op.name}' on {kind}")
        result, operands = BY_MLIR[str(value.type)], [self.value(v) for v in op.operands]
        return self.arithmetic(op, name, result, operands)

    def arithmetic(self, op: Any, name: str, result: DType, operands: list[Node]) -> Node:
        bits = operands[0].dtype.bits
        match name:
            case "select":
                return chosen(*operands)
            case "cmpf" | "cmpi":
                return comparison(op, name, operands)
            case "extf" | "truncf" | "sitofp" if operands[0].dtype is not BOOL:
                return converted(operands[0], result)
            case "extsi" if operands[0].dtype is not BOOL:
                return converted(operands[0], result)
            case "extsi" | "sitofp":                            # of a truth value: all bits
                return converted(alu("negative", converted(operands[0], INT32)), result)
            case "extui":
                return converted(unsigned(operands[0], bits), result)
            case "trunci":
                return wrapped(converted(operands[0], INT32), result)
            case "uitofp":
                number = converted(unsigned(operands[0], bits), FLOAT32)
                if bits == 32:
                    above = alu("add", number, numbers(2.0 ** 32, FLOAT32))
                    number = chosen(alu("less", number, numbers(0, FLOAT32)), above, number)
                return converted(number, result)
            case "fptosi" | "fptoui":
                whole = Activation(FLOAT32, "trunc", converted(operands[0], FLOAT32))
                if name == "fptoui" and result.bits == 32:
                    above = converted(alu("subtract", whole, numbers(2.0 ** 32, FLOAT32)), INT32)
                    return chosen(alu("less", whole, numbers(2.0 ** 31, FLOAT32)), converted(whole, INT32), above)
                return wrapped(converted(whole, INT32), result)
        if result.is_float:
            computed = floating(op, name, [converted(v, FLOAT32) for v in operands])
        elif result is BOOL and name in LOGIC:
            computed = alu(LOGIC[name], *(converted(v, FLOAT32) for v in operands))
        elif name in EXTREMES:
            if name.endswith("si"):
                return converted(alu(f"{name[:3]}imum", *(converted(v, INT32) for v in operands)), result)
            return chosen(compared(EXTREMES[name], *(flipped(unsigned(v, bits), bits) for v in operands)), *operands)
        elif name in ALU_OF:
            exact = name in ("andi", "ori", "xori")
            operands = [unsigned(v, bits) if name == "shrui" else converted(v, INT32) for v in operands]
            computed = alu(ALU_OF[name], *operands)
            return converted(computed, result) if exact else wrapped(computed, result)
        elif name in ("divsi", "remsi") or (name in ("divui", "remui") and bits < 32):
            quotient, remainder = divided(*(
                unsigned(v, bits) if name.endswith("ui") else converted(v, INT32) for v in operands))
            return wrapped(quotient if name.startswith("div") else remainder, result)
        else:
            raise refused(op, f"'{op.name}'")
        return converted(computed, result)

    def loaded(self, op: Any) -> Node:
        """An element of a buffer as one more input: at linear subscripts, or in a row that is computed from data."""
        dtype, (first, *rest) = BY_MLIR[str(op.results[0].type)], [*list(op.operands)[1:], None]
        try:
            others = [self.form(v) for v in rest[:-1]]
            linear = [self.form(first)] if first is not None else []
        except (Unsupported, ValueError):
            linear = None
        if linear is not None:
            self.loads.append((op.operands[0], [*linear, *others]))
            return Input(dtype, -len(self.loads))
        try:
            row = self.position(first)
            self.gathers.append((op.operands[0], row, [self.form(v) for v in rest[:-1]]))
        except (Unsupported, ValueError):
            raise refused(op, "a subscript that is computed from data, other than the first of a gather") from None
        return Input(dtype, GATHERED - len(self.gathers))

    def position(self, value: Any) -> Node:
        """An index value that is computed from data, as an int32."""
        if isinstance(value.owner, ir.Block):
            raise ValueError
        op = value.owner.operation
        match op.name:
            case "arith.index_cast":
                return converted(self.value(op.operands[0]), INT32)
            case "arith.constant":
                return numbers(op.attributes["value"].value, INT32)
            case "linalg.index":
                return Position(Linear(0, (), ((op.attributes["dim"].value, 1),)))
            case "arith.maxsi" | "arith.minsi" | "arith.addi" | "arith.muli" | "arith.subi":
                name = op.name.partition(".")[2]
                fn = ALU_OF.get(name) or f"{name[:3]}imum"
                return alu(fn, *(self.position(v) for v in op.operands))
        raise ValueError


def refused(op: Any, what: str) -> Unsupported:
    error = Unsupported(feature=f"{what} in the body of a graph's operation as engine instructions",
                        instead="run this program on the CPU")
    place = place_of(op)
    return error.located(place) if place is not None else error         # type: ignore[return-value]


def flipped(value: Node, bits: int) -> Node:
    """Numbers without sign of 32 bits in an order that int32 has."""
    return alu("bitwise_xor", value, numbers(LEAST, INT32)) if bits == 32 else value


def small(value: Node) -> bool:
    """Whether an integer is one that float32 holds: of few bits, a position, or a small number."""
    match value:
        case Constant(value=number):
            return abs(number) <= 1 << 24
        case Convert(value=inner):
            return inner.dtype.is_integer and (inner.dtype.bits <= 16 or small(inner))
        case Alu(fn="bitwise_and", args=(_, Constant(value=number))):
            return 0 <= number <= 1 << 24
    return isinstance(value, Position) or value.dtype.bits <= 16


def compared(fn: str, a: Node, b: Node) -> Node:
    """A comparison of int32 values in float32, exact: the sign of their difference does not get lost in rounding."""
    a, b = converted(a, INT32), converted(b, INT32)
    if small(a) and small(b):
        return converted(alu(fn, converted(a, FLOAT32), converted(b, FLOAT32)), BOOL)

    def difference(part: str, by: int) -> Node:
        return alu("subtract", *(converted(alu(part, v, numbers(by, INT32)), FLOAT32) for v in (a, b)))
    total = alu("add", alu("multiply", difference("arith_shift_right", 16), numbers(65536, FLOAT32)),
                difference("bitwise_and", 65535))
    return converted(alu(fn, total, numbers(0, FLOAT32)), BOOL)


def with_exact_extremes(node: Node) -> Node:
    """The expression with extremes of integers, which engines compute in float32, as comparisons and choices."""
    def change(one: Node) -> Node | None:
        if isinstance(one, Alu) and one.fn in ("maximum", "minimum") and one.dtype is INT32:
            a, b = map(with_exact_extremes, one.args)
            return chosen(compared("greater" if one.fn == "maximum" else "less", a, b), a, b)
        return None
    return rebuilt(node, change)


def divided(a: Node, b: Node) -> tuple[Node, Node]:
    """Quotient and remainder of int32 values, rounded towards 0: by float32, with what that leaves divided again."""
    zero = numbers(0, INT32)

    def quotient(x: Node) -> Node:
        ratio = alu("divide", converted(x, FLOAT32), converted(b, FLOAT32))
        return converted(Activation(FLOAT32, "trunc", ratio), INT32)

    def rest(q: Node) -> Node:
        return alu("subtract", a, alu("multiply", q, b))

    def sign(x: Node) -> Node:
        return chosen(compared("less", x, zero), numbers(-1, INT32), numbers(1, INT32))
    first = quotient(a)
    whole = alu("add", first, quotient(rest(first)))
    left = rest(whole)
    wrong = converted(alu("logical_and", converted(compared("not_equal", left, zero), FLOAT32), converted(
        compared("less", alu("multiply", sign(left), sign(a)), zero), FLOAT32)), BOOL)
    step = alu("multiply", sign(a), sign(b))
    return (alu("subtract", whole, chosen(wrong, step, zero)),
            alu("add", left, chosen(wrong, alu("multiply", step, b), zero)))


def comparison(op: Any, name: str, operands: list[Node]) -> Node:
    """``arith.cmpf`` or ``cmpi`` as an expression whose value is a bool."""
    predicate = op.attributes["predicate"].value
    if name == "cmpf":
        a, b = (converted(v, FLOAT32) for v in operands)
        if predicate in FLOAT_PREDICATES:
            return converted(alu(FLOAT_PREDICATES[predicate], a, b), BOOL)
        if predicate in NEGATED_PREDICATES:
            return converted(alu("logical_not", alu(NEGATED_PREDICATES[predicate], a, b)), BOOL)
        if predicate in (ORDERED_UNEQUAL, UNORDERED_EQUAL):
            positive = alu("logical_or", alu("less", a, b), alu("greater", a, b))
        elif predicate in (ORDERED, UNORDERED):
            positive = alu("logical_and", alu("equal", a, a), alu("equal", b, b))
        else:
            raise refused(op, f"predicate {predicate} of 'arith.cmpf'")
        negated = predicate in (UNORDERED_EQUAL, UNORDERED)
        return converted(alu("logical_not", positive) if negated else positive, BOOL)
    bits = operands[0].dtype.bits
    if predicate > 5:
        operands = [flipped(unsigned(v, bits), bits) for v in operands]
        predicate -= 4
    return compared(INTEGER_PREDICATES[predicate], *operands)


def away_from_zero(value: Node, whole: Node) -> Node:
    """The nearest integer, halves away from zero. Adding a half first would round numbers that are whole already."""
    more = alu("greater_equal", alu("abs", alu("subtract", value, whole)), numbers(0.5, FLOAT32))
    return alu("add", whole, chosen(alu("less", value, numbers(0, FLOAT32)), alu("negative", more), more))


def floating(op: Any, name: str, x: list[Node]) -> Node:
    """A function of float32 values."""
    one = numbers(1, FLOAT32)

    def f(fn: str, value: Node) -> Node:
        return Activation(FLOAT32, fn, value)
    others: dict[str, Callable[[], Node]] = {
        "log1p": lambda: f("log", alu("add", x[0], one)),
        "expm1": lambda: alu("subtract", f("exp", x[0]), one),
        "exp2": lambda: f("exp", alu("multiply", x[0], numbers(0.6931471805599453, FLOAT32))),
        "log2": lambda: alu("multiply", f("log", x[0]), numbers(1.4426950408889634, FLOAT32)),
        "log10": lambda: alu("multiply", f("log", x[0]), numbers(0.4342944819032518, FLOAT32)),
        "fma": lambda: alu("add", alu("multiply", x[0], x[1]), x[2]),
        "sinh": lambda: alu("multiply", alu("subtract", f("exp", x[0]), f("exp", alu("negative", x[0]))), half),
        "cosh": lambda: alu("multiply", alu("add", f("exp", x[0]), f("exp", alu("negative", x[0]))), half),
        "roundeven": lambda: chosen(
            alu("less", alu("abs", x[0]), numbers(2.0 ** 22, FLOAT32)),
            alu("subtract", alu("add", x[0], numbers(HALFWAY, FLOAT32)), numbers(HALFWAY, FLOAT32)), x[0]),
        "round": lambda: away_from_zero(x[0], f("trunc", x[0])),
        "copysign": lambda: chosen(alu("less", x[1], numbers(0, FLOAT32)), alu("negative", alu("abs", x[0])),
                                   alu("abs", x[0]))}
    half = numbers(0.5, FLOAT32)
    if name in ALU_OF:
        return alu(ALU_OF[name], *x)
    if name in ACTIVATION_OF:
        return f(ACTIVATION_OF[name], x[0])
    if name in others:
        return others[name]()
    raise refused(op, f"'{op.name}'")


