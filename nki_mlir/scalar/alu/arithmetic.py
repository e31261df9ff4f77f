# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic operators: sums, products, extrema, remainders, powers.

Integers wrap. Extrema propagate NaN, and a result of maximum or minimum that is zero is +0: with one zero the folds
do not depend on the order of the elements.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.alu.op import AluOperator, Axes, flatten, fold, highest, lowest
from nki_mlir.scalar.dtypes import DType, Encoding

if TYPE_CHECKING:
    from nki_mlir.bindings import Value
    from nki_mlir.scalar.emit import ScalarEmitter


# -- sums and products

def _reduce_subtract(array: np.ndarray, axes: Axes) -> np.ndarray:
    flat = flatten(array, axes)
    return flat[..., 0] - flat[..., 1:].sum(axis=-1, dtype=array.dtype)


def _reduce_average(array: np.ndarray, axes: Axes) -> np.ndarray:
    return np.mean(array, axis=axes, dtype=array.dtype)


AluOperator("add", 2, "arithmetic", np.add, lambda e, d, a, b: e.add(a, b), commutative=True, start=0,
            reduce=fold(np.add))
AluOperator("subtract", 2, "arithmetic", np.subtract, lambda e, d, a, b: e.sub(a, b), reduce=_reduce_subtract)
AluOperator("multiply", 2, "arithmetic", np.multiply, lambda e, d, a, b: e.mul(a, b), asm="mult", commutative=True,
            start=1, reduce=fold(np.multiply))
AluOperator("divide", 2, "arithmetic", np.divide, lambda e, d, a, b: e.div(a, b), integers=False)
AluOperator("average", 2, "arithmetic", lambda a, b: (a + b) * np.float32(0.5),
            lambda e, d, a, b: e.mul(e.add(a, b), 0.5), integers=False, commutative=True, reduce=_reduce_average)


# -- one operand

def _abs(e: "ScalarEmitter", d: DType, a: "Value") -> "Value":
    return a if d.kind is Encoding.UNSIGNED else e.abs(a)


AluOperator("abs", 1, "arithmetic", np.absolute, _abs)
AluOperator("negative", 1, "arithmetic", np.negative, lambda e, d, a: e.neg(a))
AluOperator("square", 1, "arithmetic", np.square, lambda e, d, a: e.mul(a, a))
AluOperator("reciprocal", 1, "arithmetic", lambda a: np.float32(1) / a, lambda e, d, a: e.div(1.0, a), integers=False)
AluOperator("rsqrt", 1, "arithmetic", lambda a: np.float32(1) / np.sqrt(a), lambda e, d, a: e.div(1.0, e.sqrt(a)),
            integers=False)


# -- extrema

