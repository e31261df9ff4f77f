# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads operations of a graph on HBM buffers as loop nests, with bodies that use only functions of the engines.

Integers are computed in int32 and wrapped to their type. An unsigned integer is the int32 with its value, or with its
32 bits. A truth value is a bool, and the number 0 or 1 as an operand.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import pi

import numpy as np

from nki_mlir.bindings import Operation, Value, ir
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.access import HBM, Linear, dense, full_tile
from nki_mlir.graph.functions import allocated
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, UINT32, DType, Encoding
from nki_mlir.scalar.predicates import COMPARISONS
from nki_mlir.waist.buffer_views import TileReader
from nki_mlir.waist.expression import (
    Activation,
    Alu,
    Bitcast,
    Constant,
    Convert,
    Input,
    Node,
    Position,
    alu,
    converted,
    forms_of,
    inputs_of,
    rebuilt,
)
from nki_mlir.waist.nest import ExpressionReader, Step
from nki_mlir.waist.nest_reader import GatheredRows
from nki_mlir.waist.tile_operand import TileNest, TileOperand, walked

LOGIC = {"bitwise_and": "minimum", "bitwise_or": "maximum", "bitwise_xor": "not_equal"}  # functions of truth values
EXACT = ("add", "subtract", "multiply", "negative", "abs", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift",
         "right_shift", "arith_shift_right")
INTEGRAL_FROM = 8388608.0  # 2^23: every float32 from here on is integral, and adding it rounds a smaller one
LEAST = -(1 << 31)
SIGNED = {8: INT8, 16: INT16, 32: INT32}


def numbers(value: float, dtype: DType) -> Constant:
    return Constant(dtype, float(value) if dtype.is_float else int(value))


def not_zero(value: Node) -> Node:
    """Return the truth value of a number."""
    return converted(alu("not_equal", value, numbers(0, value.dtype)), BOOL)


def chosen(condition: Node, on_true: Node, on_false: Node) -> Node:
    return alu("select", converted(condition, on_true.dtype), on_true, on_false)


def unsigned(value: Node, bits: int) -> Node:
    """Return an int32 with the value of an unsigned integer of fewer bits, or with the bits of one of 32 bits."""
    wide = converted(value, INT32)
    return wide if bits >= 32 or value.dtype is BOOL else alu("bitwise_and", wide, numbers((1 << bits) - 1, INT32))


def wrapped(value: Node, dtype: DType) -> Node:
    """Return the low bits of an int32 as an integer of the dtype."""
    if dtype is INT32:
        return value
    if dtype is BOOL:
        return not_zero(alu("bitwise_and", value, numbers(1, INT32)))
    return converted(sign_extended(value, dtype.bits), dtype)


def sign_extended(value: Node, bits: int) -> Node:
    """Return the signed number that the low bits of an int32 represent."""
    if bits == 32:
        return value
    sign = numbers(1 << (bits - 1), INT32)
    low = alu("bitwise_and", value, numbers((1 << bits) - 1, INT32))
    return alu("subtract", alu("bitwise_xor", low, sign), sign)


def bitcast(value: Node, frm: DType, to: DType) -> Node:
    """Return the bits of a value in another dtype of the same size."""
    stored, target = (SIGNED[dtype.bits] if dtype.is_integer else dtype for dtype in (frm, to))
    if frm.kind is Encoding.UNSIGNED:
        value = wrapped(value, stored)
    result = value if stored is target else Bitcast(target, value)
    return unsigned(result, to.bits) if to.kind is Encoding.UNSIGNED else result


