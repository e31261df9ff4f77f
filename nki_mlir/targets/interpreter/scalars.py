# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles scalar operations to NumPy functions on numbers and, in ``linalg.generic`` bodies, on complete arrays.

Outside of bodies, they are index arithmetic on numbers: of loops, addresses and conditions.
"""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.attributes import affine_value
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import BOOL, INT64, DType, convert
from nki_mlir.scalar.mathematics import MATH
from nki_mlir.scalar.predicates import COMPARISONS
from nki_mlir.waist import function as waist
from nki_mlir.waist.nest import Step
from nki_mlir.waist.nest_reader import scalar_dtype

Function = Callable[..., Any]


def scalar_function(node: waist.ScalarValue) -> Function:
    """Return the function by which a node computes its value from its operands' values."""
    match node:
        case waist.ScalarConstant():
            number = node.number if node.dtype is None else node.dtype.numpy.type(node.number)
            return lambda: number
        case waist.IndexOperation():
            return _INTEGERS[node.function]
        case waist.IndexMap():
            forms = compile_map(node.mapping)
            if not node.choice:
                form, = forms
                return lambda *values: form(values)
            choose = _INTEGERS[node.choice]
            return lambda *values: reduce(choose, [form(values) for form in forms])
        case waist.IndexCast():
            dtype = (scalar_dtype(node.result.type) or INT64).numpy
            if node.unsigned:
                return lambda value: _unsigned(np.asarray(value)).astype(dtype)
            return lambda value: np.asarray(value).astype(dtype)
        case waist.ScalarStep():
            return function_of(node.step, node.dtypes)
    raise InternalError(f"unknown node {node}")


def function_of(step: Step, kinds: Sequence[DType]) -> Function:
    """Return the function of a step on values of these dtypes."""
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


def _floordiv(a: Any, b: Any) -> Any:
    """Divide and round down. The quotient by 0 is 0 for Python's integers, too, as in NumPy."""
    return a // b if np.ndim(b) or b else 0 * a


# -- affine maps, outside of bodies also those that are not linear -----------------------------------------------------
_AFFINE: dict[str, Function] = {"add": operator.add, "mult": operator.mul, "mod": operator.mod,
                                "floordiv": operator.floordiv}


def compile_map(mapping: ir.AffineMap) -> list[Function]:
    """Return the results of an affine map as functions of the list of its operands."""
    def combine(name: str, left: Function, right: Function) -> Function:
        function = _AFFINE[name]
        return lambda values: function(left(values), right(values))
    operands: list[Function] = [operator.itemgetter(k) for k in range(mapping.n_inputs)]
    return [affine_value(e, operands, mapping.n_dims, lambda n: lambda values: n, combine) for e in mapping.results]


def _unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "i" else array


def _on_unsigned(function: Function) -> Function:
    return lambda a, b: function(_unsigned(np.asarray(a)), _unsigned(np.asarray(b)))


_INTEGERS: dict[str, Function] = {
    "add": operator.add, "subtract": operator.sub, "mult": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "min": np.minimum, "max": np.maximum, "floordiv": _floordiv,
    "select": lambda c, a, b: np.where(c, a, b) if np.ndim(c) else a if c else b,
    **dict(zip(waist.COMPARISONS, [*(comparison.holds for comparison in COMPARISONS),
                                   *map(_on_unsigned, (np.less, np.less_equal, np.greater, np.greater_equal))]))}
