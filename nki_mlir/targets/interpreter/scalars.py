# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar operations as NumPy functions, which hold on numbers and, inside ``linalg.generic`` bodies, on whole arrays.

Besides the ``scalar`` dialect these are the operations of ``arith`` and ``math`` that modules from elsewhere use, with
the meaning they have upstream (``arith.fptosi`` truncates).
"""

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.attributes import read_linear
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import INT64, DType
from nki_mlir.targets.interpreter.steps import Step as Run
from nki_mlir.targets.interpreter.steps import executes
from nki_mlir.waist.nest import Step
from nki_mlir.waist.reader import native, scalar_dtype, step_of

if TYPE_CHECKING:
    from nki_mlir.targets.interpreter.module import FunctionCompiler

Function = Callable[..., Any]


def scalar_function(op: Any) -> Function:
    """What a scalar operation computes from the values of its operands."""
    if op.name in _AFFINE:
        return _AFFINE[op.name](op)
    step = step_of(op, tuple(range(len(op.operands))), named_native)
    return function_of(step, [scalar_dtype(v.type) for v in op.operands])


def is_scalar(name: str) -> bool:
    return name in NAMES


def named_native(op: Any, *given: Any) -> Step | None:
    """The step of an operation of ``arith`` or ``math`` that is known here."""
    return native(op, *given) if op.name in _NATIVE else None


def function_of(step: Step, kinds: Sequence[DType | None]) -> Function:
    """What a step computes from values of these dtypes."""
    dtype = step.dtype or INT64                                 # an index is computed in int64
    match step.kind:
        case "constant":
            value = dtype.numpy.type(float(step.number) if dtype.is_float else step.number)
            return lambda: value
        case "convert":
            frm = kinds[0] or INT64
            return lambda value: convert(np.asarray(value, frm.numpy), dtype, frm)
        case "alu":
            return ALU[step.name].numpy
        case "activation":
            return ACTIVATIONS[step.name].numpy
        case "form":
            const, terms = step.number.const, step.number.axes
            return lambda *values: const + sum([c * values[k] for k, c in terms])
        case "cast":
            return _cast(step)
    return _NATIVE[step.name](step)


# -- affine maps, outside of bodies also those that are not linear -----------------------------------------------------
def _affine_apply(op: Any) -> Function:
    mapping = op.attributes["map"].value
    (result,) = mapping.results
    evaluate = compile_expression(result, mapping.n_dims)
    return lambda *values: evaluate(values)


def _affine_extremum(op: Any) -> Function:
    mapping = op.attributes["map"].value
    forms = [compile_expression(e, mapping.n_dims) for e in mapping.results]
    choose = min if op.name == "affine.min" else max
    return lambda *values: choose(form(values) for form in forms)


def compile_expression(e: Any, dims: int) -> Callable[[Any], Any]:
    """An affine expression as a function of its operands (dims first, then symbols)."""
    match e:
        case ir.AffineModExpr():
            inner, by = compile_expression(e.lhs, dims), read_linear(e.rhs).const
            return lambda values: inner(values) % by
        case ir.AffineFloorDivExpr():
            inner, by = compile_expression(e.lhs, dims), read_linear(e.rhs).const
            return lambda values: inner(values) // by
        case ir.AffineCeilDivExpr():
            inner, by = compile_expression(e.lhs, dims), read_linear(e.rhs).const
            return lambda values: -(-inner(values) // by)
        case ir.AffineAddExpr():
            left, right = compile_expression(e.lhs, dims), compile_expression(e.rhs, dims)
            return lambda values: left(values) + right(values)
        case ir.AffineMulExpr():
            left, right = compile_expression(e.lhs, dims), compile_expression(e.rhs, dims)
            return lambda values: left(values) * right(values)
        case ir.AffineConstantExpr():
            number = e.value
            return lambda values: number
        case ir.AffineDimExpr():
            position = e.position
            return lambda values: values[position]
        case ir.AffineSymbolExpr():
            position = e.position + dims
            return lambda values: values[position]
    raise Unsupported(feature=f"the affine expression {e}", instead="use sums, products, mod and floordiv")


# -- arith and math ----------------------------------------------------------------------------------------------------
def _unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "i" else array


def _on_unsigned(function: Function) -> Function:
    """A function of signless integers that reads them as unsigned; truth values stay."""
    def run(*values: Any) -> Any:
        arrays = [np.asarray(v) for v in values]
        result = function(*map(_unsigned, arrays))
        return result if result.dtype == np.bool_ else result.view(arrays[0].dtype)
    return run


def _quotient(a: Any, b: Any) -> Any:
    """Signed division that rounds towards zero."""
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


_FLOAT: dict[str, Function] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.remf": np.fmod, "arith.negf": np.negative, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "math.absf": np.absolute, "math.sqrt": np.sqrt,
    "math.rsqrt": lambda a: a.dtype.type(1) / np.sqrt(a), "math.exp": np.exp, "math.exp2": np.exp2,
    "math.expm1": np.expm1, "math.log": np.log, "math.log2": np.log2, "math.log10": np.log10, "math.log1p": np.log1p,
    "math.sin": np.sin, "math.cos": np.cos, "math.tan": np.tan, "math.atan": np.arctan, "math.atan2": np.arctan2,
    "math.sinh": np.sinh, "math.cosh": np.cosh, "math.tanh": np.tanh, "math.erf": ACTIVATIONS["erf"].numpy,
    "math.floor": np.floor, "math.ceil": np.ceil, "math.trunc": np.trunc, "math.roundeven": np.rint,
    "math.round": lambda a: np.trunc(a) + np.where(np.abs(a - np.trunc(a)) >= 0.5, np.sign(a), 0).astype(a.dtype),
    "math.powf": np.power, "math.copysign": np.copysign, "math.fma": lambda a, b, c: a * b + c,
}
_INTEGER: dict[str, Function] = {
    "arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul, "arith.andi": operator.and_,
    "arith.ori": operator.or_, "arith.xori": operator.xor, "arith.minsi": np.minimum, "arith.maxsi": np.maximum,
    "arith.minui": _on_unsigned(np.minimum), "arith.maxui": _on_unsigned(np.maximum), "arith.divsi": _quotient,
    "arith.remsi": np.fmod, "arith.divui": _on_unsigned(np.floor_divide), "arith.remui": _on_unsigned(np.fmod),
    "arith.floordivsi": operator.floordiv, "arith.shli": np.left_shift, "arith.shrsi": np.right_shift,
    "arith.shrui": _on_unsigned(np.right_shift), "math.absi": np.absolute,
    "arith.select": lambda c, a, b: np.where(c, a, b) if np.ndim(c) else a if c else b,
}
_COMPARE_INTEGERS = [np.equal, np.not_equal, operator.lt, operator.le, operator.gt, operator.ge,
                     *map(_on_unsigned, (np.less, np.less_equal, np.greater, np.greater_equal))]
_COMPARE_FLOATS = ["", "equal", "greater", "greater_equal", "less", "less_equal", "not_equal"]




def _cast(step: Step) -> Function:
    to = (step.dtype or INT64).numpy
    return np.errstate(all="ignore")(lambda value: np.asarray(value).astype(to))


def _cast_unsigned(step: Step) -> Function:
    to = (step.dtype or INT64).numpy
    return lambda value: _unsigned(np.asarray(value)).astype(to)


def _bitcast(step: Step) -> Function:
    to = (step.dtype or INT64).numpy
    return lambda value: np.asarray(value).view(to)


def _table(step: Step) -> Function:
    function = _FLOAT.get(step.name) or _INTEGER[step.name]
    return np.errstate(all="ignore")(function)


def _compare_integers(step: Step) -> Function:
    return _COMPARE_INTEGERS[step.number]


def _compare_floats(step: Step) -> Function:
    """Ordered predicates (1 to 6) are false where either side is NaN, unordered ones (8 to 13) are true."""
    predicate = step.number
    if predicate in (0, 15):
        return lambda a, b: np.full(np.broadcast(a, b).shape, predicate == 15)
    if predicate in (7, 14):
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == (predicate == 14)
    compare, unordered = getattr(np, _COMPARE_FLOATS[predicate if predicate < 7 else predicate - 7]), predicate > 7
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), unordered, compare(a, b))


_CASTS = ("index_cast", "extsi", "trunci", "sitofp", "extf", "truncf", "fptosi", "fptoui", "index_castui")
_NATIVE: dict[str, Callable[[Step], Function]] = {
    **{f"arith.{name}": _cast for name in _CASTS}, "arith.extui": _cast_unsigned, "arith.uitofp": _cast_unsigned,
    "arith.bitcast": _bitcast, **dict.fromkeys((*_FLOAT, *_INTEGER), _table), "arith.cmpi": _compare_integers,
    "arith.cmpf": _compare_floats}
_AFFINE: dict[str, Callable[[Any], Function]] = {
    "affine.apply": _affine_apply, "affine.min": _affine_extremum, "affine.max": _affine_extremum}
NAMES = frozenset({"scalar.convert", "scalar.alu", "scalar.activation", "arith.constant", *_NATIVE, *_AFFINE})


# -- outside of bodies -------------------------------------------------------------------------------------------------
@executes(*NAMES)
def _scalar_step(code: "FunctionCompiler", op: Any) -> Run:
    function, out = scalar_function(op), code.slot(op.results[0])
    operands = [code.slot(v) for v in op.operands]
    if not operands:
        value = function()
        return lambda env: env.__setitem__(out, value)
    return lambda env: env.__setitem__(out, function(*[env[s] for s in operands]))