class EngineExpression(ExpressionReader):
    """Converts the values of a nest of a graph to expressions of functions that engines have.

    Gathered elements become inputs after those of the nest; ``rows`` maps the number of a gather to the row that it
    reads.
    """

    def __init__(self, nest: TileNest) -> None:
        super().__init__(nest)
        self.rows: dict[int, Node] = {}             # number of a gather -> the row that it reads

    def step(self, step: Step) -> Node:
        nest, result = self.nest, step.dtype
        if step.kind in ("constant", "position"):
            value = super().step(step)
            if isinstance(value, Position) and not (value.form.symbols or value.form.axes):
                return numbers(value.form.const, INT32)
            return value
        if step.kind == "gather":
            self.rows[step.number] = converted(self.value(step.operands[0]), INT32)
            return Input(result, len(nest.inputs) + step.number)
        name = step.name or f"scalar.{step.kind}"
        last_dtype = nest.dtype_of(step.operands[-1])
        for dtype in (result, *map(nest.dtype_of, step.operands)):
            if dtype.bits > 32:
                raise refused(f"'{name}' on {dtype.mlir}")
        operands = [self.value(v) for v in step.operands]
        match step.kind:
            case "convert":
                return self.convert(operands[0], last_dtype, result)
            case "bitcast":
                return bitcast(operands[0], last_dtype, result)
            case "wrap":
                return self.wrap(step, operands[0], last_dtype, result)
            case "activation":
                return Activation(result, "sin_reduced" if name == "sin" else name, operands[0])
            case "alu" if name == "select":
                return chosen(*operands)
            case "alu" if last_dtype.is_float:
                return alu(name, *operands)
            case "alu":
                return of_integers(name, last_dtype, operands)
            case "math" if last_dtype.is_float:
                return floating(name, operands)
            case "math" if name == "quotient":
                return quotient_and_remainder(last_dtype, operands)[0]
        raise refused(f"'{name}' on {last_dtype.mlir}")

    @staticmethod
    def convert(value: Node, frm: DType, to: DType) -> Node:
        """Return the value in another dtype, rounded and saturated."""
        if to is BOOL and isinstance(value, Convert) and value.value.dtype is BOOL:
            return value.value
        if frm is UINT32:
            if to is BOOL:
                return not_zero(value)
            if not to.is_float:
                raise refused(f"'scalar.convert' of ui32 to {to.mlir}")
            number = converted(value, FLOAT32)
            above = alu("add", number, numbers(2.0 ** 32, FLOAT32))
            return converted(chosen(alu("less", number, numbers(0, FLOAT32)), above, number), to)
        if to is UINT32 and frm.is_float:
            positive = alu("maximum", converted(value, FLOAT32), numbers(0, FLOAT32))
            above = alu("minimum", alu("subtract", positive, numbers(2.0 ** 32, FLOAT32)), numbers(-1, FLOAT32))
            return chosen(alu("less", positive, numbers(2.0 ** 31, FLOAT32)), converted(positive, INT32),
                          converted(above, INT32))
        return converted(converted(value, to), storage_type(to))

    def wrap(self, step: Step, value: Node, frm: DType, to: DType) -> Node:
        """Return the low bits of an integer."""
        source = self.nest.step(step.operands[0])
        if source is not None and source.kind == "wrap" and frm is not BOOL and to.bits <= frm.bits and (
                self.nest.dtype_of(source.operands[0]) is to):
            return self.value(source.operands[0])
        if frm is BOOL or (to.bits > frm.bits and to.kind is Encoding.SIGNED):
            return converted(value, storage_type(to))
        return unsigned(value, to.bits) if to.kind is Encoding.UNSIGNED else wrapped(converted(value, INT32), to)


def refused(feature: str) -> NkiMlirError:
    return Unsupported(feature=f"{feature} in the body of a graph's operation as engine instructions",
                       instead="run this program on the CPU")


def flipped(value: Node, bits: int) -> Node:
    """Map unsigned 32-bit numbers to int32 in the same order."""
    return alu("bitwise_xor", value, numbers(LEAST, INT32)) if bits == 32 else value


def small(value: Node) -> bool:
    """Return whether float32 can represent an integer: it has few bits, is a position, or is a small constant."""
    if value.dtype.is_integer and value.dtype.bits <= 16:
        return True
    match value:
        case Constant(value=number):
            return abs(number) <= 1 << 24
        case Convert(value=inner):
            return small(inner)
        case Alu(fn="bitwise_and", args=(_, Constant(value=number))):
            return 0 <= number <= 1 << 24
    return isinstance(value, Position)


def has_exact_neighbors(value: Node) -> bool:
    """Return whether a value is an integer that float32 represents together with both of its neighbors. Rounded to
    float32, any other integer stays on its side of such a value."""
    return isinstance(value, Constant) and abs(value.value) < 1 << 24


def compared(fn: str, a: Node, b: Node) -> Node:
    """Compare int32 values exactly in float32, if need be by a difference whose sign survives the rounding."""
    a, b = converted(a, INT32), converted(b, INT32)
    if (small(a) and small(b)) or has_exact_neighbors(a) or has_exact_neighbors(b):
        return converted(alu(fn, converted(a, FLOAT32), converted(b, FLOAT32)), BOOL)

    def difference(part: Callable[[Node], Node]) -> Node:
        return alu("subtract", *(converted(part(v), FLOAT32) for v in (a, b)))
    high = difference(lambda v: alu("bitwise_xor", alu("right_shift", v, numbers(16, INT32)), numbers(1 << 15, INT32)))
    low = difference(lambda v: alu("bitwise_and", v, numbers(65535, INT32)))
    total = alu("add", alu("multiply", high, numbers(65536, FLOAT32)), low)
    return converted(alu(fn, total, numbers(0, FLOAT32)), BOOL)


