# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A thin layer over the arith, math, vector and scf builders, which works alike on scalars and 1-D vectors.

Expansions use a ``ScalarEmitter``: the same code gives ``f32`` and ``vector<16xf32>``. Values are raw ``ir.Value``s of
float or signless integer types, so signedness is in the method (``shrui``, ``shrsi``). A Python number may stand for
any operand but one: it becomes a constant of the other's type. Operations go to the ambient insertion point and
location.
"""

from collections.abc import Callable
from typing import Any

from nki_mlir.bindings import Attribute, LateDialect, Type, Value, ir, load
from nki_mlir.scalar.predicates import FLOAT_PREDICATES, INTEGER_PREDICATES

arith, math = LateDialect("arith"), LateDialect("math")

Operand = Value | float
Binary = Callable[[Value, Value], Value]

_ELEMENTS: dict[str, Callable[[], Type]] = {
    "f16": ir.F16Type.get, "bf16": ir.BF16Type.get, "f32": ir.F32Type.get, "f64": ir.F64Type.get,
}


def element(value: Value) -> Type:
    """Return the element type of a vector, the type of a scalar."""
    return value.type.element_type if isinstance(value.type, ir.VectorType) else value.type


def _of_values(dialect: LateDialect, name: str) -> Callable[..., Value]:
    """Return a method that builds the operation ``name``; operands and result have the same type."""
    return lambda emitter, *operands: getattr(dialect, name)(*emitter.values(*operands))


def _to_element(name: str) -> Callable[["ScalarEmitter", Value, str], Value]:
    """Return a method that builds the operation ``name``, which changes the type of elements."""
    return lambda emitter, a, kind: getattr(arith, name)(emitter.type_like(a, kind), a)


class ScalarEmitter:
    """Builds operations on scalars and vectors; see the module."""

    # Whether ``selected``, ``no_larger``, and ``times_power`` with any exponent, are one instruction of the host each.
    selects_from_16 = False

    # -- types and constants

    def type_like(self, like: Value, name: str) -> Type:
        """Return the element type ``name`` ("f32", "i8", ...) in the shape of ``like``."""
        kind = _ELEMENTS[name]() if name in _ELEMENTS else ir.IntegerType.get_signless(int(name[1:]))
        return ir.VectorType.get(like.type.shape, kind) if isinstance(like.type, ir.VectorType) else kind

    def constant(self, type_: Type, number: float) -> Value:
        """Emit ``number`` in each element of ``type_``; an integer is taken modulo its width."""
        kind = type_.element_type if isinstance(type_, ir.VectorType) else type_
        if isinstance(kind, ir.IntegerType):
            number = int(number) % (1 << kind.width)
            signed = number - (1 << kind.width) if kind.width > 1 and number >> (kind.width - 1) else number
            attribute: Attribute = ir.IntegerAttr.get(kind, signed)
        else:
            attribute = ir.FloatAttr.get(kind, float(number))
        if isinstance(type_, ir.VectorType):
            attribute = ir.DenseElementsAttr.get_splat(type_, attribute)
        return arith.ConstantOp(type_, attribute).result

    def const(self, like: Value, number: float) -> Value:
        """Emit ``number`` in the type of ``like``."""
        return self.constant(like.type, number)

    def values(self, *operands: Operand) -> list[Value]:
        """Return the operands, with numbers as constants in the type of the first other operand."""
        like = next(o for o in operands if not isinstance(o, int | float))
        return [self.const(like, o) if isinstance(o, int | float) else o for o in operands]

    def _either(self, floats: Binary, integers: Binary, a: Operand, b: Operand) -> Value:
        a, b = self.values(a, b)
        return (floats if isinstance(element(a), ir.FloatType) else integers)(a, b)

    # -- arithmetic on floats and on integers, which wrap

    def add(self, a: Operand, b: Operand) -> Value:
        return self._either(arith.addf, arith.addi, a, b)

    def sub(self, a: Operand, b: Operand) -> Value:
        return self._either(arith.subf, arith.subi, a, b)

    def mul(self, a: Operand, b: Operand) -> Value:
        return self._either(arith.mulf, arith.muli, a, b)

    def neg(self, a: Value) -> Value:
        return arith.negf(a) if isinstance(element(a), ir.FloatType) else self.sub(0, a)

    def abs(self, a: Value) -> Value:
        """Emit |a|; the lowest integer stays."""
        return math.absf(a) if isinstance(element(a), ir.FloatType) else math.absi(a)

    # -- floats

    div = _of_values(arith, "divf")
    remf = _of_values(arith, "remf")  # C's fmod, exact
    fma = _of_values(math, "fma")  # a * b + c, rounded once

    def horner(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """Emit the polynomial whose coefficients are listed from the constant term up."""
        *lower, leading = coefficients
        result = self.const(x, leading)
        for coefficient in reversed(lower):
            result = self.fma(result, x, coefficient)
        return result

    def times_power(self, a: Value, exponent: Value) -> Value:
        """Emit ``a * 2**exponent`` for f32 integers within +-250, in two steps, because 2^exponent itself may overflow.

        Where ``selects_from_16``, exponents are any f32, rounded down.
        """
        integer = self.fptosi(exponent, "i32")
        half = self.shrsi(integer, 1)
        for part in (half, self.sub(integer, half)):
            a = self.mul(a, self.bitcast(self.shl(self.add(part, 127), 23), "f32"))
        return a

    def selected(self, index: Value, numbers: tuple[float, ...]) -> Value:
        """Emit the f32 among 16 numbers whose index is in the lowest four bits of an i32."""
        low = self.and_(index, 15)
        result = self.constant(self.type_like(index, "f32"), numbers[0])
        for k, number in enumerate(numbers[1:], 1):
            result = self.select(self.cmp("eq", low, k), self.const(result, number), result)
        return result

    def no_larger(self, a: Value, most: float) -> Value:
        """Emit ``a``, or ``most`` with the sign of ``a`` where its magnitude is larger, for f32; ``most`` for NaN."""
        return self.select(self.cmp("ole", self.abs(a), most), a, self.copysign(self.const(a, most), a))

    def round_to_bfloat16(self, a: Value, steps: Callable[[Value], Value]) -> Value:
        """Emit an f32 rounded to bf16 by ``steps``, as f32; a subclass may use instructions of the host instead."""
        return steps(a)

    def round_words(self, a: Value, steps: Callable[[Value], Value]) -> Value:
        """Emit an f32, no NaN, rounded to bf16 by ``steps``, as f32; a subclass may use instructions on words."""
        return steps(a)

    def narrow_to_bfloat16(self, a: Value, steps: Callable[[Value], Value], is_integral: bool = False) -> Value:
        """Emit an f32 rounded to bf16 by ``steps``; a subclass may use an instruction of the host instead."""
        return steps(a)

    def upper_halves(self, bits: Value) -> Value:
        """Emit the upper halves of i32 as i16; a subclass may use other instructions."""
        return self.trunci(self.shrui(bits, 16), "i16")

    def quiet_nans(self, a: Value, bits: Value) -> Value:
        """Emit the i32 ``bits``, and those of a quiet NaN where the f32 ``a`` is NaN, with its sign; a subclass may use
        other instructions, and keep the payload."""
        sign = self.and_(self.bitcast(a, "i32"), 0x80000000)
        return self.select(self.is_nan(a), self.or_(sign, 0x7FC00000), bits)

    def unless_nan(self, a: Value, result: Value) -> Value:
        """Emit the f32 ``result``, and ``a`` where that is NaN; a subclass may use other instructions."""
        return self.select(self.is_nan(a), a, result)

    sqrt = _of_values(math, "sqrt")
    floor = _of_values(math, "floor")
    ceil = _of_values(math, "ceil")
    trunc = _of_values(math, "trunc")
    round_even = _of_values(math, "roundeven")
    copysign = _of_values(math, "copysign")

    @staticmethod
    def number_of(a: Value) -> float | None:
        """Return the number that a float, or each element of a vector, is if that is a constant."""
        definition: Any = a.owner
        while getattr(definition, "name", "") == "vector.broadcast":
            definition = definition.operands[0].owner
        number = definition.attributes["value"] if getattr(definition, "name", "") == "arith.constant" else None
        if isinstance(number, ir.DenseElementsAttr):
            number = number.get_splat_value() if number.is_splat else None
        return number.value if isinstance(number, ir.FloatAttr) else None

    def is_nan(self, a: Value) -> Value:
        return self.cmp("uno", a, a)

    def clamp(self, a: Value, low: float | None, high: float | None) -> Value:
        """Emit ``a`` within the limits; NaN stays NaN."""
        if low is not None:
            a = self.select(self.cmp("olt", a, low), self.const(a, low), a)
        if high is not None:
            a = self.select(self.cmp("ogt", a, high), self.const(a, high), a)
        return a

    def libm(self, name: str, *operands: Operand) -> Value:
        """Emit a call of the C library's ``name`` of the math dialect, for each lane."""
        return getattr(math, name)(*self.values(*operands))

    # -- integers

    minsi = _of_values(arith, "minsi")
    maxsi = _of_values(arith, "maxsi")
    minui = _of_values(arith, "minui")
    maxui = _of_values(arith, "maxui")
    divsi = _of_values(arith, "divsi")
    divui = _of_values(arith, "divui")
    remsi = _of_values(arith, "remsi")
    remui = _of_values(arith, "remui")
    and_ = _of_values(arith, "andi")
    or_ = _of_values(arith, "ori")
    xor = _of_values(arith, "xori")

    def not_(self, a: Value) -> Value:
        return self.xor(a, -1)

    shl = _of_values(arith, "shli")
    shrui = _of_values(arith, "shrui")
    shrsi = _of_values(arith, "shrsi")

    # -- comparison and choice

    def cmp(self, predicate: str, a: Operand, b: Operand) -> Value:
        """Emit a comparison as i1; ``predicate`` is MLIR's: "olt" or "uno" for floats, "slt" or "ne" for integers."""
        a, b = self.values(a, b)
        if isinstance(element(a), ir.FloatType):
            return arith.cmpf(FLOAT_PREDICATES[predicate], a, b)
        return arith.cmpi(INTEGER_PREDICATES[predicate], a, b)

    def nonzero(self, a: Value) -> Value:
        """Emit whether ``a`` is not zero, as i1, true for NaN. For a converted truth value return its condition."""
        while not isinstance(a.owner, ir.Block) and a.owner.operation.name in ("arith.extui", "arith.uitofp"):
            a = a.owner.operands[0]
        if element(a) == ir.IntegerType.get_signless(1):
            return a
        return self.cmp("une" if isinstance(element(a), ir.FloatType) else "ne", a, 0)

    def truth(self, condition: Value, like: Value) -> Value:
        """Emit an i1 as 1 or 0 in the type of ``like``."""
        convert = arith.uitofp if isinstance(element(like), ir.FloatType) else arith.extui
        return convert(like.type, condition)

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        return arith.select(condition, *self.values(a, b))

    def select_rare(self, condition: Value, value: Value, rare: Callable[[], Value]) -> Value:
        """Emit ``rare()`` in the lanes where ``condition`` holds, computed only if there is one, else ``value``."""
        any_lane = condition
        if isinstance(condition.type, ir.VectorType):
            vector = load("dialects.vector")
            any_lane = vector.reduction(element(condition), vector.CombiningKind.OR, condition)
        scf = load("dialects.scf")
        branch = scf.IfOp(any_lane, [value.type], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            scf.YieldOp([self.select(condition, rare(), value)])
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp([value])
        return branch.results[0]

    # -- changes of type; ``name`` is an element type

    bitcast = _to_element("bitcast")
    extf = _to_element("extf")
    truncf = _to_element("truncf")
    extsi = _to_element("extsi")
    extui = _to_element("extui")
    trunci = _to_element("trunci")
    sitofp = _to_element("sitofp")
    uitofp = _to_element("uitofp")
    fptosi = _to_element("fptosi")  # truncates; the value must fit
    fptoui = _to_element("fptoui")  # truncates; the value must fit
