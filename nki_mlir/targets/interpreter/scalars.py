# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar operations as NumPy functions, which hold on numbers and, inside ``linalg.generic`` bodies, on whole arrays.

Those of ``arith`` are index arithmetic: numbers of loops, addresses and conditions.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_mlir.bindings import Operation
from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.attributes import affine_value
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, INT64, DType, convert
from nki_mlir.scalar.mathematics import MATH
from nki_mlir.targets.interpreter.module import FunctionCompiler, executes
from nki_mlir.targets.interpreter.module import Step as Run
from nki_mlir.waist.nest import Step
from nki_mlir.waist.reader import scalar_dtype, step_of

Function = Callable[..., Any]


def scalar_function(op: Operation) -> Function:
    """What a scalar operation computes from the values of its operands."""
    if op.name in _INDEX:
        return _INDEX[op.name](op)
    if op.name == "arith.constant" and scalar_dtype(op.results[0].type) is None:
        number = op.attributes["value"].value
        return lambda: number
    step = step_of(op, tuple(range(len(op.operands))))
    return function_of(step, [scalar_dtype(v.type) or INT64 for v in op.operands])


def function_of(step: Step, kinds: Sequence[DType]) -> Function:
    """What a step computes from values of these dtypes."""
    dtype = step.dtype
    match step.kind:
        case "constant":
            value = dtype.numpy.type(float(step.number) if dtype.is_float else step.number)
            return lambda: value
        case "convert":
            frm = kinds[0]
            return lambda value: convert(np.asarray(value, frm.numpy), dtype, frm)
        case "alu":
            return ALU[step.name].numpy
        case "activation":
            return ACTIVATIONS[step.name].numpy
        case "math":
            return MATH[step.name].numpy
        case "bitcast":
            return lambda value: np.asarray(value).view(dtype.numpy)
        case "wrap" if dtype is BOOL:
            return lambda value: (np.asarray(value) & 1).astype(np.bool_)
        case "wrap":
            return lambda value: np.asarray(value).astype(dtype.numpy)
    raise InternalError(f"unknown step {step}")


# -- affine maps, outside of bodies also those that are not linear -----------------------------------------------------
def _affine_apply(op: Operation) -> Function:
    evaluate, = compile_map(op)
    return lambda *values: evaluate(values)


def _affine_extremum(op: Operation) -> Function:
    forms = compile_map(op)
    choose = min if op.name == "affine.min" else max
    return lambda *values: choose(form(values) for form in forms)


_AFFINE: dict[str, Function] = {"add": operator.add, "mult": operator.mul, "mod": operator.mod,
                                "floordiv": operator.floordiv}


def compile_map(op: Operation) -> list[Function]:
    """The results of an operation's affine map as functions of the list of its operands."""
    def combine(name: str, left: Function, right: Function) -> Function:
        function = _AFFINE[name]
        return lambda values: function(left(values), right(values))
    mapping = op.attributes["map"].value
    operands: list[Function] = [operator.itemgetter(k) for k in range(mapping.n_inputs)]
    return [affine_value(e, operands, mapping.n_dims, lambda n: lambda values: n, combine) for e in mapping.results]


def _unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "i" else array


def _on_unsigned(function: Function) -> Function:
    return lambda a, b: function(_unsigned(np.asarray(a)), _unsigned(np.asarray(b)))


def _cast(op: Operation) -> Function:
    dtype = (scalar_dtype(op.results[0].type) or INT64).numpy
    if op.name in ("arith.index_castui", "arith.extui"):
        return lambda value: _unsigned(np.asarray(value)).astype(dtype)
    return lambda value: np.asarray(value).astype(dtype)


_ARITHMETIC: dict[str, Function] = {
    "arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul, "arith.andi": operator.and_,
    "arith.ori": operator.or_, "arith.xori": operator.xor, "arith.minsi": np.minimum, "arith.maxsi": np.maximum,
    "arith.floordivsi": operator.floordiv,
    "arith.select": lambda c, a, b: np.where(c, a, b) if np.ndim(c) else a if c else b}
_COMPARISONS = [np.equal, np.not_equal, operator.lt, operator.le, operator.gt, operator.ge,
                *map(_on_unsigned, (np.less, np.less_equal, np.greater, np.greater_equal))]
_INDEX: dict[str, Callable[[Operation], Function]] = {
    "affine.apply": _affine_apply, "affine.min": _affine_extremum, "affine.max": _affine_extremum,
    "arith.cmpi": lambda op: _COMPARISONS[op.attributes["predicate"].value],
    **dict.fromkeys(_ARITHMETIC, lambda op: _ARITHMETIC[op.name]),
    **dict.fromkeys([f"arith.{name}" for name in ("index_cast", "index_castui", "extsi", "extui", "trunci")], _cast)}
OF_BODIES = ("convert", "wrap", "bitcast", "alu", "activation", "math")
SCALAR_OPERATIONS = frozenset({*(f"scalar.{name}" for name in OF_BODIES), "arith.constant", *_INDEX})


# -- outside of bodies -------------------------------------------------------------------------------------------------
@executes(*SCALAR_OPERATIONS)
def _scalar_step(code: FunctionCompiler, op: Operation) -> Run:
    function, out = scalar_function(op), code.slot(op.results[0])
    operands = [code.slot(v) for v in op.operands]
    if not operands:
        value = function()
        return lambda env: env.__setitem__(out, value)
    return lambda env: env.__setitem__(out, function(*[env[s] for s in operands]))