def clamped(node: Node) -> Node | None:
    """Return a value between two small constants as extremes in float32. They are exact, because rounding moves no
    integer into their range or out of it. Return None for other values."""
    outer = with_bound(node)
    inner = with_bound(outer[1]) if outer is not None else None
    if outer is None or inner is None or outer[0] == inner[0]:
        return None
    result = converted(inner[1], FLOAT32)
    for fn, _, bound in (inner, outer):
        result = alu(fn, result, numbers(bound, FLOAT32))
    return converted(result, INT32)


def with_bound(node: Node) -> tuple[str, Node, float] | None:
    """Return the function, the other operand and the constant of an extreme of int32 with a small constant."""
    if not isinstance(node, Alu) or node.fn not in ("maximum", "minimum") or node.dtype is not INT32:
        return None
    for value, bound in (node.args, node.args[::-1]):
        if isinstance(bound, Constant) and small(bound):
            return node.fn, value, bound.value
    return None


def with_exact_extremes(node: Node) -> Node:
    """Return the expression with extremes of integers, which engines compute in float32, as comparisons and choices."""
    def change(inner: Node) -> Node | None:
        if isinstance(inner, Alu) and inner.fn in ("maximum", "minimum") and inner.dtype is INT32:
            a, b = inner.args
            return chosen(compared("greater" if inner.fn == "maximum" else "less", a, b), a, b)
        return None
    return rebuilt(rebuilt(node, clamped), change)


def divided(a: Node, b: Node) -> tuple[Node, Node]:
    """Return the quotient and the remainder of int32 values, rounded towards 0: divide in float32, then divide the
    remainder that this leaves once more."""
    zero = numbers(0, INT32)

    def quotient(x: Node) -> Node:
        ratio = alu("divide", converted(x, FLOAT32), converted(b, FLOAT32))
        return converted(Activation(FLOAT32, "trunc", ratio), INT32)

    def remainder_of(q: Node) -> Node:
        return alu("subtract", a, alu("multiply", q, b))

    def sign(x: Node) -> Node:
        return chosen(compared("less", x, zero), numbers(-1, INT32), numbers(1, INT32))
    estimate = quotient(a)
    total = alu("add", estimate, quotient(remainder_of(estimate)))
    remainder = remainder_of(total)
    wrong = converted(alu("logical_and", converted(compared("not_equal", remainder, zero), FLOAT32), converted(
        compared("less", alu("multiply", sign(remainder), sign(a)), zero), FLOAT32)), BOOL)
    step = alu("multiply", sign(a), sign(b))
    return (alu("subtract", total, chosen(wrong, step, zero)),
            alu("add", remainder, chosen(wrong, alu("multiply", step, b), zero)))


def quotient_and_remainder(dtype: DType, operands: list[Node]) -> tuple[Node, Node]:
    """Return the quotient, rounded towards 0, and the remainder of integers."""
    a, b = (converted(v, INT32) for v in operands)
    if dtype is UINT32:
        return divided_bits(a, b)
    quotient, remainder = (wrapped(v, storage_type(dtype)) for v in divided(a, b))
    return quotient, remainder


def divided_bits(a: Node, b: Node) -> tuple[Node, Node]:
    """Return the quotient and the remainder of unsigned 32-bit integers: twice the quotient of the half, or one more.
    A divisor from 2^31 on is a negative int32, and divides at most once."""
    zero, one = numbers(0, INT32), numbers(1, INT32)
    is_large = compared("less", b, zero)
    half = divided(alu("right_shift", a, one), chosen(is_large, one, b))[0]
    quotient = chosen(is_large, zero, alu("left_shift", half, one))
    remainder = alu("subtract", a, alu("multiply", quotient, b))
    is_more = compared("greater_equal", flipped(remainder, 32), flipped(b, 32))
    return (alu("add", quotient, chosen(is_more, one, zero)),
            alu("subtract", remainder, chosen(is_more, b, zero)))


def storage_type(dtype: DType) -> DType:
    """Return the type in which the engines store a value of a type."""
    return INT32 if dtype.kind is Encoding.UNSIGNED else dtype