def _one_zero(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        array += np.float32(0)
    return array


def _fold_extremum(extremum: np.ufunc) -> Callable[[np.ndarray, Axes], np.ndarray]:
    folded = fold(extremum)
    return lambda array, axes: _one_zero(folded(array, axes))


def _expand_extremum(e: "ScalarEmitter", d: DType, a: "Value", b: "Value", above: str, integer: str) -> "Value":
    if d.is_integer:
        return getattr(e, f"{integer}{'si' if d.kind is Encoding.SIGNED else 'ui'}")(a, b)
    larger = e.select(e.cmp(above, a, b), a, b)             # b where either is NaN
    return e.add(e.select(e.cmp("uno", a, a), a, larger), 0.0)


def _expand_maximum(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
    return _expand_extremum(e, d, a, b, "ogt", "max")


def _expand_minimum(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
    return _expand_extremum(e, d, a, b, "olt", "min")


def _expand_relu(e: "ScalarEmitter", d: DType, a: "Value") -> "Value":
    return a if d.kind is Encoding.UNSIGNED else _expand_maximum(e, d, a, e.const(a, 0))


AluOperator("maximum", 2, "arithmetic", lambda a, b: _one_zero(np.maximum(a, b)), _expand_maximum, asm="max",
            commutative=True, start=lowest, reduce=_fold_extremum(np.maximum))
AluOperator("minimum", 2, "arithmetic", lambda a, b: _one_zero(np.minimum(a, b)), _expand_minimum, asm="min",
            commutative=True, start=highest, reduce=_fold_extremum(np.minimum))
AluOperator("relu", 1, "arithmetic", lambda a: _one_zero(np.maximum(a, a.dtype.type(0))), _expand_relu)


# -- extrema by magnitude: the value that wins keeps its sign, a tie gives the second operand

def _magnitude(array: np.ndarray) -> np.ndarray:
    """|array|; unsigned for integers, where the lowest has no positive counterpart."""
    magnitude = np.absolute(array)
    return magnitude.view(f"u{array.itemsize}") if array.dtype.kind == "i" else magnitude


def _by_magnitude(beats: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def choose(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        first = beats(_magnitude(a), _magnitude(b))
        if a.dtype.kind == "f":
            first |= np.isnan(a)
        return np.where(first, a, b)
    return choose


def _reduce_by_magnitude(arg: Callable[..., np.ndarray]) -> Callable[[np.ndarray, Axes], np.ndarray]:
    def choose(array: np.ndarray, axes: Axes) -> np.ndarray:
        flat = flatten(array, axes)[..., ::-1]              # of equal magnitudes the last element wins
        return np.take_along_axis(flat, arg(_magnitude(flat), axis=-1, keepdims=True), axis=-1)[..., 0]
    return choose


def _expand_by_magnitude(e: "ScalarEmitter", d: DType, a: "Value", b: "Value", beats: str) -> "Value":
    if d.is_integer:
        return e.select(e.cmp(beats, _abs(e, d, a), _abs(e, d, b)), a, b)
    first = e.cmp("o" + beats[1:], e.abs(a), e.abs(b))
    return e.select(e.or_(first, e.cmp("uno", a, a)), a, b)


def _lowest_magnitude_identity(dtype: DType) -> int | float:
    # In two's complement the lowest integer has the largest magnitude.
    return lowest(dtype) if dtype.kind is Encoding.SIGNED else highest(dtype)


AluOperator("abs_max", 2, "arithmetic", _by_magnitude(np.greater),
            lambda e, d, a, b: _expand_by_magnitude(e, d, a, b, "ugt"), start=0, reduce=_reduce_by_magnitude(np.argmax))
AluOperator("abs_min", 2, "arithmetic", _by_magnitude(np.less),
            lambda e, d, a, b: _expand_by_magnitude(e, d, a, b, "ult"), start=_lowest_magnitude_identity,
            reduce=_reduce_by_magnitude(np.argmin))


# -- remainders and powers. An integer remainder by zero is zero.

def _expand_fmod(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
    if d.is_float:
        return e.remf(a, b)
    zero = e.cmp("eq", b, 0)
    if d.kind is not Encoding.SIGNED:
        return e.select(zero, e.const(a, 0), e.remui(a, e.select(zero, e.const(b, 1), b)))
    # x rem -1 is 0, and traps for the lowest x when it is computed.
    trivial = e.or_(zero, e.cmp("eq", b, -1))
    return e.select(trivial, e.const(a, 0), e.remsi(a, e.select(trivial, e.const(b, 1), b)))


def _expand_mod(e: "ScalarEmitter", d: DType, a: "Value", b: "Value") -> "Value":
    remainder = _expand_fmod(e, d, a, b)
    if d.is_float:
        opposite = e.cmp("one", e.copysign(1.0, remainder), e.copysign(1.0, b))
        moved = e.select(opposite, e.add(remainder, b), remainder)
        return e.select(e.cmp("oeq", remainder, 0.0), e.copysign(0.0, b), moved)
    if d.kind is not Encoding.SIGNED:
        return remainder
    opposite = e.and_(e.cmp("slt", e.xor(remainder, b), 0), e.cmp("ne", remainder, 0))
    return e.select(opposite, e.add(remainder, b), remainder)


AluOperator("mod", 2, "arithmetic", np.remainder, _expand_mod)                # the sign of the divisor, as Python's %
AluOperator("fmod", 2, "arithmetic", np.fmod, _expand_fmod)                   # the sign of the dividend, as C's fmod
AluOperator("power", 2, "arithmetic", np.power, lambda e, d, a, b: e.libm("powf", a, b), asm="pow", integers=False,
            ulp=4)


# -- moves

def _bypass(array: np.ndarray) -> np.ndarray:
    return array


def _select(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(condition != 0, a, b)


AluOperator("bypass", 1, "selection", _bypass, lambda e, d, a: a)
AluOperator("select", 3, "selection", _select, lambda e, d, c, a, b: e.select(e.nonzero(c), a, b))
