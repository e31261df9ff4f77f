# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A thin layer over the arith, math, vector and scf builders, working alike on scalars and 1-D vectors.

Expansions are written with an ``ScalarEmitter``: the same code gives ``f32`` and ``vector<16xf32>``. Values are raw
``ir.Value``s of float or signless integer types, so signedness is in the method (``shrui``, ``shrsi``). A Python number
may stand for any operand but one: it becomes a constant of the other's type. Operations go to the ambient insertion
point and location.
"""

from collections.abc import Callable

from nki_mlir.bindings import Attribute, LateDialect, Type, Value, ir, load

arith, math = LateDialect("arith"), LateDialect("math")

Operand = Value | float
Binary = Callable[[Value, Value], Value]

_FLOAT_PREDICATES = {
    name: code for code, name in enumerate(
        ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"))
}
_INTEGER_PREDICATES = {
    name: code for code, name in enumerate(("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"))
}
_ELEMENTS: dict[str, Callable[[], Type]] = {
    "f16": ir.F16Type.get, "bf16": ir.BF16Type.get, "f32": ir.F32Type.get, "f64": ir.F64Type.get,
}


def element(value: Value) -> Type:
    """The element type of a vector, the type of a scalar."""
    return value.type.element_type if isinstance(value.type, ir.VectorType) else value.type


class ScalarEmitter:
    """Builds operations on scalars and vectors; see the module."""

    # -- types and constants

    def type_like(self, like: Value, name: str) -> Type:
        """The element type ``name`` ("f32", "i8", ...) in the shape of ``like``."""
        kind = _ELEMENTS[name]() if name in _ELEMENTS else ir.IntegerType.get_signless(int(name[1:]))
        return ir.VectorType.get(like.type.shape, kind) if isinstance(like.type, ir.VectorType) else kind

    def constant(self, type_: Type, number: float) -> Value:
        """``number`` in each element of ``type_``; an integer is taken modulo its width."""
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
        """``number`` in the type of ``like``."""
        return self.constant(like.type, number)

    def _values(self, *operands: Operand) -> list[Value]:
        like = next(o for o in operands if not isinstance(o, int | float))
        return [self.const(like, o) if isinstance(o, int | float) else o for o in operands]

    def _either(self, floats: Binary, integers: Binary, a: Operand, b: Operand) -> Value:
        a, b = self._values(a, b)
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
        """|a|; the lowest integer stays."""
        return math.absf(a) if isinstance(element(a), ir.FloatType) else math.absi(a)

    # -- floats

    def div(self, a: Operand, b: Operand) -> Value:
        return arith.divf(*self._values(a, b))

    def remf(self, a: Operand, b: Operand) -> Value:
        """C's fmod, exact."""
        return arith.remf(*self._values(a, b))

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once."""
        return math.fma(*self._values(a, b, c))

    def horner(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """The polynomial whose coefficients are given from the constant term up."""
        *rest, last = coefficients
        result = self.const(x, last)
        for coefficient in reversed(rest):
            result = self.fma(result, x, coefficient)
        return result

    def times_power(self, a: Value, exponent: Value) -> Value:
        """``a * 2**exponent`` for f32 integers within +-250; in two steps, for 2^exponent itself may not exist."""
        whole = self.fptosi(exponent, "i32")
        half = self.shrsi(whole, 1)
        for part in (half, self.sub(whole, half)):
            a = self.mul(a, self.bitcast(self.shl(self.add(part, 127), 23), "f32"))
        return a

    def sqrt(self, a: Value) -> Value:
        return math.sqrt(a)

    def floor(self, a: Value) -> Value:
        return math.floor(a)

    def ceil(self, a: Value) -> Value:
        return math.ceil(a)

    def trunc(self, a: Value) -> Value:
        return math.trunc(a)

    def round_even(self, a: Value) -> Value:
        return math.roundeven(a)

    def copysign(self, magnitude: Operand, sign: Operand) -> Value:
        return math.copysign(*self._values(magnitude, sign))

    def is_nan(self, a: Value) -> Value:
        return self.cmp("uno", a, a)

    def clamp(self, a: Value, low: float | None, high: float | None) -> Value:
        """``a`` within the limits; NaN stays NaN."""
        if low is not None:
            a = self.select(self.cmp("olt", a, low), self.const(a, low), a)
        if high is not None:
            a = self.select(self.cmp("ogt", a, high), self.const(a, high), a)
        return a

    def libm(self, name: str, *operands: Operand) -> Value:
        """The C library's ``name`` of the math dialect, called for each lane."""
        return getattr(math, name)(*self._values(*operands))

    # -- integers

    def minsi(self, a: Operand, b: Operand) -> Value:
        return arith.minsi(*self._values(a, b))

    def maxsi(self, a: Operand, b: Operand) -> Value:
        return arith.maxsi(*self._values(a, b))

    def minui(self, a: Operand, b: Operand) -> Value:
        return arith.minui(*self._values(a, b))

    def maxui(self, a: Operand, b: Operand) -> Value:
        return arith.maxui(*self._values(a, b))

    def divsi(self, a: Operand, b: Operand) -> Value:
        return arith.divsi(*self._values(a, b))

    def divui(self, a: Operand, b: Operand) -> Value:
        return arith.divui(*self._values(a, b))

    def remsi(self, a: Operand, b: Operand) -> Value:
        return arith.remsi(*self._values(a, b))

    def remui(self, a: Operand, b: Operand) -> Value:
        return arith.remui(*self._values(a, b))

    def and_(self, a: Operand, b: Operand) -> Value:
        return arith.andi(*self._values(a, b))

    def or_(self, a: Operand, b: Operand) -> Value:
        return arith.ori(*self._values(a, b))

    def xor(self, a: Operand, b: Operand) -> Value:
        return arith.xori(*self._values(a, b))

    def not_(self, a: Value) -> Value:
        return self.xor(a, -1)

    def shl(self, a: Operand, b: Operand) -> Value:
        return arith.shli(*self._values(a, b))

    def shrui(self, a: Operand, b: Operand) -> Value:
        return arith.shrui(*self._values(a, b))

    def shrsi(self, a: Operand, b: Operand) -> Value:
        return arith.shrsi(*self._values(a, b))

    # -- comparison and choice

    def cmp(self, predicate: str, a: Operand, b: Operand) -> Value:
        """A comparison as i1; ``predicate`` is MLIR's: "olt" or "uno" for floats, "slt" or "ne" for integers."""
        a, b = self._values(a, b)
        if isinstance(element(a), ir.FloatType):
            return arith.cmpf(_FLOAT_PREDICATES[predicate], a, b)
        return arith.cmpi(_INTEGER_PREDICATES[predicate], a, b)

    def nonzero(self, a: Value) -> Value:
        """Whether ``a`` is not zero, as i1; NaN is not. Of a truth value, the condition that it was made of."""
        while not isinstance(a.owner, ir.Block) and a.owner.name in ("arith.extui", "arith.uitofp"):
            a = a.owner.operands[0]
        if element(a) == ir.IntegerType.get_signless(1):
            return a
        return self.cmp("une" if isinstance(element(a), ir.FloatType) else "ne", a, 0)

    def truth(self, condition: Value, like: Value) -> Value:
        """An i1 as 1 or 0 in the type of ``like``."""
        convert = arith.uitofp if isinstance(element(like), ir.FloatType) else arith.extui
        return convert(like.type, condition)

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        return arith.select(condition, *self._values(a, b))

    def select_rare(self, condition: Value, value: Value, rare: Callable[[], Value]) -> Value:
        """``rare()`` in the lanes where ``condition`` holds, computed only if there is one, else ``value``."""
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

    def bitcast(self, a: Value, name: str) -> Value:
        return arith.bitcast(self.type_like(a, name), a)

    def extf(self, a: Value, name: str) -> Value:
        return arith.extf(self.type_like(a, name), a)

    def truncf(self, a: Value, name: str) -> Value:
        return arith.truncf(self.type_like(a, name), a)

    def extsi(self, a: Value, name: str) -> Value:
        return arith.extsi(self.type_like(a, name), a)

    def extui(self, a: Value, name: str) -> Value:
        return arith.extui(self.type_like(a, name), a)

    def trunci(self, a: Value, name: str) -> Value:
        return arith.trunci(self.type_like(a, name), a)

    def sitofp(self, a: Value, name: str) -> Value:
        return arith.sitofp(self.type_like(a, name), a)

    def uitofp(self, a: Value, name: str) -> Value:
        return arith.uitofp(self.type_like(a, name), a)

    def fptosi(self, a: Value, name: str) -> Value:
        """Truncates; the value must fit."""
        return arith.fptosi(self.type_like(a, name), a)

    def fptoui(self, a: Value, name: str) -> Value:
        """Truncates; the value must fit."""
        return arith.fptoui(self.type_like(a, name), a)