def of_integers(name: str, dtype: DType, operands: list[Node]) -> Node:
    """Return a function of integers of one type, or of truth values."""
    bits, signed = dtype.bits, dtype.kind is Encoding.SIGNED
    if name in {comparison.alu for comparison in COMPARISONS}:
        a, b = operands if signed else (flipped(v, bits) for v in operands)
        return converted(compared(name, a, b), storage_type(dtype))
    if dtype is BOOL and name in LOGIC:
        return converted(alu(LOGIC[name], *(converted(v, FLOAT32) for v in operands)), BOOL)
    if name in ("maximum", "minimum"):
        if signed:
            return converted(alu(name, *(converted(v, INT32) for v in operands)), dtype)
        return chosen(compared("greater" if name == "maximum" else "less", *(flipped(v, bits) for v in operands)),
                      *operands)
    if name == "fmod":
        return quotient_and_remainder(dtype, operands)[1]
    if name not in EXACT:
        raise refused(f"'{name}' on {dtype.mlir}")
    if not signed and name == "abs":
        return operands[0]
    if not signed and name == "arith_shift_right":      # the highest bit is a sign, as on all executors
        operands = [sign_extended(converted(operands[0], INT32), bits), operands[1]]
    computed = alu(name, *(unsigned(v, bits) if name == "right_shift" else converted(v, INT32) for v in operands))
    return converted(computed, storage_type(dtype)) if name.startswith("bitwise") else (
        wrapped(computed, dtype) if signed else unsigned(computed, bits))


def away_from_zero(value: Node, nearest: Node) -> Node:
    """Return the nearest integer, halves away from zero. Adding a half first would round numbers that are integral
    already."""
    is_half = alu("greater_equal", alu("abs", alu("subtract", value, nearest)), numbers(0.5, FLOAT32))
    return alu("add", nearest, with_sign(is_half, value))               # -0.0 stays -0.0


def with_sign(value: Node, of: Node) -> Node:
    """Return a float32 with the sign bit of another one, which zeros and NaN have too."""
    size = alu("bitwise_and", Bitcast(INT32, value), numbers(~LEAST, INT32))
    return Bitcast(FLOAT32, alu("bitwise_or", size, alu("bitwise_and", Bitcast(INT32, of), numbers(LEAST, INT32))))


def angle(y: Node, x: Node) -> Node:
    """Return the angle of the point (x, y): the arctangent of the smaller coordinate over the larger one, which is at
    most 1, then its complements."""
    width, height = alu("abs", x), alu("abs", y)
    steep = alu("less", width, height)
    larger, smaller = alu("maximum", width, height), alu("minimum", width, height)
    same = converted(alu("equal", width, height), BOOL)                         # 0 over 0, infinity over infinity
    ratio = chosen(same, chosen(alu("equal", width, numbers(0, FLOAT32)), width, numbers(1, FLOAT32)),
                   alu("divide", smaller, larger))
    first = Activation(FLOAT32, "arctan", ratio)
    octant = chosen(steep, below(pi / 2, first), first)
    is_left = converted(alu("bitwise_and", Bitcast(INT32, x), numbers(LEAST, INT32)), FLOAT32)
    return with_sign(chosen(alu("less", is_left, numbers(0, FLOAT32)), below(pi, octant), octant), y)


def below(minuend: float, value: Node) -> Node:
    """Return a number minus a float32, with a remainder of the number that float32 cannot represent."""
    high = float(np.float32(minuend))
    return alu("add", alu("subtract", numbers(high, FLOAT32), value), numbers(minuend - high, FLOAT32))


def cube_root(value: Node) -> Node:
    """Return the cube root: the power of a third, and a step of Newton's method, since float32 has no third. 0, 1 and
    infinity are their own roots, and the step would divide 0 by 0."""
    size, third = alu("abs", value), numbers(1 / 3, FLOAT32)
    near = alu("power", size, third)
    excess = alu("subtract", near, alu("divide", size, alu("multiply", near, near)))
    root = alu("subtract", near, alu("multiply", excess, third))
    return with_sign(chosen(alu("equal", near, size), size, root), value)


