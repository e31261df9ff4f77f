# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar operations of ``arith`` and ``math``, for bodies that come from elsewhere.

They are steps of the scalar library where it has the same function, else ``native`` steps, emitted as what they are.
Floats narrower than 32 bits are computed in float32 and rounded back after every operation, as NumPy does.
"""

from collections.abc import Callable

from nki_mlir.bindings import Operation, ir
from nki_mlir.scalar.conversion import storage_type
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT64, DType
from nki_mlir.targets.cpu.lanes import Code, Value, arith
from nki_mlir.targets.cpu.nests import Step

_ALU = {"arith.addf": "add", "arith.subf": "subtract", "arith.mulf": "multiply", "arith.divf": "divide",
        "arith.remf": "fmod", "arith.negf": "negative", "arith.maximumf": "maximum", "arith.minimumf": "minimum",
        "arith.addi": "add", "arith.subi": "subtract", "arith.muli": "multiply", "arith.andi": "bitwise_and",
        "arith.ori": "bitwise_or", "arith.xori": "bitwise_xor", "arith.maxsi": "maximum", "arith.minsi": "minimum",
        "math.absf": "abs", "math.absi": "abs", "math.powf": "power"}
_ACTIVATION = {"math.exp": "exp", "math.log": "log", "math.sin": "sin", "math.cos": "cos", "math.tan": "tan",
               "math.atan": "arctan", "math.tanh": "tanh", "math.erf": "erf", "math.sqrt": "sqrt",
               "math.rsqrt": "rsqrt", "math.floor": "floor", "math.ceil": "ceil", "math.trunc": "trunc"}
# Conversions that mean the same in both: the value is kept, or a float rounded to nearest even.
_CONVERT = frozenset({"arith.extf", "arith.truncf", "arith.extsi", "arith.sitofp"})
_FLOATS = frozenset({"arith.cmpf", "arith.maxnumf", "arith.minnumf", "math.exp2", "math.expm1", "math.log2",
                     "math.log10", "math.log1p", "math.atan2", "math.sinh", "math.cosh", "math.roundeven", "math.round",
                     "math.copysign", "math.fma"})
_INTEGERS = frozenset({"arith.cmpi", "arith.minui", "arith.maxui", "arith.divsi", "arith.remsi", "arith.divui",
                       "arith.remui", "arith.floordivsi", "arith.shli", "arith.shrsi", "arith.shrui"})
_OTHER = frozenset({"arith.select", "arith.extui", "arith.uitofp", "arith.trunci", "arith.fptosi", "arith.fptoui",
                    "arith.bitcast", "arith.index_cast", "arith.index_castui"})
NAMES = frozenset({*_ALU, *_ACTIVATION, *_CONVERT, *_FLOATS, *_INTEGERS, *_OTHER})

Add = Callable[[Step], int]             # takes a step, gives the number of its value


def read_upstream(op: Operation, operands: list[int], kinds: list[DType | None], result: DType | None,
                  add: Add) -> Step:
    """The step of an operation whose operands are the given values; ``add`` takes the steps that must come before."""
    name = op.name
    if name in _CONVERT and BOOL not in kinds and None not in (*kinds, result):
        return Step("convert", result, tuple(operands))
    narrow = [k is not None and k.is_float and k is not FLOAT32 for k in kinds]
    if any(narrow) and name not in _OTHER:
        operands = [add(Step("convert", FLOAT32, (v,))) if n else v for v, n in zip(operands, narrow)]
        if result is not BOOL:
            made = add(_step(op, operands, FLOAT32))
            return Step("convert", result, (made,))
    return _step(op, operands, result)


def _step(op: Operation, operands: list[int], result: DType | None) -> Step:
    name, values = op.name, tuple(operands)
    if name in _ALU:
        return Step("alu", result, values, _ALU[name])
    if name in _ACTIVATION:
        return Step("activation", result, values, _ACTIVATION[name])
    predicate = op.attributes["predicate"].value if name in ("arith.cmpf", "arith.cmpi") else None
    return Step("native", result, values, name, predicate)


def emit_native(code: Code, step: Step, values: list[Value], kinds: list[DType | None]) -> Value:
    """A ``native`` step's value. Truth values are bytes outside of the step."""
    name, to = step.name, step.dtype or INT64
    storage = storage_type(to)
    match name:
        case "arith.select":
            return code.select(code.nonzero(values[0]), values[1], values[2])
        case "arith.cmpf" | "arith.cmpi":
            compare = arith.cmpf if name == "arith.cmpf" else arith.cmpi
            return code.extui(compare(step.number, *values), "i8")
        case "arith.extui" | "arith.index_castui":
            return _resized(code, values[0], kinds[0], to, code.extui)
        case "arith.index_cast" | "arith.trunci":
            return _resized(code, values[0], kinds[0], to, code.extsi)
        case "arith.extsi":                                 # of a truth value: all bits
            return code.sub(code.constant(code.type_like(values[0], storage), 0), _resized(
                code, values[0], kinds[0], to, code.extui))
        case "arith.extf" | "arith.sitofp" | "arith.truncf" | "arith.uitofp":
            return code.uitofp(values[0], storage)
        case "arith.fptosi":
            return code.fptosi(values[0], storage)
        case "arith.fptoui":
            return code.fptoui(values[0], storage)
        case "arith.bitcast":
            return code.bitcast(values[0], storage)
        case "arith.divsi" | "arith.remsi" | "arith.floordivsi":
            return _divided(code, name, *values)
        case "arith.divui" | "arith.remui":
            a, b = values
            safe = code.select(code.cmp("eq", b, 0), code.const(b, 1), b)   # by zero, the process would end
            return getattr(arith, name.removeprefix("arith."))(a, safe)
    return ir.Operation.create(name, operands=values, results=[values[0].type]).results[0]


def _resized(code: Code, value: Value, frm: DType | None, to: DType, extend: Callable[[Value, str], Value]) -> Value:
    bits = (frm or INT64).bits
    if to is BOOL:
        value = code.and_(value, 1)
    if bits == to.bits:
        return value
    return extend(value, storage_type(to)) if to.bits > bits else code.trunci(value, storage_type(to))


def _divided(code: Code, name: str, a: Value, b: Value) -> Value:
    """Signed division. By 0 and by -1 it would trap for some values: the first gives 0, the second is a subtraction."""
    zero, minus = code.cmp("eq", b, 0), code.cmp("eq", b, -1)
    safe = code.select(code.or_(zero, minus), code.const(b, 1), b)
    remainder = arith.remsi(a, safe)
    if name == "arith.remsi":
        return code.select(code.or_(zero, minus), code.const(a, 0), remainder)
    quotient = arith.divsi(a, safe)
    if name == "arith.floordivsi":
        below = code.and_(code.cmp("ne", remainder, 0), code.cmp("slt", code.xor(remainder, safe), 0))
        quotient = code.select(below, code.sub(quotient, 1), quotient)
    return code.select(zero, code.const(a, 0), code.select(minus, code.sub(code.const(a, 0), a), quotient))
