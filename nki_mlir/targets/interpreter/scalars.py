# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar operations as NumPy functions, which hold on numbers and, inside ``linalg.generic`` bodies, on whole arrays.

Besides the ``scalar`` dialect these are the operations of ``arith`` and ``math`` that modules from elsewhere use, with
the meaning they have upstream (``arith.fptosi`` truncates).
"""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.attributes import read_linear
from nki_mlir.dialects.places import place_of
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.conversion import convert
from nki_mlir.scalar.dtypes import BY_MLIR, INT64
from nki_mlir.targets.interpreter.steps import Step, executes

if TYPE_CHECKING:
    from nki_mlir.targets.interpreter.module import FunctionCompiler

Function = Callable[..., Any]
Make = Callable[[Any], Function]            # operation -> what it computes

_MAKE: dict[str, Make] = {}


def _made_by(*names: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        _MAKE.update(dict.fromkeys(names, make))
        return make
    return register


def scalar_function(op: Any) -> Function:
    """What a scalar operation computes from the values of its operands."""
    if op.name not in _MAKE:
        raise Unsupported(feature=f"'{op.name}' in a scalar expression",
                          instead="use operations of the scalar, arith and math dialects").located(place_of(op))
    return _MAKE[op.name](op)


def is_scalar(name: str) -> bool:
    return name in _MAKE


def numpy_dtype(kind: Any) -> np.dtype:
    """The NumPy dtype of a scalar type; a signless integer is a signed one."""
    text = str(kind)
    return BY_MLIR[text].numpy if text in BY_MLIR else np.dtype({"index": np.int64, "f64": np.float64}[text])


# -- the scalar dialect ------------------------------------------------------------------------------------------------
@_made_by("scalar.convert")
def _convert(op: Any) -> Function:
    frm, to = (BY_MLIR.get(str(v.type), INT64) for v in (op.operands[0], op.results[0]))
    return lambda value: convert(np.asarray(value, frm.numpy), to, frm)


@_made_by("scalar.alu")
def _alu(op: Any) -> Function:
    return ALU[op.attributes["fn"].value].numpy


@_made_by("scalar.activation")
def _activation(op: Any) -> Function:
    return ACTIVATIONS[op.attributes["fn"].value].numpy


# -- constants and indices ---------------------------------------------------------------------------------------------
@_made_by("arith.constant")
def _constant(op: Any) -> Function:
    value = op.attributes["value"].value
    if not isinstance(op.results[0].type, ir.IndexType):
        value = numpy_dtype(op.results[0].type).type(value)
    return lambda: value


@_made_by("affine.apply")
def _affine_apply(op: Any) -> Function:
    mapping = op.attributes["map"].value
    (result,) = mapping.results
    evaluate = compile_expression(result, mapping.n_dims)
    return lambda *values: evaluate(values)


@_made_by("affine.min", "affine.max")
def _affine_extremum(op: Any) -> Function:
    mapping = op.attributes["map"].value
    forms = [compile_expression(e, mapping.n_dims) for e in mapping.results]
    choose = min if op.name == "affine.min" else max
    return lambda *values: choose(form(values) for form in forms)


@_made_by("arith.index_cast", "arith.extsi", "arith.trunci", "arith.sitofp", "arith.extf", "arith.truncf",
          "arith.fptosi", "arith.fptoui", "arith.index_castui")
def _cast(op: Any) -> Function:
    dtype = numpy_dtype(op.results[0].type)
    return np.errstate(all="ignore")(lambda value: np.asarray(value).astype(dtype))


@_made_by("arith.extui", "arith.uitofp")
def _cast_unsigned(op: Any) -> Function:
    dtype = numpy_dtype(op.results[0].type)
    return lambda value: _unsigned(np.asarray(value)).astype(dtype)


@_made_by("arith.bitcast")
def _bitcast(op: Any) -> Function:
    dtype = numpy_dtype(op.results[0].type)
    return lambda value: np.asarray(value).view(dtype)


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


@_made_by(*_FLOAT, *_INTEGER)
def _table(op: Any) -> Function:
    function = _FLOAT.get(op.name) or _INTEGER[op.name]
    return np.errstate(all="ignore")(function)


@_made_by("arith.cmpi")
def _compare_integers(op: Any) -> Function:
    return _COMPARE_INTEGERS[op.attributes["predicate"].value]


@_made_by("arith.cmpf")
def _compare_floats(op: Any) -> Function:
    """Ordered predicates (1 to 6) are false where either side is NaN, unordered ones (8 to 13) are true."""
    predicate = op.attributes["predicate"].value
    if predicate in (0, 15):
        return lambda a, b: np.full(np.broadcast(a, b).shape, predicate == 15)
    if predicate in (7, 14):
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == (predicate == 14)
    compare, unordered = getattr(np, _COMPARE_FLOATS[predicate if predicate < 7 else predicate - 7]), predicate > 7
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), unordered, compare(a, b))


# -- outside of bodies -------------------------------------------------------------------------------------------------
@executes(*_MAKE)
def _scalar_step(code: "FunctionCompiler", op: Any) -> Step:
    function, out = scalar_function(op), code.slot(op.results[0])
    operands = [code.slot(v) for v in op.operands]
    if not operands:
        value = function()
        return lambda env: env.__setitem__(out, value)
    return lambda env: env.__setitem__(out, function(*[env[s] for s in operands]))