def floating(name: str, x: list[Node]) -> Node:
    """Return a function of float32 values that engines have no instruction for."""
    unity = numbers(1, FLOAT32)
    match name:
        case "log1p":           # the quotient adds the bits that the sum lost
            total = alu("add", x[0], unity)
            recovered, log = alu("subtract", total, unity), Activation(FLOAT32, "log", total)
            near = alu("multiply", log, alu("divide", x[0], recovered))
            return chosen(alu("equal", total, unity), x[0], chosen(alu("equal", recovered, x[0]), log, near))
        case "expm1":           # near 0, the quotient adds the bits that the difference lost
            power = Activation(FLOAT32, "exp", x[0])
            minus_one = alu("subtract", power, unity)
            inside = alu("minimum", alu("maximum", power, numbers(0.25, FLOAT32)), numbers(4, FLOAT32))
            near = alu("multiply", minus_one, alu("divide", x[0], Activation(FLOAT32, "log", inside)))
            small = alu("less", alu("abs", x[0]), unity)
            return chosen(alu("equal", power, unity), x[0], chosen(small, near, minus_one))
        case "cbrt":
            return cube_root(x[0])
        case "roundeven":
            size, integral = alu("abs", x[0]), numbers(INTEGRAL_FROM, FLOAT32)
            rounded = alu("subtract", alu("add", size, integral), integral)
            return chosen(alu("less", size, integral), with_sign(rounded, x[0]), x[0])
        case "round":
            return away_from_zero(x[0], Activation(FLOAT32, "trunc", x[0]))
        case "copysign":
            return with_sign(x[0], x[1])
        case "atan2":
            return angle(*x)
    raise refused(f"'{name}'")


class GraphReader(TileReader):
    """Reads one operation of a graph."""

    def read_with_gathers(self) -> "tuple[TileNest, list[Gather]]":
        """Return the nest and the gathers that must precede it."""
        read = self.structured()
        tiles = self.tiles(read)
        nest = self.on_tiles(read, tiles)
        expressions = EngineExpression(nest)
        body = expressions.value(nest.results[0])
        gathers: list[Gather] = []
        for k, gather in enumerate(read.gathers):       # the row of a gather may depend on earlier ones
            gathers.append(self.gathered(gather, expressions.rows[k], nest))
            nest = replace(nest, inputs=(*nest.inputs, gathers[-1].result))
        return nest.with_body(body).without_unused, [replace(gather, inputs=nest.inputs) for gather in gathers]

    def gathered(self, rows: GatheredRows, row: Node, nest: TileNest) -> "Gather":
        """Return a gather of complete rows into a new buffer, which is indexed by the axes that choose the row, then by
        the dims of a row; the operation reads parts of the rows, or in another order, from there."""
        view, extents = self.view(rows.buffer), nest.extents
        positions = {a for form in forms_of(row) for a, _ in form.axes}
        axes = [a for a in range(len(extents)) if a in positions or any(nest.inputs[k].moves(a)
                                                                        for k in inputs_of(row))]
        shape = [*(extents[a] for a in axes), *view.sizes[1:]]
        kind = ir.MemRefType.get(shape, ir.MemRefType(rows.buffer.type).element_type, None, ir.StringAttr.get(HBM))
        with ir.InsertionPoint(self.operation), self.operation.location:
            scratch = allocated(kind)
        steps = dict(zip(axes, dense(shape)))
        start = Linear()
        for form, step in zip(rows.subscripts, dense(shape)[len(axes):]):
            start = start.plus(Linear(form.const, form.symbols), step)
            steps |= {axis: steps.get(axis, 0) + factor * step for axis, factor in form.axes}
        result = walked(full_tile(scratch, shape, view.tile.dtype, HBM), (steps.get(a, 0) for a in range(len(extents))))
        result = replace(result, free=result.free.plus(start))
        table = self.operand(view, [Linear(0, (), ((d, 1),)) for d in range(len(view.sizes))], view.sizes)
        return Gather(table, tuple(view.sizes), row, tuple(axes), extents, result)


@dataclass(frozen=True)
class Gather:
    """A gather of rows of a table into a separate buffer, ``result``, before the operation that reads them."""

    table: TileOperand
    sizes: tuple[int, ...]              # extents of the table
    row: Node                           # number of the row, over the axes of the operation
    axes: tuple[int, ...]               # axes that it depends on
    extents: tuple[int, ...]            # extents of the operation
    result: TileOperand
    inputs: tuple[TileOperand, ...] = ()


def read_nest(op: Operation) -> tuple[TileNest, tuple[Value, ...], list[Gather]]:
    """Read an operation as a nest; return it with the values of its symbols and the gathers that must precede it."""
    reader = GraphReader(op)
    nest, gathers = reader.read_with_gathers()
    return nest, reader.symbols, gathers


def in_hbm(op: ir.Operation) -> bool:
    """Return whether all memrefs of an operation are in HBM."""
    kinds = [ir.MemRefType(v.type) for v in op.operands if isinstance(v.type, ir.MemRefType)]
    return all(k.memory_space == ir.StringAttr.get(HBM, op.context) for k in kinds)
